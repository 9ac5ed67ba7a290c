//! What becomes of messages that fell due while the broker was down.
//!
//! Missed is what was due before the broker began, as it is read from the timeline in the order of
//! due times; once a message that is due later was read, or nothing more is there, catching up is
//! over. The message says what is to become of it, or its topic does.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bytes::Bytes;
use punctual_model::ports::Armed;
use punctual_model::{CatchUp, Key, Message, MessageId, Span, Timestamp, TopicId};

use crate::place::CATCH_UP_HEADER;
use crate::time::Now;

/// Messages that are held back because a later one of the same key may come, and their bytes.
const LATEST_MAX: usize = 65_536;
const LATEST_BYTES_MAX: usize = 64 << 20;

/// The policy of a text as messages carry it; `None` for anything else.
fn read(text: &[u8]) -> Option<CatchUp> {
    let span = |digits: &str| Some(Span::from_millis(digits.parse().ok()?));
    match std::str::from_utf8(text).ok()? {
        "all" => Some(CatchUp::All),
        "latest" => Some(CatchUp::Latest),
        text => match text.split_once(':')? {
            ("spread", millis) => span(millis).map(CatchUp::Spread),
            ("skip_older", millis) => span(millis).map(CatchUp::SkipOlder),
            _ => None,
        },
    }
}

/// What the message itself asks for.
pub(crate) fn asked(message: &Message) -> Option<CatchUp> {
    let header = message.headers.iter().rfind(|header| header.name == CATCH_UP_HEADER)?;
    read(&header.value)
}

/// What is to be done with a missed message.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It fires now.
    Fires(Armed),
    /// It fires at this time.
    Waits(Armed, Timestamp),
    /// It is withdrawn.
    Skipped(Armed),
}

/// The catching up of one start.
#[derive(Debug)]
pub(crate) struct CatchingUp {
    /// What is due before this was missed.
    pub(crate) start: Timestamp,
    /// How many messages of a topic were missed, and how many were spread so far.
    spread: HashMap<TopicId, (u64, u64)>,
    latest: Latest,
}

impl CatchingUp {
    pub(crate) fn new(start: Timestamp) -> Self {
        Self { start, spread: HashMap::new(), latest: Latest::default() }
    }

    /// Whether the message was missed.
    pub(crate) fn missed(&self, armed: &Armed) -> bool {
        armed.key.due < self.start
    }

    /// Whether the number of missed messages of the topic has to be told first.
    pub(crate) fn is_uncounted(&self, topic: TopicId) -> bool {
        !self.spread.contains_key(&topic)
    }

    /// So many messages of the topic were missed, about.
    pub(crate) fn count(&mut self, topic: TopicId, missed: u64) {
        self.spread.entry(topic).or_insert((missed.max(1), 0));
    }

    /// Decides about a missed message. Nothing is said of one that is held back for now.
    pub(crate) fn decide(&mut self, armed: Armed, policy: CatchUp, fates: &mut Vec<Fate>) {
        match policy {
            CatchUp::All => fates.push(Fate::Fires(armed)),
            CatchUp::SkipOlder(than) if self.start.since(armed.key.due) > than => {
                fates.push(Fate::Skipped(armed));
            }
            CatchUp::SkipOlder(_) => fates.push(Fate::Fires(armed)),
            CatchUp::Spread(over) => {
                let turn = self.turn(armed.topic, over);
                fates.push(Fate::Waits(armed, turn));
            }
            CatchUp::Latest => self.latest.hold(armed, fates),
        }
    }

    /// Everything missed was read: what was held back, in order.
    pub(crate) fn end(self) -> Vec<Armed> {
        self.latest.held.into_values().collect()
    }

    /// When the next message of a topic fires whose missed ones are spread over `over`.
    fn turn(&mut self, topic: TopicId, over: Span) -> Timestamp {
        let (missed, done) = self.spread.entry(topic).or_insert((1, 0));
        let share = u128::from(over.as_millis()) * u128::from(*done.min(missed));
        *done += 1;
        let millis = u64::try_from(share / u128::from(*missed)).unwrap_or(u64::MAX);
        self.start.saturating_add(Span::from_millis(millis))
    }
}

/// The latest missed message so far of each key.
#[derive(Debug, Default)]
struct Latest {
    of: HashMap<(TopicId, Whose), Key>,
    held: BTreeMap<Key, Armed>,
    bytes: usize,
}

/// Of which messages only the latest counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Whose {
    Key(Bytes),
    Series(MessageId),
    Topic,
}

impl Whose {
    fn of(armed: &Armed) -> Self {
        let series = armed.extra.as_ref().and_then(|extra| extra.series?.id());
        match (&armed.message.key, series) {
            // A copy, so that the key does not keep the body it came with.
            (Some(key), _) => Self::Key(Bytes::copy_from_slice(key)),
            (None, Some(series)) => Self::Series(series),
            (None, None) => Self::Topic,
        }
    }
}

impl Latest {
    fn hold(&mut self, armed: Armed, fates: &mut Vec<Fate>) {
        let whose = (armed.topic, Whose::of(&armed));
        let key = armed.key;
        match self.of.get(&whose).copied() {
            Some(other) if other > key => return fates.push(Fate::Skipped(armed)),
            Some(other) => fates.extend(self.let_go(other).map(Fate::Skipped)),
            None => {}
        }
        self.of.insert(whose, key);
        self.bytes += armed.message.weight();
        self.held.insert(key, armed);
        while self.held.len() > LATEST_MAX || self.bytes > LATEST_BYTES_MAX {
            let Some(oldest) = self.held.keys().next().copied() else { break };
            let Some(armed) = self.let_go(oldest) else { break };
            self.of.remove(&(armed.topic, Whose::of(&armed)));
            fates.push(Fate::Fires(armed));
        }
    }

    fn let_go(&mut self, key: Key) -> Option<Armed> {
        let armed = self.held.remove(&key)?;
        self.bytes = self.bytes.saturating_sub(armed.message.weight());
        Some(armed)
    }
}

/// Messages that wait in memory for a time of their own, in order.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    by_turn: BTreeMap<(Timestamp, Key), Armed>,
    bytes: usize,
}

impl Waiting {
    /// Messages, and their bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.by_turn.len(), self.bytes)
    }

    pub(crate) fn join(&mut self, armed: Armed, turn: Timestamp) {
        self.bytes += armed.message.weight();
        self.by_turn.insert((turn, armed.key), armed);
    }

    /// The next one whose time has come.
    pub(crate) fn next(&mut self, now: Now) -> Option<Armed> {
        let first = self.by_turn.first_entry()?;
        if first.key().0 > now.timestamp() {
            return None;
        }
        let armed = first.remove();
        self.bytes = self.bytes.saturating_sub(armed.message.weight());
        Some(armed)
    }

    /// When the next one was due in the first place.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.by_turn.first_key_value().map(|((_, key), _)| key.due)
    }

    /// When the next one's time comes, on the broker clock.
    pub(crate) fn next_turn(&self) -> Option<Duration> {
        let ((turn, _), _) = self.by_turn.first_key_value()?;
        Some(Duration::from_millis(turn.as_millis()))
    }
}
