//! Does an ordered group get the messages of each key one after the other, whatever fails and
//! however often the server is started again?
//!
//! Many consumers share the group; some messages fail, some leases run out, and the server is
//! stopped and killed on the way. `PUNCTUAL_ORDERED_MESSAGES` and `PUNCTUAL_ORDERED_KEYS` make the
//! run long; `PUNCTUAL_ORDERED_SEED` repeats the decisions of a run, though not its timing.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod consumer_support;
mod process_support;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consumer_support::deliveries::{Book, Delivery};
use consumer_support::duties::{Manners, Worker};
use consumer_support::{Brake, Consumer, Gone, Offer, Standing, dead_letters, group_path, is_done};
use process_support::dice::Dice;
use process_support::http::Client;
use process_support::process::{Launch, Process};
use process_support::{LOOK_INTERVAL, PATIENCE, number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};

const TOPIC: &str = "accounts";
const GROUP: &str = "ledger";
const PRODUCERS: u64 = 2;
const CONSUMERS: u64 = 8;
/// Messages and keys of the run that everybody makes.
const MESSAGES: u64 = 20_000;
const KEYS: u64 = 500;
/// No key has more messages than that.
const KEY_MESSAGES_MAX: u64 = 1_000_000;
/// Messages of one request.
const BATCH: u64 = 500;
const RUNG: Duration = Duration::from_millis(50);
const ATTEMPTS: u64 = 5;
const MANNERS: Manners =
    Manners { nack: 100, reject: 1, leave: 10, lease: Duration::from_secs(1), rung: RUNG };

/// How the server ends.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Stop,
    Kill,
}

/// What everybody shares.
struct Load {
    dice: Dice,
    keys: u64,
    messages: u64,
    /// Half of the messages are due at this one moment.
    due_ms: u64,
    ending: AtomicBool,
    done: AtomicBool,
    received: AtomicU64,
    book: Mutex<Book>,
}

/// Key and number in one.
fn number(offer: &Offer) -> u64 {
    let (key, number) = offer.body.split_once(':').unwrap();
    assert_eq!(offer.key.as_deref(), Some(key), "a body of another key");
    let key: u64 = key.strip_prefix('k').unwrap().parse().unwrap();
    key * KEY_MESSAGES_MAX + number.parse::<u64>().unwrap()
}

impl Load {
    /// Sends all messages of its share of the keys, the numbers of each key in order. Those of a
    /// key have all the same due time, or are due when they are sent.
    fn produce(&self, mut client: Client, share: u64) {
        let rounds = self.messages / self.keys;
        let keys: Vec<u64> = (0..self.keys).filter(|key| key % PRODUCERS == share).collect();
        let mut batch = Vec::new();
        let mut send = |batch: &mut Vec<Value>| {
            let request = json!({ "messages": std::mem::take(batch) });
            client.post(&format!("/v1/topics/{TOPIC}/messages"), &request).unwrap().expect(201);
        };
        for number in 0..rounds {
            for key in &keys {
                let name = format!("k{key}");
                let mut message = json!({ "key": name, "body": format!("{name}:{number}") });
                if (key / PRODUCERS).is_multiple_of(2) {
                    message["deliver_at"] = self.due_ms.into();
                }
                batch.push(message);
                if u64::try_from(batch.len()).unwrap() == BATCH {
                    send(&mut batch);
                }
            }
        }
        if !batch.is_empty() {
            send(&mut batch);
        }
    }

    fn consume(&self, client: Client, life: u64, dice: Dice) {
        let _brake = Brake(&self.done);
        let mut worker = Worker {
            consumer: Consumer::new(client, TOPIC, GROUP),
            dice,
            manners: MANNERS,
            book: self.book.lock().unwrap().page(life),
            stale: Vec::new(),
            number,
        };
        while !self.done.load(Ordering::SeqCst) {
            let max = worker.dice.within(1, 100);
            match worker.turn(max, Duration::from_millis(200)) {
                Ok(count) => {
                    let count = u64::try_from(count).unwrap();
                    self.received.fetch_add(count, Ordering::SeqCst);
                }
                Err(Gone) => {
                    assert!(self.ending.load(Ordering::SeqCst), "an answer failed without reason");
                    break;
                }
            }
        }
        self.book.lock().unwrap().merge(worker.book);
    }

