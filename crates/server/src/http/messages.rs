//! Messages: schedule, get, cancel, list what is pending.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use punctual_api::answer::{Batch, Content, MessageView, Outcome, Page, ScheduledView};
use punctual_api::request::{NewMessage, Parameters, Posted, ReadLimits, published, read_messages};
use punctual_api::{Code, Problem, request};
use punctual_broker::group::{ATTEMPTS_HEADER, TTL_HEADER};
use punctual_broker::{Report, Request, Scheduled, When};
use punctual_model::limits::{
    BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, HEADERS_MAX, JSON_DEPTH_MAX, PAGE_MESSAGES_DEFAULT,
    PAGE_MESSAGES_MAX,
};
use punctual_model::ports::{CancelOutcome, PendingQuery, Topic};
use punctual_model::{
    Header, Key, Message, MessageId, Partition, Sequence, Span, State, Timestamp, TopicName,
};

use crate::http::body::{self, SizeLimit};
use crate::http::groups::max_attempts;
use crate::http::problem::{of_broken_off, of_schedule, of_store};
use crate::http::reply::{Reply, json, json_holding, large_json};
use crate::http::router::Call;
use crate::http::shared::Shared;
use crate::http::time;
use crate::http::topics::is_shown;

/// Largest request of JSON: a full batch, with room for what escaping and names add.
const JSON_BYTES_MAX: usize = BATCH_BYTES_MAX + BATCH_BYTES_MAX / 2;
/// Larger requests are read on a thread that may be kept busy.
const JSON_BYTES_INLINE: usize = 64 << 10;
/// Most bytes of messages in one page, so that a page of large messages stays bounded.
pub(crate) const PAGE_BYTES_MAX: usize = 8 << 20;
pub(crate) const READ_LIMITS: ReadLimits =
    ReadLimits { depth: JSON_DEPTH_MAX, messages: BATCH_MESSAGES_MAX, headers: HEADERS_MAX };

/// `POST /v1/topics/{topic}/messages`
pub(crate) async fn schedule(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    require_json(&call)?;
    let limit = SizeLimit { bytes: JSON_BYTES_MAX, code: Code::RequestTooLarge };
    let held = body::take(&call.shared, call.body, limit).await?;
    let requests = if held.bytes.len() <= JSON_BYTES_INLINE {
        read(&held.bytes)
    } else {
        let json = held.bytes.clone();
        call.shared.tasks.blocking(move || read(&json)).await.map_err(of_broken_off)?
    }?;
    match requests {
        Requests::One(request) => schedule_one(&call.shared, &topic, request).await,
        Requests::Many(requests) => {
            let answers = call.shared.broker.schedule(&topic, requests).await;
            let answers = answers.map_err(|error| of_schedule(error, true))?;
            let ids: Vec<String> = answers.iter().map(|answer| answer.id.to_string()).collect();
            let messages = answers
                .iter()
                .zip(&ids)
                .map(|(answer, id)| scheduled_view(id, &topic, answer))
                .collect();
            // It is done and cannot be refused any more, however large the answer is.
            Ok(json_holding(StatusCode::CREATED, &Batch { messages }, held))
        }
    }
}

/// `POST /v1/topics/{topic}/publish`
pub(crate) async fn publish(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic_named()?;
    // The fields are looked at first: a wrong one need not wait for the body.
    let mut request = to_request(published(call.query())?)?;
    let limit = SizeLimit { bytes: call.shared.body_bytes_max, code: Code::BodyTooLarge };
    let held = body::take(&call.shared, call.body, limit).await?;
    // A copy, because the bytes may be a small piece of a large buffer that would be kept alive.
    request.message.body = Bytes::copy_from_slice(&held.bytes);
    schedule_one(&call.shared, &topic, request).await
}

async fn schedule_one(
    shared: &Shared,
    topic: &TopicName,
    request: Request,
) -> Result<Reply, Problem> {
    let answers = shared.broker.schedule(topic, vec![request]).await;
    let answers = answers.map_err(|error| of_schedule(error, false))?;
    let answer = answers.first().ok_or(Code::Internal)?;
    let id = answer.id.encode();
    let id = std::str::from_utf8(&id).expect("ids are ASCII");
    Ok(json(StatusCode::CREATED, &scheduled_view(id, topic, answer)))
}

