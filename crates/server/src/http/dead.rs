//! Dead letters: list them, send them again, throw them away; and moving a backlog elsewhere.

use http::StatusCode;
use punctual_api::answer::Page;
use punctual_api::dead::{
    self, DayView, DeadView, Drain, JobResultView, JobView, Matched, Purge, Purged, Redrive,
    Started, SummaryView,
};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::group::{
    self, Consumer, DeadDay, DeadFilter, DeadLetter, DeadQuery, JobKind, JobReport, JobState,
    Reason,
};
use punctual_model::limits::{BATCH_BYTES_MAX, JSON_DEPTH_MAX};
use punctual_model::{Header, TopicName};

use crate::access::{Permission, Target};
use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::groups::{blocking, found};
use crate::http::messages::READ_LIMITS;
use crate::http::page::{PAGE_BYTES_MAX, fitting, take_limit};
use crate::http::problem::{of_broken_off, of_job};
use crate::http::reply::{Reply, json, large_json};
use crate::http::time;
use crate::shown::content;

/// Largest request about dead letters; an edit may hold a message.
const REQUEST_BYTES_MAX: usize = BATCH_BYTES_MAX;
/// Most messages that are sent again in a second.
const RATE_MAX: u64 = 1_000_000;

/// `GET …/groups/{group}/dead`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let mut parameters = Parameters::read(call.query())?;
    let filter = filter(dead::DeadFilter::take(&mut parameters)?)?;
    let limit = take_limit(&mut parameters)?;
    let after = take_cursor(&mut parameters)?;
    parameters.end()?;
    let shared = call.shared;
    let query = DeadQuery { filter, after, limit };
    let page = blocking(&shared, move || consumer.dead(&query)).await?;
    let shown = fitting(page.letters.iter().map(|letter| &letter.message), PAGE_BYTES_MAX);
    let next = match page.letters.get(shown) {
        Some(letter) => Some(letter.offset),
        None => page.next,
    };
    let messages = page.letters.iter().take(shown).map(view).collect();
    large_json(&shared, &Page { messages, next: next.map(|next| next.to_string()) })
}

/// `GET …/groups/{group}/dead/summary`
pub(crate) async fn summary(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    Parameters::read(call.query())?.end()?;
    let _turn = call.shared.listing().await;
    let summary = blocking(&call.shared, move || consumer.summarize_dead()).await?;
    let day = |day: &DeadDay| DayView {
        // Year, month and day of a time that begins a day.
        day: day.start.to_string().chars().take(10).collect(),
        reason: day.reason.map(Reason::word),
        count: day.count,
    };
    let days = summary.days.iter().map(day).collect();
    let view = SummaryView { total: summary.total, days, complete: summary.complete };
    Ok(json(StatusCode::OK, &view))
}

/// A cursor is a plain number.
fn take_cursor(parameters: &mut Parameters<'_>) -> Result<Option<u64>, Problem> {
    let cursor = parameters.take_number("cursor", 0, u64::MAX);
    cursor.map_err(|problem| match problem.code {
        Code::InvalidParameter => Code::InvalidCursor.into(),
        _ => problem,
    })
}

fn view(letter: &DeadLetter) -> DeadView<'_> {
    let history = &letter.history;
    DeadView {
        id: history.id.to_string(),
        topic: history.topic.as_str(),
        partition: history.partition.get(),
        offset: history.offset,
        content: content(&letter.message),
        due: history.due.to_string(),
        delivered_at: history.delivered_at.to_string(),
        reason: history.reason.map(Reason::word),
        attempts: history.failed,
        first_error: history.first_error.as_deref(),
        last_error: history.last_error.as_deref(),
        died_at: letter.died_at.to_string(),
    }
}

