//! Makes the body of a request large again, step by step.
//!
//! However little arrives, no step gives more than it was allowed to, about; so whoever asks for the
//! next step decides how much a bomb may cost. A window that is larger than [`WINDOW_LOG_MAX`] says
//! is refused before it is allocated.

use std::io::Write as _;

use bytes::{Buf as _, Bytes};
use flate2::write::MultiGzDecoder;
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::http::coding::Coding;

/// Largest window of zstd, as the power of two: 8 MiB, which every decoder is to have.
const WINDOW_LOG_MAX: u32 = 23;
/// What a decoder of zstd takes beside its window, about: its tables, and a block going in and out.
const ZSTD_BYTES: usize = 512 << 10;
/// Bytes given to gzip at once. Nothing grows by more than about a thousand times there.
const FEED_BYTES: usize = 256;
/// What a decoder of gzip takes, about.
const GZIP_BYTES: usize = 80 << 10;

/// What arrived was not made by the coding that it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body is not {}, or not all of it", .0.name())]
pub(crate) struct Malformed(Coding);

/// A body on its way back to what it was.
pub(crate) struct Decoder {
    kind: Kind,
    /// Whether anything has arrived: nothing at all is an empty body.
    began: bool,
    /// Whether more may come out without anything more going in.
    full: bool,
}

enum Kind {
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    Zstd { context: DCtx<'static>, frame_ended: bool },
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("coding", &self.coding()).finish_non_exhaustive()
    }
}

