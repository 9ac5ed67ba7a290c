//! Arguments of the commands about the server as a whole, and of those that need none.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Commands that work on the command line itself.
#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    /// Print completions for a shell: `punctual completions bash > punctual.bash`
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write a page for every command
    Man {
        /// Directory to write the pages to
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ReadOptions {
    /// Topic to read
    pub(crate) topic: String,
    /// Partition to read
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) partition: u16,
    /// Offset to start from
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) offset: u64,
    /// At most so many
    #[arg(long, default_value_t = 100)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Print one frame as text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// What topics and groups are sorted by; `s` changes it
    #[arg(long, value_enum, default_value_t = TopOrder::Pending)]
    pub(crate) sort: TopOrder,
}

/// What the topics of a live view are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopOrder {
    /// Most pending first
    #[default]
    Pending,
    /// Largest backlog first
    Backlog,
    /// By name
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Show the nodes, and what each of them has
    Show {
        /// Show who has which slot
        #[arg(long)]
        slots: bool,
    },
    /// Change the cluster while it runs
    Set {
        /// Number of slots, 1 to 65536; those past it end when nothing is pending in them any more
        #[arg(long, value_name = "N")]
        slots: u64,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TimeCommand {
    /// Show what time it is for the server
    Show,
    /// Move virtual time on: `punctual time advance 30d`
    Advance {
        /// How far
        #[arg(value_name = "DURATION")]
        by: String,
    },
    /// Move virtual time to a later moment
    Set {
        /// When
        #[arg(value_name = "TIME")]
        to: String,
    },
}
