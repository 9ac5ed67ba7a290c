//! The calls of a timeline: which slots each is about, and how its answer is put together.
//!
//! A call is carried out whole in one slot. One that names messages of several is looked at in all of
//! them first and then carried out slot by slot: each part whole, the parts not together.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Done, Forecast, Found, OnConflict, Order, PendingEntry,
    PendingPage, PendingQuery, Refusal, Revised, StoreError,
};
use punctual_model::{Key, Lane, Link, MessageId, State, Timestamp, TopicId};

use crate::store::{Slot, SlotStore, Stored};

use super::Phase;
use super::decide::each_link;
use super::inner::{Inner, refusal};
use super::job::{Answer, Work, named_by};
use super::state::Told;

/// Looks at the store for one page of a listing: what was just delivered is passed over, so that the first
/// page of a busy topic is not empty. A page may be all the same, when there is very much of it.
const LOOKS_MAX: u32 = 16;

/// How often a call is tried whose own ids are those of messages in other slots.
const FOREIGN_TRIES: usize = 8;
/// How often the coordinator may change its mind while a claim is made.
const HOLDING_TRIES: usize = 16;

/// The orders of one slot: which of all they are, and what they are.
type Part = Vec<(usize, Order)>;

impl<S: SlotStore> Inner<S> {
    /// Whether everything that is assigned was taken over and read.
    pub(super) fn is_ready(&self) -> bool {
        let holding = self.coordinator.holding();
        let now = self.now();
        let state = self.state.lock();
        let ready = |held: &punctual_model::ports::Held| {
            let slot = u16::try_from(held.slot).map(Slot);
            let owned = slot.ok().and_then(|slot| state.slots.get(&slot));
            held.leaving || owned.is_some_and(|owned| owned.tenure.term == held.term)
        };
        let read = Lane::ALL.into_iter().all(|lane| !state.lags(lane, now));
        state.has_counts && read && holding.slots.iter().all(ready)
    }

    pub(super) async fn cancel(
        self: Arc<Self>,
        ids: Vec<MessageId>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        let mut by_slot: BTreeMap<Slot, Vec<(usize, MessageId)>> = BTreeMap::new();
        for (index, id) in ids.iter().enumerate() {
            by_slot.entry(Slot::of(id.key.sequence)).or_default().push((index, *id));
        }
        self.all_here(by_slot.keys())?;
        let mut told = Vec::new();
        for (slot, part) in by_slot {
            let (places, ids): (Vec<usize>, Vec<MessageId>) = part.into_iter().unzip();
            told.push((places, self.submit(slot, Work::Cancel(ids))?));
        }
        let mut outcomes = vec![CancelOutcome::NotFound; ids.len()];
        for (places, told) in told {
            let Answer::Cancelled(part) = answered(told).await? else { continue };
            for (place, outcome) in places.into_iter().zip(part) {
                outcomes[place] = outcome;
            }
        }
        Ok(outcomes)
    }

