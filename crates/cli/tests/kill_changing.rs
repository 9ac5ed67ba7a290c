//! Does every change of a pending message hold when the process is killed again and again?
//!
//! Clients schedule with ids of their own, move, pause and resume, edit, cancel, and ask for
//! delivery right now; the real program is killed at random moments and started again on the same
//! directory. What has no answer may have happened or not; whatever else the server says later is
//! held against all that it has said before. `PUNCTUAL_KILL_CHANGING_CYCLES` makes the run long,
//! `PUNCTUAL_KILL_SEED` repeats the decisions of a run, though not its timing.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod change_support;
mod process_support;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use change_support::{Deed, Record, Standing, read_body};
use process_support::dice::Dice;
use process_support::http::{Answer, Client};
use process_support::logs::{self, Delivered};
use process_support::process::{Launch, Process};
use process_support::{number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};

const TOPIC: &str = "changing";
const PARTITIONS: u64 = 2;
const WORKERS: u64 = 4;
/// Messages that a worker changes at one time.
const ACTIVE_MAX: usize = 200;
/// Messages sent again at once.
const AGAIN: usize = 500;
/// Cycles of the run that everybody makes.
const CYCLES: u64 = 20;
/// From this many cycles on the process may live longer between two kills.
const CYCLES_LONG: u64 = 100;
/// What is not due soon is due after this, in milliseconds.
const FAR: u64 = 3_600_000;

/// What the workers share.
#[derive(Default)]
struct Load {
    next_serial: AtomicU64,
    killed: AtomicBool,
}

/// Somebody who sends messages and changes those that he sent.
struct Worker {
    dice: Dice,
    records: Vec<Record>,
    /// Places of those that are still of interest.
    active: Vec<usize>,
    /// Sent together, and not answered.
    open: Vec<usize>,
    /// The same without own ids, so that they cannot be sent again.
    open_for_ever: Vec<Vec<usize>>,
    tally: Tally,
}

/// What happened, summed up.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    done: u64,
    too_late: u64,
    refused: u64,
    unanswered: u64,
    sent_again: u64,
}

/// The connection ended with the process.
struct Gone;

