//! The configuration in force, and the only way by which it changes while the server runs.
//!
//! Whoever needs a value that may change reads it where it is used, through [`Live`], and never
//! keeps it. Only keys that are marked for it in the table take new values (G49), only through
//! [`Reload`], and that is in the hands of whoever runs the process: no listener knows it.

use std::fmt;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;

use crate::config::{Config, ConfigError, ConfigFile, Key, LogConfig};
use crate::http::Hosts;

/// What holds now.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) config: Config,
    /// The names this server answers to, as the configuration gives them.
    pub(crate) hosts: Hosts,
}

impl Current {
    fn new(config: Config) -> Self {
        let hosts = Hosts::new(config.http.listen, &config.http.hosts);
        Self { config, hosts }
    }
}

type Follower = Box<dyn Fn(&Config) + Send + Sync>;

/// A handle of the configuration in force. Clones are handles of the same one.
#[derive(Clone)]
pub struct Live {
    current: Arc<ArcSwap<Current>>,
    followers: Arc<Mutex<Vec<Follower>>>,
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Live").field("current", &self.read().config).finish_non_exhaustive()
    }
}

impl Live {
    pub(crate) fn new(config: Config) -> Self {
        let current = Arc::new(ArcSwap::from_pointee(Current::new(config)));
        Self { current, followers: Arc::default() }
    }

    /// What holds now. Costs next to nothing; not to be kept.
    pub(crate) fn read(&self) -> Guard<Arc<Current>> {
        self.current.load()
    }

    /// Calls `follower` whenever something may have changed, for what cannot read it on each use.
    /// It may block.
    pub(crate) fn follow(&self, follower: impl Fn(&Config) + Send + Sync + 'static) {
        self.followers.lock().push(Box::new(follower));
    }

    fn set(&self, mut config: Config) {
        // It has no key, so the new one knows nothing of it.
        config.virtual_time = self.read().config.virtual_time;
        // Held, so that the followers see the same order.
        let followers = self.followers.lock();
        let current = Arc::new(Current::new(config));
        self.current.store(Arc::clone(&current));
        followers.iter().for_each(|follower| follower(&current.config));
    }
}

/// Reads configurations anew for a running server.
#[derive(Debug)]
pub struct Reload {
    live: Live,
    /// What the running server was last given.
    running: ConfigFile,
}

/// What a new configuration changed.
#[derive(Clone, Debug)]
pub struct Changes {
    /// The keys that took effect.
    pub taken: Vec<&'static Key>,
    /// The keys that keep their old values until the server is started anew.
    pub need_restart: Vec<&'static Key>,
    /// How lines are logged from now on.
    pub log: LogConfig,
}

impl Reload {
    /// For the server that was started with `running`.
    #[must_use]
    pub const fn new(live: Live, running: ConfigFile) -> Self {
        Self { live, running }
    }

    /// Takes what may be taken of a new configuration, as a whole or not at all. Files that
    /// secrets are in are read again. May block.
    ///
    /// # Errors
    /// [`ConfigError`] when a server would not start with it; then nothing changes.
    pub fn take(&mut self, mut fresh: ConfigFile) -> Result<Changes, ConfigError> {
        Config::try_from(&fresh)?;
        let (taken, need_restart) = fresh.changed(&self.running).partition(|key| key.reload);
        fresh.keep_fixed(&self.running);
        let config = Config::try_from(&fresh)?;
        let log = config.log.clone();
        self.live.set(config);
        self.running = fresh;
        Ok(Changes { taken, need_restart, log })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn written(values: &[(&str, &str)]) -> ConfigFile {
        let mut file = ConfigFile::default();
        for (name, value) in values {
            file.set(name, (*value).to_owned(), Source::Flag("test")).unwrap();
        }
        file
    }

    fn names(keys: &[&'static Key]) -> Vec<&'static str> {
        keys.iter().map(|key| key.name).collect()
    }

    #[test]
    fn g49_only_listed_keys_change() {
        let file = written(&[("store.memory", "64MiB")]);
        let live = Live::new(Config::try_from(&file).unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&heard);
        live.follow(move |config| told.lock().push(config.limits.body_bytes_max));
        let mut reload = Reload::new(live.clone(), file);
        let fresh =
            [("store.memory", "32MiB"), ("limits.body_bytes_max", "7"), ("http.hosts", "a")];
        let changes = reload.take(written(&fresh)).unwrap();
        assert_eq!(names(&changes.taken), ["http.hosts", "limits.body_bytes_max"]);
        assert_eq!(names(&changes.need_restart), ["store.memory"]);
        assert_eq!(live.read().config.store.memory, 64 << 20);
        assert_eq!(live.read().config.limits.body_bytes_max, 7);
        assert_eq!(*heard.lock(), [7]);
        let changes = reload.take(written(&fresh)).unwrap();
        assert!(changes.taken.is_empty(), "it is in force already");
        assert_eq!(names(&changes.need_restart), ["store.memory"], "said until it is done");
    }

    #[test]
    fn a_broken_configuration_changes_nothing() {
        let file = written(&[]);
        let live = Live::new(Config::try_from(&file).unwrap());
        let mut reload = Reload::new(live.clone(), file);
        let broken = [("limits.body_bytes_max", "7"), ("limits.delay_max", "soon")];
        assert!(reload.take(written(&broken)).is_err());
        assert_ne!(live.read().config.limits.body_bytes_max, 7);
    }
}
