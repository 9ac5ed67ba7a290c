//! Groups: list, look at, make, change, remove, and put elsewhere.

use std::sync::Arc;

use http::{HeaderValue, StatusCode};
use punctual_api::answer::Outcome;
use punctual_api::group::{
    GroupChange, GroupLimits, GroupList, GroupView, OffsetLimits, OffsetsView, PartitionView,
    PushChange, PushView, Reset, RetryChange, RetryPolicyView, StandingView, StartAt, read_offsets,
};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::group::{Consumer, GroupStanding, ResetTo};
use punctual_model::group::{Exponential, Push, RetryPolicy, Standing, Start};
use punctual_model::limits::{
    ATTEMPTS_MAX, DELAY_MAX, JSON_DEPTH_MAX, LADDER_RUNGS_MAX, PARTITIONS_MAX,
};
use punctual_model::ports::GroupError;
use punctual_model::{Group, GroupName, GroupSettings, Partition, Span, Timestamp, TopicName};

use crate::access::{Caller, Permission, Target};
use crate::consuming::Consuming;
use crate::http::audit::{self, Asker};
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::etag::{self, Conditions};
use crate::http::page::{NamePart, take_limit, take_part};
use crate::http::problem::{of_broken_off, of_group};
use crate::http::reply::{Reply, json, large_json, located};
use crate::http::shared::Shared;
use crate::http::time;
use crate::push;

/// Largest request about a group.
const GROUP_BYTES_MAX: usize = 64 << 10;
const LIMITS: GroupLimits = GroupLimits { depth: JSON_DEPTH_MAX, rungs: LADDER_RUNGS_MAX };
const OFFSETS: OffsetLimits =
    OffsetLimits { depth: JSON_DEPTH_MAX, partitions: PARTITIONS_MAX as usize };
/// Growing waits double, and a fifth of each is left to chance, unless something else is said.
const FACTOR_PERCENT: u32 = 200;
const JITTER_PERCENT: u8 = 20;
/// The longest of growing waits, unless something else is said.
const GROWN_WAIT_MAX: Span = Span::from_secs(2 * 3600);
/// Largest growth of a wait, in percent.
const FACTOR_PERCENT_MAX: u32 = 10_000;

/// The group of the path, which must exist.
pub(crate) fn found(call: &Call) -> Result<Consumer, Problem> {
    let (topic, group) = call.group_named()?;
    call.shared.broker.consumers().find(&topic, &group).map_err(of_group)
}

/// Runs work on a group that may block on the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    shared: &Shared,
    work: impl FnOnce() -> Result<T, GroupError> + Send + 'static,
) -> Result<T, Problem> {
    shared.tasks.blocking(work).await.map_err(of_broken_off)?.map_err(of_group)
}

/// `GET /v1/groups` and `GET /v1/topics/{topic}/groups`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let topic = call.topic()?;
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take("cursor")?;
    let after = cursor.map(|cursor| read_cursor(&cursor).ok_or(Code::InvalidCursor)).transpose()?;
    let part = take_part(&mut parameters)?;
    let with_standing = parameters.take_truth("standing")?;
    parameters.end()?;
    if let Some(topic) = &topic {
        let known = call.shared.broker.topics().by_name(topic);
        known.filter(|topic| super::topics::is_shown(topic)).ok_or(Code::TopicNotFound)?;
    }
    let wanted = (topic.as_ref(), &part);
    let (shown, next) = visible(&call.shared, call.caller(), wanted, (after, limit));
    let now = call.shared.broker.now();
    let mut standings = vec![];
    if with_standing {
        standings = standings_of(&call.shared, &shown).await?;
    }
    let standings = standings.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let groups = shown.iter().zip(standings).map(|((topic, group), standing)| {
        view(topic, group, standing.map(|standing| standing_view(standing, now)))
    });
    large_json(&call.shared, &GroupList { groups: groups.collect(), next })
}

