//! Receive: hand messages to a consumer of a group, waiting for the first one if asked to.
//!
//! Nothing is lent to somebody who is gone: what was taken for a request that ended early goes back
//! at once. No wake is lost either: between the wake of a waiter and its take there is no point at
//! which the request could be dropped, because the take is started before anything is awaited.

use std::fmt::Write as _;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use punctual_api::consume::{Receive, ReceivedView};
use punctual_api::{Code, Problem};
use punctual_broker::group::{Consumer, Leased};
use punctual_model::limits::{
    JSON_DEPTH_MAX, RECEIVE_MESSAGES_DEFAULT, RECEIVE_MESSAGES_MAX, RECEIVE_WAIT_MAX,
};
use punctual_model::ports::GroupError;
use punctual_model::{GroupName, Span, Timestamp, TopicName};
use tokio::time::{Instant, timeout_at};

use crate::http::body;
use crate::http::groups::blocking;
use crate::http::page::{PAGE_BYTES_MAX, fitting};
use crate::http::problem::{of_broken_off, of_group};
use crate::http::reply::{Reply, large_json_text};
use crate::http::call::Call;
use crate::http::shared::Shared;
use crate::http::socket::Peer;
use crate::http::time;
use crate::shown::content;

/// Largest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// Most bytes of messages for a consumer while many receive at once.
const SHORT_BYTES_MAX: usize = 256 << 10;
/// Messages taken before it is known how large they are.
const FIRST_MESSAGES: usize = 16;
/// What an answer has beside the content of a message, about.
const FRAME_BYTES: usize = 320;

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
}

/// `POST …/groups/{group}/receive`
pub(crate) async fn receive(call: Call) -> Result<Reply, Problem> {
    let (topic, group) = call.group_named()?;
    let peer = call.peer.clone();
    let (shared, held) = body::take_json(call, REQUEST_BYTES_MAX).await?;
    let ask = Ask::read(&held.bytes)?;
    // Whoever waits holds no memory.
    drop(held);
    let consumer = open(&shared, topic, group).await?;
    let deadline = Instant::now() + Duration::from_millis(ask.wait.as_millis());
    loop {
        let available = consumer.available();
        if let Some(taken) = take(&shared, &consumer, ask).await? {
            return answer(&shared, taken, peer.as_ref()).await;
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
    }
}

/// The group, made if it is missing.
async fn open(
    shared: &Arc<Shared>,
    topic: TopicName,
    group: GroupName,
) -> Result<Consumer, Problem> {
    let consumers = shared.broker.consumers();
    match consumers.find(&topic, &group) {
        Ok(consumer) => Ok(consumer),
        Err(GroupError::NotFound | GroupError::TopicNotFound) => {
            let consumers = consumers.clone();
            blocking(shared, move || consumers.open(&topic, &group)).await
        }
        Err(other) => Err(of_group(other)),
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

/// Messages that were taken for a request. Unless they are sent they go back.
struct Taken {
    consumer: Consumer,
    messages: Vec<Leased>,
    text: Vec<u8>,
}

impl Taken {
    /// Takes up to `max` messages of about `bytes` in all, at least one. How large they are shows
    /// only when they are there, so a few are looked at first; what is too much goes back.
    fn fill(&mut self, max: usize, bytes: usize, lease: Span) -> Result<(), GroupError> {
        let mut weight = 0;
        while self.messages.len() < max && weight < bytes {
            let left = max - self.messages.len();
            let step = match self.messages.len() {
                0 => FIRST_MESSAGES,
                count => (bytes - weight) / (weight / count).max(1) + 1,
            };
            let step = step.min(left);
            let more = match self.consumer.take(step, lease) {
                Err(_later) if !self.messages.is_empty() => return Ok(()),
                taken => taken?,
            };
            let is_last = more.len() < step;
            weight += more.iter().map(|one| one.message.weight() + FRAME_BYTES).sum::<usize>();
            self.messages.extend(more);
            if is_last {
                break;
            }
        }
        let shown = fitting(self.messages.iter().map(|one| &one.message), bytes);
        self.give_back(shown);
        Ok(())
    }

    /// Gives back what comes from that place on.
    fn give_back(&mut self, from: usize) {
        let receipts: Vec<_> = self.messages.drain(from..).map(|one| one.receipt).collect();
        if !receipts.is_empty() {
            // One that has run out meanwhile is back already.
            let _held = self.consumer.release(&receipts);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.give_back(0);
    }
}

/// Takes what is there, and writes it down on the thread that has read it. Should the request end
/// meanwhile, the answer is dropped by that thread, and with it the messages go back.
async fn take(
    shared: &Arc<Shared>,
    consumer: &Consumer,
    ask: Ask,
) -> Result<Option<Taken>, Problem> {
    let (state, consumer) = (Arc::clone(shared), consumer.clone());
    let work = move || {
        // While many are at it, each gets little, so that messages on their way through do not
        // take all of the memory. What is answered is counted as held later.
        let page = state.pages.try_acquire();
        let bytes = if page.is_ok() { PAGE_BYTES_MAX } else { SHORT_BYTES_MAX };
        let lease = ask.lease.unwrap_or_else(|| consumer.group().settings.lease);
        let mut taken = Taken { consumer, messages: Vec::new(), text: Vec::new() };
        taken.fill(ask.max, bytes, lease)?;
        if taken.messages.is_empty() {
            return Ok(None);
        }
        taken.text = render(taken.consumer.topic(), &taken.messages);
        Ok(Some(taken))
    };
    shared.tasks.blocking(work).await.map_err(of_broken_off)?.map_err(of_group)
}

/// The answer, unless nobody is there any more or its size is more than may be held.
async fn answer(shared: &Shared, mut taken: Taken, peer: Option<&Peer>) -> Result<Reply, Problem> {
    tokio::select! {
        biased;
        () = gone(peer) => return empty(shared),
        () = ready(()) => {}
    }
    let reply = large_json_text(shared, std::mem::take(&mut taken.text))?;
    taken.messages.clear();
    Ok(reply)
}

fn render(topic: &TopicName, messages: &[Leased]) -> Vec<u8> {
    let bytes: usize = messages.iter().map(|one| one.message.weight() + FRAME_BYTES).sum();
    let mut text = Vec::with_capacity(bytes);
    text.extend_from_slice(b"{\"messages\":[");
    let mut receipt = String::new();
    let (mut due, mut delivered_at) = (TimeText::default(), TimeText::default());
    for (index, one) in messages.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        receipt.clear();
        write!(receipt, "{}", one.receipt).expect("writing to a string cannot fail");
        let id = one.id.encode();
        let view = ReceivedView {
            id: std::str::from_utf8(&id).expect("ids are ASCII"),
            receipt: &receipt,
            topic: topic.as_str(),
            partition: one.partition.get(),
            offset: one.offset,
            content: content(&one.message),
            due: due.of(one.due),
            delivered_at: delivered_at.of(one.delivered_at),
            attempt: one.attempt,
        };
        serde_json::to_writer(&mut text, &view).expect("our own shapes have no faults");
    }
    text.extend_from_slice(b"]}");
    text
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
