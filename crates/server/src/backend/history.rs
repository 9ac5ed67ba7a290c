//! What became of the cluster, as this node has seen it: who came and went, who led, where slots
//! went. Kept in memory, and only the newest of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use punctual_model::ports::ClusterView;
use punctual_model::{Span, Timestamp};

/// Most events that are kept.
const KEPT: usize = 100;
/// Slots that move within this time of each other are one event.
const TOGETHER: Span = Span::from_secs(60);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// When it was seen.
    pub(crate) at: Timestamp,
    pub(crate) kind: EventKind,
    /// The node it is about, if it is about one.
    pub(crate) node: Option<Arc<str>>,
    /// How many slots moved.
    pub(crate) slots: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// A node registered.
    Joined,
    /// A node left in order.
    Left,
    /// A node is gone without a word.
    Lost,
    /// A node assigns slots from now on.
    Leader,
    /// Slots have other owners.
    Slots,
}

impl EventKind {
    /// What it is called.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Left => "left",
            Self::Lost => "lost",
            Self::Leader => "leader",
            Self::Slots => "slots",
        }
    }
}

/// The newest events, oldest first, and what was seen last.
#[derive(Debug, Default)]
pub(crate) struct History {
    events: VecDeque<Event>,
    seen: Option<Arc<ClusterView>>,
}

impl History {
    /// The newest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().rev()
    }

    /// The cluster looks like this now; `left` tells of a node whether it said that it leaves.
    pub(crate) fn see(
        &mut self,
        view: Arc<ClusterView>,
        left: impl Fn(&str) -> bool,
        at: Timestamp,
    ) {
        if view.nodes.is_empty() {
            // This node itself knows nothing for now.
            return;
        }
        let before = self.seen.replace(Arc::clone(&view)).unwrap_or_default();
        let missing = |there: &ClusterView, name: &Arc<str>| {
            there.nodes.iter().all(|node| node.name != *name)
        };
        for node in view.nodes.iter().filter(|node| missing(&before, &node.name)) {
            self.add(at, EventKind::Joined, Some(&node.name), 0);
        }
        for node in before.nodes.iter().filter(|node| missing(&view, &node.name)) {
            let kind = if left(&node.name) { EventKind::Left } else { EventKind::Lost };
            self.add(at, kind, Some(&node.name), 0);
        }
        if view.leader != before.leader && view.leader.is_some() {
            self.add(at, EventKind::Leader, view.leader.as_ref(), 0);
        }
        let owners: HashMap<u32, &Arc<str>> = before
            .slots
            .iter()
            .filter_map(|slot| slot.owner.as_ref().map(|owner| (slot.slot, owner)))
            .collect();
        let moved = view.slots.iter().filter(|slot| {
            slot.owner.as_ref().is_some_and(|owner| owners.get(&slot.slot) != Some(&owner))
        });
        match u64::try_from(moved.count()).unwrap_or(u64::MAX) {
            0 => {}
            moved => self.slots_moved(at, moved),
        }
    }

    fn slots_moved(&mut self, at: Timestamp, slots: u64) {
        if let Some(last) = self.events.back_mut()
            && last.kind == EventKind::Slots
            && at < last.at.saturating_add(TOGETHER)
        {
            last.slots += slots;
            return;
        }
        self.add(at, EventKind::Slots, None, slots);
    }

    fn add(&mut self, at: Timestamp, kind: EventKind, node: Option<&Arc<str>>, slots: u64) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.events.push_back(Event { at, kind, node: node.cloned(), slots });
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::ports::{Node, SlotView};

    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis_saturating(secs * 1000)
    }

    fn view(nodes: &[&str], leader: Option<&str>, owners: &[Option<&str>]) -> Arc<ClusterView> {
        let node = |name: &&str| Node {
            name: (*name).into(),
            address: "".into(),
            version: "".into(),
            since: at(0),
        };
        let slot = |(slot, owner): (u32, &Option<&str>)| SlotView {
            slot,
            owner: owner.map(Into::into),
            term: 1,
            next: None,
        };
        Arc::new(ClusterView {
            nodes: nodes.iter().map(node).collect(),
            leader: leader.map(Into::into),
            slots_wanted: 2,
            slots: (0..).zip(owners).map(slot).collect(),
        })
    }

    /// Only `a` says when it leaves.
    fn left(name: &str) -> bool {
        name == "a"
    }

    fn told(history: &History) -> Vec<String> {
        let tell = |event: &Event| {
            let node = event.node.as_deref().unwrap_or("-");
            format!("{} {node} {}", event.kind.word(), event.slots)
        };
        history.events().map(tell).collect()
    }

    #[test]
    fn what_differs_is_told_the_newest_first() {
        let mut history = History::default();
        history.see(view(&["a"], Some("a"), &[Some("a"), None]), left, at(1));
        history.see(view(&["a"], Some("a"), &[Some("a"), Some("a")]), left, at(2));
        assert_eq!(told(&history), ["slots - 2", "leader a 0", "joined a 0"]);
        history.see(view(&["b"], None, &[None, None]), left, at(300));
        history.see(view(&["b"], Some("b"), &[Some("b"), None]), left, at(301));
        let newest = ["slots - 1", "leader b 0", "left a 0", "joined b 0"];
        assert_eq!(told(&history)[..4], newest);
        history.see(Arc::default(), left, at(301));
        let same = view(&["b"], Some("b"), &[Some("b"), None]);
        history.see(same, left, at(302));
        assert_eq!(history.events.len(), 7, "nothing has changed");
    }

    #[test]
    fn only_the_newest_are_kept() {
        let mut history = History::default();
        for round in 0..KEPT {
            let name = format!("n{round}");
            history.see(view(&[&name], None, &[]), left, at(1));
        }
        assert_eq!(history.events.len(), KEPT);
        assert_eq!(told(&history)[0], format!("lost n{} 0", KEPT - 2));
    }
}
