//! Every limit of the product, in one place.
//!
//! A value that a configuration may change is a default here and names its hard bound beside it.
//! Nothing elsewhere hides a number that bounds what a caller may ask for.

use crate::time::Span;

/// Largest message body accepted, in bytes, unless configured otherwise.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// Largest body limit a configuration may ask for.
pub const BODY_BYTES_CEILING: usize = 16 << 20;
/// Largest sum of header names and values of one message, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 << 10;
/// Largest number of headers of one message.
pub const HEADERS_MAX: usize = 256;
/// Largest number of headers of a record that a producer puts into a log itself.
pub const RECORD_HEADERS_MAX: usize = 1024;
/// Headers that the broker itself may add to a message: how long it lives, how often it is tried, and
/// what it went through.
pub const OWN_HEADERS_MAX: usize = 12;
/// Largest message key, in bytes.
pub const KEY_BYTES_MAX: usize = 32 << 10;
/// Largest number of messages in one batch.
pub const BATCH_MESSAGES_MAX: usize = 10_000;
/// Largest batch, in bytes of keys, headers and bodies.
pub const BATCH_BYTES_MAX: usize = 32 << 20;
/// Longest topic or group name.
pub const NAME_CHARS_MAX: usize = 249;
/// Most partitions of one topic.
pub const PARTITIONS_MAX: u16 = 1024;
/// Partitions of a topic that says nothing about them.
pub const PARTITIONS_DEFAULT: u16 = 4;
/// Most topics of one broker; ids have room for sixteen million.
pub const TOPICS_MAX: usize = 100_000;
/// Longest delay accepted unless configured otherwise.
pub const DELAY_MAX: Span = Span::from_days(40);
/// Longest delay a configuration may ask for.
pub const DELAY_CEILING: Span = Span::from_days(3653);
/// Most messages of one page of a listing.
pub const PAGE_MESSAGES_MAX: usize = 1000;
/// Messages of one page when the caller names no number.
pub const PAGE_MESSAGES_DEFAULT: usize = 100;
/// Most groups of one broker.
pub const GROUPS_MAX: usize = 20_000;
/// Most groups of one topic.
pub const GROUPS_PER_TOPIC_MAX: usize = 1000;
/// Most messages of one receive.
pub const RECEIVE_MESSAGES_MAX: usize = 1000;
/// Messages of one receive when the caller names no number.
pub const RECEIVE_MESSAGES_DEFAULT: usize = 10;
/// Longest wait of one receive.
pub const RECEIVE_WAIT_MAX: Span = Span::from_secs(60);
/// Shortest lease.
pub const LEASE_MIN: Span = Span::from_secs(1);
/// Longest lease, counted from when it is asked for or extended.
pub const LEASE_MAX: Span = Span::from_secs(12 * 3600);
/// Lease of a group that says nothing about it.
pub const LEASE_DEFAULT: Span = Span::from_secs(60);
/// Most receipts of one ack, nack or extend.
pub const RECEIPTS_MAX: usize = 10_000;
/// Messages of one group that may be open at once: with consumers, waiting for another attempt in
/// order, or held back behind one of those.
pub const OPEN_MESSAGES_MAX: usize = 256 << 10;
/// Most attempts a group may ask for.
pub const ATTEMPTS_MAX: u16 = 1000;
/// Most rungs of a retry ladder.
pub const LADDER_RUNGS_MAX: usize = 100;
/// Longest text of an error that is kept with a failed message, in bytes.
pub const ERROR_BYTES_MAX: usize = 1024;
/// Longest text that is kept beside a committed offset.
pub const COMMIT_TEXT_BYTES_MAX: usize = 4096;
/// The waits between attempts of a group that says nothing about them.
pub const RETRY_LADDER_DEFAULT: [Span; 16] = [
    Span::from_secs(10),
    Span::from_secs(30),
    Span::from_secs(60),
    Span::from_secs(2 * 60),
    Span::from_secs(3 * 60),
    Span::from_secs(4 * 60),
    Span::from_secs(5 * 60),
    Span::from_secs(6 * 60),
    Span::from_secs(7 * 60),
    Span::from_secs(8 * 60),
    Span::from_secs(9 * 60),
    Span::from_secs(10 * 60),
    Span::from_secs(20 * 60),
    Span::from_secs(30 * 60),
    Span::from_secs(3600),
    Span::from_secs(2 * 3600),
];
/// How long dead letters are kept unless their topic says otherwise.
pub const DEAD_RETENTION_DEFAULT: Span = Span::from_days(30);
/// Longest own id of a message, in bytes.
pub const OWN_ID_BYTES_MAX: usize = 256;
/// How long an own id, and what became of a message, is known at least after its end.
pub const REMEMBERED: Span = Span::from_days(1);
/// Shortest interval of a series.
pub const REPEAT_EVERY_MIN: Span = Span::from_secs(1);
/// Most checks of a transaction.
pub const CHECKS_MAX: u16 = 1000;
/// Shortest time between two checks of a transaction.
pub const CHECK_INTERVAL_MIN: Span = Span::from_secs(1);
/// How long a transaction waits for somebody who can be asked.
pub const CHECK_LISTENER_WAIT: Span = Span::from_secs(12 * 3600);
/// Largest cap on the messages of a topic that fire in a second.
pub const RATE_CAP_MAX: u32 = 1_000_000;
/// Longest jitter of a topic.
pub const JITTER_MAX: Span = Span::from_days(1);
/// Deepest nesting of arrays and objects in a JSON request.
pub const JSON_DEPTH_MAX: usize = 64;

const _: () = assert!(
    BODY_BYTES_MAX + HEADER_BYTES_MAX + KEY_BYTES_MAX <= BATCH_BYTES_MAX,
    "the largest single message must fit a batch"
);
const _: () = assert!(
    BODY_BYTES_CEILING + HEADER_BYTES_MAX + KEY_BYTES_MAX <= BATCH_BYTES_MAX,
    "the largest configurable message must fit a batch"
);
const _: () =
    assert!(DELAY_MAX.as_millis() <= DELAY_CEILING.as_millis(), "a default is within its bound");
