//! A run knows each of its messages by id, and no other.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

use punctual_engine::timeline::run::{Run, Stamp};
use punctual_engine::timeline::run_writer::{Ids, RunWriter};
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};
use punctual_testkit::forgetful::ForgetfulDisk;

const FIRST: u64 = 500;
const SEQUENCES: u64 = 1000;

fn key(sequence: u64) -> Key {
    let due = Timestamp::from_millis(1_000_000 + sequence).unwrap();
    Key { due, sequence: Sequence::new(sequence).unwrap() }
}

fn stamp(sequence: u64) -> Stamp {
    Stamp::new(key(sequence).due, TopicId::new(3).unwrap(), Partition::new(1).unwrap())
}

fn check(present: impl Fn(u64) -> bool) {
    let disk = ForgetfulDisk::new();
    let mut writer = RunWriter::create(&disk, 1, FIRST, 256).unwrap();
    let sequences = FIRST..FIRST + SEQUENCES;
    for sequence in sequences.clone().filter(|&sequence| present(sequence)) {
        writer.push(key(sequence), TopicId::new(3).unwrap(), b"a record").unwrap();
    }
    let stamps = sequences.clone().map(|s| present(s).then(|| stamp(s))).collect();
    writer.finish(&disk, &[Ids { first: FIRST, stamps }]).unwrap();
    let run = Run::open(&disk, 1).unwrap();
    for sequence in 0..FIRST + SEQUENCES + 10 {
        let expected =
            (sequences.contains(&sequence) && present(sequence)).then(|| stamp(sequence));
        let found = run.stamp_of(Sequence::new(sequence).unwrap()).unwrap();
        assert_eq!(found, expected, "sequence {sequence}");
    }
}

#[test]
fn a_run_without_gaps_knows_its_messages() {
    check(|_| true);
}

#[test]
fn a_run_with_some_gaps_knows_its_messages() {
    check(|sequence| !sequence.is_multiple_of(3));
}

#[test]
fn a_run_with_few_left_knows_its_messages() {
    check(|sequence| sequence.is_multiple_of(7));
}

#[test]
fn a_run_with_one_left_knows_it() {
    check(|sequence| sequence == FIRST + SEQUENCES - 1);
}
