//! The unsynced changes of the simulated disk, and what each does to the bytes of a file or to the
//! names of a directory.
//!
//! Applying all changes of a file or directory in order to what is durable gives what is visible.
//! Each change can also be applied without those before it, for a crash may have lost them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::content::Content;
use super::{Fate, SECTOR_BYTES};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u64);

pub(super) const ROOT: NodeId = NodeId(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Child {
    File(NodeId),
    Dir(NodeId),
}

impl Child {
    pub(super) fn node(self) -> NodeId {
        match self {
            Self::File(node) | Self::Dir(node) => node,
        }
    }
}

pub(super) type Names = Arc<BTreeMap<String, Child>>;

/// A change that no sync has made certain yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) node: NodeId,
    pub(super) path: Arc<str>,
    pub(super) change: Change,
    pub(super) given_up: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { offset: usize, bytes: Arc<[u8]> },
    SetLen(usize),
    Allocate(usize),
    Punch { offset: usize, end: usize },
    Link { name: String, child: Child },
    Unlink { name: String },
    Rename { from: String, to: String, child: Child },
}

impl Change {
    /// Sectors that can survive on their own; one for a change that is atomic.
    pub(super) fn sectors(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len().div_ceil(SECTOR_BYTES),
            _ => 1,
        }
    }

    pub(super) fn is_name(&self) -> bool {
        matches!(self, Self::Link { .. } | Self::Unlink { .. } | Self::Rename { .. })
    }

    pub(super) fn apply_names(&self, names: &mut BTreeMap<String, Child>) {
        match self {
            Self::Link { name, child } => drop(names.insert(name.clone(), *child)),
            Self::Unlink { name } => drop(names.remove(name)),
            Self::Rename { from, to, child } => {
                names.remove(from);
                names.insert(to.clone(), *child);
            }
            _ => {}
        }
    }

    pub(super) fn apply_bytes(&self, content: &mut Content, fate: &Fate) {
        match (self, fate) {
            (Self::Write { offset, bytes }, Fate::Torn { sectors, length }) => {
                if *length && content.len() < offset + bytes.len() {
                    content.set_len(offset + bytes.len());
                }
                let parts = bytes.chunks(SECTOR_BYTES).enumerate();
                for (at, part) in parts.filter(|(at, _)| sectors.get(*at) == Some(&true)) {
                    write_sectors(content, offset + at * SECTOR_BYTES, part);
                }
            }
            (Self::Write { offset, bytes }, _) => write_sectors(content, *offset, bytes),
            (Self::SetLen(len), _) => content.set_len(*len),
            (Self::Allocate(len), _) => content.allocate(*len),
            (Self::Punch { offset, end }, _) => content.punch(*offset..*end),
            _ => {}
        }
    }
}

/// Writes whole sectors. The last one may be cut short by the end that the file had; where the file
/// is longer after all, the rest of that sector is zero, as it was in memory.
fn write_sectors(content: &mut Content, offset: usize, bytes: &[u8]) {
    content.write(offset, bytes);
    let end = offset + bytes.len();
    let rest = end..end.next_multiple_of(SECTOR_BYTES).min(content.len());
    content.write(end, &vec![0; rest.len()]);
}
