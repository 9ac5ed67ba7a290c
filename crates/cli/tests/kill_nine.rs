//! Does everything that was acknowledged hold when the process is killed again and again?
//!
//! The real program, on one directory, is killed at random moments under load, also while it
//! recovers. At the end the client's ledger is compared with everything the server has. A failing
//! run prints its seed; `PUNCTUAL_KILL_SEED` repeats its decisions, though not its timing.
//! `PUNCTUAL_KILL_CYCLES=300` makes the run long.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod process_support;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use process_support::dice::Dice;
use process_support::http::Client;
use process_support::ledger::{Cancel, Ledger, Outcome, body};
use process_support::process::{Launch, Process};
use process_support::{logs, number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};

const TOPICS: [&str; 3] = ["one", "two", "three"];
const WRITERS: u64 = 4;
/// Most partitions a topic grows to.
const PARTITIONS_MOST: u64 = 8;
/// Ids that may be cancelled, kept at one time.
const CANDIDATES_MAX: usize = 4096;
/// Cycles of the run that everybody makes.
const CYCLES: u64 = 40;
/// From this many cycles on the process may live longer between two kills.
const CYCLES_LONG: u64 = 100;

/// What the threads of all cycles share.
struct Load {
    dice: Dice,
    next_serial: AtomicU64,
    killed: AtomicBool,
    candidates: Mutex<Vec<String>>,
    /// Partitions each topic is known to have.
    partitions: [AtomicU64; TOPICS.len()],
}

/// One thread of one cycle that schedules and cancels.
struct Writer {
    load: Arc<Load>,
    dice: Dice,
    client: Client,
    ledger: Ledger,
}

/// The connection ended with the process.
struct Gone;

impl Writer {
    fn run(mut self) -> Ledger {
        loop {
            let outcome = match self.dice.next() % 1000 {
                0..2 => self.grow(),
                2..150 => self.cancel(),
                150..850 => self.schedule(1),
                850..990 => {
                    let count = self.dice.within(2, 50);
                    self.schedule(count)
                }
                _ => self.schedule(500),
            };
            if outcome.is_err() {
                assert!(self.load.killed.load(Ordering::SeqCst), "an answer failed without a kill");
                return self.ledger;
            }
        }
    }

    fn schedule(&mut self, count: u64) -> Result<(), Gone> {
        let first = self.load.next_serial.fetch_add(count, Ordering::SeqCst);
        let mut messages: Vec<Value> = (first..first + count).map(|n| self.message(n)).collect();
        let request = match count {
            1 => messages.swap_remove(0),
            _ => json!({ "messages": messages }),
        };
        let path = format!("/v1/topics/{}/messages", self.dice.pick(&TOPICS));
        let answer = self.client.post(&path, &request);
        self.ledger.note_schedule(first, count, answer.as_ref().ok());
        if let Some((_, _, Outcome::Accepted(ids))) = self.ledger.requests.last() {
            let mut candidates = self.load.candidates.lock().unwrap();
            let (id, due_ms) = self.dice.pick(ids);
            // Mostly those that can still be cancelled; the others are for the race with delivery.
            let is_late = *due_ms > wall_ms() + 1000;
            if candidates.len() < CANDIDATES_MAX && (is_late || self.dice.chance(10)) {
                candidates.push(id.clone());
            }
        }
        answer.map(drop).map_err(|_no_answer| Gone)
    }

    fn message(&mut self, serial: u64) -> Value {
        let mut message = json!({ "body": body(serial) });
        let dice = &mut self.dice;
        let (field, value) = match dice.next() % 100 {
            0..10 => return message,
            10..60 => ("delay", dice.within(0, 3000)),
            60..75 => ("deliver_at", wall_ms() + dice.within(0, 3000)),
            75..80 => ("deliver_at", wall_ms() - dice.within(0, 100_000)),
            80..92 => ("delay", dice.within(3000, 6000)),
            92..96 => ("delay", 3_600_000 + dice.within(0, 3_600_000)),
            _ => ("deliver_at", wall_ms() + dice.within(86_400_000, 30 * 86_400_000)),
        };
        message[field] = value.into();
        message
    }

