//! What was delivered can be read back, by offset and by id, as long as retention keeps it.

mod log_support;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use log_support::*;
use punctual_engine::log::LogOptions;
use punctual_engine::log::batch::BatchHeader;
use punctual_model::ports::{LogBounds, TopicError};
use punctual_model::{Message, Span};

fn nasty() -> Vec<Message> {
    let big = vec![0xa5; 3 << 20];
    let many = (0..=255).map(|n| header("same", &[n])).collect();
    vec![
        Message::default(),
        Message { key: Some(Bytes::new()), headers: Vec::new(), body: Bytes::from_static(b"\0") },
        Message {
            key: Some(Bytes::from_static(&[0xff, 0, 0xfe])),
            headers: many,
            body: Bytes::new(),
        },
        Message {
            key: None,
            headers: vec![header("", b""), header("\u{1f512}\n", b"\xff")],
            body: big.into(),
        },
        body(vec![0; 5000]),
        body(vec![2; 700_000]),
        body(vec![3; 700_000]),
    ]
}

#[test]
fn nasty_messages_come_back_byte_for_byte() {
    let mut store = Store::new(LogOptions::default(), 3);
    let messages = nasty();
    for to in 0..3 {
        let batch: Vec<_> = (0..)
            .zip(&messages)
            .map(|(n, message)| armed(100 * u64::from(to) + n, to, message.clone()))
            .collect();
        assert_eq!(store.logs.deliver(&batch, at(1000)).unwrap(), 7);
    }
    for round in 0..2 {
        for to in 0..3 {
            let read = store.read_all(to);
            assert_eq!(read.len(), messages.len());
            for (offset, (delivered, message)) in (0..).zip(read.iter().zip(&messages)) {
                assert_eq!(&delivered.message, message, "round {round}");
                assert_eq!((delivered.offset, delivered.delivered_at), (offset, at(1000)));
                assert_eq!(delivered.id, armed(100 * u64::from(to) + offset, to, body("")).id());
            }
        }
        store = store.reopen(LogOptions::default(), 3, &[]);
        assert_eq!(store.found.len(), 21);
    }
    assert_eq!(store.logs.stats().messages, 0);
}

#[test]
fn our_two_headers_can_not_be_forged() {
    let store = Store::new(small(), 1);
    let forged = Message {
        headers: vec![header("punctual-id", b"x"), header("a", b"b"), header("punctual-due", b"1")],
        ..body("text")
    };
    let one = armed(5, 0, forged);
    store.logs.deliver(std::slice::from_ref(&one), at(9)).unwrap();
    let read = store.read_all(0);
    assert_eq!(read[0].message.headers, [header("a", b"b")]);
    assert_eq!(read[0].id, one.id());
}

#[test]
fn order_is_kept_within_partitions_and_time_never_runs_backwards() {
    let store = Store::new(small(), 2);
    let batch: Vec<_> = (0..40).map(|n| armed(u64::from(n), n % 2, body("x"))).collect();
    store.logs.deliver(&batch, at(500)).unwrap();
    store.logs.deliver(&[armed(77, 0, body("y"))], at(400)).unwrap();
    store.logs.deliver(&[armed(900, 0, body("due is later than now"))], at(600)).unwrap();
    let even = store.read_all(0);
    let mut expected: Vec<u64> = (0..40).step_by(2).collect();
    expected.extend([77, 900]);
    assert_eq!(sequences(&even), expected);
    let times: Vec<_> = even.iter().skip(19).map(|one| one.delivered_at).collect();
    assert_eq!(times, [at(500), at(500), at(900)]);
}

#[test]
fn segments_roll_by_size_and_by_age() {
    let options = LogOptions { segment_age: Span::from_secs(60), ..small() };
    let store = Store::new(options, 1);
    for n in 0..100 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(1000 + n)).unwrap();
    }
    let by_size = store.files("log").len();
    assert!(by_size >= 10, "{by_size} segments");
    store.logs.deliver(&numbered(5000..5001, 10), at(200_000)).unwrap();
    assert_eq!(store.files("log").len(), by_size + 1);
    assert!(store.files("log").iter().all(|file| fs::metadata(file).unwrap().len() <= 20_000));
    assert_eq!(store.read_all(0).len(), 1001);
    // Any offset is found, through whichever index.
    store.checkpoint();
    for offset in 0..1001 {
        let page = store.logs.read(place(0, offset), 1).unwrap();
        assert_eq!(page[0].offset, offset);
    }
    assert!(store.logs.read(place(0, 1001), 1).unwrap().is_empty());
}

