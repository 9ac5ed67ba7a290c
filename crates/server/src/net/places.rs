//! The places for connections: how many there are, who has one, and who gives way.
//!
//! There are never more connections than places, in all and from one address. Whoever has shown
//! who it is keeps its place. Everybody else is a stranger, and when all places are taken the
//! stranger that has been there longest gives way to the next one: so silent strangers, however
//! many, shut nobody out who has something to say. All of it is decided under one lock, which is
//! taken when a connection comes, becomes known and goes, and not for its requests.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// How many places there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// In all.
    pub(crate) all: usize,
    /// For one address, if they are counted.
    pub(crate) per_address: Option<usize>,
}

/// What became of those who came; for the figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// Connections that have a place now.
    pub(crate) open: usize,
    /// Those of them that are strangers.
    pub(crate) strangers: usize,
    /// How many found no place since the start.
    pub(crate) refused: u64,
    /// How many strangers gave way since the start.
    pub(crate) gave_way: u64,
}

/// All places of a listener.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Mutex<Taken>,
    refused: AtomicU64,
    gave_way: AtomicU64,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    last: u64,
    by_address: HashMap<IpAddr, usize>,
    /// By age, the oldest first.
    strangers: BTreeMap<u64, Arc<Place>>,
}

const STRANGER: u8 = 0;
const KNOWN: u8 = 1;
const LEAVING: u8 = 2;

/// The place of a connection. It is free again when its [`Seat`] is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    state: AtomicU8,
    gives_way: Notify,
    number: u64,
    places: Arc<Places>,
}

/// Whoever holds it has the place.
#[derive(Debug)]
pub(crate) struct Seat {
    place: Arc<Place>,
    address: IpAddr,
}

impl Places {
    /// A place for a connection from there, if need be that of a stranger. `None` when all places
    /// belong to somebody known, or that address has as many as it may.
    pub(crate) fn take(self: &Arc<Self>, from: IpAddr, limits: Limits) -> Option<Seat> {
        let address = neighbourhood(from);
        let mut taken = self.taken.lock();
        let of_address = taken.by_address.get(&address).copied().unwrap_or_default();
        let crowded = limits.per_address.is_some_and(|max| of_address >= max);
        // Whoever gives way frees its place only when its task has ended, a moment later; it is
        // not counted any more.
        if crowded || (taken.count >= limits.all && !self.push_out(&mut taken)) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        taken.count += 1;
        taken.last += 1;
        *taken.by_address.entry(address).or_default() += 1;
        let place = Arc::new(Place {
            state: AtomicU8::new(STRANGER),
            gives_way: Notify::new(),
            number: taken.last,
            places: Arc::clone(self),
        });
        taken.strangers.insert(place.number, Arc::clone(&place));
        Some(Seat { place, address })
    }

    /// The oldest stranger gives way, if there is one.
    pub(crate) fn make_room(&self) -> bool {
        self.push_out(&mut self.taken.lock())
    }

    pub(crate) fn standing(&self) -> Standing {
        let taken = self.taken.lock();
        Standing {
            open: taken.count,
            strangers: taken.strangers.len(),
            refused: self.refused.load(Ordering::Relaxed),
            gave_way: self.gave_way.load(Ordering::Relaxed),
        }
    }

    fn push_out(&self, taken: &mut Taken) -> bool {
        let Some((_, oldest)) = taken.strangers.pop_first() else {
            return false;
        };
        oldest.state.store(LEAVING, Ordering::Relaxed);
        oldest.gives_way.notify_one();
        taken.count -= 1;
        self.gave_way.fetch_add(1, Ordering::Relaxed);
        true
    }
}

impl Place {
    /// Somebody has shown who it is, or need not: the place is its own.
    pub(crate) fn known(&self) {
        if self.state.load(Ordering::Relaxed) != STRANGER {
            return;
        }
        let mut taken = self.places.taken.lock();
        // Not among them any more: somebody else has been given the place.
        if taken.strangers.remove(&self.number).is_some() {
            self.state.store(KNOWN, Ordering::Relaxed);
        }
    }

