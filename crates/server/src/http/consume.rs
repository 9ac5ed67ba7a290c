//! What became of messages that consumers hold: ack, nack, extend; and failures from elsewhere.

use http::StatusCode;
use punctual_api::consume::{Retry, RetryView, Settle, SettleLimits, WrittenReceipt, results};
use punctual_api::{Code, Problem};
use punctual_broker::Invalid;
use punctual_broker::group::{FailedMessage, Failure, NackOutcome, Receipt, RetryOutcome};
use punctual_model::Message;
use punctual_model::limits::{
    ATTEMPTS_MAX, BODY_BYTES_CEILING, HEADER_BYTES_MAX, JSON_DEPTH_MAX, KEY_BYTES_MAX, RECEIPTS_MAX,
};

use crate::access::Cost;
use crate::http::asked::to_message;
use crate::http::body::{Held, take_json};
use crate::http::call::Call;
use crate::http::groups::{blocking, found};
use crate::http::messages::{READ_LIMITS, partition};
use crate::http::problem::{of_group, of_invalid};
use crate::http::reply::{Reply, json, json_text_holding};
use crate::http::time;

/// Largest request with receipts.
const RECEIPTS_BYTES_MAX: usize = 4 << 20;
/// Largest request with a message: its body in base 64, with room for the rest.
const RETRY_BYTES_MAX: usize = BODY_BYTES_CEILING * 2;
const LIMITS: SettleLimits = SettleLimits { depth: JSON_DEPTH_MAX, receipts: RECEIPTS_MAX };

/// The receipts that could be ones of ours, and for each that was written whether it could.
struct Read {
    receipts: Vec<Receipt>,
    known: Vec<bool>,
}

impl Read {
    fn new(written: &[WrittenReceipt<'_>]) -> Self {
        let mut receipts = Vec::with_capacity(written.len());
        let known = written.iter().map(|written| {
            let receipt: Option<Receipt> = written.text().and_then(|text| text.parse().ok());
            receipts.extend(receipt);
            receipt.is_some()
        });
        let known = known.collect();
        Self { receipts, known }
    }

    /// The answer, once it is known what became of each receipt.
    fn answer(
        known: &[bool],
        written: &[WrittenReceipt<'_>],
        outcomes: impl IntoIterator<Item = &'static str>,
    ) -> Vec<u8> {
        let mut outcomes = outcomes.into_iter();
        let mut word = |known: &bool| known.then(|| outcomes.next()).flatten();
        results(written, known.iter().map(|known| word(known).unwrap_or("not_held")))
    }
}

fn reply(text: Vec<u8>, held: Held) -> Reply {
    // It is done and cannot be refused any more, however large the answer is.
    json_text_holding(StatusCode::OK, text, held)
}

/// `POST …/groups/{group}/ack`
pub(crate) async fn ack(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let (_, held) = take_json(call, RECEIPTS_BYTES_MAX).await?;
    let asked = Settle::read_ack(&held.bytes, LIMITS)?;
    let read = Read::new(&asked.receipts);
    let acked = consumer.ack(&read.receipts).await.map_err(of_group)?;
    let words = acked.into_iter().map(|acked| if acked { "acked" } else { "not_held" });
    let text = Read::answer(&read.known, &asked.receipts, words);
    Ok(reply(text, held))
}

/// `POST …/groups/{group}/nack`
pub(crate) async fn nack(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let (shared, held) = take_json(call, RECEIPTS_BYTES_MAX).await?;
    let asked = Settle::read_nack(&held.bytes, LIMITS)?;
    let failure = Failure {
        delay: asked.delay.as_deref().map(time::retry_delay).transpose()?,
        reject: asked.reject,
        error: asked.error.as_deref().map(str::to_owned),
    };
    let Read { receipts, known } = Read::new(&asked.receipts);
    let outcomes = blocking(&shared, move || consumer.nack(&receipts, &failure)).await?;
    let words = outcomes.into_iter().map(|outcome| match outcome {
        NackOutcome::Requeued => "requeued",
        NackOutcome::Dead => "dead",
        NackOutcome::NotHeld => "not_held",
    });
    let text = Read::answer(&known, &asked.receipts, words);
    Ok(reply(text, held))
}

/// `POST …/groups/{group}/extend`
pub(crate) async fn extend(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let (_, held) = take_json(call, RECEIPTS_BYTES_MAX).await?;
    let asked = Settle::read_extend(&held.bytes, LIMITS)?;
    let lease = match &asked.lease {
        Some(text) => time::lease(text)?,
        None => consumer.group().settings.lease,
    };
    let read = Read::new(&asked.receipts);
    let extended = consumer.extend(&read.receipts, lease);
    let words = extended.into_iter().map(|extended| if extended { "extended" } else { "not_held" });
    let text = Read::answer(&read.known, &asked.receipts, words);
    Ok(reply(text, held))
}

/// `POST …/groups/{group}/retry`
pub(crate) async fn retry(call: Call) -> Result<Reply, Problem> {
    let consumer = found(&call)?;
    let caller = call.caller().clone();
    let (shared, held) = take_json(call, RETRY_BYTES_MAX).await?;
    let asked = Retry::read(&held.bytes, READ_LIMITS)?;
    let attempt = u16::try_from(asked.attempt).ok().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
    let attempt = attempt.ok_or_else(|| {
        let detail = format!("attempt is a whole number from 1 to {ATTEMPTS_MAX}");
        Problem::new(Code::InvalidField, detail)
    })?;
    let id = asked.id.as_deref().map(str::parse).transpose();
    let failed = FailedMessage {
        id: id.map_err(|_other| Problem::new(Code::InvalidField, "id is not an id of ours"))?,
        partition: asked.message.partition.map(partition).transpose()?,
        offset: asked.offset,
        attempt,
        delay: asked.delay.as_deref().map(time::retry_delay).transpose()?,
        error: asked.error.as_deref().map(str::to_owned),
        message: to_message(asked.message),
    };
    check(&failed.message, shared.body_bytes_max()).map_err(|reason| of_invalid(&reason))?;
    drop(held);
    let _charged = caller.charge(Cost::of([&failed.message]))?;
    let outcome = blocking(&shared, move || consumer.retry(failed)).await?;
    let view = match outcome {
        RetryOutcome::Requeued(due) => RetryView { result: "requeued", due: Some(due.to_string()) },
        RetryOutcome::Dead => RetryView { result: "dead", due: None },
    };
    Ok(json(StatusCode::OK, &view))
}

/// Refuses a message that could not have been sent. The number of headers was looked at before.
pub(crate) fn check(message: &Message, body_bytes_max: usize) -> Result<(), Invalid> {
    if message.body.len() > body_bytes_max {
        return Err(Invalid::BodyTooLarge { max: body_bytes_max });
    }
    if message.header_bytes() > HEADER_BYTES_MAX {
        return Err(Invalid::HeadersTooLarge);
    }
    match &message.key {
        Some(key) if key.len() > KEY_BYTES_MAX => Err(Invalid::KeyTooLarge),
        _ => Ok(()),
    }
}
