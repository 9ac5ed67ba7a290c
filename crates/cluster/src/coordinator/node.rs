//! A node's life in its cluster: it registers, renews, follows the assignment, leads if nobody else
//! does, and registers anew when its registration is gone.
//!
//! Written against [`Registry`] and [`Timing`](super::lease::Timing), so the same code runs over
//! etcd, over ZooKeeper and in simulated time. Everything that is decided, is decided in the modules
//! beside; here is only waiting and calling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::{Clock, Timestamp};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::assignment::{Assignment, Name, Present, Word};
use super::document::{self, About};
use super::leader::{Leader, Step};
use super::lease::{Moment, renewal_interval};
use super::registry::{Registry, Session, Snapshot, Trouble};
use super::seat::{Ask, Seat};
use crate::store::SLOTS_MAX;

/// The least time between two writes of the assignment: what several nodes let go of within it
/// moves in one.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// How long to wait after a call that failed.
const RETRY_DELAY: Duration = Duration::from_millis(200);

/// What a node needs to live in a cluster.
pub(crate) struct Life<R> {
    pub(crate) seat: Arc<Seat>,
    pub(crate) registry: R,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where others reach the node.
    pub(crate) address: String,
    /// What it runs.
    pub(crate) version: String,
    /// The number of slots of a new cluster.
    pub(crate) slots: u32,
    pub(crate) rebalance_delay: Duration,
    pub(crate) asks: mpsc::Receiver<Ask>,
}

/// What a node keeps in mind while it follows.
struct Following {
    leader: Option<Leader>,
    /// What it has said of its slots.
    said: Word,
    /// When the assignment may be written next.
    write_from: Moment,
}

impl<R: Registry> Life<R> {
    /// Lives until the node is to leave. `names` gives another name at each call.
    pub(crate) async fn run(mut self, mut names: impl FnMut() -> Name + Send) {
        while !*self.seat.leaving.borrow() {
            self.live_once(names()).await;
        }
        self.seat.lose();
        self.seat.left.send_replace(true);
    }

    /// From one registration to its end.
    async fn live_once(&mut self, name: Name) {
        let seat = self.seat.clone();
        let about = About::new(&self.address, &self.version, self.now());
        let sent = seat.timing().now();
        let session = match self.registry.register(name.clone(), about.encode()).await {
            Ok(session) => session,
            Err(why) => {
                warn!(%why, "cannot join the cluster, trying again");
                self.refuse_asks();
                return self.pause(RETRY_DELAY).await;
            }
        };
        let ending = Ending { seat: &seat, session: Some(&session) };
        seat.take(name.clone(), sent, session.lease());
        info!(%name, lease = ?session.lease(), "joined the cluster");
        let mut leaving = seat.leaving.subscribe();
        tokio::select! {
            biased;
            _left = leaving.wait_for(|leaving| *leaving) => info!(%name, "leaving the cluster"),
            () = renew(&seat, &session) => warn!(%name, "the registration is gone"),
            () = tell_when_uncertain(&seat) => {}
            () = self.follow(&session) => warn!(%name, "the registration is gone"),
        }
        ending.end().await;
        self.refuse_asks();
    }

    /// Follows the assignment until the registration is gone.
    async fn follow<S: Session>(&mut self, session: &S) {
        let mut following =
            Following { leader: None, said: Word::default(), write_from: Moment::default() };
        loop {
            let again = match self.round(session, &mut following).await {
                Ok(again) => again,
                Err(Trouble::Gone) => return,
                Err(Trouble::Unavailable(why)) => {
                    debug!(%why, "cannot follow the assignment, trying again");
                    self.seat.timing().now().after(RETRY_DELAY)
                }
            };
            let seat = &self.seat;
            tokio::select! {
                biased;
                Some(ask) = self.asks.recv() => answer(session, ask).await,
                () = session.changed(following.leader.is_some()) => {}
                () = seat.spoken.notified() => {}
                () = seat.timing().wait_until(again) => {}
            }
        }
    }

    /// Reads what there is and does what follows. Answers when to look again at the latest.
    async fn round<S: Session>(
        &self,
        session: &S,
        following: &mut Following,
    ) -> Result<Moment, Trouble> {
        let seat = &self.seat;
        let known = seat.with_member(|member| member.revision()).ok_or(Trouble::Gone)?;
        let snapshot = session.read(known).await?;
        let readable = self.learn(&snapshot)?;
        if let Some(word) = seat.unsaid(&following.said) {
            session.say(document::encode_word(&word)).await?;
            following.said = word;
        }
        let now = seat.timing().now();
        let Some(leader) = &snapshot.leader else {
            session.lead().await?;
            return Ok(now.after(RETRY_DELAY / 4));
        };
        let leads = seat.with_member(|member| member.name() == leader).ok_or(Trouble::Gone)?;
        if !leads {
            following.leader = None;
            return Ok(now.after(session.lease()));
        }
        let known = seat.with_member(|member| member.revision()).ok_or(Trouble::Gone)?;
        // Nodes and assignment are to be of one moment: a node that is newer than the list of nodes
        // would be taken for one that is gone.
        if !readable || known != snapshot.revision {
            return Ok(now.after(session.lease() / 3));
        }
        self.lead(session, following, &snapshot).await
    }

