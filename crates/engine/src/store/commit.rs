//! Changes become durable, then visible, then known to those who asked.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{CancelOutcome, StoreError, Topic};
use punctual_model::{Event, Key, MessageId, Sequence, State as LifeState, TopicId};

use crate::disk;
use crate::journal::Position;
use crate::journal::change::{self, Draft};
use crate::journal::writer::Writer;
use crate::store::{CommitError, InLogs, Outcome, Request, Store};
use crate::timeline::Standing;
use crate::timeline::run::Stamp;

/// Bytes of the journal taken by one cancelled message.
const CANCEL_BYTES: usize = 20;
/// Bytes of the journal taken by a topic at most.
const TOPIC_BYTES: usize = 512;

/// Journal files behind one memory table at most: what a restart has to read.
const JOURNAL_FILES_MAX: u64 = 3;

/// A change on its way into the journal.
enum Step {
    Schedule(Draft, Sequence),
    Cancel(Vec<CancelOutcome>),
    PutTopic(Topic),
    SameTopic(Arc<Topic>),
    DeleteTopic(Option<TopicId>),
    Refused(CommitError),
}

type Answers = Vec<Result<Outcome, CommitError>>;

impl Store {
    /// Makes all of `requests` durable in one group and applies them in order. A change to a topic
    /// is a group of its own: what it comes to depends on the changes before it.
    pub fn commit(&self, requests: Vec<Request>) -> Answers {
        let count = requests.len();
        let refuse = |error: &StoreError| {
            (0..count).map(|_| Err(CommitError::Store(error.clone()))).collect()
        };
        if let Err(error) = self.trust.check() {
            return refuse(&error);
        }
        let mut writer = self.writer.lock();
        let room: usize = requests.iter().map(size).sum();
        if room > writer.payload_max() {
            return refuse(&StoreError::Busy);
        }
        let refused = match self.make_room(&mut writer, &requests) {
            Ok(refused) => refused,
            Err(error) => return refuse(&error),
        };
        let steps = self.prepare(&mut writer, requests, refused);
        if steps.iter().any(Step::is_written) {
            match writer.write() {
                Ok(end) => return self.apply(steps, end),
                Err(error) => return refuse(&self.trust.lose("journal", error)),
            }
        }
        let end = writer.end();
        self.apply(steps, end)
    }

    /// Waits until there is memory for more entries. On a full disk the wait ends as well, since
    /// they will be refused anyway.
    pub fn wait_for_room(&self) {
        let mut state = self.state.lock();
        while !self.is_full() && self.trust.check().is_ok() && self.is_crowded(&state) {
            self.room.wait_for(&mut state, std::time::Duration::from_millis(100));
        }
    }

    fn is_crowded(&self, state: &crate::timeline::State) -> bool {
        let tables =
            state.frozen.is_some() && state.active.table.bytes() >= self.options.table_bytes;
        tables || state.near.bytes() >= 2 * self.options.near_bytes
    }

    /// Makes room in the journal. On a full disk, new entries are refused and room is made for
    /// everything else; then the answer is true.
    fn make_room(&self, writer: &mut Writer, requests: &[Request]) -> Result<bool, StoreError> {
        let failed = |error: io::Error| self.trust.lose("journal", error);
        if !self.is_full() {
            match writer.make_room(requests.iter().map(size).sum()) {
                Err(error) if disk::is_full(&error) => {
                    self.reserve.spend().map_err(|error| self.trust.lose("reserve", error))?;
                }
                outcome => return outcome.map(|()| false).map_err(failed),
            }
        }
        let rest = requests.iter().filter(|request| !matches!(request, Request::Schedule(_)));
        let rest: usize = rest.map(size).sum();
        if rest == 0 {
            return Ok(true);
        }
        match writer.make_scant_room(rest) {
            Err(error) if disk::is_full(&error) => Err(StoreError::Full),
            outcome => outcome.map(|()| true).map_err(failed),
        }
    }

