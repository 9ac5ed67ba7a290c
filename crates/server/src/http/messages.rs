//! Messages: schedule, get, change, deliver now, cancel.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue};
use punctual_api::answer::{Batch, Outcome, ScheduledView};
use punctual_api::pending::MessageChange;
use punctual_api::request::{Parameters, Posted, ReadLimits, published, read_messages};
use punctual_api::{Code, Problem};
use punctual_broker::series::describe;
use punctual_broker::{Change, ChangeError, Report, Request, Scheduled};
use punctual_model::limits::{
    BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, BODY_BYTES_CEILING, HEADERS_MAX, JSON_DEPTH_MAX,
};
use punctual_model::ports::{CancelOutcome, Topic};
use punctual_model::{Action, MessageId, Partition, State, TopicName};
use tokio::time::Instant;

use crate::access::{Caller, Cost, Permission, Sending, own_message};
use crate::http::asked::{headers, to_request, when};
use crate::http::body::{self, SizeLimit, take_json};
use crate::http::call::Call;
use crate::http::etag::{self, Conditions};
use crate::http::export::NDJSON;
use crate::http::problem::{of_broken_off, of_change, of_schedule, of_store};
use crate::http::reply::{Reply, json, json_holding, large_json, located};
use crate::http::shared::Shared;
use crate::http::topics::is_shown;
use crate::http::{send_stream, time};
use crate::shown::{report_view, series_view};
use crate::timings::Via;

/// Largest request of JSON: a full batch, with room for what escaping and names add.
pub(crate) const JSON_BYTES_MAX: usize = BATCH_BYTES_MAX + BATCH_BYTES_MAX / 2;
/// Larger requests are read on a thread that may be kept busy.
pub(crate) const JSON_BYTES_INLINE: usize = 64 << 10;
/// Largest change of a message: its body in base 64, with room for the rest.
const CHANGE_BYTES_MAX: usize = BODY_BYTES_CEILING * 2;
pub(crate) const READ_LIMITS: ReadLimits =
    ReadLimits { depth: JSON_DEPTH_MAX, messages: BATCH_MESSAGES_MAX, headers: HEADERS_MAX };

/// `POST /v1/topics/{topic}/messages`
pub(crate) async fn schedule(call: Call) -> Result<Reply, Problem> {
    if is_type(&call, NDJSON) {
        return send_stream::send(call).await;
    }
    let topic = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    require_json(&call)?;
    let limit = SizeLimit { bytes: JSON_BYTES_MAX, code: Code::RequestTooLarge };
    let caller = call.caller().clone();
    let held = body::take(&call.shared, call.body, limit).await?;
    let begun = Instant::now();
    let requests = if held.bytes.len() <= JSON_BYTES_INLINE {
        read(&held.bytes)
    } else {
        let json = held.bytes.clone();
        call.shared.tasks.blocking(move || read(&json)).await.map_err(of_broken_off)?
    }?;
    match requests {
        Requests::One(request) => {
            schedule_one(&call.shared, &caller, &topic, *request, begun).await
        }
        Requests::Many(mut requests) => {
            caller.sign(&mut requests);
            let sending = Sending::of(&requests);
            let charged = caller.charge(sending.cost)?;
            let answers = call.shared.broker.schedule(&topic, requests).await;
            let answers = answers.map_err(|error| of_schedule(error, true))?;
            charged.stored_part(sending.new_ones(&answers));
            let ids: Vec<String> = answers.iter().map(|answer| answer.id.to_string()).collect();
            let messages = answers
                .iter()
                .zip(&ids)
                .map(|(answer, id)| scheduled_view(id, &topic, answer))
                .collect();
            // It is done and cannot be refused any more, however large the answer is.
            let reply = json_holding(status(&answers), &Batch { messages }, held);
            call.shared.timings.schedule.note(Via::Http, begun);
            Ok(reply)
        }
    }
}

/// `POST /v1/topics/{topic}/publish`
pub(crate) async fn publish(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic_named()?;
    // The fields are looked at first: a wrong one need not wait for the body.
    let mut request = to_request(published(call.query())?)?;
    let limit = SizeLimit { bytes: call.shared.body_bytes_max(), code: Code::BodyTooLarge };
    let caller = call.caller().clone();
    let held = body::take(&call.shared, call.body, limit).await?;
    let begun = Instant::now();
    // A copy, because the bytes may be a small piece of a large buffer that would be kept alive.
    request.message.body = Bytes::copy_from_slice(&held.bytes);
    schedule_one(&call.shared, &caller, &topic, request, begun).await
}

