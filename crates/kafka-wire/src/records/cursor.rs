//! Bytes of records that are not read yet; every step is checked against what remains.

use super::BatchError;
use super::varint::unzigzag;

/// Bytes not read yet. What does not fit is [`BatchError::Record`]: the checksum was right, so the
/// record was written wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], BatchError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BatchError::Record)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn byte(&mut self) -> Result<u8, BatchError> {
        let (first, rest) = self.0.split_first().ok_or(BatchError::Record)?;
        self.0 = rest;
        Ok(*first)
    }

    /// A signed number of 64 bits.
    pub(super) fn varlong(&mut self) -> Result<i64, BatchError> {
        self.raw(63, 1).map(unzigzag)
    }

    /// A signed number of 32 bits.
    pub(super) fn varint(&mut self) -> Result<i32, BatchError> {
        let number = unzigzag(self.raw(28, 0x0f)?);
        i32::try_from(number).ok().ok_or(BatchError::Record)
    }

    /// A number whose last byte stands at `top` and has at most the value `most`.
    fn raw(&mut self, top: u32, most: u64) -> Result<u64, BatchError> {
        // Nearly all numbers of a record are this short.
        if let Some((first, rest)) = self.0.split_first().filter(|(first, _)| **first < 0x80) {
            self.0 = rest;
            return Ok(u64::from(*first));
        }
        let mut raw: u64 = 0;
        for shift in (0..=top).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == top && bits > most {
                return Err(BatchError::Record);
            }
            raw |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(raw);
            }
        }
        Err(BatchError::Record)
    }

    /// A length or count.
    pub(super) fn unsigned(&mut self) -> Result<u32, BatchError> {
        u32::try_from(self.varint()?).ok().ok_or(BatchError::Record)
    }

    /// Bytes behind their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], BatchError> {
        let length = self.unsigned()?;
        self.take(usize::try_from(length).ok().ok_or(BatchError::Record)?)
    }

    /// Bytes behind their length, or nothing at all.
    pub(super) fn nullable(&mut self) -> Result<Option<&'a [u8]>, BatchError> {
        match self.varint()? {
            -1 => Ok(None),
            length => self.take(usize::try_from(length).ok().ok_or(BatchError::Record)?).map(Some),
        }
    }

    /// The name and value of a header.
    pub(super) fn header(&mut self) -> Result<(&'a [u8], Option<&'a [u8]>), BatchError> {
        Ok((self.bytes()?, self.nullable()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(bytes: &[u8]) -> Result<i32, BatchError> {
        Cursor(bytes).varint()
    }

    #[test]
    fn numbers_end_where_their_width_does() {
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MIN));
        assert_eq!(varint(&[0xfe, 0xff, 0xff, 0xff, 0x0f]), Ok(i32::MAX));
        assert_eq!(varint(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(BatchError::Record));
        assert_eq!(varint(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x00]), Err(BatchError::Record));
        assert_eq!(varint(&[0x80, 0x80]), Err(BatchError::Record));
        let mut longest = [0xff; 10];
        longest[9] = 1;
        assert_eq!(Cursor(&longest).varlong(), Ok(i64::MIN));
        longest[9] = 2;
        assert_eq!(Cursor(&longest).varlong(), Err(BatchError::Record));
    }
}
