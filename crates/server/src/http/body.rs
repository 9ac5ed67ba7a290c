//! Takes in the body of a request, within its limits of size, time and memory held.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

use crate::http::messages::require_json;
use crate::http::call::Call;
use crate::http::shared::Shared;

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
    if !call.body.is_end_stream() {
        require_json(&call)?;
    }
    let limit = SizeLimit { bytes: bytes_max, code: Code::RequestTooLarge };
    let held = take(&call.shared, call.body, limit).await?;
    Ok((call.shared, held))
}

/// Takes in the whole body. A declared size over the limit is refused before a byte is read.
pub(crate) async fn take(
    shared: &Shared,
    mut body: Incoming,
    limit: SizeLimit,
) -> Result<Held, Problem> {
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if declared > limit.bytes {
        return Err(too_large(limit));
    }
    let mut permit = hold(shared, declared)?;
    let mut counted = declared;
    let last = Instant::now() + shared.http.body_timeout;
    let mut first: Option<Bytes> = None;
    let mut joined = BytesMut::new();
    while !body.is_end_stream() {
        let deadline = last.min(Instant::now() + shared.http.body_idle_timeout);
        let frame = match timeout_at(deadline, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(None) => break,
            Ok(Some(Err(_broken))) => {
                return Err(Problem::new(Code::InvalidRequest, "the body broke off"));
            }
            Err(_elapsed) => return Err(Code::RequestTimeout.into()),
        };
        // Trailers say nothing here.
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let arrived = first.as_ref().map_or(joined.len(), Bytes::len) + data.len();
        if arrived > limit.bytes {
            return Err(too_large(limit));
        }
        if arrived > counted {
            let more = hold(shared, arrived - counted)?;
            merge(&mut permit, more);
            counted = arrived;
        }
        // Most bodies come in one piece, which is then used as it is.
        match first.take() {
            None if joined.is_empty() => first = Some(data),
            None => joined.extend_from_slice(&data),
            Some(piece) => {
                joined.reserve(piece.len() + data.len());
                joined.extend_from_slice(&piece);
                joined.extend_from_slice(&data);
            }
        }
    }
    let bytes = first.unwrap_or_else(|| joined.freeze());
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

fn merge(permit: &mut Option<OwnedSemaphorePermit>, more: Option<OwnedSemaphorePermit>) {
    match (permit.as_mut(), more) {
        (Some(permit), Some(more)) => permit.merge(more),
        (None, more) => *permit = more,
        (Some(_), None) => {}
    }
}
