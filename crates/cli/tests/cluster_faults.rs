//! Does a cluster keep its promises whatever fails?
//!
//! Three real nodes over a real coordinator, store and Kafka take a steady load of messages, moves and
//! cancels, and one thing after the other is killed, stopped or cut off. After each, what Kafka has is
//! compared with what the clients were told: nothing acknowledged is missing, nothing came early, nothing
//! that was cancelled is there, and nothing is there twice unless its slot moved meanwhile. Duplicates are
//! counted.
//!
//! Everybody runs a small share. `scripts/cluster-faults.sh` runs it all, also holds it to the time in
//! which slots are taken over, and sets these variables:
//! `PUNCTUAL_FAULTS` (names, separated by commas), `PUNCTUAL_FAULT_MESSAGES` and `_WINDOW` (seconds) of
//! each, `_LEASE` (seconds), `_STORE`, `_COORDINATOR`, `_PROGRAM`, and `_REPORT`, a file that gains a line
//! for each.
#![cfg(feature = "cluster")]
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a failed step may stop the test, which is about real time and tells its figures"
)]

mod cluster_support;
mod process_support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cluster_support::load::{Load, Running};
use cluster_support::oracle::{Ledger, quantile};
use cluster_support::{Cluster, PATIENCE, Shape, kafka};
use process_support::number_from_environment;
use punctual_testkit::services::Service;
use serde_json::json;

/// Something that is done to a cluster while it is under load. Afterwards all is well again.
struct Fault {
    name: &'static str,
    /// How long things are away: the share that everybody runs, and the whole programme.
    away_s: (u64, u64),
    /// Whether everybody runs it.
    always: bool,
    /// Whether slots lose their owner without its doing, so that others must take them over in time.
    orphans: bool,
    act: fn(&mut Cluster, Duration) -> Told,
}

/// What a fault has to tell: how long after it every slot was owned again.
type Told = Option<Duration>;

/// Beyond the lease, the time in which every slot of a node that is gone has another owner.
const TAKE_OVER: Duration = Duration::from_secs(5);

const FAULTS: &[Fault] = &[
    Fault { name: "none", away_s: (1, 1), always: false, orphans: false, act: nothing },
    Fault { name: "kill", away_s: (1, 20), always: false, orphans: true, act: kill_a_node },
    Fault { name: "leader", away_s: (1, 20), always: true, orphans: true, act: kill_the_leader },
    Fault { name: "pause", away_s: (8, 30), always: true, orphans: true, act: pause_an_owner },
    Fault {
        name: "coordinator",
        away_s: (8, 30),
        always: true,
        orphans: false,
        act: stop_the_coordinator,
    },
    Fault { name: "store", away_s: (6, 20), always: true, orphans: false, act: stop_the_store },
    Fault { name: "kafka", away_s: (8, 30), always: true, orphans: false, act: stop_kafka },
    Fault { name: "cut-off", away_s: (8, 30), always: true, orphans: true, act: cut_a_node_off },
    Fault {
        name: "rolling",
        away_s: (0, 5),
        always: true,
        orphans: false,
        act: restart_one_by_one,
    },
    Fault { name: "grow", away_s: (0, 0), always: true, orphans: false, act: add_two_nodes },
    Fault { name: "slots", away_s: (0, 0), always: true, orphans: false, act: double_the_slots },
];

fn nothing(_cluster: &mut Cluster, away: Duration) -> Told {
    std::thread::sleep(away);
    None
}

fn kill_a_node(cluster: &mut Cluster, away: Duration) -> Told {
    let leader = leader(cluster);
    let victim = (0..cluster.nodes.len()).find(|node| *node != leader).unwrap();
    kill(cluster, victim, away)
}

fn kill_the_leader(cluster: &mut Cluster, away: Duration) -> Told {
    let leader = leader(cluster);
    kill(cluster, leader, away)
}

fn kill(cluster: &mut Cluster, victim: usize, away: Duration) -> Told {
    let taken_over = taken_over(cluster, away, |cluster| cluster.nodes[victim].kill());
    cluster.nodes[victim].start();
    Some(taken_over)
}

/// How long after this every slot was owned again; waits until `away` is over.
fn taken_over(cluster: &mut Cluster, away: Duration, hurt: impl FnOnce(&mut Cluster)) -> Duration {
    let began = Instant::now();
    hurt(cluster);
    cluster.wait_until_owned();
    let taken_over = began.elapsed();
    std::thread::sleep(away.saturating_sub(taken_over));
    taken_over
}

fn pause_an_owner(cluster: &mut Cluster, away: Duration) -> Told {
    let taken_over = taken_over(cluster, away, |cluster| cluster.nodes[0].pause());
    cluster.nodes[0].resume();
    Some(taken_over)
}

