//! Transactions: prepare, decide, look at them, and ask producers what became of them.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_api::{Code, Problem, transaction};
use punctual_broker::transaction::{
    Check, HalfRequest, Preparation, TransactionQuery, TransactionState,
};
use punctual_model::limits::{BATCH_MESSAGES_MAX, RECEIVE_MESSAGES_MAX};
use punctual_model::{GroupName, MessageId};
use punctual_proto::v1;
use punctual_proto::v1::check_stream_request::Request;
use tokio::time::{Instant, timeout_at};

use crate::access::{self, Cost, Permission, Target};
use crate::grpc::answers::Out;
use crate::grpc::call::{Asked, group_name};
use crate::grpc::messages::{cursor, limit};
use crate::grpc::receive::{deadline, max};
use crate::grpc::send::shutting_down;
use crate::grpc::sent::half;
use crate::grpc::shown::{self, check, transaction_state};
use crate::grpc::time;
use crate::grpc::wire::{Ask, Field, Fields, Frame, Frames, framed, malformed, text};
use crate::http::audit;
use crate::http::page::cursor_of;
use crate::http::problem::{of_decide, of_prepare, of_store};
use crate::http::receive::gone;
use crate::http::transactions::{Verb, policy};
use crate::push;

/// Questions that a stream draws at once; each counts from then on.
const DRAWN_MAX: usize = 16;
/// For how long a stream asks other nodes; longer than any lives.
const STREAM_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// A transaction as it was asked for. It is read without the generated shapes, as a batch is.
#[derive(Debug)]
pub(crate) struct Prepare {
    producer_group: String,
    messages: Vec<HalfRequest>,
    check: Option<v1::CheckPolicy>,
}

impl Ask for Prepare {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        let mut prepare = Self { producer_group: String::new(), messages: Vec::new(), check: None };
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(group)) => prepare.producer_group = text(group)?.to_owned(),
                (2, Field::Bytes(message)) => {
                    let index = prepare.messages.len();
                    if index >= BATCH_MESSAGES_MAX {
                        let detail = format!("a batch has at most {BATCH_MESSAGES_MAX} messages");
                        return Err(Problem::new(Code::BatchTooLarge, detail));
                    }
                    let read = half(bytes, message).map_err(|problem| problem.at(index))?;
                    prepare.messages.push(read);
                }
                (3, Field::Bytes(policy)) => {
                    let read = prost::Message::decode(policy);
                    let read = read.map_err(|error: prost::DecodeError| error.to_string());
                    prepare.check = Some(read.map_err(malformed)?);
                }
                _ => {}
            }
        }
        Ok(prepare)
    }
}

pub(crate) async fn prepare(
    asked: Asked,
    mut request: Prepare,
) -> Result<v1::Transaction, Problem> {
    let group = group_name(&request.producer_group)?;
    asked.require(Target::Anything)?;
    for (index, half) in request.messages.iter().enumerate() {
        let target = Target::Group(&half.topic, &group);
        asked.caller().require(Permission::Send, target).map_err(|refused| refused.at(index))?;
    }
    let shared = &asked.shared;
    let url = request.check.as_ref().and_then(|check| check.url.clone());
    if let Some(url) = &url {
        push::check_url(url, &shared.live().config.push.allow)
            .map_err(|refused| Problem::new(Code::InvalidUrl, refused.reason))?;
    }
    let topics: Vec<_> = request.messages.iter().map(|half| half.topic.clone()).collect();
    let check = request.check.as_ref().map(written_policy).transpose()?;
    asked.caller().sign(request.messages.iter_mut().map(|half| &mut half.request));
    let cost = Cost::of(request.messages.iter().map(|half| &half.request.message));
    let charged = asked.caller().charge(cost)?;
    let preparation = Preparation {
        producer_group: group.clone(),
        messages: request.messages,
        check: check.map(|check| policy(&check)).transpose()?.flatten(),
        url,
    };
    let prepared = shared.broker.prepare(preparation).await.map_err(of_prepare)?;
    if !prepared.duplicate {
        charged.stored();
    }
    let message = |(topic, id): (&punctual_model::TopicName, &MessageId)| v1::TransactionMessage {
        topic: Some(topic.to_string()),
        id: id.to_string(),
    };
    Ok(v1::Transaction {
        id: prepared.id.to_string(),
        producer_group: group.to_string(),
        state: transaction_state(prepared.state).into(),
        messages: topics.iter().zip(&prepared.messages).map(message).collect(),
        duplicate: prepared.duplicate,
        ..v1::Transaction::default()
    })
}