    fn cancel(&mut self) -> Result<(), Gone> {
        let id = {
            let mut candidates = self.load.candidates.lock().unwrap();
            if candidates.is_empty() {
                return Ok(());
            }
            let length = u64::try_from(candidates.len()).unwrap();
            let place = usize::try_from(self.dice.next() % length).unwrap();
            // Some stay, to be cancelled again, even by two at the same time.
            if self.dice.chance(20) {
                candidates[place].clone()
            } else {
                candidates.swap_remove(place)
            }
        };
        let answer = self.client.delete(&format!("/v1/messages/{id}"));
        let outcome = answer.as_ref().map_or(Cancel::NoAnswer, Cancel::of);
        self.ledger.cancels.push((id, outcome));
        answer.map(drop).map_err(|_no_answer| Gone)
    }

    /// Gives a topic one more partition.
    fn grow(&mut self) -> Result<(), Gone> {
        let place = usize::try_from(self.dice.next() % 3).unwrap();
        let partitions = self.load.partitions[place].load(Ordering::SeqCst) + 1;
        if partitions > PARTITIONS_MOST {
            return Ok(());
        }
        let path = format!("/v1/topics/{}", TOPICS[place]);
        let answer = self.client.put(&path, &json!({ "partitions": partitions }));
        match answer {
            Ok(answer) if answer.code() == "partitions_cannot_shrink" => Ok(()),
            Ok(answer) => {
                answer.expect(200);
                self.load.partitions[place].fetch_max(partitions, Ordering::SeqCst);
                Ok(())
            }
            Err(_no_answer) => Err(Gone),
        }
    }
}

type Seen = HashMap<(String, u64), Vec<String>>;

/// Follows all logs until the process is gone, and checks that nothing shows before it is due.
fn follow(load: &Load, mut client: Client, mut seen: Seen) -> Seen {
    loop {
        for (topic, partitions) in TOPICS.iter().zip(&load.partitions) {
            for partition in 0..partitions.load(Ordering::SeqCst) {
                let known = seen.entry(((*topic).to_owned(), partition)).or_default();
                let offset = u64::try_from(known.len()).unwrap();
                let Ok((page, _)) = logs::read_page(&mut client, topic, partition, offset) else {
                    assert!(load.killed.load(Ordering::SeqCst), "a read failed without a kill");
                    return seen;
                };
                let now_ms = wall_ms();
                for message in page {
                    assert!(message.due_ms <= now_ms, "seen at {now_ms}: {message:?}");
                    assert_eq!(message.offset, u64::try_from(known.len()).unwrap());
                    known.push(message.id);
                }
            }
        }
    }
}

/// Topics that come and go; every answered change has to hold.
#[derive(Default)]
struct Guests(HashMap<String, bool>);

impl Guests {
    /// Checks those there have been, then makes another and perhaps removes it.
    fn turn(&mut self, client: &mut Client, cycle: u64, dice: &mut Dice) {
        for (name, is_there) in &self.0 {
            let status = client.get(&format!("/v1/topics/{name}")).unwrap().status;
            assert_eq!(status == 200, *is_there, "{name} {status}");
        }
        self.0.clear();
        let path = format!("/v1/topics/guest-{cycle}");
        client.put(&path, &json!({ "partitions": 1 })).unwrap().expect(201);
        let message = json!({ "body": "guest", "delay": "1h" });
        client.post(&format!("{path}/messages"), &message).unwrap().expect(201);
        let stays = dice.chance(50);
        if !stays {
            client.delete(&path).unwrap().expect(200);
        }
        self.0.insert(format!("guest-{cycle}"), stays);
    }
}

/// What happened to the process.
#[derive(Debug, Default)]
struct Kills {
    under_load: u64,
    before_ready: u64,
    just_after_ready: u64,
    ready_max: Duration,
    runs_max: usize,
}

/// Starts the process, most often straight, sometimes killing it a few times on the way.
fn start(launch: &Launch, dice: &mut Dice, kills: &mut Kills) -> Process {
    while dice.chance(25) {
        let mut process = launch.spawn();
        let usual = u64::try_from(kills.ready_max.as_millis()).unwrap().max(10);
        std::thread::sleep(Duration::from_millis(dice.within(0, usual * 5 / 4)));
        if process.is_ready() {
            kills.just_after_ready += 1;
        } else {
            kills.before_ready += 1;
        }
        process.kill();
        process.check_log();
    }
    let mut process = launch.spawn();
    kills.ready_max = kills.ready_max.max(process.wait_until_ready());
    process
}

