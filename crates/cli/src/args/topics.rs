//! Arguments of the commands about topics.

use clap::{Args, Subcommand};

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
    #[arg(long, value_name = "HOW", value_parser = super::pending::catch_up)]
    pub(crate) catch_up: Option<serde_json::Value>,
    /// Whether deliveries are held back
    #[arg(long)]
    pub(crate) paused: Option<bool>,
}
