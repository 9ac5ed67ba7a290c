//! Arguments of receiving and consuming.

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ReceiveOptions {
    /// Topic to receive from
    pub(crate) topic: String,
    /// Group to receive for; it comes into being by that
    #[arg(long)]
    pub(crate) group: String,
    /// At most so many messages
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub(crate) max: u64,
    /// How long to wait for the first: 10s
    #[arg(long, value_name = "DURATION")]
    pub(crate) wait: Option<String>,
    /// How long nobody else gets them: 60s
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease: Option<String>,
    /// Be done with them at once
    #[arg(long)]
    pub(crate) ack: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ConsumeOptions {
    /// Topic to consume
    pub(crate) topic: String,
    /// Group to consume for; it comes into being by that
    #[arg(long)]
    pub(crate) group: String,
    /// Shell command to run for each message, with the body on its standard input and
    /// PUNCTUAL_ID, PUNCTUAL_TOPIC, PUNCTUAL_KEY and PUNCTUAL_ATTEMPT in its environment; the
    /// message is done when it ends with 0, and comes again otherwise
    #[arg(long, value_name = "COMMAND")]
    pub(crate) exec: Option<String>,
    /// How many commands run at one time
    #[arg(long, default_value_t = 1, value_name = "N", requires = "exec",
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) concurrency: u16,
}
