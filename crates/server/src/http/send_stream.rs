//! Send as a stream: one message a line, for as long as the sender likes, each answered by a line.
//!
//! What has arrived is sent together, so that a fast sender pays for few flushes and a slow one waits
//! for nobody. Answers come in the order of the lines. A message that cannot be sent is answered by
//! the problem with it, and the stream goes on; what makes going on impossible is the last answer.
//! While nobody reads the answers nothing more is taken in, so no more than a batch is in memory.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::BytesMut;
use http::header::{EXPECT, HeaderValue};
use punctual_api::request::{Parameters, Posted, read_messages};
use punctual_api::{Code, Problem};
use punctual_broker::{Request, ScheduleError, Scheduled};
use punctual_model::TopicName;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;

use crate::access::{Caller, Cost, Permission, Sending, Target};
use crate::http::asked::to_request;
use crate::http::body::{hold, merge};
use crate::http::call::Call;
use crate::http::export::NDJSON;
use crate::http::lines::{LINE_BYTES_MAX, Line, Lines, Next, Pace};
use crate::http::messages::{JSON_BYTES_INLINE, READ_LIMITS, scheduled_view};
use crate::http::problem::{of_broken_off, of_schedule};
use crate::http::receive_stream::turn;
use crate::http::reply::{Cut, Piece, Reply, written};
use crate::http::shared::Shared;
use crate::timings::Via;

/// Messages sent together.
const BATCH_MESSAGES: usize = 1000;
/// Bytes of lines sent together; the last one may pass it.
const BATCH_BYTES: usize = 256 << 10;
/// Messages sent together once one was refused.
const CAREFUL_MESSAGES: usize = 32;

/// `POST /v1/topics/{topic}/messages` with one message a line.
pub(crate) async fn send(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    call.body.check()?;
    let turn = turn(&call.shared)?;
    let caller = call.caller().clone();
    let asks_for_leave = call.parts.headers.contains_key(EXPECT);
    let Call { shared, mut body, .. } = call;
    if asks_for_leave {
        let patience = shared.live().config.http.body_idle_timeout;
        body.begin(Instant::now() + patience).await?;
    }
    let lines = Lines::new(&shared, body, Pace::Talk);
    // One piece waits while the next is written.
    let (pieces, source) = mpsc::channel(1);
    let tasks = shared.tasks.clone();
    tasks.spawn(async move {
        Sender { shared, caller, topic, lines, answered: 0, pieces }.run().await;
        drop(turn);
    });
    Ok(written(HeaderValue::from_static(NDJSON), source))
}

/// Lines that are sent together.
#[derive(Default)]
struct Batch {
    lines: Vec<BytesMut>,
    bytes: usize,
    held: Option<OwnedSemaphorePermit>,
}

/// What follows a batch.
enum After {
    More,
    End,
    /// It cannot go on.
    Stop(Problem),
}

struct Sender {
    shared: Arc<Shared>,
    caller: Caller,
    topic: TopicName,
    lines: Lines,
    /// How many messages were answered.
    answered: usize,
    pieces: mpsc::Sender<Result<Piece, Cut>>,
}

