//! When the entries of a run that ended before their time would have been due: a count by cells has
//! to leave them out.
//!
//! Only what ends out of turn is noted. What is delivered in its time lies before every moment that
//! anybody asks about. After a start nothing is noted yet: the first question has the notes made
//! from the ids of what has ended (`forecast.rs`), and what ends meanwhile is noted beside.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_model::TopicId;

use crate::timeline::cells::Cell;

/// More notes than this are put in order when somebody has read them.
const RECENT_MAX: usize = 256;

/// What is noted of one run.
#[derive(Debug, Default)]
pub struct Ended {
    notes: Notes,
    /// The same of what ended since a merge of the run began.
    since: Option<HashMap<TopicId, List>>,
}

#[derive(Debug, Default)]
enum Notes {
    /// Nothing is known, and nothing noted.
    #[default]
    Unknown,
    /// The notes are being made from the ids; this ended since that began.
    Making(Vec<(TopicId, Cell)>),
    /// Everything is noted.
    Known(HashMap<TopicId, List>),
}

impl Ended {
    /// Nothing has ended out of turn.
    #[must_use]
    pub fn nothing() -> Self {
        Self { notes: Notes::Known(HashMap::new()), since: None }
    }

    /// Notes the end of an entry.
    pub fn push(&mut self, topic: TopicId, cell: Cell) {
        match &mut self.notes {
            Notes::Unknown => {}
            Notes::Making(meanwhile) => meanwhile.push((topic, cell)),
            Notes::Known(lists) => lists.entry(topic).or_default().push(cell),
        }
        if let Some(since) = &mut self.since {
            since.entry(topic).or_default().push(cell);
        }
    }

    /// The notes of `topic` as they are; `None` while they are not known.
    #[must_use]
    pub fn view(&self, topic: TopicId) -> Option<View> {
        match &self.notes {
            Notes::Unknown | Notes::Making(_) => None,
            Notes::Known(lists) => Some(lists.get(&topic).map(List::view).unwrap_or_default()),
        }
    }

    /// Begins to make the notes. Answers what [`learn`](Self::learn) has to be told.
    pub fn begin(&mut self) -> usize {
        if matches!(self.notes, Notes::Unknown) {
            self.notes = Notes::Making(Vec::new());
        }
        match &self.notes {
            Notes::Making(meanwhile) => meanwhile.len(),
            Notes::Unknown | Notes::Known(_) => 0,
        }
    }

    /// Takes over notes of what had ended at [`begin`](Self::begin), which answered `begun`. Of
    /// several who make them the first one counts.
    pub fn learn(&mut self, begun: usize, made: &[(TopicId, Cell)]) {
        if let Notes::Making(meanwhile) = &mut self.notes {
            let mut lists: HashMap<TopicId, List> = HashMap::new();
            for &(topic, cell) in made.iter().chain(meanwhile.iter().skip(begun)) {
                lists.entry(topic).or_default().push(cell);
            }
            self.notes = Notes::Known(lists);
        }
    }

    /// Puts the notes in order that were read as `view`.
    pub fn tidy(&mut self, topic: TopicId, view: View) {
        if let Notes::Known(lists) = &mut self.notes
            && let Some(list) = lists.get_mut(&topic)
        {
            list.near.tidy(view.near);
            list.far.tidy(view.far);
        }
    }

    /// Notes apart what ends from now on, for a merge.
    pub fn begin_merge(&mut self) {
        self.since = Some(HashMap::new());
    }

    /// The merge came to nothing.
    pub fn abandon_merge(&mut self) {
        self.since = None;
    }

    /// Takes over what ended in `source` since its merge into this one began.
    pub fn adopt(&mut self, source: Self) {
        let Notes::Known(lists) = &mut self.notes else { return };
        for (topic, list) in source.since.unwrap_or_default() {
            let own = lists.entry(topic).or_default();
            own.near.recent.extend(list.near.recent);
            own.far.recent.extend(list.far.recent);
        }
    }

    /// Forgets a topic that is no more.
    pub fn forget(&mut self, topic: TopicId) {
        if let Notes::Known(lists) = &mut self.notes {
            lists.remove(&topic);
        }
    }
}

/// Cells of one topic, those of this century in half the memory.
#[derive(Debug, Default)]
struct List {
    near: Pile<u32>,
    far: Pile<u64>,
}

