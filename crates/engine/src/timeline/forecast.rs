//! Counting what is due when, without reading it.
//!
//! What is due before a moment is what is pending less what is due later. Of a run, that is what it
//! had when it was written (`cells.rs`) less what ended out of turn (`ended.rs`); the tables are
//! looked through. Moments are whole seconds and not in the past: there everything that is due
//! later and was not withdrawn is still to come.

use std::sync::Arc;

use punctual_model::limits::PARTITIONS_MAX;
use punctual_model::ports::StoreError;
use punctual_model::{Key, Partition, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::record;
use crate::timeline::State;
use crate::timeline::cells::Cell;
use crate::timeline::cursor::Cursor;
use crate::timeline::ended::View;
use crate::timeline::run::{Run, Stamp};
use crate::timeline::shelf::{Shelved, start_of};
use crate::timeline::table::{Bits, Table};

/// What a forecast is put together from: taken under the lock, counted without it.
#[derive(Debug)]
pub struct Outlook {
    /// Growing.
    topics: Vec<TopicId>,
    /// Growing.
    bounds: Vec<Cell>,
    pending: u64,
    /// What is due at each bound or later, as far as it is counted.
    later: Vec<u64>,
    frozen: Option<(Arc<Table>, Bits)>,
    runs: Vec<Part>,
}

/// What one topic has in one run.
#[derive(Debug)]
struct Part {
    topic: TopicId,
    run: Arc<Run>,
    /// Live entries.
    live: u64,
    /// Everything before has ended.
    watermark: Key,
    ended: Known,
}

#[derive(Debug)]
enum Known {
    /// When what has ended was due.
    Notes(View),
    /// What has ended: the run has no cells and has to be read.
    Ended(RoaringTreemap),
}

/// A run of which it has to be found out when what has ended was due.
#[derive(Debug)]
pub struct Unnoted {
    run: Arc<Run>,
    gone: RoaringTreemap,
    watermark: Key,
    begun: usize,
}

/// Notes of a run that a forecast has put in order.
#[derive(Debug)]
pub struct Sorted {
    topic: TopicId,
    run: u64,
    view: View,
}

/// How much of the topics is due when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// What is pending.
    pub pending: u64,
    /// What of it is due at each bound or later.
    pub later: Vec<u64>,
}

impl State {
    /// Collects what a forecast of `topics` together for `bounds`, which grow, is made of.
    ///
    /// # Errors
    /// The runs whose notes have to be made first; see [`Unnoted::note`].
    pub fn outlook(
        &mut self,
        topics: &[TopicId],
        bounds: Vec<Cell>,
    ) -> Result<Outlook, Vec<Unnoted>> {
        let there = topics.iter().filter(|topic| self.topics.contains(topic));
        let mut topics: Vec<TopicId> = there.copied().collect();
        topics.sort_unstable();
        topics.dedup();
        let mut outlook = Outlook {
            topics,
            pending: 0,
            later: vec![0; bounds.len()],
            bounds,
            frozen: None,
            runs: Vec::new(),
        };
        let Some(&first) = outlook.bounds.first() else { return Ok(outlook) };
        let mut unnoted = Vec::new();
        let runs = self.runs.values_mut();
        for shelved in runs.filter(|shelved| Cell::of(shelved.run.last.due) >= first) {
            for &topic in &outlook.topics {
                let live = shelved.counts.get(&topic).copied().unwrap_or(0);
                if live == 0 {
                    continue;
                }
                match known(shelved, topic) {
                    Ok(ended) => {
                        let (run, watermark) = (Arc::clone(&shelved.run), shelved.watermark());
                        outlook.runs.push(Part { topic, run, live, watermark, ended });
                    }
                    Err(run) => {
                        // Its notes are those of all topics.
                        unnoted.push(run);
                        break;
                    }
                }
            }
        }
        if !unnoted.is_empty() {
            return Err(unnoted);
        }
        let pending = outlook.topics.iter().filter_map(|topic| self.counts.get(topic));
        outlook.pending = pending.sum();
        outlook.frozen = self.frozen();
        outlook.count_table(&self.active.table, &self.active.gone);
        Ok(outlook)
    }

