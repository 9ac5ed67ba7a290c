//! DescribeTopicPartitions: topics and their partitions, a page at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_kafka_wire::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use punctual_model::ports::Topic;

use crate::kafka::call::Call;
use crate::kafka::metadata::{LEADER_EPOCH, known_topics};
use crate::kafka::refusal::Refusal;
use crate::kafka::rights::topic_operations;
use crate::kafka::shared::NODE_ID;

/// Most partitions of one page.
const PARTITIONS_MAX: i32 = 2000;

/// A page of topics and their partitions, by name.
pub(crate) async fn describe_topic_partitions(
    call: &Call,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let (first, mut skipped) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.as_str(), cursor.partition_index.max(0)),
        None => ("", 0),
    };
    let mut room = request.response_partition_limit.clamp(1, PARTITIONS_MAX);
    let mut page = DescribeTopicPartitionsResponse::default();
    for (name, found) in asked(call, &request).await {
        if name.as_str() < first {
            continue;
        }
        if name != first {
            skipped = 0;
        }
        if room == 0 {
            page.next_cursor = Some(Cursor { topic_name: name, partition_index: skipped });
            break;
        }
        match found {
            Ok(topic) => {
                let end = i32::from(topic.settings.partitions);
                let until = end.min(skipped.saturating_add(room));
                page.topics.push(shown(call, &topic, skipped..until));
                room -= (until - skipped).max(0);
                if until < end {
                    page.next_cursor = Some(Cursor { topic_name: name, partition_index: until });
                    break;
                }
            }
            Err(refusal) => page.topics.push(refused(name, &refusal)),
        }
    }
    page
}

/// What is asked for, by name; without names everything.
async fn asked(
    call: &Call,
    request: &DescribeTopicPartitionsRequest,
) -> Vec<(String, Result<Arc<Topic>, Refusal>)> {
    if request.topics.is_empty() {
        let all = known_topics(call).await;
        return all.into_iter().map(|topic| (topic.name.to_string(), Ok(topic))).collect();
    }
    let names: BTreeSet<&str> = request.topics.iter().map(|topic| topic.name.as_str()).collect();
    names.into_iter().map(|name| (name.to_owned(), call.topic_named(name))).collect()
}

fn shown(
    call: &Call,
    topic: &Topic,
    partitions: std::ops::Range<i32>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = partitions.map(|partition_index| DescribeTopicPartitionsResponsePartition {
        partition_index,
        leader_id: NODE_ID,
        leader_epoch: LEADER_EPOCH,
        replica_nodes: vec![NODE_ID],
        isr_nodes: vec![NODE_ID],
        eligible_leader_replicas: Some(Vec::new()),
        last_known_elr: Some(Vec::new()),
        ..DescribeTopicPartitionsResponsePartition::default()
    });
    DescribeTopicPartitionsResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id: call.shared.cluster.uuid(topic.id),
        partitions: partitions.collect(),
        topic_authorized_operations: topic_operations(call, &topic.name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}

fn refused(name: String, refusal: &Refusal) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic {
        error_code: refusal.code.code(),
        name: Some(name),
        ..DescribeTopicPartitionsResponseTopic::default()
    }
}
