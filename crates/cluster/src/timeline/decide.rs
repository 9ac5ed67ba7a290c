//! What becomes of each call: decided in order against what is in memory and what was read, before
//! anything is written.
//!
//! Plain rules, without a store or a clock. A call sees what those before it in its batch do only
//! by not being in one batch with them: whoever shares a message or a name waits for the next.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use punctual_model::ports::{CancelOutcome, Done, OnConflict, Order, Refusal, Revised, StoreError};
use punctual_model::{Entry, Key, Lane, Link, MessageId, OwnId, Parked, State, TopicId};

use crate::store::{Change, Named, Slot, Stored};

use super::counting::Class;
use super::job::{Answer, Effect, Job, Remembered, Work};
use super::near::Stand;
use super::slot::Owned;

/// What was read of the store for a batch.
#[derive(Debug, Default)]
pub(super) struct Reads {
    pub(super) messages: HashMap<MessageId, Option<Stored>>,
    pub(super) names: HashMap<(TopicId, Arc<str>), Option<Named>>,
}

/// What becomes of a call.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) answer: Result<Answer, StoreError>,
    pub(super) changes: Vec<Change>,
    pub(super) effects: Vec<Effect>,
}

impl Decision {
    fn nothing(answer: Answer) -> Self {
        Self { answer: Ok(answer), changes: Vec::new(), effects: Vec::new() }
    }
}

/// What is known of a message.
enum View<'a> {
    Pending { key: Key, entry: &'a Entry },
    Ended(State),
    Unknown,
}

/// Decides the calls of one batch.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    owned: &'a Owned,
    reads: &'a Reads,
    times: Remembered,
    counter: &'a mut u64,
}

impl<'a> Desk<'a> {
    pub(super) fn new(
        owned: &'a Owned,
        reads: &'a Reads,
        times: Remembered,
        counter: &'a mut u64,
    ) -> Self {
        Self { owned, reads, times, counter }
    }

    pub(super) fn decide(&mut self, job: &Job) -> Decision {
        match &job.work {
            Work::Orders(orders) => self.orders(orders),
            Work::Look(orders) => {
                let Decision { answer, .. } = self.orders(orders);
                Decision { answer, ..Decision::nothing(Answer::Nothing) }
            }
            Work::Cancel(ids) => self.cancel(ids),
            Work::Drop(batch) => self.drop_all(batch),
            Work::Settle(batch) => self.settle(batch),
            Work::Defer(batch) => self.defer(batch),
        }
    }

    fn cancel(&self, ids: &[MessageId]) -> Decision {
        let mut decision = Decision::nothing(Answer::Nothing);
        let mut gone = HashSet::new();
        let mut outcomes = Vec::with_capacity(ids.len());
        for id in ids {
            let outcome = match self.view(*id) {
                _ if gone.contains(id) => CancelOutcome::AlreadyCancelled,
                View::Unknown => CancelOutcome::NotFound,
                View::Ended(State::Cancelled) => CancelOutcome::AlreadyCancelled,
                View::Ended(_) => CancelOutcome::AlreadyDelivered,
                View::Pending { entry, .. } if is_half(entry) => CancelOutcome::Undecided,
                View::Pending { key, entry } if self.owned.in_doubt(key, entry) => {
                    CancelOutcome::AlreadyDelivered
                }
                View::Pending { key, entry } => {
                    self.end(&mut decision, *id, key, entry, State::Cancelled);
                    gone.insert(*id);
                    CancelOutcome::Cancelled
                }
            };
            outcomes.push(outcome);
        }
        decision.answer = Ok(Answer::Cancelled(outcomes));
        decision
    }

