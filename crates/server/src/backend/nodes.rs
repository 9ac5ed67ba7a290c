//! The nodes that make up the broker, as this one sees them. One machine alone is one of them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_model::ports::{ClusterView, Coordinator, CoordinatorError, Solo};
use punctual_model::{GroupName, Timestamp};
use tokio::time::Instant;
use tokio_util::sync::DropGuard;

use crate::app::Broker;
use crate::backend::history::{Event, History};
use crate::tasks::Tasks;

/// Nodes of which it is remembered that they left.
#[cfg(feature = "cluster")]
const LEFT_MAX: usize = 1000;

/// Tells the name under which this node is known at the moment.
pub(crate) type Name = Arc<dyn Fn() -> Option<Arc<str>> + Send + Sync>;

/// What a node has in memory of the timeline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) slots: usize,
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    /// Everything due before it is in memory, where that is so.
    pub(crate) frontier: Option<Timestamp>,
}

/// Tells what a node has in memory.
pub(crate) type Teller = Arc<dyn Fn() -> Memory + Send + Sync>;

/// Why a node does not serve as it should, if it does not.
pub(crate) type Standing = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The nodes.
pub(crate) struct Nodes {
    coordinator: Arc<dyn Coordinator>,
    /// Whether there may be others.
    shared: bool,
    name: Name,
    memory: Teller,
    standing: Standing,
    history: Arc<Mutex<History>>,
    /// Who said last that they leave.
    left: Arc<Mutex<VecDeque<Arc<str>>>>,
    /// How this node speaks with others, where there may be some.
    #[cfg(feature = "cluster")]
    pub(crate) link: Option<crate::backend::Link>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("shared", &self.shared).finish_non_exhaustive()
    }
}

/// The only node, where one machine has everything; also what that is called.
pub(crate) const ALONE: &str = "single";

impl Nodes {
    /// One machine that has everything.
    pub(crate) fn single(
        memory: impl Fn() -> Memory + Send + Sync + 'static,
        standing: Standing,
    ) -> Self {
        Self {
            coordinator: Arc::new(Solo::default()),
            shared: false,
            name: Arc::new(|| None),
            memory: Arc::new(memory),
            standing,
            history: Arc::default(),
            left: Arc::default(),
            #[cfg(feature = "cluster")]
            link: None,
        }
    }

    /// Nodes over one store; one that is alone there speaks with nobody.
    #[cfg(feature = "cluster")]
    pub(crate) fn shared(
        (coordinator, name): (Arc<dyn Coordinator>, Name),
        memory: impl Fn() -> Memory + Send + Sync + 'static,
        standing: Standing,
        link: Option<crate::backend::Link>,
    ) -> Self {
        let (memory, history, left) = (Arc::new(memory), Arc::default(), Arc::default());
        Self { coordinator, shared: true, name, memory, standing, history, left, link }
    }

    /// From now on it is remembered what becomes of the cluster.
    pub(crate) fn remember(&self, now: impl Fn() -> Timestamp + Send + Sync + 'static) {
        if !self.shared {
            return;
        }
        let (seen, history) = (Arc::downgrade(&self.coordinator), Arc::downgrade(&self.history));
        let left = Arc::clone(&self.left);
        let look = move || {
            if let Some((coordinator, history)) = seen.upgrade().zip(history.upgrade()) {
                let has_left = |name: &str| is_among(&left.lock(), name);
                history.lock().see(coordinator.view(), has_left, now());
            }
        };
        look();
        self.coordinator.listen(Arc::new(look));
    }

    /// What became of the cluster, the newest first.
    pub(crate) fn history(&self) -> Vec<Event> {
        self.history.lock().events().cloned().collect()
    }

    /// Everybody, as far as this node knows; `None` where one machine has everything.
    pub(crate) fn view(&self) -> Option<Arc<ClusterView>> {
        self.shared.then(|| self.coordinator.view())
    }

    /// The name under which this node is known at the moment.
    pub(crate) fn name(&self) -> Option<Arc<str>> {
        (self.name)()
    }

    /// The same for whoever is told, also where there is no other.
    pub(crate) fn told_name(&self) -> String {
        self.name().map_or_else(|| ALONE.to_owned(), |name| name.to_string())
    }

    /// Whether one machine has everything, in a word.
    pub(crate) fn mode(&self) -> &'static str {
        if self.shared { "cluster" } else { ALONE }
    }

    /// What this node has in memory of the timeline.
    pub(crate) fn memory(&self) -> Memory {
        (self.memory)()
    }

    /// Tells the same for as long as somebody wants to know.
    pub(crate) fn memory_teller(&self) -> Teller {
        Arc::clone(&self.memory)
    }

    /// Whether that node said that it leaves.
    pub(crate) fn has_left(&self, name: &str) -> bool {
        is_among(&self.left.lock(), name)
    }

    /// That node leaves, in order.
    #[cfg(feature = "cluster")]
    pub(crate) fn note_left(&self, name: Arc<str>) {
        let mut left = self.left.lock();
        if left.len() >= LEFT_MAX {
            left.pop_front();
        }
        left.push_back(name);
    }

    /// Tells the others that this node leaves, in order.
    pub(crate) async fn tell_leaving(&self) {
        #[cfg(feature = "cluster")]
        if let Some(link) = &self.link {
            link.tell_leaving().await;
        }
    }

    /// Whether this node serves as it should, and if not, why.
    pub(crate) fn standing(&self) -> Result<(), String> {
        (self.standing)()
    }

    /// Lets checks of a producer group that other nodes have ready be ready here too, for as long as
    /// the answer is kept.
    pub(crate) fn ask_for_checks(
        &self,
        (broker, tasks): (&Broker, &Tasks),
        group: &GroupName,
        max: usize,
        deadline: Instant,
    ) -> Option<DropGuard> {
        #[cfg(feature = "cluster")]
        if let Some(link) = &self.link {
            return Some(link.ask_for_checks((broker, tasks), group, max, deadline));
        }
        // Nobody else has any.
        let _alone = (broker, tasks, group, max, deadline);
        None
    }

    /// Asks for another number of slots.
    pub(crate) async fn resize(&self, slots: u32) -> Result<(), CoordinatorError> {
        self.coordinator.resize(slots).await
    }
}

fn is_among(names: &VecDeque<Arc<str>>, name: &str) -> bool {
    names.iter().any(|known| &**known == name)
}
