//! DeleteRecords: what lies before an offset goes.

use std::sync::Arc;

use punctual_api::{Code, Problem};
use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteRecordsTopic, DeleteRecordsTopicResult,
};
use punctual_model::Partition;
use punctual_model::ports::{LogPosition, SliceError, Topic};

use crate::access::Permission;
use crate::http::audit;
use crate::http::problem::{of_broken_off, of_topic};
use crate::kafka::call::Call;
use crate::kafka::refusal::Refusal;

/// What the start of a log is said to be where nothing is known of it.
const NO_OFFSET: i64 = -1;
/// Asks for everything that is there.
const EVERYTHING: i64 = -1;

/// Takes records off the front of logs.
pub(crate) async fn delete_records(
    call: &Call,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    for asked in request.topics {
        let partitions = of_topic_named(call, &asked).await;
        response.topics.push(DeleteRecordsTopicResult { name: asked.name, partitions });
    }
    response
}

async fn of_topic_named(
    call: &Call,
    asked: &DeleteRecordsTopic,
) -> Vec<DeleteRecordsPartitionResult> {
    let topic = call.topic_named(&asked.name).and_then(|topic| {
        match call.may_topic(Permission::Manage, &topic.name) {
            true => Ok(topic),
            false => Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED.into()),
        }
    });
    let mut results = Vec::with_capacity(asked.partitions.len());
    for partition in &asked.partitions {
        let outcome = match &topic {
            Ok(topic) => trim(call, topic, partition).await,
            Err(refusal) => Err(refusal.clone()),
        };
        let (low_watermark, code) = match outcome {
            Ok(start) => (i64::try_from(start).unwrap_or(i64::MAX), ErrorCode::NONE),
            Err(refusal) => (NO_OFFSET, refusal.code),
        };
        results.push(DeleteRecordsPartitionResult {
            partition_index: partition.partition_index,
            low_watermark,
            error_code: code.code(),
        });
    }
    results
}

/// Where the log starts afterwards.
async fn trim(
    call: &Call,
    topic: &Arc<Topic>,
    asked: &DeleteRecordsPartition,
) -> Result<u64, Refusal> {
    let known = |number: &u16| *number < topic.settings.partitions;
    let number = u16::try_from(asked.partition_index).ok().filter(known);
    let partition = number.and_then(Partition::new).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    let records = call.shared.records()?;
    let (shared, topics) = (&call.shared.shared, Arc::clone(call.shared.broker.topics()));
    let (id, offset) = (topic.id, asked.offset);
    let bounds = topics.bounds(id, partition).map_err(Refusal::of_topic)?;
    let offset = match offset {
        EVERYTHING => bounds.end,
        offset => u64::try_from(offset).map_err(|_negative| ErrorCode::OFFSET_OUT_OF_RANGE)?,
    };
    if offset > bounds.end {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE.into());
    }
    let position = LogPosition { topic: id, partition, offset };
    let work = async {
        let trimmed = call.shared.tasks.blocking(move || records.trim(position)).await;
        trimmed.map_err(of_broken_off)?.map_err(of_slice)
    };
    let details = vec![("partition", partition.get().to_string()), ("before", offset.to_string())];
    let what = ("records_delete", Some(&topic.name));
    let trimmed = audit::taken_down(shared, call.asker(), what, details, work).await;
    trimmed.map_err(|problem| match problem.code {
        Code::InvalidField => ErrorCode::OFFSET_OUT_OF_RANGE.into(),
        _ => Refusal::of_problem(problem),
    })
}

fn of_slice(error: SliceError) -> Problem {
    match error {
        SliceError::OutOfRange(_) => Problem::new(Code::InvalidField, error.to_string()),
        SliceError::Topic(error) => of_topic(error),
    }
}
