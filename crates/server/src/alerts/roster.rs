//! Who belongs to the cluster, and who has gone without a word.
//!
//! Pure: whoever looks hands in whom it sees. A node that was seen and is gone is lost, unless it
//! said that it leaves, or is back already: a node that is started again at once is there under its
//! new name while the old one lasts. It is found again when another registration of the same node
//! appears, and after [`REMEMBERED`] nobody waits for it any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::ports::{ClusterView, Node};

use crate::alerts::book::Seen;

/// For how long a node that is gone is missed.
const REMEMBERED: Duration = Duration::from_secs(3600);
/// Nodes that are missed at most.
const LOST_MAX: usize = 1000;
/// Nodes that are named at most.
const NAMED_MAX: usize = 5;
/// What stands behind the name of a node: a hyphen and digits that are others at each start.
const SUFFIX_CHARS: usize = 17;

/// Who was there, and who is missed.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// By name.
    seen: BTreeMap<Arc<str>, Node>,
    lost: Vec<(Duration, Node)>,
}

impl Roster {
    /// Takes in who is there now; `left` tells of a node whether it said that it leaves.
    pub(crate) fn take(
        &mut self,
        view: &ClusterView,
        left: impl Fn(&str) -> bool,
        now: Duration,
    ) -> Seen {
        if view.nodes.is_empty() {
            // This node itself knows nothing for now.
            return Seen::Unknown;
        }
        let own = |node: &Node| (node.name.clone(), node.clone());
        let there: BTreeMap<Arc<str>, Node> = view.nodes.iter().map(own).collect();
        let is_back = |gone: &Node| there.values().any(|node| node.address == gone.address);
        for (name, gone) in &self.seen {
            if !there.contains_key(name) && !left(name) && !is_back(gone) {
                self.lost.push((now, gone.clone()));
            }
        }
        for new in there.values().filter(|node| !self.seen.contains_key(&node.name)) {
            let back = self.lost.iter().position(|(_, lost)| is_same(lost, new));
            back.map(|place| self.lost.remove(place));
        }
        self.lost.retain(|(since, lost)| {
            now.saturating_sub(*since) < REMEMBERED && !there.contains_key(&lost.name)
        });
        let excess = self.lost.len().saturating_sub(LOST_MAX);
        self.lost.drain(..excess);
        self.seen = there;
        self.told(view)
    }

    /// Who is missed.
    pub(crate) fn lost(&self) -> Vec<Node> {
        self.lost.iter().map(|(_, node)| node.clone()).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "there are not that many nodes")]
    fn told(&self, view: &ClusterView) -> Seen {
        let free = |slot: u32, owned: bool| slot < view.slots_wanted && !owned;
        let unowned =
            view.slots.iter().filter(|slot| free(slot.slot, slot.owner.is_some())).count();
        let names: Vec<&str> =
            self.lost.iter().take(NAMED_MAX).map(|(_, node)| &*node.name).collect();
        let mut parts = Vec::new();
        if !names.is_empty() {
            let more = self.lost.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            parts.push(format!("gone without leaving: {}{more}", names.join(", ")));
        }
        if unowned > 0 {
            parts.push(format!("slots without an owner: {unowned}"));
        }
        let missing = self.lost.len() + usize::from(unowned > 0);
        Seen::Number(missing as f64, (!parts.is_empty()).then(|| parts.join("; ")))
    }
}

/// Whether these are registrations of the same node.
fn is_same(one: &Node, other: &Node) -> bool {
    one.address == other.address || base(&one.name) == base(&other.name)
}

