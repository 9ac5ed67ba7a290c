//! Punctual on more than one machine: who owns which slots, where pending messages are kept, and
//! where due ones go, on engines that others run already.
//!
//! Read in the order of the modules: who owns what, what a store has to do, what is pending, the
//! stores, what all nodes share, how a request finds its owner, and Kafka.

pub mod coordinator;
pub mod store;
pub mod timeline;
pub mod mysql;
pub mod cassandra;
pub mod catalogue;
pub mod routing;
pub mod kafka;
