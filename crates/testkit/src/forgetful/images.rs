//! Enumerates what a loss of power can leave behind: for each unsynced change whether it survives,
//! is lost, or survives in part.
//!
//! The simple cases come first and are complete; seeded random ones follow. The same seed gives the
//! same sequence.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::iter;
use std::sync::Arc;

use super::Fate;
use super::state::State;

/// Sector boundaries at which one write is torn at most in the complete part.
const TEARS_MAX: usize = 64;
/// So many random plans in a row that were seen before end the enumeration.
const REPEATS_MAX: usize = 64;

/// One fate for each unsynced change, with a name.
pub(super) struct Plan {
    pub(super) name: String,
    pub(super) fates: Vec<Fate>,
}

/// What the plans have to know of each unsynced change.
#[derive(Clone, Debug)]
struct Shape {
    sectors: usize,
    is_name: bool,
    path: Arc<str>,
}

pub(super) fn plans(state: &State, seed: u64) -> impl Iterator<Item = Plan> + use<> {
    let shape = |at: usize| {
        let pending = &state.pending[at];
        let path = Arc::clone(&pending.path);
        Shape { sectors: pending.change.sectors(), is_name: pending.change.is_name(), path }
    };
    let shapes: Arc<[Shape]> = state.unsynced().into_iter().map(shape).collect();
    whole(&shapes)
        .chain(prefixes(&shapes))
        .chain(omissions(&shapes))
        .chain(tears(&shapes))
        .chain(random(&shapes, seed))
}

fn plan(name: String, fates: impl Iterator<Item = Fate>) -> Plan {
    Plan { name, fates: fates.collect() }
}

fn kept(survives: bool) -> Fate {
    if survives { Fate::Kept } else { Fate::Lost }
}

/// Nothing, everything, only the names, only the bytes.
fn whole(shapes: &Arc<[Shape]>) -> impl Iterator<Item = Plan> + use<> {
    let count = shapes.len();
    let nothing = plan("nothing unsynced survives".into(), iter::repeat_n(Fate::Lost, count));
    let everything = plan("everything survives".into(), iter::repeat_n(Fate::Kept, count));
    let names = plan("only names survive".into(), shapes.iter().map(|s| kept(s.is_name)));
    let bytes = plan("only bytes survive".into(), shapes.iter().map(|s| kept(!s.is_name)));
    let lengths = plan(
        "names and lengths survive".into(),
        shapes.iter().map(|s| Fate::Torn { sectors: vec![false; s.sectors], length: true }),
    );
    let named = shapes.iter().any(|shape| shape.is_name);
    let written = shapes.iter().any(|shape| !shape.is_name);
    let mut plans = vec![nothing];
    if count > 0 {
        plans.push(everything);
    }
    if named && written {
        plans.extend([names, bytes]);
    }
    if written {
        plans.push(lengths);
    }
    plans.into_iter()
}

fn prefixes(shapes: &Arc<[Shape]>) -> impl Iterator<Item = Plan> + use<> {
    let count = shapes.len();
    (1..count).map(move |len| {
        plan(format!("the first {len} of {count} survive"), (0..count).map(|at| kept(at < len)))
    })
}

/// Each change missing alone; without the last one is a prefix already.
fn omissions(shapes: &Arc<[Shape]>) -> impl Iterator<Item = Plan> + use<> {
    let shapes = Arc::clone(shapes);
    let count = shapes.len();
    (0..count.saturating_sub(1)).map(move |gap| {
        let path = &shapes[gap].path;
        let name = format!("all but number {} of {count} ({path}) survive", gap + 1);
        plan(name, (0..count).map(|at| kept(at != gap)))
    })
}

/// Each write torn at each sector boundary, as the last thing that reached the disk; and with
/// everything else there, only its end.
fn tears(shapes: &Arc<[Shape]>) -> impl Iterator<Item = Plan> + use<> {
    let shapes = Arc::clone(shapes);
    (0..shapes.len()).filter(tearable(&shapes)).flat_map(move |torn| {
        let shapes = Arc::clone(&shapes);
        let sectors = shapes[torn].sectors;
        let step = sectors.div_ceil(TEARS_MAX);
        (step..sectors).step_by(step).flat_map(move |cut| {
            let path = &shapes[torn].path;
            let front = (0..sectors).map(|sector| sector < cut).collect();
            let back = (0..sectors).map(|sector| sector >= cut).collect();
            [
                torn_plan(format!("{path} ends torn"), shapes.len(), torn, (front, false)),
                torn_plan(format!("{path} lost its front"), shapes.len(), torn, (back, true)),
            ]
        })
    })
}

fn tearable(shapes: &Arc<[Shape]>) -> impl Fn(&usize) -> bool + use<> {
    let shapes = Arc::clone(shapes);
    move |&at| shapes[at].sectors > 1
}

/// `later` says whether what was issued after the torn write survives.
fn torn_plan(what: String, count: usize, torn: usize, (sectors, later): (Vec<bool>, bool)) -> Plan {
    let survivors = sectors.iter().filter(|&&survives| survives).count();
    let name = format!("{what}: {survivors} of {} sectors of number {}", sectors.len(), torn + 1);
    let mut fates: Vec<Fate> = (0..count).map(|at| kept(later || at < torn)).collect();
    fates[torn] = Fate::Torn { sectors, length: later };
    Plan { name, fates }
}

fn random(shapes: &Arc<[Shape]>, seed: u64) -> impl Iterator<Item = Plan> + use<> {
    let shapes = Arc::clone(shapes);
    let mut dice = Dice(seed);
    let mut seen = HashSet::new();
    let mut number = 0_u64;
    iter::from_fn(move || {
        let tries = if shapes.is_empty() { 0 } else { REPEATS_MAX };
        for _ in 0..tries {
            number += 1;
            let fates = dice.fates(&shapes);
            let mut hasher = DefaultHasher::new();
            fates.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                return Some(Plan { name: format!("random {number} of seed {seed}"), fates });
            }
        }
        None
    })
}

/// SplitMix64: small, and the same on every machine.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn chance(&mut self, of_sixteen: u64) -> bool {
        self.roll() % 16 < of_sixteen
    }

    fn fates(&mut self, shapes: &[Shape]) -> Vec<Fate> {
        let survival = [2, 4, 8, 12, 15][usize::try_from(self.roll() % 5).expect("below five")];
        shapes.iter().map(|shape| self.fate(shape, survival)).collect()
    }

    fn fate(&mut self, shape: &Shape, survival: u64) -> Fate {
        if !shape.is_name && self.chance(4) {
            let sectors = (0..shape.sectors).map(|_| self.chance(survival)).collect();
            return Fate::Torn { sectors, length: self.chance(8) };
        }
        kept(self.chance(survival))
    }
}
