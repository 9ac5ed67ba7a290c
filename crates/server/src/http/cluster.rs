//! The nodes that make up the broker: look at them, and change into how many slots work is divided.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_api::request::Parameters;
use punctual_api::stats::{
    AssignedView, ClusterAsked, ClusterView, EventView, MemoryView, NodeView, SlotsView,
};
use punctual_api::{Code, Problem};
use punctual_model::limits::JSON_DEPTH_MAX;
use punctual_model::ports::{self, CoordinatorError};

use crate::backend::{ALONE, Event, Memory};
use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::reply::{Reply, large_json};
use crate::http::shared::Shared;

/// Largest request about the cluster.
const REQUEST_BYTES_MAX: usize = 1 << 10;

/// `GET /v1/cluster`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let with_slots = parameters.take_truth("slots")?;
    parameters.end()?;
    large_json(&call.shared, &view(&call.shared, with_slots))
}

/// `PUT /v1/cluster`
pub(crate) async fn put(call: Call) -> Result<Reply, Problem> {
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let asked = ClusterAsked::read(&held.bytes, JSON_DEPTH_MAX)?;
    drop(held);
    let _one_at_a_time = shared.changes.lock().await;
    let details = vec![("slots", asked.slots.to_string())];
    let work = async {
        match shared.nodes.view() {
            // It has one, and that is what was asked for.
            None if asked.slots == 1 => Ok(()),
            _ => shared.nodes.resize(asked.slots).await.map_err(refusal),
        }
    };
    audit::taken_down(&shared, asker, ("cluster_put", None), details, work).await?;
    let mut changed = view(&shared, false);
    // What was asked for counts, though this node may hear of it only in a moment.
    changed.slots.wanted = u64::from(asked.slots);
    large_json(&shared, &changed)
}

fn refusal(error: CoordinatorError) -> Problem {
    let code = match error {
        CoordinatorError::Unavailable(_) => Code::Unavailable,
        CoordinatorError::Alone => Code::NotACluster,
        CoordinatorError::SlotsOutOfRange => Code::InvalidField,
    };
    Problem::new(code, error.to_string())
}

fn view(shared: &Shared, with_slots: bool) -> ClusterView {
    match shared.nodes.view() {
        None => single(shared, with_slots),
        Some(seen) => several(shared, &seen, with_slots),
    }
}

/// One machine that has everything.
fn single(shared: &Shared, with_slots: bool) -> ClusterView {
    let address = shared.address.get().copied();
    let node = NodeView {
        id: ALONE.to_owned(),
        address: address.unwrap_or(shared.live().config.http.listen).to_string(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: shared.started.0.to_string(),
        state: "up",
        slots: 1,
        term: 1,
    };
    let only = AssignedView { slot: 0, owner: Some(ALONE.to_owned()), term: 1, next: None };
    ClusterView {
        mode: shared.nodes.mode(),
        node: ALONE.to_owned(),
        leader: Some(ALONE.to_owned()),
        nodes: vec![node],
        lost: Vec::new(),
        slots: SlotsView { total: 1, wanted: 1, unowned: 0, moving: 0, retired: 0 },
        assignment: with_slots.then(|| vec![only]),
        memory: memory(shared.nodes.memory()),
        history: Vec::new(),
    }
}

fn several(shared: &Shared, seen: &ports::ClusterView, with_slots: bool) -> ClusterView {
    let mut owned: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut slots = SlotsView {
        total: count(seen.slots.len()),
        wanted: u64::from(seen.slots_wanted),
        unowned: 0,
        moving: 0,
        retired: 0,
    };
    for slot in &seen.slots {
        match &slot.owner {
            Some(owner) => {
                let (held, term) = owned.entry(owner).or_default();
                *held += 1;
                *term = (*term).max(slot.term);
            }
            None => slots.unowned += 1,
        }
        slots.moving += u64::from(slot.next.is_some());
        slots.retired += u64::from(slot.slot >= seen.slots_wanted);
    }
    let node = |state: &'static str, node: &ports::Node| {
        let (held, term) = owned.get(&*node.name).copied().unwrap_or_default();
        NodeView {
            id: node.name.to_string(),
            address: node.address.to_string(),
            version: node.version.to_string(),
            started_at: node.since.to_string(),
            state,
            slots: held,
            term,
        }
    };
    let text = |name: &Arc<str>| name.to_string();
    let assigned = |slot: &ports::SlotView| AssignedView {
        slot: slot.slot,
        owner: slot.owner.as_ref().map(text),
        term: slot.term,
        next: slot.next.as_ref().map(text),
    };
    ClusterView {
        mode: shared.nodes.mode(),
        node: shared.nodes.name().as_ref().map(text).unwrap_or_default(),
        leader: seen.leader.as_ref().map(text),
        nodes: seen.nodes.iter().map(|of| node("up", of)).collect(),
        lost: shared.alerts.lost(&shared.nodes).iter().map(|of| node("lost", of)).collect(),
        slots,
        assignment: with_slots.then(|| seen.slots.iter().map(assigned).collect()),
        memory: memory(shared.nodes.memory()),
        history: shared.nodes.history().iter().map(event).collect(),
    }
}

fn event(event: &Event) -> EventView {
    EventView {
        at: event.at.to_string(),
        event: event.kind.word(),
        node: event.node.as_deref().map(str::to_owned),
        slots: event.slots,
    }
}

fn memory(memory: Memory) -> MemoryView {
    MemoryView {
        slots: count(memory.slots),
        entries: count(memory.entries),
        bytes: count(memory.bytes),
        frontier: memory.frontier.map(|frontier| frontier.to_string()),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
