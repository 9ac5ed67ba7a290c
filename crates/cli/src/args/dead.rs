//! Arguments of the commands about dead letters.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// List dead letters, the longest dead first
    List(DeadListOptions),
    /// Show a dead letter
    Show {
        /// Its topic
        topic: String,
        /// The group that gave it up
        #[arg(long)]
        group: String,
        /// Id of the message
        id: String,
    },
    /// Send dead letters again
    Redrive(RedriveOptions),
    /// Throw dead letters away
    Purge(PurgeOptions),
}

/// Which dead letters.
#[derive(Debug, Args)]
pub(crate) struct DeadFilter {
    /// Only those given up for this reason
    #[arg(long, value_parser = ["rejected", "expired", "overflow", "attempts_exhausted"])]
    pub(crate) reason: Option<String>,
    /// Only those given up at this time or later
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Only those given up before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Only those given up on this day, in UTC: 2030-01-31
    #[arg(long, conflicts_with_all = ["from", "to"])]
    pub(crate) day: Option<String>,
    /// Only those with this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only the one of this id
    #[arg(long)]
    pub(crate) id: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DeadListOptions {
    /// Topic of the group
    pub(crate) topic: String,
    /// The group that gave them up
    #[arg(long)]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) filter: DeadFilter,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct RedriveOptions {
    /// Topic of the group
    pub(crate) topic: String,
    /// The group that gave them up
    #[arg(long)]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) filter: DeadFilter,
    /// How many in a second
    #[arg(long, value_name = "N")]
    pub(crate) rate: Option<u64>,
    /// Not before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Only count them
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Another body for the one message of --id
    #[arg(long, value_name = "BODY", requires = "id")]
    pub(crate) set_body: Option<String>,
    /// Another key for the one message of --id
    #[arg(long, value_name = "KEY", requires = "id")]
    pub(crate) set_key: Option<String>,
    /// Header of the one message of --id instead of those it has, as often as needed
    #[arg(long = "set-header", value_name = "NAME=VALUE", value_parser = super::pending::header,
          requires = "id")]
    pub(crate) set_headers: Vec<(String, String)>,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeOptions {
    /// Topic of the group
    pub(crate) topic: String,
    /// The group that gave them up
    #[arg(long)]
    pub(crate) group: String,
    #[command(flatten)]
    pub(crate) filter: DeadFilter,
    /// All of them
    #[arg(long)]
    pub(crate) all: bool,
    /// Only count them
    #[arg(long)]
    pub(crate) dry_run: bool,
}
