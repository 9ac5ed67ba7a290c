//! What can be asked of the scenarios with several nodes.

use std::net::SocketAddr;

use clap::Args;

use super::{positive, size};

#[derive(Clone, Debug, Args)]
pub(crate) struct ClusterOptions {
    /// Where the nodes listen: 127.0.0.1:7071,127.0.0.1:7072
    #[arg(long, value_delimiter = ',', required = true)]
    pub(crate) nodes: Vec<SocketAddr>,
    /// Where Kafka listens
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) kafka: String,
    /// Where the database listens, to compare with: MariaDB, user root without a password
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) mariadb: Option<SocketAddr>,
    /// Keep-alive connections, to all nodes together
    #[arg(long, default_value = "24", value_parser = size)]
    pub(crate) connections: usize,
    /// Seconds of each part
    #[arg(long, default_value = "10")]
    pub(crate) secs: u64,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    /// Messages of each batch
    #[arg(long, default_value = "500", value_parser = size)]
    pub(crate) batch: usize,
    /// Messages that fall due each second
    #[arg(long, default_value = "2k", value_parser = positive)]
    pub(crate) rate: u64,
    /// Messages due in the same millisecond
    #[arg(long, default_value = "50k", value_parser = positive)]
    pub(crate) herd: u64,
    /// Messages a second that are scheduled at least, so that all are before the first is due
    #[arg(long, default_value = "5k", value_parser = positive)]
    pub(crate) lead_rate: u64,
    /// Partitions of the topics in Kafka
    #[arg(long, default_value = "12", value_parser = size)]
    pub(crate) partitions: usize,
}

#[cfg(feature = "cluster")]
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreOptions {
    /// Where the database listens: user root without a password
    #[arg(long, value_name = "ADDRESS", required_unless_present = "cassandra")]
    pub(crate) database: Option<SocketAddr>,
    /// Where Cassandra listens, to be measured instead
    #[arg(long, value_name = "ADDRESS", conflicts_with = "database")]
    pub(crate) cassandra: Option<SocketAddr>,
    /// The process of that database, to tell its CPU time for each row
    #[arg(long, value_name = "PID")]
    pub(crate) process: Option<u32>,
    /// Messages that are pending already
    #[arg(long, default_value = "1M", value_parser = positive)]
    pub(crate) pending: u64,
    /// Seconds of each part
    #[arg(long, default_value = "5")]
    pub(crate) secs: u64,
    /// Slots that are written to at once
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) writers: u16,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
}
