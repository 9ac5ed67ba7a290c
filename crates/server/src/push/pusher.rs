//! Pushes the messages of one group: takes as many as it has places for, sends each, and acks or
//! gives it back by the answer.
//!
//! A message is taken only when it can be sent at once, and its lease outlasts the request, so that
//! nobody else is given it meanwhile. While the breaker is open nothing is taken, so that no
//! message uses up its attempts on an endpoint that is down.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_broker::group::{Available, Consumer, Failure, Leased, Receipt};
use punctual_model::group::Push;
use punctual_model::ports::GroupError;
use punctual_model::{Clock, GroupName, Span};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::push::breaker::{Breaker, Leave, Turn};
use crate::push::client::{Client, IDLE_MAX};
use crate::push::connect::Connector;
use crate::push::figures::Figures;
use crate::push::request::{self, Outgoing};
use crate::push::sign::Signer;
use crate::push::verdict::{Verdict, judge};
use crate::push::{Refused, refuse};
use crate::tasks::Tasks;

/// Most messages taken at one time.
const TAKEN_MAX: usize = 16;
/// How much longer than a request its lease is.
const LEASE_MARGIN: Span = Span::from_secs(30);
/// A message that waited longer to be sent has its lease extended first.
const LEASE_AGE_MAX: Duration = Duration::from_secs(10);
/// Most bytes of messages under way for one group, in KiB; a single message may be larger.
const HELD_KIB_MAX: u32 = 32 << 10;
/// Pause after the store refused.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// How long requests under way may go on once the server is asked to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What all pushers share.
pub(crate) struct Means {
    pub(crate) connector: Arc<Connector>,
    pub(crate) tasks: Tasks,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) figures: Arc<Figures>,
}

/// Pushes the messages of one group.
pub(crate) struct Pusher {
    consumer: Consumer,
    group: GroupName,
    client: Client,
    signer: Option<Signer>,
    lease: Span,
    places: Arc<Semaphore>,
    room: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    /// Told whenever the breaker may let more through than before.
    turned: Notify,
    means: Arc<Means>,
}

/// Everything a message holds while it is under way.
struct Passage {
    pusher: Arc<Pusher>,
    _place: OwnedSemaphorePermit,
    taken: Instant,
    /// Whether the breaker waits for the outcome.
    trial: bool,
}

impl Pusher {
    pub(crate) fn new(consumer: Consumer, push: &Push, means: Arc<Means>) -> Result<Self, Refused> {
        let endpoint = means.connector.endpoint(&push.url);
        let endpoint = refuse("push.url", endpoint)?;
        let signer = push.secret.as_deref().map(Signer::new).transpose();
        let timeout = Duration::from_millis(push.timeout.as_millis());
        let lease = push.timeout.as_millis().saturating_add(LEASE_MARGIN.as_millis());
        Ok(Self {
            group: consumer.group().name.clone(),
            consumer,
            client: Client::new(Arc::clone(&means.connector), endpoint, timeout),
            signer: refuse("push.secret", signer)?,
            lease: Span::from_millis(lease),
            places: Arc::new(Semaphore::new(usize::from(push.concurrency))),
            room: Arc::new(Semaphore::new(HELD_KIB_MAX as usize)),
            breaker: Mutex::new(Breaker::new()),
            turned: Notify::new(),
            means,
        })
    }

    /// Pushes until `ended`, or until the group is gone.
    pub(crate) async fn run(self: Arc<Self>, ended: CancellationToken) {
        loop {
            let places = tokio::select! {
                biased;
                () = ended.cancelled() => return,
                places = self.places() => places,
            };
            let available = self.consumer.available();
            match self.take(places.len()).await {
                Ok(taken) if taken.is_empty() => {
                    drop(places);
                    // In this order: a wake that nobody looks at must go on to somebody else.
                    tokio::select! {
                        biased;
                        () = ended.cancelled() => return,
                        () = self.wait(available) => {}
                    }
                }
                Ok(taken) => {
                    drop(available);
                    self.send_off(taken, places, &ended).await;
                }
                Err(GroupError::NotFound | GroupError::TopicNotFound) => return,
                Err(error) => {
                    drop(available);
                    warn!(topic = %self.consumer.topic(), group = %self.group, %error,
                        "messages to push could not be taken");
                    // Ended meanwhile or not: the loop looks.
                    let _ended = tokio::time::timeout(REFUSED_PAUSE, ended.cancelled()).await;
                }
            }
        }
    }

    /// Waits for messages, and closes connections that nobody needs meanwhile.
    async fn wait(&self, mut available: Available) {
        while tokio::time::timeout(IDLE_MAX, &mut available).await.is_err() {
            self.client.close_idle();
        }
    }

    /// As many places as are free and as the breaker lets through; at least one.
    async fn places(&self) -> Vec<OwnedSemaphorePermit> {
        loop {
            let turned = self.turned.notified();
            let leave = self.breaker.lock().leave(Instant::now());
            let most = match leave {
                Leave::Many => TAKEN_MAX,
                Leave::One => 1,
                Leave::NotBefore(moment) => {
                    // Turned earlier or not: the loop looks.
                    let _turned = tokio::time::timeout_at(moment, turned).await;
                    continue;
                }
                Leave::AfterTrial => {
                    turned.await;
                    continue;
                }
            };
            let place = Arc::clone(&self.places).acquire_owned().await;
            let mut places = vec![place.expect("the places are never closed")];
            // Whoever gave the place back may have turned the breaker.
            if self.breaker.lock().leave(Instant::now()) != leave {
                continue;
            }
            while places.len() < most
                && let Ok(place) = Arc::clone(&self.places).try_acquire_owned()
            {
                places.push(place);
            }
            return places;
        }
    }

