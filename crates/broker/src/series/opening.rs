//! The beginning of a series: what is asked for, and the two entries that come of it.
//!
//! A series and its first occurrence are stored together, so that there is never one without the
//! other.

use punctual_model::ports::{OnConflict, Order, Topic};
use punctual_model::{
    Action, Basis, CatchUp, Entry, Lane, Link, Message, OwnId, Partition, Span, Timestamp,
    partitioner,
};

use super::rule::Rule;
use super::spec::{Place, Repeat, Spec};
use crate::time::Now;

/// A series that is asked for.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The message that comes round.
    pub message: Message,
    /// When.
    pub repeat: Repeat,
    /// The first time and the clock it is measured with; as the rule says where nothing is said.
    pub first: Option<(Timestamp, Basis)>,
    /// Into which partition; by key or in turn where nothing is said.
    pub partition: Option<Partition>,
    /// The turn of the first occurrence among messages without a key.
    pub turn: u64,
    /// The name its sender gave the series.
    pub own_id: Option<OwnId>,
    /// What to do if that is taken.
    pub conflict: OnConflict,
    /// What becomes of times that are missed, if not as the topic says.
    pub catch_up: Option<CatchUp>,
}

/// Why there is nothing to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RepeatError {
    /// The end comes before the first time.
    #[error("until is earlier than the first time, so nothing would ever be delivered")]
    EndsBeforeFirst,
    /// The first time lies past year 9999.
    #[error("the first time is out of range")]
    DueOutOfRange,
}

impl Opening {
    /// The orders that store the series and its first occurrence; both have the same due time, and
    /// the id of the former names the series. `index` is the place of the first of the two among
    /// the orders of one call.
    ///
    /// # Errors
    /// [`RepeatError`] when there is no first time.
    pub fn orders(self, topic: &Topic, now: Now, index: u32) -> Result<[Order; 2], RepeatError> {
        let (first, basis) = self.first_time(now)?;
        if self.repeat.until.is_some_and(|until| first > until) {
            return Err(RepeatError::EndsBeforeFirst);
        }
        let by_key = |key| partitioner::by_key(key, topic.key_partitions);
        let partition = self.partition.or_else(|| self.message.key.as_deref().map(by_key));
        // After a first time in the past, which means at once, the times in between do not count.
        let time = first.max(now.timestamp());
        let place = Place { time, number: 1 };
        let Self { message, repeat, catch_up, turn, own_id, conflict, .. } = self;
        let spec = Spec { repeat, catch_up, partition, turn, start: first, place };
        let partition = spec.partition(topic, place);
        let due = first.saturating_add(spec.jitter(topic, place));
        let entry =
            |message| Entry { topic: topic.id, partition, due, basis, message, extra: None };
        let series = entry(spec.encode(&message)).with_extra(|extra| {
            extra.action = Action::Repeat;
            extra.own_id = own_id;
            extra.links = vec![Link::Order(index.saturating_add(1))];
        });
        let occurrence = entry(message).with_extra(|extra| extra.series = Some(Link::Order(index)));
        Ok([
            Order::Schedule { lane: Lane::Retry, entry: series, conflict },
            Order::Schedule {
                lane: Lane::Message,
                entry: occurrence,
                conflict: OnConflict::default(),
            },
        ])
    }

    fn first_time(&self, now: Now) -> Result<(Timestamp, Basis), RepeatError> {
        let (first, basis) = match (self.first, &self.repeat.rule) {
            (Some((first, basis)), _) => (Some(first), basis),
            // As delays are: none is ever cut short.
            (None, Rule::Every(_)) => (self.repeat.rule.first(now.timestamp_up()), Basis::Delay),
            (None, Rule::Cron(_)) => (self.repeat.rule.first(now.wall_timestamp()), Basis::Date),
        };
        let first = first.filter(|first| !first.is_parked()).ok_or(RepeatError::DueOutOfRange)?;
        Ok((first, basis))
    }
}

impl Spec {
    /// The partition of an occurrence.
    pub(crate) fn partition(&self, topic: &Topic, place: Place) -> Partition {
        self.partition.unwrap_or_else(|| {
            let turn = self.turn.wrapping_add(place.number).wrapping_sub(1);
            partitioner::by_turn(turn, topic.settings.partitions)
        })
    }

    /// How much later than its time an occurrence is due, by the jitter of the topic: always before
    /// the next one's time, and the same however often it is asked.
    pub(crate) fn jitter(&self, topic: &Topic, place: Place) -> Span {
        let Some(jitter) = topic.settings.jitter else { return Span::ZERO };
        let room = self.after(place).map_or(jitter, |next| {
            Span::from_millis(next.time.since(place.time).as_millis().saturating_sub(1))
        });
        let bound = jitter.min(room).as_millis().saturating_add(1);
        let seed = self.turn.rotate_left(32) ^ self.start.as_millis() ^ place.number;
        Span::from_millis(mix(seed) % bound)
    }
}

/// Spreads numbers that are close to each other; the last steps of SplitMix64.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
