//! Topics: list, look at, make, change, remove, and read what was delivered.

use std::sync::Arc;

use http::StatusCode;
use punctual_api::answer::{MessageView, Outcome, Page};
use punctual_api::request::Parameters;
use punctual_api::topic::{
    BacklogChange, BacklogView, Keep, OverflowWord, TopicChange, TopicList, TopicView,
};
use punctual_api::{Code, Problem};
use punctual_model::limits::{JSON_DEPTH_MAX, PARTITIONS_MAX};
use punctual_model::ports::{LogPosition, Topic, TopicError, Topics};
use punctual_model::time::SpanError;
use punctual_model::topic::{Backlog, Overflow, TopicKind};
use punctual_model::{Span, TopicName, TopicSettings};

use crate::http::body::take_json;
use crate::http::messages::{PAGE_BYTES_MAX, content, fitting, partition, take_limit};
use crate::http::problem::{of_broken_off, of_topic};
use crate::http::reply::{Reply, json, large_json};
use crate::http::router::Call;
use crate::http::shared::Shared;
use crate::http::time;

/// Largest request about a topic.
const TOPIC_BYTES_MAX: usize = 64 << 10;

/// Runs work on the catalogue or the logs, which may block on the disk.
async fn with_topics<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce(&dyn Topics) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let topics = Arc::clone(shared.broker.topics());
    shared.tasks.blocking(move || work(&*topics)).await.map_err(of_broken_off)?
}

/// `GET /v1/topics`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take("cursor")?;
    let after = cursor.map(|name| TopicName::new(&name).map_err(|_illegal| Code::InvalidCursor));
    let after = after.transpose()?;
    parameters.end()?;
    let mut all = with_topics(&call.shared, |topics| Ok(topics.list())).await?;
    all.retain(|topic| is_shown(topic));
    let start = after.map_or(0, |after| all.partition_point(|topic| topic.name <= after));
    let page: Vec<&Arc<Topic>> = all.iter().skip(start).take(limit).collect();
    let more = start + page.len() < all.len();
    let next = page.last().filter(|_| more).map(|topic| topic.name.to_string());
    let topics = page.into_iter().map(|topic| view(topic, None)).collect();
    large_json(&call.shared, &TopicList { topics, next })
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    let topic = existing(&call, &name).await?;
    let pending = call.shared.broker.stats().pending;
    let pending =
        pending.into_iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count);
    Ok(json(StatusCode::OK, &view(&topic, Some(pending))))
}

async fn existing(call: &Call, name: &TopicName) -> Result<Arc<Topic>, Problem> {
    let name = name.clone();
    with_topics(&call.shared, move |topics| {
        let topic = topics.by_name(&name).filter(|topic| is_shown(topic));
        topic.ok_or_else(|| Code::TopicNotFound.into())
    })
    .await
}

/// Whether others than its group may know of the topic.
pub(crate) fn is_shown(topic: &Topic) -> bool {
    topic.kind != TopicKind::Retry
}

/// `PUT /v1/topics/{topic}`
pub(crate) async fn put(call: Call) -> Result<Reply, Problem> {
    change(call, true).await
}

/// `PATCH /v1/topics/{topic}`
pub(crate) async fn patch(call: Call) -> Result<Reply, Problem> {
    change(call, false).await
}

async fn change(call: Call, may_make: bool) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let (shared, held) = take_json(call, TOPIC_BYTES_MAX).await?;
    let change = TopicChange::read(&held.bytes, JSON_DEPTH_MAX)?;
    let consumers = shared.broker.consumers().clone();
    let (topic, is_new) = with_topics(&shared, move |topics| {
        let old = topics.by_name(&name);
        if old.is_none() && !may_make {
            return Err(Code::TopicNotFound.into());
        }
        let is_new = old.is_none();
        let settings =
            changed(old.map(|topic| topic.settings.clone()).unwrap_or_default(), change)?;
        let topic = topics.put(&name, settings).map_err(of_topic)?;
        consumers.topics_changed();
        Ok((topic, is_new))
    })
    .await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(json(status, &view(&topic, None)))
}

