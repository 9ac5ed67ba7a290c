//! Changes of many pending messages at once: start one, look at it, stop it.

use std::time::Duration;

use http::StatusCode;
use punctual_api::pending::{Bulk as Written, BulkJobList, BulkJobView, BulkView, Move};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::{Bulk, BulkId, BulkReport, BulkState, BulkWork, Shift};
use punctual_model::limits::{DELAY_CEILING, JSON_DEPTH_MAX, RECEIVE_WAIT_MAX};
use punctual_model::{Span, TopicName};
use tokio::time::timeout;

use crate::http::asked::when;
use crate::http::audit;
use crate::http::body::take_json;
use crate::http::call::Call;
use crate::http::messages::known;
use crate::http::page::take_limit;
use crate::http::pending::filter;
use crate::http::problem::of_bulk;
use crate::http::reply::{Reply, json, large_json};
use crate::http::shared::Shared;
use crate::http::time;

/// Largest request; a key may be long.
const REQUEST_BYTES_MAX: usize = 256 << 10;
/// How long the answer waits for the end of a job, if nothing is said.
const WAIT_DEFAULT: Span = Span::from_secs(2);

/// What the address asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Cancel,
    Reschedule,
    Deliver,
    Pause,
    Resume,
}

impl Verb {
    /// What was done with the messages, in a word.
    const fn done(self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Reschedule => "rescheduled",
            Self::Deliver => "delivered",
            Self::Pause => "paused",
            Self::Resume => "resumed",
        }
    }

    fn read(self, json: &[u8]) -> Result<(Written<'_>, BulkWork), Problem> {
        let plain = |work| Ok((Written::read(json, JSON_DEPTH_MAX)?, work));
        match self {
            Self::Cancel => plain(BulkWork::Cancel),
            Self::Deliver => plain(BulkWork::DeliverNow),
            Self::Pause => plain(BulkWork::Pause),
            Self::Resume => plain(BulkWork::Resume),
            Self::Reschedule => {
                let (written, to) = Written::read_reschedule(json, JSON_DEPTH_MAX)?;
                Ok((written, work(&to)?))
            }
        }
    }
}

fn work(to: &Move<'_>) -> Result<BulkWork, Problem> {
    let shift = |text: &str| {
        let span = time::span("shift", text, (Span::from_millis(1), DELAY_CEILING));
        span.map_err(|problem| Problem::new(Code::InvalidShift, problem.detail))
    };
    Ok(match to {
        Move::To(written) => BulkWork::Reschedule(when(written)?),
        Move::Later(text) => BulkWork::Shift(Shift::Later(shift(text)?)),
        Move::Earlier(text) => BulkWork::Shift(Shift::Earlier(shift(text)?)),
    })
}

/// `POST /v1/topics/{topic}/scheduled/{cancel, reschedule, deliver, pause, resume}`
pub(crate) async fn start(call: Call, verb: Verb) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let who = call.asker().who();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let (written, work) = verb.read(&held.bytes)?;
    let bounds = (Span::ZERO, RECEIVE_WAIT_MAX);
    let wait = written.wait.as_deref().map(|text| time::span("wait", text, bounds)).transpose()?;
    let (all, dry_run) = (written.all, written.dry_run);
    let bulk = Bulk { filter: filter(written.filter)?, all, dry_run, work, who };
    drop(held);
    known(&shared, &name)?;
    let id = shared.broker.bulk(&name, bulk).await.map_err(of_bulk)?;
    let report = ended(&shared, &name, id, wait.unwrap_or(WAIT_DEFAULT)).await?;
    let view = BulkView {
        matched: report.matched,
        done_word: verb.done(),
        done: report.done,
        failed: report.failed,
        job: id.to_string(),
        state: report.state.word(),
    };
    let running = report.state == BulkState::Running;
    Ok(json(if running { StatusCode::ACCEPTED } else { StatusCode::OK }, &view))
}

/// The job when it has ended, or as far as it is when nobody wants to wait any longer.
async fn ended(
    shared: &Shared,
    topic: &TopicName,
    id: BulkId,
    wait: Span,
) -> Result<BulkReport, Problem> {
    let wait = Duration::from_millis(wait.as_millis());
    let report = tokio::select! {
        ended = timeout(wait, shared.broker.bulk_ended(topic, id)) => ended.unwrap_or_default(),
        () = shared.tasks.stopped() => None,
    };
    let report = report.or_else(|| shared.broker.bulk_job(topic, id));
    report.ok_or_else(|| Code::JobNotFound.into())
}

/// `GET /v1/topics/{topic}/scheduled/jobs`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let cursor = parameters.take("cursor")?;
    let after: Option<BulkId> =
        cursor.map(|text| text.parse().map_err(|_no_job| Code::InvalidCursor)).transpose()?;
    parameters.end()?;
    known(&call.shared, &name)?;
    let mut jobs = call.shared.broker.bulk_jobs(&name);
    // Newer ones have come since, perhaps; they were not asked for.
    jobs.retain(|job| after.is_none_or(|after| job.id < after));
    let is_more = jobs.len() > limit;
    jobs.truncate(limit);
    let next = jobs.last().filter(|_| is_more).map(|job| job.id.to_string());
    large_json(&call.shared, &BulkJobList { jobs: jobs.iter().map(view).collect(), next })
}

/// `GET /v1/topics/{topic}/scheduled/jobs/{job}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    one(&call, |shared, name, id| shared.broker.bulk_job(name, id))
}

/// `DELETE /v1/topics/{topic}/scheduled/jobs/{job}`
pub(crate) async fn stop(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    // What is not there is not stopped, and leaves no record.
    let Ok(job) = call.job::<BulkId>() else { return get(call).await };
    if call.shared.broker.bulk_job(&name, job).is_none() {
        return get(call).await;
    }
    let details = vec![("job", job.to_string())];
    let work = async { one(&call, |shared, name, id| shared.broker.stop_bulk(name, id)) };
    let what = ("bulk_stop", Some(&name));
    audit::taken_down(&call.shared, call.asker(), what, details, work).await
}

fn one(
    call: &Call,
    ask: impl FnOnce(&Shared, &TopicName, BulkId) -> Option<BulkReport>,
) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    Parameters::read(call.query())?.end()?;
    known(&call.shared, &name)?;
    let report = ask(&call.shared, &name, call.job()?);
    Ok(json(StatusCode::OK, &view(&report.ok_or(Code::JobNotFound)?)))
}

fn view(report: &BulkReport) -> BulkJobView {
    let error = match &report.state {
        BulkState::Failed(error) => Some(error.to_string()),
        BulkState::Running | BulkState::Done | BulkState::Stopped => None,
    };
    BulkJobView {
        job: report.id.to_string(),
        kind: report.work.word(),
        dry_run: report.dry_run,
        state: report.state.word(),
        started: report.started.to_string(),
        matched: report.matched,
        done: report.done,
        failed: report.failed,
        error,
    }
}