impl Worker {
    fn new(dice: Dice) -> Self {
        Self {
            dice,
            records: Vec::new(),
            active: Vec::new(),
            open: Vec::new(),
            open_for_ever: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn run(&mut self, load: &Load, mut client: Client) {
        loop {
            let outcome = if !self.open.is_empty() {
                self.send_again(&mut client)
            } else if self.dice.chance(25) {
                self.send(load, &mut client)
            } else {
                self.change(&mut client)
            };
            if outcome.is_err() {
                assert!(load.killed.load(Ordering::SeqCst), "an answer failed without a kill");
                return;
            }
        }
    }

    /// A time to be due at: mostly soon.
    fn time(&mut self) -> u64 {
        let dice = &mut self.dice;
        let wait = match dice.next() % 100 {
            0..80 => dice.within(0, 3000),
            80..90 => dice.within(3000, 6000),
            _ => FAR + dice.within(0, FAR),
        };
        wall_ms() + wait
    }

    fn send(&mut self, load: &Load, client: &mut Client) -> Result<(), Gone> {
        let count = if self.dice.chance(70) { 1 } else { self.dice.within(2, 20) };
        let has_own_id = self.dice.chance(70);
        let first = load.next_serial.fetch_add(count, Ordering::SeqCst);
        let places: Vec<usize> = (first..first + count)
            .map(|serial| {
                let deliver_at = self.time();
                self.records.push(Record::new(serial, deliver_at, has_own_id));
                self.records.len() - 1
            })
            .collect();
        if has_own_id {
            self.open = places;
            return self.send_open(client);
        }
        let answer = self.post(client, &places);
        if answer.is_err() {
            self.open_for_ever.push(places);
        }
        answer
    }

    /// The same once more, of which nobody knows whether it was accepted.
    fn send_again(&mut self, client: &mut Client) -> Result<(), Gone> {
        self.tally.sent_again += 1;
        self.send_open(client)
    }

    fn send_open(&mut self, client: &mut Client) -> Result<(), Gone> {
        let places = self.open.clone();
        self.post(client, &places)?;
        self.open.clear();
        Ok(())
    }

    fn post(&mut self, client: &mut Client, places: &[usize]) -> Result<(), Gone> {
        let messages: Vec<Value> =
            places.iter().map(|place| self.records[*place].request()).collect();
        let path = format!("/v1/topics/{TOPIC}/messages");
        let Ok(answer) = client.post(&path, &json!({ "messages": messages })) else {
            self.tally.unanswered += 1;
            places.iter().for_each(|place| self.records[*place].sent_without_answer());
            return Err(Gone);
        };
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        let answers = answer.json["messages"].as_array().unwrap();
        let duplicates = answers.iter().filter(|one| one["duplicate"] == true).count();
        assert!(duplicates == 0 || duplicates == places.len(), "half of a batch: {answer:?}");
        for (place, answer) in places.iter().zip(answers) {
            self.records[*place].sent(answer);
        }
        self.active.extend(places);
        let excess = self.active.len().saturating_sub(ACTIVE_MAX);
        self.active.drain(..excess);
        Ok(())
    }

    fn change(&mut self, client: &mut Client) -> Result<(), Gone> {
        if self.active.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(self.dice.next()).unwrap() % self.active.len();
        let place = self.active[at];
        let deed = self.deed(place);
        let record = &mut self.records[place];
        let by_own_id = record.has_own_id && self.dice.chance(50);
        let id = if by_own_id { record.own_id() } else { record.id.clone().unwrap() };
        let path = format!("/v1/topics/{TOPIC}/messages/{id}");
        let sent_ms = wall_ms();
        let answer = match (deed, deed.patch(record.serial)) {
            (_, Some(json)) => client.patch(&path, &json),
            (Deed::Cancel, None) => client.delete(&path),
            (_, None) => client.post(&format!("{path}/deliver"), &json!({})),
        };
        let Ok(answer) = answer else {
            self.tally.unanswered += 1;
            record.asked_without_answer(deed, sent_ms);
            return Err(Gone);
        };
        record.asked(deed, sent_ms, &answer);
        self.tally.note(&answer);
        // Most that is over is left alone; some are asked again, to hear the same again.
        if self.records[place].is_over() && self.dice.chance(60) {
            self.active.swap_remove(at);
        }
        Ok(())
    }

    fn deed(&mut self, place: usize) -> Deed {
        match self.dice.next() % 100 {
            0..30 => Deed::Move(self.time()),
            30..45 => Deed::Pause,
            45..60 => Deed::Resume,
            60..75 => {
                let record = &mut self.records[place];
                record.editions += 1;
                Deed::Edit(record.editions)
            }
            75..85 => Deed::DeliverNow,
            85..97 => Deed::Cancel,
            _ => Deed::Outdated,
        }
    }
}

impl Tally {
    fn note(&mut self, answer: &Answer) {
        match (answer.status, answer.code()) {
            (200, _) => self.done += 1,
            (_, "already_delivered") => self.too_late += 1,
            _ => self.refused += 1,
        }
    }

    fn add(&mut self, other: Self) {
        self.done += other.done;
        self.too_late += other.too_late;
        self.refused += other.refused;
        self.unanswered += other.unanswered;
        self.sent_again += other.sent_again;
    }
}

/// What happened to the process.
#[derive(Debug, Default)]
struct Kills {
    under_load: u64,
    while_starting: u64,
    ready_max: Duration,
}

/// Starts the process, most often straight, sometimes killing it on the way.
fn start(launch: &Launch, dice: &mut Dice, kills: &mut Kills) -> Process {
    while dice.chance(20) {
        let mut process = launch.spawn();
        let usual = u64::try_from(kills.ready_max.as_millis()).unwrap().max(10);
        std::thread::sleep(Duration::from_millis(dice.within(0, usual * 5 / 4)));
        process.kill();
        process.check_log();
        kills.while_starting += 1;
    }
    let mut process = launch.spawn();
    kills.ready_max = kills.ready_max.max(process.wait_until_ready());
    process
}

/// Lets the workers work for a while and kills the process.
fn cycle(load: &Load, workers: &mut [Worker], mut process: Process, life: Duration) {
    load.killed.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for worker in workers {
            let client = process.client();
            scope.spawn(move || worker.run(load, client));
        }
        std::thread::sleep(life);
        load.killed.store(true, Ordering::SeqCst);
        process.kill();
    });
    process.check_log();
}

/// Everything the server has at the end, by the numbers of the messages.
struct Holdings {
    delivered: HashMap<u64, Delivered>,
    waiting: HashMap<u64, Value>,
}

impl Holdings {
    fn read(client: &mut Client) -> Self {
        let mut delivered = HashMap::new();
        for partition in 0..PARTITIONS {
            logs::read_log(client, TOPIC, partition, |message| {
                let (serial, _) = read_body(&message.body);
                let twice = delivered.insert(serial, message.clone());
                assert!(twice.is_none(), "delivered twice: {message:?} {twice:?}");
            });
        }
        let mut holdings = Self { delivered, waiting: HashMap::new() };
        for state in ["scheduled", "paused"] {
            holdings.read_waiting(client, state);
        }
        let both = holdings.waiting.keys().find(|one| holdings.delivered.contains_key(one));
        assert!(both.is_none(), "{both:?} is delivered and pending");
        holdings
    }

    fn read_waiting(&mut self, client: &mut Client, state: &str) {
        let mut cursor = String::new();
        loop {
            let path = format!("/v1/topics/{TOPIC}/scheduled?state={state}&limit=1000{cursor}");
            let page = client.get(&path).unwrap().expect(200);
            for message in page["messages"].as_array().unwrap() {
                assert_eq!(message["state"], state, "{message}");
                let (serial, _) = read_body(message["body"].as_str().unwrap());
                let twice = self.waiting.insert(serial, message.clone());
                assert!(twice.is_none(), "listed twice: {message} {twice:?}");
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return,
            }
        }
    }
}

/// Sums over a whole run.
#[derive(Debug, Default)]
struct Figures {
    delivered: u64,
    changed_and_delivered: u64,
    scheduled: u64,
    paused: u64,
    cancelled: u64,
    absent: u64,
    known_again: u64,
}

