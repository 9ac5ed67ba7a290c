//! The task behind a producer: keeps one stream to the broker and sends what the outbox has.
//!
//! It only waits; what is sent when is decided by the outbox. What must hold: a stream that breaks
//! is opened again after a growing wait, for as long as anything is to be sent.

use std::sync::Arc;
use std::time::Duration;

use punctual_proto::v1::send_stream_response::Outcome;
use punctual_proto::v1::{SendStreamRequest, SendStreamResponse};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::error::Problem;
use crate::fault::Fault;
use crate::link::{self, Link};
use crate::producer::outbox::{Entry, Limits, Outbox, Outgoing};
use crate::tasks::until;

/// How often messages are looked for whose time is over.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);
/// Most commands taken in one go.
const COMMANDS_MAX: usize = 256;

/// What a producer asks of its task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Send these.
    Send {
        /// Where to.
        topic: Arc<str>,
        /// What.
        entries: Vec<Entry>,
    },
    /// Wait for nothing to join what was asked before.
    Hurry,
    /// The same, and take nothing more.
    Close,
}

/// The task. It ends when it was closed, or when no producer is left, and all was sent.
pub(crate) async fn run(
    connection: Connection,
    limits: Limits,
    mut commands: mpsc::Receiver<Command>,
) {
    let mut pipeline = Pipeline::new(connection, limits);
    let mut taken = Vec::with_capacity(COMMANDS_MAX);
    while !(pipeline.is_closing && pipeline.outbox.is_empty()) {
        pipeline.hand_out();
        let wake = pipeline.wake_at();
        tokio::select! {
            count = commands.recv_many(&mut taken, COMMANDS_MAX), if !pipeline.is_closing => {
                pipeline.is_closing |= count == 0;
                taken.drain(..).for_each(|command| pipeline.take(command));
            }
            answer = link::next(&mut pipeline.link) => pipeline.hear(answer),
            () = until(wake) => pipeline.wake(),
        }
    }
    // What was asked after the close is told that it came too late, by being dropped.
}

struct Pipeline {
    connection: Connection,
    outbox: Outbox,
    room: usize,
    link: Option<Link<SendStreamRequest, SendStreamResponse>>,
    backoff: Backoff,
    /// When a link may be opened again.
    open_at: Instant,
    /// When something was last sent on an idle link or heard on it.
    last_sign: Instant,
    expire_at: Instant,
    /// Whether the link has brought an answer.
    is_proven: bool,
    is_closing: bool,
}

impl Pipeline {
    fn new(connection: Connection, limits: Limits) -> Self {
        let now = Instant::now();
        Self {
            outbox: Outbox::new(limits),
            room: limits.under_way,
            link: None,
            backoff: Backoff::new(connection.retry),
            connection,
            open_at: now,
            last_sign: now,
            expire_at: now + EXPIRY_INTERVAL,
            is_proven: false,
            is_closing: false,
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Send { topic, entries } => {
                let now = Instant::now();
                for entry in entries {
                    self.outbox.push(&topic, entry, now);
                }
            }
            Command::Hurry => self.outbox.hurry(),
            Command::Close => {
                self.outbox.hurry();
                self.is_closing = true;
            }
        }
    }

    /// Sends what may be sent now.
    fn hand_out(&mut self) {
        let now = Instant::now();
        if self.outbox.is_empty() || (self.link.is_none() && now < self.open_at) {
            return;
        }
        if !self.outbox.is_waiting() {
            self.last_sign = now;
        }
        while let Some(outgoing) = self.outbox.next(now) {
            let room = self.room;
            let connection = &self.connection;
            let link = self.link.get_or_insert_with(|| open(connection, room));
            let Outgoing { sequence, topic, messages } = outgoing;
            // A link that has ended says so by its answers.
            let _ended = !link.send(SendStreamRequest {
                sequence,
                topic: topic.as_ref().to_owned(),
                messages,
            });
        }
    }

    fn hear(&mut self, answer: Result<SendStreamResponse, Fault>) {
        let now = Instant::now();
        match answer {
            Ok(SendStreamResponse { sequence, outcome }) => {
                self.last_sign = now;
                self.is_proven = true;
                self.backoff.reset();
                let is_known = match outcome {
                    Some(Outcome::Sent(sent)) => self.outbox.stored(sequence, sent.messages),
                    Some(Outcome::Problem(problem)) => {
                        self.outbox.refused(sequence, Problem::from(problem), now)
                    }
                    None => false,
                };
                if !is_known {
                    self.lose(Fault::Lost {
                        detail: "an answer to nothing that was asked".to_owned(),
                        is_unsent: false,
                    });
                }
            }
            Err(fault) => self.lose(fault),
        }
    }

    fn lose(&mut self, fault: Fault) {
        self.link = None;
        let wait = self.backoff.after_failure().max(fault.retry_after().unwrap_or_default());
        self.open_at = Instant::now() + wait;
        if self.outbox.is_waiting() {
            tracing::debug!(fault = %fault.text(), ?wait, "the stream of sends broke");
        }
        let was_proven = std::mem::take(&mut self.is_proven);
        match fault {
            Fault::Refused(problem) if problem.retriable => self.outbox.lost(&problem.detail),
            Fault::Refused(problem) if was_proven => self.outbox.refuse_under_way(&problem),
            Fault::Refused(problem) => self.outbox.refuse_all(&problem),
            Fault::Lost { is_unsent: true, .. } => self.outbox.unsent(),
            Fault::Lost { detail, .. } => self.outbox.lost(&detail),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        if self.outbox.is_empty() {
            return None;
        }
        let is_held_back = self.link.is_none() && Instant::now() < self.open_at;
        let open = is_held_back.then_some(self.open_at);
        let silence = self.outbox.is_waiting().then(|| self.silent_at());
        let next = self.outbox.wake_at().map(|at| open.map_or(at, |open| open.max(at)));
        [open, silence, next, Some(self.expire_at)].into_iter().flatten().min()
    }

    fn silent_at(&self) -> Instant {
        self.last_sign + self.connection.answer_timeout
    }

    fn wake(&mut self) {
        let now = Instant::now();
        if self.expire_at <= now {
            self.outbox.expire(now);
            self.expire_at = now + EXPIRY_INTERVAL;
        }
        if self.outbox.is_waiting() && self.silent_at() <= now {
            self.lose(Fault::late());
        }
    }
}

fn open(connection: &Connection, room: usize) -> Link<SendStreamRequest, SendStreamResponse> {
    let mut messages = connection.messages();
    Link::open(room, connection.answer_timeout, move |requests| async move {
        messages.send_stream(requests).await
    })
}
