//! What a server has outside of its machine: Kafka, and a store that it shares with other nodes.

use std::sync::Arc;
use std::time::Duration;

use punctual_cluster::catalogue::SharedTopics;
use punctual_cluster::coordinator::Cluster;
use punctual_cluster::kafka::{KafkaIngress, KafkaOutlet};
use punctual_cluster::routing::RoutingCounts;
use punctual_cluster::timeline::TimelineStats;
use punctual_model::Buckets;

use crate::backend::{HttpPeers, SharedTimeline};

/// How long messages on their way to Kafka are waited for at the end.
const FINISH_WAIT: Duration = Duration::from_secs(10);

/// What is outside.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(crate) outlet: Arc<KafkaOutlet>,
    pub(crate) ingress: Option<Arc<KafkaIngress>>,
    /// Where pending messages are outside too.
    pub(crate) shared: Option<SharedStore>,
}

/// A store that is shared.
#[derive(Clone)]
pub(crate) struct SharedStore {
    pub(crate) timeline: Arc<dyn SharedTimeline>,
    pub(crate) topics: Arc<SharedTopics>,
    /// None where this is the only node.
    pub(crate) cluster: Option<Arc<Cluster>>,
    pub(crate) peers: Arc<HttpPeers>,
    /// The directory is this process's for as long as this is held.
    pub(crate) _lock: Arc<dyn Send + Sync>,
}

/// Figures of what is outside.
#[derive(Debug)]
pub(crate) struct OutsideFigures {
    pub(crate) kafka_reachable: bool,
    pub(crate) slots: Option<TimelineStats>,
    pub(crate) routing: Option<RoutingCounts>,
    pub(crate) peer_calls: Option<Buckets>,
}

impl Outside {
    pub(crate) fn figures(&self) -> OutsideFigures {
        let shared = self.shared.as_ref();
        OutsideFigures {
            kafka_reachable: self.outlet.is_reachable(),
            slots: shared.map(|shared| shared.timeline.slot_stats()),
            routing: shared.map(|shared| shared.timeline.routing()),
            peer_calls: shared.map(|shared| shared.peers.latency()),
        }
    }

    /// Takes nothing more from Kafka. Blocks.
    pub(crate) fn stop_taking(&self) {
        if let Some(ingress) = &self.ingress {
            ingress.stop();
        }
    }

    /// Waits for what is on its way. Blocks.
    pub(crate) fn finish(&self) {
        self.outlet.close(FINISH_WAIT);
    }

    /// Lets go of the slots, so that others have them at once.
    pub(crate) async fn leave(&self) {
        let Some(shared) = &self.shared else { return };
        shared.timeline.close().await;
        if let Some(cluster) = &shared.cluster {
            cluster.leave().await;
        }
        shared.topics.stop();
    }
}
