//! A forecast is what counting would come to: over whatever lives, restarts and merges, and from
//! runs that can be counted only by reading them (G28).

#![expect(clippy::panic, clippy::unwrap_used, reason = "helpers of tests may panic")]

mod store_support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use punctual_engine::Options;
use punctual_engine::disk::{Disk as _, Open, RealDisk};
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{InLogs, Outcome, Request, Revision, Store};
use punctual_model::ports::{ArmLimit, CancelOutcome, Forecast, Order, PendingQuery, Revised};
use punctual_model::{
    Basis, Entry, Key, Lane, MessageId, Partition, Sequence, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use store_support::runner::Runner;
use store_support::steps::{Taste, random};
use store_support::{Dice, at, message, open, scaled, small};

/// A whole second, not before `bound`.
fn whole(bound: Timestamp) -> Timestamp {
    Timestamp::from_millis_saturating(bound.as_millis().div_ceil(1000) * 1000)
}

/// What a forecast of these due times has to say.
fn counted(dues: &[Timestamp], bounds: &[Timestamp]) -> Forecast {
    let count =
        |wanted: &dyn Fn(Timestamp) -> bool| dues.iter().filter(|due| wanted(**due)).count() as u64;
    let before = |bound: &Timestamp| count(&|due| !due.is_parked() && due < whole(*bound));
    Forecast {
        scheduled: count(&|due| !due.is_parked()),
        paused: count(&|due| due == Timestamp::PAUSED),
        prepared: count(&|due| due == Timestamp::PREPARED),
        before: bounds.iter().map(before).collect(),
    }
}

/// Bounds from `now` on, in no order, with the ends of the scale among them.
fn bounds(dice: &mut Dice, now: Timestamp) -> Vec<Timestamp> {
    let later = |millis: u64| Timestamp::from_millis_saturating(now.as_millis() + millis);
    let mut bounds = vec![now, later(dice.below(3000)), Timestamp::PREPARED, Timestamp::MAX];
    for spread in [100, 5000, 120_000, 200_000_000] {
        bounds.push(later(dice.below(spread)));
    }
    let place = dice.place(bounds.len());
    bounds.swap(0, place);
    bounds
}

/// Compares the forecast of every topic with what the ledger counts.
fn compare(runner: &Runner, dice: &mut Dice) -> Result<(), String> {
    let bounds = bounds(dice, at(runner.now()));
    for topic in runner.store.topics() {
        let pending = |number: &usize| runner.expected(*number) == [CancelOutcome::Cancelled];
        let sent = (0..runner.ledger.sent.len()).filter(pending);
        let dues: Vec<Timestamp> = sent
            .map(|number| runner.ledger.sent[number].id)
            .filter(|id| id.topic == topic.id && id.key.sequence.lane() == Lane::Message)
            .map(|id| id.key.due)
            .collect();
        let told = runner.store.forecast(topic.id, &bounds).map_err(|e| e.to_string())?;
        let expected = counted(&dues, &bounds);
        if told != expected {
            return Err(format!("{told:?}, not {expected:?}, for {bounds:?} of {dues:?}"));
        }
    }
    Ok(())
}

fn live(seed: u64) {
    let mut dice = Dice(seed ^ 0xf0ca);
    let mut options = small();
    options.near_bytes = [300, 1500, 6000][dice.place(3)];
    options.table_bytes = [600, 1500, 4000][dice.place(3)];
    options.runs_max = 1 + dice.place(3);
    let mut runner = Runner::new(ForgetfulDisk::new(), options);
    let steps = random(seed, Taste { steps: 70, days: dice.percent(30), batch: 10 });
    for (number, step) in steps.iter().enumerate() {
        let told = runner.step(step);
        assert!(told.is_ok(), "seed {seed}, step {number} {step:?}: {told:?}");
        if dice.percent(6) {
            let disk = runner.disk.reopen();
            runner.restart(disk);
        }
        // Sometimes many things happen between two forecasts.
        if dice.percent(60)
            && let Err(what) = compare(&runner, &mut dice)
        {
            panic!("seed {seed}, after step {number} {step:?}: {what}");
        }
    }
}

#[test]
fn a_forecast_is_what_the_ledger_counts_whatever_happens() {
    for seed in 0..scaled("PUNCTUAL_FORECAST_SEEDS", 1000) {
        let one = std::panic::catch_unwind(|| live(seed));
        assert!(one.is_ok(), "seed {seed} failed");
    }
}

const PARTITIONS: u16 = 3;

/// A store with many topics, some of whose entries wait without a due time.
struct Crowd {
    disk: ForgetfulDisk,
    options: Options,
    store: Store,
    topics: Vec<TopicId>,
    pending: BTreeMap<MessageId, Timestamp>,
    dice: Dice,
    next: u64,
}

impl Crowd {
    fn new(seed: u64, topics: usize) -> Self {
        let options = Options { table_bytes: 1 << 20, runs_max: 4, ..small() };
        let disk = ForgetfulDisk::new();
        let store = open(&disk, &options).unwrap();
        let (topics, dice) = ((0..topics).map(|n| put(&store, n)).collect(), Dice(seed));
        let pending = BTreeMap::new();
        Self { disk, options, store, topics, pending, dice, next: 0 }
    }

    fn schedule(&mut self, count: u64) {
        for start in (0..count).step_by(50) {
            self.schedule_batch(50.min(count - start));
        }
    }

    fn schedule_batch(&mut self, count: u64) {
        let entries: Vec<Entry> = (0..count).map(|_| self.entry()).collect();
        let request = Request::Schedule(Draft::new(&entries, Lane::Message));
        let Ok(Outcome::Scheduled(first)) = self.store.commit(vec![request]).remove(0) else {
            panic!("a batch is accepted");
        };
        for (number, Entry { topic, partition, due, .. }) in (first.get()..).zip(entries) {
            let key = Key { due, sequence: Sequence::new(number).unwrap() };
            self.pending.insert(MessageId { key, topic, partition }, due);
        }
    }

    fn entry(&mut self) -> Entry {
        let due = match self.dice.below(20) {
            0 => Timestamp::PAUSED,
            1 => Timestamp::PREPARED,
            // Past what 32 bits of seconds hold.
            2 => at(9_000_000_000_000 + self.dice.below(5_000)),
            _ => at(60_000 + self.dice.below(400_000)),
        };
        self.next += 1;
        Entry {
            topic: self.topics[self.dice.place(self.topics.len())],
            partition: Partition::new(
                u16::try_from(self.dice.below(u64::from(PARTITIONS))).unwrap(),
            )
            .unwrap(),
            due,
            basis: Basis::Delay,
            message: message(usize::try_from(self.next).unwrap()),
            extra: None,
        }
    }

    fn cancel(&mut self, count: usize) {
        let all: Vec<MessageId> = self.pending.keys().copied().collect();
        let ids: BTreeSet<MessageId> =
            (0..count).map(|_| all[self.dice.place(all.len())]).collect();
        // Half messages end by orders only.
        let order = |id: &MessageId| Order::Cancel { id: *id, expected: None };
        let orders: Vec<Order> = ids.iter().map(order).collect();
        let answer = self.store.commit(vec![Request::Revise(Revision::new(&orders, at(0)))]);
        assert!(matches!(answer[..], [Ok(Outcome::Revised(Revised::Done(_)))]), "{answer:?}");
        for id in ids {
            self.pending.remove(&id);
        }
    }

    fn delete_topic(&mut self) {
        let gone = self.topics.remove(0);
        let known = self.store.topic_by_id(gone).unwrap();
        let request = Request::DeleteTopic(known.name.clone());
        assert!(self.store.commit(vec![request]).remove(0).is_ok());
        assert_eq!(self.store.forecast(gone, &[at(0)]).unwrap(), counted(&[], &[at(0)]));
        self.pending.retain(|id, _| id.topic != gone);
    }

    fn write_out(&mut self) {
        self.store.freeze();
        self.store.upkeep(at(0), false).unwrap();
    }

    fn restart(&mut self) {
        self.disk = self.disk.reopen();
        self.store = open(&self.disk, &self.options).unwrap();
    }

    fn check(&mut self) {
        let bounds = bounds(&mut self.dice, at(0));
        for &topic in &self.topics {
            let own = self.pending.iter().filter(|(id, _)| id.topic == topic);
            let dues: Vec<Timestamp> = own.map(|(_, due)| *due).collect();
            let told = self.store.forecast(topic, &bounds).unwrap();
            assert_eq!(told, counted(&dues, &bounds), "topic {topic:?}, {bounds:?}");
        }
        let told = self.store.forecast_together(&self.topics, &bounds).unwrap();
        let dues: Vec<Timestamp> = self.pending.values().copied().collect();
        assert_eq!(told, counted(&dues, &bounds), "together, {bounds:?}");
    }

    /// Everything of a topic that is listed, in pages of a few.
    fn listed(&self, topic: TopicId, from: Timestamp, to: Timestamp) -> Vec<MessageId> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let (lane, limit) = (Lane::Message, 7);
            let query =
                PendingQuery { from, to, after, ..PendingQuery::all_of(topic, lane, limit) };
            let page = self.store.pending(query).unwrap();
            assert!(page.entries.len() <= limit, "a page has at most what was asked for");
            all.extend(page.entries.iter().map(|entry| entry.id));
            let Some(next) = page.next else { return all };
            after = Some(next);
        }
    }

    fn check_lists(&self) {
        let windows = [
            (Timestamp::MIN, Timestamp::MAX),
            (Timestamp::MIN, Timestamp::PREPARED),
            (at(100_000), at(110_000)),
            (Timestamp::PREPARED, Timestamp::PAUSED),
            (Timestamp::PAUSED, Timestamp::MAX),
        ];
        for &topic in &self.topics {
            for (from, to) in windows {
                let inside = |(id, due): &(&MessageId, &Timestamp)| {
                    id.topic == topic && **due >= from && (**due < to || to == Timestamp::MAX)
                };
                let own = self.pending.iter().filter(inside);
                let expected: Vec<MessageId> = own.map(|(id, _)| *id).collect();
                assert_eq!(self.listed(topic, from, to), expected, "{from:?} to {to:?}");
            }
        }
    }
}

