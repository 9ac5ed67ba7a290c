//! Receipts: what a consumer shows to ack, nack or extend what it holds.
//!
//! In text 36 characters of `0-9a-v`. Every receipt has exactly one text, so a text that was
//! changed in any way is another receipt, or none.

use std::fmt;
use std::str::FromStr;

use punctual_model::GroupId;

use super::queue::Place;

/// Characters of a receipt in text: 22 bytes, five bits in each, the last one filled up.
const CHARS: usize = 36;
const BYTES: usize = 22;
const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Proof that a message was leased. Whether it is still held only the group can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    pub(super) group: GroupId,
    pub(super) place: Place,
    pub(super) nonce: u64,
}

/// The text is not a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a receipt")]
pub struct ReceiptError;

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = [0; BYTES];
        let (head, nonce) = bytes.split_at_mut(14);
        let (group, place) = head.split_at_mut(4);
        let (feed, offset) = place.split_at_mut(2);
        group.copy_from_slice(&self.group.0.to_be_bytes());
        feed.copy_from_slice(&self.place.feed.to_be_bytes());
        offset.copy_from_slice(&self.place.offset.to_be_bytes());
        nonce.copy_from_slice(&self.nonce.to_be_bytes());
        let mut text = String::with_capacity(CHARS);
        let (mut bits, mut held) = (0_u32, 0_u32);
        for byte in bytes {
            (bits, held) = (bits << 8 | u32::from(byte), held + 8);
            while held >= 5 {
                held -= 5;
                text.push(digit(bits >> held));
            }
            bits &= (1 << held) - 1;
        }
        text.push(digit(bits << (5 - held)));
        f.write_str(&text)
    }
}

fn digit(bits: u32) -> char {
    let index = usize::try_from(bits & 31).expect("five bits");
    char::from(ALPHABET[index])
}

impl FromStr for Receipt {
    type Err = ReceiptError;

    fn from_str(text: &str) -> Result<Self, ReceiptError> {
        if text.len() != CHARS {
            return Err(ReceiptError);
        }
        let mut bytes = [0; BYTES];
        let mut filled = bytes.iter_mut();
        let (mut bits, mut held) = (0_u32, 0_u32);
        for letter in text.bytes() {
            let value = ALPHABET.iter().position(|known| *known == letter).ok_or(ReceiptError)?;
            let value = u32::try_from(value).map_err(|_large| ReceiptError)?;
            (bits, held) = (bits << 5 | value, held + 5);
            if held >= 8 {
                held -= 8;
                *filled.next().ok_or(ReceiptError)? =
                    u8::try_from(bits >> held & 255).map_err(|_large| ReceiptError)?;
            }
            bits &= (1 << held) - 1;
        }
        if bits != 0 {
            return Err(ReceiptError);
        }
        let [a, b, c, d, e, f, rest @ ..] = bytes;
        let (offset, nonce) = rest.split_at(8);
        let wide = |bytes: &[u8]| bytes.iter().fold(0, |wide, byte| wide << 8 | u64::from(*byte));
        Ok(Self {
            group: GroupId(u32::from_be_bytes([a, b, c, d])),
            place: Place { feed: u16::from_be_bytes([e, f]), offset: wide(offset) },
            nonce: wide(nonce),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_receipt_is_read_back(group in any::<u32>(), feed in any::<u16>(),
                                  offset in any::<u64>(), nonce in any::<u64>()) {
            let receipt = Receipt { group: GroupId(group), place: Place { feed, offset }, nonce };
            let text = receipt.to_string();
            prop_assert_eq!(text.len(), CHARS);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()));
            prop_assert_eq!(text.parse(), Ok(receipt));
        }

        #[test]
        fn any_other_text_is_refused_or_another_receipt(text in "[0-9a-w]{34,38}") {
            if let Ok(receipt) = text.parse::<Receipt>() {
                prop_assert_eq!(receipt.to_string(), text);
            }
        }

        #[test]
        fn hostile_text_never_panics(text in ".{0,64}") {
            if let Ok(receipt) = text.parse::<Receipt>() {
                prop_assert_eq!(receipt.to_string(), text);
            }
        }
    }
}
