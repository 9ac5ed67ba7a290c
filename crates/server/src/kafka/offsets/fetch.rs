//! `OffsetFetch`

use std::collections::HashMap;

use punctual_kafka_wire::ErrorCode;
use punctual_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics, OffsetFetchResponse,
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use punctual_model::group::Committed;
use punctual_model::{GroupName, TopicKind, TopicName};

use super::topic;
use crate::access::{Permission, Target};
use crate::kafka::call::Call;
use crate::kafka::coordinator::{Stored, named};

/// From here on several groups are asked for at once.
const MANY_FROM: i16 = 8;
/// From here on a refusal of the whole has its own place.
const REFUSED_FROM: i16 = 2;
/// What is told of a partition without a commit.
const NOWHERE: i64 = -1;
const NO_EPOCH: i32 = -1;

/// `OffsetFetch`
pub(crate) async fn offset_fetch(call: &Call, request: OffsetFetchRequest) -> OffsetFetchResponse {
    if call.version >= MANY_FROM {
        let groups = request.groups.into_iter().map(|group| fetched(call, group)).collect();
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let topics = request.topics.map(|topics| {
        let one = |topic: punctual_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopic| {
            OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..Default::default()
            }
        };
        topics.into_iter().map(one).collect()
    });
    let group =
        OffsetFetchRequestGroup { group_id: request.group_id, topics, ..Default::default() };
    one_of_old(call, group)
}

/// The answer for one group, in the form of old.
fn one_of_old(call: &Call, mut group: OffsetFetchRequestGroup) -> OffsetFetchResponse {
    let asked = group.topics.clone().unwrap_or_default();
    if call.version < REFUSED_FROM && group.topics.is_none() {
        group.topics = Some(Vec::new());
    }
    let mut told = fetched(call, group);
    if told.error_code != 0 && call.version < REFUSED_FROM {
        let nothing = |topic: OffsetFetchRequestTopics| {
            let refused = |index: i32| nowhere(index, told.error_code);
            let partitions = topic.partition_indexes.into_iter().map(refused).collect();
            OffsetFetchResponseTopics { name: topic.name, partitions, ..Default::default() }
        };
        told.topics = asked.into_iter().map(nothing).collect();
    }
    let partition = |one: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: one.partition_index,
        committed_offset: one.committed_offset,
        committed_leader_epoch: one.committed_leader_epoch,
        metadata: one.metadata,
        error_code: one.error_code,
    };
    let topic = |topic: OffsetFetchResponseTopics| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    };
    OffsetFetchResponse {
        topics: told.topics.into_iter().map(topic).collect(),
        error_code: told.error_code,
        ..Default::default()
    }
}

fn fetched(call: &Call, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup {
    let rights = [Permission::Consume, Permission::See];
    let group = match named(call, &asked.group_id, &rights) {
        Ok(group) => group,
        Err(code) => {
            let (group_id, error_code) = (asked.group_id, code.code());
            return OffsetFetchResponseGroup { group_id, error_code, ..Default::default() };
        }
    };
    let topics = match asked.topics {
        Some(topics) => topics.into_iter().map(|asked| in_topic(call, &group, asked)).collect(),
        None => everywhere(call, &group),
    };
    OffsetFetchResponseGroup { group_id: asked.group_id, topics, ..Default::default() }
}

fn may_see(call: &Call, topic: &TopicName, group: &GroupName) -> bool {
    let rights = [Permission::Consume, Permission::See];
    rights.into_iter().any(|right| call.caller.may(right, Target::Group(topic, group)))
}

/// Where the group is in the partitions asked for. A topic that is not there is no error: it has no
/// commits.
fn in_topic(
    call: &Call,
    group: &GroupName,
    asked: OffsetFetchRequestTopics,
) -> OffsetFetchResponseTopics {
    let refused = |code: ErrorCode| {
        let told = |index: &i32| nowhere(*index, code.code());
        asked.partition_indexes.iter().map(told).collect::<Vec<_>>()
    };
    let partitions = match topic(call, &asked.name, &asked.topic_id) {
        Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => refused(ErrorCode::NONE),
        Err(code) => refused(code),
        Ok(topic) if !may_see(call, &topic.name, group) => {
            refused(ErrorCode::TOPIC_AUTHORIZATION_FAILED)
        }
        Ok(topic) => {
            let mut placed: HashMap<i32, Committed> = placed(call, &topic.name, group).collect();
            let tell = |index: &i32| match placed.remove(index) {
                Some(committed) => somewhere(*index, &committed),
                None => nowhere(*index, 0),
            };
            asked.partition_indexes.iter().map(tell).collect()
        }
    };
    OffsetFetchResponseTopics { name: asked.name, topic_id: asked.topic_id, partitions }
}

/// Where the group is, wherever it is.
fn everywhere(call: &Call, group: &GroupName) -> Vec<OffsetFetchResponseTopics> {
    let shared = &call.shared;
    let mut told = Vec::new();
    for name in Stored::of(&shared.broker, group).topics {
        let topic = shared.broker.topics().by_name(&name);
        let Some(topic) = topic.filter(|topic| topic.kind != TopicKind::Retry) else { continue };
        if !may_see(call, &name, group) {
            continue;
        }
        let partitions: Vec<OffsetFetchResponsePartitions> =
            placed(call, &name, group).map(|(index, said)| somewhere(index, &said)).collect();
        if !partitions.is_empty() {
            let (name, topic_id) = (name.to_string(), shared.cluster.uuid(topic.id));
            told.push(OffsetFetchResponseTopics { name, topic_id, partitions });
        }
    }
    told
}

fn placed(
    call: &Call,
    topic: &TopicName,
    group: &GroupName,
) -> impl Iterator<Item = (i32, Committed)> + use<> {
    let consumer = call.shared.broker.consumers().find(topic, group);
    let placed = consumer.map(|consumer| consumer.placed()).unwrap_or_default();
    placed.into_iter().map(|placed| (i32::from(placed.partition.get()), placed.committed))
}

fn nowhere(partition_index: i32, error_code: i16) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: NOWHERE,
        committed_leader_epoch: NO_EPOCH,
        metadata: Some(String::new()),
        error_code,
    }
}

fn somewhere(partition_index: i32, said: &Committed) -> OffsetFetchResponsePartitions {
    let epoch = said.leader_epoch.and_then(|epoch| i32::try_from(epoch).ok());
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: i64::try_from(said.offset).unwrap_or(i64::MAX),
        committed_leader_epoch: epoch.unwrap_or(NO_EPOCH),
        metadata: Some(said.text.to_string()),
        error_code: 0,
    }
}
