//! What can be written on the command line.

mod connection;
mod consume;
mod groups;
mod dead;
mod pending;
mod transactions;
mod topics;
mod apps;
mod admin;
mod bench;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use admin::{ClusterCommand, Generate, ReadOptions, TimeCommand, TopOptions, TopOrder};
pub(crate) use apps::{AppSettings, AppsCommand};
pub(crate) use bench::BenchOptions;
pub(crate) use connection::{ClientOptions, TlsOptions};
pub(crate) use consume::{ConsumeOptions, ExtendOptions, NackOptions, Receipts, ReceiveOptions};
pub(crate) use dead::{DeadCommand, DeadFilter, DeadListOptions, PurgeOptions, RedriveOptions};
pub(crate) use groups::{GroupPlace, GroupSettings, GroupsCommand, ResetOptions};
pub(crate) use pending::{
    BulkCommand, BulkOptions, ExportOptions, LevelsCommand, ListOptions, PendingFilter, Place,
    RepeatOptions, SendOptions, TimeOptions, TransferOptions,
};
pub(crate) use topics::{TopicSettings, TopicsCommand};
pub(crate) use transactions::{Decision, PrepareOptions, TransactionsCommand};

const EXIT_CODES: &str = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage.";

/// A message broker that keeps time.
#[derive(Debug, Parser)]
#[command(name = "punctual", version, about, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) client: ClientOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
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
    Generate(Generate),
    #[command(flatten)]
    Client(Box<ClientCommand>),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show the configuration the server would run with, and where each value comes from
    Print(ServeOptions),
    /// Say whether a configuration file is good
    Check {
        /// The file (TOML)
        file: PathBuf,
    },
    /// Print the page about all keys, in Markdown
    Reference,
}

/// Settings of the server; each wins over the environment, and that over the file.
#[derive(Clone, Debug, Args)]
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
    /// Address of the listener for Kafka clients, or off [default: 127.0.0.1:9092]
    #[arg(long, value_name = "ADDR|off")]
    pub(crate) kafka: Option<String>,
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
        command: Option<LevelsCommand>,
    },
    /// Work with transactions
    Transactions {
        #[command(subcommand)]
        command: Option<TransactionsCommand>,
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
    /// Be done with messages that were received
    Ack(Receipts),
    /// Give back messages that were received: they come again, or are dead letters
    Nack(NackOptions),
    /// Keep messages that were received for longer
    Extend(ExtendOptions),
    /// Receive messages for a group until interrupted, and print them or run a command for each
    Consume(ConsumeOptions),
    /// Work with topics
    Topics {
        #[command(subcommand)]
        command: Option<TopicsCommand>,
    },
    /// Work with groups of consumers
    Groups {
        #[command(subcommand)]
        command: Option<GroupsCommand>,
    },
    /// Work with messages that a group has given up
    Dead {
        #[command(subcommand)]
        command: DeadCommand,
    },
    /// Read delivered messages by their offset, without a group
    Read(ReadOptions),
    /// Work with apps: who may do what, and how much
    Apps {
        #[command(subcommand)]
        command: Option<AppsCommand>,
    },
    /// Show the nodes of the cluster, or change into how many slots work is divided
    Cluster {
        #[command(subcommand)]
        command: Option<ClusterCommand>,
    },
    /// Show figures of the server
    Stats,
    /// Measure how fast the server takes messages, and gives them out
    Bench(BenchOptions),
    /// Watch the server: rates, what is pending, lateness, topics and groups
    Top(TopOptions),
    /// Show the time of the server, or move it where it is virtual
    Time {
        #[command(subcommand)]
        command: Option<TimeCommand>,
    },
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
