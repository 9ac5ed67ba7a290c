//! The checkpoint: what recovery may skip.
//!
//! Two files take turns, so that the one before the newest is always there. What the older one
//! refers to is not deleted until a newer one has taken its place.
//!
//! ```text
//! magic 8 · version u32 · crc32c u32 (of the rest) · length u64 · generation u64 · journal u64 ·
//! journal end u64 · next run u64 · next topic u64 · period start u64 · topics · log ends ·
//! groups · message lane · retry lane · count varint, numbers of the files of ids u64 … · levels ·
//! producers
//! lane: first sequence of the tables u64 · next sequence u64 · table ended (set) ·
//!       cancelled (set) · cancelled before (set) · cancelled long ago (set) · runs
//! set: length u64 · portable roaring treemap
//! ```

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use punctual_model::ports::{StoreError, Topic};
use punctual_model::stored::topic;
use punctual_model::{DelayLevels, Key, Lane, Partition, Sequence, Timestamp, TopicId};
use roaring::RoaringTreemap;

use crate::codec::{self, Malformed};
use crate::disk::{self, Disk, Open};
use crate::groups::Groups;
use crate::journal::Position;
use crate::lanes::PerLane;
use crate::log::{LogEnd, Producers};

const MAGIC: &[u8; 8] = b"PUNCTCHK";
const VERSION: u32 = 4;
/// The version of format 3: no producers, less said of the ends of logs.
const VERSION_3: u32 = 3;
/// The version of format 2: no own ids, no levels.
const VERSION_2: u32 = 2;
/// The version of format 1: one lane, no groups.
const OLD_VERSION: u32 = 1;
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
    /// The next number of a run.
    pub next_run: u64,
    /// The next number of a topic.
    pub next_topic: u32,
    /// When the present period of remembered cancels began.
    pub period_start: Timestamp,
    /// The topics.
    pub topics: Vec<Topic>,
    /// How far the logs are known to be whole.
    pub log_ends: Vec<LogEnd>,
    /// The groups and their progress.
    pub groups: Groups,
    /// What is pending in each lane.
    pub lanes: PerLane<SavedLane>,
    /// The files of the table of ids, newest first.
    pub ids: Vec<u64>,
    /// The delay levels.
    pub levels: DelayLevels,
    /// Who sent what.
    pub producers: Producers,
}

/// A lane as the checkpoint remembers it.
#[derive(Clone, Debug)]
pub(crate) struct SavedLane {
    /// Entries before this one are in runs or have ended. The journal may bring some of them back,
    /// since it is read from where the other lane needs it.
    pub first: Sequence,
    /// The next sequence, at least.
    pub next: Sequence,
    /// What ended among the entries that the journal will bring back.
    pub ended: RoaringTreemap,
    /// Cancelled in this period, in the one before, and earlier.
    pub cancelled: [RoaringTreemap; 3],
    /// The runs.
    pub runs: Vec<SavedRun>,
}

impl SavedLane {
    /// A lane in which there never was anything.
    fn new(lane: Lane) -> Self {
        Self {
            first: lane.first(),
            next: lane.first(),
            ended: RoaringTreemap::new(),
            cancelled: Default::default(),
            runs: Vec::new(),
        }
    }
}

