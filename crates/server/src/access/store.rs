//! Where the apps are kept: in files of this machine, or with those of all nodes of a cluster.

use std::io;
use std::sync::Weak;

use crate::access::files::AppFiles;
use crate::access::gate::Inner;
use crate::access::record::{AppKey, AppRecord};
#[cfg(feature = "cluster")]
use crate::access::shared::AppDocuments;

/// Where the apps are kept.
#[derive(Debug)]
pub(crate) enum AppStore {
    /// In files of this machine.
    Files(AppFiles),
    /// With those of all nodes.
    #[cfg(feature = "cluster")]
    Shared(AppDocuments),
}

/// How often an app had been changed when somebody looked. Look at it first, and at the app then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Revision(pub(crate) u64);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "files have one writer"))]
pub(crate) enum Written {
    /// It survives a crash, and whoever keeps the apps in memory has to take it in.
    Done,
    /// The same, and it was taken in already.
    TakenIn,
    /// Somebody else has changed the app since: nothing was written.
    Overtaken,
}

impl From<AppFiles> for AppStore {
    fn from(files: AppFiles) -> Self {
        Self::Files(files)
    }
}

impl AppStore {
    /// Whether the administrator's first token can be made here: it must be found by whoever is to
    /// have it, and be the same on all nodes.
    pub(crate) const fn can_make_token(&self) -> bool {
        match self {
            Self::Files(_) => true,
            #[cfg(feature = "cluster")]
            Self::Shared(_) => false,
        }
    }

    /// From now on changes of other nodes are told to the gate.
    pub(super) fn follow(&self, gate: Weak<Inner>) {
        match self {
            Self::Files(_) => drop(gate),
            #[cfg(feature = "cluster")]
            Self::Shared(documents) => documents.follow(gate),
        }
    }

    /// Takes in what other nodes have changed up to now. Blocks.
    ///
    /// # Errors
    /// As the store says.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        match self {
            Self::Files(_) => Ok(()),
            #[cfg(feature = "cluster")]
            Self::Shared(documents) => documents.refresh(),
        }
    }

    /// How often an app was changed.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only nodes race"))]
    pub(crate) fn revision(&self, key: &str) -> Revision {
        match self {
            Self::Files(_) => Revision::default(),
            #[cfg(feature = "cluster")]
            Self::Shared(documents) => documents.revision(key),
        }
    }

    /// Writes an app. Blocks.
    ///
    /// # Errors
    /// As the store says.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only nodes race"))]
    pub(crate) fn put(&mut self, record: &AppRecord, revision: Revision) -> io::Result<Written> {
        match self {
            Self::Files(files) => files.put(record).map(|()| Written::Done),
            #[cfg(feature = "cluster")]
            Self::Shared(documents) => documents.put(record, revision),
        }
    }

    /// Removes an app. Blocks.
    ///
    /// # Errors
    /// As the store says.
    #[cfg_attr(not(feature = "cluster"), expect(unused_variables, reason = "only nodes race"))]
    pub(crate) fn remove(&mut self, key: &AppKey, revision: Revision) -> io::Result<Written> {
        match self {
            Self::Files(files) => files.remove(key).map(|()| Written::Done),
            #[cfg(feature = "cluster")]
            Self::Shared(documents) => documents.remove(key, revision),
        }
    }

    /// The files, where the administrator's token may be in one.
    pub(crate) const fn files(&mut self) -> Option<&mut AppFiles> {
        match self {
            Self::Files(files) => Some(files),
            #[cfg(feature = "cluster")]
            Self::Shared(_) => None,
        }
    }
}