/// How far each of these groups is; nothing for one that has gone meanwhile.
async fn standings_of(
    shared: &Shared,
    groups: &[(TopicName, Arc<Group>)],
) -> Result<Vec<Option<GroupStanding>>, Problem> {
    let Consuming::Here = shared.consuming() else {
        return Ok(vec![]);
    };
    let consumers = shared.broker.consumers();
    let found: Vec<Option<Consumer>> =
        groups.iter().map(|(topic, group)| consumers.find(topic, &group.name).ok()).collect();
    blocking(shared, move || {
        let standing = |consumer: Option<Consumer>| match consumer?.standing() {
            Err(GroupError::NotFound | GroupError::TopicNotFound) => None,
            standing => Some(standing),
        };
        found.into_iter().map(|consumer| standing(consumer).transpose()).collect()
    })
    .await
}

/// The groups behind that one that the caller may see, of one topic or of all and with that in their
/// name, in order; and the cursor to go on from, if more follow.
pub(crate) fn visible(
    shared: &Shared,
    caller: &Caller,
    (topic, part): (Option<&TopicName>, &NamePart),
    (after, limit): (Option<(TopicName, GroupName)>, usize),
) -> (Vec<(TopicName, Arc<Group>)>, Option<String>) {
    let mut all = shared.broker.consumers().list();
    all.retain(|(name, group)| {
        topic.is_none_or(|topic| topic == name)
            && part.is_in(group.name.as_str())
            && after.as_ref().is_none_or(|after| (name, &group.name) > (&after.0, &after.1))
            && caller.may(Permission::See, Target::Group(name, &group.name))
    });
    all.sort_by(|a, b| (&a.0, &a.1.name).cmp(&(&b.0, &b.1.name)));
    let is_last = all.len() <= limit;
    all.truncate(limit);
    let last = all.last().filter(|_| !is_last);
    let next = last.map(|(topic, group)| format!("{topic}/{}", group.name));
    (all, next)
}

/// A cursor is the last group of the page; a slash is in no name.
pub(crate) fn read_cursor(text: &str) -> Option<(TopicName, GroupName)> {
    let (topic, group) = text.split_once('/')?;
    Some((TopicName::new(topic).ok()?, GroupName::new(group).ok()?))
}

/// `GET /v1/topics/{topic}/groups/{group}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    Parameters::read(call.query())?.end()?;
    let tag = tag(&consumer);
    if Conditions::of(&call.parts.headers)?.is_known(&tag) {
        return Ok(etag::not_modified(tag));
    }
    let now = call.shared.broker.now();
    let standing = standing(&call.shared, &consumer).await?;
    let standing = standing.map(|standing| standing_view(&standing, now));
    let view = view(consumer.topic(), &consumer.group(), standing);
    Ok(etag::tagged(large_json(&call.shared, &view)?, tag))
}

/// How far a group is; only whoever reads its messages knows that.
pub(crate) async fn standing(
    shared: &Shared,
    consumer: &Consumer,
) -> Result<Option<GroupStanding>, Problem> {
    match shared.consuming() {
        Consuming::Kafka => Ok(None),
        Consuming::Here => {
            let asked = consumer.clone();
            blocking(shared, move || asked.standing()).await.map(Some)
        }
    }
}

/// The tag of the settings. How far the group is does not count, nor what secret it has.
fn tag(consumer: &Consumer) -> HeaderValue {
    etag::of(&view(consumer.topic(), &consumer.group(), None))
}

fn view(topic: &TopicName, group: &Group, standing: Option<StandingView>) -> GroupView {
    let settings = &group.settings;
    let dead_topic = group.name.dead_topic(topic);
    GroupView {
        name: group.name.to_string(),
        topic: topic.to_string(),
        ordered: settings.ordered,
        retry: match &settings.retry {
            RetryPolicy::Ladder(rungs) => {
                RetryPolicyView::Ladder(rungs.iter().map(Span::to_string).collect())
            }
            RetryPolicy::Exponential(growing) => RetryPolicyView::Exponential {
                first: growing.first.to_string(),
                max: growing.max.to_string(),
                factor: f64::from(growing.factor_percent) / 100.0,
                jitter: f64::from(growing.jitter_percent) / 100.0,
            },
        },
        max_attempts: settings.attempts(),
        lease: settings.lease.to_string(),
        paused: settings.paused,
        push: settings.push.as_ref().map(|push| PushView {
            url: push.url.to_string(),
            secret_set: push.secret.is_some(),
            concurrency: push.concurrency,
            timeout: push.timeout.to_string(),
        }),
        dead_topic: dead_topic.map(|name| name.to_string()).unwrap_or_default(),
        standing,
    }
}