fn name(number: usize) -> TopicName {
    TopicName::new(&format!("t{number}")).unwrap()
}

fn put(store: &Store, number: usize) -> TopicId {
    let name = name(number);
    let settings = TopicSettings { partitions: PARTITIONS, ..TopicSettings::default() };
    let Ok(Outcome::Topic(topic)) = store.commit(vec![Request::PutTopic(name, settings)]).remove(0)
    else {
        panic!("a topic can be made");
    };
    topic.id
}

#[test]
fn a_forecast_tells_topics_apart_and_leaves_out_what_waits_without_a_due_time() {
    for seed in 0..12 {
        let topics = [1, 4, 40][seed % 3];
        let mut crowd = Crowd::new(seed as u64, topics);
        for round in 0..9 {
            if round == 5 {
                // Of these nobody knows any more how many partitions they had, so that their stamps
                // may be those of any other topic.
                (0..topics / 2).for_each(|_| crowd.delete_topic());
            }
            crowd.schedule(60);
            crowd.cancel(15);
            crowd.check();
            crowd.write_out();
            crowd.cancel(10);
            if round % 2 == 1 {
                crowd.store.checkpoint(at(0)).unwrap();
                crowd.cancel(5);
                crowd.restart();
            }
            crowd.check();
        }
        crowd.check_lists();
        crowd.delete_topic();
        crowd.restart();
        crowd.check();
        crowd.check_lists();
    }
}

