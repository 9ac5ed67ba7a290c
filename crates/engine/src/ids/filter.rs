//! Says of most names that a file does not hold them, without reading the file.
//!
//! One cache line per question: the high half of a name chooses a block of eight words, the low half
//! one bit in each word. A name that was added is always found; of others about one in a thousand
//! is. Blocks follow the order of names: adding names in order touches one block after the other,
//! and joining neighbours gives exactly the filter of half the size.

use crate::codec::{self, Malformed};
use crate::ids::name::Name;

/// Bytes of one block.
pub(crate) const BLOCK_BYTES: usize = 64;

const WORDS: usize = 8;
/// Names for which one block is made: sixteen bits for each.
const NAMES_PER_BLOCK: u64 = 32;
/// How often a filter made for too many names can be halved, as a power of two.
const FOLDS: u32 = 8;

/// One cache line.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default)]
struct Block([u64; WORDS]);

/// A name, made ready to ask many filters for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    name: Name,
    masks: [u64; WORDS],
}

impl Probe {
    /// The probe for a name.
    pub(crate) fn new(name: Name) -> Self {
        let mut bits = name.low;
        let masks = std::array::from_fn(|_| {
            let mask = 1 << (bits & 63);
            bits >>= 6;
            mask
        });
        Self { name, masks }
    }
}

/// The names of a file, roughly.
#[derive(Debug)]
pub(crate) struct Filter {
    blocks: Vec<Block>,
}

impl Filter {
    /// An empty one for up to `names` names.
    pub(crate) fn for_names(names: u64) -> Self {
        let blocks = names.div_ceil(NAMES_PER_BLOCK).max(1).next_multiple_of(1 << FOLDS);
        Self { blocks: vec![Block::default(); usize::try_from(blocks).unwrap_or(1)] }
    }

    /// Reads the blocks of a filter from whole blocks of bytes, adding to those read before.
    pub(crate) fn read_more(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        for block in blocks {
            let mut words = block.as_slice();
            let mut read = Block::default();
            for word in &mut read.0 {
                *word = codec::get_u64(&mut words)?;
            }
            self.blocks.push(read);
        }
        if rest.is_empty() { Ok(()) } else { Err(Malformed) }
    }

    /// One without blocks, to be read; there will be so many.
    pub(crate) fn with_room_for(blocks: usize) -> Self {
        Self { blocks: Vec::with_capacity(blocks) }
    }

    /// Adds a name.
    pub(crate) fn add(&mut self, name: Name) {
        let place = self.place(name);
        if let Some(block) = self.blocks.get_mut(place) {
            for (word, mask) in block.0.iter_mut().zip(Probe::new(name).masks) {
                *word |= mask;
            }
        }
    }

    /// Whether the name may have been added; `false` is certain.
    pub(crate) fn may_hold(&self, probe: &Probe) -> bool {
        let Some(block) = self.blocks.get(self.place(probe.name)) else { return false };
        let missing = block.0.iter().zip(&probe.masks).map(|(word, mask)| !word & mask);
        missing.fold(0, |all, one| all | one) == 0
    }

    /// Halves the filter for as long as it suits `names` names.
    pub(crate) fn shrink_to(&mut self, names: u64) {
        let wanted = usize::try_from(names.div_ceil(NAMES_PER_BLOCK)).unwrap_or(usize::MAX).max(1);
        while self.blocks.len() / 2 >= wanted && self.blocks.len().is_multiple_of(2) {
            let (pairs, _) = self.blocks.as_chunks::<2>();
            self.blocks = pairs.iter().map(|[one, other]| join(one, other)).collect();
        }
    }

    /// How many blocks there are.
    pub(crate) const fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// The bytes of each block.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = [u8; BLOCK_BYTES]> {
        self.blocks.iter().map(|block| {
            let mut bytes = [0; BLOCK_BYTES];
            for (place, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&block.0) {
                *place = word.to_le_bytes();
            }
            bytes
        })
    }

    fn place(&self, name: Name) -> usize {
        let (_, place) = name.high.carrying_mul(self.blocks.len() as u64, 0);
        usize::try_from(place).unwrap_or(usize::MAX)
    }
}

fn join(one: &Block, other: &Block) -> Block {
    let mut words = other.0;
    for (word, more) in words.iter_mut().zip(one.0) {
        *word |= more;
    }
    Block(words)
}

#[cfg(test)]
mod tests {
    use punctual_model::Sequence;

    use super::*;

    fn name(number: u64) -> Name {
        Name::moved(Sequence::new(number).expect("56 bits"))
    }

    fn false_hits(filter: &Filter, from: u64) -> usize {
        (from..from + 100_000).filter(|&number| filter.may_hold(&Probe::new(name(number)))).count()
    }

    #[test]
    fn what_was_added_is_found_and_little_else() {
        let mut filter = Filter::for_names(100_000);
        (0..100_000).for_each(|number| filter.add(name(number)));
        assert!((0..100_000).all(|number| filter.may_hold(&Probe::new(name(number)))));
        let hits = false_hits(&filter, 100_000);
        assert!(hits <= 200, "{hits} of 100,000 is more than 0.2 %");
    }

    #[test]
    fn a_filter_made_too_large_shrinks_and_stays_as_good() {
        let mut filter = Filter::for_names(1_000_000);
        (0..50_000).for_each(|number| filter.add(name(number)));
        filter.shrink_to(50_000);
        assert!(filter.blocks() <= 2 * 50_000 / 32);
        assert!((0..50_000).all(|number| filter.may_hold(&Probe::new(name(number)))));
        assert!(false_hits(&filter, 50_000) <= 200);
    }

    #[test]
    fn a_filter_survives_as_bytes() {
        let mut filter = Filter::for_names(1000);
        (0..1000).for_each(|number| filter.add(name(number)));
        let mut copy = Filter::with_room_for(filter.blocks());
        for block in filter.bytes() {
            copy.read_more(&block).expect("whole blocks");
        }
        assert!(filter.bytes().eq(copy.bytes()));
        assert_eq!(copy.read_more(&[0; 63]), Err(Malformed));
    }

    #[test]
    fn no_blocks_hold_nothing() {
        assert!(!Filter::with_room_for(0).may_hold(&Probe::new(name(1))));
    }
}