fn scheduled_view<'a>(id: &'a str, topic: &'a TopicName, answer: &Scheduled) -> ScheduledView<'a> {
    let due = answer.due.to_string();
    ScheduledView { id, topic: topic.as_str(), due, state: State::Scheduled.word() }
}

/// A page must not be able to post without asking first, so the type must be one that forms lack.
pub(crate) fn require_json(call: &Call) -> Result<(), Problem> {
    let given = call.parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = given.and_then(|text| text.split(';').next()).map_or("", str::trim);
    if essence.eq_ignore_ascii_case("application/json") {
        Ok(())
    } else {
        Err(Problem::new(Code::UnsupportedMediaType, "send it as content-type: application/json"))
    }
}

enum Requests {
    One(Request),
    Many(Vec<Request>),
}

fn read(json: &[u8]) -> Result<Requests, Problem> {
    match read_messages(json, READ_LIMITS)? {
        Posted::One(message) => to_request(message).map(Requests::One),
        Posted::Many(messages) => messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| to_request(message).map_err(|problem| problem.at(index)))
            .collect::<Result<_, _>>()
            .map(Requests::Many),
    }
}

fn to_request(message: NewMessage<'_>) -> Result<Request, Problem> {
    let when = match message.when {
        request::When::Now => When::Now,
        request::When::After(ref text) => When::After(time::delay(text)?),
        request::When::At(ref text) => When::At(time::time(text)?),
        request::When::Level(level) => When::Level(level),
    };
    let ttl = message.ttl.as_deref().map(|text| time::ttl("ttl", text)).transpose()?;
    let max_attempts = message.max_attempts.map(max_attempts).transpose()?;
    let partition = message.partition;
    Ok(Request { message: to_message(message), when, partition, ttl, max_attempts })
}

/// What is to be delivered.
pub(crate) fn to_message(message: NewMessage<'_>) -> Message {
    let header = |(name, value)| Header { name, value };
    let headers = message.headers.into_iter().map(header).collect();
    Message { key: message.key, headers, body: message.body }
}

/// `GET …/messages/{id}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = own_id(&call)?;
    let report = call.shared.broker.get(id).await.map_err(of_store)?.ok_or(Code::NotFound)?;
    large_json(&call.shared, &report_view(&report))
}

fn report_view(report: &Report) -> MessageView<'_> {
    let delivered = report.delivered.as_ref();
    let message = report.message.as_ref().or(delivered.map(|delivered| &delivered.message));
    MessageView {
        id: report.id.to_string(),
        topic: report.topic.name.as_str(),
        state: Some(report.state.word()),
        due: report.id.key.due.to_string(),
        delivered_at: delivered.map(|delivered| delivered.delivered_at.to_string()),
        partition: report.id.partition.get(),
        offset: delivered.map(|delivered| delivered.offset),
        content: message.map(content),
    }
}

/// Key, headers and body as they are shown. What was asked for by a field travels as a header, and
/// is shown as the field again.
pub(crate) fn content(message: &Message) -> Content<'_> {
    let mut content = Content {
        key: message.key.as_deref(),
        headers: Vec::with_capacity(message.headers.len()),
        body: &message.body,
        ..Content::default()
    };
    for header in &message.headers {
        let number = std::str::from_utf8(&header.value).ok();
        match header.name.as_str() {
            TTL_HEADER if content.ttl.is_none() => {
                let millis = number.and_then(|text| text.parse().ok());
                content.ttl = millis.map(|millis| Span::from_millis(millis).to_string());
                if content.ttl.is_some() {
                    continue;
                }
            }
            ATTEMPTS_HEADER if content.max_attempts.is_none() => {
                content.max_attempts = number.and_then(|text| text.parse().ok());
                if content.max_attempts.is_some() {
                    continue;
                }
            }
            _ => {}
        }
        content.headers.push((header.name.as_str(), &header.value[..]));
    }
    content
}

/// `DELETE …/messages/{id}`
pub(crate) async fn cancel(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = own_id(&call)?;
    let outcomes = call.shared.broker.cancel(vec![id]).await.map_err(of_store)?;
    match outcomes.first() {
        Some(CancelOutcome::Cancelled) => {
            Ok(json(StatusCode::OK, &Outcome { result: State::Cancelled.word() }))
        }
        Some(CancelOutcome::AlreadyDelivered) => Err(Code::AlreadyDelivered.into()),
        Some(CancelOutcome::AlreadyCancelled) => Err(Code::AlreadyCancelled.into()),
        Some(CancelOutcome::NotFound) | None => Err(Code::NotFound.into()),
    }
}