fn changed(mut settings: TopicSettings, change: TopicChange) -> Result<TopicSettings, Problem> {
    if let Some(partitions) = change.partitions {
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            let detail = format!("partitions must be a whole number from 1 to {PARTITIONS_MAX}");
            return Err(Problem::new(Code::InvalidField, detail));
        }
        settings.partitions = partitions;
    }
    match change.retention {
        None => {}
        Some(Keep::Forever) => settings.retention = None,
        Some(Keep::UpTo(text)) => settings.retention = Some(retention(&text)?),
    }
    match change.retention_bytes {
        None => {}
        Some(Keep::Forever) => settings.retention_bytes = None,
        Some(Keep::UpTo(bytes)) => settings.retention_bytes = Some(bytes),
    }
    match change.default_ttl {
        None => {}
        Some(Keep::Forever) => settings.default_ttl = None,
        Some(Keep::UpTo(text)) => settings.default_ttl = Some(time::ttl("default_ttl", &text)?),
    }
    if let Some(BacklogChange { messages, bytes }) = change.max_backlog {
        settings.max_backlog = Backlog { messages, bytes };
    }
    match change.overflow {
        None => {}
        Some(OverflowWord::Refuse) => settings.overflow = Overflow::Refuse,
        Some(OverflowWord::DropOldest) => settings.overflow = Overflow::DropOldest,
        Some(OverflowWord::DeadLetterNewest) => settings.overflow = Overflow::DeadLetterNewest,
    }
    Ok(settings)
}

fn retention(text: &str) -> Result<Span, Problem> {
    text.parse().map_err(|error: SpanError| {
        let detail = format!("retention: {error}; or \"forever\"");
        Problem::new(Code::InvalidField, detail)
    })
}

/// `DELETE /v1/topics/{topic}`
pub(crate) async fn delete(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    let consumers = call.shared.broker.consumers().clone();
    let deleted = with_topics(&call.shared, move |topics| {
        let deleted = topics.delete(&name).map_err(of_topic)?;
        consumers.topics_changed();
        Ok(deleted)
    })
    .await?;
    if deleted {
        Ok(json(StatusCode::OK, &Outcome { result: "deleted" }))
    } else {
        Err(Code::TopicNotFound.into())
    }
}

/// `GET /v1/topics/{topic}/partitions/{partition}/messages`
pub(crate) async fn read_partition(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let offset = parameters.take_number("offset", 0, u64::MAX)?.unwrap_or(0);
    let limit = take_limit(&mut parameters)?;
    parameters.end()?;
    let topic = existing(&call, &name).await?;
    let number = call.partition()?;
    if number >= topic.settings.partitions {
        return Err(Code::NoSuchPartition.into());
    }
    let from = LogPosition { topic: topic.id, partition: partition(number)?, offset };
    let (delivered, start) = with_topics(&call.shared, move |topics| {
        let delivered = topics.read(from, limit).map_err(of_log)?;
        let bounds = topics.bounds(from.topic, from.partition).map_err(of_log)?;
        Ok((delivered, bounds.start))
    })
    .await?;
    let shown = fitting(delivered.iter().map(|delivered| &delivered.message), PAGE_BYTES_MAX);
    let last = delivered.get(..shown).and_then(<[_]>::last);
    let next = last.map_or(offset.max(start), |last| last.offset.saturating_add(1));
    let messages = delivered
        .iter()
        .take(shown)
        .map(|delivered| MessageView {
            id: delivered.id.to_string(),
            topic: name.as_str(),
            state: None,
            due: delivered.id.key.due.to_string(),
            delivered_at: Some(delivered.delivered_at.to_string()),
            partition: number,
            offset: Some(delivered.offset),
            content: Some(content(&delivered.message)),
        })
        .collect();
    large_json(&call.shared, &Page { messages, next })
}

/// The topic is there, so what is missing is the partition.
fn of_log(error: TopicError) -> Problem {
    match error {
        TopicError::NotFound => Code::NoSuchPartition.into(),
        other => of_topic(other),
    }
}

fn view(topic: &Topic, pending: Option<u64>) -> TopicView {
    let settings = &topic.settings;
    let retention = settings.retention;
    let Backlog { messages, bytes } = settings.max_backlog;
    let is_bounded = messages.is_some() || bytes.is_some();
    TopicView {
        name: topic.name.to_string(),
        kind: match topic.kind {
            TopicKind::Dead => "dead",
            TopicKind::Plain | TopicKind::Retry => "plain",
        },
        partitions: settings.partitions,
        retention: retention.map_or_else(|| "forever".to_owned(), |span| span.to_string()),
        retention_bytes: settings.retention_bytes,
        default_ttl: settings.default_ttl.map(|span| span.to_string()),
        max_backlog: is_bounded.then_some(BacklogView { messages, bytes }),
        overflow: match settings.overflow {
            Overflow::Refuse => OverflowWord::Refuse,
            Overflow::DropOldest => OverflowWord::DropOldest,
            Overflow::DeadLetterNewest => OverflowWord::DeadLetterNewest,
        },
        pending,
    }
}
