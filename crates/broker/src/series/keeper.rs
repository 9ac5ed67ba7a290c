//! Keeps series going: puts the next occurrence on the timeline when one is due, and ends what is
//! cancelled.
//!
//! Each step is one change of the timeline: the series moves on and its occurrences are there, or
//! neither. Whoever changes or cancels a series in between wins; the step is then refused whole.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use punctual_model::ports::{
    Armed, CancelOutcome, Done, OnConflict, Order, PendingEntry, PendingPage, PendingQuery,
    Refusal, Revised, StoreError, Timeline, Topic, Topics,
};
use punctual_model::{
    Action, Basis, CatchUp, Changed, Entry, Key, Lane, Link, Message, MessageId, Parked, Partition,
    Span, State, Timestamp, TopicId,
};

use super::plan::{Moment, Plan, plan};
use super::spec::{Place, Repeat, Spec};
use crate::activity::Activity;
use crate::change::is_series;
use crate::stats::Counters;
use crate::time::{BrokerTime, Now};

/// Occurrences put on the timeline with one change, and bytes of their messages.
const MADE_MAX: usize = 1000;
const MADE_BYTES_MAX: usize = 4 << 20;
/// Times looked at before a change is made: what is skipped after down-time has its bound too.
const SEARCH_MAX: usize = 10_000;
/// How long a series waits that cannot be read, such as one in a zone that is not known any more.
const UNREADABLE_WAIT: Span = Span::from_secs(3600);
/// How often a cancel starts over because the series moved meanwhile.
const CANCEL_TRIES: usize = 1000;

/// A series as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// Its id.
    pub id: MessageId,
    /// When it comes round.
    pub repeat: Repeat,
    /// The message that does.
    pub message: Message,
    /// When the next occurrence is due.
    pub next: Timestamp,
    /// The number of that occurrence, counted from 1.
    pub number: u64,
    /// That occurrence; it may have been cancelled.
    pub occurrence: Option<MessageId>,
    /// What becomes of times that are missed, if not as the topic says.
    pub catch_up: Option<CatchUp>,
    /// Into which partition occurrences go, if always into the same.
    pub partition: Option<Partition>,
}

/// The series that a pending entry is; `None` if it is none, or not one that this broker can read.
#[must_use]
pub fn describe(entry: &PendingEntry) -> Option<Series> {
    let extra = entry.extra.as_ref().filter(|extra| extra.action == Action::Repeat)?;
    let (spec, message) = Spec::decode(&entry.message).ok()?;
    Some(Series {
        id: entry.id,
        repeat: spec.repeat,
        message,
        next: match extra.parked {
            Some(Parked::Paused { due, .. }) => due,
            Some(Parked::Half { .. }) | None => entry.key.due,
        },
        number: spec.place.number,
        occurrence: extra.links.first().and_then(|link| link.id()),
        catch_up: spec.catch_up,
        partition: spec.partition,
    })
}

/// The orders that withdraw a series and its occurrence. Refused as changed when it moves first.
#[must_use]
pub fn cancel_orders(entry: &PendingEntry) -> Vec<Order> {
    let links = entry.extra.iter().flat_map(|extra| &extra.links);
    let occurrence = links.filter_map(|link| link.id());
    let mut orders = vec![Order::Cancel { id: entry.id, expected: Some(entry.key) }];
    orders.extend(occurrence.map(|id| Order::Cancel { id, expected: None }));
    orders
}

/// Due series that could not be handled.
#[derive(Debug)]
pub struct Unhandled {
    /// Why the first of them was not.
    pub error: StoreError,
    /// These are to be offered again.
    pub left: Vec<Armed>,
}

/// Keeps series going. Clones are the same one.
#[derive(Debug)]
pub struct Keeper<T> {
    shared: Arc<Parts<T>>,
}

struct Parts<T> {
    timeline: Arc<T>,
    topics: Arc<dyn Topics>,
    time: Arc<BrokerTime>,
    counters: Arc<Counters>,
    /// What fell due before this was missed, in milliseconds since the epoch.
    started: AtomicU64,
}

impl<T> Clone for Keeper<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> std::fmt::Debug for Parts<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts").field("started", &self.started).finish_non_exhaustive()
    }
}

impl<T: Timeline> Keeper<T> {
    /// A keeper that starts now: what fell due before was missed.
    #[must_use]
    pub fn new(
        timeline: Arc<T>,
        topics: Arc<dyn Topics>,
        time: Arc<BrokerTime>,
        counters: Arc<Counters>,
    ) -> Self {
        let started = AtomicU64::new(time.read().timestamp().as_millis());
        Self { shared: Arc::new(Parts { timeline, topics, time, counters, started }) }
    }

    /// The machine was asleep until `moment`: what fell due before was missed, as if the broker had
    /// started then.
    pub fn woke_up(&self, moment: Timestamp) {
        self.shared.started.fetch_max(moment.as_millis(), Ordering::Relaxed);
    }

