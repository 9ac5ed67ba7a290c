//! An open message: read by the group and not settled.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use punctual_model::group::{Mark, Note};
use punctual_model::ports::Delivered;
use punctual_model::{Header, Message, MessageId, Partition, Span, Timestamp, TopicName};

use super::history::History;
use super::{ATTEMPTS_HEADER, TTL_HEADER};

/// Who a message is, however often it has gone round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) id: MessageId,
    /// The topic it was sent to, where that is not the topic of the group itself.
    pub(crate) topic: Option<TopicName>,
    pub(crate) partition: Partition,
    pub(crate) offset: u64,
    pub(crate) due: Timestamp,
    pub(crate) delivered_at: Timestamp,
}

/// What is known of a message's failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failures {
    /// Attempts that have failed.
    pub(crate) failed: u16,
    pub(crate) first_error: Option<Arc<str>>,
    pub(crate) last_error: Option<Arc<str>>,
}

impl Failures {
    /// One attempt more has failed.
    pub(crate) fn add(&mut self, error: Option<Arc<str>>) {
        self.failed = self.failed.saturating_add(1);
        if self.first_error.is_none() {
            self.first_error.clone_from(&error);
        }
        self.last_error = error;
    }

    /// What is stored of them with a message that stays where it is.
    pub(crate) fn note(&self, not_before: Timestamp) -> Note {
        Note {
            failed: self.failed,
            not_before,
            first_error: self.first_error.clone(),
            last_error: self.last_error.clone(),
        }
    }
}

/// The time for which a message is with somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// Whoever knows it holds the message.
    pub(crate) nonce: u64,
    /// When it runs out, on the monotonic clock.
    pub(crate) deadline: Duration,
}

/// Where an open message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// To be given out.
    Ready,
    /// Behind an earlier message with the same key.
    Held,
    /// Until its time has come.
    Waiting,
    /// With a consumer.
    Leased(Lease),
    /// What becomes of it is on its way to the disk.
    Settling(Lease),
}

/// An open message.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    pub(crate) mark: Mark,
    pub(crate) identity: Identity,
    pub(crate) failures: Failures,
    /// How many attempts it is worth, if it says so itself.
    pub(crate) attempts_max: Option<u16>,
    /// From then on it is not given out.
    pub(crate) expires: Timestamp,
    /// Not to be given out before.
    pub(crate) not_before: Timestamp,
    /// The hash of its key, where that keeps it in order.
    pub(crate) key: Option<u64>,
    /// What was sent, unless it is to be read again.
    pub(crate) content: Option<Box<Message>>,
    /// The size of the content, wherever it is.
    pub(crate) bytes: usize,
    pub(crate) state: State,
}

impl Open {
    /// A message as it was read. Its content is copied, or it would keep all that was read with it
    /// in memory.
    pub(crate) fn new(delivered: Delivered, note: Option<Note>, retried: bool) -> Self {
        let Delivered { id, offset, due, delivered_at, mut message } = delivered;
        let mark = Mark { offset, sequence: id.key.sequence };
        let history = if retried { History::detach(&mut message) } else { None };
        let (identity, mut failures) = match history {
            Some(history) => split(history),
            None => {
                let (topic, partition) = (None, id.partition);
                let identity = Identity { id, topic, partition, offset, due, delivered_at };
                (identity, Failures::default())
            }
        };
        let mut not_before = Timestamp::MIN;
        if let Some(note) = note {
            let Note { failed, first_error, last_error, .. } = note;
            not_before = note.not_before;
            failures = Failures { failed, first_error, last_error };
        }
        let ttl = number(&message, TTL_HEADER).map(Span::from_millis);
        Self {
            mark,
            failures,
            attempts_max: attempts_max(&message),
            expires: ttl.map_or(Timestamp::MAX, |ttl| identity.due.saturating_add(ttl)),
            not_before,
            identity,
            key: None,
            bytes: message.weight(),
            content: Some(Box::new(copied(&message))),
            state: State::Ready,
        }
    }

    /// Bytes of content that it keeps in memory.
    pub(crate) fn kept(&self) -> usize {
        if self.content.is_some() { self.bytes } else { 0 }
    }
}

