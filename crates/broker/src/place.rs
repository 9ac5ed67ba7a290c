//! Placing: from what a producer asks to the entry that waits for it.
//!
//! Everything that a message is held to before it is stored is here, for whoever makes messages:
//! those who schedule one, a series, a transaction. Nothing here stores anything.
//!
//! No entry gets a due time at which parked entries stand.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_model::ports::{Order, Topic, Topics};
use punctual_model::{
    Basis, CatchUp, Entry, Header, Message, MessageId, OwnId, Partition, Span, Timestamp, TopicId,
    TopicSettings, limits, partitioner,
};
use siphasher::sip::SipHasher24;

use crate::bounds::InForce;
use crate::group::{ATTEMPTS_HEADER, TTL_HEADER};
use crate::schedule::{Invalid, Request, When};
use crate::series::{Opening, Repeat, RepeatError};
use crate::time::Now;

/// The header that says what becomes of a message that fell due while the broker was down.
pub const CATCH_UP_HEADER: &str = "punctual-catch-up";

/// The header that says who sent a message. Only the broker writes it: what a sender calls so is left
/// out.
pub const SENDER_HEADER: &str = "punctual-app";

/// Headers by which a message asks for something; an edit of its headers leaves them.
pub(crate) const ASKING_HEADERS: [&str; 3] = [TTL_HEADER, ATTEMPTS_HEADER, CATCH_UP_HEADER];

/// Counters that place messages without a key. Topics share them by number, so that whoever sends
/// to two topics by turns still reaches every partition of both.
const TURNS: usize = 64;

/// Checks requests and gives them their place.
pub(crate) struct Placing {
    bounds: Arc<InForce>,
    topics: Arc<dyn Topics>,
    turns: [AtomicU64; TURNS],
    dice: Dice,
}

