//! What is pending in a slot, and what is known of a message or a name.

use std::ops::RangeInclusive;
use std::sync::Arc;

use punctual_model::{Key, Lane, MessageId, Partition, State, Timestamp, TopicId};
use scylla::response::PagingState;

use super::Inner;
use super::calls::{Trouble, damaged, side_by_side};
use super::place::{self, Place, millis};
use super::rows::{EntryColumns, EntryRow, entry_row};
use super::tenure::first_bucket;
use crate::store::{Change, Failure, Named, Slot, Stored};

/// Messages that are asked for at a time.
const IDS_AT_ONCE: usize = 64;

/// Rows of the first page of a partition; the next ones are as large as bodies allow.
const FIRST_ROWS: usize = 100;

/// Rows of any page.
const ROWS_MAX: usize = 2000;

/// Bytes that a page should have.
const PAGE_BYTES: usize = 2 << 20;

/// Buckets that are asked for at a time.
const BUCKETS_AT_ONCE: i32 = 32;

impl Inner {
    pub(super) async fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> Result<Vec<Stored>, Failure> {
        // What is parked stands past every time, but is never due.
        let until = until.min(Timestamp::PREPARED);
        let mut found = Vec::new();
        let mut bytes = 0;
        let (mut from, last) = (place::bucket(after), first_bucket(until, lane).min(last_bucket()));
        while found.len() < limit.0 && bytes < limit.1 {
            let columns = (i32::from(slot.0), place::lane(lane));
            let buckets = self.buckets(columns, from..=last, BUCKETS_AT_ONCE).await;
            let buckets = buckets.map_err(Trouble::read)?;
            let Some(&end) = buckets.last() else { break };
            for bucket in buckets {
                if found.len() >= limit.0 || bytes >= limit.1 {
                    break;
                }
                let place = Place { slot: columns.0, lane: columns.1, bucket };
                self.page_of(place, (after, until), limit, (&mut found, &mut bytes))
                    .await
                    .map_err(Trouble::read)?;
            }
            from = end + 1;
        }
        Ok(found)
    }

    async fn page_of(
        &self,
        place: Place,
        (after, until): (Key, Timestamp),
        limit: (usize, usize),
        (found, bytes): (&mut Vec<Stored>, &mut usize),
    ) -> Result<(), Trouble> {
        let values = (
            place.slot,
            place.lane,
            place.bucket,
            millis(after.due),
            place::sequence(after.sequence),
            millis(until),
            -1_i64,
        );
        let mut statement = self.statements.page.clone();
        let mut rows_next = FIRST_ROWS.min(limit.0);
        let mut from = PagingState::start();
        loop {
            statement.set_page_size(i32::try_from(rows_next).unwrap_or(i32::MAX).max(1));
            let (rows, next) = self.calls.page(&statement, values, from).await?;
            let (mut count, mut size) = (0, 0);
            for row in rows.rows::<EntryColumns>().map_err(damaged)? {
                count += 1;
                let Some(row) = entry_row(row.map_err(damaged)?)? else { continue };
                size += row.bytes;
                if !row.stored.state.is_pending() {
                    continue;
                }
                if found.len() >= limit.0 || *bytes >= limit.1 {
                    return Ok(());
                }
                *bytes += row.bytes;
                found.push(row.stored);
            }
            let Some(next) = next else { return Ok(()) };
            if found.len() >= limit.0 || *bytes >= limit.1 {
                return Ok(());
            }
            from = next;
            // As many as should fit, but not much more than the last time: bodies differ.
            let each = size / usize::max(count, 1);
            rows_next = (PAGE_BYTES / usize::max(each, 1)).clamp(1, (count * 4).clamp(1, ROWS_MAX));
        }
    }

    /// The first buckets in a range that have or had entries of a slot and lane, in order.
    pub(super) async fn buckets(
        &self,
        (slot, lane): (i32, i8),
        range: RangeInclusive<i64>,
        limit: i32,
    ) -> Result<Vec<i64>, Trouble> {
        let values = (slot, lane, *range.start(), *range.end(), limit);
        let rows = self.calls.rows(&self.statements.bucket_next, values).await?;
        let rows = rows.rows::<(i64,)>().map_err(damaged)?;
        rows.map(|row| row.map(|(bucket,)| bucket).map_err(damaged)).collect()
    }

    pub(super) async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Stored>>, Failure> {
        let rows = self.find_all(ids).await.map_err(Trouble::read)?;
        Ok(rows.into_iter().map(|row| row.map(|row| row.stored)).collect())
    }

    /// Messages, wherever they stand.
    pub(super) async fn find_all(
        &self,
        ids: &[MessageId],
    ) -> Result<Vec<Option<EntryRow>>, Trouble> {
        let found = ids.iter().map(|id| self.find(*id));
        side_by_side(IDS_AT_ONCE, found).await.into_iter().collect()
    }

    /// A message, wherever it stands.
    pub(super) async fn find(&self, id: MessageId) -> Result<Option<EntryRow>, Trouble> {
        let slot = Slot::of(id.key.sequence);
        // A message that is being moved stands in neither place for a moment of this.
        for _ in 0..3 {
            if let Some(row) = self.row_at(slot, id.key).await? {
                return Ok(Some(row).filter(|row| row.stored.id == id));
            }
            let Some(now) = self.moved_to(slot, id.key).await? else { return Ok(None) };
            if let Some(row) = self.row_at(slot, now).await? {
                return Ok(Some(row).filter(|row| row.stored.id == id));
            }
        }
        Ok(None)
    }

