//! The checkpoint: what recovery may skip.
//!
//! Two files take turns, so that the one before the newest is always there. What the older one
//! refers to is not deleted until a newer one has taken its place.
//!
//! ```text
//! magic 8 · version u32 · crc32c u32 (of the rest) · length u64 · generation u64 · journal u64 ·
//! journal end u64 · next sequence u64 · next run u64 · next topic u32 · period start u64 · table ended (set) ·
//! cancelled (set) · cancelled before (set) · topics · log ends · runs
//! set: length u64 · portable roaring treemap
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use punctual_model::ports::{StoreError, Topic};
use punctual_model::{Key, Partition, Sequence, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::codec::{self, Malformed};
use crate::disk::{self, Disk, Open};
use crate::journal::Position;
use crate::journal::change;
use crate::log::LogEnd;

const MAGIC: &[u8; 8] = b"PUNCTCHK";
const VERSION: u32 = 1;
const FRONT: usize = 8 + 4 + 4 + 8;

/// What a checkpoint says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checkpoint {
    /// Counts checkpoints; the highest one counts.
    pub generation: u64,
    /// Where the journal has to be read from.
    pub journal: Position,
    /// How far the journal was known to be on disk.
    pub journal_end: Position,
    /// The next sequence, at least.
    pub next: Sequence,
    /// The next number of a run.
    pub next_run: u64,
    /// The next number of a topic.
    pub next_topic: u32,
    /// When the present period of remembered cancels began.
    pub period_start: Timestamp,
    /// What ended among the entries that the journal will bring back.
    pub ended: RoaringTreemap,
    /// Cancelled in this period, and in the one before.
    pub cancelled: [RoaringTreemap; 2],
    /// The topics.
    pub topics: Vec<Topic>,
    /// How far the logs are known to be whole.
    pub log_ends: Vec<LogEnd>,
    /// The runs.
    pub runs: Vec<SavedRun>,
}

/// A run as the checkpoint remembers it.
#[derive(Clone, Debug)]
pub(crate) struct SavedRun {
    /// Its number.
    pub number: u64,
    /// Everything before this has ended.
    pub watermark: Key,
    /// What else has ended.
    pub ended: RoaringTreemap,
    /// Live entries of each topic.
    pub counts: HashMap<TopicId, u64>,
}

fn path(generation: u64) -> PathBuf {
    PathBuf::from(format!("checkpoint-{}", generation % 2))
}

/// Writes `checkpoint` in place of the one before the last.
///
/// # Errors
/// As the disk says.
pub(crate) fn write(disk: &dyn Disk, checkpoint: &Checkpoint) -> io::Result<()> {
    let bytes = encode(checkpoint)?;
    let draft = Path::new("checkpoint.new");
    let file = disk.open(draft, Open::Create)?;
    file.set_len(0)?;
    file.write_at(&bytes, 0)?;
    file.sync()?;
    disk.rename(draft, &path(checkpoint.generation))?;
    disk.sync_dir(Path::new(""))
}

/// Reads the newest whole checkpoint; `None` in a new store.
///
/// # Errors
/// [`StoreError::Damaged`] when there are checkpoints and none is whole.
pub(crate) fn read(disk: &dyn Disk) -> Result<Option<Checkpoint>, StoreError> {
    let mut newest: Option<Checkpoint> = None;
    let mut damaged = None;
    for generation in 0..2 {
        match read_file(disk, &path(generation)) {
            Ok(Some(found)) => {
                if newest.as_ref().is_none_or(|known| known.generation < found.generation) {
                    newest = Some(found);
                }
            }
            Ok(None) => {}
            Err(error) => damaged = Some((path(generation), error)),
        }
    }
    match (newest, damaged) {
        (None, Some((path, error))) => {
            Err(StoreError::damaged(format_args!("{}: {error}", path.display())))
        }
        (newest, Some((path, error))) => {
            tracing::error!(path = %path.display(), %error, "checkpoint damaged, using the other");
            Ok(newest)
        }
        (newest, None) => Ok(newest),
    }
}

