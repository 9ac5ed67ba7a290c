//! Takes steps on a store, writes them into the ledger, and holds every answer against it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_engine::Options;
use punctual_engine::journal::change::Draft;
use punctual_engine::store::{CommitError, InLogs, Outcome, Request, Store};
use punctual_model::ports::{Armed, CancelOutcome, StoreError};
use punctual_model::{
    Basis, Entry, Key, Lane, MessageId, Partition, Sequence, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::forgetful::ForgetfulDisk;

use super::ledger::{During, Known, Ledger, Moment, Seen, Sent};
use super::look::arm_all;
use super::steps::{Part, Step};
use super::{START_MS, at, message, open};

/// No answer came.
const NEVER: u64 = u64::MAX;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// How often something worth reaching was reached.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reached {
    pub flushed: u64,
    pub merged: u64,
    pub shrunk: u64,
    pub advanced: u64,
    pub late: u64,
    pub cancelled_in_run: u64,
    pub cancelled_near: u64,
    pub cancelled_in_hand: u64,
    pub cancelled_ended: u64,
    pub restarts: u64,
    pub fired: u64,
}

/// A store, its disk, and what is known of them.
#[derive(Debug)]
pub struct Runner {
    pub disk: ForgetfulDisk,
    pub store: Store,
    pub ledger: Ledger,
    pub options: Options,
    pub reached: Reached,
    /// Operations of the disks before this one.
    before: u64,
    now: u64,
    armed_until: Timestamp,
    /// Handed out, and waiting for its time.
    held: Vec<Armed>,
    /// Claimed, a batch of each lane; a full disk may keep them waiting.
    claimed: VecDeque<Vec<Armed>>,
    /// Handed out by this process.
    handed: BTreeSet<MessageId>,
    /// How many messages are in a run, and how many are in a run or in a frozen table.
    in_runs: usize,
    frozen: usize,
    /// The next sequence of each lane.
    next: [u64; 2],
    hurries: Arc<AtomicU64>,
}

impl Runner {
    /// A new store on `disk`.
    pub fn new(disk: ForgetfulDisk, options: Options) -> Self {
        let store = open(&disk, &options).unwrap();
        let mut runner = Self {
            disk,
            store,
            ledger: Ledger::default(),
            options,
            reached: Reached::default(),
            before: 0,
            now: 0,
            armed_until: Timestamp::MIN,
            held: Vec::new(),
            claimed: VecDeque::new(),
            handed: BTreeSet::new(),
            in_runs: 0,
            frozen: 0,
            next: Lane::ALL.map(|lane| lane.first().get()),
            hurries: Arc::new(AtomicU64::new(0)),
        };
        runner.listen();
        runner
    }

    /// Goes on with what is found on `disk`; operations are counted on.
    pub fn restart(&mut self, disk: ForgetfulDisk) {
        self.before = self.ops();
        self.store = open(&disk, &self.options).unwrap();
        self.disk = disk;
        self.armed_until = Timestamp::MIN;
        self.held.clear();
        self.claimed.clear();
        self.handed.clear();
        self.reached.restarts += 1;
        (self.in_runs, self.frozen) = (0, 0);
        self.listen();
    }

    fn listen(&mut self) {
        let hurries = Arc::clone(&self.hurries);
        self.store.listen(Arc::new(move |_lane| {
            hurries.fetch_add(1, Ordering::Relaxed);
        }));
    }

    /// Operations of the disk so far.
    pub fn ops(&self) -> u64 {
        self.before + self.disk.ops()
    }

    /// What the ledger says of the store as it is.
    pub fn check(&self) -> Result<Seen, String> {
        let moment = Moment { killed: true, ..Moment::after(self.ops() + 1) };
        self.ledger.check(&self.store, moment)
    }

