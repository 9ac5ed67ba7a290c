//! Orders that are carried out together: new entries, entries that take the place of others, ends.
//!
//! A message keeps its id when it is changed: the new entry says under which key it began, and the
//! table of ids says where it stands. The old entry ends in the same group of the journal. Between
//! the two, while the journal is being written, the message is listed in `changing`, and whoever
//! asks for it waits for the end of the commit.

use std::collections::{HashMap, HashSet};

use punctual_model::ports::{Done, OnConflict, Order, Revised, StoreError};
use punctual_model::{
    Entry, Extra, Key, Lane, Link, MessageId, Parked, Sequence, Timestamp, TopicId,
};

use crate::ids::{Name, Value};
use crate::journal::Position;
use crate::journal::change::{self, Draft, Slot};
use crate::lanes::PerLane;
use crate::store::commit::{CANCEL_BYTES, Step};
use crate::store::decide::{Stop, Verdict};
use crate::store::lookup::wanted;
use crate::store::{CommitError, Outcome, Request, Store};

/// Orders with their entries in stored form.
#[derive(Debug)]
pub struct Revision {
    pub(super) orders: Vec<Prepared>,
    drafts: PerLane<Option<Draft>>,
    pub(super) now: Timestamp,
    /// Its orders replace entries that are on their way to the outlet, and no others.
    pub(super) claimed: bool,
}

/// An order without its entry: that is at `slot` of the draft of its lane.
#[derive(Debug)]
pub(super) enum Prepared {
    Schedule {
        lane: Lane,
        slot: usize,
        name: Option<(Name, u64)>,
        conflict: OnConflict,
        /// The order without which it makes no sense.
        belongs_to: Option<u32>,
    },
    Replace {
        id: MessageId,
        expected: Key,
    },
    Cancel {
        id: MessageId,
        expected: Option<Key>,
    },
}

/// A revision on its way into the journal.
#[derive(Debug)]
pub(super) struct Revising {
    drafts: PerLane<Option<(Draft, Sequence)>>,
    moves: Vec<(MessageId, Key)>,
    outcome: Revised,
    written: bool,
}

impl Revision {
    /// The orders in the form in which they are committed.
    #[must_use]
    pub fn new<'a>(orders: &'a [Order], now: Timestamp) -> Self {
        let mut entries: PerLane<Vec<&'a Entry>> = PerLane::default();
        let mut take = |lane: Lane, entry: &'a Entry| {
            let entries = entries.of_mut(lane);
            entries.push(entry);
            entries.len() - 1
        };
        let prepare = |order: &'a Order| match *order {
            Order::Schedule { lane, ref entry, conflict } => {
                let extra = entry.extra.as_ref();
                let own_id = extra.and_then(|extra| extra.own_id.as_ref());
                let name = own_id.map(|own| (Name::own(entry.topic, &own.text), own.print));
                let belongs_to = extra.and_then(|extra| belongs_to(extra));
                let slot = take(lane, entry);
                Prepared::Schedule { lane, slot, name, conflict, belongs_to }
            }
            Order::Replace { id, expected, ref entry } => {
                take(id.key.sequence.lane(), entry);
                Prepared::Replace { id, expected }
            }
            Order::Cancel { id, expected } => Prepared::Cancel { id, expected },
        };
        let orders = orders.iter().map(prepare).collect();
        let draft = |lane, entries: Vec<&Entry>| {
            (!entries.is_empty()).then(|| Draft::new(entries.iter().copied(), lane))
        };
        Self { orders, drafts: entries.map(draft), now, claimed: false }
    }

    /// The same for orders that replace entries on their way to the outlet.
    #[must_use]
    pub fn of_claimed(orders: &[Order], now: Timestamp) -> Self {
        Self { claimed: true, ..Self::new(orders, now) }
    }

    /// Bytes it takes in the journal at most.
    pub(crate) fn size(&self) -> usize {
        let drafts = self.drafts.iter().filter_map(|(_, draft)| draft.as_ref());
        let entries: usize = drafts.map(|draft| draft.bytes.len()).sum();
        entries + self.orders.len() * CANCEL_BYTES + 64
    }

    /// The lane in whose line it waits.
    pub(crate) const fn lane(&self) -> Lane {
        match (self.drafts.of(Lane::Message), self.drafts.of(Lane::Retry)) {
            (None, Some(_)) => Lane::Retry,
            _ => Lane::Message,
        }
    }

    /// Whether it brings entries.
    pub(crate) const fn takes_room(&self) -> bool {
        self.drafts.of(Lane::Message).is_some() || self.drafts.of(Lane::Retry).is_some()
    }
}

