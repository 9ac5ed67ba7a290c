//! What became of messages that consumers hold: ack, nack, extend; and failures from elsewhere.

use bytes::Bytes;
use punctual_api::{Code, Problem};
use punctual_broker::group::{
    Consumer, FailedMessage, Failure, NackOutcome, Receipt, RetryOutcome,
};
use punctual_model::limits::{ATTEMPTS_MAX, RECEIPTS_MAX};
use punctual_model::{Header, Message};
use punctual_proto::v1;
use punctual_proto::v1::SettleResult;
use punctual_proto::v1::settle::What;

use crate::grpc::call::Asked;
use crate::grpc::sent::Counted;
use crate::grpc::status;
use crate::grpc::time::{self, timestamp};
use crate::grpc::wire::framed;
use crate::http::consume::check;
use crate::http::groups::blocking;
use crate::http::messages::partition;
use crate::http::problem::{of_group, of_invalid};

/// The group of a request, which must exist.
fn found(asked: &Asked, topic: &str, group: &str) -> Result<Consumer, Problem> {
    let (topic, group) = asked.group(topic, group)?;
    asked.shared.broker.consumers().find(&topic, &group).map_err(of_group)
}

/// Settles receipts. What is no receipt of ours is held by nobody.
async fn settle(
    asked: &Asked,
    consumer: Consumer,
    written: &[String],
    what: What,
) -> Result<v1::SettleResponse, Problem> {
    if written.len() > RECEIPTS_MAX {
        let detail = format!("a request has at most {RECEIPTS_MAX} receipts");
        return Err(Problem::new(Code::InvalidField, detail));
    }
    let read: Vec<Option<Receipt>> = written.iter().map(|text| text.parse().ok()).collect();
    let receipts: Vec<Receipt> = read.iter().copied().flatten().collect();
    let either =
        |good: SettleResult| move |held: bool| if held { good } else { SettleResult::NotHeld };
    let outcomes: Vec<SettleResult> = match what {
        What::Ack(v1::AckThese {}) => {
            let acked = consumer.ack(&receipts).await.map_err(of_group)?;
            acked.into_iter().map(either(SettleResult::Acked)).collect()
        }
        What::Nack(nack) => {
            let failure = Failure {
                delay: nack.delay.as_ref().map(time::retry_delay).transpose()?,
                reject: nack.reject,
                error: nack.error,
            };
            let work = move || consumer.nack(&receipts, &failure);
            let outcomes = blocking(&asked.shared, work).await?;
            let word = |outcome| match outcome {
                NackOutcome::Requeued => SettleResult::Requeued,
                NackOutcome::Dead => SettleResult::Dead,
                NackOutcome::NotHeld => SettleResult::NotHeld,
            };
            outcomes.into_iter().map(word).collect()
        }
        What::Extend(extend) => {
            let lease = match &extend.lease {
                Some(lease) => time::lease(lease)?,
                None => consumer.group().settings.lease,
            };
            let extended = consumer.extend(&receipts, lease);
            extended.into_iter().map(either(SettleResult::Extended)).collect()
        }
        What::Release(v1::ReleaseThese {}) => {
            let released = consumer.release(&receipts);
            released.into_iter().map(either(SettleResult::Released)).collect()
        }
    };
    let mut outcomes = outcomes.into_iter();
    let result = |read: &Option<Receipt>| {
        let outcome = read.and_then(|_| outcomes.next());
        outcome.unwrap_or(SettleResult::NotHeld).into()
    };
    Ok(v1::SettleResponse { results: read.iter().map(result).collect() })
}

/// Settles what came over a stream; the frame that answers it.
pub(crate) async fn settled(asked: Asked, consumer: Consumer, request: v1::Settle) -> Bytes {
    use v1::settled::Outcome;
    let outcome = match (asked.caller().still_stands(), request.what) {
        (Err(problem), _) => Err(problem),
        (Ok(()), None) => Err(Problem::new(
            Code::InvalidField,
            "say what became of them: ack, nack, extend or release",
        )),
        (Ok(()), Some(what)) => settle(&asked, consumer, &request.receipts, what).await,
    };
    let outcome = match outcome {
        Ok(response) => Outcome::Results(response),
        Err(problem) => Outcome::Problem(status::shown(&problem)),
    };
    let settled = v1::Settled { sequence: request.sequence, outcome: Some(outcome) };
    framed(&v1::ReceiveStreamResponse {
        response: Some(v1::receive_stream_response::Response::Settled(settled)),
    })
}

pub(crate) async fn ack(
    asked: Asked,
    request: v1::AckRequest,
) -> Result<v1::SettleResponse, Problem> {
    let consumer = found(&asked, &request.topic, &request.group)?;
    settle(&asked, consumer, &request.receipts, What::Ack(v1::AckThese {})).await
}

pub(crate) async fn nack(
    asked: Asked,
    request: v1::NackRequest,
) -> Result<v1::SettleResponse, Problem> {
    let consumer = found(&asked, &request.topic, &request.group)?;
    let what = What::Nack(request.nack.unwrap_or_default());
    settle(&asked, consumer, &request.receipts, what).await
}

pub(crate) async fn extend(
    asked: Asked,
    request: v1::ExtendRequest,
) -> Result<v1::SettleResponse, Problem> {
    let consumer = found(&asked, &request.topic, &request.group)?;
    let what = What::Extend(v1::ExtendThese { lease: request.lease });
    settle(&asked, consumer, &request.receipts, what).await
}

pub(crate) async fn retry(
    asked: Asked,
    Counted(request): Counted<v1::RetryRequest>,
) -> Result<v1::RetryResponse, Problem> {
    let consumer = found(&asked, &request.topic, &request.group)?;
    let attempt = u16::try_from(request.attempt).ok().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
    let attempt = attempt.ok_or_else(|| {
        let detail = format!("attempt is a whole number from 1 to {ATTEMPTS_MAX}");
        Problem::new(Code::InvalidField, detail)
    })?;
    let written = request.message;
    let written = written.ok_or_else(|| Problem::new(Code::InvalidField, "give the message"))?;
    let number = written.partition.map(|number| u16::try_from(number).unwrap_or(u16::MAX));
    let id = request.id.as_deref().map(str::parse).transpose();
    let header = |header: v1::Header| Header { name: header.name, value: header.value };
    let failed = FailedMessage {
        id: id.map_err(|_other| Problem::new(Code::InvalidField, "id is not an id of ours"))?,
        partition: number.map(partition).transpose()?,
        offset: request.offset,
        attempt,
        delay: request.delay.as_ref().map(time::retry_delay).transpose()?,
        error: request.error,
        message: Message {
            key: written.key,
            headers: written.headers.into_iter().map(header).collect(),
            body: written.body,
        },
    };
    let body_bytes_max = asked.shared.body_bytes_max();
    check(&failed.message, body_bytes_max).map_err(|reason| of_invalid(&reason))?;
    // As with a send: it is stored, and so it counts.
    let cost = crate::access::Cost::of([&failed.message]);
    let _charged = asked.caller().charge(cost)?;
    let outcome = blocking(&asked.shared, move || consumer.retry(failed)).await?;
    Ok(match outcome {
        RetryOutcome::Requeued(due) => {
            v1::RetryResponse { result: SettleResult::Requeued.into(), due: Some(timestamp(due)) }
        }
        RetryOutcome::Dead => v1::RetryResponse { result: SettleResult::Dead.into(), due: None },
    })
}
