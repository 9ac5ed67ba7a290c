//! All slots that this node holds, behind one lock: where calls go, what is handed out and claimed,
//! and what is kept in memory.
//!
//! Nothing here waits. Whatever has to be read or written is said to the tasks around it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use punctual_model::ports::{ArmLimit, Armed, Holding, Origin, StoreError};
use punctual_model::{Key, Lane, MessageId, Sequence, Span, Timestamp, TopicId};
use tokio::sync::oneshot;

use crate::store::{Counted, Slot, Tenure};

use super::job::{Answer, Job, Work};
use super::near::{Ask, Held};
use super::slot::Owned;
use super::{Phase, TimelineOptions};

/// What is due so soon is never forgotten to make room.
const SOON: Span = Span::from_secs(5);
/// Pages that are read at the same time.
const READS_MAX: usize = 8;
/// Entries that are forgotten at once to make room.
const EVICTED_MIN: usize = 16;
const EVICTED_MAX: usize = 1024;

/// What a node holds.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) slots: BTreeMap<Slot, Owned>,
    /// Slots that are being taken over, with their terms.
    pub(super) taking: BTreeMap<Slot, u64>,
    /// Where new entries without a key go.
    current: Option<Slot>,
    /// The next number within a slot. All slots count together, so that what this node accepts is
    /// in order over all of them.
    pub(super) counter: u64,
    ticket: u64,
    pub(super) armed_until: [Timestamp; 2],
    /// What is pending in all slots of all nodes, as it was last read.
    pub(super) counts: [HashMap<TopicId, i64>; 2],
    /// What this node has written down since.
    pub(super) written: [HashMap<TopicId, i64>; 2],
    pub(super) has_counts: bool,
    pub(super) closed: bool,
}

/// What an answered call is waited for with.
pub(super) type Told = oneshot::Receiver<Result<Answer, StoreError>>;

impl State {
    pub(super) fn new() -> Self {
        // The first sequence of all is no entry's: pages are read past it.
        Self { counter: 1, ..Self::default() }
    }

    pub(super) fn owned(&self, tenure: Tenure) -> Option<&Owned> {
        self.slots.get(&tenure.slot).filter(|owned| owned.tenure == tenure)
    }

    pub(super) fn owned_mut(&mut self, tenure: Tenure) -> Option<&mut Owned> {
        self.slots.get_mut(&tenure.slot).filter(|owned| owned.tenure == tenure)
    }

    /// The slot for new entries: by the hash of a key, or the current one.
    pub(super) fn slot_for(&mut self, key_hash: Option<u64>) -> Option<Slot> {
        if let Some(hash) = key_hash {
            let open: Vec<Slot> = self.open_slots().collect();
            let count = u64::try_from(open.len()).unwrap_or(u64::MAX);
            let place = hash.checked_rem(count)?;
            return open.get(usize::try_from(place).ok()?).copied();
        }
        let current = self.current.filter(|slot| self.slots.get(slot).is_some_and(is_open));
        if current.is_none() {
            let first = self.open_slots().next();
            self.current = first;
        }
        self.current
    }

    fn open_slots(&self) -> impl Iterator<Item = Slot> {
        self.slots.iter().filter(|(_, owned)| is_open(owned)).map(|(slot, _)| *slot)
    }

    /// The writer of this slot has begun with what waits there: new entries go to the next one.
    pub(super) fn pass_on(&mut self, slot: Slot) {
        if self.current != Some(slot) {
            return;
        }
        let past = (std::ops::Bound::Excluded(slot), std::ops::Bound::Unbounded);
        let next = self.slots.range(past).find(|(_, owned)| is_open(owned)).map(|(slot, _)| *slot);
        let next = next.or_else(|| self.open_slots().next());
        self.current = next;
    }

    /// Puts a call into the queue of a slot. Answers with what it is waited for, and the tenure of
    /// the writer that has to be started.
    pub(super) fn submit(
        &mut self,
        slot: Slot,
        work: Work,
        options: &TimelineOptions,
    ) -> Result<(Told, Option<Tenure>), StoreError> {
        if self.closed && !matches!(work, Work::Drop(_) | Work::Settle(_) | Work::Defer(_)) {
            return Err(StoreError::Closed);
        }
        let bytes: usize = self.slots.values().map(|owned| owned.queue_bytes).sum();
        let owned = self.slots.get_mut(&slot).ok_or(StoreError::Elsewhere)?;
        let (job, told) = Job::new(work);
        match owned.phase {
            Phase::Reloading => {
                return Err(StoreError::Unavailable("the slot is read again".into()));
            }
            Phase::Leaving if !job.is_delivery() => return Err(StoreError::Elsewhere),
            Phase::Held | Phase::Leaving => {}
        }
        let crowded = owned.queue.len() >= options.queue_jobs
            || bytes > 0 && bytes.saturating_add(job.bytes) > options.queue_bytes;
        if crowded && !job.is_delivery() {
            return Err(StoreError::Busy);
        }
        owned.queue_bytes += job.bytes;
        owned.queue.push_back(job);
        let idle = !std::mem::replace(&mut owned.writing, true);
        Ok((told, idle.then_some(owned.tenure)))
    }

