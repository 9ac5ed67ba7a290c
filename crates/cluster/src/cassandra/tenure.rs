//! Who holds a slot: taking it, keeping its marks, and the stamps of its owner's writes.
//!
//! Everything here is decided on the row of the slot by lightweight transactions, whose condition is
//! the term.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_model::clock::Clock;
use punctual_model::{Lane, Timestamp};
use scylla::serialize::row::SerializeRow;
use scylla::statement::batch::{Batch, BatchType};
use scylla::statement::prepared::PreparedStatement;

use super::Inner;
use super::calls::{Trouble, damaged, side_by_side};
use super::intent::Intending;
use super::place::{self, millis, number, small, time};
use super::purge::Purging;
use crate::store::{Counted, Failure, Marks, Slot, Tenure};

/// How far ahead of its use a range of stamps is written down, in microseconds. The next owner's
/// begin past it, so it is also how far stamps may run ahead of the clock after a change of owner.
const STAMPS_AHEAD: i64 = 30_000_000;

/// How often a decision is tried that may be repeated.
const DECISIONS: usize = 3;

/// Slots that are asked at a time.
pub(super) const SLOTS_AT_ONCE: usize = 64;

/// Buckets of which an owner remembers that they are listed.
const KNOWN_MAX: usize = 200_000;

/// A lane and a bucket that is listed, or a span that is for a topic.
pub(super) type Listed = (i8, i64, Option<i32>);

/// What the process knows of a slot that it holds.
pub(super) struct Holder {
    pub(super) tenure: Tenure,
    stamps: Mutex<Stamps>,
    marks: Mutex<Marks>,
    known: Mutex<HashSet<Listed>>,
    /// Held shared from the choice of a stamp until what it was for is written; alone by whoever
    /// must know that nothing with an earlier stamp is still to come.
    pub(super) gate: tokio::sync::RwLock<()>,
    pub(super) intending: tokio::sync::Mutex<Intending>,
    pub(super) purging: Mutex<Purging>,
}

/// Stamps given out, and the bound that is written down.
struct Stamps {
    last: i64,
    until: i64,
}

impl Holder {
    fn new(tenure: Tenure, marks: Marks, from: i64, until: i64) -> Self {
        Self {
            tenure,
            stamps: Mutex::new(Stamps { last: from, until }),
            marks: Mutex::new(marks),
            known: Mutex::new(HashSet::new()),
            gate: tokio::sync::RwLock::new(()),
            intending: tokio::sync::Mutex::new(Intending::default()),
            purging: Mutex::new(Purging::default()),
        }
    }

    /// As if its clock were wrong by so much.
    #[cfg(test)]
    pub(super) fn run_ahead(&self, microseconds: i64) {
        self.stamps.lock().last += microseconds;
    }

    /// Whether that is listed already.
    pub(super) fn knows(&self, listed: Listed) -> bool {
        self.known.lock().contains(&listed)
    }

    /// These are listed by now.
    pub(super) fn learn(&self, listed: impl IntoIterator<Item = Listed>) {
        let mut known = self.known.lock();
        if known.len() > KNOWN_MAX {
            known.clear();
        }
        known.extend(listed);
    }

    /// A bucket is about to go, and its span with it if there is no other.
    pub(super) fn forget(&self, lane: i8, bucket: i64) {
        let span = place::span(bucket);
        self.known.lock().retain(|&(of, number, topic)| {
            of != lane || number != topic.map_or(bucket, |_topic| span)
        });
    }
}

/// The row of a slot.
pub(super) struct SlotRow {
    pub(super) term: Option<i64>,
    pub(super) marks: Marks,
    stamps_until: i64,
}

type SlotColumns =
    (i32, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>);

impl Inner {
    /// Takes a slot over and carries out what the owner before had only intended.
    pub(super) async fn take(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        let term = small(tenure.term);
        let slot = i32::from(tenure.slot.0);
        let mut trouble = None;
        for _ in 0..DECISIONS * 2 {
            let row = self.slot_row(&self.statements.slot_latest, tenure.slot).await;
            let row = row.map_err(Trouble::read)?;
            if row.term.is_some_and(|found| found > term) {
                return Ok(None);
            }
            let from = self.now_us().max(row.stamps_until.saturating_add(1));
            let until = from.saturating_add(STAMPS_AHEAD);
            let statement = &self.statements.take;
            match self.calls.decide(statement, (term, until, slot, row.term)).await {
                Ok(true) => return self.taken(tenure, from, until).await,
                // Somebody else, or an attempt of ours whose answer was lost: look again.
                Ok(false) => {}
                Err(Trouble::Unsure(text)) => trouble = Some(Trouble::Unsure(text)),
                Err(other) => return Err(other.first()),
            }
        }
        let busy = || Trouble::Refused("the slot is being taken by others".into());
        Err(trouble.unwrap_or_else(busy).first())
    }