impl Default for PerLane<SavedLane> {
    fn default() -> Self {
        Self::new(SavedLane::new)
    }
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
        checkpoint.next_run,
        u64::from(checkpoint.next_topic),
        checkpoint.period_start.as_millis(),
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    codec::put_varint(&mut out, checkpoint.topics.len() as u64);
    for topic in &checkpoint.topics {
        topic::encode_topic(&mut out, topic);
    }
    codec::put_varint(&mut out, checkpoint.log_ends.len() as u64);
    for end in &checkpoint.log_ends {
        out.extend_from_slice(&end.topic.get().to_le_bytes());
        out.extend_from_slice(&end.partition.get().to_le_bytes());
        let (largest, last) = (optional(end.largest), optional(end.last));
        for number in [end.segment, end.bytes, end.offset, largest, last, end.start, end.known] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
    checkpoint.groups.encode(&mut out)?;
    for (_, lane) in checkpoint.lanes.iter() {
        put_lane(&mut out, lane)?;
    }
    codec::put_varint(&mut out, checkpoint.ids.len() as u64);
    for number in &checkpoint.ids {
        out.extend_from_slice(&number.to_le_bytes());
    }
    topic::encode_levels(&mut out, &checkpoint.levels);
    checkpoint.producers.encode(&mut out);
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

/// A time as a number; all ones for none.
fn optional(time: Option<Timestamp>) -> u64 {
    time.map_or(u64::MAX, Timestamp::as_millis)
}

fn put_lane(out: &mut Vec<u8>, lane: &SavedLane) -> io::Result<()> {
    out.extend_from_slice(&lane.first.get().to_le_bytes());
    out.extend_from_slice(&lane.next.get().to_le_bytes());
    codec::put_set(out, &lane.ended)?;
    for set in &lane.cancelled {
        codec::put_set(out, set)?;
    }
    codec::put_varint(out, lane.runs.len() as u64);
    lane.runs.iter().try_for_each(|run| put_run(out, run))
}

fn put_run(out: &mut Vec<u8>, run: &SavedRun) -> io::Result<()> {
    let Key { due, sequence } = run.watermark;
    for number in [run.number, due.as_millis(), sequence.get()] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    codec::put_set(out, &run.ended)?;
    codec::put_varint(out, run.counts.len() as u64);
    for (topic, count) in &run.counts {
        out.extend_from_slice(&topic.get().to_le_bytes());
        out.extend_from_slice(&count.to_le_bytes());
    }
    Ok(())
}

fn decode(bytes: &[u8]) -> Result<Checkpoint, Malformed> {
    let mut rest = bytes;
    let rest = &mut rest;
    let magic = codec::take(rest, 8)?;
    let version = codec::get_u32(rest)?;
    let checksum = codec::get_u32(rest)?;
    let length = codec::get_u64(rest)?;
    let whole = length == rest.len() as u64 && crc32c::crc32c(rest) == checksum;
    if magic != MAGIC || !whole {
        return Err(Malformed);
    }
    match version {
        VERSION | VERSION_3 => {
            let mut checkpoint = decode_shared(rest, version)?;
            for _ in 0..codec::get_length(rest)? {
                checkpoint.ids.push(codec::get_u64(rest)?);
            }
            checkpoint.levels = topic::decode_levels(rest)?;
            if version == VERSION {
                checkpoint.producers = Producers::decode(rest)?;
            }
            Ok(checkpoint)
        }
        VERSION_2 => decode_shared(rest, version),
        OLD_VERSION => decode_old(rest),
        _ => Err(Malformed),
    }
}

/// Reads what all versions but the first have.
fn decode_shared(rest: &mut &[u8], version: u32) -> Result<Checkpoint, Malformed> {
    let mut checkpoint = Checkpoint {
        generation: codec::get_u64(rest)?,
        journal: Position(codec::get_u64(rest)?),
        journal_end: Position(codec::get_u64(rest)?),
        next_run: codec::get_u64(rest)?,
        next_topic: u32::try_from(codec::get_u64(rest)?).map_err(|_e| Malformed)?,
        period_start: Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?,
        ..Checkpoint::default()
    };
    for _ in 0..codec::get_length(rest)? {
        checkpoint.topics.push(match version {
            VERSION_2 => topic::decode_topic_2(rest)?,
            _ => topic::decode_topic(rest)?,
        });
    }
    checkpoint.log_ends = get_log_ends(rest, version)?;
    checkpoint.groups = Groups::decode(rest)?;
    checkpoint.lanes = PerLane::try_new(|lane| get_lane(rest, lane, version))?;
    Ok(checkpoint)
}

/// Reads a checkpoint of format 1.
fn decode_old(rest: &mut &[u8]) -> Result<Checkpoint, Malformed> {
    let generation = codec::get_u64(rest)?;
    let journal = Position(codec::get_u64(rest)?);
    let journal_end = Position(codec::get_u64(rest)?);
    let mut message = SavedLane::new(Lane::Message);
    message.next = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
    let next_run = codec::get_u64(rest)?;
    let next_topic = u32::try_from(codec::get_u64(rest)?).map_err(|_e| Malformed)?;
    let period_start = Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?;
    message.ended = codec::get_set(rest)?;
    message.cancelled = get_two_sets(rest)?;
    let mut topics = Vec::new();
    for _ in 0..codec::get_length(rest)? {
        topics.push(topic::decode_old_topic(rest)?);
    }
    let log_ends = get_log_ends(rest, OLD_VERSION)?;
    for _ in 0..codec::get_length(rest)? {
        message.runs.push(get_run(rest)?);
    }
    let mut lanes = PerLane::new(SavedLane::new);
    *lanes.of_mut(Lane::Message) = message;
    Ok(Checkpoint {
        generation,
        journal,
        journal_end,
        next_run,
        next_topic,
        period_start,
        topics,
        log_ends,
        lanes,
        ..Checkpoint::default()
    })
}

fn get_log_ends(rest: &mut &[u8], version: u32) -> Result<Vec<LogEnd>, Malformed> {
    let mut ends = Vec::new();
    for _ in 0..codec::get_length(rest)? {
        let mut end = LogEnd {
            topic: TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?,
            partition: Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?,
            segment: codec::get_u64(rest)?,
            bytes: codec::get_u64(rest)?,
            offset: codec::get_u64(rest)?,
            largest: None,
            last: None,
            start: 0,
            known: 0,
        };
        if version == VERSION {
            end.largest = Timestamp::from_millis(codec::get_u64(rest)?);
            end.last = Timestamp::from_millis(codec::get_u64(rest)?);
            end.start = codec::get_u64(rest)?;
            end.known = codec::get_u64(rest)?;
        }
        ends.push(end);
    }
    Ok(ends)
}

/// The cancels of a version that did not keep old ones apart.
fn get_two_sets(rest: &mut &[u8]) -> Result<[RoaringTreemap; 3], Malformed> {
    Ok([codec::get_set(rest)?, codec::get_set(rest)?, RoaringTreemap::new()])
}

fn get_lane(rest: &mut &[u8], lane: Lane, version: u32) -> Result<SavedLane, Malformed> {
    let sequence = |rest: &mut &[u8]| {
        let sequence = Sequence::new(codec::get_u64(rest)?);
        sequence.filter(|sequence| sequence.lane() == lane).ok_or(Malformed)
    };
    let mut saved = SavedLane {
        first: sequence(rest)?,
        next: sequence(rest)?,
        ended: codec::get_set(rest)?,
        cancelled: if version == VERSION_2 {
            get_two_sets(rest)?
        } else {
            [codec::get_set(rest)?, codec::get_set(rest)?, codec::get_set(rest)?]
        },
        runs: Vec::new(),
    };
    for _ in 0..codec::get_length(rest)? {
        saved.runs.push(get_run(rest)?);
    }
    Ok(saved)
}

fn get_run(rest: &mut &[u8]) -> Result<SavedRun, Malformed> {
    let number = codec::get_u64(rest)?;
    let due = Timestamp::from_millis(codec::get_u64(rest)?).ok_or(Malformed)?;
    let sequence = Sequence::new(codec::get_u64(rest)?).ok_or(Malformed)?;
    let ended = codec::get_set(rest)?;
    let mut counts = HashMap::new();
    for _ in 0..codec::get_length(rest)? {
        let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
        counts.insert(topic, codec::get_u64(rest)?);
    }
    Ok(SavedRun { number, watermark: Key { due, sequence }, ended, counts })
}
