//! Figures about the whole broker, and who makes it up.

use serde::Serialize;

/// The figures of the broker at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct StatsView {
    /// What its clock shows, as RFC 3339.
    pub now: String,
    /// When it was started, as RFC 3339.
    pub started_at: String,
    /// How long it has run: a duration.
    pub uptime: String,
    /// Its version.
    pub version: &'static str,
    /// Whether its clock is moved by hand.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
    /// How many topics there are.
    pub topic_count: u64,
    /// How many groups there are.
    pub group_count: u64,
    /// Messages that wait for their due time.
    pub pending: u64,
    /// Delivered messages that groups are not done with, each counted for each of its groups.
    pub lag: u64,
    /// Messages that are with consumers.
    pub in_flight: u64,
    /// Failed messages that wait for another attempt.
    pub retrying: u64,
    /// Messages in dead letter lists.
    pub dead_letters: u64,
    /// What was counted since the start.
    pub totals: TotalsView,
    /// How late messages were delivered since the start.
    pub lateness: LatencyView,
    /// How long flushes of the journal took since the start.
    pub journal_sync: LatencyView,
    /// Memory of the process, where the system tells.
    pub memory_bytes: Option<u64>,
    /// Bytes of the files that hold the data.
    pub store_bytes: u64,
    /// Who is connected.
    pub connections: ConnectionsView,
    /// The topics with the most pending messages.
    pub topics: Vec<TopicStatsView>,
    /// The groups that are furthest behind.
    pub groups: Vec<GroupStatsView>,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct TotalsView {
    /// Messages accepted.
    pub scheduled: u64,
    /// Messages whose due time came.
    pub fired: u64,
    /// Messages delivered.
    pub delivered: u64,
    /// Messages given to consumers, each attempt counted.
    pub received: u64,
    /// Messages that groups were done with.
    pub acked: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Missed messages that a catch-up policy withdrew.
    pub skipped: u64,
    /// Failed messages that came again.
    pub retried: u64,
    /// Messages that became dead letters.
    pub dead: u64,
}

/// How long something took; the figures are upper bounds, as close as the histogram tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyView {
    /// What half of them took at most, in milliseconds; nothing before there was one, and where
    /// it is more than the histogram knows.
    pub p50_ms: Option<f64>,
    /// What 99 of 100 took at most, in milliseconds.
    pub p99_ms: Option<f64>,
    /// How many there were.
    pub count: u64,
}

/// Who is connected.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ConnectionsView {
    /// How many are.
    pub open: u64,
    /// How many may be.
    pub max: u64,
}

/// The figures of a topic.
#[derive(Clone, Debug, Serialize)]
pub struct TopicStatsView {
    /// Its name.
    pub name: String,
    /// Messages that wait for their due time.
    pub pending: u64,
}

/// The figures of a group.
#[derive(Clone, Debug, Serialize)]
pub struct GroupStatsView {
    /// The topic it consumes.
    pub topic: String,
    /// Its name.
    pub name: String,
    /// Delivered messages that it is not done with.
    pub lag: u64,
    /// Messages that are with consumers.
    pub in_flight: u64,
    /// Failed messages that wait for another attempt.
    pub retrying: u64,
    /// Dead letters.
    pub dead: u64,
}

/// The machines that make up the broker.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterView {
    /// `single`: one machine has everything.
    pub mode: &'static str,
    /// The one that answers.
    pub node: String,
    /// All of them.
    pub nodes: Vec<NodeView>,
    /// What is divided among them.
    pub slots: SlotsView,
}

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its id.
    pub id: String,
    /// Where it answers.
    pub address: String,
    /// Its version.
    pub version: &'static str,
    /// When it was started, as RFC 3339.
    pub started_at: String,
    /// `up`.
    pub state: &'static str,
    /// How many slots it owns.
    pub slots: u64,
    /// Under which term it owns them.
    pub term: u64,
}

/// What is divided among the machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SlotsView {
    /// How many there are.
    pub total: u64,
    /// Those that nobody owns.
    pub unowned: u64,
}
