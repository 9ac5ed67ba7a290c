//! What a topic has pending, over all slots, in key order.
//!
//! A table tells in which hours of which slots a topic has something, and another which buckets those
//! have. Their rows are looked at side by side, bucket by bucket, without their bodies; bodies are read of
//! what goes into the answer alone. One call looks at a bounded number of rows, and answers how far it came.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use punctual_model::ports::{PendingEntry, PendingPage, PendingQuery};
use punctual_model::{Key, Lane, Sequence, Timestamp, TopicId};
use scylla::response::PagingState;

use super::Inner;
use super::calls::{Trouble, damaged, side_by_side};
use super::place::{self, Place, millis};
use super::tenure::slot_of;
use crate::store::{Failure, Slot};

/// Rows that one call looks at, in about.
const LOOK_MAX: usize = 8192;

/// Rows of one slot that are looked at in one go.
const ROWS: std::ops::RangeInclusive<usize> = 16..=500;

/// Slots that are asked at a time.
const SLOTS_AT_ONCE: usize = 32;

/// Bodies that are read at a time.
const BODIES_AT_ONCE: usize = 32;

/// Bytes of bodies in one answer, in about.
const BODY_BYTES: usize = 8 << 20;

/// The columns of a row without its body.
pub(super) type ScanColumns =
    (i64, i64, Option<i32>, Option<i16>, Option<i8>, Option<Bytes>, Option<i8>);

/// A range of keys as columns, without both its ends.
pub(super) type Range = ((i64, i64), (i64, i64));

/// A pending row, without its body.
pub(super) struct Glimpse {
    pub(super) key: Key,
    pub(super) topic: i32,
    pub(super) kind: i8,
    message_key: Option<Bytes>,
}

/// What was seen of one partition.
pub(super) struct Look {
    pub(super) pending: Vec<Glimpse>,
    /// The last key that was looked at, if more follow.
    pub(super) more_after: Option<Key>,
    pub(super) looked_at: usize,
}

/// How far a listing has come.
struct Walk {
    lane: Lane,
    range: Range,
    found: Vec<(Slot, Key)>,
    looked_at: usize,
    ended_before: HashMap<Slot, Timestamp>,
}

impl Inner {
    pub(super) async fn pending(&self, query: &PendingQuery) -> Result<PendingPage, Failure> {
        self.list(query).await.map_err(Trouble::read)
    }

    async fn list(&self, query: &PendingQuery) -> Result<PendingPage, Trouble> {
        let from = Key { due: query.from, sequence: query.lane.first() };
        let (start, first) = match query.after {
            Some(after) if after.due >= query.from => {
                ((millis(after.due), place::sequence(after.sequence)), place::bucket(after))
            }
            _ => ((millis(query.from), -1), place::bucket(from)),
        };
        let (end, last) = if query.to == Timestamp::MAX {
            ((i64::MAX, i64::MAX), i64::MAX)
        } else {
            let to = Key { due: query.to, sequence: Sequence::MAX };
            ((millis(query.to), -1), place::bucket(to))
        };
        let mut walk = Walk {
            lane: query.lane,
            range: (start, end),
            found: Vec::new(),
            looked_at: 0,
            ended_before: HashMap::new(),
        };
        let mut stopped = None;
        let mut buckets = Buckets::new(query.topic, query.lane, first, last);
        while let Some((bucket, slots)) = self.next_bucket(&mut buckets).await? {
            if walk.looked_at >= LOOK_MAX {
                stopped = Some(before(place::bucket_start(bucket, query.lane)));
                break;
            }
            stopped = self.look_through(query, &mut walk, bucket, &slots).await?;
            if stopped.is_some() || walk.found.len() > query.limit {
                break;
            }
        }
        self.page_of_bodies(query, walk.found, stopped).await
    }

