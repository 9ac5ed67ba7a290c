//! Topics and delay levels: list, look at, make, change, remove.
//!
//! What is to change is put as it would be written over HTTP, so that one place judges it.

use std::borrow::Cow;
use std::sync::Arc;

use prost_types::Duration as WireDuration;
use punctual_api::topic::{BacklogChange, Bound, Keep, OverflowWord, TopicChange};
use punctual_api::{Code, Problem, repeat};
use punctual_model::ports::Topic;
use punctual_model::topic::{Overflow, TopicKind};
use punctual_model::{CatchUp, DelayLevels, TopicSettings};
use punctual_proto::v1;

use crate::access::{Permission, Target};
use crate::grpc::call::Asked;
use crate::grpc::messages::limit;
use crate::grpc::sent::{catch_up, topic_name};
use crate::grpc::shown::{self, check_policy};
use crate::grpc::time::{self, duration};
use crate::grpc::transactions::written_policy;
use crate::http::audit;
use crate::http::levels::levels;
use crate::http::messages::known;
use crate::http::problem::{of_broken_off, of_store, of_topic};
use crate::http::settings::changed;
use crate::http::topics::{is_shown, with_topics};

pub(crate) async fn list(
    asked: Asked,
    request: v1::ListTopicsRequest,
) -> Result<v1::ListTopicsResponse, Problem> {
    asked.require(Target::Anything)?;
    let limit = limit(request.limit)?;
    let after = match request.cursor.as_str() {
        "" => None,
        cursor => Some(topic_name(cursor).map_err(|_illegal| Code::InvalidCursor)?),
    };
    let mut all = with_topics(&asked.shared, |topics| Ok(topics.list())).await?;
    let caller = asked.caller();
    all.retain(|topic| is_shown(topic) && caller.may(Permission::See, Target::Topic(&topic.name)));
    let start = after.map_or(0, |after| all.partition_point(|topic| topic.name <= after));
    let page: Vec<&Arc<Topic>> = all.iter().skip(start).take(limit).collect();
    let more = start + page.len() < all.len();
    let last = page.last().filter(|_| more);
    let next = last.map(|topic| topic.name.to_string()).unwrap_or_default();
    let topics = page.into_iter().map(|topic| view(topic, None)).collect();
    Ok(v1::ListTopicsResponse { topics, next })
}

pub(crate) async fn get(asked: Asked, request: v1::TopicName) -> Result<v1::Topic, Problem> {
    let name = asked.topic(&request.topic)?;
    let topic = known(&asked.shared, &name)?;
    let pending = asked.shared.broker.stats().pending;
    let count = pending.into_iter().find(|(known, _)| *known == name);
    Ok(view(&topic, Some(count.map_or(0, |(_, count)| count))))
}

pub(crate) async fn put(asked: Asked, request: v1::PutTopicRequest) -> Result<v1::Topic, Problem> {
    let name = asked.topic(&request.topic)?;
    let shared = &asked.shared;
    let change = change(request.settings.unwrap_or_default(), &request.clear)?;
    let delay_max = shared.delay_max();
    // Tried first: what is wrong is refused before it is taken down.
    changed(TopicSettings::default(), change.clone(), delay_max)?;
    let _one_at_a_time = shared.changes.lock().await;
    let (of, text) = (name.clone(), format!("{change:?}"));
    let work = with_topics(shared, move |topics| {
        let settings = topics.by_name(&name).map(|topic| topic.settings.clone());
        let settings = changed(settings.unwrap_or_default(), change, delay_max)?;
        topics.put(&name, settings).map_err(of_topic)
    });
    let what = ("topic_put", Some(&of));
    let details = vec![("settings", text)];
    let topic = audit::taken_down(shared, asked.asker.clone(), what, details, work).await?;
    shared.broker.topics_changed();
    Ok(view(&topic, None))
}

/// What is to change, as it would be written over HTTP.
fn change(settings: v1::TopicSettings, clear: &[String]) -> Result<TopicChange<'static>, Problem> {
    let text = |written: WireDuration| -> Result<String, Problem> {
        let refused = |problem: Problem| Problem::new(Code::InvalidField, problem.detail);
        time::delay(&written).map(|span| span.to_string()).map_err(refused)
    };
    let spans = |written: Option<WireDuration>| written.map(text).transpose();
    let bound = |written: Option<String>| written.map(|text| Bound::Set(Cow::Owned(text)));
    let partitions = settings.partitions.map(|number| u16::try_from(number).unwrap_or(u16::MAX));
    let overflow = match v1::Overflow::try_from(settings.overflow) {
        Ok(v1::Overflow::Unspecified) => None,
        Ok(v1::Overflow::Refuse) => Some(OverflowWord::Refuse),
        Ok(v1::Overflow::DropOldest) => Some(OverflowWord::DropOldest),
        Ok(v1::Overflow::DeadLetterNewest) => Some(OverflowWord::DeadLetterNewest),
        Err(_unknown) => {
            return Err(Problem::new(Code::InvalidField, "overflow is none that there is"));
        }
    };
    let own_levels = settings.levels.map(|own| own.levels.into_iter().map(text));
    let own_levels = own_levels.map(|all| {
        all.map(|text| text.map(Cow::Owned)).collect::<Result<Vec<Cow<'static, str>>, _>>()
    });
    let mut change = TopicChange {
        partitions,
        retention: spans(settings.retention)?.map(Keep::UpTo),
        retention_bytes: settings.retention_bytes.map(Keep::UpTo),
        default_ttl: spans(settings.default_ttl)?.map(Keep::UpTo),
        max_backlog: settings
            .max_backlog
            .map(|v1::Backlog { messages, bytes }| BacklogChange { messages, bytes }),
        overflow,
        max_delay: bound(spans(settings.max_delay)?),
        rate_cap: settings.rate_cap.map(|rate| Bound::Set(u64::from(rate))),
        jitter: bound(spans(settings.jitter)?),
        catch_up: settings.catch_up.as_ref().map(written_catch_up).transpose()?,
        levels: own_levels.transpose()?.map(Bound::Set),
        check: settings.check.as_ref().map(written_policy).transpose()?.map(Bound::Set),
        paused: settings.paused,
    };
    for name in clear {
        match name.as_str() {
            "retention" => change.retention = Some(Keep::Forever),
            "retention_bytes" => change.retention_bytes = Some(Keep::Forever),
            "default_ttl" => change.default_ttl = Some(Keep::Forever),
            "max_backlog" => change.max_backlog = Some(BacklogChange::default()),
            "max_delay" => change.max_delay = Some(Bound::Absent),
            "rate_cap" => change.rate_cap = Some(Bound::Absent),
            "jitter" => change.jitter = Some(Bound::Absent),
            "levels" => change.levels = Some(Bound::Absent),
            "check" => change.check = Some(Bound::Absent),
            other => {
                let detail = format!("{other:?} is no setting that can be taken away");
                return Err(Problem::new(Code::InvalidField, detail));
            }
        }
    }
    Ok(change)
}

