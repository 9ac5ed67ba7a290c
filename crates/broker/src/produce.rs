//! Produce: a batch goes into a log as its sender encoded it, and what is wanted later is taken out of
//! it to the timeline.
//!
//! What a message is held to does not depend on the way it came: times, limits and defaults are those
//! of *schedule*. The batch and what was taken out of it are stored together or not at all, and what
//! the batch withdraws is withdrawn once it is stored.
//!
//! A batch is begun in [`Broker::produce`] and finished in [`Producing::finish`]: those that were begun
//! one after the other take their offsets in that order, whoever finishes first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use punctual_model::ports::{
    Append, AppendError, Appended, CancelOutcome, LogPosition, Records, StoreError, Timeline, Topic,
};
use punctual_model::{Entry, MessageId, Partition};

use crate::broker::Broker;
use crate::place::fingerprint;
use crate::schedule::{Invalid, Request, ScheduleError, Scheduled};
use crate::time::Now;
use crate::watch::Acceptance;

/// A batch for one partition.
#[derive(Clone, Debug)]
pub struct Produce {
    /// The topic.
    pub topic: Arc<Topic>,
    /// The partition. What is taken out is delivered to it too.
    pub partition: Partition,
    /// What stays, as it shall lie in the log: a batch that takes the offsets of everything that was
    /// in it.
    pub batch: Bytes,
    /// Number of messages that stay.
    pub stays: u64,
    /// What is taken out, each with the distance of its offset from the first, which ascends.
    pub taken: Vec<(u32, Request)>,
    /// Messages that are withdrawn.
    pub cancels: Vec<Cancel>,
}

/// Which message is withdrawn; one of another topic is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// The one with this id.
    Id(MessageId),
    /// The one that its sender called so.
    Own(Arc<str>),
    /// The one that was taken out at this place.
    Reserved {
        /// The partition.
        partition: Partition,
        /// The offset.
        offset: u64,
    },
}

/// A batch that was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Produced {
    /// The offset of its first record.
    pub base_offset: u64,
    /// Where the log starts.
    pub start: u64,
    /// Whether it had been stored before.
    pub duplicate: bool,
}

/// Why a batch was not stored. Nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProduceError {
    /// No such topic or partition, or its log is not here.
    #[error("no such topic or partition")]
    NotFound,
    /// The topic belongs to a group, which alone writes to it.
    #[error("the topic belongs to a group")]
    Reserved,
    /// As much waits for a group of the topic as may.
    #[error("too many messages wait in the topic")]
    BacklogFull,
    /// A message asks for something that is not possible.
    #[error("{reason}")]
    Invalid {
        /// The distance of its offset from the first.
        delta: u32,
        /// What is wrong with it.
        reason: Invalid,
    },
    /// Another request has the own id of a message.
    #[error("another message has this id")]
    OwnIdTaken {
        /// The distance of its offset from the first.
        delta: u32,
    },
    /// The bytes are not one whole, intact batch.
    #[error("not an intact batch")]
    Malformed,
    /// Batches of this producer are missing before it.
    #[error("the producer's sequence has a gap")]
    OutOfOrder,
    /// It was stored so long ago that its offset is forgotten.
    #[error("an old duplicate")]
    OldDuplicate,
    /// The producer has a newer epoch.
    #[error("the epoch of the producer is over")]
    StaleEpoch,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Appending = Pin<Box<dyn Future<Output = Result<Appended, AppendError>> + Send>>;

/// A batch on its way into the log. It goes on if this is dropped, but nobody hears of it then.
#[must_use = "what waits for messages hears of these only when they are finished"]
pub struct Producing<T> {
    broker: Broker<T>,
    topic: Arc<Topic>,
    partition: Partition,
    stays: u64,
    /// The distances of what was taken out.
    deltas: Vec<u32>,
    cancels: Vec<Cancel>,
    acceptance: Acceptance,
    appending: Appending,
}

impl<T> std::fmt::Debug for Producing<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { partition, stays, deltas, .. } = self;
        f.debug_struct("Producing")
            .field("partition", partition)
            .field("stays", stays)
            .field("taken", &deltas.len())
            .finish_non_exhaustive()
    }
}

impl<T: Timeline> Broker<T> {
    /// Checks a batch and hands it to the store. Its place among others is that of this call.
    ///
    /// # Errors
    /// See [`ProduceError`]; those of the store come at the end.
    pub async fn produce(&self, produce: Produce) -> Result<Producing<T>, ProduceError> {
        let Produce { topic, partition, batch, stays, taken, cancels } = produce;
        let records = Arc::clone(self.records()?);
        let now = self.shared.time.read();
        for (delta, request) in &taken {
            let checked = self.shared.placing.check(request, &topic.settings, now);
            checked.map_err(|reason| ProduceError::Invalid { delta: *delta, reason })?;
        }
        let bytes: usize = taken.iter().map(|(_, request)| request.message.weight()).sum();
        let (messages, bytes) = (stays + taken.len() as u64, batch.len() as u64 + bytes as u64);
        self.admit(&topic, messages, bytes).await?;
        let deltas = taken.iter().map(|(delta, _)| *delta).collect();
        let (entries, acceptance) = self.take_out(&topic, partition, taken, now)?;
        let (topic_id, aliases) = (topic.id, Vec::new());
        let append = Append { topic: topic_id, partition, batch, entries, aliases };
        let appending = records.append(append);
        let broker = self.clone();
        Ok(Producing { broker, topic, partition, stays, deltas, cancels, acceptance, appending })
    }

