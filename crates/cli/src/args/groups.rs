//! Arguments of the commands about groups.

use clap::{Args, Subcommand};

use super::connection::Secret;

/// One group.
#[derive(Debug, Args)]
pub(crate) struct GroupPlace {
    /// Its topic
    pub(crate) topic: String,
    /// Its name
    pub(crate) group: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupsCommand {
    /// List groups
    List {
        /// Only those of this topic
        topic: Option<String>,
    },
    /// Show a group and how far it is
    Show(GroupPlace),
    /// Make a group, or change its settings
    Create {
        #[command(flatten)]
        place: GroupPlace,
        #[command(flatten)]
        settings: GroupSettings,
        /// Where a new group starts
        #[arg(long, value_parser = ["earliest", "latest"])]
        start: Option<String>,
    },
    /// Change settings of a group that exists
    Set {
        #[command(flatten)]
        place: GroupPlace,
        #[command(flatten)]
        settings: GroupSettings,
    },
    /// Remove a group with its retries and dead letters
    Delete(GroupPlace),
    /// Give nothing out until resumed
    Pause(GroupPlace),
    /// Give messages out again
    Resume(GroupPlace),
    /// Go on elsewhere
    Reset(ResetOptions),
    /// Show the offset of each partition, or commit offsets
    Offsets {
        #[command(flatten)]
        place: GroupPlace,
        /// Offset to commit, as often as needed
        #[arg(long, value_name = "PARTITION=OFFSET", value_parser = offset)]
        commit: Vec<(u16, u64)>,
    },
    /// Move what waits for a group to another topic
    Drain {
        #[command(flatten)]
        place: GroupPlace,
        /// Topic to move to
        #[arg(long)]
        to: String,
        /// At most so many messages
        #[arg(long, value_name = "N")]
        max: Option<u64>,
    },
}

/// What is not said stays as it is.
#[derive(Debug, Args)]
pub(crate) struct GroupSettings {
    /// Whether messages of one key are given out one after the other
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub(crate) ordered: Option<bool>,
    /// Waits between attempts, separated by commas: 10s,1m,10m
    #[arg(long, value_name = "DURATIONS", value_delimiter = ',', conflicts_with = "backoff")]
    pub(crate) ladder: Option<Vec<String>>,
    /// First of waits that double each time
    #[arg(long, value_name = "DURATION")]
    pub(crate) backoff: Option<String>,
    /// Longest of waits that double each time
    #[arg(long, value_name = "DURATION", requires = "backoff")]
    pub(crate) backoff_max: Option<String>,
    /// After how many failed attempts a message is a dead letter
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u64>,
    /// How long a message is with a consumer that names no time
    #[arg(long, value_name = "DURATION")]
    pub(crate) lease: Option<String>,
    /// Address to push messages to; empty to push no more
    #[arg(long, value_name = "URL")]
    pub(crate) push: Option<String>,
    /// Key to sign pushes with, given together with --push; better in the environment, since
    /// others can read the arguments of a process
    #[arg(long, env = "PUNCTUAL_PUSH_SECRET", hide_env_values = true, value_name = "KEY")]
    pub(crate) push_secret: Option<Secret>,
    /// Pushes under way at one time
    #[arg(long, value_name = "N")]
    pub(crate) push_concurrency: Option<u64>,
    /// How long one push may take
    #[arg(long, value_name = "DURATION")]
    pub(crate) push_timeout: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("where").required(true).args(["to", "time", "offsets"]))]
pub(crate) struct ResetOptions {
    #[command(flatten)]
    pub(crate) place: GroupPlace,
    /// To the oldest message still there, or past the newest
    #[arg(long, value_parser = ["earliest", "latest"])]
    pub(crate) to: Option<String>,
    /// To the first message that was delivered at this time or later
    #[arg(long)]
    pub(crate) time: Option<String>,
    /// To an offset, as often as needed
    #[arg(long = "offset", value_name = "PARTITION=OFFSET", value_parser = offset)]
    pub(crate) offsets: Vec<(u16, u64)>,
}

fn offset(text: &str) -> Result<(u16, u64), String> {
    let parts = text.split_once('=');
    let parsed = parts.and_then(|(partition, offset)| {
        Some((partition.trim().parse().ok()?, offset.trim().parse().ok()?))
    });
    parsed.ok_or_else(|| "an offset is written PARTITION=OFFSET, as 0=12".to_owned())
}
