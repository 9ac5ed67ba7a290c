//! A cluster of real nodes over real services, which a test may hurt in every way it can think of.
//!
//! Nodes are processes of the real program. Each reaches the coordinator by a way of its own, so that one
//! node alone can be cut off from it. Kafka stamps every record with the time at which it took
//! it, which is how the tests know that nothing came early. Everything ends with the [`Cluster`].

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "each test file uses a part of this, real time is what these tests are about, and a \
              failed set-up may stop a test"
)]

pub mod kafka;
pub mod load;
pub mod moves;
pub mod oracle;
pub mod proxy;
pub mod way;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use punctual_testkit::services::{Private, Service};
use serde_json::Value;
use tempfile::TempDir;

use crate::process_support::dice::Dice;
use crate::process_support::http::Client;
use crate::process_support::process::{Launch, Process};
use crate::process_support::{LOOK_INTERVAL, free_address};
use moves::Watch;
use way::{Network, Way};

/// Longest wait for the cluster to come to itself; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// Longest wait for an answer of a node, which may have been stopped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// What a cluster is made of.
#[derive(Clone, Debug)]
pub struct Shape {
    pub coordinator: Service,
    pub store: Service,
    pub nodes: usize,
    pub slots: u32,
    pub lease_s: u64,
    /// Another build of the program.
    pub program: Option<PathBuf>,
}

/// The running cluster.
#[derive(Debug)]
pub struct Cluster {
    pub shape: Shape,
    pub nodes: Vec<Node>,
    pub coordinator: Private,
    pub store: Private,
    pub kafka: Private,
    pub dice: Dice,
    /// Who owned which slot when.
    pub watch: Watch,
    /// Where the coordinator is, if not on loopback.
    network: Option<Network>,
    // After all that lives in it.
    directory: TempDir,
}

/// A node, which may be down.
#[derive(Debug)]
pub struct Node {
    pub name: String,
    pub address: SocketAddr,
    /// The way to the coordinator.
    way: Way,
    launch: Launch,
    pub process: Option<Process>,
    /// What its processes wrote that have ended.
    earlier: String,
    /// It runs, but it is stopped or cut off: nobody asks it, and it must not own anything.
    is_away: bool,
}

/// One look at the cluster as a node sees it.
#[derive(Clone, Debug)]
pub struct View {
    pub leader: Option<String>,
    /// The name each node is registered under, and how many slots it owns.
    pub nodes: Vec<(String, u64)>,
    pub slots: u64,
}

impl Node {
    pub fn start(&mut self) {
        let mut process = self.launch.spawn();
        process.wait_until_ready();
        self.process = Some(process);
    }

    /// Whether it runs and is in touch.
    pub fn is_up(&self) -> bool {
        self.process.is_some() && !self.is_away
    }

    /// Stops it in the middle of whatever it does; it knows nothing of that.
    pub fn pause(&mut self) {
        self.process().signal("STOP");
        self.is_away = true;
    }

    pub fn resume(&mut self) {
        self.process().signal("CONT");
        self.is_away = false;
    }

    /// Cuts it off from the coordinator, and from nothing else.
    pub fn cut_off(&mut self) {
        self.way.cut();
        self.is_away = true;
    }

    pub fn mend(&mut self) {
        self.way.mend();
        self.is_away = false;
    }

    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().unwrap()
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.process().kill();
        self.end();
    }

    /// Ends it in an orderly way, and waits for that.
    pub fn stop(&mut self) {
        self.process().signal("TERM");
        let status = self.process().wait_for_end();
        let log = self.process().log();
        assert!(status.success(), "{}: {status}: {log}", self.name);
        self.process().check_panics();
        self.end();
    }

    fn end(&mut self) {
        let ended = self.process.take().unwrap();
        writeln!(self.earlier, "{}\n--- it ended", ended.log()).unwrap();
    }

    /// All that it has written.
    pub fn log(&self) -> String {
        let log = self.process.as_ref().map(Process::log).unwrap_or_default();
        format!("{}{log}\n", self.earlier)
    }

    /// A connection that does not wait for ever.
    pub fn client(&self) -> std::io::Result<Client> {
        Client::connect(self.address)?.patience(ANSWER_TIMEOUT)
    }
}

impl Cluster {
    /// Starts everything; nothing where a service cannot be had.
    pub fn start(shape: Shape) -> Option<Self> {
        let directory = TempDir::new().unwrap();
        let services = directory.path().join("services");
        let network = Network::make();
        let within = network.as_ref().map(Network::namespace);
        let coordinator = Private::start_within(shape.coordinator, &services, within)?;
        let store = Private::start(shape.store, &services)?;
        let kafka = Private::start_with(
            Service::Kafka,
            &services,
            "log.message.timestamp.type=LogAppendTime log.flush.interval.messages=9223372036854775807",
        )?;
        let mut dice = Dice::new(u64::from(std::process::id()));
        dice.next();
        let count = shape.nodes;
        let (nodes, watch) = (Vec::new(), Watch::default());
        let mut cluster =
            Self { shape, nodes, coordinator, store, kafka, dice, watch, network, directory };
        (0..count).for_each(|_| cluster.add());
        cluster.wait_until_whole();
        Some(cluster)
    }

