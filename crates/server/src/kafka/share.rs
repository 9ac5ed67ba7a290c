//! Share groups: the queue-style groups of the broker, for Kafka's share consumers.
//!
//! A share group is on each of its topics the group of the same name there, the one that HTTP and
//! gRPC consumers receive from; they and share consumers compete for the same messages. To accept is
//! to ack, to release is to nack on the group's ladder, to reject is to make a dead letter, to renew
//! is to extend; the lock of a record is its lease, the delivery count is the attempt.
//!
//! What is kept here is who is a member (`members.rs`), what each member has open and holds
//! (`sessions.rs`), and that only in memory: after a restart members join again, and what they held
//! is offered again. Every member gets all partitions of the topics it subscribes to.
//!
//! What must hold: whatever a member holds goes back when it closes its session, falls silent, or loses
//! its connection.

mod members;
mod sessions;
mod heartbeat;
mod settle;
mod records;
mod gather;
mod fetch;
mod acknowledge;
mod describe;

use std::sync::Arc;

use parking_lot::Mutex;
use punctual_broker::group::{Consumers, Receipt};
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::ports::Topics;
use punctual_model::{GroupName, TopicId};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::members::Members;
use self::sessions::{Given, Sessions};
use crate::access::Permission;
use crate::kafka::call::Call;
use crate::kafka::coordinator::named;
use crate::tasks::Tasks;

pub(crate) use self::acknowledge::share_acknowledge;
pub(crate) use self::describe::share_group_describe;
pub(crate) use self::fetch::share_fetch;
pub(crate) use self::heartbeat::share_group_heartbeat;

/// The longest name that a member may have given itself, in bytes.
const MEMBER_BYTES_MAX: usize = 256;

/// A member, known by the name it has given itself; nobody else can speak for it, even one who has
/// heard the name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct MemberKey {
    group: GroupName,
    member: Arc<str>,
    /// Who it is, as the broker knows them.
    caller: Arc<str>,
}

impl MemberKey {
    /// The member that a request names, if the caller may consume with its group at all.
    fn of(call: &Call, group: &str, member: &str) -> Result<Self, ErrorCode> {
        let group = named(call, group, &[Permission::Consume])?;
        if member.is_empty() || member.len() > MEMBER_BYTES_MAX {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        Ok(Self { group, member: member.into(), caller: call.caller.name().into() })
    }

    #[cfg(test)]
    fn test(member: &str) -> Self {
        let group = GroupName::new("workers").expect("a legal name");
        Self { group, member: member.into(), caller: "app".into() }
    }
}

/// A handle of all share groups.
#[derive(Clone)]
pub(crate) struct Shares {
    inner: Arc<Inner>,
}

struct Inner {
    members: Mutex<Members>,
    sessions: Mutex<Sessions>,
    /// The first member has joined.
    joined: Notify,
    consumers: Consumers,
    topics: Arc<dyn Topics>,
}

impl Shares {
    /// Share groups without members, and the task that tells who has fallen silent.
    pub(crate) fn start(consumers: Consumers, topics: Arc<dyn Topics>, tasks: &Tasks) -> Self {
        let (members, sessions, joined) = Default::default();
        let inner = Arc::new(Inner { members, sessions, joined, consumers, topics });
        let (shares, stopping) = (Self { inner }, tasks.clone());
        let watching = shares.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = watching.watch() => {}
                () = stopping.stopped() => {}
            }
        });
        shares
    }

    /// Whether somebody shares that group.
    pub(crate) fn has_members(&self, group: &GroupName) -> bool {
        self.inner.members.lock().has_members(group)
    }

    /// Ends the membership of those who have fallen silent.
    async fn watch(&self) {
        loop {
            let next = self.inner.members.lock().next_end();
            match next {
                Some(next) => {
                    // Nobody's end comes nearer by what others do.
                    let _never = timeout_at(next, std::future::pending::<()>()).await;
                    let silent = self.inner.members.lock().take_silent(Instant::now());
                    silent.iter().for_each(|member| self.close(member));
                }
                None => self.inner.joined.notified().await,
            }
        }
    }

    /// Ends the session of a member, if it has one; what it holds goes back.
    fn close(&self, member: &MemberKey) {
        let given = self.inner.sessions.lock().close(member);
        self.give_back(given);
    }

    /// Offers messages again that somebody held; that is no failed attempt.
    fn give_back(&self, given: Given) {
        for ((group, topic), receipts) in given.0 {
            self.release(&group, topic, &receipts);
        }
    }

    fn release(&self, group: &GroupName, topic: TopicId, receipts: &[Receipt]) {
        let Some(topic) = self.inner.topics.by_id(topic) else { return };
        // With the group its messages are gone too; and one whose lease has run out is back already.
        if let Ok(consumer) = self.inner.consumers.find(&topic.name, group) {
            let _held = consumer.release(receipts);
        }
    }

    /// What a connection holds goes back when the connection ends.
    fn follow(&self, call: &Call) {
        let number = call.connection.number;
        if !self.inner.sessions.lock().follow(number) {
            return;
        }
        let (shares, over) = (self.clone(), call.connection.over.clone());
        call.shared.tasks.spawn(async move {
            over.cancelled().await;
            let given = shares.inner.sessions.lock().disconnected(number);
            shares.give_back(given);
        });
    }
}
