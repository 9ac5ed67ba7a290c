//! What can be asked of the scenarios with Kafka clients.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{ServerOptions, positive, size};

#[derive(Clone, Debug, Args)]
pub(crate) struct KafkaOptions {
    /// Which part
    #[arg(long, value_enum, default_value = "all")]
    pub(crate) part: KafkaPart,
    /// Connections, each with a partition of its own
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) connections: usize,
    /// Requests under way on each connection
    #[arg(long, default_value = "4", value_parser = size)]
    pub(crate) under_way: usize,
    /// Seconds of each round
    #[arg(long, default_value = "5")]
    pub(crate) secs: u64,
    /// How often the server and the bare sender take turns
    #[arg(long, default_value = "5", value_parser = size)]
    pub(crate) rounds: usize,
    /// Megabytes of log that are fetched over and over
    #[arg(long, default_value = "512", value_parser = positive)]
    pub(crate) megabytes: u64,
    /// Bytes of each fetch
    #[arg(long, default_value = "1048576,8388608,52428800", value_parser = size, value_delimiter = ',')]
    pub(crate) fetches: Vec<usize>,
    /// Bytes of each record that is produced
    #[arg(long, default_value = "100,1024", value_parser = size, value_delimiter = ',')]
    pub(crate) records: Vec<usize>,
    /// Bytes of each batch that is produced
    #[arg(long, default_value = "16384,131072,1048576", value_parser = size, value_delimiter = ',')]
    pub(crate) batches: Vec<usize>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KafkaPart {
    /// Records going out
    Fetch,
    /// Records coming in
    Produce,
    /// Records coming in, each with a delay
    Delayed,
    /// All of them
    All,
}

impl KafkaPart {
    pub(crate) fn includes(self, part: Self) -> bool {
        self == part || self == Self::All
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SendFileOptions {
    #[arg(long)]
    pub(crate) file: PathBuf,
    #[arg(long, value_enum)]
    pub(crate) sending: SendingWord,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SendingWord {
    /// The operating system sends it
    Sendfile,
    /// It is read and written
    Copy,
}

impl SendingWord {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Sendfile => "sendfile",
            Self::Copy => "copy",
        }
    }
}
