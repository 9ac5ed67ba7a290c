//! What the tests of changes share: workloads as steps, and a world that knows of every message
//! where it stands, what it is called and what it knows of others.
//!
//! The world knows only what a client knows: what it asked for and what it was told.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod examine;
pub mod plan;
pub mod runner;
pub mod shown;
pub mod steps;
pub mod world;

use punctual_engine::Options;

use crate::store_support;

/// Sizes so small that runs are written and merged within a few messages.
pub fn small() -> Options {
    Options { table_bytes: 900, runs_max: 2, ..store_support::small() }
}