    /// Takes over the notes that were made of a run, if it is still there.
    pub fn learn(&mut self, unnoted: &Unnoted, made: &[(TopicId, Cell)]) {
        if let Some(shelved) = self.runs.get_mut(&unnoted.run.number) {
            shelved.ended.learn(unnoted.begun, made);
        }
    }

    /// Puts the notes in order that a forecast has sorted.
    pub fn tidy(&mut self, sorted: Vec<Sorted>) {
        for Sorted { topic, run, view } in sorted {
            if let Some(shelved) = self.runs.get_mut(&run) {
                shelved.ended.tidy(topic, view);
            }
        }
    }
}

fn known(shelved: &mut Shelved, topic: TopicId) -> Result<Known, Unnoted> {
    if shelved.run.cells.is_none() {
        return Ok(Known::Ended(shelved.ended_above_watermark()));
    }
    if let Some(view) = shelved.ended.view(topic) {
        return Ok(Known::Notes(view));
    }
    Err(Unnoted {
        run: Arc::clone(&shelved.run),
        gone: shelved.gone.clone(),
        watermark: shelved.watermark(),
        begun: shelved.ended.begin(),
    })
}

impl Outlook {
    /// Counts. Answers also the notes that were put in order, for [`State::tidy`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a run cannot be read.
    pub fn count(mut self) -> Result<(Counted, Vec<Sorted>), StoreError> {
        if let Some((table, gone)) = self.frozen.take() {
            self.count_table(&table, &gone);
        }
        // All that is not at hand comes at once, rather than one after the other.
        for part in &self.runs {
            part.run.expect_ranks(part.topic, self.open_bounds(part));
        }
        let mut sorted = Vec::new();
        for part in std::mem::take(&mut self.runs) {
            self.count_run(&part)?;
            if let Known::Notes(mut view) = part.ended
                && view.sort()
            {
                sorted.push(Sorted { topic: part.topic, run: part.run.number, view });
            }
        }
        Ok((Counted { pending: self.pending, later: self.later }, sorted))
    }

    fn count_table(&mut self, table: &Table, gone: &Bits) {
        let starts: Vec<Timestamp> = self.bounds.iter().map(|bound| bound.start()).collect();
        let Some(&first) = starts.first() else { return };
        // How many lie between each bound and the next.
        let mut between = vec![0u64; starts.len()];
        for (index, slot) in table.iter() {
            let is_wanted = self.topics.binary_search(&slot.topic).is_ok();
            if !is_wanted || slot.due < first || gone.get(index) {
                continue;
            }
            let passed = starts.partition_point(|start| *start <= slot.due);
            if let Some(count) = between.get_mut(passed - 1) {
                *count += 1;
            }
        }
        add_later(&mut self.later, &between);
    }

    /// How many bounds lie before everything that may be alive in a run.
    fn bounds_before(&self, part: &Part) -> usize {
        let front = part.run.first().max(part.watermark);
        self.bounds.partition_point(|bound| start_of(bound.start()) <= front)
    }

    /// The bounds before and behind which a run has something.
    fn open_bounds(&self, part: &Part) -> &[Cell] {
        let last = Cell::of(part.run.last.due);
        let end = self.bounds.partition_point(|bound| *bound <= last);
        self.bounds.get(self.bounds_before(part)..end).unwrap_or_default()
    }

    fn count_run(&mut self, part: &Part) -> Result<(), StoreError> {
        let before = self.bounds_before(part);
        for later in self.later.iter_mut().take(before) {
            *later += part.live;
        }
        let bounds = self.open_bounds(part);
        if bounds.is_empty() {
            return Ok(());
        }
        let later = match &part.ended {
            Known::Notes(view) => later_by_cells(&part.run, part.topic, bounds, view)?,
            Known::Ended(ended) => later_by_reading(part, bounds, ended)?,
        };
        for (sum, later) in self.later.iter_mut().skip(before).zip(later) {
            *sum += later.min(part.live);
        }
        Ok(())
    }
}

fn later_by_cells(
    run: &Run,
    topic: TopicId,
    bounds: &[Cell],
    ended: &View,
) -> Result<Vec<u64>, StoreError> {
    let all = run.counts.get(&topic).copied().unwrap_or(0);
    let ranks = run.ranks(topic, bounds)?.unwrap_or_default();
    let later = ranks
        .iter()
        .zip(bounds)
        .map(|(rank, bound)| all.saturating_sub(*rank).saturating_sub(ended.count_from(*bound)));
    Ok(later.collect())
}