    /// Takes a step. An error is a refusal that the ledger knows about.
    pub fn step(&mut self, step: &Step) -> Result<(), StoreError> {
        match step {
            Step::Put(name, partitions, keep) => self.put(name, *partitions, *keep),
            Step::Delete(name) => self.delete(name),
            Step::Commit(parts) => self.commit(parts),
            Step::Arm(until) => self.arm(at(*until)),
            Step::Fire(until) => self.fire(*until),
            Step::Freeze => {
                self.store.freeze();
                self.note_frozen();
                Ok(())
            }
            Step::Upkeep => self.upkeep(),
            Step::Checkpoint => {
                let start = self.ops();
                self.store.checkpoint(at(self.now))?;
                self.ledger.checkpoints.push(During { start, end: self.ops() });
                Ok(())
            }
            Step::Maintain => {
                let start = self.ops();
                self.ledger.maintained.push(During { start, end: NEVER });
                self.store.maintain(at(self.now))
            }
        }
    }

    /// Takes all steps, none of which may be refused.
    pub fn run(&mut self, steps: &[Step]) {
        for (number, step) in steps.iter().enumerate() {
            if let Err(error) = self.step(step) {
                panic!("step {number} {step:?}: {error}");
            }
        }
    }

    fn upkeep(&mut self) -> Result<(), StoreError> {
        let start = self.ops();
        let done = self.store.upkeep(at(self.now), false)?;
        if done.flushed || done.merged {
            self.ledger.checkpoints.push(During { start, end: self.ops() });
        }
        if done.flushed {
            self.reached.flushed += 1;
            self.in_runs = self.frozen;
        }
        self.reached.merged += u64::from(done.merged);
        Ok(())
    }

    fn note_frozen(&mut self) {
        if self.store.needs_flush() && self.frozen == self.in_runs {
            self.frozen = self.ledger.sent.len();
        }
    }

