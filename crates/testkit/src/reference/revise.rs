//! Revising the reference: orders are carried out one by one, and a refused one brings the copy back
//! that was made before the first.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_model::ports::{Done, OnConflict, Order, Refusal, Revised};
use punctual_model::{Entry, Event, Key, Lane, Link, MessageId, OwnId, Parked, State, TopicId};

use super::{Book, Listener, Memory};

/// The own ids of each topic: whose each is, and the fingerprint of the request. Without a clock
/// they stay taken for ever.
#[derive(Clone, Default)]
pub(super) struct Names(BTreeMap<(TopicId, Arc<str>), (MessageId, u64)>);

impl Names {
    pub(super) fn give(&mut self, topic: TopicId, own: &OwnId, id: MessageId) {
        self.0.insert((topic, Arc::clone(&own.text)), (id, own.print));
    }

    pub(super) fn owner(&self, topic: TopicId, text: &Arc<str>) -> Option<(MessageId, u64)> {
        self.0.get(&(topic, Arc::clone(text))).copied()
    }

    pub(super) fn forget_topic(&mut self, id: TopicId) {
        self.0.retain(|(topic, _), _| *topic != id);
    }
}

/// What an order did: the answer, the message it was about, and the key of what it stored.
struct Outcome {
    done: Done,
    id: MessageId,
    stored: Option<Key>,
}

impl Memory {
    /// Carries out all orders or none, and tells who has to hear of it, in which lanes.
    pub(super) fn revise(&mut self, orders: Vec<Order>) -> (Revised, Vec<(Lane, Listener)>) {
        // The first order can only be refused before anything was changed.
        let before = (orders.len() > 1).then(|| self.book.clone());
        let mut outcomes: Vec<Outcome> = Vec::new();
        for (index, order) in orders.into_iter().enumerate() {
            if let Some(known) = belongs_to(&order, &outcomes) {
                outcomes.push(Outcome { done: Done::Nothing, id: known, stored: None });
                continue;
            }
            match self.book.carry_out(order) {
                Ok(outcome) => outcomes.push(outcome),
                Err(reason) => {
                    self.book = before.unwrap_or_else(|| std::mem::take(&mut self.book));
                    return (Revised::Refused { index, reason }, Vec::new());
                }
            }
        }
        self.book.resolve_links(&outcomes);
        let stored = || outcomes.iter().filter_map(|outcome| outcome.stored);
        let late = |lane: Lane| {
            let until = self.armed_until[lane.index()];
            stored().any(|key| key.sequence.lane() == lane && key.due < until)
        };
        let listener = self.listener.iter();
        let heard = listener.flat_map(|listener| {
            Lane::ALL.into_iter().filter(|lane| late(*lane)).map(|lane| (lane, listener.clone()))
        });
        let heard = heard.collect();
        (Revised::Done(outcomes.into_iter().map(|outcome| outcome.done).collect()), heard)
    }
}

/// The message that is known already and to which the entry of this order belongs, so that it is
/// there already as well.
fn belongs_to(order: &Order, before: &[Outcome]) -> Option<MessageId> {
    let Order::Schedule { entry, .. } = order else { return None };
    let extra = entry.extra.as_ref()?;
    let half = match extra.parked {
        Some(Parked::Half { transaction, .. }) => Some(transaction),
        Some(Parked::Paused { .. }) | None => None,
    };
    let Link::Order(whole) = extra.series.or(half)? else { return None };
    match before.get(usize::try_from(whole).ok()?)?.done {
        Done::Known(id) => Some(id),
        _ => None,
    }
}

impl Book {
    fn carry_out(&mut self, order: Order) -> Result<Outcome, Refusal> {
        match order {
            Order::Schedule { lane, entry, conflict } => self.schedule(lane, entry, conflict),
            Order::Replace { id, expected, entry } => {
                self.standing(id, expected)?;
                Ok(self.replace(id, expected, entry))
            }
            Order::Cancel { id, expected: Some(expected) } => {
                self.standing(id, expected)?;
                self.end(id, Event::Cancel);
                Ok(Outcome { done: Done::Cancelled, id, stored: None })
            }
            Order::Cancel { id, expected: None } => {
                let done =
                    if self.end(id, Event::Cancel) { Done::Cancelled } else { Done::Nothing };
                Ok(Outcome { done, id, stored: None })
            }
        }
    }

    fn schedule(
        &mut self,
        lane: Lane,
        entry: Entry,
        conflict: OnConflict,
    ) -> Result<Outcome, Refusal> {
        let own = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
        let taken = own.and_then(|own| {
            let (id, print) = self.names.owner(entry.topic, &own.text)?;
            Some((id, print == own.print))
        });
        match (taken, conflict) {
            (Some((id, true)), OnConflict::Reject) => {
                return Ok(Outcome { done: Done::Known(id), id, stored: None });
            }
            (Some((id, false)), OnConflict::Reject) => return Err(Refusal::OwnIdTaken(id)),
            (Some((id, _)), OnConflict::Replace) if self.state(id) == Some(State::Prepared) => {
                return Err(Refusal::OwnIdTaken(id));
            }
            (Some((id, _)), OnConflict::Replace) => {
                self.end(id, Event::Cancel);
            }
            (None, _) => {}
        }
        let id = self.accept(lane, entry);
        Ok(Outcome { done: Done::Stored(id), id, stored: Some(id.key) })
    }

    fn replace(&mut self, id: MessageId, from: Key, entry: Entry) -> Outcome {
        let key = self.store(id.key.sequence.lane(), entry);
        let same = super::id_of(key, &self.waiting[&key].0) == id;
        assert!(same, "what replaces a message has its topic, its partition and its first key");
        self.waiting.remove(&from);
        self.moved.insert(id, key);
        Outcome { done: Done::Moved(key), id, stored: Some(key) }
    }

    /// Whether the message is pending and stands where it is expected.
    fn standing(&self, id: MessageId, expected: Key) -> Result<(), Refusal> {
        match (self.pending(id), self.ended.get(&id)) {
            (Some(shown), _) if shown.key == expected => Ok(()),
            (Some(_), _) => Err(Refusal::Changed),
            (None, Some(state)) => Err(Refusal::Ended(*state)),
            (None, None) => Err(Refusal::NotFound),
        }
    }

    /// Puts ids in the place of the orders to which the entries stored just now point.
    fn resolve_links(&mut self, outcomes: &[Outcome]) {
        let resolve = |link: &mut Link| {
            if let Link::Order(number) = *link {
                let place = usize::try_from(number).expect("a call has few orders");
                *link = Link::Id(outcomes[place].id);
            }
        };
        for key in outcomes.iter().filter_map(|outcome| outcome.stored) {
            let extra = self.waiting.get_mut(&key).and_then(|(entry, _)| entry.extra.as_mut());
            let Some(extra) = extra else { continue };
            extra.series.iter_mut().chain(&mut extra.links).for_each(resolve);
            if let Some(Parked::Half { transaction, .. }) = &mut extra.parked {
                resolve(transaction);
            }
        }
    }
}
