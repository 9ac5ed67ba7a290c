//! Whoever changes a message in the moment in which it falls due: does it ever go both ways?
//!
//! Messages fall due one after the other, and each is cancelled, moved or paused within a few
//! milliseconds of that, some of them by several connections at the same time. Then the log of the
//! topic is read: every message is there as its answers say, once, or not at all.

mod checks;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_model::{Clock as _, SystemClock};
use serde_json::{Value, json};

use crate::args::{Common, RacesOptions};
use crate::measure::{Latency, memory_of};
use crate::races::checks::Log;
use crate::random::Random;
use crate::report::{Report, Table, number, say, short};
use crate::rig::{Place, pause};
use crate::server::{Connection, Server, request, texts_after};

/// Messages of each request to schedule.
const BATCH: usize = 1000;
/// How long messages fall due in one round.
const ROUND: Duration = Duration::from_secs(5);
/// Fewest messages due each second, however slow the answers are.
const RATE_MIN: u64 = 1000;
/// How many connections try the same thing with a message that is contested.
const RIVALS: usize = 3;
/// A message is moved by this much, and up to twice that.
const LATER_MS: u64 = 500;
/// Of the messages to cancel, one in so many is moved, and one in so many paused.
const OTHERS_ONE_OF: u64 = 5;

/// What is tried with every message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Cancel,
    Move,
    Pause,
}

impl Deed {
    const fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Move => "move",
            Self::Pause => "pause",
        }
    }

    pub(crate) fn topic(self) -> String {
        format!("races-{}", self.word())
    }
}

/// A message and when it is due.
#[derive(Debug)]
struct Target {
    id: String,
    due_ms: u64,
}

/// Something to be done with a target at a time.
#[derive(Clone, Copy, Debug)]
struct Try {
    at: Duration,
    target: usize,
    /// When it is to be due then, for those that are moved.
    later_ms: u64,
    is_contested: bool,
}

/// What a try came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// It was delivered.
    TooLate,
    /// Another one was faster.
    Beaten,
}

/// A try and its outcome.
#[derive(Clone, Copy, Debug)]
struct Tried {
    target: usize,
    later_ms: u64,
    outcome: Outcome,
}

/// What one connection, or all of them, did.
struct Answers {
    tried: Vec<Tried>,
    latency: Latency,
    /// Sent within the window around the due time.
    in_time: u64,
}

/// Sums over all rounds of a deed.
struct Tally {
    messages: u64,
    tries: u64,
    in_time: u64,
    done: u64,
    too_late: u64,
    beaten: u64,
    /// Time in which messages fell due.
    racing: Duration,
    latency: Latency,
}

pub(crate) fn run(common: &Common, options: &RacesOptions) -> Result<()> {
    let place = Place::fresh(common, options.messages * 600 + (2 << 30))?;
    let mut server = Server::start(&options.server, place.path(), common)?;
    let raced = all_deeds(common, options, &server);
    let stopped = server.stop();
    raced?.finish(common)?;
    stopped?;
    place.clear()
}

fn all_deeds(common: &Common, options: &RacesOptions, server: &Server) -> Result<Report> {
    let settings = json!({
        "messages": options.messages, "connections": options.connections,
        "due_per_second_max": options.rate, "window_ms": options.window_ms,
        "contested_percent": options.contested, "rivals": RIVALS,
    });
    let name = format!("races-{}", short(options.messages));
    let mut report = Report::new(name, common, settings);
    let columns = ["messages", "tries", "done", "too late", "beaten", "in window", "tries/s"];
    let mut table = Table::new("in the moment it is due", &columns);
    let mut latencies = Vec::new();
    let others = (options.messages / OTHERS_ONE_OF).max(1);
    let deeds = [(Deed::Cancel, options.messages), (Deed::Move, others), (Deed::Pause, others)];
    for (deed, messages) in deeds {
        let tally = Race::new(deed, options, server.address)?.run(messages)?;
        let rate = tally.tries as f64 / tally.racing.as_secs_f64();
        let counts =
            [tally.messages, tally.tries, tally.done, tally.too_late, tally.beaten, tally.in_time];
        let cells = counts.into_iter().map(|count| count as f64).chain([rate]);
        table.row(deed.word(), cells.collect());
        report.figure(&format!("{}, done", deed.word()), tally.done as f64);
        report.figure(&format!("{}, too late", deed.word()), tally.too_late as f64);
        latencies.push((deed.word(), tally.latency));
    }
    report.table(table);
    let rows: Vec<_> = latencies.iter().map(|(name, latency)| (*name, latency)).collect();
    let table = rows
        .iter()
        .fold(Table::of_latency("answer"), |table, (name, latency)| table.latency(name, latency));
    report.table(table);
    report.latency_chart("latency of an answer", &rows);
    report.memory(memory_of(server.pid()));
    Ok(report)
}

