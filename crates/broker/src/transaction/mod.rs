//! Transactions: messages that nobody sees until their producer says that they count.
//!
//! *prepare* stores half messages together with an entry of the transaction itself, all or nothing.
//! *commit* arms the halves, *rollback* withdraws them, each in one durable change with the
//! transaction, so the first decision wins and is the same after a crash. While there is no decision
//! the transaction's own entry falls due again and again, and the broker *checks back* with the
//! producers.
//!
//! ```text
//!             ┌───────────── interval ─────────────┐
//!   prepared ─┴─► check is ready ─► handed out, counted ─► after the last one ─► unresolved
//!                      └──────── nobody took it for 12 h ────────────────────────►┘  │
//!   prepared ◄───────────────────────────── resume ─────────────────────────────────┘
//!   prepared, unresolved ─ commit ─► committed     ─ 24 h ─► forgotten
//!                        ─ rollback ─► rolled back ─ 24 h ─► forgotten
//! ```
//!
//! All that must survive stands on the timeline; memory only knows which checks are ready, and learns
//! that again at the start. A check is counted, durably, before it is handed to anybody.

mod record;
mod ready;
mod print;
mod desk;
mod accept;
mod prepare;
mod decide;
mod check;
mod keep;
mod list;
mod undecided;

use std::sync::Arc;

use punctual_model::ports::{OnConflict, StoreError};
use punctual_model::{
    CheckPolicy, Entry, GroupName, Key, Message, MessageId, Span, Timestamp, TopicName, limits,
};

pub use self::accept::{HalfRequest, Preparation};
pub use self::check::SomeChecks;
pub use self::desk::{Desk, DeskParts};
pub use self::undecided::Undecided;
use crate::schedule::ScheduleError;

/// Longest callback URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// Where a transaction is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionState {
    /// Nothing is decided; its producers will be asked.
    Prepared,
    /// Its messages count.
    Committed,
    /// Its messages never happened.
    RolledBack,
    /// Nothing is decided, and nobody is asked any more.
    Unresolved,
}

impl TransactionState {
    /// All states.
    pub const ALL: [Self; 4] =
        [Self::Prepared, Self::Committed, Self::RolledBack, Self::Unresolved];

    /// The word used for it everywhere.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Committed => "committed",
            Self::RolledBack => "rolled_back",
            Self::Unresolved => "unresolved",
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }

    /// Whether it was committed or rolled back.
    #[must_use]
    pub const fn is_decided(self) -> bool {
        matches!(self, Self::Committed | Self::RolledBack)
    }
}

/// A transaction whose messages are placed already.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Whose members are asked.
    pub producer_group: GroupName,
    /// The messages; at least one.
    pub halves: Vec<Half>,
    /// When they are asked; as the first topic that says so, if nothing is said here.
    pub check: Option<CheckPolicy>,
    /// Where they are asked, if not by a waiting call.
    pub url: Option<String>,
}

/// A message of a [`Draft`].
#[derive(Clone, Debug)]
pub struct Half {
    /// The message, due as if it were sent now.
    pub entry: Entry,
    /// Its delay from the commit on; without one the due time of the entry counts.
    pub delay: Option<Span>,
    /// What to do if its own id is taken.
    pub conflict: OnConflict,
}

/// From when on the delay of a half message counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DelayFrom {
    /// From the commit.
    #[default]
    Commit,
    /// From the prepare.
    Send,
}

/// An accepted transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Its id.
    pub id: MessageId,
    /// Prepared, unless this is a duplicate.
    pub state: TransactionState,
    /// Whether the very same was accepted before, and this is its answer again.
    pub duplicate: bool,
    /// The ids of its messages, in order.
    pub messages: Vec<MessageId>,
}

/// A transaction as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its id.
    pub id: MessageId,
    /// Whose members are asked.
    pub producer_group: GroupName,
    /// Where it is in its life.
    pub state: TransactionState,
    /// When it was prepared.
    pub created: Timestamp,
    /// When it was decided.
    pub decided: Option<Timestamp>,
    /// How many checks were handed to somebody since it was prepared, or resumed.
    pub checks_sent: u16,
    /// When its producers are asked.
    pub policy: CheckPolicy,
    /// Where they are asked, if not by a waiting call.
    pub url: Option<Arc<str>>,
    /// When the next check is due, or has been since, if there is to be one.
    pub next_check: Option<Timestamp>,
    /// Its messages.
    pub messages: Vec<HalfRef>,
}

