//! What is stored of a series: its entry on the timeline carries the message that comes round, and
//! in front of its body what says when.
//!
//! Key and headers of the entry are those of the message, so that a series is found as its messages
//! are. Whatever bytes are stored, reading them answers or refuses, and never panics.

use std::fmt;
use std::num::NonZeroU32;

use bytes::{Buf, BufMut, Bytes, BytesMut, TryGetError};
use punctual_model::{CatchUp, Message, Partition, Span, Timestamp};

use super::rule::{Cron, Every, Rule, RuleError};

/// When a message comes round, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// When.
    pub rule: Rule,
    /// After this many times it ends, whatever became of them.
    pub count: Option<NonZeroU32>,
    /// No time is later than this.
    pub until: Option<Timestamp>,
}

impl Repeat {
    /// For ever by this rule.
    #[must_use]
    pub const fn new(rule: Rule) -> Self {
        Self { rule, count: None, until: None }
    }
}

/// The same text for everything that means the same.
impl fmt::Display for Repeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.rule, f)?;
        if let Some(count) = self.count {
            write!(f, ", {count} times")?;
        }
        if let Some(until) = self.until {
            write!(f, ", until {until}")?;
        }
        Ok(())
    }
}

/// A series and how far it has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) repeat: Repeat,
    /// What becomes of times that are missed, if not as the topic says.
    pub(crate) catch_up: Option<CatchUp>,
    /// Into which partition occurrences go: it was asked for, or has the key; else one after the
    /// other.
    pub(crate) partition: Option<Partition>,
    /// The turn of the first occurrence.
    pub(crate) turn: u64,
    /// The first time: intervals are counted from here.
    pub(crate) start: Timestamp,
    /// How far it has come: the occurrence that is on the timeline.
    pub(crate) place: Place,
}

/// A time of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// When, before the topic adds its jitter.
    pub(crate) time: Timestamp,
    /// Counted from 1.
    pub(crate) number: u64,
}

impl Spec {
    /// What follows a place; `None` when the series ends with it.
    pub(crate) fn after(&self, place: Place) -> Option<Place> {
        if self.repeat.count.is_some_and(|count| place.number >= u64::from(count.get())) {
            return None;
        }
        let time = self.repeat.rule.next(self.start, place.time)?;
        if self.repeat.until.is_some_and(|until| time > until) {
            return None;
        }
        Some(Place { time, number: place.number.saturating_add(1) })
    }

    /// The message of the series' own entry.
    pub(crate) fn encode(&self, template: &Message) -> Message {
        let mut body = BytesMut::with_capacity(FIXED_BYTES + template.body.len());
        body.put_u8(VERSION);
        put_rule(&mut body, &self.repeat.rule);
        body.put_u32_le(self.repeat.count.map_or(0, NonZeroU32::get));
        // No series ends at the epoch.
        body.put_u64_le(self.repeat.until.map_or(0, Timestamp::as_millis));
        put_catch_up(&mut body, self.catch_up);
        body.put_u16_le(self.partition.map_or(IN_TURN, Partition::get));
        body.put_u64_le(self.turn);
        body.put_u64_le(self.start.as_millis());
        body.put_u64_le(self.place.time.as_millis());
        body.put_u64_le(self.place.number);
        body.put_slice(&template.body);
        Message {
            key: template.key.clone(),
            headers: template.headers.clone(),
            body: body.freeze(),
        }
    }

    /// What [`encode`](Self::encode) made, and the message that comes round.
    ///
    /// # Errors
    /// [`SpecError`] for anything else.
    pub(crate) fn decode(stored: &Message) -> Result<(Self, Message), SpecError> {
        let mut bytes = stored.body.clone();
        let version = bytes.try_get_u8()?;
        if version != VERSION {
            return Err(SpecError::Version(version));
        }
        let rule = rule(&mut bytes)?;
        let count = NonZeroU32::new(bytes.try_get_u32_le()?);
        let until = Some(timestamp(&mut bytes)?).filter(|until| *until != Timestamp::MIN);
        let catch_up = catch_up(&mut bytes)?;
        let partition = match bytes.try_get_u16_le()? {
            IN_TURN => None,
            number => Some(Partition::new(number).ok_or(SpecError::Malformed)?),
        };
        let spec = Self {
            repeat: Repeat { rule, count, until },
            catch_up,
            partition,
            turn: bytes.try_get_u64_le()?,
            start: timestamp(&mut bytes)?,
            place: Place { time: timestamp(&mut bytes)?, number: bytes.try_get_u64_le()? },
        };
        let (key, headers) = (stored.key.clone(), stored.headers.clone());
        Ok((spec, Message { key, headers, body: bytes }))
    }
}

