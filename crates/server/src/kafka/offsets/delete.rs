//! `OffsetDelete`

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse,
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use punctual_model::ports::GroupError;
use punctual_model::{GroupName, GroupSettings, Partition, TopicName};

use super::{of_group, partition, topic};
use crate::kafka::call::Call;
use crate::kafka::coordinator::{Stored, consumed, remove};

/// `OffsetDelete`: forgets what was committed, unless somebody in the group reads the topic.
pub(crate) async fn offset_delete(
    call: &Call,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let group = match known(call, &request.group_id) {
        Ok(group) => group,
        Err(code) => return OffsetDeleteResponse { error_code: code.code(), ..Default::default() },
    };
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let codes = forget(call, &group, &asked).await;
        let answered = asked.partitions.iter().zip(codes).map(|(asked, code)| {
            let (partition_index, error_code) = (asked.partition_index, code.code());
            OffsetDeleteResponsePartition { partition_index, error_code }
        });
        let partitions = answered.collect();
        topics.push(OffsetDeleteResponseTopic { name: asked.name, partitions });
    }
    OffsetDeleteResponse { topics, ..Default::default() }
}

/// A group whose members, if it has any, are consumers.
fn known(call: &Call, name: &str) -> Result<GroupName, ErrorCode> {
    let group = consumed(call, name)?;
    let coordinator = &call.shared.coordinator;
    let has_members = coordinator.look(|machine| machine.has_members(&group));
    if !has_members && Stored::of(&call.shared.broker, &group).topics.is_empty() {
        return Err(ErrorCode::GROUP_ID_NOT_FOUND);
    }
    match coordinator.wants(&group, "") {
        Ok(_) => Ok(group),
        Err(_not_consumers) => Err(ErrorCode::NON_EMPTY_GROUP),
    }
}

/// Forgets the partitions of one topic; answers a code for each.
async fn forget(
    call: &Call,
    group: &GroupName,
    asked: &OffsetDeleteRequestTopic,
) -> Vec<ErrorCode> {
    let all = |code: ErrorCode| vec![code; asked.partitions.len()];
    let topic = match topic(call, &asked.name, &[0; 16]) {
        Ok(topic) if !call.may_consume(&topic.name, group) => {
            return all(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        Ok(topic) => topic,
        Err(code) => return all(code),
    };
    if call.shared.coordinator.wants(group, &asked.name) != Ok(false) {
        return all(ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
    }
    let read: Vec<Option<Partition>> =
        asked.partitions.iter().map(|one| partition(&topic, one.partition_index)).collect();
    let partitions: Vec<Partition> = read.iter().copied().flatten().collect();
    let done = forgotten(call, topic.name.clone(), group.clone(), partitions).await;
    let missing = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    read.into_iter()
        .map(|one| one.ok_or(missing).and(done).err().unwrap_or(ErrorCode::NONE))
        .collect()
}

async fn forgotten(
    call: &Call,
    topic: TopicName,
    group: GroupName,
    partitions: Vec<Partition>,
) -> Result<(), ErrorCode> {
    if partitions.is_empty() {
        return Ok(());
    }
    let consumer = match call.shared.broker.consumers().find(&topic, &group) {
        Ok(consumer) => consumer,
        // It has no commits.
        Err(GroupError::NotFound) => return Ok(()),
        Err(error) => return Err(of_group(&error)),
    };
    let work = move || {
        consumer.forget(&partitions)?;
        let standing = consumer.standing()?;
        let is_plain = consumer.group().settings == GroupSettings::default();
        let holds = standing.dead + standing.retrying + standing.in_flight > 0;
        Ok(is_plain && !holds && consumer.placed().is_empty())
    };
    let is_left = match call.shared.tasks.blocking(work).await {
        Ok(done) => done.map_err(|error: GroupError| of_group(&error))?,
        Err(_broken_off) => return Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    };
    // A group that was made by a commit goes with its last one.
    if is_left {
        remove(call, topic, group).await?;
    }
    Ok(())
}
