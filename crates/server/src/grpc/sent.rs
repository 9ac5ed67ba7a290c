//! What producers send, read straight into what the broker is asked for, and what they are answered.
//!
//! A batch has no detour through the generated shapes: those would take many times its bytes before
//! anybody could count its messages. Here the limits hold while it is read. Bodies, keys and header
//! values are slices of the frame; the broker copies them when it takes them.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message as _;
use prost::encoding::{encode_varint, encoded_len_varint};
use punctual_api::{Code, Problem};
use punctual_broker::series::{Repeat, Rule};
use punctual_broker::transaction::{DelayFrom, HalfRequest};
use punctual_broker::{Request, Scheduled, When};
use punctual_model::limits::{ATTEMPTS_MAX, BATCH_MESSAGES_MAX, DELAY_CEILING, HEADERS_MAX};
use punctual_model::ports::OnConflict;
use punctual_model::{CatchUp, Header, Message, Span, State, TopicName};
use punctual_proto::v1;

use crate::grpc::time;
use crate::grpc::wire::{Answer, Ask, Field, Fields, malformed, text};
use crate::http::problem::of_rule;

/// A batch for one topic.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) topic: String,
    pub(crate) requests: Vec<Request>,
}

/// A batch on a stream.
#[derive(Debug)]
pub(crate) struct NumberedBatch {
    pub(crate) sequence: u64,
    pub(crate) topic: String,
    /// What is wrong with it concerns it alone.
    pub(crate) requests: Result<Vec<Request>, Problem>,
}

impl Ask for Batch {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        let mut batch = Self { topic: String::new(), requests: Vec::new() };
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Bytes(topic)) => batch.topic = text(topic)?.to_owned(),
                (2, Field::Bytes(message)) => add(&mut batch.requests, bytes, message)?,
                _ => {}
            }
        }
        Ok(batch)
    }
}

impl Ask for NumberedBatch {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        let mut batch = Self { sequence: 0, topic: String::new(), requests: Ok(Vec::new()) };
        let mut fields = Fields::new(bytes);
        while let Some((number, field)) = fields.next()? {
            match (number, field) {
                (1, Field::Varint(sequence)) => batch.sequence = sequence,
                (2, Field::Bytes(topic)) => batch.topic = text(topic)?.to_owned(),
                (3, Field::Bytes(message)) => {
                    let Ok(requests) = &mut batch.requests else {
                        continue;
                    };
                    if let Err(problem) = add(requests, bytes, message) {
                        batch.requests = Err(problem);
                    }
                }
                _ => {}
            }
        }
        Ok(batch)
    }
}

fn add(requests: &mut Vec<Request>, frame: &Bytes, message: &[u8]) -> Result<(), Problem> {
    let index = requests.len();
    if index >= BATCH_MESSAGES_MAX {
        let detail = format!("a batch has at most {BATCH_MESSAGES_MAX} messages");
        return Err(Problem::new(Code::BatchTooLarge, detail));
    }
    requests.push(request(frame, message).map_err(|problem| problem.at(index))?);
    Ok(())
}

/// A half message of a transaction.
pub(crate) fn half(frame: &Bytes, bytes: &[u8]) -> Result<HalfRequest, Problem> {
    let (mut topic, mut message) = ("", &b""[..]);
    let mut delay_from = DelayFrom::Commit;
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(name)) => topic = text(name)?,
            (2, Field::Bytes(written)) => message = written,
            (3, Field::Varint(0)) => delay_from = DelayFrom::Commit,
            (3, Field::Varint(_)) => delay_from = DelayFrom::Send,
            _ => {}
        }
    }
    Ok(HalfRequest { topic: topic_name(topic)?, request: request(frame, message)?, delay_from })
}

/// A request with headers, whose number was looked at before it was read: each takes two bytes at
/// least on the wire, and many times that in memory.
#[derive(Debug)]
pub(crate) struct Counted<T>(pub(crate) T);

impl Ask for Counted<v1::ChangeRequest> {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        few_headers(bytes, 8, 1)?;
        Ask::read(bytes).map(Self)
    }
}

impl Ask for Counted<v1::RetryRequest> {
    fn read(bytes: &Bytes) -> Result<Self, Problem> {
        few_headers(bytes, 3, 3)?;
        Ask::read(bytes).map(Self)
    }
}

/// Refuses more headers than a message may have: the fields `inner` of the messages `outer`.
fn few_headers(bytes: &[u8], outer: u32, inner: u32) -> Result<(), Problem> {
    let mut count = 0_usize;
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        let (true, Field::Bytes(message)) = (number == outer, field) else {
            continue;
        };
        let mut members = Fields::new(message);
        while let Some((number, _)) = members.next()? {
            count += usize::from(number == inner);
            if count > HEADERS_MAX {
                let detail = format!("a message has at most {HEADERS_MAX} headers");
                return Err(Problem::new(Code::TooManyHeaders, detail));
            }
        }
    }
    Ok(())
}

