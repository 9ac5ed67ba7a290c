//! What members of a group ask and are told, in the words of the coordinator. No byte of the wire
//! is here, and no number of an error.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::{GroupName, Span};

/// A way to share partitions that a member knows, and what it has to say for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) name: Arc<str>,
    /// A copy of its own: a slice would keep the whole request in memory.
    pub(crate) metadata: Bytes,
}

impl Protocol {
    /// What it takes of memory, about.
    pub(crate) fn weight(&self) -> usize {
        self.name.len() + self.metadata.len()
    }
}

/// Somebody who wants to be a member, or to stay one.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) group: GroupName,
    /// The id it was given before; none at first.
    pub(crate) member: Option<Arc<str>>,
    /// The name it has given itself, if it wants to keep its place over a restart.
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    /// Without a sign of life for so long it is out.
    pub(crate) session: Span,
    /// So long it may take to join again when the group changes.
    pub(crate) rebalance: Span,
    pub(crate) protocol_type: Arc<str>,
    /// The best first.
    pub(crate) protocols: Vec<Protocol>,
    /// Whether it is to come back with the id it is told, before it counts.
    pub(crate) twice: bool,
    /// Whether it understands that there is nothing to share out.
    pub(crate) can_skip: bool,
    /// A number nobody can guess, for a new id.
    pub(crate) fresh: u128,
}

/// A member of the new generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) leader: Arc<str>,
    /// The leader has nothing to share out: what was given before stands.
    pub(crate) skip: bool,
    pub(crate) member: Arc<str>,
    /// Everybody, for the leader alone.
    pub(crate) members: Vec<Peer>,
}

/// A member as the leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) member: Arc<str>,
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) metadata: Bytes,
}

/// The answer to a join. With a refusal comes the id that the member is to use, if any.
pub(crate) type JoinAnswer = Result<Joined, (Refusal, Arc<str>)>;

/// Who somebody says that it is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) member: Arc<str>,
    pub(crate) instance: Option<Arc<str>>,
}

/// A member that asks for its share, and the leader that says what everybody's is.
#[derive(Clone, Debug)]
pub(crate) struct Syncing {
    pub(crate) group: GroupName,
    pub(crate) who: Identity,
    pub(crate) generation: i32,
    /// What the member believes was chosen, if it says so.
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol: Option<Arc<str>>,
    /// Of the leader only.
    pub(crate) shares: Vec<(Arc<str>, Bytes)>,
}

/// The share of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Synced {
    pub(crate) protocol_type: Option<Arc<str>>,
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) share: Bytes,
}

/// The answer to a sync.
pub(crate) type SyncAnswer = Result<Synced, Refusal>;

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Nobody of that id is in the group.
    UnknownMember,
    /// The group is past that generation, or never came to it.
    IllegalGeneration,
    /// The group is being formed anew: join again.
    Rebalancing,
    /// There is no way to share that everybody knows.
    InconsistentProtocol,
    /// The session is too short or too long.
    InvalidSession,
    /// Come back with this id.
    ComeBack,
    /// Somebody else has taken that instance's place since.
    Fenced,
    /// The group takes no more members.
    Full,
    /// There are too many groups, or they take too much memory: later perhaps.
    NotNow,
    /// More was said than may be kept.
    TooLarge,
}

/// Names one call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Ticket(pub(crate) u64);

/// What comes of a step: answers to calls that wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Joined(Ticket, JoinAnswer),
    Synced(Ticket, SyncAnswer),
}

/// Where a group is in its life. One that is nowhere is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nobody is in it.
    Empty,
    /// Members are joining.
    Preparing,
    /// Members are there, and the leader is to say who gets what.
    Completing,
    /// Everybody knows what to do.
    Stable,
}

impl Phase {
    /// Its name, as clients know it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Preparing => "PreparingRebalance",
            Self::Completing => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// A group as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupShown {
    pub(crate) phase: Phase,
    pub(crate) protocol_type: Arc<str>,
    /// None before the group is stable.
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) members: Vec<MemberShown>,
}

/// A member as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemberShown {
    pub(crate) member: Arc<str>,
    pub(crate) instance: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) metadata: Bytes,
    pub(crate) share: Bytes,
}