    /// What the broker is busy with.
    pub(super) fn activity(&self) -> &Activity {
        self.shared.time.activity()
    }

    fn started(&self) -> Timestamp {
        Timestamp::from_millis_saturating(self.shared.started.load(Ordering::Relaxed))
    }

    /// Moves due series on, each independent of the others, and releases them.
    ///
    /// # Errors
    /// [`Unhandled`] with those to which the store did not answer.
    pub async fn handle(&self, batch: Vec<Armed>) -> Result<(), Unhandled> {
        let now = self.shared.time.read();
        let orders: Vec<Vec<Order>> = batch.iter().map(|armed| self.orders(armed, now)).collect();
        // All at once, so that they share a flush.
        let revise = |orders: Vec<Order>| -> Pin<Box<dyn Future<Output = _> + Send + '_>> {
            Box::pin(self.shared.timeline.revise(orders))
        };
        let outcomes = join_all(orders.into_iter().map(revise).collect()).await;
        let mut done = Vec::with_capacity(batch.len());
        let mut left = Vec::new();
        let mut failure = None;
        for (armed, outcome) in batch.into_iter().zip(outcomes) {
            match outcome {
                Ok(revised) => {
                    self.note(&armed, &revised);
                    done.push(armed);
                }
                Err(error) => {
                    failure.get_or_insert(error);
                    left.push(armed);
                }
            }
        }
        if !done.is_empty()
            && let Err(error) = self.shared.timeline.release(&done).await
        {
            // They have moved on: offered again, they are refused and released then.
            left.extend(done);
            failure.get_or_insert(error);
        }
        failure.map_or(Ok(()), |error| Err(Unhandled { error, left }))
    }

    /// The pending entry of a series; `None` when it is no series, or one that has ended.
    ///
    /// # Errors
    /// As the store says.
    pub async fn get(&self, id: MessageId) -> Result<Option<PendingEntry>, StoreError> {
        let found = self.shared.timeline.find(vec![id]).await?.into_iter().next().flatten();
        let entry = found.and_then(|found| found.entry);
        Ok(entry.filter(|entry| describe(entry).is_some()))
    }

    /// Whether an occurrence that was missed has a later one that was missed as well, so that it is
    /// not the latest.
    ///
    /// # Errors
    /// As the store says.
    pub async fn overtaken(&self, occurrence: &Armed) -> Result<bool, StoreError> {
        let series = occurrence.extra.as_ref().and_then(|extra| extra.series);
        let Some(id) = series.and_then(Link::id) else { return Ok(false) };
        let found = self.shared.timeline.find(vec![id]).await?.into_iter().next().flatten();
        let Some(entry) = found.and_then(|found| found.entry) else { return Ok(false) };
        // A series that has moved on has decided about it already.
        let Some(series) = describe(&entry) else { return Ok(false) };
        if series.occurrence != Some(occurrence.id()) {
            return Ok(false);
        }
        let Ok((spec, _)) = Spec::decode(&entry.message) else { return Ok(false) };
        let started = self.started();
        let missed = |place: Place| place.time < started;
        Ok(missed(spec.place) && spec.after(spec.place).is_some_and(missed))
    }

    /// Withdraws a series and the occurrence that is to come. `Ok` means the outcome survives a
    /// crash.
    ///
    /// # Errors
    /// As the store says.
    pub async fn cancel(&self, id: MessageId) -> Result<CancelOutcome, StoreError> {
        for _ in 0..CANCEL_TRIES {
            let found = self.shared.timeline.find(vec![id]).await?.into_iter().next().flatten();
            let Some(found) = found else { return Ok(CancelOutcome::NotFound) };
            let Some(entry) = found.entry else { return Ok(ended(found.state)) };
            if !is_series(&entry) {
                return Ok(CancelOutcome::NotFound);
            }
            match self.shared.timeline.revise(cancel_orders(&entry)).await? {
                Revised::Done(done) => {
                    let cancelled = done.iter().skip(1).filter(|done| **done == Done::Cancelled);
                    let cancelled = cancelled.count() as u64;
                    self.shared.counters.withdrawn(id.topic, cancelled);
                    return Ok(CancelOutcome::Cancelled);
                }
                Revised::Refused { reason: Refusal::Ended(state), .. } => return Ok(ended(state)),
                Revised::Refused { .. } => {}
            }
        }
        Err(StoreError::Busy)
    }

    /// One page of the series of a topic, by the time of their next occurrence.
    ///
    /// # Errors
    /// As the store says.
    pub async fn list(
        &self,
        topic: TopicId,
        after: Option<Key>,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        let query = PendingQuery { after, ..PendingQuery::all_of(topic, Lane::Retry, limit) };
        let mut page = self.shared.timeline.pending(query).await?;
        page.entries.retain(is_series);
        Ok(page)
    }

    /// What a due series wants done.
    fn orders(&self, armed: &Armed, now: Now) -> Vec<Order> {
        let end = Order::Cancel { id: armed.id(), expected: Some(armed.key) };
        let Some(topic) = self.shared.topics.by_id(armed.topic) else { return vec![end] };
        let (spec, template) = match Spec::decode(&armed.message) {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(series = %armed.id(), %error, "a series cannot be read; it waits");
                let due = now.timestamp().saturating_add(UNREADABLE_WAIT);
                return vec![moved(armed, due, armed.message.clone(), None)];
            }
        };
        if topic.settings.paused {
            return vec![parked(armed)];
        }
        let reached = match armed.basis {
            Basis::Delay => now.timestamp(),
            Basis::Date => now.wall_timestamp(),
        };
        let plan = plan(
            &spec,
            Moment {
                now: reached,
                started: self.started(),
                catch_up: spec.catch_up.unwrap_or(topic.settings.catch_up),
                made_max: (MADE_BYTES_MAX / template.weight().max(1)).clamp(1, MADE_MAX),
                search_max: SEARCH_MAX,
            },
        );
        carry_out(&plan, spec, &template, armed, &topic).unwrap_or_else(|| vec![end])
    }

    fn note(&self, armed: &Armed, revised: &Revised) {
        match revised {
            Revised::Done(done) => {
                let made = done.iter().filter(|done| matches!(done, Done::Stored(_))).count();
                self.shared.counters.accepted(armed.topic, made as u64);
            }
            // Cancelled or changed meanwhile: whoever did that has decided what comes next.
            Revised::Refused { reason, .. } => {
                tracing::debug!(series = %armed.id(), ?reason, "a series did not move on");
            }
        }
    }
}

