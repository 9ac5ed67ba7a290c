//! Receive: messages of a group for a consumer, by one call or as a stream with credit.
//!
//! On a stream each message that is sent takes one off the credit, and nothing is sent without. What
//! was taken and never left goes back when the stream ends; what has left stays leased to whoever
//! has its receipt.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use punctual_api::{Code, Problem};
use punctual_broker::group::Consumer;
use punctual_model::limits::{RECEIVE_MESSAGES_DEFAULT, RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MAX};
use punctual_model::{GroupName, Span, TopicName};
use punctual_proto::v1;
use punctual_proto::v1::receive_stream_request::Request;
use punctual_proto::v1::receive_stream_response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::grpc::answers::Out;
use crate::grpc::call::Asked;
use crate::grpc::send::shutting_down;
use crate::grpc::settle::settled;
use crate::grpc::shown::delivery;
use crate::grpc::time;
use crate::grpc::wire::{Answer, Ask as _, Frames, framed, malformed};
use crate::http::receive::gone;
use crate::http::shared::Shared;
use crate::receiving::{self, Taken, Wanted};
use crate::timings::Via;

/// Most bytes of messages in one answer, about: clients take four megabytes if nothing is said.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Frames with messages that may wait until there is room for them on the stream.
const UNSENT_MAX: usize = 2;
/// Settlements of one stream under way at one time.
const SETTLES_MAX: usize = 64;

/// The number of messages or questions; zero means that nothing was said.
pub(crate) fn max(written: u32) -> Result<usize, Problem> {
    match usize::try_from(written).unwrap_or(usize::MAX) {
        0 => Ok(RECEIVE_MESSAGES_DEFAULT),
        max if max <= RECEIVE_MESSAGES_MAX => Ok(max),
        _ => {
            let detail = format!("max is a whole number from 1 to {RECEIVE_MESSAGES_MAX}");
            Err(Problem::new(Code::InvalidField, detail))
        }
    }
}

/// Until when to wait.
pub(crate) fn deadline(wait: Option<&prost_types::Duration>) -> Result<Instant, Problem> {
    let bounds = (Span::ZERO, RECEIVE_WAIT_MAX);
    let wait = wait.map(|wait| time::span("wait", wait, bounds)).transpose()?;
    Ok(Instant::now() + Duration::from_millis(wait.unwrap_or(Span::ZERO).as_millis()))
}

/// The answer to a receive. Its messages go back unless it is sent.
#[derive(Debug, Default)]
pub(crate) struct Received {
    bytes: Bytes,
    taken: Option<Taken>,
}

impl Answer for Received {
    fn write(&self, to: &mut BytesMut) {
        to.extend_from_slice(&self.bytes);
    }

    fn sent(self) {
        if let Some(taken) = self.taken {
            taken.sent();
        }
    }
}

fn response(taken: &Taken) -> v1::ReceiveResponse {
    v1::ReceiveResponse { deliveries: taken.messages().iter().map(delivery).collect() }
}

/// Messages that somebody asks for now.
fn wanted(max: usize, lease: Option<Span>) -> Wanted {
    Wanted { max, bytes_max: PAGE_BYTES_MAX, lease, via: Via::Grpc, since: Instant::now() }
}

pub(crate) async fn receive(
    asked: Asked,
    request: v1::ReceiveRequest,
) -> Result<Received, Problem> {
    let (topic, group) = asked.group(&request.topic, &request.group)?;
    let lease = request.lease.as_ref().map(time::lease).transpose()?;
    let mut wanted = wanted(max(request.max)?, lease);
    let deadline = deadline(request.wait.as_ref())?;
    let shared = &asked.shared;
    let consumer = receiving::open(shared, topic, group).await?;
    loop {
        let available = consumer.available();
        let write = |taken: &Taken| prost::Message::encode_to_vec(&response(taken));
        if let Some((taken, bytes)) = receiving::take(shared, &consumer, wanted, write).await? {
            return Ok(Received { bytes: bytes.into(), taken: Some(taken) });
        }
        if Instant::now() >= deadline {
            return Ok(Received::default());
        }
        let goes_on = tokio::select! {
            woken = timeout_at(deadline, available) => woken.is_ok(),
            () = shared.tasks.stopped() => false,
            () = gone(asked.peer.as_ref()) => false,
        };
        if !goes_on {
            return Ok(Received::default());
        }
        wanted.since = Instant::now();
        asked.caller().still_stands()?;
    }
}

/// Messages for a stream, ready to be sent.
struct Portion {
    frame: Bytes,
    taken: Taken,
    held: Vec<OwnedSemaphorePermit>,
}

/// What a stream reads its messages with.
#[derive(Clone)]
struct Source {
    asked: Asked,
    consumer: Consumer,
    lease: Option<Span>,
    /// Room for frames that wait to leave.
    unsent: Arc<Semaphore>,
}