/// One deed, in rounds.
struct Race<'a> {
    deed: Deed,
    options: &'a RacesOptions,
    address: SocketAddr,
    clock: SystemClock,
    random: Random,
    connection: Connection,
    log: Log,
    /// Messages due each second.
    rate: u64,
    tally: Tally,
}

impl<'a> Race<'a> {
    fn new(deed: Deed, options: &'a RacesOptions, address: SocketAddr) -> Result<Self> {
        let mut connection = Connection::open(address)?;
        let topic = json!({ "partitions": 1 });
        connection.call_json("PUT", &format!("/v1/topics/{}", deed.topic()), &topic)?;
        Ok(Self {
            deed,
            options,
            address,
            clock: SystemClock::new(),
            random: Random::new(11),
            connection,
            log: Log::new(deed),
            rate: options.rate,
            tally: Tally {
                messages: 0,
                tries: 0,
                in_time: 0,
                done: 0,
                too_late: 0,
                beaten: 0,
                racing: Duration::ZERO,
                latency: Latency::new(),
            },
        })
    }

    fn run(mut self, messages: u64) -> Result<Tally> {
        let mut filling = Duration::from_secs(1);
        while self.tally.messages < messages {
            let most = self.rate * ROUND.as_secs();
            let count = most.min(messages - self.tally.messages);
            let started = self.clock.read();
            let first_due = started.wall + Duration::from_secs(1) + filling * 2;
            let targets = self.fill(count, first_due)?;
            filling = self.clock.read().monotonic.saturating_sub(started.monotonic);
            let answers = self.race(&targets)?;
            self.expect(&targets, &answers.tried)?;
            self.log.settle(&mut self.connection)?;
            self.note(count, &answers);
        }
        self.log.close(&mut self.connection)?;
        Ok(self.tally)
    }

    /// Schedules messages that fall due one after the other.
    fn fill(&mut self, count: u64, first_due: Duration) -> Result<Vec<Target>> {
        let path = format!("/v1/topics/{}/messages", self.deed.topic());
        let due_ms = |index: u64| -> Result<u64> {
            let wait = Duration::from_micros(index * 1_000_000 / self.rate);
            Ok(u64::try_from((first_due + wait).as_millis())?)
        };
        let dues: Vec<u64> = (0..count).map(due_ms).collect::<Result<_>>()?;
        let mut targets = Vec::with_capacity(dues.len());
        let mut next = self.tally.messages;
        for dues in dues.chunks(BATCH) {
            let messages: Vec<Value> = (next..)
                .zip(dues)
                .map(|(number, due_ms)| json!({ "body": number.to_string(), "deliver_at": due_ms }))
                .collect();
            next += messages.len() as u64;
            let json = json!({ "messages": messages }).to_string();
            let request = request("POST", &path, json.as_bytes());
            let answer = self.connection.call(&request, &self.clock)?;
            let ids = texts_after(answer, b"\"id\":\"").map(|id| std::str::from_utf8(id));
            for (id, due_ms) in ids.zip(dues) {
                targets.push(Target { id: id?.to_owned(), due_ms: *due_ms });
            }
        }
        ensure!(targets.len() == dues.len(), "{} ids for {count} messages", targets.len());
        Ok(targets)
    }

    /// What is to be tried, in the order of time.
    fn plan(&mut self, targets: &[Target]) -> Vec<Try> {
        let mut plan = Vec::with_capacity(targets.len());
        let window_micros = self.options.window_ms * 1000;
        for (target, Target { due_ms, .. }) in targets.iter().enumerate() {
            let is_contested = self.random.below(100) < self.options.contested;
            let early = Duration::from_micros(window_micros);
            let late = Duration::from_micros(self.random.below(2 * window_micros + 1));
            let at = (Duration::from_millis(*due_ms) + late).saturating_sub(early);
            for _ in 0..if is_contested { RIVALS } else { 1 } {
                let later_ms = due_ms + LATER_MS + self.random.below(LATER_MS);
                plan.push(Try { at, target, later_ms, is_contested });
            }
        }
        plan.sort_by_key(|one| one.at);
        plan
    }