    async fn taken(&self, tenure: Tenure, from: i64, until: i64) -> Result<Option<Marks>, Failure> {
        // The owner before may have written marks until the term changed.
        let row = self.slot_row(&self.statements.slot, tenure.slot).await;
        let row = row.map_err(Trouble::read)?;
        if row.term != Some(small(tenure.term)) {
            return Ok(None);
        }
        let holder = Arc::new(Holder::new(tenure, row.marks, from, until));
        if !self.resolve(&holder).await.map_err(Trouble::later)? {
            return Ok(None);
        }
        self.holders.lock().insert(tenure.slot, holder);
        Ok(Some(row.marks))
    }

    /// Writes marks down, and forgets intents that were carried out.
    pub(super) async fn keep(
        &self,
        slots: Vec<(Tenure, Marks, Vec<Counted>)>,
    ) -> Result<Vec<bool>, Failure> {
        let kept = slots.iter().map(|(tenure, marks, _)| self.keep_one(*tenure, *marks));
        let kept: Result<Vec<bool>, Trouble> =
            side_by_side(SLOTS_AT_ONCE, kept).await.into_iter().collect();
        let kept = kept.map_err(Trouble::later)?;
        let counted = slots.iter().zip(&kept).filter(|(_, kept)| **kept);
        let counted = counted.map(|((tenure, _, counted), _)| (tenure.slot, counted.as_slice()));
        self.count(counted.collect()).await;
        Ok(kept)
    }

    async fn keep_one(&self, tenure: Tenure, wanted: Marks) -> Result<bool, Trouble> {
        let Some(holder) = self.holder(tenure).await? else { return Ok(false) };
        let marks = {
            let known = holder.marks.lock();
            // An owner that says that nothing was claimed has nothing on its way.
            let claimed_until = match wanted.claimed_until {
                Timestamp::MIN => Timestamp::MIN,
                until => until.max(known.claimed_until),
            };
            Marks { claimed_until, ..wanted }
        };
        let until = self.stamps_ahead(&holder);
        let slot = i32::from(tenure.slot.0);
        let term = small(tenure.term);
        let values = (
            millis(marks.claimed_until),
            millis(marks.ended_before[Lane::Message.index()]),
            millis(marks.ended_before[Lane::Retry.index()]),
            small(marks.counters_until),
            until,
            slot,
            term,
        );
        // Nobody waits for an intent that is under way: the next time will do.
        let intending = holder.intending.try_lock().ok();
        let done = intending.as_ref().map_or(0, |intending| intending.done_parts());
        let kept = if done == 0 {
            self.decide_again(&self.statements.keep, values).await?
        } else {
            let mut batch = Batch::new(BatchType::Unlogged);
            batch.set_consistency(self.level());
            batch.set_serial_consistency(self.statements.keep.get_serial_consistency());
            batch.append_statement(self.statements.keep.clone());
            let mut all: Vec<Box<dyn SerializeRow + Send + Sync>> = vec![Box::new(values)];
            for part in 0..done {
                batch.append_statement(self.statements.intend.clone());
                all.push(Box::new((Vec::<u8>::new(), slot, part, term)));
            }
            self.calls.decide_all(&batch, all).await?
        };
        if kept {
            *holder.marks.lock() = marks;
            let mut stamps = holder.stamps.lock();
            stamps.until = stamps.until.max(until);
            if let Some(mut intending) = intending.filter(|_| done > 0) {
                intending.forgotten();
            }
        }
        Ok(kept)
    }

    /// What this process knows of a slot that it holds; `None` when it holds it no more.
    pub(super) async fn holder(&self, tenure: Tenure) -> Result<Option<Arc<Holder>>, Trouble> {
        let known = self.holders.lock().get(&tenure.slot).map(Arc::clone);
        match known {
            Some(holder) if holder.tenure == tenure => return Ok(Some(holder)),
            Some(holder) if holder.tenure.term > tenure.term => return Ok(None),
            _ => {}
        }
        // Taken by this node in another life of its store.
        let row = self.slot_row(&self.statements.slot_latest, tenure.slot).await?;
        if row.term != Some(small(tenure.term)) {
            return Ok(None);
        }
        let from = self.now_us().max(row.stamps_until.saturating_add(1));
        let until = from.saturating_add(STAMPS_AHEAD);
        let values = (until, i32::from(tenure.slot.0), small(tenure.term));
        if !self.decide_again(&self.statements.stamps, values).await? {
            return Ok(None);
        }
        let holder = Arc::new(Holder::new(tenure, row.marks, from, until));
        if !self.resolve(&holder).await? {
            return Ok(None);
        }
        let mut holders = self.holders.lock();
        let known = holders.entry(tenure.slot).or_insert_with(|| Arc::clone(&holder));
        if known.tenure != tenure {
            *known = holder;
        }
        Ok(Some(Arc::clone(known)))
    }

