//! How nouns are written as bytes: the same in every store, and stable for ever.
//!
//! What was written once must be readable by every later version; what is read may be damaged or
//! hostile, and never panics.

pub mod codec;
pub mod record;
pub mod topic;
pub mod group;
