//! Arguments of the commands about transactions.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum TransactionsCommand {
    /// List transactions
    List {
        /// Only those in this state
        #[arg(long, value_parser = ["prepared", "committed", "rolled_back", "unresolved"])]
        state: Option<String>,
        /// Only those of this producer group
        #[arg(long, value_name = "GROUP")]
        producer_group: Option<String>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Prepare a transaction: its messages wait until it is committed
    Create(PrepareOptions),
    /// Show a transaction
    Show {
        /// Its id
        id: String,
    },
    /// Let its messages go
    Commit(Decision),
    /// Drop its messages
    Rollback(Decision),
    /// Ask its producers again
    Resume(Decision),
}

/// A decision about a transaction, by hand.
#[derive(Debug, Args)]
pub(crate) struct Decision {
    /// Id of the transaction
    pub(crate) id: String,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PrepareOptions {
    /// Producers that are asked when nothing is decided
    #[arg(long, value_name = "GROUP")]
    pub(crate) producer_group: String,
    /// Message of the transaction, as often as needed
    #[arg(long = "message", required = true, value_name = "TOPIC=BODY", value_parser = half)]
    pub(crate) messages: Vec<(String, String)>,
    /// Key of the messages
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// Deliver so long after the commit: 30s, 1h30m, 40d
    #[arg(long, group = "when", allow_hyphen_values = true)]
    pub(crate) delay: Option<String>,
    /// Deliver at this time: RFC 3339, or epoch milliseconds
    #[arg(long, group = "when", value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) at: Option<String>,
    /// Deliver so long after the commit as this level says, 1 to 18
    #[arg(long, group = "when", value_name = "N")]
    pub(crate) level: Option<u64>,
    /// From when the delay counts
    #[arg(long, value_parser = ["commit", "send"], requires = "when")]
    pub(crate) delay_from: Option<String>,
}

fn half(text: &str) -> Result<(String, String), String> {
    let (topic, body) = text.split_once('=').ok_or("a message is written TOPIC=BODY")?;
    Ok((topic.to_owned(), body.to_owned()))
}
