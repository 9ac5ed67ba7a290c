//! Who is to hold which slot: decided here and nowhere else, without a clock and without I/O.
//!
//! [`settle`] carries out what nodes have agreed to already, [`balance`] spreads the slots over the
//! nodes that are there. Both are functions of what they are given, so two leaders that see the same
//! decide the same. What must hold: a slot goes to another node only when its owner is gone or has
//! let go of it; whoever gets it gets a term that no slot ever had; the nodes differ by one slot at
//! most, of those in use and of the retired; and no more slots move than that takes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

/// Multiplying by it scatters numbers evenly: 2^32 divided by the golden ratio.
const SCATTER: u32 = 0x9e37_79b9;

/// The name under which a node is registered; never used twice.
pub(crate) type Name = Arc<str>;

/// Which node holds which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The last term that was given out.
    pub(crate) term: u64,
    /// The number of slots asked for. Slots past it are retired.
    pub(crate) wanted: u32,
    /// By number; `None` where a retired slot has ended.
    pub(crate) places: Vec<Option<Place>>,
}

/// A slot in an assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// Who holds it.
    pub(crate) owner: Option<Name>,
    /// The term of its last owner; 0 when it never had one.
    pub(crate) term: u64,
    /// Who is to have it once the owner has let go.
    pub(crate) next: Option<Name>,
}

impl Place {
    /// Who has it or is to have it.
    fn heir(&self) -> Option<&Name> {
        self.next.as_ref().or(self.owner.as_ref())
    }
}

/// A slot as one owner holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Tenancy {
    pub(crate) slot: u32,
    pub(crate) term: u64,
}

/// What a node has said of the slots it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word {
    /// What it has let go of.
    pub(crate) released: BTreeSet<Tenancy>,
    /// What it has let go of because nothing was left in it, and nothing was to come.
    pub(crate) drained: BTreeSet<Tenancy>,
}

impl Word {
    /// Whether the node has let go of it, for whatever reason.
    pub(crate) fn gives_up(&self, tenancy: &Tenancy) -> bool {
        self.released.contains(tenancy) || self.drained.contains(tenancy)
    }
}

/// Who is there, and what they have said.
pub(crate) type Present = BTreeMap<Name, Word>;

impl Assignment {
    /// That of a new cluster: nobody holds anything. `term` is past every term that another
    /// assignment of this cluster may ever have given out, as after its loss.
    pub(crate) fn new(slots: u32, term: u64) -> Self {
        let places = (0..slots).map(|_| Some(Place::default())).collect();
        Self { term, wanted: slots, places }
    }

    /// The slots there are, by number.
    pub(crate) fn slots(&self) -> impl Iterator<Item = (u32, &Place)> {
        (0..).zip(&self.places).filter_map(|(slot, place)| Some((slot, place.as_ref()?)))
    }

    /// The place of a slot that there is.
    pub(crate) fn place(&self, slot: u32) -> Option<&Place> {
        self.places.get(usize::try_from(slot).ok()?)?.as_ref()
    }

    /// Whether the slot is to end.
    pub(crate) fn is_retired(&self, slot: u32) -> bool {
        slot >= self.wanted
    }

    /// Leaves no ended slots at the end.
    fn trim(&mut self) {
        while self.places.last().is_some_and(Option::is_none) {
            self.places.pop();
        }
    }
}

/// What follows from the words of the nodes alone: a slot that was let go of goes to who was to have
/// it, a drained one ends. Needs no delay.
pub(crate) fn settle(before: &Assignment, present: &Present) -> Assignment {
    let mut after = before.clone();
    let term = before.term + 1;
    for (slot, entry) in (0..).zip(&mut after.places) {
        let Some(place) = entry else { continue };
        let tenancy = Tenancy { slot, term: place.term };
        let Some(word) = place.owner.as_ref().and_then(|owner| present.get(owner)) else {
            continue;
        };
        // One that was drained and is in use again meanwhile is like any other.
        if slot >= before.wanted && word.drained.contains(&tenancy) {
            *entry = None;
        } else if word.gives_up(&tenancy) {
            place.owner = place.next.take().filter(|next| present.contains_key(next));
            if place.owner.is_some() {
                place.term = term;
                after.term = term;
            }
        }
    }
    after.trim();
    after
}

/// Spreads `wanted` slots, and those that are still to be drained, over the nodes that are there.
pub(crate) fn balance(before: &Assignment, present: &Present, wanted: u32) -> Assignment {
    let mut after = before.clone();
    resize(&mut after, wanted);
    let term = before.term + 1;
    for entry in &mut after.places {
        let Some(place) = entry else { continue };
        place.next = place.next.take().filter(|next| present.contains_key(next));
        if place.owner.as_ref().is_some_and(|owner| !present.contains_key(owner)) {
            place.owner = place.next.take();
            if place.owner.is_some() {
                place.term = term;
            }
        }
    }
    let in_use = after.places.len().min(usize::try_from(wanted).unwrap_or(usize::MAX));
    let (in_use, retired) = after.places.split_at_mut(in_use);
    for places in [in_use, retired] {
        spread(places, present, term);
    }
    after.trim();
    if after.slots().any(|(_, place)| place.term == term) {
        after.term = term;
    }
    after
}

