//! The coordinator of classic consumer groups: who is in a group, and who reads what.
//!
//! Everything is decided in `machine.rs` and `group.rs`, which know neither clock nor network; this
//! file gives them the time and carries their answers to the calls that wait. Nothing of it is on
//! disk: after a restart nobody is a member of anything, and clients join again. What is kept of a
//! group is where it has got to (`offsets.rs`), the same as over HTTP.
//!
//! What must hold: a call that waits takes a few hundred bytes, and ends with its connection.

mod terms;
mod member;
mod group;
mod machine;
mod subscription;
mod handlers;
mod find;
mod shown;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod instances;
#[cfg(test)]
mod schedules;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_model::{GroupName, Timestamp};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::tasks::Tasks;

pub(crate) use self::find::find_coordinator;
pub(crate) use self::handlers::{
    consumed, heartbeat, join_group, leave_group, named, sync_group, who,
};
pub(crate) use self::machine::{Bounds, Machine};
pub(crate) use self::shown::{Stored, delete_groups, describe_groups, list_groups, remove};
pub(crate) use self::terms::{
    Effect, Identity, JoinAnswer, Joining, Refusal, SyncAnswer, Syncing, Ticket,
};

/// A handle of the coordinator.
#[derive(Clone)]
pub(crate) struct Coordinator {
    inner: Arc<Inner>,
}

struct Inner {
    state: Mutex<State>,
    /// An alarm was set that rings before the one that is waited for.
    sooner: Notify,
    began: Instant,
}

struct State {
    machine: Machine,
    tickets: u64,
    waiting: HashMap<Ticket, Waits>,
    /// Until when the bell sleeps.
    asleep_until: Option<Timestamp>,
}

enum Waits {
    Join(oneshot::Sender<JoinAnswer>),
    Sync(oneshot::Sender<SyncAnswer>),
}

impl Coordinator {
    /// A coordinator without groups, and the task that rings its alarms.
    pub(crate) fn start(bounds: Bounds, tasks: &Tasks) -> Self {
        let inner = Arc::new(Inner {
            state: Mutex::new(State {
                machine: Machine::new(bounds, Timestamp::MIN),
                tickets: 0,
                waiting: HashMap::new(),
                asleep_until: None,
            }),
            sooner: Notify::new(),
            began: Instant::now(),
        });
        let (bell, stop) = (Arc::clone(&inner), tasks.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = bell.ring() => {}
                () = stop.stopped() => {}
            }
        });
        Self { inner }
    }

    /// Joins, and waits until the group is complete. Dropped before that, the call is taken back.
    pub(crate) async fn join(&self, joining: Joining) -> JoinAnswer {
        let group = joining.group.clone();
        let (sender, answer) = oneshot::channel();
        let echo = joining.member.clone().unwrap_or_default();
        let call = self.wait(group, Waits::Join(sender), |machine, now, ticket, out| {
            machine.join(now, ticket, joining, out);
        });
        let answer = answer.await;
        drop(call);
        answer.unwrap_or(Err((Refusal::NotNow, echo)))
    }

    /// Asks for a share, and waits for the leader. Dropped before that, the call is taken back.
    pub(crate) async fn sync(&self, syncing: Syncing) -> SyncAnswer {
        let group = syncing.group.clone();
        let (sender, answer) = oneshot::channel();
        let call = self.wait(group, Waits::Sync(sender), |machine, now, ticket, out| {
            machine.sync(now, ticket, syncing, out);
        });
        let answer = answer.await;
        drop(call);
        answer.unwrap_or(Err(Refusal::NotNow))
    }

    /// See [`Machine::heartbeat`].
    pub(crate) fn heartbeat(
        &self,
        group: &GroupName,
        who: &Identity,
        generation: i32,
    ) -> Result<(), Refusal> {
        self.inner.step(|machine, now, _| machine.heartbeat(now, group, (who, generation)))
    }

    /// See [`Machine::commit`].
    pub(crate) fn commit(
        &self,
        group: &GroupName,
        who: &Identity,
        generation: i32,
    ) -> Result<(), Refusal> {
        self.inner.step(|machine, now, _| machine.commit(now, group, (who, generation)))
    }

    /// See [`Machine::leave`].
    pub(crate) fn leave(&self, group: &GroupName, who: &Identity) -> Result<(), Refusal> {
        self.inner.step(|machine, now, out| machine.leave(now, group, who, out))
    }

    /// Looks at the groups that have members.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Machine) -> T) -> T {
        look(&self.inner.state.lock().machine)
    }

    /// Whether a consumer in this group wants that topic; an error where there are members that are
    /// no consumers, of whom nobody knows what they want.
    pub(crate) fn wants(&self, group: &GroupName, topic: &str) -> Result<bool, NotConsumers> {
        let Some((protocol_type, said)) = self.look(|machine| machine.said(group)) else {
            return Ok(false);
        };
        if &*protocol_type != CONSUMERS {
            return Err(NotConsumers);
        }
        Ok(said.iter().any(|metadata| subscription::wants(metadata, topic)))
    }

    fn wait(
        &self,
        group: GroupName,
        waits: Waits,
        begin: impl FnOnce(&mut Machine, Timestamp, Ticket, &mut Vec<Effect>),
    ) -> Waiting<'_> {
        let ticket = {
            let mut state = self.inner.state.lock();
            state.tickets += 1;
            let ticket = Ticket(state.tickets);
            state.waiting.insert(ticket, waits);
            ticket
        };
        self.inner.step(|machine, now, out| begin(machine, now, ticket, out));
        Waiting { inner: &self.inner, group, ticket }
    }
}

