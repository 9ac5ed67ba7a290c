//! Serving on a clock that is moved by hand, for trying out flows that take days.
//!
//! Data written in virtual time is marked and never mixed with other data: moving time over what
//! real producers sent would deliver it early, and a real server would wait for days that have only
//! been played. The mark also remembers how far time had come, so a restart does not move it back.

use std::io;
use std::path::Path;
use std::sync::Arc;

use punctual_model::time::TimestampError;
use punctual_model::{Clock, SystemClock, Timestamp, VirtualClock};

use crate::app::ServeError;
use crate::config::{Config, ConfigError, Durability, Source, TimelineKind};

/// The file that marks data of virtual time; it holds the last time shown.
const MARK: &str = "VIRTUAL";
/// A file that every store has.
const FORMAT: &str = "FORMAT";

/// What asks for virtual time.
const FLAG: &str = "--virtual-time";

impl Config {
    /// The same on a clock that is moved by hand, and begins at a time that is written as text, or
    /// `now`.
    ///
    /// # Errors
    /// [`ConfigError`] for a text that is no time, and where writes are flushed at intervals: they
    /// would never pass.
    pub fn with_virtual_time(mut self, start: &str) -> Result<Self, ConfigError> {
        let refused = |reason: String| ConfigError::IllegalValue {
            name: FLAG,
            value: start.to_owned(),
            source_name: Source::Flag(FLAG),
            reason,
        };
        let time = match start {
            "now" => SystemClock::new().read().timestamp(),
            text => text.parse().map_err(|error: TimestampError| refused(error.to_string()))?,
        };
        if matches!(self.store.durability, Durability::Interval(_)) {
            let reason = "store.durability must be os or fsync: no interval passes by itself";
            return Err(refused(reason.to_owned()));
        }
        if self.timeline.kind != TimelineKind::Embedded {
            let reason = "timeline.kind must be embedded: others share that store in real time";
            return Err(refused(reason.to_owned()));
        }
        self.virtual_time = Some(time);
        Ok(self)
    }
}

/// The clock that the server goes by.
///
/// # Errors
/// [`ServeError::Mixed`] when the data was written by a clock of the other kind.
pub(crate) fn clock(config: &Config) -> Result<Arc<dyn Clock>, ServeError> {
    let data = &config.store.data;
    let marked = data.join(MARK).exists();
    let mixed = |written, serve| ServeError::Mixed { path: data.clone(), written, serve };
    match config.virtual_time {
        None if marked => Err(mixed("virtual", "with --virtual-time")),
        None => Ok(Arc::new(SystemClock::new())),
        Some(_) if !marked && data.join(FORMAT).exists() => {
            Err(mixed("real", "without --virtual-time"))
        }
        Some(start) => Ok(Arc::new(VirtualClock::new(last(data).unwrap_or(start).max(start)))),
    }
}

/// Marks the data as that of virtual time, which has come to `now`.
///
/// # Errors
/// As the operating system says.
pub(crate) fn mark(config: &Config, now: Timestamp) -> io::Result<()> {
    match config.virtual_time {
        Some(_) => std::fs::write(config.store.data.join(MARK), format!("{now}\n")),
        None => Ok(()),
    }
}

fn last(data: &Path) -> Option<Timestamp> {
    std::fs::read_to_string(data.join(MARK)).ok()?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConfigFile;

    fn config(data: &Path, durability: &str) -> Config {
        let mut file = ConfigFile::default();
        let data = data.display().to_string();
        for (name, value) in [("store.data", data), ("store.durability", durability.to_owned())] {
            file.set(name, value, Source::Flag("test")).unwrap();
        }
        Config::try_from(file).unwrap()
    }

    #[test]
    fn data_of_one_kind_of_time_is_not_served_in_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let real = config(dir.path(), "os");
        let played = real.clone().with_virtual_time("2030-01-01T00:00:00Z").unwrap();
        assert!(clock(&real).is_ok() && clock(&played).is_ok(), "an empty directory is free");
        std::fs::write(dir.path().join(FORMAT), "").unwrap();
        assert!(clock(&real).is_ok() && clock(&played).is_err());
        mark(&real, Timestamp::MIN).unwrap();
        assert!(clock(&real).is_ok(), "real time leaves no mark");
        mark(&played, "2031-01-01T00:00:00Z".parse().unwrap()).unwrap();
        assert!(clock(&real).is_err());
        let now = clock(&played).unwrap().read().timestamp();
        assert_eq!(now.to_string(), "2031-01-01T00:00:00.000Z", "time goes on where it was");
    }

    #[test]
    fn virtual_time_begins_at_a_time_and_flushes_without_a_clock() {
        let dir = tempfile::tempdir().unwrap();
        assert!(config(dir.path(), "os").with_virtual_time("now").is_ok());
        assert!(config(dir.path(), "os").with_virtual_time("soon").is_err());
        assert!(config(dir.path(), "interval").with_virtual_time("now").is_err());
    }
}
