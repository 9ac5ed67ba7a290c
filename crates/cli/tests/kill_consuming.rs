//! Does every group get every message, and again only for a reason, when the process is killed
//! again and again?
//!
//! Producers send numbered messages; four groups consume them at the same time, and fail with some
//! of them in all the ways there are. The program is killed at random moments and started again on
//! the same directory. At the end the groups finish, and what their consumers have written down is
//! judged. `PUNCTUAL_KILL_CONSUMING_CYCLES` and `PUNCTUAL_KILL_CONSUMING_MESSAGES` make the run
//! long; `PUNCTUAL_KILL_SEED` repeats the decisions of a run, though not its timing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod consumer_support;
mod process_support;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use consumer_support::deliveries::{Book, Delivery, Wish};
use consumer_support::duties::{Manners, Stale, Worker};
use consumer_support::{
    Brake, Consumer, Gone, Letter, Offer, Standing, dead_letters, group_path, is_done,
};
use process_support::dice::Dice;
use process_support::http::Client;
use process_support::ledger::{Ledger, Outcome};
use process_support::logs;
use process_support::process::{Launch, Process};
use process_support::{LOOK_INTERVAL, PATIENCE, number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};

const TOPIC: &str = "orders";
const PRODUCERS: u64 = 2;
/// Consumers of each group.
const CONSUMERS: u64 = 2;
/// Kills, and messages, of the run that everybody makes.
const CYCLES: u64 = 15;
const MESSAGES: u64 = 100_000;
/// How long the producers take with the messages of one cycle, so that a kill often meets them.
const PACE: Duration = Duration::from_millis(1500);
/// The wait that every group gives a message that failed.
const RUNG: Duration = Duration::from_millis(100);
/// A short lease, which some let run out, and one that nobody does.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

/// A group, after how many attempts it gives up, and how its consumers behave.
const GROUPS: [(&str, u64, Manners); 4] = [
    ("plain", 16, Manners { nack: 0, reject: 0, leave: 0, lease: LONG, rung: RUNG }),
    ("failing", 4, Manners { nack: 120, reject: 0, leave: 0, lease: LONG, rung: RUNG }),
    ("slow", 16, Manners { nack: 0, reject: 0, leave: 10, lease: SHORT, rung: RUNG }),
    ("picky", 2, Manners { nack: 40, reject: 20, leave: 5, lease: SHORT, rung: RUNG }),
];

/// What the threads of all cycles share.
struct Load {
    dice: Dice,
    next_serial: AtomicU64,
    /// How long a producer waits for each message it has sent.
    pause: Duration,
    /// Producers stop before this number.
    last_serial: AtomicU64,
    killed: AtomicBool,
    /// Everything is consumed.
    done: AtomicBool,
    /// From here on everybody only acks.
    gentle: AtomicBool,
    stale_tried: AtomicU64,
    books: [Mutex<Book>; GROUPS.len()],
    /// Receipts that have run out, or belong to a life before.
    stale: [Mutex<Vec<Stale>>; GROUPS.len()],
}

fn body(serial: u64) -> String {
    let length = usize::try_from(serial % 200).unwrap();
    format!("{serial}:{}", "x".repeat(length))
}

fn serial_of(body: &str) -> u64 {
    let serial = body.split(':').next().unwrap().parse().unwrap();
    assert_eq!(body, self::body(serial), "a body came back altered");
    serial
}

fn number(offer: &Offer) -> u64 {
    serial_of(&offer.body)
}

impl Load {
    fn new(seed: u64, cycle_messages: u64) -> Self {
        let each = PRODUCERS * u64::try_from(PACE.as_nanos()).unwrap() / cycle_messages.max(1);
        Self {
            pause: Duration::from_nanos(each),
            dice: Dice::new(seed),
            next_serial: AtomicU64::new(0),
            last_serial: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            done: AtomicBool::new(false),
            gentle: AtomicBool::new(false),
            stale_tried: AtomicU64::new(0),
            books: Default::default(),
            stale: Default::default(),
        }
    }

