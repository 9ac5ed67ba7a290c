//! Holds the forgetful disk to its own promise: what is synced survives every crash, what is not
//! may be lost in every way a real disk may lose it, and faults strike where they were planned.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use punctual_engine::disk::{Disk, DiskFile, Open, is_full, read_exact};
use punctual_testkit::forgetful::{Fate, Fault, ForgetfulDisk, SECTOR_BYTES};

fn create(disk: &ForgetfulDisk, path: &str) -> Arc<dyn DiskFile> {
    disk.open(Path::new(path), Open::CreateNew).unwrap()
}

/// A file whose name is certain.
fn certain(disk: &ForgetfulDisk, path: &str) -> Arc<dyn DiskFile> {
    let file = create(disk, path);
    disk.sync_dir(Path::new(path).parent().unwrap()).unwrap();
    file
}

fn content(disk: &ForgetfulDisk, path: &str) -> Option<Vec<u8>> {
    disk.read_file(Path::new(path)).ok()
}

/// Every content that `path` has in any image.
fn outcomes(disk: &ForgetfulDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    disk.images(10_000, 1).map(|(_, image)| content(&image, path)).collect()
}

#[test]
fn what_is_synced_survives_every_image() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(&[1; 3000], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 3000], 3000).unwrap();
    create(&disk, "b").write_at(&[3; 10], 0).unwrap();
    let mut count = 0;
    for (name, image) in disk.images(5_000, 7) {
        let found = content(&image, "a").unwrap();
        assert_eq!(&found[..3000], &[1; 3000], "{name}");
        count += 1;
    }
    assert!(count > 500, "{count} images");
}

#[test]
fn what_is_not_synced_may_survive_or_not() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(b"old", 0).unwrap();
    file.sync().unwrap();
    file.write_at(b"new", 0).unwrap();
    let expected = [b"old", b"new"].map(|bytes| Some(bytes.to_vec()));
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from(expected));
    file.sync().unwrap();
    assert_eq!(outcomes(&disk, "a"), BTreeSet::from([Some(b"new".to_vec())]));
    assert_eq!(disk.images(100, 0).count(), 1, "nothing is at risk");
}

#[test]
fn a_name_is_certain_only_after_its_directory_was_synced() {
    let disk = ForgetfulDisk::new();
    disk.create_dir(Path::new("one/two")).unwrap();
    let file = create(&disk, "one/two/f");
    file.write_at(b"x", 0).unwrap();
    file.sync().unwrap();
    let may_vanish = |disk: &ForgetfulDisk| outcomes(disk, "one/two/f").contains(&None);
    assert!(may_vanish(&disk));
    disk.sync_dir(Path::new("one/two")).unwrap();
    assert!(may_vanish(&disk), "the directories above are not certain");
    disk.sync_dir(Path::new("one")).unwrap();
    assert!(may_vanish(&disk));
    disk.sync_dir(Path::new("")).unwrap();
    assert_eq!(outcomes(&disk, "one/two/f"), BTreeSet::from([Some(b"x".to_vec())]));
}

#[test]
fn a_rename_is_done_or_undone_and_never_half() {
    let disk = ForgetfulDisk::new();
    for (path, bytes) in [("new", b"new"), ("old", b"old")] {
        let file = certain(&disk, path);
        file.write_at(bytes, 0).unwrap();
        file.sync().unwrap();
    }
    disk.rename(Path::new("new"), Path::new("old")).unwrap();
    let pairs: BTreeSet<_> = disk
        .images(100, 0)
        .map(|(_, image)| (content(&image, "old").unwrap(), image.files().len()))
        .collect();
    assert_eq!(pairs, BTreeSet::from([(b"old".to_vec(), 2), (b"new".to_vec(), 1)]));
    disk.sync_dir(Path::new("")).unwrap();
    assert_eq!(disk.images(100, 0).count(), 1);
    assert_eq!(content(&disk, "old").unwrap(), b"new");
}

