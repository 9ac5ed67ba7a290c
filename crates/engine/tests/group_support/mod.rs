//! What the tests of groups share: workloads as steps, and a world that knows what every group is
//! entitled to at every moment.
//!
//! The world knows only what a client knows: what it asked for and what it was told. Messages are
//! known by their ids, never by their offsets, since a loss of power may move them.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod examine;
pub mod runner;
pub mod steps;
pub mod world;

use punctual_engine::Options;

use crate::store_support;

/// Sizes so small that runs are written and merged within a few messages.
pub fn small() -> Options {
    Options { table_bytes: 700, runs_max: 2, ..store_support::small() }
}
