//! One machine that gives an existing Kafka delays: does it keep its promises while it is killed?
//!
//! The real program with its own storage and a real Kafka as outlet is killed in the middle of its work
//! and started again. In one test what is to be delayed comes in from a topic of that Kafka, in the other
//! by HTTP. In the end everything is in Kafka, nothing was there before its time, and what is there twice
//! was due before a kill and came again after it, under the same id. `PUNCTUAL_DELAY_KILLS=20` kills more
//! often. The figures are printed.
#![cfg(feature = "cluster")]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed step may stop a test, which is about real time"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod cluster_support;
mod process_support;

use std::collections::{HashMap, HashSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cluster_support::kafka;
use cluster_support::load::Load;
use cluster_support::moves::Moves;
use cluster_support::oracle::{Cancel, Figures, Ledger, Received, Sent, body};
use process_support::dice::Dice;
use process_support::foreign::kcat;
use process_support::process::{Launch, Process};
use process_support::{free_address, number_from_environment, wait_for, wall_ms};
use punctual_model::MessageId;
use punctual_testkit::services;
use serde_json::json;
use tempfile::TempDir;

/// Partitions of every topic here.
const PARTITIONS: u32 = 4;
/// Longest wait for everything to be delivered after the last kill; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program with its data and a Kafka.
struct Scene {
    kafka: SocketAddr,
    launch: Launch,
    address: SocketAddr,
    process: Process,
    /// What nobody else has in its names.
    tag: String,
    dice: Dice,
    /// When it was killed, in epoch milliseconds: before it was told to die, and when it had.
    kills: Vec<(u64, u64)>,
    // After what lives in it.
    _directory: TempDir,
}

impl Scene {
    /// Starts it with topics of those names; nothing where there is no Kafka.
    fn start(topics: &[&str]) -> Option<Self> {
        let kafka = services::kafka()?;
        let directory = TempDir::new().unwrap();
        let chance = directory.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let tag = format!("{}-{chance}", std::process::id());
        // The name of the directory is left to chance, and so is all that follows.
        let seed = tag.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31) + u64::from(byte));
        let mut dice = Dice::new(seed);
        dice.next();
        let address = free_address(&mut dice);
        let config = directory.path().join("punctual.toml");
        // Kafka grants a session of 6 seconds at least, and keeps the partitions of a reader that was
        // killed for as long.
        let text = format!(
            "[outlet]\nkind = \"kafka\"\nbrokers = \"{kafka}\"\nproperties = \"session.timeout.ms=6000\"\n\
             [ingress]\ntopics = [\"delays-{tag}\"]\ngroup = \"group-{tag}\"\ntopic = \"orders-{tag}\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let launch = Launch::on(directory.path().join("data")).at(address).without_kafka();
        let launch = launch.config(config);
        let process = launch.start();
        let mut scene = Self {
            kafka,
            launch,
            address,
            process,
            tag,
            dice,
            kills: Vec::new(),
            _directory: directory,
        };
        for topic in topics {
            let path = format!("/v1/topics/{}", scene.name(topic));
            let made = scene.process.client().put(&path, &json!({ "partitions": PARTITIONS }));
            made.unwrap().expect(201);
        }
        // From here on they are there for whoever looks.
        scene.stop();
        scene.process = scene.launch.start();
        Some(scene)
    }

    /// A name in the Kafka that tests share.
    fn name(&self, topic: &str) -> String {
        format!("{topic}-{}", self.tag)
    }

    /// Ends it in an orderly way, so that nothing is on its way any more.
    fn stop(&mut self) {
        self.process.signal("TERM");
        let status = self.process.wait_for_end();
        assert!(status.success(), "{status}: {}", self.process.log());
        self.process.check_log();
    }

    /// Kills it and starts it again.
    fn kill(&mut self) {
        let before = wall_ms();
        self.process.kill();
        self.kills.push((before, wall_ms()));
        self.process.check_log();
        self.process = self.launch.start();
    }

    /// How many messages the present process has taken in.
    fn scheduled(&self) -> u64 {
        let stats = self.process.client().get("/v1/stats").unwrap().expect(200);
        stats["totals"]["scheduled"].as_u64().unwrap()
    }

    /// Waits until that many different messages of the topic are in Kafka, and ends the program.
    fn finish(&mut self, topic: &str, certain: usize) -> Vec<Received> {
        let (name, started) = (self.name(topic), Instant::now());
        loop {
            let received = kafka::read(self.kafka, &name);
            let bodies: HashSet<&str> = received.iter().map(|record| &*record.body).collect();
            let path = format!("/v1/topics/{name}/scheduled?limit=1");
            let pending = self.process.client().get(&path).unwrap().expect(200);
            let none_left = pending["messages"].as_array().is_some_and(Vec::is_empty);
            if bodies.len() >= certain && none_left {
                break;
            }
            let waited = started.elapsed();
            let log = self.process.log();
            assert!(waited < PATIENCE, "{} of {certain} are there: {pending} {log}", bodies.len());
            std::thread::sleep(Duration::from_millis(200));
        }
        self.stop();
        kafka::read(self.kafka, &name)
    }

    /// Holds what came to what was promised.
    fn check(&self, ledger: &Ledger, received: &[Received]) -> Figures {
        self.check_copies(ledger, received);
        // Kills explain duplicates here as moves do in a cluster, if less exactly than above.
        let mut moves = Moves::default();
        for record in received {
            let id: MessageId = record.id.parse().unwrap();
            let slot = id.key.sequence.get() & 0xffff;
            moves.note(slot, 0, "the first process", 0..=0);
            for (term, (before, after)) in (1..).zip(&self.kills) {
                moves.note(slot, term, "the one after a kill", *before..=*after);
            }
        }
        ledger.check(received, &moves).unwrap_or_else(|wrong| panic!("{wrong}"))
    }

    /// What is there twice was sent before a kill, so it was due, and again after it.
    fn check_copies(&self, ledger: &Ledger, received: &[Received]) {
        let mut last: HashMap<u64, (u64, usize)> = HashMap::new();
        for record in received {
            let (last_ms, copies) = last.entry(serial_of(&record.body)).or_default();
            (*last_ms, *copies) = (record.taken_ms.max(*last_ms), *copies + 1);
        }
        for (serial, (last_ms, copies)) in last {
            let sent = &ledger.sent[&serial];
            let between =
                |(before, after): &&(u64, u64)| sent.due_ms <= *after && *before <= last_ms;
            let explained = self.kills.iter().filter(between).count();
            assert!(copies <= explained + 1, "{copies} of {serial}, {sent:?}: {:?}", self.kills);
        }
    }
}

