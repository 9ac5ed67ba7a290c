//! The primitive forms of Kafka's protocol, read from and written to bytes.
//!
//! What must hold: a [`Reader`] never reads past its end and never panics; a length or a count is
//! compared with the bytes that remain, and the memory it asks for with the reader's budget,
//! before anything is allocated. Byte strings are slices of the frame, so nothing is copied but
//! text. This file knows no message.

use bytes::{BufMut, Bytes, BytesMut};

use crate::WireError;

/// Memory that the arrays of a frame may take beyond [`ARRAY_BYTES_PER_FRAME_BYTE`], in bytes.
const ARRAY_BYTES_FLOOR: usize = 64 * 1024;

/// How many bytes of arrays one byte of a frame may turn into. An empty text is one byte on the
/// wire and 24 in memory; what real clients send stays far below this.
const ARRAY_BYTES_PER_FRAME_BYTE: usize = 16;

/// A frame, read from front to back.
#[derive(Debug)]
pub struct Reader {
    frame: Bytes,
    /// Where the next byte is read; never beyond `end`.
    at: usize,
    /// Where reading ends; never beyond the frame.
    end: usize,
    /// Bytes that arrays may still take in memory.
    budget: usize,
}

impl Reader {
    /// Reads `frame`, which is without its size prefix.
    pub fn new(frame: Bytes) -> Self {
        let end = frame.len();
        let budget = end.saturating_mul(ARRAY_BYTES_PER_FRAME_BYTE);
        Self { frame, at: 0, end, budget: budget.saturating_add(ARRAY_BYTES_FLOOR) }
    }

    /// The bytes not read yet.
    pub fn remaining(&self) -> usize {
        self.end - self.at
    }

    /// Refuses a frame that has bytes left.
    pub fn finish(&self) -> Result<(), WireError> {
        match self.remaining() {
            0 => Ok(()),
            left => Err(WireError::Trailing(left)),
        }
    }

    /// The next `length` bytes as a slice of the frame.
    pub fn bytes(&mut self, length: usize) -> Result<Bytes, WireError> {
        if length > self.remaining() {
            return Err(WireError::Short { wanted: length, left: self.remaining() });
        }
        let bytes = self.frame.slice(self.at..self.at + length);
        self.at += length;
        Ok(bytes)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let rest = self.frame.get(self.at..self.end).unwrap_or_default();
        let array =
            rest.first_chunk::<N>().ok_or(WireError::Short { wanted: N, left: rest.len() })?;
        self.at += N;
        Ok(*array)
    }

    /// A single byte.
    pub fn u8(&mut self) -> Result<u8, WireError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    /// A signed byte.
    pub fn i8(&mut self) -> Result<i8, WireError> {
        Ok(i8::from_be_bytes(self.array()?))
    }

