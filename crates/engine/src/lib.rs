//! The embedded store: one writer, one place of fsync, sequential I/O, bounded memory.

#![deny(clippy::indexing_slicing)]

pub mod disk;
