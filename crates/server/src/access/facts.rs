//! What the gate has to know of the broker: to whom topics belong, what is pending, what time it is.

use std::fmt;

use punctual_model::{GroupName, Timestamp, TopicKind, TopicName};

use crate::access::grant::Owner;
use crate::app::Broker;

/// What the gate asks.
pub(crate) struct Facts {
    /// To whom a topic belongs.
    pub(crate) owner: Box<dyn Fn(&TopicName) -> Owner + Send + Sync>,
    /// How many messages are pending in each topic that somebody can send to.
    pub(crate) pending: Box<dyn Fn() -> Vec<(TopicName, u64)> + Send + Sync>,
    /// The broker clock.
    pub(crate) now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl Facts {
    /// As this broker knows them.
    pub(crate) fn of(broker: &Broker) -> Self {
        let (owners, counts, clock) = (broker.clone(), broker.clone(), broker.clone());
        Self {
            owner: Box::new(move |name| owner(&owners, name)),
            pending: Box::new(move || {
                let mut pending = counts.stats().pending;
                pending.retain(|(name, _)| kind(&counts, name) == Some(TopicKind::Plain));
                pending
            }),
            now: Box::new(move || clock.now()),
        }
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Facts")
    }
}

/// The ends of the names of topics that belong to groups.
const OWNED_ENDS: [&str; 2] = [".dead", ".retry"];

/// What the topic is for. Most names tell that by themselves.
fn kind(broker: &Broker, name: &TopicName) -> Option<TopicKind> {
    if OWNED_ENDS.iter().any(|end| name.as_str().ends_with(end)) {
        broker.topics().by_name(name).map(|topic| topic.kind)
    } else {
        Some(TopicKind::Plain)
    }
}

fn owner(broker: &Broker, name: &TopicName) -> Owner {
    match kind(broker, name) {
        None | Some(TopicKind::Plain) => Owner::Nobody,
        Some(TopicKind::Dead | TopicKind::Retry) => group_of(broker, name).unwrap_or(Owner::Lost),
    }
}

/// Both names may have dots, so every place where the one may end is tried.
fn group_of(broker: &Broker, name: &TopicName) -> Option<Owner> {
    let own = broker.topics().by_name(name)?;
    let (stem, _end) = name.as_str().rsplit_once('.')?;
    stem.match_indices('.').find_map(|(dot, _)| {
        let (topic, group) = (stem.get(..dot)?, stem.get(dot + 1..)?);
        let (topic, group) = (TopicName::new(topic).ok()?, GroupName::new(group).ok()?);
        let found = broker.consumers().find(&topic, &group).ok()?.group();
        (found.dead == own.id || found.retry == own.id).then_some(Owner::Group(topic, group))
    })
}
