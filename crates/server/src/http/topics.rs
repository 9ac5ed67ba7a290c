//! Topics: list, look at, make, change, remove, and read what was delivered.

use std::collections::HashMap;
use std::sync::Arc;

use http::StatusCode;
use punctual_api::answer::{MessageView, Outcome, Page};
use punctual_api::request::Parameters;
use punctual_api::topic::{TopicChange, TopicList, TopicTotalsView, TopicView};
use punctual_api::{Code, Problem};
use punctual_model::limits::JSON_DEPTH_MAX;
use punctual_model::ports::{LogPosition, Topic, TopicError, Topics};
use punctual_model::topic::TopicKind;
use punctual_model::{TopicName, TopicSettings};

use crate::access::{Permission, Target};
use crate::consuming::Consuming;
use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::etag::{self, Conditions};
use crate::http::messages::{known, partition};
use crate::http::page::{PAGE_BYTES_MAX, fitting, take_limit, take_part};
use crate::http::problem::{of_broken_off, of_topic};
use crate::http::reply::{Reply, json, large_json, located};
use crate::http::settings::{changed, view};
use crate::http::shared::Shared;
use crate::shown::content;

/// Largest request about a topic.
const TOPIC_BYTES_MAX: usize = 64 << 10;

/// Runs work on the catalogue or the logs, which may block on the disk.
pub(crate) async fn with_topics<T: Send + 'static>(
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
    let part = take_part(&mut parameters)?;
    parameters.end()?;
    let mut all = with_topics(&call.shared, |topics| Ok(topics.list())).await?;
    let caller = call.caller();
    all.retain(|topic| {
        is_shown(topic)
            && part.is_in(topic.name.as_str())
            && caller.may(Permission::See, Target::Topic(&topic.name))
    });
    let start = after.map_or(0, |after| all.partition_point(|topic| topic.name <= after));
    let page: Vec<&Arc<Topic>> = all.iter().skip(start).take(limit).collect();
    let more = start + page.len() < all.len();
    let next = page.last().filter(|_| more).map(|topic| topic.name.to_string());
    let pending: HashMap<TopicName, u64> = call.shared.broker.stats().pending.into_iter().collect();
    let backlogs = Backlogs::look(&call.shared).await?;
    let counted = |topic: &Arc<Topic>| {
        let totals = Some(totals(&call.shared, topic));
        let pending = pending.get(&topic.name).copied().unwrap_or(0);
        TopicView { totals, backlog: backlogs.of(&topic.name), ..view(topic, Some(pending)) }
    };
    let topics = page.into_iter().map(counted).collect();
    large_json(&call.shared, &TopicList { topics, next })
}

/// How much waits for the groups of topics; nothing where only Kafka knows.
struct Backlogs(Option<HashMap<TopicName, u64>>);

impl Backlogs {
    async fn look(shared: &Arc<Shared>) -> Result<Self, Problem> {
        let Consuming::Here = shared.consuming() else {
            return Ok(Self(None));
        };
        let consumers = shared.broker.consumers().clone();
        let lags = shared.tasks.blocking(move || consumers.lags()).await.map_err(of_broken_off)?;
        let mut behind = HashMap::new();
        for group in lags {
            let most: &mut u64 = behind.entry(group.topic).or_default();
            *most = group.lag.max(*most);
        }
        Ok(Self(Some(behind)))
    }

    /// How many messages wait for the group of the topic that is furthest behind.
    fn of(&self, topic: &TopicName) -> Option<u64> {
        self.0.as_ref().map(|behind| behind.get(topic).copied().unwrap_or(0))
    }
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    let conditions = Conditions::of(&call.parts.headers)?;
    let topic = existing(&call, &name).await?;
    let tag = etag::of(&view(&topic, None));
    if conditions.is_known(&tag) {
        return Ok(etag::not_modified(tag));
    }
    let pending = call.shared.broker.stats().pending;
    let pending =
        pending.into_iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| count);
    let totals = Some(totals(&call.shared, &topic));
    let backlog = Backlogs::look(&call.shared).await?.of(&name);
    let view = TopicView { totals, backlog, ..view(&topic, Some(pending)) };
    Ok(etag::tagged(json(StatusCode::OK, &view), tag))
}

