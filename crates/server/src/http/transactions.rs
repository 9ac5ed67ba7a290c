//! Transactions: prepare, decide, look at them, and ask producers what became of them.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use punctual_api::consume::Receive;
use punctual_api::request::Parameters;
use punctual_api::transaction::{
    CheckPolicyView, Checks, HalfView, Prepare, PreparedView, TransactionList, TransactionView,
    read_reason,
};
use punctual_api::{Code, Problem, transaction};
use punctual_broker::transaction::{
    Check, DecideError, DelayFrom, HalfRequest, Preparation, Transaction, TransactionQuery,
    TransactionState, valid_check,
};
use punctual_model::limits::{
    DELAY_CEILING, JSON_DEPTH_MAX, RECEIVE_MESSAGES_DEFAULT, RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MAX,
};
use punctual_model::{CheckPolicy, GroupName, Span, TopicName};
use tokio::time::{Instant, timeout_at};

use crate::access::{Cost, Permission, Target, checks_for, has_transaction, own_transaction};
use crate::http::asked::to_request;
use crate::http::audit;
use crate::http::body::{self, SizeLimit, take_json};
use crate::http::call::Call;
use crate::http::messages::{JSON_BYTES_INLINE, JSON_BYTES_MAX, READ_LIMITS, require_json};
use crate::http::page::{cursor_of, take_cursor, take_limit};
use crate::http::problem::{of_broken_off, of_decide, of_prepare, of_store};
use crate::http::receive::gone;
use crate::http::reply::{Reply, json_holding, large_json, located};
use crate::http::shared::Shared;
use crate::http::time;
use crate::push;
use crate::shown::check_view;

/// Largest request about a transaction that has no messages.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// `POST /v1/transactions`
pub(crate) async fn prepare(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    require_json(&call)?;
    let limit = SizeLimit { bytes: JSON_BYTES_MAX, code: Code::RequestTooLarge };
    let caller = call.caller().clone();
    let held = body::take(&call.shared, call.body, limit).await?;
    let mut preparation = if held.bytes.len() <= JSON_BYTES_INLINE {
        read(&call.shared, &held.bytes)
    } else {
        let (json, shared) = (held.bytes.clone(), Arc::clone(&call.shared));
        call.shared.tasks.blocking(move || read(&shared, &json)).await.map_err(of_broken_off)?
    }?;
    for (index, half) in preparation.messages.iter().enumerate() {
        let target = Target::Group(&half.topic, &preparation.producer_group);
        caller.require(Permission::Send, target).map_err(|problem| problem.at(index))?;
    }
    caller.sign(preparation.messages.iter_mut().map(|half| &mut half.request));
    let cost = Cost::of(preparation.messages.iter().map(|half| &half.request.message));
    let charged = caller.charge(cost)?;
    let topics: Vec<TopicName> =
        preparation.messages.iter().map(|half| half.topic.clone()).collect();
    let prepared = call.shared.broker.prepare(preparation).await.map_err(of_prepare)?;
    if !prepared.duplicate {
        charged.stored();
    }
    let half = |(topic, id): (&TopicName, &punctual_model::MessageId)| HalfView {
        topic: Some(topic.to_string().into()),
        id: id.to_string(),
    };
    let view = PreparedView {
        id: prepared.id.to_string(),
        state: prepared.state.word(),
        messages: topics.iter().zip(&prepared.messages).map(half).collect(),
        duplicate: prepared.duplicate,
    };
    let status = if prepared.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    // It is done and cannot be refused any more, however large the answer is.
    Ok(located(json_holding(status, &view, held), &format!("/v1/transactions/{}", view.id)))
}

fn read(shared: &Shared, json: &[u8]) -> Result<Preparation, Problem> {
    let written = Prepare::read(json, READ_LIMITS)?;
    let producer_group = group_name(&written.producer_group)?;
    let url = written.check.as_ref().and_then(|check| check.url.as_deref());
    if let Some(url) = url {
        push::check_url(url, &shared.live().config.push.allow)
            .map_err(|refused| Problem::new(Code::InvalidUrl, refused.reason))?;
    }
    let url = url.map(str::to_owned);
    let check = written.check.map(|check| policy(&check)).transpose()?.flatten();
    let half = |(index, half): (usize, transaction::HalfMessage<'_>)| {
        half_request(half).map_err(|problem| problem.at(index))
    };
    let messages = written.messages.into_iter().enumerate().map(half).collect::<Result<_, _>>()?;
    Ok(Preparation { producer_group, messages, check, url })
}

