//! Change: another time or content for a pending message, a pause, a delivery right now, its end.
//!
//! A change reads where the message stands, decides what it becomes, and puts that in its place only
//! if it still stands there; whoever was faster is read again. So of two changes none gets lost, and
//! a message is delivered for the time it was given last, never for an earlier one.
//!
//! A pause stops the countdown, of a date too: what was left of it is left when it goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use punctual_model::ports::{
    CancelOutcome, Done, Found, Order, PendingEntry, Refusal, Revised, StoreError, Timeline, Topic,
};
use punctual_model::{
    Action, Basis, Changed, Entry, Event, Header, Key, Lane, Message, MessageId, Parked, Span,
    State, Timestamp, TopicId, TopicKind, limits,
};

use crate::broker::Broker;
use crate::group::TTL_HEADER;
use crate::lookup::{Report, due_of};
use crate::place::{ASKING_HEADERS, Placing, SENDER_HEADER, check_headers};
use crate::schedule::{Invalid, When};
use crate::series::cancel_orders;
use crate::time::Now;

/// How often a change is tried against others that are faster.
const TRIES: usize = 100;

/// What to change; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Another time. A paused message stays paused, with that much left to wait.
    pub when: Option<When>,
    /// Whether its countdown stands still.
    pub paused: Option<bool>,
    /// Another body.
    pub body: Option<Bytes>,
    /// Other headers, instead of all that its sender gave it.
    pub headers: Option<Vec<Header>>,
    /// How long after its due time it may be given to a group.
    pub ttl: Option<Span>,
    /// Only if it still has this version.
    pub version: Option<u32>,
}