/// What was counted of a topic since it was made.
fn totals(shared: &Shared, topic: &Topic) -> TopicTotalsView {
    let counted = shared.broker.counts_of(topic.id);
    let counts = shared.trends.topic(topic.id.get(), counted.into());
    TopicTotalsView {
        scheduled: counts.get("scheduled"),
        fired: counts.get("fired"),
        delivered: counts.get("delivered"),
        cancelled: counts.get("cancelled"),
        retried: counts.get("retried"),
        dead: counts.get("dead"),
    }
}

/// Refuses a change of a topic that is not as the request demands.
fn check(shared: &Shared, name: &TopicName, conditions: &Conditions) -> Result<(), Problem> {
    if !conditions.is_conditional() {
        return Ok(());
    }
    let topic = shared.broker.topics().by_name(name).filter(|topic| is_shown(topic));
    conditions.check(topic.map(|topic| etag::of(&view(&topic, None))).as_ref())
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
    let asker = call.asker();
    let conditions = Conditions::of(&call.parts.headers)?;
    let (shared, held) = take_json(call, TOPIC_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&held.bytes).into_owned();
    // Read twice: what is wrong is refused before it is taken down.
    let delay_max = shared.delay_max();
    changed(TopicSettings::default(), TopicChange::read(&held.bytes, JSON_DEPTH_MAX)?, delay_max)?;
    let _one_at_a_time = shared.changes.lock().await;
    if !may_make {
        known(&shared, &name)?;
    }
    check(&shared, &name, &conditions)?;
    let topic_name = name.clone();
    let work = with_topics(&shared, move |topics| {
        let change = TopicChange::read(&held.bytes, JSON_DEPTH_MAX)?;
        let old = topics.by_name(&name);
        if old.is_none() && !may_make {
            return Err(Code::TopicNotFound.into());
        }
        let is_new = old.is_none();
        let settings = old.map(|topic| topic.settings.clone()).unwrap_or_default();
        let settings = changed(settings, change, delay_max)?;
        let topic = topics.put(&name, settings).map_err(of_topic)?;
        Ok((topic, is_new))
    });
    let what = if may_make { "topic_put" } else { "topic_patch" };
    let details = vec![("settings", text)];
    let work = audit::taken_down(&shared, asker, (what, Some(&topic_name)), details, work);
    let (topic, is_new) = work.await?;
    shared.broker.topics_changed();
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let view = view(&topic, None);
    let reply = located(json(status, &view), &format!("/v1/topics/{}", topic.name));
    Ok(etag::tagged(reply, etag::of(&view)))
}

/// `DELETE /v1/topics/{topic}`
pub(crate) async fn delete(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    let conditions = Conditions::of(&call.parts.headers)?;
    let _one_at_a_time = call.shared.changes.lock().await;
    // One that belongs to a group is refused below, with its reason.
    if call.shared.broker.topics().by_name(&name).is_none() {
        return Err(Code::TopicNotFound.into());
    }
    check(&call.shared, &name, &conditions)?;
    let topic_name = name.clone();
    let work = with_topics(&call.shared, move |topics| {
        let deleted = topics.delete(&name).map_err(of_topic)?;
        if deleted { Ok(()) } else { Err(Code::TopicNotFound.into()) }
    });
    let what = ("topic_delete", Some(&topic_name));
    audit::taken_down(&call.shared, call.asker(), what, Vec::new(), work).await?;
    call.shared.broker.topics_changed();
    Ok(json(StatusCode::OK, &Outcome { result: "deleted" }))
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
    let _turn = call.shared.listing().await;
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
            due: Some(delivered.due.to_string()),
            delivered_at: Some(delivered.delivered_at.to_string()),
            partition: number,
            offset: Some(delivered.offset),
            content: Some(content(&delivered.message)),
            ..MessageView::default()
        })
        .collect();
    large_json(&call.shared, &Page { messages, next })
}

/// The topic is there, so what is missing is the partition.
pub(crate) fn of_log(error: TopicError) -> Problem {
    match error {
        TopicError::NotFound => Code::NoSuchPartition.into(),
        other => of_topic(other),
    }
}
