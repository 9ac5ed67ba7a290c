//! ShareAcknowledge: a member says what became of records that it has acquired.

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::share_acknowledge::{
    LeaderIdAndEpoch, PartitionData, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
};
use punctual_model::limits::LEASE_DEFAULT;
use punctual_model::{GroupName, TopicId};

use super::MemberKey;
use super::fetch::{CLOSES, part_of};
use super::sessions::{Part, Ticket};
use super::settle::{Said, settle};
use crate::kafka::call::Call;
use crate::kafka::metadata::LEADER_EPOCH;
use crate::kafka::refusal::Refusal;
use crate::kafka::shared::NODE_ID;

/// A member says what became of records.
pub(crate) async fn share_acknowledge(
    call: &Call,
    request: ShareAcknowledgeRequest,
) -> ShareAcknowledgeResponse {
    acknowledged(call, request).await.unwrap_or_else(|refusal| ShareAcknowledgeResponse {
        error_code: refusal.code.code(),
        error_message: refusal.message,
        ..ShareAcknowledgeResponse::default()
    })
}

async fn acknowledged(
    call: &Call,
    request: ShareAcknowledgeRequest,
) -> Result<ShareAcknowledgeResponse, Refusal> {
    let group = request.group_id.as_deref().unwrap_or_default();
    let key = MemberKey::of(call, group, request.member_id.as_deref().unwrap_or_default())?;
    let ticket = begin(call, &key, request.share_session_epoch)?;
    let mut said = Vec::new();
    let mut responses = Vec::with_capacity(request.topics.len());
    // Where the answer about each thing said belongs.
    let mut open = Vec::new();
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for named in topic.partitions {
            let mut data = answer(named.partition_index);
            match part_of(call, &key.group, (&topic.topic_id, named.partition_index)) {
                Ok(part) => {
                    let batches = named.acknowledgement_batches.into_iter();
                    said.push(Said { part, stretches: batches.map(Into::into).collect() });
                    open.push((responses.len(), partitions.len()));
                }
                Err(code) => data.error_code = code.code(),
            }
            partitions.push(data);
        }
        responses.push(ShareAcknowledgeTopicResponse { topic_id: topic.topic_id, partitions });
    }
    let lock = lock(call, &key.group, said.iter().map(|said: &Said| said.part));
    let codes = settle(call, &ticket, said, request.is_renew_ack).await;
    for ((topic, partition), code) in open.into_iter().zip(codes) {
        let topic: Option<&mut ShareAcknowledgeTopicResponse> = responses.get_mut(topic);
        if let Some(data) = topic.and_then(|topic| topic.partitions.get_mut(partition)) {
            data.error_code = code.code();
        }
    }
    if request.share_session_epoch == CLOSES {
        call.shared.shares.close(&key);
    }
    Ok(ShareAcknowledgeResponse {
        acquisition_lock_timeout_ms: lock,
        responses,
        ..ShareAcknowledgeResponse::default()
    })
}

/// Only a fetch opens a session, so here it goes on, or ends.
fn begin(call: &Call, key: &MemberKey, epoch: i32) -> Result<Ticket, ErrorCode> {
    let shares = &call.shared.shares;
    match epoch {
        0 => Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH),
        CLOSES => shares.inner.sessions.lock().of(key),
        epoch => {
            let ticket = shares.inner.sessions.lock().go_on(key, epoch, call.connection.number)?;
            shares.follow(call);
            Ok(ticket)
        }
    }
}

/// For how long what is renewed is held from now on: the shortest lease of the groups concerned.
fn lock(call: &Call, group: &GroupName, parts: impl Iterator<Item = Part>) -> i32 {
    let (topics, consumers) = (call.shared.broker.topics(), call.shared.broker.consumers());
    let lease = |topic: TopicId| {
        let topic = topics.by_id(topic)?;
        let consumer = consumers.find(&topic.name, group).ok()?;
        Some(consumer.group().settings.lease.as_millis())
    };
    let least = parts.filter_map(|part| lease(part.0)).min();
    i32::try_from(least.unwrap_or(LEASE_DEFAULT.as_millis())).unwrap_or(i32::MAX)
}

fn answer(partition_index: i32) -> PartitionData {
    let current_leader = LeaderIdAndEpoch { leader_id: NODE_ID, leader_epoch: LEADER_EPOCH };
    PartitionData { partition_index, current_leader, ..PartitionData::default() }
}
