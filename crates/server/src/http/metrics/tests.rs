//! The page for operators names every metric of a cluster, which no test of one machine sees.

use std::collections::BTreeSet;

#[cfg(feature = "cluster")]
use crate::backend::OutsideFigures;

const PAGE: &str = include_str!("../../../../../docs/OPERATING.md");

/// The metrics of the table below that heading.
fn documented(heading: &str) -> BTreeSet<String> {
    let start = PAGE.find(heading).expect("the heading");
    let rest = PAGE.get(start + heading.len()..).unwrap_or_default();
    let end = rest.find("\n#").unwrap_or(rest.len());
    let rows = rest.get(..end).unwrap_or_default().lines();
    let name = |row: &str| {
        let name = row.strip_prefix("| `")?.split(['`', '{']).next()?;
        Some(name.to_owned())
    };
    rows.filter_map(name).collect()
}

#[test]
#[cfg(feature = "cluster")]
fn the_page_names_every_metric_of_a_cluster() {
    let outside = OutsideFigures {
        kafka_reachable: true,
        slots: Some(punctual_cluster::timeline::TimelineStats::default()),
        routing: Some(punctual_cluster::routing::RoutingCounts::default()),
        peer_calls: Some(punctual_model::Buckets::default()),
    };
    let mut text = String::new();
    super::cluster::outside(&mut text, &outside);
    let written = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    let written: BTreeSet<String> = written.map(str::to_owned).collect();
    assert_eq!(documented("\n### Of a cluster and of Kafka"), written);
}

#[test]
fn the_page_has_a_table_of_metrics() {
    assert!(documented("\n### Of every server").contains("punctual_pending_messages"));
}
