//! From messages as they were written to what the broker is asked for.

use std::num::NonZeroU32;

use punctual_api::request::{self, NewMessage};
use punctual_api::{Code, Problem, repeat};
use punctual_broker::series::{Repeat, Rule};
use punctual_broker::{Request, When};
use punctual_model::limits::DELAY_CEILING;
use punctual_model::ports::OnConflict;
use punctual_model::time::SpanError;
use punctual_model::{CatchUp, Header, Message, Span};

use crate::http::groups::max_attempts;
use crate::http::problem::of_rule;
use crate::http::time;

/// What a message asks for.
pub(crate) fn to_request(message: NewMessage<'_>) -> Result<Request, Problem> {
    let when = when(&message.when)?;
    let ttl = message.ttl.as_deref().map(|text| time::ttl("ttl", text)).transpose()?;
    let max_attempts = message.max_attempts.map(max_attempts).transpose()?;
    let catch_up = message.catch_up.as_ref().map(catch_up).transpose()?;
    let repeat = message.repeat.as_deref().map(repeated).transpose()?;
    Ok(Request {
        when,
        partition: message.partition,
        ttl,
        max_attempts,
        own_id: message.id.as_deref().map(Into::into),
        on_conflict: match message.on_conflict {
            request::OnConflict::Reject => OnConflict::Reject,
            request::OnConflict::Replace => OnConflict::Replace,
        },
        catch_up,
        repeat,
        sender: None,
        message: to_message(message),
    })
}

/// When it is wanted.
pub(crate) fn when(written: &request::When<'_>) -> Result<When, Problem> {
    Ok(match written {
        request::When::Now => When::Now,
        request::When::After(text) => When::After(time::delay(text)?),
        request::When::At(text) => When::At(time::time(text)?),
        request::When::Level(level) => When::Level(*level),
    })
}

/// What is to be delivered.
pub(crate) fn to_message(message: NewMessage<'_>) -> Message {
    let headers = headers(message.headers);
    Message { key: message.key, headers, body: message.body }
}

/// Headers as they travel.
pub(crate) fn headers(written: Vec<(String, bytes::Bytes)>) -> Vec<Header> {
    written.into_iter().map(|(name, value)| Header { name, value }).collect()
}

/// When it comes round.
pub(crate) fn repeated(written: &repeat::Repeat<'_>) -> Result<Repeat, Problem> {
    let refused = |detail: String| Problem::new(Code::InvalidRepeat, detail);
    let rule = match &written.rule {
        repeat::Rule::Every(text) => {
            let interval: Span = text
                .parse()
                .map_err(|error: SpanError| refused(format!("repeat.every: {error}")))?;
            Rule::every(interval)
        }
        repeat::Rule::Cron { cron, zone } => Rule::cron(cron, zone.as_deref()),
    };
    let count = written.count.map(|count| {
        let count = u32::try_from(count).ok().and_then(NonZeroU32::new);
        count.ok_or_else(|| refused(format!("repeat.count is a number from 1 to {}", u32::MAX)))
    });
    Ok(Repeat {
        rule: rule.map_err(of_rule)?,
        count: count.transpose()?,
        until: written.until.as_deref().map(time::time).transpose()?,
    })
}

/// What becomes of it if it is missed.
pub(crate) fn catch_up(written: &repeat::CatchUp<'_>) -> Result<CatchUp, Problem> {
    let span = |text: &str| {
        let span = time::span("catch_up", text, (Span::from_millis(1), DELAY_CEILING));
        span.map_err(|problem| Problem::new(Code::InvalidCatchUp, problem.detail))
    };
    Ok(match written {
        repeat::CatchUp::All => CatchUp::All,
        repeat::CatchUp::Latest => CatchUp::Latest,
        repeat::CatchUp::Spread(over) => CatchUp::Spread(span(over)?),
        repeat::CatchUp::SkipOlderThan(than) => CatchUp::SkipOlder(span(than)?),
    })
}
