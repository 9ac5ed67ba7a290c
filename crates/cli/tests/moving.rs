//! Is every message delivered by exactly one of two servers when a topic moves between them?
//!
//! The source is busy all the time: a producer schedules messages that fall due while they are
//! exported, a series comes round each second, and a reader writes down what is delivered. An
//! export of that must have all that was pending throughout, in one go and cut off and resumed.
//! Then the topic moves as the manual says, with an import that breaks off and is repeated.
//! `PUNCTUAL_MOVING_MESSAGES` and `PUNCTUAL_MOVING_RATE` make the run long.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "a failed step may stop the test, which is about real time"
)]

mod consumer_support;
mod moving_support;
mod process_support;

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use consumer_support::Brake;
use moving_support::{
    Delivery, Export, FAST_SERIES, Follower, PAUSED_KEY, SERIES, SHORT, TOPIC, break_off_import,
    long_wait_ms, message, open_export, own_id, path,
};
use process_support::dice::Dice;
use process_support::http::Client;
use process_support::logs::{has_overdue, time_ms};
use process_support::process::{Launch, Process};
use process_support::{LOOK_INTERVAL, PATIENCE, number_from_environment, wait_for, wall_ms};
use serde_json::{Value, json};

/// Pending messages, and those sent in a second, of the run that everybody makes.
const MESSAGES: u64 = 3_000;
const RATE: u64 = 200;
/// Requests of the producer in a second.
const REQUESTS_PER_SECOND: u64 = 20;
/// Longest wait of its messages.
const SHORT_WAIT_MS: u64 = 4_000;
/// Pages of the export that is cut off again and again.
const PAGES: u64 = 7;

/// What the producer knows of a message.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to_target: bool,
    answered_ms: u64,
    due_ms: u64,
}

/// The traffic at the two servers.
struct Traffic {
    rate: u64,
    patience: Duration,
    is_moved: AtomicBool,
    done: AtomicBool,
    sent_to_target: AtomicU64,
    sent: Mutex<HashMap<u64, Sent>>,
    /// What the source has delivered.
    delivered: Mutex<Vec<Delivery>>,
}

impl Traffic {
    fn produce(&self, [source, target]: [SocketAddr; 2], mut dice: Dice) {
        let each = (self.rate / REQUESTS_PER_SECOND).max(1);
        let interval = Duration::from_secs(1) / u32::try_from(REQUESTS_PER_SECOND).unwrap();
        let mut number = SHORT;
        let mut client = (false, Client::connect(source).unwrap());
        let mut turn = Instant::now();
        while !self.done.load(Ordering::SeqCst) {
            let to_target = self.is_moved.load(Ordering::SeqCst);
            if to_target && !client.0 {
                client = (true, Client::connect(target).unwrap());
            }
            let wait_ms = |_| dice.within(20, SHORT_WAIT_MS);
            let waits: Vec<u64> = (0..each).map(wait_ms).collect();
            let answers = send(&mut client.1, number, &waits);
            let answered_ms = wall_ms();
            let mut sent = self.sent.lock().unwrap();
            for due_ms in answers {
                sent.insert(number, Sent { to_target, answered_ms, due_ms });
                number += 1;
            }
            drop(sent);
            if to_target {
                self.sent_to_target.fetch_add(each, Ordering::SeqCst);
            }
            turn = (turn + interval).max(Instant::now() - interval);
            std::thread::sleep(turn.saturating_duration_since(Instant::now()));
        }
    }