    fn put(&mut self, name: &str, partitions: u16, keep: Option<u64>) -> Result<(), StoreError> {
        let place = self.ledger.live(name);
        let least = place.map_or(1, |place| {
            self.ledger.topics[place].puts.last().map_or(1, |(_, last)| last.partitions)
        });
        let partitions = partitions.max(least);
        let settings = TopicSettings {
            partitions,
            retention: None,
            retention_bytes: keep,
            ..TopicSettings::default()
        };
        let request = Request::PutTopic(TopicName::new(name).unwrap(), settings.clone());
        let start = self.ops();
        let answer = self.store.commit(vec![request]).remove(0);
        let end = if answer.is_ok() { self.ops() } else { NEVER };
        let answer = match answer {
            Err(CommitError::Store(StoreError::Full)) => return Err(StoreError::Full),
            answer => answer,
        };
        let place = place.unwrap_or_else(|| {
            let (name, puts) = (name.to_owned(), Vec::new());
            self.ledger.topics.push(Known { name, id: None, puts, deleted: None });
            self.ledger.topics.len() - 1
        });
        let known = &mut self.ledger.topics[place];
        known.puts.push((During { start, end }, settings));
        match answer {
            Ok(Outcome::Topic(topic)) => {
                assert!(known.id.is_none_or(|id| id == topic.id), "a topic keeps its number");
                known.id = Some(topic.id);
                Ok(())
            }
            other => Err(refusal(other)),
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), StoreError> {
        let start = self.ops();
        let request = Request::DeleteTopic(TopicName::new(name).unwrap());
        let answer = self.store.commit(vec![request]).remove(0);
        let end = if answer.is_ok() { self.ops() } else { NEVER };
        if matches!(answer, Err(CommitError::Store(StoreError::Full))) {
            return Err(StoreError::Full);
        }
        let place = self.ledger.live(name);
        if let Some(place) = place {
            self.ledger.topics[place].deleted = Some(During { start, end });
        }
        match answer {
            Ok(Outcome::Deleted(was_there)) => {
                assert_eq!(was_there, place.is_some(), "topic {name}");
                Ok(())
            }
            other => Err(refusal(other)),
        }
    }

    fn commit(&mut self, parts: &[Part]) -> Result<(), StoreError> {
        let start = self.ops();
        let hurries = self.hurries.load(Ordering::Relaxed);
        let mut requests = Vec::new();
        let mut asked = Vec::new();
        for part in parts {
            match part {
                Part::Schedule(name, dues) => {
                    let told = |&topic: &usize| self.ledger.topics[topic].id.is_some();
                    let Some(topic) = self.ledger.live(name).filter(told) else { continue };
                    let entries = self.entries(topic, dues, &asked);
                    let batches = asked.iter().filter(|asked| asked.entries() > 0).count();
                    let lane = lane_of(self.ledger.batches + batches);
                    requests.push(Request::Schedule(Draft::new(&entries, lane)));
                    asked.push(Asked::Batch(topic, entries));
                }
                Part::Cancel(numbers) => {
                    let ids: Vec<MessageId> = numbers.iter().map(|&n| self.id_of(n)).collect();
                    let in_logs =
                        self.store.past_in_logs(&ids).map_or(InLogs::Unknown, InLogs::Known);
                    requests.push(Request::Cancel(ids, in_logs));
                    let sent = self.ledger.sent.len();
                    let known = |&n: &usize| if n < sent { n } else { usize::MAX };
                    asked.push(Asked::Cancel(numbers.iter().map(known).collect()));
                }
            }
        }
        let answers = self.store.commit(requests);
        let mut late = false;
        let mut refused = None;
        for (asked, answer) in asked.into_iter().zip(answers) {
            let end = if answer.is_ok() { self.ops() } else { NEVER };
            let during = During { start, end };
            if let Err(error) = &answer {
                refused = Some(store_error(error));
            }
            match asked {
                Asked::Batch(topic, entries) => {
                    late |= self.note_batch(topic, &entries, during, answer);
                }
                Asked::Cancel(numbers) => self.note_cancel(&numbers, during, answer),
            }
        }
        self.note_shrink();
        self.note_frozen();
        if late {
            self.reached.late += 1;
        }
        let hurried = self.hurries.load(Ordering::Relaxed) > hurries;
        assert_eq!(late, hurried, "the listener is called for late arrivals and only for them");
        refused.map_or(Ok(()), Err)
    }

    fn entries(&self, topic: usize, dues: &[u64], before: &[Asked]) -> Vec<Entry> {
        let known = &self.ledger.topics[topic];
        let partitions = known.puts.last().map_or(1, |(_, settings)| settings.partitions);
        let drafted: usize = before.iter().map(Asked::entries).sum();
        let first = self.ledger.sent.len() + drafted;
        let entry = |(number, &due): (usize, &u64)| Entry {
            topic: known.id.unwrap(),
            partition: Partition::new(u16::try_from(number).unwrap() % partitions).unwrap(),
            due: at(due),
            basis: Basis::Delay,
            message: message(number),
            extra: None,
        };
        (first..).zip(dues).map(entry).collect()
    }

    fn id_of(&self, number: usize) -> MessageId {
        match self.ledger.sent.get(number) {
            Some(sent) => sent.id,
            None => MessageId {
                key: Key { due: at(7), sequence: Sequence::new(self.next[0] + 3).unwrap() },
                topic: TopicId::new(1).unwrap(),
                partition: Partition::new(0).unwrap(),
            },
        }
    }

    fn note_batch(
        &mut self,
        topic: usize,
        entries: &[Entry],
        during: During,
        answer: Result<Outcome, CommitError>,
    ) -> bool {
        let lane = lane_of(self.ledger.batches);
        let accepted = match answer {
            Ok(Outcome::Scheduled(first)) => {
                assert_eq!(first.get(), self.next[lane.index()], "sequences have no gaps");
                true
            }
            Ok(other) => panic!("a batch was answered with {other:?}"),
            Err(CommitError::Store(StoreError::Full | StoreError::Busy)) => return false,
            Err(_) => false,
        };
        let batch = self.ledger.batches;
        self.ledger.batches += 1;
        for entry in entries {
            let next = &mut self.next[lane.index()];
            let sequence = Sequence::new(*next).unwrap();
            *next += 1;
            self.ledger.send(Sent {
                id: MessageId {
                    key: Key { due: entry.due, sequence },
                    topic: entry.topic,
                    partition: entry.partition,
                },
                message: entry.message.clone(),
                topic,
                batch,
                scheduled: during,
                cancelled: None,
                fired: None,
            });
        }
        accepted && entries.iter().any(|entry| entry.due < self.armed_until)
    }

    fn note_cancel(
        &mut self,
        numbers: &[usize],
        during: During,
        answer: Result<Outcome, CommitError>,
    ) {
        let outcomes = match answer {
            Ok(Outcome::Cancelled(outcomes)) => outcomes,
            Ok(other) => panic!("a cancel was answered with {other:?}"),
            Err(CommitError::Store(StoreError::Full | StoreError::Busy)) => return,
            Err(_) => {
                for &number in numbers {
                    if self.is_pending(number) {
                        self.ledger.sent[number].cancelled = Some((during, self.now));
                    }
                }
                return;
            }
        };
        for (&number, outcome) in numbers.iter().zip(outcomes) {
            let expected = self.expected(number);
            assert!(
                expected.contains(&outcome),
                "cancel of message {number}: {outcome:?}, not {expected:?}; {:?}",
                self.ledger.sent.get(number)
            );
            if outcome == CancelOutcome::Cancelled {
                self.note_place(number);
                self.ledger.sent[number].cancelled = Some((during, self.now));
            } else {
                self.reached.cancelled_ended += 1;
            }
        }
    }

    fn note_place(&mut self, number: usize) {
        let id = self.ledger.sent[number].id;
        let horizon = self.armed_until.saturating_add(self.options.horizon);
        let reached = &mut self.reached;
        if self.handed.contains(&id) {
            reached.cancelled_in_hand += 1;
        } else if number < self.in_runs {
            reached.cancelled_in_run += 1;
        } else if self.armed_until > Timestamp::MIN && id.key.due < horizon {
            reached.cancelled_near += 1;
        }
    }

    /// More was held ready than may be, so that the horizon had to come nearer.
    fn note_shrink(&mut self) {
        let horizon = self.armed_until.saturating_add(self.options.horizon);
        let waits = |(number, sent): &(usize, &Sent)| {
            let due = sent.id.key.due;
            due >= self.armed_until && due < horizon && self.is_pending(*number)
        };
        let waiting = self.ledger.sent.iter().enumerate().skip(self.in_runs).filter(waits);
        let bytes: usize = waiting.map(|(_, sent)| sent.message.weight() + 64).sum();
        if self.armed_until > Timestamp::MIN && bytes > self.options.near_bytes {
            self.reached.shrunk += 1;
        }
    }

    fn is_pending(&self, number: usize) -> bool {
        self.ledger.sent.get(number).is_some_and(|sent| {
            let topic = &self.ledger.topics[sent.topic];
            sent.fired.is_none() && sent.cancelled.is_none() && topic.deleted.is_none()
        })
    }

    /// What a cancel of that message may answer.
    pub fn expected(&self, number: usize) -> &'static [CancelOutcome] {
        use CancelOutcome::{AlreadyCancelled, AlreadyDelivered, Cancelled, NotFound};
        let Some(sent) = self.ledger.sent.get(number) else { return &[NotFound] };
        if self.ledger.topics[sent.topic].deleted.is_some() {
            return &[NotFound];
        }
        match (sent.cancelled, sent.fired) {
            (None, None) => &[Cancelled],
            // A cancel is remembered for a day.
            (Some((_, then)), _) if self.now - then > DAY_MS => &[AlreadyCancelled, NotFound],
            (Some(_), _) => &[AlreadyCancelled],
            (None, Some(_)) if self.ledger.may_have_expired(sent, NEVER) => {
                &[AlreadyDelivered, NotFound]
            }
            (None, Some(_)) => &[AlreadyDelivered],
        }
    }