async fn schedule_one(
    shared: &Shared,
    caller: &Caller,
    topic: &TopicName,
    mut request: Request,
    begun: Instant,
) -> Result<Reply, Problem> {
    caller.sign([&mut request]);
    let charged = caller.charge(Cost::of([&request.message]))?;
    let answers = shared.broker.schedule(topic, vec![request]).await;
    let answers = answers.map_err(|error| of_schedule(error, false))?;
    let answer = answers.first().ok_or(Code::Internal)?;
    if !answer.duplicate {
        charged.stored();
    }
    let id = answer.id.encode();
    let id = std::str::from_utf8(&id).expect("ids are ASCII");
    let reply = json(status(&answers), &scheduled_view(id, topic, answer));
    let reply = located(reply, &format!("/v1/messages/{id}"));
    shared.timings.schedule.note(Via::Http, begun);
    Ok(reply)
}

/// Nothing new came into being where everything was known.
fn status(answers: &[Scheduled]) -> StatusCode {
    match answers.iter().all(|answer| answer.duplicate) {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    }
}

pub(crate) fn scheduled_view<'a>(
    id: &'a str,
    topic: &'a TopicName,
    answer: &Scheduled,
) -> ScheduledView<'a> {
    ScheduledView {
        id,
        topic: topic.as_str(),
        due: answer.due.to_string(),
        state: answer.state.word(),
        duplicate: answer.duplicate,
    }
}

/// A page must not be able to post without asking first, so the type must be one that forms lack.
pub(crate) fn require_json(call: &Call) -> Result<(), Problem> {
    require_type(call, "application/json")
}

/// Whether the body is of that type.
fn is_type(call: &Call, wanted: &'static str) -> bool {
    let given = call.parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.and_then(|text| text.split(';').next()).map_or("", str::trim);
    essence.eq_ignore_ascii_case(wanted)
}

/// Refuses a body of another type.
pub(crate) fn require_type(call: &Call, wanted: &'static str) -> Result<(), Problem> {
    if is_type(call, wanted) {
        Ok(())
    } else {
        let detail = format!("send it as content-type: {wanted}");
        Err(Problem::new(Code::UnsupportedMediaType, detail))
    }
}

enum Requests {
    One(Box<Request>),
    Many(Vec<Request>),
}

fn read(json: &[u8]) -> Result<Requests, Problem> {
    match read_messages(json, READ_LIMITS)? {
        Posted::One(message) => {
            to_request(*message).map(|request| Requests::One(Box::new(request)))
        }
        Posted::Many(messages) => messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| to_request(message).map_err(|problem| problem.at(index)))
            .collect::<Result<_, _>>()
            .map(Requests::Many),
    }
}

/// `GET …/messages/{id}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = named(&call, Permission::Read).await?;
    let conditions = Conditions::of(&call.parts.headers)?;
    let report = call.shared.broker.get(id).await.map_err(of_store)?.ok_or(Code::NotFound)?;
    if let Some(tag) = tag(&report).filter(|tag| conditions.is_known(tag)) {
        return Ok(etag::not_modified(tag));
    }
    if report.action == Action::Repeat
        && let Some(reply) = get_series(&call.shared, &report).await?
    {
        return Ok(reply);
    }
    shown(&call.shared, &report)
}

/// A message and, while it can be changed, the tag of its version.
fn shown(shared: &Shared, report: &Report) -> Result<Reply, Problem> {
    let reply = large_json(shared, &report_view(report))?;
    Ok(match tag(report) {
        Some(tag) => etag::tagged(reply, tag),
        None => reply,
    })
}

fn tag(report: &Report) -> Option<HeaderValue> {
    // One that waits for its transaction becomes another under the same version.
    let is_changeable = matches!(report.state, State::Scheduled | State::Paused);
    report.version.filter(|_| is_changeable).map(etag::of_version)
}

/// The answer about a series; `None` when it has ended meanwhile, or cannot be read.
async fn get_series(shared: &Shared, report: &Report) -> Result<Option<Reply>, Problem> {
    let entry = shared.broker.series().get(report.id).await.map_err(of_store)?;
    let Some((entry, series)) = entry.and_then(|entry| describe(&entry).map(|one| (entry, one)))
    else {
        return Ok(None);
    };
    large_json(shared, &series_view(&report.topic.name, &entry, &series)).map(Some)
}

