//! Batches of producers: how they come into a log, and back into it after a loss of power.
//!
//! A batch is written to its log first, where nobody sees it, then to the journal with all that was
//! taken out of it. When the journal has it, it is shown. A log is not synced on the way, so a loss
//! of power may take what the journal has: recovery appends it again, at the offset that its producer was
//! told. What else was lost there leaves a hole. A batch that is in the log alone goes at recovery: the
//! process ended before anybody was told of it, and it may lack what was taken out.
//!
//! Where nobody waits for the disk the journal has only the header of a batch: what the process
//! wrote outlives it in the log as well as in the journal. If the power takes such a batch, an empty one takes
//! its offsets, so that they never stand for anything else.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use punctual_kafka_wire::records::{BatchWriter, HEADER_BYTES, Opening};
use punctual_model::ports::{
    Append, AppendError, Appended, LogPosition, OnConflict, Order, Refusal, SliceError, StoreError,
};
use punctual_model::{Entry, Lane, MessageId, Partition, Sequence, Timestamp, TopicId, TopicKind};

use crate::disk::Disk;
use crate::ids::{Name, Value};
use crate::journal::change::{self, Change, NAME_BYTES};
use crate::journal::{Position, reader};
use crate::lanes::PerLane;
use crate::log::batch::{self, BatchHeader, Sent};
use crate::log::{Logs, Refused};
use crate::options::Durability;
use crate::reserve;
use crate::store::commit::Step;
use crate::store::decide::{Stop, Verdict};
use crate::store::revise::{Revising, Revision};
use crate::store::{Outcome, Request, Store};

type Place = (TopicId, Partition);
type Taken = Vec<(u32, usize)>;

/// Bytes of the journal that an append takes beside the batch and what was taken out.
const APPEND_BYTES: usize = 64;

/// A batch to append, checked.
#[derive(Debug)]
pub struct Appending {
    place: Place,
    batch: Bytes,
    header: BatchHeader,
    /// What was taken out.
    revision: Option<Revision>,
    /// The distance of each entry from the first offset, and the order that stores it.
    taken: Taken,
    aliases: Vec<(u32, MessageId)>,
    now: Timestamp,
}

/// A batch on its way into the journal.
#[derive(Debug)]
pub(super) struct Placing {
    place: Place,
    revising: Option<Revising>,
    names: Vec<(u64, MessageId)>,
    appended: Appended,
}

impl Appending {
    /// Checks a batch.
    ///
    /// # Errors
    /// [`AppendError::Malformed`].
    pub fn new(append: Append, now: Timestamp) -> Result<Self, AppendError> {
        let Append { topic, partition, batch, entries, aliases } = append;
        let header = batch::check_foreign(&batch).map_err(|_bad| AppendError::Malformed)?;
        let offsets = header.last_offset - header.base_offset + 1;
        let distances = entries.iter().map(|(distance, _)| distance);
        let mut distances = distances.chain(aliases.iter().map(|(distance, _)| distance));
        if distances.any(|distance| u64::from(*distance) >= offsets) {
            return Err(AppendError::Malformed);
        }
        let (taken, orders) = orders(entries)?;
        let revision = (!orders.is_empty()).then(|| Revision::new(&orders, now));
        let place = (topic, partition);
        Ok(Self { place, batch, header, revision, taken, aliases, now })
    }

    /// Bytes it takes in the journal at most.
    pub(crate) fn size(&self) -> usize {
        let names = self.taken.len() + self.aliases.len();
        let entries = self.revision.as_ref().map_or(0, Revision::size);
        self.batch.len() + entries + names * NAME_BYTES + APPEND_BYTES
    }

    /// Whether it brings entries.
    pub(crate) const fn takes_room(&self) -> bool {
        self.revision.is_some()
    }
}

/// The orders that store these entries. One that has its own id in common with an earlier one, and
/// all else, is stored by the order of that.
fn orders(entries: Vec<(u32, Entry)>) -> Result<(Taken, Vec<Order>), AppendError> {
    let mut taken = Vec::with_capacity(entries.len());
    let mut orders = Vec::with_capacity(entries.len());
    let mut named: HashMap<Name, (usize, u64)> = HashMap::new();
    for (index, (distance, entry)) in entries.into_iter().enumerate() {
        let own_id = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
        if let Some(own_id) = own_id {
            let name = Name::own(entry.topic, &own_id.text);
            let (order, print) = *named.entry(name).or_insert((orders.len(), own_id.print));
            if print != own_id.print {
                return Err(AppendError::OwnIdTaken { index, id: None });
            }
            if order < orders.len() {
                taken.push((distance, order));
                continue;
            }
        }
        taken.push((distance, orders.len()));
        let conflict = OnConflict::Reject;
        orders.push(Order::Schedule { lane: Lane::Message, entry, conflict });
    }
    Ok((taken, orders))
}

