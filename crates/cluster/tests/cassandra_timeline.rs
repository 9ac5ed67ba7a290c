//! A timeline of slots in a real Cassandra keeps the contract of every timeline.

mod cassandra_support;
mod timeline_suite;
mod timeline_support;

use cassandra_support::{Fresh, runtime, store};

/// The suite of timelines uses slots up to 14, and the last one.
const SLOTS: u16 = 20;

#[test]
fn a_timeline_in_cassandra_is_a_timeline() {
    let runtime = runtime();
    let Some(store) = runtime.block_on(store()) else { return };
    timeline_suite::timeline(async || Fresh::of(&store, SLOTS));
}