    pub(super) async fn row_at(&self, slot: Slot, key: Key) -> Result<Option<EntryRow>, Trouble> {
        let place = Place::of(slot, key);
        let (due, sequence) = (millis(key.due), place::sequence(key.sequence));
        let values = (place.slot, place.lane, place.bucket, due, sequence);
        let rows = self.calls.rows(&self.statements.get, values).await?;
        let row = rows.maybe_first_row::<EntryColumns>().map_err(damaged)?;
        row.map_or(Ok(None), entry_row)
    }

    async fn moved_to(&self, slot: Slot, first: Key) -> Result<Option<Key>, Trouble> {
        let place = Place::of(slot, first);
        let (due, sequence) = (millis(first.due), place::sequence(first.sequence));
        let values = (place.slot, place.lane, place.bucket, due, sequence);
        let rows = self.calls.rows(&self.statements.moved, values).await?;
        let row = rows.maybe_first_row::<(i64, i64)>().map_err(damaged)?;
        row.map(|(due, sequence)| place::key(due, sequence).map_err(damaged)).transpose()
    }

    pub(super) async fn names(
        &self,
        topic: TopicId,
        texts: &[Arc<str>],
    ) -> Result<Vec<Option<Named>>, Failure> {
        let found = texts.iter().map(|text| self.named(topic, text));
        let found: Result<_, _> = side_by_side(IDS_AT_ONCE, found).await.into_iter().collect();
        found.map_err(Trouble::read)
    }

    async fn named(&self, topic: TopicId, text: &str) -> Result<Option<Named>, Trouble> {
        let Some((id, print)) = self.name_of(topic, text, false).await? else { return Ok(None) };
        if let Some(row) = self.find(id).await? {
            let EntryRow { stored, ended_at, .. } = row;
            return Ok(Some(Named { id, print, state: Some(stored.state), ended_at }));
        }
        // A name comes before its message: it may be on its way, as the intent of its slot says.
        let intent = self.intent_of(Slot::of(id.key.sequence)).await?;
        let coming = intent.is_some_and(|(groups, _)| {
            let mut changes = groups.iter().flat_map(|group| &group.changes);
            changes.any(|change| matches!(change, Change::Name { id: of, .. } if *of == id))
        });
        if coming {
            let state = Some(State::Scheduled);
            return Ok(Some(Named { id, print, state, ended_at: None }));
        }
        // Or it has just arrived, or the name was given back.
        if let Some(row) = self.find(id).await? {
            let EntryRow { stored, ended_at, .. } = row;
            return Ok(Some(Named { id, print, state: Some(stored.state), ended_at }));
        }
        let now = self.name_of(topic, text, true).await?;
        Ok(now.map(|(id, print)| Named { id, print, state: None, ended_at: None }))
    }

    /// Whose name it is, and the fingerprint of its request.
    pub(super) async fn name_of(
        &self,
        topic: TopicId,
        text: &str,
        latest: bool,
    ) -> Result<Option<(MessageId, u64)>, Trouble> {
        let statement = if latest { &self.statements.name_latest } else { &self.statements.name };
        let rows = self.calls.rows(statement, (place::topic(topic), text)).await?;
        let row = rows.maybe_first_row::<(i64, i64, i16, i64)>().map_err(damaged)?;
        let Some((due, sequence, part, print)) = row else { return Ok(None) };
        let key = place::key(due, sequence).map_err(damaged)?;
        let part = u16::try_from(part).ok().and_then(Partition::new);
        let partition = part.ok_or_else(|| damaged("not a partition"))?;
        Ok(Some((MessageId { key, topic, partition }, print.cast_unsigned())))
    }

    pub(super) async fn is_empty(&self, slot: Slot) -> Result<bool, Failure> {
        for lane in Lane::ALL {
            let ended = self.ended_before(slot, lane).await.map_err(Trouble::read)?;
            let mut from = first_bucket(ended, lane);
            let columns = (i32::from(slot.0), place::lane(lane));
            loop {
                let buckets = self.buckets(columns, from..=i64::MAX, BUCKETS_AT_ONCE).await;
                let buckets = buckets.map_err(Trouble::read)?;
                let Some(&last) = buckets.last() else { break };
                for bucket in buckets {
                    let place = Place { slot: columns.0, lane: columns.1, bucket };
                    if self.has_pending(place).await.map_err(Trouble::read)? {
                        return Ok(false);
                    }
                }
                from = last + 1;
            }
        }
        Ok(true)
    }

    async fn has_pending(&self, place: Place) -> Result<bool, Trouble> {
        let mut from = PagingState::start();
        let values = (place.slot, place.lane, place.bucket, -1_i64, -1_i64, i64::MAX, i64::MAX);
        loop {
            let (rows, next) = self.calls.page(&self.statements.scan, values, from).await?;
            for row in rows.rows::<super::listing::ScanColumns>().map_err(damaged)? {
                let (_, _, topic, _, _, _, state) = row.map_err(damaged)?;
                if topic.is_some() && state.is_none() {
                    return Ok(true);
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(false),
            }
        }
    }
}

/// The last bucket of what may become due.
fn last_bucket() -> i64 {
    millis(Timestamp::PREPARED) / i64::try_from(place::BUCKET_MS).unwrap_or(i64::MAX)
}