impl Store {
    /// Decides the orders and makes the ends among them hold at once, so that nothing fires what
    /// somebody is about to be told has moved or ended.
    pub(super) fn prepare_revision(
        &self,
        payload: &mut Vec<u8>,
        start: Position,
        next: &mut PerLane<Option<Sequence>>,
        revision: Revision,
    ) -> Step {
        match self.decide_asking(&revision) {
            Ok(verdicts) => {
                Step::Revise(self.write_revision(payload, start, next, revision, &verdicts))
            }
            Err(Stop::Later) => {
                Step::Refused(CommitError::Later(Box::new(Request::Revise(revision))))
            }
            Err(Stop::Refused(index, reason)) => Step::Revise(Revising {
                drafts: PerLane::default(),
                moves: Vec::new(),
                outcome: Revised::Refused { index, reason },
                written: false,
            }),
            Err(Stop::Store(error)) => Step::Refused(error.into()),
            Err(Stop::AskLog(..)) => Step::Refused(StoreError::Busy.into()),
        }
    }

    /// What is to be done about each order, once the logs were asked what only they know.
    pub(super) fn decide_asking(&self, revision: &Revision) -> Result<Vec<Verdict>, Stop> {
        let mut asked = HashMap::new();
        loop {
            match self.decide(revision, &asked) {
                Err(Stop::AskLog(id, place)) => match self.was_delivered(wanted(id, place)) {
                    Ok(delivered) => drop(asked.insert(id, delivered)),
                    Err(error) => return Err(Stop::Store(error)),
                },
                decided => return decided,
            }
        }
    }

    pub(super) fn write_revision(
        &self,
        payload: &mut Vec<u8>,
        start: Position,
        next: &mut PerLane<Option<Sequence>>,
        revision: Revision,
        verdicts: &[Verdict],
    ) -> Revising {
        let mut superseded: Vec<(Key, TopicId)> = Vec::new();
        let mut cancelled: Vec<(Key, TopicId)> = Vec::new();
        for verdict in verdicts {
            match verdict {
                Verdict::Move(place) => superseded.push((place.key, place.topic)),
                Verdict::Withdraw(place) | Verdict::StoreInstead(place) => {
                    cancelled.push((place.key, place.topic));
                }
                Verdict::Store | Verdict::Known(_) | Verdict::Leave => {}
            }
        }
        if !superseded.is_empty() {
            change::put_supersede(payload, &superseded);
        }
        if !cancelled.is_empty() {
            change::put_cancel(payload, &cancelled);
        }
        let orders = revision.orders;
        let drafts = revision.drafts.map(|lane, draft| keep_stored(draft, lane, &orders, verdicts));
        let firsts = PerLane::new(|lane| {
            drafts.of(lane).as_ref().map(|draft| self.take_numbers(next, draft))
        });
        let keys = stored_keys(&drafts, &firsts, &orders, verdicts);
        let id_of = |order: u32| {
            let place = usize::try_from(order).ok()?;
            match (orders.get(place)?, verdicts.get(place)?, keys.get(place).copied().flatten()) {
                (Prepared::Replace { id, .. }, ..) => Some(*id),
                (_, Verdict::Known(id), _) => Some(*id),
                (_, _, stored) => stored,
            }
        };
        let drafts = drafts.map(|lane, draft| {
            let (mut draft, first) = draft.zip(*firsts.of(lane))?;
            draft.link(id_of);
            draft.number(first);
            payload.extend_from_slice(&draft.bytes);
            Some((draft, first))
        });
        self.learn_names(start, &orders, &keys);
        let mut moves = Vec::new();
        let mut done = Vec::with_capacity(orders.len());
        for ((order, verdict), stored) in orders.iter().zip(verdicts).zip(&keys) {
            done.push(match (order, verdict, stored) {
                (Prepared::Replace { id, .. }, _, Some(stored)) => {
                    moves.push((*id, stored.key));
                    Done::Moved(stored.key)
                }
                (_, Verdict::Known(id), _) => Done::Known(*id),
                (_, _, Some(stored)) => Done::Stored(*stored),
                (_, Verdict::Withdraw(_), None) => Done::Cancelled,
                (_, _, None) => Done::Nothing,
            });
        }
        let written = drafts.iter().any(|(_, draft)| draft.is_some())
            || !superseded.is_empty()
            || !cancelled.is_empty();
        Revising { drafts, moves, outcome: Revised::Done(done), written }
    }

    /// Notes the own ids of new messages.
    fn learn_names(&self, start: Position, orders: &[Prepared], stored: &[Option<MessageId>]) {
        let mut named = orders.iter().zip(stored).filter_map(|(order, stored)| match order {
            Prepared::Schedule { name: Some((name, print)), .. } => {
                Some((*name, *print, (*stored)?))
            }
            _ => None,
        });
        let Some(first) = named.next() else { return };
        let mut table = self.ids.write();
        table.begin_at(start);
        for (name, print, id) in std::iter::once(first).chain(named) {
            table.put(name, Value::new(id, print));
        }
    }