    fn number_of(&self, id: MessageId) -> usize {
        let found = self.ledger.place(id.key.sequence);
        let number = found.unwrap_or_else(|| panic!("{id} was never sent"));
        assert_eq!(self.ledger.sent[number].id, id, "ids are handed out as they were given");
        number
    }

    fn arm(&mut self, until: Timestamp) -> Result<(), StoreError> {
        if until > self.armed_until.saturating_add(self.options.horizon) {
            self.reached.advanced += 1;
        }
        self.armed_until = self.armed_until.max(until);
        for armed in arm_all(&self.store, until)? {
            let number = self.number_of(armed.id());
            assert!(self.is_pending(number), "message {number} was handed out and is not pending");
            assert!(armed.key.due < until, "message {number} was handed out too early");
            assert_eq!(armed.message, self.ledger.sent[number].message, "message {number}");
            assert!(self.handed.insert(armed.id()), "message {number} was handed out twice");
            self.held.push(armed);
        }
        for (number, sent) in self.ledger.sent.iter().enumerate() {
            let forgotten = sent.id.key.due < until
                && self.is_pending(number)
                && !self.handed.contains(&sent.id);
            assert!(!forgotten, "message {number} was not handed out: {sent:?}");
        }
        self.note_shrink();
        Ok(())
    }

