//! What a message has been through, carried by the message itself as a trailer of headers.
//!
//! A message that failed, died or was redriven lies in another topic under another id. The trailer
//! says who it was and what happened to it. It is always the same ten headers at the very end, so
//! that headers of the sender stay as they were, even those of the same names. Only the broker
//! writes to the topics in which trailers are read.

use std::str::FromStr;
use std::sync::Arc;

use punctual_model::limits::ERROR_BYTES_MAX;
use punctual_model::{Header, Message, MessageId, Partition, Timestamp, TopicName};

/// Why a message is a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// A consumer said that it will never be able to handle it.
    Rejected,
    /// Its time to live had passed before it could be given out.
    Expired,
    /// More waited than the topic allows.
    Overflow,
    /// Its last attempt failed.
    AttemptsExhausted,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 4] =
        [Self::Rejected, Self::Expired, Self::Overflow, Self::AttemptsExhausted];

    /// The one word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Overflow => "overflow",
            Self::AttemptsExhausted => "attempts_exhausted",
        }
    }

    /// The reason of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

/// Who a message was before it was moved, and what happened to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The id that its sender was told.
    pub id: MessageId,
    /// The topic it was sent to.
    pub topic: TopicName,
    /// The partition it was delivered to.
    pub partition: Partition,
    /// Its offset there.
    pub offset: u64,
    /// When it was due.
    pub due: Timestamp,
    /// When it was delivered.
    pub delivered_at: Timestamp,
    /// Attempts that have failed.
    pub failed: u16,
    /// What went wrong the first time; an empty text counts as none.
    pub first_error: Option<Arc<str>>,
    /// What went wrong the last time; an empty text counts as none.
    pub last_error: Option<Arc<str>>,
    /// Why it is a dead letter, if it is one.
    pub reason: Option<Reason>,
}

/// The headers of the trailer, in their order.
const NAMES: [&str; 10] = [
    "punctual-origin-id",
    "punctual-origin-topic",
    "punctual-origin-partition",
    "punctual-origin-offset",
    "punctual-origin-due",
    "punctual-origin-delivered",
    "punctual-attempts",
    "punctual-first-error",
    "punctual-last-error",
    "punctual-reason",
];

impl History {
    /// Appends the trailer to the headers of `message`.
    pub fn attach(&self, message: &mut Message) {
        let error = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
        let values = [
            self.id.to_string(),
            self.topic.as_str().to_owned(),
            self.partition.get().to_string(),
            self.offset.to_string(),
            self.due.as_millis().to_string(),
            self.delivered_at.as_millis().to_string(),
            self.failed.to_string(),
            error(&self.first_error),
            error(&self.last_error),
            self.reason.map(Reason::word).unwrap_or_default().to_owned(),
        ];
        let trailer = NAMES.into_iter().zip(values);
        message.headers.extend(
            trailer.map(|(name, value)| Header { name: name.to_owned(), value: value.into() }),
        );
    }

    /// Takes the trailer off the headers of `message`. `None`, and the message as it was, when it
    /// has none.
    pub fn detach(message: &mut Message) -> Option<Self> {
        let start = message.headers.len().checked_sub(NAMES.len())?;
        let history = Self::read(message.headers.get(start..)?)?;
        message.headers.truncate(start);
        Some(history)
    }

    /// Takes the history off a message that was read elsewhere and is sent back: its headers may be
    /// in another order by then, and others among them. `None`, and the message as it was, when it
    /// has none.
    pub fn gather(message: &mut Message) -> Option<Self> {
        let mut places = [0; NAMES.len()];
        for (place, name) in places.iter_mut().zip(NAMES) {
            *place = message.headers.iter().rposition(|header| header.name == name)?;
        }
        let trailer: Vec<Header> =
            places.iter().filter_map(|place| message.headers.get(*place)).cloned().collect();
        let history = Self::read(&trailer)?;
        let mut place = 0;
        message.headers.retain(|_| {
            place += 1;
            !places.contains(&(place - 1))
        });
        Some(history)
    }

