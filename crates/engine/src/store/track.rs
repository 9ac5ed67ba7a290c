//! What the store keeps for each lane.

use parking_lot::{Mutex, MutexGuard};
use punctual_model::{Lane, Sequence};

use crate::lanes::PerLane;
use crate::options::Options;
use crate::timeline::State;
use crate::timeline::merge::Reader;

/// The part of the memory that the retry lane gets.
const RETRY_PART: usize = 4;
/// What it gets at least, unless the messages have less.
const RETRY_BYTES_MIN: usize = 64 << 10;

/// One lane.
#[derive(Debug)]
pub(crate) struct Track {
    /// Bytes of one memory table.
    pub(crate) table_bytes: usize,
    /// Bytes of the near future.
    pub(crate) near_bytes: usize,
    /// Reads its runs.
    pub(crate) reader: Mutex<Reader>,
    /// What is pending in it.
    pub(crate) state: Mutex<State>,
}

impl Track {
    /// The lane with this in it.
    pub(crate) fn new(lane: Lane, options: &Options, state: State) -> Self {
        let share = |bytes: usize| match lane {
            Lane::Message => bytes,
            Lane::Retry => (bytes / RETRY_PART).max(RETRY_BYTES_MIN).min(bytes),
        };
        Self {
            table_bytes: share(options.table_bytes),
            near_bytes: share(options.near_bytes),
            reader: Mutex::default(),
            state: Mutex::new(state),
        }
    }

    /// The sequence its next entry gets.
    pub(crate) fn next(&self) -> Sequence {
        self.state.lock().next
    }

    /// Whether it takes no more entries for now: its tables or its near future are full.
    pub(crate) fn is_crowded(&self) -> bool {
        let state = self.state.lock();
        let tables = state.frozen.is_some() && state.active.table.bytes() >= self.table_bytes;
        tables || state.near.bytes() >= 2 * self.near_bytes
    }
}

/// The states of those lanes that somebody has to do with.
#[derive(Debug)]
pub(crate) struct States<'a>(PerLane<Option<MutexGuard<'a, State>>>);

impl<'a> States<'a> {
    /// Those of the lanes for which `wanted` is true, the messages first.
    pub(crate) fn lock(tracks: &'a PerLane<Track>, wanted: PerLane<bool>) -> Self {
        Self(wanted.map(|lane, wanted| wanted.then(|| tracks.of(lane).state.lock())))
    }

    /// That of `lane`, which is one of them.
    pub(crate) fn of(&self, lane: Lane) -> &State {
        self.0.of(lane).as_ref().expect("it was locked for this lane")
    }

    /// That of `lane`, which is one of them, to change it.
    pub(crate) fn of_mut(&mut self, lane: Lane) -> &mut State {
        self.0.of_mut(lane).as_mut().expect("it was locked for this lane")
    }

    /// Which shelves they show.
    pub(crate) fn editions(&self) -> PerLane<Option<u64>> {
        PerLane::new(|lane| self.0.of(lane).as_ref().map(|state| state.edition))
    }
}
