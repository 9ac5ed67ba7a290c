//! Is a node of a real cluster missed when it is killed, and not when it leaves in order?
#![cfg(feature = "cluster")]
#![expect(clippy::unwrap_used, reason = "a failed step may stop a test")]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod cluster_support;
mod process_support;

use cluster_support::{Cluster, Shape};
use process_support::wait_for;
use punctual_testkit::services::Service;
use serde_json::Value;

fn alerts(cluster: &Cluster, node: usize) -> Value {
    cluster.nodes[node].client().unwrap().get("/v1/alerts").unwrap().expect(200)
}

fn rule(cluster: &Cluster, node: usize) -> Value {
    let alerts = alerts(cluster, node);
    let rules = alerts["rules"].as_array().unwrap();
    rules.iter().find(|rule| rule["name"] == "node_lost").unwrap().clone()
}

/// The names of those that are missed, and what happened to nodes, the newest first.
fn told(cluster: &Cluster, node: usize) -> (Vec<String>, Vec<String>) {
    let view = cluster.nodes[node].client().unwrap().get("/v1/cluster").unwrap().expect(200);
    let texts = |list: &Value, field: &str| {
        list.as_array()
            .unwrap()
            .iter()
            .filter_map(|one| Some(one[field].as_str()?.to_owned()))
            .collect()
    };
    (texts(&view["lost"], "id"), texts(&view["history"], "event"))
}

fn wait_for_state(cluster: &Cluster, node: usize, state: &str) -> Value {
    wait_for(state, || Some(rule(cluster, node)).filter(|rule| rule["state"] == state)).0
}

#[test]
fn a_killed_node_is_missed_until_it_is_back_and_one_that_leaves_is_not() {
    let shape = Shape {
        coordinator: Service::Etcd,
        store: Service::MariaDb,
        nodes: 3,
        slots: 8,
        lease_s: 4,
        program: None,
    };
    let Some(mut cluster) = Cluster::start(shape) else { return };
    for node in 0..3 {
        let fine = wait_for("a look", || {
            Some(rule(&cluster, node)).filter(|rule| rule["value"] == 0 && rule["state"] == "ok")
        });
        assert_eq!(fine.0["enabled"], true);
    }
    cluster.nodes[2].kill();
    for node in 0..2 {
        let fired = wait_for_state(&cluster, node, "firing");
        let detail = fired["detail"].as_str().unwrap();
        assert!(detail.contains("gone without leaving: node3-"), "{fired}");
        assert_eq!(fired["unit"], "nodes");
    }
    // Its slots have other owners, and still it is missed.
    cluster.wait_until_owned();
    assert_eq!(rule(&cluster, 0)["state"], "firing");
    let (lost, events) = told(&cluster, 0);
    assert!(lost.len() == 1 && lost[0].starts_with("node3-"), "{lost:?}");
    assert!(
        events.contains(&"lost".to_owned()) && !events.contains(&"left".to_owned()),
        "{events:?}"
    );
    cluster.nodes[2].start();
    for node in 0..2 {
        wait_for_state(&cluster, node, "ok");
    }
    cluster.wait_until_whole();
    assert_eq!(told(&cluster, 0).0, [""; 0], "it is back");
    cluster.nodes[1].stop();
    cluster.wait_until_whole();
    let (lost, events) = told(&cluster, 0);
    assert!(lost.is_empty() && events.contains(&"left".to_owned()), "{lost:?} {events:?}");
    // The next one that is missed is missed alone.
    cluster.nodes[2].kill();
    let fired = wait_for_state(&cluster, 0, "firing");
    let detail = fired["detail"].as_str().unwrap();
    assert!(detail.contains("node3-") && !detail.contains("node2-"), "{fired}");
    let history = alerts(&cluster, 0)["history"].clone();
    let events: Vec<&Value> =
        history.as_array().unwrap().iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["firing", "resolved", "firing"], "{history}");
    for node in &cluster.nodes {
        assert!(!node.log().contains("panicked"), "{}", node.log());
    }
}
