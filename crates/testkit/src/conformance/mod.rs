//! The contracts of the seams, executable.
//!
//! Every implementation of a seam runs its suite and passes it unchanged. A suite asks only for
//! what the doc comments in `model::ports` and `model::clock` promise; each case is a function
//! whose name is the promise, and starts from a fresh subject.

mod timeline;
mod changes;
mod outlet;
mod topics;
mod store;
mod groups;
mod coordinator;
mod clock;
mod trends;

use bytes::Bytes;
use punctual_model::limits::BODY_BYTES_MAX;
use punctual_model::{Header, Message, Partition, Span, Timestamp, TopicId};

pub use self::changes::{changes, lasting_changes};
pub use self::clock::clock;
pub use self::coordinator::{Company, coordinator};
pub use self::groups::{GroupStore, groups};
pub use self::outlet::outlet;
pub use self::store::store;
pub use self::timeline::timeline;
pub use self::topics::{catalogue, topics};
pub use self::trends::trends;

/// A fresh subject and two topics that exist for it, with [`Stage::PARTITIONS`] partitions each.
#[derive(Debug)]
pub struct Stage<T> {
    /// What is put to the test; it holds nothing yet.
    pub subject: T,
    /// Two topics that entries may go to.
    pub topics: [TopicId; 2],
}

impl<T> Stage<T> {
    /// Partitions of each topic of a stage.
    pub const PARTITIONS: u16 = 4;
}

/// The time at which every case starts: some moment in 2027.
const START: Timestamp = Timestamp::from_millis_saturating(1_800_000_000_000);

/// `millis` after the start.
fn after(millis: u64) -> Timestamp {
    START.saturating_add(Span::from_millis(millis))
}

fn partition(number: u16) -> Partition {
    Partition::new(number).expect("suites use small partition numbers")
}

/// A message with this body and nothing else.
fn message(body: &str) -> Message {
    Message { body: Bytes::copy_from_slice(body.as_bytes()), ..Message::default() }
}

/// Messages whose bytes are easily lost or changed on the way.
fn delicate_messages() -> Vec<Message> {
    let every_byte: Bytes = (0..=u8::MAX).collect();
    let header = |name: &str, value: &Bytes| Header { name: name.into(), value: value.clone() };
    vec![
        Message::default(),
        Message { key: Some(Bytes::new()), ..Message::default() },
        Message { key: Some(every_byte.clone()), ..message("a binary key") },
        Message {
            headers: vec![
                header("trace", &every_byte),
                header("trace", &Bytes::new()),
                header("", &Bytes::from_static(b"no name")),
                header("trace", &every_byte),
                header("größe", &Bytes::from_static(b"\0")),
            ],
            ..message("repeated header names")
        },
        Message { body: every_byte, ..Message::default() },
        Message { body: large_body(), ..Message::default() },
    ]
}

/// As long as a body may be, and different everywhere, so that a shifted copy is noticed.
fn large_body() -> Bytes {
    let words = u32::try_from(BODY_BYTES_MAX / 4).expect("a body is a few mebibytes");
    (0..words).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}
