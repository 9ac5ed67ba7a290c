//! The nouns of Punctual and the seams between its parts.
//!
//! Everything here is plain data and plain rules: no files, no sockets, no threads, no async
//! runtime. The crates above agree on these types and on nothing else.

pub mod limits;
pub mod time;
pub mod clock;
pub mod levels;
pub mod topic;
pub mod message;
pub mod group;
pub mod headers;
pub mod id;
pub mod lifecycle;
pub mod partitioner;
pub mod histogram;
pub mod ports;
pub mod catalogue;
pub mod stored;

pub use clock::{Clock, Reading, SystemClock, VirtualClock};
pub use group::{Group, GroupId, GroupName, GroupSettings, Source};
pub use histogram::{Buckets, Histogram};
pub use id::{IdError, MessageId};
pub use levels::DelayLevels;
pub use lifecycle::{Event, State};
pub use message::{
    Action, Basis, Changed, Entry, Extra, Header, Key, Lane, Link, Message, OwnId, Parked, Sequence,
};
pub use time::{Span, Timestamp};
pub use topic::{
    Backlog, CatchUp, CheckPolicy, Overflow, Partition, TopicId, TopicKind, TopicName,
    TopicSettings,
};
