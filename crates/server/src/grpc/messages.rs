//! Messages: send, look at, change, deliver now, cancel, and what is pending or was delivered.

use std::sync::Arc;

use punctual_api::{Code, Problem};
use punctual_broker::series::describe;
use punctual_broker::{Change, Filter, Report, When};
use punctual_model::limits::{PAGE_MESSAGES_DEFAULT, PAGE_MESSAGES_MAX};
use punctual_model::ports::{CancelOutcome, LogPosition};
use punctual_model::{Action, Header, Key, MessageId, State};
use punctual_proto::v1;

use crate::access::{self, Target};
use crate::grpc::call::Asked;
use crate::grpc::receive::PAGE_BYTES_MAX;
use crate::grpc::send::accept;
use crate::grpc::sent::{Accepted, Batch, Counted};
use crate::grpc::shown::{logged, report, series};
use crate::grpc::time;
use crate::http::messages::{known, partition};
use crate::http::page::{cursor_of, fitting, read_cursor};
use crate::http::problem::{of_change, of_store};
use crate::http::topics::{of_log, with_topics};

pub(crate) async fn send(asked: Asked, batch: Batch) -> Result<Accepted, Problem> {
    accept(asked, &batch.topic, batch.requests).await
}

/// The message of that name: by the topic and an id of ours or the sender's own, or by ours alone.
/// One that the caller has no right on is like one that is not there.
async fn named(asked: &Asked, name: Option<v1::MessageName>) -> Result<MessageId, Problem> {
    asked.require(Target::Anything)?;
    let name = name.ok_or_else(|| Problem::new(Code::InvalidField, "say which message"))?;
    let shared = &asked.shared;
    let Some(topic) = name.topic else {
        let id = name.id.parse().map_err(|_no_id| Code::NotFound)?;
        let permission = asked.method.operation().rule().permission;
        return Ok(access::own_message(asked.caller(), &shared.broker, permission, id));
    };
    let topic = asked.topic(&topic)?;
    known(shared, &topic)?;
    let id = shared.broker.resolve(&topic, &name.id).await.map_err(of_store)?;
    id.ok_or_else(|| Code::NotFound.into())
}

pub(crate) async fn get(asked: Asked, request: v1::GetRequest) -> Result<v1::Message, Problem> {
    let id = named(&asked, request.name).await?;
    let broker = &asked.shared.broker;
    let found = broker.get(id).await.map_err(of_store)?.ok_or(Code::NotFound)?;
    if found.action == Action::Repeat {
        let entry = broker.series().get(found.id).await.map_err(of_store)?;
        if let Some((entry, read)) =
            entry.and_then(|entry| describe(&entry).map(|one| (entry, one)))
        {
            return Ok(series(&found.topic.name, &entry, &read));
        }
    }
    Ok(report(&found))
}

pub(crate) async fn cancel(
    asked: Asked,
    request: v1::CancelRequest,
) -> Result<v1::CancelResponse, Problem> {
    let id = named(&asked, request.name).await?;
    let outcomes = asked.shared.broker.cancel(vec![id]).await.map_err(of_store)?;
    match outcomes.first() {
        Some(CancelOutcome::Cancelled) => Ok(v1::CancelResponse {}),
        Some(CancelOutcome::AlreadyDelivered) => Err(Code::AlreadyDelivered.into()),
        Some(CancelOutcome::AlreadyCancelled) => Err(Code::AlreadyCancelled.into()),
        Some(CancelOutcome::Undecided) => Err(Code::TransactionUndecided.into()),
        Some(CancelOutcome::NotFound) | None => Err(Code::NotFound.into()),
    }
}

pub(crate) async fn change(
    asked: Asked,
    Counted(request): Counted<v1::ChangeRequest>,
) -> Result<v1::Message, Problem> {
    let id = named(&asked, request.name).await?;
    let when = match &request.when {
        None => None,
        Some(v1::change_request::When::Delay(delay)) => Some(When::After(time::delay(delay)?)),
        Some(v1::change_request::When::DeliverAt(at)) => Some(When::At(time::time(at)?)),
        Some(v1::change_request::When::DelayLevel(level)) => Some(When::Level(u64::from(*level))),
    };
    let header = |header: v1::Header| Header { name: header.name, value: header.value };
    let change = Change {
        when,
        paused: request.paused,
        body: request.body,
        headers: request.headers.map(|these| these.headers.into_iter().map(header).collect()),
        ttl: request.ttl.as_ref().map(time::ttl).transpose()?,
        version: request.version,
    };
    let nothing = Change { version: change.version, ..Change::default() };
    if change == nothing {
        return Err(Code::EmptyChange.into());
    }
    let changed = asked.shared.broker.change(id, change).await.map_err(of_change)?;
    Ok(report(&changed))
}

pub(crate) async fn deliver(
    asked: Asked,
    request: v1::DeliverRequest,
) -> Result<v1::Message, Problem> {
    let id = named(&asked, request.name).await?;
    let delivered = asked.shared.broker.deliver_now(id).await.map_err(of_change)?;
    Ok(report(&delivered))
}

