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
    /// End after so many messages, instead of going on until interrupted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max: Option<u64>,
}

/// Messages that were received.
#[derive(Debug, Args)]
pub(crate) struct Receipts {
    /// Topic they were received from
    pub(crate) topic: String,
    /// Their receipts, as receive has printed them
    #[arg(required = true, value_name = "RECEIPT")]
    pub(crate) receipts: Vec<String>,
    /// Group they were received for
    #[arg(long)]
    pub(crate) group: String,
}

#[derive(Debug, Args)]
pub(crate) struct NackOptions {
    #[command(flatten)]
    pub(crate) receipts: Receipts,
    /// When they come again, instead of what the group says: 5s
    #[arg(long, value_name = "DURATION", conflicts_with = "reject")]
    pub(crate) delay: Option<String>,
    /// Make dead letters of them
    #[arg(long)]
    pub(crate) reject: bool,
    /// What went wrong, for whoever looks at them later
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ExtendOptions {
    #[command(flatten)]
    pub(crate) receipts: Receipts,
    /// How long from now nobody else gets them: 60s
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease: String,
}
