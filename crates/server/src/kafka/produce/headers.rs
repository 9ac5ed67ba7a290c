//! What the headers of a record ask the broker for.
//!
//! Names that begin with `punctual-` are the broker's own: those that ask for something are listed
//! here, those that the broker itself put on a record when it delivered it are taken off, and any
//! other is refused, so that a misspelt delay is never lost in silence. A few names that other
//! schedulers use mean the same as ours. `DELAY` is a word that anybody may use for anything: it
//! counts only where its value is the number of a level.
//!
//! Whatever is not listed here passes through as it is.

use std::sync::Arc;

use bytes::Bytes;
use punctual_broker::group::{ATTEMPTS_HEADER, TTL_HEADER};
use punctual_broker::{CATCH_UP_HEADER, Cancel, Request, When};
use punctual_kafka_wire::records::Record;
use punctual_model::limits::DELAY_CEILING;
use punctual_model::{Header, Message, MessageId, Partition, Span, Timestamp};

const OURS: &[u8] = b"punctual-";
/// Marks a message whose value is nothing at all; the log writes it so again.
const NULL_HEADER: &str = "punctual-null";
/// The number of the last delay level.
const LEVEL_LAST: u64 = 18;
/// Of a value that is refused, no more than this is shown.
const SHOWN_CHARS: usize = 40;

/// What a header means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// A delay, as text.
    Delay,
    /// A delay in milliseconds.
    DelayMillis,
    /// A time, as text.
    At,
    /// A time in milliseconds.
    AtMillis,
    /// A time in seconds.
    AtSeconds,
    /// A delay level.
    Level,
    /// The name that its sender gives it.
    Id,
    /// How long it may still be given to a group.
    Ttl,
    /// Which message is withdrawn.
    Cancel,
    /// The broker said so of an earlier delivery.
    Stamp,
    /// Ours, and kept with the message.
    Kept,
    /// Ours, but not known.
    Unknown,
}

/// The meaning of a header; `None` for one that is none of our business.
fn meaning(name: &[u8], value: Option<&[u8]>) -> Option<Means> {
    Some(match name {
        b"x-delay" | b"TIMER_DELAY_MS" => Means::DelayMillis,
        b"x-deliver-at" => Means::At,
        b"TIMER_DELIVER_MS" => Means::AtMillis,
        b"scheduler-epoch" => Means::AtSeconds,
        b"DELAY" => return is_level(value).then_some(Means::Level),
        _ => own_meaning(std::str::from_utf8(name.strip_prefix(OURS)?).unwrap_or_default(), value),
    })
}

/// The meaning of a name of ours, without what they all begin with.
fn own_meaning(name: &str, value: Option<&[u8]>) -> Means {
    match name {
        "delay" => Means::Delay,
        "deliver-at" => Means::At,
        "delay-level" => Means::Level,
        // An id that the broker gave is the stamp of an earlier delivery.
        "id" if value.is_some_and(|id| MessageId::try_from(id).is_ok()) => Means::Stamp,
        "id" => Means::Id,
        "ttl" => Means::Ttl,
        "cancel" => Means::Cancel,
        "max-attempts" | "catch-up" => Means::Kept,
        "due" | "own-id" | "series" | "null" | "attempts" | "first-error" | "last-error"
        | "reason" | "app" => Means::Stamp,
        name if name.starts_with("origin-") => Means::Stamp,
        _ => Means::Unknown,
    }
}

fn is_level(value: Option<&[u8]>) -> bool {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(digits).is_some_and(|level| (1..=LEVEL_LAST).contains(&level))
}

/// Whether a record asks for anything, or has stamps to be taken off.
pub(super) fn touches(record: &Record<'_>) -> bool {
    // Most names are told apart by their first character.
    let may = |name: &[u8]| matches!(name.first(), Some(b'p' | b'x' | b'T' | b's' | b'D'));
    record.headers().any(|(name, value)| may(name) && meaning(name, value).is_some())
}

