//! Upkeep of the table of own ids and moves: writing it out, merging, forgetting.

use std::io;
use std::sync::atomic::Ordering;

use punctual_model::limits::REMEMBERED;
use punctual_model::ports::StoreError;
use punctual_model::{MessageId, Timestamp};

use crate::ids::{self, Name, Value};
use crate::journal::Position;
use crate::store::Store;
use crate::store::places::{Times, remembered};

/// Entries merged before it is looked whether a table waits to be written out.
const FLUSH_EVERY: u64 = 64 << 10;

impl Store {
    /// Sets the table aside when it is full, or when a restart would have to read too much journal
    /// for it.
    pub(super) fn keep_ids_small(&self, end: Position) {
        let is_due = {
            let table = self.ids.read();
            let start = table.journal_start();
            let long = |start: Position| end.0.saturating_sub(start.0) >= self.journal_bytes_max();
            table.is_full() || (start.is_some_and(long) && table.frozen().is_none())
        };
        if is_due {
            self.freeze_ids();
        }
    }

    /// Sets the table aside to be written out, if none is aside already.
    pub(super) fn freeze_ids(&self) {
        let mut table = self.ids.write();
        if table.frozen().is_none() {
            table.freeze();
            if table.frozen().is_some() {
                self.frozen.fetch_add(1, Ordering::Release);
            }
        }
    }

    /// Writes out the table that was set aside, and merges files where there are too many. Answers
    /// whether anything was done.
    pub(super) fn upkeep_ids(&self, now: Timestamp) -> Result<bool, StoreError> {
        let times = self.times(now);
        let flushed = self.flush_ids()?;
        Ok(self.merge_ids(times)? || flushed)
    }

    fn flush_ids(&self) -> Result<bool, StoreError> {
        let Some(frozen) = self.ids.read().frozen() else { return Ok(false) };
        let number = self.take_run_number();
        match ids::write(&*self.disk, number, &frozen) {
            Ok(file) => {
                self.ids.write().install(file);
                self.frozen.fetch_sub(1, Ordering::Release);
                Ok(true)
            }
            Err(error) => Err(self.give_up("ids", &ids::path(number), error)),
        }
    }

    fn merge_ids(&self, times: Times) -> Result<bool, StoreError> {
        let Some(files) = self.ids.read().merge_plan() else { return Ok(false) };
        let number = self.take_run_number();
        let mut trouble = None;
        let mut looked: u64 = 0;
        let keep = |name: Name, value: &Value| {
            // A merge may take seconds; whoever sends with own ids does not wait that long.
            looked += 1;
            if looked.is_multiple_of(FLUSH_EVERY)
                && let Err(error) = self.flush_ids()
            {
                trouble = Some(error);
            }
            self.is_kept(name, value, times).unwrap_or_else(|error| {
                trouble = Some(error);
                true
            })
        };
        let merged = ids::merge(&*self.disk, number, &files, keep);
        if let Some(error) = trouble {
            tracing::error!(%error, "a table of ids could not be tended while others were merged");
        }
        let old: Vec<u64> = files.iter().map(|file| file.number()).collect();
        match merged {
            Ok(merged) => {
                self.ids.write().replace(&old, merged);
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                tracing::error!(?old, "files of ids with damage are not merged");
                self.remove_remains("ids", &ids::path(number))?;
                Ok(false)
            }
            Err(error) => Err(self.give_up("ids", &ids::path(number), error)),
        }
    }

    /// Whether somebody may still ask for this message by its own id, or by the id that it had
    /// before it was moved.
    fn is_kept(&self, name: Name, value: &Value, times: Times) -> Result<bool, StoreError> {
        let Value { key, topic, partition, .. } = *value;
        let id = MessageId { key, topic, partition };
        if topic != punctual_model::TopicId::TRANSACTIONS && self.topic_by_id(topic).is_none() {
            return Ok(false);
        }
        let recent = |due: Timestamp| due.saturating_add(REMEMBERED) > times.now;
        if recent(key.due) && !key.due.is_parked() {
            return Ok(true);
        }
        let place = if name.is_moved() { id } else { self.places(&[id])?.pop().unwrap_or(id) };
        let (states, stamps) = self.states_and_stamps(&[place])?;
        let stamp = stamps.into_iter().next().flatten();
        let standing = states.of(place.key.sequence.lane()).standing(place, stamp);
        drop(states);
        Ok(remembered(standing, place.key.due, times).unwrap_or(false))
    }
}
