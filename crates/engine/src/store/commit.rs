//! Changes become durable, then visible, then known to those who asked.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use punctual_model::group::{Group, GroupChange, Start};
use punctual_model::limits::PARTITIONS_MAX;
use punctual_model::ports::{Appended, CancelOutcome, LogPosition, StoreError, Topic};
use punctual_model::{
    DelayLevels, Event, Key, Lane, MessageId, Sequence, State as LifeState, Timestamp, TopicId,
    TopicName, TopicSettings,
};

use crate::disk;
use crate::groups::stored;
use crate::journal::Position;
use crate::journal::change::{self, Draft};
use crate::journal::writer::Writer;
use crate::lanes::PerLane;
use crate::log::Wanted;
use crate::store::append::Placing;
use crate::store::deliver::Settled;
use crate::store::groups::{self, NewGroup, Planned};
use crate::store::revise::Revising;
use crate::store::track::Track;
use crate::store::{CommitError, InLogs, Outcome, Request, Store};
use crate::timeline::run::Stamp;
use crate::timeline::{Standing, State};

/// Bytes of the journal taken by one cancelled message.
pub(super) const CANCEL_BYTES: usize = 20;
/// Bytes of the journal taken by a topic at most.
const TOPIC_BYTES: usize = 1024;
/// Bytes taken by a group with its topics, but for its settings and where it starts.
const GROUP_BYTES: usize = 3 * TOPIC_BYTES;
/// Bytes taken by the removal of a group with its topics.
const REMOVAL_BYTES: usize = 64;

/// Bytes taken by where a log starts.
const TRIM_BYTES: usize = 32;

/// Journal files behind one memory table at most: what a restart has to read.
const JOURNAL_FILES_MAX: u64 = 3;

