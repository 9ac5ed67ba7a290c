//! Reads a page, runs its commands in a shell, and compares what was printed.

#![allow(
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod page;
pub mod shape;
pub mod shell;
