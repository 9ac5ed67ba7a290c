//! What can be written on the command line.

mod consume;
mod groups;
mod dead;
mod pending;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use consume::{ConsumeOptions, ReceiveOptions};
pub(crate) use dead::{DeadCommand, DeadFilter, DeadListOptions, PurgeOptions, RedriveOptions};
pub(crate) use groups::{GroupPlace, GroupSettings, GroupsCommand, ResetOptions};
pub(crate) use pending::{
    BulkCommand, BulkOptions, Decision, ExportOptions, LevelsCommand, ListOptions, PendingFilter,
    Place, RepeatOptions, SendOptions, TimeOptions, TransactionsCommand, TransferOptions,
};

/// A message broker that keeps time.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, about, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) client: ClientOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every client command takes.
#[derive(Debug, Args)]
pub(crate) struct ClientOptions {
    /// Address of the server
    #[arg(long, global = true, env = "PUNCTUAL_SERVER", default_value = "http://127.0.0.1:7070")]
    pub(crate) server: String,
    /// Print one JSON object per line, with the field names of the HTTP API
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server
    Serve(ServeOptions),
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the configuration the server would run with
    Print(ServeOptions),
}

/// Settings of the server; each wins over the environment, and that over the file.
#[derive(Debug, Args)]
pub(crate) struct ServeOptions {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Directory of the data [default: ./punctual-data]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<String>,
    /// Address of the HTTP listener [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<String>,
    /// When a message is on disk: fsync, interval or os [default: fsync]
    #[arg(long, value_name = "HOW")]
    pub(crate) durability: Option<String>,
    /// Let time stand still until it is moved by hand, beginning now or at TIME: for trying out
    /// flows that take days; the default of --durability is os then
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true,
          default_missing_value = "now")]
    pub(crate) virtual_time: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Send a message, now or later
    Send(SendOptions),
    /// Show a message
    Get(Place),
    /// Cancel messages, or series of them, that were not delivered yet
    Cancel {
        /// Ids of the messages
        #[arg(required = true)]
        ids: Vec<String>,
        /// Topic of the messages, if these are ids that their sender gave them
        #[arg(long)]
        topic: Option<String>,
    },
    /// Give a pending message another time
    Reschedule {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        time: TimeOptions,
    },
    /// Stop the countdown of a message
    Pause(Place),
    /// Let the countdown of a paused message go on
    Resume(Place),
    /// Deliver a pending message now
    DeliverNow(Place),
    /// List pending messages, soonest first
    List(ListOptions),
    /// Change many pending messages at once
    Bulk {
        #[command(subcommand)]
        command: BulkCommand,
    },
    /// Show how much is due when, in a topic or in all
    Forecast {
        /// The topic
        topic: Option<String>,
    },
    /// List messages that come round
    Series {
        /// The topic
        topic: String,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Work with the delay levels
    Levels {
        #[command(subcommand)]
        command: LevelsCommand,
    },
    /// Work with transactions
    Transactions {
        #[command(subcommand)]
        command: TransactionsCommand,
    },
    /// Write the pending messages of a topic as lines of JSON
    Export(ExportOptions),
    /// Take over pending messages from lines of JSON
    Import(TransferOptions),
    /// Show who changed what, the latest first
    Audit {
        /// Only of this topic
        #[arg(long)]
        topic: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Receive messages for a group
    Receive(ReceiveOptions),
    /// Receive messages for a group until interrupted, and print them or run a command for each
    Consume(ConsumeOptions),
    /// Work with topics
    Topics {
        #[command(subcommand)]
        command: TopicsCommand,
    },
    /// Work with groups of consumers
    Groups {
        #[command(subcommand)]
        command: GroupsCommand,
    },
    /// Work with messages that a group has given up
    Dead {
        #[command(subcommand)]
        command: DeadCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TopicsCommand {
    /// List all topics
    List,
    /// Show a topic
    Show {
        /// Its name
        topic: String,
    },
    /// Make a topic, or change its settings
    Create {
        /// Its name
        topic: String,
        #[command(flatten)]
        settings: TopicSettings,
    },
    /// Change settings of a topic that exists
    Set {
        /// Its name
        topic: String,
        #[command(flatten)]
        settings: TopicSettings,
    },
    /// Remove a topic with everything in it
    Delete {
        /// Its name
        topic: String,
    },
}

/// What is not said stays as it is.
#[derive(Debug, Args)]
pub(crate) struct TopicSettings {
    /// Number of partitions
    #[arg(long)]
    pub(crate) partitions: Option<u16>,
    /// How long delivered messages are kept: 7d, or forever
    #[arg(long, value_name = "DURATION")]
    pub(crate) retention: Option<String>,
    /// How many bytes of delivered messages each partition keeps, or forever
    #[arg(long, value_name = "BYTES")]
    pub(crate) retention_bytes: Option<String>,
    /// How long after its due time a message may be given to a group: 1h, or forever
    #[arg(long, value_name = "DURATION")]
    pub(crate) default_ttl: Option<String>,
    /// How many messages may wait for a group, or none for no bound
    #[arg(long, value_name = "N")]
    pub(crate) max_backlog: Option<String>,
    /// How many bytes may wait for a group
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_backlog_bytes: Option<u64>,
    /// What happens past that
    #[arg(long, value_parser = ["refuse", "drop_oldest", "dead_letter_newest"])]
    pub(crate) overflow: Option<String>,
    /// The longest delay: 1h, or none for that of the server
    #[arg(long, value_name = "DURATION")]
    pub(crate) max_delay: Option<String>,
    /// How many messages fire in a second at most, or none
    #[arg(long, value_name = "N")]
    pub(crate) rate_cap: Option<String>,
    /// Each message comes up to this much later, at random: 30s, or none
    #[arg(long, value_name = "DURATION")]
    pub(crate) jitter: Option<String>,
    /// What becomes of messages missed while the server was down: all, latest, spread:10m or
    /// skip_older_than:1h
    #[arg(long, value_name = "HOW", value_parser = pending::catch_up)]
    pub(crate) catch_up: Option<serde_json::Value>,
    /// Whether deliveries are held back
    #[arg(long)]
    pub(crate) paused: Option<bool>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_message_is_due_in_one_way() {
        let both = ["punctual", "send", "t", "x", "--delay", "1s", "--at", "5"];
        assert_eq!(Arguments::try_parse_from(both).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn what_becomes_of_missed_messages_is_written_in_a_word() {
        assert_eq!(pending::catch_up("latest"), Ok("latest".into()));
        assert_eq!(pending::catch_up("spread:10m"), Ok(serde_json::json!({"spread": "10m"})));
        assert!(pending::catch_up("sometimes").is_err());
    }
}
