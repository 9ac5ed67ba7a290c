//! A life of batches, entries and checkpoints, and what must be left of it after a crash.
//!
//! The ledger knows only what a client knows: what it asked for, what it was told, and when.

use std::collections::{BTreeMap, BTreeSet};

use punctual_engine::Options;
use punctual_engine::store::Store;
use punctual_kafka_wire::records::Compression;
use punctual_model::ports::{Append, Appended, Armed};
use punctual_model::{MessageId, Timestamp, TopicId};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::*;

const PRODUCER: i64 = 7;
/// Keeps the count of earlier operations above zero, whatever a disk begins with.
const OFFSET: u64 = 1 << 40;

/// What happens in a life.
#[derive(Clone, Debug)]
pub enum Step {
    /// Batches, each with so many records, of which the ones at these places are delayed; in one
    /// commit.
    Send(Vec<(usize, Vec<u32>)>),
    /// An entry that is due after so many milliseconds.
    Schedule(u64),
    /// What is due is delivered.
    Fire(u64),
    /// What is due is delivered, and not settled before the next [`Step::Settle`].
    Deliver(u64),
    /// What was delivered is settled.
    Settle,
    /// Tables are written out.
    Flush,
    /// A checkpoint.
    Checkpoint,
    /// Housekeeping.
    Maintain,
    /// So many offsets less at the front, counted from the end.
    Trim(u64),
}

/// A batch that was sent.
#[derive(Clone, Debug)]
struct Sent {
    /// Operations of the disk before and after.
    ops: (u64, u64),
    append: Append,
    answer: Appended,
    /// What is in the log, and what was taken out.
    kept: Vec<(u32, String)>,
    taken: Vec<(u32, String)>,
}

/// A life, as those outside know it.
#[derive(Debug)]
pub struct Life {
    pub disk: ForgetfulDisk,
    pub options: Options,
    store: Option<Store>,
    topic: TopicId,
    sent: Vec<Sent>,
    scheduled: Vec<((u64, u64), String)>,
    trims: Vec<(u64, u64)>,
    on_the_way: Vec<Armed>,
    next: i32,
    number: usize,
    /// Operations of earlier disks, less those that the present one had when it came.
    earlier: u64,
}

impl Life {
    pub fn new(options: Options) -> Self {
        let disk = ForgetfulDisk::new();
        let store = open(&disk, &options);
        let topic = put_topic(&store, "a", 1).id;
        Self {
            disk,
            options,
            store: Some(store),
            topic,
            sent: Vec::new(),
            scheduled: Vec::new(),
            trims: Vec::new(),
            on_the_way: Vec::new(),
            next: 0,
            number: 0,
            earlier: OFFSET,
        }
    }

    /// Operations of the disk in all, when the present disk has had so many.
    pub fn count(&self, ops: u64) -> u64 {
        (self.earlier + ops).checked_sub(OFFSET).unwrap()
    }

