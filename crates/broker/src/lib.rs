//! Crate.

pub mod wheel;
