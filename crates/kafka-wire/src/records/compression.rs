//! The four compressions, each way; what is read comes out in pieces and has a budget.
//!
//! Snappy comes in two forms: one block, and the framing of Java clients, whose blocks stand one
//! after another. Both are read.

use std::io::{self, Read, Write};

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::BatchError;

/// How records are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// What Java clients put in front of snappy blocks: a mark, then two versions of four bytes.
const SNAPPY_MARK: &[u8] = b"\x82SNAPPY\0";
const SNAPPY_VERSION_BYTES: usize = 8;
/// A snappy block grows less than this many times: three bytes stand for at most 64.
const SNAPPY_GROWTH_MAX: usize = 22;
/// The least that memory grows by while something is decompressed.
const STEP_BYTES: usize = 16 << 10;

impl Compression {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub(super) const fn from_bits(bits: i16) -> Option<Self> {
        match bits {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    pub(super) const fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
        }
    }

    /// What `packed` stands for, if it has at most `budget` bytes.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] past the budget; [`BatchError::Compressed`] if it is not intact.
    pub fn unpack(self, packed: &[u8], budget: usize) -> Result<Vec<u8>, BatchError> {
        match self {
            Self::None if packed.len() > budget => Err(BatchError::TooLarge),
            Self::None => Ok(packed.to_vec()),
            Self::Gzip => drain(MultiGzDecoder::new(packed), packed.len(), budget),
            Self::Snappy => unpack_snappy(packed, budget),
            Self::Lz4 => drain(FrameDecoder::new(packed), packed.len(), budget),
            Self::Zstd => {
                let decoder = zstd::stream::read::Decoder::with_buffer(packed);
                drain(decoder.or(Err(BatchError::Compressed))?, packed.len(), budget)
            }
        }
    }

    /// The records, compressed.
    ///
    /// # Errors
    /// [`BatchError::TooLarge`] if there is more than this compression can take.
    pub fn pack(self, records: &[u8]) -> Result<Vec<u8>, BatchError> {
        let packed = match self {
            Self::None => Ok(records.to_vec()),
            Self::Gzip => pack_gzip(records),
            Self::Snappy => {
                snap::raw::Encoder::new().compress_vec(records).map_err(io::Error::other)
            }
            Self::Lz4 => pack_lz4(records),
            Self::Zstd => zstd::stream::encode_all(records, zstd::DEFAULT_COMPRESSION_LEVEL),
        };
        packed.or(Err(BatchError::TooLarge))
    }
}

/// Reads to the end, into memory that never outgrows the budget by more than a byte.
fn drain(mut from: impl Read, packed: usize, budget: usize) -> Result<Vec<u8>, BatchError> {
    // A byte more than the budget tells a full one from one that is too small.
    let most = budget.saturating_add(1);
    let mut out = Vec::with_capacity(packed.saturating_mul(2).max(STEP_BYTES).min(most));
    let mut filled = 0_usize;
    loop {
        if filled == out.len() {
            let grown = out.len().saturating_mul(2).max(out.capacity()).max(STEP_BYTES).min(most);
            out.reserve_exact(grown - out.len());
            out.resize(grown, 0);
        }
        let room = out.get_mut(filled..).unwrap_or_default();
        match from.read(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(BatchError::Compressed),
        }
        if filled > budget {
            return Err(BatchError::TooLarge);
        }
    }
    out.truncate(filled);
    Ok(out)
}

fn unpack_snappy(packed: &[u8], budget: usize) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    let Some(framed) = packed.strip_prefix(SNAPPY_MARK) else {
        unpack_snappy_block(packed, budget, &mut out)?;
        return Ok(out);
    };
    let mut rest = framed.get(SNAPPY_VERSION_BYTES..).ok_or(BatchError::Compressed)?;
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or(BatchError::Compressed)?;
        let length =
            usize::try_from(u32::from_be_bytes(*length)).or(Err(BatchError::Compressed))?;
        let (block, behind) = behind.split_at_checked(length).ok_or(BatchError::Compressed)?;
        unpack_snappy_block(block, budget, &mut out)?;
        rest = behind;
    }
    Ok(out)
}

/// Puts what a block stands for behind `out`, which stays within the budget.
fn unpack_snappy_block(block: &[u8], budget: usize, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let broken = BatchError::Compressed;
    let length = snap::raw::decompress_len(block).or(Err(broken))?;
    if length > budget.saturating_sub(out.len()) {
        return Err(BatchError::TooLarge);
    }
    if length > block.len().saturating_mul(SNAPPY_GROWTH_MAX) {
        return Err(broken);
    }
    let from = out.len();
    out.reserve_exact(length);
    out.resize(from + length, 0);
    let room = out.get_mut(from..).unwrap_or_default();
    let written = snap::raw::Decoder::new().decompress(block, room).or(Err(broken))?;
    if written == length { Ok(()) } else { Err(broken) }
}

fn pack_gzip(records: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(records)?;
    encoder.finish()
}

fn pack_lz4(records: &[u8]) -> io::Result<Vec<u8>> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(records)?;
    encoder.finish().map_err(io::Error::other)
}
