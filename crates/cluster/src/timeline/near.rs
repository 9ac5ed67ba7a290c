//! The near future of one slot and lane, in memory.
//!
//! The frontier rule: everything that is pending in the store up to [`Near::read_to`] is here, and
//! nothing past it. A page is read while changes go on, so what is committed meanwhile is noted and
//! laid over the page when it has arrived: nothing is lost between the two, and nothing is there
//! twice. Nothing here waits or knows a store.

use std::collections::{BTreeMap, BTreeSet};

use punctual_model::{Entry, Key, MessageId, Sequence, Span, Timestamp};

use crate::store::Stored;

/// What an entry costs beside the bytes of its message.
const OVERHEAD_BYTES: usize = 256;

/// The entries of a slot and lane up to a frontier.
#[derive(Debug, Default)]
pub(super) struct Near {
    entries: BTreeMap<Key, Held>,
    /// Those of them that were not handed out.
    waiting: BTreeSet<Key>,
    read_to: Key,
    /// What was committed past the frontier since the page was asked for that is being read.
    noted: Option<BTreeMap<Key, Option<(MessageId, Entry)>>>,
    /// Grows when everything is forgotten, so that a page asked for before is not taken for one
    /// asked for after.
    generation: u64,
    bytes: usize,
}

/// An entry in memory.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) id: MessageId,
    pub(super) entry: Entry,
    pub(super) stand: Stand,
}

/// How far an entry has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stand {
    /// Nobody has it.
    Waiting,
    /// It was handed out, with this number.
    Armed(u64),
    /// It is being delivered.
    Claimed,
}

/// A page that is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) after: Key,
    pub(super) until: Timestamp,
    generation: u64,
}