/// Compares everything the server has with what a worker was told.
fn check(client: &mut Client, worker: &mut Worker, holdings: &mut Holdings, figures: &mut Figures) {
    for record in &mut worker.records {
        let delivered = holdings.delivered.remove(&record.serial);
        let waiting = holdings.waiting.remove(&record.serial);
        let found = match (delivered, waiting) {
            (Some(delivered), _) => {
                record.check_delivered(&delivered);
                figures.delivered += 1;
                figures.changed_and_delivered += u64::from(delivered.due_ms != record.deliver_at);
                Some(delivered.id)
            }
            (None, Some(view)) => {
                record.check_waiting(&view);
                let is_paused = view["state"] == "paused";
                *(if is_paused { &mut figures.paused } else { &mut figures.scheduled }) += 1;
                Some(view["id"].as_str().unwrap().to_owned())
            }
            (None, None) if record.possible.contains(&Standing::Cancelled) => {
                let path = format!("/v1/messages/{}", record.id.as_ref().unwrap());
                let view = client.get(&path).unwrap().expect(200);
                assert_eq!(view["state"], "cancelled", "{record:?}");
                figures.cancelled += 1;
                record.id.clone()
            }
            (None, None) => {
                assert!(record.may_be_absent(), "lost: {record:?}");
                figures.absent += 1;
                None
            }
        };
        record.id = found;
    }
    for places in &worker.open_for_ever {
        let there = places.iter().filter(|place| worker.records[**place].id.is_some()).count();
        assert!(there == 0 || there == places.len(), "half of a batch: {places:?}");
    }
}

/// Every message that has an own id is known by it, whatever became of it.
fn send_all_again(client: &mut Client, worker: &Worker, figures: &mut Figures) {
    let is_named = |record: &&Record| record.has_own_id && record.id.is_some();
    let named: Vec<&Record> = worker.records.iter().filter(is_named).collect();
    for records in named.chunks(AGAIN) {
        let messages: Vec<Value> = records.iter().map(|record| record.request()).collect();
        let path = format!("/v1/topics/{TOPIC}/messages");
        let answer = client.post(&path, &json!({ "messages": messages })).unwrap().expect(200);
        for (record, answer) in records.iter().zip(answer["messages"].as_array().unwrap()) {
            assert_eq!(answer["duplicate"], true, "{record:?} {answer}");
            assert_eq!(answer["id"].as_str(), record.id.as_deref(), "{record:?} {answer}");
            figures.known_again += 1;
        }
    }
}

#[test]
fn g1_g2_g3_g26_g28_every_change_of_a_pending_message_survives_every_kill() {
    let cycles = number_from_environment("PUNCTUAL_KILL_CHANGING_CYCLES", CYCLES);
    let seed = number_from_environment("PUNCTUAL_KILL_SEED", wall_ms());
    eprintln!("seed {seed}, {cycles} cycles");
    let life_max = if cycles >= CYCLES_LONG { 3000 } else { 800 };
    let directory = tempfile::tempdir().unwrap();
    // The least memory there is, so that tables are written out and checkpoints made.
    let launch = Launch::on(directory.path().join("data")).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    let mut dice = Dice::new(seed);
    let load = Load::default();
    let mut workers: Vec<Worker> =
        (0..WORKERS).map(|number| Worker::new(dice.part(number))).collect();
    let (started, mut kills) = (Instant::now(), Kills::default());
    for number in 0..cycles {
        let process = start(&launch, &mut dice, &mut kills);
        if number == 0 {
            let topic = json!({ "partitions": PARTITIONS });
            process.client().put(&format!("/v1/topics/{TOPIC}"), &topic).unwrap().expect(201);
        }
        let life = Duration::from_millis(dice.within(50, life_max));
        cycle(&load, &mut workers, process, life);
        kills.under_load += 1;
    }
    let loaded = started.elapsed();

    let process = start(&launch, &mut dice, &mut kills);
    let mut client = process.client();
    // Nothing is due between the longest of the short waits and the shortest of the long ones.
    let (_, drained) = wait_for("everything due to be delivered", || {
        (!logs::has_overdue(&mut client, TOPIC, wall_ms() + FAR / 2)).then_some(())
    });
    let mut holdings = Holdings::read(&mut client);
    let (mut figures, mut tally) = (Figures::default(), Tally::default());
    for worker in &mut workers {
        check(&mut client, worker, &mut holdings, &mut figures);
        send_all_again(&mut client, worker, &mut figures);
        tally.add(worker.tally);
    }
    let foreign = holdings.delivered.keys().chain(holdings.waiting.keys()).next();
    assert!(foreign.is_none(), "nobody sent {foreign:?}");
    process.check_log();
    eprintln!(
        "{figures:?}\n{tally:?}\n{kills:?}\nload {loaded:?}, drain {drained:?}, all {:?}",
        started.elapsed()
    );
    assert!(figures.delivered > 0 && figures.paused > 0 && figures.cancelled > 0);
    assert!(figures.known_again > 0 && tally.done > 0);
}
