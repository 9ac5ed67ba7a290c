//! Reading one run in key order, a block at a time.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use punctual_model::{Key, Sequence, Timestamp};

use crate::codec::{self, Malformed};
use crate::timeline::run::Run;

/// A place in a run; where the entry there lies is known already.
#[derive(Debug)]
pub struct Cursor {
    run: Arc<Run>,
    next_block: usize,
    block: Bytes,
    at: usize,
    due: Timestamp,
    /// The entry the cursor stands on, and where its record lies in the block; `None` at the end.
    head: Option<(Key, Range<usize>)>,
    damaged: Vec<usize>,
}

impl Cursor {
    /// A cursor on the first entry that is not before `from`.
    #[must_use]
    pub fn seek(run: Arc<Run>, from: Key) -> Self {
        let after = run.blocks.partition_point(|block| block.first <= from);
        let mut cursor = Self {
            run,
            next_block: after.saturating_sub(1),
            block: Bytes::new(),
            at: 0,
            due: Timestamp::MIN,
            head: None,
            damaged: Vec::new(),
        };
        cursor.advance();
        cursor.skip_to(from);
        cursor
    }

    /// Goes on to the first entry that is not before `key`.
    pub fn skip_to(&mut self, key: Key) {
        while self.key().is_some_and(|known| known < key) {
            self.advance();
        }
    }

    /// Whether `key`, which is not behind the cursor, would be in the block it reads.
    #[must_use]
    pub fn shares_block(&self, key: Key) -> bool {
        self.head.is_some() && self.run.blocks.get(self.next_block).is_none_or(|b| key < b.first)
    }

    /// The run it reads.
    #[must_use]
    pub const fn run(&self) -> &Arc<Run> {
        &self.run
    }

    /// The key it stands on.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        self.head.as_ref().map(|(key, _)| *key)
    }

    /// The entry it stands on.
    #[must_use]
    pub fn head(&self) -> Option<(Key, Bytes)> {
        self.head.as_ref().map(|(key, place)| (*key, self.block.slice(place.clone())))
    }

    /// Takes the entry it stands on and goes to the next.
    pub fn take(&mut self) -> Option<(Key, Bytes)> {
        let entry = self.head();
        self.advance();
        entry
    }

    /// Blocks that could not be read since the last call. Their entries were passed over: the run
    /// keeps them on disk, and the caller has to say so loudly.
    pub fn take_damaged(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.damaged)
    }

    fn advance(&mut self) {
        loop {
            if self.at < self.block.len() {
                match self.decode() {
                    Ok(entry) => {
                        self.head = Some(entry);
                        return;
                    }
                    Err(Malformed) => {
                        self.damaged.push(self.next_block.saturating_sub(1));
                        self.at = self.block.len();
                    }
                }
            }
            match self.run.block(self.next_block) {
                Ok(Some((block, due))) => {
                    self.block = block;
                    self.at = 0;
                    self.due = due;
                }
                Ok(None) => {
                    self.head = None;
                    self.block = Bytes::new();
                    return;
                }
                Err(_damaged) => self.damaged.push(self.next_block),
            }
            self.next_block += 1;
        }
    }

    fn decode(&mut self) -> Result<(Key, Range<usize>), Malformed> {
        let mut rest = self.block.get(self.at..).ok_or(Malformed)?;
        let step = codec::get_varint(&mut rest)?;
        let sequence = codec::get_varint(&mut rest)?;
        let length = codec::get_length(&mut rest)?;
        codec::take(&mut rest, length)?;
        let due = self.due.as_millis().checked_add(step).ok_or(Malformed)?;
        let due = Timestamp::from_millis(due).ok_or(Malformed)?;
        let sequence = sequence.checked_add(self.run.first_sequence).ok_or(Malformed)?;
        let sequence = Sequence::new(sequence).ok_or(Malformed)?;
        self.due = due;
        self.at = self.block.len() - rest.len();
        Ok((Key { due, sequence }, self.at - length..self.at))
    }
}