/// What a record asks for.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one, and soon moved on")]
pub(crate) enum Asked {
    /// To be delivered.
    Schedule(Request),
    /// That a message is withdrawn.
    Cancel(Cancel),
}

/// What a record asks for, and the message without the headers that did.
///
/// # Errors
/// What is wrong, and what to do about it.
pub(super) fn asked(record: &Record<'_>) -> Result<Asked, String> {
    asked_by(record.headers(), record.key, record.value)
}

/// The same of a record in parts.
///
/// # Errors
/// What is wrong, and what to do about it.
pub(crate) fn asked_by<'a>(
    headers: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Result<Asked, String> {
    let mut found = Found::default();
    for (name, value) in headers {
        match meaning(name, value) {
            Some(Means::Stamp) => {}
            None | Some(Means::Kept) => found.keep(name, value)?,
            Some(means) => found.read(means, name, value)?,
        }
    }
    match found.cancel.take() {
        Some(cancel) => found.cancelled(value, cancel),
        None => Ok(found.scheduled(key, value)),
    }
}

/// What the headers of a record say, as far as they were read.
#[derive(Default)]
struct Found<'a> {
    /// The time, and the header that names it.
    when: Option<(When, &'a [u8])>,
    own_id: Option<Arc<str>>,
    ttl: Option<Span>,
    cancel: Option<Cancel>,
    headers: Vec<Header>,
}

impl<'a> Found<'a> {
    fn keep(&mut self, name: &[u8], value: Option<&[u8]>) -> Result<(), String> {
        let name = std::str::from_utf8(name)
            .map_err(|_not_text| "names of headers are UTF-8 text".to_owned())?;
        let value = Bytes::copy_from_slice(value.unwrap_or_default());
        self.headers.push(Header { name: name.to_owned(), value });
        Ok(())
    }

    fn read(&mut self, means: Means, header: &'a [u8], value: Option<&[u8]>) -> Result<(), String> {
        let name = String::from_utf8_lossy(header);
        if means == Means::Unknown {
            return Err(unknown(&name));
        }
        let value = value.ok_or_else(|| format!("{name} has no value"))?;
        let text = std::str::from_utf8(value).map_err(|_not_text| format!("{name} is no text"))?;
        let refused = |form: &str| format!("{name} is {form}, not {}", shown(text));
        let when = match means {
            Means::Delay => {
                let form = "a duration such as 30s or a number of milliseconds";
                When::After(text.parse().map_err(|_malformed| refused(form))?)
            }
            Means::DelayMillis => {
                let millis = digits(text).ok_or_else(|| refused("a number of milliseconds"))?;
                When::After(Span::from_millis(millis))
            }
            Means::At => {
                let form = "a time such as 2030-01-31T08:00:00Z or in milliseconds since 1970";
                When::At(text.parse().map_err(|_malformed| refused(form))?)
            }
            Means::AtMillis | Means::AtSeconds => {
                let unit = if means == Means::AtSeconds { 1000 } else { 1 };
                let millis = digits(text).and_then(|number| number.checked_mul(unit));
                let date = millis.and_then(Timestamp::from_millis);
                let form = if unit == 1 { "milliseconds" } else { "seconds" };
                When::At(date.ok_or_else(|| refused(&format!("a time in {form} since 1970")))?)
            }
            Means::Level => {
                When::Level(digits(text).ok_or_else(|| refused("a level from 1 to 18"))?)
            }
            Means::Id => return self.name(text),
            Means::Ttl => return self.live(text, &refused),
            Means::Cancel => return self.withdraw(text),
            Means::Stamp | Means::Kept | Means::Unknown => return Ok(()),
        };
        self.time(when, header)
    }