#[test]
fn a_message_is_found_by_id_before_and_after_sealing_and_reopening() {
    let mut store = Store::new(small(), 1);
    for n in 1..=40 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(n * 10 + 15)).unwrap();
    }
    let keep = [settings(None, None)];
    let mut saved = Vec::new();
    for round in 0..5 {
        for sequence in (10..410).step_by(7) {
            let id = armed(sequence, 0, body("")).id();
            let found = store.logs.locate(id).unwrap().unwrap();
            assert_eq!(found.message, body(format!("{sequence:0100}")), "round {round}");
            assert_eq!((found.id, found.offset), (id, sequence - 10));
            assert!(store.logs.contains(id).unwrap());
        }
        let mut other = armed(50, 0, body("")).id();
        other.key.due = at(49);
        assert!(!store.logs.contains(other).unwrap(), "same sequence, other due time");
        assert!(!store.logs.contains(armed(5000, 0, body("")).id()).unwrap());
        match round {
            0 => saved = store.checkpoint(),
            1 => store.logs.maintain(&keep, at(600), keep_none).unwrap(),
            2 => store = store.reopen(small(), 1, &saved),
            _ => store = store.reopen(small(), 1, &[]),
        }
    }
}

#[test]
fn damaged_or_missing_index_and_ids_files_only_cost_time() {
    let mut store = Store::new(small(), 1);
    for n in 1..=40 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(n * 10 + 15)).unwrap();
    }
    let keep = [settings(None, None)];
    store.logs.maintain(&keep, at(600), keep_none).unwrap();
    let saved = store.checkpoint();
    for (round, suffix) in ["index", "timeindex", "ids"].into_iter().cycle().take(9).enumerate() {
        for file in store.files(suffix) {
            let mut bytes = fs::read(&file).unwrap();
            match round / 3 {
                0 => fs::remove_file(&file).unwrap(),
                1 => fs::write(&file, &bytes[..bytes.len() / 2 + 1]).unwrap(),
                _ => {
                    let middle = bytes.len() / 2;
                    bytes[middle] ^= 0x55;
                    fs::write(&file, &bytes).unwrap();
                }
            }
        }
        store = store.reopen(small(), 1, &saved);
        assert!(store.found.is_empty());
        for sequence in 10..410 {
            let id = armed(sequence, 0, body("")).id();
            let found = store.logs.locate(id).unwrap().unwrap();
            assert_eq!(found.offset, sequence - 10, "round {round}");
            assert_eq!(store.logs.read(place(0, found.offset), 1).unwrap()[0], found);
        }
        store.logs.maintain(&keep, at(600), keep_none).unwrap();
        assert_eq!(store.checkpoint(), saved);
    }
}

#[test]
fn retention_removes_what_is_too_old_but_keeps_the_next_offset() {
    let mut store = Store::new(small(), 1);
    for n in 1..=40 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(n * 1000)).unwrap();
    }
    let week = [settings(Some(Span::from_secs(10)), None)];
    store.logs.maintain(&week, at(41_000), keep_none).unwrap();
    let all = LogBounds { start: 0, end: 400 };
    let bounds = |store: &Store| store.logs.bounds(topic(TOPIC), partition(0)).unwrap();
    assert_eq!(bounds(&store), all, "nothing goes that no checkpoint knows");
    let saved = store.checkpoint();
    store.logs.maintain(&week, at(41_000), keep_none).unwrap();
    let start = bounds(&store).start;
    assert!((200..=300).contains(&start), "{start}");
    assert_eq!(sequences(&store.read_all(0)), (start + 10..410).collect::<Vec<_>>());
    assert_eq!(store.logs.read(place(0, 3), 1).unwrap()[0].offset, start);
    assert!(store.logs.locate(armed(10, 0, body("")).id()).unwrap().is_none());
    store.logs.maintain(&week, at(60_000), keep_none).unwrap();
    assert_eq!(bounds(&store), LogBounds { start: 400, end: 400 });
    assert_eq!((store.files("log").len(), store.files("ids").len()), (1, 0));
    store = store.reopen(small(), 1, &saved);
    assert_eq!(bounds(&store), LogBounds { start: 400, end: 400 });
    store.logs.deliver(&numbered(900..901, 10), at(60_000)).unwrap();
    assert_eq!(store.read_all(0)[0].offset, 400);
}

#[test]
fn retention_by_size_keeps_at_least_what_was_asked_for() {
    let store = Store::new(small(), 1);
    for n in 1..=40 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(1000)).unwrap();
    }
    store.checkpoint();
    store.logs.maintain(&[settings(None, Some(30_000))], at(1000), keep_none).unwrap();
    let kept: u64 = store.files("log").iter().map(|file| fs::metadata(file).unwrap().len()).sum();
    assert!((30_000..50_000).contains(&kept), "{kept} bytes");
    assert_eq!(store.read_all(0).last().unwrap().offset, 399);
}