/// Why stored bytes are not a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpecError {
    #[error("a series of version {0}, which this broker does not know")]
    Version(u8),
    #[error("damaged")]
    Malformed,
    /// Such as a time zone that this machine does not know any more.
    #[error(transparent)]
    Rule(#[from] RuleError),
}

impl From<TryGetError> for SpecError {
    fn from(_short: TryGetError) -> Self {
        Self::Malformed
    }
}

const VERSION: u8 = 1;
/// No partition has this number.
const IN_TURN: u16 = u16::MAX;
/// About as much as everything but the message takes.
const FIXED_BYTES: usize = 128;

fn put_rule(body: &mut BytesMut, rule: &Rule) {
    match rule {
        Rule::Every(every) => {
            body.put_u8(0);
            body.put_u64_le(every.interval().as_millis());
        }
        Rule::Cron(cron) => {
            body.put_u8(1);
            put_text(body, cron.text());
            put_text(body, cron.zone());
        }
    }
}

fn rule(bytes: &mut Bytes) -> Result<Rule, SpecError> {
    match bytes.try_get_u8()? {
        0 => Ok(Rule::Every(Every::new(Span::from_millis(bytes.try_get_u64_le()?))?)),
        1 => {
            let (text, zone) = (text(bytes)?, text(bytes)?);
            Ok(Rule::Cron(Cron::new(&text, &zone)?))
        }
        _ => Err(SpecError::Malformed),
    }
}

fn put_text(body: &mut BytesMut, text: &str) {
    let length = u16::try_from(text.len()).expect("expressions and names of zones are short");
    body.put_u16_le(length);
    body.put_slice(text.as_bytes());
}

fn text(bytes: &mut Bytes) -> Result<String, SpecError> {
    let length = usize::from(bytes.try_get_u16_le()?);
    if length > bytes.len() {
        return Err(SpecError::Malformed);
    }
    let text = bytes.split_to(length);
    String::from_utf8(text.to_vec()).map_err(|_no_text| SpecError::Malformed)
}

fn put_catch_up(body: &mut BytesMut, catch_up: Option<CatchUp>) {
    let (kind, span) = match catch_up {
        None => (0, Span::ZERO),
        Some(CatchUp::All) => (1, Span::ZERO),
        Some(CatchUp::Spread(span)) => (2, span),
        Some(CatchUp::SkipOlder(span)) => (3, span),
        Some(CatchUp::Latest) => (4, Span::ZERO),
    };
    body.put_u8(kind);
    body.put_u64_le(span.as_millis());
}

fn catch_up(bytes: &mut Bytes) -> Result<Option<CatchUp>, SpecError> {
    let (kind, span) = (bytes.try_get_u8()?, Span::from_millis(bytes.try_get_u64_le()?));
    Ok(match kind {
        0 => None,
        1 => Some(CatchUp::All),
        2 => Some(CatchUp::Spread(span)),
        3 => Some(CatchUp::SkipOlder(span)),
        4 => Some(CatchUp::Latest),
        _ => return Err(SpecError::Malformed),
    })
}