    async fn take(&self, most: usize) -> Result<Vec<Leased>, GroupError> {
        let consumer = self.consumer.clone();
        let lease = self.lease;
        let taking = self.means.tasks.blocking(move || consumer.take(most, lease)).await;
        // Broken off only by a fault of ours, which has been reported; nothing was taken.
        taking.unwrap_or_else(|_broken_off| Ok(Vec::new()))
    }

    /// Starts a request for each message; once ended, gives the rest back untried.
    async fn send_off(
        self: &Arc<Self>,
        messages: Vec<Leased>,
        places: Vec<OwnedSemaphorePermit>,
        ended: &CancellationToken,
    ) {
        let taken = Instant::now();
        let mut unsent = Vec::new();
        for (leased, place) in messages.into_iter().zip(places) {
            let weight = u32::try_from(leased.message.weight() >> 10).unwrap_or(u32::MAX);
            let room = Arc::clone(&self.room).acquire_many_owned(weight.min(HELD_KIB_MAX));
            let room = tokio::select! {
                biased;
                () = ended.cancelled() => {
                    unsent.push(leased.receipt);
                    continue;
                }
                room = room => room,
            };
            let trial = self.breaker.lock().start();
            let passage = Passage { pusher: Arc::clone(self), _place: place, taken, trial };
            self.means.tasks.spawn(async move {
                passage.push(leased).await;
                drop(room);
            });
        }
        if !unsent.is_empty() {
            self.consumer.release(&unsent);
        }
    }

    /// Ends when requests under way must end too.
    async fn cut_off(&self) {
        self.means.tasks.stopped().await;
        let _passed = tokio::time::timeout(STOP_PATIENCE, std::future::pending::<()>()).await;
    }

    fn turn(&self, turn: Turn, error: &str) {
        let (topic, group) = (self.consumer.topic(), &self.group);
        let endpoint = self.client.endpoint();
        match turn {
            Turn::None => return,
            Turn::Opened(pause) => {
                self.means.figures.breaker_opened();
                warn!(%topic, %group, ?endpoint, error, ?pause, "an endpoint fails and is spared");
            }
            Turn::StillOpen(pause) => {
                debug!(%topic, %group, ?endpoint, error, ?pause, "an endpoint still fails");
            }
            Turn::Closed => {
                self.means.figures.breaker_closed();
                info!(%topic, %group, ?endpoint, "an endpoint works again");
            }
        }
        self.turned.notify_one();
    }
}

impl Passage {
    async fn push(mut self, leased: Leased) {
        let pusher = Arc::clone(&self.pusher);
        if self.taken.elapsed() > LEASE_AGE_MAX
            && pusher.consumer.extend(&[leased.receipt], pusher.lease) == [false]
        {
            debug!(id = %leased.id, "a lease ran out before the message could be pushed");
            return;
        }
        let verdict = tokio::select! {
            verdict = pusher.ask(&leased) => verdict,
            // After a restart nobody holds the message.
            () = pusher.cut_off() => return,
        };
        self.tell(&verdict);
        pusher.settle(leased.receipt, verdict).await;
    }

    /// Tells the breaker how it went.
    fn tell(&mut self, verdict: &Verdict) {
        let trial = std::mem::take(&mut self.trial);
        let (turn, error) = match verdict {
            Verdict::Failed { down: true, error, .. } => {
                (self.pusher.breaker.lock().fail(trial, Instant::now()), error.as_str())
            }
            Verdict::Done | Verdict::Failed { .. } => (self.pusher.breaker.lock().succeed(), ""),
        };
        self.pusher.turn(turn, error);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        if self.trial {
            self.pusher.breaker.lock().forget(true, Instant::now());
            self.pusher.turned.notify_one();
        }
    }
}

impl Pusher {
    /// Sends the message and judges the answer.
    async fn ask(&self, leased: &Leased) -> Verdict {
        let outgoing = Outgoing {
            topic: self.consumer.topic(),
            group: &self.group,
            id: leased.id,
            partition: leased.partition,
            offset: leased.offset,
            due: leased.due,
            attempt: leased.attempt,
            message: &leased.message,
        };
        let now = self.means.clock.read().timestamp();
        match request::build(&outgoing, self.client.endpoint(), self.signer.as_ref(), now) {
            Ok(request) => {
                let outcome = self.client.send(request).await;
                judge(&outcome, self.means.clock.read().timestamp())
            }
            Err(error) => {
                let error = format!("the message cannot be a request: {error}");
                Verdict::Failed { delay: None, error, down: false }
            }
        }
    }

    /// Acks the message or gives it back. What cannot be settled comes again when its lease is over.
    async fn settle(&self, receipt: Receipt, verdict: Verdict) {
        let settled = match verdict {
            Verdict::Done => {
                self.means.figures.delivered();
                self.consumer.ack(&[receipt]).await.map(drop)
            }
            Verdict::Failed { delay, error, .. } => {
                self.means.figures.failed();
                debug!(topic = %self.consumer.topic(), group = %self.group, error, "a push failed");
                let consumer = self.consumer.clone();
                let failure = Failure { delay, reject: false, error: Some(error) };
                let giving_back = move || consumer.nack(&[receipt], &failure).map(drop);
                let given_back = self.means.tasks.blocking(giving_back).await;
                given_back.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = settled {
            warn!(topic = %self.consumer.topic(), group = %self.group, %error,
                "a pushed message could not be settled and comes again");
        }
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        if self.breaker.lock().is_open() {
            self.means.figures.breaker_closed();
        }
    }
}

impl fmt::Debug for Pusher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pusher").field("client", &self.client).finish_non_exhaustive()
    }
}
