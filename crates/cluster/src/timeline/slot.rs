//! One slot as this node holds it: its tenure, its marks, its near future, and the calls that wait
//! to be written.
//!
//! Only the writer of a slot changes what is pending in it, one batch of calls at a time, so what is
//! here and what is in the store agree whenever no batch is on its way.

use std::collections::{BTreeSet, HashMap, VecDeque};

use punctual_model::{Action, Entry, Key, Lane, MessageId, Timestamp};

use crate::store::{Marks, Slot, Stored, Tenure};

use super::Phase;
use super::counting::{Class, Differences};
use super::job::{Effect, Job};
use super::near::{Held, Near, Stand};

/// A slot that this node holds.
#[derive(Debug)]
pub(super) struct Owned {
    pub(super) tenure: Tenure,
    pub(super) phase: Phase,
    pub(super) retired: bool,
    near: [Near; 2],
    /// Where entries in memory stand that were moved since they were accepted.
    moved: HashMap<MessageId, Key>,
    /// Where entries stand of which a change is on its way: nothing is begun with them.
    ending: BTreeSet<Key>,
    /// The earliest that is on its way into the store.
    coming: [Timestamp; 2],
    /// As they were last written down.
    pub(super) marks: Marks,
    /// The highest that may have been written down.
    ended_high: [Timestamp; 2],
    /// What was claimed by the owner before: see [`Owned::in_doubt`].
    inherited: Timestamp,
    /// Counters from here on were given out in this tenure.
    first_counter: u64,
    pub(super) unwritten: Differences,
    pub(super) queue: VecDeque<Job>,
    pub(super) queue_bytes: usize,
    pub(super) writing: bool,
    claimed: usize,
    /// Rounds of the keeper since the marks were written down.
    pub(super) rounds: u32,
}

impl Owned {
    pub(super) fn new(tenure: Tenure, marks: Marks, first_counter: u64, retired: bool) -> Self {
        Self {
            tenure,
            phase: Phase::Held,
            retired,
            near: marks.ended_before.map(Near::starting_at),
            moved: HashMap::new(),
            ending: BTreeSet::new(),
            coming: [Timestamp::MAX; 2],
            marks,
            ended_high: marks.ended_before,
            inherited: marks.claimed_until,
            first_counter,
            unwritten: Differences::default(),
            queue: VecDeque::new(),
            queue_bytes: 0,
            writing: false,
            claimed: 0,
            rounds: 0,
        }
    }

    pub(super) fn near(&self, lane: Lane) -> &Near {
        &self.near[lane.index()]
    }

    pub(super) fn near_mut(&mut self, lane: Lane) -> &mut Near {
        &mut self.near[lane.index()]
    }

    pub(super) fn entries(&self) -> usize {
        self.near.iter().map(Near::len).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.near.iter().map(Near::bytes).sum()
    }

    pub(super) fn claimed(&self) -> usize {
        self.claimed
    }

