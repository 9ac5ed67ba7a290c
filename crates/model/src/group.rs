//! Consumer groups: their names, numbers and settings, and what is stored of their progress.
//!
//! A group consumes its topic, and a *retry topic* of its own to which failed messages come back;
//! what it gives up goes to its *dead-letter topic*. Each partition of these is a [`Source`], and
//! for each the group has a cursor and the set of messages it has settled ahead of the cursor.

use std::fmt;
use std::sync::Arc;

use crate::limits::{LEASE_DEFAULT, RETRY_LADDER_DEFAULT};
use crate::message::Sequence;
use crate::time::{Span, Timestamp};
use crate::topic::{NameError, Partition, TopicId, TopicName};

/// A legal group name; the rule is that of topics.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(TopicName);

impl GroupName {
    /// The name `text`, if it is a legal one.
    ///
    /// # Errors
    /// [`NameError`] for anything that is not a legal name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        TopicName::new(text).map(Self)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name of the topic that the dead letters of this group go to.
    ///
    /// # Errors
    /// [`NameError`] when that would be too long.
    pub fn dead_topic(&self, topic: &TopicName) -> Result<TopicName, NameError> {
        TopicName::new(&format!("{topic}.{self}.dead"))
    }

    /// The name of the topic through which failed messages come back to this group.
    ///
    /// # Errors
    /// [`NameError`] when that would be too long.
    pub fn retry_topic(&self, topic: &TopicName) -> Result<TopicName, NameError> {
        TopicName::new(&format!("{topic}.{self}.retry"))
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

/// The number of a group, given once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// A group as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: GroupId,
    /// The topic it consumes.
    pub topic: TopicId,
    /// Its name, unique in the topic.
    pub name: GroupName,
    /// The topic through which failed messages come back; one partition.
    pub retry: TopicId,
    /// The topic its dead letters go to; one partition.
    pub dead: TopicId,
    /// Its settings.
    pub settings: GroupSettings,
}

/// What can be set for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Whether a message waits until the one before it with the same key is settled.
    pub ordered: bool,
    /// How long to wait before each further attempt.
    pub retry: RetryPolicy,
    /// After this many failed attempts a message is a dead letter; `None` takes the policy's own.
    pub attempts_max: Option<u16>,
    /// How long a message is with a consumer that names no time.
    pub lease: Span,
    /// Whether nothing is handed out for now.
    pub paused: bool,
    /// Where messages are pushed to, if they are.
    pub push: Option<Push>,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            ordered: false,
            retry: RetryPolicy::default(),
            attempts_max: None,
            lease: LEASE_DEFAULT,
            paused: false,
            push: None,
        }
    }
}

impl GroupSettings {
    /// The number of attempts after which a message is a dead letter.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        self.attempts_max.unwrap_or_else(|| self.retry.attempts())
    }
}

/// How long to wait before each further attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryPolicy {
    /// One wait after each failure, in turn; the last one again if more attempts are allowed.
    Ladder(Arc<[Span]>),
    /// Waits that grow by a factor.
    Exponential(Exponential),
}

/// Waits that grow by a factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// The wait after the first failure.
    pub first: Span,
    /// No wait is longer.
    pub max: Span,
    /// Each wait in percent of the one before: 200 doubles.
    pub factor_percent: u32,
    /// Up to this much of a wait is taken off at random, so that failures spread; 0 to 100.
    pub jitter_percent: u8,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::Ladder(RETRY_LADDER_DEFAULT.into())
    }
}

impl RetryPolicy {
    /// How many attempts it is made for: the first, and one after each rung.
    #[must_use]
    pub fn attempts(&self) -> u16 {
        let rungs = match self {
            Self::Ladder(rungs) => rungs.len(),
            Self::Exponential(_) => RETRY_LADDER_DEFAULT.len(),
        };
        u16::try_from(rungs + 1).unwrap_or(u16::MAX)
    }
}

