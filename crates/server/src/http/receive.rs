//! Receive: hand messages to a consumer of a group, waiting for the first one if asked to.
//!
//! Nothing is lent to somebody who is gone: what was taken for a request that ended early goes back
//! at once. No wake is lost either: between the wake of a waiter and its take there is no point at
//! which the request could be dropped, because the take is started before anything is awaited.

use std::fmt::Write as _;
use std::future::{pending, ready};
use std::time::Duration;

use punctual_api::consume::{Receive, ReceivedView};
use punctual_api::{Code, Problem};
use punctual_broker::group::Leased;
use punctual_model::limits::{
    JSON_DEPTH_MAX, RECEIVE_MESSAGES_DEFAULT, RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MAX,
};
use punctual_model::{Span, Timestamp, TopicName};
use tokio::time::{Instant, timeout_at};

use crate::http::body;
use crate::http::call::Call;
use crate::http::page::PAGE_BYTES_MAX;
use crate::http::reply::{Reply, large_json_text};
use crate::http::shared::Shared;
use crate::http::socket::Peer;
use crate::http::time;
use crate::receiving::{FRAME_BYTES, Taken, Wanted, open, take};
use crate::shown::content;
use crate::timings::Via;

/// Largest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// What somebody asked for.
#[derive(Clone, Copy, Debug)]
struct Ask {
    max: usize,
    wait: Span,
    /// As the group says, if nothing is said.
    lease: Option<Span>,
}

impl Ask {
    fn read(json: &[u8]) -> Result<Self, Problem> {
        let asked = Receive::read(json, JSON_DEPTH_MAX)?;
        let max = match asked.max {
            None => RECEIVE_MESSAGES_DEFAULT,
            Some(max) => usize::try_from(max)
                .ok()
                .filter(|max| (1..=RECEIVE_MESSAGES_MAX).contains(max))
                .ok_or_else(|| {
                    let detail = format!("max is a whole number from 1 to {RECEIVE_MESSAGES_MAX}");
                    Problem::new(Code::InvalidField, detail)
                })?,
        };
        let bounds = (Span::ZERO, RECEIVE_WAIT_MAX);
        let wait = asked.wait.map(|text| time::span("wait", &text, bounds)).transpose()?;
        let lease = asked.lease.map(|text| time::lease(&text)).transpose()?;
        Ok(Self { max, wait: wait.unwrap_or(Span::ZERO), lease })
    }

    const fn wanted(self, since: Instant) -> Wanted {
        let Self { max, lease, .. } = self;
        Wanted { max, bytes_max: PAGE_BYTES_MAX, lease, via: Via::Http, since }
    }
}

/// `POST …/groups/{group}/receive`
pub(crate) async fn receive(call: Call) -> Result<Reply, Problem> {
    let (topic, group) = call.group_named()?;
    let peer = call.peer.clone();
    let (shared, held) = body::take_json(call, REQUEST_BYTES_MAX).await?;
    let ask = Ask::read(&held.bytes)?;
    // Whoever waits holds no memory.
    drop(held);
    let mut since = Instant::now();
    let consumer = open(&shared, topic, group).await?;
    let deadline = Instant::now() + Duration::from_millis(ask.wait.as_millis());
    loop {
        let available = consumer.available();
        if let Some((taken, text)) = take(&shared, &consumer, ask.wanted(since), render).await? {
            return answer(&shared, taken, text, peer.as_ref()).await;
        }
        if Instant::now() >= deadline {
            return empty(&shared);
        }
        let goes_on = tokio::select! {
            woken = timeout_at(deadline, available) => woken.is_ok(),
            () = shared.tasks.stopped() => false,
            () = gone(peer.as_ref()) => false,
        };
        if !goes_on {
            return empty(&shared);
        }
        since = Instant::now();
    }
}

/// Ends when the other side is gone; never where nobody can tell.
pub(crate) async fn gone(peer: Option<&Peer>) {
    match peer {
        Some(peer) => peer.gone().await,
        None => pending().await,
    }
}

fn empty(shared: &Shared) -> Result<Reply, Problem> {
    large_json_text(shared, b"{\"messages\":[]}".to_vec())
}

/// The answer, unless nobody is there any more or its size is more than may be held.
async fn answer(
    shared: &Shared,
    taken: Taken,
    text: Vec<u8>,
    peer: Option<&Peer>,
) -> Result<Reply, Problem> {
    tokio::select! {
        biased;
        () = gone(peer) => return empty(shared),
        () = ready(()) => {}
    }
    let reply = large_json_text(shared, text)?;
    taken.sent();
    Ok(reply)
}

fn render(taken: &Taken) -> Vec<u8> {
    let messages = taken.messages();
    let bytes: usize = messages.iter().map(|one| one.message.weight() + FRAME_BYTES).sum();
    let mut text = Vec::with_capacity(bytes);
    text.extend_from_slice(b"{\"messages\":[");
    let mut writer = Writer::default();
    for (index, one) in messages.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        writer.write(taken.topic(), one, &mut text);
    }
    text.extend_from_slice(b"]}");
    text
}

/// Writes messages one after the other.
#[derive(Default)]
pub(crate) struct Writer {
    receipt: String,
    due: TimeText,
    delivered_at: TimeText,
}

impl Writer {
    pub(crate) fn write(&mut self, topic: &TopicName, one: &Leased, text: &mut Vec<u8>) {
        self.receipt.clear();
        write!(self.receipt, "{}", one.receipt).expect("writing to a string cannot fail");
        let id = one.id.encode();
        let view = ReceivedView {
            id: std::str::from_utf8(&id).expect("ids are ASCII"),
            receipt: &self.receipt,
            topic: topic.as_str(),
            partition: one.partition.get(),
            offset: one.offset,
            content: content(&one.message),
            due: self.due.of(one.due),
            delivered_at: self.delivered_at.of(one.delivered_at),
            attempt: one.attempt,
        };
        serde_json::to_writer(text, &view).expect("our own shapes have no faults");
    }
}

/// The text of a time; messages that follow each other often have the same.
#[derive(Default)]
struct TimeText {
    time: Option<Timestamp>,
    text: String,
}

impl TimeText {
    fn of(&mut self, time: Timestamp) -> &str {
        if self.time != Some(time) {
            self.time = Some(time);
            self.text.clear();
            write!(self.text, "{time}").expect("writing to a string cannot fail");
        }
        &self.text
    }
}