fn later_by_reading(
    part: &Part,
    bounds: &[Cell],
    ended: &RoaringTreemap,
) -> Result<Vec<u64>, StoreError> {
    let mut between = vec![0; bounds.len()];
    let from = bounds.first().map_or_else(Key::default, |bound| start_of(bound.start()));
    let mut cursor = Cursor::seek(Arc::clone(&part.run), from);
    while let Some((key, content)) = cursor.take() {
        let peeked = record::peek(&content).map_err(StoreError::damaged)?;
        if peeked.topic != part.topic || ended.contains(key.sequence.get()) {
            continue;
        }
        let passed = bounds.partition_point(|bound| *bound <= Cell::of(key.due));
        if let Some(count) = passed.checked_sub(1).and_then(|place| between.get_mut(place)) {
            *count += 1;
        }
    }
    readable(&mut cursor)?;
    let mut later = vec![0; bounds.len()];
    add_later(&mut later, &between);
    Ok(later)
}

fn readable(cursor: &mut Cursor) -> Result<(), StoreError> {
    if cursor.take_damaged().is_empty() {
        return Ok(());
    }
    let number = cursor.run().number;
    Err(StoreError::damaged(format_args!("run {number} cannot be read whole")))
}

/// Adds to each what lies between it and the next, and all that follows.
fn add_later(later: &mut [u64], between: &[u64]) {
    let mut sum = 0;
    for (later, between) in later.iter_mut().zip(between).rev() {
        sum += between;
        *later += sum;
    }
}

impl Unnoted {
    /// Finds out topic and cell of everything that has ended and is not below the watermark.
    /// `topics` are those there are, each with the number of its partitions.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the run cannot be read.
    pub fn note(&self, topics: &[(TopicId, u16)]) -> Result<Vec<(TopicId, Cell)>, StoreError> {
        let names = Names::new(&self.run, topics);
        let mut made = Vec::new();
        let mut unclear = Vec::new();
        self.run.stamps_among(&self.gone, |sequence, stamp| {
            let key = Key { due: stamp.due(), sequence };
            if key < self.watermark {
                return;
            }
            match names.of(stamp) {
                Some(topic) => made.push((topic, Cell::of(key.due))),
                None => unclear.push(key),
            }
        })?;
        unclear.sort_unstable();
        let mut cursor: Option<Cursor> = None;
        for key in unclear {
            let mut here = match cursor.take() {
                Some(cursor) if cursor.shares_block(key) => cursor,
                _ => Cursor::seek(Arc::clone(&self.run), key),
            };
            here.skip_to(key);
            readable(&mut here)?;
            if let Some((found, content)) = here.head()
                && found == key
            {
                let peeked = record::peek(&content).map_err(StoreError::damaged)?;
                made.push((peeked.topic, Cell::of(key.due)));
            }
            cursor = Some(here);
        }
        Ok(made)
    }
}

/// Which topic of a run a stamp stands for, as far as that is certain.
struct Names {
    only: Option<TopicId>,
    by_mix: Vec<Name>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Nobody,
    Topic(TopicId),
    Several,
}

impl Names {
    fn new(run: &Run, topics: &[(TopicId, u16)]) -> Self {
        let mut in_run = run.counts.keys().copied();
        let only = in_run.next().filter(|_| in_run.next().is_none());
        let mut names = Self { only, by_mix: Vec::new() };
        if only.is_some() {
            return names;
        }
        names.by_mix = vec![Name::Nobody; 1 << Stamp::MIX_BITS];
        for &topic in run.counts.keys() {
            let known = topics.iter().find(|(known, _)| *known == topic);
            // Of a topic that is no more nobody knows how many partitions it had.
            let partitions = known.map_or(PARTITIONS_MAX, |(_, partitions)| *partitions);
            for partition in (0..partitions).filter_map(Partition::new) {
                let place = usize::from(Stamp::mix_of(topic, partition));
                if let Some(name) = names.by_mix.get_mut(place) {
                    *name = match *name {
                        Name::Nobody => Name::Topic(topic),
                        Name::Topic(other) if other == topic => Name::Topic(topic),
                        Name::Topic(_) | Name::Several => Name::Several,
                    };
                }
            }
        }
        names
    }

