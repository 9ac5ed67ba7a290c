//! What can be written on the command line.

mod consume;
mod groups;
mod dead;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(crate) use consume::{ConsumeOptions, ReceiveOptions};
pub(crate) use dead::{DeadCommand, DeadFilter, DeadListOptions, PurgeOptions, RedriveOptions};
pub(crate) use groups::{GroupPlace, GroupSettings, GroupsCommand, ResetOptions};

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
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    /// Send a message, now or later
    Send(SendOptions),
    /// Show a message
    Get {
        /// Id of the message
        id: String,
    },
    /// Cancel messages that were not delivered yet
    Cancel {
        /// Ids of the messages
        #[arg(required = true)]
        ids: Vec<String>,
    },
    /// List pending messages, soonest first
    List(ListOptions),
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
    /// Messages with the same key keep their order
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Header of the message, as often as needed
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    pub(crate) headers: Vec<(String, String)>,
    /// Partition to send to
    #[arg(long)]
    pub(crate) partition: Option<u16>,
    /// How long after its due time it may still be given to a group: 30s, 1h
    #[arg(long, value_name = "DURATION")]
    pub(crate) ttl: Option<String>,
    /// After how many failed attempts it is a dead letter
    #[arg(long, value_name = "N")]
    pub(crate) max_attempts: Option<u64>,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a header is written NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    /// Topic to list
    pub(crate) topic: String,
    /// Only messages due at this time or later
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Only messages due before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Only messages with this key
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
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
}
