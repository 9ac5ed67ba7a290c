//! How many bytes of requests are held at one time, of all connections together.
//!
//! A request is counted as it arrives, never by what it claims to become. Who finds no room waits,
//! and is not read from meanwhile. So that requests which have arrived in part do not wait for each
//! other for ever, one of them at a time may go on without room: never more is held than the bound
//! and one request of the largest size.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What may be held.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    bytes: Arc<Semaphore>,
    /// Whoever has this needs no room.
    beyond: Arc<Semaphore>,
}

/// The room of one request; given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: Option<OwnedSemaphorePermit>,
    beyond: Option<OwnedSemaphorePermit>,
}

impl Held {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(Semaphore::MAX_PERMITS);
        Self { bytes: Arc::new(Semaphore::new(bytes_max)), beyond: Arc::new(Semaphore::new(1)) }
    }

    /// Makes the room larger, at once if that is possible.
    pub(crate) fn try_widen(&self, room: &mut Room, bytes: usize) -> bool {
        if room.beyond.is_some() {
            return true;
        }
        let Ok(count) = u32::try_from(bytes) else { return false };
        match Arc::clone(&self.bytes).try_acquire_many_owned(count) {
            Ok(more) => {
                room.join(more);
                true
            }
            Err(_none_left) => false,
        }
    }

    /// Makes the room larger, and waits until that is possible.
    pub(crate) async fn widen(&self, room: &mut Room, bytes: usize) {
        if self.try_widen(room, bytes) {
            return;
        }
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        tokio::select! {
            more = Arc::clone(&self.bytes).acquire_many_owned(count) => {
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
        match &mut self.bytes {
            Some(bytes) => bytes.merge(more),
            None => self.bytes = Some(more),
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
    fn the_room_of_bytes_is_theirs_until_the_last_part_is_dropped() {
        let held = Held::new(10);
        let mut room = Room::default();
        assert!(held.try_widen(&mut room, 10));
        let bytes = room.around(Bytes::from_static(b"0123456789"));
        let part = bytes.slice(3..5);
        drop(bytes);
        assert!(!held.try_widen(&mut Room::default(), 1));
        assert_eq!(&part[..], b"34");
        drop(part);
        assert!(held.try_widen(&mut Room::default(), 10));
    }
}