#[test]
fn a_rename_may_survive_the_bytes_it_was_meant_to_publish() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "tmp");
    file.write_at(b"bytes", 0).unwrap();
    disk.rename(Path::new("tmp"), Path::new("final")).unwrap();
    assert!(outcomes(&disk, "final").contains(&Some(Vec::new())));
}

#[test]
fn a_removed_file_may_come_back_until_the_directory_is_synced() {
    let disk = ForgetfulDisk::new();
    disk.create_dir(Path::new("d")).unwrap();
    disk.sync_dir(Path::new("")).unwrap();
    drop(certain(&disk, "d/f"));
    disk.remove_dir(Path::new("d")).unwrap();
    assert!(disk.files().is_empty());
    assert!(outcomes(&disk, "d/f").contains(&Some(Vec::new())));
    disk.sync_dir(Path::new("")).unwrap();
    assert_eq!(outcomes(&disk, "d/f"), BTreeSet::from([None]));
}

#[test]
fn a_write_tears_between_sectors_and_never_inside_one() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(&[1; 2048], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[2; 1536], 256).unwrap();
    let found = outcomes(&disk, "a");
    for bytes in found.iter().flatten() {
        for (at, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let old = sector.iter().all(|&byte| byte == 1);
            let new = match at {
                0 => sector[..256] == [1; 256] && sector[256..] == [2; 256],
                3 => sector[..256] == [2; 256] && sector[256..] == [1; 256],
                _ => sector == [2; SECTOR_BYTES],
            };
            assert!(old || new, "sector {at} is neither old nor new");
        }
    }
    assert_eq!(found.len(), 16, "each subset of the four sectors turns up");
}

#[test]
fn a_sector_that_survives_brings_what_was_written_to_it_before() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(b"one", 0).unwrap();
    file.write_at(b"two", 3).unwrap();
    let expected = [&b""[..], b"one", b"onetwo", b"one\0\0\0", &[0; 3], &[0; 6]];
    let expected: BTreeSet<_> = expected.into_iter().map(|bytes| Some(bytes.to_vec())).collect();
    let found = outcomes(&disk, "a");
    assert!(found.is_subset(&expected), "{found:?}");
    assert!(found.contains(&Some(b"one".to_vec())) && found.contains(&Some(b"onetwo".to_vec())));
}

#[test]
fn all_prefixes_and_omissions_are_among_the_images() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.allocate(4096).unwrap();
    file.sync().unwrap();
    for at in 0..8 {
        file.write_at(&[1], at * 512).unwrap();
    }
    let survivors = |image: &ForgetfulDisk| -> Vec<bool> {
        content(image, "a").unwrap().chunks(512).map(|sector| sector[0] == 1).collect()
    };
    let found: BTreeSet<_> = disk.images(100, 3).map(|(_, image)| survivors(&image)).collect();
    for cut in 0..8 {
        assert!(found.contains(&(0..8).map(|at| at < cut).collect::<Vec<_>>()), "prefix {cut}");
        assert!(found.contains(&(0..8).map(|at| at != cut).collect::<Vec<_>>()), "without {cut}");
    }
    assert!(found.contains(&vec![true; 8]));
    let again: Vec<_> =
        disk.images(100, 3).map(|(name, image)| (name, survivors(&image))).collect();
    let once: Vec<_> = disk.images(100, 3).map(|(name, image)| (name, survivors(&image))).collect();
    assert_eq!(once, again, "the same seed gives the same images");
    assert_eq!(disk.images(10_000, 0).count().min(256), 256, "random ones reach every subset");
}

#[test]
fn a_chosen_image_is_what_was_chosen() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(&[9; 1024], 0).unwrap();
    file.write_at(&[8; 512], 1024).unwrap();
    assert_eq!(disk.unsynced().len(), 2);
    let image = disk.crash_image(|change| match change.index {
        0 => Fate::Torn { sectors: vec![false, true], length: false },
        _ => Fate::Lost,
    });
    assert_eq!(content(&image, "a").unwrap(), [[0; 512], [9; 512]].concat());
}

