//! What has ended, some time later: whole partitions are dropped, with the names and pointers of
//! what stood in them.
//!
//! The hours in which a topic has something go with their last partition.
//!
//! A partition goes once everything in it has ended by the slot's mark, long enough ago. The stamp
//! of its removal is chosen while no write of this slot is under way, and the bucket counts as not
//! listed from then on: what is put there later has a later stamp, and stays. Where something has
//! not ended, or is parked and never comes due, what has ended goes row by row.

use std::collections::HashMap;

use bytes::Bytes;
use punctual_model::{Key, Lane, Span, Timestamp};
use scylla::response::PagingState;

use super::calls::{Trouble, damaged, side_by_side};
use super::place::{self, Place, millis};
use super::rows::first_key;
use super::tenure::Holder;
use super::{Finished, Inner};
use crate::store::{Failure, Slot, Tenure};

/// Rows that one call looks at, in about.
const ROWS_MAX: usize = 10_000;

/// Rows that are read in one go.
const PAGE_ROWS: i32 = 500;

/// Buckets that are listed in one go.
const BUCKETS_AT_ONCE: i32 = 64;

/// Buckets that are remembered as being too fresh.
const LATER_MAX: usize = 10_000;

/// Names and pointers that are removed at a time.
const REMOVALS_AT_ONCE: usize = 32;

const DAY_MS: i64 = 86_400_000;

/// What a slot's owner is at with its finished partitions.
#[derive(Default)]
pub(super) struct Purging {
    work: Option<Work>,
    /// Buckets that are left alone until then.
    later: HashMap<(i8, i64), Timestamp>,
    /// The parked bucket that was looked at last, by lane.
    parked: [Option<i64>; Lane::ALL.len()],
}

/// A partition that is being looked through.
#[derive(Clone)]
struct Work {
    place: Place,
    /// The stamp of its removal.
    stamp: i64,
    /// Past this key it was not looked at.
    after: (i64, i64),
    /// Not everything in it has ended, as far as the slot's mark says: rows go one by one.
    by_row: bool,
    /// Something in it stays.
    stays: bool,
}

type FinishedColumns = (
    i64,
    i64,
    Option<i32>,
    Option<i16>,
    Option<i8>,
    Option<i64>,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<Bytes>,
);

/// A row that has ended.
struct Gone {
    key: Key,
    first: Key,
    topic: i32,
    part: i16,
    state: i8,
    ended_at: i64,
    name: Option<String>,
    content: Option<Bytes>,
}

/// What looking through a partition came to.
enum Looked {
    /// To its end.
    Through,
    /// As far as one call may go.
    Tired,
    /// It has to stay for now.
    Early,
}