    fn time(&mut self, when: When, header: &'a [u8]) -> Result<(), String> {
        match self.when {
            Some((before, other)) if before != when => {
                let [other, header] = [other, header].map(String::from_utf8_lossy);
                Err(format!("{other} and {header} ask for different times: send one of them"))
            }
            _ => {
                self.when = Some((when, header));
                Ok(())
            }
        }
    }

    fn name(&mut self, text: &str) -> Result<(), String> {
        match &self.own_id {
            Some(before) if **before != *text => {
                Err("punctual-id is given twice: send one of them".to_owned())
            }
            _ => {
                self.own_id = Some(text.into());
                Ok(())
            }
        }
    }

    fn live(&mut self, text: &str, refused: &dyn Fn(&str) -> String) -> Result<(), String> {
        let ttl: Option<Span> = text.parse().ok();
        let within = |ttl: &Span| (Span::from_millis(1)..=DELAY_CEILING).contains(ttl);
        let form = "a duration such as 1h or a number of milliseconds";
        self.ttl = Some(ttl.filter(within).ok_or_else(|| refused(form))?);
        Ok(())
    }

    fn withdraw(&mut self, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Err("punctual-cancel is an id, or partition:offset".to_owned());
        }
        let cancel = match (place(text), text.parse()) {
            (Some((partition, offset)), _) => Cancel::Reserved { partition, offset },
            (None, Ok(id)) => Cancel::Id(id),
            (None, Err(_)) => Cancel::Own(text.into()),
        };
        match &self.cancel {
            Some(before) if *before != cancel => {
                Err("punctual-cancel is given twice: send a record for each".to_owned())
            }
            _ => {
                self.cancel = Some(cancel);
                Ok(())
            }
        }
    }

    fn cancelled(self, value: Option<&[u8]>, cancel: Cancel) -> Result<Asked, String> {
        if self.when.is_some() || self.own_id.is_some() || self.ttl.is_some() {
            return Err("a record with punctual-cancel asks for nothing else".to_owned());
        }
        if value.is_some_and(|value| !value.is_empty()) {
            return Err(
                "a record with punctual-cancel has no value: nobody would get it".to_owned()
            );
        }
        Ok(Asked::Cancel(cancel))
    }

    fn scheduled(mut self, key: Option<&[u8]>, value: Option<&[u8]>) -> Asked {
        if value.is_none() {
            self.headers.push(Header { name: NULL_HEADER.to_owned(), value: Bytes::new() });
        }
        // Copies, because a part of the request would keep all of it alive.
        let message = Message {
            key: key.map(Bytes::copy_from_slice),
            headers: self.headers,
            body: Bytes::copy_from_slice(value.unwrap_or_default()),
        };
        let when = self.when.map_or(When::Now, |(when, _)| when);
        Asked::Schedule(Request {
            ttl: self.ttl,
            own_id: self.own_id,
            ..Request::new(message, when)
        })
    }
}

fn unknown(name: &str) -> String {
    let others = [TTL_HEADER, ATTEMPTS_HEADER, CATCH_UP_HEADER].join(", ");
    format!(
        "{} is not a header of this broker: it knows punctual-delay, punctual-deliver-at, \
         punctual-delay-level, punctual-id, punctual-cancel, {others}",
        shown(name)
    )
}

/// `partition:offset`.
fn place(text: &str) -> Option<(Partition, u64)> {
    let (partition, offset) = text.split_once(':')?;
    let partition = u16::try_from(digits(partition)?).ok().and_then(Partition::new)?;
    Some((partition, digits(offset)?))
}

