//! The settings of a topic: from what was written to what holds, and back.

use punctual_api::topic::{
    BacklogChange, BacklogView, Bound, Keep, OverflowWord, TopicChange, TopicView,
};
use punctual_api::{Code, Problem};
use punctual_model::limits::{JITTER_MAX, PARTITIONS_MAX, RATE_CAP_MAX};
use punctual_model::ports::Topic;
use punctual_model::time::SpanError;
use punctual_model::topic::{Backlog, Overflow, TopicKind};
use punctual_model::{Span, TopicSettings};

use crate::http::asked::catch_up;
use crate::http::levels::{levels, texts};
use crate::http::time;
use crate::http::transactions::{policy, policy_view};
use crate::shown::catch_up_view;

/// The settings with what is to change; no delay is longer than `delay_max`.
pub(crate) fn changed(
    mut settings: TopicSettings,
    change: TopicChange<'_>,
    delay_max: Span,
) -> Result<TopicSettings, Problem> {
    if let Some(partitions) = change.partitions {
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            let detail = format!("partitions must be a whole number from 1 to {PARTITIONS_MAX}");
            return Err(Problem::new(Code::InvalidField, detail));
        }
        settings.partitions = partitions;
    }
    match &change.retention {
        None => {}
        Some(Keep::Forever) => settings.retention = None,
        Some(Keep::UpTo(text)) => settings.retention = Some(retention(text)?),
    }
    match change.retention_bytes {
        None => {}
        Some(Keep::Forever) => settings.retention_bytes = None,
        Some(Keep::UpTo(bytes)) => settings.retention_bytes = Some(bytes),
    }
    match &change.default_ttl {
        None => {}
        Some(Keep::Forever) => settings.default_ttl = None,
        Some(Keep::UpTo(text)) => settings.default_ttl = Some(time::ttl("default_ttl", text)?),
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
    firing(&mut settings, change, delay_max)?;
    Ok(settings)
}

/// Changes the settings that say when messages fire.
fn firing(
    settings: &mut TopicSettings,
    change: TopicChange<'_>,
    delay_max: Span,
) -> Result<(), Problem> {
    if let Some(max_delay) = change.max_delay {
        let bounds = (Span::from_millis(1), delay_max);
        settings.max_delay = set(max_delay, |text| time::span("max_delay", &text, bounds))?;
    }
    if let Some(rate_cap) = change.rate_cap {
        settings.rate_cap = set(rate_cap, |rate| {
            let rate = u32::try_from(rate).ok().filter(|rate| (1..=RATE_CAP_MAX).contains(rate));
            let detail = format!("rate_cap is a whole number from 1 to {RATE_CAP_MAX}");
            rate.ok_or_else(|| Problem::new(Code::InvalidField, detail))
        })?;
    }
    if let Some(jitter) = change.jitter {
        let bounds = (Span::ZERO, JITTER_MAX);
        let jitter = set(jitter, |text| time::span("jitter", &text, bounds))?;
        settings.jitter = jitter.filter(|jitter| *jitter > Span::ZERO);
    }
    if let Some(policy) = change.catch_up {
        settings.catch_up = catch_up(&policy)?;
    }
    if let Some(own) = change.levels {
        settings.levels = set(own, |written| levels(&written, delay_max))?;
    }
    if let Some(check) = change.check {
        settings.check = set(check, |written| policy(&written))?.flatten();
    }
    if let Some(paused) = change.paused {
        settings.paused = paused;
    }
    Ok(())
}

fn set<T, U>(
    bound: Bound<T>,
    read: impl FnOnce(T) -> Result<U, Problem>,
) -> Result<Option<U>, Problem> {
    match bound {
        Bound::Absent => Ok(None),
        Bound::Set(written) => read(written).map(Some),
    }
}

fn retention(text: &str) -> Result<Span, Problem> {
    text.parse().map_err(|error: SpanError| {
        let detail = format!("retention: {error}; or \"forever\"");
        Problem::new(Code::InvalidField, detail)
    })
}

/// A topic as it is shown.
pub(crate) fn view(topic: &Topic, pending: Option<u64>) -> TopicView {
    let settings = &topic.settings;
    let retention = settings.retention;
    let Backlog { messages, bytes } = settings.max_backlog;
    let is_bounded = messages.is_some() || bytes.is_some();
    let text = |span: Option<Span>| span.map(|span| span.to_string());
    TopicView {
        name: topic.name.to_string(),
        kind: match topic.kind {
            TopicKind::Dead => "dead",
            TopicKind::Plain | TopicKind::Retry => "plain",
        },
        partitions: settings.partitions,
        retention: retention.map_or_else(|| "forever".to_owned(), |span| span.to_string()),
        retention_bytes: settings.retention_bytes,
        default_ttl: text(settings.default_ttl),
        max_backlog: is_bounded.then_some(BacklogView { messages, bytes }),
        overflow: match settings.overflow {
            Overflow::Refuse => OverflowWord::Refuse,
            Overflow::DropOldest => OverflowWord::DropOldest,
            Overflow::DeadLetterNewest => OverflowWord::DeadLetterNewest,
        },
        max_delay: text(settings.max_delay),
        rate_cap: settings.rate_cap,
        jitter: text(settings.jitter),
        catch_up: catch_up_view(settings.catch_up),
        levels: settings.levels.as_ref().map(texts),
        check: settings.check.map(|policy| policy_view(policy, None)),
        paused: settings.paused,
        pending,
        backlog: None,
        totals: None,
    }
}