    /// Refuses a call before any of it is done if not all of its slots are here.
    fn all_here<'a>(&self, slots: impl IntoIterator<Item = &'a Slot>) -> Result<(), StoreError> {
        let state = self.state.lock();
        let here =
            |slot: &Slot| state.slots.get(slot).is_some_and(|owned| owned.phase != Phase::Leaving);
        if slots.into_iter().all(here) { Ok(()) } else { Err(StoreError::Elsewhere) }
    }

    pub(super) async fn revise(self: Arc<Self>, orders: Vec<Order>) -> Result<Revised, StoreError> {
        if orders.is_empty() {
            return Ok(Revised::Done(Vec::new()));
        }
        let mut slots: Vec<Slot> =
            orders.iter().filter_map(named_by).map(|id| Slot::of(id.key.sequence)).collect();
        let first = slots.first().copied();
        slots.sort_unstable();
        slots.dedup();
        self.all_here(&slots)?;
        match first {
            Some(first) if slots.len() > 1 => self.revise_parts(orders, first).await,
            _ => self.revise_in(first, orders).await,
        }
    }

    /// Carries out orders in one slot: the given one, or any.
    async fn revise_in(
        self: &Arc<Self>,
        mut slot: Option<Slot>,
        mut orders: Vec<Order>,
    ) -> Result<Revised, StoreError> {
        let movable = slot.is_none();
        let replaces = orders.iter().any(replaces);
        for _ in 0..FOREIGN_TRIES {
            let chosen = slot.or_else(|| self.state.lock().slot_for(key_hash(&orders)));
            let chosen = chosen.ok_or(StoreError::Elsewhere)?;
            // Without an own id that may be taken from another message once is enough.
            let work = if replaces { orders.clone() } else { std::mem::take(&mut orders) };
            let told = self.submit(chosen, Work::Orders(work))?;
            let foreign = match answered(told).await? {
                Answer::Revised(revised) => return Ok(revised),
                Answer::Foreign(ids) => ids,
                Answer::Cancelled(_) | Answer::Nothing => return Err(StoreError::Busy),
            };
            let elsewhere = foreign.first().map(|id| Slot::of(id.key.sequence));
            let together = foreign.iter().all(|id| elsewhere == Some(Slot::of(id.key.sequence)));
            if movable && slot.is_none() && together {
                // In the slot of that message both happen at once.
                slot = elsewhere;
            } else {
                Box::pin(Arc::clone(self).cancel(foreign)).await?;
            }
        }
        Err(StoreError::Busy)
    }

    /// Carries out orders that name messages of several slots: none if one of them cannot be, unless
    /// it is changed in that moment. New entries go to the first slot that is named, which comes
    /// first, since others may point at them.
    async fn revise_parts(
        self: &Arc<Self>,
        orders: Vec<Order>,
        first: Slot,
    ) -> Result<Revised, StoreError> {
        let count = orders.len();
        let mut ids: Vec<Option<MessageId>> = orders.iter().map(named_by).collect();
        let mut parts: BTreeMap<Slot, Part> = BTreeMap::new();
        for (index, order) in orders.into_iter().enumerate() {
            let slot = named_by(&order).map_or(first, |id| Slot::of(id.key.sequence));
            parts.entry(slot).or_default().push((index, order));
        }
        if let Some(refused) = self.look(&parts, &ids).await? {
            return Ok(refused);
        }
        let mut outcome = Outcomes { done: vec![Done::Nothing; count], refused: None };
        let mut part = parts.remove(&first).unwrap_or_default();
        relink(&mut part, &ids);
        let (places, orders) = part.into_iter().unzip();
        let revised = self.revise_in(Some(first), orders).await?;
        outcome.take_in(places, revised);
        for (id, done) in ids.iter_mut().zip(&outcome.done) {
            if let Done::Stored(stored) | Done::Known(stored) = done {
                *id = Some(*stored);
            }
        }
        let mut told: Vec<(Vec<usize>, Told)> = Vec::new();
        for (slot, mut part) in parts {
            relink(&mut part, &ids);
            let (places, orders) = part.into_iter().unzip();
            told.push((places, self.submit(slot, Work::Orders(orders))?));
        }
        for (places, told) in told {
            if let Answer::Revised(revised) = answered(told).await? {
                outcome.take_in(places, revised);
            }
        }
        Ok(outcome.revised())
    }

    /// What would be refused, if anything.
    async fn look(
        self: &Arc<Self>,
        parts: &BTreeMap<Slot, Part>,
        ids: &[Option<MessageId>],
    ) -> Result<Option<Revised>, StoreError> {
        let mut told: Vec<(Vec<usize>, Told)> = Vec::new();
        for (slot, part) in parts {
            let mut part = part.clone();
            relink(&mut part, ids);
            let (places, orders) = part.into_iter().unzip();
            told.push((places, self.submit(*slot, Work::Look(orders))?));
        }
        let mut outcome = Outcomes { done: vec![Done::Nothing; ids.len()], refused: None };
        for (places, told) in told {
            if let Answer::Revised(revised) = answered(told).await? {
                outcome.take_in(places, revised);
            }
        }
        Ok(outcome.refused.map(|(index, reason)| Revised::Refused { index, reason }))
    }

    pub(super) async fn named(
        self: Arc<Self>,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        let since = self.now().saturating_sub(self.options.finished_after);
        let found = self.store.names(topic, own_ids).await.map_err(|failure| refusal(&failure))?;
        let remembered = |named: &crate::store::Named| {
            named.state.is_some() && named.ended_at.is_none_or(|ended| ended >= since)
        };
        Ok(found.into_iter().map(|named| named.filter(remembered).map(|named| named.id)).collect())
    }

    pub(super) async fn forecast(
        self: Arc<Self>,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        // What is being written down must not be counted twice, or left out.
        let _turn = self.keeping.lock().await;
        let forecast = self.store.forecast(topic, bounds.clone()).await;
        let mut forecast = forecast.map_err(|failure| refusal(&failure))?;
        let state = self.state.lock();
        for owned in state.slots.values() {
            owned.unwritten.correct(&mut forecast, topic, &bounds);
        }
        Ok(forecast)
    }

    pub(super) async fn find(
        self: Arc<Self>,
        ids: Vec<MessageId>,
    ) -> Result<Vec<Option<Found>>, StoreError> {
        let found = self.store.get(ids).await.map_err(|failure| refusal(&failure))?;
        let state = self.state.lock();
        let tell = |stored: Stored| {
            // What is claimed is on its way to the outlet, whatever the store still says.
            if stored.state.is_pending() && state.is_claimed(stored.id) {
                return Found { state: State::Delivered, entry: None };
            }
            let entry = stored.entry.map(|entry| PendingEntry {
                id: stored.id,
                key: stored.key,
                basis: entry.basis,
                message: entry.message,
                extra: entry.extra,
            });
            Found { state: stored.state, entry }
        };
        Ok(found.into_iter().map(|stored| stored.map(tell)).collect())
    }

    pub(super) async fn pending(
        self: Arc<Self>,
        mut query: PendingQuery,
    ) -> Result<PendingPage, StoreError> {
        let mut looks = 0;
        loop {
            let page = self.store.pending(query.clone()).await;
            let mut page = page.map_err(|failure| refusal(&failure))?;
            {
                let state = self.state.lock();
                page.entries.retain(|entry| !state.is_claimed(entry.id));
            }
            looks += 1;
            let is_enough = !page.entries.is_empty() || query.limit == 0 || looks == LOOKS_MAX;
            if is_enough || page.next.is_none() {
                return Ok(page);
            }
            query.after = page.next;
        }
    }

    /// What can be handed out without waiting; `None` if it has to be waited for.
    pub(super) fn arm_now(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Option<Vec<Armed>> {
        let mut state = self.state.lock();
        state.armed_until[lane.index()] = until;
        let batch = state.arm(lane, until, limit, true);
        (!batch.is_empty() || !state.lags(lane, until)).then_some(batch)
    }

    /// Hands out what is there, after it was waited a little for what is being read.
    pub(super) async fn arm(
        self: Arc<Self>,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        let patient = async {
            let mut progress = self.signals.progress.subscribe();
            loop {
                self.signals.pages.notify_one();
                if let Some(batch) = self.arm_now(lane, until, limit) {
                    return batch;
                }
                progress.changed().await.unwrap_or_default();
            }
        };
        if let Ok(batch) = tokio::time::timeout(self.options.patience, patient).await {
            return Ok(batch);
        }
        Ok(self.state.lock().arm(lane, until, limit, false))
    }

    /// What goes to topics that are not known here.
    pub(super) fn homeless(&self, batch: &[Armed]) -> Vec<(Key, MessageId)> {
        let Some(topics) = self.topics.get() else { return Vec::new() };
        let mut known = HashMap::new();
        let homeless = batch.iter().filter(|armed| {
            let topic = armed.topic;
            !*known.entry(topic).or_insert_with(|| topics.is_known(topic))
        });
        homeless.map(|armed| (armed.key, armed.id())).collect()
    }

    /// Ends those of these whose topics are no more. Answers which topics those are.
    pub(super) async fn withdraw(
        self: Arc<Self>,
        homeless: Vec<(Key, MessageId)>,
    ) -> Result<HashSet<TopicId>, StoreError> {
        let topics: BTreeSet<TopicId> = homeless.iter().map(|(_, id)| id.topic).collect();
        let asked: Vec<TopicId> = topics.into_iter().collect();
        let Some(catalogue) = self.topics.get() else { return Ok(HashSet::new()) };
        let known = catalogue.known(asked.clone()).await?;
        let gone: HashSet<TopicId> =
            asked.into_iter().zip(known).filter(|(_, known)| !known).map(|(id, _)| id).collect();
        let mut by_slot: BTreeMap<Slot, Vec<_>> = BTreeMap::new();
        for (key, id) in homeless.into_iter().filter(|(_, id)| gone.contains(&id.topic)) {
            by_slot.entry(Slot::of(key.sequence)).or_default().push((key, id));
        }
        let parts = by_slot.into_iter();
        all_done(parts.map(|(slot, part)| self.submit(slot, Work::Drop(part))).collect()).await?;
        Ok(gone)
    }

    /// Claims what is left of a batch, if this node may begin something with what it holds. Answers
    /// the slots in which claims have to be announced first.
    pub(super) fn claim(
        &self,
        batch: &mut Vec<Armed>,
    ) -> Result<BTreeMap<Slot, Timestamp>, StoreError> {
        for _ in 0..HOLDING_TRIES {
            let holding = self.coordinator.holding();
            if !self.coordinator.is_certain() {
                break;
            }
            // The same before and after: this is what it is certain of.
            if Arc::ptr_eq(&holding, &self.coordinator.holding()) {
                return Ok(self.state.lock().claim(batch, &holding));
            }
        }
        Err(StoreError::Unavailable("this node is not certain of what it holds".into()))
    }

    /// Announces claims up to the time beside each slot.
    pub(super) async fn announce(
        self: Arc<Self>,
        slots: BTreeMap<Slot, Timestamp>,
    ) -> Result<(), StoreError> {
        let slots = slots.into_iter().map(|(slot, until)| (slot, Some(until))).collect();
        self.keep(slots).await.map_err(|failure| refusal(&failure))
    }

    pub(super) fn settle(self: &Arc<Self>, batch: &[Armed]) -> Vec<Result<Told, StoreError>> {
        let mut by_slot: BTreeMap<Slot, Vec<_>> = BTreeMap::new();
        for armed in batch {
            by_slot.entry(Slot::of(armed.key.sequence)).or_default().push((armed.key, armed.id()));
        }
        let parts = by_slot.into_iter();
        parts.map(|(slot, part)| self.submit(slot, Work::Settle(part))).collect()
    }

    pub(super) fn defer(
        self: &Arc<Self>,
        batch: Vec<(Armed, Timestamp)>,
    ) -> Vec<Result<Told, StoreError>> {
        let mut by_slot: BTreeMap<Slot, Vec<_>> = BTreeMap::new();
        for (armed, due) in batch {
            let moved = (armed.key, armed.id(), armed.deferred(due));
            by_slot.entry(Slot::of(armed.key.sequence)).or_default().push(moved);
        }
        let parts = by_slot.into_iter();
        parts.map(|(slot, part)| self.submit(slot, Work::Defer(part))).collect()
    }

    pub(super) async fn next_due(
        self: Arc<Self>,
        lane: Lane,
    ) -> Result<Option<Timestamp>, StoreError> {
        let (mut first, beyond) = {
            let state = self.state.lock();
            let nears = || state.slots.iter().map(|(slot, owned)| (*slot, owned.near(lane)));
            let first = nears().filter_map(|(_, near)| near.next_waiting(None)).min();
            let empty = nears().filter(|(_, near)| near.next_waiting(None).is_none());
            let beyond: Vec<_> = empty.map(|(slot, near)| (slot, near.read_to())).collect();
            (first.map(|key| key.due), beyond)
        };
        for (slot, after) in beyond {
            let until = first.unwrap_or(Timestamp::PREPARED);
            let page = self.store.page(slot, lane, after, until, (1, 1)).await;
            let page = page.map_err(|failure| refusal(&failure))?;
            let due = page.first().map(|stored| stored.key.due);
            first = [first, due].into_iter().flatten().min();
        }
        Ok(first)
    }
}

