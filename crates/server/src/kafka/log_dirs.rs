//! DescribeLogDirs: how much room the logs take on disk.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_engine::log::partition_dir;
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};
use punctual_model::Partition;
use punctual_model::ports::Topic;

use crate::access::Permission;
use crate::kafka::call::Call;
use crate::kafka::metadata::known_topics;
use crate::machine;

/// A topic and which of its partitions are asked for.
type Asked = (Arc<Topic>, Vec<Partition>);

/// How much room the logs take on disk.
pub(crate) async fn describe_log_dirs(
    call: &Call,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    if !call.may_whole(Permission::Observe) {
        return DescribeLogDirsResponse {
            error_code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED.code(),
            ..DescribeLogDirsResponse::default()
        };
    }
    let asked = asked(call, request).await;
    let data = call.shared.live().config.store.data.clone();
    let look = move || looked(data, asked);
    let result = call.shared.tasks.blocking(look).await.unwrap_or_else(|_broken_off| {
        let error_code = ErrorCode::KAFKA_STORAGE_ERROR.code();
        DescribeLogDirsResult { error_code, ..DescribeLogDirsResult::default() }
    });
    DescribeLogDirsResponse { results: vec![result], ..DescribeLogDirsResponse::default() }
}

async fn asked(call: &Call, request: DescribeLogDirsRequest) -> Vec<Asked> {
    let all = |topic: &Topic| (0..topic.settings.partitions).filter_map(Partition::new).collect();
    let Some(named) = request.topics else {
        let topics = known_topics(call).await;
        return topics.into_iter().map(|topic| (Arc::clone(&topic), all(&topic))).collect();
    };
    // Who names a topic twice is told once.
    let mut asked: BTreeMap<String, Asked> = BTreeMap::new();
    for one in named {
        let Ok(topic) = call.topic_named(&one.topic) else { continue };
        let numbers = one.partitions.iter().filter_map(|number| u16::try_from(*number).ok());
        let end = topic.settings.partitions;
        let partitions = numbers.filter(|number| *number < end).filter_map(Partition::new);
        asked.entry(one.topic).or_insert_with(|| (topic, Vec::new())).1.extend(partitions);
    }
    asked.into_values().collect()
}

fn looked(data: PathBuf, asked: Vec<Asked>) -> DescribeLogDirsResult {
    let bytes = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let topics = asked.into_iter().map(|(topic, partitions)| DescribeLogDirsTopic {
        name: topic.name.to_string(),
        partitions: partitions
            .into_iter()
            .map(|partition| DescribeLogDirsPartition {
                partition_index: i32::from(partition.get()),
                partition_size: bytes(machine::file_bytes(
                    &data.join(partition_dir(topic.id, partition)),
                )),
                ..DescribeLogDirsPartition::default()
            })
            .collect(),
    });
    let topics = topics.collect();
    let room = machine::room(&data);
    DescribeLogDirsResult {
        log_dir: data.display().to_string(),
        topics,
        total_bytes: room.map_or(-1, |room| bytes(room.total)),
        usable_bytes: room.map_or(-1, |room| bytes(room.usable)),
        ..DescribeLogDirsResult::default()
    }
}
