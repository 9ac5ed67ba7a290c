//! How far a group is in one source: a cursor, and what is settled or noted ahead of it.
//!
//! Everything before the cursor is settled; nothing at the cursor is. Memory grows with what is
//! settled out of order, about one bit to two bytes a message, and with what was tried and failed.

use std::collections::BTreeMap;

use punctual_model::group::{Committed, Note, PlacedBy, SeekBy};
use punctual_model::{Sequence, Timestamp};
use roaring::RoaringTreemap;

use crate::codec::{self, Malformed};

const STREAMS: u8 = 1;
const PLACED: u8 = 2;
const STRAY_SETTLED: u8 = 0;
const STRAY_NOTED: u8 = 1;

/// How far a group is in one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    cursor: u64,
    settled: RoaringTreemap,
    notes: BTreeMap<u64, Note>,
    /// What is known of messages whose place in the log was lost with the power. They are appended
    /// again, at other offsets, and are known by their sequence until they are met there.
    strays: BTreeMap<Sequence, Stray>,
    /// Whether the cursor was last moved by a commit of offsets.
    streams: bool,
    /// What was said by whoever moved the cursor, unless something was settled since.
    placed: Option<Committed>,
}

/// What is known of a message without a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stray {
    Settled,
    Noted(Note),
}

impl Progress {
    /// Nothing settled; reading starts at `cursor`.
    pub(crate) fn starting_at(cursor: u64) -> Self {
        Self { cursor, ..Self::default() }
    }

    /// Everything before this is settled.
    pub(crate) const fn cursor(&self) -> u64 {
        self.cursor
    }

    /// How many messages ahead of the cursor are settled.
    pub(crate) fn settled_ahead(&self) -> u64 {
        self.settled.len()
    }

    /// Where the group goes on and who put it there; `None` where it never was.
    pub(crate) fn placed(&self) -> Option<(Committed, PlacedBy)> {
        let by = match &self.placed {
            _ if self.streams => PlacedBy::Commit,
            Some(_) => PlacedBy::Reset,
            None if self.cursor > 0 => PlacedBy::Settle,
            None => return None,
        };
        Some((self.placed.clone().unwrap_or_else(|| Committed::at(self.cursor)), by))
    }

    /// Whether the retention of the topic has to spare what is not settled.
    pub(crate) const fn holds(&self) -> bool {
        !self.streams
    }

    /// The first offset from `from` on that is not settled.
    pub(crate) fn next_unsettled(&self, from: u64) -> u64 {
        let mut offset = from.max(self.cursor);
        while self.settled.contains(offset) {
            offset += 1;
        }
        offset
    }

    /// Notes that the message at `offset` is done with.
    pub(crate) fn settle(&mut self, offset: u64) {
        self.notes.remove(&offset);
        if offset == self.cursor {
            self.cursor += 1;
            self.catch_up();
        } else if offset > self.cursor {
            self.settled.insert(offset);
        }
        self.streams = false;
        self.placed = None;
    }

    /// Notes that there is no message from `from` to before `to`, so that nobody waits for one.
    pub(crate) fn skip(&mut self, from: u64, to: u64) {
        let from = from.max(self.cursor);
        if from >= to {
            return;
        }
        if from == self.cursor {
            self.settled.remove_range(from..to);
            self.cursor = to;
            self.catch_up();
        } else {
            self.settled.insert_range(from..to);
        }
    }

    fn catch_up(&mut self) {
        while self.settled.remove(self.cursor) {
            self.cursor += 1;
        }
    }

    /// Keeps what is known of a message that was tried, unless it is settled.
    pub(crate) fn note(&mut self, offset: u64, note: Note) {
        if offset >= self.cursor && !self.settled.contains(offset) {
            self.notes.insert(offset, note);
        }
        self.streams = false;
    }

    /// Goes on at `offset` and forgets the rest.
    pub(crate) fn seek(&mut self, offset: u64, by: SeekBy) {
        self.place(offset, Committed::at(offset), by);
    }

    /// Goes on at `cursor`, because of a commit, and forgets the rest.
    pub(crate) fn commit(&mut self, cursor: u64, committed: Committed) {
        self.place(cursor, committed, SeekBy::Commit);
    }

