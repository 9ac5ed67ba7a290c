//! Those who wait for a topic's log to grow.
//!
//! As everywhere, no wake is lost by registering first, then looking, then waiting. All who wait for
//! a topic are woken: each has read up to a place of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use punctual_model::TopicId;

use crate::group::{Available, Waiters};

/// Topics that somebody waited for are forgotten once there are this many of them.
const TOPICS_KEPT: usize = 4096;

/// Those who wait, by topic.
#[derive(Debug, Default)]
pub struct Arrivals {
    topics: Mutex<HashMap<TopicId, Arc<Waiters>>>,
    /// Number of topics that somebody has waited for, so that mostly nobody has to look.
    known: AtomicUsize,
}

impl Arrivals {
    /// Ready when something was appended to the topic, or the topic was deleted. Ask for it first,
    /// then look, then wait.
    pub fn join(&self, topic: TopicId) -> Available {
        let mut topics = self.topics.lock();
        if topics.len() >= TOPICS_KEPT {
            topics.retain(|_, waiters| !waiters.is_empty());
        }
        let waiters = Arc::clone(topics.entry(topic).or_default());
        let available = waiters.join();
        self.known.store(topics.len(), Ordering::Release);
        available
    }

    /// Something was appended to the topic.
    pub(crate) fn wake(&self, topic: TopicId) {
        if self.known.load(Ordering::Acquire) == 0 {
            return;
        }
        let waiters = self.topics.lock().get(&topic).cloned();
        if let Some(waiters) = waiters {
            waiters.wake_all();
        }
    }

    /// Topics were changed or deleted.
    pub(crate) fn wake_all(&self) {
        let topics: Vec<_> = self.topics.lock().values().cloned().collect();
        topics.iter().for_each(|waiters| waiters.wake_all());
    }
}
