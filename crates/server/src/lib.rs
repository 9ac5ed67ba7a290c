//! Configuration, listeners and the wiring of the parts into one server.
//!
//! `app.rs` is the only place where parts are put together; the listeners see a broker handle and
//! nothing behind it.

pub mod config;
pub mod tasks;
mod virtual_time;
pub mod app;
mod access;
mod audit;
mod shown;
mod http;
pub mod push;
