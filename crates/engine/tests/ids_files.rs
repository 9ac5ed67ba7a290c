//! What the table of ids says of itself, and what of its files survives.

mod ids_support;

use ids_support::{empty, name, put_all, value, write_out};
use punctual_engine::ids::{self, IdOptions, Ids};
use punctual_engine::journal::Position;
use punctual_testkit::forgetful::{Fate, Fault, ForgetfulDisk};

const ENTRIES: u64 = 5000;

#[test]
fn the_journal_is_needed_from_the_first_put_of_the_oldest_table() {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    ids.begin_at(Position(3));
    assert_eq!(ids.journal_start(), None);
    ids.begin_at(Position(5));
    put_all(&mut ids, [1]);
    ids.begin_at(Position(7));
    put_all(&mut ids, [2]);
    assert_eq!(ids.journal_start(), Some(Position(5)));
    ids.freeze();
    assert_eq!(ids.journal_start(), Some(Position(5)));
    ids.begin_at(Position(9));
    put_all(&mut ids, [3]);
    let frozen = ids.frozen().unwrap();
    ids.freeze();
    assert_eq!(ids.frozen().map(|table| std::sync::Arc::ptr_eq(&table, &frozen)), Some(true));
    ids.install(ids::write(&disk, 1, &frozen).unwrap());
    assert_eq!(ids.journal_start(), Some(Position(9)));
    write_out(&mut ids, &disk, 2);
    assert_eq!(ids.journal_start(), None);
    assert_eq!(ids.files(), [2, 1]);
    assert_eq!(ids.entries(), 3);
}

#[test]
fn a_full_table_is_frozen_and_a_second_one_has_to_wait() {
    let disk = ForgetfulDisk::new();
    let options = IdOptions { table_entries: 10, ..IdOptions::default() };
    let mut ids = Ids::open(&disk, &[], options).unwrap();
    ids.freeze();
    assert!(ids.frozen().is_none(), "an empty table is not worth a file");
    put_all(&mut ids, 0..9);
    assert!(!ids.is_full());
    put_all(&mut ids, 8..10);
    assert!(ids.is_full() && !ids.is_crowded());
    ids.freeze();
    assert!(!ids.is_full() && !ids.is_crowded());
    put_all(&mut ids, 10..20);
    assert!(!ids.is_full() && ids.is_crowded());
    let frozen = ids.frozen().unwrap();
    ids.install(ids::write(&disk, 1, &frozen).unwrap());
    assert!(ids.is_full() && !ids.is_crowded());
}

#[test]
fn a_written_file_survives_a_loss_of_power_at_once() {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    put_all(&mut ids, 0..ENTRIES);
    write_out(&mut ids, &disk, 1);
    put_all(&mut ids, ENTRIES / 2..2 * ENTRIES);
    write_out(&mut ids, &disk, 2);
    let plan: Vec<_> = [2, 1].map(|n| ids::IdFile::open(&disk, n).unwrap().into()).into();
    let merged = ids::merge(&disk, 3, &plan, |_, _| true).unwrap().unwrap();
    assert_eq!(merged.entries(), 2 * ENTRIES);
    let image = disk.crash_image(|_| Fate::Lost);
    for files in [&[2, 1][..], &[3]] {
        let ids = Ids::open(&image, files, IdOptions::default()).unwrap();
        for number in 0..2 * ENTRIES + 1000 {
            let expected = (number < 2 * ENTRIES).then(|| value(number));
            assert_eq!(ids.get(name(number)).unwrap(), expected);
        }
    }
}

#[test]
fn a_merge_that_keeps_nothing_leaves_no_file() {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    for number in 1..=4 {
        put_all(&mut ids, 0..50);
        write_out(&mut ids, &disk, number);
    }
    let plan = ids.merge_plan().unwrap();
    let merged = ids::merge(&disk, 5, &plan, |_, _| false).unwrap();
    assert!(merged.is_none());
    assert!(!disk.files().iter().any(|path| ids::path(5).to_str() == Some(path)));
    ids.replace(&[1, 2, 3, 4], merged);
    assert_eq!((ids.files(), ids.entries()), (vec![], 0));
}

#[test]
fn a_write_that_fails_anywhere_harms_nothing() {
    for fail_at in 1.. {
        let disk = ForgetfulDisk::new();
        let mut ids = empty(&disk);
        put_all(&mut ids, 0..100);
        write_out(&mut ids, &disk, 1);
        put_all(&mut ids, 100..200);
        ids.freeze();
        let frozen = ids.frozen().unwrap();
        disk.fail_at(disk.ops() + fail_at, Fault::ShortWrite, true);
        let written = ids::write(&disk, 2, &frozen);
        disk.heal();
        (0..200).for_each(|n| assert_eq!(ids.get(name(n)).unwrap(), Some(value(n))));
        if written.is_ok() {
            break;
        }
        ids.install(ids::write(&disk, 3, &frozen).unwrap());
        (0..200).for_each(|n| assert_eq!(ids.get(name(n)).unwrap(), Some(value(n))));
    }
}

#[test]
fn files_are_known_by_their_names() {
    assert_eq!(ids::path(7).to_str(), Some("ids/00000000000000000007.ids"));
    assert_eq!(ids::number("00000000000000000007.ids"), Some(7));
    assert_eq!(ids::number("00000000000000000007.run"), None);
    assert_eq!(ids::number("seven.ids"), None);
}

#[test]
fn memory_is_little_beside_what_is_on_disk() {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    put_all(&mut ids, 0..100_000);
    assert!(ids.memory_bytes() < 100_000 * 120);
    write_out(&mut ids, &disk, 1);
    assert!(ids.memory_bytes() < 100_000 * 3, "{}", ids.memory_bytes());
    let bytes = disk.read_file(&ids::path(1)).unwrap().len();
    assert!(bytes < 100_000 * 48, "{bytes}");
}
