//! Fetches for tests: how they are asked, and what their answers hold.

use bytes::Bytes;
use punctual_kafka_wire::Records;
use punctual_kafka_wire::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};
use punctual_kafka_wire::messages::metadata::{MetadataRequest, MetadataRequestTopic};

use crate::kafka::Client;
use crate::kafka::batches::{Stored, batches, records};

/// The first version that names topics by id.
pub(crate) const BY_ID: i16 = 13;

/// A fetch of all there is, without waiting.
pub(crate) fn fetch(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest { topics, ..FetchRequest::default() }
}

/// The same for one who waits until there is anything.
pub(crate) fn patient(topics: Vec<FetchTopic>) -> FetchRequest {
    FetchRequest { max_wait_ms: i32::MAX, min_bytes: 1, ..fetch(topics) }
}

/// Partitions of a topic, each from an offset on.
pub(crate) fn topic(name: &str, partitions: &[(i32, i64)]) -> FetchTopic {
    let one = |&(partition, fetch_offset): &(i32, i64)| FetchPartition {
        partition,
        fetch_offset,
        partition_max_bytes: i32::MAX,
        ..FetchPartition::default()
    };
    FetchTopic {
        topic: name.to_owned(),
        partitions: partitions.iter().map(one).collect(),
        ..FetchTopic::default()
    }
}

/// The same, named by id.
pub(crate) fn topic_by_id(id: [u8; 16], partitions: &[(i32, i64)]) -> FetchTopic {
    FetchTopic { topic_id: id, ..topic("", partitions) }
}

/// The id of a topic.
pub(crate) fn topic_id(client: &mut Client, name: &str) -> [u8; 16] {
    let topic =
        MetadataRequestTopic { name: Some(name.to_owned()), ..MetadataRequestTopic::default() };
    let request = MetadataRequest { topics: Some(vec![topic]), ..MetadataRequest::default() };
    client.call(12, &request).topics[0].topic_id
}

/// Everything that is told, in order.
pub(crate) fn told(response: &FetchResponse) -> Vec<&PartitionData> {
    response.responses.iter().flat_map(|topic| &topic.partitions).collect()
}

/// What is told of the only partition.
pub(crate) fn only(response: FetchResponse) -> PartitionData {
    assert_eq!(response.error_code, 0);
    let mut all: Vec<PartitionData> =
        response.responses.into_iter().flat_map(|topic| topic.partitions).collect();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The bytes of its records.
pub(crate) fn bytes(partition: &PartitionData) -> Bytes {
    match &partition.records {
        Some(Records::Here(bytes)) => bytes.clone(),
        other => panic!("records are always told: {other:?}"),
    }
}

/// Its records.
pub(crate) fn stored(partition: &PartitionData) -> Vec<Stored> {
    records(&batches(bytes(partition)))
}

/// Their values as text.
pub(crate) fn texts(partition: &PartitionData) -> Vec<String> {
    stored(partition).iter().map(|stored| stored.record.text()).collect()
}