    fn records(&self) -> Result<&Arc<dyn Records>, ProduceError> {
        self.shared.records.as_ref().ok_or(ProduceError::NotFound)
    }

    /// The entries of what is taken out of a batch.
    fn take_out(
        &self,
        topic: &Topic,
        partition: Partition,
        taken: Vec<(u32, Request)>,
        now: Now,
    ) -> Result<(Vec<(u32, Entry)>, Acceptance), ProduceError> {
        let mut acceptance = Acceptance::default();
        let mut entries = Vec::with_capacity(taken.len());
        for (delta, mut request) in taken {
            // The partition is not what was asked for: whoever repeats a request may choose another.
            request.partition = None;
            let print = request.own_id.as_ref().map_or(0, |_| fingerprint(&request, &[]));
            request.partition = Some(partition.get());
            self.watch_one(&topic.name, &mut request, &mut acceptance);
            let entry = self.shared.placing.place_printed(topic, request, print, now);
            let entry = entry.map_err(|reason| ProduceError::Invalid { delta, reason })?;
            entries.push((delta, entry));
        }
        Ok((entries, acceptance))
    }

    /// Withdraws messages. What is not there, or not pending any more, is left alone.
    async fn withdraw(&self, topic: &Topic, cancels: Vec<Cancel>) -> Result<(), StoreError> {
        let mut ids = Vec::with_capacity(cancels.len());
        let mut names = Vec::new();
        let mut places = Vec::new();
        for cancel in cancels {
            match cancel {
                Cancel::Id(id) => ids.push(id),
                Cancel::Own(name) => names.push(name),
                Cancel::Reserved { partition, offset } => {
                    places.push(LogPosition { topic: topic.id, partition, offset });
                }
            }
        }
        if !names.is_empty() {
            ids.extend(self.shared.timeline.named(topic.id, names).await?.into_iter().flatten());
        }
        if let Some(records) = self.shared.records.clone().filter(|_| !places.is_empty()) {
            let found = self.shared.errands.run(move || {
                places.into_iter().map(|at| records.reserved(at)).collect::<Result<Vec<_>, _>>()
            });
            ids.extend(found.await??.into_iter().flatten());
        }
        ids.retain(|id| id.topic == topic.id);
        if ids.is_empty() {
            return Ok(());
        }
        let outcomes = self.cancel(ids).await?;
        let cancelled = outcomes.iter().filter(|one| **one == CancelOutcome::Cancelled).count();
        tracing::debug!(topic = %topic.name, asked = outcomes.len(), cancelled, "messages withdrawn");
        Ok(())
    }
}

impl<T: Timeline> Producing<T> {
    /// Waits until the batch is stored, tells whoever waits for messages, and withdraws what it
    /// withdraws. `Ok` means that all of it survives a crash.
    ///
    /// # Errors
    /// See [`ProduceError`]. After one of the store the batch may have been stored; whoever sends it
    /// again with the same sequence is told so.
    pub async fn finish(self) -> Result<Produced, ProduceError> {
        let Self { broker, topic, partition, stays, deltas, cancels, acceptance, appending } = self;
        let appended = appending.await.map_err(|error| of_append(error, &deltas))?;
        let Appended { base_offset, start, ids, duplicate } = appended;
        let shared = &broker.shared;
        if !duplicate {
            let count = usize::try_from(stays).unwrap_or(usize::MAX);
            shared.consumers.appended(topic.id, partition, count);
            let counters = &shared.counters;
            counters.accepted(topic.id, stays + deltas.len() as u64);
            counters.fired.fetch_add(stays, Ordering::Relaxed);
            counters.delivered.fetch_add(stays, Ordering::Relaxed);
            counters.topics.note(topic.id, |of| &of.fired, stays);
            counters.topics.note(topic.id, |of| &of.delivered, stays);
            let scheduled: Vec<Scheduled> = ids.into_iter().map(Scheduled::new).collect();
            acceptance.done(&scheduled, || shared.time.read().wall);
        }
        if !cancels.is_empty() {
            broker.withdraw(&topic, cancels).await?;
        }
        Ok(Produced { base_offset, start, duplicate })
    }
}

fn of_append(error: AppendError, deltas: &[u32]) -> ProduceError {
    match error {
        AppendError::NotFound => ProduceError::NotFound,
        AppendError::Reserved => ProduceError::Reserved,
        AppendError::Malformed => ProduceError::Malformed,
        AppendError::OwnIdTaken { index, .. } => {
            ProduceError::OwnIdTaken { delta: deltas.get(index).copied().unwrap_or_default() }
        }
        AppendError::OutOfOrder => ProduceError::OutOfOrder,
        AppendError::OldDuplicate => ProduceError::OldDuplicate,
        AppendError::StaleEpoch => ProduceError::StaleEpoch,
        AppendError::Store(error) => ProduceError::Store(error),
    }
}

impl From<ScheduleError> for ProduceError {
    /// What keeps a whole topic from taking messages.
    fn from(error: ScheduleError) -> Self {
        match error {
            ScheduleError::TopicNotFound | ScheduleError::TooManyTopics => Self::NotFound,
            ScheduleError::Reserved => Self::Reserved,
            ScheduleError::BacklogFull => Self::BacklogFull,
            ScheduleError::Invalid { reason, .. } => Self::Invalid { delta: 0, reason },
            ScheduleError::OwnIdTaken { .. } => Self::OwnIdTaken { delta: 0 },
            ScheduleError::Store(error) => Self::Store(error),
        }
    }
}
