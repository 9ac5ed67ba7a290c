//! Groups: list, look at, make, change, remove.
//!
//! What is to change is put as it would be written over HTTP, so that one place judges it.

use std::borrow::Cow;

use prost_types::Duration as WireDuration;
use punctual_api::group::{GroupChange, PushChange, RetryChange};
use punctual_api::{Code, Problem};
use punctual_broker::group::GroupStanding;
use punctual_model::group::{RetryPolicy, Start};
use punctual_model::limits::LADDER_RUNGS_MAX;
use punctual_model::ports::GroupError;
use punctual_model::{Group, TopicName};
use punctual_proto::v1;

use crate::access::Target;
use crate::grpc::call::Asked;
use crate::grpc::messages::limit;
use crate::grpc::time::{self, duration, timestamp};
use crate::http::audit;
use crate::http::groups::{blocking, changed, read_cursor, standing, told, visible};
use crate::http::messages::known;
use crate::http::page::NamePart;
use crate::http::problem::of_group;

pub(crate) async fn list(
    asked: Asked,
    request: v1::ListGroupsRequest,
) -> Result<v1::ListGroupsResponse, Problem> {
    asked.require(Target::Anything)?;
    let topic = request.topic.as_deref().map(|topic| asked.topic(topic)).transpose()?;
    let limit = limit(request.limit)?;
    let after = match request.cursor.as_str() {
        "" => None,
        cursor => Some(read_cursor(cursor).ok_or(Code::InvalidCursor)?),
    };
    if let Some(topic) = &topic {
        known(&asked.shared, topic)?;
    }
    let (all, page) = (NamePart::default(), (after, limit));
    let (shown, next) = visible(&asked.shared, asked.caller(), (topic.as_ref(), &all), page);
    let next = next.unwrap_or_default();
    let groups = shown.iter().map(|(topic, group)| view(topic, group, None)).collect();
    Ok(v1::ListGroupsResponse { groups, next })
}

pub(crate) async fn get(asked: Asked, request: v1::GroupName) -> Result<v1::Group, Problem> {
    let (topic, group) = asked.group(&request.topic, &request.group)?;
    let consumer = asked.shared.broker.consumers().find(&topic, &group).map_err(of_group)?;
    let standing = standing(&asked.shared, &consumer).await?;
    Ok(view(consumer.topic(), &consumer.group(), standing.as_ref().map(standing_view)))
}

pub(crate) async fn put(asked: Asked, request: v1::PutGroupRequest) -> Result<v1::Group, Problem> {
    let (topic, group) = asked.group(&request.topic, &request.group)?;
    let shared = &asked.shared;
    let change = change(request.settings.unwrap_or_default(), request.clear_push)?;
    let start = match v1::Start::try_from(request.start) {
        Ok(v1::Start::Unspecified) => None,
        Ok(v1::Start::Earliest) => Some(Start::Earliest),
        Ok(v1::Start::Latest) => Some(Start::Latest),
        Err(_unknown) => return Err(refused("start is earliest or latest")),
    };
    let _one_at_a_time = shared.changes.lock().await;
    let consumers = shared.broker.consumers().clone();
    let old = match consumers.find(&topic, &group) {
        Ok(consumer) => Some(consumer.group()),
        Err(GroupError::NotFound | GroupError::TopicNotFound) => None,
        Err(error) => return Err(of_group(error)),
    };
    if old.is_some() && start.is_some() {
        return Err(refused("a group that exists does not start; put it elsewhere by its reset"));
    }
    let settings = old.map(|group| group.settings.clone()).unwrap_or_default();
    let settings = changed(shared, settings, change)?;
    let details = vec![("group", group.to_string()), ("settings", told(&settings))];
    let (of, start) = (topic.clone(), start.unwrap_or_default());
    let work = blocking(shared, move || consumers.put(&topic, &group, settings, start));
    let what = ("group_put", Some(&of));
    let put = audit::taken_down(shared, asked.asker.clone(), what, details, work).await?;
    Ok(view(put.topic(), &put.group(), None))
}

fn refused(detail: &'static str) -> Problem {
    Problem::new(Code::InvalidField, detail)
}