/// The topic of that name.
pub(crate) fn topic_name(text: &str) -> Result<TopicName, Problem> {
    let illegal = |error: punctual_model::topic::NameError| error.to_string();
    TopicName::new(text).map_err(|error| Problem::new(Code::InvalidTopicName, illegal(error)))
}

/// What a message asks for.
pub(crate) fn request(frame: &Bytes, message: &[u8]) -> Result<Request, Problem> {
    let slice = |bytes: &[u8]| frame.slice_ref(bytes);
    let mut request = Request::new(Message::default(), When::Now);
    let mut fields = Fields::new(message);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(body)) => request.message.body = slice(body),
            (2, Field::Bytes(key)) => request.message.key = Some(slice(key)),
            (3, Field::Bytes(written)) => {
                if request.message.headers.len() >= HEADERS_MAX {
                    let detail = format!("a message has at most {HEADERS_MAX} headers");
                    return Err(Problem::new(Code::TooManyHeaders, detail));
                }
                request.message.headers.push(header(frame, written)?);
            }
            (number, field) => rare(&mut request, number, &field)?,
        }
    }
    Ok(request)
}

/// The fields that most messages do not have, but for when they are wanted.
fn rare(request: &mut Request, number: u32, field: &Field<'_>) -> Result<(), Problem> {
    match (number, field) {
        (4, Field::Bytes(id)) => request.own_id = Some(Arc::from(text(id)?)),
        (5, Field::Varint(word)) => request.on_conflict = on_conflict(*word)?,
        (6, Field::Bytes(delay)) => request.when = When::After(time::delay(&read(delay)?)?),
        (7, Field::Bytes(at)) => request.when = When::At(time::time(&read(at)?)?),
        (8, Field::Varint(level)) => request.when = When::Level(*level),
        (9, Field::Bytes(written)) => request.repeat = Some(repeat(&read(written)?)?),
        (10, Field::Bytes(ttl)) => request.ttl = Some(time::ttl(&read(ttl)?)?),
        (11, Field::Varint(number)) => {
            let number = u16::try_from(*number).map_err(|_large| Code::NoSuchPartition)?;
            request.partition = Some(number);
        }
        (12, Field::Varint(number)) => request.max_attempts = Some(max_attempts(*number)?),
        (13, Field::Bytes(written)) => request.catch_up = Some(catch_up(&read(written)?)?),
        _ => {}
    }
    Ok(())
}

fn read<T: prost::Message + Default>(bytes: &[u8]) -> Result<T, Problem> {
    T::decode(bytes).map_err(|error| malformed(error.to_string()))
}

fn header(frame: &Bytes, bytes: &[u8]) -> Result<Header, Problem> {
    let mut header = Header { name: String::new(), value: Bytes::new() };
    let mut fields = Fields::new(bytes);
    while let Some((number, field)) = fields.next()? {
        match (number, field) {
            (1, Field::Bytes(name)) => text(name)?.clone_into(&mut header.name),
            (2, Field::Bytes(value)) => header.value = frame.slice_ref(value),
            _ => {}
        }
    }
    Ok(header)
}

fn on_conflict(word: u64) -> Result<OnConflict, Problem> {
    let word = i32::try_from(word).ok().and_then(|word| v1::OnConflict::try_from(word).ok());
    match word {
        Some(v1::OnConflict::Unspecified | v1::OnConflict::Reject) => Ok(OnConflict::Reject),
        Some(v1::OnConflict::Replace) => Ok(OnConflict::Replace),
        None => Err(Problem::new(Code::InvalidField, "on_conflict is reject or replace")),
    }
}

/// A number of attempts that may be asked for.
pub(crate) fn max_attempts(number: u64) -> Result<u16, Problem> {
    let within = u16::try_from(number).ok().filter(|n| (1..=ATTEMPTS_MAX).contains(n));
    within.ok_or_else(|| {
        let detail = format!("max_attempts is a whole number from 1 to {ATTEMPTS_MAX}");
        Problem::new(Code::InvalidField, detail)
    })
}

/// When it comes round.
fn repeat(written: &v1::Repeat) -> Result<Repeat, Problem> {
    let refused = |detail: &'static str| Problem::new(Code::InvalidRepeat, detail);
    let rule = match &written.rule {
        None => return Err(refused("repeat needs every or cron")),
        Some(v1::repeat::Rule::Every(interval)) => {
            let interval = time::delay(interval);
            Rule::every(interval.map_err(|_negative| refused("repeat.every is a duration"))?)
        }
        Some(v1::repeat::Rule::Cron(cron)) => Rule::cron(&cron.expression, cron.zone.as_deref()),
    };
    let count = written.count.map(|count| {
        NonZeroU32::new(count).ok_or_else(|| refused("repeat.count is a number from 1 on"))
    });
    Ok(Repeat {
        rule: rule.map_err(of_rule)?,
        count: count.transpose()?,
        until: written.until.as_ref().map(time::time).transpose()?,
    })
}

