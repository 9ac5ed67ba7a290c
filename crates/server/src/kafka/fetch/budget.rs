//! How many bytes of records an answer may hold.
//!
//! The first partition that has anything gives at least one whole batch, however large it is: a
//! consumer with small buffers must get on. After that the limits are kept to the byte, and a batch
//! that does not fit waits for its turn to be first.

/// What one answer holds at most, whatever is asked for: as the brokers do by default that clients
/// were made for.
const ANSWER_BYTES_MAX: u64 = 55 << 20;

/// What is left of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: u64,
    taken: u64,
}

impl Budget {
    /// As the request says; a negative limit is none at all.
    pub(crate) fn new(bytes_max: i32) -> Self {
        Self { left: unsigned(bytes_max).min(ANSWER_BYTES_MAX), taken: 0 }
    }

    /// How much may be read of the next partition; none when it need not be looked at.
    pub(crate) fn room(&self, partition_bytes_max: i32) -> Option<u64> {
        let room = unsigned(partition_bytes_max).min(self.left);
        (self.taken == 0 || room > 0).then_some(room)
    }

    /// How much is sent of what was found within `room`: all of it or nothing.
    pub(crate) fn take(&mut self, room: u64, found: u64) -> u64 {
        if self.taken > 0 && found > room {
            return 0;
        }
        self.left = self.left.saturating_sub(found);
        self.taken += found;
        found
    }
}

/// The bytes that a fetch waits for: never more than one answer holds.
pub(crate) fn enough(bytes_min: i32, bytes_max: i32) -> u64 {
    unsigned(bytes_min).min(unsigned(bytes_max).min(ANSWER_BYTES_MAX))
}

fn unsigned(limit: i32) -> u64 {
    u64::try_from(limit).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_batch_is_sent_however_large_it_is() {
        for limit in [-1, 0, 10] {
            let mut budget = Budget::new(limit);
            let room = budget.room(5).unwrap();
            assert_eq!(room, u64::try_from(limit.clamp(0, 5)).unwrap());
            assert_eq!(budget.take(room, 1000), 1000);
            assert_eq!(budget.room(5), None, "nothing is left for the next");
            assert_eq!(budget.taken, 1000);
        }
    }

    #[test]
    fn an_empty_partition_leaves_the_first_place_to_the_next() {
        let mut budget = Budget::new(10);
        assert_eq!(budget.take(10, 0), 0);
        let room = budget.room(0).unwrap();
        assert_eq!((room, budget.take(room, 50)), (0, 50));
    }

    #[test]
    fn behind_the_first_the_limits_are_kept() {
        let mut budget = Budget::new(100);
        assert_eq!(budget.take(60, 60), 60);
        assert_eq!(budget.room(30), Some(30));
        assert_eq!(budget.take(30, 31), 0, "one batch larger than the room");
        assert_eq!(budget.room(1000), Some(40));
        assert_eq!(budget.take(40, 40), 40);
        assert_eq!(budget.room(1000), None);
        assert_eq!(budget.taken, 100);
    }

    #[test]
    fn no_answer_is_larger_than_the_server_wants() {
        let budget = Budget::new(i32::MAX);
        assert_eq!(budget.room(i32::MAX), Some(ANSWER_BYTES_MAX));
        assert_eq!(enough(i32::MAX, i32::MAX), ANSWER_BYTES_MAX);
        assert_eq!(enough(500, 100), 100);
        assert_eq!(enough(-5, 100), 0);
    }
}