impl Request {
    /// Of a batch: where it goes, and what its producer knows it by.
    pub(crate) fn sent(&self) -> Option<(Place, Sent)> {
        match self {
            Self::Append(appending) => Some((appending.place, appending.header.producer?)),
            _ => None,
        }
    }
}

impl Store {
    /// Writes a batch to its log, where nobody sees it yet, and to the payload.
    pub(super) fn prepare_append(
        &self,
        payload: &mut Vec<u8>,
        start: Position,
        next: &mut PerLane<Option<Sequence>>,
        appending: Appending,
    ) -> Step {
        let verdicts = match self.decide_append(&appending) {
            Ok(verdicts) => verdicts,
            Err(error) => return self.refuse_append(&appending, error),
        };
        let Appending { place, batch, header, now, .. } = &appending;
        let before = payload.len();
        let bytes = change::begin_append(payload, *place, batch);
        let written = payload.get_mut(bytes.clone()).unwrap_or_default();
        let placed = match self.logs.append_held(*place, header, written, *now) {
            Ok(placed) => placed,
            Err(refused) => {
                payload.truncate(before);
                return match refused {
                    Refused::Known(placed) => Step::Known(Appended {
                        base_offset: placed.base_offset,
                        start: placed.start,
                        ids: Vec::new(),
                        duplicate: true,
                    }),
                    refused => self.refuse_append(&appending, self.refusal(refused)),
                };
            }
        };
        self.keep_needed(payload, &bytes);
        let base_offset = placed.base_offset;
        let Appending { place, revision, taken, aliases, .. } = appending;
        let revising =
            revision.map(|revision| self.write_revision(payload, start, next, revision, &verdicts));
        let stored = revising.as_ref().map_or_else(Vec::new, Revising::ids);
        let id = |(distance, order): &(u32, usize)| Some((*distance, *stored.get(*order)?));
        let taken: Vec<(u32, MessageId)> = taken.iter().filter_map(id).collect();
        let ids = taken.iter().map(|(_, id)| *id).collect();
        let name = |(distance, id)| (base_offset + u64::from(distance), id);
        let names: Vec<(u64, MessageId)> = taken.into_iter().chain(aliases).map(name).collect();
        if !names.is_empty() {
            change::put_names(payload, place, &names);
        }
        let appended = Appended { base_offset, start: placed.start, ids, duplicate: false };
        Step::Append(Box::new(Placing { place, revising, names, appended }))
    }

    /// Where nobody waits for the disk, the log keeps a batch as well as the journal would.
    fn keep_needed(&self, payload: &mut Vec<u8>, batch: &Range<usize>) {
        if self.options.durability == Durability::Os {
            change::cut_append(payload, batch, HEADER_BYTES);
        }
    }

    /// What is to be done about what was taken out.
    fn decide_append(&self, appending: &Appending) -> Result<Vec<Verdict>, AppendError> {
        let topic = self.topic_by_id(appending.place.0).ok_or(AppendError::NotFound)?;
        if topic.kind != TopicKind::Plain {
            return Err(AppendError::Reserved);
        }
        let Some(revision) = &appending.revision else { return Ok(Vec::new()) };
        self.decide_asking(revision).map_err(|stop| match stop {
            Stop::Refused(order, Refusal::OwnIdTaken(id)) => {
                let index = appending.taken.iter().position(|(_, stored_by)| *stored_by == order);
                AppendError::OwnIdTaken { index: index.unwrap_or(order), id: Some(id) }
            }
            Stop::Store(error) => error.into(),
            // Something moves the message that has its own id in this very group.
            Stop::Later | Stop::AskLog(..) | Stop::Refused(..) => StoreError::Busy.into(),
        })
    }

    fn refusal(&self, refused: Refused) -> AppendError {
        match refused {
            Refused::Old | Refused::Known(_) => AppendError::OldDuplicate,
            Refused::Gap => AppendError::OutOfOrder,
            Refused::Stale => AppendError::StaleEpoch,
            Refused::NotFound => AppendError::NotFound,
            Refused::Store(StoreError::Full) => match self.reserve.spend() {
                Ok(_) => StoreError::Full.into(),
                Err(error) => self.trust.lose("reserve", error).into(),
            },
            Refused::Store(error) => self.trust.lose("log", error).into(),
        }
    }

    /// Refuses a batch. One that was refused for no fault of its own will come again.
    pub(super) fn refuse_append(&self, appending: &Appending, error: AppendError) -> Step {
        if let (AppendError::Store(_), Some(sent)) = (&error, &appending.header.producer) {
            self.logs.expect(appending.place, sent);
        }
        Step::Refused(error.into())
    }

