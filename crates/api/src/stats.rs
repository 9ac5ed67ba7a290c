//! Figures about the whole broker, and who makes it up.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::fields::Fields;

/// Most slots that a cluster may have.
pub const SLOTS_MAX: u32 = 65_536;

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
    /// What was counted since the first start.
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

/// The figures of the broker as they are sent once a second.
#[derive(Clone, Debug, Serialize)]
pub struct LiveView {
    /// What its clock shows, as RFC 3339.
    pub now: String,
    /// The machine that tells.
    pub node: String,
    /// How many topics there are.
    pub topic_count: u64,
    /// How many groups there are.
    pub group_count: u64,
    /// How many apps there are.
    pub app_count: u64,
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
    /// What was counted so far.
    pub totals: TotalsView,
    /// How much of it in a second, of late.
    pub rates: RatesView,
    /// How late messages were delivered in the last minute.
    pub lateness: LatencyView,
    /// Of what consumers were done with in the last minute, the part that did not fail; nothing if
    /// there was none.
    pub success_rate: Option<f64>,
    /// Memory of the process, where the system tells.
    pub memory_bytes: Option<u64>,
    /// Bytes of the files that hold the data.
    pub store_bytes: u64,
    /// Alerts that are on.
    pub alerts_firing: u64,
}

/// How much happens in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct RatesView {
    /// Messages accepted.
    pub scheduled: f64,
    /// Messages whose due time came.
    pub fired: f64,
    /// Messages delivered.
    pub delivered: f64,
    /// Messages given to consumers.
    pub received: f64,
    /// Messages that groups were done with.
    pub acked: f64,
    /// Messages cancelled.
    pub cancelled: f64,
    /// Missed messages that a catch-up policy withdrew.
    pub skipped: f64,
    /// Failed messages that came again.
    pub retried: f64,
    /// Messages that became dead letters.
    pub dead: f64,
}

/// What was counted since the broker was first started; restarts do not matter, and in a cluster all
/// nodes count.
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

/// How it went over time.
#[derive(Clone, Debug, Serialize)]
pub struct TrendsView {
    /// What one point covers: a duration.
    pub interval: &'static str,
    /// The oldest first.
    pub points: Vec<TrendPointView>,
}

/// What ten minutes brought, and how they ended. What was not asked for is left out, and so is what is
/// not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrendPointView {
    /// When they began, as RFC 3339.
    pub at: String,
    /// The figures by name.
    #[serde(flatten)]
    pub figures: BTreeMap<&'static str, TrendFigure>,
}

/// A figure of a point.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TrendFigure {
    /// A number of messages, bytes or whatever else is counted.
    Count(u64),
    /// Milliseconds.
    Millis(f64),
}

/// The machines that make up the broker.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterView {
    /// `single`: one machine has everything; `cluster`: several share it.
    pub mode: &'static str,
    /// The one that answers.
    pub node: String,
    /// The one that assigns slots, while there is one.
    pub leader: Option<String>,
    /// All that are there.
    pub nodes: Vec<NodeView>,
    /// Those that are gone without having left and are not back, as the one that answers has seen it.
    pub lost: Vec<NodeView>,
    /// What is divided among them.
    pub slots: SlotsView,
    /// Who has which, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assignment: Option<Vec<AssignedView>>,
    /// What the one that answers has in memory of the timeline.
    pub memory: MemoryView,
    /// What became of it, as the one that answers has seen it since it was started; newest first.
    pub history: Vec<EventView>,
}

/// Something that happened to the machines.
#[derive(Clone, Debug, Serialize)]
pub struct EventView {
    /// When it was seen, as RFC 3339.
    pub at: String,
    /// `joined`; `left` in order, or `lost`; `leader`; or `slots` for slots that have other owners.
    pub event: &'static str,
    /// The machine it is about.
    pub node: Option<String>,
    /// How many slots moved.
    pub slots: u64,
}

/// A slot and who has it.
#[derive(Clone, Debug, Serialize)]
pub struct AssignedView {
    /// Its number.
    pub slot: u32,
    /// The id of the machine that owns it; nothing while nobody does.
    pub owner: Option<String>,
    /// Under which term.
    pub term: u64,
    /// Who is to have it next, while it moves.
    pub next: Option<String>,
}

/// What a machine has in memory of the timeline.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryView {
    /// Slots that it works with.
    pub slots: u64,
    /// Entries: those that came last, or in a cluster those that are due soon.
    pub entries: u64,
    /// Bytes of their messages.
    pub bytes: u64,
    /// Everything due before this time is in memory, as RFC 3339; in a cluster, with a slot.
    pub frontier: Option<String>,
}

/// A machine.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its id.
    pub id: String,
    /// Where it answers.
    pub address: String,
    /// Its version.
    pub version: String,
    /// When it was started, as RFC 3339.
    pub started_at: String,
    /// `up` or `lost`.
    pub state: &'static str,
    /// How many slots it owns.
    pub slots: u64,
    /// The highest term under which it owns one.
    pub term: u64,
}

/// What is divided among the machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SlotsView {
    /// How many there are.
    pub total: u64,
    /// How many were asked for.
    pub wanted: u64,
    /// Those that nobody owns.
    pub unowned: u64,
    /// Those on their way from one machine to another.
    pub moving: u64,
    /// Those that end when nothing is pending in them any more.
    pub retired: u64,
}

/// What a change of the cluster asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterAsked {
    /// How many slots there are to be.
    pub slots: u32,
}

impl ClusterAsked {
    /// Reads the change from JSON.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &[u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let slots = fields.take_whole("slots")?;
        fields.end()?;
        let slots = slots.and_then(|slots| u32::try_from(slots).ok());
        let slots = slots.filter(|slots| (1..=SLOTS_MAX).contains(slots));
        let refused = || {
            Problem::new(
                Code::InvalidField,
                format!("slots is a whole number from 1 to {SLOTS_MAX}"),
            )
        };
        Ok(Self { slots: slots.ok_or_else(refused)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_the_cluster_names_a_number_of_slots() {
        let read = |json: &str| ClusterAsked::read(json.as_bytes(), 8);
        assert_eq!(read("{\"slots\": 65536}"), Ok(ClusterAsked { slots: 65_536 }));
        for json in
            ["{}", "{\"slots\":0}", "{\"slots\":65537}", "{\"slots\":\"8\"}", "{\"nodes\":1}", "[]"]
        {
            assert!(read(json).is_err(), "{json}");
        }
    }
}