#[test]
fn a_topic_gains_partitions_and_is_removed() {
    let mut store = Store::new(small(), 1);
    store.logs.deliver(&numbered(0..3, 10), at(9)).unwrap();
    let unknown = armed(8, 3, body("no such partition"));
    assert_eq!(store.logs.deliver(std::slice::from_ref(&unknown), at(9)).unwrap(), 0);
    store.logs.open(topic(TOPIC), 4, &[], &mut store.found).unwrap();
    assert!(store.found.is_empty());
    assert_eq!(store.logs.deliver(&[unknown], at(9)).unwrap(), 1);
    assert_eq!((store.read_all(0).len(), store.read_all(3).len()), (3, 1));
    store.logs.remove(topic(TOPIC)).unwrap();
    store.logs.remove(topic(TOPIC)).unwrap();
    assert_eq!(store.logs.deliver(&numbered(20..30, 10), at(9)).unwrap(), 0);
    assert_eq!(store.logs.read(place(0, 0), 1), Err(TopicError::NotFound));
    assert!(!store.logs.contains(armed(1, 0, body("")).id()).unwrap());
    assert_eq!(fs::read_dir(store.dir.path().join("topics")).unwrap().count(), 0);
}

/// What Kafka's own tools check: each entry against the batch it points at.
#[test]
fn the_index_files_keep_to_the_rules_of_the_format() {
    let mut store = Store::new(small(), 1);
    for round in 0..2_u64 {
        for n in 0..150 {
            let first = round * 10_000 + n * 20;
            let batch = numbered(first..first + 1 + n % 17, 100);
            store.logs.deliver(&batch, at(20_000 + n / 3)).unwrap();
        }
        store.logs.maintain(&[settings(None, None)], at(30_000), keep_none).unwrap();
        let saved = store.checkpoint();
        check_index_files(&store);
        // With a checkpoint the index goes on where it was.
        store = store.reopen(small(), 1, &saved);
        let first = round * 10_000 + 5000;
        for n in first..first + 60 {
            store.logs.deliver(&numbered(n..n + 1, 300), at(21_000 + n / 3)).unwrap();
        }
        store.checkpoint();
        check_index_files(&store);
        // Without a checkpoint everything is checked and the index files are made anew.
        store = store.reopen(small(), 1, &[]);
        store.logs.maintain(&[settings(None, None)], at(30_000), keep_none).unwrap();
        store.checkpoint();
        check_index_files(&store);
    }
}

#[expect(clippy::unwrap_used, reason = "a check that can not be made has failed")]
fn check_index_files(store: &Store) {
    let mut entries = 0;
    for log in store.files("log") {
        let base: u64 = log.file_stem().unwrap().to_str().unwrap().parse().unwrap();
        let (headers, starts) = batches(&fs::read(&log).unwrap());
        let read = |suffix| fs::read(log.with_extension(suffix)).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let mut expected = Vec::new();
        let mut since = 0;
        for (header, start) in headers.iter().zip(&starts) {
            if since > 4096 {
                expected.push((header.last_offset - base, *start));
                since = 0;
            }
            since += header.bytes;
        }
        let offsets: Vec<_> =
            read("index").chunks(8).map(|raw| (number(&raw[..4]), number(&raw[4..]))).collect();
        assert_eq!(offsets, expected, "{}", log.display());
        let times: Vec<_> = read("timeindex")
            .chunks(12)
            .map(|raw| (number(&raw[..8]), number(&raw[8..])))
            .collect();
        assert!(times.is_sorted_by(|a, b| a.0 < b.0), "{times:?}");
        for (time, relative) in &times {
            let batch = headers.iter().find(|batch| batch.last_offset == base + relative).unwrap();
            assert_eq!(batch.timestamp, Some(at(*time)));
        }
        entries += offsets.len() + times.len();
    }
    assert!(entries > 60, "{entries} entries");
}

#[expect(clippy::unwrap_used, reason = "a check that can not be made has failed")]
fn batches(bytes: &[u8]) -> (Vec<BatchHeader>, Vec<u64>) {
    let (mut headers, mut starts) = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < bytes.len() {
        let header = BatchHeader::parse(&bytes[at..]).unwrap();
        starts.push(at as u64);
        at += usize::try_from(header.bytes).unwrap();
        headers.push(header);
    }
    (headers, starts)
}

#[test]
fn readers_are_not_disturbed_by_appends_and_retention() {
    let store = Store::new(small(), 1);
    let keep = [settings(None, Some(40_000))];
    let logs = &store.logs;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut next = 0;
                while !done.load(Ordering::Relaxed) {
                    let page = logs.read(place(0, next), 20).unwrap();
                    for delivered in &page {
                        assert!(delivered.offset >= next, "offsets only grow");
                        next = delivered.offset + 1;
                        let sequence = delivered.id.key.sequence.get();
                        assert_eq!(sequence, delivered.offset);
                        assert_eq!(delivered.message, body(format!("{sequence:0100}")));
                    }
                    if let Some(last) = page.last() {
                        // Gone at worst, never damaged.
                        logs.locate(last.id).unwrap();
                    }
                }
            });
        }
        let _done = Done(&done);
        for n in 0..600 {
            logs.deliver(&numbered(n * 10..n * 10 + 10, 100), at(10_000 + n)).unwrap();
            if n % 7 == 0 {
                store.checkpoint();
                logs.maintain(&keep, at(10_000 + n), keep_none).unwrap();
            }
        }
    });
    assert!(logs.bounds(topic(TOPIC), partition(0)).unwrap().start > 4000);
}