    /// Waits until so many messages were received.
    fn wait_for_received(&self, count: u64) {
        let _brake = Brake(&self.done);
        let mut moved = (Instant::now(), 0);
        loop {
            let received = self.received.load(Ordering::SeqCst);
            if received >= count {
                return;
            }
            if received != moved.1 {
                moved = (Instant::now(), received);
            }
            assert!(moved.0.elapsed() < PATIENCE, "nothing comes after {received}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits until the group is done; gives up when nothing moves any more.
    fn drain(&self, client: &mut Client) {
        let _brake = Brake(&self.done);
        let mut moved = (Instant::now(), None);
        while !is_done(client, TOPIC, GROUP) {
            let standing = Some(Standing::of(client, TOPIC, GROUP));
            if standing != moved.1 {
                moved = (Instant::now(), standing);
            }
            assert!(moved.0.elapsed() < PATIENCE, "nothing moves any more: {standing:?}");
            std::thread::sleep(LOOK_INTERVAL);
        }
        self.done.store(true, Ordering::SeqCst);
    }
}

/// Lets the consumers work until `end` returns.
fn work(load: &Load, process: &mut Process, life: u64, end: impl FnOnce(&mut Process)) {
    load.ending.store(false, Ordering::SeqCst);
    std::thread::scope(|scope| {
        for number in 0..CONSUMERS {
            let (client, dice) = (process.client(), load.dice.part(life * 100 + number));
            scope.spawn(move || load.consume(client, life, dice));
        }
        if life == 0 {
            for share in 0..PRODUCERS {
                let client = process.client();
                scope.spawn(move || load.produce(client, share));
            }
        }
        end(process);
    });
    process.check_log();
}

fn end_process(load: &Load, process: &mut Process, ending: Ending) {
    load.ending.store(true, Ordering::SeqCst);
    match ending {
        Ending::Kill => process.kill(),
        Ending::Stop => {
            process.signal("TERM");
            assert!(process.wait_for_end().success());
        }
    }
}

/// What is known of one message of a key.
#[derive(Clone, Copy)]
struct Course {
    /// The answer that first offered it, and the request that last asked for it when it came.
    first_got: Instant,
    last_sent: Instant,
    /// When the settling was sent that held, or may have; that of a dead letter if nobody sent one.
    settled_sent: Option<Instant>,
    /// The first ack that was answered.
    acked: Option<(Instant, Instant)>,
}

impl Course {
    fn of(deliveries: &[Delivery], is_dead: bool) -> Self {
        let first_got = deliveries.iter().map(|one| one.got).min().unwrap();
        let last_sent = deliveries.iter().map(|one| one.sent).max().unwrap();
        let settles = |one: &&Delivery| one.may_be_acked() || is_dead;
        // A dead letter whose lease ran out was settled by nobody, at the end of that lease.
        let sent = |one: &Delivery| match one.parting {
            Some(parting) => parting.sent,
            None => one.lease_end_least(),
        };
        let settled_sent = deliveries.iter().filter(settles).map(sent).min();
        let ack =
            |one: &Delivery| one.parting.and_then(|parting| Some((parting.sent, parting.got?)));
        let acked = deliveries.iter().filter(|one| one.is_acked()).filter_map(ack).next();
        Self { first_got, last_sent, settled_sent, acked }
    }
}

/// Each key by itself: nothing is offered before all earlier messages are settled, nothing earlier
/// comes again afterwards, and acks succeed in the order of sending.
fn check_order(book: &Book, dead: &HashSet<u64>, load: &Load) {
    let by_message: HashMap<u64, Course> = book
        .deliveries
        .chunk_by(|a, b| a.message == b.message)
        .map(|all| (all[0].message, Course::of(all, dead.contains(&all[0].message))))
        .collect();
    for key in 0..load.keys {
        let mut settled_before: Option<Instant> = None;
        let mut acked_before: Option<Instant> = None;
        let mut asked_before: Option<Instant> = None;
        for number in 0..load.messages / load.keys {
            let message = key * KEY_MESSAGES_MAX + number;
            let Some(course) = by_message.get(&message) else { panic!("k{key}:{number} is lost") };
            let first = Some(course.first_got);
            assert!(settled_before <= first, "k{key}:{number} was offered too early");
            assert!(asked_before <= first, "something before k{key}:{number} was offered after it");
            if let Some((sent, got)) = course.acked {
                assert!(acked_before <= Some(got), "k{key}:{number} was acked too early");
                acked_before = acked_before.max(Some(sent));
            }
            let Some(settled) = course.settled_sent else {
                panic!("k{key}:{number} is not settled")
            };
            settled_before = settled_before.max(Some(settled));
            asked_before = asked_before.max(Some(course.last_sent));
        }
    }
}

#[test]
fn g24_messages_of_a_key_come_one_after_the_other() {
    let messages = number_from_environment("PUNCTUAL_ORDERED_MESSAGES", MESSAGES);
    let keys = number_from_environment("PUNCTUAL_ORDERED_KEYS", KEYS);
    let seed = number_from_environment("PUNCTUAL_ORDERED_SEED", wall_ms());
    let messages = messages / keys * keys;
    eprintln!("seed {seed}, {messages} messages of {keys} keys");
    let directory = tempfile::tempdir().unwrap();
    let launch = Launch::on(directory.path().join("data")).with("PUNCTUAL_STORE__MEMORY", "16MiB");
    let started = Instant::now();
    let load = Load {
        dice: Dice::new(seed),
        keys,
        messages,
        due_ms: wall_ms() + 3000,
        ending: AtomicBool::new(false),
        done: AtomicBool::new(false),
        received: AtomicU64::new(0),
        book: Mutex::default(),
    };
    let endings = [Ending::Kill, Ending::Stop, Ending::Kill];
    for (life, ending) in (0..).zip(endings) {
        let mut process = launch.start();
        if life == 0 {
            let ladder = [format!("{}ms", RUNG.as_millis()), "100ms".to_owned()];
            let settings = json!({
                "ordered": true, "max_attempts": ATTEMPTS, "retry": { "ladder": ladder },
            });
            let path = group_path(TOPIC, GROUP);
            process.client().put(&path, &settings).unwrap().expect(201);
        }
        let count = messages * (life + 1) / 4;
        work(&load, &mut process, life, |process| {
            load.wait_for_received(count);
            end_process(&load, process, ending);
        });
    }
    let mut process = launch.start();
    let mut client = process.client();
    work(&load, &mut process, 3, |_| load.drain(&mut client));
    let took = started.elapsed();

    let mut book = load.book.lock().unwrap();
    let (last, figures) = book.judge();
    let dead_topic = format!("{TOPIC}.{GROUP}.dead");
    wait_for("dead letters to arrive", || {
        let path = format!("/v1/topics/{dead_topic}/scheduled?limit=1");
        let page = client.get(&path).unwrap().expect(200);
        page["messages"].as_array().unwrap().is_empty().then_some(())
    });
    let letters = dead_letters(&mut client, TOPIC, GROUP);
    let offer = |body: &str| Offer {
        id: String::new(),
        receipt: String::new(),
        body: body.to_owned(),
        key: body.split(':').next().map(str::to_owned),
        attempt: 0,
    };
    let dead: HashSet<u64> = letters.iter().map(|letter| number(&offer(&letter.body))).collect();
    assert_eq!(dead.len(), letters.len(), "dead twice");
    for end in last.values() {
        let is_dead = dead.contains(&end.message);
        assert_ne!(end.may_be_acked(), is_dead, "acked and dead, or neither: {end:?}");
    }
    assert_eq!(u64::try_from(last.len()).unwrap(), messages);
    check_order(&book, &dead, &load);
    eprintln!("{figures:?}, {} dead letters, {took:?}", dead.len());
}
