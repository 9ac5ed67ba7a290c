//! Arguments of the load generator.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct BenchOptions {
    /// How many messages to send
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) messages: u64,
    /// Messages in one request
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) batch: u64,
    /// Connections that send, and that consume, at one time
    #[arg(long, default_value_t = 4, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: u16,
    /// Bytes of each body
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u64).range(0..=4_194_304))]
    pub(crate) body_bytes: u64,
    /// When they are due: at once, or after this long
    #[arg(long, value_name = "DURATION")]
    pub(crate) delay: Option<String>,
    /// Consume them as well, and ack each
    #[arg(long)]
    pub(crate) consume: bool,
    /// Topic to send to, which must not exist [default: a new one]
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic: Option<String>,
    /// Leave the topic there at the end
    #[arg(long)]
    pub(crate) keep: bool,
}