    /// Two bytes, signed.
    pub fn i16(&mut self) -> Result<i16, WireError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// Four bytes, signed.
    pub fn i32(&mut self) -> Result<i32, WireError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self) -> Result<i64, WireError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// An unsigned number of seven bits a byte, at most 32 bits in five bytes.
    pub fn unsigned_varint(&mut self) -> Result<u32, WireError> {
        let mut value = 0_u32;
        for shift in (0..=28).step_by(7) {
            let byte = self.u8()?;
            let part = u32::from(byte & 0x7f);
            if shift == 28 && part > 0x0f {
                return Err(WireError::Varint);
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(WireError::Varint)
    }

    /// A length: four or two bytes with -1 for null, or in the compact form one more than the
    /// length with 0 for null.
    pub fn length(&mut self, form: LengthForm) -> Result<Option<usize>, WireError> {
        let length = match form {
            LengthForm::Compact => i64::from(self.unsigned_varint()?) - 1,
            LengthForm::Long => i64::from(self.i32()?),
            LengthForm::Short => i64::from(self.i16()?),
        };
        match length {
            -1 => Ok(None),
            _ => usize::try_from(length).map(Some).map_err(|_range| WireError::Negative(length)),
        }
    }

    /// The count of an array whose elements take `element` bytes in memory each and at least one
    /// on the wire. The memory is taken from the budget, so the caller may reserve it.
    pub fn count(&mut self, count: usize, element: usize) -> Result<usize, WireError> {
        if count > self.remaining() {
            return Err(WireError::Count { count, left: self.remaining() });
        }
        let memory = count.saturating_mul(element);
        self.budget = self.budget.checked_sub(memory).ok_or(WireError::Budget)?;
        Ok(count)
    }

    /// Text of `length` bytes.
    pub fn text(&mut self, length: usize) -> Result<String, WireError> {
        let rest = self.frame.get(self.at..self.end).unwrap_or_default();
        let text =
            rest.get(..length).ok_or(WireError::Short { wanted: length, left: rest.len() })?;
        let text = std::str::from_utf8(text).map_err(|_cause| WireError::Text)?.to_owned();
        self.at += length;
        Ok(text)
    }

    /// Reads with `read` what lies in the next `length` bytes, all of them.
    pub fn within<T>(
        &mut self,
        length: usize,
        read: impl FnOnce(&mut Self) -> Result<T, WireError>,
    ) -> Result<T, WireError> {
        if length > self.remaining() {
            return Err(WireError::Short { wanted: length, left: self.remaining() });
        }
        let end = std::mem::replace(&mut self.end, self.at + length);
        let value = read(self)?;
        self.finish()?;
        self.end = end;
        Ok(value)
    }

    /// Passes over `length` bytes.
    pub fn skip(&mut self, length: usize) -> Result<(), WireError> {
        if length > self.remaining() {
            return Err(WireError::Short { wanted: length, left: self.remaining() });
        }
        self.at += length;
        Ok(())
    }
}

/// How a length stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LengthForm {
    /// An unsigned varint, one more than the length.
    Compact,
    /// Four bytes.
    Long,
    /// Two bytes: text in versions that are not flexible.
    Short,
}

/// A part of what a [`Writer`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes to send as they are.
    Bytes(Bytes),
    /// So many bytes are sent here that the writer never saw.
    Gap(usize),
}

/// Bytes being written, with gaps for what is sent from elsewhere.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: BytesMut,
    /// Position in `bytes` and length of each gap, ascending.
    gaps: Vec<(usize, usize)>,
}

impl Writer {
    /// A writer that has room for `capacity` bytes at once.
    pub fn with_capacity(capacity: usize) -> Self {
        Self { bytes: BytesMut::with_capacity(capacity), gaps: Vec::new() }
    }

    /// Everything written so far, gaps included.
    pub fn total(&self) -> usize {
        self.bytes.len() + self.gaps.iter().map(|(_at, length)| length).sum::<usize>()
    }

    /// Leaves out `length` bytes, which the sender puts in here.
    pub fn gap(&mut self, length: usize) {
        if length > 0 {
            self.gaps.push((self.bytes.len(), length));
        }
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.bytes.put_slice(bytes);
    }

    /// A single byte.
    pub fn u8(&mut self, value: u8) {
        self.bytes.put_u8(value);
    }

    /// An unsigned number of seven bits a byte.
    pub fn unsigned_varint(&mut self, value: u32) {
        let mut rest = value;
        while rest > 0x7f {
            self.u8(rest.to_le_bytes()[0] | 0x80);
            rest >>= 7;
        }
        self.u8(rest.to_le_bytes()[0]);
    }

    /// A length or null, in the given form.
    pub fn length(&mut self, length: Option<usize>, form: LengthForm) -> Result<(), WireError> {
        let too_long = |_range| WireError::Long(length.unwrap_or_default());
        match (form, length) {
            (LengthForm::Compact, None) => self.unsigned_varint(0),
            (LengthForm::Compact, Some(length)) => {
                let length = i32::try_from(length).map_err(too_long)?;
                self.unsigned_varint(length.unsigned_abs() + 1);
            }
            (LengthForm::Long, None) => self.bytes(&(-1_i32).to_be_bytes()),
            (LengthForm::Long, Some(length)) => {
                self.bytes(&i32::try_from(length).map_err(too_long)?.to_be_bytes());
            }
            (LengthForm::Short, None) => self.bytes(&(-1_i16).to_be_bytes()),
            (LengthForm::Short, Some(length)) => {
                self.bytes(&i16::try_from(length).map_err(too_long)?.to_be_bytes());
            }
        }
        Ok(())
    }

    /// Appends what another writer wrote, gaps included.
    pub fn append(&mut self, other: Self) {
        let base = self.bytes.len();
        self.gaps.extend(other.gaps.into_iter().map(|(at, length)| (base + at, length)));
        self.bytes.unsplit(other.bytes);
    }

