//! What is to be done about each order of a revision.
//!
//! Either all orders can be carried out, or the first one that cannot is named and nothing happens.

use std::collections::{HashMap, HashSet};

use punctual_model::ports::{OnConflict, Refusal, StoreError};
use punctual_model::{Key, MessageId, Sequence, State as LifeState, Timestamp};

use crate::ids::{Name, Value};
use crate::store::Store;
use crate::store::places::{Times, is_cancelled, is_pending, remembered};
use crate::store::revise::{Prepared, Revision};
use crate::store::track::States;
use crate::timeline::Standing;

/// What will be done about an order.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    Store,
    /// Store, and withdraw the message that had the own id.
    StoreInstead(MessageId),
    Known(MessageId),
    Move(MessageId),
    Withdraw(MessageId),
    Leave,
}

/// Why nothing is done.
pub(super) enum Stop {
    /// A message is being changed in this very group.
    Later,
    /// Only the log knows what became of a message that had an own id: its id, and where it stood.
    AskLog(MessageId, MessageId),
    Refused(usize, Refusal),
    Store(StoreError),
}

impl Store {
    /// What is to be done about each order; the ends among them are done.
    pub(super) fn decide(
        &self,
        revision: &Revision,
        asked: &HashMap<MessageId, bool>,
    ) -> Result<Vec<Verdict>, Stop> {
        let named = self.named_by(&revision.orders).map_err(Stop::Store)?;
        let target = |(order, value): (&Prepared, &Option<Value>)| match order {
            Prepared::Schedule { .. } => value.map(|value| value.id()),
            Prepared::Replace { id, .. } | Prepared::Cancel { id, .. } => Some(*id),
        };
        let targets: Vec<Option<MessageId>> =
            revision.orders.iter().zip(&named).map(target).collect();
        let ids: Vec<MessageId> = targets.iter().copied().flatten().collect();
        if self.is_changing(&ids) {
            return Err(Stop::Later);
        }
        let places = self.places(&ids).map_err(Stop::Store)?;
        let (mut states, stamps) = self.states_and_stamps(&places).map_err(Stop::Store)?;
        let mut standings = places.into_iter().zip(stamps).map(|(place, stamp)| {
            let state = states.of(place.key.sequence.lane());
            let sequence = place.key.sequence;
            let standing = if revision.claimed {
                state.standing_unclaimed(place, stamp)
            } else {
                state.standing(place, stamp)
            };
            let forgotten = is_cancelled(standing) && !state.is_cancelled_lately(sequence);
            let unborn = sequence >= state.next && sequence.offset().is_none();
            Target { place, standing, unborn, forgotten }
        });
        let times = self.times(revision.now);
        let mut court = Court { times, asked, used: HashSet::new(), named: HashSet::new() };
        let mut verdicts = Vec::with_capacity(revision.orders.len());
        let orders = revision.orders.iter().zip(named).zip(targets).enumerate();
        for (index, ((order, value), target)) in orders {
            let target = target.and_then(|_| standings.next());
            let verdict = match order {
                Prepared::Schedule { belongs_to: Some(to), .. } if is_known(&verdicts, *to) => {
                    Ok(Verdict::Leave)
                }
                order => court.judge(order, value, target),
            };
            verdicts.push(verdict.map_err(|why| match why {
                Why::Later => Stop::Later,
                Why::AskLog(id, place) => Stop::AskLog(id, place),
                Why::Refused(reason) => Stop::Refused(index, reason),
            })?);
        }
        drop(standings);
        self.end_places(&mut states, revision, &verdicts);
        Ok(verdicts)
    }

    /// What the table of ids says of the own ids.
    fn named_by(&self, orders: &[Prepared]) -> Result<Vec<Option<Value>>, StoreError> {
        let table = self.ids.read();
        let named = |order: &Prepared| match order {
            Prepared::Schedule { name: Some((name, _)), .. } => table.get(*name),
            _ => Ok(None),
        };
        orders.iter().map(named).collect()
    }

    fn end_places(&self, states: &mut States<'_>, revision: &Revision, verdicts: &[Verdict]) {
        let mut changing = self.changing.lock();
        for (order, verdict) in revision.orders.iter().zip(verdicts) {
            match (order, verdict) {
                (Prepared::Replace { id, .. }, Verdict::Move(place)) => {
                    changing.insert(id.key.sequence);
                    let state = states.of_mut(place.key.sequence.lane());
                    state.withdraw(place.key, place.topic);
                }
                (_, Verdict::Withdraw(place) | Verdict::StoreInstead(place)) => {
                    let state = states.of_mut(place.key.sequence.lane());
                    state.cancel(place.key, place.topic);
                }
                _ => {}
            }
        }
    }
}

