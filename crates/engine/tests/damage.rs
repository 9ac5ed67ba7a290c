//! Damage to every kind of file: bits turned over, files cut short (G5), and directories that are
//! not ours to touch (G8).
//!
//! Whatever is damaged, no altered byte is delivered and no message is dropped in silence: the
//! start is refused, or the damage is reported when it is met, or the part was not needed. One case
//! cannot be told from a torn write: the last group of the journal. It may be missing as a whole.

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests may panic")]

mod store_support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use punctual_engine::disk::{Disk, Open};
use punctual_engine::store::{OpenError, Store};
use punctual_model::ports::{CancelOutcome, LogPosition, PendingQuery};
use punctual_model::{Lane, Message, MessageId, Partition};
use punctual_testkit::forgetful::ForgetfulDisk;

use store_support::look::drain;
use store_support::runner::Runner;
use store_support::steps::script;
use store_support::{Dice, open, small};

/// A life that leaves every kind of file behind, ending in one batch.
const LIFE: &str = "
    put a 2
    schedule a 1 2 3 100 110 120 130
    freeze
    upkeep
    schedule a 4 5 6 105 115 125 135
    cancel 3
    freeze
    upkeep
    fire 4
    schedule a 7 7 7 7 7 7 7 7 7 7 7 7
    fire 8
    schedule a 8 8 8 8 8 8 8 8 8 8 8 8
    fire 9
    maintain
    checkpoint
    schedule a 9 9 9 9 9 9 9 9 9 9 9 9
    fire 10
    maintain
    schedule a 111 112 113
    cancel 4
    schedule a 114 115
    cancel 5
    checkpoint
    schedule a 116 117
    cancel 10
    schedule a 12 12 12
    fire 13
    schedule a 124 125 126";

/// What one look at a damaged store came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Refused,
    Reported,
    Unharmed,
    TailCut,
}

fn furnished() -> Runner {
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    runner.run(&script(LIFE));
    runner
}

/// Everything that may come to light, and whether something was reported while looking.
#[derive(Debug, Default)]
struct Found {
    reported: bool,
    logged: BTreeMap<MessageId, Vec<Message>>,
    missing_in_find: BTreeSet<MessageId>,
}

impl Found {
    fn look(&mut self, runner: &Runner, store: &Store) -> Result<(), String> {
        for topic in store.topics() {
            let query = PendingQuery::all_of(topic.id, Lane::Message, 1000);
            match store.pending(query) {
                Ok(page) => {
                    for entry in page.entries {
                        same(runner, entry.id, &entry.message)?;
                    }
                }
                Err(_) => self.reported = true,
            }
        }
        for (number, sent) in runner.ledger.sent.iter().enumerate() {
            match store.find(&[sent.id]) {
                Ok(mut found) => {
                    let entry = found.remove(0).and_then(|found| found.entry);
                    if let Some(entry) = &entry {
                        same(runner, entry.id, &entry.message)?;
                    }
                    if entry.is_none() && runner.expected(number) == [CancelOutcome::Cancelled] {
                        self.missing_in_find.insert(sent.id);
                    }
                }
                Err(_) => self.reported = true,
            }
        }
        Ok(())
    }

