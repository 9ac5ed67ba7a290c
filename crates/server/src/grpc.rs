//! The gRPC contract, on the port of the HTTP listener: frames, methods, and one file per service.
//!
//! The generated shapes of the contract stop here; behind this module there are only the model's
//! types. Who asks is found out before a message is read, and every method names the operation it
//! is, so the same rules hold as over HTTP. Whatever a message names (a topic, a group) is checked
//! by [`call::Asked`] when it is read.

mod method;
mod status;
mod wire;
mod answers;
mod call;
mod triple;
mod time;
mod sent;
mod shown;
mod messages;
mod send;
mod receive;
mod settle;
mod transactions;
mod topics;
mod groups;
mod health;
mod reflection;

use std::sync::Arc;

use http::Request;
use http::header::{CONTENT_TYPE, HeaderMap};
use hyper::body::Incoming;
use punctual_api::{Code, Problem};

use self::call::{Asked, Call, Form};
pub(crate) use self::method::Method;
use crate::access::{Caller, Scope};
use crate::http::access_log::Seen;
use crate::http::audit::Asker;
use crate::http::problem;
use crate::http::reply::Reply;
use crate::http::shared::Shared;
use crate::http::socket::OtherSide;

/// Whether a path is one of gRPC, known or not.
pub(crate) fn is_called(path: &str) -> bool {
    path.starts_with("/punctual.v1.") || path.starts_with("/grpc.")
}

/// Answers a call, whatever it is.
pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
    other_side: OtherSide,
) -> Reply {
    let (parts, body) = request.into_parts();
    if parts.method != http::Method::POST {
        return problem::reply(&Code::MethodNotAllowed.into());
    }
    let Some(form) = form(&parts.headers) else {
        let detail = "call it as application/grpc, application/proto or application/json";
        return problem::reply(&Problem::new(Code::UnsupportedMediaType, detail));
    };
    let Some(method) = Method::at(parts.uri.path()) else {
        let detail = "there is no such method";
        return call::refused(form, &Problem::new(Code::RouteNotFound, detail));
    };
    let mut seen = Seen::route(method.path());
    let caller = match method.operation().rule().scope {
        Scope::Open => Caller::Nobody,
        _ => match shared.gate.identify(&parts.headers, &parts.extensions) {
            Ok(caller) => caller,
            Err(refusal) => return seen.on(call::refused(form, &refusal)),
        },
    };
    seen.by(&caller);
    let OtherSide { peer, from, place } = other_side;
    if !matches!(caller, Caller::Nobody) {
        // Whoever asks for its health only may be anybody.
        if !matches!(caller, Caller::Nobody) {
            place.known();
        }
    }
    let asked = Asked { shared, asker: Asker::new(caller, from), method, peer };
    seen.on(handle(Call { asked, form, parts, body }).await)
}

/// How a call is written, by its content type.
fn form(headers: &HeaderMap) -> Option<Form> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let essence = given.split(';').next()?.trim();
    match essence.to_ascii_lowercase().as_str() {
        // The one with data in it is what Dubbo's client for Python says.
        "application/grpc" | "application/grpc+proto" | "application/grpc+data" => Some(Form::Grpc),
        "application/proto" | "application/x-protobuf" => Some(Form::Proto),
        "application/json" => Some(Form::Json),
        _ => None,
    }
}

async fn handle(call: Call) -> Reply {
    match call.asked.method {
        Method::Send => call.unary(messages::send).await,
        Method::SendStream => call.stream(send::stream),
        Method::Get => call.unary(messages::get).await,
        Method::Cancel => call.unary(messages::cancel).await,
        Method::Change => call.unary(messages::change).await,
        Method::Deliver => call.unary(messages::deliver).await,
        Method::List => call.unary(messages::list).await,
        Method::ListSeries => call.unary(messages::list_series).await,
        Method::Read => call.unary(messages::read).await,
        Method::Forecast => call.unary(messages::forecast).await,
        Method::Receive => call.unary(receive::receive).await,
        Method::ReceiveStream => call.stream(receive::stream),
        Method::Ack => call.unary(settle::ack).await,
        Method::Nack => call.unary(settle::nack).await,
        Method::Extend => call.unary(settle::extend).await,
        Method::Retry => call.unary(settle::retry).await,
        Method::Prepare => call.unary(transactions::prepare).await,
        Method::Commit => call.unary(transactions::commit).await,
        Method::Rollback => call.unary(transactions::rollback).await,
        Method::Resume => call.unary(transactions::resume).await,
        Method::GetTransaction => call.unary(transactions::get).await,
        Method::ListTransactions => call.unary(transactions::list).await,
        Method::Checks => call.unary(transactions::checks).await,
        Method::CheckStream => call.stream(transactions::check_stream),
        Method::ListTopics => call.unary(topics::list).await,
        Method::GetTopic => call.unary(topics::get).await,
        Method::PutTopic => call.unary(topics::put).await,
        Method::DeleteTopic => call.unary(topics::delete).await,
        Method::ListGroups => call.unary(groups::list).await,
        Method::GetGroup => call.unary(groups::get).await,
        Method::PutGroup => call.unary(groups::put).await,
        Method::DeleteGroup => call.unary(groups::delete).await,
        Method::GetLevels => call.unary(topics::get_levels).await,
        Method::PutLevels => call.unary(topics::put_levels).await,
        Method::HealthCheck => call.unary(health::check).await,
        Method::HealthWatch => call.stream(health::watch),
        Method::Reflect | Method::ReflectAlpha => call.stream(reflection::stream),
    }
}