impl List {
    fn push(&mut self, cell: Cell) {
        match u32::try_from(cell.get()) {
            Ok(near) => self.near.recent.push(near),
            Err(_far) => self.far.recent.push(cell.get()),
        }
    }

    fn view(&self) -> View {
        View { near: self.near.clone(), far: self.far.clone() }
    }
}

/// What a reader has of the notes of one topic.
#[derive(Debug, Default)]
pub struct View {
    near: Pile<u32>,
    far: Pile<u64>,
}

impl View {
    /// How many are at `cell` or later.
    #[must_use]
    pub fn count_from(&self, cell: Cell) -> u64 {
        let near = u32::try_from(cell.get()).map_or(0, |cell| self.near.count_from(cell));
        near + self.far.count_from(cell.get())
    }

    /// Puts them in order, if that is worth while; then [`Ended::tidy`] wants them back.
    pub fn sort(&mut self) -> bool {
        // Not `||`: both have to be done.
        self.near.sort() | self.far.sort()
    }
}

/// Numbers, most of them in order. Sorted without the lock that guards the notes, which is why the
/// part in order is shared.
#[derive(Clone, Debug, Default)]
struct Pile<T> {
    sorted: Arc<Vec<T>>,
    recent: Vec<T>,
    /// In a reader's copy that was put in order: what was there before, and how much was added.
    before: Option<(Arc<Vec<T>>, usize)>,
}

impl<T: Copy + Ord> Pile<T> {
    fn count_from(&self, cell: T) -> u64 {
        let below = self.sorted.partition_point(|known| *known < cell);
        let recent = self.recent.iter().filter(|known| **known >= cell).count();
        (self.sorted.len() - below + recent) as u64
    }

    fn sort(&mut self) -> bool {
        if self.recent.len() <= RECENT_MAX {
            return false;
        }
        let mut all = Vec::with_capacity(self.sorted.len() + self.recent.len());
        all.extend_from_slice(&self.sorted);
        all.extend_from_slice(&self.recent);
        // Stable, since that is quick where most are in order already.
        all.sort();
        let added = self.recent.len();
        self.recent.clear();
        self.before = Some((std::mem::replace(&mut self.sorted, Arc::new(all)), added));
        true
    }

    fn tidy(&mut self, read: Self) {
        if let Some((before, added)) = read.before
            && Arc::ptr_eq(&before, &self.sorted)
            && added <= self.recent.len()
        {
            self.sorted = read.sorted;
            self.recent.drain(..added);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic() -> TopicId {
        TopicId::new(3).unwrap()
    }

    fn count(ended: &Ended, cell: u64) -> u64 {
        ended.view(topic()).unwrap().count_from(Cell::new(cell))
    }

    #[test]
    fn notes_put_in_order_keep_what_was_added_meanwhile() {
        let mut ended = Ended::nothing();
        for number in (0..1000).rev() {
            ended.push(topic(), Cell::new(number % 700));
        }
        let (mut one, mut other) = (ended.view(topic()).unwrap(), ended.view(topic()).unwrap());
        ended.push(topic(), Cell::new(650));
        ended.push(topic(), Cell::new(1 << 40));
        assert!(one.sort() && other.sort());
        ended.tidy(topic(), one);
        ended.tidy(topic(), other);
        assert_eq!(count(&ended, 0), 1002);
        assert_eq!(count(&ended, 600), 102);
        assert_eq!(count(&ended, 1 << 33), 1);
    }

    #[test]
    fn notes_made_by_two_at_once_count_once() {
        let mut ended = Ended::default();
        ended.push(topic(), Cell::new(1));
        assert!(ended.view(topic()).is_none());
        let first = ended.begin();
        ended.push(topic(), Cell::new(2));
        let second = ended.begin();
        ended.push(topic(), Cell::new(3));
        let (one, two) = ((topic(), Cell::new(1)), (topic(), Cell::new(2)));
        ended.learn(second, &[one, two]);
        ended.learn(first, &[one]);
        ended.push(topic(), Cell::new(4));
        assert_eq!((count(&ended, 1), count(&ended, 3)), (4, 2));
    }

    #[test]
    fn a_merge_takes_over_only_what_ended_since_it_began() {
        let mut source = Ended::default();
        source.push(topic(), Cell::new(5));
        source.begin_merge();
        source.push(topic(), Cell::new(6));
        let mut merged = Ended::nothing();
        merged.adopt(source);
        assert_eq!(count(&merged, 0), 1);
    }
}
