//! Is a message ever with two consumers of a group at once, when many compete and some are slow?
//!
//! Everybody writes down when they asked, when they got something and what became of it. Some hold
//! on to messages longer than their lease, some extend it. A message may come again only once its
//! lease can have ended, and must come again when an ack came too late.
//! `PUNCTUAL_COMPETING_MESSAGES` makes the run long.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod consumer_support;
mod process_support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consumer_support::deliveries::{Book, Told, Wish};
use consumer_support::duties::{Manners, Worker};
use consumer_support::{Ask, Brake, Consumer, Offer, Standing, group_path, is_done};
use process_support::dice::Dice;
use process_support::http::Client;
use process_support::process::Launch;
use process_support::{LOOK_INTERVAL, PATIENCE, number_from_environment, wall_ms};
use serde_json::{Value, json};

const TOPIC: &str = "jobs";
const GROUP: &str = "workers";
const CONSUMERS: u64 = 64;
/// Messages of the run that everybody makes.
const MESSAGES: u64 = 10_000;
const LEASE: Duration = Duration::from_secs(1);
const MANNERS: Manners =
    Manners { nack: 0, reject: 0, leave: 0, lease: LEASE, rung: Duration::ZERO };

/// What a consumer does with all messages of one receive.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// Acks them at once.
    Quick,
    /// Acks them about when their lease ends.
    Close,
    /// Acks them after their lease.
    Late,
    /// Extends the lease once, then acks in the longer lease.
    Extending,
}

struct Load {
    done: AtomicBool,
    late: AtomicU64,
    extended: AtomicU64,
    book: Mutex<Book>,
}

fn number(offer: &Offer) -> u64 {
    offer.body.parse().unwrap()
}

impl Load {
    fn consume(&self, client: Client, mut dice: Dice) {
        let _brake = Brake(&self.done);
        let mut worker = Worker {
            consumer: Consumer::new(client, TOPIC, GROUP),
            dice: dice.part(1),
            manners: MANNERS,
            book: self.book.lock().unwrap().page(0),
            stale: Vec::new(),
            number,
        };
        while !self.done.load(Ordering::SeqCst) {
            let ask = Ask {
                max: dice.within(1, 20),
                wait: Duration::from_millis(dice.within(0, 500)),
                lease: LEASE,
            };
            let received = worker.consumer.receive(ask).unwrap();
            if received.answer.is_empty() {
                continue;
            }
            let pace = match dice.next() % 100 {
                0..4 => Pace::Late,
                4..7 => Pace::Close,
                7..10 => Pace::Extending,
                _ => Pace::Quick,
            };
            let note = |offer: &Offer| worker.note(&received, offer);
            let places: Vec<usize> = received.answer.iter().map(note).collect();
            let receipts = received.answer.iter().map(|offer| offer.receipt.as_str());
            let messages: Vec<(usize, &str)> = places.into_iter().zip(receipts).collect();
            let end = received.got + LEASE;
            match pace {
                Pace::Quick => {}
                Pace::Close => {
                    sleep_until(end - Duration::from_millis(dice.within(0, 30)));
                }
                Pace::Late => sleep_until(end + Duration::from_millis(dice.within(1, 500))),
                Pace::Extending => {
                    sleep_until(end - Duration::from_millis(dice.within(200, 900)));
                    self.extend(&mut worker, &messages);
                    sleep_until(end + Duration::from_millis(dice.within(0, 50)));
                }
            }
            worker.part(Wish::Ack, None, &messages).unwrap();
            if let Pace::Late = pace {
                let refused = |(place, _): &(usize, &str)| {
                    let parting = worker.book.deliveries[*place].parting;
                    assert_eq!(parting.unwrap().told, Told::NotHeld, "acked after its lease");
                };
                messages.iter().for_each(refused);
                self.late.fetch_add(u64::try_from(messages.len()).unwrap(), Ordering::SeqCst);
            }
        }
        self.book.lock().unwrap().merge(worker.book);
    }

    /// Gives messages a lease of twice the length, and writes down where it counts from.
    fn extend(&self, worker: &mut Worker, messages: &[(usize, &str)]) {
        let receipts: Vec<&str> = messages.iter().map(|(_, receipt)| *receipt).collect();
        let answered = worker.consumer.extend(&receipts, 2 * LEASE).unwrap();
        for ((place, _), told) in messages.iter().zip(&answered.answer) {
            let delivery = &mut worker.book.deliveries[*place];
            if *told == Told::Extended {
                assert!(answered.sent < delivery.lease_end_most(), "extended after its end");
                delivery.counted_from = (answered.sent, answered.got);
                delivery.lease = 2 * LEASE;
                self.extended.fetch_add(1, Ordering::SeqCst);
            } else {
                assert_eq!(*told, Told::NotHeld);
                assert!(answered.got >= delivery.lease_end_least(), "refused in its lease");
            }
        }
    }
}

fn sleep_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}

fn send_all(client: &mut Client, messages: u64) {
    let all: Vec<u64> = (0..messages).collect();
    for some in all.chunks(1000) {
        let message = |number: &u64| json!({ "body": number.to_string() });
        let batch: Vec<Value> = some.iter().map(message).collect();
        let path = format!("/v1/topics/{TOPIC}/messages");
        client.post(&path, &json!({ "messages": batch })).unwrap().expect(201);
    }
}

#[test]
fn g20_g21_a_message_is_with_one_consumer_until_its_lease_has_ended() {
    let messages = number_from_environment("PUNCTUAL_COMPETING_MESSAGES", MESSAGES);
    let seed = number_from_environment("PUNCTUAL_COMPETING_SEED", wall_ms());
    eprintln!("seed {seed}, {messages} messages");
    let directory = tempfile::tempdir().unwrap();
    let process = Launch::on(directory.path().join("data")).start();
    let mut client = process.client();
    let settings = json!({ "max_attempts": 1000 });
    client.put(&group_path(TOPIC, GROUP), &settings).unwrap().expect(201);
    let load = Load {
        done: AtomicBool::new(false),
        late: AtomicU64::new(0),
        extended: AtomicU64::new(0),
        book: Mutex::default(),
    };
    let started = Instant::now();
    std::thread::scope(|scope| {
        for number in 0..CONSUMERS {
            let (client, dice, load) = (process.client(), Dice::new(seed).part(number), &load);
            scope.spawn(move || load.consume(client, dice));
        }
        let _brake = Brake(&load.done);
        send_all(&mut client, messages);
        let mut moved = (Instant::now(), None);
        while !is_done(&mut client, TOPIC, GROUP) {
            let standing = Some(Standing::of(&mut client, TOPIC, GROUP));
            if standing != moved.1 {
                moved = (Instant::now(), standing);
            }
            assert!(moved.0.elapsed() < PATIENCE, "nothing moves any more: {standing:?}");
            std::thread::sleep(LOOK_INTERVAL);
        }
        load.done.store(true, Ordering::SeqCst);
    });
    process.check_log();
    let (last, figures) = load.book.lock().unwrap().judge();
    assert_eq!(u64::try_from(last.len()).unwrap(), messages, "some are lost");
    for end in last.values() {
        // So what was acked too late has come again.
        assert!(end.is_acked(), "not acked in the end: {end:?}");
    }
    let (late, extended) = (load.late.into_inner(), load.extended.into_inner());
    eprintln!("{figures:?}, {late} late, {extended} extended, {:?}", started.elapsed());
    assert_eq!(figures.acked, messages);
    assert!(late > 0 && extended > 0 && figures.again_ran_out >= late);
}
