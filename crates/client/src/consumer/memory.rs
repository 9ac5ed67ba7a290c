//! Which messages were handled although the broker may not know it.
//!
//! A message whose ack was lost is given again. Where the same consumer gets it, it is acked at once
//! instead of being handled twice. What must hold: ids are forgotten after a while, because a
//! message that comes much later was asked for by somebody; and there is room for so many only.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Most ids that are kept.
const IDS_MAX: usize = 16_384;

/// Ids of handled messages.
#[derive(Debug)]
pub(crate) struct Memory {
    keep: Duration,
    until: HashMap<Arc<str>, Instant>,
    /// In the order of coming in; some are forgotten already.
    order: VecDeque<(Arc<str>, Instant)>,
}

impl Memory {
    pub(crate) fn new(keep: Duration) -> Self {
        Self { keep, until: HashMap::new(), order: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, id: Arc<str>, now: Instant) {
        let until = now + self.keep;
        self.order.push_back((Arc::clone(&id), until));
        self.until.insert(id, until);
        while self.order.len() > IDS_MAX || self.order.front().is_some_and(|(_, at)| *at <= now) {
            let Some((id, at)) = self.order.pop_front() else { break };
            if self.until.get(&id) == Some(&at) {
                self.until.remove(&id);
            }
        }
    }

    pub(crate) fn holds(&self, id: &Arc<str>, now: Instant) -> bool {
        self.until.get(id).is_some_and(|until| now < *until)
    }

    pub(crate) fn forget(&mut self, id: &Arc<str>) {
        self.until.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kept_for_a_while_and_not_more_than_there_is_room_for() {
        let (mut now, keep) = (Instant::now(), Duration::from_secs(10));
        let mut memory = Memory::new(keep);
        let id = |number: usize| Arc::<str>::from(number.to_string());
        for number in 0..=IDS_MAX {
            memory.add(id(number), now);
        }
        assert!(!memory.holds(&id(0), now), "the oldest made room");
        assert!(memory.holds(&id(1), now));
        memory.forget(&id(1));
        assert!(!memory.holds(&id(1), now));
        now += keep;
        assert!(!memory.holds(&id(2), now));
        memory.add(id(0), now);
        assert_eq!((memory.until.len(), memory.order.len()), (1, 1));
    }
}
