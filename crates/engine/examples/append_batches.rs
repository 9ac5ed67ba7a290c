//! Measures how fast the engine takes whole batches of producers.
//!
//! `append_batches DIRECTORY [fsync|os] [SECONDS]` appends batches of 16 KiB to 1 MiB, of records of 1 KiB and of
//! 100 bytes, to four partitions with so many batches on the way that groups fill up, and prints records
//! and bytes per second of each.

use std::collections::VecDeque;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_executor::block_on;
use punctual_engine::disk::RealDisk;
use punctual_engine::{Durability, Engine, Options};
use punctual_kafka_wire::records::{BatchWriter, NewRecord, Opening};
use punctual_model::ports::{Append, Records, Topics};
use punctual_model::{Clock, Partition, SystemClock, TopicName, TopicSettings};

const PARTITIONS: u16 = 4;
/// Bytes of batches that are on the way at once.
const ON_THE_WAY: usize = 16 << 20;

fn batch(record_bytes: usize, batch_bytes: usize) -> Result<(Bytes, u64), Box<dyn Error>> {
    let value = vec![b'x'; record_bytes];
    let mut writer = BatchWriter::new(Opening { base_timestamp: 1, ..Opening::default() });
    while writer.size() + record_bytes < batch_bytes {
        let offset_delta = writer.count();
        writer.push(&NewRecord { offset_delta, value: Some(&value), ..NewRecord::default() });
    }
    let records = u64::from(writer.count());
    Ok((writer.finish()?, records))
}

#[expect(clippy::print_stdout, reason = "a program for people")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().ok_or("usage: append_batches DIRECTORY [fsync|os] [SECONDS]")?;
    let durability = match arguments.next().as_deref() {
        Some("os") => Durability::Os,
        _ => Durability::Fsync,
    };
    let seconds = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let clock = Arc::new(SystemClock::new());
    let options = Options { durability, ..Options::default() };
    let disk = Arc::new(RealDisk::new(Path::new(&root))?);
    let engine = Engine::open(disk, options, Arc::<SystemClock>::clone(&clock))?;
    let retention_bytes = Some(256 << 20);
    let settings =
        TopicSettings { partitions: PARTITIONS, retention_bytes, ..TopicSettings::default() };
    let topic = Topics::put(&engine, &TopicName::new("batches")?, settings)?.id;
    for record_bytes in [1024, 100] {
        for batch_bytes in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
            let (batch, records) = batch(record_bytes, batch_bytes)?;
            let began = clock.read().monotonic;
            let elapsed = || clock.read().monotonic.saturating_sub(began);
            let mut waiting = VecDeque::new();
            let mut count: u64 = 0;
            while elapsed() < Duration::from_secs(seconds) {
                let number = u16::try_from(count % u64::from(PARTITIONS))?;
                waiting.push_back(engine.append(Append {
                    topic,
                    partition: Partition::new(number).ok_or("a partition")?,
                    batch: batch.clone(),
                    entries: Vec::new(),
                    aliases: Vec::new(),
                }));
                count += 1;
                if waiting.len() * batch.len() >= ON_THE_WAY
                    && let Some(first) = waiting.pop_front()
                {
                    block_on(first)?;
                }
            }
            for rest in waiting {
                block_on(rest)?;
            }
            let took = elapsed().as_millis().max(1);
            let per_second = |number: u64| u128::from(number) * 1000 / took;
            let bytes = per_second(count * batch.len() as u64) >> 20;
            let records = per_second(count * records);
            println!(
                "records of {record_bytes} B in batches of {} KiB: {records}/s, {bytes} MiB/s",
                batch_bytes >> 10
            );
        }
    }
    engine.close();
    Ok(())
}
