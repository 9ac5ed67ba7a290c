//! Does the Rust client lose or repeat anything while the server is killed again and again?
//!
//! The real server is killed and started again on the same port and data while one client sends and
//! consumes. `PUNCTUAL_CLIENT_KILLS=24` and `PUNCTUAL_CLIENT_KILL_PAUSE_MS=2500` make the run a
//! minute long. The figures of a run are printed.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a failed step may stop the test, which is about real time and prints its figures"
)]

mod process_support;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use process_support::dice::Dice;
use process_support::process::{Launch, Process};
use process_support::{PATIENCE, free_address, number_from_environment, wait_for};
use punctual_client::{Client, Failure, Message, Producer};
use tempfile::TempDir;

/// Kills of the run that everybody makes, and the time the server has between two of them.
const KILLS: u64 = 6;
const PAUSE_MS: u64 = 700;
/// Tasks that send, each one message after the other.
const SENDERS: u64 = 24;
const TOPIC: &str = "orders";

/// Which ids each body was delivered with, and how often.
type Deliveries = Arc<Mutex<HashMap<String, Vec<String>>>>;

/// What one task sent: bodies with the ids that were answered.
struct Sent {
    ids: Vec<(String, String)>,
    duplicates: usize,
}

/// Sends until it is told to stop. Whatever happens to the server, every send must succeed.
async fn send(producer: Producer, sender: u64, stop: Arc<AtomicBool>) -> Sent {
    let mut sent = Sent { ids: Vec::new(), duplicates: 0 };
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        let body = format!("{sender}/{number}");
        let message = Message::new(body.clone()).key(format!("{}", number % 7));
        let receipt = match number % 2 {
            0 => producer.send(TOPIC, message).await,
            _ => producer.send_delayed(TOPIC, message, Duration::from_millis(300)).await,
        };
        let receipt = receipt.expect("a send waits for the server to come back");
        sent.duplicates += usize::from(receipt.duplicate);
        sent.ids.push((body, receipt.id));
        number += 1;
    }
    sent
}

/// Kills the server and starts it again, so often; leaves it running.
fn kill_and_restart(launch: &Launch, mut process: Process, kills: u64, pause: Duration) -> Process {
    for _ in 0..kills {
        std::thread::sleep(pause);
        process.kill();
        process.check_log();
        process = launch.start();
    }
    std::thread::sleep(pause);
    process
}

fn deliver(deliveries: &Deliveries, id: &str, body: &str) {
    let mut deliveries = deliveries.lock().unwrap();
    deliveries.entry(body.to_owned()).or_default().push(id.to_owned());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g3_nothing_is_lost_and_nothing_sent_twice_while_the_server_is_killed() {
    let kills = number_from_environment("PUNCTUAL_CLIENT_KILLS", KILLS);
    let pause = number_from_environment("PUNCTUAL_CLIENT_KILL_PAUSE_MS", PAUSE_MS);
    let data = TempDir::new().unwrap();
    let mut dice = Dice::new(u64::from(std::process::id()));
    let launch = Launch::on(data.path()).at(free_address(&mut dice));
    let process = launch.start();
    let client = Client::connect(&format!("http://{}", process.address())).await.unwrap();

    let deliveries = Deliveries::default();
    let told = Arc::clone(&deliveries);
    let consumer = client.consumer(TOPIC, "billing").concurrency(32).start(move |delivery| {
        let text = delivery.text().map(str::to_owned);
        let told = Arc::clone(&told);
        async move {
            deliver(&told, &delivery.id, &text?);
            Ok::<(), Failure>(())
        }
    });
    let (producer, stop) = (client.producer(), Arc::new(AtomicBool::new(false)));
    let senders: Vec<_> = (0..SENDERS)
        .map(|number| tokio::spawn(send(producer.clone(), number, Arc::clone(&stop))))
        .collect();

    let pause = Duration::from_millis(pause);
    let killing = move || kill_and_restart(&launch, process, kills, pause);
    let process = tokio::task::spawn_blocking(killing).await.unwrap();

    stop.store(true, Ordering::SeqCst);
    let (mut ids, mut duplicates) = (HashMap::new(), 0);
    for sender in senders {
        let sent = sender.await.unwrap();
        ids.extend(sent.ids);
        duplicates += sent.duplicates;
    }
    producer.close().await;
    let lag = || {
        let path = format!("/v1/topics/{TOPIC}/groups/billing");
        let group = process.client().get(&path).ok()?;
        let forecast = process.client().get(&format!("/v1/topics/{TOPIC}/forecast")).ok()?;
        let is_over = group.json["lag"] == 0 && forecast.json["total"] == 0;
        is_over.then_some(())
    };
    tokio::task::block_in_place(|| wait_for("everything to be consumed", lag));
    tokio::time::timeout(PATIENCE, consumer.stop()).await.unwrap().unwrap();
    check(&ids, &deliveries.lock().unwrap(), kills, duplicates);
    process.check_log();
}

fn check(
    ids: &HashMap<String, String>,
    delivered: &HashMap<String, Vec<String>>,
    kills: u64,
    duplicates: usize,
) {
    let lost: Vec<_> = ids.keys().filter(|body| !delivered.contains_key(*body)).collect();
    let produced_twice: Vec<_> =
        delivered.iter().filter(|(_, ids)| ids.iter().collect::<HashSet<_>>().len() > 1).collect();
    let foreign: Vec<_> =
        delivered.iter().filter(|(body, given)| ids.get(*body) != given.first()).collect();
    let handled: usize = delivered.values().map(Vec::len).sum();
    println!(
        "{kills} kills, {} messages sent, {} lost, {} produced twice, {} re-sends answered as \
         duplicates, {} handled again after a kill",
        ids.len(),
        lost.len(),
        produced_twice.len(),
        duplicates,
        handled - delivered.len(),
    );
    assert!(!ids.is_empty() && lost.is_empty(), "lost: {lost:?}");
    assert!(produced_twice.is_empty(), "produced twice: {produced_twice:?}");
    assert!(foreign.is_empty(), "delivered with another id than answered: {foreign:?}");
}