    fn follow(&self, mut follower: Follower) {
        loop {
            let was_done = self.done.load(Ordering::SeqCst);
            let mut some = Vec::new();
            follower.follow(|delivery| some.push(delivery));
            self.delivered.lock().unwrap().extend(some);
            if was_done {
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn wait_for<T>(&self, what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(answer) = ask() {
                return answer;
            }
            assert!(started.elapsed() < self.patience, "waited too long for {what}");
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits until so many more were delivered by the source.
    fn wait_for_deliveries(&self, more: u64) {
        let count = || self.delivered.lock().unwrap().len();
        let enough = count() + usize::try_from(more).unwrap();
        self.wait_for("deliveries", || (count() >= enough).then_some(()));
    }

    /// Waits until so many more were accepted.
    fn wait_for_sending(&self, more: u64) {
        let count = || self.sent.lock().unwrap().len();
        let enough = count() + usize::try_from(more).unwrap();
        self.wait_for("the producer", || (count() >= enough).then_some(()));
    }

    /// Runs a command against a server and gives what it wrote.
    fn command(&self, server: SocketAddr, arguments: &[&str]) -> String {
        let output = Command::new("timeout")
            .args(["--foreground", &self.patience.as_secs().to_string()])
            .arg(env!("CARGO_BIN_EXE_punctual"))
            .args(arguments)
            .env("PUNCTUAL_SERVER", format!("http://{server}"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {} {errors}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whether what was pending from the start to the end of an export is in it, and nothing that
    /// had been delivered before.
    fn check_export(&self, export: &Export, messages: u64, (from_ms, to_ms): (u64, u64)) {
        let lost = (0..messages).filter(|number| !export.numbers.contains(number)).count();
        assert_eq!(lost, 0, "long ones are missing");
        let all_series = (SERIES..=FAST_SERIES).all(|number| export.numbers.contains(&number));
        assert!(all_series, "a series is missing");
        let throughout = |sent: &Sent| sent.answered_ms < from_ms && sent.due_ms > to_ms;
        let sent = self.sent.lock().unwrap();
        let lost: Vec<_> = sent
            .iter()
            .filter(|(number, sent)| throughout(sent) && !export.numbers.contains(number))
            .collect();
        assert!(lost.is_empty(), "{} short ones are missing, {:?}", lost.len(), lost.first());
        let delivered = self.delivered.lock().unwrap();
        let ended =
            delivered.iter().filter(|one| one.delivered_ms < from_ms && one.number < SERIES);
        let dead = ended.filter(|one| export.numbers.contains(&one.number)).count();
        assert_eq!(dead, 0, "some were delivered before");
    }

    /// Lateness of what fell due in a span of time: the middle and the worst, in milliseconds.
    fn lateness(&self, (from_ms, to_ms): (u64, u64)) -> (u64, u64) {
        let delivered = self.delivered.lock().unwrap();
        let inside = delivered.iter().filter(|one| (from_ms..to_ms).contains(&one.due_ms));
        let mut late: Vec<u64> = inside.map(|one| one.delivered_ms - one.due_ms).collect();
        late.sort_unstable();
        let at = |place: usize| late.get(place).copied().unwrap_or_default();
        (at(late.len() / 2), at(late.len().saturating_sub(1)))
    }
}

/// Schedules the messages of consecutive numbers; gives their due times.
fn send(client: &mut Client, first: u64, waits_ms: &[u64]) -> Vec<u64> {
    let timed = |(wait_ms, number)| {
        let mut message = message(number);
        message["delay"] = json!(wait_ms);
        message
    };
    let batch: Vec<Value> = waits_ms.iter().zip(first..).map(timed).collect();
    let answer = client.post(&path("/messages"), &json!({ "messages": batch })).unwrap();
    let answer = answer.expect(201);
    let answers = answer["messages"].as_array().unwrap();
    assert_eq!(answers.len(), waits_ms.len());
    answers.iter().map(|answer| time_ms(&answer["due"])).collect()
}

/// The messages that stay, some of them paused, and the series.
fn fill(traffic: &Traffic, client: &mut Client, messages: u64) {
    for first in (0..messages).step_by(1000) {
        let waits: Vec<u64> = (first..messages.min(first + 1000)).map(long_wait_ms).collect();
        send(client, first, &waits);
    }
    let paused = change_many(traffic, client, "pause", &json!({"filter": {"key": PAUSED_KEY}}));
    assert_eq!(paused["matched"].as_u64(), Some(messages.div_ceil(101)));
    let rules = [
        json!({"every": "40m", "count": 5}),
        json!({"cron": "0 9 1 * *", "zone": "Asia/Shanghai"}),
        json!({"every": "1s"}),
    ];
    for (number, repeat) in (SERIES..).zip(rules) {
        let mut message = message(number);
        message["repeat"] = repeat;
        client.post(&path("/messages"), &message).unwrap().expect(201);
    }
}

/// Changes pending messages all at once; gives the job when it has ended.
fn change_many(traffic: &Traffic, client: &mut Client, what: &str, asked: &Value) -> Value {
    let answer = client.post(&path(&format!("/scheduled/{what}")), asked).unwrap();
    assert!(matches!(answer.status, 200 | 202), "{answer:?}");
    let job = answer.json["job"].as_str().unwrap().to_owned();
    let job = traffic.wait_for(what, || {
        let job = client.get(&path(&format!("/scheduled/jobs/{job}"))).unwrap().expect(200);
        (job["state"] != "running").then_some(job)
    });
    assert_eq!(job["state"], "done", "{job}");
    job
}

/// The time at which an export begins. What was delivered before that is no longer pending; for a
/// moment a message is in its log and still pending.
fn begin_export(address: SocketAddr) -> u64 {
    let from_ms = wall_ms();
    let mut client = Client::connect(address).unwrap();
    let settled = || (!has_overdue(&mut client, TOPIC, from_ms)).then_some(());
    wait_for("what was on its way", settled);
    from_ms
}

/// One export over one connection, with the times of its start and end.
fn export_at_once(address: SocketAddr) -> (Export, (u64, u64)) {
    let from_ms = begin_export(address);
    let mut export = Export::default();
    export.read(&mut open_export(address, ""), u64::MAX);
    assert_eq!((export.next(), export.again), (None, 0));
    (export, (from_ms, wall_ms()))
}

/// An export in pages, each of which is first cut off in the middle.
fn export_cut_off(address: SocketAddr, messages: u64) -> (Export, (u64, u64)) {
    let from_ms = begin_export(address);
    let limit = messages.div_ceil(PAGES);
    let mut all = Export::default();
    let mut query = format!("?limit={limit}");
    loop {
        Export::default().read(&mut open_export(address, &query), limit / 2);
        let mut page = Export::default();
        page.read(&mut open_export(address, &query), u64::MAX);
        let next = page.next();
        assert_eq!(page.again, 0);
        let known = all.numbers.len();
        all.numbers.extend(page.numbers.iter());
        assert_eq!(all.numbers.len(), known + page.numbers.len(), "two pages have the same");
        match next {
            Some(next) => query = format!("?limit={limit}&cursor={next}"),
            None => return (all, (from_ms, wall_ms())),
        }
    }
}

/// Moves the topic as the manual says; gives the times from the pause to the end of the import.
fn move_over(traffic: &Traffic, source: &Process, target: &Process, file: &Path) -> (u64, u64) {
    let name = file.to_str().unwrap();
    let mut client = source.client();
    let from_ms = wall_ms();
    client.patch(&path(""), &json!({"paused": true})).unwrap().expect(200);
    // It goes on accepting until the producer knows of the move.
    traffic.wait_for_sending(traffic.rate);
    traffic.is_moved.store(true, Ordering::SeqCst);
    let moved = || (traffic.sent_to_target.load(Ordering::SeqCst) > 0).then_some(());
    traffic.wait_for("the producer to move", moved);
    // What was about to be delivered when the pause came is delivered, all else is held by now.
    let paused_ms = wall_ms();
    let settled = || (!has_overdue(&mut client, TOPIC, paused_ms)).then_some(());
    traffic.wait_for("what was on its way", settled);
    let started = Instant::now();
    traffic.command(source.address(), &["export", "orders", "--file", name]);
    let exporting = started.elapsed();
    let mut export = Export::default();
    let lines = BufReader::new(std::fs::File::open(file).unwrap()).lines();
    lines.for_each(|line| export.take(&line.unwrap()));

    break_off_import(target.address(), &std::fs::read(file).unwrap());
    let mut client = target.client();
    let forecast = client.get(&path("/forecast")).unwrap().expect(200);
    let import = || -> Value {
        let arguments = ["import", "orders", "--json", "--file", name];
        serde_json::from_str(&traffic.command(target.address(), &arguments)).unwrap()
    };
    let started = Instant::now();
    let repeated = import();
    let (importing, to_ms) = (started.elapsed(), wall_ms());
    let counts = |answer: &Value| {
        ["imported", "duplicates", "failed_count"].map(|name| answer[name].as_u64().unwrap())
    };
    let [imported, duplicates, failed] = counts(&repeated);
    assert_eq!((imported + duplicates, failed), (export.lines, 0));
    assert!(imported > 0 && duplicates > export.again, "broken off in the middle: {repeated}");
    assert_eq!(counts(&import()), [0, export.lines, 0], "a repeated import changes nothing");
    eprintln!(
        "moved {} lines, {} twice: export {exporting:?}, broken off at {forecast}, \
         rest by {repeated} in {importing:?}",
        export.lines, export.again
    );
    (from_ms, to_ms)
}

/// Lets the fast series go on at the target for a while, and ends it.
fn end_series(traffic: &Traffic, target: &mut Client, follower: &mut Follower) -> Vec<Delivery> {
    let mut delivered = Vec::new();
    traffic.wait_for("the series to go on", || {
        follower.follow(|delivery| delivered.push(delivery));
        let fast = delivered.iter().filter(|one| one.number == FAST_SERIES).count();
        (fast >= 3).then_some(())
    });
    let fast = own_id(FAST_SERIES).replace('/', "%2F").replace(' ', "%20").replace('ü', "%C3%BC");
    target.delete(&path(&format!("/messages/{fast}"))).unwrap().expect(200);
    delivered
}

/// Lets the target deliver all it has.
fn deliver_all(traffic: &Traffic, target: &mut Client) {
    change_many(traffic, target, "resume", &json!({"all": true}));
    change_many(traffic, target, "deliver", &json!({"all": true}));
    traffic.wait_for("the target to deliver all", || {
        let forecast = target.get(&path("/forecast")).unwrap().expect(200);
        (forecast["total"] == 0 && forecast["paused"] == 0).then_some(())
    });
}

/// Whether each message was delivered once, by one of the two.
fn judge(traffic: &Traffic, messages: u64, at_target: &[Delivery]) {
    let at_source = traffic.delivered.lock().unwrap();
    let mut times: HashMap<u64, [u64; 2]> = HashMap::new();
    for (server, delivered) in [(0, &at_source[..]), (1, at_target)] {
        for one in delivered.iter().filter(|one| one.number != FAST_SERIES) {
            times.entry(one.number).or_default()[server] += 1;
        }
    }
    let sent = traffic.sent.lock().unwrap();
    let mut shares = [0, 0];
    for (number, sent) in sent.iter() {
        let counts = times.remove(number).unwrap_or_default();
        assert!(counts == [0, 1] || (counts == [1, 0] && !sent.to_target), "{counts:?} {sent:?}");
        shares = [shares[0] + counts[0], shares[1] + counts[1]];
    }
    for number in (0..messages).chain([SERIES, SERIES + 1]) {
        assert_eq!(times.remove(&number), Some([0, 1]), "{number}");
    }
    assert!(times.is_empty(), "nobody sent {times:?}");
    eprintln!("short ones by source and target {shares:?}");
}

/// Whether each time of the fast series came once, but for those that passed during the move behind
/// the one that was to come.
fn judge_series(traffic: &Traffic, at_target: &[Delivery], moving_ms: (u64, u64)) {
    let dues = |delivered: &[Delivery]| -> Vec<u64> {
        let fast = delivered.iter().filter(|one| one.number == FAST_SERIES);
        fast.map(|one| one.due_ms).collect()
    };
    let (at_source, at_target) = (dues(&traffic.delivered.lock().unwrap()), dues(at_target));
    let all: BTreeSet<u64> = at_source.iter().chain(&at_target).copied().collect();
    assert_eq!(all.len(), at_source.len() + at_target.len(), "a time of the series came twice");
    let to_come = at_source.iter().max().unwrap() + 1000;
    assert!(all.contains(&to_come), "the time that was to come at the move did not come");
    let (first, last) = (*all.first().unwrap(), *all.last().unwrap());
    let times: BTreeSet<u64> = (first..=last).step_by(1000).collect();
    assert!(all.is_subset(&times), "the series is out of step: {all:?}");
    let lost = |due_ms: &&u64| **due_ms < moving_ms.0 || **due_ms > moving_ms.1;
    let left_out: Vec<&u64> = times.difference(&all).collect();
    assert_eq!(left_out.iter().copied().find(lost), None, "a time of the series did not come");
    eprintln!("the series came {} times, {} passed during the move", all.len(), left_out.len());
}

#[test]
fn every_message_of_a_topic_that_moves_is_delivered_by_one_of_two_servers() {
    let messages = number_from_environment("PUNCTUAL_MOVING_MESSAGES", MESSAGES);
    let rate = number_from_environment("PUNCTUAL_MOVING_RATE", RATE);
    let seed = number_from_environment("PUNCTUAL_MOVING_SEED", wall_ms());
    eprintln!("seed {seed}, {messages} messages, {rate}/s");
    let directory = tempfile::tempdir().unwrap();
    let [source, target] = ["source", "target"].map(|name| directory.path().join(name));
    let (source, target) = (Launch::on(source).start(), Launch::on(target).start());
    let traffic = Traffic {
        rate,
        patience: PATIENCE + Duration::from_millis(messages),
        is_moved: AtomicBool::new(false),
        done: AtomicBool::new(false),
        sent_to_target: AtomicU64::new(0),
        sent: Mutex::default(),
        delivered: Mutex::default(),
    };
    fill(&traffic, &mut source.client(), messages);
    let begun_ms = wall_ms();
    let (mut follower, mut at_target, moving_ms) = std::thread::scope(|scope| {
        let _brake = Brake(&traffic.done);
        let (addresses, traffic) = ([source.address(), target.address()], &traffic);
        scope.spawn(move || {
            let _brake = Brake(&traffic.done);
            traffic.produce(addresses, Dice::new(seed));
        });
        let reader = Follower::new(source.client());
        scope.spawn(move || {
            let _brake = Brake(&traffic.done);
            traffic.follow(reader);
        });
        traffic.wait_for_deliveries(rate);
        let (export, span) = export_at_once(source.address());
        traffic.check_export(&export, messages, span);
        let (cut_off, cut_off_span) = export_cut_off(source.address(), messages);
        traffic.check_export(&cut_off, messages, cut_off_span);
        traffic.wait_for_deliveries(rate);
        eprintln!(
            "{} lines at once in {} ms; late by (middle, most) ms before {:?}, meanwhile {:?}; in \
             {PAGES} pages, each cut off first, {} ms, late {:?}",
            export.lines,
            span.1 - span.0,
            traffic.lateness((begun_ms, span.0)),
            traffic.lateness(span),
            cut_off_span.1 - cut_off_span.0,
            traffic.lateness(cut_off_span),
        );
        let moving_ms =
            move_over(traffic, &source, &target, &directory.path().join("orders.ndjson"));
        let mut follower = Follower::new(target.client());
        let delivered = end_series(traffic, &mut target.client(), &mut follower);
        traffic.done.store(true, Ordering::SeqCst);
        (follower, delivered, moving_ms)
    });
    deliver_all(&traffic, &mut target.client());
    follower.reconnect(target.client());
    follower.follow(|delivery| at_target.push(delivery));
    judge(&traffic, messages, &at_target);
    judge_series(&traffic, &at_target, moving_ms);
    source.check_log();
    target.check_log();
}
