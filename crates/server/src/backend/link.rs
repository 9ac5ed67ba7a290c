//! How this node speaks with the others: it shows that it is one of them, carries out what they ask,
//! and asks them for what only they know.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use punctual_cluster::routing::Peers as _;
use punctual_cluster::routing::wire::{Answer, Request, decode_answer};
use punctual_model::GroupName;
use punctual_model::ports::{Coordinator, StoreError};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::app::Broker;
use crate::backend::nodes::Name;
use crate::backend::peers::HttpPeers;
use crate::config::ClusterSecret;
use crate::tasks::Tasks;

/// How much longer than it may wait a question may take.
const MARGIN: Duration = Duration::from_secs(5);
/// How long a list of nodes is asked before it is looked at again.
const ROUND: Duration = Duration::from_secs(20);
/// How long others may take to hear that this node leaves.
const GOODBYE: Duration = Duration::from_secs(1);
/// Pause after an answer, or after none, before the same node is asked again.
const PAUSE: Duration = Duration::from_secs(1);

type Carried = Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send>>;
type Carry = Box<dyn Fn(Request) -> Carried + Send + Sync>;

/// How this node speaks with others.
pub(crate) struct Link {
    /// Without one only this machine can call, and anybody on it may.
    secret: Option<ClusterSecret>,
    carry: Carry,
    peers: Arc<HttpPeers>,
    coordinator: Arc<dyn Coordinator>,
    name: Name,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("peers", &self.peers).finish_non_exhaustive()
    }
}

impl Link {
    pub(crate) fn new(
        secret: Option<ClusterSecret>,
        carry: impl Fn(Request) -> Carried + Send + Sync + 'static,
        peers: Arc<HttpPeers>,
        (coordinator, name): (Arc<dyn Coordinator>, Name),
    ) -> Self {
        Self { secret, carry: Box::new(carry), peers, coordinator, name }
    }

    /// Whether that is what a node of this cluster shows.
    pub(crate) fn is_ours(&self, shown: &[u8]) -> bool {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        self.secret.as_ref().is_none_or(|secret| shown.ct_eq(&secret.hash()).into())
    }

    /// Carries out what another node asks, in the slots of this one.
    pub(crate) async fn carry(&self, request: Request) -> Result<Answer, StoreError> {
        (self.carry)(request).await
    }

    /// Tells all other nodes that this one leaves in order, so that nobody misses it. Does not wait
    /// for those that do not answer.
    pub(crate) async fn tell_leaving(&self) {
        let Some(own) = (self.name)() else { return };
        let view = self.coordinator.view();
        let others = view.nodes.iter().filter(|node| node.name != own);
        let request = Request::Leaving(Arc::clone(&own)).encode();
        let told =
            others.map(|node| self.peers.call(node.address.clone(), request.clone(), GOODBYE));
        for outcome in join_all(told).await {
            if let Err(error) = outcome {
                tracing::debug!(?error, "another node does not know that this one leaves");
            }
        }
    }

    /// Asks all other nodes which checks of a producer group they have ready, and lets them be ready
    /// here too, until the deadline, or until the answer is dropped.
    pub(crate) fn ask_for_checks(
        &self,
        (broker, tasks): (&Broker, &Tasks),
        group: &GroupName,
        max: usize,
        deadline: Instant,
    ) -> DropGuard {
        let (stop, stopped) = (CancellationToken::new(), tasks.clone());
        let asking = Asking {
            peers: Arc::clone(&self.peers),
            coordinator: Arc::clone(&self.coordinator),
            name: Arc::clone(&self.name),
            broker: broker.clone(),
            group: group.clone(),
            max,
        };
        let dropped = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = dropped.cancelled() => {}
                () = stopped.stopped() => {}
                () = asking.run(deadline) => {}
            }
        });
        stop.drop_guard()
    }
}

/// Somebody who asks other nodes for checks.
struct Asking {
    peers: Arc<HttpPeers>,
    coordinator: Arc<dyn Coordinator>,
    name: Name,
    broker: Broker,
    group: GroupName,
    max: usize,
}

impl Asking {
    /// Asks all others in rounds: who they are may change.
    async fn run(&self, deadline: Instant) {
        while Instant::now() < deadline {
            let round = deadline.min(Instant::now() + ROUND);
            let (view, own) = (self.coordinator.view(), (self.name)());
            let others = view.nodes.iter().filter(|node| Some(&node.name) != own.as_ref());
            let asked = others.map(|node| self.ask(Arc::clone(&node.address), round));
            join_all(asked).await;
            pause(PAUSE).await;
        }
    }

    async fn ask(&self, address: Arc<str>, deadline: Instant) {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            let request = Request::Ready { group: self.group.clone(), max: self.max, wait_ms };
            let call = self.peers.call(Arc::clone(&address), request.encode(), left + MARGIN);
            match call.await.map(|answer| decode_answer(&answer)) {
                Ok(Ok(Ok(Answer::Ready(ready)))) => {
                    self.broker.transactions().also_ready(&self.group, ready);
                }
                other => tracing::debug!(%address, ?other, "no word of checks from another node"),
            }
            // What is ready there stays so until somebody takes it.
            pause(PAUSE.min(left)).await;
        }
    }
}

async fn pause(time: Duration) {
    let _always_late = timeout(time, std::future::pending::<()>()).await.is_err();
}