/// Why a message was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// No such message is known.
    #[error("no such message")]
    NotFound,
    /// It was delivered.
    #[error("the message was delivered already")]
    AlreadyDelivered,
    /// It was cancelled.
    #[error("the message was cancelled already")]
    AlreadyCancelled,
    /// It was changed since it was read.
    #[error("the message has version {current} now")]
    VersionConflict {
        /// The version it has now.
        current: u32,
    },
    /// It is a half message: its transaction decides about it.
    #[error("the message is part of a transaction that is not decided")]
    Prepared,
    /// It is a series, which can only be cancelled.
    #[error("a series can be cancelled, not changed")]
    Series,
    /// It would become something that is not accepted.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<T: Timeline> Broker<T> {
    /// Changes a pending message; its id stays. `Ok` means that the change survives a crash, and
    /// tells what the message has become.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn change(&self, id: MessageId, change: Change) -> Result<Report, ChangeError> {
        for _ in 0..TRIES {
            let (topic, entry) = self.changeable(id).await?;
            let current = entry.version();
            if change.version.is_some_and(|version| version != current) {
                return Err(ChangeError::VersionConflict { current });
            }
            let now = self.shared.time.read();
            let Some(new) = change.apply(&self.shared.placing, &topic, &entry, now)? else {
                return Ok(Report::of_pending(topic, entry));
            };
            let order = Order::Replace { id, expected: entry.key, entry: new.clone() };
            match self.shared.timeline.revise(vec![order]).await? {
                Revised::Done(done) => {
                    let moved = done.first().and_then(moved_to);
                    let key = moved.unwrap_or(Key { due: new.due, ..entry.key });
                    return Ok(Report::of_pending(topic, shown(id, key, new)));
                }
                Revised::Refused { reason, .. } => match reason {
                    Refusal::Changed | Refusal::OwnIdTaken(_) => {}
                    Refusal::Ended(state) => return Err(ended(state)),
                    Refusal::NotFound => return Err(ChangeError::NotFound),
                },
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Makes a pending message due now, also if it is paused.
    ///
    /// # Errors
    /// See [`ChangeError`].
    pub async fn deliver_now(&self, id: MessageId) -> Result<Report, ChangeError> {
        self.change(id, Change::deliver_now()).await
    }

    /// Withdraws messages that have not fired, each with a definite outcome; of a series also the
    /// occurrence that is to come. `Ok` means that the outcomes survive a crash.
    ///
    /// # Errors
    /// As the store says.
    pub async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        let special: Vec<(usize, MessageId)> = ids
            .iter()
            .enumerate()
            .filter(|(_, id)| id.key.sequence.lane() == Lane::Retry)
            .map(|(place, id)| (place, *id))
            .collect();
        let topics: Vec<TopicId> = ids.iter().map(|id| id.topic).collect();
        let mut plain = ids;
        plain.retain(|id| id.key.sequence.lane() == Lane::Message);
        let mut outcomes = match plain.is_empty() {
            true => Vec::new(),
            false => self.shared.timeline.cancel(plain).await?,
        };
        for (place, id) in special {
            outcomes.insert(place, self.cancel_control(id).await?);
        }
        let outcomes_of = topics.into_iter().zip(&outcomes);
        let cancelled = outcomes_of.filter(|(_, outcome)| **outcome == CancelOutcome::Cancelled);
        let cancelled: Vec<TopicId> = cancelled.map(|(topic, _)| topic).collect();
        let counters = &self.shared.counters;
        counters.cancelled.fetch_add(cancelled.len() as u64, Ordering::Relaxed);
        counters.topics.note_each(cancelled.into_iter(), |of| &of.cancelled);
        Ok(outcomes)
    }

    /// Withdraws a message if it still has that version. `Ok` means that this survives a crash.
    ///
    /// # Errors
    /// See [`ChangeError`]; a series has no version.
    pub async fn cancel_version(&self, id: MessageId, version: u32) -> Result<(), ChangeError> {
        for _ in 0..TRIES {
            let (_, entry) = self.changeable(id).await?;
            if entry.state() == State::Prepared {
                return Err(ChangeError::Prepared);
            }
            let current = entry.version();
            if current != version {
                return Err(ChangeError::VersionConflict { current });
            }
            let order = Order::Cancel { id, expected: Some(entry.key) };
            match self.shared.timeline.revise(vec![order]).await? {
                Revised::Done(_) => {
                    self.shared.counters.withdrawn(id.topic, 1);
                    return Ok(());
                }
                Revised::Refused { reason, .. } => match reason {
                    Refusal::Changed | Refusal::OwnIdTaken(_) => {}
                    Refusal::Ended(state) => return Err(ended(state)),
                    Refusal::NotFound => return Err(ChangeError::NotFound),
                },
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Withdraws an entry of the retry lane, which may be a series.
    async fn cancel_control(&self, id: MessageId) -> Result<CancelOutcome, StoreError> {
        if id.topic == TopicId::TRANSACTIONS {
            return Ok(CancelOutcome::NotFound);
        }
        for _ in 0..TRIES {
            let found = self.shared.timeline.find(vec![id]).await?.into_iter().next().flatten();
            let series = found.and_then(|found| found.entry).filter(is_series);
            let Some(series) = series else {
                let outcomes = self.shared.timeline.cancel(vec![id]).await?;
                return Ok(outcomes.into_iter().next().unwrap_or(CancelOutcome::NotFound));
            };
            match self.shared.timeline.revise(cancel_orders(&series)).await? {
                Revised::Done(_) => return Ok(CancelOutcome::Cancelled),
                // Another occurrence is to come by now, or somebody else has ended the series.
                Revised::Refused { .. } => {}
            }
        }
        Err(StoreError::Busy)
    }

    /// The message, if it is pending and not somebody else's to change.
    async fn changeable(&self, id: MessageId) -> Result<(Arc<Topic>, PendingEntry), ChangeError> {
        let topic = self.shared.topics.by_id(id.topic);
        let topic = topic.filter(|topic| topic.kind == TopicKind::Plain);
        let topic = topic.ok_or(ChangeError::NotFound)?;
        let found = self.shared.timeline.find(vec![id]).await?.into_iter().next().flatten();
        let Some(Found { state, entry }) = found else { return Err(ChangeError::NotFound) };
        let entry = entry.ok_or_else(|| ended(state))?;
        match entry.extra.as_ref().map(|extra| extra.action) {
            None | Some(Action::Deliver) => Ok((topic, entry)),
            Some(Action::Repeat) => Err(ChangeError::Series),
            Some(Action::Check) => Err(ChangeError::NotFound),
        }
    }
}

impl Change {
    /// Makes a message due now, also if it is paused.
    #[must_use]
    pub fn deliver_now() -> Self {
        Self { when: Some(When::Now), paused: Some(false), ..Self::default() }
    }

    /// What the entry becomes, under the next version; `None` when that is what it is.
    pub(crate) fn apply(
        &self,
        placing: &Placing,
        topic: &Topic,
        entry: &PendingEntry,
        now: Now,
    ) -> Result<Option<Entry>, ChangeError> {
        let state = self.state_after(entry.state())?;
        if !self.touches() && state == entry.state() {
            return Ok(None);
        }
        let new = self.when.map(|when| placing.jittered_due(when, &topic.settings, now));
        let wait = Wait::of(entry, new.transpose()?, now);
        let (due, basis, parked) = wait.in_state(state, now)?;
        let message = self.edit(placing, &entry.message)?;
        Ok(Some(replacement(entry, (due, basis, parked), message)))
    }

    fn touches(&self) -> bool {
        self.when.is_some() || self.body.is_some() || self.headers.is_some() || self.ttl.is_some()
    }

    fn state_after(&self, state: State) -> Result<State, ChangeError> {
        let change = self.touches().then_some(Event::Change);
        let paused = self.paused.map(|paused| if paused { Event::Pause } else { Event::Resume });
        // An entry that is there and cannot take one of these steps waits for its transaction.
        let step = |state: State, event| state.after(event).ok_or(ChangeError::Prepared);
        step(state, Event::Change)?;
        change.into_iter().chain(paused).try_fold(state, step)
    }

    fn edit(&self, placing: &Placing, message: &Message) -> Result<Message, Invalid> {
        let mut message = message.clone();
        if let Some(body) = &self.body {
            placing.check_body(body.len())?;
            message.body = body.clone();
        }
        if let Some(headers) = &self.headers {
            check_headers(headers)?;
            // What it asked for when it was sent still counts, unless it asks anew; and who sent it
            // is not changed by whoever edits it.
            message.headers.retain(|header| {
                header.name == SENDER_HEADER
                    || ASKING_HEADERS.contains(&header.name.as_str())
                        && headers.iter().all(|new| new.name != header.name)
            });
            let given = headers.iter().filter(|header| header.name != SENDER_HEADER);
            message.headers.splice(0..0, given.cloned());
        }
        if let Some(ttl) = self.ttl {
            message.headers.retain(|header| header.name != TTL_HEADER);
            let value = ttl.as_millis().to_string().into();
            message.headers.push(Header { name: TTL_HEADER.to_owned(), value });
        }
        // Edits must not let more pile up than a new message may have.
        if message.headers.len() > limits::HEADERS_MAX + limits::OWN_HEADERS_MAX {
            return Err(Invalid::TooManyHeaders);
        }
        Ok(message)
    }
}

/// The entry that takes the place of another, under the next version.
pub(crate) fn replacement(
    entry: &PendingEntry,
    (due, basis, parked): (Timestamp, Basis, Option<Parked>),
    message: Message,
) -> Entry {
    let MessageId { key: first, topic, partition } = entry.id;
    let version = entry.version().saturating_add(1);
    let extra = entry.extra.clone();
    Entry { topic, partition, due, basis, message, extra }.with_extra(|extra| {
        extra.changed = Some(Changed { first, version });
        extra.parked = parked;
    })
}

/// How long a message has to wait, as both states count it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// When it is due, or was before a pause.
    pub(crate) due: Timestamp,
    pub(crate) basis: Basis,
    pub(crate) remaining: Span,
    /// Whether `due` means nothing any more, because the countdown stood still.
    pub(crate) stood_still: bool,
}

impl Wait {
    /// Until the new time, or else as before.
    pub(crate) fn of(entry: &PendingEntry, new: Option<(Timestamp, Basis)>, now: Now) -> Self {
        if let Some((due, basis)) = new {
            // A delay was counted from the same moment, so nothing of it is lost.
            let from = match basis {
                Basis::Delay => now.timestamp_up(),
                Basis::Date => now.wall_timestamp(),
            };
            return Self { due, basis, remaining: due.since(from), stood_still: false };
        }
        let (due, basis) = (due_of(entry), entry.basis);
        match entry.extra.as_ref().and_then(|extra| extra.parked) {
            Some(Parked::Paused { remaining, .. }) => {
                Self { due, basis, remaining, stood_still: true }
            }
            None | Some(Parked::Half { .. }) => {
                let from = match basis {
                    Basis::Delay => now.timestamp(),
                    Basis::Date => now.wall_timestamp(),
                };
                Self { due, basis, remaining: due.since(from), stood_still: false }
            }
        }
    }

    /// Where that puts the message on the timeline.
    pub(crate) fn in_state(
        self,
        state: State,
        now: Now,
    ) -> Result<(Timestamp, Basis, Option<Parked>), Invalid> {
        let Self { due, basis, remaining, stood_still } = self;
        if state == State::Paused {
            // Nothing left means that the pause of a topic holds it, and ends with that.
            let remaining = remaining.max(Span::from_millis(1));
            return Ok((Timestamp::PAUSED, basis, Some(Parked::Paused { remaining, due })));
        }
        if !stood_still {
            return Ok((due, basis, None));
        }
        let due = now.timestamp_up().checked_add(remaining).filter(|due| !due.is_parked());
        Ok((due.ok_or(Invalid::DueOutOfRange)?, Basis::Delay, None))
    }
}

/// Whether what stands there is a series, not a message.
pub(crate) fn is_series(entry: &PendingEntry) -> bool {
    entry.extra.as_ref().is_some_and(|extra| extra.action == Action::Repeat)
}

fn shown(id: MessageId, key: Key, entry: Entry) -> PendingEntry {
    let Entry { basis, message, extra, .. } = entry;
    PendingEntry { id, key, basis, message, extra }
}

fn moved_to(done: &Done) -> Option<Key> {
    match done {
        Done::Moved(key) => Some(*key),
        Done::Stored(_) | Done::Known(_) | Done::Cancelled | Done::Nothing => None,
    }
}

fn ended(state: State) -> ChangeError {
    match state {
        State::Delivered => ChangeError::AlreadyDelivered,
        State::Cancelled => ChangeError::AlreadyCancelled,
        State::Scheduled | State::Paused | State::Prepared => ChangeError::NotFound,
    }
}