/// Makes room for the slots asked for, and ends retired ones that nobody ever held.
fn resize(assignment: &mut Assignment, wanted: u32) {
    assignment.wanted = wanted;
    let count = usize::try_from(wanted).unwrap_or(usize::MAX);
    if assignment.places.len() < count {
        assignment.places.resize(count, None);
    }
    let (in_use, retired) = assignment.places.split_at_mut(count);
    for entry in in_use {
        entry.get_or_insert_default();
    }
    for entry in retired {
        if entry.as_ref().is_some_and(|place| place.term == 0) {
            *entry = None;
        }
    }
}

/// Spreads some slots evenly, moving as few as that takes. Slots of nobody are given out with
/// `term`; for the others it is said who is to have them next.
fn spread(places: &mut [Option<Place>], present: &Present, term: u64) {
    let Some(mut room) = Room::of(places, present) else { return };
    let mut loose: Vec<&mut Place> = Vec::new();
    // What is on its way already is sent elsewhere first: its owner lets go of it anyway. Of the
    // others those that go are scattered over the numbers, so that each node has some of the high
    // ones: those are retired when there are to be fewer, and what is left is even already.
    let mut order: Vec<(bool, u32, &mut Place)> = (0_u32..)
        .zip(places.iter_mut())
        .filter_map(|(index, entry)| Some((index.wrapping_mul(SCATTER), entry.as_mut()?)))
        .map(|(scattered, place)| (place.next.is_none(), scattered, place))
        .collect();
    order.sort_by_key(|(resting, scattered, _)| (*resting, *scattered));
    for (_, _, place) in order {
        if place.heir().is_none_or(|heir| room.gives(heir)) {
            loose.push(place);
        }
    }
    // Who holds a slot already comes first.
    for place in loose {
        let back = place.owner.clone().filter(|owner| room.takes(owner));
        let Some(heir) = back.or_else(|| room.any()) else { return };
        if place.owner.is_none() {
            *place = Place { owner: Some(heir), term, next: None };
        } else {
            place.next = Some(heir).filter(|heir| Some(heir) != place.owner.as_ref());
        }
    }
}

/// How many slots each node is to give or take.
struct Room {
    give: HashMap<Name, usize>,
    take: BTreeMap<Name, usize>,
    /// Who was the last to take one: they take turns.
    last: Option<Name>,
}

impl Room {
    /// `None` when nobody is there. The nodes with the most slots may have one more, where the
    /// numbers do not divide, because that moves the fewest.
    fn of(places: &[Option<Place>], present: &Present) -> Option<Self> {
        let mut counts: HashMap<&Name, usize> = present.keys().map(|name| (name, 0)).collect();
        for heir in places.iter().flatten().filter_map(Place::heir) {
            if let Some(count) = counts.get_mut(heir) {
                *count += 1;
            }
        }
        let slots = places.iter().flatten().count();
        let share = slots.checked_div(counts.len())?;
        let extra = slots % counts.len();
        let mut order: Vec<(&Name, usize)> = counts.into_iter().collect();
        order.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        let mut room = Self { give: HashMap::new(), take: BTreeMap::new(), last: None };
        for (index, (name, count)) in order.into_iter().enumerate() {
            let quota = share + usize::from(index < extra);
            room.give.insert(name.clone(), count.saturating_sub(quota));
            room.take.insert(name.clone(), quota.saturating_sub(count));
        }
        Some(room)
    }

    /// Whether this node is to give one more.
    fn gives(&mut self, name: &Name) -> bool {
        self.give.get_mut(name).is_some_and(count_down)
    }

    /// Whether this node is to take one more.
    fn takes(&mut self, name: &Name) -> bool {
        self.take.get_mut(name).is_some_and(count_down)
    }

    /// A node that is to take one more.
    fn any(&mut self) -> Option<Name> {
        loop {
            let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
            let mut turn = self.take.range_mut::<Name, _>((after, Bound::Unbounded));
            let Some((name, left)) = turn.next() else {
                // The turn begins anew, if there was one.
                self.last.take()?;
                continue;
            };
            let name = name.clone();
            let takes = count_down(left);
            if *left == 0 {
                self.take.remove(&name);
            }
            self.last = Some(name.clone());
            if takes {
                return Some(name);
            }
        }
    }
}

/// Whether there was something left to count.
fn count_down(left: &mut usize) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}

#[cfg(test)]
mod tests;
