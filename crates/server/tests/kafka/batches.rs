//! Batches for tests: written, sent, and read again.

use std::io::{Read, Write};

use bytes::Bytes;
use punctual_kafka_wire::Records;
use punctual_kafka_wire::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use punctual_kafka_wire::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use punctual_kafka_wire::records::{
    Attributes, Batch, BatchHeader, BatchWriter, Compression, NewRecord, Opening,
    UNPACKED_BYTES_MAX,
};

use crate::kafka::Client;

/// A version of Produce that says what was wrong with which record.
pub(crate) const PRODUCE: i16 = 9;
/// A version of Fetch that names topics.
pub(crate) const FETCH: i16 = 11;

/// A record in the making.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A record with that value.
pub(crate) fn record(value: &str) -> Draft {
    Draft { value: Some(value.as_bytes().to_vec()), ..Draft::default() }
}

impl Draft {
    /// The same with another header.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.as_bytes().to_vec(), Some(value.as_bytes().to_vec())));
        self
    }

    /// The same with a key.
    pub(crate) fn key(mut self, key: &str) -> Self {
        self.key = Some(key.as_bytes().to_vec());
        self
    }

    /// The value as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(self.value.as_deref().unwrap_or_default()).into_owned()
    }

    /// The value of its last header of that name, as text.
    pub(crate) fn said(&self, name: &str) -> Option<String> {
        let found = self.headers.iter().rev().find(|(found, _)| found == name.as_bytes())?;
        Some(String::from_utf8_lossy(found.1.as_deref().unwrap_or_default()).into_owned())
    }
}

/// What a producer without an id says of a batch made at that time.
pub(crate) fn opening(millis: i64, compression: Compression) -> Opening {
    let attributes = Attributes::default().with_compression(compression);
    Opening { base_timestamp: millis, attributes, ..Opening::default() }
}

/// A whole batch.
pub(crate) fn batch(opening: Opening, records: &[Draft]) -> Bytes {
    let mut writer = BatchWriter::new(opening);
    for (delta, record) in (0..).zip(records) {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        writer.push(&NewRecord {
            offset_delta: delta,
            timestamp_delta: i64::from(delta),
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
    }
    writer.finish().expect("a small batch")
}

/// A request with that one batch.
pub(crate) fn request(topic: &str, partition: i32, records: Bytes) -> ProduceRequest {
    let partition_data = vec![PartitionProduceData { index: partition, records: Some(records) }];
    let topic =
        TopicProduceData { name: topic.to_owned(), partition_data, ..TopicProduceData::default() };
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![topic],
        ..ProduceRequest::default()
    }
}

/// A record as it stands in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) offset: u64,
    pub(crate) timestamp: i64,
    pub(crate) record: Draft,
}

/// Batches one after the other; the last one may be cut.
pub(crate) fn batches(mut bytes: Bytes) -> Vec<Batch> {
    let mut batches = Vec::new();
    while let Ok(header) = BatchHeader::checked(&bytes) {
        batches.push(Batch::check(bytes.split_to(header.bytes)).expect("it was checked"));
    }
    batches
}

/// The records of batches.
pub(crate) fn records(batches: &[Batch]) -> Vec<Stored> {
    let mut stored = Vec::new();
    for batch in batches {
        let unpacked = batch.unpack(UNPACKED_BYTES_MAX).expect("it is intact");
        for record in unpacked.records() {
            let record = record.expect("it is intact");
            let own = |bytes: &[u8]| bytes.to_vec();
            stored.push(Stored {
                offset: batch.header().base_offset + u64::from(record.offset_delta),
                timestamp: record.timestamp(batch.header()),
                record: Draft {
                    key: record.key.map(own),
                    value: record.value.map(own),
                    headers: record
                        .headers()
                        .map(|(name, value)| (name.to_vec(), value.map(own)))
                        .collect(),
                },
            });
        }
    }
    stored
}

impl<S: Read + Write> Client<S> {
    /// Sends a batch and reads what became of it.
    pub(crate) fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        records: Bytes,
    ) -> PartitionProduceResponse {
        let response = self.call(PRODUCE, &request(topic, partition, records));
        let topic = response.responses.into_iter().next().expect("an answer for the topic");
        topic.partition_responses.into_iter().next().expect("an answer for the partition")
    }

    /// All batches of a partition from an offset on.
    pub(crate) fn fetch(&mut self, topic: &str, partition: i32, offset: u64) -> Vec<Batch> {
        let partition = FetchPartition {
            partition,
            fetch_offset: i64::try_from(offset).expect("a small offset"),
            partition_max_bytes: i32::MAX,
            ..FetchPartition::default()
        };
        let topic = FetchTopic {
            topic: topic.to_owned(),
            partitions: vec![partition],
            ..FetchTopic::default()
        };
        let request = FetchRequest { topics: vec![topic], ..FetchRequest::default() };
        let response = self.call(FETCH, &request);
        let topic = response.responses.into_iter().next().expect("an answer for the topic");
        let partition = topic.partitions.into_iter().next().expect("an answer for the partition");
        assert_eq!(partition.error_code, 0);
        match partition.records {
            Some(Records::Here(bytes)) => batches(bytes),
            Some(Records::Elsewhere(_)) => panic!("what was received is here"),
            None => Vec::new(),
        }
    }
}
