//! What can be written on the command line.

mod cluster;
mod kafka;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use punctual_engine::Durability;

pub(crate) use self::cluster::ClusterOptions;
#[cfg(feature = "cluster")]
pub(crate) use self::cluster::StoreOptions;
pub(crate) use self::kafka::{KafkaOptions, KafkaPart, SendFileOptions, SendingWord};
use crate::measure::Surroundings;

/// Load scenarios for Punctual.
#[derive(Debug, Parser)]
#[command(name = "punctual-bench", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
}

/// What every scenario takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Where a fresh data directory is made [default: the directory for temporary files]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// Leave the data directory where it is
    #[arg(long, global = true)]
    pub(crate) keep: bool,
    /// Where the figures and pictures go
    #[arg(long, global = true, value_name = "DIR", default_value = "bench/out")]
    pub(crate) out: PathBuf,
    /// When a change counts as safe
    #[arg(long, global = true, value_enum, default_value = "fsync")]
    pub(crate) durability: DurabilityWord,
    /// How busy the machine was at the start
    #[arg(skip)]
    pub(crate) start: Surroundings,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DurabilityWord {
    /// On disk, survives a loss of power
    Fsync,
    /// Written, and synced within 100 ms
    Interval,
    /// Written
    Os,
}

impl DurabilityWord {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Fsync => "fsync",
            Self::Interval => "interval",
            Self::Os => "os",
        }
    }
}

