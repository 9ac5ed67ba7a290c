//! What other nodes of the cluster ask of this one. Nobody else is answered.
//!
//! Who calls shows the secret of the cluster; no app's credentials count here, and the secret counts
//! nowhere else. Where there is no cluster there is no such route. Everything that is answered with
//! another status than 200 was certainly not done.

use std::sync::Arc;
use std::time::Duration;

use http::header::ORIGIN;
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use punctual_api::{Code, Problem};
use punctual_cluster::routing::wire::{self, Answer, BYTES_MAX};
use punctual_model::limits::RECEIVE_WAIT_MAX;
use punctual_model::ports::StoreError;
use punctual_model::{GroupName, MessageId, Timestamp};
use tokio::time::{Instant, timeout_at};

use crate::backend::{Link, PEER_MEDIA_TYPE, PEER_SECRET};
use crate::http::body::{self, Arriving, SizeLimit};
use crate::http::problem;
use crate::http::reply::{Reply, typed};
use crate::http::shared::Shared;
use crate::http::socket::OtherSide;

/// Most transactions that are named in one answer.
const READY_MAX: usize = 1000;

/// Answers another node.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    other_side: OtherSide,
) -> Reply {
    let answered = take(&shared, request, other_side).await;
    answered.unwrap_or_else(|refusal| problem::reply(&refusal))
}

async fn take(
    shared: &Arc<Shared>,
    request: Request<Incoming>,
    other_side: OtherSide,
) -> Result<Reply, Problem> {
    let (parts, body) = request.into_parts();
    let link = shared.nodes.link.as_ref().filter(|_| parts.method == Method::POST);
    let link = link.ok_or(Code::RouteNotFound)?;
    let mut shown = parts.headers.get_all(PEER_SECRET).iter();
    match (shown.next(), shown.next()) {
        (Some(secret), None) if link.is_ours(secret.as_bytes()) => {}
        _ => return Err(Problem::new(Code::Unauthenticated, "it is for nodes of the cluster")),
    }
    // Without a secret of its own the header proves nothing: a page that made a name of its own point
    // here could send it. Pages tell where they come from, nodes have nothing to tell.
    if parts.headers.contains_key(ORIGIN) {
        return Err(Code::CrossOrigin.into());
    }
    other_side.place.known();
    let limit = SizeLimit { bytes: BYTES_MAX, code: Code::RequestTooLarge };
    let held = body::take(shared, Arriving::new(body, &parts.headers), limit).await?;
    let asked = wire::Request::decode(&held.bytes)
        .map_err(|_malformed| Problem::new(Code::InvalidRequest, "it cannot be read"))?;
    let outcome = carry_out(shared, link, asked).await;
    drop(held);
    Ok(typed(StatusCode::OK, PEER_MEDIA_TYPE, wire::encode_answer(&outcome)))
}

async fn carry_out(
    shared: &Shared,
    link: &Link,
    asked: wire::Request,
) -> Result<Answer, StoreError> {
    match asked {
        wire::Request::Ready { group, max, wait_ms } => {
            let wait = Duration::from_millis(wait_ms.min(RECEIVE_WAIT_MAX.as_millis()));
            Ok(Answer::Ready(ready(shared, &group, max.min(READY_MAX), wait).await))
        }
        wire::Request::Leaving(name) => {
            shared.nodes.note_left(name);
            Ok(Answer::Noted)
        }
        asked => link.carry(asked).await,
    }
}

/// Transactions of the group with a check, as soon as there is one.
async fn ready(
    shared: &Shared,
    group: &GroupName,
    max: usize,
    wait: Duration,
) -> Vec<(Timestamp, MessageId)> {
    let desk = shared.broker.transactions();
    let deadline = Instant::now() + wait;
    loop {
        let available = desk.available(group);
        let ready = desk.ready_here(group, max);
        if !ready.is_empty() || Instant::now() >= deadline {
            return ready;
        }
        let goes_on = tokio::select! {
            () = shared.tasks.stopped() => false,
            woken = timeout_at(deadline, available) => woken.is_ok(),
        };
        if !goes_on {
            return Vec::new();
        }
    }
}