    fn prepare(&self, writer: &mut Writer, requests: Vec<Request>, refused: bool) -> Vec<Step> {
        let mut next = self.state.lock().next;
        let payload = writer.begin();
        let mut steps = Vec::with_capacity(requests.len());
        for request in requests {
            steps.push(match request {
                Request::Schedule(_) if refused => Step::Refused(StoreError::Full.into()),
                Request::Schedule(mut draft) => {
                    let first = next;
                    let after = first.get() + draft.slots.len() as u64;
                    next = Sequence::new(after).expect("56 bits outlast any store");
                    draft.number(first);
                    payload.extend_from_slice(&draft.bytes);
                    Step::Schedule(draft, first)
                }
                Request::Cancel(ids, in_logs) => self.prepare_cancel(payload, ids, in_logs),
                Request::PutTopic(name, settings) => {
                    let planned = self.catalogue.read().plan(&name, settings);
                    match (planned, self.topic_by_name(&name)) {
                        (Ok(planned), Some(known)) if planned == *known => Step::SameTopic(known),
                        (Ok(_), None) if refused => Step::Refused(StoreError::Full.into()),
                        (Ok(planned), _) => {
                            change::put_topic(payload, &planned);
                            Step::PutTopic(planned)
                        }
                        (Err(error), _) => Step::Refused(error.into()),
                    }
                }
                Request::DeleteTopic(name) => {
                    let topic = self.topic_by_name(&name).map(|topic| topic.id);
                    if let Some(id) = topic {
                        change::put_delete(payload, id);
                    }
                    Step::DeleteTopic(topic)
                }
            });
        }
        steps
    }

