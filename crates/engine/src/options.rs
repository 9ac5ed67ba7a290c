//! What can be set for the store. The defaults are the product's.

use std::time::Duration;

use punctual_model::Span;

use crate::log::LogOptions;

/// When an accepted change counts as safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// When it is on disk. Survives a loss of power.
    #[default]
    Fsync,
    /// When it is written; synced after at most this long. A loss of power costs that much.
    Interval(Duration),
    /// When it is written; synced when the operating system likes.
    Os,
}

/// Where due messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OutletKind {
    /// Into the logs of the store, which know what was delivered.
    #[default]
    Own,
    /// Somewhere else: what was delivered is written to the journal.
    Foreign,
}

/// Settings of the store.
#[derive(Clone, Debug)]
pub struct Options {
    /// When an accepted change counts as safe.
    pub durability: Durability,
    /// Bytes of messages in one memory table before it is written out as a run. While one is
    /// written the next one fills.
    pub table_bytes: usize,
    /// Bytes of messages of the near future held ready; at twice that, accepting waits.
    pub near_bytes: usize,
    /// Bytes of one journal file. The largest batch has to fit.
    pub journal_file_bytes: u64,
    /// Bytes kept free for deliveries and cancels on a full disk.
    pub reserve_bytes: u64,
    /// Bytes of one block of a run.
    pub block_bytes: usize,
    /// More runs than this are merged.
    pub runs_max: usize,
    /// How far past the asked time the near future is collected.
    pub horizon: Span,
    /// Time between two checkpoints while anything changes.
    pub checkpoint_interval: Duration,
    /// Where due messages go.
    pub outlet: OutletKind,
    /// Settings of the topic logs.
    pub log: LogOptions,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            durability: Durability::Fsync,
            table_bytes: 64 << 20,
            near_bytes: 32 << 20,
            journal_file_bytes: 64 << 20,
            reserve_bytes: 64 << 20,
            block_bytes: 16 << 10,
            runs_max: 256,
            horizon: Span::from_secs(5),
            checkpoint_interval: Duration::from_secs(10),
            outlet: OutletKind::Own,
            log: LogOptions::default(),
        }
    }
}

impl Options {
    /// The defaults, with `bytes` of memory for messages in all.
    #[must_use]
    pub fn with_memory(bytes: usize) -> Self {
        Self { table_bytes: bytes / 4, near_bytes: bytes / 8, ..Self::default() }
    }
}
