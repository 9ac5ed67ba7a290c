//! After any end of the process the log opens with all that is whole, or says what is damaged.

#![expect(clippy::unwrap_used, reason = "a failed set-up may stop a test")]

mod log_support;

use std::fs;

use log_support::*;
use punctual_engine::log::LogEnd;
use punctual_model::ports::{StoreError, TopicError};

/// Three batches of three messages, and where each batch starts and the last one ends.
fn three_batches() -> (Store, Vec<usize>) {
    let store = Store::new(small(), 1);
    let mut ends = vec![0];
    for n in 0..3 {
        store.logs.deliver(&numbered(n * 3..n * 3 + 3, 40), at(100 + n)).unwrap();
        ends.push(fs::read(&store.files("log")[0]).unwrap().len());
    }
    (store, ends)
}

fn is_damaged(error: &StoreError) -> bool {
    matches!(error, StoreError::Damaged(text) if text.contains("00000000000000000000.log"))
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_the_rest_is_intact() {
    let (store, ends) = three_batches();
    let file = store.files("log").remove(0);
    let whole = fs::read(&file).unwrap();
    for length in 0..whole.len() {
        fs::write(&file, &whole[..length]).unwrap();
        let (logs, found) = open(store.dir.path(), small(), 1, &[]).unwrap();
        let batches = ends.iter().filter(|&&end| end <= length).count() - 1;
        let expected: Vec<u64> = (0..3 * batches as u64).collect();
        assert_eq!(sequences(&read_all(&logs, 0)), expected, "cut to {length} bytes");
        assert_eq!(told(&found), expected);
        assert!((0..).zip(&found).all(|(offset, found)| found.1 == offset));
        assert_eq!(fs::read(&file).unwrap().len(), ends[batches]);
        // What is appended next takes the place of what was cut.
        logs.deliver(&numbered(50..52, 10), at(300)).unwrap();
        drop(logs);
        let (logs, _) = open(store.dir.path(), small(), 1, &[]).unwrap();
        let last = read_all(&logs, 0);
        assert_eq!(last.len(), 3 * batches + 2);
    }
}

#[test]
fn a_changed_byte_is_never_delivered() {
    let (store, ends) = three_batches();
    let original = store.read_all(0);
    let file = store.files("log").remove(0);
    let whole = fs::read(&file).unwrap();
    for place in 0..whole.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] ^= mask;
            fs::write(&file, &bytes).unwrap();
            let inside_last = place >= ends[2];
            // The leader epoch is not under the checksum and nothing reads it.
            let epoch = ends.iter().any(|end| (end + 12..end + 16).contains(&place));
            match open(store.dir.path(), small(), 1, &[]) {
                Ok((logs, _)) => {
                    let read = read_all(&logs, 0);
                    let expected = if epoch { 9 } else { 6 };
                    assert!(inside_last || epoch, "byte {place} of a batch before intact ones");
                    assert_eq!(read, original[..expected], "byte {place}");
                }
                Err(error) => assert!(is_damaged(&error) && !inside_last, "{error} ({place})"),
            }
        }
    }
}

#[test]
fn a_changed_byte_under_the_checkpoint_is_noticed_when_read() {
    let (store, ends) = three_batches();
    let saved = store.checkpoint();
    let file = store.files("log").remove(0);
    let mut bytes = fs::read(&file).unwrap();
    bytes[ends[1] + 100] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let store = store.reopen(small(), 1, &saved);
    assert!(store.found.is_empty());
    assert_eq!(store.logs.read(place(0, 0), 3).unwrap().len(), 3);
    let error = store.logs.read(place(0, 3), 3).unwrap_err();
    assert!(matches!(error, TopicError::Store(error) if is_damaged(&error)));
}

#[test]
fn only_what_the_checkpoint_does_not_know_is_told() {
    let (store, _) = three_batches();
    let saved = store.checkpoint();
    store.logs.deliver(&numbered(20..25, 1000), at(200)).unwrap();
    store.logs.deliver(&numbered(30..60, 1000), at(210)).unwrap();
    assert!(store.files("log").len() > 1, "it rolled since");
    let store = store.reopen(small(), 1, &saved);
    assert_eq!(told(&store.found), (20..25).chain(30..60).collect::<Vec<_>>());
    for &(id, offset) in &store.found {
        assert_eq!(store.logs.read(place(0, offset), 1).unwrap()[0].id, id);
    }
    let next = store.checkpoint();
    let store = store.reopen(small(), 1, &next);
    assert!(store.found.is_empty());
    assert_eq!(store.read_all(0).len(), 44);
}

#[test]
fn what_the_checkpoint_knows_must_be_there() {
    let (store, ends) = three_batches();
    let saved = store.checkpoint();
    let file = store.files("log").remove(0);
    let whole = fs::read(&file).unwrap();
    for length in [0, 10, ends[2], whole.len() - 1] {
        fs::write(&file, &whole[..length]).unwrap();
        assert!(is_damaged(&open(store.dir.path(), small(), 1, &saved).unwrap_err()));
    }
    fs::remove_file(&file).unwrap();
    assert!(is_damaged(&open(store.dir.path(), small(), 1, &saved).unwrap_err()));
    fs::write(&file, &whole).unwrap();
    let wrong = [LogEnd { offset: 8, ..saved[0] }];
    assert!(is_damaged(&open(store.dir.path(), small(), 1, &wrong).unwrap_err()));
    open(store.dir.path(), small(), 1, &saved).unwrap();
}

#[test]
fn places_that_a_loss_of_power_left_unwritten_are_cut_with_all_behind_them() {
    let (store, ends) = three_batches();
    let file = store.files("log").remove(0);
    let whole = fs::read(&file).unwrap();
    let (from, until) = (ends[1], ends[2]);
    let all = from..until;
    let end = until - 60..until;
    let front = from..from + 100;
    for hole in [all, end, front] {
        let mut bytes = whole.clone();
        bytes[hole].fill(0);
        fs::write(&file, &bytes).unwrap();
        let (logs, found) = open(store.dir.path(), small(), 1, &[]).unwrap();
        assert_eq!((read_all(&logs, 0).len(), found.len()), (3, 3));
    }
    fs::write(&file, [whole.as_slice(), &[0; 3000]].concat()).unwrap();
    let (logs, _) = open(store.dir.path(), small(), 1, &[]).unwrap();
    assert_eq!(read_all(&logs, 0).len(), 9);
}

#[test]
fn segments_behind_an_unsynced_one_that_was_lost_are_dropped() {
    let store = Store::new(small(), 1);
    store.logs.deliver(&numbered(0..5, 100), at(100)).unwrap();
    let saved = store.checkpoint();
    for n in 1..6 {
        store.logs.deliver(&numbered(n * 10..n * 10 + 10, 1000), at(100 + n)).unwrap();
    }
    let files = store.files("log");
    assert!(files.len() >= 4);
    let second = fs::read(&files[1]).unwrap();
    fs::write(&files[1], &second[..second.len() / 2]).unwrap();
    let store = store.reopen(small(), 1, &saved);
    assert_eq!(store.files("log").len(), 2);
    let read = sequences(&store.read_all(0));
    let told = told(&store.found);
    assert_eq!(read, (0..5).chain(told.iter().copied()).collect::<Vec<_>>());
    assert!(told.len() < 50);
    store.logs.deliver(&numbered(100..110, 1000), at(400)).unwrap();
    let store = store.reopen(small(), 1, &saved);
    assert_eq!(store.read_all(0).len(), read.len() + 10);
}