/// When producers are asked, as it would be written over HTTP.
pub(crate) fn written_policy(
    check: &v1::CheckPolicy,
) -> Result<transaction::Check<'static>, Problem> {
    let span = |written: &Option<prost_types::Duration>| -> Result<_, Problem> {
        let span = written.as_ref().map(time::delay).transpose();
        let refused = |problem: Problem| Problem::new(Code::InvalidCheck, problem.detail);
        Ok(span.map_err(refused)?.map(|span| Cow::Owned(span.to_string())))
    };
    Ok(transaction::Check {
        first: span(&check.first)?,
        interval: span(&check.interval)?,
        max: check.max.map(u64::from),
        url: check.url.clone().map(Into::into),
    })
}

/// The transaction of that id. One that the caller has no right on is like one that is not there.
async fn named(asked: &Asked, id: &str) -> Result<MessageId, Problem> {
    asked.require(Target::Anything)?;
    let id = id.parse().map_err(|_no_id| Code::TransactionNotFound)?;
    let permission = asked.method.operation().rule().permission;
    let own = access::own_transaction(asked.caller(), &asked.shared.broker, permission, id);
    own.await.map_err(of_store)
}

async fn decide(
    asked: Asked,
    request: v1::DecideRequest,
    verb: Verb,
) -> Result<v1::Transaction, Problem> {
    let id = named(&asked, &request.id).await?;
    let desk = asked.shared.broker.transactions();
    let work = async {
        let outcome = match verb {
            Verb::Commit => desk.commit(id).await,
            Verb::Rollback => desk.rollback(id).await,
            Verb::Resume => desk.resume(id).await,
        };
        outcome.map_err(of_decide)
    };
    // Producers decide all the time; whoever gives a reason does it by hand.
    let outcome = if request.reason.is_some() || verb == Verb::Resume {
        let mut details = vec![("transaction", request.id)];
        details.extend(request.reason.map(|reason| ("reason", reason)));
        let what = (verb.what(), None);
        audit::taken_down(&asked.shared, asked.asker.clone(), what, details, work).await?
    } else {
        work.await?
    };
    Ok(shown::transaction(&outcome))
}

pub(crate) async fn commit(
    asked: Asked,
    request: v1::DecideRequest,
) -> Result<v1::Transaction, Problem> {
    decide(asked, request, Verb::Commit).await
}

pub(crate) async fn rollback(
    asked: Asked,
    request: v1::DecideRequest,
) -> Result<v1::Transaction, Problem> {
    decide(asked, request, Verb::Rollback).await
}

pub(crate) async fn resume(
    asked: Asked,
    request: v1::DecideRequest,
) -> Result<v1::Transaction, Problem> {
    decide(asked, request, Verb::Resume).await
}

pub(crate) async fn get(
    asked: Asked,
    request: v1::GetTransactionRequest,
) -> Result<v1::Transaction, Problem> {
    let id = named(&asked, &request.id).await?;
    let found = asked.shared.broker.transactions().get(id).await.map_err(of_store)?;
    Ok(shown::transaction(&found.ok_or(Code::TransactionNotFound)?))
}

pub(crate) async fn list(
    asked: Asked,
    request: v1::ListTransactionsRequest,
) -> Result<v1::ListTransactionsResponse, Problem> {
    asked.require(Target::Anything)?;
    let state = match v1::TransactionState::try_from(request.state) {
        Ok(v1::TransactionState::Unspecified) => None,
        Ok(v1::TransactionState::Prepared) => Some(TransactionState::Prepared),
        Ok(v1::TransactionState::Committed) => Some(TransactionState::Committed),
        Ok(v1::TransactionState::RolledBack) => Some(TransactionState::RolledBack),
        Ok(v1::TransactionState::Unresolved) => Some(TransactionState::Unresolved),
        Err(_unknown) => return Err(Code::InvalidState.into()),
    };
    let query = TransactionQuery {
        state,
        producer_group: request.producer_group.as_deref().map(group_name).transpose()?,
        after: cursor(&request.cursor)?,
        limit: limit(request.limit)?,
    };
    let may_see = |transaction: &punctual_broker::transaction::Transaction| {
        access::has_transaction(asked.caller(), Permission::Read, transaction)
    };
    let desk = asked.shared.broker.transactions();
    let page = desk.list_where(query, may_see).await.map_err(of_store)?;
    let transactions = page.transactions.iter().map(shown::transaction).collect();
    let next = page.next.map(cursor_of).unwrap_or_default();
    Ok(v1::ListTransactionsResponse { transactions, next })
}

