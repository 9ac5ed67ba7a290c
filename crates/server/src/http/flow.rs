//! The way of a request from the connection to its handler, and of the answer back.
//!
//! Whatever is asked, it is checked in the same order: does the server answer to that name, is
//! there such a route, who asks, may they. Only then does the handler of the operation run.

use std::net::SocketAddr;
use std::sync::Arc;

use http::header::{ALLOW, HeaderValue};
use http::{Method, Request};
use hyper::body::Incoming;
use punctual_api::{Code, Problem};
use punctual_broker::group::JobKind;

use crate::access::{Caller, Operation};
use crate::http::audit::Asker;
use crate::http::call::Call;
use crate::http::reply::{self, Reply};
use crate::http::routes::Match;
use crate::http::shared::Shared;
use crate::http::socket::Peer;
use crate::http::{
    audit, bulk, clock, consume, dead, export, groups, health, import, levels, messages, metrics,
    pending, problem, receive, topics, transactions,
};

/// Answers a request, whatever it is.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    other_side: (Option<Peer>, SocketAddr),
) -> Reply {
    let wants_head_only = request.method() == Method::HEAD;
    let reply = answer_whole(shared, request, other_side).await;
    if wants_head_only { reply::without_body(reply) } else { reply }
}

async fn answer_whole(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    (peer, from): (Option<Peer>, SocketAddr),
) -> Reply {
    let (parts, body) = request.into_parts();
    if let Err(refusal) = shared.hosts.check(&parts.method, &parts.uri, &parts.headers) {
        return problem::reply(&refusal);
    }
    match shared.router.find(&parts.method, parts.uri.path()) {
        Match::Found(route, place) => {
            let caller = Caller::Local;
            let asker = Asker::new(caller, from);
            let call = Call { shared, parts, body, peer, asker, place };
            let outcome = match call.admit(route.operation) {
                Ok(()) => handle(route.operation, call).await,
                Err(refusal) => Err(refusal),
            };
            outcome.unwrap_or_else(|refusal| problem::reply(&refusal))
        }
        Match::OtherMethods(methods) => {
            let mut reply = problem::reply(&Code::MethodNotAllowed.into());
            let methods = HeaderValue::from_str(&methods).expect("methods are plain words");
            reply.headers_mut().insert(ALLOW, methods);
            reply
        }
        Match::Nothing => problem::reply(&Code::RouteNotFound.into()),
    }
}

async fn handle(operation: Operation, call: Call) -> Result<Reply, Problem> {
    match operation {
        Operation::Schedule => messages::schedule(call).await,
        Operation::Publish => messages::publish(call).await,
        Operation::GetMessage => messages::get(call).await,
        Operation::CancelMessage => messages::cancel(call).await,
        Operation::PatchMessage => messages::patch(call).await,
        Operation::DeliverMessage => messages::deliver(call).await,
        Operation::ListScheduled => pending::scheduled(call).await,
        Operation::CancelMany => bulk::start(call, bulk::Verb::Cancel).await,
        Operation::RescheduleMany => bulk::start(call, bulk::Verb::Reschedule).await,
        Operation::DeliverMany => bulk::start(call, bulk::Verb::Deliver).await,
        Operation::PauseMany => bulk::start(call, bulk::Verb::Pause).await,
        Operation::ResumeMany => bulk::start(call, bulk::Verb::Resume).await,
        Operation::ListJobs => bulk::list(call).await,
        Operation::GetJob => bulk::get(call).await,
        Operation::StopJob => bulk::stop(call).await,
        Operation::ListSeries => pending::series(call).await,
        Operation::Forecast => pending::forecast(call).await,
        Operation::Export => export::export(call).await,
        Operation::Import => import::import(call).await,
        Operation::ReadPartition => topics::read_partition(call).await,
        Operation::ListTopics => topics::list(call).await,
        Operation::GetTopic => topics::get(call).await,
        Operation::PutTopic => topics::put(call).await,
        Operation::PatchTopic => topics::patch(call).await,
        Operation::DeleteTopic => topics::delete(call).await,
        Operation::Receive => receive::receive(call).await,
        Operation::Ack => consume::ack(call).await,
        Operation::Nack => consume::nack(call).await,
        Operation::Extend => consume::extend(call).await,
        Operation::Retry => consume::retry(call).await,
        Operation::ListGroups => groups::list(call).await,
        Operation::GetGroup => groups::get(call).await,
        Operation::PutGroup => groups::put(call).await,
        Operation::PatchGroup => groups::patch(call).await,
        Operation::DeleteGroup => groups::delete(call).await,
        Operation::PauseGroup => groups::pause(call).await,
        Operation::ResumeGroup => groups::resume(call).await,
        Operation::ResetGroup => groups::reset(call).await,
        Operation::GetOffsets => groups::offsets(call).await,
        Operation::PutOffsets => groups::commit(call).await,
        Operation::ListDead => dead::list(call).await,
        Operation::Redrive => dead::redrive(call).await,
        Operation::GetRedrive => dead::job(call, JobKind::Redrive).await,
        Operation::Purge => dead::purge(call).await,
        Operation::Drain => dead::drain(call).await,
        Operation::GetDrain => dead::job(call, JobKind::Drain).await,
        Operation::GetLevels => levels::get(call).await,
        Operation::PutLevels => levels::put(call).await,
        Operation::Prepare => transactions::prepare(call).await,
        Operation::ListTransactions => transactions::list(call).await,
        Operation::GetTransaction => transactions::get(call).await,
        Operation::Commit => transactions::decide(call, transactions::Verb::Commit).await,
        Operation::Rollback => transactions::decide(call, transactions::Verb::Rollback).await,
        Operation::ResumeTransaction => {
            transactions::decide(call, transactions::Verb::Resume).await
        }
        Operation::Checks => transactions::checks(call).await,
        Operation::Audit => audit::list(call).await,
        Operation::Time => clock::show(call).await,
        Operation::AdvanceTime => clock::advance(call).await,
        Operation::Live => Ok(health::live()),
        Operation::ReadyNow => health::ready(&call),
        Operation::Metrics => metrics::show(call).await,
    }
}
