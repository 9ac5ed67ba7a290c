//! Message ids that tell where the message is.
//!
//! An id is 20 bytes: due time (48 bits), sequence (56), topic (24), partition (16) and a checksum
//! (16), written as 32 characters of Crockford's base 32 in lower case. Ids of one store sort by
//! (due, sequence). Because the id says where to look, no index over all messages is kept; because
//! of the checksum, a mistyped id is never mistaken for another message.

use std::fmt;
use std::str::FromStr;

use crate::message::{Key, Sequence};
use crate::time::Timestamp;
use crate::topic::{Partition, TopicId};

/// Characters of an id in text.
pub const ID_CHARS: usize = 32;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The id the broker gave a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId {
    /// Due time and sequence at acceptance.
    pub key: Key,
    /// The topic it was sent to.
    pub topic: TopicId,
    /// The partition it was given.
    pub partition: Partition,
}

/// The text is not an id that this product gave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message id")]
pub struct IdError;

impl MessageId {
    /// The text form as bytes, for places where no allocation is wanted.
    #[must_use]
    pub fn encode(&self) -> [u8; ID_CHARS] {
        let due = self.key.due.as_millis() << 16;
        let sequence = self.key.sequence.get();
        let high = due | (sequence >> 40);
        let low = (sequence << 24) | u64::from(self.topic.get());
        let partition = self.partition.get();
        let tail = (u32::from(partition) << 16) | u32::from(checksum(high, low, partition));
        let mut text = [0; ID_CHARS];
        let wide = (u128::from(high) << 64) | u128::from(low);
        // 128 bits are 25 characters and three bits; the last seven characters take the rest.
        for (index, slot) in text.iter_mut().enumerate().take(25) {
            *slot = digit((wide >> (123 - 5 * index)) & 31);
        }
        let rest = ((wide & 7) << 32) | u128::from(tail);
        for (index, slot) in text.iter_mut().skip(25).enumerate() {
            *slot = digit((rest >> (30 - 5 * index)) & 31);
        }
        text
    }

    fn decode(text: &[u8]) -> Result<Self, IdError> {
        if text.len() != ID_CHARS {
            return Err(IdError);
        }
        let mut wide: u128 = 0;
        let mut rest: u64 = 0;
        for (index, &byte) in text.iter().enumerate() {
            let value = value(byte).ok_or(IdError)?;
            if index < 25 {
                wide = (wide << 5) | u128::from(value);
            } else {
                rest = (rest << 5) | u64::from(value);
            }
        }
        wide = (wide << 3) | u128::from(rest >> 32);
        let high = low_u64(wide >> 64);
        let low = low_u64(wide);
        let partition = low_u16(rest >> 16);
        if checksum(high, low, partition) != low_u16(rest) {
            return Err(IdError);
        }
        let sequence = ((high & 0xffff) << 40) | (low >> 24);
        let topic = u32::try_from(low & 0xff_ffff).expect("24 bits fit 32");
        Ok(Self {
            key: Key {
                due: Timestamp::from_millis(high >> 16).ok_or(IdError)?,
                sequence: Sequence::new(sequence).ok_or(IdError)?,
            },
            topic: TopicId::new(topic).ok_or(IdError)?,
            partition: Partition::new(partition).ok_or(IdError)?,
        })
    }
}

fn digit(value: u128) -> u8 {
    ALPHABET[usize::try_from(value).expect("five bits")]
}

fn value(byte: u8) -> Option<u8> {
    let index = ALPHABET.iter().position(|&letter| letter == byte)?;
    u8::try_from(index).ok()
}

fn low_u64(wide: u128) -> u64 {
    u64::try_from(wide & u128::from(u64::MAX)).expect("masked to 64 bits")
}

fn low_u16(wide: u64) -> u16 {
    u16::try_from(wide & 0xffff).expect("masked to 16 bits")
}

fn checksum(high: u64, low: u64, partition: u16) -> u16 {
    // A multiplicative mix is enough: it guards against typing errors, not against forgery.
    let mixed = (high ^ low.rotate_left(29) ^ u64::from(partition).rotate_left(47))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    low_u16(mixed >> 48)
}

impl FromStr for MessageId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        Self::decode(text.as_bytes())
    }
}

impl TryFrom<&[u8]> for MessageId {
    type Error = IdError;

    fn try_from(text: &[u8]) -> Result<Self, IdError> {
        Self::decode(text)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.encode();
        f.write_str(std::str::from_utf8(&text).expect("the alphabet is ASCII"))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_id() -> impl Strategy<Value = MessageId> {
        (
            0..=Timestamp::MAX.as_millis(),
            0..=Sequence::MAX.get(),
            0..=TopicId::MAX.get(),
            0..1024u16,
        )
            .prop_map(|(due, sequence, topic, partition)| MessageId {
                key: Key {
                    due: Timestamp::from_millis(due).unwrap(),
                    sequence: Sequence::new(sequence).unwrap(),
                },
                topic: TopicId::new(topic).unwrap(),
                partition: Partition::new(partition).unwrap(),
            })
    }

    proptest! {
        #[test]
        fn an_id_survives_its_text(id in any_id()) {
            prop_assert_eq!(id.to_string().parse::<MessageId>(), Ok(id));
        }

        #[test]
        fn text_sorts_as_keys_do(a in any_id(), b in any_id()) {
            prop_assume!(a.key != b.key);
            prop_assert_eq!(a.to_string() < b.to_string(), a.key < b.key);
        }

        #[test]
        fn one_wrong_character_is_noticed(id in any_id(), place in 0..ID_CHARS, other in 0..32usize) {
            let mut text = id.encode();
            prop_assume!(text[place] != ALPHABET[other]);
            text[place] = ALPHABET[other];
            // Sixteen bits of checksum: a miss is a one-in-65,536 event, so it must not repeat.
            if let Ok(decoded) = MessageId::try_from(text.as_slice()) {
                prop_assert_ne!(decoded, id);
            }
        }

        #[test]
        fn hostile_text_never_panics(text in ".{0,64}") {
            if let Ok(id) = text.parse::<MessageId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