    /// Whether it is a stranger's.
    pub(crate) fn is_strange(&self) -> bool {
        self.state.load(Ordering::Relaxed) != KNOWN
    }

    /// Ends when the place has been given to somebody else.
    pub(crate) async fn gives_way(&self) {
        self.gives_way.notified().await;
    }
}

impl Seat {
    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.place
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.place.places.taken.lock();
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
        taken.strangers.remove(&self.place.number);
        if self.place.state.load(Ordering::Relaxed) != LEAVING {
            taken.count -= 1;
        }
    }
}

/// What counts as one address: in the newer form, where everybody has very many, the half that
/// names the network.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(network))
        }
        older => older,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: &str = "127.0.0.1";

    struct Test {
        places: Arc<Places>,
        limits: Limits,
    }

    impl Test {
        fn new(all: usize, per_address: Option<usize>) -> Self {
            Self { places: Arc::default(), limits: Limits { all, per_address } }
        }

        fn take(&self, from: &str) -> Option<Seat> {
            self.places.take(from.parse().unwrap(), self.limits)
        }
    }

    fn must_leave(seat: &Seat) -> bool {
        seat.place().state.load(Ordering::Relaxed) == LEAVING
    }

    #[test]
    fn g50_the_stranger_that_came_first_gives_way() {
        let test = Test::new(3, None);
        let seats: Vec<Seat> = (0..3).map(|_| test.take(HERE).unwrap()).collect();
        seats[0].place().known();
        let newcomer = test.take(HERE).expect("a stranger gives way");
        assert_eq!(seats.iter().map(must_leave).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(test.places.standing().open, 3);
        // The one that had to leave has not gone yet; its going frees nothing more.
        drop(seats);
        assert_eq!(test.places.standing().open, 1);
        drop(newcomer);
        let standing = test.places.standing();
        assert_eq!((standing.open, standing.strangers, standing.gave_way), (0, 0, 1));
    }

    #[test]
    fn g50_whoever_is_known_keeps_its_place() {
        let test = Test::new(2, None);
        let seats: Vec<Seat> = (0..2).map(|_| test.take(HERE).unwrap()).collect();
        seats.iter().for_each(|seat| seat.place().known());
        assert!(test.take(HERE).is_none());
        assert!(!test.places.make_room());
        assert_eq!(test.places.standing().refused, 1);
        drop(seats);
        assert!(test.take(HERE).is_some());
    }

    #[test]
    fn who_has_given_way_is_not_known_any_more() {
        let test = Test::new(1, None);
        let first = test.take(HERE).unwrap();
        let second = test.take(HERE).unwrap();
        first.place().known();
        assert!(first.place().is_strange());
        second.place().known();
        second.place().known();
        assert!(test.take(HERE).is_none(), "one place, and somebody known on it");
    }

    #[test]
    fn an_address_has_only_so_many_places() {
        let test = Test::new(10, Some(2));
        let seats = [test.take(HERE), test.take(HERE)];
        assert!(test.take(HERE).is_none());
        assert!(test.take("::ffff:127.0.0.1").is_none(), "the same in other words");
        assert!(test.take("127.0.0.2").is_some());
        drop(seats);
        assert!(test.take(HERE).is_some());
        let newer = [test.take("2001:db8::1"), test.take("2001:db8::ffff:2")];
        assert!(test.take("2001:db8::3").is_none(), "the same network");
        assert!(test.take("2001:db8:0:1::3").is_some());
        drop(newer);
    }

    #[tokio::test]
    async fn who_has_to_leave_is_told_even_before_it_listens() {
        let test = Test::new(1, None);
        let first = test.take(HERE).unwrap();
        let _second = test.take(HERE).unwrap();
        let told =
            tokio::time::timeout(std::time::Duration::from_secs(60), first.place().gives_way());
        told.await.expect("it is told");
    }
}