/// What is to change, as it would be written over HTTP.
fn change(settings: v1::GroupSettings, clear_push: bool) -> Result<GroupChange<'static>, Problem> {
    let text = |written: WireDuration| -> Result<Cow<'static, str>, Problem> {
        let refused = |problem: Problem| Problem::new(Code::InvalidField, problem.detail);
        time::delay(&written).map(|span| Cow::Owned(span.to_string())).map_err(refused)
    };
    let retry = match settings.retry {
        None => None,
        Some(v1::group_settings::Retry::Ladder(v1::Ladder { waits })) => {
            if waits.is_empty() || waits.len() > LADDER_RUNGS_MAX {
                let detail = format!("a ladder has 1 to {LADDER_RUNGS_MAX} waits");
                return Err(Problem::new(Code::InvalidField, detail));
            }
            Some(RetryChange::Ladder(waits.into_iter().map(text).collect::<Result<_, _>>()?))
        }
        Some(v1::group_settings::Retry::Exponential(growing)) => Some(RetryChange::Exponential {
            first: text(growing.first.ok_or_else(|| refused("say how long the first wait is"))?)?,
            max: growing.max.map(text).transpose()?,
            factor_percent: growing.factor_percent,
            jitter_percent: growing.jitter_percent,
        }),
    };
    let push = settings.push.map(|push| {
        Ok::<_, Problem>(PushChange {
            url: push.url.map(Cow::Owned),
            secret: push.secret.map(Cow::Owned),
            concurrency: push.concurrency.map(u64::from),
            timeout: push.timeout.map(text).transpose()?,
        })
    });
    let push = match push.transpose()? {
        Some(_) if clear_push => return Err(refused("push is either set or taken away")),
        None if clear_push => Some(None),
        push => push.map(Some),
    };
    Ok(GroupChange {
        ordered: settings.ordered,
        retry,
        max_attempts: settings.max_attempts.map(u64::from),
        lease: settings.lease.map(text).transpose()?,
        paused: settings.paused,
        push,
        start: None,
    })
}

fn view(topic: &TopicName, group: &Group, standing: Option<v1::GroupStanding>) -> v1::Group {
    let settings = &group.settings;
    let retry = match &settings.retry {
        RetryPolicy::Ladder(rungs) => v1::group_settings::Retry::Ladder(v1::Ladder {
            waits: rungs.iter().copied().map(duration).collect(),
        }),
        RetryPolicy::Exponential(growing) => {
            v1::group_settings::Retry::Exponential(v1::Exponential {
                first: Some(duration(growing.first)),
                max: Some(duration(growing.max)),
                factor_percent: Some(growing.factor_percent),
                jitter_percent: Some(u32::from(growing.jitter_percent)),
            })
        }
    };
    let push = settings.push.as_ref().map(|push| v1::Push {
        url: Some(push.url.to_string()),
        secret: None,
        secret_set: push.secret.is_some(),
        concurrency: Some(u32::from(push.concurrency)),
        timeout: Some(duration(push.timeout)),
    });
    let dead_topic = group.name.dead_topic(topic);
    v1::Group {
        topic: topic.to_string(),
        group: group.name.to_string(),
        settings: Some(v1::GroupSettings {
            ordered: Some(settings.ordered),
            lease: Some(duration(settings.lease)),
            max_attempts: Some(u32::from(settings.attempts())),
            retry: Some(retry),
            paused: Some(settings.paused),
            push,
        }),
        standing,
        dead_topic: dead_topic.map(|name| name.to_string()).unwrap_or_default(),
    }
}

fn standing_view(standing: &GroupStanding) -> v1::GroupStanding {
    let partitions = standing.partitions.iter().map(|one| v1::PartitionStanding {
        partition: u32::from(one.source.partition.get()),
        cursor: one.cursor.max(one.start),
        end: one.end,
        lag: one.lag(),
    });
    v1::GroupStanding {
        lag: standing.lag,
        in_flight: standing.in_flight,
        retrying: standing.retrying,
        dead: standing.dead,
        oldest_unacked: standing.oldest.map(timestamp),
        partitions: partitions.collect(),
    }
}

pub(crate) async fn delete(
    asked: Asked,
    request: v1::GroupName,
) -> Result<v1::DeleteGroupResponse, Problem> {
    let (topic, group) = asked.group(&request.topic, &request.group)?;
    let shared = &asked.shared;
    let _one_at_a_time = shared.changes.lock().await;
    let consumers = shared.broker.consumers().clone();
    if consumers.find(&topic, &group).is_err() {
        return Err(Code::GroupNotFound.into());
    }
    let (of, details) = (topic.clone(), vec![("group", group.to_string())]);
    let work = async {
        let deleted = blocking(shared, move || consumers.delete(&topic, &group)).await?;
        if deleted { Ok(()) } else { Err(Code::GroupNotFound.into()) }
    };
    let what = ("group_delete", Some(&of));
    audit::taken_down(shared, asked.asker.clone(), what, details, work).await?;
    Ok(v1::DeleteGroupResponse {})
}