#[test]
fn lengths_reservations_and_holes_are_lost_and_kept_like_bytes() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(&[5; 8192], 0).unwrap();
    file.sync().unwrap();
    file.punch(0, 4096).unwrap();
    file.set_len(6000).unwrap();
    let lengths: BTreeSet<_> =
        outcomes(&disk, "a").into_iter().map(|bytes| bytes.unwrap().len()).collect();
    assert_eq!(lengths, BTreeSet::from([6000, 8192]));
    let fronts: BTreeSet<_> =
        outcomes(&disk, "a").into_iter().map(|bytes| bytes.unwrap()[0]).collect();
    assert_eq!(fronts, BTreeSet::from([0, 5]));
    file.sync().unwrap();
    file.allocate(65_536).unwrap();
    assert_eq!(file.len().unwrap(), 65_536);
    assert_eq!(read_exact(&*file, 6000, 10).unwrap(), [0; 10]);
    assert!(read_exact(&*file, 65_530, 10).is_err());
}

#[test]
fn a_fault_strikes_the_operation_it_was_planned_for() {
    for persistent in [false, true] {
        let disk = ForgetfulDisk::new();
        disk.fail_at(3, Fault::Eio, persistent);
        let file = certain(&disk, "a");
        assert_eq!(disk.ops(), 2);
        file.write_at(b"x", 0).unwrap_err();
        assert_eq!(disk.ops(), 3);
        assert_eq!(file.write_at(b"x", 0).is_err(), persistent);
        disk.heal();
        file.write_at(b"y", 0).unwrap();
        assert_eq!(content(&disk, "a").unwrap(), b"y");
    }
}

#[test]
fn a_short_write_leaves_half() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    disk.fail_at(disk.ops() + 1, Fault::ShortWrite, false);
    let error = file.write_at(b"abcdef", 0).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WriteZero);
    assert_eq!(content(&disk, "a").unwrap(), b"abc");
}

#[test]
fn a_failed_sync_is_not_mended_by_the_next_one() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(b"lost", 0).unwrap();
    disk.fail_at(disk.ops() + 1, Fault::Eio, false);
    file.sync().unwrap_err();
    file.write_at(b"kept", 4096).unwrap();
    file.sync().unwrap();
    assert_eq!(&content(&disk, "a").unwrap()[..4], b"lost", "the page cache still shows it");
    for (name, image) in disk.images(100, 0) {
        let found = content(&image, "a").unwrap();
        assert_eq!((&found[..4], &found[4096..]), (&[0; 4][..], &b"kept"[..]), "{name}");
    }
}

#[test]
fn after_the_power_is_cut_nothing_works_and_nothing_changes() {
    let disk = ForgetfulDisk::new();
    disk.crash_at(4);
    let file = certain(&disk, "a");
    file.write_at(b"one", 0).unwrap();
    let error = file.write_at(b"two", 0).unwrap_err();
    assert_eq!(error.to_string(), "power is off");
    assert!(file.len().is_err() && file.sync().is_err() && file.read_at(&mut [0], 0).is_err());
    assert!(disk.list(Path::new("")).is_err() && disk.lock(Path::new("LOCK")).is_err());
    assert_eq!(disk.ops(), 3);
    assert_eq!(content(&disk, "a").unwrap(), b"one");
    let image = disk.images(1, 0).next().unwrap().1;
    assert_eq!(image.open(Path::new("a"), Open::Existing).unwrap().len().unwrap(), 0);
}

#[test]
fn history_holds_the_state_before_each_operation() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    disk.keep_history();
    for byte in 1..=3 {
        file.write_at(&[byte], 0).unwrap();
    }
    let states: Vec<_> =
        disk.history().into_iter().map(|(n, disk)| (n, content(&disk, "a").unwrap())).collect();
    assert_eq!(states, [(2, vec![]), (3, vec![1]), (4, vec![2]), (5, vec![3])]);
}

