//! Receive as a stream: messages are pushed to a consumer as they come, by server-sent events.
//!
//! No more of them are unsettled at one time than the consumer wants; what it acks or nacks makes
//! room for more. A message that was taken and not handed over to the connection goes back at once.
//! One that was handed over stays with the consumer until its lease ends, also when the stream does:
//! whoever was given it may be at work on it.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{CACHE_CONTROL, HeaderValue};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::group::{Consumer, Receipt};
use punctual_model::Span;
use punctual_model::limits::{RECEIVE_MESSAGES_DEFAULT, RECEIVE_MESSAGES_MAX};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::access::{Caller, Permission, Target};
use crate::http::call::Call;
use crate::http::groups::found;
use crate::http::receive::Writer;
use crate::http::reply::{Cut, OnTheWay, Piece, Reply, counted, written_for};
use crate::http::shared::Shared;
use crate::http::time;
use crate::receiving::{Taken, Wanted, take};
use crate::timings::Via;

pub(crate) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
/// How often something is sent, so that whoever stands between does not take it for dead.
const BEAT: Duration = Duration::from_secs(15);
const BEAT_TEXT: &[u8] = b": still here\n\n";
/// About how many bytes of messages are sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// How long to wait when memory is short.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(200);
/// What others settle is looked at no more often than this.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// `GET …/groups/{group}/stream`
pub(crate) async fn stream(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let most = u64::try_from(RECEIVE_MESSAGES_MAX).expect("a small number");
    let max = parameters.take_number("max_in_flight", 1, most)?;
    let max = max.and_then(|max| usize::try_from(max).ok()).unwrap_or(RECEIVE_MESSAGES_DEFAULT);
    let lease = parameters.take("lease")?.map(|text| time::lease(&text)).transpose()?;
    parameters.end()?;
    let consumer = found(&call)?;
    let turn = turn(&call.shared)?;
    // One piece waits while the next is written.
    let (pieces, source) = mpsc::channel(1);
    if call.parts.method != Method::HEAD {
        let shared = Arc::clone(&call.shared);
        let caller = call.caller().clone();
        let mut stream =
            Stream { shared, caller, consumer, max, lease, unsettled: Vec::new(), pieces };
        call.shared.tasks.spawn(async move {
            stream.run().await;
            drop(turn);
        });
    }
    let mut reply = written_for(call.peer, EVENTS, source);
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

/// Streams take turns, so that they do not take all of the memory.
pub(crate) fn turn(shared: &Shared) -> Result<OwnedSemaphorePermit, Problem> {
    let turn = Arc::clone(&shared.streams).try_acquire_owned();
    turn.map_err(|_none_left| {
        Problem::new(Code::TooBusy, "as many streams are under way as may be")
    })
}

struct Stream {
    shared: Arc<Shared>,
    caller: Caller,
    consumer: Consumer,
    max: usize,
    lease: Option<Span>,
    /// What was sent and may still be held.
    unsettled: Vec<Receipt>,
    pieces: mpsc::Sender<Result<Piece, Cut>>,
}

/// Why a stream ends.
enum Stop {
    /// Nobody reads it any more, or the server is ending.
    Quietly,
    Refused(Problem),
}

impl OnTheWay for Taken {
    fn handed_over(self: Box<Self>) {
        self.sent();
    }
}

impl Stream {
    async fn run(&mut self) {
        let stop = loop {
            if let Err(stop) = self.go_on().await {
                break stop;
            }
        };
        if let Stop::Refused(problem) = stop {
            let mut text = b"event: problem\ndata: ".to_vec();
            serde_json::to_writer(&mut text, &problem).expect("a problem is plain JSON");
            text.extend_from_slice(b"\n\n");
            // Nobody reads it any more: then it need not be told.
            let _unread = self.pieces.send(Ok(Piece::from(text))).await.is_err();
        }
    }

    /// Sends what there is, and waits until something is sent or the connection must be kept
    /// alive.
    async fn go_on(&mut self) -> Result<(), Stop> {
        let beat = Instant::now() + BEAT;
        let mut looked = false;
        loop {
            self.check_right()?;
            let settled = self.consumer.settled();
            self.consumer.held(&mut self.unsettled);
            let room = self.max.saturating_sub(self.unsettled.len());
            let woken = if room > 0 {
                let available = self.consumer.available();
                if self.send(room).await? {
                    return Ok(());
                }
                self.wait(beat, available).await?
            } else {
                if std::mem::replace(&mut looked, true) {
                    self.pause(LOOK_AGAIN).await?;
                }
                self.wait(beat, settled).await?
            };
            if !woken {
                return self.hand(Piece::from(BEAT_TEXT.to_vec())).await;
            }
        }
    }

    /// Whoever has lost the right to receive meanwhile is given nothing more.
    fn check_right(&self) -> Result<(), Stop> {
        self.caller.still_stands().map_err(Stop::Refused)?;
        let group = self.consumer.group();
        let target = Target::Group(self.consumer.topic(), &group.name);
        self.caller.require(Permission::Consume, target).map_err(Stop::Refused)
    }

    /// Whether there was something to send.
    async fn send(&mut self, room: usize) -> Result<bool, Stop> {
        let (via, since) = (Via::Http, Instant::now());
        let wanted = Wanted { max: room, bytes_max: PIECE_BYTES, lease: self.lease, via, since };
        let taken = take(&self.shared, &self.consumer, wanted, render).await;
        let Some((taken, text)) = taken.map_err(Stop::Refused)? else { return Ok(false) };
        let Ok(bytes) = counted(&self.shared, text) else {
            // They go back, for somebody with more room.
            drop(taken);
            self.pause(SHORT_OF_MEMORY).await?;
            return Ok(false);
        };
        self.unsettled.extend(taken.messages().iter().map(|one| one.receipt));
        self.hand(Piece::with(bytes, Box::new(taken))).await?;
        Ok(true)
    }

    async fn hand(&mut self, piece: Piece) -> Result<(), Stop> {
        tokio::select! {
            sent = self.pieces.send(Ok(piece)) => sent.map_err(|_unread| Stop::Quietly),
            () = self.shared.tasks.stopped() => Err(Stop::Quietly),
        }
    }

    /// Waits for a wake; false when the time has come to keep the connection alive.
    async fn wait(&self, until: Instant, wake: impl Future<Output = ()>) -> Result<bool, Stop> {
        tokio::select! {
            woken = timeout_at(until, wake) => Ok(woken.is_ok()),
            () = self.shared.tasks.stopped() => Err(Stop::Quietly),
            () = self.pieces.closed() => Err(Stop::Quietly),
        }
    }

    async fn pause(&self, length: Duration) -> Result<(), Stop> {
        match timeout(length, self.shared.tasks.stopped()).await {
            Ok(()) => Err(Stop::Quietly),
            Err(_elapsed) => Ok(()),
        }
    }
}

fn render(taken: &Taken) -> Vec<u8> {
    let mut text = Vec::new();
    let mut writer = Writer::default();
    for one in taken.messages() {
        text.extend_from_slice(b"event: message\nid: ");
        text.extend_from_slice(&one.id.encode());
        text.extend_from_slice(b"\ndata: ");
        // JSON as we write it has no line ends.
        writer.write(taken.topic(), one, &mut text);
        text.extend_from_slice(b"\n\n");
    }
    text
}
