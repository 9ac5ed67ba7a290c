//! Record batches: Kafka's format, version 2, to bytes and back.
//!
//! Reading trusts nothing: every length is checked against what remains, counts never size an
//! allocation, a batch is looked into only after its checksum was found right, and what is
//! decompressed has a budget. Base offset and leader epoch lie outside the checksum, so a batch gets
//! its place in a log without being written anew.

mod header;
mod batch;
mod record;
mod cursor;
mod compression;
mod thin;
mod writer;
mod patch;
pub mod varint;

pub use batch::{Batch, Unpacked};
pub use compression::Compression;
pub use header::{Attributes, BatchHeader};
pub use patch::{place, restamp, set_max_timestamp};
pub use record::{Record, Records};
pub use writer::{BatchWriter, NewRecord, Opening};

/// Bytes before the first record of a batch.
pub const HEADER_BYTES: usize = 61;
/// Bytes of a batch that its length field does not count: the base offset and the field itself.
pub const LENGTH_OVERHEAD: usize = 12;
/// The most that the records of a batch may take once they are decompressed. Whoever takes batches in
/// refuses larger ones, so whatever was stored can be read.
pub const UNPACKED_BYTES_MAX: usize = 32 << 20;
/// The timestamp of what has none.
pub const NO_TIMESTAMP: i64 = -1;
/// The producer id of a producer without one.
pub const NO_PRODUCER: i64 = -1;

/// Where the bytes under the checksum start.
const CRC_FROM: usize = 21;
/// The version of the format that is read and written here.
const MAGIC: u8 = 2;

/// Why bytes are not a whole, intact batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the batch is cut off")]
    Torn,
    /// It is written in another version of the format.
    #[error("the batch has another format than version 2")]
    Magic,
    /// A field has a value that it can not have.
    #[error("the batch header is not valid")]
    Header,
    /// The checksum is wrong.
    #[error("the checksum does not match")]
    Checksum,
    /// The checksum is right, but a record does not parse.
    #[error("a record is not valid")]
    Record,
    /// What is compressed can not be read, or is compressed in a way nobody knows.
    #[error("the compressed records can not be read")]
    Compressed,
    /// There is more in it than may be.
    #[error("the records are too large")]
    TooLarge,
}