fn half_request(half: transaction::HalfMessage<'_>) -> Result<HalfRequest, Problem> {
    let topic = TopicName::new(&half.topic)
        .map_err(|error| Problem::new(Code::InvalidTopicName, error.to_string()))?;
    let delay_from = if half.from_send { DelayFrom::Send } else { DelayFrom::Commit };
    Ok(HalfRequest { topic, request: to_request(half.message)?, delay_from })
}

fn group_name(text: &str) -> Result<GroupName, Problem> {
    GroupName::new(text).map_err(|error| Problem::new(Code::InvalidGroupName, error.to_string()))
}

/// When producers are asked, if something is said about it.
pub(crate) fn policy(written: &transaction::Check<'_>) -> Result<Option<CheckPolicy>, Problem> {
    if written.first.is_none() && written.interval.is_none() && written.max.is_none() {
        return Ok(None);
    }
    let refused = |detail| Problem::new(Code::InvalidCheck, detail);
    let span = |name: &str, text: Option<&str>, usual: Span| match text {
        None => Ok(usual),
        Some(text) => {
            let span = time::span(&format!("check.{name}"), text, (Span::ZERO, DELAY_CEILING));
            span.map_err(|problem| refused(problem.detail))
        }
    };
    let usual = CheckPolicy::default();
    let policy = CheckPolicy {
        first: span("first", written.first.as_deref(), usual.first)?,
        interval: span("interval", written.interval.as_deref(), usual.interval)?,
        // More than anybody may ask for is refused below.
        max: written.max.map_or(usual.max, |max| u16::try_from(max).unwrap_or(u16::MAX)),
    };
    valid_check(policy).map(Some).map_err(|error| refused(error.to_string().into()))
}

/// What somebody decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Commit,
    Rollback,
    Resume,
}

impl Verb {
    const fn permission(self) -> Permission {
        match self {
            Self::Commit | Self::Rollback => Permission::Send,
            Self::Resume => Permission::Manage,
        }
    }

    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Commit => "transaction_commit",
            Self::Rollback => "transaction_rollback",
            Self::Resume => "transaction_resume",
        }
    }
}

/// `POST /v1/transactions/{id}/{commit, rollback, resume}`
pub(crate) async fn decide(call: Call, verb: Verb) -> Result<Reply, Problem> {
    let id = transaction_id(&call)?;
    let asker = call.asker();
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let reason = read_reason(&held.bytes, JSON_DEPTH_MAX)?;
    drop(held);
    let desk = shared.broker.transactions();
    let named = id.to_string();
    let own = own_transaction(asker.caller(), &shared.broker, verb.permission(), id).await;
    let id = own.map_err(of_store)?;
    let work = async {
        let outcome: Result<Transaction, DecideError> = match verb {
            Verb::Commit => desk.commit(id).await,
            Verb::Rollback => desk.rollback(id).await,
            Verb::Resume => desk.resume(id).await,
        };
        outcome.map_err(of_decide)
    };
    // Producers decide all the time; whoever gives a reason does it by hand.
    let outcome = if reason.is_some() || verb == Verb::Resume {
        let mut details = vec![("transaction", named)];
        details.extend(reason.map(|reason| ("reason", reason)));
        audit::taken_down(&shared, asker, (verb.what(), None), details, work).await?
    } else {
        work.await?
    };
    large_json(&shared, &view(&outcome))
}

fn transaction_id(call: &Call) -> Result<punctual_model::MessageId, Problem> {
    call.id().map_err(|_no_id| Code::TransactionNotFound.into())
}

/// `GET /v1/transactions/{id}`
pub(crate) async fn get(call: Call) -> Result<Reply, Problem> {
    Parameters::read(call.query())?.end()?;
    let id = transaction_id(&call)?;
    let own = own_transaction(call.caller(), &call.shared.broker, Permission::Read, id).await;
    let id = own.map_err(of_store)?;
    let found = call.shared.broker.transactions().get(id).await.map_err(of_store)?;
    large_json(&call.shared, &view(&found.ok_or(Code::TransactionNotFound)?))
}

