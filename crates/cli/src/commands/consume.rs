//! `punctual consume`: follows a topic until interrupted.
//!
//! A message is acked only after it was printed, or its command ended well. Interrupted, each
//! worker finishes what it has at hand; a second interrupt ends at once. While the server is away
//! the workers try again, less and less often.

mod exec;
mod stop;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Session;
use super::receive::group_path;
use crate::args::ConsumeOptions;
use crate::client::Refusal;
use crate::output::{harmless, line, remark};
use stop::Stop;

/// How long one request waits for messages.
const WAIT: &str = "20s";
/// Messages printed between two acks.
const PRINTED_AT_ONCE: u64 = 100;
/// How soon to try again when the server is away, and how late at most.
const BACK_OFF_MIN: Duration = Duration::from_millis(200);
const BACK_OFF_MAX: Duration = Duration::from_secs(10);

/// What every worker works with.
struct Work {
    session: Arc<Session>,
    /// Where the group is.
    group: String,
    exec: Option<String>,
    /// Messages that may still be asked for.
    left: AtomicU64,
    stop: Stop,
}

pub(super) fn run(session: Arc<Session>, options: ConsumeOptions) -> anyhow::Result<()> {
    let group = group_path(&options.topic, &options.group);
    let stop = Stop::on_signal().context("no signals")?;
    let left = AtomicU64::new(options.max.unwrap_or(u64::MAX));
    let work = Arc::new(Work { session, group, exec: options.exec, left, stop });
    for number in 0..options.concurrency {
        let worker = Arc::clone(&work);
        work.stop.started();
        std::thread::Builder::new()
            .name(format!("consume-{number}"))
            .spawn(move || worker.stop.ended(worker.follow()))
            .context("no thread")?;
    }
    // Those who only wait for messages are not waited for.
    work.stop.wait()
}

impl Work {
    /// Receives and works until asked to stop, or until the server refuses for good.
    fn follow(&self) -> anyhow::Result<()> {
        let path = format!("{}/receive", self.group);
        let mut back_off = BACK_OFF_MIN;
        while !self.stop.is_asked() {
            let Some(share) = Share::of(&self.left, self.at_once()) else { return Ok(()) };
            let ask = json!({"max": share.taken, "wait": WAIT});
            let answer = match self.session.client.post_waiting(&path, &ask) {
                Ok(answer) => answer,
                Err(error) if is_final(&error) => return Err(error),
                Err(error) => {
                    drop(share);
                    if back_off == BACK_OFF_MIN {
                        remark(&format!("{error:#}; trying again"));
                    }
                    self.stop.pause(back_off);
                    back_off = (back_off * 2).min(BACK_OFF_MAX);
                    continue;
                }
            };
            back_off = BACK_OFF_MIN;
            let messages = answer["messages"].as_array().ok_or_else(|| anyhow!("not messages"))?;
            share.used(messages.len());
            if !messages.is_empty() {
                // Not let in: the program is ending, and the messages come again.
                let Some(busy) = self.stop.enter() else { return Ok(()) };
                self.work(messages)?;
                drop(busy);
            }
        }
        Ok(())
    }

    const fn at_once(&self) -> u64 {
        if self.exec.is_some() { 1 } else { PRINTED_AT_ONCE }
    }

    fn work(&self, messages: &[Value]) -> anyhow::Result<()> {
        if let Some(command) = &self.exec {
            return messages.iter().try_for_each(|message| self.execute(command, message));
        }
        for message in messages {
            self.print(message)?;
        }
        let acked = self.patiently(|| self.session.ack(&self.group, messages));
        self.told(acked)
    }

    fn print(&self, message: &Value) -> anyhow::Result<()> {
        if self.session.json {
            return line(&message.to_string());
        }
        let body = body(message)?;
        let mut out = io::stdout().lock();
        if out.is_terminal() {
            writeln!(out, "{}", harmless(&String::from_utf8_lossy(&body)))?;
        } else {
            out.write_all(&body)?;
            out.write_all(b"\n")?;
        }
        out.flush().map_err(Into::into)
    }

    /// Repeats a call that says what became of messages while the server is away. The lease may
    /// run out over that; then the server says so.
    fn patiently<T>(&self, call: impl Fn() -> anyhow::Result<T>) -> anyhow::Result<T> {
        let mut back_off = BACK_OFF_MIN;
        for _ in 0..TRIES {
            match call() {
                Err(error) if !is_final(&error) => self.stop.pause(back_off),
                outcome => return outcome,
            }
            back_off = (back_off * 2).min(BACK_OFF_MAX);
        }
        call()
    }

    /// That a message comes again is worth a remark, and no reason to end.
    fn told(&self, outcome: anyhow::Result<()>) -> anyhow::Result<()> {
        match outcome {
            Err(error) if is_refusal(&error) => Err(error),
            Err(error) => {
                remark(&format!("{error:#}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// Messages that one request may bring; what it does not bring is left to others.
struct Share<'a> {
    left: &'a AtomicU64,
    taken: u64,
}

impl<'a> Share<'a> {
    /// At most so many, or nothing when none are left.
    fn of(left: &'a AtomicU64, most: u64) -> Option<Self> {
        let rest = |left: u64| (left > 0).then(|| left.saturating_sub(most));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).ok()?;
        Some(Self { left, taken: before.min(most) })
    }

    fn used(mut self, count: usize) {
        self.taken = self.taken.saturating_sub(count as u64);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.left.fetch_add(self.taken, Ordering::Relaxed);
    }
}

/// How often to say again what became of a message.
const TRIES: usize = 6;

fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Refusal>().is_some_and(|refusal| !refusal.may_pass())
}

/// Whether it is of no use to ask again.
fn is_final(error: &anyhow::Error) -> bool {
    let is_transport = error.downcast_ref::<ureq::Error>().is_some();
    let may_pass = error.downcast_ref::<Refusal>().is_some_and(Refusal::may_pass);
    !is_transport && !may_pass
}

/// The bytes of a body.
fn body(message: &Value) -> anyhow::Result<Vec<u8>> {
    match (message["body"].as_str(), message["body_base64"].as_str()) {
        (Some(text), _) => Ok(text.as_bytes().to_vec()),
        (None, Some(text)) => STANDARD.decode(text).context("a body is not base 64"),
        (None, None) => Err(anyhow!("a message without a body")),
    }
}