    /// Whichever connection is free does what is next.
    fn race(&mut self, targets: &[Target]) -> Result<Answers> {
        let plan = self.plan(targets);
        let next = AtomicUsize::new(0);
        let take = || plan.get(next.fetch_add(1, Ordering::Relaxed));
        let (deed, address, window_ms) = (self.deed, self.address, self.options.window_ms);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 0..self.options.connections {
                let thread = std::thread::Builder::new().name(format!("bench-race-{number}"));
                let racer = Racer::new(deed, Connection::open(address)?, window_ms);
                threads.push(thread.spawn_scoped(scope, move || racer.run(targets, take))?);
            }
            let mut all = Answers { tried: Vec::new(), latency: Latency::new(), in_time: 0 };
            for thread in threads {
                let answers = thread.join().ok().context("a client ended by a panic")??;
                all.tried.extend(answers.tried);
                all.latency.add(&answers.latency);
                all.in_time += answers.in_time;
            }
            Ok(all)
        })
    }

    /// Says what has to come of each target, going by the answers.
    fn expect(&mut self, targets: &[Target], tried: &[Tried]) -> Result<()> {
        let mut outcomes: Vec<Vec<Tried>> = vec![Vec::new(); targets.len()];
        for one in tried {
            outcomes[one.target].push(*one);
        }
        for (target, outcomes) in targets.iter().zip(outcomes) {
            let count = |wanted| outcomes.iter().filter(|one| one.outcome == wanted).count();
            let (done, beaten) = (count(Outcome::Done), count(Outcome::Beaten));
            ensure!(done <= 1, "{} went well {done} times", target.id);
            ensure!(beaten == 0 || done == 1, "{} was beaten by nobody", target.id);
            // Once it is cancelled or paused nothing delivers it any more.
            let over = done == 1 && self.deed != Deed::Move;
            ensure!(!over || count(Outcome::TooLate) == 0, "{} went both ways", target.id);
            let later = outcomes.iter().find(|one| one.outcome == Outcome::Done);
            self.log.expect(
                &target.id,
                match (self.deed, later) {
                    (_, None) => Some(target.due_ms),
                    (Deed::Move, Some(moved)) => Some(moved.later_ms),
                    (Deed::Cancel | Deed::Pause, Some(_)) => None,
                },
            );
        }
        Ok(())
    }

    fn note(&mut self, count: u64, answers: &Answers) {
        let tally = &mut self.tally;
        tally.messages += count;
        tally.tries += answers.tried.len() as u64;
        tally.in_time += answers.in_time;
        for one in &answers.tried {
            match one.outcome {
                Outcome::Done => tally.done += 1,
                Outcome::TooLate => tally.too_late += 1,
                Outcome::Beaten => tally.beaten += 1,
            }
        }
        tally.racing += Duration::from_micros(count * 1_000_000 / self.rate);
        tally.latency.add(&answers.latency);
        let share = answers.in_time as f64 / answers.tried.len() as f64;
        let (word, done) = (self.deed.word(), number(tally.messages as f64));
        let share_text = number(share * 100.0);
        say(&format!("{word:>8} {done:>12}  {:>6} /s  {share_text} % in the window", self.rate));
        // Answers that come too slowly push the tries out of the window.
        if share < 0.5 {
            self.rate = (self.rate * 2 / 3).max(RATE_MIN);
        } else if share > 0.7 {
            self.rate = (self.rate * 6 / 5).min(self.options.rate);
        }
    }
}

/// One connection and what it does.
struct Racer {
    deed: Deed,
    connection: Connection,
    window: Duration,
    clock: SystemClock,
}

impl Racer {
    fn new(deed: Deed, connection: Connection, window_ms: u64) -> Self {
        let window = Duration::from_millis(window_ms);
        Self { deed, connection, window, clock: SystemClock::new() }
    }

    fn run<'a>(
        mut self,
        targets: &[Target],
        take: impl Fn() -> Option<&'a Try>,
    ) -> Result<Answers> {
        let mut answers = Answers { tried: Vec::new(), latency: Latency::new(), in_time: 0 };
        while let Some(one) = take() {
            let target = &targets[one.target];
            let request = self.request(target, one);
            pause(one.at.saturating_sub(self.clock.read().wall));
            let sent = self.clock.read().wall;
            let due = Duration::from_millis(target.due_ms);
            answers.in_time += u64::from(due.abs_diff(sent) <= self.window);
            let (status, answer) = self.connection.call_any(&request, &self.clock)?;
            let outcome = outcome(status, answer).with_context(|| target.id.clone())?;
            answers.latency.note(self.clock.read().wall.saturating_sub(sent));
            let Try { target, later_ms, .. } = *one;
            answers.tried.push(Tried { target, later_ms, outcome });
        }
        Ok(answers)
    }

    fn request(&self, target: &Target, one: &Try) -> Vec<u8> {
        let path = format!("/v1/topics/{}/messages/{}", self.deed.topic(), target.id);
        let mut json = match self.deed {
            Deed::Cancel => return request("DELETE", &path, b""),
            Deed::Move => json!({ "deliver_at": one.later_ms }),
            Deed::Pause => json!({ "paused": true }),
        };
        if one.is_contested {
            json["version"] = 1.into();
        }
        request("PATCH", &path, json.to_string().as_bytes())
    }
}

fn outcome(status: u16, answer: &[u8]) -> Result<Outcome> {
    let code = texts_after(answer, b"\"code\":\"").next().unwrap_or_default();
    match (status, code) {
        (200, _) => Ok(Outcome::Done),
        (409, b"already_delivered") => Ok(Outcome::TooLate),
        (409, b"already_cancelled" | b"version_conflict") => Ok(Outcome::Beaten),
        _ => anyhow::bail!("{status} {}", String::from_utf8_lossy(answer)),
    }
}