impl Inner {
    pub(super) async fn purge(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Failure> {
        self.purge_some(tenure, before).await.map_err(Trouble::later)
    }

    async fn purge_some(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Trouble> {
        let Some(holder) = self.holder(tenure).await? else { return Ok(false) };
        let row = self.slot_row(&self.statements.slot, tenure.slot).await?;
        if row.term != Some(place::small(tenure.term)) {
            return Ok(false);
        }
        let mut budget = ROWS_MAX;
        loop {
            let work = holder.purging.lock().work.take();
            let work = match work {
                Some(work) => Some(work),
                None => self.next_work(&holder, row.marks.ended_before, before).await?,
            };
            let Some(mut work) = work else { break };
            match self.look_through_finished(&holder, &mut work, before, &mut budget).await? {
                Looked::Through => {
                    self.drop_bucket(&holder, &work).await?;
                    if work.stays {
                        // Not again before the rest of it has had its time.
                        let over = before.saturating_add(Span::from_millis(place::BUCKET_MS));
                        let over = over.max(place::bucket_end(work.place.bucket));
                        put_off(&holder, work.place, over);
                    }
                }
                Looked::Tired => {
                    holder.purging.lock().work = Some(work);
                    return Ok(true);
                }
                Looked::Early => {}
            }
        }
        for lane in Lane::ALL {
            self.purge_parked(&holder, lane, before, &mut budget).await?;
        }
        Ok(false)
    }

    /// The next partition in which something may have ended long enough ago.
    async fn next_work(
        &self,
        holder: &Holder,
        ended_before: [Timestamp; Lane::ALL.len()],
        before: Timestamp,
    ) -> Result<Option<Work>, Trouble> {
        let slot = i32::from(holder.tenure.slot.0);
        for lane in Lane::ALL {
            let done = ended_before[lane.index()].min(before);
            let last = super::tenure::first_bucket(before, lane);
            let mut from = 0;
            loop {
                let columns = (slot, place::lane(lane));
                let found = self.buckets(columns, from..=last, BUCKETS_AT_ONCE).await?;
                let Some(&end) = found.last() else { break };
                for bucket in found {
                    let key = (place::lane(lane), bucket);
                    let early = holder.purging.lock().later.get(&key).copied();
                    if early.is_none_or(|at| at < before) && !place::is_parked(bucket) {
                        let by_row = place::bucket_end(bucket) > done;
                        return self.begin(holder, lane, bucket, by_row).await.map(Some);
                    }
                }
                from = end + 1;
            }
        }
        Ok(None)
    }

    async fn begin(
        &self,
        holder: &Holder,
        lane: Lane,
        bucket: i64,
        by_row: bool,
    ) -> Result<Work, Trouble> {
        // Whatever has an earlier stamp is written once the gate is ours.
        let _alone = holder.gate.write().await;
        let stamp = self.stamp(holder).await?;
        let stamp = stamp.ok_or_else(|| Trouble::Refused("the slot is another's".into()))?;
        let slot = i32::from(holder.tenure.slot.0);
        let place = Place { slot, lane: place::lane(lane), bucket };
        holder.forget(place.lane, bucket);
        Ok(Work { place, stamp, after: (-1, -1), by_row, stays: false })
    }

    async fn look_through_finished(
        &self,
        holder: &Holder,
        work: &mut Work,
        before: Timestamp,
        budget: &mut usize,
    ) -> Result<Looked, Trouble> {
        let mut statement = self.statements.finished.clone();
        statement.set_page_size(PAGE_ROWS);
        loop {
            let Place { slot, lane, bucket } = work.place;
            let values = (slot, lane, bucket, work.after.0, work.after.1);
            let (found, next) = self.calls.page(&statement, values, PagingState::start()).await?;
            let mut gone = Vec::new();
            for row in found.rows::<FinishedColumns>().map_err(damaged)? {
                let row = row.map_err(damaged)?;
                *budget = budget.saturating_sub(1);
                work.after = (row.0, row.1);
                let Some(one) = ended(row)? else {
                    // Past the slot's mark it is something that was never answered as done: a
                    // former owner wrote it after its time.
                    work.stays |= work.by_row;
                    continue;
                };
                if one.ended_at >= millis(before) {
                    if !work.by_row {
                        put_off(holder, work.place, place::time(one.ended_at).map_err(damaged)?);
                        return Ok(Looked::Early);
                    }
                    work.stays = true;
                    continue;
                }
                gone.push(one);
            }
            self.let_go(work, gone).await?;
            if next.is_none() {
                return Ok(Looked::Through);
            }
            if *budget == 0 {
                return Ok(Looked::Tired);
            }
        }
    }

    /// Names, pointers and archive of rows that are about to go, or go here and now.
    async fn let_go(&self, work: &Work, gone: Vec<Gone>) -> Result<(), Trouble> {
        let rows = gone.into_iter().map(|row| self.let_go_of(work, row));
        side_by_side(REMOVALS_AT_ONCE, rows).await.into_iter().collect()
    }

    async fn let_go_of(&self, work: &Work, row: Gone) -> Result<(), Trouble> {
        let Place { slot, lane, bucket } = work.place;
        let (due, sequence) = (millis(row.key.due), place::sequence(row.key.sequence));
        let (first_due, first_sequence) =
            (millis(row.first.due), place::sequence(row.first.sequence));
        if self.finished == Finished::Archive {
            let day = row.ended_at / DAY_MS;
            let values = (
                row.topic,
                day,
                due,
                sequence,
                row.part,
                first_due,
                first_sequence,
                row.state,
                row.ended_at,
                row.content,
                work.stamp,
            );
            self.calls.write(&self.statements.archive, values).await?;
        }
        if let Some(name) = row.name {
            let values = (row.topic, name, first_due, first_sequence);
            // It may be another message's by now; then it stays.
            self.decide_again(&self.statements.name_drop, values).await?;
        }
        if row.first != row.key {
            let holder = i32::from(Slot::of(row.first.sequence).0);
            let first = place::bucket(row.first);
            let values = (work.stamp, holder, lane, first, first_due, first_sequence);
            self.calls.write(&self.statements.moved_drop, values).await?;
        }
        if work.by_row {
            let values = (work.stamp, slot, lane, bucket, due, sequence);
            self.calls.write(&self.statements.remove, values).await?;
        }
        Ok(())
    }

    /// Drops a partition that was looked through.
    async fn drop_bucket(&self, holder: &Holder, work: &Work) -> Result<(), Trouble> {
        let Place { slot, lane, bucket } = work.place;
        if work.stays {
            return Ok(());
        }
        let near = place::buckets_of(place::span(bucket));
        let near = self.buckets((slot, lane), near, BUCKETS_AT_ONCE).await?;
        if near.iter().all(|other| *other == bucket) {
            self.drop_span(work).await?;
        }
        let values = (work.stamp, slot, lane, bucket);
        self.calls.write(&self.statements.drop, values).await?;
        // The last one: until then somebody comes back to it.
        self.calls.write(&self.statements.bucket_drop, values).await?;
        holder.purging.lock().later.remove(&(lane, bucket));
        Ok(())
    }

    /// Topics are told no more that they have something in the span of a partition, which is its last.
    async fn drop_span(&self, work: &Work) -> Result<(), Trouble> {
        let Place { slot, lane, bucket } = work.place;
        let span = place::span(bucket);
        let mut from = PagingState::start();
        loop {
            let values = (slot, lane, span);
            let (found, next) = self.calls.page(&self.statements.span_topics, values, from).await?;
            let topics = found.rows::<(i32,)>().map_err(damaged)?;
            let topics: Vec<(i32,)> = topics.collect::<Result<_, _>>().map_err(damaged)?;
            let drops = topics.into_iter().map(|(topic,)| {
                let values = (work.stamp, topic, lane, span, slot);
                self.calls.write(&self.statements.topic_drop, values)
            });
            side_by_side(REMOVALS_AT_ONCE, drops).await.into_iter().collect::<Result<(), _>>()?;
            match next {
                Some(next) => from = next,
                None => break,
            }
        }
        let values = (work.stamp, slot, lane, span);
        self.calls.write(&self.statements.span_drop, values).await
    }

    /// Looks through one bucket of what is parked, another one each time.
    async fn purge_parked(
        &self,
        holder: &Holder,
        lane: Lane,
        before: Timestamp,
        budget: &mut usize,
    ) -> Result<(), Trouble> {
        let columns = (i32::from(holder.tenure.slot.0), place::lane(lane));
        let first = super::tenure::first_bucket(Timestamp::PREPARED, lane);
        let last = holder.purging.lock().parked[lane.index()];
        let from = last.map_or(first, |last| last + 1);
        let found = self.buckets(columns, from..=i64::MAX, 1).await?;
        holder.purging.lock().parked[lane.index()] = found.first().copied();
        let Some(&bucket) = found.first() else { return Ok(()) };
        let mut work = self.begin(holder, lane, bucket, true).await?;
        match self.look_through_finished(holder, &mut work, before, budget).await? {
            Looked::Through => self.drop_bucket(holder, &work).await,
            Looked::Tired | Looked::Early => Ok(()),
        }
    }
}

/// Leaves a partition alone until then.
fn put_off(holder: &Holder, place: Place, until: Timestamp) {
    let mut purging = holder.purging.lock();
    if purging.later.len() >= LATER_MAX {
        purging.later.clear();
    }
    purging.later.insert((place.lane, place.bucket), until);
}

/// A row that has ended; `None` for one that has not, as far as it says.
fn ended(columns: FinishedColumns) -> Result<Option<Gone>, Trouble> {
    let (due, sequence, topic, part, state, ended_at, name, first_due, first_sequence, content) =
        columns;
    let (Some(topic), Some(part), Some(state), Some(ended_at)) = (topic, part, state, ended_at)
    else {
        return Ok(None);
    };
    let key = place::key(due, sequence).map_err(damaged)?;
    let first = first_key(key, first_due, first_sequence)?;
    Ok(Some(Gone { key, first, topic, part, state, ended_at, name, content }))
}