    /// Hands out the next entries of a lane. In key order over all slots, unless that would mean to
    /// wait for a slot that is not read so far and `patient` is not asked for.
    pub(super) fn arm(
        &mut self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
        patient: bool,
    ) -> Vec<Armed> {
        let held = |owned: &&Owned| owned.phase == Phase::Held;
        let furthest = Key { due: Timestamp::MAX, sequence: Sequence::MAX };
        let read_to = self.slots.values().filter(held).map(|owned| owned.near(lane).read_to());
        let bound = if patient { read_to.min().unwrap_or(furthest) } else { furthest };
        let firsts = self.slots.values().filter(held).filter_map(|owned| next(owned, lane, None));
        let mut heap: BinaryHeap<Reverse<Key>> = firsts.map(Reverse).collect();
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(Reverse(key)) = heap.pop() {
            let full = batch.len() >= limit.entries || bytes >= limit.bytes;
            if key.due >= until || key > bound || full {
                break;
            }
            let Some(owned) = self.slots.get_mut(&Slot::of(key.sequence)) else { continue };
            self.ticket += 1;
            if let Some(held) = owned.near(lane).get(key) {
                bytes += held.entry.message.weight();
                batch.push(armed(key, held, self.ticket));
            }
            owned.arm(key, self.ticket);
            heap.extend(next(owned, lane, Some(key)).map(Reverse));
        }
        batch
    }

    /// Whether a slot is not read up to `until`.
    pub(super) fn lags(&self, lane: Lane, until: Timestamp) -> bool {
        let wanted = until.min(Timestamp::PREPARED).saturating_sub(Span::from_millis(1));
        let held = self.slots.values().filter(|owned| owned.phase == Phase::Held);
        let read = |owned: &Owned| owned.near(lane).read_to();
        held.into_iter().any(|owned| read(owned) < Key { due: wanted, sequence: Sequence::MAX })
    }

    /// Claims what is left of `batch` after all is taken out that cannot be delivered. Answers the
    /// slots whose marks have to be written down first, and up to when; then nothing is claimed.
    pub(super) fn claim(
        &mut self,
        batch: &mut Vec<Armed>,
        holding: &Holding,
    ) -> BTreeMap<Slot, Timestamp> {
        let mut unmarked = BTreeMap::new();
        batch.retain(|armed| {
            let (key, ticket) = (armed.key, armed.origin.0);
            let Some(owned) = self.slots.get_mut(&Slot::of(key.sequence)) else { return false };
            let ours = owned.phase == Phase::Held && is_held(holding, owned.tenure);
            if !ours || owned.is_ending(key) || !owned.is_armed(key, ticket) {
                owned.take_back(key, ticket);
                return false;
            }
            if key.due > owned.marks.claimed_until {
                let until: &mut Timestamp = unmarked.entry(owned.tenure.slot).or_default();
                *until = (*until).max(key.due);
            }
            true
        });
        if unmarked.is_empty() {
            for armed in batch {
                if let Some(owned) = self.slots.get_mut(&Slot::of(armed.key.sequence)) {
                    owned.claim(armed.key);
                }
            }
        }
        unmarked
    }

    /// Whether a message is being delivered from here.
    pub(super) fn is_claimed(&self, id: MessageId) -> bool {
        let owned = self.slots.get(&Slot::of(id.key.sequence));
        owned.is_some_and(|owned| owned.is_claimed(id))
    }

    pub(super) fn entries(&self) -> usize {
        self.slots.values().map(Owned::entries).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.slots.values().map(Owned::bytes).sum()
    }

    /// Whether what is needed soon may have to wait for room.
    pub(super) fn is_crowded(&self, options: &TimelineOptions) -> bool {
        self.entries() >= options.memory_entries / 4 * 3
            || self.bytes() >= options.memory_bytes / 4 * 3
    }

    fn has_room(&self, options: &TimelineOptions) -> bool {
        self.entries() < options.memory_entries && self.bytes() < options.memory_bytes
    }