    /// The stamp of the next write; `None` when the slot is another's by now.
    pub(super) async fn stamp(&self, holder: &Holder) -> Result<Option<i64>, Trouble> {
        loop {
            if let Some(stamp) = self.next_stamp(holder) {
                return Ok(Some(stamp));
            }
            if !self.renew(holder).await? {
                return Ok(None);
            }
        }
    }

    /// Moves the bound of an owner's stamps on; whether it still may.
    pub(super) async fn renew(&self, holder: &Holder) -> Result<bool, Trouble> {
        let until = self.stamps_ahead(holder);
        let values = (until, i32::from(holder.tenure.slot.0), small(holder.tenure.term));
        let renewed = self.decide_again(&self.statements.stamps, values).await?;
        if renewed {
            let mut stamps = holder.stamps.lock();
            stamps.until = stamps.until.max(until);
        }
        Ok(renewed)
    }

    fn next_stamp(&self, holder: &Holder) -> Option<i64> {
        let now = self.now_us();
        let mut stamps = holder.stamps.lock();
        let stamp = now.max(stamps.last.saturating_add(1));
        if stamp >= stamps.until {
            return None;
        }
        stamps.last = stamp;
        Some(stamp)
    }

    fn stamps_ahead(&self, holder: &Holder) -> i64 {
        let now = self.now_us();
        holder.stamps.lock().last.max(now).saturating_add(STAMPS_AHEAD)
    }

    /// Whether the slot still has this term.
    pub(super) async fn holds(&self, tenure: Tenure) -> Result<bool, Trouble> {
        // Asked twice for each write: nothing but the term is read.
        let slot = i32::from(tenure.slot.0);
        let rows = self.calls.rows(&self.statements.term, (slot,)).await?;
        let row = rows.maybe_first_row::<(i32, Option<i64>)>().map_err(damaged)?;
        Ok(row.and_then(|(_, term)| term) == Some(small(tenure.term)))
    }

    /// The row of a slot; all empty when nobody ever held it.
    pub(super) async fn slot_row(
        &self,
        statement: &PreparedStatement,
        slot: Slot,
    ) -> Result<SlotRow, Trouble> {
        let rows = self.calls.rows(statement, (i32::from(slot.0),)).await?;
        let row = rows.maybe_first_row::<SlotColumns>().map_err(damaged)?;
        let (_, term, claimed, message, retry, counters, stamps_until) =
            row.unwrap_or((0, None, None, None, None, None, None));
        let at = |column: Option<i64>| time(column.unwrap_or(0)).map_err(damaged);
        let mut ended_before = [Timestamp::MIN; Lane::ALL.len()];
        ended_before[Lane::Message.index()] = at(message)?;
        ended_before[Lane::Retry.index()] = at(retry)?;
        let marks = Marks {
            claimed_until: at(claimed)?,
            ended_before,
            counters_until: number(counters.unwrap_or(0)),
        };
        Ok(SlotRow { term, marks, stamps_until: stamps_until.unwrap_or(0) })
    }

    /// A decision whose condition its own effect does not change, so that it may be repeated.
    pub(super) async fn decide_again(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<bool, Trouble> {
        let mut attempt = 1;
        loop {
            match self.calls.decide(statement, &values).await {
                Err(Trouble::Unsure(_)) if attempt < DECISIONS => attempt += 1,
                answer => return answer,
            }
        }
    }

    /// The consistency of all statements.
    pub(super) fn level(&self) -> scylla::frame::types::Consistency {
        self.statements.put.get_consistency().unwrap_or(scylla::frame::types::Consistency::Quorum)
    }

    fn now_us(&self) -> i64 {
        i64::try_from(self.clock.read().wall.as_micros()).unwrap_or(i64::MAX / 2)
    }

    /// The marks of a slot as they were written down last.
    pub(super) async fn ended_before(&self, slot: Slot, lane: Lane) -> Result<Timestamp, Trouble> {
        let row = self.slot_row(&self.statements.slot, slot).await?;
        Ok(row.marks.ended_before[lane.index()])
    }
}

/// The slot of a column.
pub(super) fn slot_of(column: i32) -> Result<Slot, Trouble> {
    u16::try_from(column).map(Slot).map_err(|_e| damaged("a slot of over 16 bits"))
}

/// Where a lane begins for whoever reads from `from` on.
pub(super) fn first_bucket(from: Timestamp, lane: Lane) -> i64 {
    place::bucket(punctual_model::Key { due: from, sequence: lane.first() })
}