    /// Looks through one bucket, until there is enough. Answers where it stopped before its end.
    async fn look_through(
        &self,
        query: &PendingQuery,
        walk: &mut Walk,
        bucket: i64,
        slots: &[Slot],
    ) -> Result<Option<Key>, Trouble> {
        let topic = place::topic(query.topic);
        let mut start = walk.range.0;
        let slots = self.still_open(walk, bucket, slots).await?;
        if slots.is_empty() {
            return Ok(None);
        }
        let rows = (LOOK_MAX / slots.len()).clamp(*ROWS.start(), *ROWS.end());
        loop {
            let looks = slots.iter().map(|&(slot, ended)| {
                let place = Place { slot: i32::from(slot.0), lane: place::lane(walk.lane), bucket };
                let start = start.max((millis(ended), -1));
                self.look(place, (start, walk.range.1), rows)
            });
            let looks: Vec<Look> =
                side_by_side(SLOTS_AT_ONCE, looks).await.into_iter().collect::<Result<_, _>>()?;
            // Past the slot that was looked at the least, another one may still have something.
            let frontier = looks.iter().filter_map(|look| look.more_after).min();
            let mut found = Vec::new();
            for (&(slot, _), look) in slots.iter().zip(looks) {
                walk.looked_at += look.looked_at;
                let wanted = look.pending.into_iter().filter(|row| {
                    frontier.is_none_or(|frontier| row.key <= frontier)
                        && row.topic == topic
                        && fits(query, row.message_key.as_deref())
                });
                found.extend(wanted.map(|row| (slot, row.key)));
            }
            found.sort_unstable_by_key(|(_, key)| *key);
            walk.found.append(&mut found);
            let Some(frontier) = frontier else { return Ok(None) };
            if walk.found.len() > query.limit || walk.looked_at >= LOOK_MAX {
                return Ok(Some(frontier));
            }
            start = (millis(frontier.due), place::sequence(frontier.sequence));
        }
    }

    /// The slots in which not everything of the bucket has ended, and before when all has.
    async fn still_open(
        &self,
        walk: &mut Walk,
        bucket: i64,
        slots: &[Slot],
    ) -> Result<Vec<(Slot, Timestamp)>, Trouble> {
        let new = slots.iter().filter(|slot| !walk.ended_before.contains_key(slot));
        let new: Vec<Slot> = new.copied().collect();
        let lane = walk.lane;
        let read = new.iter().map(|slot| self.ended_before(*slot, lane));
        let read: Vec<Timestamp> =
            side_by_side(SLOTS_AT_ONCE, read).await.into_iter().collect::<Result<_, _>>()?;
        let read = new.into_iter().zip(read);
        walk.ended_before.extend(read);
        let open = slots.iter().map(|slot| (*slot, walk.ended_before[slot]));
        Ok(open.filter(|(_, ended)| place::bucket_end(bucket) > *ended).collect())
    }

    /// Looks at some rows of one partition.
    pub(super) async fn look(
        &self,
        place: Place,
        (start, end): Range,
        rows: usize,
    ) -> Result<Look, Trouble> {
        let mut statement = self.statements.scan.clone();
        statement.set_page_size(i32::try_from(rows).unwrap_or(i32::MAX).max(1));
        let values = (place.slot, place.lane, place.bucket, start.0, start.1, end.0, end.1);
        let (rows, next) = self.calls.page(&statement, values, PagingState::start()).await?;
        let mut look = Look { pending: Vec::new(), more_after: None, looked_at: 0 };
        let mut last = None;
        for row in rows.rows::<ScanColumns>().map_err(damaged)? {
            let (due, sequence, topic, _, kind, message_key, state) = row.map_err(damaged)?;
            let key = place::key(due, sequence).map_err(damaged)?;
            look.looked_at += 1;
            last = Some(key);
            if let (Some(topic), None) = (topic, state) {
                let kind = kind.unwrap_or(0);
                look.pending.push(Glimpse { key, topic, kind, message_key });
            }
        }
        look.more_after = last.filter(|_| next.is_some());
        Ok(look)
    }

    /// The bodies of what was found, as far as they fit.
    async fn page_of_bodies(
        &self,
        query: &PendingQuery,
        mut found: Vec<(Slot, Key)>,
        stopped: Option<Key>,
    ) -> Result<PendingPage, Trouble> {
        let mut next = stopped;
        if found.len() > query.limit {
            found.truncate(query.limit);
            next = found.last().map(|(_, key)| *key).or(query.after);
        }
        let mut page = PendingPage::default();
        let mut bytes = 0;
        for chunk in found.chunks(BODIES_AT_ONCE) {
            if bytes >= BODY_BYTES {
                page.next = page.entries.last().map(|entry: &PendingEntry| entry.key);
                return Ok(page);
            }
            let rows = chunk.iter().map(|&(slot, key)| self.row_at(slot, key));
            for row in side_by_side(BODIES_AT_ONCE, rows).await {
                let Some(row) = row? else { continue };
                // What ended meanwhile is left out.
                let Some(entry) = row.stored.entry else { continue };
                bytes += row.bytes;
                page.entries.push(PendingEntry {
                    id: row.stored.id,
                    key: row.stored.key,
                    basis: entry.basis,
                    message: entry.message,
                    extra: entry.extra,
                });
            }
        }
        page.next = next;
        Ok(page)
    }

