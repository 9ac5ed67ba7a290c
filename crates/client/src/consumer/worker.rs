//! The loop behind a consumer: keeps one stream from the broker and runs the handlers.
//!
//! It only waits; what is asked and what is handled when is decided by the desk. What must hold: a
//! stream that breaks is opened again after a growing wait, for as long as the consumer runs, and
//! handlers go on meanwhile.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use punctual_proto::v1::receive_stream_request::Request;
use punctual_proto::v1::receive_stream_response::Response;
use punctual_proto::v1::{self, ReceiveStreamRequest, ReceiveStreamResponse};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::consumer::delivery::Delivery;
use crate::consumer::desk::{Desk, Limits, Verdict};
use crate::consumer::failure::{Failure, Next};
use crate::error::{ConsumeError, Problem};
use crate::fault::Fault;
use crate::link::Link;
use crate::tasks::until;
use crate::wire;

/// Requests that wait to be written.
const REQUESTS_MAX: usize = 64;
/// How long a consumer that was stopped and had to break handlers off waits for the last answers.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

type Stream = Link<ReceiveStreamRequest, ReceiveStreamResponse>;

/// What a consumer is to do.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) connection: Connection,
    pub(crate) topic: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) limits: Limits,
    pub(crate) drain_limit: Duration,
}

/// Handles messages until `shutdown`, and then settles what is at hand.
pub(crate) async fn run<F, Fut>(
    task: Task,
    handler: F,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ConsumeError>
where
    F: Fn(Delivery) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let mut shutdown = std::pin::pin!(shutdown);
    let mut worker = Worker::new(task);
    while !worker.is_done() {
        worker.begin(&handler);
        let wants_room = worker.ask();
        let wake = worker.wake_at(wants_room);
        let is_running = worker.ends_at.is_none();
        let Worker { link, handlers, .. } = &mut worker;
        tokio::select! {
            () = &mut shutdown, if is_running => worker.stop(),
            // Otherwise there is room to go on asking.
            answer = next_or_room(link, wants_room) => if let Some(answer) = answer {
                worker.hear(answer)?;
            },
            Some(ended) = handlers.join_next_with_id(), if !handlers.is_empty() => {
                worker.finish(ended);
            }
            () = until(wake) => worker.wake(),
        }
    }
    Ok(())
}

async fn next_or_room(
    link: &mut Option<Stream>,
    wants_room: bool,
) -> Option<Result<ReceiveStreamResponse, Fault>> {
    match link {
        Some(link) => link.next_or_room(wants_room).await,
        None => std::future::pending().await,
    }
}

struct Worker {
    task: Task,
    desk: Desk,
    handlers: JoinSet<Verdict>,
    jobs: HashMap<Id, u64>,
    link: Option<Stream>,
    backoff: Backoff,
    /// When a link may be opened again.
    open_at: Instant,
    /// When the link was opened, and when a request was last answered or first asked.
    opened: Instant,
    last_sign: Instant,
    /// When handlers are broken off, once the consumer was stopped.
    ends_at: Option<Instant>,
    is_broken_off: bool,
}

impl Worker {
    fn new(task: Task) -> Self {
        let now = Instant::now();
        Self {
            desk: Desk::new(task.limits, now),
            backoff: Backoff::new(task.limits.retry),
            task,
            handlers: JoinSet::new(),
            jobs: HashMap::new(),
            link: None,
            open_at: now,
            opened: now,
            last_sign: now,
            ends_at: None,
            is_broken_off: false,
        }
    }

    /// Whether it was stopped and nothing is left to do.
    fn is_done(&self) -> bool {
        let is_over = |ends_at: Instant| self.is_broken_off && Instant::now() >= ends_at;
        self.ends_at.is_some_and(|ends_at| self.desk.is_idle() || is_over(ends_at))
    }