#[test]
fn notes_made_after_a_restart_hold_for_more_than_fit_one_page_of_ids() {
    let mut crowd = Crowd::new(5, 2);
    crowd.schedule(2000);
    crowd.write_out();
    crowd.cancel(700);
    crowd.store.checkpoint(at(0)).unwrap();
    crowd.restart();
    crowd.check();
    crowd.cancel(600);
    crowd.check();
    // Merged with others, most sequences of the run are missing.
    for _ in 0..5 {
        crowd.schedule(3);
        crowd.write_out();
    }
    crowd.cancel(200);
    crowd.store.checkpoint(at(0)).unwrap();
    crowd.restart();
    crowd.check();
    crowd.check_lists();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_run_without_cells_is_counted_by_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    copy(&fixture, dir.path());
    let options = Options { reserve_bytes: 4096, ..Options::default() };
    let store = Store::open(Arc::new(RealDisk::new(dir.path()).unwrap()), options).unwrap();
    let topic = store.topic_by_name(&TopicName::new("orders").unwrap()).unwrap().id;
    let query = PendingQuery::all_of(topic, Lane::Message, 100);
    let dues = |store: &Store| -> Vec<Timestamp> {
        let page = store.pending(query.clone()).unwrap();
        page.entries.iter().map(|entry| entry.key.due).collect()
    };
    let bounds: Vec<Timestamp> =
        (0..200).map(|n| Timestamp::from_millis(3_000 + n * 487).unwrap()).collect();
    let before = dues(&store);
    assert_eq!(before.len(), 18);
    assert_eq!(store.forecast(topic, &bounds).unwrap(), counted(&before, &bounds));
    let page = store.pending(query.clone()).unwrap();
    let ids = page.entries.iter().step_by(3).map(|entry| entry.id).collect();
    assert!(store.commit(vec![Request::Cancel(ids, InLogs::Unknown)]).remove(0).is_ok());
    let left = dues(&store);
    assert_eq!(left.len(), 12);
    assert_eq!(store.forecast(topic, &bounds).unwrap(), counted(&left, &bounds));
}