    /// Ends what nobody waits for any more, in doubt or not.
    fn drop_all(&self, batch: &[(Key, MessageId)]) -> Decision {
        let mut decision = Decision::nothing(Answer::Nothing);
        for (key, id) in batch {
            let held = self.owned.held(*id).filter(|(at, held)| {
                at == key && matches!(held.stand, Stand::Armed(_) | Stand::Waiting)
            });
            if let Some((_, held)) = held {
                self.end(&mut decision, *id, *key, &held.entry, State::Cancelled);
            }
        }
        decision
    }

    fn settle(&self, batch: &[(Key, MessageId)]) -> Decision {
        let mut decision = Decision::nothing(Answer::Nothing);
        for (key, id) in batch {
            if let Some(held) = self.claimed(*key, *id) {
                self.end(&mut decision, *id, *key, held, State::Delivered);
            }
        }
        decision
    }

    fn defer(&mut self, batch: &[(Key, MessageId, Entry)]) -> Decision {
        let mut decision = Decision::nothing(Answer::Nothing);
        for (key, id, entry) in batch {
            let Some(held) = self.claimed(*key, *id) else { continue };
            self.move_to(&mut decision, *id, (*key, held), entry.clone());
        }
        decision
    }

    fn claimed(&self, key: Key, id: MessageId) -> Option<&'a Entry> {
        let (at, held) = self.owned.held(id)?;
        (at == key && held.stand == Stand::Claimed).then_some(&held.entry)
    }

    fn orders(&mut self, orders: &[Order]) -> Decision {
        let mut call = Call::default();
        for (index, order) in orders.iter().enumerate() {
            if let Some(known) = belongs_to(order, &call.outcomes) {
                call.outcomes.push((Done::Nothing, known));
                continue;
            }
            match self.order(&mut call, order) {
                Ok(outcome) => call.outcomes.push(outcome),
                Err(reason) => {
                    return Decision::nothing(Answer::Revised(Revised::Refused { index, reason }));
                }
            }
        }
        if !call.foreign.is_empty() {
            return Decision::nothing(Answer::Foreign(call.foreign));
        }
        let Call { mut decision, outcomes, .. } = call;
        resolve_links(&mut decision, &outcomes);
        let done = outcomes.into_iter().map(|(done, _)| done).collect();
        decision.answer = Ok(Answer::Revised(Revised::Done(done)));
        decision
    }

    fn order(&mut self, call: &mut Call, order: &Order) -> Result<(Done, MessageId), Refusal> {
        match order {
            Order::Schedule { lane, entry, conflict } => {
                self.schedule(call, *lane, entry, *conflict)
            }
            Order::Replace { id, expected, entry } => {
                let was = self.standing(call, *id, *expected)?;
                // Whoever asks for a change is told that it is too late; the broker itself only brings
                // it to its moment.
                if self.owned.in_doubt(*expected, was) && version(entry) > version(was) {
                    return Err(Refusal::Ended(State::Delivered));
                }
                call.touched.insert(*id);
                let to = self.move_to(&mut call.decision, *id, (*expected, was), entry.clone());
                Ok((Done::Moved(to), *id))
            }
            Order::Cancel { id, expected: Some(expected) } => {
                let was = self.standing(call, *id, *expected)?;
                self.end(&mut call.decision, *id, *expected, was, State::Cancelled);
                call.touched.insert(*id);
                Ok((Done::Cancelled, *id))
            }
            Order::Cancel { id, expected: None } => match self.view(*id) {
                View::Pending { key, entry }
                    if !call.touched.contains(id) && !self.owned.in_doubt(key, entry) =>
                {
                    self.end(&mut call.decision, *id, key, entry, State::Cancelled);
                    call.touched.insert(*id);
                    Ok((Done::Cancelled, *id))
                }
                _ => Ok((Done::Nothing, *id)),
            },
        }
    }

    fn schedule(
        &mut self,
        call: &mut Call,
        lane: Lane,
        entry: &Entry,
        conflict: OnConflict,
    ) -> Result<(Done, MessageId), Refusal> {
        let own = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
        let mut expected = None;
        if let Some(own) = own {
            if let Some((id, print)) = call.names.get(&(entry.topic, Arc::clone(&own.text))) {
                return if *print == own.print && conflict == OnConflict::Reject {
                    Ok((Done::Known(*id), *id))
                } else {
                    Err(Refusal::OwnIdTaken(*id))
                };
            }
            let named = self.reads.names.get(&(entry.topic, Arc::clone(&own.text)));
            let named = named.copied().flatten();
            expected = named.map(|named| named.id);
            if let Some(named) = named.filter(|named| self.is_remembered(named))
                && let Some(known) = self.name_taken(call, own, named, conflict)?
            {
                return Ok((Done::Known(known), known));
            }
        }
        let key = self.next_key(lane, entry);
        let id = MessageId { key, topic: entry.topic, partition: entry.partition };
        call.decision.changes.push(Change::Put { key, entry: entry.clone() });
        call.decision.effects.push(Effect::Put { key, id, entry: entry.clone() });
        if let Some(OwnId { text, print }) = own {
            let (topic, text, print) = (entry.topic, Arc::clone(text), *print);
            call.names.insert((topic, Arc::clone(&text)), (id, print));
            call.decision.changes.push(Change::Name { topic, text, print, id, expected });
        }
        Ok((Done::Stored(id), id))
    }

    /// The own id is another message's. Answers that one if it is the same request.
    fn name_taken(
        &self,
        call: &mut Call,
        own: &OwnId,
        named: Named,
        conflict: OnConflict,
    ) -> Result<Option<MessageId>, Refusal> {
        let taken = Err(Refusal::OwnIdTaken(named.id));
        if conflict == OnConflict::Reject {
            return if named.print == own.print { Ok(Some(named.id)) } else { taken };
        }
        if !named.state.is_some_and(State::is_pending) {
            return Ok(None);
        }
        if Slot::of(named.id.key.sequence) != self.owned.tenure.slot {
            if named.state == Some(State::Prepared) {
                return taken;
            }
            call.foreign.push(named.id);
            return Ok(None);
        }
        match self.view(named.id) {
            View::Pending { entry, .. } if is_half(entry) => return taken,
            View::Pending { key, entry }
                if !call.touched.contains(&named.id) && !self.owned.in_doubt(key, entry) =>
            {
                self.end(&mut call.decision, named.id, key, entry, State::Cancelled);
                call.touched.insert(named.id);
            }
            _ => {}
        }
        Ok(None)
    }

    fn is_remembered(&self, named: &Named) -> bool {
        match (named.state, named.ended_at) {
            (None, _) => false,
            (Some(_), Some(ended)) => ended >= self.times.since,
            (Some(_), None) => true,
        }
    }

    /// What is pending where it is expected.
    fn standing(&self, call: &Call, id: MessageId, expected: Key) -> Result<&'a Entry, Refusal> {
        let reason = match self.view(id) {
            _ if call.touched.contains(&id) => Refusal::Changed,
            View::Pending { key, entry } if key == expected => return Ok(entry),
            View::Pending { .. } => Refusal::Changed,
            View::Ended(state) => Refusal::Ended(state),
            View::Unknown => Refusal::NotFound,
        };
        Err(reason)
    }

    fn view(&self, id: MessageId) -> View<'a> {
        if let Some((key, held)) = self.owned.held(id) {
            return match held.stand {
                Stand::Claimed => View::Ended(State::Delivered),
                Stand::Waiting | Stand::Armed(_) => View::Pending { key, entry: &held.entry },
            };
        }
        match self.reads.messages.get(&id) {
            Some(Some(stored)) => match &stored.entry {
                Some(entry) if stored.state.is_pending() => {
                    View::Pending { key: stored.key, entry }
                }
                _ => View::Ended(stored.state),
            },
            Some(None) | None => View::Unknown,
        }
    }

    fn end(&self, decision: &mut Decision, id: MessageId, key: Key, entry: &Entry, state: State) {
        let was = Class::of(entry, key.sequence.lane());
        decision.changes.push(Change::End { id, key, state, at: self.times.now });
        decision.effects.push(Effect::End { id, key, was });
    }

    fn move_to(
        &mut self,
        decision: &mut Decision,
        id: MessageId,
        (from, was): (Key, &Entry),
        mut entry: Entry,
    ) -> Key {
        if self.owned.in_doubt(from, was) {
            // What may have been sent before this tenure may still have been, whoever holds it next.
            entry.extra.get_or_insert_default().in_doubt = true;
        }
        let was = Class::of(was, from.sequence.lane());
        let to = self.next_key(id.key.sequence.lane(), &entry);
        decision.changes.push(Change::Move { id, from, to, entry: entry.clone() });
        decision.effects.push(Effect::Move { id, from, was, to, entry });
        to
    }

    fn next_key(&mut self, lane: Lane, entry: &Entry) -> Key {
        let sequence = self.owned.tenure.slot.sequence(lane, *self.counter);
        *self.counter += 1;
        Key { due: entry.due, sequence }
    }
}