fn standing_view(standing: &GroupStanding, now: Timestamp) -> StandingView {
    let partitions = standing.partitions.iter().map(|one| PartitionView {
        partition: one.source.partition.get(),
        cursor: one.cursor.max(one.start),
        end: one.end,
        lag: one.lag(),
    });
    StandingView {
        lag: standing.lag,
        in_flight: standing.in_flight,
        retrying: standing.retrying,
        dead: standing.dead,
        oldest_unacked: standing.oldest.map(|oldest| oldest.to_string()),
        oldest_unacked_age: standing.oldest.map(|oldest| now.since(oldest).to_string()),
        partitions: partitions.collect(),
    }
}

/// `PUT /v1/topics/{topic}/groups/{group}`
pub(crate) async fn put(call: Call) -> Result<Reply, Problem> {
    change(call, true).await
}

/// `PATCH /v1/topics/{topic}/groups/{group}`
pub(crate) async fn patch(call: Call) -> Result<Reply, Problem> {
    change(call, false).await
}

async fn change(call: Call, may_make: bool) -> Result<Reply, Problem> {
    let (topic, group) = call.group_named()?;
    let asker = call.asker();
    let conditions = Conditions::of(&call.parts.headers)?;
    let (shared, held) = take_json(call, GROUP_BYTES_MAX).await?;
    let change = GroupChange::read(&held.bytes, LIMITS)?;
    let _one_at_a_time = shared.changes.lock().await;
    let old = match shared.broker.consumers().find(&topic, &group) {
        Ok(consumer) => Some(consumer),
        Err(GroupError::NotFound | GroupError::TopicNotFound) if may_make => None,
        Err(error) => return Err(of_group(error)),
    };
    conditions.check(old.as_ref().map(tag).as_ref())?;
    let old = old.map(|consumer| consumer.group());
    if old.is_some() && change.start.is_some() {
        let detail = "a group that exists does not start; put it elsewhere by its reset";
        return Err(Problem::new(Code::InvalidField, detail));
    }
    let start = match change.start {
        Some(StartAt::Latest) => Start::Latest,
        Some(StartAt::Earliest) | None => Start::Earliest,
    };
    let is_new = old.is_none();
    let settings = old.map(|group| group.settings.clone()).unwrap_or_default();
    let settings = changed(&shared, settings, change)?;
    drop(held);
    let what = if may_make { "group_put" } else { "group_patch" };
    let place = format!("/v1/topics/{topic}/groups/{group}");
    let view = put_settings(&shared, (asker, what), (topic, group), settings, start).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let reply = located(json(status, &view), &place);
    Ok(etag::tagged(reply, etag::of(&view)))
}

