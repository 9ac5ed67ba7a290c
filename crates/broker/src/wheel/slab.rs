//! Where the wheel keeps its entries: a table whose free places are used again.
//!
//! A ticket carries the generation of its place: once the entry has left, the ticket opens nothing,
//! also when another entry has taken the place.

/// The right to cancel one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    due: u64,
    index: u32,
    generation: u32,
}

impl Ticket {
    /// When the entry is due, in milliseconds since the epoch.
    pub(super) const fn due(&self) -> u64 {
        self.due
    }
}

/// The entries, by index.
pub(super) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
}

struct Place<T> {
    generation: u32,
    item: Option<T>,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn insert(&mut self, due: u64, item: T) -> Ticket {
        let Some(index) = self.free.pop() else {
            let index = u32::try_from(self.places.len()).expect("memory ends before indexes do");
            self.places.push(Place { generation: 0, item: Some(item) });
            return Ticket { due, index, generation: 0 };
        };
        let place = &mut self.places[index as usize];
        place.item = Some(item);
        Ticket { due, index, generation: place.generation }
    }

    /// Whether the entry of this ticket is still there.
    pub(super) fn holds(&self, ticket: Ticket) -> bool {
        self.places.get(ticket.index as usize).is_some_and(|place| place.is_of(ticket))
    }

    /// Removes the entry of this ticket, if it is still there.
    pub(super) fn take(&mut self, ticket: Ticket) -> Option<T> {
        let place = self.places.get_mut(ticket.index as usize)?;
        if !place.is_of(ticket) {
            return None;
        }
        place.generation = place.generation.wrapping_add(1);
        self.free.push(ticket.index);
        place.item.take()
    }
}

impl<T> Place<T> {
    const fn is_of(&self, ticket: Ticket) -> bool {
        self.generation == ticket.generation && self.item.is_some()
    }
}
