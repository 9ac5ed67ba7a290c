//! Messages, groups of them and transactions, as the contract shows them.

use bytes::Bytes;
use punctual_broker::group::Leased;
use punctual_broker::series::{Repeat, Rule, Series};
use punctual_broker::transaction::{Check, Transaction, TransactionState};
use punctual_broker::{Report, sender_of};
use punctual_model::ports::{Delivered, PendingEntry};
use punctual_model::{CatchUp, CheckPolicy, Message, State, TopicName};
use punctual_proto::v1;

use crate::grpc::sent::state;
use crate::grpc::time::{duration, timestamp};
use crate::shown::asked_by;

/// Key, headers and body. What was asked for by a field travels as a header, and is shown as the
/// field again.
#[derive(Default)]
struct Content {
    key: Option<Bytes>,
    headers: Vec<v1::Header>,
    body: Bytes,
    ttl: Option<prost_types::Duration>,
    max_attempts: Option<u32>,
    catch_up: Option<v1::CatchUp>,
    app: Option<String>,
}

fn content(message: &Message) -> Content {
    let (asked, headers) = asked_by(message);
    let header = |header: &punctual_model::Header| v1::Header {
        name: header.name.clone(),
        value: header.value.clone(),
    };
    Content {
        key: message.key.clone(),
        headers: headers.map(header).collect(),
        body: message.body.clone(),
        ttl: asked.ttl.map(duration),
        max_attempts: asked.max_attempts.map(u32::from),
        catch_up: asked.catch_up.map(catch_up),
        app: sender_of(message).map(str::to_owned),
    }
}

/// Everything that is known of a message.
pub(crate) fn report(report: &Report) -> v1::Message {
    let delivered = report.delivered.as_ref();
    let message = report.message.as_ref().or(delivered.map(|delivered| &delivered.message));
    v1::Message {
        id: report.id.to_string(),
        own_id: report.own_id.as_deref().map(str::to_owned),
        topic: report.topic.name.to_string(),
        state: state(report.state).into(),
        due: report.due.map(timestamp),
        version: report.version,
        partition: u32::from(report.id.partition.get()),
        series: report.series.map(|id| id.to_string()),
        transaction: report.transaction.map(|id| id.to_string()),
        delivered_at: delivered.map(|delivered| timestamp(delivered.delivered_at)),
        offset: delivered.map(|delivered| delivered.offset),
        remaining: report.remaining.map(duration),
        ..with_content(message)
    }
}

fn with_content(message: Option<&Message>) -> v1::Message {
    let Some(content) = message.map(content) else {
        return v1::Message::default();
    };
    v1::Message {
        key: content.key,
        headers: content.headers,
        body: Some(content.body),
        ttl: content.ttl,
        max_attempts: content.max_attempts,
        catch_up: content.catch_up,
        app: content.app,
        ..v1::Message::default()
    }
}

/// A series, which is its message and when that comes round.
pub(crate) fn series(topic: &TopicName, entry: &PendingEntry, series: &Series) -> v1::Message {
    let own_id = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
    v1::Message {
        id: entry.id.to_string(),
        own_id: own_id.map(|own_id| own_id.text.to_string()),
        topic: topic.to_string(),
        state: state(State::Scheduled).into(),
        due: Some(timestamp(series.next)),
        partition: u32::from(entry.id.partition.get()),
        round: Some(v1::Round {
            repeat: Some(repeat(&series.repeat)),
            number: series.number,
            occurrence: series.occurrence.map(|id| id.to_string()),
        }),
        ..with_content(Some(&series.message))
    }
}

fn repeat(repeat: &Repeat) -> v1::Repeat {
    v1::Repeat {
        rule: Some(match &repeat.rule {
            Rule::Every(every) => v1::repeat::Rule::Every(duration(every.interval())),
            Rule::Cron(cron) => v1::repeat::Rule::Cron(v1::Cron {
                expression: cron.text().to_owned(),
                zone: Some(cron.zone().to_owned()),
            }),
        }),
        count: repeat.count.map(std::num::NonZeroU32::get),
        until: repeat.until.map(timestamp),
    }
}

