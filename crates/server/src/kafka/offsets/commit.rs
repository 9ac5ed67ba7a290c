//! `OffsetCommit`

use std::sync::Arc;

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use punctual_model::group::Committed;
use punctual_model::limits::COMMIT_TEXT_BYTES_MAX;
use punctual_model::ports::{GroupError, Topic};
use punctual_model::{GroupName, Partition};

use super::{of_group, partition, topic};
use crate::kafka::call::Call;
use crate::kafka::coordinator::{Refusal, consumed, who};

/// `OffsetCommit`: answered when it survives a crash.
pub(crate) async fn offset_commit(
    call: &Call,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let who = who(request.member_id, request.group_instance_id);
    let generation = request.generation_id_or_member_epoch;
    let group = consumed(call, &request.group_id).and_then(|group| {
        let counts = call.shared.coordinator.commit(&group, &who, generation);
        counts.map(|()| group).map_err(Refusal::code)
    });
    let mut topics = Vec::with_capacity(request.topics.len());
    for asked in request.topics {
        let codes = match &group {
            Ok(group) => commit(call, group, &asked).await,
            Err(code) => vec![*code; asked.partitions.len()],
        };
        let answered = asked.partitions.iter().zip(codes).map(|(asked, code)| {
            let (partition_index, error_code) = (asked.partition_index, code.code());
            OffsetCommitResponsePartition { partition_index, error_code }
        });
        let partitions = answered.collect();
        let (name, topic_id) = (asked.name, asked.topic_id);
        topics.push(OffsetCommitResponseTopic { name, topic_id, partitions });
    }
    OffsetCommitResponse { topics, ..Default::default() }
}

/// Commits for the partitions of one topic, all at once; answers a code for each.
async fn commit(
    call: &Call,
    group: &GroupName,
    asked: &OffsetCommitRequestTopic,
) -> Vec<ErrorCode> {
    let all = |code: ErrorCode| vec![code; asked.partitions.len()];
    let topic = match topic(call, &asked.name, &asked.topic_id) {
        Ok(topic) if !call.may_consume(&topic.name, group) => {
            return all(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
        }
        Ok(topic) => topic,
        Err(code) => return all(code),
    };
    let (mut places, mut nowhere) = (Vec::new(), Vec::new());
    let mut read = Vec::with_capacity(asked.partitions.len());
    for one in &asked.partitions {
        read.push(said(&topic, one).map(|(partition, said)| match said {
            Some(said) => places.push((partition, said)),
            None => nowhere.push(partition),
        }));
    }
    let done = store(call, topic, group, places, nowhere).await;
    read.into_iter().map(|one| one.and(done).err().unwrap_or(ErrorCode::NONE)).collect()
}

async fn store(
    call: &Call,
    topic: Arc<Topic>,
    group: &GroupName,
    places: Vec<(Partition, Committed)>,
    nowhere: Vec<Partition>,
) -> Result<(), ErrorCode> {
    if places.is_empty() && nowhere.is_empty() {
        return Ok(());
    }
    let (consumers, group) = (call.shared.broker.consumers().clone(), group.clone());
    let work = move || {
        if !places.is_empty() {
            consumers.open(&topic.name, &group)?.commit_said(places)?;
        }
        match consumers.find(&topic.name, &group) {
            Ok(consumer) if !nowhere.is_empty() => consumer.forget(&nowhere),
            Ok(_) | Err(GroupError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    };
    match call.shared.tasks.blocking(work).await {
        Ok(done) => done.map_err(|error| of_group(&error)),
        Err(_broken_off) => Err(ErrorCode::COORDINATOR_NOT_AVAILABLE),
    }
}

/// What is to be kept for a partition. A negative offset is no place: some clients commit one so that
/// the group begins anew, and take it for none when they are told it again.
fn said(
    topic: &Topic,
    asked: &OffsetCommitRequestPartition,
) -> Result<(Partition, Option<Committed>), ErrorCode> {
    let place = partition(topic, asked.partition_index);
    let place = place.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let text = asked.committed_metadata.as_deref().unwrap_or_default();
    if text.len() > COMMIT_TEXT_BYTES_MAX {
        return Err(ErrorCode::OFFSET_METADATA_TOO_LARGE);
    }
    let leader_epoch = u32::try_from(asked.committed_leader_epoch).ok();
    let said = |offset| Committed { offset, text: text.into(), leader_epoch };
    Ok((place, u64::try_from(asked.committed_offset).ok().map(said)))
}