    /// The next numbers, at most so many; none when the producers are to stop.
    fn take_serials(&self, most: u64) -> std::ops::Range<u64> {
        let last = self.last_serial.load(Ordering::SeqCst);
        let take = |next: u64| Some(last.min(next + most));
        let first = self.next_serial.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
        let first = first.unwrap();
        first..last.min(first + most)
    }

    /// Sends until the server is gone or enough is sent.
    fn produce(&self, mut client: Client, mut dice: Dice) -> Ledger {
        let _brake = Brake(&self.done);
        let mut ledger = Ledger::default();
        let pause = if self.gentle.load(Ordering::SeqCst) { Duration::ZERO } else { self.pause };
        loop {
            let serials = self.take_serials(dice.within(1, 300));
            if serials.is_empty() {
                return ledger;
            }
            let delay = if dice.chance(50) { dice.within(0, 600) } else { 0 };
            let message = |serial| json!({ "body": body(serial), "delay": delay });
            let messages: Vec<Value> = serials.clone().map(message).collect();
            let path = format!("/v1/topics/{TOPIC}/messages");
            let answer = client.post(&path, &json!({ "messages": messages }));
            let count = u64::try_from(messages.len()).unwrap();
            ledger.note_schedule(serials.start, count, answer.as_ref().ok());
            if answer.is_err() {
                assert!(self.killed.load(Ordering::SeqCst), "an answer failed without a kill");
                return ledger;
            }
            std::thread::sleep(pause * u32::try_from(count).unwrap());
        }
    }

    /// Consumes for a group until the server is gone or everything is done.
    fn consume(&self, place: usize, client: Client, life: u64, dice: Dice) {
        let _brake = Brake(&self.done);
        let (group, _, manners) = GROUPS[place];
        let is_gentle = self.gentle.load(Ordering::SeqCst);
        let mut worker = Worker {
            consumer: Consumer::new(client, TOPIC, group),
            dice,
            manners: if is_gentle { manners.gentle() } else { manners },
            book: self.books[place].lock().unwrap().page(life),
            stale: std::mem::take(&mut *self.stale[place].lock().unwrap()),
            number,
        };
        while !self.done.load(Ordering::SeqCst) {
            match self.turn(&mut worker) {
                Ok(tried) => drop(self.stale_tried.fetch_add(tried, Ordering::SeqCst)),
                Err(Gone) => {
                    assert!(self.killed.load(Ordering::SeqCst), "an answer failed without a kill");
                    break;
                }
            }
        }
        self.books[place].lock().unwrap().merge(worker.book);
        // No receipt outlives the process that gave it.
        let since = Instant::now();
        let stale = worker.stale.into_iter().map(|stale| Stale { since, ..stale });
        self.stale[place].lock().unwrap().extend(stale);
    }

    fn turn(&self, worker: &mut Worker) -> Result<u64, Gone> {
        let tried = worker.try_stale()?;
        let max = worker.dice.within(1, 200);
        worker.turn(max, Duration::from_millis(300))?;
        Ok(tried)
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
        std::thread::sleep(Duration::from_millis(dice.within(0, usual)));
        process.kill();
        process.check_log();
        kills.while_starting += 1;
    }
    let mut process = launch.spawn();
    kills.ready_max = kills.ready_max.max(process.wait_until_ready());
    process
}

fn make_groups(client: &mut Client) {
    let topic = json!({ "partitions": 4 });
    client.put(&format!("/v1/topics/{TOPIC}"), &topic).unwrap().expect(201);
    for (group, attempts, _) in GROUPS {
        let ladder = [format!("{}ms", RUNG.as_millis())];
        let settings = json!({ "max_attempts": attempts, "retry": { "ladder": ladder } });
        client.put(&group_path(TOPIC, group), &settings).unwrap().expect(201);
    }
}