/// Half of the time it hangs, half of the time it is not there.
fn stop_the_coordinator(cluster: &mut Cluster, away: Duration) -> Told {
    cluster.coordinator.signal("STOP");
    std::thread::sleep(away / 2);
    cluster.coordinator.signal("KILL");
    std::thread::sleep(away / 2);
    cluster.coordinator.again();
    Some(cluster.wait_until_owned())
}

fn stop_the_store(cluster: &mut Cluster, away: Duration) -> Told {
    cluster.store.signal("STOP");
    std::thread::sleep(away / 2);
    cluster.store.signal("KILL");
    std::thread::sleep(away / 2);
    cluster.store.again();
    None
}

fn stop_kafka(cluster: &mut Cluster, away: Duration) -> Told {
    cluster.kafka.signal("STOP");
    std::thread::sleep(away / 2);
    cluster.kafka.signal("KILL");
    std::thread::sleep(away / 2);
    cluster.kafka.again();
    None
}

fn cut_a_node_off(cluster: &mut Cluster, away: Duration) -> Told {
    let last = cluster.nodes.len() - 1;
    let taken_over = taken_over(cluster, away, |cluster| cluster.nodes[last].cut_off());
    cluster.nodes[last].mend();
    Some(taken_over)
}

fn restart_one_by_one(cluster: &mut Cluster, away: Duration) -> Told {
    let mut longest = Duration::ZERO;
    for node in 0..cluster.nodes.len() {
        cluster.nodes[node].stop();
        longest = longest.max(cluster.wait_until_owned());
        std::thread::sleep(away);
        cluster.nodes[node].start();
        cluster.wait_until_whole();
    }
    Some(longest)
}

fn add_two_nodes(cluster: &mut Cluster, _away: Duration) -> Told {
    cluster.add();
    cluster.add();
    Some(cluster.wait_until_whole())
}

fn double_the_slots(cluster: &mut Cluster, _away: Duration) -> Told {
    let slots = u64::from(cluster.shape.slots) * 2;
    cluster.client().put("/v1/cluster", &json!({ "slots": slots })).unwrap().expect(200);
    cluster.shape.slots *= 2;
    cluster.wait_for_view("twice the slots", |view| view.slots == slots);
    Some(cluster.wait_until_owned())
}

fn leader(cluster: &Cluster) -> usize {
    cluster.wait_for_view("a leader", |view| view.leader.is_some());
    let view = cluster.view_of(0).unwrap();
    cluster.place_of(&view.leader.unwrap())
}