/// A whole number, written with digits only.
fn digits(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// A value as a message may show it.
fn shown(text: &str) -> String {
    let cut: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if cut.len() < text.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

#[cfg(test)]
mod tests {
    use punctual_kafka_wire::records::{Batch, BatchWriter, NewRecord, Opening};

    use super::*;

    /// What a record with these headers asks for; `None` where nothing is.
    fn ask_with(
        value: Option<&[u8]>,
        headers: &[(&str, Option<&str>)],
    ) -> Option<Result<Asked, String>> {
        let headers: Vec<(&[u8], Option<&[u8]>)> = headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.map(str::as_bytes)))
            .collect();
        let mut writer = BatchWriter::new(Opening::default());
        writer.push(&NewRecord { value, headers: &headers, ..NewRecord::default() });
        let batch = Batch::check(writer.finish().unwrap()).unwrap().unpack(1 << 20).unwrap();
        let record = batch.records().next().unwrap().unwrap();
        touches(&record).then(|| asked(&record))
    }

    fn ask(headers: &[(&str, &str)]) -> Option<Result<Asked, String>> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, Some(*value))).collect();
        ask_with(Some(b"body"), &headers)
    }

    fn request(headers: &[(&str, &str)]) -> Request {
        match ask(headers) {
            Some(Ok(Asked::Schedule(request))) => request,
            other => panic!("{other:?}"),
        }
    }

    fn refusal(headers: &[(&str, &str)]) -> String {
        match ask(headers) {
            Some(Err(refusal)) => refusal,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_name_of_a_time_means_what_it_says() {
        let seconds = |seconds| When::After(Span::from_secs(seconds));
        let at = |millis| When::At(Timestamp::from_millis(millis).unwrap());
        let cases = [
            ("punctual-delay", "30s", seconds(30)),
            ("punctual-delay", "30000", seconds(30)),
            ("punctual-delay", "PT1M", seconds(60)),
            ("x-delay", "2000", seconds(2)),
            ("TIMER_DELAY_MS", "0", seconds(0)),
            ("punctual-deliver-at", "2030-01-01T00:00:00Z", at(1_893_456_000_000)),
            ("punctual-deliver-at", "1893456000000", at(1_893_456_000_000)),
            ("x-deliver-at", "1893456000000", at(1_893_456_000_000)),
            ("x-deliver-at", "2030-01-01T00:00:00Z", at(1_893_456_000_000)),
            ("TIMER_DELIVER_MS", "5", at(5)),
            ("scheduler-epoch", "1893456000", at(1_893_456_000_000)),
            ("punctual-delay-level", "3", When::Level(3)),
            ("DELAY", "18", When::Level(18)),
        ];
        for (name, value, when) in cases {
            let asked = request(&[("a", "1"), (name, value), ("b", "2"), ("a", "3")]);
            assert_eq!(asked.when, when, "{name}: {value}");
            let names: Vec<&str> =
                asked.message.headers.iter().map(|header| header.name.as_str()).collect();
            assert_eq!(names, ["a", "b", "a"], "the others stay, in order");
            assert_eq!(&asked.message.body[..], b"body");
        }
    }

    #[test]
    fn what_is_none_of_our_business_passes() {
        let foreign = [
            ("DELAY", "later"),
            ("DELAY", "0"),
            ("DELAY", "19"),
            ("DELAY", ""),
            ("delay", "30s"),
            ("X-Delay", "30"),
            ("x-delayed", "1"),
            ("punctual", "1"),
            ("traceparent", "00-00-00"),
            ("", ""),
        ];
        for header in foreign {
            assert!(ask(&[header]).is_none(), "{header:?}");
        }
        assert!(ask_with(None, &[("DELAY", None)]).is_none());
    }

    #[test]
    fn a_bad_value_is_refused_with_what_to_do() {
        let cases = [
            ("punctual-delay", "soon", "a duration such as 30s"),
            ("punctual-delay", "-5", "a duration such as 30s"),
            ("punctual-delay", "", "a duration such as 30s"),
            ("x-delay", "30s", "milliseconds"),
            ("TIMER_DELAY_MS", "1.5", "milliseconds"),
            ("x-deliver-at", "tomorrow", "2030-01-31"),
            ("TIMER_DELIVER_MS", "99999999999999999999", "milliseconds since 1970"),
            ("scheduler-epoch", "99999999999999999", "seconds since 1970"),
            ("punctual-delay-level", "three", "1 to 18"),
            ("punctual-ttl", "0", "a duration such as 1h"),
            ("punctual-cancel", "", "partition:offset"),
            ("punctual-dealy", "30s", "punctual-delay,"),
        ];
        for (name, value, hint) in cases {
            let refusal = refusal(&[(name, value)]);
            assert!(refusal.contains(hint) && refusal.contains(name), "{name}: {refusal}");
        }
        let long = refusal(&[("punctual-delay", &"x".repeat(10_000))]);
        assert!(long.len() < 300, "{long}");
        let missing = ask_with(Some(b""), &[("punctual-delay", None)]);
        assert_eq!(missing.unwrap().unwrap_err(), "punctual-delay has no value");
    }

    #[test]
    fn different_times_conflict_and_the_same_one_twice_does_not() {
        let both = refusal(&[("punctual-delay", "1s"), ("x-delay", "2000")]);
        assert!(both.contains("punctual-delay and x-delay"), "{both}");
        let same = request(&[("punctual-delay", "2s"), ("x-delay", "2000")]);
        assert_eq!(same.when, When::After(Span::from_secs(2)));
    }

    #[test]
    fn a_name_and_a_time_to_live_are_read() {
        let asked = request(&[("punctual-id", "order-1"), ("punctual-ttl", "1h")]);
        assert_eq!(asked.own_id.as_deref(), Some("order-1"));
        assert_eq!((asked.ttl, asked.when), (Some(Span::from_secs(3600)), When::Now));
        assert!(asked.message.headers.is_empty());
    }

    #[test]
    fn stamps_of_an_earlier_delivery_are_taken_off() {
        let id = String::from_utf8(
            MessageId {
                key: punctual_model::Key::default(),
                topic: punctual_model::TopicId::new(1).unwrap(),
                partition: Partition::new(2).unwrap(),
            }
            .encode()
            .to_vec(),
        );
        let id = id.unwrap();
        let asked = request(&[
            ("punctual-id", &id),
            ("punctual-due", "123"),
            ("punctual-own-id", "order-1"),
            ("punctual-origin-topic", "t"),
            ("punctual-last-error", "it"),
            ("punctual-max-attempts", "3"),
            ("mine", "1"),
        ]);
        assert_eq!((asked.own_id, asked.when), (None, When::Now));
        let names: Vec<&str> =
            asked.message.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["punctual-max-attempts", "mine"]);
    }

    #[test]
    fn a_cancel_names_a_message_in_three_ways() {
        let cancel = |value: &str| match ask_with(None, &[("punctual-cancel", Some(value))]) {
            Some(Ok(Asked::Cancel(cancel))) => cancel,
            other => panic!("{other:?}"),
        };
        assert_eq!(cancel("order:7"), Cancel::Own("order:7".into()));
        let (partition, offset) = (Partition::new(3).unwrap(), 42);
        assert_eq!(cancel("3:42"), Cancel::Reserved { partition, offset });
        assert_eq!(cancel("3:-1"), Cancel::Own("3:-1".into()));
        assert_eq!(cancel("99999:1"), Cancel::Own("99999:1".into()));
        let with_value = refusal(&[("punctual-cancel", "a")]);
        assert!(with_value.contains("has no value"), "{with_value}");
        let both = [("punctual-cancel", Some("a")), ("punctual-delay", Some("1s"))];
        assert!(ask_with(None, &both).unwrap().is_err());
    }

    #[test]
    fn a_value_that_is_nothing_at_all_is_marked() {
        let asked = ask_with(None, &[("x-delay", Some("1")), ("kept", None)]);
        let Some(Ok(Asked::Schedule(request))) = asked else { panic!("{asked:?}") };
        let names: Vec<&str> =
            request.message.headers.iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["kept", NULL_HEADER]);
    }
}
