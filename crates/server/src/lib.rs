//! Configuration, listeners and the wiring of the parts into one server.
//!
//! `app.rs` is the only place where parts are put together; the listeners see a broker handle and
//! nothing behind it.

pub mod config;
pub mod tasks;
pub mod live;
mod trace;
mod virtual_time;
mod open_files;
pub mod tls;
mod backend;
pub mod app;
mod access;
mod audit;
mod trends;
mod consuming;
mod shown;
mod machine;
mod timings;
mod net;
mod http;
pub mod rules;
mod receiving;
mod grpc;
mod kafka;
pub mod push;
mod alerts;
