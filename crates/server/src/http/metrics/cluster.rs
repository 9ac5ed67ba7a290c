//! Figures of the machines that make up the broker, and of what is outside of this one: Kafka, slots,
//! other nodes.

use super::text::gauge;
#[cfg(feature = "cluster")]
use super::text::{counter, histogram};
#[cfg(feature = "cluster")]
use crate::backend::OutsideFigures;
use crate::http::shared::Shared;

/// The machines that this one knows of. One that is alone is one, and has everything.
pub(super) fn nodes(text: &mut String, shared: &Shared) {
    let seen = shared.nodes.view();
    let nodes = seen.as_ref().map_or(1, |seen| seen.nodes.len());
    let nobody = |seen: &punctual_model::ports::ClusterView| {
        seen.slots.iter().filter(|slot| slot.owner.is_none()).count()
    };
    let unowned = seen.as_deref().map_or(0, nobody);
    gauge(text, "punctual_cluster_nodes", "Nodes of the cluster that this one sees.", nodes);
    let help = "Slots of the cluster that nobody holds, as this node sees it.";
    gauge(text, "punctual_cluster_slots_unowned", help, unowned);
}

/// What concerns Kafka, slots and other nodes.
#[cfg(feature = "cluster")]
pub(super) fn outside(text: &mut String, outside: &OutsideFigures) {
    let reachable = u8::from(outside.kafka_reachable);
    gauge(text, "punctual_kafka_outlet_reachable", "Whether Kafka answered last.", reachable);
    if let Some(slots) = &outside.slots {
        for (name, help, number) in [
            ("punctual_slots_held", "Slots that this node holds.", slots.slots),
            ("punctual_timeline_entries", "Entries in memory.", slots.entries),
            ("punctual_timeline_bytes", "Bytes of messages in memory.", slots.bytes),
            ("punctual_timeline_claimed", "Entries on their way out.", slots.claimed),
            ("punctual_timeline_queued", "Calls that wait for the store.", slots.queued),
        ] {
            gauge(text, name, help, number);
        }
        for (name, help, number) in [
            ("punctual_store_commits_total", "Groups of changes written.", slots.commits),
            ("punctual_store_changes_total", "Changes in them.", slots.committed_changes),
            ("punctual_store_fenced_total", "Writes refused for an old term.", slots.fenced),
            ("punctual_store_reloads_total", "Slots read again after doubt.", slots.reloads),
            ("punctual_store_failures_total", "Calls that failed.", slots.store_failures),
        ] {
            counter(text, name, help, number);
        }
    }
    if let Some(routing) = outside.routing {
        for (name, help, number) in [
            ("punctual_peer_calls_total", "Calls of other nodes.", routing.calls),
            ("punctual_peer_calls_failed_total", "Those without an answer.", routing.failed),
            ("punctual_routing_retries_total", "Tries while a slot moved.", routing.retried),
        ] {
            counter(text, name, help, number);
        }
    }
    if let Some(calls) = &outside.peer_calls {
        histogram(text, "punctual_peer_call_seconds", "Time that calls of nodes took.", calls);
    }
}