    /// The next bucket in which a topic may have something, with its slots.
    pub(super) async fn next_bucket(
        &self,
        buckets: &mut Buckets,
    ) -> Result<Option<(i64, Vec<Slot>)>, Trouble> {
        while buckets.open.is_empty() {
            let Some((span, slots)) = self.next_span(buckets).await? else { return Ok(None) };
            buckets.open = self.buckets_of_span(buckets, span, &slots).await?;
        }
        Ok(buckets.open.pop_first())
    }

    /// The buckets of a span that there are, with their slots.
    async fn buckets_of_span(
        &self,
        buckets: &Buckets,
        span: i64,
        slots: &[Slot],
    ) -> Result<BTreeMap<i64, Vec<Slot>>, Trouble> {
        let all = place::buckets_of(span);
        let wanted = *all.start().max(&buckets.first)..=*all.end().min(&buckets.last);
        let lane = place::lane(buckets.lane);
        let found = slots
            .iter()
            .map(|slot| self.buckets((i32::from(slot.0), lane), wanted.clone(), i32::MAX));
        let mut open: BTreeMap<i64, Vec<Slot>> = BTreeMap::new();
        for (slot, found) in slots.iter().zip(side_by_side(SLOTS_AT_ONCE, found).await) {
            for bucket in found? {
                open.entry(bucket).or_default().push(*slot);
            }
        }
        Ok(open)
    }

    /// The next span in which a topic has something, with its slots.
    async fn next_span(&self, buckets: &mut Buckets) -> Result<Option<(i64, Vec<Slot>)>, Trouble> {
        let mut slots = Vec::new();
        let mut span = None;
        loop {
            while let Some(&(number, slot)) = buckets.spans.last() {
                if span.is_some_and(|span| span != number) {
                    return Ok(span.map(|span| (span, slots)));
                }
                span = Some(number);
                slots.push(slot);
                buckets.spans.pop();
            }
            let Some(from) = buckets.from.take() else {
                return Ok(span.map(|span| (span, slots)));
            };
            let Buckets { topic, lane, first, last, .. } = *buckets;
            let (first, last) = (place::span(first), place::span(last));
            let values = (place::topic(topic), place::lane(lane), first, last);
            let (rows, next) = self.calls.page(&self.statements.topic_next, values, from).await?;
            for row in rows.rows::<(i64, i32)>().map_err(damaged)? {
                let (span, slot) = row.map_err(damaged)?;
                buckets.spans.push((span, slot_of(slot)?));
            }
            buckets.spans.reverse();
            buckets.from = next;
        }
    }
}

/// The buckets of a topic, page by page.
pub(super) struct Buckets {
    topic: TopicId,
    lane: Lane,
    first: i64,
    last: i64,
    /// Not handed out.
    open: BTreeMap<i64, Vec<Slot>>,
    /// Spans after those, the next one last.
    spans: Vec<(i64, Slot)>,
    /// Where the next page of spans starts.
    from: Option<PagingState>,
}

impl Buckets {
    pub(super) fn new(topic: TopicId, lane: Lane, first: i64, last: i64) -> Self {
        let (open, spans) = (BTreeMap::new(), Vec::new());
        Self { topic, lane, first, last, open, spans, from: Some(PagingState::start()) }
    }
}

/// The key just before another.
fn before(key: Key) -> Key {
    match key.sequence.get().checked_sub(1).and_then(Sequence::new) {
        Some(sequence) => Key { due: key.due, sequence },
        None => {
            let due = Timestamp::from_millis_saturating(key.due.as_millis().saturating_sub(1));
            Key { due, sequence: Sequence::MAX }
        }
    }
}

fn fits(query: &PendingQuery, key: Option<&[u8]>) -> bool {
    let whole = query.key.as_ref().is_none_or(|wanted| key == Some(wanted));
    let front = query.key_prefix.as_ref();
    whole && front.is_none_or(|front| key.is_some_and(|key| key.starts_with(front)))
}
