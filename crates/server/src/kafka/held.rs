//! How many bytes of requests are held at one time, of all connections together.
//!
//! A request is counted as it arrives, never by what it claims to become. The first bytes of each,
//! which for most is all of it, have a bound of their own and count only once the request is whole:
//! so whoever sends large requests, or parts of them, holds nobody up who asks small things. Who finds
//! no room waits, and is not read from meanwhile. So that large requests which have arrived in part do
//! not wait for each other for ever, one of them at a time may go on without room.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Of what may be held, this part again is for the first bytes of requests.
const FIRST_PART: usize = 4;

/// What may be held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// First bytes of whole requests.
    first: Arc<Semaphore>,
    /// All further ones.
    further: Arc<Semaphore>,
    /// Whoever has this needs no room.
    beyond: Arc<Semaphore>,
}

/// The room of one request; given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    first: Option<OwnedSemaphorePermit>,
    further: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl Held {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(Semaphore::MAX_PERMITS);
        Self {
            first: Arc::new(Semaphore::new(bytes_max / FIRST_PART)),
            further: Arc::new(Semaphore::new(bytes_max)),
            beyond: Arc::new(Semaphore::new(1)),
        }
    }

    /// Counts the first bytes of a request that is whole.
    pub(crate) async fn settle(&self, room: &mut Room, bytes: usize) {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        let first = Arc::clone(&self.first);
        let taken = match Arc::clone(&first).try_acquire_many_owned(count) {
            Ok(taken) => taken,
            Err(_none_left) => first.acquire_many_owned(count).await.expect("it is never closed"),
        };
        room.first = Some(taken);
    }

    /// Makes room for further bytes of a request, and waits until that is possible.
    pub(crate) async fn widen(&self, room: &mut Room, bytes: usize) {
        if room.beyond.is_some() {
            return;
        }
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        if let Ok(more) = Arc::clone(&self.further).try_acquire_many_owned(count) {
            return room.join(more);
        }
        tokio::select! {
            more = Arc::clone(&self.further).acquire_many_owned(count) => {
                room.join(more.expect("it is never closed"));
            }
            beyond = Arc::clone(&self.beyond).acquire_owned() => {
                room.beyond = Some(beyond.expect("it is never closed"));
            }
        }
    }
}

impl Room {
    fn join(&mut self, more: OwnedSemaphorePermit) {
        match &mut self.further {
            Some(further) => further.merge(more),
            None => self.further = Some(more),
        }
    }

    /// The bytes, which have this room until the last part of them is dropped.
    pub(crate) fn around(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Roomed { bytes, _room: self })
    }
}

struct Roomed {
    bytes: Bytes,
    _room: Room,
}

impl AsRef<[u8]> for Roomed {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    /// Whether there is room at once.
    fn widens(held: &Held, room: &mut Room, bytes: usize) -> bool {
        held.widen(room, bytes).now_or_never().is_some()
    }

    fn settles(held: &Held, room: &mut Room, bytes: usize) -> bool {
        held.settle(room, bytes).now_or_never().is_some()
    }

    #[test]
    fn who_finds_no_room_waits_and_one_goes_on_without() {
        let held = Held::new(100);
        let (mut first, mut second, mut third) =
            (Room::default(), Room::default(), Room::default());
        assert!(widens(&held, &mut first, 60) && widens(&held, &mut second, 40));
        assert!(widens(&held, &mut first, 60) && first.beyond.is_some(), "the first goes on");
        assert!(widens(&held, &mut first, 1_000_000));
        assert!(!widens(&held, &mut second, 10));
        assert!(!widens(&held, &mut third, 1));
        drop(first);
        assert!(widens(&held, &mut second, 10) && widens(&held, &mut third, 50));
        assert!(second.beyond.is_none() && third.beyond.is_none());
    }

    #[test]
    fn large_requests_hold_up_no_small_ones() {
        let held = Held::new(100);
        let mut large = Room::default();
        assert!(widens(&held, &mut large, 100));
        let (mut one, mut other) = (Room::default(), Room::default());
        assert!(settles(&held, &mut one, 25));
        assert!(!settles(&held, &mut other, 1), "they have a bound of their own");
        drop(one);
        assert!(settles(&held, &mut other, 1));
    }

    #[test]
    fn the_room_of_bytes_is_theirs_until_the_last_part_is_dropped() {
        let held = Held::new(40);
        let mut room = Room::default();
        assert!(settles(&held, &mut room, 10));
        let bytes = room.around(Bytes::from_static(b"0123456789"));
        let part = bytes.slice(3..5);
        drop(bytes);
        assert!(!settles(&held, &mut Room::default(), 1));
        assert_eq!(&part[..], b"34");
        drop(part);
        assert!(settles(&held, &mut Room::default(), 10));
    }
}