impl Source {
    /// Waits for messages, up to `max` of them.
    async fn next(self, max: usize) -> Result<Portion, Problem> {
        let shared = &self.asked.shared;
        let place = Arc::clone(&self.unsent).acquire_owned().await;
        let mut held: Vec<_> = place.into_iter().collect();
        loop {
            let wanted = wanted(max, self.lease);
            self.asked.caller().still_stands()?;
            let available = self.consumer.available();
            let write = |taken: &Taken| {
                framed(&v1::ReceiveStreamResponse {
                    response: Some(Response::Received(response(taken))),
                })
            };
            let taken = receiving::take(shared, &self.consumer, wanted, write).await?;
            if let Some((taken, frame)) = taken {
                held.extend(room(shared, frame.len()).await);
                return Ok(Portion { frame, taken, held });
            }
            available.await;
        }
    }
}

/// Waits until so many bytes of an answer may be held; what is larger than ever may be goes alone.
async fn room(shared: &Shared, bytes: usize) -> Option<OwnedSemaphorePermit> {
    let permits = u32::try_from(bytes.min(shared.live().config.http.held_bytes_max)).ok()?;
    Arc::clone(&shared.held).acquire_many_owned(permits).await.ok()
}

/// The opening of a stream, which comes first and once.
struct Opening {
    topic: TopicName,
    group: GroupName,
    lease: Option<Span>,
    credit: u64,
}

async fn opening(asked: &Asked, frames: &mut Frames) -> Result<Opening, Problem> {
    let frame = tokio::select! {
        frame = frames.next() => frame?,
        () = asked.shared.tasks.stopped() => return Err(shutting_down()),
    };
    let first = frame.map(|frame| v1::ReceiveStreamRequest::read(&frame.bytes)).transpose()?;
    let Some(Request::Open(open)) = first.and_then(|first| first.request) else {
        return Err(malformed("a stream begins with open"));
    };
    let (topic, group) = asked.group(&open.topic, &open.group)?;
    let lease = open.lease.as_ref().map(time::lease).transpose()?;
    Ok(Opening { topic, group, lease, credit: u64::from(open.credit) })
}

/// Sends messages as they become available and as there is credit, and settles what comes back.
pub(crate) async fn stream(asked: Asked, mut frames: Frames, out: Out) -> Result<(), Problem> {
    let Opening { topic, group, lease, mut credit } = opening(&asked, &mut frames).await?;
    let shared = Arc::clone(&asked.shared);
    let consumer = receiving::open(&shared, topic, group).await?;
    let unsent = Arc::new(Semaphore::new(UNSENT_MAX));
    let source = Source { asked: asked.clone(), consumer: consumer.clone(), lease, unsent };
    let mut stopped = pin!(shared.tasks.stopped());
    let mut settles = FuturesOrdered::new();
    let mut coming: Option<Pin<Box<_>>> = None;
    let mut is_reading = true;
    let mut end: Option<Problem> = None;
    loop {
        if end.is_some() {
            coming = None;
        } else if coming.is_none() && credit > 0 {
            let most = usize::try_from(credit).unwrap_or(usize::MAX).min(RECEIVE_MESSAGES_MAX);
            coming = Some(Box::pin(source.clone().next(most)));
        }
        let may_read = is_reading && end.is_none() && settles.len() < SETTLES_MAX;
        tokio::select! {
            biased;
            () = &mut stopped, if end.is_none() => end = Some(shutting_down()),
            Some(frame) = settles.next(), if !settles.is_empty() => out.send(frame).await,
            frame = frames.next(), if may_read => match read(frame) {
                Ok(None) => is_reading = false,
                Ok(Some(Request::Credit(more))) => {
                    credit = credit.saturating_add(u64::from(more));
                }
                Ok(Some(Request::Stop(v1::StopReceive {}))) => {
                    // What was being taken goes back.
                    (credit, coming) = (0, None);
                }
                Ok(Some(Request::Settle(settle))) => {
                    settles.push_back(settled(asked.clone(), consumer.clone(), settle));
                }
                Ok(Some(Request::Open(_))) => end = Some(malformed("the stream is open")),
                Err(problem) => end = Some(problem),
            },
            portion = next_of(&mut coming), if coming.is_some() => {
                coming = None;
                match portion {
                    Ok(Portion { frame, taken, held }) => {
                        let count = u64::try_from(taken.messages().len()).unwrap_or(u64::MAX);
                        credit = credit.saturating_sub(count);
                        out.send_taken(frame, taken, held).await;
                    }
                    Err(problem) => end = Some(problem),
                }
            }
            else => return end.map_or(Ok(()), Err),
        }
    }
}

/// What the consumer says; `None` at its end.
fn read(
    frame: Result<Option<crate::grpc::wire::Frame>, Problem>,
) -> Result<Option<Request>, Problem> {
    let Some(frame) = frame? else {
        return Ok(None);
    };
    let request = v1::ReceiveStreamRequest::read(&frame.bytes)?.request;
    request.map(Some).ok_or_else(|| malformed("the request says nothing"))
}

async fn next_of<F: Future + ?Sized>(coming: &mut Option<Pin<Box<F>>>) -> F::Output {
    match coming {
        Some(coming) => coming.as_mut().await,
        None => std::future::pending().await,
    }
}
