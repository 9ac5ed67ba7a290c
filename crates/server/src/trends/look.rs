//! A look at the process: what it has counted, and how it stands.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use punctual_model::{TopicKind, TopicName};

use crate::access::Gate;
use crate::app::Broker;
use crate::backend::{Backend, Nodes, Teller};
use crate::config::Config;
use crate::machine::{self, FileBytes};
use crate::trends::counts::{MessageCounts, Spread, Tally};
use crate::trends::point::Gauges;
use crate::trends::window::Look;

/// What is looked at.
pub(crate) struct Looking {
    pub(crate) broker: Broker,
    gate: Gate,
    backend: Backend,
    /// What this node has in memory of the timeline.
    memory: Teller,
    /// Where the data is, and how large.
    data: PathBuf,
    store_bytes: Arc<FileBytes>,
}

impl Looking {
    /// Looks at these.
    pub(crate) fn at(
        config: &Config,
        (broker, gate): (&Broker, &Gate),
        (backend, nodes, store_bytes): (&Backend, &Nodes, &Arc<FileBytes>),
    ) -> Self {
        Self {
            broker: broker.clone(),
            gate: gate.clone(),
            backend: backend.clone(),
            memory: nodes.memory_teller(),
            data: config.store.data.clone(),
            store_bytes: Arc::clone(store_bytes),
        }
    }

    /// Looks. Blocks on the disk.
    pub(crate) fn look(&self) -> Look {
        let stats = self.broker.stats();
        let pending: HashMap<&TopicName, u64> =
            stats.pending.iter().map(|(name, pending)| (name, *pending)).collect();
        let topics = self.broker.topics().list();
        let plain = topics.iter().filter(|topic| topic.kind == TopicKind::Plain);
        let topics = plain
            .map(|topic| {
                let pending = pending.get(&topic.name).copied().unwrap_or(0);
                (topic.id.get(), (topic.name.as_str().into(), pending))
            })
            .collect();
        let counts = self.broker.topic_counts();
        let apps = self.gate.counts();
        let sent = |(app, counts): &(_, _)| (Clone::clone(app), Into::into(*counts));
        Look {
            tally: Tally {
                whole: MessageCounts::from(&stats),
                topics: counts.into_iter().map(|(id, counts)| (id.get(), counts.into())).collect(),
                apps: apps.iter().filter(|(_, counts)| !counts.is_zero()).map(sent).collect(),
            },
            topics,
            apps: apps.into_iter().map(|(app, _)| app).collect(),
            gauges: self.gauges(),
            lateness: Spread::from(&stats.lateness),
            journal: Spread::from(&self.backend.figures().journal_sync),
        }
    }

    fn gauges(&self) -> Gauges {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let memory = (self.memory)();
        Gauges {
            entries: Some(count(memory.entries)),
            slots: Some(count(memory.slots)),
            memory_bytes: machine::memory_bytes(),
            store_bytes: Some(self.store_bytes.read()),
            disk_free_bytes: machine::room(&self.data).map(|room| room.usable),
        }
    }
}