/// The name of a node without what is put behind it at each start.
fn base(name: &str) -> &str {
    let end = name.len().saturating_sub(SUFFIX_CHARS);
    match name.get(end..) {
        Some(suffix) if suffix.starts_with('-') => name.get(..end).unwrap_or(name),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::Timestamp;
    use punctual_model::ports::{Node, SlotView};

    use super::*;

    /// Nodes by letter, each start with a number of its own.
    fn view(nodes: &[(&str, u64)], unowned: u32) -> ClusterView {
        let node = |(name, start): &(&str, u64)| Node {
            name: format!("{name}-{start:016x}").into(),
            // Those of one name and an even number are started at another place.
            address: format!("http://{name}:{}", start % 2).into(),
            version: "0".into(),
            since: Timestamp::MIN,
        };
        let slot = |slot| SlotView {
            slot,
            owner: (slot >= unowned).then(|| "a".into()),
            term: 1,
            next: None,
        };
        ClusterView {
            nodes: nodes.iter().map(node).collect(),
            leader: None,
            slots_wanted: 4,
            slots: (0..4).map(slot).collect(),
        }
    }

    fn number(seen: Seen) -> (f64, String) {
        match seen {
            Seen::Number(number, detail) => (number, detail.unwrap_or_default()),
            other => panic!("{other:?}"),
        }
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_that_is_gone_is_missed_until_it_is_back() {
        let mut roster = Roster::default();
        let nobody = |_: &str| false;
        assert_eq!(number(roster.take(&view(&[("a", 1), ("b", 1)], 0), nobody, at(0))).0, 0.0);
        let (missing, detail) = number(roster.take(&view(&[("a", 1)], 0), nobody, at(1)));
        assert_eq!(missing, 1.0);
        assert_eq!(detail, "gone without leaving: b-0000000000000001");
        assert_eq!(
            roster.lost().iter().map(|node| &*node.name).collect::<Vec<_>>(),
            ["b-0000000000000001"]
        );
        assert_eq!(roster.take(&ClusterView::default(), nobody, at(2)), Seen::Unknown);
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), nobody, at(3))).0, 1.0);
        // Another one is no substitute.
        assert_eq!(number(roster.take(&view(&[("a", 1), ("c", 1)], 0), nobody, at(4))).0, 1.0);
        let all = [("a", 1), ("b", 2), ("c", 1)];
        assert_eq!(number(roster.take(&view(&all, 0), nobody, at(5))), (0.0, String::new()));
        assert!(roster.lost().is_empty());
    }

    #[test]
    fn whoever_says_that_it_leaves_is_not_missed() {
        let mut roster = Roster::default();
        let left = |name: &str| name.starts_with('b');
        roster.take(&view(&[("a", 1), ("b", 1)], 0), left, at(0));
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), left, at(1))).0, 0.0);
    }

    #[test]
    fn two_nodes_of_one_name_are_two() {
        let mut roster = Roster::default();
        let nobody = |_: &str| false;
        roster.take(&view(&[("a", 1), ("a", 2)], 0), nobody, at(0));
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), nobody, at(1))).0, 1.0);
        assert_eq!(number(roster.take(&view(&[("a", 1), ("a", 3)], 0), nobody, at(2))).0, 0.0);
    }

    #[test]
    fn a_node_that_is_started_again_at_once_is_not_missed() {
        let mut roster = Roster::default();
        let nobody = |_: &str| false;
        roster.take(&view(&[("a", 1), ("b", 1)], 0), nobody, at(0));
        roster.take(&view(&[("a", 1), ("b", 1), ("b", 3)], 0), nobody, at(1));
        assert_eq!(number(roster.take(&view(&[("a", 1), ("b", 3)], 0), nobody, at(9))).0, 0.0);
    }

    #[test]
    fn slots_without_an_owner_count_as_one() {
        let mut roster = Roster::default();
        let (missing, detail) = number(roster.take(&view(&[("a", 1)], 3), |_| false, at(0)));
        assert_eq!((missing, &*detail), (1.0, "slots without an owner: 3"));
    }

    #[test]
    fn nobody_is_missed_for_ever() {
        let mut roster = Roster::default();
        let nobody = |_: &str| false;
        roster.take(&view(&[("a", 1), ("b", 1)], 0), nobody, at(0));
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), nobody, at(1))).0, 1.0);
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), nobody, at(3600))).0, 1.0);
        assert_eq!(number(roster.take(&view(&[("a", 1)], 0), nobody, at(3601))).0, 0.0);
    }
}