impl std::fmt::Debug for Placing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placing").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Placing {
    /// Within these bounds. The same seed gives the same jitter to the same messages.
    pub(crate) fn new(bounds: Arc<InForce>, topics: Arc<dyn Topics>, seed: Option<u64>) -> Self {
        let dice = Dice::new(seed.unwrap_or_else(|| RandomState::new().hash_one(0)));
        let turns = [const { AtomicU64::new(0) }; TURNS];
        Self { bounds, topics, turns, dice }
    }

    /// Whether a topic with these settings takes the message.
    pub(crate) fn check(
        &self,
        request: &Request,
        settings: &TopicSettings,
        now: Now,
    ) -> Result<(), Invalid> {
        let partitions = settings.partitions;
        if request.partition.is_some_and(|number| number >= partitions) {
            return Err(Invalid::NoSuchPartition { partitions });
        }
        let message = &request.message;
        self.check_body(message.body.len())?;
        check_headers(&message.headers)?;
        if message.key.as_ref().is_some_and(|key| key.len() > limits::KEY_BYTES_MAX) {
            return Err(Invalid::KeyTooLarge);
        }
        if let Some(own_id) = &request.own_id {
            check_own_id(own_id)?;
        }
        self.due(request.when, settings, now).map(drop)
    }

    pub(crate) fn check_body(&self, bytes: usize) -> Result<(), Invalid> {
        let max = self.bounds.body_bytes_max();
        if bytes > max { Err(Invalid::BodyTooLarge { max }) } else { Ok(()) }
    }

    /// The due time, fixed once, and the clock it is measured with; without jitter.
    pub(crate) fn due(
        &self,
        when: When,
        settings: &TopicSettings,
        now: Now,
    ) -> Result<(Timestamp, Basis), Invalid> {
        let max = self.delay_max(settings);
        let (due, basis) = match when {
            When::Now => (now.timestamp(), Basis::Delay),
            When::At(date) => {
                if date.since(now.wall_timestamp()) > max {
                    return Err(Invalid::DelayTooLong { max });
                }
                (date, Basis::Date)
            }
            When::After(delay) => (after(delay, max, now)?, Basis::Delay),
            When::Level(level) => {
                let delay = match &settings.levels {
                    Some(levels) => levels.delay(level),
                    None => self.topics.levels().delay(level),
                };
                (after(delay.ok_or(Invalid::UnknownLevel)?, max, now)?, Basis::Delay)
            }
        };
        if due.is_parked() { Err(Invalid::DueOutOfRange) } else { Ok((due, basis)) }
    }

    /// The due time with the jitter of the topic; what is wanted at once stays so.
    pub(crate) fn jittered_due(
        &self,
        when: When,
        settings: &TopicSettings,
        now: Now,
    ) -> Result<(Timestamp, Basis), Invalid> {
        let (due, basis) = self.due(when, settings, now)?;
        let Some(jitter) = settings.jitter.filter(|_| due > now.timestamp()) else {
            return Ok((due, basis));
        };
        let later = Span::from_millis(self.dice.up_to(jitter.as_millis()));
        let due = due.checked_add(later).filter(|due| !due.is_parked());
        Ok((due.ok_or(Invalid::DueOutOfRange)?, basis))
    }

    /// The longest delay in a topic with these settings.
    pub(crate) fn delay_max(&self, settings: &TopicSettings) -> Span {
        let most = self.bounds.delay_max();
        settings.max_delay.map_or(most, |max| max.min(most))
    }

    /// The entry for a request that was checked.
    pub(crate) fn place(
        &self,
        topic: &Topic,
        request: Request,
        now: Now,
    ) -> Result<Entry, Invalid> {
        let print = request.own_id.as_ref().map_or(0, |_| fingerprint(&request, &[]));
        self.place_printed(topic, request, print, now)
    }

    /// The same for a request of which the fingerprint is known; without an own id it counts for
    /// nothing.
    pub(crate) fn place_printed(
        &self,
        topic: &Topic,
        request: Request,
        print: u64,
        now: Now,
    ) -> Result<Entry, Invalid> {
        let (due, basis) = self.jittered_due(request.when, &topic.settings, now)?;
        let partitions = topic.settings.partitions;
        let partition = match (request.partition, &request.message.key) {
            (Some(number), _) => Partition::new(number)
                .filter(|_| number < partitions)
                .ok_or(Invalid::NoSuchPartition { partitions })?,
            (None, Some(key)) => partitioner::by_key(key, topic.key_partitions),
            (None, None) => partitioner::by_turn(self.turn(topic.id), partitions),
        };
        let own_id = request.own_id.clone().map(|text| OwnId { text, print });
        let message = stamped(request, topic.settings.default_ttl);
        let entry = Entry { topic: topic.id, partition, due, basis, message, extra: None };
        Ok(match own_id {
            None => entry,
            own_id => entry.with_extra(|extra| extra.own_id = own_id),
        })
    }

    /// What stores a message that comes round, with its first occurrence; these are the orders from
    /// `place` on of one call.
    pub(crate) fn open(
        &self,
        topic: &Topic,
        request: Request,
        repeat: Repeat,
        (place, now): (u32, Now),
    ) -> Result<[Order; 2], Invalid> {
        let first = match request.when {
            When::Now => None,
            when => Some(self.due(when, &topic.settings, now)?),
        };
        let partitions = topic.settings.partitions;
        let partition = request.partition.map(|number| {
            let partition = Partition::new(number).filter(|_| number < partitions);
            partition.ok_or(Invalid::NoSuchPartition { partitions })
        });
        let opening = Opening {
            partition: partition.transpose()?,
            repeat,
            first,
            turn: self.turn(topic.id),
            own_id: own_id(&request),
            conflict: request.on_conflict,
            catch_up: request.catch_up,
            message: stamped(request, topic.settings.default_ttl),
        };
        opening.orders(topic, now, place).map_err(|error| match error {
            RepeatError::EndsBeforeFirst => Invalid::EndsBeforeFirst,
            RepeatError::DueOutOfRange => Invalid::DueOutOfRange,
        })
    }

    /// The turn of the next message without a key.
    fn turn(&self, topic: TopicId) -> u64 {
        self.turns[topic.get() as usize % TURNS].fetch_add(1, Ordering::Relaxed)
    }
}

fn after(delay: Span, max: Span, now: Now) -> Result<Timestamp, Invalid> {
    if delay > max {
        return Err(Invalid::DelayTooLong { max });
    }
    now.timestamp_up().checked_add(delay).ok_or(Invalid::DueOutOfRange)
}

