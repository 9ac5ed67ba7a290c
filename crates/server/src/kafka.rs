//! The listener for Kafka clients: the same broker, in the protocol that they speak.
//!
//! A connection is accepted and kept within its limits (`listener.rs`, `incoming.rs`,
//! `outgoing.rs`); its requests are answered one after the other, in order (`connection.rs`).
//! `dispatch.rs` has the one table of what is served, in which versions, and what right it takes.
//! The wire's types stop here: behind this module there are only the model's.

mod shared;
mod held;
mod listener;
mod incoming;
mod outgoing;
mod connection;
mod call;
mod reply;
mod dispatch;
mod scram;
mod sasl;
mod api_versions;
mod topic_id;
mod share;
mod produce;
#[cfg(feature = "cluster")]
pub(crate) mod ingress;
mod fetch;
mod coordinator;
mod offsets;
mod refusal;
mod rights;
mod metadata;
mod topic_partitions;
mod cluster;
mod topics;
mod configs;
mod delete_records;
mod log_dirs;

pub(crate) use self::dispatch::{SERVED, Served};
pub(crate) use self::listener::run;
pub(crate) use self::shared::Kafka;
pub(crate) use self::topic_id::ClusterId;