    /// Decides each cancel, and makes the successful ones hold at once, so that nothing fires what
    /// somebody is about to be told is cancelled.
    fn prepare_cancel(&self, payload: &mut Vec<u8>, ids: Vec<MessageId>, in_logs: InLogs) -> Step {
        // In the order of sequences, neighbours share the memory and the pages they need.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&place| ids.get(place).map(|id| id.key.sequence));
        let sorted: Vec<MessageId> =
            order.iter().filter_map(|&place| ids.get(place).copied()).collect();
        let (mut state, stamps) = match self.state_and_stamps(&sorted) {
            Ok(found) => found,
            Err(error) => return Step::Refused(error.into()),
        };
        let standings: Vec<Standing> =
            sorted.iter().zip(stamps).map(|(id, stamp)| state.standing(*id, stamp)).collect();
        let in_logs = match in_logs {
            InLogs::Known(known) => known,
            InLogs::Unknown => HashMap::new(),
        };
        // Something may have ended since the logs were asked.
        let is_open = |(id, standing): (&MessageId, &Standing)| {
            *standing == Standing::Past && !in_logs.contains_key(id)
        };
        if sorted.iter().zip(&standings).any(is_open) {
            return Step::Refused(CommitError::AskLogs(ids));
        }
        let mut cancelled: Vec<(Key, TopicId)> = Vec::new();
        let mut outcomes = vec![CancelOutcome::NotFound; ids.len()];
        for ((place, id), standing) in order.into_iter().zip(sorted).zip(standings) {
            let outcome = match standing {
                Standing::In(state_now) => match state_now.after(Event::Cancel) {
                    Some(_) if state.cancel(id.key, id.topic) => {
                        cancelled.push((id.key, id.topic));
                        CancelOutcome::Cancelled
                    }
                    None if state_now == LifeState::Delivered => CancelOutcome::AlreadyDelivered,
                    // Also the same id twice in one request.
                    Some(_) | None => CancelOutcome::AlreadyCancelled,
                },
                Standing::Past if in_logs.get(&id) == Some(&true) => {
                    CancelOutcome::AlreadyDelivered
                }
                Standing::Past | Standing::Unknown => CancelOutcome::NotFound,
            };
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = outcome;
            }
        }
        drop(state);
        if !cancelled.is_empty() {
            change::put_cancel(payload, &cancelled);
        }
        Step::Cancel(outcomes)
    }

    /// Of those of `ids` that ended so long ago that memory does not know them: whether the logs
    /// hold each. That does not change any more, but for retention.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn past_in_logs(&self, ids: &[MessageId]) -> Result<HashMap<MessageId, bool>, StoreError> {
        let (state, stamps) = self.state_and_stamps(ids)?;
        let is_past = |(id, stamp): (&MessageId, Option<Stamp>)| {
            (state.standing(*id, stamp) == Standing::Past).then_some(*id)
        };
        let past: Vec<MessageId> = ids.iter().zip(stamps).filter_map(is_past).collect();
        drop(state);
        let held = self.logs.held_of(&past)?;
        Ok(past.into_iter().map(|id| (id, held.contains(&id))).collect())
    }

    fn apply(&self, steps: Vec<Step>, end: Position) -> Answers {
        let mut answers = Vec::with_capacity(steps.len());
        let mut hurry = false;
        for step in steps {
            answers.push(match step {
                Step::Schedule(draft, first) => {
                    let bytes = Bytes::from(draft.bytes);
                    hurry |= self.state.lock().admit(bytes, &draft.slots);
                    Ok(Outcome::Scheduled(first))
                }
                Step::Cancel(outcomes) => Ok(Outcome::Cancelled(outcomes)),
                Step::SameTopic(topic) => Ok(Outcome::Topic(topic)),
                Step::PutTopic(topic) => self.apply_put(topic),
                Step::DeleteTopic(topic) => self.apply_delete(topic),
                Step::Refused(error) => Err(error),
            });
        }
        let mut state = self.state.lock();
        if state.near.bytes() > self.options.near_bytes {
            state.shrink(self.options.near_bytes / 2);
        }
        // Small groups and cancels fill the journal without filling the table.
        let journaled = end.0.saturating_sub(state.active.table.journal_start.0);
        let full = state.active.table.bytes() >= self.options.table_bytes
            || journaled >= JOURNAL_FILES_MAX * self.options.journal_file_bytes;
        if state.frozen.is_none() && full {
            state.freeze(end);
        }
        drop(state);
        if hurry && let Some(listener) = &*self.listener.read() {
            listener();
        }
        answers
    }

    fn apply_put(&self, topic: Topic) -> Result<Outcome, CommitError> {
        let (id, partitions) = (topic.id, topic.settings.partitions);
        self.with_reserve(|| self.logs.open(id, partitions, &[], &mut Vec::new()))
            .map_err(|error| self.trust.lose("topic", error))?;
        self.state.lock().topics.insert(id);
        Ok(Outcome::Topic(self.catalogue.write().put(topic)))
    }

    fn apply_delete(&self, topic: Option<TopicId>) -> Result<Outcome, CommitError> {
        let Some(id) = topic else { return Ok(Outcome::Deleted(false)) };
        self.catalogue.write().delete(id);
        self.state.lock().drop_topic(id);
        self.logs.remove(id).map_err(|error| self.trust.lose("topic", error))?;
        Ok(Outcome::Deleted(true))
    }

    /// Waits until everything written to the journal is on disk.
    ///
    /// # Errors
    /// [`StoreError::Poisoned`] when that fails.
    pub fn sync_journal(&self) -> Result<(), StoreError> {
        self.trust.check()?;
        self.writer.lock().sync().map_err(|error| self.trust.lose("journal", error))
    }
}

impl Step {
    fn is_written(&self) -> bool {
        match self {
            Self::Schedule(..) | Self::PutTopic(_) | Self::DeleteTopic(Some(_)) => true,
            Self::Cancel(outcomes) => outcomes.contains(&CancelOutcome::Cancelled),
            Self::SameTopic(_) | Self::DeleteTopic(None) | Self::Refused(_) => false,
        }
    }
}

/// Bytes a request takes in the journal at most.
pub(crate) fn size(request: &Request) -> usize {
    match request {
        Request::Schedule(draft) => draft.bytes.len(),
        Request::Cancel(ids, _) => ids.len() * CANCEL_BYTES + 16,
        Request::PutTopic(..) | Request::DeleteTopic(_) => TOPIC_BYTES,
    }
}