/// The id of the path. Under a topic, the id of another topic is no message.
fn own_id(call: &Call) -> Result<MessageId, Problem> {
    let Some(name) = call.topic()? else {
        return call.id();
    };
    let topic = known(call, &name)?;
    let id = call.id()?;
    if id.topic == topic.id { Ok(id) } else { Err(Code::NotFound.into()) }
}

fn known(call: &Call, name: &TopicName) -> Result<Arc<Topic>, Problem> {
    let topic = call.shared.broker.topics().by_name(name);
    topic.filter(|topic| is_shown(topic)).ok_or_else(|| Code::TopicNotFound.into())
}

/// `GET /v1/topics/{topic}/scheduled`
pub(crate) async fn scheduled(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let mut edge = |name| parameters.take_time(name)?.map(|text| time::edge(&text)).transpose();
    let (from, to) = (edge("from")?, edge("to")?);
    let key = parameters.take_bytes("key").map(|key| Bytes::copy_from_slice(&key));
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take("cursor")?;
    let after = cursor.map(|cursor| read_cursor(&cursor).ok_or(Code::InvalidCursor)).transpose()?;
    for unbuilt in ["key_prefix", "state"] {
        if parameters.take_bytes(unbuilt).is_some() {
            let detail = format!("the parameter {unbuilt} is not supported yet");
            return Err(Problem::new(Code::NotSupported, detail));
        }
    }
    parameters.end()?;
    let topic = known(&call, &name)?;
    let query = PendingQuery {
        topic: topic.id,
        from: from.unwrap_or(Timestamp::MIN),
        to: to.unwrap_or(Timestamp::MAX),
        after,
        key,
        limit,
    };
    let page = call.shared.broker.scheduled(query).await.map_err(of_store)?;
    let shown = fitting(page.entries.iter().map(|entry| &entry.message), PAGE_BYTES_MAX);
    let next = match page.entries.get(..shown).and_then(<[_]>::last) {
        Some(last) if shown < page.entries.len() => Some(last.id.key),
        _ => page.next,
    };
    let messages = page
        .entries
        .iter()
        .take(shown)
        .map(|entry| MessageView {
            id: entry.id.to_string(),
            topic: name.as_str(),
            state: Some(State::Scheduled.word()),
            due: entry.id.key.due.to_string(),
            delivered_at: None,
            partition: entry.id.partition.get(),
            offset: None,
            content: Some(content(&entry.message)),
        })
        .collect();
    large_json(&call.shared, &Page { messages, next: next.map(cursor_of) })
}

/// How many messages fit one page: at least one, and no more than so many bytes of them.
pub(crate) fn fitting<'a>(
    messages: impl Iterator<Item = &'a Message>,
    page_bytes_max: usize,
) -> usize {
    let mut bytes = 0usize;
    let within = messages.take_while(|message| {
        let is_first = bytes == 0;
        bytes = bytes.saturating_add(message.weight()).saturating_add(1);
        is_first || bytes <= page_bytes_max
    });
    within.count()
}

/// The number of messages of a page.
pub(crate) fn take_limit(parameters: &mut Parameters<'_>) -> Result<usize, Problem> {
    let most = u64::try_from(PAGE_MESSAGES_MAX).expect("a small number");
    let limit = parameters.take_number("limit", 1, most)?;
    Ok(limit.map_or(PAGE_MESSAGES_DEFAULT, |limit| {
        usize::try_from(limit).expect("no more than PAGE_MESSAGES_MAX")
    }))
}

/// A cursor is the place where the page ended.
fn cursor_of(key: Key) -> String {
    format!("{:x}-{:x}", key.due.as_millis(), key.sequence.get())
}

fn read_cursor(text: &str) -> Option<Key> {
    let (due, sequence) = text.split_once('-')?;
    let number = |digits: &str| {
        let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
    };
    let due = Timestamp::from_millis(number(due)?)?;
    Some(Key { due, sequence: Sequence::new(number(sequence)?)? })
}

/// The partition of that number.
pub(crate) fn partition(number: u16) -> Result<Partition, Problem> {
    Partition::new(number).ok_or_else(|| Code::NoSuchPartition.into())
}