    /// Makes visible what stands in the journal. Answers with the outcome which lanes were touched,
    /// and in which of them something is due before what was armed.
    pub(super) fn apply_revision(
        &self,
        revising: Revising,
        start: Position,
    ) -> (Outcome, PerLane<Option<bool>>) {
        let Revising { drafts, moves, outcome, .. } = revising;
        let touched = drafts.map(|_, draft| draft.map(|(draft, _)| self.admit(draft, start)));
        if !moves.is_empty() {
            let mut table = self.ids.write();
            table.begin_at(start);
            for (id, key) in &moves {
                let stands = MessageId { key: *key, ..*id };
                table.put(Name::moved(id.key.sequence), Value::new(stands, 0));
            }
            drop(table);
            let mut changing = self.changing.lock();
            for (id, _) in &moves {
                changing.remove(&id.key.sequence);
            }
        }
        (Outcome::Revised(outcome), touched)
    }

    /// Numbers for the entries of a draft.
    pub(super) fn take_numbers(
        &self,
        next: &mut PerLane<Option<Sequence>>,
        draft: &Draft,
    ) -> Sequence {
        let lane = draft.lane;
        let first = next.of(lane).unwrap_or_else(|| self.tracks.of(lane).next());
        let after = Sequence::new(first.get() + draft.slots.len() as u64);
        let after = after.filter(|after| after.lane() == lane);
        *next.of_mut(lane) = Some(after.expect("55 bits outlast any store"));
        first
    }
}

/// The order to which an occurrence or a half message belongs, if it is one of the same call.
fn belongs_to(extra: &Extra) -> Option<u32> {
    let half = match extra.parked {
        Some(Parked::Half { transaction, .. }) => Some(transaction),
        Some(Parked::Paused { .. }) | None => None,
    };
    match extra.series.or(half)? {
        Link::Order(order) => Some(order),
        Link::Id(_) => None,
    }
}

/// The draft without the entries that are not stored after all.
fn keep_stored(
    draft: Option<Draft>,
    lane: Lane,
    orders: &[Prepared],
    verdicts: &[Verdict],
) -> Option<Draft> {
    let draft = draft?;
    let known = |(order, verdict): (&Prepared, &Verdict)| match (order, verdict) {
        (Prepared::Schedule { lane: of, slot, .. }, Verdict::Known(_) | Verdict::Leave)
            if *of == lane =>
        {
            Some(*slot)
        }
        _ => None,
    };
    let left_out: HashSet<usize> = orders.iter().zip(verdicts).filter_map(known).collect();
    if left_out.is_empty() {
        return Some(draft);
    }
    let draft = draft.without(&left_out);
    (!draft.slots.is_empty()).then_some(draft)
}

/// The id that each order's entry gets, for those that have one.
fn stored_keys(
    drafts: &PerLane<Option<Draft>>,
    firsts: &PerLane<Option<Sequence>>,
    orders: &[Prepared],
    verdicts: &[Verdict],
) -> Vec<Option<MessageId>> {
    let mut places: PerLane<usize> = PerLane::default();
    let mut stored = |(order, verdict): (&Prepared, &Verdict)| {
        let lane = match (order, verdict) {
            (_, Verdict::Known(_) | Verdict::Leave) | (Prepared::Cancel { .. }, _) => return None,
            (Prepared::Schedule { lane, .. }, _) => *lane,
            (Prepared::Replace { id, .. }, _) => id.key.sequence.lane(),
        };
        let place = places.of_mut(lane);
        let slot: &Slot = drafts.of(lane).as_ref()?.slots.get(*place)?;
        let first = (*firsts.of(lane))?;
        let sequence = Sequence::new(first.get() + *place as u64)?;
        *place += 1;
        Some(MessageId { key: slot.key(sequence), topic: slot.topic, partition: slot.partition })
    };
    orders.iter().zip(verdicts).map(&mut stored).collect()
}

impl Revising {
    /// The ids of what its orders store, or have found stored.
    pub(super) fn ids(&self) -> Vec<MessageId> {
        let Revised::Done(done) = &self.outcome else { return Vec::new() };
        let id = |done: &Done| match done {
            Done::Stored(id) | Done::Known(id) => Some(*id),
            _ => None,
        };
        done.iter().filter_map(id).collect()
    }

    /// Whether it has to go to the disk.
    pub(super) const fn is_written(&self) -> bool {
        self.written
    }
}