/// `DELETE …/messages/{id}`
pub(crate) async fn cancel(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = named(&call, Permission::Cancel).await?;
    if let Some(version) = Conditions::of(&call.parts.headers)?.version()? {
        let outcome = call.shared.broker.cancel_version(id, version).await;
        outcome.map_err(of_conditional)?;
    } else {
        let outcomes = call.shared.broker.cancel(vec![id]).await.map_err(of_store)?;
        of_cancel(outcomes.first().copied().unwrap_or(CancelOutcome::NotFound))?;
    }
    Ok(json(StatusCode::OK, &Outcome { result: State::Cancelled.word() }))
}

/// What became of a message that was to be withdrawn.
pub(crate) fn of_cancel(outcome: CancelOutcome) -> Result<(), Problem> {
    match outcome {
        CancelOutcome::Cancelled => Ok(()),
        CancelOutcome::AlreadyDelivered => Err(Code::AlreadyDelivered.into()),
        CancelOutcome::AlreadyCancelled => Err(Code::AlreadyCancelled.into()),
        CancelOutcome::Undecided => Err(Code::TransactionUndecided.into()),
        CancelOutcome::NotFound => Err(Code::NotFound.into()),
    }
}

/// `PATCH …/messages/{id}`
pub(crate) async fn patch(call: Call) -> Result<Reply, Problem> {
    let id = named(&call, Permission::Change).await?;
    let demanded = Conditions::of(&call.parts.headers)?.version()?;
    let (shared, held) = take_json(call, CHANGE_BYTES_MAX).await?;
    let mut change = change(MessageChange::read(&held.bytes, READ_LIMITS)?)?;
    drop(held);
    if demanded.is_some() && change.version.is_some_and(|version| demanded != Some(version)) {
        let detail = "version and if-match name different versions";
        return Err(Problem::new(Code::ConflictingFields, detail));
    }
    change.version = demanded.or(change.version);
    let refused = if demanded.is_some() { of_conditional } else { of_change };
    let report = shared.broker.change(id, change).await.map_err(refused)?;
    shown(&shared, &report)
}

/// A refused change of a request that was meant for one version only.
fn of_conditional(error: ChangeError) -> Problem {
    match error {
        ChangeError::VersionConflict { .. } => {
            Problem::new(Code::PreconditionFailed, error.to_string())
        }
        other => of_change(other),
    }
}

fn change(written: MessageChange<'_>) -> Result<Change, Problem> {
    let version = written.version.map(|version| {
        let detail = "version is a number that the message was shown with";
        u32::try_from(version).map_err(|_large| Problem::new(Code::InvalidField, detail))
    });
    Ok(Change {
        when: written.when.as_ref().map(when).transpose()?,
        paused: written.paused,
        body: written.body,
        headers: written.headers.map(headers),
        ttl: written.ttl.as_deref().map(|text| time::ttl("ttl", text)).transpose()?,
        version: version.transpose()?,
    })
}

/// `POST …/messages/{id}/deliver`
pub(crate) async fn deliver(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = named(&call, Permission::Change).await?;
    let version = Conditions::of(&call.parts.headers)?.version()?;
    let refused = if version.is_some() { of_conditional } else { of_change };
    let change = Change { version, ..Change::deliver_now() };
    let report = call.shared.broker.change(id, change).await.map_err(refused)?;
    shown(&call.shared, &report)
}

/// The message of the path: under a topic by an id of ours or the sender's own, otherwise by ours.
/// The id of another topic is no message of this one.
/// What the caller has no right to is sought as an id of nothing.
async fn named(call: &Call, permission: Permission) -> Result<MessageId, Problem> {
    let Some(name) = call.topic()? else {
        let (caller, broker) = (call.caller(), &call.shared.broker);
        return call.id().map(|id| own_message(caller, broker, permission, id));
    };
    known(&call.shared, &name)?;
    let text = call.id_text().ok_or(Code::NotFound)?;
    let id = call.shared.broker.resolve(&name, &text).await.map_err(of_store)?;
    id.ok_or_else(|| Code::NotFound.into())
}

/// The topic of that name, which must exist.
pub(crate) fn known(shared: &Shared, name: &TopicName) -> Result<Arc<Topic>, Problem> {
    let topic = shared.broker.topics().by_name(name);
    topic.filter(|topic| is_shown(topic)).ok_or_else(|| Code::TopicNotFound.into())
}

/// The partition of that number.
pub(crate) fn partition(number: u16) -> Result<Partition, Problem> {
    Partition::new(number).ok_or_else(|| Code::NoSuchPartition.into())
}
