//! The way of a request from the connection to its handler, and of the answer back.
//!
//! Whatever is asked, it is checked in the same order: does the server answer to that name, is
//! there such a route, who asks, may they. Only then does the handler of the operation run.

use std::sync::Arc;

use http::header::{ALLOW, HeaderValue};
use http::{Method, Request};
use hyper::body::Incoming;
use punctual_api::{Code, Problem};
use punctual_broker::group::JobKind;
use tracing::{Instrument as _, info_span};

use crate::access::{Caller, Operation, Scope};
use crate::grpc;
use crate::http::access_log::{Begun, Seen};
use crate::http::audit::Asker;
use crate::http::body::Arriving;
use crate::http::call::Call;
use crate::http::coding::Coding;
use crate::http::cors::{self, Page};
use crate::http::encode::encoded;
use crate::http::reply::{self, Reply};
use crate::http::request_id::{RequestId, X_REQUEST_ID};
use crate::http::routes::Match;
use crate::http::shared::Shared;
use crate::http::socket::OtherSide;
use crate::http::{
    apps, audit, bulk, clock, cluster, consume, dead, export, groups, health, import, legacy,
    levels, messages, metrics, openapi, pending, problem, receive, receive_stream, stats, topics,
    transactions, trends,
};
use crate::trace;

/// Answers a request, whatever it is.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    other_side: OtherSide,
) -> Reply {
    let headers = request.headers();
    let id = RequestId::of(headers);
    let coding = Coding::accepted(headers);
    let page = Page::of(&shared.live().config.http.cors_origins, headers);
    let wants_head_only = request.method() == Method::HEAD;
    let (begun, caller) = (Begun::new(request.method()), shared.traces.caller(headers));
    let span = info_span!("request", request_id = %id);
    let work = answer_whole(Arc::clone(&shared), request, &page, other_side).instrument(span);
    let reply = trace::within(caller, work).await;
    begun.end(&reply, &id);
    let mut reply = encoded(&shared, reply, coding).await;
    page.sign(&mut reply);
    reply.headers_mut().insert(X_REQUEST_ID, id.into_value());
    if wants_head_only { reply::without_body(reply) } else { reply }
}

async fn answer_whole(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    page: &Page,
    other_side: OtherSide,
) -> Reply {
    // Nodes call each other by whatever name leads there, and show a secret instead.
    #[cfg(feature = "cluster")]
    if request.uri().path() == crate::backend::PEER_PATH {
        return crate::http::internal::answer(shared, request, other_side).await;
    }
    let checked = {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        shared.live().hosts.check(method, uri, headers)
    };
    match checked {
        // A page of another origin is let in where the configuration names it.
        Err(refusal) if refusal.code == Code::CrossOrigin && page.is_guest() => {}
        Err(refusal) => return problem::reply(&refusal),
        Ok(()) => {}
    }
    if grpc::is_called(request.uri().path()) {
        return grpc::answer(shared, request, other_side).await;
    }
    let (parts, body) = request.into_parts();
    match shared.router.find(&parts.method, parts.uri.path()) {
        Match::Found(route, place) => {
            let OtherSide { peer, from, place: seat } = other_side;
            let mut seen = Seen::route(route.path);
            let caller = match route.operation.rule().scope {
                Scope::Open => Caller::Nobody,
                _ => match shared.gate.identify(&parts.headers, &parts.extensions) {
                    Ok(caller) => caller,
                    Err(refusal) => return seen.on(problem::reply(&refusal)),
                },
            };
            seen.by(&caller);
            if !matches!(caller, Caller::Nobody) {
                seat.known();
            }
            let asker = Asker::new(caller, from);
            let body = Arriving::new(body, &parts.headers);
            let call = Call { shared, parts, body, peer, asker, place };
            let outcome = match call.admit(route.operation) {
                Ok(()) => handle(route.operation, call).await,
                Err(refusal) => Err(refusal),
            };
            seen.on(outcome.unwrap_or_else(|refusal| problem::reply(&refusal)))
        }
        Match::OtherMethods(methods) => {
            let methods = HeaderValue::from_str(&methods).expect("methods are plain words");
            if page.asks_first(&parts.method, &parts.headers) {
                return cors::leave(methods);
            }
            let mut reply = problem::reply(&Code::MethodNotAllowed.into());
            reply.headers_mut().insert(ALLOW, methods);
            reply
        }
        Match::Nothing => problem::reply(&Code::RouteNotFound.into()),
    }
}

#[expect(clippy::too_many_lines, reason = "one line for each operation")]
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
        Operation::ReceiveStream => receive_stream::stream(call).await,
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
        Operation::CreateApp => apps::create(call).await,
        Operation::ListApps => apps::list(call).await,
        Operation::GetApp => apps::get(call).await,
        Operation::PatchApp => apps::patch(call).await,
        Operation::DeleteApp => apps::delete(call).await,
        Operation::RotateApp => apps::rotate(call).await,
        Operation::DisableApp => apps::disable(call).await,
        Operation::EnableApp => apps::enable(call).await,
        Operation::Audit => audit::list(call).await,
        Operation::Time => clock::show(call).await,
        Operation::AdvanceTime => clock::advance(call).await,
        Operation::Live => Ok(health::live()),
        Operation::ReadyNow => health::ready(&call),
        Operation::LegacySend => legacy::send(call).await,
        Operation::LegacyCancel => legacy::cancel(call).await,
        Operation::Stats => stats::stats(call).await,
        Operation::Trends => trends::show(call).await,
        Operation::Cluster => cluster::show(call).await,
        Operation::PutCluster => cluster::put(call).await,
        Operation::Metrics => metrics::show(call).await,
        Operation::OpenApi => openapi::document(&call),
        Operation::Docs => Ok(openapi::page()),
        Operation::DocsFile => openapi::page_file(&call),
    }
}
