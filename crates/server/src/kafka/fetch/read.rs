//! One look at the logs: what each partition of a fetch has to give.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use punctual_kafka_wire::ErrorCode;
use punctual_model::ports::{LogBounds, LogPosition, Slice, SliceError, Topic};
use punctual_model::{Partition, TopicId};
use tracing::warn;

use crate::kafka::call::Call;
use crate::kafka::fetch::budget::Budget;
use crate::kafka::fetch::place;
use crate::kafka::fetch::session::{Asked, Seen, TopicKey};
use crate::kafka::reply::Part;

/// What a fetch looks at. Topics and rights are looked up once, for as long as it waits.
#[derive(Debug)]
pub(crate) struct Look {
    spots: Vec<Spot>,
}

/// What it looks for in one partition.
#[derive(Debug)]
struct Spot {
    place: Result<(TopicId, Partition), ErrorCode>,
    /// Negative ones are out of range.
    offset: i64,
    bytes_max: i32,
}

/// What a partition has to give.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) code: ErrorCode,
    bounds: Option<LogBounds>,
    /// Where the records lie, if there are any.
    pub(crate) stretch: Option<Part>,
}

impl Look {
    /// At these partitions, in this order.
    pub(crate) fn at<'a>(call: &Call, asked: &'a [Asked]) -> Self {
        let mut topics: HashMap<&TopicKey, Result<Arc<Topic>, ErrorCode>> = HashMap::new();
        let spot = |asked: &'a Asked| {
            let Asked { topic, partition, offset, bytes_max } = asked;
            let topic = topics.entry(topic).or_insert_with(|| place::meant(call, topic));
            let place = topic.as_ref().map_err(|code| *code);
            let place = place.and_then(|topic| Ok((topic.id, place::partition(*partition)?)));
            Spot { place, offset: *offset, bytes_max: *bytes_max }
        };
        Self { spots: asked.iter().map(spot).collect() }
    }

    /// The topics that may grow.
    pub(crate) fn topics(&self) -> BTreeSet<TopicId> {
        self.spots.iter().filter_map(|spot| spot.place.ok()).map(|(topic, _)| topic).collect()
    }

    /// Whether any partition has something to say, be it records or an error. Reads nothing.
    pub(crate) fn finds_anything(&self, call: &Call) -> bool {
        self.spots.iter().any(|spot| {
            let Ok((topic, partition)) = spot.place else { return true };
            match call.shared.broker.topics().bounds(topic, partition) {
                Ok(bounds) => u64::try_from(spot.offset) != Ok(bounds.end),
                Err(_) => true,
            }
        })
    }

    /// What each partition has to give, within the limits. May block on the disk.
    pub(crate) fn read(&self, call: &Call, bytes_max: i32) -> Vec<Found> {
        let mut budget = Budget::new(bytes_max);
        self.spots.iter().map(|spot| spot.read(call, &mut budget)).collect()
    }
}

impl Spot {
    fn read(&self, call: &Call, budget: &mut Budget) -> Found {
        self.try_read(call, budget).unwrap_or_else(|code| Found::error(code, None))
    }

    fn try_read(&self, call: &Call, budget: &mut Budget) -> Result<Found, ErrorCode> {
        let (topic, partition) = self.place?;
        let bounds = call.shared.broker.topics().bounds(topic, partition);
        let bounds = bounds.map_err(|error| place::refusal(&error))?;
        let Ok(offset) = u64::try_from(self.offset) else {
            return Ok(Found::error(ErrorCode::OFFSET_OUT_OF_RANGE, Some(bounds)));
        };
        let room = budget.room(self.bytes_max).filter(|_| bounds.start <= offset);
        let Some(room) = room.filter(|_| offset < bounds.end) else {
            return Ok(Found::nothing(offset, bounds));
        };
        match place::records(call)?.slice(LogPosition { topic, partition, offset }, room) {
            Ok(slice) => Ok(Found::records(slice, room, budget)),
            Err(SliceError::OutOfRange(bounds)) => {
                Ok(Found::error(ErrorCode::OFFSET_OUT_OF_RANGE, Some(bounds)))
            }
            Err(SliceError::Topic(error)) => {
                warn!(topic = topic.get(), partition = partition.get(), %error, "a log cannot be read");
                Err(place::refusal(&error))
            }
        }
    }
}

impl Found {
    const fn error(code: ErrorCode, bounds: Option<LogBounds>) -> Self {
        Self { code, bounds, stretch: None }
    }

    /// Nothing, which is an error for an offset that the log does not reach.
    fn nothing(offset: u64, bounds: LogBounds) -> Self {
        let code = match (bounds.start..=bounds.end).contains(&offset) {
            true => ErrorCode::NONE,
            false => ErrorCode::OFFSET_OUT_OF_RANGE,
        };
        Self::error(code, Some(bounds))
    }

    fn records(slice: Slice, room: u64, budget: &mut Budget) -> Self {
        let Slice { file, position, length, bounds } = slice;
        let length = budget.take(room, length);
        let file = file.filter(|_| length > 0);
        let stretch = file.map(|file| Part::File { file, position, length });
        Self { code: ErrorCode::NONE, bounds: Some(bounds), stretch }
    }

    /// How many bytes of records there are.
    pub(crate) fn bytes(&self) -> u64 {
        match &self.stretch {
            Some(Part::File { length, .. }) => *length,
            Some(Part::Bytes(bytes)) => bytes.len() as u64,
            None => 0,
        }
    }

    /// Whether it is an error.
    pub(crate) fn is_error(&self) -> bool {
        !self.code.is_none()
    }

    /// As the answer says it.
    pub(crate) fn seen(&self) -> Seen {
        let wire = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
        Seen {
            failed: self.is_error(),
            start: self.bounds.map_or(-1, |bounds| wire(bounds.start)),
            end: self.bounds.map_or(-1, |bounds| wire(bounds.end)),
            bytes: self.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_the_log_does_not_reach_is_out_of_range() {
        let bounds = LogBounds { start: 10, end: 20 };
        for (offset, code) in [(9, 1), (10, 0), (20, 0), (21, 1), (u64::MAX, 1)] {
            let found = Found::nothing(offset, bounds);
            assert_eq!(found.code.code(), code, "{offset}");
            assert_eq!((found.seen().start, found.seen().end), (10, 20));
        }
        assert_eq!(Found::error(ErrorCode::UNKNOWN_TOPIC_ID, None).seen().end, -1);
    }
}