/// Everybody works until `end` says that it is over.
fn work(
    load: &Arc<Load>,
    process: &mut Process,
    life: u64,
    end: impl FnOnce(&mut Process),
) -> Ledger {
    load.killed.store(false, Ordering::SeqCst);
    let mut ledger = Ledger::default();
    std::thread::scope(|scope| {
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let (client, dice) = (process.client(), load.dice.part(life * 100 + number));
                scope.spawn(move || load.produce(client, dice))
            })
            .collect();
        for place in 0..GROUPS.len() {
            for number in 0..CONSUMERS {
                let part = life * 100 + 10 + u64::try_from(place).unwrap() * CONSUMERS + number;
                let (client, dice) = (process.client(), load.dice.part(part));
                scope.spawn(move || load.consume(place, client, life, dice));
            }
        }
        end(process);
        for producer in producers {
            ledger.merge(producer.join().unwrap());
        }
    });
    process.check_log();
    ledger
}

/// Waits until every group is done with everything; gives up when nothing moves any more.
fn drain(load: &Load, client: &mut Client) {
    let _brake = Brake(&load.done);
    wait_for("everything to be sent", || {
        let (next, last) = (&load.next_serial, &load.last_serial);
        let all_sent = next.load(Ordering::SeqCst) == last.load(Ordering::SeqCst);
        (all_sent && !logs::has_overdue(client, TOPIC, wall_ms() + 60_000)).then_some(())
    });
    let mut moved = (Instant::now(), Vec::new());
    while !GROUPS.iter().all(|(group, _, _)| is_done(client, TOPIC, group)) {
        let standing = |(group, _, _): &(&str, _, _)| Standing::of(client, TOPIC, group);
        let standings: Vec<Standing> = GROUPS.iter().map(standing).collect();
        if standings != moved.1 {
            moved = (Instant::now(), standings);
        }
        assert!(moved.0.elapsed() < PATIENCE, "nothing moves any more: {:?}", moved.1);
        std::thread::sleep(LOOK_INTERVAL);
    }
    wait_for("dead letters to arrive", || {
        let mut topics = GROUPS.iter().map(|(group, _, _)| format!("{TOPIC}.{group}.dead"));
        topics.all(|dead| !logs::has_overdue(client, &dead, wall_ms() + 60_000)).then_some(())
    });
    load.done.store(true, Ordering::SeqCst);
}

/// What the ledgers of the producers say: the id of every accepted message by its number, and the
/// requests that got no answer.
struct Sent {
    accepted: HashMap<u64, String>,
    open: Vec<std::ops::Range<u64>>,
}

impl Sent {
    fn of(ledger: &Ledger) -> Self {
        let mut sent = Self { accepted: HashMap::new(), open: Vec::new() };
        for (first, count, outcome) in &ledger.requests {
            let serials = *first..first + count;
            match outcome {
                Outcome::Accepted(ids) => {
                    let ids = ids.iter().map(|(id, _)| id.clone());
                    sent.accepted.extend(serials.zip(ids));
                }
                Outcome::NoAnswer => sent.open.push(serials),
                Outcome::Refused => panic!("nothing was too much: {serials:?}"),
            }
        }
        sent
    }
}

/// Compares what a group's consumers have seen with what was sent. Answers which of the requests
/// without an answer it has got.
fn check_group(
    sent: &Sent,
    book: &mut Book,
    letters: &[Letter],
    (group, attempts, _): (&str, u64, Manners),
) -> HashSet<u64> {
    let (last, figures) = book.judge();
    let mut dead = HashMap::new();
    for letter in letters {
        let twice = dead.insert(serial_of(&letter.body), letter);
        assert!(twice.is_none(), "{group}: dead twice: {letter:?}");
    }
    eprintln!("{group}: {figures:?}, {} dead letters", dead.len());
    for (serial, id) in &sent.accepted {
        let Some(end) = last.get(serial) else { panic!("{group}: {serial} {id} is lost") };
        assert_eq!(book.id(id), end.id, "{group}: {serial} has another id");
    }
    for (serial, end) in &last {
        check_end(group, attempts, end, dead.remove(serial));
    }
    assert!(dead.is_empty(), "{group}: dead, and never seen: {dead:?}");
    let mut open = HashSet::new();
    for serials in &sent.open {
        let there = serials.clone().filter(|serial| last.contains_key(serial)).count();
        assert!(there == 0 || there == serials.clone().count(), "half a batch: {serials:?}");
        if there > 0 {
            open.extend(serials.clone());
        }
    }
    let known = |serial: &&u64| sent.accepted.contains_key(serial) || open.contains(serial);
    assert_eq!(last.keys().filter(known).count(), last.len(), "{group}: nobody sent some");
    open
}