impl Sender {
    async fn run(&mut self) {
        loop {
            let (batch, mut after) = self.gather().await;
            let mut text = Vec::new();
            if !batch.lines.is_empty() {
                match self.check_right() {
                    Ok(()) => self.answer(batch, &mut text).await,
                    Err(problem) => after = After::Stop(problem),
                }
            }
            if let After::Stop(problem) = &after {
                write_line(&mut text, &problem.clone().at(self.answered));
            }
            // Nobody reads the answers any more: then nothing more is to be sent.
            let unread = !text.is_empty() && self.pieces.send(Ok(text.into())).await.is_err();
            match after {
                After::More if !unread => {}
                After::Stop(_) if !unread => {
                    tokio::select! {
                        () = self.lines.pass_over() => {}
                        () = self.pieces.closed() => {}
                        () = self.shared.tasks.stopped() => {}
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    /// Whoever has lost the right to send meanwhile has nothing more sent.
    fn check_right(&self) -> Result<(), Problem> {
        self.caller.still_stands()?;
        self.caller.require(Permission::Send, Target::Topic(&self.topic))
    }

    /// Waits for a line, and takes those along that have arrived with it.
    async fn gather(&mut self) -> (Batch, After) {
        let mut batch = Batch::default();
        let first = tokio::select! {
            line = self.lines.next() => line,
            () = self.shared.tasks.stopped() => {
                Err(Problem::new(Code::Unavailable, "the server is ending"))
            }
        };
        let mut next = match first {
            Ok(Some(line)) => Ok(Next::Line(line)),
            Ok(None) => Ok(Next::End),
            Err(problem) => Err(problem),
        };
        loop {
            let added = match next {
                Ok(Next::Line(Line::Text(line))) => batch.add(&self.shared, line),
                Ok(Next::Line(Line::TooLong)) => {
                    let detail = format!("a line has at most {LINE_BYTES_MAX} bytes");
                    Err(Problem::new(Code::LineTooLarge, detail))
                }
                Ok(Next::NotYet) => return (batch, After::More),
                Ok(Next::End) => return (batch, After::End),
                Err(problem) => Err(problem),
            };
            if let Err(problem) = added {
                return (batch, After::Stop(problem));
            }
            if batch.lines.len() >= BATCH_MESSAGES || batch.bytes >= BATCH_BYTES {
                return (batch, After::More);
            }
            next = self.lines.next_now().await;
        }
    }

    /// Sends what was gathered, and writes an answer for each line.
    async fn answer(&mut self, batch: Batch, text: &mut Vec<u8>) {
        let Batch { lines, bytes, held: _held } = batch;
        let begun = Instant::now();
        let count = lines.len();
        let read = move || lines.iter().map(|line| read(line)).collect();
        let read: Vec<Result<Request, Problem>> = if bytes <= JSON_BYTES_INLINE {
            read()
        } else {
            match self.shared.tasks.blocking(read).await.map_err(of_broken_off) {
                Ok(read) => read,
                Err(problem) => vec![Err(problem); count],
            }
        };
        let mut requests = Vec::with_capacity(count);
        let mut answers: Vec<Option<Result<Scheduled, Problem>>> = Vec::with_capacity(count);
        for one in read {
            match one {
                Ok(request) => {
                    requests.push(request);
                    answers.push(None);
                }
                Err(problem) => answers.push(Some(Err(problem))),
            }
        }
        let sent = self.send(&requests).await;
        let any_taken = sent.iter().any(Result::is_ok);
        let mut sent = sent.into_iter();
        for answer in answers {
            let answer = answer.or_else(|| sent.next());
            match answer.unwrap_or_else(|| Err(Code::Internal.into())) {
                Ok(scheduled) => {
                    let id = scheduled.id.to_string();
                    write_line(text, &scheduled_view(&id, &self.topic, &scheduled));
                }
                Err(problem) => write_line(text, &problem.at(self.answered)),
            }
            self.answered += 1;
        }
        if any_taken {
            self.shared.timings.schedule.note(Via::Http, begun);
        }
    }

    /// Sends messages together; when one is refused those before it, then it is answered, and the
    /// rest follows in small steps.
    async fn send(&self, requests: &[Request]) -> Vec<Result<Scheduled, Problem>> {
        let cost = Cost::of(requests.iter().map(|request| &request.message));
        let charged = match self.caller.charge(cost) {
            Ok(charged) => charged,
            Err(problem) => return vec![Err(problem); requests.len()],
        };
        let mut answers = Vec::with_capacity(requests.len());
        let mut most = requests.len();
        while let Some(rest) = requests.get(answers.len()..).filter(|rest| !rest.is_empty()) {
            let together = rest.get(..together(rest, most)).unwrap_or(rest);
            let mut signed = together.to_vec();
            self.caller.sign(&mut signed);
            match self.shared.broker.schedule(&self.topic, signed).await {
                Ok(sent) => {
                    charged.stored_part(Sending::of(together).new_ones(&sent));
                    answers.extend(sent.into_iter().map(Ok));
                    most = if most == requests.len() { most } else { CAREFUL_MESSAGES };
                }
                Err(
                    ScheduleError::Invalid { index, .. } | ScheduleError::OwnIdTaken { index, .. },
                ) if index > 0 => most = index,
                Err(error @ (ScheduleError::Invalid { .. } | ScheduleError::OwnIdTaken { .. })) => {
                    answers.push(Err(of_schedule(error, false)));
                    most = CAREFUL_MESSAGES;
                }
                Err(other) => {
                    let problem = of_schedule(other, false);
                    answers.extend(together.iter().map(|_| Err(problem.clone())));
                }
            }
        }
        answers
    }
}

/// How many of these may be sent together: two with the same name may not, as the second one is to
/// be told what became of the first.
fn together(requests: &[Request], most: usize) -> usize {
    let mut names = HashSet::new();
    let fits = |request: &&Request| match &request.own_id {
        Some(name) => names.insert(name.clone()),
        None => true,
    };
    requests.iter().take(most.max(1)).take_while(fits).count()
}

impl Batch {
    fn add(&mut self, shared: &Shared, line: BytesMut) -> Result<(), Problem> {
        merge(&mut self.held, hold(shared, line.len())?);
        self.bytes += line.len();
        self.lines.push(line);
        Ok(())
    }
}

fn read(line: &[u8]) -> Result<Request, Problem> {
    match read_messages(line, READ_LIMITS)? {
        Posted::One(message) => to_request(*message),
        Posted::Many(_) => Err(Problem::new(Code::InvalidRequest, "a line holds one message")),
    }
}

fn write_line(text: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(&mut *text, value).expect("our own shapes have no faults");
    text.push(b'\n');
}