/// A message in the log of its topic.
pub(crate) fn logged(topic: &TopicName, partition: u16, delivered: &Delivered) -> v1::Message {
    v1::Message {
        id: delivered.id.to_string(),
        topic: topic.to_string(),
        state: state(State::Delivered).into(),
        due: Some(timestamp(delivered.due)),
        delivered_at: Some(timestamp(delivered.delivered_at)),
        partition: u32::from(partition),
        offset: Some(delivered.offset),
        ..with_content(Some(&delivered.message))
    }
}

/// What becomes of what was missed.
pub(crate) fn catch_up(policy: CatchUp) -> v1::CatchUp {
    use v1::catch_up::Policy;
    let policy = match policy {
        CatchUp::All => Policy::All(()),
        CatchUp::Latest => Policy::Latest(()),
        CatchUp::Spread(over) => Policy::Spread(duration(over)),
        CatchUp::SkipOlder(than) => Policy::SkipOlderThan(duration(than)),
    };
    v1::CatchUp { policy: Some(policy) }
}

/// A message that is lent to a consumer.
pub(crate) fn delivery(leased: &Leased) -> v1::Delivery {
    let content = content(&leased.message);
    v1::Delivery {
        id: leased.id.to_string(),
        receipt: leased.receipt.to_string(),
        partition: u32::from(leased.partition.get()),
        offset: leased.offset,
        key: content.key,
        headers: content.headers,
        body: content.body,
        due: Some(timestamp(leased.due)),
        delivered_at: Some(timestamp(leased.delivered_at)),
        attempt: u32::from(leased.attempt),
        ttl: content.ttl,
        max_attempts: content.max_attempts,
    }
}

/// A transaction.
pub(crate) fn transaction(transaction: &Transaction) -> v1::Transaction {
    let half = |half: &punctual_broker::transaction::HalfRef| v1::TransactionMessage {
        topic: half.topic.as_ref().map(ToString::to_string),
        id: half.id.to_string(),
    };
    v1::Transaction {
        id: transaction.id.to_string(),
        producer_group: transaction.producer_group.to_string(),
        state: transaction_state(transaction.state).into(),
        messages: transaction.messages.iter().map(half).collect(),
        checks_sent: u32::from(transaction.checks_sent),
        check: Some(check_policy(transaction.policy, transaction.url.as_deref())),
        created: Some(timestamp(transaction.created)),
        decided: transaction.decided.map(timestamp),
        next_check: transaction.next_check.map(timestamp),
        duplicate: false,
    }
}

/// When producers are asked.
pub(crate) fn check_policy(policy: CheckPolicy, url: Option<&str>) -> v1::CheckPolicy {
    v1::CheckPolicy {
        first: Some(duration(policy.first)),
        interval: Some(duration(policy.interval)),
        max: Some(u32::from(policy.max)),
        url: url.map(str::to_owned),
    }
}

/// The word of the contract for the state of a transaction.
pub(crate) const fn transaction_state(state: TransactionState) -> v1::TransactionState {
    match state {
        TransactionState::Prepared => v1::TransactionState::Prepared,
        TransactionState::Committed => v1::TransactionState::Committed,
        TransactionState::RolledBack => v1::TransactionState::RolledBack,
        TransactionState::Unresolved => v1::TransactionState::Unresolved,
    }
}

/// The question what became of a transaction.
pub(crate) fn check(check: &Check) -> v1::Check {
    let message = |half: &punctual_broker::transaction::HalfMessage| {
        let content = content(&half.message);
        v1::CheckedMessage {
            id: half.id.to_string(),
            own_id: half.own_id.as_deref().map(str::to_owned),
            topic: half.topic.to_string(),
            key: content.key,
            headers: content.headers,
            body: content.body,
            ttl: content.ttl,
            max_attempts: content.max_attempts,
        }
    };
    v1::Check {
        transaction: check.transaction.to_string(),
        attempt: u32::from(check.attempt),
        messages: check.messages.iter().map(message).collect(),
    }
}