    fn read(trailer: &[Header]) -> Option<Self> {
        let mut texts = [""; NAMES.len()];
        for ((header, name), text) in trailer.iter().zip(NAMES).zip(&mut texts) {
            if header.name != name {
                return None;
            }
            *text = std::str::from_utf8(&header.value).ok()?;
        }
        let [id, topic, partition, offset, due, delivered, failed, first, last, reason] = texts;
        Some(Self {
            id: id.parse().ok()?,
            topic: TopicName::new(topic).ok()?,
            partition: Partition::new(number(partition)?)?,
            offset: number(offset)?,
            due: Timestamp::from_millis(number(due)?)?,
            delivered_at: Timestamp::from_millis(number(delivered)?)?,
            failed: number(failed)?,
            first_error: some_text(first),
            last_error: some_text(last),
            reason: if reason.is_empty() { None } else { Some(Reason::from_word(reason)?) },
        })
    }
}

/// The text of an error as it is kept with a message: cut to `ERROR_BYTES_MAX`, none if empty.
#[must_use]
pub fn error_text(text: &str) -> Option<Arc<str>> {
    let end = text.floor_char_boundary(ERROR_BYTES_MAX);
    some_text(&text[..end])
}

fn some_text(text: &str) -> Option<Arc<str>> {
    if text.is_empty() { None } else { Some(text.into()) }
}