/// The size of a page; zero means that nothing was said.
pub(crate) fn limit(written: u32) -> Result<usize, Problem> {
    match usize::try_from(written).unwrap_or(usize::MAX) {
        0 => Ok(PAGE_MESSAGES_DEFAULT),
        limit if limit <= PAGE_MESSAGES_MAX => Ok(limit),
        _ => {
            let detail = format!("limit is a whole number from 1 to {PAGE_MESSAGES_MAX}");
            Err(Problem::new(Code::InvalidField, detail))
        }
    }
}

/// Where the page before ended; empty means at the start.
pub(crate) fn cursor(written: &str) -> Result<Option<Key>, Problem> {
    if written.is_empty() {
        return Ok(None);
    }
    read_cursor(written).map(Some).ok_or_else(|| Code::InvalidCursor.into())
}

pub(crate) async fn list(
    asked: Asked,
    request: v1::ListRequest,
) -> Result<v1::ListResponse, Problem> {
    let name = asked.topic(&request.topic)?;
    let state = match request.state() {
        v1::State::Unspecified if request.state == 0 => None,
        v1::State::Scheduled => Some(State::Scheduled),
        v1::State::Paused => Some(State::Paused),
        _ => return Err(Problem::new(Code::InvalidState, "state is scheduled or paused")),
    };
    let filter = Filter {
        from: request.due_from.as_ref().map(time::edge).transpose()?,
        to: request.due_to.as_ref().map(time::edge).transpose()?,
        key: request.key,
        key_prefix: request.key_prefix,
        state,
        sender: request.app.map(Into::into),
    };
    let (limit, after) = (limit(request.limit)?, cursor(&request.cursor)?);
    let topic = known(&asked.shared, &name)?;
    let _turn = asked.shared.listing().await;
    let page = asked.shared.broker.scheduled(&topic, &filter, after, limit).await;
    let page = page.map_err(of_store)?;
    let fits = fitting(page.entries.iter().map(|entry| &entry.message), PAGE_BYTES_MAX);
    let next = match page.entries.get(..fits).and_then(<[_]>::last) {
        Some(last) if fits < page.entries.len() => Some(last.key),
        _ => page.next,
    };
    let entries = page.entries.into_iter().take(fits);
    let messages =
        entries.map(|entry| report(&Report::of_pending(Arc::clone(&topic), entry))).collect();
    Ok(v1::ListResponse { messages, next: next.map(cursor_of).unwrap_or_default() })
}

pub(crate) async fn list_series(
    asked: Asked,
    request: v1::ListSeriesRequest,
) -> Result<v1::ListResponse, Problem> {
    let name = asked.topic(&request.topic)?;
    let (limit, after) = (limit(request.limit)?, cursor(&request.cursor)?);
    let topic = known(&asked.shared, &name)?;
    let _turn = asked.shared.listing().await;
    let page = asked.shared.broker.series().list(topic.id, after, limit).await;
    let page = page.map_err(of_store)?;
    let shown = |entry| describe(entry).map(|read| series(&name, entry, &read));
    let messages = page.entries.iter().filter_map(shown).collect();
    Ok(v1::ListResponse { messages, next: page.next.map(cursor_of).unwrap_or_default() })
}

pub(crate) async fn read(
    asked: Asked,
    request: v1::ReadRequest,
) -> Result<v1::ReadResponse, Problem> {
    let name = asked.topic(&request.topic)?;
    let limit = limit(request.limit)?;
    let topic = known(&asked.shared, &name)?;
    let number = u16::try_from(request.partition).map_err(|_large| Code::NoSuchPartition)?;
    if number >= topic.settings.partitions {
        return Err(Code::NoSuchPartition.into());
    }
    let offset = request.offset;
    let from = LogPosition { topic: topic.id, partition: partition(number)?, offset };
    let _turn = asked.shared.listing().await;
    let (delivered, start) = with_topics(&asked.shared, move |topics| {
        let delivered = topics.read(from, limit).map_err(of_log)?;
        let bounds = topics.bounds(from.topic, from.partition).map_err(of_log)?;
        Ok((delivered, bounds.start))
    })
    .await?;
    let fits = fitting(delivered.iter().map(|delivered| &delivered.message), PAGE_BYTES_MAX);
    let last = delivered.get(..fits).and_then(<[_]>::last);
    let next = last.map_or(offset.max(start), |last| last.offset.saturating_add(1));
    let messages = delivered.iter().take(fits).map(|one| logged(&name, number, one)).collect();
    Ok(v1::ReadResponse { messages, next })
}

pub(crate) async fn forecast(
    asked: Asked,
    request: v1::ForecastRequest,
) -> Result<v1::ForecastResponse, Problem> {
    let name = asked.topic(&request.topic)?;
    let topic = known(&asked.shared, &name)?;
    let outlook = asked.shared.broker.forecast(topic.id, None).await.map_err(of_store)?;
    let within = |(reach, count)| v1::DueWithin { within: Some(time::duration(reach)), count };
    Ok(v1::ForecastResponse {
        total: outlook.total,
        paused: outlook.paused,
        due: outlook.due.into_iter().map(within).collect(),
        later: outlook.later,
        prepared: outlook.prepared,
    })
}
