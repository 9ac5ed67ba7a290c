//! The calls of older delay servers: the same messages in other words.
//!
//! What they do is what today's calls do. Only the form of the answer is the older one, with the
//! status that today's calls have.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::Full;
use punctual_api::legacy::{LegacyCancel, LegacyData, LegacySend, LegacyView};
use punctual_api::{Code, Problem};
use punctual_model::limits::{BODY_BYTES_CEILING, JSON_DEPTH_MAX};
use punctual_model::ports::CancelOutcome;
use punctual_model::{MessageId, TopicName};
use tokio::time::Instant;

use crate::access::{Caller, Cost, Permission, Target, own_message};
use crate::http::asked::to_request;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::messages::{known, of_cancel};
use crate::http::problem::{self, of_schedule, of_store};
use crate::http::reply::{Body, Reply, json};
use crate::http::shared::Shared;
use crate::timings::Via;

/// Largest request: a body with everything in it escaped.
const SEND_BYTES_MAX: usize = BODY_BYTES_CEILING * 2;
const CANCEL_BYTES_MAX: usize = 16 << 10;

/// `POST /delay/sendDelayMsg`
pub(crate) async fn send(call: Call) -> Result<Reply, Problem> {
    Ok(sent(call).await.unwrap_or_else(|refusal| refused(&refusal)))
}

/// `POST /delay/cancelDelayMsg`
pub(crate) async fn cancel(call: Call) -> Result<Reply, Problem> {
    Ok(cancelled(call).await.unwrap_or_else(|refusal| refused(&refusal)))
}

async fn sent(call: Call) -> Result<Reply, Problem> {
    let caller = call.caller().clone();
    let (shared, held) = take_json(call, SEND_BYTES_MAX).await?;
    let begun = Instant::now();
    let asked = LegacySend::read(&held.bytes, JSON_DEPTH_MAX)?;
    is_own(&caller, asked.app_key.as_deref())?;
    let topic = topic(&asked.topic)?;
    caller.require(Permission::Send, Target::Topic(&topic))?;
    let own_id = asked.message.id.as_deref().map(str::to_owned);
    let mut request = to_request(asked.message)?;
    caller.sign([&mut request]);
    drop(held);
    let charged = caller.charge(Cost::of([&request.message]))?;
    let answers = shared.broker.schedule(&topic, vec![request]).await;
    let answers = answers.map_err(|error| of_schedule(error, false))?;
    let answer = answers.first().ok_or(Code::Internal)?;
    if !answer.duplicate {
        charged.stored();
    }
    let id = answer.id.to_string();
    shared.timings.schedule.note(Via::Http, begun);
    Ok(done(own_id.as_deref().unwrap_or(&id), Some(&id)))
}

async fn cancelled(call: Call) -> Result<Reply, Problem> {
    let caller = call.caller().clone();
    let (shared, held) = take_json(call, CANCEL_BYTES_MAX).await?;
    let asked = LegacyCancel::read(&held.bytes, JSON_DEPTH_MAX)?;
    is_own(&caller, asked.app_key.as_deref())?;
    let id = named(&shared, &caller, &asked).await?;
    let outcomes = shared.broker.cancel(vec![id]).await.map_err(of_store)?;
    of_cancel(outcomes.first().copied().unwrap_or(CancelOutcome::NotFound))?;
    Ok(done(&asked.message_id, None))
}

/// The message that is meant: in a topic by either name, otherwise by ours.
async fn named(
    shared: &Shared,
    caller: &Caller,
    asked: &LegacyCancel<'_>,
) -> Result<MessageId, Problem> {
    let Some(name) = &asked.topic else {
        let id = asked.message_id.parse().map_err(|_no_id| Code::NotFound)?;
        return Ok(own_message(caller, &shared.broker, Permission::Cancel, id));
    };
    let name = topic(name)?;
    caller.require(Permission::Cancel, Target::Topic(&name))?;
    known(shared, &name)?;
    let id = shared.broker.resolve(&name, &asked.message_id).await.map_err(of_store)?;
    id.ok_or_else(|| Code::NotFound.into())
}

fn topic(text: &str) -> Result<TopicName, Problem> {
    TopicName::new(text).map_err(|error| Problem::new(Code::InvalidTopicName, error.to_string()))
}

/// Nobody speaks for another app. Where no credentials are needed a key says nothing.
fn is_own(caller: &Caller, app_key: Option<&str>) -> Result<(), Problem> {
    match (caller, app_key) {
        (Caller::App(_), Some(key)) if caller.name() != key => {
            Err(Problem::new(Code::Forbidden, "appKey is not the key that the caller has shown"))
        }
        _ => Ok(()),
    }
}

fn done(message_id: &str, id: Option<&str>) -> Reply {
    let data = Some(LegacyData { message_id, id });
    json(StatusCode::OK, &LegacyView { code: 0, message: "success".into(), error: None, data })
}

/// The refusal with its status and headers, and what is wrong in the older form.
fn refused(problem: &Problem) -> Reply {
    let view = LegacyView {
        code: problem.code.status(),
        message: problem.detail.as_ref().into(),
        error: Some(problem.code.as_str()),
        data: None,
    };
    let text = serde_json::to_vec(&view).expect("our own shapes have no faults");
    let (mut parts, _) = problem::reply(problem).into_parts();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Reply::from_parts(parts, Body::Whole(Full::new(Bytes::from(text))))
}