    /// What was written in one piece, when there is no gap.
    pub fn into_bytes(self) -> Result<Bytes, WireError> {
        if self.gaps.is_empty() { Ok(self.bytes.freeze()) } else { Err(WireError::Gap) }
    }

    /// What was written, cut at the gaps.
    pub fn pieces(self) -> Vec<Piece> {
        let mut rest = self.bytes.freeze();
        let mut pieces = Vec::with_capacity(self.gaps.len() * 2 + 1);
        let mut taken = 0;
        for (at, length) in self.gaps {
            if at > taken {
                pieces.push(Piece::Bytes(rest.split_to(at - taken)));
                taken = at;
            }
            pieces.push(Piece::Gap(length));
        }
        if !rest.is_empty() {
            pieces.push(Piece::Bytes(rest));
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &'static [u8]) -> Reader {
        Reader::new(Bytes::from_static(bytes))
    }

    #[test]
    fn a_varint_of_more_than_32_bits_is_refused() {
        let largest = reader(&[0xff, 0xff, 0xff, 0xff, 0x0f]).unsigned_varint();
        assert_eq!(largest, Ok(u32::MAX));
        let beyond = reader(&[0xff, 0xff, 0xff, 0xff, 0x10]).unsigned_varint();
        assert_eq!(beyond, Err(WireError::Varint));
        let endless = reader(&[0x80; 9]).unsigned_varint();
        assert_eq!(endless, Err(WireError::Varint));
        let cut = reader(&[0x80, 0x80]).unsigned_varint();
        assert_eq!(cut, Err(WireError::Short { wanted: 1, left: 0 }));
    }

    #[test]
    fn varints_come_back_as_written() {
        for value in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 268_435_455, u32::MAX] {
            let mut writer = Writer::default();
            writer.unsigned_varint(value);
            let Some(Piece::Bytes(bytes)) = writer.pieces().pop() else {
                panic!("a varint is never empty");
            };
            assert_eq!(Reader::new(bytes).unsigned_varint(), Ok(value));
        }
    }

    #[test]
    fn minus_one_is_null_and_less_is_refused() {
        assert_eq!(reader(&[0xff; 4]).length(LengthForm::Long), Ok(None));
        assert_eq!(reader(&[0xff; 2]).length(LengthForm::Short), Ok(None));
        assert_eq!(reader(&[0]).length(LengthForm::Compact), Ok(None));
        let below = reader(&[0xff, 0xff, 0xff, 0xfe]).length(LengthForm::Long);
        assert_eq!(below, Err(WireError::Negative(-2)));
    }

    #[test]
    fn a_count_is_held_against_the_bytes_left_and_the_budget() {
        let mut small = reader(&[0; 10]);
        assert_eq!(small.count(11, 1), Err(WireError::Count { count: 11, left: 10 }));
        assert_eq!(small.count(10, 1), Ok(10));
        assert_eq!(small.count(10, ARRAY_BYTES_FLOOR), Err(WireError::Budget));
        assert_eq!(small.count(10, usize::MAX), Err(WireError::Budget));
    }

    #[test]
    fn gaps_cut_the_pieces_where_they_were_left() {
        let mut writer = Writer::default();
        writer.gap(3);
        writer.bytes(b"ab");
        writer.gap(5);
        writer.gap(0);
        writer.gap(7);
        writer.bytes(b"c");
        assert_eq!(writer.total(), 18);
        let bytes = |text: &'static str| Piece::Bytes(Bytes::from_static(text.as_bytes()));
        let expected = [Piece::Gap(3), bytes("ab"), Piece::Gap(5), Piece::Gap(7), bytes("c")];
        assert_eq!(writer.pieces(), expected);
    }

    #[test]
    fn what_is_read_within_a_length_must_fill_it() {
        let mut exact = reader(&[0, 7, 9]);
        assert_eq!(exact.within(2, Reader::i16), Ok(7));
        assert_eq!(exact.u8(), Ok(9));
        let wide = reader(&[0, 7, 9]).within(3, Reader::i16);
        assert_eq!(wide, Err(WireError::Trailing(1)));
        let narrow = reader(&[0, 7, 9]).within(1, Reader::i16);
        assert_eq!(narrow, Err(WireError::Short { wanted: 2, left: 1 }));
    }
}
