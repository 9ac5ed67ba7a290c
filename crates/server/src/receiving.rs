//! Lending messages of a group to a consumer, whichever way it asks.
//!
//! Nothing is lent to somebody who is gone: what was taken and is not sent goes back at once, and
//! that is no failed attempt.

use std::fmt;
use std::sync::Arc;

use punctual_api::Problem;
use punctual_broker::group::{Consumer, Leased};
use punctual_model::ports::GroupError;
use punctual_model::{GroupName, Span, TopicName};
use tokio::time::Instant;

use crate::http::groups::blocking;
use crate::http::page::fitting;
use crate::http::problem::{of_broken_off, of_group};
use crate::http::shared::Shared;
use crate::timings::Via;

/// Most bytes of messages for a consumer while many receive at once.
const SHORT_BYTES_MAX: usize = 256 << 10;
/// Messages taken before it is known how large they are.
const FIRST_MESSAGES: usize = 16;
/// What an answer has beside the content of a message, about.
pub(crate) const FRAME_BYTES: usize = 320;

/// The group, made if it is missing.
pub(crate) async fn open(
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

/// Messages that were taken for somebody. Unless they are sent they go back.
pub(crate) struct Taken {
    shared: Arc<Shared>,
    consumer: Consumer,
    messages: Vec<Leased>,
    via: Via,
    since: Instant,
}

impl fmt::Debug for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taken").field("messages", &self.messages.len()).finish_non_exhaustive()
    }
}

impl Taken {
    /// The topic they are from.
    pub(crate) fn topic(&self) -> &TopicName {
        self.consumer.topic()
    }

    /// What was taken.
    pub(crate) fn messages(&self) -> &[Leased] {
        &self.messages
    }

    /// They are on their way, and stay leased.
    pub(crate) fn sent(mut self) {
        self.messages.clear();
        self.shared.timings.receive.note(self.via, self.since);
    }

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

/// How much a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// Most messages.
    pub(crate) max: usize,
    /// Most bytes of messages, about; a single one may have more.
    pub(crate) bytes_max: usize,
    /// As the group says, if nothing is said.
    pub(crate) lease: Option<Span>,
    /// How it asks.
    pub(crate) via: Via,
    /// When it has asked, or was woken.
    pub(crate) since: Instant,
}

/// Takes messages that are there, and writes them down on the thread that has read them;
/// `None` if there are none. Should the request end meanwhile, the answer is dropped by that thread,
/// and with it the messages go back.
pub(crate) async fn take<T: Send + 'static>(
    shared: &Arc<Shared>,
    consumer: &Consumer,
    wanted: Wanted,
    write: impl FnOnce(&Taken) -> T + Send + 'static,
) -> Result<Option<(Taken, T)>, Problem> {
    let (state, consumer) = (Arc::clone(shared), consumer.clone());
    let work = move || {
        // While many are at it, each gets little, so that messages on their way through do not
        // take all of the memory. What is answered is counted as held later.
        let page = state.pages.try_acquire();
        let bytes = if page.is_ok() { wanted.bytes_max } else { SHORT_BYTES_MAX };
        let lease = wanted.lease.unwrap_or_else(|| consumer.group().settings.lease);
        let Wanted { via, since, .. } = wanted;
        let shared = Arc::clone(&state);
        let mut taken = Taken { shared, consumer, messages: Vec::new(), via, since };
        taken.fill(wanted.max, bytes, lease)?;
        if taken.messages.is_empty() {
            return Ok(None);
        }
        let written = write(&taken);
        Ok(Some((taken, written)))
    };
    shared.tasks.blocking(work).await.map_err(of_broken_off)?.map_err(of_group)
}
