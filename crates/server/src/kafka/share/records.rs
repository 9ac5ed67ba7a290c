//! Messages of a group as records of their partitions.
//!
//! A message keeps the partition and the offset at which it was delivered, however often it has gone
//! round since. So the records of an answer are written anew, those of a partition into one batch,
//! in the order of their offsets; what lies between them was delivered to somebody else, or before.

use bytes::{BufMut, Bytes, BytesMut};
use punctual_broker::group::Leased;
use punctual_engine::log::batch::{DUE_HEADER, ID_HEADER};
use punctual_kafka_wire::messages::share_fetch::AcquiredRecords;
use punctual_kafka_wire::records::{BatchError, BatchWriter, NewRecord, Opening};

/// The records of one partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    pub(super) records: Bytes,
    pub(super) acquired: Vec<AcquiredRecords>,
}

/// Farther apart than this, two offsets do not fit into one batch.
const SPAN_MAX: u64 = 1 << 30;

/// Writes the messages of one partition, whose offsets ascend.
pub(super) fn write(messages: &[&Leased]) -> Result<Written, BatchError> {
    let mut records = BytesMut::new();
    let mut rest = messages;
    while let Some(first) = rest.first() {
        let near = rest.partition_point(|message| message.offset - first.offset < SPAN_MAX);
        let (together, others) = rest.split_at(near);
        records.put(batch(together, first)?);
        rest = others;
    }
    Ok(Written { records: records.freeze(), acquired: acquired(messages) })
}

fn batch(messages: &[&Leased], first: &Leased) -> Result<Bytes, BatchError> {
    let millis =
        |message: &Leased| i64::try_from(message.delivered_at.as_millis()).unwrap_or(i64::MAX);
    let opening =
        Opening { base_offset: first.offset, base_timestamp: millis(first), ..Opening::default() };
    let mut writer = BatchWriter::new(opening);
    for message in messages {
        let own = message.message.headers.iter();
        let mut headers: Vec<(&[u8], Option<&[u8]>)> =
            own.map(|header| (header.name.as_bytes(), Some(&*header.value))).collect();
        let (id, due) = (message.id.encode(), message.due.as_millis().to_string());
        // As in the log: a record that its producer put there itself is named by its offset alone.
        if message.id.key.sequence.offset().is_none() {
            headers.push((ID_HEADER.as_bytes(), Some(&id)));
            headers.push((DUE_HEADER.as_bytes(), Some(due.as_bytes())));
        }
        let distance = message.offset - first.offset;
        writer.push(&NewRecord {
            offset_delta: u32::try_from(distance).map_err(|_far| BatchError::TooLarge)?,
            timestamp_delta: millis(message) - millis(first),
            key: message.message.key.as_deref(),
            value: Some(&message.message.body),
            headers: &headers,
        });
    }
    writer.finish()
}

/// Which offsets these are, those that follow each other and are delivered as often together.
fn acquired(messages: &[&Leased]) -> Vec<AcquiredRecords> {
    let mut acquired: Vec<AcquiredRecords> = Vec::new();
    for message in messages {
        let offset = i64::try_from(message.offset).unwrap_or(i64::MAX);
        let delivery_count = i16::try_from(message.attempt).unwrap_or(i16::MAX);
        match acquired.last_mut() {
            Some(last)
                if last.last_offset + 1 == offset && last.delivery_count == delivery_count =>
            {
                last.last_offset = offset;
            }
            _ => acquired.push(AcquiredRecords {
                first_offset: offset,
                last_offset: offset,
                delivery_count,
            }),
        }
    }
    acquired
}

#[cfg(test)]
mod tests {
    use punctual_kafka_wire::records::{Batch, BatchHeader, UNPACKED_BYTES_MAX};
    use punctual_model::{
        Header, Key, Message, MessageId, Partition, Sequence, Timestamp, TopicId,
    };

    use super::*;

    fn leased(offset: u64, attempt: u16, fired: bool) -> Leased {
        let sequence = if fired { Sequence::new(9) } else { Sequence::of_offset(offset) };
        let time = Timestamp::from_millis(1_000_000 + offset).unwrap();
        let partition = Partition::new(0).unwrap();
        Leased {
            receipt: "0".repeat(36).parse().unwrap(),
            id: MessageId {
                key: Key { due: time, sequence: sequence.unwrap() },
                topic: TopicId::new(1).unwrap(),
                partition,
            },
            partition,
            offset,
            message: Message {
                key: Some(Bytes::from_static(b"key")),
                headers: vec![Header { name: "h".to_owned(), value: Bytes::from_static(b"v") }],
                body: format!("body {offset}").into(),
            },
            due: time,
            delivered_at: time,
            attempt,
        }
    }

    fn read(mut bytes: Bytes) -> Vec<(u64, i64, Vec<u8>, usize)> {
        let mut read = Vec::new();
        while !bytes.is_empty() {
            let length = BatchHeader::checked(&bytes).unwrap().bytes;
            let batch = Batch::check(bytes.split_to(length)).unwrap();
            let unpacked = batch.unpack(UNPACKED_BYTES_MAX).unwrap();
            for record in unpacked.records() {
                let record = record.unwrap();
                let offset = batch.header().base_offset + u64::from(record.offset_delta);
                let time = record.timestamp(batch.header());
                read.push((offset, time, record.value.unwrap().to_vec(), record.headers().count()));
            }
        }
        read
    }

    #[test]
    fn records_stand_where_the_messages_were_delivered() {
        let messages = [leased(5, 1, false), leased(6, 1, true), leased(9, 2, false)];
        let written = write(&messages.iter().collect::<Vec<_>>()).unwrap();
        let expected = [(5, 1), (6, 3), (9, 1)].map(|(offset, headers)| {
            let time = 1_000_000 + i64::try_from(offset).unwrap();
            (offset, time, format!("body {offset}").into_bytes(), headers)
        });
        assert_eq!(read(written.records), expected);
    }

    #[test]
    fn neighbours_with_the_same_count_are_acquired_together() {
        let messages =
            [leased(5, 1, false), leased(6, 1, false), leased(7, 2, false), leased(9, 2, false)];
        let written = write(&messages.iter().collect::<Vec<_>>()).unwrap();
        let range = |first_offset, last_offset, delivery_count| AcquiredRecords {
            first_offset,
            last_offset,
            delivery_count,
        };
        assert_eq!(written.acquired, [range(5, 6, 1), range(7, 7, 2), range(9, 9, 2)]);
    }

    #[test]
    fn offsets_far_apart_go_into_batches_of_their_own() {
        let messages = [leased(0, 1, false), leased(1 << 40, 1, false)];
        let written = write(&messages.iter().collect::<Vec<_>>()).unwrap();
        let offsets: Vec<_> = read(written.records).into_iter().map(|record| record.0).collect();
        assert_eq!(offsets, [0, 1 << 40]);
    }
}