/// Every answered growth has held; an unanswered one may have.
fn check_partitions(load: &Load, client: &mut Client) {
    for (topic, known) in TOPICS.iter().zip(&load.partitions) {
        let found = client.get(&format!("/v1/topics/{topic}")).unwrap().expect(200);
        let found = found["partitions"].as_u64().unwrap();
        assert!(found >= known.load(Ordering::SeqCst), "{topic} lost partitions");
        known.store(found, Ordering::SeqCst);
    }
}

/// Lets the threads work for a while, kills the process and gathers what they know.
fn cycle(load: &Arc<Load>, mut process: Process, ledger: &mut Ledger, life: Duration) {
    load.killed.store(false, Ordering::SeqCst);
    let base = load.next_serial.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let writer = Writer {
                    load: Arc::clone(load),
                    dice: load.dice.part(base * WRITERS + number),
                    client: process.client(),
                    ledger: Ledger::default(),
                };
                scope.spawn(|| writer.run())
            })
            .collect();
        let seen = std::mem::take(&mut ledger.seen);
        let client = process.client();
        let follower = scope.spawn(|| follow(load, client, seen));
        std::thread::sleep(life);
        load.killed.store(true, Ordering::SeqCst);
        process.kill();
        for writer in writers {
            ledger.merge(writer.join().unwrap());
        }
        ledger.seen = follower.join().unwrap();
    });
    process.check_log();
}

fn run_files(data: &Path) -> usize {
    std::fs::read_dir(data.join("timeline")).map_or(0, Iterator::count)
}

#[test]
fn g1_g2_g3_g7_g9_g26_everything_acknowledged_survives_every_kill() {
    let cycles = number_from_environment("PUNCTUAL_KILL_CYCLES", CYCLES);
    let seed = number_from_environment("PUNCTUAL_KILL_SEED", wall_ms());
    eprintln!("seed {seed}, {cycles} cycles");
    let life_max = if cycles >= CYCLES_LONG { 3000 } else { 800 };
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    // The least memory there is, so that tables are written out and checkpoints made.
    let launch = Launch::on(&data).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    let mut dice = Dice::new(seed);
    let load = Arc::new(Load {
        dice: Dice::new(seed),
        next_serial: AtomicU64::new(0),
        killed: AtomicBool::new(false),
        candidates: Mutex::default(),
        partitions: [const { AtomicU64::new(1) }; TOPICS.len()],
    });
    let started = Instant::now();
    let (mut ledger, mut kills, mut guests) =
        (Ledger::default(), Kills::default(), Guests::default());
    for number in 0..cycles {
        let process = start(&launch, &mut dice, &mut kills);
        let mut client = process.client();
        if number == 0 {
            for topic in TOPICS {
                let path = format!("/v1/topics/{topic}");
                client.put(&path, &json!({ "partitions": 1 })).unwrap().expect(201);
            }
        }
        check_partitions(&load, &mut client);
        guests.turn(&mut client, number, &mut dice);
        let life = Duration::from_millis(dice.within(50, life_max));
        cycle(&load, process, &mut ledger, life);
        kills.under_load += 1;
        kills.runs_max = kills.runs_max.max(run_files(&data));
    }
    let loaded = started.elapsed();

    let process = start(&launch, &mut dice, &mut kills);
    let mut client = process.client();
    check_partitions(&load, &mut client);
    // Nothing is due between the longest of the short delays and the shortest of the long ones.
    let last_ms = wall_ms() + 60_000;
    let (_, drained) = wait_for("everything due to be delivered", || {
        let overdue = TOPICS.iter().any(|topic| logs::has_overdue(&mut client, topic, last_ms));
        (!overdue).then_some(())
    });
    let partitions = load.partitions.iter().map(|known| known.load(Ordering::SeqCst));
    let topics: Vec<_> = TOPICS.iter().map(|name| (*name).to_owned()).zip(partitions).collect();
    let figures = ledger.check(&mut client, &topics);
    process.check_log();
    eprintln!(
        "{figures:?}\n{kills:?}\nload {loaded:?}, drain {drained:?}, all {:?}",
        started.elapsed()
    );
    assert!(figures.accepted > 0 && figures.delivered > 0 && figures.cancelled > 0);
    assert!(kills.before_ready > 0 || cycles < CYCLES, "no kill met a recovery");
}
