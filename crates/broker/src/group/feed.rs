//! A feed: one partition that a group reads, and how far it has been read in this process.

use std::collections::VecDeque;

/// The feed of the retry topic; partition `p` of the topic itself is feed `p + 1`.
pub(crate) const RETRY_FEED: u16 = 0;

/// How far a partition has been read.
#[derive(Debug)]
pub(crate) struct Feed {
    /// The next offset to read. It starts at the beginning: what is settled is left out anyway.
    pub(crate) head: u64,
    /// Counts what was heard of the partition, and up to where that was read to the end.
    news: u64,
    seen: u64,
    /// Offsets that were read and are ready to be given out.
    pub(crate) fresh: VecDeque<u64>,
    /// Whether it stands in the rota.
    pub(crate) in_rota: bool,
}

impl Feed {
    /// Nothing read yet.
    pub(crate) fn new() -> Self {
        Self { head: 0, news: 1, seen: 0, fresh: VecDeque::new(), in_rota: false }
    }

    /// Something was delivered to it.
    pub(crate) fn hear(&mut self) {
        self.news += 1;
    }

    /// Whether there may be more behind the head.
    pub(crate) fn is_unread(&self) -> bool {
        self.news != self.seen
    }

    /// What was heard up to now.
    pub(crate) fn news(&self) -> u64 {
        self.news
    }

    /// The end was reached after `news` was heard; what was heard since may lie behind it.
    pub(crate) fn reached_end(&mut self, news: u64) {
        self.seen = news;
    }

    /// Whether it is worth a turn.
    pub(crate) fn is_promising(&self) -> bool {
        !self.fresh.is_empty() || self.is_unread()
    }
}
