//! From a frozen memory table to a run on the shelf.

use std::io;
use std::sync::Arc;

use punctual_model::{Key, Timestamp, TopicId};

use crate::disk::Disk;
use crate::timeline::ended::Ended;
use crate::timeline::merge::ShelfChange;
use crate::timeline::run::{Run, Stamp};
use crate::timeline::run_writer::{Ids, RunWriter};
use crate::timeline::shelf::{Shelved, start_of};
use crate::timeline::table::{Bits, Table};
use crate::timeline::{State, Tabled};

/// A table written out: the run, and which entries it holds, in key order.
#[derive(Debug)]
pub struct Written {
    run: Option<Run>,
    order: Vec<(Timestamp, u32)>,
    /// What had ended when writing began.
    gone: Bits,
}

/// Writes what is alive in `table` as run `number`. The table may lose entries meanwhile;
/// [`State::install`] sees to those.
///
/// # Errors
/// As the disk says.
pub fn write(
    disk: &dyn Disk,
    number: u64,
    table: &Table,
    gone: Bits,
    (block_bytes, far_from): (usize, Timestamp),
) -> io::Result<Written> {
    let alive = (0u32..).zip(table.iter()).filter(|(_, (index, _))| !gone.get(*index));
    let mut order: Vec<(Timestamp, u32)> = alive.map(|(n, (_, slot))| (slot.due, n)).collect();
    if order.is_empty() {
        return Ok(Written { run: None, order, gone });
    }
    order.sort_unstable();
    let writer = RunWriter::create(disk, number, table.first(), block_bytes)?;
    let mut writer = writer.with_far_from(far_from);
    for &(_, index) in &order {
        let index = index as usize;
        let parts = (table.key(index), table.slot(index), table.content(index));
        let (Some(key), Some(slot), Some(content)) = parts else { continue };
        writer.push(key, slot.topic, content)?;
    }
    let stamps = table
        .iter()
        .map(|(index, slot)| {
            (!gone.get(index)).then(|| Stamp::new(slot.due, slot.topic, slot.partition))
        })
        .collect();
    let run = writer.finish(disk, &[Ids { first: table.first(), stamps }])?;
    Ok(Written { run: Some(run), order, gone })
}

impl State {
    /// The frozen table, and what has ended in it, for [`write()`].
    #[must_use]
    pub fn frozen(&self) -> Option<(Arc<Table>, Bits)> {
        self.frozen.as_ref().map(|tabled| (Arc::clone(&tabled.table), tabled.gone.clone()))
    }

    /// Replaces the frozen table by the run that was made of it. What is due before the horizon
    /// came through the near future and is not read again. Answers the table, for the caller to
    /// drop without the lock.
    pub fn install(&mut self, written: Written) -> Option<Tabled> {
        let frozen = self.frozen.take()?;
        let Some(run) = written.run else { return Some(frozen) };
        let run = Arc::new(run);
        let from = start_of(self.horizon);
        let mut shelved = Shelved::new(Arc::clone(&run), from);
        shelved.ended = Ended::nothing();
        for index in frozen.gone.added_since(&written.gone) {
            if let Some((key, topic)) = entry(&frozen, index) {
                shelved.withdraw(key, topic);
            }
        }
        let near = written.order.partition_point(|&(due, _)| due < self.horizon);
        for &(_, index) in written.order.get(..near).unwrap_or_default() {
            if !frozen.gone.get(index as usize) {
                shelved.early.insert(frozen.table.first() + u64::from(index));
            }
        }
        // What was cancelled before it was written may still be in the near future, in the
        // caller's hands or in the journal behind the table: each has to find it ended.
        shelved.gone |= &frozen.withdrawn;
        shelved.counts.retain(|topic, _| self.topics.contains(topic));
        self.shelve(shelved);
        self.changes.push(ShelfChange::Add(run, from));
        Some(frozen)
    }
}

fn entry(tabled: &Tabled, index: usize) -> Option<(Key, TopicId)> {
    Some((tabled.table.key(index)?, tabled.table.slot(index)?.topic))
}
