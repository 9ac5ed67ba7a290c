//! A fingerprint of a whole prepare: by it a repeated one is known.
//!
//! It is stored with the own ids, so it must come out the same for ever.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Part of what is stored: they never change.
const KEYS: (u64, u64) = (0x7075_6e63_7475_616c, 0x7472_616e_7361_6374);

/// A hash of values, each with its length, so that no two lists of values run together.
pub(super) struct Print(SipHasher24);

impl Print {
    pub(super) fn new() -> Self {
        Self(SipHasher24::new_with_keys(KEYS.0, KEYS.1))
    }

    #[must_use]
    pub(super) fn bytes(self, bytes: &[u8]) -> Self {
        let mut print = self.number(bytes.len() as u64);
        print.0.write(bytes);
        print
    }

    #[must_use]
    pub(super) fn number(mut self, number: u64) -> Self {
        self.0.write(&number.to_le_bytes());
        self
    }

    pub(super) fn finish(self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_the_same_and_keeps_parts_apart() {
        let print = Print::new().bytes(b"orders").number(7).finish();
        assert_eq!(print, 4_135_544_420_911_670_635, "stored ones would not be known any more");
        let apart = Print::new().bytes(b"ab").bytes(b"c").finish();
        assert_ne!(apart, Print::new().bytes(b"a").bytes(b"bc").finish());
    }
}
