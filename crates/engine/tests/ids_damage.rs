//! A damaged file of ids is found out: never a wrong answer, never a missing one, never a panic.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests may panic"
)]

mod ids_support;

use std::io;

use ids_support::{empty, name, put_all, value, write_out};
use proptest::prelude::*;
use punctual_engine::disk::{Disk, Open};
use punctual_engine::ids::{self, IdFile, IdOptions, Ids};
use punctual_model::ports::StoreError;
use punctual_testkit::forgetful::ForgetfulDisk;

const ENTRIES: u64 = 60;

fn disk_with(content: &[u8]) -> ForgetfulDisk {
    let disk = ForgetfulDisk::new();
    disk.create_dir(ids::DIR.as_ref()).unwrap();
    disk.open(&ids::path(1), Open::CreateNew).unwrap().write_at(content, 0).unwrap();
    disk
}

fn good_file() -> Vec<u8> {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    put_all(&mut ids, 0..ENTRIES);
    write_out(&mut ids, &disk, 1);
    disk.read_file(&ids::path(1)).unwrap()
}

/// How many answers were refused; any other answer has to be right.
fn refusals(content: &[u8]) -> u64 {
    let disk = disk_with(content);
    let ids = match Ids::open(&disk, &[1], IdOptions::default()) {
        Ok(ids) => ids,
        Err(StoreError::Damaged(why)) => {
            assert!(why.contains("00000000000000000001.ids"), "{why}");
            return ENTRIES;
        }
        Err(error) => panic!("{error}"),
    };
    let mut refused = 0;
    for number in 0..2 * ENTRIES {
        match ids.get(name(number)) {
            Ok(found) => assert_eq!(found, (number < ENTRIES).then(|| value(number))),
            Err(StoreError::Damaged(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let files = [IdFile::open(&disk, 1).unwrap().into()];
    match ids::merge(&disk, 2, &files, |_, _| true) {
        Ok(merged) => assert_eq!((merged.unwrap().entries(), refused), (ENTRIES, 0)),
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::InvalidData),
    }
    refused
}

#[test]
fn every_flipped_byte_is_found_out_or_harmless() {
    let good = good_file();
    assert_eq!(refusals(&good), 0);
    let mut harmless = Vec::new();
    for place in 0..good.len() {
        for bit in [0, 7] {
            let mut bad = good.clone();
            bad[place] ^= 1 << bit;
            if refusals(&bad) == 0 {
                harmless.push(place);
            }
        }
    }
    let meaningless = |place: &usize| (12..16).contains(place) || (24..1024).contains(place);
    assert!(harmless.iter().all(meaningless), "{harmless:?}");
}

#[test]
fn a_file_that_is_cut_or_too_long_is_refused() {
    let good = good_file();
    for len in 0..good.len() {
        assert_eq!(refusals(&good[..len]), ENTRIES, "cut to {len}");
    }
    for more in [1, 64, 1024] {
        let mut long = good.clone();
        long.resize(good.len() + more, 0);
        assert_eq!(refusals(&long), ENTRIES, "{more} more");
    }
}

#[test]
fn pages_that_changed_places_are_found_out() {
    let mut file = good_file();
    let (one, other) = file[1024..].split_at_mut(1024);
    one.swap_with_slice(&mut other[..1024]);
    assert_eq!(refusals(&file), ENTRIES - ENTRIES % 24);
}

#[test]
fn a_missing_file_is_an_error() {
    let opened = Ids::open(&ForgetfulDisk::new(), &[1], IdOptions::default());
    assert!(matches!(opened, Err(StoreError::Damaged(_))));
}

#[test]
fn a_damaged_file_is_not_merged_again_and_again() {
    let disk = ForgetfulDisk::new();
    let mut ids = empty(&disk);
    for number in 1..=4 {
        put_all(&mut ids, 0..50);
        write_out(&mut ids, &disk, number);
    }
    disk.flip_bit(&ids::path(2), 1500, 3).unwrap();
    let plan = ids.merge_plan().unwrap();
    assert_eq!(plan.len(), 4);
    let merged = ids::merge(&disk, 5, &plan, |_, _| true);
    assert_eq!(merged.unwrap_err().kind(), io::ErrorKind::InvalidData);
    assert!(ids.merge_plan().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn hostile_bytes_never_panic(content in prop::collection::vec(any::<u8>(), 0..4000)) {
        let opened = Ids::open(&disk_with(&content), &[1], IdOptions::default());
        prop_assert!(matches!(opened, Err(StoreError::Damaged(_))));
    }

    #[test]
    fn a_good_file_with_hostile_bytes_inside_never_panics_and_never_lies(
        start in 0.0..1.0f64,
        patch in prop::collection::vec(any::<u8>(), 1..200),
        at_the_end: bool,
    ) {
        let mut file = good_file();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the file")]
        let start = if at_the_end { file.len() - 64 } else { (file.len() as f64 * start) as usize };
        for (place, byte) in file[start..].iter_mut().zip(patch) {
            *place = byte;
        }
        refusals(&file);
    }
}