fn timestamp(bytes: &mut Bytes) -> Result<Timestamp, SpecError> {
    Timestamp::from_millis(bytes.try_get_u64_le()?).ok_or(SpecError::Malformed)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use punctual_model::Header;

    use super::*;

    fn any_rule() -> impl Strategy<Value = Rule> {
        prop_oneof![
            (1000u64..u64::MAX).prop_map(|millis| Rule::every(Span::from_millis(millis)).unwrap()),
            (0..60u8, 0..24u8).prop_map(|(minute, hour)| {
                Rule::cron(&format!("{minute} {hour} * * MON"), Some("Europe/Berlin")).unwrap()
            }),
        ]
    }

    fn any_catch_up() -> impl Strategy<Value = Option<CatchUp>> {
        (0..5u8, any::<u64>()).prop_map(|(kind, millis)| match kind {
            0 => None,
            1 => Some(CatchUp::All),
            2 => Some(CatchUp::Spread(Span::from_millis(millis))),
            3 => Some(CatchUp::SkipOlder(Span::from_millis(millis))),
            _ => Some(CatchUp::Latest),
        })
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        (1..=Timestamp::MAX.as_millis()).prop_map(|millis| Timestamp::from_millis(millis).unwrap())
    }

    fn any_spec() -> impl Strategy<Value = Spec> {
        let repeat = (any_rule(), any::<u32>(), proptest::option::of(any_time()))
            .prop_map(|(rule, count, until)| Repeat { rule, count: NonZeroU32::new(count), until });
        let partition = proptest::option::of(0..1024u16);
        let state = (any::<u64>(), any_time(), any_time(), any::<u64>());
        (repeat, any_catch_up(), partition, state).prop_map(
            |(repeat, catch_up, partition, (turn, start, time, number))| Spec {
                repeat,
                catch_up,
                partition: partition.and_then(Partition::new),
                turn,
                start,
                place: Place { time, number },
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            spec in any_spec(),
            key in proptest::option::of(any::<Vec<u8>>()),
            body in any::<Vec<u8>>(),
        ) {
            let header = Header { name: "a".to_owned(), value: Bytes::from_static(b"b") };
            let key = key.map(Bytes::from);
            let template = Message { key, headers: vec![header], body: body.into() };
            prop_assert_eq!(Spec::decode(&spec.encode(&template)), Ok((spec, template)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in any::<Vec<u8>>()) {
            let stored = Message { body: bytes.into(), ..Message::default() };
            if let Ok((spec, _)) = Spec::decode(&stored) {
                prop_assert!(spec.after(spec.place).is_none_or(|place| !place.time.is_parked()));
            }
        }

        #[test]
        fn damage_never_panics(spec in any_spec(), place in any::<usize>(), byte in any::<u8>()) {
            let mut body = spec.encode(&Message::default()).body.to_vec();
            let place = place % body.len();
            body[place] = byte;
            body.truncate(body.len() - place % 3);
            let stored = Message { body: body.into(), ..Message::default() };
            if let Ok((spec, _)) = Spec::decode(&stored) {
                prop_assert!(spec.after(spec.place).is_none_or(|place| !place.time.is_parked()));
            }
        }
    }

    #[test]
    fn a_newer_version_is_refused() {
        let stored = Message { body: Bytes::from_static(&[2, 0, 0]), ..Message::default() };
        assert_eq!(Spec::decode(&stored), Err(SpecError::Version(2)));
    }

    #[test]
    fn count_and_until_end_it() {
        let time = |secs: u64| Timestamp::from_millis(secs * 1000).unwrap();
        let rule = Rule::every(Span::from_secs(10)).unwrap();
        let repeat = Repeat::new(rule);
        let place = Place { time: time(5), number: 1 };
        let mut spec =
            Spec { repeat, catch_up: None, partition: None, turn: 0, start: time(5), place };
        let second = Some(Place { time: time(15), number: 2 });
        assert_eq!(spec.after(place), second);
        spec.repeat.count = NonZeroU32::new(2);
        assert_eq!(spec.after(place), second);
        assert_eq!(second.and_then(|second| spec.after(second)), None);
        spec.repeat.until = Some(time(15));
        assert_eq!(spec.after(place), second);
        spec.repeat.until = Timestamp::from_millis(14_999);
        assert_eq!(spec.after(place), None);
    }

    #[test]
    fn the_text_of_a_repeat_says_all_of_it() {
        let mut repeat = Repeat::new(Rule::every(Span::from_secs(60)).unwrap());
        assert_eq!(repeat.to_string(), "every 1m");
        repeat.count = NonZeroU32::new(3);
        repeat.until = Timestamp::from_millis(0);
        assert_eq!(repeat.to_string(), "every 1m, 3 times, until 1970-01-01T00:00:00.000Z");
    }
}
