//! Where every message stands, and the only ways in which that changes.
//!
//! A delivery is no change: what was delivered may have to be delivered again after a loss of power,
//! and stands where it stood.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_model::ports::{PendingEntry, Topic};
use punctual_model::{Action, MessageId, TopicId};

/// What there is, as a client knows it.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// The topics.
    pub topics: BTreeMap<TopicId, Arc<Topic>>,
    /// What was accepted and not withdrawn, as it was last changed.
    pub alive: BTreeMap<MessageId, PendingEntry>,
    /// What was withdrawn.
    pub cancelled: BTreeSet<MessageId>,
    /// Whose each own id is, and the fingerprint of the request.
    pub names: BTreeMap<(TopicId, Arc<str>), (MessageId, u64)>,
}

/// Something that was asked of the store and answered.
#[derive(Clone, Debug)]
pub enum Event {
    /// A topic was made or changed.
    Topic(Arc<Topic>),
    /// A topic was removed.
    TopicGone(TopicId),
    /// Messages were changed, all at once.
    Revised(Vec<Effect>),
}

/// What an order did.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A message stands there now.
    Stands(PendingEntry),
    /// A message was withdrawn.
    Cancelled(MessageId),
    /// A message has this name now.
    Named(TopicId, Arc<str>, MessageId, u64),
}

impl World {
    /// What there is after `event`.
    pub fn take(&mut self, event: &Event) {
        match event {
            Event::Topic(topic) => {
                self.topics.insert(topic.id, Arc::clone(topic));
            }
            Event::TopicGone(id) => {
                self.topics.remove(id);
                self.alive.retain(|message, _| message.topic != *id);
                self.cancelled.retain(|message| message.topic != *id);
                self.names.retain(|(topic, _), _| topic != id);
            }
            Event::Revised(effects) => effects.iter().for_each(|effect| self.effect(effect)),
        }
    }

    fn effect(&mut self, effect: &Effect) {
        match effect {
            Effect::Stands(entry) => {
                self.alive.insert(entry.id, entry.clone());
            }
            Effect::Cancelled(id) => {
                self.alive.remove(id);
                self.cancelled.insert(*id);
            }
            Effect::Named(topic, text, id, print) => {
                self.names.insert((*topic, Arc::clone(text)), (*id, *print));
            }
        }
    }

    /// The topic of that name.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.topics.values().find(|topic| topic.name.as_str() == name).cloned()
    }

    /// What will be delivered at some time: no series, no transactions, nothing parked.
    pub fn deliverable(&self) -> impl Iterator<Item = &PendingEntry> {
        self.alive.values().filter(|entry| is_message(entry) && !entry.key.due.is_parked())
    }
}

/// Whether it is a message, not a series or a transaction.
pub fn is_message(entry: &PendingEntry) -> bool {
    entry.extra.as_ref().is_none_or(|extra| extra.action == Action::Deliver)
}