/// Whether the headers that a sender gave are within the limits.
pub(crate) fn check_headers(headers: &[Header]) -> Result<(), Invalid> {
    if headers.len() > limits::HEADERS_MAX {
        return Err(Invalid::TooManyHeaders);
    }
    let bytes: usize = headers.iter().map(|header| header.name.len() + header.value.len()).sum();
    if bytes > limits::HEADER_BYTES_MAX {
        return Err(Invalid::HeadersTooLarge);
    }
    Ok(())
}

/// Whether a sender may call a message so. What could be one of our ids would be mistaken for it.
pub(crate) fn check_own_id(own_id: &str) -> Result<(), Invalid> {
    if own_id.is_empty() {
        return Err(Invalid::OwnIdEmpty);
    }
    if own_id.len() > limits::OWN_ID_BYTES_MAX {
        return Err(Invalid::OwnIdTooLong);
    }
    if own_id.chars().any(char::is_control) {
        return Err(Invalid::OwnIdControl);
    }
    if own_id.parse::<MessageId>().is_ok() {
        return Err(Invalid::OwnIdLikeOurs);
    }
    Ok(())
}

/// The name of a message, with what tells its request from others.
fn own_id(request: &Request) -> Option<OwnId> {
    let text = Arc::clone(request.own_id.as_ref()?);
    Some(OwnId { text, print: fingerprint(request, &[]) })
}

/// The message with headers for what was asked for beside it. A header of the sender's own counts
/// where nothing else was asked for.
fn stamped(request: Request, default_ttl: Option<Span>) -> Message {
    let Request { mut message, ttl, max_attempts, catch_up, sender, .. } = request;
    message.headers.retain(|header| header.name != SENDER_HEADER);
    let own = message.headers.iter().any(|header| header.name == TTL_HEADER);
    let ttl = ttl.or(if own { None } else { default_ttl });
    let asked = [
        ttl.map(|ttl| (TTL_HEADER, ttl.as_millis().to_string())),
        max_attempts.map(|attempts| (ATTEMPTS_HEADER, attempts.to_string())),
        catch_up.map(|catch_up| (CATCH_UP_HEADER, catch_up_text(catch_up))),
        sender.map(|sender| (SENDER_HEADER, sender.to_string())),
    ];
    let asked = asked.into_iter().flatten();
    message
        .headers
        .extend(asked.map(|(name, value)| Header { name: name.to_owned(), value: value.into() }));
    message
}

/// How the header says it.
pub(crate) fn catch_up_text(catch_up: CatchUp) -> String {
    match catch_up {
        CatchUp::All => "all".to_owned(),
        CatchUp::Spread(over) => format!("spread:{}", over.as_millis()),
        CatchUp::SkipOlder(than) => format!("skip_older:{}", than.as_millis()),
        CatchUp::Latest => "latest".to_owned(),
    }
}

/// A fingerprint of what was asked for, by value: the same in every version and on every machine.
/// Times count as they were asked for, so a delay repeated later is the same request. The order of
/// headers with different names does not matter: few languages keep it in a map.
///
/// `more` is whatever else belongs to the request.
pub(crate) fn fingerprint(request: &Request, more: &[u8]) -> u64 {
    let mut print = Print(Vec::with_capacity(request.message.weight() + PRINT_ROOM));
    let (kind, time) = match request.when {
        When::Now => (0, 0),
        When::After(delay) => (1, delay.as_millis()),
        When::At(date) => (2, date.as_millis()),
        When::Level(level) => (3, level),
    };
    print.number(kind);
    print.number(time);
    print.bytes_or_none(request.message.key.as_deref());
    print.bytes(&request.message.body);
    let mut headers: Vec<&Header> = request.message.headers.iter().collect();
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    print.number(headers.len() as u64);
    for header in headers {
        print.bytes(header.name.as_bytes());
        print.bytes(&header.value);
    }
    print.number_or_none(request.partition.map(u64::from));
    print.number_or_none(request.ttl.map(Span::as_millis));
    print.number_or_none(request.max_attempts.map(u64::from));
    print.bytes_or_none(request.catch_up.map(catch_up_text).as_deref().map(str::as_bytes));
    let repeat = request.repeat.as_ref().map(|repeat| repeat.to_string());
    print.bytes_or_none(repeat.as_deref().map(str::as_bytes));
    print.bytes(more);
    // Gathered first: the hash is quick with one long text and slow with many short ones.
    let mut hash = SipHasher24::new_with_keys(PRINT_KEYS.0, PRINT_KEYS.1);
    hash.write(&print.0);
    hash.finish()
}

