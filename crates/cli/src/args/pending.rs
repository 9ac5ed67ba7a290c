//! Arguments of the commands about messages that are still to come.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

#[derive(Debug, Args)]
pub(crate) struct SendOptions {
    /// Topic to send to
    pub(crate) topic: String,
    /// Body of the message; `-`, or nothing in a pipe, reads it from standard input
    pub(crate) body: Option<String>,
    /// Deliver after this long: 30s, 1h30m, 40d
    #[arg(long, group = "when", allow_hyphen_values = true)]
    pub(crate) delay: Option<String>,
    /// Deliver at this time: RFC 3339, or epoch milliseconds
    #[arg(long, group = "when", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,
    /// Deliver after the delay of this level, 1 to 18
    #[arg(long, group = "when", value_name = "N")]
    pub(crate) level: Option<u64>,
    #[command(flatten)]
    pub(crate) repeat: RepeatOptions,
    /// Messages with the same key keep their order
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Header of the message, as often as needed
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Partition to send to
    #[arg(long)]
    pub(crate) partition: Option<u16>,
    /// An id of your own, unique in the topic: sent again, the message is not stored again
    #[arg(long, value_name = "OWN_ID")]
    pub(crate) id: Option<String>,
    /// Take the place of a pending message of that id
    #[arg(long, requires = "id")]
    pub(crate) replace: bool,
    /// How long after its due time it may still be given to a group: 30s, 1h
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
    /// After how many failed attempts it is a dead letter
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u64>,
    /// What becomes of it if it is missed while the server is down: all, latest, spread:10m or
    /// skip_older_than:1h
    #[arg(long, value_name = "HOW", value_parser = catch_up)]
    pub(crate) catch_up: Option<Value>,
}

/// When a message comes round.
#[derive(Debug, Args)]
pub(crate) struct RepeatOptions {
    /// Deliver again and again after this long: 10m
    #[arg(long, group = "rule", value_name = "DURATION")]
    pub(crate) every: Option<String>,
    /// Deliver at the times of this expression: 5 fields, or 6 with seconds first
    #[arg(long, group = "rule", value_name = "EXPRESSION")]
    pub(crate) cron: Option<String>,
    /// Time zone of the expression [default: UTC]
    #[arg(long, requires = "cron", value_name = "ZONE")]
    pub(crate) tz: Option<String>,
    /// So many times
    #[arg(long, requires = "rule", value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Not later than this
    #[arg(long, requires = "rule", value_name = "TIME")]
    pub(crate) until: Option<String>,
}

pub(super) fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a header is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A policy as the API takes it.
pub(crate) fn catch_up(text: &str) -> Result<Value, String> {
    match text.split_once(':') {
        None if matches!(text, "all" | "latest") => Ok(text.into()),
        Some((name @ ("spread" | "skip_older_than"), span)) => Ok(json!({ name: span })),
        _ => Err("write all, latest, spread:DURATION or skip_older_than:DURATION".to_owned()),
    }
}

/// Which message.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// Id of the message
    pub(crate) id: String,
    /// Topic of the message, if this is an id that its sender gave it
    #[arg(long)]
    pub(crate) topic: Option<String>,
}

/// A time for a message.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct TimeOptions {
    /// After this long: 30s, 1h30m, 40d
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) delay: Option<String>,
    /// At this time: RFC 3339, or epoch milliseconds
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,
    /// After the delay of this level, 1 to 18
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<u64>,
}

/// Which pending messages.
#[derive(Debug, Args)]
pub(crate) struct PendingFilter {
    /// Only messages due at this time or later
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Only messages due before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Only messages with this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Only messages with a key that begins so
    #[arg(long, value_name = "TEXT")]
    pub(crate) key_prefix: Option<String>,
    /// Only messages that the app of this key has sent
    #[arg(long, value_name = "KEY")]
    pub(crate) app: Option<String>,
    /// Messages in this state
    #[arg(long, value_parser = ["scheduled", "paused"])]
    pub(crate) state: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Topic to list
    pub(crate) topic: String,
    #[command(flatten)]
    pub(crate) filter: PendingFilter,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BulkCommand {
    /// Cancel them
    Cancel(BulkOptions),
    /// Give them another time
    Reschedule {
        #[command(flatten)]
        options: BulkOptions,
        /// After this long: 30s, 1h30m, 40d
        #[arg(long, group = "time")]
        delay: Option<String>,
        /// At this time: RFC 3339, or epoch milliseconds
        #[arg(long, group = "time", value_name = "TIME")]
        at: Option<String>,
        /// Later by so much, or earlier with a minus sign: 10m, -10m
        #[arg(
            long,
            group = "time",
            value_name = "DURATION",
            allow_hyphen_values = true,
            required_unless_present_any = ["delay", "at"]
        )]
        shift: Option<String>,
    },
    /// Deliver them now
    DeliverNow(BulkOptions),
    /// Stop their countdown
    Pause(BulkOptions),
    /// Let their countdown go on
    Resume(BulkOptions),
}

#[derive(Debug, Args)]
pub(crate) struct BulkOptions {
    /// The topic
    pub(crate) topic: String,
    #[command(flatten)]
    pub(crate) filter: PendingFilter,
    /// Really all of them, if nothing else is said
    #[arg(long)]
    pub(crate) all: bool,
    /// Only count them
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LevelsCommand {
    /// Show the delay of each level
    List,
    /// Change delays
    Set {
        /// Level and delay
        #[arg(required = true, value_name = "LEVEL=DURATION", value_parser = level)]
        levels: Vec<(usize, String)>,
    },
}

fn level(text: &str) -> Result<(usize, String), String> {
    let written = "a level is written LEVEL=DURATION, as in 3=15s";
    let (level, delay) = text.split_once('=').ok_or(written)?;
    let level = level.parse().map_err(|_not_a_number| written)?;
    Ok((level, delay.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    #[command(flatten)]
    pub(crate) transfer: TransferOptions,
    /// Go on where an export broke off, as its error said
    #[arg(long)]
    pub(crate) cursor: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TransferOptions {
    /// The topic
    pub(crate) topic: String,
    /// A file, instead of a pipe
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<std::path::PathBuf>,
}