/// What members of consumer groups say that their group is for.
pub(crate) const CONSUMERS: &str = "consumer";

/// The members of a group are no consumers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotConsumers;

/// A call that waits, until this is dropped.
struct Waiting<'a> {
    inner: &'a Inner,
    group: GroupName,
    ticket: Ticket,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.inner.state.lock().waiting.remove(&self.ticket).is_some() {
            self.inner.step(|machine, now, out| {
                machine.abandon(now, &self.group, self.ticket, out);
            });
        }
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        let passed = self.began.elapsed().as_millis();
        Timestamp::from_millis_saturating(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    fn step<T>(&self, step: impl FnOnce(&mut Machine, Timestamp, &mut Vec<Effect>) -> T) -> T {
        let mut out = Vec::new();
        let mut state = self.state.lock();
        let answer = step(&mut state.machine, self.now(), &mut out);
        for effect in out {
            state.tell(effect);
        }
        let due = state.machine.next_due();
        if due.is_some_and(|due| state.asleep_until.is_none_or(|until| due < until)) {
            self.sooner.notify_one();
        }
        answer
    }

    /// Rings the alarms, for ever.
    async fn ring(&self) {
        loop {
            let due = {
                let mut state = self.state.lock();
                state.asleep_until = state.machine.next_due();
                state.asleep_until
            };
            match due {
                None => self.sooner.notified().await,
                Some(due) => {
                    let at = self.began + Duration::from_millis(due.as_millis());
                    tokio::select! {
                        () = sleep_until(at) => {}
                        () = self.sooner.notified() => {}
                    }
                }
            }
            self.step(|machine, now, out| machine.advance(now, out));
        }
    }
}

impl State {
    fn tell(&mut self, effect: Effect) {
        // Whoever is gone by now takes its call back itself.
        let (Effect::Joined(ticket, _) | Effect::Synced(ticket, _)) = &effect;
        match (self.waiting.remove(ticket), effect) {
            (Some(Waits::Join(sender)), Effect::Joined(_, answer)) => {
                let _gone = sender.send(answer);
            }
            (Some(Waits::Sync(sender)), Effect::Synced(_, answer)) => {
                let _gone = sender.send(answer);
            }
            _ => {}
        }
    }
}

impl std::fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("Coordinator")
            .field("groups", &state.machine.list().len())
            .field("bytes", &state.machine.bytes())
            .field("waiting", &state.waiting.len())
            .finish_non_exhaustive()
    }
}