    fn read_logs(&mut self, runner: &Runner, store: &Store) -> Result<(), String> {
        for topic in store.topics() {
            for number in 0..topic.settings.partitions {
                let partition = Partition::new(number).unwrap();
                let Ok(bounds) = store.logs().bounds(topic.id, partition) else { continue };
                let mut offset = bounds.start;
                while offset < bounds.end {
                    let from = LogPosition { topic: topic.id, partition, offset };
                    match store.logs().read(from, 1000) {
                        Ok(page) if page.is_empty() => {
                            return Err(format!("the log ends early, at {offset}"));
                        }
                        Ok(page) => {
                            for delivered in page {
                                same(runner, delivered.id, &delivered.message)?;
                                offset = delivered.offset + 1;
                                let copies = self.logged.entry(delivered.id).or_default();
                                copies.push(delivered.message);
                            }
                        }
                        Err(_) => {
                            self.reported = true;
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

fn same(runner: &Runner, id: MessageId, message: &Message) -> Result<(), String> {
    match runner.ledger.sent.iter().find(|sent| sent.id == id) {
        None => Err(format!("{id} was never sent")),
        Some(sent) if sent.message != *message => Err(format!("{id} was altered")),
        Some(sent) if sent.cancelled.is_some() => Err(format!("{id} was cancelled")),
        Some(_) => Ok(()),
    }
}

/// Opens the damaged disk, looks at everything, delivers everything.
fn judge(runner: &Runner, disk: &ForgetfulDisk, is_journal: bool) -> Result<Verdict, String> {
    let store = match open(disk, &small()) {
        Ok(store) => store,
        Err(error) if error.to_string().is_empty() => return Err("no reason given".to_owned()),
        Err(_) => return Ok(Verdict::Refused),
    };
    let mut found = Found::default();
    found.look(runner, &store)?;
    if drain(&store).is_err() || store.damaged_blocks() > 0 {
        found.reported = true;
    }
    found.read_logs(runner, &store)?;
    if let Some((id, _)) = found.logged.iter().find(|(_, copies)| copies.len() > 1) {
        return Err(format!("{id} is in the log twice"));
    }
    if found.reported {
        return Ok(Verdict::Reported);
    }
    let sent = runner.ledger.sent.iter().filter(|sent| sent.cancelled.is_none());
    let missing: BTreeSet<MessageId> =
        sent.map(|sent| sent.id).filter(|id| !found.logged.contains_key(id)).collect();
    let last = runner.ledger.batches - 1;
    let tail = runner.ledger.sent.iter().filter(|sent| sent.batch == last);
    let tail: BTreeSet<MessageId> = tail.map(|sent| sent.id).collect();
    if is_journal && missing == tail {
        return Ok(Verdict::TailCut);
    }
    if !missing.is_empty() {
        return Err(format!("dropped in silence: {missing:?}"));
    }
    if !found.missing_in_find.is_empty() {
        return Err(format!("pending and said not to be: {:?}", found.missing_in_find));
    }
    Ok(Verdict::Unharmed)
}

fn kind(path: &str) -> String {
    let end = path.rsplit('.').next().unwrap_or(path);
    if path.contains('.') { end.to_owned() } else { path.to_owned() }
}

/// Does `harm` to a copy of the disk for each place it picks, and counts the verdicts.
fn harm_all(
    places: impl Fn(&str, usize) -> Vec<usize>,
    harm: impl Fn(&ForgetfulDisk, &Path, usize),
) -> BTreeMap<(String, Verdict), u64> {
    let runner = furnished();
    let mut verdicts = BTreeMap::new();
    for path in runner.disk.files() {
        let length = runner.disk.read_file(Path::new(&path)).unwrap().len();
        for place in places(&path, length) {
            let disk = runner.disk.reopen();
            harm(&disk, Path::new(&path), place);
            let verdict = judge(&runner, &disk, path.ends_with(".journal"))
                .unwrap_or_else(|what| panic!("{path} at {place} of {length}: {what}"));
            *verdicts.entry((kind(&path), verdict)).or_default() += 1;
        }
    }
    verdicts
}

fn spread(length: usize, every: usize, seed: u64) -> Vec<usize> {
    let mut dice = Dice(seed);
    let mut places: BTreeSet<usize> =
        (0..length).step_by(every.max(1)).map(|at| at + dice.place(every)).collect();
    places.extend(0..64.min(length));
    places.extend(length.saturating_sub(100)..length);
    places.into_iter().filter(|place| *place < length).collect()
}

#[test]
fn a_turned_bit_is_never_delivered_and_never_drops_a_message_in_silence() {
    let places = |path: &str, length: usize| {
        // Journal files are mostly empty; their groups start on pages.
        if path.ends_with(".journal") {
            let page = |start: usize| (start..length.min(start + 400)).step_by(7);
            return (0..length).step_by(4096).flat_map(page).collect();
        }
        let every = if length > 4096 { 41 } else { 5 };
        spread(length, every, length as u64)
    };
    let flip = |disk: &ForgetfulDisk, path: &Path, place: usize| {
        let bit = u8::try_from(place % 8).unwrap();
        disk.flip_bit(path, place as u64, bit).unwrap();
    };
    let verdicts = harm_all(places, flip);
    let total: u64 = verdicts.values().sum();
    println!("{total} bits turned: {verdicts:?}");
    assert!(total > 2000, "enough bits were turned");
    for (what, verdict) in [("journal", Verdict::Refused), ("run", Verdict::Reported)] {
        let met = verdicts.get(&(what.to_owned(), verdict)).copied().unwrap_or(0);
        assert!(met > 0, "damage to a {what} is noticed");
    }
}

#[test]
fn a_file_cut_short_is_noticed_or_not_needed() {
    let places = |_: &str, length: usize| spread(length, 1 + length / 40, 7);
    let cut = |disk: &ForgetfulDisk, path: &Path, place: usize| {
        let file = disk.open(path, Open::Existing).unwrap();
        file.set_len(place as u64).unwrap();
        file.sync().unwrap();
    };
    let verdicts = harm_all(places, cut);
    let total: u64 = verdicts.values().sum();
    println!("{total} files cut: {verdicts:?}");
}

#[test]
fn a_file_that_is_gone_is_noticed_or_not_needed() {
    // Old segments of a log go one day anyway, so their absence is no damage.
    let places = |path: &str, _| if path.ends_with(".log") { Vec::new() } else { vec![0] };
    let verdicts = harm_all(places, |disk, path, _| disk.remove(path).unwrap());
    println!("files removed: {verdicts:?}");
}

#[test]
fn only_the_last_group_of_the_journal_may_pass_for_torn() {
    let mut runner = Runner::new(ForgetfulDisk::new(), small());
    let groups = 20;
    let batches = format!("put a 1{}", "\nschedule a 100 101".repeat(groups - 1));
    runner.run(&script(&batches));
    let mut verdicts = Vec::new();
    for path in runner.disk.files().iter().filter(|path| path.ends_with(".journal")) {
        let length = runner.disk.read_file(Path::new(path)).unwrap().len();
        for start in (0..length).step_by(4096) {
            let disk = runner.disk.reopen();
            disk.flip_bit(Path::new(path), start as u64 + 80, 2).unwrap();
            let verdict = judge(&runner, &disk, true).unwrap_or_else(|what| {
                panic!("{path} at {start}: {what}");
            });
            verdicts.push(verdict);
        }
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    assert_eq!(count(Verdict::Refused), groups - 1, "{verdicts:?}");
    assert_eq!(count(Verdict::TailCut), 1, "{verdicts:?}");
}

#[test]
fn one_bad_checkpoint_is_made_up_for_by_the_other_and_two_are_refused() {
    let runner = furnished();
    let checkpoints: Vec<String> =
        runner.disk.files().into_iter().filter(|path| path.starts_with("checkpoint")).collect();
    let both = runner.disk.reopen();
    for path in &checkpoints {
        let one = runner.disk.reopen();
        one.flip_bit(Path::new(path), 70, 3).unwrap();
        assert_eq!(judge(&runner, &one, false), Ok(Verdict::Unharmed), "{path}");
        both.flip_bit(Path::new(path), 70, 3).unwrap();
    }
    assert!(checkpoints.len() >= 2, "two checkpoints take turns: {checkpoints:?}");
    assert_eq!(judge(&runner, &both, false), Ok(Verdict::Refused));
}

#[test]
fn a_bad_block_keeps_back_its_own_messages_only() {
    let runner = furnished();
    let runs: Vec<String> =
        runner.disk.files().into_iter().filter(|path| path.ends_with(".run")).collect();
    for path in &runs {
        let disk = runner.disk.reopen();
        disk.flip_bit(Path::new(path), 60, 1).unwrap();
        let store = open(&disk, &small()).unwrap();
        drain(&store).unwrap();
        let mut found = Found::default();
        found.read_logs(&runner, &store).unwrap();
        let sent = runner.ledger.sent.iter().filter(|sent| sent.cancelled.is_none()).count();
        assert!(found.logged.len() + 4 >= sent, "only a block is kept back");
        let waiting: u64 = store.counts().iter().map(|(_, count)| count).sum();
        let delivered = found.logged.len() as u64;
        assert_eq!(delivered + waiting, sent as u64, "what is kept back is counted as pending");
    }
    assert!(!runs.is_empty(), "there are runs");
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let runner = furnished();
    let disk = runner.disk.reopen();
    let file = disk.open(Path::new("FORMAT"), Open::Existing).unwrap();
    file.set_len(0).unwrap();
    file.write_at(b"punctual=5\nsalt=1\nnews=yes\n", 0).unwrap();
    let contents = |disk: &ForgetfulDisk| {
        let files = disk.files().into_iter();
        files.map(|path| disk.read_file(Path::new(&path)).unwrap()).collect::<Vec<_>>()
    };
    let before = contents(&disk);
    assert!(matches!(open(&disk, &small()), Err(OpenError::NewerFormat(5))));
    assert_eq!(contents(&disk), before, "not a byte was changed");
}

#[test]
fn a_store_is_opened_once() {
    let disk = ForgetfulDisk::new();
    let first = open(&disk, &small()).unwrap();
    assert!(matches!(open(&disk, &small()), Err(OpenError::InUse)));
    drop(first);
    assert!(open(&disk, &small()).is_ok());
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let disk = ForgetfulDisk::new();
    let file = disk.open(Path::new("holiday.jpg"), Open::CreateNew).unwrap();
    file.write_at(b"sun", 0).unwrap();
    match open(&disk, &small()) {
        Err(OpenError::NotAStore(what)) => assert!(what.contains("holiday.jpg"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(disk.read_file(Path::new("holiday.jpg")).unwrap(), b"sun");
    assert!(!disk.files().iter().any(|path| path == "FORMAT"), "no store was made");
}
