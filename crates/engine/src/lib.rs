//! The embedded store: one writer, one place of fsync, sequential I/O, bounded memory.
//!
//! [`store::Store`] is the store as plain calls; [`Engine`] puts threads around it and implements
//! the seams of `punctual_model::ports`. Read in the order of the modules: the disk at the bottom,
//! the journal, what is pending, what was delivered, and how all of it comes back after a crash.

#![deny(clippy::indexing_slicing)]

pub mod disk;
pub mod options;
pub mod codec;
mod lanes;
pub mod journal;
pub mod timeline;
pub mod ids;
pub mod log;
mod checkpoint;
mod groups;
mod reserve;
mod trust;
pub mod store;
mod queue;
mod engine;

pub(crate) use punctual_model::stored::record;

pub use engine::Engine;
pub use options::{Durability, Options, OutletKind};
pub use store::OpenError;