    /// Shows a batch, and stores what was taken out of it. Answers with the outcome which lanes were
    /// touched, and in which of them something is due before what was armed.
    pub(super) fn apply_append(
        &self,
        placing: Placing,
        start: Position,
    ) -> (Outcome, PerLane<Option<bool>>) {
        let Placing { place: (topic, partition), revising, names, appended } = placing;
        let touched = match revising {
            Some(revising) => self.apply_revision(revising, start).1,
            None => PerLane::default(),
        };
        if !names.is_empty() {
            let mut table = self.ids.write();
            table.begin_at(start);
            for (offset, id) in names {
                table.put(Name::reserved(topic, partition, offset), Value::new(id, 0));
            }
        }
        self.logs.release(topic, partition);
        (Outcome::Appended(appended), touched)
    }

    /// Writes to the payload where a log is to start. A loss of power must not leave it shorter than
    /// that, so it is synced first.
    pub(super) fn prepare_trim(&self, payload: &mut Vec<u8>, before: LogPosition) -> Step {
        let LogPosition { topic, partition, offset } = before;
        let bounds = match self.logs.bounds(topic, partition) {
            Ok(bounds) => bounds,
            Err(error) => return Step::Refused(error.into()),
        };
        if offset > bounds.end {
            return Step::Refused(SliceError::OutOfRange(bounds).into());
        }
        if offset <= bounds.start {
            return Step::Trim(None, bounds.start);
        }
        if let Err(error) = self.sync_log(topic, partition) {
            return Step::Refused(error.into());
        }
        change::put_trim(payload, before);
        Step::Trim(Some(before), offset)
    }

    /// The message that a reserved offset names, while it is remembered.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn reserved(&self, at: LogPosition) -> Result<Option<MessageId>, StoreError> {
        let LogPosition { topic, partition, offset } = at;
        if self.topic_by_id(topic).is_none() {
            return Ok(None);
        }
        let value = self.ids.read().get(Name::reserved(topic, partition, offset))?;
        Ok(value.map(Value::id))
    }
}

/// Batches that the journal has and the logs may have lost.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    /// The last offset at which the journal has a batch.
    pub(super) last: HashMap<Place, u64>,
    /// The first group of the journal that has one.
    from: Option<Position>,
}

impl Journaled {
    /// Notes a batch.
    pub(super) fn note(
        &mut self,
        position: Position,
        place: Place,
        batch: &[u8],
    ) -> Result<(), StoreError> {
        let header = BatchHeader::parse(batch).map_err(StoreError::damaged)?;
        self.from.get_or_insert(position);
        self.last.insert(place, header.base_offset);
        Ok(())
    }

    /// Appends what the logs have lost, in order. The journal is read once more for that, and only
    /// if something was lost, so that no batch has to be kept in memory.
    pub(super) fn restore(
        &self,
        disk: &dyn Disk,
        shape: (u32, u64),
        logs: &Logs,
    ) -> Result<(), StoreError> {
        let is_lost = |(place, offset): (&Place, &u64)| logs.lacks(*place, *offset);
        let Some(from) = self.from.filter(|_| self.last.iter().any(is_lost)) else {
            return Ok(());
        };
        let mut restored = 0_u64;
        let apply = |_, change| {
            if let Change::Append(place, batch) = change
                && self.last.contains_key(&place)
            {
                restored += u64::from(restore_one(disk, logs, place, &batch)?);
            }
            Ok(())
        };
        reader::replay(disk, shape, from, apply)?;
        tracing::warn!(restored, "batches that the logs had lost came back from the journal");
        Ok(())
    }
}

fn restore_one(
    disk: &dyn Disk,
    logs: &Logs,
    place: Place,
    batch: &Bytes,
) -> Result<bool, StoreError> {
    let header = BatchHeader::parse(batch).map_err(StoreError::damaged)?;
    let filler;
    let batch = if header.bytes == batch.len() as u64 {
        batch
    } else {
        filler = empty(&header)?;
        &filler
    };
    match logs.restore(place, batch) {
        Err(StoreError::Full) => {
            reserve::give_up(disk).map_err(StoreError::damaged)?;
            logs.restore(place, batch)
        }
        outcome => outcome,
    }
}

/// A batch without records in place of another.
fn empty(header: &BatchHeader) -> Result<Bytes, StoreError> {
    let span =
        u32::try_from(header.last_offset - header.base_offset).map_err(StoreError::damaged)?;
    let opening = Opening { base_offset: header.base_offset, ..Opening::default() };
    BatchWriter::new(opening).finish_spanning(span).map_err(StoreError::damaged)
}
