//! `punctual bench`: how fast a server takes messages, and gives them out, over HTTP.
//!
//! It works on a topic of its own, which it makes and removes, also after a refusal. A request that
//! is refused for a while is sent again; any other refusal ends the run, and no figure is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use indicatif::ProgressBar;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::Session;
use super::job::progress_bar;
use super::pending::topic_path;
use super::receive::group_path;
use crate::args::BenchOptions;
use crate::client::Refusal;
use crate::output::{Column, Table, line, remark};

/// The group that consumes.
const GROUP: &str = "bench";
/// Most messages that one receive takes.
const RECEIVED_AT_ONCE: u64 = 1000;
/// How long a receive waits for the first message.
const WAIT: &str = "1s";
/// How long to wait after a refusal that may pass.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Most requests whose times are kept.
const TIMES_MAX: u64 = 10_000_000;

pub(super) fn run(session: &Arc<Session>, options: &BenchOptions) -> anyhow::Result<()> {
    if options.messages / options.batch > TIMES_MAX {
        bail!("these are too many requests; send more messages in each, with --batch");
    }
    let topic = match &options.topic {
        Some(topic) => topic.clone(),
        None => format!("bench-{}", Timestamp::now().as_millisecond()),
    };
    if session.client.get(&topic_path(&topic)).is_ok() {
        bail!("the topic {topic} is there already, and a bench would mix with what is in it");
    }
    session.client.put(&topic_path(&topic), &json!({}))?;
    let outcome = measure(session, &topic, options);
    if !options.keep {
        let removed = session.client.delete(&topic_path(&topic));
        removed.with_context(|| format!("the topic {topic} is still there"))?;
    }
    let phases = outcome?;
    if session.json {
        return phases.iter().try_for_each(|phase| line(&phase.json().to_string()));
    }
    let mut table = Table::new(FIGURES);
    phases.iter().for_each(|phase| table.row(phase.row()));
    table.print()
}

const FIGURES: &[Column] = &[
    Column::Whole("PHASE"),
    Column::Number("MESSAGES"),
    Column::Number("SECONDS"),
    Column::Number("PER SECOND"),
    Column::Number("REQUESTS"),
    Column::Number("P50 MS"),
    Column::Number("P99 MS"),
    Column::Number("MAX MS"),
];

fn measure(
    session: &Arc<Session>,
    topic: &str,
    options: &BenchOptions,
) -> anyhow::Result<Vec<Phase>> {
    let mut phases = Vec::new();
    let path = format!("{}/messages", topic_path(topic));
    let body = "x".repeat(usize::try_from(options.body_bytes)?);
    let message = match &options.delay {
        Some(delay) => json!({"body": body, "delay": delay}),
        None => json!({"body": body}),
    };
    let crew = Crew::new("send", session, options);
    phases.push(crew.work(options, |session, most| {
        let messages: Vec<&Value> = (0..most).map(|_| &message).collect();
        session.client.post(&path, &json!({"messages": messages}))?;
        Ok(most)
    })?);
    if options.consume {
        let group = group_path(topic, GROUP);
        let crew = Crew::new("consume", session, options);
        phases.push(crew.work(options, |session, most| consume(session, &group, most))?);
    }
    Ok(phases)
}

/// Receives some messages and acks them; answers how many.
fn consume(session: &Session, group: &str, most: u64) -> anyhow::Result<u64> {
    let ask = json!({"max": most.min(RECEIVED_AT_ONCE), "wait": WAIT});
    let answer = session.client.post_waiting(&format!("{group}/receive"), &ask)?;
    let messages = answer["messages"].as_array().ok_or_else(|| anyhow!("not messages"))?;
    if !messages.is_empty() {
        session.ack(group, messages)?;
    }
    Ok(messages.len() as u64)
}

/// Threads that share the messages of a phase.
struct Crew<'a> {
    name: &'static str,
    session: &'a Arc<Session>,
    left: AtomicU64,
    has_failed: AtomicBool,
    times: Mutex<Vec<Duration>>,
    bar: ProgressBar,
}

impl<'a> Crew<'a> {
    fn new(name: &'static str, session: &'a Arc<Session>, options: &BenchOptions) -> Self {
        Self {
            name,
            session,
            left: AtomicU64::new(options.messages),
            has_failed: AtomicBool::new(false),
            times: Mutex::new(Vec::new()),
            bar: progress_bar(Some(options.messages)),
        }
    }