/// `GET /v1/transactions`
pub(crate) async fn list(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let state = parameters.take("state")?.map(|word| {
        let detail = "state is prepared, committed, rolled_back or unresolved";
        TransactionState::from_word(&word).ok_or_else(|| Problem::new(Code::InvalidState, detail))
    });
    let group = parameters.take("producer_group")?.map(|text| group_name(&text)).transpose()?;
    let limit = take_limit(&mut parameters)?;
    let after = take_cursor(&mut parameters)?;
    parameters.end()?;
    let query = TransactionQuery { state: state.transpose()?, producer_group: group, after, limit };
    let seen = |found: &Transaction| has_transaction(call.caller(), Permission::Read, found);
    let desk = call.shared.broker.transactions();
    let page = desk.list_where(query, seen).await.map_err(of_store)?;
    let transactions = page.transactions.iter().map(view).collect();
    let next = page.next.map(cursor_of);
    large_json(&call.shared, &TransactionList { transactions, next })
}

fn view(transaction: &Transaction) -> TransactionView<'_> {
    let policy = transaction.policy;
    TransactionView {
        id: transaction.id.to_string(),
        producer_group: transaction.producer_group.as_str(),
        state: transaction.state.word(),
        created: transaction.created.to_string(),
        decided: transaction.decided.map(|decided| decided.to_string()),
        checks_sent: transaction.checks_sent,
        check: policy_view(policy, transaction.url.as_deref()),
        next_check: transaction.next_check.map(|next| next.to_string()),
        messages: transaction
            .messages
            .iter()
            .map(|half| HalfView {
                topic: half.topic.as_ref().map(|topic| topic.as_str().into()),
                id: half.id.to_string(),
            })
            .collect(),
    }
}

/// When producers are asked, as it is shown.
pub(crate) fn policy_view(policy: CheckPolicy, url: Option<&str>) -> CheckPolicyView<'_> {
    CheckPolicyView {
        first: policy.first.to_string(),
        interval: policy.interval.to_string(),
        max: policy.max,
        url,
    }
}

/// `POST /v1/producer-groups/{group}/checks`
pub(crate) async fn checks(call: Call) -> Result<Reply, Problem> {
    let group = call.producer_group()?;
    let (peer, caller) = (call.peer.clone(), call.caller().clone());
    let (shared, held) = take_json(call, REQUEST_BYTES_MAX).await?;
    let (max, wait) = ask(&held.bytes)?;
    // Whoever waits holds no memory.
    drop(held);
    let desk = shared.broker.transactions();
    let deadline = Instant::now() + Duration::from_millis(wait.as_millis());
    let known = (&shared.broker, &shared.tasks);
    let _asked = shared.nodes.ask_for_checks(known, &group, max, deadline);
    loop {
        let available = desk.available(&group);
        caller.still_stands()?;
        let checks = checks_for(&caller, &shared.broker, &group, max).await.map_err(of_store)?;
        if !checks.is_empty() || Instant::now() >= deadline {
            return answer(&shared, &checks);
        }
        let goes_on = tokio::select! {
            // Nobody who is gone is asked: what is handed out counts.
            biased;
            () = gone(peer.as_ref()) => false,
            () = shared.tasks.stopped() => false,
            woken = timeout_at(deadline, available) => woken.is_ok(),
        };
        if !goes_on {
            return answer(&shared, &[]);
        }
    }
}

fn ask(json: &[u8]) -> Result<(usize, Span), Problem> {
    let asked = Receive::read(json, JSON_DEPTH_MAX)?;
    let refused = |detail: String| Problem::new(Code::InvalidField, detail);
    if asked.lease.is_some() {
        return Err(Problem::new(Code::UnknownField, "there is no field \"lease\""));
    }
    let max = asked.max.map(|max| {
        let max = usize::try_from(max).ok().filter(|max| (1..=RECEIVE_MESSAGES_MAX).contains(max));
        max.ok_or_else(|| {
            refused(format!("max is a whole number from 1 to {RECEIVE_MESSAGES_MAX}"))
        })
    });
    let bounds = (Span::ZERO, RECEIVE_WAIT_MAX);
    let wait = asked.wait.map(|text| time::span("wait", &text, bounds)).transpose()?;
    Ok((max.transpose()?.unwrap_or(RECEIVE_MESSAGES_DEFAULT), wait.unwrap_or(Span::ZERO)))
}

fn answer(shared: &Shared, checks: &[Check]) -> Result<Reply, Problem> {
    let checks = checks.iter().map(|check| check_view(check, None)).collect();
    large_json(shared, &Checks { checks })
}
