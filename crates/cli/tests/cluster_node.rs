//! A node over ZooKeeper, Cassandra and Kafka, and the commands for a cluster: does the real program do
//! there what it does over etcd and MariaDB, and say plainly what it refuses?
#![cfg(feature = "cluster")]
#![expect(clippy::unwrap_used, reason = "a failed step may stop a test")]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod cluster_support;
mod command_support;
mod process_support;

use std::net::SocketAddr;
use std::process::Output;

use cluster_support::kafka;
use command_support::{punctual, text};
use process_support::dice::Dice;
use process_support::process::{Launch, Process};
use process_support::{free_address, wait_for};
use punctual_testkit::services;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A node of a cluster of its own, in services that others share.
struct Node {
    kafka: SocketAddr,
    topic: String,
    launch: Launch,
    process: Process,
    // After what lives in it.
    _directory: TempDir,
}

impl Node {
    /// One for each number; nothing where a service cannot be had.
    fn start(number: u64) -> Option<Self> {
        let (zookeeper, cassandra) = (services::zookeeper()?, services::cassandra()?);
        let kafka = services::kafka()?;
        let directory = TempDir::new().unwrap();
        let address = free_address(&mut Dice::new(u64::from(std::process::id())).part(number));
        let tag = format!("{}_{}_{number}", std::process::id(), process_support::wall_ms());
        let config = directory.path().join("node.toml");
        let text = format!(
            "[cluster]\ncoordinator = \"zookeeper\"\nendpoints = [\"{zookeeper}\"]\nname = \"test-{tag}\"\n\
             node = \"only\"\nslots = 8\nlease = \"6s\"\n\
             [timeline]\nkind = \"cassandra\"\nendpoints = [\"{cassandra}\"]\nkeyspace = \"test_{tag}\"\n\
             replication = 1\nallow_unsafe = [\"replication\"]\n\
             [outlet]\nkind = \"kafka\"\nbrokers = \"{kafka}\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let launch = Launch::on(directory.path().join("data")).at(address).without_kafka();
        let launch = launch.config(config);
        let process = launch.start();
        let topic = format!("node-{tag}");
        Some(Self { kafka, topic, launch, process, _directory: directory })
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let url = format!("http://{}", self.process.address());
        punctual().args(arguments).env("PUNCTUAL_SERVER", url).output().unwrap()
    }

    /// What a command prints that must be carried out.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "{arguments:?} {err} {}", self.process.log());
        out
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Waits until there are so many slots, all of them owned.
    fn wait_for_slots(&self, count: u64) -> Value {
        let look = || {
            let view = self.json(&["cluster", "show", "--slots"]);
            let slots = &view["slots"];
            let is_so = slots["total"] == count && slots["unowned"] == 0 && slots["moving"] == 0;
            is_so.then_some(view)
        };
        wait_for("the slots", look).0
    }

    /// Sends a message; its id.
    fn send(&self, body: &str, delay: &str) -> String {
        let sent = self.done(&["send", &self.topic, body, "--delay", delay, "-q"]);
        sent.trim_end().to_owned()
    }

    fn restart(&mut self) {
        self.process.signal("TERM");
        let status = self.process.wait_for_end();
        assert!(status.success(), "{status}: {}", self.process.log());
        self.process.check_log();
        self.process = self.launch.start();
    }

    /// Waits until these are in Kafka, in any order, and nothing else.
    fn wait_for_delivery(&self, mut bodies: Vec<&str>) {
        bodies.sort_unstable();
        let look = || {
            let mut found: Vec<String> = kafka::read(self.kafka, &self.topic)
                .into_iter()
                .map(|record| record.body)
                .collect();
            found.sort_unstable();
            (found == bodies).then_some(())
        };
        wait_for("what was sent to be in Kafka", look);
    }
}

#[test]
fn a_node_over_zookeeper_and_cassandra_schedules_cancels_delivers_and_comes_back() {
    let Some(mut node) = Node::start(1) else { return };
    node.wait_for_slots(8);
    // Far later than a busy machine needs until the restart.
    let (soon, late) = (node.send("soon", "1s"), node.send("after a restart", "25s"));
    let [withdrawn, moved] = ["withdrawn", "moved"].map(|body| node.send(body, "1h"));
    node.done(&["cancel", &withdrawn]);
    node.done(&["reschedule", &moved, "--delay", "2s"]);
    assert_ne!(soon, late);
    node.wait_for_delivery(vec!["moved", "soon"]);
    let refused = node.run(&["cancel", &soon]);
    assert!(text(&refused.stderr).contains("delivered"), "{refused:?}");
    node.restart();
    let pending = text(&node.run(&["list", &node.topic, "-q"]).stdout);
    assert!(pending.trim_end() == late || pending.is_empty(), "{pending}");
    node.wait_for_delivery(vec!["after a restart", "moved", "soon"]);
    assert_eq!(node.json(&["get", &withdrawn])["state"], "cancelled");
    // A kill loses nothing either.
    node.send("after a kill", "2s");
    node.process.kill();
    node.process = node.launch.start();
    node.wait_for_delivery(vec!["after a kill", "after a restart", "moved", "soon"]);
    node.process.check_log();
}

#[test]
fn the_number_of_slots_is_changed_by_a_command_and_what_cannot_be_is_refused() {
    let Some(node) = Node::start(2) else { return };
    node.wait_for_slots(8);
    let shown = node.done(&["cluster", "show", "--slots"]);
    let owners = shown.lines().skip_while(|line| !line.trim_start().starts_with("SLOT"));
    let owners: Vec<&str> = owners.skip(1).take(8).collect();
    for (slot, line) in owners.iter().enumerate() {
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[0], slot.to_string(), "{shown}");
        assert!(cells[1].starts_with("only-") && cells[3] == "-", "{shown}");
    }
    for wrong in ["0", "65537", "5000000000"] {
        let refused = node.run(&["cluster", "set", "--slots", wrong]);
        assert_eq!(refused.status.code(), Some(1), "{wrong}");
        let told = text(&refused.stderr);
        assert!(told.contains("slots is a whole number from 1 to 65536"), "{told}");
    }
    for wrong in [&["cluster", "set", "--slots", "many"][..], &["cluster", "set"]] {
        assert_eq!(node.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(node.json(&["cluster"])["slots"]["wanted"], 8);
    let told = node.done(&["cluster", "set", "--slots", "12"]);
    assert!(told.contains("12 wanted") || told.contains("12 slots"), "{told}");
    node.wait_for_slots(12);
    shrink(&node);
}

/// Slots past the number end when they are empty; what they hold is delivered first.
fn shrink(node: &Node) {
    let bodies: Vec<String> = (0..40).map(|number| format!("message {number}")).collect();
    let messages: Vec<Value> =
        bodies.iter().map(|body| json!({ "body": body, "delay": "4s" })).collect();
    for half in messages.chunks(4) {
        let path = format!("/v1/topics/{}/messages", node.topic);
        node.process.client().post(&path, &json!({ "messages": half })).unwrap().expect(201);
    }
    let told = node.json(&["cluster", "set", "--slots", "3"]);
    assert_eq!(told["slots"]["wanted"], 3, "{told}");
    let view = node.wait_for_slots(3);
    assert_eq!((&view["slots"]["wanted"], &view["slots"]["retired"]), (&json!(3), &json!(0)));
    node.wait_for_delivery(bodies.iter().map(String::as_str).collect());
    let summary = node.done(&["cluster"]);
    let last = summary.lines().last().unwrap();
    assert!(
        last.starts_with("mode cluster, 3 slots, 0 without an owner, led by only-"),
        "{summary}"
    );
}