impl Near {
    /// Nothing, in a lane of which everything due before `ended_before` has ended.
    pub(super) fn starting_at(ended_before: Timestamp) -> Self {
        let read_to = Key { due: ended_before, sequence: Sequence::default() };
        Self { read_to, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn read_to(&self) -> Key {
        self.read_to
    }

    pub(super) fn is_reading(&self) -> bool {
        self.noted.is_some()
    }

    pub(super) fn get(&self, key: Key) -> Option<&Held> {
        self.entries.get(&key)
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, &Held)> {
        self.entries.iter()
    }

    /// The first that nobody has, past `after`.
    pub(super) fn next_waiting(&self, after: Option<Key>) -> Option<Key> {
        match after {
            None => self.waiting.first().copied(),
            Some(after) => {
                let past = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
                self.waiting.range(past).next().copied()
            }
        }
    }

    /// Everything that is due before this has ended.
    pub(super) fn ended_before(&self) -> Timestamp {
        let first = self.entries.keys().next().map_or(Timestamp::MAX, |key| key.due);
        first.min(self.read_to.due)
    }

    /// Changes how far an entry has come.
    pub(super) fn set(&mut self, key: Key, stand: Stand) {
        let Some(held) = self.entries.get_mut(&key) else { return };
        held.stand = stand;
        if stand == Stand::Waiting {
            self.waiting.insert(key);
        } else {
            self.waiting.remove(&key);
        }
    }

    /// An entry stands in the store from now on. Answers whether it is here by that.
    pub(super) fn put(&mut self, key: Key, id: MessageId, entry: Entry) -> bool {
        if key.due.is_parked() {
            return false;
        }
        if key <= self.read_to {
            // A page that was read after the commit has brought it already.
            if !self.entries.contains_key(&key) {
                self.insert(key, id, entry);
            }
            return true;
        }
        if let Some(noted) = &mut self.noted {
            noted.insert(key, Some((id, entry)));
        }
        false
    }

    /// An entry stands there no more.
    pub(super) fn remove(&mut self, key: Key) -> Option<Held> {
        if key > self.read_to
            && let Some(noted) = &mut self.noted
        {
            noted.insert(key, None);
        }
        self.waiting.remove(&key);
        let held = self.entries.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(weight(&held.entry));
        Some(held)
    }

    /// A page is read from here on; one at a time.
    pub(super) fn begin_read(&mut self, until: Timestamp) -> Ask {
        debug_assert!(self.noted.is_none(), "one page at a time");
        self.noted = Some(BTreeMap::new());
        Ask { after: self.read_to, until, generation: self.generation }
    }

    /// The page has arrived; an empty one says that nothing follows. Answers the keys that came in.
    pub(super) fn end_read(&mut self, ask: Ask, page: Vec<Stored>) -> Vec<Key> {
        if ask.generation != self.generation {
            return Vec::new();
        }
        let noted = self.noted.take().unwrap_or_default();
        let read_to = page.last().map_or_else(|| last_before(ask.until), |stored| stored.key);
        let mut came = Vec::new();
        for stored in page {
            if let (Some(entry), false) = (stored.entry, noted.contains_key(&stored.key)) {
                came.push(stored.key);
                self.insert(stored.key, stored.id, entry);
            }
        }
        for (key, change) in noted {
            if let (Some((id, entry)), true) = (change, key <= read_to) {
                came.push(key);
                self.insert(key, id, entry);
            }
        }
        self.read_to = read_to.max(self.read_to);
        came
    }

    /// The page could not be read.
    pub(super) fn fail_read(&mut self, ask: Ask) {
        if ask.generation == self.generation {
            self.noted = None;
        }
    }

    /// Forgets what nobody has from the end of it, until so many are forgotten or only what is due
    /// before `keep` is left. Answers what was forgotten.
    pub(super) fn evict(&mut self, count: usize, keep: Timestamp) -> Vec<(Key, MessageId)> {
        let mut gone = Vec::new();
        // A page being read begins at the frontier, so that must not go back meanwhile.
        while self.noted.is_none() && gone.len() < count {
            let Some((&key, held)) = self.entries.last_key_value() else { break };
            if key.due < keep || held.stand != Stand::Waiting {
                break;
            }
            gone.push((key, held.id));
            self.remove(key);
            self.read_to = before(key);
        }
        gone
    }

    /// Forgets everything but what is claimed, and begins again at `ended_before`.
    pub(super) fn start_again(&mut self, ended_before: Timestamp) {
        let claimed = |held: &Held| held.stand == Stand::Claimed;
        let kept: BTreeMap<Key, Held> = std::mem::take(&mut self.entries)
            .into_iter()
            .filter(|(_, held)| claimed(held))
            .collect();
        let bytes = kept.values().map(|held| weight(&held.entry)).sum();
        let generation = self.generation + 1;
        *self = Self { entries: kept, bytes, generation, ..Self::starting_at(ended_before) };
    }

    fn insert(&mut self, key: Key, id: MessageId, entry: Entry) {
        // What is claimed stays so through a new start.
        if self.entries.contains_key(&key) {
            return;
        }
        self.bytes += weight(&entry);
        self.waiting.insert(key);
        self.entries.insert(key, Held { id, entry, stand: Stand::Waiting });
    }
}

fn weight(entry: &Entry) -> usize {
    entry.message.weight() + OVERHEAD_BYTES
}

/// The last key that is due before `until`.
fn last_before(until: Timestamp) -> Key {
    Key { due: until.saturating_sub(Span::from_millis(1)), sequence: Sequence::MAX }
}

/// The key before `key`.
fn before(key: Key) -> Key {
    match key.sequence.get().checked_sub(1).and_then(Sequence::new) {
        Some(sequence) => Key { due: key.due, sequence },
        None => last_before(key.due),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use punctual_model::{Basis, Lane, Message, Partition, State, TopicId};

    use super::*;
    use crate::store::Slot;

    fn key(due: u64, counter: u64) -> Key {
        let due = Timestamp::from_millis_saturating(due);
        Key { due, sequence: Slot(3).sequence(Lane::Message, counter) }
    }

    fn id(key: Key) -> MessageId {
        MessageId { key, topic: TopicId::MAX, partition: Partition::new(0).unwrap() }
    }

    fn entry(key: Key) -> Entry {
        let message = Message { body: Bytes::from_static(b"x"), ..Message::default() };
        let (topic, partition) = (TopicId::MAX, Partition::new(0).unwrap());
        Entry { topic, partition, due: key.due, basis: Basis::Delay, message, extra: None }
    }

    fn stored(key: Key) -> Stored {
        Stored { id: id(key), key, state: State::Scheduled, entry: Some(entry(key)) }
    }

    /// What happens next.
    #[derive(Clone, Debug)]
    enum Step {
        /// A new entry is written to the store, or the change on its way is carried out in memory.
        Put(u64),
        /// One of the entries of the store ends, or the change on its way is carried out.
        End(usize),
        /// One of them moves, or the change on its way is carried out.
        Move(usize, u64),
        /// A page is asked for, or the store reads it, or it arrives.
        Read(u64, usize),
        /// The page does not arrive.
        Fail,
        Evict(usize),
        /// Something is handed out, so that it stays.
        Arm,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..100u64).prop_map(Step::Put),
            2 => any::<usize>().prop_map(Step::End),
            2 => (any::<usize>(), 0..100u64).prop_map(|(which, due)| Step::Move(which, due)),
            6 => (1..120u64, 1..6usize).prop_map(|(until, limit)| Step::Read(until, limit)),
            1 => Just(Step::Fail),
            1 => (1..5usize).prop_map(Step::Evict),
            1 => Just(Step::Arm),
        ]
    }

    #[derive(Default)]
    struct World {
        near: Near,
        /// What is pending in the store.
        store: BTreeSet<Key>,
        /// What the store has done and memory does not know yet: what went, and what came.
        on_its_way: Option<(Option<Key>, Option<Key>)>,
        reading: Option<(Ask, usize, Option<Vec<Stored>>)>,
        counter: u64,
    }

    impl World {
        fn step(&mut self, step: Step) {
            match step {
                Step::Put(_) | Step::End(_) | Step::Move(..) if self.on_its_way.is_some() => {
                    self.commit();
                }
                Step::Put(due) => self.write(None, Some(due)),
                Step::End(which) => self.write(Some(which), None),
                Step::Move(which, due) => self.write(Some(which), Some(due)),
                Step::Read(until, limit) => self.read(until, limit),
                Step::Fail => {
                    if let Some((ask, _, _)) = self.reading.take() {
                        self.near.fail_read(ask);
                    }
                }
                Step::Evict(count) => drop(self.near.evict(count, Timestamp::MIN)),
                Step::Arm => {
                    if let Some(key) = self.near.next_waiting(None) {
                        self.near.set(key, Stand::Armed(1));
                    }
                }
            }
        }

        fn write(&mut self, which: Option<usize>, due: Option<u64>) {
            let gone = which.and_then(|which| {
                let count = self.store.len().max(1);
                self.store.iter().nth(which % count).copied()
            });
            if which.is_some() && gone.is_none() {
                return;
            }
            self.counter += 1;
            let come = due.map(|due| key(due, self.counter));
            self.store.retain(|key| Some(*key) != gone);
            self.store.extend(come);
            self.on_its_way = Some((gone, come));
        }

        fn commit(&mut self) {
            let Some((gone, come)) = self.on_its_way.take() else { return };
            if let Some(gone) = gone {
                self.near.remove(gone);
            }
            if let Some(come) = come {
                self.near.put(come, id(come), entry(come));
            }
        }

        fn read(&mut self, until: u64, limit: usize) {
            match self.reading.take() {
                None => {
                    let ask = self.near.begin_read(Timestamp::from_millis_saturating(until));
                    self.reading = Some((ask, limit, None));
                }
                Some((ask, limit, None)) => {
                    let past = (std::ops::Bound::Excluded(ask.after), std::ops::Bound::Unbounded);
                    let page = self.store.range(past).filter(|key| key.due < ask.until);
                    let page = page.take(limit).map(|key| stored(*key)).collect();
                    self.reading = Some((ask, limit, Some(page)));
                }
                Some((ask, _, Some(page))) => drop(self.near.end_read(ask, page)),
            }
        }

        /// Memory agrees with the store up to the frontier, once nothing is on its way.
        fn check(&mut self) -> Result<(), TestCaseError> {
            self.commit();
            while self.reading.is_some() {
                self.read(0, 0);
            }
            let read_to = self.near.read_to();
            let expected: Vec<Key> = self.store.range(..=read_to).copied().collect();
            let here: Vec<Key> = self.near.entries().map(|(key, _)| *key).collect();
            prop_assert_eq!(here, expected, "up to {:?}", read_to);
            let waiting: Vec<Key> = self.near.waiting.iter().copied().collect();
            let unarmed = self.near.entries().filter(|(_, held)| held.stand == Stand::Waiting);
            prop_assert_eq!(waiting, unarmed.map(|(key, _)| *key).collect::<Vec<_>>());
            let bytes = self.near.entries().map(|(_, held)| weight(&held.entry)).sum::<usize>();
            prop_assert_eq!(self.near.bytes(), bytes);
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn pages_and_changes_meet_in_every_order(
            steps in proptest::collection::vec(any_step(), 1..60),
        ) {
            let mut world = World::default();
            for step in steps {
                world.step(step);
            }
            world.check()?;
            // And everything is read in the end.
            while world.near.read_to().due < Timestamp::from_millis_saturating(150) {
                world.read(200, 3);
            }
            world.check()?;
            prop_assert_eq!(world.near.len(), world.store.len());
        }
    }

    #[test]
    fn a_page_asked_for_before_a_new_start_is_not_taken() {
        let mut near = Near::default();
        near.put(key(0, 0), id(key(0, 0)), entry(key(0, 0)));
        let ask = near.begin_read(Timestamp::from_millis_saturating(100));
        near.start_again(Timestamp::MIN);
        near.begin_read(Timestamp::from_millis_saturating(50));
        assert_eq!(near.end_read(ask, vec![stored(key(60, 1))]), []);
        assert!(near.is_reading(), "the other page is still to come");
    }

    #[test]
    fn what_is_claimed_stays_through_a_new_start() {
        let mut near = Near::default();
        let ask = near.begin_read(Timestamp::from_millis_saturating(100));
        near.end_read(ask, vec![stored(key(10, 1)), stored(key(20, 2))]);
        near.set(key(10, 1), Stand::Claimed);
        near.start_again(Timestamp::MIN);
        assert_eq!(near.len(), 1);
        let ask = near.begin_read(Timestamp::from_millis_saturating(100));
        near.end_read(ask, vec![stored(key(10, 1)), stored(key(20, 2))]);
        assert_eq!(near.next_waiting(None), Some(key(20, 2)), "it is not handed out again");
    }
}