fn read_file(disk: &dyn Disk, path: &Path) -> io::Result<Option<Checkpoint>> {
    let file = match disk.open(path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let len = usize::try_from(file.len()?).map_err(io::Error::other)?;
    let bytes = disk::read_exact(&*file, 0, len)?;
    decode(&bytes).map(Some).map_err(io::Error::other)
}

fn encode(checkpoint: &Checkpoint) -> io::Result<Vec<u8>> {
    let mut out = vec![0; FRONT];
    for number in [
        checkpoint.generation,
        checkpoint.journal.0,
        checkpoint.journal_end.0,
        checkpoint.next.get(),
        checkpoint.next_run,
        u64::from(checkpoint.next_topic),
        checkpoint.period_start.as_millis(),
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_set(&mut out, &checkpoint.ended)?;
    for set in &checkpoint.cancelled {
        put_set(&mut out, set)?;
    }
    codec::put_varint(&mut out, checkpoint.topics.len() as u64);
    for topic in &checkpoint.topics {
        change::encode_topic(&mut out, topic);
    }
    codec::put_varint(&mut out, checkpoint.log_ends.len() as u64);
    for end in &checkpoint.log_ends {
        out.extend_from_slice(&end.topic.get().to_le_bytes());
        out.extend_from_slice(&end.partition.get().to_le_bytes());
        for number in [end.segment, end.bytes, end.offset] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    codec::put_varint(&mut out, checkpoint.runs.len() as u64);
    for run in &checkpoint.runs {
        put_run(&mut out, run)?;
    }
    let length = (out.len() - FRONT) as u64;
    let checksum = crc32c::crc32c(out.get(FRONT..).unwrap_or_default());
    let mut front = Vec::with_capacity(FRONT);
    front.extend_from_slice(MAGIC);
    front.extend_from_slice(&VERSION.to_le_bytes());
    front.extend_from_slice(&checksum.to_le_bytes());
    front.extend_from_slice(&length.to_le_bytes());
    if let Some(place) = out.get_mut(..FRONT) {
        place.copy_from_slice(&front);
    }
    Ok(out)
}

fn put_run(out: &mut Vec<u8>, run: &SavedRun) -> io::Result<()> {
    let Key { due, sequence } = run.watermark;
    for number in [run.number, due.as_millis(), sequence.get()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    put_set(out, &run.ended)?;
    codec::put_varint(out, run.counts.len() as u64);
    for (topic, count) in &run.counts {
        out.extend_from_slice(&topic.get().to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
    Ok(())
}

fn put_set(out: &mut Vec<u8>, set: &RoaringTreemap) -> io::Result<()> {
    out.extend_from_slice(&(set.serialized_size() as u64).to_le_bytes());
    set.serialize_into(out)
}

fn decode(bytes: &[u8]) -> Result<Checkpoint, Malformed> {
    let mut rest = bytes;
    let rest = &mut rest;
    let magic = codec::take(rest, 8)?;
    let version = codec::get_u32(rest)?;
    let checksum = codec::get_u32(rest)?;
    let length = codec::get_u64(rest)?;
    let whole = length == rest.len() as u64 && crc32c::crc32c(rest) == checksum;
    if magic != MAGIC || version != VERSION || !whole {
        return Err(Malformed);
    }
    let mut checkpoint = Checkpoint {
        generation: codec::get_u64(rest)?,
        journal: Position(codec::get_u64(rest)?),
        journal_end: Position(codec::get_u64(rest)?),
        next: Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?,
        next_run: codec::get_u64(rest)?,
        next_topic: u32::try_from(codec::get_u64(rest)?).map_err(|_e| Malformed)?,
        period_start: Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?,
        ended: get_set(rest)?,
        cancelled: [get_set(rest)?, get_set(rest)?],
        ..Checkpoint::default()
    };
    for _ in 0..codec::get_length(rest)? {
        checkpoint.topics.push(change::decode_topic(rest)?);
    }
    for _ in 0..codec::get_length(rest)? {
        checkpoint.log_ends.push(LogEnd {
            topic: TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?,
            partition: Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?,
            segment: codec::get_u64(rest)?,
            bytes: codec::get_u64(rest)?,
            offset: codec::get_u64(rest)?,
        });
    }
    for _ in 0..codec::get_length(rest)? {
        checkpoint.runs.push(get_run(rest)?);
    }
    Ok(checkpoint)
}

fn get_run(rest: &mut &[u8]) -> Result<SavedRun, Malformed> {
    let number = codec::get_u64(rest)?;
    let due = Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?;
    let sequence = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
    let ended = get_set(rest)?;
    let mut counts = HashMap::new();
    for _ in 0..codec::get_length(rest)? {
        let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
        counts.insert(topic, codec::get_u64(rest)?);
    }
    Ok(SavedRun { number, watermark: Key { due, sequence }, ended, counts })
}

fn get_set(rest: &mut &[u8]) -> Result<RoaringTreemap, Malformed> {
    let length = usize::try_from(codec::get_u64(rest)?).map_err(|_e| Malformed)?;
    RoaringTreemap::deserialize_from(codec::take(rest, length)?).map_err(|_e| Malformed)
}
