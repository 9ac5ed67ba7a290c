//! Takes in the body of a request, within its limits of size, time and memory held.
//!
//! A body that was made smaller on its way is made large again while it arrives; what comes out
//! counts, so that it costs no more than one that was sent as it is.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::http::call::Call;
use crate::http::coding::Coding;
use crate::http::decode::{Decoder, Malformed};
use crate::http::messages::require_json;
use crate::http::shared::Shared;

/// Bytes that are made at once while others wait.
const STEP_BYTES: usize = 32 << 10;

/// What has come of a body.
#[derive(Debug)]
pub(crate) enum Arrived {
    Piece(Bytes),
    /// Nothing yet.
    Nothing,
    End,
}

/// The body of a request on its way in.
#[derive(Debug)]
pub(crate) struct Arriving {
    incoming: Incoming,
    coding: Result<Option<Coding>, Problem>,
    /// There from the first piece of a body that was made smaller.
    decoder: Option<Box<Decoder>>,
    /// What has arrived and is not decoded yet.
    packed: Bytes,
    /// What has arrived before anybody asked for it.
    early: Option<Option<Result<Frame<Bytes>, hyper::Error>>>,
    /// Bytes that have arrived.
    arrived: usize,
    held: Option<OwnedSemaphorePermit>,
    counted: usize,
}

impl Arriving {
    pub(crate) fn new(incoming: Incoming, headers: &HeaderMap) -> Self {
        Self {
            incoming,
            coding: Coding::of_body(headers),
            decoder: None,
            packed: Bytes::new(),
            early: None,
            arrived: 0,
            held: None,
            counted: 0,
        }
    }

    /// Whether there is no body.
    pub(crate) fn is_empty(&self) -> bool {
        self.incoming.is_end_stream()
    }

    /// How much is known to arrive.
    fn declared(&self) -> usize {
        usize::try_from(self.incoming.size_hint().lower()).unwrap_or(usize::MAX)
    }

    fn is_packed(&self) -> bool {
        matches!(self.coding, Ok(Some(_)))
    }

    /// Whether there is something to take at this moment, be it the end.
    async fn has_more(&mut self) -> bool {
        if self.early.is_some() || !self.packed.is_empty() || self.incoming.is_end_stream() {
            return true;
        }
        if self.decoder.as_ref().is_some_and(|decoder| decoder.is_full()) {
            return true;
        }
        let incoming = &mut self.incoming;
        let looked = poll_fn(|cx| {
            Poll::Ready(match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Ready(frame) => Some(frame),
                Poll::Pending => None,
            })
        });
        self.early = looked.await;
        self.early.is_some()
    }

    /// Waits for the first piece, so that a peer that asks for leave to send is given it before it
    /// is answered.
    pub(crate) async fn begin(&mut self, deadline: Instant) -> Result<(), Problem> {
        if self.early.is_none() && !self.incoming.is_end_stream() {
            let frame = timeout_at(deadline, self.incoming.frame()).await;
            self.early = Some(frame.map_err(|_elapsed| Code::RequestTimeout)?);
        }
        Ok(())
    }

    /// Refuses a coding that nobody knows, before anything has arrived.
    pub(crate) fn check(&self) -> Result<(), Problem> {
        self.coding.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// The next piece as it was before it was made smaller; `None` at the end.
    pub(crate) async fn piece(
        &mut self,
        shared: &Shared,
        deadline: Instant,
    ) -> Result<Option<Bytes>, Problem> {
        match self.next(shared, Some(deadline)).await? {
            Arrived::Piece(piece) => Ok(Some(piece)),
            Arrived::Nothing | Arrived::End => Ok(None),
        }
    }

    /// The next piece as it was before it was made smaller. It is waited for until the deadline, or
    /// not at all. Not to be asked again when it was broken off.
    pub(crate) async fn next(
        &mut self,
        shared: &Shared,
        deadline: Option<Instant>,
    ) -> Result<Arrived, Problem> {
        self.check()?;
        loop {
            if let Some(piece) = self.more_of_the_last(shared).await? {
                return Ok(Arrived::Piece(piece));
            }
            if deadline.is_none() && !self.has_more().await {
                return Ok(Arrived::Nothing);
            }
            let frame = match (self.early.take(), deadline) {
                (Some(frame), _) => frame,
                (None, Some(deadline)) if !self.incoming.is_end_stream() => {
                    let frame = timeout_at(deadline, self.incoming.frame()).await;
                    frame.map_err(|_elapsed| Code::RequestTimeout)?
                }
                // Asked again after its end, a body need not say so again.
                (None, _) => None,
            };
            let data = match frame {
                // Trailers say nothing here.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    Err(_trailers) => continue,
                },
                Some(Err(_broken)) => {
                    return Err(Problem::new(Code::InvalidRequest, "the body broke off"));
                }
                None => {
                    let rest = self.decoder.as_mut().map(|decoder| decoder.end());
                    let rest = rest.transpose().map_err(of_malformed)?.unwrap_or_default();
                    self.decoder = None;
                    return Ok(match rest.is_empty() {
                        true => Arrived::End,
                        false => Arrived::Piece(rest.into()),
                    });
                }
            };
            self.arrived = self.arrived.saturating_add(data.len());
            match self.coding {
                Ok(Some(coding)) => {
                    if let Some(piece) = self.unpack(shared, coding, data)? {
                        return Ok(Arrived::Piece(piece));
                    }
                }
                _ => return Ok(Arrived::Piece(data)),
            }
        }
    }

    /// The beginning of what has just arrived.
    fn unpack(
        &mut self,
        shared: &Shared,
        coding: Coding,
        data: Bytes,
    ) -> Result<Option<Bytes>, Problem> {
        let mut decoder = match self.decoder.take() {
            Some(decoder) => decoder,
            None => Box::new(Decoder::new(coding).map_err(of_malformed)?),
        };
        self.packed = data;
        self.count(shared, decoder.memory_for(&self.packed))?;
        let piece = decoder.step(&mut self.packed, STEP_BYTES).map_err(of_malformed)?;
        self.count(shared, decoder.memory())?;
        self.decoder = Some(decoder);
        Ok(Some(Bytes::from(piece)).filter(|piece| !piece.is_empty()))
    }

    /// The rest of what has arrived, which is much if there is a rest.
    async fn more_of_the_last(&mut self, shared: &Shared) -> Result<Option<Bytes>, Problem> {
        while let Some(mut decoder) =
            self.decoder.take_if(|decoder| decoder.is_full() || !self.packed.is_empty())
        {
            // Small steps in turn with everybody else. On a thread of its own it would be made there
            // and dropped here, and the allocator keeps what was made on so many threads.
            tokio::task::yield_now().await;
            self.count(shared, decoder.memory_for(&self.packed))?;
            let piece = decoder.step(&mut self.packed, STEP_BYTES).map_err(of_malformed)?;
            self.count(shared, decoder.memory())?;
            self.decoder = Some(decoder);
            if !piece.is_empty() {
                return Ok(Some(piece.into()));
            }
        }
        Ok(None)
    }

    /// What the decoder takes is held too.
    fn count(&mut self, shared: &Shared, memory: usize) -> Result<(), Problem> {
        if memory > self.counted {
            let more = hold(shared, memory - self.counted)?;
            merge(&mut self.held, more);
            self.counted = memory;
        }
        Ok(())
    }
}

