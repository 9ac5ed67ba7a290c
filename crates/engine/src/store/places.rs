//! Where messages stand, and what is remembered of those that have ended.
//!
//! An id tells where a message stood when it was accepted. If it was changed since, the table of ids
//! knows its present place.

use punctual_model::limits::REMEMBERED;
use punctual_model::ports::StoreError;
use punctual_model::{MessageId, State as LifeState, Timestamp, TopicId};

use crate::ids::{Name, Value};
use crate::store::Store;
use crate::store::lookup::wanted;
use crate::timeline::Standing;

/// By which own ids are remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// What time it is.
    pub(super) now: Timestamp,
    /// When the store was opened: what fell due before was delivered after.
    opened: Timestamp,
}

impl Store {
    /// What own ids are remembered by, at `now`.
    pub(super) fn times(&self, now: Timestamp) -> Times {
        Times { now, opened: *self.opened.get_or_init(|| now) }
    }

    /// Where each of these messages stands: an id with the present key in place of the first one.
    /// Only the thread that commits changes that.
    pub(super) fn places(&self, ids: &[MessageId]) -> Result<Vec<MessageId>, StoreError> {
        let table = self.ids.read();
        if table.entries() == 0 {
            return Ok(ids.to_vec());
        }
        let place = |id: &MessageId| {
            let moved = table.get(Name::moved(id.key.sequence))?;
            Ok(moved.map_or(*id, |value| MessageId { key: value.key, ..*id }))
        };
        ids.iter().map(place).collect()
    }

    /// Whether one of these messages is being changed in the present group.
    pub(super) fn is_changing(&self, ids: &[MessageId]) -> bool {
        let changing = self.changing.lock();
        !changing.is_empty() && ids.iter().any(|id| changing.contains(&id.key.sequence))
    }

    /// The messages of a topic that have these own ids, while they are remembered.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when the disk does not answer.
    pub fn named(
        &self,
        topic: TopicId,
        own_ids: &[impl AsRef<str>],
        now: Timestamp,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        let times = self.times(now);
        let one = |own_id: &str| {
            let value = self.ids.read().get(Name::own(topic, own_id))?;
            let Some(value) = value else { return Ok(None) };
            let id = value.id();
            let (place, standing) = self.stands(id)?;
            let lane = place.key.sequence.lane();
            let remembered = match remembered(standing, place.key.due, times) {
                Some(_) if is_cancelled(standing) => {
                    self.tracks.of(lane).state.lock().is_cancelled_lately(place.key.sequence)
                }
                Some(remembered) => remembered,
                None => self.was_delivered(wanted(id, place))?,
            };
            Ok(remembered.then_some(id))
        };
        own_ids.iter().map(|own_id| one(own_id.as_ref())).collect()
    }

    /// Where a message stands and how. Waits for a commit that is about to move it.
    pub(super) fn stands(&self, id: MessageId) -> Result<(MessageId, Standing), StoreError> {
        loop {
            let place = self.places(&[id])?.pop().unwrap_or(id);
            let (states, stamps) = self.states_and_stamps(&[place])?;
            let stamp = stamps.into_iter().next().flatten();
            let standing = states.of(place.key.sequence.lane()).standing(place, stamp);
            drop(states);
            if is_pending(standing) {
                return Ok((place, standing));
            }
            if self.is_changing(&[id]) {
                drop(self.writer.lock());
            } else if self.places(&[id])?.pop() == Some(place) {
                return Ok((place, standing));
            }
        }
    }
}

impl Value {
    pub(super) fn new(id: MessageId, print: u64) -> Self {
        let MessageId { key, topic, partition } = id;
        Self { key, topic, partition, print }
    }

    pub(super) fn id(self) -> MessageId {
        MessageId { key: self.key, topic: self.topic, partition: self.partition }
    }
}

pub(super) const fn is_cancelled(standing: Standing) -> bool {
    matches!(standing, Standing::In(LifeState::Cancelled))
}

pub(super) const fn is_pending(standing: Standing) -> bool {
    matches!(standing, Standing::In(state) if state.is_pending())
}

/// Whether a message is still known for its own id: while it is pending, and a day after its end.
/// One that fell due while the store was closed was delivered after that.
/// `None` when only the log can tell: it ended and is not due, so it was cancelled long ago, or the
/// clock was set back.
pub(super) fn remembered(standing: Standing, due: Timestamp, times: Times) -> Option<bool> {
    let ended = |at: Timestamp| at.max(times.opened).saturating_add(REMEMBERED) > times.now;
    match standing {
        Standing::In(LifeState::Delivered) => Some(ended(due)),
        Standing::In(_) => Some(true),
        Standing::Past if due > times.now => None,
        Standing::Past => Some(ended(due)),
        Standing::Unknown => Some(false),
    }
}