fn split(history: History) -> (Identity, Failures) {
    let History { id, topic, partition, offset, due, delivered_at, .. } = history;
    let identity = Identity { id, topic: Some(topic), partition, offset, due, delivered_at };
    let History { failed, first_error, last_error, .. } = history;
    (identity, Failures { failed, first_error, last_error })
}

/// How many attempts a message is worth, if it says so itself.
pub(crate) fn attempts_max(message: &Message) -> Option<u16> {
    let attempts = number(message, ATTEMPTS_HEADER).filter(|attempts| *attempts > 0)?;
    Some(u16::try_from(attempts).unwrap_or(u16::MAX))
}

/// The number in the last header of that name; the broker puts its own behind those of the sender.
fn number(message: &Message, name: &str) -> Option<u64> {
    let header = message.headers.iter().rev().find(|header| header.name == name)?;
    std::str::from_utf8(&header.value).ok()?.parse().ok()
}

/// The message in one piece of memory of its own.
pub(crate) fn copied(message: &Message) -> Message {
    let mut whole = BytesMut::with_capacity(message.weight());
    let mut part = |bytes: &[u8]| -> Bytes {
        whole.extend_from_slice(bytes);
        whole.split().freeze()
    };
    Message {
        key: message.key.as_deref().map(&mut part),
        headers: message
            .headers
            .iter()
            .map(|Header { name, value }| Header { name: name.clone(), value: part(value) })
            .collect(),
        body: part(&message.body),
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::{Key, Sequence, TopicId};

    use super::*;

    fn header(name: &str, value: &str) -> Header {
        Header { name: name.to_owned(), value: value.to_owned().into() }
    }

    fn delivered(headers: Vec<Header>) -> Delivered {
        let due = Timestamp::from_millis(1000).unwrap();
        let key = Key { due, sequence: Sequence::new(7).unwrap() };
        let (topic, partition) = (TopicId::new(1).unwrap(), Partition::new(2).unwrap());
        let message = Message { key: Some("k".into()), headers, body: "body".into() };
        let id = MessageId { key, topic, partition };
        Delivered { id, offset: 5, due, delivered_at: due, message }
    }

    #[test]
    fn the_last_header_of_a_name_counts_and_nonsense_does_not() {
        let open = |headers| Open::new(delivered(headers), None, false);
        let limits = |open: Open| (open.expires.as_millis(), open.attempts_max);
        let never = Timestamp::MAX.as_millis();
        assert_eq!(limits(open(vec![])), (never, None));
        let twice = vec![header(TTL_HEADER, "5"), header(TTL_HEADER, "50")];
        assert_eq!(limits(open(twice)), (1050, None));
        assert_eq!(limits(open(vec![header(TTL_HEADER, "soon")])), (never, None));
        let attempts = |text| limits(open(vec![header(ATTEMPTS_HEADER, text)])).1;
        assert_eq!(["3", "0", "-1", "99999"].map(attempts), [Some(3), None, None, Some(u16::MAX)]);
    }

    #[test]
    fn what_came_back_has_its_first_identity_and_its_failures() {
        let mut first = delivered(vec![header("a", "b")]);
        let sent = first.message.clone();
        let history = History {
            id: first.id,
            topic: TopicName::new("orders").unwrap(),
            partition: Partition::new(9).unwrap(),
            offset: 77,
            due: Timestamp::from_millis(10).unwrap(),
            delivered_at: Timestamp::from_millis(20).unwrap(),
            failed: 3,
            first_error: Some("one".into()),
            last_error: Some("three".into()),
            reason: None,
        };
        history.attach(&mut first.message);
        let open = Open::new(first.clone(), None, true);
        assert_eq!(open.content.as_deref(), Some(&sent));
        assert_eq!((open.identity.offset, open.mark.offset, open.failures.failed), (77, 5, 3));
        let note = Note { failed: 4, ..Note::default() };
        assert_eq!(Open::new(first.clone(), Some(note), true).failures.failed, 4);
        let untouched = Open::new(first.clone(), None, false);
        assert_eq!(untouched.content.as_deref(), Some(&first.message));
    }
}
