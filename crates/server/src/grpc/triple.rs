//! The unary form of Dubbo's Triple protocol: a bare message as the body of a POST, over HTTP/1.1 or
//! HTTP/2, in the bytes of protobuf or as JSON. What is asked and answered is the same as over gRPC.
//!
//! A client of this form takes any answer of status 200 for a success, so a refusal always has the
//! status of its code.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderValue;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MethodDescriptor, SerializeOptions};
use punctual_api::{Code, Problem};
use serde::Serialize;

use crate::grpc::call::{Call, Form};
use crate::grpc::method::Method;
use crate::grpc::reflection::CONTRACT;
use crate::grpc::status;
use crate::grpc::wire::Frame;
use crate::http::body::{self, Arriving, SizeLimit, hold};
use crate::http::problem::of_broken_off;
use crate::http::reply::{Reply, typed};

/// Largest request as JSON.
const JSON_BYTES_MAX: usize = 4 << 20;
/// While it is read, JSON takes about so many times its bytes at worst.
const JSON_GROWTH: usize = 32;
/// Larger requests are read on a thread that may be kept busy.
const JSON_BYTES_INLINE: usize = 64 << 10;

const PROTO: HeaderValue = HeaderValue::from_static("application/proto");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Takes the message of a call in.
pub(crate) async fn take(call: Call) -> Result<Frame, Problem> {
    let (shared, method) = (Arc::clone(&call.asked.shared), call.asked.method);
    let bytes = match call.form {
        Form::Json => method.request_bytes_max().min(JSON_BYTES_MAX),
        Form::Grpc | Form::Proto => method.request_bytes_max(),
    };
    let limit = SizeLimit { bytes, code: Code::RequestTooLarge };
    let arriving = Arriving::new(call.body, &call.parts.headers);
    let held = body::take(&shared, arriving, limit).await?;
    let mut bytes = held.bytes.clone();
    if call.form == Form::Json {
        let _growing = hold(&shared, bytes.len() * JSON_GROWTH)?;
        bytes = if bytes.len() <= JSON_BYTES_INLINE {
            of_json(method, &bytes)
        } else {
            let work = move || of_json(method, &bytes);
            shared.tasks.blocking(work).await.map_err(of_broken_off)?
        }?;
    }
    Ok(Frame { bytes, permits: held.into_permit().into_iter().collect() })
}

fn described(method: Method) -> Result<MethodDescriptor, Problem> {
    let (service, name) =
        method.path().trim_start_matches('/').split_once('/').ok_or(Code::Internal)?;
    let service = CONTRACT.get_service_by_name(service).ok_or(Code::Internal)?;
    let found = service.methods().find(|method| method.name() == name);
    found.ok_or_else(|| Code::Internal.into())
}

/// The bytes of a message that was written as JSON; nothing at all is an empty message.
fn of_json(method: Method, json: &[u8]) -> Result<Bytes, Problem> {
    if json.trim_ascii().is_empty() {
        return Ok(Bytes::new());
    }
    let broken = |error: serde_json::Error| Problem::new(Code::InvalidJson, error.to_string());
    let mut source = serde_json::Deserializer::from_slice(json);
    let message = DynamicMessage::deserialize(described(method)?.input(), &mut source);
    let message = message.map_err(broken)?;
    source.end().map_err(broken)?;
    Ok(message.encode_to_vec().into())
}

fn to_json(method: Method, bytes: Bytes) -> Result<Vec<u8>, Problem> {
    let internal = |_fault: &dyn std::fmt::Debug| Problem::from(Code::Internal);
    let message = DynamicMessage::decode(described(method)?.output(), bytes);
    let message = message.map_err(|error| internal(&error))?;
    let mut json = Vec::new();
    let mut target = serde_json::Serializer::new(&mut json);
    let options = SerializeOptions::new();
    message.serialize_with_options(&mut target, &options).map_err(|error| internal(&error))?;
    Ok(json)
}

/// The answer as a bare message.
pub(crate) fn shown(method: Method, form: Form, bytes: Bytes) -> Reply {
    match form {
        Form::Grpc | Form::Proto => typed(StatusCode::OK, PROTO, bytes),
        Form::Json => match to_json(method, bytes) {
            Ok(json) => typed(StatusCode::OK, JSON, json),
            Err(problem) => refusal(&problem),
        },
    }
}

/// A refusal as clients of Triple read it.
#[derive(Serialize)]
struct Refusal<'a> {
    /// The number of the code, by which Dubbo's client for JavaScript goes.
    status: i32,
    code: &'static str,
    message: &'a str,
    punctual_code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    punctual_index: Option<usize>,
}

/// A refusal, with the status of its code.
pub(crate) fn refusal(problem: &Problem) -> Reply {
    let known = StatusCode::from_u16(problem.code.status()).expect("every code has a status");
    let code = status::code(problem.code);
    let refusal = Refusal {
        status: code.into(),
        code: word(code),
        message: &problem.detail,
        punctual_code: problem.code.as_str(),
        punctual_index: problem.index,
    };
    let text = serde_json::to_vec(&refusal).expect("a refusal is plain JSON");
    let mut reply = typed(known, JSON, text);
    status::write_details(problem, reply.headers_mut());
    reply
}

/// The word for a code of gRPC.
const fn word(code: tonic::Code) -> &'static str {
    use tonic::Code as Grpc;
    match code {
        Grpc::Ok => "ok",
        Grpc::Cancelled => "canceled",
        Grpc::Unknown => "unknown",
        Grpc::InvalidArgument => "invalid_argument",
        Grpc::DeadlineExceeded => "deadline_exceeded",
        Grpc::NotFound => "not_found",
        Grpc::AlreadyExists => "already_exists",
        Grpc::PermissionDenied => "permission_denied",
        Grpc::ResourceExhausted => "resource_exhausted",
        Grpc::FailedPrecondition => "failed_precondition",
        Grpc::Aborted => "aborted",
        Grpc::OutOfRange => "out_of_range",
        Grpc::Unimplemented => "unimplemented",
        Grpc::Internal => "internal",
        Grpc::Unavailable => "unavailable",
        Grpc::DataLoss => "data_loss",
        Grpc::Unauthenticated => "unauthenticated",
    }
}