/// What became of the parts of a call.
struct Outcomes {
    done: Vec<Done>,
    /// The first order that was refused.
    refused: Option<(usize, Refusal)>,
}

impl Outcomes {
    /// A part, whose orders have these places in the call.
    fn take_in(&mut self, places: Vec<usize>, part: Revised) {
        match part {
            Revised::Done(part) => {
                for (place, done) in places.into_iter().zip(part) {
                    self.done[place] = done;
                }
            }
            Revised::Refused { index, reason } => {
                let index = places.get(index).copied().unwrap_or(self.done.len());
                let before = self.refused.take().filter(|(at, _)| *at < index);
                self.refused = before.or(Some((index, reason)));
            }
        }
    }

    fn revised(self) -> Revised {
        match self.refused {
            Some((index, reason)) => Revised::Refused { index, reason },
            None => Revised::Done(self.done),
        }
    }
}

/// What the writer answers.
async fn answered(told: Told) -> Result<Answer, StoreError> {
    // A writer that ended without a word: it failed, or the runtime is ending.
    told.await.unwrap_or_else(|_gone| Err(StoreError::Unavailable("nobody answered".into())))
}

/// Waits for everything, and answers the first refusal. What is in no slot of this node is the next
/// owner's.
pub(super) async fn all_done(told: Vec<Result<Told, StoreError>>) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    for told in told {
        let done = match told {
            Ok(told) => answered(told).await.map(drop),
            Err(error) => Err(error),
        };
        match done {
            Ok(()) | Err(StoreError::Elsewhere) => {}
            Err(error) => outcome = outcome.and(Err(error)),
        }
    }
    outcome
}

