//! Do the files of the apps survive a crash at every step, and is damage never taken for no apps?

use std::collections::BTreeMap;

use punctual_model::Timestamp;
use punctual_testkit::forgetful::{Fault, ForgetfulDisk};

use super::*;
use crate::access::record::hash;

const IMAGES: usize = 200;

fn app(key: &str, secret: &str) -> AppRecord {
    AppRecord::new(AppKey::new(key).unwrap(), hash(secret), Timestamp::MIN)
}

fn open(disk: &ForgetfulDisk) -> io::Result<(AppFiles, Vec<AppRecord>)> {
    AppFiles::open(Arc::new(disk.clone()))
}

fn apps(disk: &ForgetfulDisk) -> BTreeMap<String, AppRecord> {
    let (_, records) = open(disk).unwrap();
    records.into_iter().map(|record| (record.key.to_string(), record)).collect()
}

type Step = Box<dyn Fn(&mut AppFiles) -> io::Result<()>>;

/// Changes, one after the other.
fn steps() -> Vec<Step> {
    vec![
        Box::new(|files| files.put(&app("a", "1"))),
        Box::new(|files| files.put(&app("b", "1"))),
        Box::new(|files| files.put(&app("a", "2"))),
        Box::new(|files| files.put(&AppRecord { enabled: false, ..app("b", "1") })),
        Box::new(|files| files.remove(&AppKey::new("a").unwrap())),
        Box::new(|files| files.put(&app("a", "3"))),
    ]
}

#[test]
fn after_a_crash_at_every_step_each_app_is_as_before_or_after() {
    let disk = ForgetfulDisk::new();
    let (mut files, none) = open(&disk).unwrap();
    assert_eq!(none, []);
    let mut before = apps(&disk);
    let mut images = 0;
    for step in steps() {
        let stepped = disk.reopen();
        stepped.keep_history();
        let (mut own, _) = open(&stepped).unwrap();
        step(&mut own).unwrap();
        let after = apps(&stepped);
        for (_, state) in stepped.history() {
            for (what, image) in state.images(IMAGES, 1) {
                let found = apps(&image);
                assert!(found == before || found == after, "{what}: {found:?}");
                images += 1;
                assert_eq!(apps(&image), found, "a second start finds the same");
            }
        }
        step(&mut files).unwrap();
        let lost = disk.images(1, 1).next().map(|(_, image)| apps(&image));
        assert_eq!(lost.as_ref(), Some(&after), "what was acknowledged is certain");
        before = after;
    }
    assert!(images > 100, "{images}");
}

#[test]
fn a_fault_at_every_call_leaves_the_app_as_it_was_or_ends_all_changes() {
    for fault in [Fault::Eio, Fault::NoSpace, Fault::ShortWrite] {
        for n in 1..20 {
            let disk = ForgetfulDisk::new();
            let (mut files, _) = open(&disk).unwrap();
            files.put(&app("a", "1")).unwrap();
            disk.fail_at(disk.ops() + n, fault, false);
            let outcome = files.put(&app("a", "2"));
            disk.heal();
            let again = files.put(&app("a", "3"));
            let found = apps(&disk.reopen());
            let known = [hash("1"), hash("2"), hash("3")].contains(&found["a"].secret);
            assert!(known && found.len() == 1);
            match (outcome, again) {
                (Ok(()), again) => again.unwrap(),
                (Err(_), Ok(())) => assert_eq!(found["a"].secret, hash("3")),
                (Err(_), Err(_)) => assert_ne!(found["a"].secret, hash("3")),
            }
        }
    }
}

#[test]
fn a_damaged_file_ends_the_start() {
    let disk = ForgetfulDisk::new();
    let (mut files, _) = open(&disk).unwrap();
    files.put(&app("a", "1")).unwrap();
    files.put(&app("b", "1")).unwrap();
    let path = Path::new("apps/a.json");
    let length = disk.read_file(path).unwrap().len() as u64;
    for offset in 0..length {
        disk.flip_bit(path, offset, 3).unwrap();
        let error = open(&disk.reopen()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "byte {offset}");
        assert!(error.to_string().contains("apps/a.json"), "{error}");
        disk.flip_bit(path, offset, 3).unwrap();
    }
    for cut in [0, 1, length / 2, length - 1] {
        let torn = disk.reopen();
        torn.open(path, Open::Existing).unwrap().set_len(cut).unwrap();
        assert_eq!(open(&torn).unwrap_err().kind(), io::ErrorKind::InvalidData, "cut at {cut}");
    }
    let moved = disk.reopen();
    moved.rename(path, Path::new("apps/b.json")).unwrap();
    assert_eq!(open(&moved).unwrap_err().kind(), io::ErrorKind::InvalidData, "it names another");
    assert_eq!(apps(&disk).len(), 2);
}

#[test]
fn a_token_is_in_its_place_exactly_when_it_counts() {
    for made in [false, true] {
        let disk = ForgetfulDisk::new();
        let (mut files, _) = open(&disk).unwrap();
        if made {
            files.prepare_token("admin.old").unwrap();
            files.put(&app("admin", "old")).unwrap();
            files.place_token().unwrap();
        }
        disk.keep_history();
        files.prepare_token("admin.new").unwrap();
        files.put(&app("admin", "new")).unwrap();
        files.place_token().unwrap();
        for (number, state) in disk.history() {
            for (what, image) in state.images(IMAGES, 7) {
                let (files, records) = open(&image).unwrap();
                let admin = records.first();
                let counts = |token: &str| {
                    let secret = token.strip_prefix("admin.").unwrap_or_default();
                    admin.is_some_and(|admin| admin.secret == hash(secret))
                };
                files.finish_token(counts).unwrap();
                let file = image.read_file(Path::new(TOKEN)).ok();
                let file = file.map(|bytes| String::from_utf8(bytes).unwrap());
                let counting = file.as_deref().map(str::trim_end).map(counts);
                assert_eq!(counting, admin.map(|_| true), "{number} {what}: {file:?}");
                assert!(!image.files().iter().any(|name| name.ends_with(".new")), "{what}");
            }
        }
    }
}
