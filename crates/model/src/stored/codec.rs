//! Small building blocks of every format of ours: little-endian numbers, varints, checked reads.
//!
//! Reading never panics and never trusts a length: whatever does not fit what is left answers
//! [`Malformed`].

use bytes::{Buf, Bytes};

/// The bytes do not have the expected shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed bytes")]
pub struct Malformed;

/// Appends a varint of seven bits a byte, low bits first.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a varint from the front.
///
/// # Errors
/// [`Malformed`] when it is cut short or longer than 64 bits.
pub fn get_varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(Malformed);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

/// Reads a varint that has to be a length or a count in memory.
///
/// # Errors
/// [`Malformed`] also when more is announced than bytes remain.
pub fn get_length(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    let length = usize::try_from(get_varint(bytes)?).map_err(|_e| Malformed)?;
    if length <= bytes.len() { Ok(length) } else { Err(Malformed) }
}

/// Takes `count` bytes from the front.
///
/// # Errors
/// [`Malformed`] when fewer remain.
pub fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], Malformed> {
    let (front, rest) = bytes.split_at_checked(count).ok_or(Malformed)?;
    *bytes = rest;
    Ok(front)
}

/// Takes a byte from the front.
///
/// # Errors
/// [`Malformed`] when none remains.
pub fn get_u8(bytes: &mut &[u8]) -> Result<u8, Malformed> {
    bytes.try_get_u8().map_err(|_e| Malformed)
}

/// Takes a little-endian number of two bytes.
///
/// # Errors
/// [`Malformed`] when fewer remain.
pub fn get_u16(bytes: &mut &[u8]) -> Result<u16, Malformed> {
    bytes.try_get_u16_le().map_err(|_e| Malformed)
}

/// Takes a little-endian number of four bytes.
///
/// # Errors
/// [`Malformed`] when fewer remain.
pub fn get_u32(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    bytes.try_get_u32_le().map_err(|_e| Malformed)
}

/// Takes a little-endian number of eight bytes.
///
/// # Errors
/// [`Malformed`] when fewer remain.
pub fn get_u64(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    bytes.try_get_u64_le().map_err(|_e| Malformed)
}

/// Takes text that was written with [`put_bytes`].
///
/// # Errors
/// [`Malformed`] when it is cut short or not UTF-8.
pub fn get_text<'a>(bytes: &mut &'a [u8]) -> Result<&'a str, Malformed> {
    let length = get_length(bytes)?;
    std::str::from_utf8(take(bytes, length)?).map_err(|_e| Malformed)
}

/// Appends text that may be missing: its length plus one, or zero.
pub fn put_optional_text(out: &mut Vec<u8>, text: Option<&str>) {
    put_varint(out, text.map_or(0, |text| text.len() as u64 + 1));
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
}

/// Takes what [`put_optional_text`] wrote.
///
/// # Errors
/// [`Malformed`] when it is cut short or not UTF-8.
pub fn get_optional_text<'a>(bytes: &mut &'a [u8]) -> Result<Option<&'a str>, Malformed> {
    let Some(length) = get_varint(bytes)?.checked_sub(1) else { return Ok(None) };
    let length = usize::try_from(length).map_err(|_e| Malformed)?;
    std::str::from_utf8(take(bytes, length)?).map(Some).map_err(|_e| Malformed)
}

/// The part of `whole` that `part`, one of its subslices, covers, without copying.
#[must_use]
pub fn share(whole: &Bytes, part: &[u8]) -> Bytes {
    whole.slice_ref(part)
}

fn low_byte(value: u64) -> u8 {
    u8::try_from(value & 0x7f).expect("seven bits")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_varint_survives(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut rest = out.as_slice();
            prop_assert_eq!(get_varint(&mut rest), Ok(value));
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn hostile_bytes_never_panic(bytes: Vec<u8>) {
            let mut rest = bytes.as_slice();
            while get_length(&mut rest).is_ok() {}
        }
    }
}