/// A message ends acked or as a dead letter, never both and never neither.
fn check_end(group: &str, attempts: u64, end: &Delivery, letter: Option<&Letter>) {
    let Some(letter) = letter else {
        return assert!(end.may_be_acked(), "{group}: neither acked nor dead: {end:?}");
    };
    assert!(!end.may_be_acked(), "{group}: acked and dead: {end:?} {letter:?}");
    match letter.reason.as_str() {
        "rejected" => {
            let wish = end.parting.map(|parting| parting.wish);
            assert_eq!(wish, Some(Wish::Reject), "{group}: {end:?} {letter:?}");
        }
        "attempts_exhausted" => {
            assert_eq!((letter.attempts, end.attempt), (attempts, attempts), "{end:?} {letter:?}");
        }
        other => panic!("{group}: {other}: {letter:?}"),
    }
}

#[test]
fn g2_g17_g18_g19_g20_g22_g23_groups_miss_nothing_and_repeat_nothing_without_reason() {
    let cycles = number_from_environment("PUNCTUAL_KILL_CONSUMING_CYCLES", CYCLES);
    let messages = number_from_environment("PUNCTUAL_KILL_CONSUMING_MESSAGES", MESSAGES);
    let seed = number_from_environment("PUNCTUAL_KILL_SEED", wall_ms());
    eprintln!("seed {seed}, {cycles} cycles, {messages} messages");
    let directory = tempfile::tempdir().unwrap();
    // The least memory there is, so that tables are written out and checkpoints made.
    let launch = Launch::on(directory.path().join("data")).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    let mut dice = Dice::new(seed);
    let load = Arc::new(Load::new(seed, messages / cycles));
    let started = Instant::now();
    let (mut ledger, mut kills) = (Ledger::default(), Kills::default());
    for life in 0..cycles {
        let mut process = start(&launch, &mut dice, &mut kills);
        if life == 0 {
            make_groups(&mut process.client());
        }
        load.last_serial.store(messages * (life + 1) / cycles, Ordering::SeqCst);
        let time = Duration::from_millis(dice.within(300, 3000));
        ledger.merge(work(&load, &mut process, life, |process| {
            std::thread::sleep(time);
            load.killed.store(true, Ordering::SeqCst);
            process.kill();
        }));
        kills.under_load += 1;
    }
    let killed = started.elapsed();
    load.gentle.store(true, Ordering::SeqCst);
    let mut process = start(&launch, &mut dice, &mut kills);
    let mut client = process.client();
    ledger.merge(work(&load, &mut process, cycles, |_| drain(&load, &mut client)));

    let sent = Sent::of(&ledger);
    let mut open: Option<HashSet<u64>> = None;
    for (group, book) in GROUPS.into_iter().zip(&load.books) {
        let letters = dead_letters(&mut client, TOPIC, group.0);
        let got = check_group(&sent, &mut book.lock().unwrap(), &letters, group);
        assert_eq!(*open.get_or_insert_with(|| got.clone()), got, "groups got different messages");
    }
    let unanswered = open.map_or(0, |open| open.len());
    eprintln!(
        "{} accepted, {unanswered} more without an answer, {} stale receipts refused\n{kills:?}\n\
         kills {killed:?}, all {:?}",
        sent.accepted.len(),
        load.stale_tried.load(Ordering::SeqCst),
        started.elapsed()
    );
}