    /// Forgets what is furthest away until everything has room.
    pub(super) fn make_room(&mut self, now: Timestamp, options: &TimelineOptions) {
        let soon = now.saturating_add(SOON);
        // What was asked for is needed now, however far away it is.
        let keep = self.armed_until.map(|until| soon.max(until));
        while !self.has_room(options) {
            let surplus = (self.entries() + 1).saturating_sub(options.memory_entries);
            let count = surplus.clamp(EVICTED_MIN, EVICTED_MAX);
            let lanes = self.slots.iter().flat_map(|(slot, owned)| {
                Lane::ALL.map(|lane| (owned.near(lane).read_to(), *slot, lane))
            });
            let far = |(to, _, lane): &(Key, Slot, Lane)| to.due >= keep[lane.index()];
            let mut furthest: Vec<_> = lanes.filter(far).collect();
            furthest.sort_unstable_by_key(|(to, _, _)| Reverse(*to));
            let evicted = furthest.into_iter().any(|(_, slot, lane)| {
                let owned = self.slots.get_mut(&slot);
                owned.is_some_and(|owned| owned.evict(lane, count, keep[lane.index()]) > 0)
            });
            if !evicted {
                return;
            }
        }
    }

    /// The pages that are to be read now. Each is begun by that.
    pub(super) fn pages(
        &mut self,
        now: Timestamp,
        options: &TimelineOptions,
    ) -> Vec<(Tenure, Lane, Ask)> {
        self.make_room(now, options);
        let room = self.has_room(options);
        // Past three quarters only what is needed is read: what was forgotten to make room must not
        // be read again at once.
        let plenty = !self.is_crowded(options);
        let soon = now.saturating_add(SOON);
        let near = now.saturating_add(Span::from_millis(options.horizon.as_millis() / 2));
        let mut reading = 0;
        let mut wanted = Vec::new();
        for owned in self.slots.values() {
            for lane in Lane::ALL {
                let lane_near = owned.near(lane);
                reading += usize::from(lane_near.is_reading());
                let armed = self.armed_until[lane.index()].min(Timestamp::PREPARED);
                let due = lane_near.read_to().due;
                let urgent = due < soon || due < armed.saturating_sub(Span::from_millis(1));
                let behind = urgent || plenty && due < near;
                if behind && room && !lane_near.is_reading() && owned.phase == Phase::Held {
                    wanted.push((due, owned.tenure, lane));
                }
            }
        }
        wanted.sort_unstable_by_key(|(due, tenure, lane)| (*due, *tenure, *lane));
        wanted.truncate(READS_MAX.saturating_sub(reading));
        let far = now.saturating_add(options.horizon);
        let begin = |(_, tenure, lane): (Timestamp, Tenure, Lane)| {
            let until = far.max(self.armed_until[lane.index()]).min(Timestamp::PREPARED);
            let owned = self.slots.get_mut(&tenure.slot)?;
            Some((tenure, lane, owned.near_mut(lane).begin_read(until)))
        };
        wanted.into_iter().filter_map(begin).collect()
    }

    /// How much is pending of each topic.
    pub(super) fn count(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        let mut sums = self.counts[lane.index()].clone();
        for (topic, count) in &self.written[lane.index()] {
            *sums.entry(*topic).or_default() += count;
        }
        for (topic, count) in self.slots.values().flat_map(|owned| owned.unwritten.of_lane(lane)) {
            *sums.entry(topic).or_default() += count;
        }
        let counts = sums.into_iter().map(|(topic, sum)| (topic, u64::try_from(sum).unwrap_or(0)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// These differences were written down.
    pub(super) fn note_written(&mut self, counted: &[Counted]) {
        for Counted { topic, lane, difference, .. } in counted {
            *self.written[lane.index()].entry(*topic).or_default() += difference;
        }
    }
}

/// Whether new entries may be put there.
fn is_open(owned: &Owned) -> bool {
    owned.phase == Phase::Held && !owned.retired
}

/// Whether the tenure is assigned to this node and not to be let go.
pub(super) fn is_held(holding: &Holding, tenure: Tenure) -> bool {
    let slots = &holding.slots;
    let found = slots.binary_search_by_key(&u32::from(tenure.slot.0), |held| held.slot).ok();
    let held = found.and_then(|place| slots.get(place));
    held.is_some_and(|held| held.term == tenure.term && !held.leaving)
}

/// The first entry past `after` that can be handed out.
fn next(owned: &Owned, lane: Lane, after: Option<Key>) -> Option<Key> {
    let mut key = owned.near(lane).next_waiting(after)?;
    while owned.is_ending(key) {
        key = owned.near(lane).next_waiting(Some(key))?;
    }
    Some(key)
}

fn armed(key: Key, held: &Held, ticket: u64) -> Armed {
    let entry = &held.entry;
    Armed {
        key,
        topic: entry.topic,
        partition: entry.partition,
        basis: entry.basis,
        message: entry.message.clone(),
        extra: entry.extra.clone(),
        origin: Origin(ticket),
    }
}
