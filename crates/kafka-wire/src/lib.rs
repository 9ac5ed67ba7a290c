//! Kafka's wire protocol: bytes to types and back, safe on hostile input.
//!
//! Every length is checked against the bytes that remain before anything is allocated, what is
//! decompressed has a budget, and nothing here panics on bytes from outside. There is no I/O here.

pub mod api;
pub mod codec;
pub mod error;
pub mod frame;
pub mod message;
pub mod messages;
pub mod records;

pub use codec::{Piece, Reader, Writer};
pub use error::{ErrorCode, WireError};
pub use message::{Message, Records, Request};