/// A change on its way into the journal.
pub(super) enum Step {
    Schedule(Draft, Sequence),
    Revise(Revising),
    PutLevels(DelayLevels),
    Cancel(Vec<CancelOutcome>),
    PutTopic(Topic),
    SameTopic(Arc<Topic>),
    DeleteTopic(Option<TopicId>, Vec<Arc<Group>>),
    SameGroup(Arc<Group>),
    ChangeGroup(Group),
    NewGroup(Box<NewGroup>),
    DeleteGroups(Vec<Arc<Group>>),
    Progress(Vec<GroupChange>, Option<(Draft, Sequence)>),
    Append(Box<Placing>),
    Known(Appended),
    Trim(Option<LogPosition>, u64),
    Settle(Lane, Vec<Settled>),
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
        let room: usize = requests.iter().map(|request| self.size(request)).sum();
        if room > writer.payload_max() {
            return refuse(&StoreError::Busy);
        }
        let refused = match self.make_room(&mut writer, &requests) {
            Ok(refused) => refused,
            Err(error) => return refuse(&error),
        };
        let start = writer.end();
        let steps = self.prepare(&mut writer, start, requests, refused);
        // A log that had to be synced first may have failed.
        if let Err(error) = self.trust.check() {
            return refuse(&error);
        }
        if steps.iter().any(Step::is_written)
            && let Err(error) = writer.write()
        {
            return refuse(&self.trust.lose("journal", error));
        }
        self.apply(steps, start..writer.end())
    }

    /// Whether a lane has memory for more entries. On a full disk it has as well, since they will
    /// be refused anyway.
    #[must_use]
    pub fn has_room(&self, lane: Lane) -> bool {
        let crowded = self.tracks.of(lane).is_crowded() || self.ids.read().is_crowded();
        !crowded || self.is_full() || self.trust.check().is_err()
    }

    /// Bytes a request takes in the journal at most, with all that goes with it.
    fn size(&self, request: &Request) -> usize {
        let doomed = match request {
            Request::DeleteTopic(name) => {
                self.topic_by_name(name).map_or(0, |topic| self.doomed_of(topic.id).len())
            }
            Request::DeleteGroup(id) => self.doomed_with(*id).len(),
            _ => 0,
        };
        size(request) + doomed * REMOVAL_BYTES
    }

    /// Makes room in the journal. On a full disk, new entries are refused and room is made for
    /// everything else; then the answer is true.
    fn make_room(&self, writer: &mut Writer, requests: &[Request]) -> Result<bool, StoreError> {
        let failed = |error: io::Error| self.trust.lose("journal", error);
        if !self.is_full() {
            match writer.make_room(requests.iter().map(|request| self.size(request)).sum()) {
                Err(error) if disk::is_full(&error) => {
                    self.reserve.spend().map_err(|error| self.trust.lose("reserve", error))?;
                }
                outcome => return outcome.map(|()| false).map_err(failed),
            }
        }
        let rest = requests.iter().filter(|request| !request.brings_messages());
        let rest: usize = rest.map(|request| self.size(request)).sum();
        if rest == 0 {
            return Ok(true);
        }
        match writer.make_scant_room(rest) {
            Err(error) if disk::is_full(&error) => Err(StoreError::Full),
            outcome => outcome.map(|()| true).map_err(failed),
        }
    }

    fn prepare(
        &self,
        writer: &mut Writer,
        start: Position,
        requests: Vec<Request>,
        refused: bool,
    ) -> Vec<Step> {
        let mut next: PerLane<Option<Sequence>> = PerLane::default();
        let payload = writer.begin();
        let mut steps = Vec::with_capacity(requests.len());
        for request in requests {
            steps.push(match request {
                Request::Append(appending) if refused => {
                    self.refuse_append(&appending, StoreError::Full.into())
                }
                request if refused && request.takes_room() => {
                    Step::Refused(StoreError::Full.into())
                }
                Request::Append(appending) => {
                    self.prepare_append(payload, start, &mut next, *appending)
                }
                Request::Trim(before) => self.prepare_trim(payload, before),
                request @ Request::Settle(_) => prepare_settle(payload, request),
                Request::Schedule(mut draft) => {
                    let first = self.number(payload, &mut next, &mut draft);
                    Step::Schedule(draft, first)
                }
                Request::Progress(changes, draft) => {
                    match self.prepare_changes(payload, &changes) {
                        Ok(()) => {
                            let number = |mut draft: Draft| {
                                let first = self.number(payload, &mut next, &mut draft);
                                (draft, first)
                            };
                            Step::Progress(changes, draft.map(number))
                        }
                        Err(error) => Step::Refused(error.into()),
                    }
                }
                Request::Revise(revision) => {
                    self.prepare_revision(payload, start, &mut next, revision)
                }
                Request::PutLevels(levels) => {
                    change::put_levels(payload, &levels);
                    Step::PutLevels(levels)
                }
                Request::Cancel(ids, in_logs) => self.prepare_cancel(payload, ids, in_logs),
                Request::PutTopic(name, settings) => {
                    self.prepare_put(payload, &name, settings, refused)
                }
                Request::DeleteTopic(name) => self.prepare_delete(payload, &name),
                Request::PutGroup(topic, name, settings, start) => {
                    match self.plan_group(topic, &name, settings, start) {
                        Ok(planned) => prepare_group(payload, planned, refused),
                        Err(error) => Step::Refused(error),
                    }
                }
                Request::DeleteGroup(id) => {
                    let doomed = self.doomed_with(id);
                    for group in &doomed {
                        groups::put_group_removal(payload, group);
                    }
                    Step::DeleteGroups(doomed)
                }
            });
        }
        steps
    }

    fn prepare_put(
        &self,
        payload: &mut Vec<u8>,
        name: &TopicName,
        settings: TopicSettings,
        refused: bool,
    ) -> Step {
        let planned = self.catalogue.read().plan(name, settings);
        match (planned, self.topic_by_name(name)) {
            (Ok(planned), Some(known)) if planned == *known => Step::SameTopic(known),
            (Ok(_), None) if refused => Step::Refused(StoreError::Full.into()),
            (Ok(planned), _) => {
                change::put_topic(payload, &planned);
                Step::PutTopic(planned)
            }
            (Err(error), _) => Step::Refused(error.into()),
        }
    }

    /// Gives the entries their numbers and appends them to the payload.
    fn number(
        &self,
        payload: &mut Vec<u8>,
        next: &mut PerLane<Option<Sequence>>,
        draft: &mut Draft,
    ) -> Sequence {
        let first = self.take_numbers(next, draft);
        draft.number(first);
        payload.extend_from_slice(&draft.bytes);
        first
    }

    fn prepare_delete(&self, payload: &mut Vec<u8>, name: &TopicName) -> Step {
        let planned = self.catalogue.read().plan_delete(name);
        let topic = match planned {
            Ok(Some(topic)) => topic,
            Ok(None) => return Step::DeleteTopic(None, Vec::new()),
            Err(error) => return Step::Refused(error.into()),
        };
        let doomed = self.doomed_of(topic.id);
        for group in &doomed {
            groups::put_group_removal(payload, group);
        }
        change::put_delete(payload, topic.id);
        Step::DeleteTopic(Some(topic.id), doomed)
    }

    /// Decides each cancel, and makes the successful ones hold at once, so that nothing fires what
    /// somebody is about to be told is cancelled.
    fn prepare_cancel(&self, payload: &mut Vec<u8>, ids: Vec<MessageId>, in_logs: InLogs) -> Step {
        if self.is_changing(&ids) {
            return Step::Refused(CommitError::Later(Box::new(Request::Cancel(ids, in_logs))));
        }
        let places = match self.places(&ids) {
            Ok(places) => places,
            Err(error) => return Step::Refused(error.into()),
        };
        // In the order of sequences, neighbours share the memory and the pages they need.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|&place| places.get(place).map(|id| id.key.sequence));
        let sorted: Vec<MessageId> =
            order.iter().filter_map(|&place| places.get(place).copied()).collect();
        let (mut states, stamps) = match self.states_and_stamps(&sorted) {
            Ok(found) => found,
            Err(error) => return Step::Refused(error.into()),
        };
        let standing = |(place, stamp): (&MessageId, Option<Stamp>)| {
            states.of(place.key.sequence.lane()).standing(*place, stamp)
        };
        let standings: Vec<Standing> = sorted.iter().zip(stamps).map(standing).collect();
        let in_logs = match in_logs {
            InLogs::Known(known) => known,
            InLogs::Unknown => HashMap::new(),
        };
        // Something may have ended since the logs were asked.
        let is_open = |(&place, standing): (&usize, &Standing)| {
            *standing == Standing::Past
                && ids.get(place).is_some_and(|id| !in_logs.contains_key(id))
        };
        if order.iter().zip(&standings).any(is_open) {
            return Step::Refused(CommitError::AskLogs(ids));
        }
        let mut cancelled: Vec<(Key, TopicId)> = Vec::new();
        let mut outcomes = vec![CancelOutcome::NotFound; ids.len()];
        for ((place, id), standing) in order.into_iter().zip(sorted).zip(standings) {
            let state = states.of_mut(id.key.sequence.lane());
            let outcome = match standing {
                Standing::In(LifeState::Scheduled) if id.key.due == Timestamp::PREPARED => {
                    CancelOutcome::Undecided
                }
                Standing::In(state_now) => match state_now.after(Event::Cancel) {
                    Some(_) if state.cancel(id.key, id.topic) => {
                        cancelled.push((id.key, id.topic));
                        CancelOutcome::Cancelled
                    }
                    None if state_now == LifeState::Delivered => CancelOutcome::AlreadyDelivered,
                    // Also the same id twice in one request.
                    Some(_) | None => CancelOutcome::AlreadyCancelled,
                },
                Standing::Past if ids.get(place).and_then(|id| in_logs.get(id)) == Some(&true) => {
                    CancelOutcome::AlreadyDelivered
                }
                Standing::Past | Standing::Unknown => CancelOutcome::NotFound,
            };
            if let Some(slot) = outcomes.get_mut(place) {
                *slot = outcome;
            }
        }
        drop(states);
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
        let places = self.places(ids)?;
        let (states, stamps) = self.states_and_stamps(&places)?;
        let is_past = |((id, place), stamp): ((&MessageId, &MessageId), Option<Stamp>)| {
            let standing = states.of(place.key.sequence.lane()).standing(*place, stamp);
            let since = id.key.due.min(place.key.due);
            (standing == Standing::Past).then_some(Wanted { id: *id, since })
        };
        let past: Vec<Wanted> = ids.iter().zip(&places).zip(stamps).filter_map(is_past).collect();
        drop(states);
        let held = self.logs.held_of(&past)?;
        let delivered = |wanted: Wanted| held.contains(&wanted.id) || self.is_settled_past(wanted);
        Ok(past.into_iter().map(|wanted| (wanted.id, delivered(wanted))).collect())
    }

    /// Makes visible what stands in this stretch of the journal.
    fn apply(&self, steps: Vec<Step>, journal: Range<Position>) -> Answers {
        let mut answers = Vec::with_capacity(steps.len());
        let mut touched = Touched::default();
        for step in steps {
            answers.push(match step {
                Step::Schedule(draft, first) => {
                    touched.note(draft.lane, self.admit(draft, journal.start));
                    Ok(Outcome::Scheduled(first))
                }
                Step::Progress(changes, draft) => {
                    let mut groups = self.groups.lock();
                    for change in changes {
                        groups.apply(change);
                    }
                    drop(groups);
                    Ok(Outcome::Progressed(draft.map(|(draft, first)| {
                        touched.note(draft.lane, self.admit(draft, journal.start));
                        first
                    })))
                }
                Step::Revise(revising) => {
                    let (outcome, lanes) = self.apply_revision(revising, journal.start);
                    touched.note_all(&lanes);
                    Ok(outcome)
                }
                Step::Append(placing) => {
                    let (outcome, lanes) = self.apply_append(*placing, journal.start);
                    touched.note_all(&lanes);
                    Ok(outcome)
                }
                Step::Known(appended) => Ok(Outcome::Appended(appended)),
                Step::Trim(before, start) => {
                    before.into_iter().for_each(|before| self.logs.trim(before));
                    Ok(Outcome::Trimmed(start))
                }
                Step::Settle(lane, settled) => {
                    self.end_settled(lane, settled.iter().copied());
                    Ok(Outcome::Settled)
                }
                Step::PutLevels(levels) => {
                    self.catalogue.write().levels = levels;
                    Ok(Outcome::Levels)
                }
                Step::Cancel(outcomes) => Ok(Outcome::Cancelled(outcomes)),
                Step::SameTopic(topic) => Ok(Outcome::Topic(topic)),
                Step::PutTopic(topic) => self.apply_put(topic),
                Step::DeleteTopic(topic, doomed) => self.apply_delete_all(topic, &doomed),
                Step::SameGroup(group) => Ok(Outcome::Group(group)),
                Step::ChangeGroup(group) => Ok(Outcome::Group(self.groups.lock().put(group, &[]))),
                Step::NewGroup(new) => self.apply_new_group(*new).map(Outcome::Group),
                Step::DeleteGroups(doomed) => self
                    .apply_delete_all(None, &doomed)
                    .map(|_| Outcome::Deleted(!doomed.is_empty())),
                Step::Refused(error) => Err(error),
            });
        }
        for (lane, track) in self.tracks.iter() {
            if *touched.lanes.of(lane) {
                self.keep_small(track, &mut track.state.lock(), journal.end);
            } else if let Some(mut state) = track.state.try_lock() {
                // Who has nothing to do with a lane does not wait for it; the next group will do.
                self.keep_small(track, &mut state, journal.end);
            }
        }
        self.keep_ids_small(journal.end);
        for (lane, _) in touched.hurry.iter().filter(|(_, hurry)| **hurry) {
            if let Some(listener) = &*self.listener.read() {
                listener(lane);
            }
        }
        answers
    }

    /// Sees to it that neither memory nor what a restart has to read grows without end.
    fn keep_small(&self, track: &Track, state: &mut State, end: Position) {
        if state.near.bytes() > track.near_bytes {
            state.shrink(track.near_bytes / 2);
        }
        // Small groups, cancels and the other lane fill the journal without filling the table.
        let table = &state.active.table;
        let journaled = end.0.saturating_sub(table.journal_start.0);
        let full = table.bytes() >= track.table_bytes || journaled >= self.journal_bytes_max();
        if full && !table.is_empty() && state.frozen.is_none() {
            self.freeze_table(state, end);
        }
    }

    /// Bytes of journal that a restart has to read for one table at most.
    pub(super) const fn journal_bytes_max(&self) -> u64 {
        JOURNAL_FILES_MAX * self.options.journal_file_bytes
    }

    /// Sets the active table of a lane aside.
    pub(super) fn freeze_table(&self, state: &mut State, end: Position) {
        state.freeze(end);
        self.frozen.fetch_add(1, Ordering::Release);
    }

    /// Takes in entries; answers whether one is due before what was armed.
    pub(super) fn admit(&self, draft: Draft, journal_start: Position) -> bool {
        let mut state = self.tracks.of(draft.lane).state.lock();
        state.begin_at(journal_start);
        state.admit(Bytes::from(draft.bytes), &draft.slots)
    }

    pub(super) fn apply_put(&self, topic: Topic) -> Result<Outcome, CommitError> {
        let (id, partitions) = (topic.id, topic.settings.partitions);
        self.with_reserve(|| self.logs.open(id, partitions, &[], &mut Vec::new()))
            .map_err(|error| self.trust.lose("topic", error))?;
        for (_, track) in self.tracks.iter() {
            track.state.lock().topics.insert(id);
        }
        Ok(Outcome::Topic(self.catalogue.write().put(topic)))
    }

    fn apply_delete_all(
        &self,
        topic: Option<TopicId>,
        doomed: &[Arc<Group>],
    ) -> Result<Outcome, CommitError> {
        for group in doomed {
            self.groups.lock().delete(group.id);
        }
        let own = doomed.iter().flat_map(|group| [group.retry, group.dead]);
        for id in own.chain(topic) {
            self.catalogue.write().delete(id);
            for (_, track) in self.tracks.iter() {
                track.state.lock().drop_topic(id);
            }
            self.logs.remove(id).map_err(|error| self.trust.lose("topic", error))?;
        }
        Ok(Outcome::Deleted(topic.is_some()))
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

/// What another outlet has taken has ended as if something else had taken its place: it was not
/// cancelled, and does not come back.
fn prepare_settle(payload: &mut Vec<u8>, request: Request) -> Step {
    let lane = request.lane();
    let Request::Settle(settled) = request else { return Step::Refused(StoreError::Busy.into()) };
    if !settled.is_empty() {
        let ended: Vec<(Key, TopicId)> = settled.iter().map(|end| (end.key, end.topic)).collect();
        change::put_supersede(payload, &ended);
    }
    Step::Settle(lane, settled)
}

fn prepare_group(payload: &mut Vec<u8>, planned: Planned, refused: bool) -> Step {
    match planned {
        Planned::Same(group) => Step::SameGroup(group),
        Planned::Changed(group) => {
            change::put_group(payload, &group, &[]);
            Step::ChangeGroup(group)
        }
        Planned::New(_) if refused => Step::Refused(StoreError::Full.into()),
        Planned::New(new) => {
            groups::put_new_group(payload, &new);
            Step::NewGroup(new)
        }
    }
}

/// Which lanes got entries, and in which of them one is due before what was armed.
#[derive(Default)]
struct Touched {
    lanes: PerLane<bool>,
    hurry: PerLane<bool>,
}

impl Touched {
    fn note(&mut self, lane: Lane, hurries: bool) {
        *self.lanes.of_mut(lane) = true;
        *self.hurry.of_mut(lane) |= hurries;
    }

    fn note_all(&mut self, lanes: &PerLane<Option<bool>>) {
        for (lane, hurries) in lanes.iter() {
            if let Some(hurries) = *hurries {
                self.note(lane, hurries);
            }
        }
    }
}

impl Step {
    fn is_written(&self) -> bool {
        match self {
            Self::Schedule(..)
            | Self::PutTopic(_)
            | Self::PutLevels(_)
            | Self::DeleteTopic(Some(_), _)
            | Self::ChangeGroup(_)
            | Self::NewGroup(_)
            | Self::Append(_)
            | Self::Trim(Some(_), _) => true,
            Self::Revise(revising) => revising.is_written(),
            Self::Cancel(outcomes) => outcomes.contains(&CancelOutcome::Cancelled),
            Self::DeleteGroups(doomed) => !doomed.is_empty(),
            Self::Settle(_, settled) => !settled.is_empty(),
            Self::Progress(changes, draft) => !changes.is_empty() || draft.is_some(),
            Self::SameTopic(_)
            | Self::SameGroup(_)
            | Self::Known(_)
            | Self::Trim(None, _)
            | Self::DeleteTopic(None, _)
            | Self::Refused(_) => false,
        }
    }
}

/// Bytes a request takes in the journal at most.
pub(crate) fn size(request: &Request) -> usize {
    match request {
        Request::Schedule(draft) => draft.bytes.len(),
        Request::Revise(revision) => revision.size(),
        Request::PutLevels(_) => TOPIC_BYTES,
        Request::Cancel(ids, _) => ids.len() * CANCEL_BYTES + 16,
        Request::PutTopic(..) => TOPIC_BYTES,
        Request::PutGroup(_, _, settings, start) => {
            let starts = if *start == Start::Latest { 8 * usize::from(PARTITIONS_MAX) } else { 0 };
            GROUP_BYTES + starts + groups::settings_size(settings)
        }
        Request::DeleteTopic(_) | Request::DeleteGroup(_) => TOPIC_BYTES,
        Request::Progress(changes, draft) => {
            let changes: usize = changes.iter().map(stored::change_size).sum();
            changes + draft.as_ref().map_or(0, |draft| draft.bytes.len())
        }
        Request::Append(appending) => appending.size(),
        Request::Trim(_) => TRIM_BYTES,
        Request::Settle(settled) => settled.len() * CANCEL_BYTES + 16,
    }
}