async fn put_settings(
    shared: &Shared,
    (asker, what): (Asker, &'static str),
    (topic, group): (TopicName, GroupName),
    settings: GroupSettings,
    start: Start,
) -> Result<GroupView, Problem> {
    let consumers = shared.broker.consumers().clone();
    let details = vec![("group", group.to_string()), ("settings", told(&settings))];
    let of = topic.clone();
    let work = blocking(shared, move || consumers.put(&topic, &group, settings, start));
    let put = audit::taken_down(shared, asker, (what, Some(&of)), details, work).await?;
    Ok(view(put.topic(), &put.group(), None))
}

/// The settings for the record; no secret is in it.
pub(crate) fn told(settings: &GroupSettings) -> String {
    let GroupSettings { ordered, paused, lease, .. } = settings;
    let attempts = settings.attempts();
    let push = settings.push.as_ref().map_or("none", |push| &push.url);
    format!("ordered={ordered} paused={paused} lease={lease} max_attempts={attempts} push={push}")
}

pub(crate) fn changed(
    shared: &Shared,
    mut settings: GroupSettings,
    change: GroupChange<'_>,
) -> Result<GroupSettings, Problem> {
    if let Some(ordered) = change.ordered {
        settings.ordered = ordered;
    }
    if let Some(retry) = change.retry {
        settings.retry = retry_policy(retry)?;
    }
    if let Some(attempts) = change.max_attempts {
        settings.attempts_max = Some(max_attempts(attempts)?);
    }
    if let Some(lease) = change.lease {
        settings.lease = time::lease(&lease)?;
    }
    if let Some(paused) = change.paused {
        if paused {
            shared.consuming().check_setting("paused")?;
        }
        settings.paused = paused;
    }
    match change.push {
        None => {}
        Some(None) => settings.push = None,
        Some(Some(change)) => {
            shared.consuming().check_setting("push")?;
            settings.push = Some(changed_push(shared, settings.push, &change)?);
        }
    }
    Ok(settings)
}

/// A number of attempts that may be asked for.
pub(crate) fn max_attempts(number: u64) -> Result<u16, Problem> {
    let within = u16::try_from(number).ok().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
    within.ok_or_else(|| {
        let detail = format!("max_attempts is a whole number from 1 to {ATTEMPTS_MAX}");
        Problem::new(Code::InvalidField, detail)
    })
}

fn retry_policy(written: RetryChange<'_>) -> Result<RetryPolicy, Problem> {
    let (first, max, factor, jitter) = match written {
        RetryChange::Ladder(rungs) => {
            let rung = |text: std::borrow::Cow<'_, str>| {
                time::span("a rung of retry.ladder", &text, (Span::ZERO, DELAY_MAX))
            };
            let rungs: Vec<Span> = rungs.into_iter().map(rung).collect::<Result<_, _>>()?;
            return Ok(RetryPolicy::Ladder(rungs.into()));
        }
        RetryChange::Exponential { first, max, factor_percent, jitter_percent } => {
            (first, max, factor_percent, jitter_percent)
        }
    };
    let first = time::span("retry.exponential.first", &first, (Span::from_millis(1), DELAY_MAX))?;
    let max = match max {
        Some(text) => time::span("retry.exponential.max", &text, (first, DELAY_MAX))?,
        None => GROWN_WAIT_MAX.max(first),
    };
    let factor_percent = factor.unwrap_or(FACTOR_PERCENT);
    if !(100..=FACTOR_PERCENT_MAX).contains(&factor_percent) {
        let detail = "retry.exponential.factor is a number from 1 to 100";
        return Err(Problem::new(Code::InvalidField, detail));
    }
    let jitter = jitter.map(|percent| u8::try_from(percent).ok().filter(|percent| *percent <= 100));
    let jitter_percent = jitter.unwrap_or(Some(JITTER_PERCENT)).ok_or_else(|| {
        Problem::new(Code::InvalidField, "retry.exponential.jitter is a number from 0 to 1")
    })?;
    Ok(RetryPolicy::Exponential(Exponential { first, max, factor_percent, jitter_percent }))
}

fn changed_push(
    shared: &Shared,
    old: Option<Push>,
    change: &PushChange<'_>,
) -> Result<Push, Problem> {
    let mut push = old.unwrap_or_else(|| Push {
        url: "".into(),
        secret: None,
        concurrency: push::CONCURRENCY_DEFAULT,
        timeout: push::TIMEOUT_DEFAULT,
    });
    if let Some(url) = &change.url {
        push.url = url.as_ref().into();
    }
    match change.secret.as_deref() {
        None => {}
        Some("") => push.secret = None,
        Some(secret) => push.secret = Some(secret.into()),
    }
    if let Some(concurrency) = change.concurrency {
        // More than anybody may ask for is refused below.
        push.concurrency = u16::try_from(concurrency).unwrap_or(u16::MAX);
    }
    if let Some(timeout) = &change.timeout {
        push.timeout = time::span("push.timeout", timeout, (Span::ZERO, DELAY_MAX))?;
    }
    push::check(&push, &shared.live().config.push.allow).map_err(|refused| {
        Problem::new(Code::InvalidField, format!("{}: {}", refused.field, refused.reason))
    })?;
    Ok(push)
}

/// `POST /v1/topics/{topic}/groups/{group}/pause`
pub(crate) async fn pause(call: Call) -> Result<Reply, Problem> {
    set_paused(call, true).await
}

/// `POST /v1/topics/{topic}/groups/{group}/resume`
pub(crate) async fn resume(call: Call) -> Result<Reply, Problem> {
    set_paused(call, false).await
}

