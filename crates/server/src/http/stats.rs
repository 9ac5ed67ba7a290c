//! Figures of the whole broker in one answer.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use punctual_api::Problem;
use punctual_api::request::Parameters;
use punctual_api::stats::{
    ConnectionsView, GroupStatsView, LatencyView, StatsView, TopicStatsView, TotalsView,
};
use punctual_broker::Stats;
use punctual_broker::group::GroupLag;
use punctual_model::{Buckets, Span, TopicName};

use crate::http::call::Call;
use crate::http::problem::of_broken_off;
use crate::http::reply::{Reply, large_json};
use crate::http::shared::Shared;
use crate::http::topics::is_shown;
use crate::machine;
use crate::trends::MessageCounts;

/// Topics and groups that are named, if nothing is said, and at most.
const NAMED_DEFAULT: usize = 20;
const NAMED_MAX: u64 = 1000;
/// What was looked at.
pub(crate) struct Looked {
    pub(crate) stats: Stats,
    pub(crate) topics: u64,
    pub(crate) lags: Vec<GroupLag>,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) store_bytes: u64,
}

/// `GET /v1/stats`
pub(crate) async fn stats(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let limit = parameters.take_number("limit", 1, NAMED_MAX)?;
    let limit = limit.map_or(NAMED_DEFAULT, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    parameters.end()?;
    let shared = Arc::clone(&call.shared);
    let look = move || look(&shared);
    let looked = call.shared.tasks.blocking(look).await.map_err(of_broken_off)?;
    large_json(&call.shared, &view(&call.shared, looked, limit))
}

pub(crate) fn look(shared: &Shared) -> Looked {
    let mut stats = shared.broker.stats();
    let topics = shared.broker.topics().list();
    let hidden: HashSet<&TopicName> =
        topics.iter().filter(|topic| !is_shown(topic)).map(|topic| &topic.name).collect();
    stats.pending.retain(|(name, _)| !hidden.contains(name));
    Looked {
        topics: count(topics.len() - hidden.len()),
        stats,
        lags: shared.broker.consumers().lags(),
        memory_bytes: machine::memory_bytes(),
        store_bytes: shared.store_bytes.read(),
    }
}

fn view(shared: &Shared, looked: Looked, limit: usize) -> StatsView {
    let Looked { mut stats, topics, mut lags, memory_bytes, store_bytes } = looked;
    let sum = |figure| sum(&lags, figure);
    let (started_at, since) = shared.started;
    let live = shared.live();
    let mut view = StatsView {
        now: shared.broker.now().to_string(),
        started_at: started_at.to_string(),
        uptime: Span::from_secs(since.elapsed().as_secs()).to_string(),
        version: env!("CARGO_PKG_VERSION"),
        is_virtual: shared.broker.is_virtual(),
        topic_count: topics,
        group_count: count(lags.len()),
        pending: pending(&stats),
        lag: sum(|of| of.lag),
        in_flight: sum(|of| of.in_flight),
        retrying: sum(|of| of.retrying),
        dead_letters: sum(|of| of.dead),
        totals: totals(shared, &stats),
        lateness: latency(&stats.lateness),
        journal_sync: latency(&(shared.store_figures)().journal_sync),
        memory_bytes,
        store_bytes,
        connections: ConnectionsView {
            open: count(shared.places.standing().open),
            max: count(live.config.http.connections_max),
        },
        topics: Vec::new(),
        groups: Vec::new(),
    };
    stats.pending.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    let topic =
        |(name, pending): (TopicName, u64)| TopicStatsView { name: name.to_string(), pending };
    view.topics = stats.pending.into_iter().take(limit).map(topic).collect();
    lags.sort_by(|a, b| {
        (Reverse(a.lag), &a.topic, &a.group).cmp(&(Reverse(b.lag), &b.topic, &b.group))
    });
    let group = |of: GroupLag| GroupStatsView {
        topic: of.topic.to_string(),
        name: of.group.to_string(),
        lag: of.lag,
        in_flight: of.in_flight,
        retrying: of.retrying,
        dead: of.dead,
    };
    view.groups = lags.into_iter().take(limit).map(group).collect();
    view
}

/// A figure of all groups together.
pub(crate) fn sum(lags: &[GroupLag], figure: fn(&GroupLag) -> u64) -> u64 {
    lags.iter().map(figure).fold(0, u64::saturating_add)
}

/// Messages that wait for their due time, in all topics.
pub(crate) fn pending(stats: &Stats) -> u64 {
    stats.pending.iter().map(|(_, pending)| *pending).fold(0, u64::saturating_add)
}

/// All that was counted since the first start.
pub(crate) fn totals(shared: &Shared, stats: &Stats) -> TotalsView {
    totals_view(shared.trends.whole(MessageCounts::from(stats)))
}

pub(crate) fn totals_view(counts: MessageCounts) -> TotalsView {
    TotalsView {
        scheduled: counts.get("scheduled"),
        fired: counts.get("fired"),
        delivered: counts.get("delivered"),
        received: counts.get("received"),
        acked: counts.get("acked"),
        cancelled: counts.get("cancelled"),
        skipped: counts.get("skipped"),
        retried: counts.get("retried"),
        dead: counts.get("dead"),
    }
}

pub(crate) fn latency(buckets: &Buckets) -> LatencyView {
    LatencyView {
        p50_ms: percentile(buckets, 50),
        p99_ms: percentile(buckets, 99),
        count: buckets.count,
    }
}

/// The bound that so many percent do not pass, in milliseconds.
fn percentile(buckets: &Buckets, percent: u64) -> Option<f64> {
    let wanted = u128::from(buckets.count) * u128::from(percent);
    let within = |(_, count): &&(f64, u64)| u128::from(*count) * 100 >= wanted;
    let (bound, _) = buckets.bounds.iter().find(within).filter(|_| buckets.count > 0)?;
    // As precise as bounds are, and without the traces of binary fractions.
    Some((bound * 1e6).round() / 1e3).filter(|bound| bound.is_finite())
}

pub(crate) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_bound_that_holds_so_many() {
        let bounds = vec![(0.001, 49), (0.002_5, 50), (0.01, 98), (0.1, 99)];
        let buckets = Buckets { bounds, sum: 1.0, count: 100 };
        assert_eq!(percentile(&buckets, 50), Some(2.5));
        assert_eq!(percentile(&buckets, 99), Some(100.0));
        assert_eq!(percentile(&buckets, 100), None, "past the last bound nobody knows");
        let none = Buckets { bounds: vec![(0.001, 0)], sum: 0.0, count: 0 };
        assert_eq!(latency(&none), LatencyView::default());
    }
}