#[test]
fn damaged_cells_are_reported_and_never_counted() {
    let mut crowd = Crowd::new(3, 1);
    crowd.schedule(300);
    crowd.write_out();
    crowd.store.checkpoint(at(0)).unwrap();
    let (topic, bounds) = (crowd.topics[0], [at(100_000), at(250_000)]);
    let expected = crowd.store.forecast(topic, &bounds).unwrap();
    let path = crowd.disk.files().into_iter().find(|name| name.ends_with(".run")).unwrap();
    let path = Path::new(&path);
    let bytes = crowd.disk.read_file(path).unwrap();
    let footer = bytes.len() - 96;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (tail, cells) = (number(footer + 48), number(footer + 72));
    assert!(cells < tail, "there are cells");
    let mut reported = 0;
    for place in cells..tail {
        let disk = crowd.disk.reopen();
        disk.flip_bit(path, place, 4).unwrap();
        let store = open(&disk, &crowd.options).unwrap();
        match store.forecast(topic, &bounds) {
            // Another page was damaged than was needed.
            Ok(told) => assert_eq!(told, expected, "byte {place}"),
            Err(_) => reported += 1,
        }
    }
    assert!(reported > (tail - cells) / 2, "most of the cells are needed: {reported}");
    for place in tail..bytes.len() as u64 - 4 {
        let disk = crowd.disk.reopen();
        disk.flip_bit(path, place, 1).unwrap();
        assert!(open(&disk, &crowd.options).is_err(), "byte {place} of the index is checked");
    }
    let file = crowd.disk.open(path, Open::Existing).unwrap();
    assert_eq!(file.len().unwrap(), bytes.len() as u64);
}

#[test]
fn a_forecast_follows_deliveries_and_late_arrivals() {
    let mut crowd = Crowd::new(9, 2);
    crowd.schedule(200);
    crowd.write_out();
    crowd.schedule(50);
    for step in 1..10u64 {
        let now = at(step * 50_000);
        let limit = ArmLimit { entries: 1000, bytes: 1 << 20 };
        let mut batch = crowd.store.arm(Lane::Message, now, limit).unwrap();
        crowd.store.claim(&mut batch).unwrap();
        crowd.store.deliver(&batch, now).unwrap();
        crowd.store.settle(&batch).unwrap();
        crowd.pending.retain(|_, due| *due >= now);
        crowd.schedule(20);
        let bounds = bounds(&mut crowd.dice, now);
        for &topic in &crowd.topics {
            let own = crowd.pending.iter().filter(|(id, _)| id.topic == topic);
            let dues: Vec<Timestamp> = own.map(|(_, due)| *due).collect();
            let told = crowd.store.forecast(topic, &bounds).unwrap();
            assert_eq!(told, counted(&dues, &bounds), "step {step}");
        }
    }
}