impl Decoder {
    pub(crate) fn new(coding: Coding) -> Result<Self, Malformed> {
        let kind = match coding {
            Coding::Gzip => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            Coding::Zstd => {
                let mut context = DCtx::try_create().ok_or(Malformed(coding))?;
                let bounded = context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX));
                bounded.map_err(|_code| Malformed(coding))?;
                Kind::Zstd { context, frame_ended: true }
            }
        };
        Ok(Self { kind, began: false, full: false })
    }

    const fn coding(&self) -> Coding {
        match self.kind {
            Kind::Gzip(_) => Coding::Gzip,
            Kind::Zstd { .. } => Coding::Zstd,
        }
    }

    /// Bytes that it takes itself.
    pub(crate) fn memory(&self) -> usize {
        match &self.kind {
            Kind::Gzip(_) => GZIP_BYTES,
            Kind::Zstd { context, .. } => context.sizeof(),
        }
    }

    /// Bytes that it will take itself for what is next, as far as that is known before it does.
    pub(crate) fn memory_for(&self, input: &[u8]) -> usize {
        let known = self.memory();
        match &self.kind {
            Kind::Zstd { frame_ended: true, .. } => {
                // One that is too large is refused, and takes nothing.
                let window = zstd_window(input).filter(|window| *window <= 1 << WINDOW_LOG_MAX);
                window.map_or(known, |window| known.max(window + ZSTD_BYTES))
            }
            Kind::Gzip(_) | Kind::Zstd { .. } => known,
        }
    }

    /// Whether more may come out without anything more going in.
    pub(crate) const fn is_full(&self) -> bool {
        self.full
    }

    /// Takes from the front of `input` until it is used up or about `bytes_max` have come out.
    pub(crate) fn step(
        &mut self,
        input: &mut Bytes,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Malformed> {
        let malformed = Malformed(self.coding());
        self.began |= !input.is_empty();
        match &mut self.kind {
            Kind::Gzip(decoder) => {
                while !input.is_empty() && decoder.get_ref().len() < bytes_max {
                    let feed = &input[..input.len().min(FEED_BYTES)];
                    match decoder.write(feed) {
                        Ok(0) | Err(_) => return Err(malformed),
                        Ok(taken) => input.advance(taken),
                    }
                }
                // What it has made and not passed on yet.
                decoder.flush().map_err(|_io| malformed)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Zstd { context, frame_ended } => {
                let mut output = Vec::with_capacity(bytes_max);
                loop {
                    let (before, had) = (output.len(), input.len());
                    let mut source = InBuffer::around(input);
                    let mut target = OutBuffer::around_pos(&mut output, before);
                    let hint = context.decompress_stream(&mut target, &mut source);
                    let hint = hint.map_err(|_code| malformed)?;
                    let taken = source.pos();
                    input.advance(taken);
                    if taken > 0 || output.len() > before {
                        *frame_ended = hint == 0;
                    }
                    self.full = output.len() >= bytes_max;
                    let stuck = taken == 0 && output.len() == before;
                    if self.full || input.is_empty() || (stuck && had > 0) {
                        break;
                    }
                }
                if !self.full && !input.is_empty() {
                    return Err(malformed);
                }
                Ok(output)
            }
        }
    }

    /// Nothing more arrives: what was left to come out.
    pub(crate) fn end(&mut self) -> Result<Vec<u8>, Malformed> {
        let malformed = Malformed(self.coding());
        if !self.began {
            return Ok(Vec::new());
        }
        match &mut self.kind {
            Kind::Gzip(decoder) => {
                decoder.try_finish().map_err(|_io| malformed)?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Zstd { frame_ended, .. } if *frame_ended => Ok(Vec::new()),
            Kind::Zstd { .. } => Err(malformed),
        }
    }
}

/// The window that the head of a frame of zstd asks for, if the head is there (RFC 8878, 3.1.1.1).
fn zstd_window(frame: &[u8]) -> Option<usize> {
    let head = frame.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
    let (&about, rest) = head.split_first()?;
    if about & 0x20 == 0 {
        let described = rest.first()?;
        let base = 1_usize.checked_shl(10 + u32::from(described >> 3))?;
        return Some(base + base / 8 * usize::from(described & 7));
    }
    // The whole frame at once: its window is its size, which stands behind the name of a dictionary.
    let size = rest.get([0, 1, 2, 4][usize::from(about & 3)]..)?;
    let number = |bytes: &[u8]| bytes.iter().rfold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let size = match about >> 6 {
        0 => number(size.get(..1)?),
        1 => number(size.get(..2)?) + 256,
        2 => number(size.get(..4)?),
        _ => number(size.get(..8)?),
    };
    usize::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(coding: Coding, plain: &[u8]) -> Vec<u8> {
        match coding {
            Coding::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(plain).unwrap();
                encoder.finish().unwrap()
            }
            Coding::Zstd => zstd::bulk::compress(plain, 3).unwrap(),
        }
    }

    /// What comes out when it goes in piece by piece, and the largest step.
    fn unpacked(
        coding: Coding,
        packed: &[u8],
        piece: usize,
        bytes_max: usize,
    ) -> Result<(Vec<u8>, usize), Malformed> {
        let mut decoder = Decoder::new(coding)?;
        let (mut plain, mut largest) = (Vec::new(), 0);
        for chunk in packed.chunks(piece) {
            let mut input = Bytes::copy_from_slice(chunk);
            while !input.is_empty() || decoder.is_full() {
                let step = decoder.step(&mut input, bytes_max)?;
                largest = largest.max(step.len());
                plain.extend_from_slice(&step);
            }
        }
        plain.extend(decoder.end()?);
        Ok((plain, largest))
    }

    #[test]
    fn what_was_packed_comes_out_whatever_the_pieces() {
        let plain: Vec<u8> = (0..100_000_u32).flat_map(|n| (n % 977).to_le_bytes()).collect();
        for coding in Coding::ALL {
            let packed = packed(coding, &plain);
            for piece in [1, 7, 4096, packed.len()] {
                let (out, _) = unpacked(coding, &packed, piece, 1000).unwrap();
                assert!(out == plain, "{coding:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn two_after_each_other_are_one_body() {
        for coding in Coding::ALL {
            let mut both = packed(coding, b"one ");
            both.extend(packed(coding, b"two"));
            assert_eq!(unpacked(coding, &both, 3, 100).unwrap().0, b"one two");
        }
    }

    #[test]
    fn g40_no_step_of_a_bomb_gives_much_more_than_it_may() {
        let plain = vec![0; 20 << 20];
        for coding in Coding::ALL {
            let bomb = packed(coding, &plain);
            let (out, largest) = unpacked(coding, &bomb, bomb.len(), 64 << 10).unwrap();
            assert_eq!(out.len(), plain.len());
            assert!(largest <= (64 << 10) + FEED_BYTES * 1100, "{coding:?}: {largest}");
        }
    }

    #[test]
    fn nothing_is_an_empty_body_and_half_a_body_is_none() {
        for coding in Coding::ALL {
            assert_eq!(unpacked(coding, b"", 1, 100).unwrap().0, b"");
            let packed = packed(coding, b"a body that is long enough to be cut");
            for cut in 1..packed.len() {
                assert!(unpacked(coding, &packed[..cut], 5, 100).is_err(), "{coding:?} {cut}");
            }
            let mut trailed = packed.clone();
            trailed.extend_from_slice(b"junk that is no header of anything");
            assert!(unpacked(coding, &trailed, 5, 100).is_err(), "{coding:?}");
            assert!(unpacked(coding, b"{\"body\":1}", 5, 100).is_err(), "{coding:?}");
        }
    }

    #[test]
    fn g40_what_a_frame_will_take_is_known_before_it_is_taken() {
        let plain: Vec<u8> = (0..3_u32 << 20).flat_map(|n| (n % 977).to_le_bytes()).collect();
        for (window, pledged) in [(17, false), (20, false), (23, false), (20, true), (23, true)] {
            let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(window).unwrap();
            if pledged {
                encoder.set_pledged_src_size(Some(plain.len() as u64)).unwrap();
            }
            encoder.write_all(&plain).unwrap();
            let frame = encoder.finish().unwrap();
            let mut decoder = Decoder::new(Coding::Zstd).unwrap();
            let told = decoder.memory_for(&frame);
            decoder.step(&mut Bytes::from(frame), 1000).unwrap();
            let taken = decoder.memory();
            assert!(
                taken <= told && told <= taken + (1 << 20),
                "{window} {pledged}: {told} {taken}"
            );
            assert_eq!(decoder.memory_for(b"rest of the frame"), taken);
        }
        let small = zstd::bulk::compress(b"a few bytes", 3).unwrap();
        let decoder = Decoder::new(Coding::Zstd).unwrap();
        assert!(decoder.memory_for(&small) < 1 << 20);
        for cut in 0..small.len() {
            assert!(decoder.memory_for(&small[..cut]) < 1 << 20, "{cut}");
        }
        assert_eq!(decoder.memory_for(&[0x28, 0xb5, 0x2f, 0xfd, 0, 0xff]), decoder.memory());
    }

    #[test]
    fn g40_a_window_that_is_too_large_is_refused() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(27).unwrap();
        encoder.write_all(&[7; 1000]).unwrap();
        let packed = encoder.finish().unwrap();
        let mut decoder = Decoder::new(Coding::Zstd).unwrap();
        let refused = decoder.step(&mut Bytes::from(packed), 4096);
        assert_eq!(refused, Err(Malformed(Coding::Zstd)));
        assert!(decoder.memory() < 1 << 20, "{}", decoder.memory());
    }
}