/// Digits only: the standard parser would take a plus sign too.
fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use punctual_model::{Key, Sequence, TopicId};

    use super::*;

    fn any_error() -> impl Strategy<Value = Option<Arc<str>>> {
        proptest::option::of(".{1,40}".prop_map(|text| Arc::from(text.as_str())))
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (0..=Timestamp::MAX.as_millis()).prop_map(Timestamp::from_millis_saturating)
    }

    fn any_history() -> impl Strategy<Value = History> {
        let place = (any_time(), 0..=Sequence::MAX.get(), 0..=TopicId::MAX.get(), 0..1024u16);
        let reason = proptest::option::of(proptest::sample::select(&Reason::ALL));
        (
            place,
            "[A-Za-z0-9_-]{1,60}",
            (any::<u64>(), any_time(), any_time(), any::<u16>()),
            (any_error(), any_error(), reason),
        )
            .prop_map(|((id_due, sequence, topic, partition), name, numbers, texts)| {
                let partition = Partition::new(partition).unwrap();
                let (offset, due, delivered_at, failed) = numbers;
                let (first_error, last_error, reason) = texts;
                let key = Key { due: id_due, sequence: Sequence::new(sequence).unwrap() };
                History {
                    id: MessageId { key, topic: TopicId::new(topic).unwrap(), partition },
                    topic: TopicName::new(&name).unwrap(),
                    partition,
                    offset,
                    due,
                    delivered_at,
                    failed,
                    first_error,
                    last_error,
                    reason,
                }
            })
    }

    /// Headers of any kind, many of them with the names of the trailer.
    fn any_headers() -> impl Strategy<Value = Vec<Header>> {
        let name =
            prop_oneof![".{0,20}", proptest::sample::select(&NAMES).prop_map(str::to_owned),];
        let value = proptest::collection::vec(any::<u8>(), 0..20);
        let header = (name, value).prop_map(|(name, value)| Header { name, value: value.into() });
        proptest::collection::vec(header, 0..30)
    }

    fn any_message() -> impl Strategy<Value = Message> {
        (proptest::option::of("k{0,3}"), any_headers(), "b{0,9}").prop_map(
            |(key, headers, body)| Message {
                key: key.map(Bytes::from),
                headers,
                body: body.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn a_history_is_gathered_in_whatever_order_it_comes_back(
            history in any_history(),
            mut message in any_message(),
            turns in 0usize..40,
        ) {
            message.headers.retain(|header| !NAMES.contains(&header.name.as_str()));
            let own = message.clone();
            history.attach(&mut message);
            message.headers.push(Header { name: "punctual-id".to_owned(), value: "x".into() });
            let length = message.headers.len();
            message.headers.rotate_left(turns % length);
            prop_assert_eq!(History::gather(&mut message), Some(history));
            let mut left = message.headers;
            left.retain(|header| header.name != "punctual-id");
            let name = |header: &Header| (header.name.clone(), header.value.clone());
            left.sort_by_key(name);
            let mut own = own.headers;
            own.retain(|header| header.name != "punctual-id");
            own.sort_by_key(name);
            prop_assert_eq!(left, own);
        }

        #[test]
        fn a_message_without_a_whole_history_stays_as_it_was(history in any_history(), sent in any_message(), missing in 0..NAMES.len()) {
            let mut message = sent;
            message.headers.retain(|header| !NAMES.contains(&header.name.as_str()));
            history.attach(&mut message);
            message.headers.retain(|header| header.name != NAMES[missing]);
            let before = message.clone();
            prop_assert_eq!(History::gather(&mut message), None);
            prop_assert_eq!(message, before);
        }

        #[test]
        fn a_history_survives_behind_any_headers(history in any_history(), sent in any_message()) {
            let mut message = sent.clone();
            history.attach(&mut message);
            prop_assert_eq!(message.headers.len(), sent.headers.len() + NAMES.len());
            prop_assert_eq!(History::detach(&mut message), Some(history));
            prop_assert_eq!(message, sent);
        }

        #[test]
        fn only_the_last_trailer_counts(
            older in any_history(), newer in any_history(), sent in any_message()
        ) {
            let mut message = sent.clone();
            older.attach(&mut message);
            newer.attach(&mut message);
            prop_assert_eq!(History::detach(&mut message), Some(newer));
            prop_assert_eq!(History::detach(&mut message), Some(older));
            prop_assert_eq!(message, sent);
        }

        #[test]
        fn what_is_no_trailer_is_left_alone(sent in any_message()) {
            let mut message = sent.clone();
            prop_assert_eq!(History::detach(&mut message), None);
            prop_assert_eq!(message, sent);
        }

        #[test]
        fn a_damaged_trailer_is_none(
            history in any_history(),
            place in 0..NAMES.len(),
            value in proptest::collection::vec(any::<u8>(), 0..20),
            damage in 0..4u8,
        ) {
            let mut message = Message::default();
            history.attach(&mut message);
            match damage {
                0 => message.headers[place].name.push('x'),
                1 => drop(message.headers.remove(place)),
                2 if place != 9 => message.headers.swap(place, place + 1),
                _ => message.headers[place].value = value.into(),
            }
            let damaged = message.clone();
            match History::detach(&mut message) {
                // Only another value can be as good as the one before.
                Some(_) => prop_assert!(damage >= 2),
                None => prop_assert_eq!(message, damaged),
            }
        }
    }

    #[test]
    fn hostile_values_are_refused() {
        let name = TopicName::new("orders").unwrap();
        let time = Timestamp::from_millis(1).unwrap();
        let partition = Partition::new(0).unwrap();
        let topic = TopicId::new(1).unwrap();
        let id = MessageId { key: Key::default(), topic, partition };
        let history = History {
            id,
            topic: name,
            partition,
            offset: 1,
            due: time,
            delivered_at: time,
            failed: 1,
            first_error: None,
            last_error: None,
            reason: None,
        };
        let cases: [(usize, &[u8]); 12] = [
            (0, b""),
            (0, b"00000000000000000000000000000001"),
            (1, b""),
            (1, b".."),
            (2, b"1024"),
            (2, b"-1"),
            (3, b"+1"),
            (3, b"18446744073709551616"),
            (4, b"253402300800000"),
            (6, b"65536"),
            (7, b"\xff"),
            (9, b"bored"),
        ];
        for (place, value) in cases {
            let mut message = Message::default();
            history.attach(&mut message);
            message.headers[place].value = Bytes::from_static(value);
            assert_eq!(History::detach(&mut message), None, "{} {value:?}", NAMES[place]);
        }
    }

    #[test]
    fn an_error_is_cut_between_characters() {
        assert_eq!(error_text(""), None);
        assert_eq!(error_text("why").as_deref(), Some("why"));
        let long = "ä".repeat(ERROR_BYTES_MAX);
        assert_eq!(error_text(&long).unwrap().len(), ERROR_BYTES_MAX);
        let odd = format!("x{long}");
        assert_eq!(error_text(&odd).unwrap().len(), ERROR_BYTES_MAX - 1);
    }

    #[test]
    fn words_are_read_back() {
        for reason in Reason::ALL {
            assert_eq!(Reason::from_word(reason.word()), Some(reason));
        }
        assert_eq!(Reason::from_word("Rejected"), None);
    }
}
