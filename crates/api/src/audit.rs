//! The record of who changed what, in JSON.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// One page of the record.
#[derive(Clone, Debug, Serialize)]
pub struct AuditPage {
    /// The newest first.
    pub entries: Vec<AuditView>,
    /// The cursor of the next page.
    pub next: Option<String>,
}

/// One change.
#[derive(Clone, Debug)]
pub struct AuditView {
    /// When, as RFC 3339.
    pub at: String,
    /// By whom.
    pub who: String,
    /// What was done, in a word.
    pub what: String,
    /// To which topic, if to one.
    pub topic: Option<String>,
    /// Whatever else there is to say, by name.
    pub details: Vec<(String, String)>,
}

impl Serialize for AuditView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("at", &self.at)?;
        map.serialize_entry("who", &self.who)?;
        map.serialize_entry("what", &self.what)?;
        if let Some(topic) = &self.topic {
            map.serialize_entry("topic", topic)?;
        }
        map.serialize_entry("details", &Details(&self.details))?;
        map.end()
    }
}

struct Details<'a>(&'a [(String, String)]);

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}
