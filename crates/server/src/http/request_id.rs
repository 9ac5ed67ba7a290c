//! The name of a request: taken over from the caller or made, told in every answer and in the log.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};

/// The header by which the name travels.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest name that is taken over.
const BYTES_MAX: usize = 128;

/// The name of one request: visible ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// The caller's own name for it if that can be shown, or a new one.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        match headers.get(X_REQUEST_ID) {
            Some(given) if is_sane(given.as_bytes()) => Self(given.clone()),
            _ => Self(made()),
        }
    }

    /// What the answer carries.
    pub(crate) fn into_value(self) -> HeaderValue {
        self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Nothing that could break a line of a log, and no more than anybody needs.
fn is_sane(name: &[u8]) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic)
}

/// Sixteen hexadecimal digits. They come from a counter whose start and order are random, so that
/// two servers, or one that was restarted, hardly ever make the same.
fn made() -> HeaderValue {
    static COUNTED: AtomicU64 = AtomicU64::new(0);
    static START: OnceLock<u64> = OnceLock::new();
    let start = *START.get_or_init(|| {
        // Without random bytes the names still differ within this process.
        getrandom::u64().unwrap_or(0)
    });
    let number = COUNTED.fetch_add(1, Ordering::Relaxed);
    let mixed = mix(start.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let mut digits = [0; 16];
    for (place, digit) in (0..16).rev().zip(&mut digits) {
        let value = (mixed >> (place * 4)) & 15;
        *digit = b"0123456789abcdef"[usize::try_from(value).expect("four bits")];
    }
    HeaderValue::from_bytes(&digits).expect("digits are visible")
}

/// Mixes the bits so that names that follow each other look nothing alike; no two numbers become
/// the same.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(given: &[u8]) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(X_REQUEST_ID, HeaderValue::from_bytes(given).unwrap());
        RequestId::of(&headers).to_string()
    }

    #[test]
    fn a_sane_name_is_taken_over() {
        let longest = "x".repeat(BYTES_MAX);
        for name in ["a", "7f3-\"'<>{}", &longest] {
            assert_eq!(of(name.as_bytes()), name);
        }
    }

    #[test]
    fn another_one_is_made_instead_of_what_cannot_be_shown() {
        let too_long = "x".repeat(BYTES_MAX + 1);
        for name in [b"".as_slice(), b"a b", b"a\tb", "é".as_bytes(), too_long.as_bytes()] {
            let made = of(name);
            assert_eq!(made.len(), 16, "{name:?}");
            assert!(made.bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
    }

    #[test]
    fn no_two_made_names_are_the_same() {
        let names: HashSet<_> = (0..10_000).map(|_| RequestId(made()).to_string()).collect();
        assert_eq!(names.len(), 10_000);
    }
}
