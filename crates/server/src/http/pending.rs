//! What is pending: lists of messages and of series.

use punctual_api::answer::Page;
use punctual_api::pending::{PendingFilter, SeriesPage};
use punctual_api::request::Parameters;
use punctual_api::{Code, Problem};
use punctual_broker::series::describe;
use punctual_broker::{Filter, Report};
use punctual_model::State;

use crate::http::call::Call;
use crate::http::messages::known;
use crate::http::page::{PAGE_BYTES_MAX, cursor_of, fitting, take_cursor, take_limit};
use crate::http::problem::of_store;
use crate::http::reply::{Reply, large_json};
use crate::http::time;
use crate::shown::{report_view, series_view};

/// `GET /v1/topics/{topic}/scheduled`
pub(crate) async fn scheduled(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let filter = filter(PendingFilter::take(&mut parameters)?)?;
    let limit = take_limit(&mut parameters)?;
    let after = take_cursor(&mut parameters)?;
    parameters.end()?;
    let topic = known(&call.shared, &name)?;
    let _turn = call.shared.listing().await;
    let page = call.shared.broker.scheduled(&topic, &filter, after, limit).await;
    let page = page.map_err(of_store)?;
    let shown = fitting(page.entries.iter().map(|entry| &entry.message), PAGE_BYTES_MAX);
    let next = match page.entries.get(..shown).and_then(<[_]>::last) {
        Some(last) if shown < page.entries.len() => Some(last.key),
        _ => page.next,
    };
    let entries = page.entries.into_iter().take(shown);
    let reports: Vec<Report> =
        entries.map(|entry| Report::of_pending(topic.clone(), entry)).collect();
    let messages = reports.iter().map(report_view).collect();
    large_json(&call.shared, &Page { messages, next: next.map(cursor_of) })
}

/// Which messages are meant.
pub(crate) fn filter(written: PendingFilter<'_>) -> Result<Filter, Problem> {
    let state = written.state.map(|word| match &*word {
        "scheduled" => Ok(State::Scheduled),
        "paused" => Ok(State::Paused),
        _ => Err(Problem::new(Code::InvalidState, "state is scheduled or paused")),
    });
    Ok(Filter {
        from: written.from.as_deref().map(time::edge).transpose()?,
        to: written.to.as_deref().map(time::edge).transpose()?,
        key: written.key,
        key_prefix: written.key_prefix,
        state: state.transpose()?,
        sender: written.app.as_deref().map(Into::into),
    })
}

/// `GET /v1/topics/{topic}/series`
pub(crate) async fn series(call: Call) -> Result<Reply, Problem> {
    let name = call.topic_named()?;
    let mut parameters = Parameters::read(call.query())?;
    let limit = take_limit(&mut parameters)?;
    let after = take_cursor(&mut parameters)?;
    parameters.end()?;
    let topic = known(&call.shared, &name)?;
    let _turn = call.shared.listing().await;
    let page = call.shared.broker.series().list(topic.id, after, limit).await.map_err(of_store)?;
    let read: Vec<_> = page
        .entries
        .iter()
        .filter_map(|entry| describe(entry).map(|series| (entry, series)))
        .collect();
    let series = read.iter().map(|(entry, series)| series_view(&name, entry, series)).collect();
    large_json(&call.shared, &SeriesPage { series, next: page.next.map(cursor_of) })
}