/// The orders of a plan; `None` when the series has ended.
fn carry_out(
    plan: &Plan,
    mut spec: Spec,
    template: &Message,
    armed: &Armed,
    topic: &Topic,
) -> Option<Vec<Order>> {
    let place = plan.place?;
    let due = |place: Place| place.time.saturating_add(spec.jitter(topic, place));
    let occurrence = |place: &Place| {
        let entry = Entry {
            topic: armed.topic,
            partition: spec.partition(topic, *place),
            due: due(*place),
            basis: armed.basis,
            message: template.clone(),
            extra: None,
        };
        let entry = entry.with_extra(|extra| extra.series = Some(Link::Id(armed.id())));
        Order::Schedule { lane: Lane::Message, entry, conflict: OnConflict::default() }
    };
    let made: Vec<Order> = plan.made.iter().map(occurrence).collect();
    let next = due(place);
    spec.place = place;
    let newest = u32::try_from(made.len()).ok().filter(|count| *count > 0).map(Link::Order);
    let mut orders = vec![moved(armed, next, spec.encode(template), newest)];
    orders.extend(made);
    if plan.overtaken {
        let links = armed.extra.iter().flat_map(|extra| &extra.links);
        let before = links.filter_map(|link| link.id());
        orders.extend(before.map(|id| Order::Cancel { id, expected: None }));
    }
    Some(orders)
}

/// The order that moves a series on; with a newest occurrence that takes the place of the one before.
fn moved(armed: &Armed, due: Timestamp, message: Message, newest: Option<Link>) -> Order {
    let (id, version) = (armed.id(), armed.extra.as_ref().and_then(|extra| extra.changed));
    let entry = Entry {
        topic: armed.topic,
        partition: armed.partition,
        due,
        basis: armed.basis,
        message,
        extra: armed.extra.clone(),
    };
    let entry = entry.with_extra(|extra| {
        // Nobody asked for this change.
        let version = version.map_or(1, |changed| changed.version);
        extra.changed = Some(Changed { first: id.key, version });
        if let Some(newest) = newest {
            extra.links = vec![newest];
        }
    });
    Order::Replace { id, expected: armed.key, entry }
}

/// Lets a series of a paused topic wait, with the occurrence that waits as well, until the pause ends:
/// then the times that passed meanwhile are made up for.
fn parked(armed: &Armed) -> Order {
    let parked = Parked::Paused { remaining: Span::ZERO, due: armed.key.due };
    match moved(armed, Timestamp::PAUSED, armed.message.clone(), None) {
        Order::Replace { id, expected, entry } => {
            let entry = entry.with_extra(|extra| extra.parked = Some(parked));
            Order::Replace { id, expected, entry }
        }
        other => other,
    }
}

fn ended(state: State) -> CancelOutcome {
    match state {
        State::Delivered => CancelOutcome::AlreadyDelivered,
        _ => CancelOutcome::AlreadyCancelled,
    }
}

/// Waits for all futures at once, and answers in their order.
async fn join_all<R>(mut futures: Vec<Pin<Box<dyn Future<Output = R> + Send + '_>>>) -> Vec<R> {
    let mut outcomes: Vec<Option<R>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, outcome) in futures.iter_mut().zip(&mut outcomes) {
            if outcome.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(value) => *outcome = Some(value),
                    Poll::Pending => pending = true,
                }
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