/// What becomes of it if it is missed.
pub(crate) fn catch_up(written: &v1::CatchUp) -> Result<CatchUp, Problem> {
    use v1::catch_up::Policy;
    let refused = |detail| Problem::new(Code::InvalidCatchUp, detail);
    let span = |written| {
        let span = time::span("catch_up", written, (Span::from_millis(1), DELAY_CEILING));
        span.map_err(|problem| refused(problem.detail))
    };
    Ok(match &written.policy {
        None => return Err(refused("catch_up needs a policy".into())),
        Some(Policy::All(())) => CatchUp::All,
        Some(Policy::Latest(())) => CatchUp::Latest,
        Some(Policy::Spread(over)) => CatchUp::Spread(span(over)?),
        Some(Policy::SkipOlderThan(than)) => CatchUp::SkipOlder(span(than)?),
    })
}

/// The word of the contract for a state.
pub(crate) const fn state(state: State) -> v1::State {
    match state {
        State::Scheduled => v1::State::Scheduled,
        State::Paused => v1::State::Paused,
        State::Prepared => v1::State::Prepared,
        State::Delivered => v1::State::Delivered,
        State::Cancelled => v1::State::Cancelled,
    }
}

/// The answer to a batch, as a `SendResponse`.
pub(crate) struct Accepted(pub(crate) Vec<Scheduled>);

/// The answer to a batch of a stream, as a `SendStreamResponse`.
pub(crate) struct NumberedAnswer {
    pub(crate) sequence: u64,
    pub(crate) outcome: Result<Accepted, Problem>,
}

/// Bytes of an accepted message, with its tag: see [`put_sent`].
const SENT_BYTES_MAX: usize = 2 + 64 + 24;

impl Answer for Accepted {
    fn write(&self, to: &mut BytesMut) {
        to.reserve(self.0.len() * SENT_BYTES_MAX);
        for scheduled in &self.0 {
            put_sent(scheduled, to);
        }
    }
}

impl Answer for NumberedAnswer {
    fn write(&self, to: &mut BytesMut) {
        match &self.outcome {
            Ok(accepted) => {
                let length: usize = accepted.0.iter().map(sent_bytes).sum();
                to.reserve(length + 24);
                put_varint_field(1, self.sequence, to);
                put_length(2, length, to);
                accepted.write(to);
            }
            Err(problem) => {
                let problem = crate::grpc::status::shown(problem);
                put_varint_field(1, self.sequence, to);
                put_length(3, problem.encoded_len(), to);
                Answer::write(&problem, to);
            }
        }
    }
}

const fn varint_bytes(field: u64) -> usize {
    if field == 0 { 0 } else { 1 + encoded_len_varint(field) }
}

fn put_varint_field(number: u8, value: u64, to: &mut BytesMut) {
    if value != 0 {
        to.put_u8(number << 3);
        encode_varint(value, to);
    }
}

fn put_length(number: u8, length: usize, to: &mut BytesMut) {
    to.put_u8(number << 3 | 2);
    encode_varint(length as u64, to);
}

/// The due time in the parts of the contract, and how many bytes they take.
fn due_parts(scheduled: &Scheduled) -> (u64, u64, usize) {
    let (seconds, nanos) = time::parts(scheduled.due.as_millis());
    let unsigned = |number: i64| u64::try_from(number).unwrap_or_default();
    let (seconds, nanos) = (unsigned(seconds), unsigned(i64::from(nanos)));
    (seconds, nanos, varint_bytes(seconds) + varint_bytes(nanos))
}

fn state_word(scheduled: &Scheduled) -> u64 {
    u64::try_from(state(scheduled.state) as i32).unwrap_or_default()
}

/// The bytes of a `Sent`, without its tag.
fn inner_bytes(scheduled: &Scheduled) -> usize {
    let (.., due_bytes) = due_parts(scheduled);
    let id = scheduled.id.encode().len();
    // Lengths here are far below 128, so each takes one byte.
    2 + id
        + 2
        + due_bytes
        + varint_bytes(state_word(scheduled))
        + if scheduled.duplicate { 2 } else { 0 }
}

/// The bytes of a `Sent` in a `SendResponse`.
fn sent_bytes(scheduled: &Scheduled) -> usize {
    2 + inner_bytes(scheduled)
}

/// Writes a `Sent` as a member of a `SendResponse`.
fn put_sent(scheduled: &Scheduled, to: &mut BytesMut) {
    let id = scheduled.id.encode();
    let (seconds, nanos, due_bytes) = due_parts(scheduled);
    put_length(1, inner_bytes(scheduled), to);
    put_length(1, id.len(), to);
    to.put_slice(&id);
    put_length(2, due_bytes, to);
    put_varint_field(1, seconds, to);
    put_varint_field(2, nanos, to);
    put_varint_field(3, state_word(scheduled), to);
    put_varint_field(4, u64::from(scheduled.duplicate), to);
}

#[cfg(test)]
mod tests;
