//! One level of the wheel: 64 slots, and one word that says which of them hold anything.
//!
//! A bit of the word is set exactly when its slot holds a live ticket. Cancelled tickets stay in
//! their row until they outnumber the live ones, so memory is bounded by what waits. Which entry
//! belongs into which slot is the wheel's business.

use super::slab::{Slab, Ticket};

/// A level divides a group of this many bits of a due time.
pub(super) const SLOT_BITS: u32 = 6;
/// Slots of a level: one for each bit of its word.
pub(super) const SLOTS: usize = 1 << SLOT_BITS;

const _: () = assert!(SLOTS == 64, "a level's occupancy is one 64-bit word");

/// Rows up to this length keep their memory when they are emptied; 2 MiB in all slots together.
const TICKETS_KEPT: usize = 256;

/// The slots of one level.
pub(super) struct Level {
    occupied: u64,
    slots: [Slot; SLOTS],
}

impl Level {
    pub(super) const fn new() -> Self {
        Self { occupied: 0, slots: [const { Slot::new() }; SLOTS] }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.occupied == 0
    }

    /// The lowest occupied slot, which is the one that starts first: slots behind the present are
    /// always empty, so a level never wraps around.
    pub(super) const fn first(&self) -> Option<usize> {
        if self.occupied == 0 { None } else { Some(self.occupied.trailing_zeros() as usize) }
    }

    pub(super) fn push(&mut self, slot: usize, ticket: Ticket) {
        self.slots[slot].push(ticket);
        self.occupied |= 1 << slot;
    }

    /// Notes that one ticket of the slot has just left `entries`.
    pub(super) fn forget_one<T>(&mut self, slot: usize, entries: &Slab<T>) {
        self.slots[slot].forget_one(entries);
        if self.slots[slot].is_empty() {
            self.occupied &= !(1 << slot);
        }
    }

    #[cfg(test)]
    pub(super) const fn slot(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }

    pub(super) fn take(&mut self, slot: usize) -> Slot {
        self.occupied &= !(1 << slot);
        std::mem::replace(&mut self.slots[slot], Slot::new())
    }

    /// Keeps the memory of a slot that was taken and is done with.
    pub(super) fn give_back(&mut self, slot: usize, mut taken: Slot) {
        debug_assert!(self.slots[slot].is_empty(), "nothing enters a slot that time has reached");
        if taken.tickets.capacity() <= TICKETS_KEPT {
            taken.clear();
            self.slots[slot] = taken;
        }
    }
}

/// Tickets in the order of insertion.
pub(super) struct Slot {
    tickets: Vec<Ticket>,
    /// How many of them were cancelled.
    dead: usize,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self { tickets: Vec::new(), dead: 0 }
    }

    /// Whether no live ticket is left.
    pub(super) const fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// All tickets, the dead ones too.
    pub(super) fn tickets(&self) -> &[Ticket] {
        &self.tickets
    }

    pub(super) fn live<T>(&self, entries: &Slab<T>) -> impl Iterator<Item = Ticket> {
        // Asking the slab costs a cache miss for each ticket; without cancels there is no need to.
        let ask = self.dead > 0;
        self.tickets.iter().copied().filter(move |ticket| !ask || entries.holds(*ticket))
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    pub(super) fn forget_one<T>(&mut self, entries: &Slab<T>) {
        self.dead += 1;
        if self.dead > self.tickets.len() / 2 {
            self.tickets.retain(|ticket| entries.holds(*ticket));
            self.tickets.shrink_to(TICKETS_KEPT.max(self.tickets.len() * 2));
            self.dead = 0;
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&Ticket) -> bool) {
        self.tickets.retain(keep);
    }

    pub(super) fn sort_by_due(&mut self) {
        self.tickets.sort_by_key(Ticket::due);
    }

    fn clear(&mut self) {
        self.tickets.clear();
        self.tickets.shrink_to(TICKETS_KEPT);
        self.dead = 0;
    }
}