    fn place(&mut self, cursor: u64, committed: Committed, by: SeekBy) {
        let (streams, placed) = (by == SeekBy::Commit, Some(committed));
        *self = Self { cursor, streams, placed, ..Self::default() };
    }

    /// The place of this message is known again.
    pub(crate) fn found(&mut self, sequence: Sequence) {
        self.strays.remove(&sequence);
    }

    /// Remembers a message whose place in the log is lost.
    pub(crate) fn lose(&mut self, sequence: Sequence, stray: Stray) {
        self.strays.insert(sequence, stray);
    }

    /// A message as it is met in the log: whether it is settled, and what was noted of it.
    pub(crate) fn meet(&mut self, offset: u64, sequence: Sequence) -> Met<'_> {
        if !self.strays.is_empty() {
            match self.strays.remove(&sequence) {
                Some(Stray::Settled) => self.settle(offset),
                Some(Stray::Noted(note)) => self.note(offset, note),
                None => {}
            }
        }
        if offset < self.cursor || self.settled.contains(offset) {
            Met::Settled
        } else {
            Met::Open(self.notes.get(&offset))
        }
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let streams = if self.streams { STREAMS } else { 0 };
        out.push(streams | if self.placed.is_some() { PLACED } else { 0 });
        out.extend_from_slice(&self.cursor.to_le_bytes());
        if let Some(committed) = &self.placed {
            encode_committed(out, committed);
        }
        codec::put_set(out, &self.settled)?;
        codec::put_varint(out, self.notes.len() as u64);
        for (offset, note) in &self.notes {
            out.extend_from_slice(&offset.to_le_bytes());
            encode_note(out, note);
        }
        codec::put_varint(out, self.strays.len() as u64);
        for (sequence, stray) in &self.strays {
            out.extend_from_slice(&sequence.get().to_le_bytes());
            match stray {
                Stray::Settled => out.push(STRAY_SETTLED),
                Stray::Noted(note) => {
                    out.push(STRAY_NOTED);
                    encode_note(out, note);
                }
            }
        }
        Ok(())
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Malformed`] for anything else.
    pub(crate) fn decode(rest: &mut &[u8]) -> Result<Self, Malformed> {
        let flags = codec::get_u8(rest)?;
        if flags & !(STREAMS | PLACED) != 0 {
            return Err(Malformed);
        }
        let cursor = codec::get_u64(rest)?;
        let placed = if flags & PLACED == 0 { None } else { Some(decode_committed(rest)?) };
        let settled = codec::get_set(rest)?;
        let mut notes = BTreeMap::new();
        for _ in 0..codec::get_length(rest)? {
            let offset = codec::get_u64(rest)?;
            notes.insert(offset, decode_note(rest)?);
        }
        let mut strays = BTreeMap::new();
        for _ in 0..codec::get_length(rest)? {
            let sequence = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
            let stray = match codec::get_u8(rest)? {
                STRAY_SETTLED => Stray::Settled,
                STRAY_NOTED => Stray::Noted(decode_note(rest)?),
                _ => return Err(Malformed),
            };
            strays.insert(sequence, stray);
        }
        let streams = flags & STREAMS != 0;
        Ok(Self { cursor, settled, notes, strays, streams, placed })
    }
}

/// What a group knows of a message that it meets in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Met<'a> {
    Settled,
    Open(Option<&'a Note>),
}

/// Appends the stored form of a note.
pub(crate) fn encode_note(out: &mut Vec<u8>, note: &Note) {
    out.extend_from_slice(&note.failed.to_le_bytes());
    out.extend_from_slice(&note.not_before.as_millis().to_le_bytes());
    for error in [&note.first_error, &note.last_error] {
        codec::put_optional_text(out, error.as_deref());
    }
}

/// Reads what [`encode_note`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_note(rest: &mut &[u8]) -> Result<Note, Malformed> {
    let failed = codec::get_u16(rest)?;
    let not_before = Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?;
    let first_error = codec::get_optional_text(rest)?.map(Into::into);
    let last_error = codec::get_optional_text(rest)?.map(Into::into);
    Ok(Note { failed, not_before, first_error, last_error })
}

/// Appends the stored form of what a consumer committed. An epoch is kept as one more, so that 0
/// is none.
pub(crate) fn encode_committed(out: &mut Vec<u8>, committed: &Committed) {
    out.extend_from_slice(&committed.offset.to_le_bytes());
    let epoch = committed.leader_epoch.map_or(0, |epoch| epoch.saturating_add(1));
    out.extend_from_slice(&epoch.to_le_bytes());
    codec::put_bytes(out, committed.text.as_bytes());
}

/// Reads what [`encode_committed`] wrote.
///
/// # Errors
/// [`Malformed`] for anything else.
pub(crate) fn decode_committed(rest: &mut &[u8]) -> Result<Committed, Malformed> {
    let offset = codec::get_u64(rest)?;
    let leader_epoch = codec::get_u32(rest)?.checked_sub(1);
    let text = codec::get_text(rest)?.into();
    Ok(Committed { offset, text, leader_epoch })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_cursor_stands_at_the_first_that_is_open(offsets in proptest::collection::vec(0u64..60, 0..80)) {
            let mut progress = Progress::default();
            let mut settled = BTreeSet::new();
            for offset in offsets {
                progress.settle(offset);
                settled.insert(offset);
                let first_open = (0..).find(|offset| !settled.contains(offset)).unwrap();
                prop_assert_eq!(progress.cursor(), first_open);
                prop_assert_eq!(progress.settled_ahead(), settled.range(first_open..).count() as u64);
                for offset in 0..64 {
                    let is_settled = progress.meet(offset, Sequence::default()) == Met::Settled;
                    prop_assert_eq!(is_settled, settled.contains(&offset));
                }
            }
        }

        #[test]
        fn progress_survives_its_stored_form(
            cursor in 0u64..100,
            settled in proptest::collection::vec(0u64..1000, 0..50),
            noted in proptest::collection::vec((0u64..1000, any::<u16>(), ".{0,8}"), 0..9),
            strays in proptest::collection::vec((0u64..1000, any::<bool>()), 0..9),
        ) {
            let mut progress = Progress::starting_at(cursor);
            for offset in settled {
                progress.settle(offset);
            }
            for (offset, failed, error) in noted {
                let last_error = Some(error.as_str().into());
                progress.note(offset, Note { failed, last_error, ..Note::default() });
            }
            for (sequence, is_settled) in strays {
                let stray = if is_settled { Stray::Settled } else { Stray::Noted(Note::default()) };
                progress.lose(Sequence::new(sequence).unwrap(), stray);
            }
            let mut bytes = Vec::new();
            progress.encode(&mut bytes).unwrap();
            let mut rest = bytes.as_slice();
            prop_assert_eq!(Progress::decode(&mut rest).unwrap(), progress);
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let _outcome = Progress::decode(&mut bytes.as_slice());
        }
    }

    #[test]
    fn ten_million_out_of_order_cost_little() {
        let mut progress = Progress::default();
        // Every other one, and never the first: nothing can be put together.
        for n in 0..10_000_000u64 {
            progress.settle(n * 2 + 1);
        }
        assert_eq!(progress.cursor(), 0);
        let mut bytes = Vec::new();
        progress.encode(&mut bytes).unwrap();
        assert!(bytes.len() < 4 << 20, "{} bytes", bytes.len());
        progress.skip(0, 1);
        assert_eq!(progress.cursor(), 2);
    }

    #[test]
    fn a_gap_is_passed_over() {
        let mut progress = Progress::default();
        progress.settle(5);
        progress.skip(0, 5);
        assert_eq!(progress.cursor(), 6);
        progress.skip(8, 10);
        progress.settle(6);
        progress.settle(7);
        assert_eq!(progress.cursor(), 10);
    }

    #[test]
    fn a_stray_is_known_again_where_it_is_met() {
        let mut progress = Progress::starting_at(3);
        let sequence = |n| Sequence::new(n).unwrap();
        progress.lose(sequence(70), Stray::Settled);
        assert_eq!(progress.meet(3, sequence(71)), Met::Open(None));
        assert_eq!(progress.meet(4, sequence(70)), Met::Settled);
        assert_eq!(progress.cursor(), 3);
        progress.settle(3);
        assert_eq!(progress.cursor(), 5);
    }
}
