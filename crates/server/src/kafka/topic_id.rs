//! How this broker and its topics are numbered for Kafka clients.
//!
//! A cluster has an id of 16 bytes, made at its first start and kept in the data directory. The id of
//! a topic is made of it and of the topic's own number, which is never given twice: so it is stable,
//! differs from that of every other topic, also of one that had the same name before, and from those
//! of other clusters.

use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use punctual_engine::disk::{Disk, Open, read_exact};
use punctual_model::TopicId;
use punctual_model::ports::{Topic, Topics};

/// Holds the id, as text.
const FILE: &str = "cluster-id";
const FILE_NEW: &str = "cluster-id.new";
/// Bytes of an id that come from the cluster; the rest is the number of the topic.
const SALT_BYTES: usize = 12;
/// The text has so many characters.
const TEXT_CHARS: usize = 22;

/// The id of a topic, as Kafka clients see it.
pub(crate) type TopicUuid = [u8; 16];

/// The one that stands for no topic.
pub(crate) const NO_TOPIC: TopicUuid = [0; 16];

/// Who this cluster is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterId {
    bytes: [u8; 16],
    text: Arc<str>,
}

impl ClusterId {
    /// The id in the data directory; at the first start it is made there. Blocks on the disk.
    ///
    /// # Errors
    /// As the disk says; `InvalidData` for a file that holds anything else.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Self> {
        match disk.open(Path::new(FILE), Open::Existing) {
            Ok(file) => {
                let length = usize::try_from(file.len()?).unwrap_or(usize::MAX);
                let bytes = read_exact(&*file, 0, length.min(2 * TEXT_CHARS))?;
                let text = std::str::from_utf8(&bytes).ok().map(str::trim_end);
                text.and_then(Self::read).ok_or_else(|| {
                    let text = format!("{FILE} does not hold the id of a cluster");
                    io::Error::new(io::ErrorKind::InvalidData, text)
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::make(disk),
            Err(error) => Err(error),
        }
    }

    fn make(disk: &dyn Disk) -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let made = Self::of(bytes);
        let file = disk.open(Path::new(FILE_NEW), Open::Create)?;
        file.set_len(0)?;
        file.write_at(format!("{}\n", made.text).as_bytes(), 0)?;
        file.sync()?;
        disk.rename(Path::new(FILE_NEW), Path::new(FILE))?;
        disk.sync_dir(Path::new(""))?;
        Ok(made)
    }

    fn of(mut bytes: [u8; 16]) -> Self {
        // No id of a topic is ever all zero, or of the few small ones that mean something else.
        bytes[0] |= 0x40;
        Self { bytes, text: URL_SAFE_NO_PAD.encode(bytes).into() }
    }

    fn read(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let bytes: [u8; 16] = bytes.try_into().ok()?;
        (bytes[0] & 0x40 != 0).then(|| Self::of(bytes))
    }

    /// The id as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The id of a topic.
    pub(crate) fn uuid(&self, topic: TopicId) -> TopicUuid {
        let mut id = self.bytes;
        id[SALT_BYTES..].copy_from_slice(&topic.get().to_be_bytes());
        id
    }

    /// The number of the topic that has that id, if it is one of this cluster.
    pub(crate) fn number(&self, id: &TopicUuid) -> Option<TopicId> {
        let (salt, number) = id.split_at(SALT_BYTES);
        let number = number.try_into().ok().map(u32::from_be_bytes)?;
        TopicId::new(number).filter(|_| self.bytes.starts_with(salt))
    }

    /// The topic that has that id.
    pub(crate) fn topic(&self, topics: &dyn Topics, id: &TopicUuid) -> Option<Arc<Topic>> {
        self.number(id).and_then(|number| topics.by_id(number))
    }
}

#[cfg(test)]
mod tests {
    use punctual_engine::disk::RealDisk;

    use super::*;

    #[test]
    fn ids_lead_back_to_their_topics_and_differ_between_clusters() {
        let (one, other) = (ClusterId::of([0; 16]), ClusterId::of([7; 16]));
        for number in [0, 1, 77, TopicId::MAX.get()] {
            let topic = TopicId::new(number).unwrap();
            let id = one.uuid(topic);
            assert_ne!(id, NO_TOPIC);
            assert_eq!(one.number(&id), Some(topic));
            assert_eq!(other.number(&id), None);
        }
        assert_eq!(one.number(&NO_TOPIC), None);
        assert_eq!(one.number(&[0xff; 16]), None);
    }

    #[test]
    fn the_id_is_made_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::new(directory.path()).unwrap();
        let made = ClusterId::open(&disk).unwrap();
        assert_eq!(made.as_str().len(), TEXT_CHARS);
        assert_eq!(ClusterId::open(&disk).unwrap(), made);
        for text in ["", "nonsense", "AAAAAAAAAAAAAAAAAAAAAA", &"x".repeat(1000)] {
            std::fs::write(directory.path().join(FILE), text).unwrap();
            let refused = ClusterId::open(&disk).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{text:?}");
        }
    }
}