/// The ids of what was stored by a call of new entries alone.
pub(super) fn stored(revised: Revised) -> Result<Vec<MessageId>, StoreError> {
    let id = |done| match done {
        Done::Stored(id) | Done::Known(id) => Some(id),
        Done::Moved(_) | Done::Cancelled | Done::Nothing => None,
    };
    match revised {
        Revised::Done(done) => Ok(done.into_iter().filter_map(id).collect()),
        // Only an own id can be in the way, and those are given through orders.
        Revised::Refused { .. } => Err(StoreError::Busy),
    }
}

fn replaces(order: &Order) -> bool {
    matches!(order, Order::Schedule { conflict: OnConflict::Replace, .. })
}

/// Messages of one key go to one slot, so that one node has them all while the slots stay.
fn key_hash(orders: &[Order]) -> Option<u64> {
    let [Order::Schedule { entry, .. }] = orders else { return None };
    let mut hasher = DefaultHasher::new();
    entry.message.key.as_ref()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Lets links point at the orders of the part, or at the messages of others.
fn relink(part: &mut Part, ids: &[Option<MessageId>]) {
    let places: Vec<usize> = part.iter().map(|(index, _)| *index).collect();
    for (_, order) in part {
        let entry = match order {
            Order::Schedule { entry, .. } | Order::Replace { entry, .. } => entry,
            Order::Cancel { .. } => continue,
        };
        each_link(entry, |link| {
            let Link::Order(number) = *link else { return };
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            let here = places.iter().position(|place| *place == index);
            let here = here.and_then(|place| u32::try_from(place).ok());
            *link = match (here, ids.get(index).copied().flatten()) {
                (Some(place), _) => Link::Order(place),
                (None, Some(id)) => Link::Id(id),
                (None, None) => *link,
            };
        });
    }
}