fn written_catch_up(written: &v1::CatchUp) -> Result<repeat::CatchUp<'static>, Problem> {
    Ok(match catch_up(written)? {
        CatchUp::All => repeat::CatchUp::All,
        CatchUp::Latest => repeat::CatchUp::Latest,
        CatchUp::Spread(over) => repeat::CatchUp::Spread(over.to_string().into()),
        CatchUp::SkipOlder(than) => repeat::CatchUp::SkipOlderThan(than.to_string().into()),
    })
}

fn view(topic: &Topic, pending: Option<u64>) -> v1::Topic {
    let settings = &topic.settings;
    let backlog = settings.max_backlog;
    let is_bounded = backlog.messages.is_some() || backlog.bytes.is_some();
    let overflow = match settings.overflow {
        Overflow::Refuse => v1::Overflow::Refuse,
        Overflow::DropOldest => v1::Overflow::DropOldest,
        Overflow::DeadLetterNewest => v1::Overflow::DeadLetterNewest,
    };
    let kind = match topic.kind {
        TopicKind::Dead => v1::TopicKind::Dead,
        TopicKind::Plain | TopicKind::Retry => v1::TopicKind::Plain,
    };
    v1::Topic {
        topic: topic.name.to_string(),
        settings: Some(v1::TopicSettings {
            partitions: Some(u32::from(settings.partitions)),
            retention: settings.retention.map(duration),
            max_delay: settings.max_delay.map(duration),
            default_ttl: settings.default_ttl.map(duration),
            jitter: settings.jitter.map(duration),
            rate_cap: settings.rate_cap,
            paused: Some(settings.paused),
            retention_bytes: settings.retention_bytes,
            max_backlog: is_bounded
                .then_some(v1::Backlog { messages: backlog.messages, bytes: backlog.bytes }),
            overflow: overflow.into(),
            catch_up: Some(shown::catch_up(settings.catch_up)),
            levels: settings.levels.as_ref().map(levels_view),
            check: settings.check.map(|policy| check_policy(policy, None)),
        }),
        pending,
        kind: kind.into(),
    }
}

pub(crate) async fn delete(
    asked: Asked,
    request: v1::TopicName,
) -> Result<v1::DeleteTopicResponse, Problem> {
    let name = asked.topic(&request.topic)?;
    let shared = &asked.shared;
    let _one_at_a_time = shared.changes.lock().await;
    // One that belongs to a group is refused below, with its reason.
    if shared.broker.topics().by_name(&name).is_none() {
        return Err(Code::TopicNotFound.into());
    }
    let of = name.clone();
    let work = with_topics(shared, move |topics| {
        let deleted = topics.delete(&name).map_err(of_topic)?;
        if deleted { Ok(()) } else { Err(Code::TopicNotFound.into()) }
    });
    let what = ("topic_delete", Some(&of));
    audit::taken_down(shared, asked.asker.clone(), what, Vec::new(), work).await?;
    shared.broker.topics_changed();
    Ok(v1::DeleteTopicResponse {})
}

fn levels_view(levels: &DelayLevels) -> v1::Levels {
    v1::Levels { levels: levels.delays().iter().copied().map(duration).collect() }
}

pub(crate) async fn get_levels(
    asked: Asked,
    _request: v1::GetLevelsRequest,
) -> Result<v1::Levels, Problem> {
    asked.require(Target::Anything)?;
    Ok(levels_view(&asked.shared.broker.topics().levels()))
}

pub(crate) async fn put_levels(asked: Asked, request: v1::Levels) -> Result<v1::Levels, Problem> {
    asked.require(Target::Whole)?;
    let shared = &asked.shared;
    let text = |written: &WireDuration| {
        let refused = |problem: Problem| Problem::new(Code::InvalidLevels, problem.detail);
        time::delay(written).map(|span| Cow::Owned(span.to_string())).map_err(refused)
    };
    let texts: Vec<Cow<'_, str>> = request.levels.iter().map(text).collect::<Result<_, _>>()?;
    let levels = levels(&texts, shared.delay_max())?;
    let (answer, details) = (levels_view(&levels), vec![("levels", texts.join(" "))]);
    let topics = Arc::clone(shared.broker.topics());
    let work = async {
        let put = shared.tasks.blocking(move || topics.put_levels(levels)).await;
        put.map_err(of_broken_off)?.map_err(of_store)
    };
    audit::taken_down(shared, asked.asker.clone(), ("levels_put", None), details, work).await?;
    Ok(answer)
}
