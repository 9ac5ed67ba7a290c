//! Numbers of variable length: seven bits to a byte, the lowest first; signed ones zig-zagged.

/// The longest number, in bytes.
pub const BYTES_MAX: usize = 10;

/// A signed number so that small ones, below zero too, have few bits.
#[must_use]
pub const fn zigzag(number: i64) -> u64 {
    (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned()
}

/// The signed number again.
#[must_use]
pub const fn unzigzag(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -(raw & 1).cast_signed()
}

/// Bytes that a number takes.
#[must_use]
pub const fn size(raw: u64) -> usize {
    let bits = 64 - (raw | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Writes a number.
pub fn put(out: &mut Vec<u8>, mut raw: u64) {
    while raw >= 0x80 {
        out.push(low_seven(raw) | 0x80);
        raw >>= 7;
    }
    out.push(low_seven(raw));
}

/// Bytes that a length takes, and what is as long as it says.
#[must_use]
pub const fn sized(length: usize) -> usize {
    size((length as u64) << 1) + length
}

/// Writes bytes behind their length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, (bytes.len() as u64) << 1);
    out.extend_from_slice(bytes);
}

/// The length of nothing at all, as the format writes it: minus one, zig-zagged.
pub const NULL: u64 = zigzag(-1);

fn low_seven(raw: u64) -> u8 {
    u8::try_from(raw & 0x7f).expect("masked to seven bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_that_are_written() {
        for bits in 0..64 {
            for number in [1_u64 << bits, (1 << bits) - 1, u64::MAX >> bits] {
                let mut out = Vec::new();
                put(&mut out, number);
                assert_eq!(out.len(), size(number), "{number}");
                assert!(out.len() <= BYTES_MAX);
            }
        }
    }

    #[test]
    fn zigzag_goes_both_ways() {
        for number in [0, -1, 1, i64::MAX, i64::MIN, 1 << 40, -(1 << 40)] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!([zigzag(0), zigzag(-1), zigzag(1), zigzag(-2)], [0, 1, 2, 3]);
    }
}
