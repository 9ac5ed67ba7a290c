//! Consumer groups: who holds which message, and what becomes of it.
//!
//! A group reads its topic, and the retry topic through which failed messages come back to it. What
//! it is done with is durable and kept behind [`Groups`](punctual_model::ports::Groups); who holds
//! a message at the moment is kept here, in memory, and forgotten by a restart: then it is offered
//! again.
//!
//! *take* leases messages, *ack* settles them, *nack* sends them round again or to the dead
//! letters, *extend* and *release* change a lease. Whatever touches the disk goes the same way: the
//! message is marked as being settled, the change is made durable, and only then does it move on.
//! So a lease never runs out under an ack that has begun, and a receipt that ran out changes
//! nothing.

mod receipt;
mod nonce;
mod open;
mod feed;
mod queue;
mod waiters;
mod alarms;
pub mod history;
pub mod retry;
mod running;
mod read;
mod settle;
mod progress;
mod consumer;
mod dead;
mod jobs;
mod overflow;
mod consumers;

use punctual_model::{Message, MessageId, Partition, Span, Timestamp};

pub use self::consumer::Consumer;
pub(crate) use self::consumers::ConsumerParts;
pub use self::consumers::{Consumers, GroupLag};
pub use self::dead::{DeadDay, DeadFilter, DeadLetter, DeadPage, DeadQuery, DeadSummary};
pub use self::history::{History, Reason};
pub use self::jobs::{
    Drain, Edit, JobError, JobId, JobIdError, JobKind, JobReport, JobState, MoveResult, Moved,
    Redrive,
};
pub(crate) use self::overflow::NotAdmitted;
pub use self::progress::{GroupStanding, ResetTo};
pub use self::receipt::{Receipt, ReceiptError};
pub use self::waiters::Available;
pub(crate) use self::waiters::Waiters;

/// A message in the hands of a consumer. What it says of the message is what was so when it was
/// first delivered, however often it has gone round since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leased {
    /// What to ack it with.
    pub receipt: Receipt,
    /// Its id.
    pub id: MessageId,
    /// Its partition.
    pub partition: Partition,
    /// Its offset in the partition.
    pub offset: u64,
    /// What was sent.
    pub message: Message,
    /// When it was due.
    pub due: Timestamp,
    /// When it was delivered.
    pub delivered_at: Timestamp,
    /// The number of this attempt, counted from 1.
    pub attempt: u16,
}

/// How a consumer failed with a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// How long to wait for the next attempt; as the group's policy says if nothing is said here.
    pub delay: Option<Span>,
    /// Whether there is no use in another attempt.
    pub reject: bool,
    /// What went wrong.
    pub error: Option<String>,
}

/// What became of a message that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NackOutcome {
    /// It comes again.
    Requeued,
    /// It is a dead letter.
    Dead,
    /// The receipt is not held: run out, used before, or never given.
    NotHeld,
}

/// A message that failed with somebody who did not take it from the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedMessage {
    /// What was sent.
    pub message: Message,
    /// Its id, if it is known.
    pub id: Option<MessageId>,
    /// Its partition, if it is known; otherwise as its id says.
    pub partition: Option<Partition>,
    /// Its offset in the partition, if it is known.
    pub offset: Option<u64>,
    /// The number of the attempt that failed, counted from 1.
    pub attempt: u16,
    /// How long to wait for the next attempt; as the group's policy says if nothing is said here.
    pub delay: Option<Span>,
    /// What went wrong.
    pub error: Option<String>,
}

/// What became of a message that failed elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryOutcome {
    /// It comes again at this time.
    Requeued(Timestamp),
    /// It is a dead letter.
    Dead,
}

/// The header that says for how many milliseconds after its due time a message may be given out.
pub const TTL_HEADER: &str = "punctual-ttl";
/// The header that says how many attempts a message is worth.
pub const ATTEMPTS_HEADER: &str = "punctual-max-attempts";