    fn ops(&self) -> u64 {
        self.count(self.disk.ops())
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn body(&mut self, kind: char) -> String {
        self.number += 1;
        let padding = "x".repeat([0, 40, 150, 600][self.number % 4]);
        format!("{kind}{}:{padding}", self.number)
    }

    /// Lives on.
    pub fn run(&mut self, steps: &[Step]) {
        for step in steps {
            let before = self.ops();
            match step {
                Step::Send(batches) => self.send(batches),
                Step::Schedule(due) => {
                    let body = self.body('s');
                    schedule(self.store(), entry(self.topic, at(*due), &body));
                    self.scheduled.push(((before, self.ops()), body));
                }
                Step::Fire(now) => {
                    self.settle();
                    fire(self.store(), at(*now + 1)).unwrap();
                }
                Step::Deliver(now) => {
                    self.settle();
                    let batch = arm(self.store(), at(*now + 1));
                    self.store().deliver(&batch, at(*now + 1)).unwrap();
                    self.on_the_way = batch;
                }
                Step::Settle => self.settle(),
                Step::Flush => {
                    self.store().freeze();
                    self.store().upkeep(at(0), false).unwrap();
                }
                Step::Checkpoint => self.store().checkpoint(at(0)).unwrap(),
                Step::Maintain => self.store().maintain(at(0)).unwrap(),
                Step::Trim(less) => {
                    let end = self.store().logs().bounds(self.topic, partition(0)).unwrap().end;
                    let before = place(self.topic, end.saturating_sub(*less));
                    let outcome = self.store().commit(vec![Request::Trim(before)]).remove(0);
                    let Ok(Outcome::Trimmed(start)) = outcome else { panic!("{outcome:?}") };
                    self.trims.push((self.ops(), start));
                }
            }
        }
    }

    fn settle(&mut self) {
        let batch = std::mem::take(&mut self.on_the_way);
        self.store().settle(&batch).unwrap();
    }

    fn send(&mut self, batches: &[(usize, Vec<u32>)]) {
        let mut asked = Vec::new();
        for (count, taken) in batches {
            asked.push(self.next_batch(*count, taken));
        }
        let before = self.ops();
        let requests = asked.iter().map(|(append, ..)| request(append.clone(), at(0))).collect();
        let outcomes = self.store().commit(requests);
        let ops = (before, self.ops());
        for ((append, kept, taken), outcome) in asked.into_iter().zip(outcomes) {
            let answer = sent(outcome).unwrap();
            assert!(!answer.duplicate);
            self.sent.push(Sent { ops, append, answer, kept, taken });
        }
    }

    fn next_batch(&mut self, count: usize, taken: &[u32]) -> Asked {
        let bodies: Vec<String> = (0..count).map(|_| self.body('r')).collect();
        let values: Vec<&str> = bodies.iter().map(String::as_str).collect();
        let from = From { producer: PRODUCER, epoch: 0, sequence: self.next };
        self.next += i32::try_from(count).unwrap();
        let how = Compression::ALL[self.number % 5];
        let whole = batch(&values, self.number as u64, from, how);
        let mut append = append(self.topic, whole.clone());
        let (mut kept, mut out) = (Vec::new(), Vec::new());
        for (delta, body) in (0..).zip(bodies) {
            if taken.contains(&delta) {
                let due = at(50 + u64::from(delta) * 10 + self.number as u64);
                append.entries.push((delta, entry(self.topic, due, &body)));
                out.push((delta, body));
            } else {
                kept.push((delta, body));
            }
        }
        if !taken.is_empty() {
            append.batch = thinned(&whole, taken);
        }
        (append, kept, out)
    }

    /// Ends the process.
    pub fn end(&mut self) {
        self.store = None;
    }

    /// Goes on with what `disk` holds.
    pub fn restart(&mut self, disk: ForgetfulDisk) {
        self.end();
        self.on_the_way.clear();
        self.earlier = self.earlier + self.disk.ops() - disk.ops();
        self.store = Some(open(&disk, &self.options));
        self.disk = disk;
    }

    /// Starts on what a crash after so many operations has left, and compares.
    pub fn examine(&self, image: &ForgetfulDisk, ops: u64) -> Result<(), String> {
        let shown = self.look(image, ops)?;
        let again = image.reopen();
        let store = start(&again, &self.options)?;
        let found = logged(&store, self.topic)?;
        if found != shown {
            return Err(format!("another start shows {found:?} instead of {shown:?}"));
        }
        Ok(())
    }

    /// Starts, compares, has everything sent again that is in doubt, delivers everything, compares.
    /// Answers what is in the log then.
    fn look(&self, image: &ForgetfulDisk, ops: u64) -> Result<BTreeMap<u64, String>, String> {
        let store = start(image, &self.options)?;
        let found = logged(&store, self.topic)?;
        let trimmed = store.logs().bounds(self.topic, partition(0)).map_err(told)?.start;
        let promised = self.trims.iter().filter(|(done, _)| *done <= ops).map(|(_, start)| *start);
        if promised.max().is_some_and(|promised| trimmed < promised) {
            return Err(format!("it starts at {trimmed} again"));
        }
        let mut expected: BTreeSet<&str> = BTreeSet::new();
        let mut in_doubt = Vec::new();
        for sent in self.sent.iter().filter(|sent| sent.ops.0 < ops) {
            if sent.ops.1 > ops {
                in_doubt.push(sent);
                continue;
            }
            self.compare(&store, &found, trimmed, sent)?;
            expected.extend(sent.bodies(trimmed));
        }
        if let Some(last) = self.sent.iter().rev().find(|sent| sent.ops.1 <= ops) {
            let again = send(&store, last.append.clone()).map_err(told)?;
            if !again.duplicate || again.base_offset != last.answer.base_offset {
                return Err(format!("sent again it is not known: {again:?}"));
            }
        }
        for sent in in_doubt {
            let there = found.values().any(|body| sent.kept.iter().any(|(_, kept)| kept == body));
            let again = send(&store, sent.append.clone()).map_err(told)?;
            if there && !again.duplicate {
                return Err(format!("it was shown and is not known: {again:?}"));
            }
            expected.extend(sent.bodies(0));
        }
        let scheduled = self.scheduled.iter().filter(|((_, done), _)| *done <= ops);
        expected.extend(scheduled.map(|(_, body)| body.as_str()));
        let maybe = self.scheduled.iter().filter(|((begun, done), _)| *begun < ops && *done > ops);
        let maybe: BTreeSet<&str> = maybe.map(|(_, body)| body.as_str()).collect();
        while fire(&store, Timestamp::MAX).map_err(told)? > 0 {}
        let all = logged(&store, self.topic)?;
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for body in all.values() {
            if !seen.insert(body) {
                return Err(format!("{body} is there twice"));
            }
        }
        if let Some(lost) = expected.iter().find(|body| !seen.contains(*body)) {
            // What was delivered may have been trimmed as well.
            if trimmed == 0 || lost.starts_with('r') && !self.was_taken(lost) {
                return Err(format!("{lost} is lost"));
            }
        }
        let strange = seen.iter().find(|body| !expected.contains(*body) && !maybe.contains(*body));
        let strange = strange.filter(|_| trimmed == 0);
        match strange {
            Some(body) => Err(format!("{body} is there, and nobody was told")),
            None => Ok(all),
        }
    }

    fn was_taken(&self, body: &str) -> bool {
        self.sent.iter().any(|sent| sent.taken.iter().any(|(_, taken)| taken == body))
    }

    /// Holds a batch that was answered against the log.
    fn compare(
        &self,
        store: &Store,
        found: &BTreeMap<u64, String>,
        trimmed: u64,
        sent: &Sent,
    ) -> Result<(), String> {
        let base = sent.answer.base_offset;
        for (delta, body) in &sent.kept {
            let offset = base + u64::from(*delta);
            if offset >= trimmed && found.get(&offset) != Some(body) {
                return Err(format!("{body} is not at {offset}, but {:?}", found.get(&offset)));
            }
        }
        for ((delta, body), id) in sent.taken.iter().zip(&sent.answer.ids) {
            let offset = base + u64::from(*delta);
            if found.contains_key(&offset) && offset >= trimmed {
                return Err(format!("{offset} is reserved, and there is {:?}", found[&offset]));
            }
            let named: Option<MessageId> =
                store.reserved(place(self.topic, offset)).map_err(told)?;
            if named != Some(*id) {
                return Err(format!("{offset} names {named:?} instead of {id}, {body}"));
            }
        }
        Ok(())
    }
}

type Asked = (Append, Vec<(u32, String)>, Vec<(u32, String)>);

impl Sent {
    /// What has to be in the log in the end, from an offset on.
    fn bodies(&self, from: u64) -> impl Iterator<Item = &str> {
        let base = self.answer.base_offset;
        let kept = self.kept.iter().filter(move |(delta, _)| base + u64::from(*delta) >= from);
        kept.chain(&self.taken).map(|(_, body)| body.as_str())
    }
}

fn start(disk: &ForgetfulDisk, options: &Options) -> Result<Store, String> {
    let store = Store::open(Arc::new(disk.clone()), options.clone());
    store.map_err(|error| format!("does not start: {error}"))
}

fn logged(store: &Store, topic: TopicId) -> Result<BTreeMap<u64, String>, String> {
    let mut all = BTreeMap::new();
    let mut offset = 0;
    loop {
        let (page, next) = store.logs().read_on(place(topic, offset), 7).map_err(told)?;
        for one in page {
            let body = String::from_utf8(one.message.body.to_vec()).map_err(told)?;
            if all.insert(one.offset, body).is_some() {
                return Err(format!("offset {} is there twice", one.offset));
            }
        }
        if next == offset {
            return Ok(all);
        }
        offset = next;
    }
}

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}
