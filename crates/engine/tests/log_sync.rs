//! What `sync_partition` has answered for survives a loss of power, whatever else was under way.

#![expect(clippy::unwrap_used, reason = "a failed set-up may stop a test")]

mod log_support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use log_support::*;
use punctual_engine::log::{LogEnd, Logs};
use punctual_model::ports::StoreError;
use punctual_testkit::forgetful::{Fate, Fault, ForgetfulDisk};

fn start() -> (ForgetfulDisk, Logs) {
    let disk = ForgetfulDisk::new();
    let (logs, _) = open_on(Arc::new(disk.clone()), small(), 2, &[]).unwrap();
    (disk, logs)
}

/// Delivers in batches of three, of which a segment takes six.
fn deliver(logs: &Logs, range: std::ops::Range<u64>) {
    let now = at(range.end);
    for batch in numbered(range, 1000).chunks(3) {
        logs.deliver(batch, now).unwrap();
    }
}

fn sync(logs: &Logs) {
    logs.sync_partition(topic(TOPIC), partition(0)).unwrap();
}

/// What is left of partition 0 when nothing survives that was not synced.
fn left(disk: &ForgetfulDisk, saved: &[LogEnd]) -> Vec<u64> {
    let image = disk.crash_image(|_| Fate::Lost);
    let (logs, _) = open_on(Arc::new(image), small(), 2, saved).unwrap();
    sequences(&read_all(&logs, 0))
}

#[test]
fn what_was_synced_survives_and_the_rest_may_not() {
    let (disk, logs) = start();
    sync(&logs);
    let mut end = 0;
    for round in 0..20 {
        deliver(&logs, end..end + 3);
        if round % 3 == 2 {
            assert!(left(&disk, &[]).len() < usize::try_from(end).unwrap() + 3);
            sync(&logs);
            assert_eq!(left(&disk, &[]), (0..end + 3).collect::<Vec<_>>());
        }
        end += 3;
    }
    assert!(disk.files().iter().filter(|file| file.ends_with(".log")).count() > 3);
}

#[test]
fn any_image_of_the_disk_after_the_loss_has_what_was_synced() {
    let (disk, logs) = start();
    deliver(&logs, 0..30);
    sync(&logs);
    deliver(&logs, 30..60);
    for (name, image) in disk.images(300, 1) {
        let (logs, _) = open_on(Arc::new(image), small(), 2, &[]).unwrap();
        let read = sequences(&read_all(&logs, 0));
        assert!(read.len() >= 30, "{} left: {name}", read.len());
        assert_eq!(read, (0..read.len() as u64).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_checkpoint_that_took_the_files_and_has_not_synced_them_is_not_relied_upon() {
    let (disk, logs) = start();
    deliver(&logs, 0..40);
    let (_, taken) = logs.prepare_checkpoint();
    let segments = disk.files().iter().filter(|file| file.ends_with(".log")).count();
    assert!(segments > 2, "rolled ones among them");
    // Files that seem synced are closed by housekeeping.
    logs.maintain(&[settings(None, None)], at(100), keep_none).unwrap();
    logs.maintain(&[settings(None, None)], at(100), keep_none).unwrap();
    assert_eq!(left(&disk, &[]), [0_u64; 0]);
    sync(&logs);
    assert_eq!(left(&disk, &[]), (0..40).collect::<Vec<_>>());
    deliver(&logs, 40..80);
    taken.iter().for_each(|one| one.sync().unwrap());
    sync(&logs);
    assert_eq!(left(&disk, &[]), (0..80).collect::<Vec<_>>());
}

#[test]
fn a_checkpoint_still_syncs_what_it_vouches_for() {
    let (disk, logs) = start();
    deliver(&logs, 0..40);
    sync(&logs);
    deliver(&logs, 40..50);
    logs.settled(punctual_model::Lane::Message);
    let (ends, unsynced) = logs.prepare_checkpoint();
    unsynced.iter().for_each(|one| one.sync().unwrap());
    logs.confirm_checkpoint(&ends);
    assert_eq!(left(&disk, &ends), (0..50).collect::<Vec<_>>());
    deliver(&logs, 50..53);
    sync(&logs);
    assert_eq!(left(&disk, &ends), (0..53).collect::<Vec<_>>());
}

#[test]
fn nothing_is_done_where_nothing_is_new() {
    let (disk, logs) = start();
    deliver(&logs, 0..40);
    sync(&logs);
    let before = disk.ops();
    sync(&logs);
    logs.sync_partition(topic(TOPIC), partition(1)).unwrap();
    logs.sync_partition(topic(TOPIC), partition(9)).unwrap();
    logs.sync_partition(topic(99), partition(0)).unwrap();
    assert_eq!(disk.ops(), before);
    // One file has new bytes, and its name is certain.
    deliver(&logs, 40..41);
    let before = disk.ops();
    sync(&logs);
    assert_eq!(disk.ops(), before + 1);
    logs.remove(topic(TOPIC)).unwrap();
    sync(&logs);
}

#[test]
fn a_failed_sync_poisons_even_when_the_disk_is_full() {
    for fault in [Fault::Eio, Fault::NoSpace] {
        for nth in 1..=2 {
            let (disk, logs) = start();
            deliver(&logs, 0..3);
            disk.fail_at(disk.ops() + nth, fault, false);
            let error = logs.sync_partition(topic(TOPIC), partition(0)).unwrap_err();
            assert!(matches!(error, StoreError::Poisoned(_)), "{error}");
        }
    }
}

#[test]
fn what_is_appended_while_a_sync_is_under_way_is_not_taken_for_synced() {
    let disk = ForgetfulDisk::new();
    let (meddling, logs) = (AtomicBool::new(false), Arc::new(OnceLock::<Logs>::new()));
    let to = Arc::clone(&logs);
    let watched = Watched::new(disk.clone(), move |seen| {
        if matches!(seen, Seen::Synced) && !meddling.swap(true, Ordering::Relaxed) {
            deliver(to.get().unwrap(), 3..6);
        }
    });
    let opened = open_on(Arc::new(watched), small(), 2, &[]).unwrap().0;
    let logs = logs.get_or_init(|| opened);
    deliver(logs, 0..3);
    sync(logs);
    assert_eq!(left(&disk, &[]), [0, 1, 2]);
    sync(logs);
    assert_eq!(left(&disk, &[]), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn syncs_appends_and_checkpoints_do_not_disturb_each_other() {
    let (disk, logs) = start();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let end = logs.bounds(topic(TOPIC), partition(0)).unwrap().end;
                sync(&logs);
                let left = left(&disk, &[]);
                assert!(left.len() as u64 >= end, "{} of {end}", left.len());
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let (_, unsynced) = logs.prepare_checkpoint();
                logs.maintain(&[settings(None, None)], at(9000), keep_none).unwrap();
                unsynced.iter().for_each(|one| one.sync().unwrap());
            }
        });
        let _done = Done(&done);
        for n in 0..150 {
            deliver(&logs, n * 3..n * 3 + 3);
        }
    });
    sync(&logs);
    assert_eq!(left(&disk, &[]), (0..450).collect::<Vec<_>>());
}