impl From<DurabilityWord> for Durability {
    fn from(word: DurabilityWord) -> Self {
        match word {
            DurabilityWord::Fsync => Self::Fsync,
            DurabilityWord::Interval => Self::Interval(Duration::from_millis(100)),
            DurabilityWord::Os => Self::Os,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Scenario {
    /// Durable batched scheduling, with more and more pending
    Schedule(ScheduleOptions),
    /// From the start of the process to the first delivery, after a clean stop and after SIGKILL
    Restart(RestartOptions),
    #[command(hide = true)]
    RestartFill(FillOptions),
    #[command(hide = true)]
    RestartProbe(ProbeOptions),
    /// How late messages are appended to the log at a steady rate
    Lateness(LatenessOptions),
    /// Many messages due in the same millisecond
    Herd(HerdOptions),
    /// Durable batched cancelling, of ids that are pending and of ids that are not
    Cancel(CancelOptions),
    /// The first page of any window, and how much is due when, with very many pending
    List(ListOptions),
    /// What it costs to give every message a name, and whether names are known again
    OwnIds(OwnIdsOptions),
    /// The server over loopback: one by one, and in batches
    Http(HttpOptions),
    /// Streaming sends over gRPC, in batches of several sizes
    Grpc(GrpcOptions),
    /// The Rust client: sends one by one and in batches, and consumes
    Sdk(SdkOptions),
    /// Cancels, moves and pauses in the moment in which messages fall due: is it always one or
    /// the other?
    Races(RacesOptions),
    /// A backlog consumed over HTTP: receive and ack in batches
    Consume(ConsumeOptions),
    /// From due to in the hands of a consumer that waits over HTTP
    EndToEnd(EndToEndOptions),
    /// Several groups consume everything: is anything lost or given out twice?
    Groups(GroupsOptions),
    /// How late messages are while very many failed ones wait, and come due at once
    Retries(RetriesOptions),
    /// What it takes to remember acks that leave gaps
    AckedSet(AckedSetOptions),
    /// What a well-behaved client notices of clients that mean no good
    Hostile(HostileOptions),
    /// The Kafka listener: records going out beside a bare sender of the same file, and coming in
    Kafka(KafkaOptions),
    #[command(hide = true)]
    SendFile(SendFileOptions),
    /// A cluster that is running: schedules over one node and all, and how fast and late they are in Kafka
    Cluster(ClusterOptions),
    /// What MySQL or MariaDB takes of slots, beside plain inserts of the same bytes
    #[cfg(feature = "cluster")]
    Store(StoreOptions),
    /// Every scenario, one after the other
    All(AllOptions),
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LoadOptions {
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    /// Messages of each batch
    #[arg(long, default_value = "8192", value_parser = size)]
    pub(crate) batch: usize,
    /// Threads that send
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) producers: usize,
    /// Batches each thread keeps on their way at once
    #[arg(long, default_value = "4", value_parser = size)]
    pub(crate) in_flight: usize,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScheduleOptions {
    /// Messages to schedule, due at random over 40 days
    #[arg(long, default_value = "50M", value_parser = count)]
    pub(crate) pending: u64,
    /// Give up after this many seconds
    #[arg(long, default_value = "900")]
    pub(crate) secs_max: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RestartOptions {
    /// Messages to fill a fresh directory with
    #[arg(long, default_value = "10M", value_parser = count)]
    pub(crate) pending: u64,
    /// Take this directory, left by `schedule --keep`, instead of filling a fresh one
    #[arg(long, value_name = "DIR")]
    pub(crate) existing: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct FillOptions {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long, value_parser = count)]
    pub(crate) pending: u64,
    /// Go on filling until killed
    #[arg(long)]
    pub(crate) restless: bool,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ProbeOptions {
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// Wall clock right before the process was started, in microseconds
    #[arg(long)]
    pub(crate) started_micros: u64,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LatenessOptions {
    /// Messages that fall due each second
    #[arg(long, default_value = "20k", value_parser = count)]
    pub(crate) rate: u64,
    /// For how many seconds
    #[arg(long, default_value = "60")]
    pub(crate) secs: u64,
    /// Durable schedules each second at the same time
    #[arg(long, default_value = "0", value_parser = count)]
    pub(crate) background_schedule: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct HerdOptions {
    /// Messages due in the same millisecond
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) count: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct CancelOptions {
    /// Messages pending before the first cancel
    #[arg(long, default_value = "10M", value_parser = count)]
    pub(crate) pending: u64,
    /// Ids of each kind
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) cancels: u64,
    /// Ids of each cancel
    #[arg(long, default_value = "1000", value_parser = size)]
    pub(crate) ids: usize,
    /// Seconds for each kind at most; a kind that is not through by then shows fewer ids
    #[arg(long, default_value = "30")]
    pub(crate) secs_max: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ListOptions {
    /// Messages pending, due at random over 40 days
    #[arg(long, default_value = "50M", value_parser = count)]
    pub(crate) pending: u64,
    /// Pages and forecasts asked for each time
    #[arg(long, default_value = "2000", value_parser = count)]
    pub(crate) questions: u64,
    /// Messages of each page
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OwnIdsOptions {
    /// Messages to schedule without and then with own ids, due at random over 40 days
    #[arg(long, default_value = "10M", value_parser = count)]
    pub(crate) pending: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HttpOptions {
    /// Keep-alive connections
    #[arg(long, default_value = "64", value_parser = size)]
    pub(crate) connections: usize,
    /// Threads that share the connections
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) threads: usize,
    /// Seconds of each mode
    #[arg(long, default_value = "10")]
    pub(crate) secs: u64,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    /// Messages of each batch in the second mode
    #[arg(long, default_value = "1000", value_parser = size)]
    pub(crate) batch: usize,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GrpcOptions {
    /// Streams, each on a connection of its own
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) streams: usize,
    /// Threads that share the streams
    #[arg(long, default_value = "1", value_parser = size)]
    pub(crate) threads: usize,
    /// Batches under way on each stream
    #[arg(long, default_value = "32", value_parser = size)]
    pub(crate) under_way: usize,
    /// Seconds of each size
    #[arg(long, default_value = "10")]
    pub(crate) secs: u64,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    /// Messages of each batch
    #[arg(long, default_value = "1,10,100,1000", value_parser = size, value_delimiter = ',')]
    pub(crate) batches: Vec<usize>,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SdkOptions {
    /// Tasks that send one by one, and handlers that consume at the same time
    #[arg(long, default_value = "256", value_parser = size)]
    pub(crate) tasks: usize,
    /// Messages of each batch
    #[arg(long, default_value = "1000", value_parser = size)]
    pub(crate) batch: usize,
    /// Seconds of each way of sending
    #[arg(long, default_value = "10")]
    pub(crate) secs: u64,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    /// Messages to consume
    #[arg(long, default_value = "500k", value_parser = count)]
    pub(crate) messages: u64,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RacesOptions {
    /// Messages that are cancelled; a fifth as many are moved, and a fifth as many paused
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) messages: u64,
    /// Keep-alive connections
    #[arg(long, default_value = "16", value_parser = size)]
    pub(crate) connections: usize,
    /// Messages that fall due each second at most; fewer where answers come too slowly for the
    /// window
    #[arg(long, default_value = "10k", value_parser = positive)]
    pub(crate) rate: u64,
    /// How far from its due time something is tried with a message at most, in milliseconds
    #[arg(long, default_value = "5")]
    pub(crate) window_ms: u64,
    /// Of how many in a hundred messages several connections try the same at the same time
    #[arg(long, default_value = "5")]
    pub(crate) contested: u64,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct HostileOptions {
    /// Seconds of watching before and during each attack; idle connections end after ten
    #[arg(long, default_value = "8")]
    pub(crate) secs: u64,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

/// Which server to run.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ServerOptions {
    /// The server [default: `punctual` beside this program]
    #[arg(long, value_name = "FILE")]
    pub(crate) binary: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ConsumeOptions {
    /// Messages that are there before the first receive
    #[arg(long, default_value = "2M", value_parser = count)]
    pub(crate) messages: u64,
    /// Keep-alive connections that consume
    #[arg(long, default_value = "8", value_parser = size)]
    pub(crate) consumers: usize,
    /// Threads that share the connections
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) threads: usize,
    /// Messages of each receive, and receipts of each ack; at most 1000
    #[arg(long, default_value = "1000", value_parser = size)]
    pub(crate) max: usize,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EndToEndOptions {
    /// Messages that fall due each second
    #[arg(long, default_value = "5k", value_parser = count)]
    pub(crate) rate: u64,
    /// For how many seconds
    #[arg(long, default_value = "30")]
    pub(crate) secs: u64,
    /// Connections that wait for messages
    #[arg(long, default_value = "4", value_parser = size)]
    pub(crate) consumers: usize,
    /// Messages of each receive at most
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) max: usize,
    /// Bytes of each body
    #[arg(long, default_value = "100", value_parser = size)]
    pub(crate) body: usize,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct GroupsOptions {
    /// Messages that every group gets
    #[arg(long, default_value = "10M", value_parser = count)]
    pub(crate) messages: u64,
    /// Groups, all of one topic
    #[arg(long, default_value = "4", value_parser = size)]
    pub(crate) groups: usize,
    /// Threads that consume for each group
    #[arg(long, default_value = "2", value_parser = size)]
    pub(crate) consumers: usize,
    /// Messages taken, and acked, at once; at most 1000
    #[arg(long, default_value = "1000", value_parser = size)]
    pub(crate) max: usize,
    /// Give up after this many seconds
    #[arg(long, default_value = "900")]
    pub(crate) secs_max: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct RetriesOptions {
    /// Messages that fall due each second, whose lateness counts
    #[arg(long, default_value = "2k", value_parser = count)]
    pub(crate) rate: u64,
    /// For how many seconds each time
    #[arg(long, default_value = "20")]
    pub(crate) secs: u64,
    /// Failed messages that wait, and then come due in the same second
    #[arg(long, default_value = "1M", value_parser = count)]
    pub(crate) retries: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct AckedSetOptions {
    /// Messages of which every other one is acked, but never the first
    #[arg(long, default_value = "20M", value_parser = count)]
    pub(crate) messages: u64,
    #[command(flatten)]
    pub(crate) load: LoadOptions,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct AllOptions {
    /// Small versions, about two minutes in all
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) server: ServerOptions,
}

/// Reads `5000`, `20k` or `50M`.
fn count(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().map_err(|_not_digits| "write for example 5000, 20k or 50M")?;
    number.checked_mul(unit).ok_or_else(|| "too many".to_owned())
}

/// A count that is at least one.
fn positive(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err("at least 1".to_owned()),
        count => Ok(count),
    }
}

/// A size that is at least one.
fn size(text: &str) -> Result<usize, String> {
    usize::try_from(positive(text)?).map_err(|_too_large| "too many".to_owned())
}
