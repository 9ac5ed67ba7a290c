//! A timeline of slots keeps the contract of every timeline, over the store in memory.

mod timeline_support;
mod timeline_suite;

use punctual_cluster::store::memory::Memory;

#[test]
fn slots_in_memory_are_a_timeline() {
    timeline_suite::timeline(async || Memory::default());
}
