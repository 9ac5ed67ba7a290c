//! A node's place in its cluster, as the rest of the node sees it: what it holds, whether it may
//! still believe so, and who else is there.
//!
//! `node.rs` keeps it up to date, callers read it from any thread without waiting. What must hold:
//! when the registration is known to be gone, certainty ends first, then the holding; and both are
//! so before the node registers anew. Listeners are called without any lock held.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::ports::{ClusterView, Coordinator, CoordinatorError, Holding};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::assignment::{Assignment, Name, Tenancy, Word};
use super::document::About;
use super::lease::{Lease, Moment, Timing};
use super::member::Member;
use super::registry::Revision;
use crate::store::SLOTS_MAX;

/// How many calls of [`Coordinator::resize`] may wait at once.
const ASKS_MAX: usize = 16;

type Listener = Arc<dyn Fn() + Send + Sync>;

/// A wish for another number of slots.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) slots: u32,
    pub(crate) reply: oneshot::Sender<Result<(), Arc<str>>>,
}

/// A node's place in its cluster.
pub(crate) struct Seat {
    timing: Arc<dyn Timing>,
    lease: Lease,
    taken: Mutex<Taken>,
    listeners: Mutex<Vec<Listener>>,
    asks: mpsc::Sender<Ask>,
    /// There is something to say.
    pub(crate) spoken: Notify,
    /// The lease was renewed.
    pub(crate) renewed: Notify,
    /// Whether the node is to leave.
    pub(crate) leaving: watch::Sender<bool>,
    /// Whether it has left.
    pub(crate) left: watch::Sender<bool>,
}

/// What is known at the moment.
#[derive(Default)]
struct Taken {
    /// `None` while the node is not registered.
    member: Option<Member>,
    nodes: BTreeMap<Name, About>,
    leader: Option<Name>,
    holding: Arc<Holding>,
    view: Arc<ClusterView>,
}

impl Taken {
    /// Works out what follows from a change; answers whether anything does.
    fn refresh(&mut self) -> bool {
        let (holding, view) = match &self.member {
            Some(member) => (member.holding(), member.view(&self.nodes, self.leader.clone())),
            // Who was there is worth something still: others may be asked.
            None => (Holding::default(), ClusterView::clone(&self.view)),
        };
        let changed = *self.holding != holding || *self.view != view;
        if *self.holding != holding {
            self.holding = Arc::new(holding);
        }
        if *self.view != view {
            self.view = Arc::new(view);
        }
        changed
    }
}

impl Seat {
    /// A place that is not taken yet, and where the wishes of callers come out.
    pub(crate) fn new(timing: Arc<dyn Timing>) -> (Arc<Self>, mpsc::Receiver<Ask>) {
        let (asks, receiver) = mpsc::channel(ASKS_MAX);
        let seat = Self {
            timing,
            lease: Lease::default(),
            taken: Mutex::default(),
            listeners: Mutex::default(),
            asks,
            spoken: Notify::new(),
            renewed: Notify::new(),
            leaving: watch::Sender::new(false),
            left: watch::Sender::new(false),
        };
        (Arc::new(seat), receiver)
    }

    /// The node was registered by a call begun at `sent`.
    pub(crate) fn take(&self, name: Name, sent: Moment, lease: Duration) {
        self.taken.lock().member = Some(Member::new(name));
        self.renew(sent, lease);
    }

    /// The registration was renewed by a call begun at `sent`.
    pub(crate) fn renew(&self, sent: Moment, lease: Duration) {
        let certain = self.is_certain();
        self.lease.renewed(sent, lease);
        self.renewed.notify_one();
        if !certain && self.is_certain() {
            self.tell();
        }
    }

    /// The registration is gone.
    pub(crate) fn lose(&self) {
        self.lease.lost();
        let mut taken = self.taken.lock();
        taken.member = None;
        taken.refresh();
        drop(taken);
        self.tell();
    }

    /// Who is there was read, and the assignment if it was not known yet.
    pub(crate) fn learn(
        &self,
        nodes: BTreeMap<Name, About>,
        leader: Option<Name>,
        assignment: Option<(Revision, Assignment)>,
    ) {
        let mut taken = self.taken.lock();
        taken.nodes = nodes;
        taken.leader = leader;
        if let (Some(member), Some((revision, assignment))) = (&mut taken.member, assignment) {
            member.learn(revision, assignment);
        }
        let changed = taken.refresh();
        drop(taken);
        if changed {
            self.tell();
        }
    }

    /// What the registered node knows and has to say.
    pub(crate) fn with_member<R>(&self, read: impl FnOnce(&Member) -> R) -> Option<R> {
        self.taken.lock().member.as_ref().map(read)
    }

    /// What the node has to say that is not part of `said`.
    pub(crate) fn unsaid(&self, said: &Word) -> Option<Word> {
        let taken = self.taken.lock();
        let word = taken.member.as_ref()?.word();
        let known =
            word.released.is_subset(&said.released) && word.drained.is_subset(&said.drained);
        (!known).then(|| word.clone())
    }

    /// Calls the listeners.
    pub(crate) fn tell(&self) {
        let listeners = self.listeners.lock().clone();
        for listener in listeners {
            listener();
        }
    }

    /// Until when the lease is believed in.
    pub(crate) fn certain_until(&self) -> Moment {
        self.lease.certain_until()
    }

    /// Where the time comes from.
    pub(crate) fn timing(&self) -> &Arc<dyn Timing> {
        &self.timing
    }

    /// Changes something about the node's slots, and sees that it is said.
    fn change(&self, change: impl FnOnce(&mut Member) -> bool) {
        let mut taken = self.taken.lock();
        if !taken.member.as_mut().is_some_and(change) {
            return;
        }
        let changed = taken.refresh();
        drop(taken);
        self.spoken.notify_one();
        if changed {
            self.tell();
        }
    }
}

impl Coordinator for Seat {
    fn holding(&self) -> Arc<Holding> {
        self.taken.lock().holding.clone()
    }

    fn is_certain(&self) -> bool {
        self.lease.is_certain(self.timing.now())
    }

    fn view(&self) -> Arc<ClusterView> {
        self.taken.lock().view.clone()
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.listeners.lock().push(listener);
    }

    fn released(&self, slot: u32, term: u64) {
        self.change(|member| member.release(Tenancy { slot, term }));
    }

    fn drained(&self, slot: u32, term: u64) {
        self.change(|member| member.drain(Tenancy { slot, term }));
    }

    fn resize(
        &self,
        slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>> {
        Box::pin(async move {
            if !(1..=SLOTS_MAX).contains(&slots) {
                return Err(CoordinatorError::SlotsOutOfRange);
            }
            let unavailable = |why: &str| CoordinatorError::Unavailable(why.into());
            let (reply, answer) = oneshot::channel();
            if self.asks.try_send(Ask { slots, reply }).is_err() {
                return Err(unavailable("too many calls at once, or the node is leaving"));
            }
            match answer.await {
                Ok(answer) => answer.map_err(CoordinatorError::Unavailable),
                Err(_dropped) => Err(unavailable("the node is not registered")),
            }
        })
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat")
            .field("name", &self.with_member(|member| member.name().clone()))
            .field("certain", &self.is_certain())
            .finish_non_exhaustive()
    }
}
