//! Own ids for messages that have none, so that sending one again makes no second message.
//!
//! What must hold: no two messages of any two clients get the same id. A client draws 128 random
//! bits and counts on from there. No id has the form of the broker's, which has no hyphen.

use std::sync::atomic::{AtomicU64, Ordering};

/// What an id begins with.
const PREFIX: &str = "c-";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// Characters of six bits that hold 128.
const CHARS: usize = 22;

/// Gives ids.
#[derive(Debug)]
pub(crate) struct Names {
    base: u128,
    count: AtomicU64,
}

impl Names {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self { base: u128::from_le_bytes(bytes), count: AtomicU64::new(0) })
    }

    /// An id that was never given before.
    pub(crate) fn next(&self) -> String {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        text(self.base.wrapping_add(u128::from(number)))
    }
}

fn text(mut bits: u128) -> String {
    let mut text = String::with_capacity(PREFIX.len() + CHARS);
    text.push_str(PREFIX);
    for _ in 0..CHARS {
        let digit = usize::try_from(bits & 63).expect("six bits");
        text.push(char::from(ALPHABET[digit]));
        bits >>= 6;
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_differ_within_a_client_and_between_clients() {
        let (one, other) = (Names::new().unwrap(), Names::new().unwrap());
        let ids: HashSet<String> = (0..10_000).flat_map(|_| [one.next(), other.next()]).collect();
        assert_eq!(ids.len(), 20_000);
    }

    #[test]
    fn an_id_never_looks_like_one_of_the_broker() {
        let id = Names::new().unwrap().next();
        assert!(id.starts_with(PREFIX) && id.len() == 24, "{id}");
    }

    #[test]
    fn all_bits_are_in_the_text() {
        let ids: HashSet<String> = (0..128).map(|bit| text(1 << bit)).collect();
        assert_eq!(ids.len(), 128);
    }
}
