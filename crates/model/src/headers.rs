//! Names of headers that the broker itself puts on messages when they go out.

/// The header that carries the message id.
pub const ID_HEADER: &str = "punctual-id";
/// The header that carries the sender's own id of the message.
pub const OWN_ID_HEADER: &str = "punctual-own-id";
/// The header that carries the id of the series a message belongs to.
pub const SERIES_HEADER: &str = "punctual-series";
/// The header that carries the due time.
pub const DUE_HEADER: &str = "punctual-due";
/// The header of an entry whose value is null; it never comes into a log.
pub const NULL_HEADER: &str = "punctual-null";
