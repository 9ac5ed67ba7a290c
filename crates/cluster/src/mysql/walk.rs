//! Walks over the entries of all slots in key order, where a topic may have something.
//!
//! Hour by hour, the slots in which the topic has been are read side by side and merged, without
//! contents. Rows of other topics in the same hours of the same slots are walked over too, so one
//! walk looks at a bounded number of rows and then says how far it came.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use punctual_model::ports::PendingQuery;
use punctual_model::{Key, Sequence, Timestamp, TopicId};

use super::hours::HOUR_MS;
use super::line::{Line, Rows, Trouble};
use super::row::{ENDED, column, key, lane_number};
use super::script::Script;
use crate::store::{SLOTS_MAX, Slot};

/// Rows that one walk looks at, in about: at least one of each slot of an hour.
const WALKED_MAX: usize = 8000;

/// Rows of one slot that are read at a time at first, and at most.
const ROWS: std::ops::RangeInclusive<usize> = 8..=1000;

/// Slots of hours that are read at a time.
const PLACES: usize = 1000;

/// What a walk has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Where the topic has something pending, in order.
    pub(super) keys: Vec<Key>,
    /// How far it came, if anything may follow.
    pub(super) stopped_at: Option<Key>,
}

/// A key, or the place before the first key at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Start {
    due: u64,
    sequence: u64,
}

impl Start {
    const fn at(due: u64) -> Self {
        Self { due, sequence: 0 }
    }

    const fn past(key: Key) -> Self {
        Self { due: key.due.as_millis(), sequence: key.sequence.get() + 1 }
    }
}

/// A slot in an hour.
#[derive(Clone, Copy, Debug)]
struct Place {
    hour: u64,
    slot: Slot,
    ended_before: u64,
}

/// The rows of one slot, as far as they have been read.
struct Stream {
    slot: Slot,
    start: Start,
    rows: VecDeque<(Key, bool)>,
    is_done: bool,
}

/// A walk under way.
pub(super) struct Walk<'a> {
    query: &'a PendingQuery,
    start: Start,
    /// Nothing at this time or later.
    end: u64,
    /// One more than are wanted tells that more follow.
    wanted: usize,
    walked: usize,
    found: Vec<Key>,
    packet_bytes: usize,
}

impl<'a> Walk<'a> {
    /// Looks for that many of what is asked for.
    pub(super) fn new(query: &'a PendingQuery, wanted: usize, packet_bytes: usize) -> Self {
        let start = match query.after {
            Some(after) if after.due >= query.from => Start::past(after),
            _ => Start::at(query.from.as_millis()),
        };
        // Nothing is later than this, and what is paused stands at it.
        let end = match query.to {
            Timestamp::MAX => Timestamp::MAX.as_millis() + 1,
            to => to.as_millis(),
        };
        Self { query, start, end, wanted, walked: 0, found: Vec::new(), packet_bytes }
    }