#[test]
fn a_full_disk_refuses_growth_until_space_is_freed() {
    let disk = ForgetfulDisk::new();
    disk.capacity(Some(16_384));
    let log = certain(&disk, "log");
    log.allocate(8192).unwrap();
    let other = certain(&disk, "other");
    assert!(is_full(&other.write_at(&[1; 12_000], 0).unwrap_err()));
    assert_eq!(other.len().unwrap(), 8192, "what fitted was written");
    assert!(is_full(&other.allocate(12_288).unwrap_err()));
    log.write_at(&[2; 8192], 0).unwrap();
    log.sync().unwrap();
    disk.remove(Path::new("other")).unwrap();
    assert_eq!(disk.used(), 16_384, "an open file keeps its space");
    drop(other);
    assert_eq!(disk.used(), 8192);
    certain(&disk, "third").write_at(&[3; 8192], 0).unwrap();
    log.punch(0, 4096).unwrap();
    assert_eq!(disk.used(), 12_288);
}

#[test]
fn a_killed_process_leaves_everything_written_and_no_lock() {
    let disk = ForgetfulDisk::new();
    let held = disk.lock(Path::new("LOCK")).unwrap();
    let refused = disk.lock(Path::new("LOCK")).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    let file = certain(&disk, "a");
    file.write_at(b"x", 0).unwrap();
    let next = disk.reopen();
    assert_eq!(content(&next, "a").unwrap(), b"x");
    file.write_at(b"ghost", 0).unwrap();
    assert_eq!(content(&next, "a").unwrap(), b"x", "the dead process writes no more");
    assert!(next.lock(Path::new("LOCK")).is_ok());
    assert!(outcomes(&next, "a").contains(&Some(Vec::new())), "still unsynced");
    drop(held);
    assert!(disk.lock(Path::new("LOCK")).is_ok());
}

#[test]
fn a_flipped_bit_is_there_after_every_crash() {
    let disk = ForgetfulDisk::new();
    let file = certain(&disk, "a");
    file.write_at(&[0; 600], 0).unwrap();
    file.sync().unwrap();
    disk.flip_bit(Path::new("a"), 599, 3).unwrap();
    assert!(disk.flip_bit(Path::new("a"), 600, 0).is_err());
    assert_eq!(read_exact(&*file, 598, 2).unwrap(), [0, 8]);
    for (_, image) in disk.images(10, 0) {
        assert_eq!(content(&image, "a").unwrap()[599], 8);
    }
}

#[test]
fn opening_follows_the_operating_system() {
    let disk = ForgetfulDisk::new();
    let kind = |path: &str, how| disk.open(Path::new(path), how).unwrap_err().kind();
    assert_eq!(kind("a", Open::Existing), io::ErrorKind::NotFound);
    assert_eq!(kind("no/a", Open::Create), io::ErrorKind::NotFound);
    assert_eq!(kind("/a", Open::Create), io::ErrorKind::InvalidInput);
    disk.open(Path::new("a"), Open::Create).unwrap().write_at(b"x", 0).unwrap();
    assert_eq!(disk.open(Path::new("a"), Open::Create).unwrap().len().unwrap(), 1);
    assert_eq!(kind("a", Open::CreateNew), io::ErrorKind::AlreadyExists);
    assert_eq!(disk.list(Path::new("none")).unwrap(), Vec::<String>::new());
    disk.create_dir(Path::new("d")).unwrap();
    assert_eq!(disk.list(Path::new("")).unwrap(), ["a", "d"]);
    assert_eq!(kind("d", Open::Existing), io::ErrorKind::IsADirectory);
}

#[test]
fn a_hundred_thousand_images_are_cheap() {
    let disk = ForgetfulDisk::new();
    let files: Vec<_> = (0..8).map(|n| certain(&disk, &format!("f{n}"))).collect();
    for file in &files {
        file.allocate(65_536).unwrap();
        file.write_at(&[1; 65_536], 0).unwrap();
        file.sync().unwrap();
        file.write_at(&[2; 2048], 0).unwrap();
        file.write_at(&[3; 100], 9000).unwrap();
    }
    assert_eq!(disk.images(100_000, 5).count(), 100_000);
}