/// Which message belongs to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfRef {
    /// Its topic; `None` when that was deleted.
    pub topic: Option<TopicName>,
    /// Its id.
    pub id: MessageId,
}

/// Which transactions to list.
#[derive(Clone, Debug, Default)]
pub struct TransactionQuery {
    /// Only in this state.
    pub state: Option<TransactionState>,
    /// Only of this producer group.
    pub producer_group: Option<GroupName>,
    /// Only past this key: where the page before ended.
    pub after: Option<Key>,
    /// At most this many.
    pub limit: usize,
}

/// One page of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransactionPage {
    /// Whatever changes soonest comes first. May be fewer than asked for although more follow.
    pub transactions: Vec<Transaction>,
    /// Where the next page starts; `None` when nothing follows.
    pub next: Option<Key>,
}

/// The question what became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The transaction.
    pub transaction: MessageId,
    /// The number of this check, counted from 1.
    pub attempt: u16,
    /// Its messages, as they were sent; those of deleted topics are left out.
    pub messages: Vec<HalfMessage>,
}

/// A message of a transaction that is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfMessage {
    /// Its topic.
    pub topic: TopicName,
    /// Its id.
    pub id: MessageId,
    /// The name its sender gave it.
    pub own_id: Option<Arc<str>>,
    /// What was sent.
    pub message: Message,
}

/// A check that is to be sent to a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Callback {
    /// Where to.
    pub url: Arc<str>,
    /// Whose.
    pub producer_group: GroupName,
    /// The question.
    pub check: Check,
}

/// What came back from a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallbackAnswer {
    /// The messages count.
    Committed,
    /// They never happened.
    RolledBack,
    /// Nobody knows yet, or nothing came back.
    Unknown,
}

/// Why a decision was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideError {
    /// No such transaction is known.
    #[error("no such transaction")]
    NotFound,
    /// The opposite was decided before.
    #[error("the transaction is {} already", .0.word())]
    AlreadyDecided(TransactionState),
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Why a transaction was not accepted. Nothing of it was stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrepareError {
    /// The message at `index` is refused as it would be outside of a transaction.
    #[error("message {index}: {error}")]
    Refused {
        /// The place of the message.
        index: usize,
        /// Why.
        error: ScheduleError,
    },
    /// Another message has the own id of the message at `index`.
    #[error("message {index}: another message has this id")]
    OwnIdTaken {
        /// The place of the message.
        index: usize,
        /// The other message; `None` when it is one of the same transaction.
        id: Option<MessageId>,
    },
    /// The check policy asks for something that is not possible.
    #[error(transparent)]
    Check(#[from] InvalidCheck),
    /// The URL is too long.
    #[error("the url is longer than {URL_BYTES_MAX} bytes")]
    UrlTooLong,
    /// The store refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What can be wrong with a check policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheck {
    /// The first check is too late.
    #[error("the first check is later than {}", limits::DELAY_MAX)]
    FirstTooLate,
    /// The interval is too short or too long.
    #[error(
        "the interval of checks is from {} to {}",
        limits::CHECK_INTERVAL_MIN,
        limits::DELAY_MAX
    )]
    Interval,
    /// There are no checks, or too many.
    #[error("the number of checks is from 1 to {}", limits::CHECKS_MAX)]
    Max,
}

/// Whether a transaction may have such a policy.
///
/// # Errors
/// What is wrong with it.
pub fn valid_check(policy: CheckPolicy) -> Result<CheckPolicy, InvalidCheck> {
    if policy.first > limits::DELAY_MAX {
        return Err(InvalidCheck::FirstTooLate);
    }
    if !(limits::CHECK_INTERVAL_MIN..=limits::DELAY_MAX).contains(&policy.interval) {
        return Err(InvalidCheck::Interval);
    }
    if !(1..=limits::CHECKS_MAX).contains(&policy.max) {
        return Err(InvalidCheck::Max);
    }
    Ok(policy)
}