fn of_malformed(error: Malformed) -> Problem {
    Problem::new(Code::InvalidRequest, error.to_string())
}

/// How large a body may be, and the code for one that is larger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizeLimit {
    pub(crate) bytes: usize,
    pub(crate) code: Code,
}

/// A body that was taken in. The memory counts as held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    permit: Option<OwnedSemaphorePermit>,
}

impl Held {
    /// Lets the body go and keeps on holding.
    pub(crate) fn into_permit(self) -> Option<OwnedSemaphorePermit> {
        self.permit
    }
}

/// Takes in a request of JSON without parameters. Nothing at all is a request too, for handlers that
/// need nothing said.
pub(crate) async fn take_json(
    call: Call,
    bytes_max: usize,
) -> Result<(Arc<Shared>, Held), Problem> {
    Parameters::read(call.query())?.end()?;
    if !call.body.is_empty() {
        require_json(&call)?;
    }
    let limit = SizeLimit { bytes: bytes_max, code: Code::RequestTooLarge };
    let held = take(&call.shared, call.body, limit).await?;
    Ok((call.shared, held))
}

/// Takes in the whole body. A declared size over the limit is refused before a byte is read.
pub(crate) async fn take(
    shared: &Shared,
    mut body: Arriving,
    limit: SizeLimit,
) -> Result<Held, Problem> {
    let declared = body.declared();
    if declared > limit.bytes {
        return Err(too_large(limit));
    }
    // Of one that was made smaller nobody knows yet how large it is.
    let mut counted = if body.is_packed() { 0 } else { declared };
    let mut permit = hold(shared, counted)?;
    let last = Instant::now() + shared.live().config.http.body_timeout;
    let mut first: Option<Bytes> = None;
    let mut joined: Vec<u8> = Vec::new();
    loop {
        let deadline = last.min(Instant::now() + shared.live().config.http.body_idle_timeout);
        let Some(data) = body.piece(shared, deadline).await? else { break };
        let length = first.as_ref().map_or(joined.len(), Bytes::len) + data.len();
        if length > limit.bytes || body.arrived > limit.bytes {
            return Err(too_large(limit));
        }
        if length > counted {
            // Room for as much again as there is, so that it is not moved with every piece; and room
            // counts, whether it is used or not.
            let room = joined.len().saturating_mul(2).clamp(length, limit.bytes);
            let more = hold(shared, room - counted)?;
            merge(&mut permit, more);
            counted = room;
        }
        // Most bodies come in one piece, which is then used as it is.
        match first.take() {
            None if joined.is_empty() => first = Some(data),
            piece => {
                joined.reserve_exact(counted - joined.len());
                joined.extend_from_slice(&piece.unwrap_or_default());
                joined.extend_from_slice(&data);
            }
        }
    }
    let bytes = first.unwrap_or_else(|| Bytes::from(joined));
    Ok(Held { bytes, permit })
}

fn too_large(limit: SizeLimit) -> Problem {
    Problem::new(limit.code, format!("it is larger than {} bytes", limit.bytes))
}

/// Counts bytes as held, until the answer is dropped.
pub(crate) fn hold(shared: &Shared, bytes: usize) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    if bytes == 0 {
        return Ok(None);
    }
    let busy = || Problem::new(Code::TooBusy, "requests hold as much memory as they may");
    let permits = u32::try_from(bytes).map_err(|_huge| busy())?;
    let held = Arc::clone(&shared.held);
    held.try_acquire_many_owned(permits).map(Some).map_err(|_none_left| busy())
}

/// Holds both together.
pub(crate) fn merge(permit: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (permit.as_mut(), more) {
        (Some(permit), Some(more)) => permit.merge(more),
        (None, more) => *permit = more,
        (Some(_), None) => {}
    }
}