/// An HTTP endpoint that messages of a group are pushed to.
#[derive(Clone, PartialEq, Eq)]
pub struct Push {
    /// `http` or `https` address.
    pub url: Arc<str>,
    /// The key each request is signed with.
    pub secret: Option<Arc<str>>,
    /// Requests under way at once.
    pub concurrency: u16,
    /// How long one request may take in all.
    pub timeout: Span,
}

impl fmt::Debug for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the secret; nor the address, which may carry one.
        f.debug_struct("Push").field("concurrency", &self.concurrency).finish_non_exhaustive()
    }
}

/// Where a group begins when it is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With the oldest message still there.
    #[default]
    Earliest,
    /// With what is delivered from now on.
    Latest,
}

/// A partition that a group reads: of its topic, of its retry topic, or of its dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// The group that reads.
    pub group: GroupId,
    /// The topic that is read.
    pub topic: TopicId,
    /// The partition that is read.
    pub partition: Partition,
}

/// What is stored of a message that was tried and is not settled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Attempts that have failed.
    pub failed: u16,
    /// Not to be offered again before this.
    pub not_before: Timestamp,
    /// What went wrong the first time.
    pub first_error: Option<Arc<str>>,
    /// What went wrong the last time.
    pub last_error: Option<Arc<str>>,
}

/// One message of a source. The sequence is that of its record, so that a place in a log that a
/// loss of power cut off is never taken for that of another message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// Its offset in the source.
    pub offset: u64,
    /// The sequence of the record at that offset.
    pub sequence: Sequence,
}

/// A change of a group's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// The group is done with these messages: it will not be given them again.
    Settle(Source, Vec<Mark>),
    /// What is known of a message that was tried.
    Note(Source, Mark, Note),
    /// The group goes on at this offset and forgets what it settled or noted there.
    Seek(Source, u64, SeekBy),
    /// As a seek by a commit, with what the consumer wants to be told again. The offset to go on at
    /// lies in the log, or at its end; the committed one may be any.
    Commit(Source, u64, Committed),
    /// The group was never there.
    Forget(Source),
}

/// What a consumer that keeps its own place has committed, exactly as it said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// The offset of the message it wants next.
    pub offset: u64,
    /// What it wrote down beside it; at most
    /// [`COMMIT_TEXT_BYTES_MAX`](crate::limits::COMMIT_TEXT_BYTES_MAX).
    pub text: Arc<str>,
    /// The epoch of the leader that it read from, if it said so; below 2^31.
    pub leader_epoch: Option<u32>,
}

impl Committed {
    /// An offset, and nothing beside it.
    #[must_use]
    pub fn at(offset: u64) -> Self {
        Self { offset, ..Self::default() }
    }
}

/// Where a group goes on in a partition of its topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The partition.
    pub partition: Partition,
    /// Where, and what was written down beside it.
    pub committed: Committed,
    /// Who put it there.
    pub by: PlacedBy,
}

/// Who put a group where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlacedBy {
    /// A consumer that keeps its own place.
    Commit,
    /// Somebody who put it elsewhere.
    Reset,
    /// Those who settled its messages, or its start at the end of the log.
    Settle,
}

/// Who moved a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekBy {
    /// A consumer that keeps its own place and commits offsets. Such a group does not keep
    /// messages from the retention of their topic.
    Commit,
    /// Somebody who put the group elsewhere.
    Reset,
}

/// How far a group is in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The source.
    pub source: Source,
    /// Everything before this offset is settled.
    pub cursor: u64,
    /// Offset of the oldest message still there.
    pub start: u64,
    /// Offset the next message will get.
    pub end: u64,
    /// Messages from the cursor on that are settled already.
    pub settled_ahead: u64,
    /// Bytes of log from the cursor on, about.
    pub bytes: u64,
    /// When the oldest message that is not settled was delivered.
    pub oldest: Option<Timestamp>,
}

impl Standing {
    /// Messages that are not settled.
    #[must_use]
    pub const fn lag(&self) -> u64 {
        let from = if self.cursor > self.start { self.cursor } else { self.start };
        self.end.saturating_sub(from).saturating_sub(self.settled_ahead)
    }
}