    fn of(&self, stamp: Stamp) -> Option<TopicId> {
        let named = self.by_mix.get(usize::from(stamp.mix()));
        self.only.or(match named {
            Some(Name::Topic(topic)) => Some(*topic),
            Some(Name::Nobody | Name::Several) | None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use punctual_model::{Basis, Entry, Lane, Message, Sequence};

    use super::*;
    use crate::disk::RealDisk;
    use crate::journal::Position;
    use crate::journal::change::Draft;
    use crate::timeline::{flush, merge};

    const SHAPE: (usize, Timestamp) = (256, Timestamp::MAX);

    fn topic() -> TopicId {
        TopicId::new(1).unwrap()
    }

    fn key(number: u64) -> Key {
        let due = Timestamp::from_millis(1_000_000 + number * 700).unwrap();
        Key { due, sequence: Sequence::new(number).unwrap() }
    }

    /// A lane with so many entries in its active table.
    fn admit(state: &mut State, count: u64) {
        state.topics.insert(topic());
        let numbers = state.next.get()..state.next.get() + count;
        let entries = numbers.map(|number| Entry {
            topic: topic(),
            partition: Partition::new(0).unwrap(),
            due: key(number).due,
            basis: Basis::Delay,
            message: Message::default(),
            extra: None,
        });
        let draft = Draft::new(&entries.collect::<Vec<_>>(), Lane::Message);
        state.admit(Bytes::from(draft.bytes), &draft.slots);
    }

    /// Writes the table out; `meanwhile` happens before it is on the shelf.
    fn write_out(
        state: &mut State,
        disk: &RealDisk,
        number: u64,
        meanwhile: impl FnOnce(&mut State),
    ) {
        state.freeze(Position::default());
        let (table, gone) = state.frozen().unwrap();
        let written = flush::write(disk, number, &table, gone, SHAPE).unwrap();
        meanwhile(state);
        state.install(written);
    }

    fn end(state: &mut State, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            assert!(state.withdraw(key(number), topic()), "{number} was pending");
        }
    }

    fn check(state: &mut State, alive: impl Fn(u64) -> bool) {
        let cells: Vec<Cell> =
            (0..200).map(|n| Cell::not_before(key(n).due)).skip(1).step_by(3).collect();
        let (counted, _) = state.outlook(&[topic()], cells.clone()).unwrap().count().unwrap();
        let alive: Vec<u64> = (0..state.next.get()).filter(|number| alive(*number)).collect();
        assert_eq!(counted.pending, alive.len() as u64);
        for (cell, later) in cells.iter().zip(counted.later) {
            let expected = alive.iter().filter(|number| key(**number).due >= cell.start());
            assert_eq!(later, expected.count() as u64, "{cell:?}");
        }
    }

    fn disk(dir: &Path) -> RealDisk {
        RealDisk::new(dir).unwrap()
    }

    #[test]
    fn what_ends_while_its_table_is_written_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut state = State::new(Sequence::default(), Position::default());
        admit(&mut state, 90);
        end(&mut state, 0..10);
        write_out(&mut state, &disk(dir.path()), 1, |state| end(state, 40..60));
        check(&mut state, |number| number >= 10 && !(40..60).contains(&number));
    }

    #[test]
    fn what_ends_while_its_run_is_merged_is_left_out_of_the_merged_one() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(dir.path());
        let mut state = State::new(Sequence::default(), Position::default());
        for number in 1..=2 {
            admit(&mut state, 80);
            write_out(&mut state, &disk, number, |_| {});
        }
        end(&mut state, 70..90);
        let sources: Vec<_> = state.runs.values_mut().map(Shelved::begin_merge).collect();
        let merged = merge::merge_runs(&disk, 3, &sources, SHAPE).unwrap().unwrap();
        end(&mut state, 100..120);
        check(&mut state, |number| !(70..90).contains(&number) && !(100..120).contains(&number));
        let taken = [1, 2].map(|number| state.unshelve(number).unwrap());
        let mut shelved = Shelved::new(Arc::new(merged), Key::default());
        shelved.adopt(taken.into());
        state.shelve(shelved);
        end(&mut state, 120..125);
        check(&mut state, |number| !(70..90).contains(&number) && !(100..125).contains(&number));
    }
}
