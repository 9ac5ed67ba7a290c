//! Following single messages on their way: accepted, fired, in the hands of a consumer, settled.
//!
//! Whoever follows is not known here. A message that is followed carries the header
//! [`FOLLOWED_HEADER`]; without a [`Watch`] nobody looks for it, and with one nobody else is
//! followed after it was accepted. A watch must not block: it is called where messages move.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use punctual_model::ports::{Armed, Timeline};
use punctual_model::{GroupName, Message, MessageId, Timestamp, TopicName, limits};

use crate::broker::Broker;
use crate::group::{Leased, NackOutcome, Receipt};
use crate::schedule::{Request, Scheduled};

/// The header of a message that is followed.
pub const FOLLOWED_HEADER: &str = "traceparent";
/// Headers, and bytes of them, that whoever follows a message may add to it.
const HEADERS_ADDED_MAX: usize = 2;
const HEADER_BYTES_ADDED_MAX: usize = 1024;

/// Told at the end how a message was accepted; not at all when it was not.
pub type Accepting = Box<dyn FnOnce(Accepted) + Send>;

/// Follows messages. Times are those of the wall clock, since the epoch.
pub trait Watch: fmt::Debug + Send + Sync + 'static {
    /// A message is about to be stored. Whoever wants to follow it leaves at most two headers of
    /// together a KiB on it, of which one is the [`FOLLOWED_HEADER`].
    fn accepting(
        &self,
        topic: &TopicName,
        message: &mut Message,
        at: Duration,
    ) -> Option<Accepting>;

    /// A message that is followed has fired and is in its topic.
    fn fired(&self, fired: &Fired<'_>);

    /// A message that is followed goes to a consumer, who sees the headers as they are afterwards.
    fn leased(&self, leased: &mut Leased, leasing: &Leasing<'_>);

    /// Leases have a new length. Also told of messages that nobody follows.
    fn extended(&self, receipts: &[Receipt], until: Duration);

    /// A consumer is done with a message. Also told of messages that nobody follows.
    fn settled(&self, receipt: Receipt, settled: Settled);
}

/// How a message was accepted.
#[derive(Clone, Copy, Debug)]
pub struct Accepted {
    /// What came of it.
    pub scheduled: Scheduled,
    /// When it was on disk.
    pub at: Duration,
}

/// A message that has fired.
#[derive(Clone, Copy, Debug)]
pub struct Fired<'a> {
    /// Its id.
    pub id: MessageId,
    /// The topic it is in now; `None` if that was deleted meanwhile.
    pub topic: Option<&'a TopicName>,
    /// What was sent.
    pub message: &'a Message,
    /// When it was due.
    pub due: Timestamp,
    /// When its turn came.
    pub began: Duration,
    /// When it was in its topic.
    pub ended: Duration,
    /// How long after its due time that was.
    pub lateness: Duration,
}

/// Who takes a message, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Leasing<'a> {
    /// The topic.
    pub topic: &'a TopicName,
    /// The group.
    pub group: &'a GroupName,
    /// When.
    pub at: Duration,
    /// Until when.
    pub until: Duration,
}

/// How a consumer is done with a message.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// What became of it.
    pub outcome: Outcome,
    /// When that was asked for.
    pub began: Duration,
    /// When it was on disk.
    pub ended: Duration,
}

/// What became of a message in the hands of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The consumer is done with it.
    Acked,
    /// The consumer failed, and it comes again.
    Requeued,
    /// The consumer failed, and it is a dead letter.
    Dead,
    /// Nobody looked at it.
    Released,
}

impl Outcome {
    /// What a nack came to; `None` if there was nothing to give back.
    pub(crate) const fn of_nack(outcome: NackOutcome) -> Option<Self> {
        match outcome {
            NackOutcome::Requeued => Some(Self::Requeued),
            NackOutcome::Dead => Some(Self::Dead),
            NackOutcome::NotHeld => None,
        }
    }
}

/// Whether somebody follows the message.
pub(crate) fn is_followed(message: &Message) -> bool {
    message.headers.iter().any(|header| header.name == FOLLOWED_HEADER)
}

/// Those who are to be told what became of the messages of a batch, each at its place.
#[derive(Default)]
pub(crate) struct Acceptance(Vec<Option<Accepting>>);

impl Acceptance {
    /// Tells them.
    pub(crate) fn done(self, scheduled: &[Scheduled], at: impl FnOnce() -> Duration) {
        if self.0.is_empty() {
            return;
        }
        let at = at();
        for (accepting, scheduled) in self.0.into_iter().zip(scheduled) {
            if let Some(accepting) = accepting {
                accepting(Accepted { scheduled: *scheduled, at });
            }
        }
    }
}

impl<T: Timeline> Broker<T> {
    /// Lets whoever follows messages mark those of a batch that is about to be stored. Their
    /// fingerprints must have been taken: a mark is no part of what a sender asked for.
    pub(crate) fn watch(&self, topic: &TopicName, requests: &mut [Request]) -> Acceptance {
        let mut acceptance = Acceptance::default();
        for request in requests.iter_mut().take_while(|_| self.shared.options.watch.is_some()) {
            self.watch_one(topic, request, &mut acceptance);
        }
        acceptance
    }

    /// The same for one message, after those that are there.
    pub(crate) fn watch_one(
        &self,
        topic: &TopicName,
        request: &mut Request,
        acceptance: &mut Acceptance,
    ) {
        let Some(watch) = &self.shared.options.watch else { return };
        let message = &mut request.message;
        let room = message.headers.len() + HEADERS_ADDED_MAX <= limits::HEADERS_MAX
            && message.header_bytes() + HEADER_BYTES_ADDED_MAX <= limits::HEADER_BYTES_MAX;
        // The fingerprint of a series is taken only when it is opened.
        let printed = request.own_id.is_none() || request.repeat.is_none();
        let accepting = if room && printed {
            watch.accepting(topic, message, self.shared.time.read().wall)
        } else {
            None
        };
        acceptance.0.push(accepting);
    }
}

/// Tells of what has fired.
pub(crate) fn tell_fired(
    watch: &Arc<dyn Watch>,
    batch: &[Armed],
    name: impl Fn(&Armed) -> Option<TopicName>,
    (began, ended): (Duration, Duration),
    lateness: impl Fn(&Armed) -> Duration,
) {
    for armed in batch.iter().filter(|armed| is_followed(&armed.message)) {
        watch.fired(&Fired {
            id: armed.id(),
            topic: name(armed).as_ref(),
            message: &armed.message,
            due: armed.key.due,
            began,
            ended,
            lateness: lateness(armed),
        });
    }
}