/// A call as far as it is decided.
#[derive(Debug)]
struct Call {
    decision: Decision,
    /// What became of each order, and the message it was about.
    outcomes: Vec<(Done, MessageId)>,
    /// Names that the call gives.
    names: HashMap<(TopicId, Arc<str>), (MessageId, u64)>,
    /// Messages that it changes.
    touched: HashSet<MessageId>,
    foreign: Vec<MessageId>,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            decision: Decision::nothing(Answer::Nothing),
            outcomes: Vec::new(),
            names: HashMap::new(),
            touched: HashSet::new(),
            foreign: Vec::new(),
        }
    }
}

/// The message that is known already and to which the entry of this order belongs, so that it is
/// there already as well.
fn belongs_to(order: &Order, before: &[(Done, MessageId)]) -> Option<MessageId> {
    let Order::Schedule { entry, .. } = order else { return None };
    let extra = entry.extra.as_ref()?;
    let half = match extra.parked {
        Some(Parked::Half { transaction, .. }) => Some(transaction),
        Some(Parked::Paused { .. }) | None => None,
    };
    let Link::Order(whole) = extra.series.or(half)? else { return None };
    match before.get(usize::try_from(whole).ok()?)? {
        (Done::Known(id), _) => Some(*id),
        _ => None,
    }
}

