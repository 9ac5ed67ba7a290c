//! Random operations on the forgetful disk: it must look like the real disk while it runs, and after
//! a crash every sector must be one that was there since the last sync.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use punctual_engine::disk::{Disk, DiskFile, Open, RealDisk};
use punctual_testkit::forgetful::{ForgetfulDisk, SECTOR_BYTES};

/// A linear congruential generator: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn size(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap()
    }
}

struct TempDir(PathBuf);

impl Drop for TempDir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// One operation on the bytes of a file, the same for every disk given the same dice.
fn change(file: &dyn DiskFile, dice: &mut Dice) -> io::Result<()> {
    let (offset, len) = (dice.below(20_000), dice.size(9_000));
    let fill = u8::try_from(1 + dice.below(255)).unwrap();
    match dice.below(8) {
        0 => file.set_len(offset),
        1 => file.allocate(offset + 1),
        2 => match file.punch(offset, len as u64 + 1) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            other => other,
        },
        3 => file.sync(),
        _ => file.write_at(&vec![fill; len], offset),
    }
}

fn everything(file: &dyn DiskFile) -> Vec<u8> {
    let mut bytes = vec![0xEE; 40_000];
    let count = file.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count as u64, file.len().unwrap());
    bytes.truncate(count);
    bytes
}

/// One operation on the names of a disk.
fn rename(disk: &dyn Disk, dice: &mut Dice) -> Result<(), io::ErrorKind> {
    let path = |number: u64| PathBuf::from(["d/x", "d/y", "d/z"][usize::try_from(number).unwrap()]);
    let (one, two) = (path(dice.below(3)), path(dice.below(3)));
    let done = match dice.below(6) {
        0 => disk.open(&one, Open::CreateNew).map(drop),
        1 => disk.open(&one, Open::Create).map(drop),
        2 => disk.remove(&one),
        3 => disk.rename(&one, &two),
        4 => disk.sync_dir(Path::new("d")),
        _ => disk.open(&one, Open::Existing).map(drop),
    };
    done.map_err(|error| error.kind())
}

#[test]
fn it_looks_like_the_real_disk() {
    let root = std::env::temp_dir().join(format!("forgetful-{}", std::process::id()));
    let _removed_at_the_end = TempDir(root.clone());
    for seed in 0..30 {
        let real: Arc<dyn Disk> =
            Arc::new(RealDisk::new(&root.join(format!("seed-{seed}"))).unwrap());
        let simulated: Arc<dyn Disk> = Arc::new(ForgetfulDisk::new());
        let open = |disk: &Arc<dyn Disk>| {
            disk.create_dir(Path::new("d")).unwrap();
            disk.open(Path::new("d/bytes"), Open::CreateNew).unwrap()
        };
        let files = (open(&real), open(&simulated));
        let mut dice = (Dice(seed), Dice(seed));
        for step in 0..60 {
            change(&*files.0, &mut dice.0).unwrap();
            change(&*files.1, &mut dice.1).unwrap();
            let same = everything(&*files.0) == everything(&*files.1);
            assert!(same, "bytes differ at seed {seed}, step {step}");
            let outcomes = (rename(&*real, &mut dice.0), rename(&*simulated, &mut dice.1));
            assert_eq!(outcomes.0, outcomes.1, "seed {seed}, step {step}");
            let lists = (real.list(Path::new("d")), simulated.list(Path::new("d")));
            assert_eq!(lists.0.unwrap(), lists.1.unwrap(), "seed {seed}, step {step}");
        }
    }
}

fn sectors(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    let padded = |sector: &[u8]| {
        let mut sector = sector.to_vec();
        sector.resize(SECTOR_BYTES, 0);
        sector
    };
    bytes.chunks(SECTOR_BYTES).map(padded).enumerate()
}

#[test]
fn after_a_crash_every_sector_is_one_that_was_there_since_the_last_sync() {
    let path = Path::new("bytes");
    let mut checked = 0;
    for seed in 0..40 {
        let disk = ForgetfulDisk::new();
        let file = disk.open(path, Open::CreateNew).unwrap();
        disk.sync_dir(Path::new("")).unwrap();
        let mut dice = Dice(seed);
        let mut versions: BTreeMap<usize, BTreeSet<Vec<u8>>> = BTreeMap::new();
        for _ in 0..30 {
            change(&*file, &mut dice).unwrap();
            if disk.unsynced().is_empty() {
                versions.clear();
            }
            for (at, sector) in sectors(&everything(&*file)) {
                versions.entry(at).or_default().insert(sector);
            }
        }
        let zeros = vec![0; SECTOR_BYTES];
        for (name, image) in disk.images(200, seed) {
            for (at, sector) in sectors(&image.read_file(path).unwrap()) {
                let known = versions.get(&at).is_some_and(|versions| versions.contains(&sector));
                assert!(
                    known || sector == zeros || torn_by_length(&sector, versions.get(&at)),
                    "seed {seed}, {name}: sector {at} was never like this"
                );
            }
            checked += 1;
        }
    }
    assert!(checked > 1_000, "{checked} images");
}

/// A lost change of the length or a hole may leave a sector whose front or back is zero.
fn torn_by_length(sector: &[u8], versions: Option<&BTreeSet<Vec<u8>>>) -> bool {
    versions
        .into_iter()
        .flatten()
        .any(|version| sector.iter().zip(version).all(|(found, was)| found == was || *found == 0))
}