/// The number of a message, which its body begins with.
fn serial_of(body: &str) -> u64 {
    body.split(':').next().unwrap().parse().unwrap()
}

/// Sends records with a delay to a topic of Kafka, until it is told to stop; answers how many.
fn produce(kafka: SocketAddr, topic: &str, mut dice: Dice, is_over: &AtomicBool) -> u64 {
    let mut sent = 0;
    while !is_over.load(Ordering::Relaxed) {
        let count = dice.within(20, 60);
        let delay = format!("punctual-delay={}ms", dice.within(100, 4_000));
        let mut kcat = kcat()
            .args(["-P", "-b", &kafka.to_string(), "-t", topic, "-H", &delay])
            .args(["-X", "acks=all", "-X", "enable.idempotence=true"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: String = (sent..sent + count).map(|serial| body(serial) + "\n").collect();
        kcat.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        assert!(kcat.wait().unwrap().success());
        sent += count;
        std::thread::sleep(Duration::from_millis(dice.within(50, 250)));
    }
    sent
}

/// When each record of a topic is due: its delay after the time that Kafka has for it.
fn dues(kafka: SocketAddr, topic: &str) -> Vec<(u64, u64)> {
    let output = kcat()
        .args(["-b", &kafka.to_string(), "-C", "-t", topic, "-o", "beginning", "-e", "-q"])
        .args(["-m", "60", "-f", "%T\\t%h\\t%s\\n"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let due = |line: &str| {
        let parts: Vec<&str> = line.split('\t').collect();
        let [time, headers, body] = parts[..] else { panic!("kcat wrote {line:?}") };
        let delay = headers.strip_prefix("punctual-delay=").unwrap().strip_suffix("ms").unwrap();
        (serial_of(body), time.parse::<u64>().unwrap() + delay.parse::<u64>().unwrap())
    };
    String::from_utf8(output.stdout).unwrap().lines().map(due).collect()
}

/// What must have come of records that were sent to the way in: one message of each.
fn expected(dues: &[(u64, u64)], received: &[Received]) -> Ledger {
    let mut ids: HashMap<&str, &str> = HashMap::new();
    for record in received {
        ids.entry(&record.body).or_insert(&record.id);
    }
    let sent = |(serial, due_ms): &(u64, u64)| {
        // Nobody is told an id; all copies of one record must have the same.
        let id = ids.get(&*body(*serial)).copied().unwrap_or_default().to_owned();
        let due_for_certain_ms = Some(*due_ms);
        let cancel = Cancel::Never;
        (*serial, Sent { id: Some(id), due_ms: *due_ms, due_for_certain_ms, cancel })
    };
    Ledger { sent: dues.iter().map(sent).collect() }
}

#[test]
fn every_record_that_came_in_from_kafka_is_delivered_in_time_although_the_program_is_killed() {
    let kills = number_from_environment("PUNCTUAL_DELAY_KILLS", 3);
    let Some(mut scene) = Scene::start(&["delays", "orders"]) else { return };
    let is_over = Arc::new(AtomicBool::new(false));
    let (kafka, topic, dice, over) =
        (scene.kafka, scene.name("delays"), scene.dice.part(1), Arc::clone(&is_over));
    let producing = std::thread::Builder::new().name("produce".to_owned());
    let producing = producing.spawn(move || produce(kafka, &topic, dice, &over)).unwrap();
    for _ in 0..kills {
        // In the middle of what has gathered since the last one.
        wait_for("records to be taken in", || (scene.scheduled() > 0).then_some(()));
        std::thread::sleep(Duration::from_millis(scene.dice.within(0, 400)));
        scene.kill();
    }
    is_over.store(true, Ordering::Relaxed);
    let produced = producing.join().unwrap();
    let received = scene.finish("orders", usize::try_from(produced).unwrap());
    let dues = dues(scene.kafka, &scene.name("delays"));
    assert_eq!(u64::try_from(dues.len()).unwrap(), produced);
    let figures = scene.check(&expected(&dues, &received), &received);
    eprintln!("{kills} kills while records come in: {figures}");
    assert!(figures.delivered > 0);
}

#[test]
fn what_is_on_its_way_to_kafka_is_not_lost_when_the_program_is_killed() {
    let kills = number_from_environment("PUNCTUAL_DELAY_KILLS", 6);
    let Some(mut scene) = Scene::start(&["reminders"]) else { return };
    let window = Duration::from_millis(1_500 * kills);
    let load = Load {
        topic: scene.name("reminders"),
        nodes: vec![scene.address],
        clients: 4,
        messages: 500 * kills,
        window,
        batch: 20,
    };
    let running = load.start(&scene.dice);
    for _ in 0..kills {
        std::thread::sleep(Duration::from_millis(scene.dice.within(500, 2_000)));
        scene.kill();
    }
    let (ledger, _) = running.finish();
    let received = scene.finish("reminders", ledger.certain());
    let figures = scene.check(&ledger, &received);
    eprintln!("{kills} kills while records go out: {figures}");
    assert!(figures.acknowledged > 0 && figures.delivered > 0);
}
