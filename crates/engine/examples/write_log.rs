//! Writes topic logs into a directory: something for Kafka's own tools to read.
//!
//! `write_log DIRECTORY [MESSAGES]` appends to four partitions of topic 1, with small segments so
//! that there are several, and prints how long the appending took. Between the messages it appends batches
//! as producers bring them: in all compressions, with times in any order, thinned, empty, behind a hole.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use punctual_engine::disk::RealDisk;
use punctual_engine::log::batch::BatchHeader;
use punctual_engine::log::{LogOptions, Logs};
use punctual_kafka_wire::records::{
    Attributes, Batch, BatchWriter, Compression, NewRecord, Opening, place,
};
use punctual_model::ports::{Armed, Origin, Topic};
use punctual_model::{
    Basis, Clock, Header, Key, Message, Partition, Sequence, SystemClock, Timestamp, TopicId,
    TopicKind, TopicName, TopicSettings,
};

const PARTITIONS: u16 = 4;

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().ok_or("usage: write_log DIRECTORY [MESSAGES]")?;
    let count: u64 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let disk = Arc::new(RealDisk::new(Path::new(&root))?);
    let segment_bytes = if count > 100_000 { 64 << 20 } else { 256 << 10 };
    let logs = Logs::new(disk, LogOptions { segment_bytes, ..LogOptions::default() });
    let topic = TopicId::new(1).ok_or("a topic number")?;
    logs.open(topic, PARTITIONS, &[], &mut Vec::new())?;
    let start = 1_700_000_000_000;
    let messages: Vec<Armed> = (0..count).filter_map(|n| message(topic, start, n)).collect();
    let clock = SystemClock::new();
    let began = clock.read().monotonic;
    // Sizes differ, so that index entries fall on all kinds of places.
    let mut rest = messages.as_slice();
    let mut round: u64 = 0;
    while !rest.is_empty() {
        let size = if count > 100_000 { 10_000 } else { 1 + usize::try_from(round * 37 % 400)? };
        let (now, later) = rest.split_at(size.min(rest.len()));
        let time = now.last().map_or(Timestamp::MIN, |last| last.key.due);
        logs.deliver(now, time)?;
        if count <= 100_000 {
            produce(&logs, topic, start, round)?;
        }
        rest = later;
        round += 1;
    }
    let took = clock.read().monotonic - began;
    println!("{count} messages appended in {took:?}, {:?}", logs.stats());
    let settings =
        TopicSettings { partitions: PARTITIONS, retention: None, ..TopicSettings::default() };
    let name = TopicName::new("example")?;
    let described = Topic {
        id: topic,
        name,
        kind: TopicKind::Plain,
        key_partitions: settings.partitions,
        settings,
    };
    logs.maintain(&[Arc::new(described)], Timestamp::MAX, |_, _| None)?;
    let (ends, unsynced) = logs.prepare_checkpoint();
    unsynced.iter().try_for_each(|one| one.sync())?;
    println!("{} partitions, {} files synced", ends.len(), unsynced.len());
    Ok(())
}

/// Appends a batch of a producer to one of the partitions.
fn produce(logs: &Logs, topic: TopicId, start: u64, round: u64) -> Result<(), Box<dyn Error>> {
    let partition = Partition::new(u16::try_from(round)? % PARTITIONS).ok_or("a partition")?;
    let how = Compression::ALL.get(usize::try_from(round % 5)?).copied().unwrap_or_default();
    let mut writer = BatchWriter::new(Opening {
        base_timestamp: i64::try_from(start + round * 7919 % 5000)?,
        attributes: Attributes::default().with_compression(how),
        producer_id: 4711,
        producer_epoch: 0,
        base_sequence: i32::try_from(round)?,
        ..Opening::default()
    });
    let value = vec![b'v'; usize::try_from(round * 131 % 3000)?];
    for offset_delta in 0..4 {
        let timestamp_delta = i64::from(offset_delta) * 3;
        let value = Some(value.as_slice());
        writer.push(&NewRecord { offset_delta, timestamp_delta, value, ..NewRecord::default() });
    }
    let whole = Batch::check(writer.finish()?)?;
    let bytes = match round % 6 {
        0 => whole.unpack(1 << 20)?.thin(&[0, 1, 2, 3])?,
        1 => whole.unpack(1 << 20)?.thin(&[0, 3])?,
        _ => whole.into_bytes(),
    };
    let mut bytes = bytes.to_vec();
    if round % 10 == 9 {
        // As after a loss of power: what stood before it is gone.
        let end = logs.bounds(topic, partition)?.end;
        place(&mut bytes, end + 5, 0);
        logs.restore((topic, partition), &bytes)?;
        return Ok(());
    }
    let header = BatchHeader::parse(&bytes)?;
    let now = Timestamp::from_millis(start).ok_or("a time")?;
    // Every round has a producer of its own numbers, so only the disk can refuse.
    let header = BatchHeader { producer: None, ..header };
    logs.append_held((topic, partition), &header, &mut bytes, now)
        .map_err(|refused| format!("{refused:?}"))?;
    logs.release(topic, partition);
    Ok(())
}

fn message(topic: TopicId, start: u64, number: u64) -> Option<Armed> {
    let mut headers = Vec::new();
    if number.is_multiple_of(5) {
        headers.push(Header { name: "kind".to_owned(), value: "example".into() });
    }
    let key = (!number.is_multiple_of(3)).then(|| format!("key-{}", number % 100).into());
    let key_of = Key {
        due: Timestamp::from_millis(start + number / 7)?,
        sequence: Sequence::new(number + 1)?,
    };
    Some(Armed {
        key: key_of,
        topic,
        partition: Partition::new(u16::try_from(number % u64::from(PARTITIONS)).ok()?)?,
        basis: Basis::Delay,
        message: Message { key, headers, body: format!("{number:0100}").into() },
        origin: Origin(0),
        extra: None,
    })
}
