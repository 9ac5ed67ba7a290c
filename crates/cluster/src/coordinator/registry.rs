//! What a coordination service has to do, so that leading, following and assigning are written once.
//!
//! etcd and ZooKeeper stand behind this seam, and so does the simulated one of the tests. What must
//! hold: everything that a session has registered is gone when the session has ended, and the
//! session ends one lease after its last renewal, or later. Each call has a deadline of its own, so
//! a service that hangs becomes [`Trouble::Unavailable`], and then whether anything was changed is
//! not known.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;

use super::assignment::Name;

/// Why a call was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trouble {
    /// The session has ended, and everything that it registered with it.
    #[error("the registration is gone")]
    Gone,
    /// The service could not be reached or did not answer.
    #[error("{0}")]
    Unavailable(Arc<str>),
}

/// Which state of the assignment was read. A later one is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Revision(pub(crate) u64);

/// What the service knew at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot {
    /// The state of the assignment; `None` when there is none yet.
    pub(crate) revision: Option<Revision>,
    /// The assignment, if it is not the one that the reader knows already.
    pub(crate) document: Option<Bytes>,
    /// The number of slots that somebody asked for.
    pub(crate) asked: Option<u32>,
    /// The nodes that are registered, and who they are. Read at the same moment as the assignment
    /// or later: a node that holds slots and is not here is gone for good.
    pub(crate) members: Vec<(Name, Bytes)>,
    /// What nodes have said of their slots; told to the leader alone.
    pub(crate) words: Vec<(Name, Bytes)>,
    /// Who leads.
    pub(crate) leader: Option<Name>,
}

/// A coordination service.
pub(crate) trait Registry: Send + Sync + 'static {
    /// What a node has with it while it is registered.
    type Session: Session;

    /// Opens a session and registers a node in it.
    fn register(
        &self,
        name: Name,
        about: Bytes,
    ) -> impl Future<Output = Result<Self::Session, Trouble>> + Send;
}

/// A registered node's session. What a node reads in a session never goes back in time.
pub(crate) trait Session: Send + Sync + 'static {
    /// How long the session lasts without a renewal.
    fn lease(&self) -> Duration;

    /// Renews it. `Ok` means that it lasts for a lease from the call on, but for a little: the
    /// margin of `lease.rs`.
    fn renew(&self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// What there is. The reader knows the assignment in the state `known`.
    fn read(
        &self,
        known: Option<Revision>,
    ) -> impl Future<Output = Result<Snapshot, Trouble>> + Send;

    /// Becomes the leader if there is none.
    fn lead(&self) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Writes the assignment if this node leads and the assignment is as it was read last, in that
    /// state. Answers whether it did.
    fn write(
        &self,
        expected: Option<Revision>,
        document: Bytes,
    ) -> impl Future<Output = Result<bool, Trouble>> + Send;

    /// Says something of this node's slots, in place of what it said before.
    fn say(&self, word: Bytes) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Asks for a number of slots; lasts longer than the session.
    fn ask(&self, slots: u32) -> impl Future<Output = Result<(), Trouble>> + Send;

    /// Waits until something may have changed since the last [`read`](Self::read) was begun; a
    /// leader waits for words too. May miss something, so it is not to be relied on.
    fn changed(&self, leading: bool) -> impl Future<Output = ()> + Send;

    /// Ends the session, so that what it registered is gone at once.
    fn end(&self) -> impl Future<Output = ()> + Send;
}

/// Tells a session's reader of changes. A change that nobody waits for is told to the next who does.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    state: Notify,
    words: Notify,
}

impl Changes {
    /// Nodes, leader, assignment or number of slots have changed.
    pub(crate) fn tell_state(&self) {
        self.state.notify_one();
    }

    /// A node has said something.
    pub(crate) fn tell_words(&self) {
        self.words.notify_one();
    }

    /// Anything may have changed.
    pub(crate) fn tell_all(&self) {
        self.tell_state();
        self.tell_words();
    }

    /// Waits for a change.
    pub(crate) async fn wait(&self, leading: bool) {
        if leading {
            tokio::select! {
                () = self.state.notified() => {}
                () = self.words.notified() => {}
            }
        } else {
            self.state.notified().await;
        }
    }
}
