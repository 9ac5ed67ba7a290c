//! Small building blocks of every format of ours: those of the model, and sets of numbers.

use std::io;

use roaring::RoaringTreemap;

pub use punctual_model::stored::codec::*;

/// Appends a set of numbers.
pub(crate) fn put_set(out: &mut Vec<u8>, set: &RoaringTreemap) -> io::Result<()> {
    out.extend_from_slice(&(set.serialized_size() as u64).to_le_bytes());
    set.serialize_into(out)
}

/// Takes a set of numbers.
///
/// # Errors
/// [`Malformed`] when it is not one.
pub(crate) fn get_set(bytes: &mut &[u8]) -> Result<RoaringTreemap, Malformed> {
    let length = usize::try_from(get_u64(bytes)?).map_err(|_e| Malformed)?;
    RoaringTreemap::deserialize_from(take(bytes, length)?).map_err(|_e| Malformed)
}