async fn set_paused(call: Call, paused: bool) -> Result<Reply, Problem> {
    let place = call.group_named()?;
    Parameters::read(call.query())?.end()?;
    let conditions = Conditions::of(&call.parts.headers)?;
    let _one_at_a_time = call.shared.changes.lock().await;
    let consumer = found(&call)?;
    conditions.check(Some(&tag(&consumer)))?;
    let settings = GroupSettings { paused, ..consumer.group().settings.clone() };
    let what = (call.asker(), if paused { "group_pause" } else { "group_resume" });
    let view = put_settings(&call.shared, what, place, settings, Start::default()).await?;
    Ok(etag::tagged(json(StatusCode::OK, &view), etag::of(&view)))
}

/// `DELETE /v1/topics/{topic}/groups/{group}`
pub(crate) async fn delete(call: Call) -> Result<Reply, Problem> {
    let (topic, group) = call.group_named()?;
    Parameters::read(call.query())?.end()?;
    let conditions = Conditions::of(&call.parts.headers)?;
    let _one_at_a_time = call.shared.changes.lock().await;
    let consumers = call.shared.broker.consumers().clone();
    let consumer = consumers.find(&topic, &group).map_err(|_missing| Code::GroupNotFound)?;
    conditions.check(Some(&tag(&consumer)))?;
    let (of, details) = (topic.clone(), vec![("group", group.to_string())]);
    let work = async {
        let deleted = blocking(&call.shared, move || consumers.delete(&topic, &group)).await?;
        if deleted { Ok(()) } else { Err(Code::GroupNotFound.into()) }
    };
    let what = ("group_delete", Some(&of));
    audit::taken_down(&call.shared, call.asker(), what, details, work).await?;
    Ok(json(StatusCode::OK, &Outcome { result: "deleted" }))
}

/// `POST /v1/topics/{topic}/groups/{group}/reset`
pub(crate) async fn reset(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let asker = call.asker();
    let (shared, held) = take_json(call, GROUP_BYTES_MAX).await?;
    let text = String::from_utf8_lossy(&held.bytes).into_owned();
    let to = match Reset::read(&held.bytes, OFFSETS)? {
        Reset::Earliest => ResetTo::Earliest,
        Reset::Latest => ResetTo::Latest,
        Reset::Time(text) => ResetTo::Time(time::edge(&text)?),
        Reset::Offsets(offsets) => ResetTo::Offsets(existing(&shared, &consumer, offsets)?),
    };
    drop(held);
    let topic = consumer.topic().clone();
    let details = vec![("group", consumer.group().name.to_string()), ("to", text)];
    let work = blocking(&shared, move || consumer.reset(&to));
    audit::taken_down(&shared, asker, ("group_reset", Some(&topic)), details, work).await?;
    Ok(json(StatusCode::OK, &Outcome { result: "reset" }))
}

/// Offsets of partitions that the topic has.
fn existing(
    shared: &Shared,
    consumer: &Consumer,
    offsets: Vec<(u16, u64)>,
) -> Result<Vec<(Partition, u64)>, Problem> {
    let topic = shared.broker.topics().by_id(consumer.group().topic).ok_or(Code::TopicNotFound)?;
    let place = |(number, offset): (u16, u64)| {
        let known = Partition::new(number).filter(|_| number < topic.settings.partitions);
        known.map(|partition| (partition, offset)).ok_or_else(|| {
            let detail =
                format!("the topic has {} partitions, counted from 0", topic.settings.partitions);
            Problem::new(Code::NoSuchPartition, detail)
        })
    };
    offsets.into_iter().map(place).collect()
}

/// `GET /v1/topics/{topic}/groups/{group}/offsets`
pub(crate) async fn offsets(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    Parameters::read(call.query())?.end()?;
    let standing = blocking(&call.shared, move || consumer.standing()).await?;
    let offset = |one: &Standing| (one.source.partition.get(), one.cursor);
    let offsets = standing.partitions.iter().map(offset).collect();
    large_json(&call.shared, &OffsetsView(offsets))
}

/// `PUT /v1/topics/{topic}/groups/{group}/offsets`
pub(crate) async fn commit(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let (shared, held) = take_json(call, GROUP_BYTES_MAX).await?;
    let offsets = existing(&shared, &consumer, read_offsets(&held.bytes, OFFSETS)?)?;
    drop(held);
    blocking(&shared, move || consumer.commit(&offsets)).await?;
    Ok(json(StatusCode::OK, &Outcome { result: "committed" }))
}