    /// Nothing of it is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.claimed == 0 && self.queue.is_empty() && !self.writing
    }

    /// The entry in memory that has this id.
    pub(super) fn held(&self, id: MessageId) -> Option<(Key, &Held)> {
        let key = *self.moved.get(&id).unwrap_or(&id.key);
        let held = self.near(key.sequence.lane()).get(key)?;
        (held.id == id).then_some((key, held))
    }

    pub(super) fn is_claimed(&self, id: MessageId) -> bool {
        self.held(id).is_some_and(|(_, held)| held.stand == Stand::Claimed)
    }

    /// Whether an owner before may have sent the message that stands there. It was accepted before
    /// this tenure and its owner had said that it would claim up to its due time; or that was so when
    /// the broker moved it, and is written down since.
    pub(super) fn in_doubt(&self, key: Key, entry: &Entry) -> bool {
        let extra = entry.extra.as_ref();
        let delivers = extra.is_none_or(|extra| extra.action == Action::Deliver);
        let inherited = Slot::counter(key.sequence) < self.first_counter
            && key.due <= self.inherited
            && !key.due.is_parked();
        delivers && (inherited || extra.is_some_and(|extra| extra.in_doubt))
    }

    pub(super) fn is_ending(&self, key: Key) -> bool {
        self.ending.contains(&key)
    }

    /// Everything that is due before this has ended, also when all that is on its way has arrived.
    pub(super) fn ended_before(&self, lane: Lane) -> Timestamp {
        self.near(lane).ended_before().min(self.coming[lane.index()])
    }

    /// Whether a new owner might not read what is on its way.
    pub(super) fn needs_lower_marks(&self) -> bool {
        self.coming.iter().zip(&self.ended_high).any(|(coming, high)| coming < high)
    }

    /// Up to when messages may have been sent, once nothing is on its way here: by owners before.
    pub(super) fn doubted_until(&self) -> Timestamp {
        let read = self.near.iter().all(|near| near.read_to().due > self.inherited);
        let left = self.near.iter().flat_map(Near::entries);
        let mut doubts = left.map(|(key, held)| self.in_doubt(*key, &held.entry));
        if read && !doubts.any(|doubt| doubt) { Timestamp::MIN } else { self.inherited }
    }

    pub(super) fn may_be_written(&mut self, marks: &Marks) {
        self.marks.claimed_until = self.marks.claimed_until.min(marks.claimed_until);
        for (high, tried) in self.ended_high.iter_mut().zip(marks.ended_before) {
            *high = (*high).max(tried);
        }
    }

    pub(super) fn were_written(&mut self, marks: Marks) {
        self.ended_high = marks.ended_before;
        self.marks = marks;
        self.rounds = 0;
    }

    /// A change is on its way.
    pub(super) fn begin(&mut self, effect: &Effect) {
        self.ending.extend(effect.from());
        if let Some(key) = effect.to() {
            let coming = &mut self.coming[key.sequence.lane().index()];
            *coming = (*coming).min(key.due);
        }
    }

    /// Nothing is on its way any more.
    pub(super) fn nothing_on_its_way(&mut self) {
        self.ending.clear();
        self.coming = [Timestamp::MAX; 2];
    }

    /// A change was carried out. Answers where an entry stands by that which is in memory.
    pub(super) fn carry_out(&mut self, effect: Effect) -> Option<Key> {
        if let Some((key, id, class)) = effect.left() {
            self.leave(key, id);
            self.unwritten.add(class, -1);
        }
        match effect {
            Effect::Put { key, id, entry } | Effect::Move { id, to: key, entry, .. } => {
                let lane = key.sequence.lane();
                self.unwritten.add(Class::of(&entry, lane), 1);
                let here = self.near_mut(lane).put(key, id, entry);
                if here && id.key != key {
                    self.moved.insert(id, key);
                }
                here.then_some(key)
            }
            Effect::End { .. } => None,
        }
    }

    fn leave(&mut self, key: Key, id: MessageId) {
        self.moved.remove(&id);
        let held = self.near_mut(key.sequence.lane()).remove(key);
        if held.is_some_and(|held| held.stand == Stand::Claimed) {
            self.claimed -= 1;
        }
    }

    /// Hands an entry out.
    pub(super) fn arm(&mut self, key: Key, ticket: u64) {
        self.near_mut(key.sequence.lane()).set(key, Stand::Armed(ticket));
    }

    /// Whether the entry that was handed out with this number can be claimed.
    pub(super) fn is_armed(&self, key: Key, ticket: u64) -> bool {
        let held = self.near(key.sequence.lane()).get(key);
        held.is_some_and(|held| held.stand == Stand::Armed(ticket))
    }

    pub(super) fn claim(&mut self, key: Key) {
        self.near_mut(key.sequence.lane()).set(key, Stand::Claimed);
        self.claimed += 1;
    }

    /// Takes back what was handed out with this number.
    pub(super) fn take_back(&mut self, key: Key, ticket: u64) {
        if self.is_armed(key, ticket) {
            self.near_mut(key.sequence.lane()).set(key, Stand::Waiting);
        }
    }

    /// The page has arrived. Answers the keys that came in.
    pub(super) fn end_read(
        &mut self,
        lane: Lane,
        ask: super::near::Ask,
        page: Vec<Stored>,
    ) -> Vec<Key> {
        let came = self.near_mut(lane).end_read(ask, page);
        for key in &came {
            let id = self.near(lane).get(*key).map(|held| held.id);
            if let Some(id) = id.filter(|id| id.key != *key) {
                self.moved.insert(id, *key);
            }
        }
        came
    }

    /// Forgets what is furthest away.
    pub(super) fn evict(&mut self, lane: Lane, count: usize, keep: Timestamp) -> usize {
        let gone = self.near_mut(lane).evict(count, keep);
        for (_, id) in &gone {
            self.moved.remove(id);
        }
        gone.len()
    }

    /// What is claimed.
    pub(super) fn claimed_ids(&self) -> Vec<(Key, MessageId)> {
        let all = self.near.iter().flat_map(Near::entries);
        let claimed = all.filter(|(_, held)| held.stand == Stand::Claimed);
        claimed.map(|(key, held)| (*key, held.id)).collect()
    }

    /// Forgets everything but what is claimed; it is read again.
    pub(super) fn start_again(&mut self) {
        self.nothing_on_its_way();
        // What may have been written down lately is not known, so the earliest counts.
        let starts = Lane::ALL
            .map(|lane| self.ended_before(lane).min(self.marks.ended_before[lane.index()]));
        for lane in Lane::ALL {
            self.near_mut(lane).start_again(starts[lane.index()]);
        }
        self.moved.clear();
        for (key, id) in self.claimed_ids() {
            if id.key != key {
                self.moved.insert(id, key);
            }
        }
    }

    /// It turned out that a claimed entry has ended, or stands elsewhere.
    pub(super) fn forget_claimed(&mut self, key: Key, id: MessageId) {
        self.leave(key, id);
    }
}