/// The programme of a run.
struct Plan {
    names: Vec<String>,
    messages: u64,
    window: Duration,
    is_whole: bool,
    report: Option<PathBuf>,
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn plan() -> Plan {
    let always = || FAULTS.iter().filter(|fault| fault.always).map(|fault| fault.name.to_owned());
    let named = text("PUNCTUAL_FAULTS");
    let names = match named.as_deref() {
        None => always().collect(),
        Some("all") => FAULTS.iter().map(|fault| fault.name.to_owned()).collect(),
        Some(names) => names.split(',').map(str::to_owned).collect(),
    };
    Plan {
        names,
        messages: number_from_environment("PUNCTUAL_FAULT_MESSAGES", 6_000),
        window: Duration::from_secs(number_from_environment("PUNCTUAL_FAULT_WINDOW", 12)),
        is_whole: named.is_some(),
        report: text("PUNCTUAL_FAULT_REPORT").map(PathBuf::from),
    }
}

fn shape() -> Shape {
    Shape {
        coordinator: match text("PUNCTUAL_FAULT_COORDINATOR").as_deref() {
            Some("zookeeper") => Service::ZooKeeper,
            _ => Service::Etcd,
        },
        store: match text("PUNCTUAL_FAULT_STORE").as_deref() {
            Some("cassandra") => Service::Cassandra,
            _ => Service::MariaDb,
        },
        nodes: 3,
        slots: 24,
        lease_s: number_from_environment("PUNCTUAL_FAULT_LEASE", 4),
        program: text("PUNCTUAL_FAULT_PROGRAM").map(PathBuf::from),
    }
}

/// What was sent under a fault, to be looked at once more at the very end.
struct Outcome {
    topic: String,
    ledger: Ledger,
    /// What is wrong already.
    wrong: Option<String>,
}

fn run(cluster: &mut Cluster, plan: &Plan, fault: &Fault) -> Outcome {
    let topic = format!("under-{}", fault.name);
    let made = cluster.client().put(&format!("/v1/topics/{topic}"), &json!({ "partitions": 4 }));
    let made = made.unwrap();
    assert!(matches!(made.status, 200 | 201), "{made:?}");
    let running = load(cluster, plan, &topic);
    std::thread::sleep(plan.window / 4);
    let away_s = if plan.is_whole { fault.away_s.1 } else { fault.away_s.0 };
    let told = (fault.act)(cluster, Duration::from_secs(away_s));
    let (ledger, counts) = running.finish();
    let settled = wait_until_delivered(cluster, &topic);
    let received = kafka::read(cluster.kafka.address(), &topic);
    let checked = ledger.check(&received, &cluster.watch.seen());
    let figures = checked.as_ref().map_or_else(String::clone, ToString::to_string);
    let taken_over = told.map_or(String::new(), |told| {
        format!(", every slot owned after {:.1} s", told.as_secs_f64())
    });
    let line = format!(
        "{figures}; {} requests ({} ms p99), {} refused, {} silent, {} moved{taken_over}; all delivered {:.1} s \
         after the load",
        counts.requests,
        quantile(&counts.took_ms, 99),
        counts.refused,
        counts.silent,
        counts.moved,
        settled.as_secs_f64(),
    );
    let limit = Duration::from_secs(cluster.shape.lease_s) + TAKE_OVER;
    let is_slow = plan.is_whole && fault.orphans && told.is_some_and(|told| told > limit);
    let wrong = if is_slow { Some(format!("taken over too late: {line}")) } else { checked.err() };
    plan.report(cluster, fault, wrong.is_some(), &line);
    cluster.wait_until_whole();
    Outcome { topic, ledger, wrong }
}

fn load(cluster: &Cluster, plan: &Plan, topic: &str) -> Running {
    let nodes: Vec<SocketAddr> = cluster.nodes.iter().map(|node| node.address).collect();
    let load = Load {
        topic: topic.to_owned(),
        clients: u64::try_from(nodes.len()).unwrap() * 2,
        nodes,
        messages: plan.messages,
        window: plan.window,
        batch: 20,
    };
    load.start(&cluster.dice.part(plan.messages))
}

impl Plan {
    /// Tells what came of a fault; if something is wrong, with all that the nodes wrote.
    fn report(&self, cluster: &Cluster, fault: &Fault, is_wrong: bool, line: &str) {
        let (coordinator, store) = (cluster.shape.coordinator.name(), cluster.shape.store.name());
        let verdict = if is_wrong { "WRONG: " } else { "" };
        let line = format!("{coordinator}+{store} {}: {verdict}{line}", fault.name);
        eprintln!("{line}");
        if is_wrong {
            eprintln!("{}", cluster.logs());
        }
        let Some(path) = &self.report else { return };
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
        for node in cluster.nodes.iter().filter(|_| is_wrong) {
            let name = format!("{coordinator}-{store}-{}-{}.log", fault.name, node.name);
            std::fs::write(path.with_extension(name), node.log()).unwrap();
        }
    }
}

/// Waits until nothing is pending in the topic any more.
fn wait_until_delivered(cluster: &Cluster, topic: &str) -> Duration {
    let started = Instant::now();
    // What was before a place stays ended: nothing more is scheduled, and a move leads to later times.
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/topics/{topic}/scheduled?limit=1{cursor}");
        let answer = cluster.client().get(&path);
        let page = answer.as_ref().ok().filter(|answer| answer.status == 200);
        let passed =
            page.filter(|page| page.json["messages"].as_array().is_some_and(Vec::is_empty));
        match passed.map(|page| page.json["next"].as_str()) {
            Some(None) => return started.elapsed(),
            // A page may have none although more follow.
            Some(Some(next)) => cursor = format!("&cursor={next}"),
            None => std::thread::sleep(Duration::from_millis(100)),
        }
        assert!(
            started.elapsed() < PATIENCE,
            "{topic} is not delivered: {answer:?}{}",
            cluster.logs()
        );
    }
}

#[test]
fn nothing_is_lost_early_or_revived_whatever_fails() {
    let plan = plan();
    let Some(mut cluster) = Cluster::start(shape()) else { return };
    let mut outcomes = Vec::new();
    for name in &plan.names {
        let fault = FAULTS.iter().find(|fault| fault.name == name);
        let fault = fault.unwrap_or_else(|| panic!("there is no fault {name}"));
        outcomes.push(run(&mut cluster, &plan, fault));
    }
    for node in &mut cluster.nodes {
        node.stop();
    }
    // Nobody is left who could add anything: what came late is seen now.
    let mut wrong = Vec::new();
    for Outcome { topic, ledger, wrong: before } in outcomes {
        let received = kafka::read(cluster.kafka.address(), &topic);
        match ledger.check(&received, &cluster.watch.seen()) {
            Ok(figures) => eprintln!("{topic}: {} duplicates in the end", figures.duplicates),
            Err(late) => wrong.push(format!("{topic} in the end: {late}")),
        }
        wrong.extend(before.map(|before| format!("{topic}: {before}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