fn filter(written: dead::DeadFilter<'_>) -> Result<DeadFilter, Problem> {
    let edge = |text: Option<_>| text.map(|text: std::borrow::Cow<'_, str>| time::edge(&text));
    let (mut from, mut to) = (edge(written.from).transpose()?, edge(written.to).transpose()?);
    if let Some(text) = written.day {
        let (start, end) = time::day(&text)?;
        (from, to) = (Some(start), Some(end));
    }
    let reason = written.reason.map(|word| {
        let words = "reason is rejected, expired, overflow or attempts_exhausted";
        Reason::from_word(&word).ok_or_else(|| Problem::new(Code::InvalidField, words))
    });
    let id = written.id.map(|text| {
        let refused = |_other| Problem::new(Code::InvalidField, "id is not an id of ours");
        text.parse().map_err(refused)
    });
    Ok(DeadFilter { reason: reason.transpose()?, from, to, key: written.key, id: id.transpose()? })
}

/// `POST …/groups/{group}/dead/redrive`
pub(crate) async fn redrive(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let text = told(&held.bytes);
    let asked = Redrive::read(&held.bytes, READ_LIMITS)?;
    let rate = asked.rate.map(|rate| {
        let within = u32::try_from(rate).ok().filter(|_| (1..=RATE_MAX).contains(&rate));
        let detail = format!("rate is a whole number from 1 to {RATE_MAX}");
        within.ok_or_else(|| Problem::new(Code::InvalidField, detail))
    });
    let redrive = group::Redrive {
        filter: filter(asked.filter)?,
        rate: rate.transpose()?,
        at: asked.at.map(|text| time::time(&text)).transpose()?,
        edit: asked.edit.map(edit),
    };
    let dry_run = asked.dry_run;
    drop(held);
    if dry_run {
        let matched = blocking(&shared, move || consumer.count_dead(&redrive.filter)).await?;
        return Ok(json(StatusCode::OK, &Matched { matched }));
    }
    let (topic, details) = (consumer.topic().clone(), record(&consumer, text));
    let work = async {
        let started = shared.tasks.blocking(move || consumer.redrive(redrive)).await;
        started.map_err(of_broken_off)?.map_err(of_job)
    };
    let what = ("dead_redrive", Some(&topic));
    let job = audit::taken_down(&shared, asker, what, details, work).await?;
    Ok(json(StatusCode::ACCEPTED, &Started { job: job.to_string() }))
}

/// A request for the record, without what may be content of messages.
fn told(json: &[u8]) -> String {
    match serde_json::from_slice::<serde_json::Value>(json) {
        Ok(mut value) => {
            if let Some(edit) = value.get_mut("edit") {
                *edit = serde_json::Value::Bool(true);
            }
            value.to_string()
        }
        Err(_not_json) => String::new(),
    }
}

fn record(consumer: &Consumer, request: String) -> Vec<(&'static str, String)> {
    vec![("group", consumer.group().name.to_string()), ("request", request)]
}

fn edit(written: dead::Edit) -> group::Edit {
    let header = |(name, value)| Header { name, value };
    group::Edit {
        body: written.body,
        headers: written.headers.map(|headers| headers.into_iter().map(header).collect()),
        key: written.key.map(Some),
    }
}

/// `POST …/groups/{group}/dead/purge`
pub(crate) async fn purge(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let text = told(&held.bytes);
    let asked = Purge::read(&held.bytes, JSON_DEPTH_MAX)?;
    let (filter, dry_run) = (filter(asked.filter)?, asked.dry_run);
    drop(held);
    if dry_run {
        let matched = blocking(&shared, move || consumer.count_dead(&filter)).await?;
        return Ok(json(StatusCode::OK, &Purged { matched, purged: 0 }));
    }
    let (topic, details) = (consumer.topic().clone(), record(&consumer, text));
    let work = blocking(&shared, move || consumer.purge(&filter));
    let what = ("dead_purge", Some(&topic));
    let purged = audit::taken_down(&shared, asker, what, details, work).await?;
    Ok(json(StatusCode::OK, &Purged { matched: purged, purged }))
}

/// `POST …/groups/{group}/drain`
pub(crate) async fn drain(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let text = told(&held.bytes);
    let asked = Drain::read(&held.bytes, JSON_DEPTH_MAX)?;
    let to = TopicName::new(&asked.to)
        .map_err(|error| Problem::new(Code::InvalidTopicName, error.to_string()))?;
    asker.caller().require(Permission::Send, Target::Topic(&to))?;
    let drain = group::Drain { to, max: asked.max };
    drop(held);
    let (topic, details) = (consumer.topic().clone(), record(&consumer, text));
    let work = async {
        let started = shared.tasks.blocking(move || consumer.drain(&drain)).await;
        started.map_err(of_broken_off)?.map_err(of_job)
    };
    let what = ("group_drain", Some(&topic));
    let job = audit::taken_down(&shared, asker, what, details, work).await?;
    Ok(json(StatusCode::ACCEPTED, &Started { job: job.to_string() }))
}

/// `GET …/groups/{group}/dead/redrive/{job}` and `GET …/groups/{group}/drain/{job}`
pub(crate) async fn job(call: Call, kind: JobKind) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let after = take_cursor(&mut parameters)?.unwrap_or(0);
    parameters.end()?;
    let after = usize::try_from(after).map_err(|_large| Code::InvalidCursor)?;
    let report = consumer.job(call.job()?, after, limit).filter(|report| report.kind == kind);
    large_json(&call.shared, &job_view(&report.ok_or(Code::JobNotFound)?))
}

fn job_view(report: &JobReport) -> JobView {
    let error = match &report.state {
        JobState::Failed(error) => Some(error.to_string()),
        JobState::Running | JobState::Done => None,
    };
    let result = |moved: &group::Moved| JobResultView {
        id: moved.id.to_string(),
        result: moved.result.word(),
        due: moved.due.map(|due| due.to_string()),
    };
    JobView {
        job: report.id.to_string(),
        kind: report.kind.word(),
        state: report.state.word(),
        started: report.started.to_string(),
        matched: report.matched,
        done: report.done,
        error,
        results: report.results.iter().map(result).collect(),
        next: report.next.map(|next| next.to_string()),
        results_cut: report.cut,
    }
}