/// Puts ids in the place of the orders to which new entries point.
fn resolve_links(decision: &mut Decision, outcomes: &[(Done, MessageId)]) {
    let resolve = |link: &mut Link| {
        if let Link::Order(number) = *link
            && let Some((_, id)) = usize::try_from(number).ok().and_then(|at| outcomes.get(at))
        {
            *link = Link::Id(*id);
        }
    };
    for change in &mut decision.changes {
        if let Change::Put { entry, .. } | Change::Move { entry, .. } = change {
            each_link(entry, resolve);
        }
    }
    for effect in &mut decision.effects {
        if let Effect::Put { entry, .. } | Effect::Move { entry, .. } = effect {
            each_link(entry, resolve);
        }
    }
}

/// Calls `change` with each link of an entry.
pub(super) fn each_link(entry: &mut Entry, mut change: impl FnMut(&mut Link)) {
    let Some(extra) = &mut entry.extra else { return };
    extra.series.iter_mut().chain(&mut extra.links).for_each(&mut change);
    if let Some(Parked::Half { transaction, .. }) = &mut extra.parked {
        change(transaction);
    }
}

fn is_half(entry: &Entry) -> bool {
    let parked = entry.extra.as_ref().and_then(|extra| extra.parked);
    matches!(parked, Some(Parked::Half { .. }))
}

fn version(entry: &Entry) -> u32 {
    let changed = entry.extra.as_ref().and_then(|extra| extra.changed);
    changed.map_or(1, |changed| changed.version)
}