    /// Starts handlers for what waits.
    fn begin<F, Fut>(&mut self, handler: &Arc<F>)
    where
        F: Fn(Delivery) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        while let Some((job, delivery)) = self.desk.begin() {
            let handler = Arc::clone(handler);
            let span = tracing::info_span!(
                "punctual.handle",
                topic = %delivery.topic,
                group = %delivery.group,
                id = %delivery.id,
                attempt = delivery.attempt,
            );
            let handling = async move {
                match handler(delivery).await {
                    Ok(()) => Verdict::Ack,
                    Err(failure) => {
                        tracing::debug!(error = %failure, "the message was not handled");
                        Verdict::Fail(failure.next, failure.error)
                    }
                }
            };
            let started = self.handlers.spawn(handling.instrument(span));
            self.jobs.insert(started.id(), job);
        }
    }

    /// Sends what is to be asked now. True when there is more than there is room for.
    fn ask(&mut self) -> bool {
        let now = Instant::now();
        if self.link.is_none() {
            let has_work = self.ends_at.is_none() || !self.desk.is_idle();
            if now < self.open_at || !has_work {
                return false;
            }
            self.open(now);
        }
        let Some(link) = &self.link else { return false };
        if !self.desk.is_settling() {
            self.last_sign = now;
        }
        loop {
            if !link.has_room() {
                return true;
            }
            let request = match self.desk.ask(now) {
                Some(settle) => Request::Settle(settle),
                None => match self.desk.grant() {
                    0 => return false,
                    more => Request::Credit(more),
                },
            };
            // A link that has ended says so by its answers.
            let _ended = !link.send(ReceiveStreamRequest { request: Some(request) });
        }
    }

    fn open(&mut self, now: Instant) {
        let Task { connection, topic, group, limits, .. } = &self.task;
        let mut consuming = connection.consuming();
        let open = move |requests| async move { consuming.receive_stream(requests).await };
        let link = Link::open(REQUESTS_MAX, connection.answer_timeout, open);
        let open = v1::OpenReceive {
            topic: topic.as_ref().to_owned(),
            group: group.as_ref().to_owned(),
            lease: Some(wire::duration(limits.lease)),
            credit: self.desk.grant(),
        };
        // A new link has room.
        let _ended = !link.send(ReceiveStreamRequest { request: Some(Request::Open(open)) });
        self.link = Some(link);
        self.opened = now;
    }

    fn hear(&mut self, answer: Result<ReceiveStreamResponse, Fault>) -> Result<(), ConsumeError> {
        let now = Instant::now();
        let answer = match answer {
            Ok(answer) => answer,
            Err(fault) => return self.lose(fault),
        };
        self.backoff.reset();
        let is_known = match answer.response {
            Some(Response::Received(received)) => {
                let span = tracing::debug_span!("punctual.receive", topic = %self.task.topic);
                let _inside = span.enter();
                for delivery in received.deliveries {
                    let Task { topic, group, .. } = &self.task;
                    self.desk.offer(Delivery::new(delivery, topic, group), now);
                }
                true
            }
            Some(Response::Settled(settled)) => {
                self.last_sign = now;
                self.settled(settled, now)
            }
            None => true,
        };
        if is_known {
            return Ok(());
        }
        let detail = "an answer to nothing that was asked".to_owned();
        self.lose(Fault::Lost { detail, is_unsent: false })
    }

    fn settled(&mut self, settled: v1::Settled, now: Instant) -> bool {
        use v1::settled::Outcome;
        match settled.outcome {
            Some(Outcome::Results(results)) => {
                let results: Vec<_> = results.results().collect();
                self.desk.answered(settled.sequence, &results)
            }
            Some(Outcome::Problem(problem)) => {
                self.desk.refused(settled.sequence, &Problem::from(problem), now)
            }
            None => false,
        }
    }

    /// The link broke: it is opened again later, unless the broker does not want that.
    fn lose(&mut self, fault: Fault) -> Result<(), ConsumeError> {
        let now = Instant::now();
        self.link = None;
        self.desk.lost(now);
        if !fault.is_passing() {
            return Err(fault.into());
        }
        if now > self.opened + self.task.limits.retry.longest * 2 {
            self.backoff.reset();
        }
        let wait = self.backoff.after_failure().max(fault.retry_after().unwrap_or_default());
        tracing::debug!(fault = %fault.text(), ?wait, "the stream of deliveries broke");
        self.open_at = now + wait;
        Ok(())
    }

    fn finish(&mut self, ended: Result<(Id, Verdict), JoinError>) {
        let (id, verdict) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), broken(error)),
        };
        if let Some(job) = self.jobs.remove(&id) {
            self.desk.finish(job, verdict, Instant::now());
        }
    }

    /// Takes nothing more, and goes on until what is at hand is settled.
    fn stop(&mut self) {
        self.ends_at = Some(Instant::now() + self.task.drain_limit);
        self.desk.stop();
        if let Some(link) = &self.link {
            let stop = ReceiveStreamRequest { request: Some(Request::Stop(v1::StopReceive {})) };
            // Without it, what still comes is given back.
            let _no_room = !link.send(stop);
        }
    }

    /// When there is something to do without anything else happening. What cannot be asked for want
    /// of room waits for that.
    fn wake_at(&self, wants_room: bool) -> Option<Instant> {
        let now = Instant::now();
        let wait_to_open = (self.link.is_none() && now < self.open_at).then_some(self.open_at);
        let desk = self.desk.wake_at().filter(|_| !wants_room);
        let desk = desk.map(|at| wait_to_open.map_or(at, |open| open.max(at)));
        let silence = (self.link.is_some() && self.desk.is_settling()).then(|| self.silent_at());
        [wait_to_open, desk, silence, self.ends_at].into_iter().flatten().min()
    }

    fn silent_at(&self) -> Instant {
        self.last_sign + self.task.connection.answer_timeout
    }

    fn wake(&mut self) {
        let now = Instant::now();
        if self.link.is_some() && self.desk.is_settling() && self.silent_at() <= now {
            // What is lost by silence is asked again, so it is no reason to end.
            let _passing = self.lose(Fault::late()).is_err();
        }
        if self.ends_at.is_some_and(|ends_at| ends_at <= now) && !self.is_broken_off {
            self.break_off(now);
        }
    }

    /// The time to drain is over: handlers that still run are ended, and their messages come again.
    fn break_off(&mut self, now: Instant) {
        self.is_broken_off = true;
        self.ends_at = Some(now + LAST_ANSWERS);
        self.handlers.abort_all();
        self.jobs.clear();
        let jobs = self.desk.jobs();
        if !jobs.is_empty() {
            tracing::warn!(handlers = jobs.len(), "handlers were broken off by the shutdown");
        }
        for job in jobs {
            let error = "the consumer stopped before it was handled".to_owned();
            let verdict = Verdict::Fail(Next::Again(Some(Duration::ZERO)), error);
            self.desk.finish(job, verdict, now);
        }
    }
}

/// What becomes of a message whose handler panicked or was ended.
fn broken(error: JoinError) -> Verdict {
    let text = match error.try_into_panic() {
        Ok(panic) => format!("the handler panicked: {}", words(panic.as_ref())),
        Err(_ended) => "the handler was ended".to_owned(),
    };
    tracing::error!(error = %text, "the message was not handled");
    let Failure { error, next } = Failure::new(text);
    Verdict::Fail(next, error)
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no text")
}