    fn fire(&mut self, until: u64) -> Result<(), StoreError> {
        self.now = self.now.max(until);
        let until = at(until);
        self.deliver_claimed()?;
        self.arm(until)?;
        let (due, waiting) = self.held.drain(..).partition(|armed| armed.key.due < until);
        self.held = waiting;
        let due: Vec<Armed> = due;
        let (retries, messages) =
            due.into_iter().partition(|armed| armed.key.sequence.lane() == Lane::Retry);
        for mut batch in [messages, retries] {
            self.store.claim(&mut batch)?;
            self.claimed.push_back(batch);
        }
        self.deliver_claimed()
    }

    fn deliver_claimed(&mut self) -> Result<(), StoreError> {
        while let Some(batch) = self.claimed.pop_front() {
            self.deliver_batch(batch)?;
        }
        Ok(())
    }

    fn deliver_batch(&mut self, batch: Vec<Armed>) -> Result<(), StoreError> {
        let start = self.ops();
        for armed in &batch {
            let number = self.number_of(armed.id());
            let sent = &mut self.ledger.sent[number];
            let gone = self.ledger.topics[sent.topic].deleted.is_some();
            assert!(sent.cancelled.is_none(), "cancelled message {number} was claimed");
            assert!(!gone || sent.fired.is_some(), "message {number} was claimed without topic");
            let start = sent.fired.map_or(start, |fired| fired.start);
            sent.fired = Some(During { start, end: NEVER });
        }
        let outcome = self.store.deliver(&batch, at(self.now));
        if outcome.is_err() {
            self.claimed.push_front(batch);
            return outcome;
        }
        let end = self.ops();
        for armed in &batch {
            let number = self.number_of(armed.id());
            if let Some(fired) = &mut self.ledger.sent[number].fired {
                fired.end = end;
            }
        }
        self.reached.fired += batch.len() as u64;
        self.store.settle(&batch).unwrap();
        Ok(())
    }

    /// The moment of the clock, in milliseconds after the start.
    pub fn now(&self) -> u64 {
        debug_assert!(at(self.now).as_millis() >= START_MS, "the clock starts there");
        self.now
    }
}

/// The lane of a batch: every third one is of the retries.
const fn lane_of(batch: usize) -> Lane {
    if batch % 3 == 2 { Lane::Retry } else { Lane::Message }
}

enum Asked {
    Batch(usize, Vec<Entry>),
    Cancel(Vec<usize>),
}

impl Asked {
    fn entries(&self) -> usize {
        match self {
            Self::Batch(_, entries) => entries.len(),
            Self::Cancel(_) => 0,
        }
    }
}

fn store_error(error: &CommitError) -> StoreError {
    match error {
        CommitError::Store(error) => error.clone(),
        CommitError::Topic(error) => panic!("the topic call makes no sense: {error}"),
        CommitError::Group(error) => panic!("nobody asks for groups here: {error}"),
        CommitError::Append(_) | CommitError::Slice(_) => panic!("nobody appends here: {error}"),
        CommitError::AskLogs(_) | CommitError::Later(_) => StoreError::Busy,
    }
}

fn refusal(answer: Result<Outcome, CommitError>) -> StoreError {
    match answer {
        Err(error) => store_error(&error),
        Ok(other) => panic!("answered with {other:?}"),
    }
}
