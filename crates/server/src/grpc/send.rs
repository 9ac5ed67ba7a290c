//! Many sends on one stream: each all or nothing, each answered by its sequence, in order.
//!
//! Several are under way at once, so that they reach the disk together. While as much is under way
//! as may be, nothing more is read, and the flow control of HTTP/2 slows the sender down.

use std::pin::pin;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use punctual_api::{Code, Problem};
use punctual_broker::Request;
use tokio::time::Instant;

use crate::access::Sending;
use crate::grpc::answers::Out;
use crate::grpc::call::Asked;
use crate::grpc::sent::{Accepted, NumberedAnswer, NumberedBatch};
use crate::grpc::wire::{Ask as _, Frame, Frames, framed};
use crate::http::problem::of_schedule;
use crate::timings::Via;

/// Batches of one stream under way at one time.
const BATCHES_MAX: usize = 64;
/// Bytes of batches of one stream under way at one time; the last one may go beyond.
const BYTES_MAX: usize = 16 << 20;

/// The answer to a stream at shutdown.
pub(crate) fn shutting_down() -> Problem {
    Problem::new(Code::Unavailable, "the broker is shutting down")
}

/// Takes batches in until the sender ends, and answers them all.
pub(crate) async fn stream(asked: Asked, mut frames: Frames, out: Out) -> Result<(), Problem> {
    let shared = Arc::clone(&asked.shared);
    let mut stopped = pin!(shared.tasks.stopped());
    let mut under_way = FuturesOrdered::new();
    let mut bytes = 0;
    // How it ends, once no more batches are read.
    let mut end: Option<Result<(), Problem>> = None;
    loop {
        let has_room = end.is_none() && under_way.len() < BATCHES_MAX && bytes < BYTES_MAX;
        tokio::select! {
            biased;
            Some((answer, size)) = under_way.next(), if !under_way.is_empty() => {
                bytes -= size;
                out.send(framed(&answer)).await;
            }
            () = &mut stopped, if end.is_none() => end = Some(Err(shutting_down())),
            frame = frames.next(), if has_room => match frame.map(|frame| frame.map(start)) {
                Ok(Some(Ok(started))) => {
                    bytes += started.size;
                    let asked = asked.clone();
                    under_way.push_back(async move {
                        let size = started.size;
                        (started.answer(asked).await, size)
                    });
                }
                Ok(None) => end = Some(Ok(())),
                Err(problem) | Ok(Some(Err(problem))) => end = Some(Err(problem)),
            },
            else => return end.unwrap_or(Ok(())),
        }
    }
}

/// A batch that was read. The bytes of its frame count as held until it is answered.
struct Started {
    batch: NumberedBatch,
    size: usize,
    _frame: Frame,
}

/// Reads a batch. A frame that cannot be read at all ends the stream: nobody knows its sequence.
fn start(mut frame: Frame) -> Result<Started, Problem> {
    let size = frame.bytes.len();
    let batch = NumberedBatch::read(&frame.bytes)?;
    frame.bytes.clear();
    Ok(Started { batch, size, _frame: frame })
}

impl Started {
    async fn answer(self, asked: Asked) -> NumberedAnswer {
        let NumberedBatch { sequence, topic, requests } = self.batch;
        let outcome = match requests {
            Ok(requests) => accept(asked, &topic, requests).await,
            Err(problem) => Err(problem),
        };
        NumberedAnswer { sequence, outcome }
    }
}

/// Accepts a batch for one topic, whole or not at all.
pub(crate) async fn accept(
    asked: Asked,
    topic: &str,
    mut requests: Vec<Request>,
) -> Result<Accepted, Problem> {
    let begun = Instant::now();
    let topic = asked.topic(topic)?;
    asked.caller().sign(&mut requests);
    let sending = Sending::of(&requests);
    let charged = asked.caller().charge(sending.cost)?;
    let accepted = asked.shared.broker.schedule(&topic, requests).await;
    let accepted = accepted.map_err(|error| of_schedule(error, true))?;
    charged.stored_part(sending.new_ones(&accepted));
    asked.shared.timings.schedule.note(Via::Grpc, begun);
    Ok(Accepted(accepted))
}
