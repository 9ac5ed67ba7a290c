//! Which partition a key belongs to: murmur2 of the key, as Kafka's default partitioner does it.
//!
//! The choice is part of the contract: a key keeps its partition for as long as the number of
//! partitions stays the same, and a producer that hashes by itself arrives at the same one.

use crate::topic::Partition;

/// The partition of `key` among `partitions`, which is at least one.
#[must_use]
pub fn by_key(key: &[u8], partitions: u16) -> Partition {
    let positive = murmur2(key) & 0x7fff_ffff;
    spread(u64::from(positive), partitions)
}

/// The partition of the `turn`-th message without a key.
#[must_use]
pub fn by_turn(turn: u64, partitions: u16) -> Partition {
    spread(turn, partitions)
}

fn spread(number: u64, partitions: u16) -> Partition {
    let index = number % u64::from(partitions.max(1));
    let index = u16::try_from(index).expect("a remainder of a u16 fits a u16");
    Partition::new(index).expect("a topic has at most PARTITIONS_MAX partitions")
}

fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;

    let length = u32::try_from(data.len()).expect("admission caps keys at KEY_BYTES_MAX");
    let mut hash = SEED ^ length;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let word: [u8; 4] = word.try_into().expect("chunks of four");
        let mut k = u32::from_le_bytes(word).wrapping_mul(M);
        k ^= k >> R;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (index, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * index);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of Kafka's own test of its hash.
    #[test]
    fn hashes_as_kafka_does() {
        let cases: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (key, hash) in cases {
            assert_eq!(murmur2(key).cast_signed(), hash, "{key:?}");
        }
    }

    #[test]
    fn every_partition_gets_its_turn() {
        let seen: Vec<u16> = (0..6).map(|turn| by_turn(turn, 3).get()).collect();
        assert_eq!(seen, [0, 1, 2, 0, 1, 2]);
    }
}
