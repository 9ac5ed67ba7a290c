//! Who holds which part of what is pending.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::time::Timestamp;

/// Which slots this node may fire, and who holds the others. One machine alone holds the only one
/// there is, for ever.
///
/// **One owner.** A slot is assigned with a term that only grows. Its owner before has let go of it
/// by then, or can no longer believe that it holds it.
pub trait Coordinator: Send + Sync + 'static {
    /// What is assigned to this node.
    fn holding(&self) -> Arc<Holding>;

    /// Whether this node may begin something with what it holds: its lease, by its own clock that
    /// goes on while the machine sleeps, does not end soon.
    fn is_certain(&self) -> bool;

    /// Everybody, as far as this node knows.
    fn view(&self) -> Arc<ClusterView>;

    /// `listener` is called, from any thread, whenever one of these has changed.
    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>);

    /// This node has let go of a slot that was [`Held::leaving`].
    fn released(&self, slot: u32, term: u64);

    /// Nothing is pending any more in a slot that this node holds and that is [`Held::retired`]. It is
    /// let go by that.
    fn drained(&self, slot: u32, term: u64);

    /// Asks for another number of slots. New ones are assigned, those past it are retired: they take
    /// no more messages, and end when they are empty.
    fn resize(
        &self,
        slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>>;
}

/// What a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// The slots held, by number.
    pub slots: Vec<Held>,
}

/// A slot that a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The slot.
    pub slot: u32,
    /// The fencing number of this assignment.
    pub term: u64,
    /// Another node is to have it: begin nothing more with it, and say when it is let go.
    pub leaving: bool,
    /// It is to end: nothing new is put into it, and what it holds fires as ever.
    pub retired: bool,
}

/// A cluster as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The nodes that are there, by name.
    pub nodes: Vec<Node>,
    /// The name of the node that assigns slots, while there is one.
    pub leader: Option<Arc<str>>,
    /// The number of slots asked for.
    pub slots_wanted: u32,
    /// The slots there are, by number; those past the number asked for are retired.
    pub slots: Vec<SlotView>,
}

/// A node of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name: unique, and another one after each start.
    pub name: Arc<str>,
    /// Where other nodes reach it: scheme, host and port.
    pub address: Arc<str>,
    /// The version it runs.
    pub version: Arc<str>,
    /// When it registered.
    pub since: Timestamp,
}

/// A slot as the cluster sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// The slot.
    pub slot: u32,
    /// The name of the node that holds it; `None` while nobody does.
    pub owner: Option<Arc<str>>,
    /// The fencing number.
    pub term: u64,
    /// Who is to have it next, while it moves.
    pub next: Option<Arc<str>>,
}

/// How a coordinator refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordinatorError {
    /// It cannot be reached.
    #[error("the coordinator is unavailable: {0}")]
    Unavailable(Arc<str>),
    /// There are no slots to change: this is one machine alone.
    #[error("one machine alone has no slots to divide")]
    Alone,
    /// The number is not one that a cluster may have.
    #[error("a cluster has 1 to 65536 slots")]
    SlotsOutOfRange,
}

/// The coordinator of one machine alone: one slot, held from the start.
///
/// Over a store that others could share its term is the time of its start. So of two that somebody
/// starts by mistake the later one has the slot, and the store refuses the earlier one; they never
/// write side by side.
#[derive(Clone, Debug)]
pub struct Solo {
    holding: Arc<Holding>,
    view: Arc<ClusterView>,
}

impl Solo {
    /// The only node, which is known under a name.
    #[must_use]
    pub fn node(node: Node) -> Self {
        let leader = Some(Arc::clone(&node.name));
        Self::with(
            node.since.as_millis(),
            ClusterView { leader, nodes: vec![node], ..ClusterView::default() },
        )
    }

    fn with(term: u64, view: ClusterView) -> Self {
        let held = Held { slot: 0, term, leaving: false, retired: false };
        let slot = SlotView { slot: 0, owner: view.leader.clone(), term, next: None };
        Self {
            holding: Arc::new(Holding { slots: vec![held] }),
            view: Arc::new(ClusterView { slots_wanted: 1, slots: vec![slot], ..view }),
        }
    }
}

impl Default for Solo {
    fn default() -> Self {
        Self::with(1, ClusterView::default())
    }
}

impl Coordinator for Solo {
    fn holding(&self) -> Arc<Holding> {
        Arc::clone(&self.holding)
    }

    fn is_certain(&self) -> bool {
        true
    }

    fn view(&self) -> Arc<ClusterView> {
        Arc::clone(&self.view)
    }

    fn listen(&self, _listener: Arc<dyn Fn() + Send + Sync>) {}

    fn released(&self, _slot: u32, _term: u64) {}

    fn drained(&self, _slot: u32, _term: u64) {}

    fn resize(
        &self,
        _slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>> {
        Box::pin(std::future::ready(Err(CoordinatorError::Alone)))
    }
}