    /// Walks until there is enough, or it has looked at enough.
    pub(super) async fn go(mut self, line: &mut Line<'_>) -> Result<Found, Trouble> {
        let mut from = self.start.due / HOUR_MS;
        let mut stopped_at = None;
        'all: loop {
            let (places, is_last) = self.places(line, from).await?;
            for places in places.chunk_by(|one, other| one.hour == other.hour) {
                let hour = places[0].hour;
                if self.walked >= WALKED_MAX {
                    stopped_at = Some(last_key_before(hour));
                    break 'all;
                }
                stopped_at = self.look_through(line, places).await?;
                if stopped_at.is_some() {
                    break 'all;
                }
                from = hour + 1;
            }
            if is_last {
                break;
            }
        }
        if self.found.len() > self.wanted {
            self.found.truncate(self.wanted);
            stopped_at = self.found.last().copied();
        }
        Ok(Found { keys: self.found, stopped_at })
    }

    /// The slots of the next hours in which the topic may have something, those of each hour
    /// complete; and whether there are no more.
    async fn places(&self, line: &mut Line<'_>, from: u64) -> Result<(Vec<Place>, bool), Trouble> {
        let until = self.end.div_ceil(HOUR_MS);
        let mut places =
            read_places(&ask(line, self.places_statement(from..until, PLACES)).await?)?;
        let (Some(first), Some(last)) = (places.first(), places.last()) else {
            return Ok((places, true));
        };
        if places.len() < PLACES {
            return Ok((places, true));
        }
        let (first, last) = (first.hour, last.hour);
        if first == last {
            let all = usize::try_from(SLOTS_MAX).expect("a number of slots fits");
            let statement = self.places_statement(first..first + 1, all);
            places = read_places(&ask(line, statement).await?)?;
        } else {
            places.retain(|place| place.hour < last);
        }
        Ok((places, false))
    }

    /// Hours of which everything has ended are left out.
    fn places_statement(&self, hours: std::ops::Range<u64>, limit: usize) -> String {
        let (topic, lane) = (self.query.topic.get(), lane_number(self.query.lane));
        let ended = ["message_ended_before", "retry_ended_before"][self.query.lane.index()];
        let std::ops::Range { start, end } = hours;
        format!(
            "SELECT h.hour, h.slot, m.{ended} \
             FROM punctual_hours h FORCE INDEX (PRIMARY) \
             LEFT JOIN punctual_marks m FORCE INDEX (PRIMARY) ON m.slot = h.slot \
             WHERE h.topic = {topic} AND h.lane = {lane} \
             AND h.hour >= {start} AND h.hour < {end} \
             AND (m.slot IS NULL OR m.{ended} < (h.hour + 1) * {HOUR_MS}) \
             ORDER BY h.hour, h.slot LIMIT {limit}"
        )
    }

    /// Looks through one hour. Answers where it stopped before its end.
    async fn look_through(
        &mut self,
        line: &mut Line<'_>,
        places: &[Place],
    ) -> Result<Option<Key>, Trouble> {
        let stream = |place: &Place| {
            let first = Start::at(place.ended_before.max(place.hour * HOUR_MS));
            let start = self.start.max(first);
            Stream { slot: place.slot, start, rows: VecDeque::new(), is_done: false }
        };
        let mut streams: Vec<Stream> = places.iter().map(stream).collect();
        let end = self.end.min((places[0].hour + 1) * HOUR_MS);
        let mut rows = ROWS.start() + (self.wanted + 1 - self.found.len()) / streams.len();
        let mut seen = None;
        loop {
            rows = rows.min(*ROWS.end()).min((WALKED_MAX / streams.len()).max(1));
            self.fill(line, &mut streams, end, rows).await?;
            seen = self.merge(&mut streams).or(seen);
            if self.found.len() > self.wanted {
                return Ok(seen);
            }
            if streams.iter().all(|stream| stream.is_done && stream.rows.is_empty()) {
                return Ok(None);
            }
            if self.walked >= WALKED_MAX {
                return Ok(seen);
            }
            rows *= 2;
        }
    }

    /// Reads on in every slot of which there is little left.
    async fn fill(
        &mut self,
        line: &mut Line<'_>,
        streams: &mut [Stream],
        end: u64,
        rows: usize,
    ) -> Result<(), Trouble> {
        let is_low = |stream: &&mut Stream| !stream.is_done && stream.rows.len() <= rows / 4;
        let mut low: Vec<_> = streams.iter_mut().filter(is_low).collect();
        let mut script = Script::new(self.packet_bytes);
        for stream in &low {
            script.statement(&self.rows_statement(stream, end, rows));
        }
        let sets = line.ask(script).await?;
        for (stream, set) in low.iter_mut().zip(&sets) {
            stream.add(set, self.query.topic)?;
            stream.is_done = set.len() < rows;
            self.walked += set.len().max(1);
        }
        Ok(())
    }

    /// The two ranges are written out, because a server that compares pairs walks over everything
    /// that is due at the same time.
    fn rows_statement(&self, stream: &Stream, end: u64, rows: usize) -> String {
        let (slot, lane) = (stream.slot.0, lane_number(self.query.lane));
        let Start { due, sequence } = stream.start;
        format!(
            "SELECT due, sequence, topic, state FROM punctual_entries FORCE INDEX (PRIMARY) \
             WHERE slot={slot} AND lane={lane} AND \
             ((due = {due} AND sequence >= {sequence}) OR (due > {due} AND due < {end})) \
             AND due < {end} ORDER BY due, sequence LIMIT {rows}"
        )
    }

    /// Takes rows in order as long as each slot is known to have none before them. Answers the last.
    fn merge(&mut self, streams: &mut [Stream]) -> Option<Key> {
        let head = |(index, stream): (usize, &Stream)| {
            stream.rows.front().map(|(key, _)| Reverse((*key, index)))
        };
        let mut heads: BinaryHeap<_> = streams.iter().enumerate().filter_map(head).collect();
        if streams.iter().any(Stream::is_open) {
            return None;
        }
        let mut last = None;
        while let Some(Reverse((_, index))) = heads.pop() {
            let stream = &mut streams[index];
            let Some((key, is_wanted)) = stream.rows.pop_front() else { continue };
            last = Some(key);
            self.found.extend(is_wanted.then_some(key));
            if self.found.len() > self.wanted || stream.is_open() {
                break;
            }
            heads.extend(head((index, stream)));
        }
        last
    }
}

impl Stream {
    /// Whether the next row is not known.
    fn is_open(&self) -> bool {
        self.rows.is_empty() && !self.is_done
    }

    fn add(&mut self, set: &Rows, wanted: TopicId) -> Result<(), Trouble> {
        for row in set {
            let key = key(column(row, 0)?, column(row, 1)?)?;
            let (topic, state): (u32, u8) = (column(row, 2)?, column(row, 3)?);
            self.rows.push_back((key, topic == wanted.get() && state < ENDED));
            self.start = Start::past(key);
        }
        Ok(())
    }
}

async fn ask(line: &mut Line<'_>, statement: String) -> Result<Rows, Trouble> {
    let sets = line.ask(Script::of(statement)).await?;
    Ok(sets.into_iter().flatten().collect())
}

fn read_places(rows: &Rows) -> Result<Vec<Place>, Trouble> {
    let read = |row| {
        let (hour, slot): (u32, u16) = (column(row, 0)?, column(row, 1)?);
        let ended_before = column::<Option<u64>>(row, 2)?.unwrap_or(0);
        Ok(Place { hour: u64::from(hour), slot: Slot(slot), ended_before })
    };
    rows.iter().map(read).collect()
}

/// Where a walk is that has left everything before an hour behind.
fn last_key_before(hour: u64) -> Key {
    let due = Timestamp::from_millis_saturating((hour * HOUR_MS).saturating_sub(1));
    Key { due, sequence: Sequence::MAX }
}
