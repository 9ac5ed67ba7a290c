//! ShareGroupHeartbeat: members join, are heard of, and leave; each learns what it is assigned.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_api::{Code, Problem};
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::share_group_heartbeat::{
    Assignment as Assigned, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
    TopicPartitions,
};
use punctual_model::ports::Topic;
use punctual_model::topic::TopicKind;
use punctual_model::{GroupName, TopicName};
use tokio::time::Instant;

use super::MemberKey;
use super::members::{Assignment, Beat, HEARTBEAT_INTERVAL, Who};
use crate::access::Permission;
use crate::kafka::call::Call;
use crate::kafka::refusal::Refusal;
use crate::receiving;

/// The epoch of a member that leaves.
const LEAVES: i32 = -1;

/// A member is heard of.
pub(crate) async fn share_group_heartbeat(
    call: &Call,
    request: ShareGroupHeartbeatRequest,
) -> ShareGroupHeartbeatResponse {
    let member = request.member_id.clone();
    let mut response =
        heard(call, request).await.unwrap_or_else(|refusal| ShareGroupHeartbeatResponse {
            error_code: refusal.code.code(),
            error_message: refusal.message,
            ..ShareGroupHeartbeatResponse::default()
        });
    response.member_id = Some(member);
    let interval = HEARTBEAT_INTERVAL.as_millis();
    response.heartbeat_interval_ms = i32::try_from(interval).unwrap_or(i32::MAX);
    response
}

async fn heard(
    call: &Call,
    request: ShareGroupHeartbeatRequest,
) -> Result<ShareGroupHeartbeatResponse, Refusal> {
    let key = MemberKey::of(call, &request.group_id, &request.member_id)?;
    let shares = &call.shared.shares;
    if request.member_epoch == LEAVES {
        if !shares.inner.members.lock().leave(&key) {
            return Err(ErrorCode::UNKNOWN_MEMBER_ID.into());
        }
        // Its session it closes itself, and says there what became of the last records.
        return Ok(ShareGroupHeartbeatResponse { member_epoch: LEAVES, ..Default::default() });
    }
    let beat = Beat {
        epoch: request.member_epoch,
        topics: request.subscribed_topic_names.map(|names| read_names(&names)).transpose()?,
        who: Who {
            client_id: call.client_id.clone(),
            host: call.from.ip().to_string(),
            rack: request.rack_id,
        },
    };
    // Who may not consume is no member: asked before anything is changed.
    if let Some(names) = &beat.topics {
        names.iter().try_for_each(|name| may_consume(call, name, &key.group))?;
    }
    let names = shares.inner.members.lock().beat(&key, beat, Instant::now())?;
    shares.inner.joined.notify_one();
    let assigned = assignment(call, &names, &key.group).await?;
    let (epoch, tell) =
        shares.inner.members.lock().assign(&key, &assigned).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
    Ok(ShareGroupHeartbeatResponse {
        member_epoch: epoch,
        assignment: tell.then(|| told(call, &assigned)),
        ..Default::default()
    })
}

fn read_names(names: &[String]) -> Result<BTreeSet<TopicName>, Refusal> {
    let name = |text: &String| TopicName::new(text).map_err(|_illegal| Refusal::illegal_name());
    names.iter().map(name).collect()
}

/// Whether the caller may consume that topic with that group.
pub(super) fn may_consume(
    call: &Call,
    topic: &TopicName,
    group: &GroupName,
) -> Result<(), ErrorCode> {
    if call.may_consume(topic, group) {
        Ok(())
    } else if call.may_topic(Permission::Consume, topic) {
        Err(ErrorCode::GROUP_AUTHORIZATION_FAILED)
    } else {
        Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
    }
}

/// Everything of the topics there are. The group is made on each of them, so that it has its place
/// there from now on.
async fn assignment(
    call: &Call,
    names: &BTreeSet<TopicName>,
    group: &GroupName,
) -> Result<Assignment, Refusal> {
    let mut assigned = Assignment::new();
    for name in names {
        may_consume(call, name, group)?;
        let topic = call.shared.broker.topics().by_name(name);
        let Some(topic) = topic.filter(is_consumed) else { continue };
        match receiving::open(&call.shared.shared, topic.name.clone(), group.clone()).await {
            Ok(_) => {
                assigned.insert(topic.id, topic.settings.partitions);
            }
            // It is gone again.
            Err(problem) if problem.code == Code::TopicNotFound => {}
            Err(problem) => return Err(of_open(problem)),
        }
    }
    Ok(assigned)
}

/// Whether groups consume such a topic: what waits to come back to a group is that group's alone.
pub(super) fn is_consumed(topic: &Arc<Topic>) -> bool {
    topic.kind != TopicKind::Retry
}

/// Why a group could not be made.
pub(super) fn of_open(problem: Problem) -> Refusal {
    let code = match problem.code {
        Code::InvalidGroupName | Code::GroupNameTaken => ErrorCode::INVALID_GROUP_ID,
        Code::TooManyGroups => ErrorCode::GROUP_MAX_SIZE_REACHED,
        Code::TopicNotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        _ => ErrorCode::COORDINATOR_NOT_AVAILABLE,
    };
    Refusal { code, message: Some(problem.detail.into_owned()) }
}

fn told(call: &Call, assigned: &Assignment) -> Assigned {
    let topic_partitions = assigned.iter().map(|(topic, partitions)| TopicPartitions {
        topic_id: call.shared.cluster.uuid(*topic),
        partitions: (0..i32::from(*partitions)).collect(),
    });
    Assigned { topic_partitions: topic_partitions.collect() }
}
