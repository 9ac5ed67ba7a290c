//! A moment leads to its offset and an offset to the bytes behind it, without much reading.

#![expect(clippy::unwrap_used, reason = "a failed set-up may stop a test")]

mod log_support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use log_support::*;
use punctual_engine::disk::RealDisk;
use punctual_engine::log::batch::BatchHeader;
use punctual_engine::log::{LogEnd, LogOptions, Logs};
use punctual_model::ports::TopicError;

fn offset_at(logs: &Logs, millis: u64) -> u64 {
    logs.offset_at(topic(TOPIC), partition(0), at(millis)).unwrap()
}

fn bytes_from(logs: &Logs, offset: u64) -> u64 {
    logs.bytes_from(topic(TOPIC), partition(0), offset).unwrap()
}

/// Batches of one to seventeen messages, three batches for every other millisecond from 20,000 on.
fn fill(logs: &Logs) {
    for n in 0..150 {
        let batch = numbered(n * 20..n * 20 + 1 + n % 17, 100);
        logs.deliver(&batch, at(20_000 + n / 3 * 2)).unwrap();
    }
}

/// Compares every answer with what reading the whole log says.
fn check(store: &Store, what: &str) {
    let all = store.read_all(0);
    for millis in 19_990..20_110 {
        let first = all.iter().find(|one| one.delivered_at >= at(millis));
        let expected = first.map_or(all.len() as u64, |first| first.offset);
        assert_eq!(offset_at(&store.logs, millis), expected, "{what}: {millis}");
    }
    let files: Vec<Vec<u8>> = store.files("log").iter().map(|log| fs::read(log).unwrap()).collect();
    let mut left: u64 = files.iter().map(|bytes| bytes.len() as u64).sum();
    for mut rest in files.iter().map(Vec::as_slice) {
        while let Ok(header) = BatchHeader::parse(rest) {
            let bytes = |offset| bytes_from(&store.logs, offset);
            assert_eq!(bytes(header.base_offset), left, "{what}: {}", header.base_offset);
            for offset in header.base_offset..header.last_offset {
                let (this, next) = (bytes(offset), bytes(offset + 1));
                assert!(this > next && this - next < 400, "{what}: {this}, then {next}");
            }
            left -= header.bytes;
            rest = &rest[usize::try_from(header.bytes).unwrap()..];
        }
    }
    assert_eq!((left, bytes_from(&store.logs, all.len() as u64)), (0, 0));
    assert_eq!(bytes_from(&store.logs, u64::MAX), 0);
}

#[test]
fn every_place_is_found_through_whichever_index() {
    let mut store = Store::new(small(), 1);
    assert_eq!((offset_at(&store.logs, 0), bytes_from(&store.logs, 0)), (0, 0));
    fill(&store.logs);
    assert!(store.files("log").len() > 5);
    check(&store, "nothing but memory");
    let saved = store.checkpoint();
    check(&store, "index files");
    store.logs.maintain(&[settings(None, None)], at(30_000), keep_none).unwrap();
    check(&store, "sealed and closed");
    store = store.reopen(small(), 1, &saved);
    check(&store, "opened again");
    for suffix in ["index", "timeindex"] {
        for file in store.files(suffix) {
            let mut bytes = fs::read(&file).unwrap();
            bytes.iter_mut().step_by(3).for_each(|byte| *byte ^= 0x55);
            fs::write(&file, &bytes).unwrap();
        }
        check(&store, "damaged index files");
    }
    store = store.reopen(small(), 1, &[]);
    check(&store, "made anew");
}

#[test]
fn places_that_were_given_back_count_as_the_front() {
    let store = Store::new(small(), 1);
    fill(&store.logs);
    store.checkpoint();
    let keep = [settings(None, Some(50_000))];
    store.logs.maintain(&keep, at(30_000), keep_none).unwrap();
    let start = store.logs.bounds(topic(TOPIC), partition(0)).unwrap().start;
    assert!(start > 0);
    assert_eq!(offset_at(&store.logs, 0), start);
    assert_eq!(bytes_from(&store.logs, 0), bytes_from(&store.logs, start));
    let files = store.files("log");
    let held: u64 = files.iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert_eq!(bytes_from(&store.logs, 0), held);
    let nowhere = partition(5);
    assert_eq!(store.logs.offset_at(topic(TOPIC), nowhere, at(0)), Err(TopicError::NotFound));
    assert_eq!(store.logs.bytes_from(topic(TOPIC), nowhere, 0), Err(TopicError::NotFound));
}

#[test]
fn a_place_is_found_while_the_log_grows_and_shrinks() {
    let store = Store::new(small(), 1);
    let keep = [settings(None, Some(40_000))];
    let logs = &store.logs;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut before = 0;
            while !done.load(Ordering::Relaxed) {
                let bounds = logs.bounds(topic(TOPIC), partition(0)).unwrap();
                let middle = bounds.start.midpoint(bounds.end);
                assert!(bytes_from(logs, middle) < 80_000);
                // Batch n has ten messages of the time 10,000 + n.
                let found = offset_at(logs, 10_000 + middle / 10);
                assert!(found >= middle / 10 * 10 && found >= before, "{found} of {middle}");
                before = before.max(bounds.start);
            }
        });
        let _done = Done(&done);
        for n in 0..600 {
            logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(10_000 + n)).unwrap();
            if n % 7 == 0 {
                store.checkpoint();
                logs.maintain(&keep, at(10_000 + n), keep_none).unwrap();
            }
        }
    });
}

#[test]
fn finding_a_place_reads_little_however_long_the_segment() {
    let dir = tempfile::tempdir().unwrap();
    let read = Arc::new(AtomicU64::new(0));
    let open = |saved: &[LogEnd]| {
        let read = Arc::clone(&read);
        let disk = Watched::new(RealDisk::new(dir.path()).unwrap(), move |seen| {
            if let Seen::Read(bytes) = seen {
                read.fetch_add(bytes as u64, Ordering::Relaxed);
            }
        });
        open_on(Arc::new(disk), LogOptions::default(), 1, saved).unwrap().0
    };
    let mut logs = open(&[]);
    for n in 0..5000 {
        logs.deliver(&numbered(n * 5..n * 5 + 5, 200), at(50_000 + n)).unwrap();
    }
    for round in ["memory", "files", "opened again"] {
        for n in (0..5000).step_by(97) {
            let before = read.load(Ordering::Relaxed);
            assert_eq!(offset_at(&logs, 50_000 + n), n * 5);
            assert!(bytes_from(&logs, n * 5 + 3) > (4999 - n) * 5 * 200);
            let bytes = read.load(Ordering::Relaxed) - before;
            assert!(bytes <= 32 << 10, "{bytes} bytes read for {n} ({round})");
        }
        logs.settled(punctual_model::Lane::Message);
        let (ends, unsynced) = logs.prepare_checkpoint();
        unsynced.iter().for_each(|one| one.sync().unwrap());
        if round == "files" {
            logs = open(&ends);
        }
    }
}