    /// Calls until all messages are done. The call is told how many it may take, and answers how
    /// many it took.
    fn work(
        self,
        options: &BenchOptions,
        call: impl Fn(&Session, u64) -> anyhow::Result<u64> + Sync,
    ) -> anyhow::Result<Phase> {
        let started = moment();
        let outcome = std::thread::scope(|scope| {
            let worker = || {
                let outcome = self.take_part(options.batch, &call);
                self.has_failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            };
            let workers: Vec<_> = (0..options.connections).map(|_| scope.spawn(worker)).collect();
            let ended = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|_panicked| Err(anyhow!("a thread has died")))
            });
            ended.collect::<Vec<_>>().into_iter().collect::<anyhow::Result<Vec<()>>>()
        });
        self.bar.finish_and_clear();
        outcome?;
        let mut times = self.times.into_inner();
        times.sort_unstable();
        let (name, messages) = (self.name, options.messages);
        Ok(Phase { name, messages, length: started.elapsed(), times })
    }

    fn take_part(
        &self,
        batch: u64,
        call: &impl Fn(&Session, u64) -> anyhow::Result<u64>,
    ) -> anyhow::Result<()> {
        let mut is_told = false;
        loop {
            let rest = |left: u64| (left > 0).then(|| left.saturating_sub(batch));
            let Ok(before) = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest)
            else {
                return Ok(());
            };
            if self.has_failed.load(Ordering::Relaxed) {
                return Ok(());
            }
            let most = before.min(batch);
            let started = moment();
            let taken = match call(self.session, most) {
                Ok(taken) => taken,
                Err(error) if may_pass(&error) => {
                    if !is_told {
                        remark(&format!("{error:#}; trying again"));
                        is_told = true;
                    }
                    // Nobody unparks this thread, so it is a pause.
                    std::thread::park_timeout(BACK_OFF);
                    0
                }
                Err(error) => return Err(error),
            };
            self.left.fetch_add(most.saturating_sub(taken), Ordering::Relaxed);
            if taken > 0 {
                self.times.lock().push(started.elapsed());
                self.bar.inc(taken);
            }
        }
    }
}

fn may_pass(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(Refusal::may_pass)
}

#[expect(clippy::disallowed_methods, reason = "how long requests really take is the question")]
fn moment() -> Instant {
    Instant::now()
}

/// What a phase came to.
struct Phase {
    name: &'static str,
    messages: u64,
    length: Duration,
    /// How long each request took, the shortest first.
    times: Vec<Duration>,
}

impl Phase {
    /// Milliseconds that so many in a thousand requests took at most.
    fn ms(&self, per_mille: usize) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let time = self.times.get(last * per_mille / 1000);
        time.map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    }

    fn rate(&self) -> String {
        let micros = self.length.as_micros().max(1);
        (u128::from(self.messages) * 1_000_000 / micros).to_string()
    }

    fn json(&self) -> Value {
        json!({
            "phase": self.name, "messages": self.messages, "requests": self.times.len(),
            "seconds": self.length.as_secs_f64(), "per_second": self.rate().parse::<u64>().ok(),
            "p50_ms": self.ms(500), "p99_ms": self.ms(990), "max_ms": self.ms(1000),
        })
    }

    fn row(&self) -> Vec<String> {
        let mut row = vec![self.name.to_owned(), self.messages.to_string()];
        row.push(format!("{:.2}", self.length.as_secs_f64()));
        row.push(self.rate());
        row.push(self.times.len().to_string());
        row.extend([500, 990, 1000].map(|per_mille| format!("{:.1}", self.ms(per_mille))));
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_what_was_measured() {
        let times = (1..=100).map(Duration::from_millis).collect();
        let phase = Phase { name: "send", messages: 1000, length: Duration::from_secs(2), times };
        assert_eq!((phase.ms(500), phase.ms(1000), phase.rate()), (50.0, 100.0, "500".to_owned()));
        let empty = Phase { name: "x", messages: 0, length: Duration::ZERO, times: Vec::new() };
        assert_eq!((empty.ms(990), empty.rate()), (0.0, "0".to_owned()));
        assert_eq!(phase.json()["p99_ms"], 99.0);
    }
}