/// Draws questions for a member of that group; each counts from now on.
async fn draw(asked: &Asked, group: &GroupName, max: usize) -> Result<Vec<Check>, Problem> {
    asked.caller().still_stands()?;
    let (caller, broker) = (asked.caller(), &asked.shared.broker);
    access::checks_for(caller, broker, group, max).await.map_err(of_store)
}

pub(crate) async fn checks(
    asked: Asked,
    request: v1::ChecksRequest,
) -> Result<v1::ChecksResponse, Problem> {
    let group = asked.producer_group(&request.producer_group)?;
    let (max, deadline) = (max(request.max)?, deadline(request.wait.as_ref())?);
    let desk = asked.shared.broker.transactions();
    let known = (&asked.shared.broker, &asked.shared.tasks);
    let _asked = asked.shared.nodes.ask_for_checks(known, &group, max, deadline);
    loop {
        let available = desk.available(&group);
        let drawn = draw(&asked, &group, max).await?;
        if !drawn.is_empty() || Instant::now() >= deadline {
            return Ok(v1::ChecksResponse { checks: drawn.iter().map(check).collect() });
        }
        let goes_on = tokio::select! {
            // Nobody who is gone is asked: what is handed out counts.
            biased;
            () = gone(asked.peer.as_ref()) => false,
            () = asked.shared.tasks.stopped() => false,
            woken = timeout_at(deadline, available) => woken.is_ok(),
        };
        if !goes_on {
            return Ok(v1::ChecksResponse::default());
        }
    }
}

/// Sends questions as they come up and as there is credit.
pub(crate) async fn check_stream(
    asked: Asked,
    mut frames: Frames,
    out: Out,
) -> Result<(), Problem> {
    let shared = Arc::clone(&asked.shared);
    let mut stopped = pin!(shared.tasks.stopped());
    let first = tokio::select! {
        frame = frames.next() => said(frame?)?,
        () = &mut stopped => return Err(shutting_down()),
    };
    let Some(Request::Open(open)) = first else {
        return Err(malformed("a stream begins with open"));
    };
    let group = asked.producer_group(&open.producer_group)?;
    let mut credit = usize::try_from(open.credit).unwrap_or(usize::MAX);
    let desk = shared.broker.transactions();
    let known = (&shared.broker, &shared.tasks);
    let _asked =
        shared.nodes.ask_for_checks(known, &group, DRAWN_MAX, Instant::now() + STREAM_LIFE);
    let mut is_reading = true;
    while is_reading || credit > 0 {
        let available = desk.available(&group);
        let most = credit.min(DRAWN_MAX).min(RECEIVE_MESSAGES_MAX);
        if most > 0 {
            let drawn = draw(&asked, &group, most).await?;
            for one in &drawn {
                out.send(framed(&check(one))).await;
            }
            credit = credit.saturating_sub(drawn.len());
            if !drawn.is_empty() {
                continue;
            }
        }
        tokio::select! {
            () = &mut stopped => return Err(shutting_down()),
            () = available, if credit > 0 => {}
            frame = frames.next(), if is_reading => match said(frame?)? {
                None => is_reading = false,
                Some(Request::Credit(more)) => {
                    credit = credit.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
                }
                Some(Request::Open(_)) => return Err(malformed("the stream is open")),
            },
        }
    }
    Ok(())
}

/// What the producer says; `None` at its end.
fn said(frame: Option<Frame>) -> Result<Option<Request>, Problem> {
    let Some(frame) = frame else {
        return Ok(None);
    };
    let request = v1::CheckStreamRequest::read(&frame.bytes)?.request;
    request.map(Some).ok_or_else(|| malformed("the request says nothing"))
}