/// The message an order is about.
#[derive(Clone, Copy, Debug)]
struct Target {
    /// Where it stands.
    place: MessageId,
    standing: Standing,
    /// It was accepted in this very group.
    unborn: bool,
    /// It was cancelled so long ago that its own id is free again.
    forgotten: bool,
}

/// Why an order is not carried out.
enum Why {
    Later,
    AskLog(MessageId, MessageId),
    Refused(Refusal),
}

/// Judges the orders of one revision, in turn.
struct Court<'a> {
    times: Times,
    /// What the logs said of messages that only they know.
    asked: &'a HashMap<MessageId, bool>,
    /// Places that an order takes.
    used: HashSet<Sequence>,
    /// Own ids that an order takes.
    named: HashSet<Name>,
}

impl Court<'_> {
    fn judge(
        &mut self,
        order: &Prepared,
        value: Option<Value>,
        target: Option<Target>,
    ) -> Result<Verdict, Why> {
        let verdict = match (order, target) {
            (Prepared::Schedule { name: Some((name, print)), conflict, .. }, target) => {
                let verdict = match (value, target) {
                    (Some(value), Some(target)) => {
                        self.judge_named(value, *print, *conflict, target)?
                    }
                    _ => Verdict::Store,
                };
                // One of this call has it, and has no number yet.
                if !matches!(verdict, Verdict::Known(_)) && !self.named.insert(*name) {
                    return Err(Why::Refused(Refusal::Changed));
                }
                verdict
            }
            (Prepared::Schedule { name: None, .. }, _) => Verdict::Store,
            (Prepared::Replace { expected, .. }, Some(target)) => {
                target.must_be_at(*expected)?;
                Verdict::Move(target.place)
            }
            (Prepared::Cancel { expected: Some(expected), .. }, Some(target)) => {
                target.must_be_at(*expected)?;
                Verdict::Withdraw(target.place)
            }
            (Prepared::Cancel { expected: None, .. }, Some(target))
                if is_pending(target.standing) =>
            {
                Verdict::Withdraw(target.place)
            }
            (Prepared::Replace { .. } | Prepared::Cancel { .. }, _) => Verdict::Leave,
        };
        if let Verdict::Move(place) | Verdict::Withdraw(place) | Verdict::StoreInstead(place) =
            verdict
            && !self.used.insert(place.key.sequence)
        {
            return Err(Why::Refused(Refusal::Changed));
        }
        Ok(verdict)
    }

    /// Of an entry whose own id some message has, or had.
    fn judge_named(
        &self,
        value: Value,
        print: u64,
        conflict: OnConflict,
        target: Target,
    ) -> Result<Verdict, Why> {
        let Target { place, standing, unborn, forgotten } = target;
        let id = value.id();
        let taken = match (remembered(standing, place.key.due, self.times), self.asked.get(&id)) {
            _ if unborn => true,
            _ if forgotten => false,
            (Some(taken), _) | (None, Some(&taken)) => taken,
            (None, None) => return Err(Why::AskLog(id, place)),
        };
        match (taken, conflict) {
            (false, _) => Ok(Verdict::Store),
            (true, OnConflict::Reject) if print == value.print => Ok(Verdict::Known(id)),
            (true, OnConflict::Reject) => Err(Why::Refused(Refusal::OwnIdTaken(id))),
            (true, OnConflict::Replace) if unborn => Err(Why::Later),
            // Half of a transaction gives way to nobody.
            (true, OnConflict::Replace)
                if is_pending(standing) && place.key.due == Timestamp::PREPARED =>
            {
                Err(Why::Refused(Refusal::OwnIdTaken(id)))
            }
            // An order before this one may withdraw it.
            (true, OnConflict::Replace)
                if is_pending(standing) && !self.used.contains(&place.key.sequence) =>
            {
                Ok(Verdict::StoreInstead(place))
            }
            (true, OnConflict::Replace) => Ok(Verdict::Store),
        }
    }
}

impl Target {
    /// Whether it is pending, and where it was seen.
    fn must_be_at(self, expected: Key) -> Result<(), Why> {
        let refusal = match self.standing {
            Standing::In(state) if state.is_pending() => {
                if self.place.key == expected {
                    return Ok(());
                }
                Refusal::Changed
            }
            Standing::In(state) => Refusal::Ended(state),
            // Whoever knows where it stood has seen it pending.
            Standing::Past => Refusal::Ended(LifeState::Delivered),
            Standing::Unknown => Refusal::NotFound,
        };
        Err(Why::Refused(refusal))
    }
}

fn is_known(verdicts: &[Verdict], order: u32) -> bool {
    let verdict = usize::try_from(order).ok().and_then(|order| verdicts.get(order));
    matches!(verdict, Some(Verdict::Known(_)))
}