/// Bytes for all that is not the message itself, as a rule.
const PRINT_ROOM: usize = 256;

/// Part of what is stored: they never change.
const PRINT_KEYS: (u64, u64) = (0x7075_6e63_7475_616c, 0x6669_6e67_6572_7072);

/// Values, each with its length, so that no two lists of values run together.
struct Print(Vec<u8>);

impl Print {
    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn number_or_none(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn bytes_or_none(&mut self, bytes: Option<&[u8]>) {
        self.number(u64::from(bytes.is_some()));
        self.bytes(bytes.unwrap_or_default());
    }
}

/// Random numbers that nobody needs to be unable to guess; the same for the same seed.
#[derive(Debug)]
struct Dice(AtomicU64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// A number from 0 to `max`.
    fn up_to(&self, max: u64) -> u64 {
        // SplitMix64: a counter, and a good mix of its bits.
        let step = 0x9e37_79b9_7f4a_7c15_u64;
        let mut bits = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let scaled = (u128::from(bits) * (u128::from(max) + 1)) >> 64;
        u64::try_from(scaled).expect("a fraction of max + 1 is at most max")
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn header(name: &str, value: &str) -> Header {
        Header { name: name.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()) }
    }

    #[test]
    fn fingerprints_are_the_same_in_every_version() {
        let plain = Request::new(Message::default(), When::Now);
        assert_eq!(fingerprint(&plain, &[]), 6_962_403_539_724_748_678);
        let message = Message {
            key: Some(Bytes::from_static(b"42")),
            headers: vec![header("b", "2"), header("a", "1"), header("b", "3")],
            body: Bytes::from_static(b"body"),
        };
        let full = Request {
            partition: Some(3),
            ttl: Some(Span::from_secs(60)),
            max_attempts: Some(5),
            catch_up: Some(CatchUp::Spread(Span::from_secs(10))),
            ..Request::new(message, When::After(Span::from_secs(30)))
        };
        let prints = [fingerprint(&full, &[]), fingerprint(&full, b"more")];
        assert_eq!(prints, [6_202_844_796_671_226_463, 18_399_971_744_622_540_011]);
    }

    #[test]
    fn the_order_of_equal_headers_is_a_difference() {
        let with = |values: [&str; 2]| {
            let headers = values.map(|value| header("a", value)).to_vec();
            Request::new(Message { headers, ..Message::default() }, When::Now)
        };
        assert_ne!(fingerprint(&with(["1", "2"]), &[]), fingerprint(&with(["2", "1"]), &[]));
    }

    #[test]
    fn values_do_not_run_together() {
        let with = |key: &'static [u8], body: &'static [u8]| {
            let (key, body) = (Some(Bytes::from_static(key)), Bytes::from_static(body));
            Request::new(Message { key, body, headers: Vec::new() }, When::Now)
        };
        let prints = [with(b"ab", b"c"), with(b"a", b"bc"), with(b"", b"abc")]
            .map(|request| fingerprint(&request, &[]));
        assert!(prints[0] != prints[1] && prints[1] != prints[2] && prints[0] != prints[2]);
    }

    #[test]
    fn dice_reach_both_ends_evenly_and_repeat_for_a_seed() {
        let throw = |seed: u64| {
            let dice = Dice::new(seed);
            (0..6000).map(|_| dice.up_to(5)).collect::<Vec<_>>()
        };
        let thrown = throw(7);
        for side in 0..=5 {
            let count = thrown.iter().filter(|thrown| **thrown == side).count();
            assert!((850..1150).contains(&count), "{side} came {count} times");
        }
        assert_eq!(thrown, throw(7));
        assert_ne!(thrown, throw(8));
        assert_eq!(Dice::new(1).up_to(0), 0);
        Dice::new(1).up_to(u64::MAX);
    }
}