    /// Takes in what was read; answers whether the assignment is one that this version knows.
    fn learn(&self, snapshot: &Snapshot) -> Result<bool, Trouble> {
        let (own, known) = self
            .seat
            .with_member(|member| (member.name().clone(), member.revision()))
            .ok_or(Trouble::Gone)?;
        let here = snapshot.members.iter().any(|(name, _)| *name == own);
        // Somebody has removed the registration or the assignment by hand: nobody knows any more
        // who holds what, so this node holds nothing until it is said anew.
        if !here || (known.is_some() && snapshot.revision.is_none()) {
            return Err(Trouble::Gone);
        }
        let nodes: BTreeMap<Name, About> =
            snapshot.members.iter().map(|(name, about)| (name.clone(), described(about))).collect();
        let read = snapshot.revision.zip(snapshot.document.as_ref());
        let decoded = read.map(|(revision, bytes)| (revision, document::decode_assignment(bytes)));
        let (assignment, readable) = match decoded {
            Some((revision, Ok(assignment))) => (Some((revision, assignment)), true),
            Some((_, Err(why))) => {
                error!(%why, "the assignment of the cluster cannot be read");
                (None, false)
            }
            None => (None, true),
        };
        self.seat.learn(nodes, snapshot.leader.clone(), assignment);
        Ok(readable)
    }

    /// Does what a leader does.
    async fn lead<S: Session>(
        &self,
        session: &S,
        following: &mut Following,
        snapshot: &Snapshot,
    ) -> Result<Moment, Trouble> {
        let seat = &self.seat;
        let now = seat.timing().now();
        let leader = following.leader.get_or_insert_with(|| {
            info!("leading the cluster");
            Leader::new(self.rebalance_delay)
        });
        let known = seat.with_member(|member| member.assignment().cloned()).ok_or(Trouble::Gone)?;
        let asked = snapshot.asked.filter(|slots| (1..=SLOTS_MAX).contains(slots));
        let stands = known.unwrap_or_else(|| {
            Assignment::new(asked.unwrap_or(self.slots), self.now().as_millis())
        });
        let wanted = asked.unwrap_or(stands.wanted);
        match leader.step(now, &stands, &present(snapshot), wanted) {
            Step::Write(_) if now < following.write_from => Ok(following.write_from),
            Step::Write(assignment) => {
                following.write_from = now.after(WRITE_INTERVAL);
                let bytes = document::encode_assignment(&assignment);
                let written = session.write(snapshot.revision, bytes).await?;
                debug!(written, term = assignment.term, "changed the assignment");
                Ok(if written { now } else { now.after(RETRY_DELAY) })
            }
            Step::Wait(until) => Ok(until),
            Step::Rest => Ok(now.after(session.lease() / 3)),
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.read().timestamp()
    }

    /// Waits, but not longer than the node is to stay.
    async fn pause(&self, span: Duration) {
        let timing = self.seat.timing();
        let mut leaving = self.seat.leaving.subscribe();
        tokio::select! {
            biased;
            _left = leaving.wait_for(|leaving| *leaving) => {}
            () = timing.wait_until(timing.now().after(span)) => {}
        }
    }

    /// Answers calls that nobody can serve.
    fn refuse_asks(&mut self) {
        // Dropping the reply is the answer.
        while self.asks.try_recv().is_ok() {}
    }
}

/// Sees that the holding ends with the session, even when the life is dropped in the middle.
struct Ending<'a, S: Session> {
    seat: &'a Seat,
    session: Option<&'a S>,
}

impl<S: Session> Ending<'_, S> {
    /// Ends both, the holding first.
    async fn end(mut self) {
        self.seat.lose();
        if let Some(session) = self.session.take() {
            session.end().await;
        }
    }
}

impl<S: Session> Drop for Ending<'_, S> {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.seat.lose();
        }
    }
}

/// Renews the lease until it is gone.
async fn renew<S: Session>(seat: &Seat, session: &S) {
    let interval = renewal_interval(session.lease());
    let mut due = seat.timing().now().after(interval);
    loop {
        seat.timing().wait_until(due).await;
        let sent = seat.timing().now();
        due = match session.renew().await {
            Ok(()) => {
                seat.renew(sent, session.lease());
                sent.after(interval)
            }
            Err(Trouble::Gone) => return,
            Err(Trouble::Unavailable(why)) => {
                warn!(%why, certain = seat.timing().now() < seat.certain_until(), "cannot renew the lease");
                seat.timing().now().after(interval / 2)
            }
        };
    }
}

/// Calls the listeners whenever the lease is not believed in any more.
async fn tell_when_uncertain(seat: &Seat) {
    loop {
        let until = seat.certain_until();
        seat.timing().wait_until(until).await;
        if seat.certain_until() > until {
            continue;
        }
        warn!("the lease was not renewed in time, nothing is begun until it is");
        seat.tell();
        while seat.certain_until() <= until {
            seat.renewed.notified().await;
        }
    }
}

/// Passes a wish on and answers it.
async fn answer<S: Session>(session: &S, ask: Ask) {
    let answer = session.ask(ask.slots).await.map_err(|trouble| trouble.to_string().into());
    if ask.reply.send(answer).is_err() {
        debug!("nobody waits for the answer any more");
    }
}

/// Who a node is, as far as that can be read: a later version may tell it in another way.
fn described(about: &[u8]) -> About {
    About::decode(about).unwrap_or_else(|| About::new("", "", Timestamp::MIN))
}

/// Who is there, and what they have said.
fn present(snapshot: &Snapshot) -> Present {
    let mut present: Present =
        snapshot.members.iter().map(|(name, _)| (name.clone(), Word::default())).collect();
    for (name, bytes) in &snapshot.words {
        let Some(word) = present.get_mut(name) else { continue };
        match document::decode_word(bytes) {
            Ok(read) => *word = read,
            Err(why) => error!(%name, %why, "what a node says of its slots cannot be read"),
        }
    }
    present
}
