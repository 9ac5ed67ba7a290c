//! The few topics whose messages do not simply fire when they are due.
//!
//! Firing looks at a snapshot and at one number that tells whether there is a newer one, so topics
//! without such settings cost nothing. Whoever changes settings says so with [`Rules::refresh`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use punctual_model::ports::Topics;
use punctual_model::{CatchUp, TopicId, TopicKind, TopicSettings};

/// What firing has to know of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) rate_cap: Option<u32>,
    pub(crate) paused: bool,
    pub(crate) catch_up: CatchUp,
}

impl Rule {
    fn of(settings: &TopicSettings) -> Self {
        let TopicSettings { rate_cap, paused, catch_up, .. } = *settings;
        Self { rate_cap, paused, catch_up }
    }
}

/// The topics that have a rule; all others have the default one.
pub(crate) type Snapshot = Arc<HashMap<TopicId, Rule>>;

/// The rules in force.
pub(crate) struct Rules {
    topics: Arc<dyn Topics>,
    current: Mutex<Snapshot>,
    /// Counts the snapshots.
    edition: AtomicU64,
}

impl Rules {
    /// As the topics say now.
    pub(crate) fn new(topics: Arc<dyn Topics>) -> Self {
        let current = Mutex::new(read(&*topics));
        Self { topics, current, edition: AtomicU64::new(0) }
    }

    /// Settings have changed. False when nothing that counts here has.
    pub(crate) fn refresh(&self) -> bool {
        let mut current = self.current.lock();
        // Read under the lock, so that an older state never replaces a newer one.
        let fresh = read(&*self.topics);
        if *fresh == **current {
            return false;
        }
        *current = fresh;
        self.edition.fetch_add(1, Ordering::Release);
        true
    }

    /// The snapshot, if it is not the one of `edition`, which becomes that of the snapshot.
    pub(crate) fn newer(&self, edition: &mut Option<u64>) -> Option<Snapshot> {
        if *edition == Some(self.edition.load(Ordering::Acquire)) {
            return None;
        }
        let current = self.current.lock();
        *edition = Some(self.edition.load(Ordering::Acquire));
        Some(Arc::clone(&current))
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("current", &self.current.lock()).finish_non_exhaustive()
    }
}

fn read(topics: &dyn Topics) -> Snapshot {
    let plain = topics.list().into_iter().filter(|topic| topic.kind == TopicKind::Plain);
    let rules = plain.map(|topic| (topic.id, Rule::of(&topic.settings)));
    Arc::new(rules.filter(|(_, rule)| *rule != Rule::default()).collect())
}
