//! What stands behind the broker: the embedded engine, or a store that nodes share; its own topics,
//! or Kafka.
//!
//! Without the feature `cluster` there is the engine alone, and nothing between it and the broker.

mod history;
mod nodes;
#[cfg(feature = "cluster")]
mod store;
#[cfg(feature = "cluster")]
mod peers;
#[cfg(feature = "cluster")]
mod link;
#[cfg(feature = "cluster")]
mod outside;

use std::sync::Arc;

use punctual_engine::Engine;
use punctual_model::Buckets;
use punctual_model::ports::StoreError;

pub(crate) use self::history::Event;
#[cfg(feature = "cluster")]
pub(crate) use self::link::Link;
#[cfg(feature = "cluster")]
pub(crate) use self::nodes::Name;
pub(crate) use self::nodes::{ALONE, Memory, Nodes, Teller};
#[cfg(feature = "cluster")]
pub(crate) use self::outside::{Outside, OutsideFigures, SharedStore};
#[cfg(feature = "cluster")]
pub(crate) use self::peers::{
    HttpPeers, MEDIA_TYPE as PEER_MEDIA_TYPE, PATH as PEER_PATH, SECRET as PEER_SECRET,
};
#[cfg(feature = "cluster")]
pub(crate) use self::store::{SharedTimeline, Store, Way};

/// What is pending: in the engine, and nowhere else.
#[cfg(not(feature = "cluster"))]
pub(crate) type Store = Engine;

/// Figures that only the store knows.
#[derive(Debug, Default)]
pub(crate) struct StoreFigures {
    pub(crate) journal_sync: Buckets,
    pub(crate) damaged_blocks: u64,
    /// What is outside of this machine.
    #[cfg(feature = "cluster")]
    pub(crate) outside: Option<OutsideFigures>,
}

/// What was opened for the broker, to be looked at and closed.
#[derive(Clone)]
pub(crate) struct Backend {
    pub(crate) engine: Option<Arc<Engine>>,
    #[cfg(feature = "cluster")]
    pub(crate) outside: Option<Outside>,
}

impl Backend {
    /// Whether the store still stands. One that is shared comes back by itself.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.engine.as_ref().map_or(Ok(()), |engine| engine.check())
    }

    /// Figures that only the store knows.
    pub(crate) fn figures(&self) -> StoreFigures {
        let mut figures = StoreFigures::default();
        if let Some(engine) = &self.engine {
            figures.journal_sync = engine.syncs();
            figures.damaged_blocks = engine.store().damaged_blocks();
        }
        #[cfg(feature = "cluster")]
        {
            figures.outside = self.outside.as_ref().map(Outside::figures);
        }
        figures
    }

    /// Takes nothing more from outside. Blocks.
    pub(crate) fn stop_taking(&self) {
        #[cfg(feature = "cluster")]
        if let Some(outside) = &self.outside {
            outside.stop_taking();
        }
    }

    /// Closes everything of this machine, once the broker has stopped. Blocks on the disk.
    pub(crate) fn close(&self) {
        #[cfg(feature = "cluster")]
        if let Some(outside) = &self.outside {
            outside.finish();
        }
        if let Some(engine) = &self.engine {
            engine.close();
        }
    }

    /// Leaves what is outside of this machine to others.
    pub(crate) async fn leave(&self) {
        #[cfg(feature = "cluster")]
        if let Some(outside) = &self.outside {
            outside.leave().await;
        }
    }
}