    /// One more node.
    pub fn add(&mut self) {
        let name = format!("node{}", self.nodes.len() + 1);
        let way = Way::new(self.network.as_mut(), self.coordinator.address());
        let address = free_address(&mut self.dice);
        let config = self.directory.path().join(format!("{name}.toml"));
        std::fs::write(&config, self.config(&name, address, &way)).unwrap();
        let mut launch = Launch::on(self.directory.path().join(&name))
            .at(address)
            .without_kafka()
            .config(config);
        if let Some(program) = &self.shape.program {
            launch = launch.program(program);
        }
        let (process, earlier) = (None, String::new());
        let mut node = Node { name, address, way, launch, process, earlier, is_away: false };
        node.start();
        self.watch.follow(address);
        self.nodes.push(node);
    }

    fn config(&self, name: &str, address: SocketAddr, way: &Way) -> String {
        let mut text = String::new();
        let coordinator = self.shape.coordinator.name();
        writeln!(text, "[cluster]\ncoordinator = \"{coordinator}\"").unwrap();
        writeln!(text, "endpoints = [\"{}\"]\nnode = \"{name}\"", way.address()).unwrap();
        writeln!(text, "advertise = \"http://{address}\"\nsecret = \"between-these-nodes-only\"")
            .unwrap();
        writeln!(text, "slots = {}\nlease = \"{}s\"", self.shape.slots, self.shape.lease_s)
            .unwrap();
        let store = self.store.address();
        match self.shape.store {
            Service::Cassandra => {
                writeln!(text, "[timeline]\nkind = \"cassandra\"\nendpoints = [\"{store}\"]")
                    .unwrap();
                // A single node, which is all there is here, cannot hold three copies.
                writeln!(text, "replication = 1\nallow_unsafe = [\"replication\"]").unwrap();
            }
            _ => writeln!(
                text,
                "[timeline]\nkind = \"mysql\"\nurl = \"mysql://root@{store}/punctual\""
            )
            .unwrap(),
        }
        let kafka = self.kafka.address();
        writeln!(text, "[outlet]\nkind = \"kafka\"\nbrokers = \"{kafka}\"").unwrap();
        // Another build may be one that knows no alerts.
        if self.shape.program.is_none() {
            writeln!(text, "[alerts]\ninterval = \"200ms\"").unwrap();
        }
        text
    }

    /// A client of a node that is up.
    pub fn client(&self) -> Client {
        let up = self.nodes.iter().find(|node| node.is_up()).unwrap();
        up.client().unwrap()
    }

    /// The cluster as that node sees it, if it answers.
    pub fn view_of(&self, node: usize) -> Option<View> {
        let answer = self.nodes[node].client().ok()?.get("/v1/cluster").ok()?;
        (answer.status == 200).then(|| view(&answer.json))
    }

    /// Where a node is in the list, by the name it is registered under.
    pub fn place_of(&self, registered: &str) -> usize {
        let is_it = |node: &Node| registered.starts_with(&format!("{}-", node.name));
        self.nodes
            .iter()
            .position(is_it)
            .unwrap_or_else(|| panic!("no node is called {registered}"))
    }

    /// Waits until the nodes are those that are up, every slot is owned and each node owns some.
    pub fn wait_until_whole(&self) -> Duration {
        let up = self.nodes.iter().filter(|node| node.is_up()).count();
        self.wait_for_view("every node to own slots", |view| {
            let is_served = view.nodes.iter().all(|(_, slots)| *slots > 0);
            self.is_owned(view) && view.nodes.len() == up && is_served
        })
    }

    /// Waits until every slot is owned by a node that is up; answers how long that took.
    pub fn wait_until_owned(&self) -> Duration {
        self.wait_for_view("every slot to be owned", |view| self.is_owned(view))
    }

    fn is_owned(&self, view: &View) -> bool {
        // The owner of a slot may be a node that is not there any more.
        let is_up = |(name, _): &&(String, u64)| self.nodes[self.place_of(name)].is_up();
        let owned: u64 = view.nodes.iter().filter(is_up).map(|(_, slots)| slots).sum();
        view.slots > 0 && owned == view.slots
    }

    /// Waits until every node that is up has such a view of the cluster.
    pub fn wait_for_view(&self, what: &str, holds: impl Fn(&View) -> bool) -> Duration {
        let started = Instant::now();
        loop {
            let up = (0..self.nodes.len()).filter(|node| self.nodes[*node].is_up());
            let views: Vec<Option<View>> = up.map(|node| self.view_of(node)).collect();
            if views.iter().all(|view| view.as_ref().is_some_and(&holds)) {
                return started.elapsed();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "waited too long for {what}: {views:#?}{}",
                self.logs()
            );
            std::thread::sleep(LOOK_INTERVAL * 5);
        }
    }

    /// The last lines of each log, for whoever looks for the cause of a failure.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        for node in &self.nodes {
            let log = node.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(40)..].join("\n");
            write!(text, "\n--- {}\n{last}", node.name).unwrap();
        }
        text
    }
}

fn view(json: &Value) -> View {
    let name = |value: &Value| value.as_str().map(str::to_owned);
    let node = |node: &Value| (name(&node["id"]).unwrap(), node["slots"].as_u64().unwrap());
    View {
        leader: name(&json["leader"]),
        nodes: json["nodes"].as_array().unwrap().iter().map(node).collect(),
        slots: json["slots"]["total"].as_u64().unwrap(),
    }
}
