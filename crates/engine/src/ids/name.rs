//! What the table is asked for: 128 bits that stand for a text, a sequence or a place in a log.
//!
//! Texts come from outside, so their names are a cryptographic hash: nobody can choose texts that
//! share a name, or names that crowd one page or one place of a hash map. One bit keeps the names
//! of sequences apart from the others; that a text has the name of a place is as unlikely as that two
//! texts share one.

use std::hash::{BuildHasherDefault, Hash, Hasher};

use punctual_model::{Partition, Sequence, TopicId};
use sha2::{Digest, Sha256};

/// Set in the name of a sequence, clear in any other.
const MOVED: u64 = 1;

/// The name of an entry. Its bits look random, and no two things have the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Name {
    /// The name of the message that its sender calls `text`.
    #[must_use]
    pub fn own(topic: TopicId, text: &str) -> Self {
        let hash = Sha256::new().chain_update(topic.get().to_le_bytes()).chain_update(text);
        let digest: [u8; 32] = hash.finalize().into();
        let ([high, low, ..], _) = digest.as_chunks::<8>() else { return Self { high: 0, low: 0 } };
        Self { high: u64::from_le_bytes(*high) & !MOVED, low: u64::from_le_bytes(*low) }
    }

    /// The name of the message that was accepted as `sequence` and has been changed since.
    #[must_use]
    pub fn moved(sequence: Sequence) -> Self {
        let low = mix(sequence.get());
        Self { high: mix(!low) | MOVED, low }
    }

    /// The name of the message that was taken out of the log of a partition, at this offset.
    #[must_use]
    pub fn reserved(topic: TopicId, partition: Partition, offset: u64) -> Self {
        let log = (u64::from(topic.get()) << 16) | u64::from(partition.get());
        let low = mix(mix(!log) ^ offset);
        Self { high: mix(low ^ log) & !MOVED, low }
    }

    /// Whether it is the name of a sequence.
    #[must_use]
    pub const fn is_moved(self) -> bool {
        self.high & MOVED != 0
    }

    /// Its first 32 bits in the order of names.
    pub(crate) const fn prefix(self) -> u32 {
        let [.., a, b, c, d] = self.high.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.low);
    }
}

/// Builds [`NameHasher`]s.
pub(crate) type BuildNameHasher = BuildHasherDefault<NameHasher>;

/// A name is a hash already: its low half is taken as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameHasher(u64);

impl Hasher for NameHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = self.0.rotate_left(8) ^ value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Spreads the bits of a number; no two numbers give the same.
const fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn topic(number: u32) -> TopicId {
        TopicId::new(number).expect("24 bits")
    }

    #[test]
    fn names_tell_texts_topics_and_sequences_apart() {
        let mut seen = HashSet::new();
        for number in 0..200 {
            for text in ["", "a", "b", "aa", "\0"] {
                let name = Name::own(topic(number), text);
                assert!(!name.is_moved());
                assert!(seen.insert((name.high, name.low)));
            }
            for offset in 0..50 {
                for partition in [0, 1, 1023].map(|number| Partition::new(number).expect("valid")) {
                    let name = Name::reserved(topic(number), partition, offset);
                    assert!(!name.is_moved());
                    assert!(seen.insert((name.high, name.low)));
                }
            }
            for sequence in [u64::from(number), (1 << 55) + u64::from(number)] {
                let name = Name::moved(Sequence::new(sequence).expect("56 bits"));
                assert!(name.is_moved());
                assert!(seen.insert((name.high, name.low)));
            }
        }
    }

    #[test]
    fn a_name_never_changes_because_files_hold_it() {
        let name = Name::own(topic(7), "order-1");
        assert_eq!((name.high, name.low), (0x9a5e_8389_becc_774c, 0x6d67_7ad0_1e26_aa6d));
        let name = Name::moved(Sequence::new(7).expect("56 bits"));
        assert_eq!((name.high, name.low), (0xa9a9_6b69_9dc4_1761, 0x63cb_e1e4_5932_0dd7));
    }

    #[test]
    fn the_prefix_follows_the_order() {
        assert_eq!(Name { high: 0x0123_4567_89ab_cdef, low: 0 }.prefix(), 0x0123_4567);
    }
}
