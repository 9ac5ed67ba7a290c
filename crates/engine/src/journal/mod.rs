//! The journal: every accepted change, in order, durable before anybody is told.
//!
//! It is a chain of preallocated files that are used again once a checkpoint has passed them. A
//! position counts bytes over the whole chain and never repeats: file `n` covers the positions from
//! `n × file size` on. Changes are written in groups; one group is one write and one sync, starts
//! on a page of its own, and so can not harm an older group however it is torn.

pub mod change;
pub mod group;
pub mod reader;
pub mod writer;

use std::path::PathBuf;

/// The directory of the journal.
pub const DIR: &str = "journal";

/// A place in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position(pub u64);

/// The path of file `number`.
#[must_use]
pub fn path(number: u64) -> PathBuf {
    PathBuf::from(format!("{DIR}/{number:020}.journal"))
}

/// The number of the file called `name`, or `None` when it is not a journal file.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    name.strip_suffix(".journal")?.parse().ok()
}
