//! Everything a store shows to the outside, read at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_engine::store::Store;
use punctual_model::ports::{
    ArmLimit, Armed, LogPosition, PendingQuery, StoreError, Topic, TopicError,
};
use punctual_model::{Lane, Message, MessageId, Partition, Timestamp, TopicId};

/// What a store shows.
#[derive(Debug, Default)]
pub struct Look {
    /// The topics by name.
    pub topics: BTreeMap<String, Arc<Topic>>,
    /// What is pending.
    pub pending: BTreeMap<MessageId, Message>,
    /// What is in the logs, as often as it is there.
    pub logged: BTreeMap<MessageId, Vec<Message>>,
}

impl Look {
    /// Reads everything.
    pub fn at(store: &Store) -> Result<Self, String> {
        let mut look = Self::default();
        for topic in store.topics() {
            look.read_pending(store, topic.id)?;
            for number in 0..topic.settings.partitions {
                look.read_log(store, topic.id, Partition::new(number).unwrap())?;
            }
            look.topics.insert(topic.name.as_str().to_owned(), topic);
        }
        Ok(look)
    }

    fn read_pending(&mut self, store: &Store, topic: TopicId) -> Result<(), String> {
        Lane::ALL.into_iter().try_for_each(|lane| self.read_lane(store, topic, lane))
    }

    fn read_lane(&mut self, store: &Store, topic: TopicId, lane: Lane) -> Result<(), String> {
        let mut after = None;
        loop {
            let query = PendingQuery { after, ..PendingQuery::all_of(topic, lane, 25) };
            let page = store.pending(query).map_err(|error| format!("pending: {error}"))?;
            for entry in page.entries {
                if after.is_some_and(|after| entry.id.key <= after) {
                    return Err(format!("{} is listed out of order", entry.id));
                }
                after = Some(entry.id.key);
                self.pending.insert(entry.id, entry.message);
            }
            let Some(next) = page.next else { return Ok(()) };
            after = Some(next);
        }
    }

    fn read_log(&mut self, store: &Store, topic: TopicId, of: Partition) -> Result<(), String> {
        let read = |error: TopicError| format!("log: {error}");
        let bounds = store.logs().bounds(topic, of).map_err(read)?;
        let mut offset = bounds.start;
        while offset < bounds.end {
            let from = LogPosition { topic, partition: of, offset };
            let page = store.logs().read(from, 50).map_err(read)?;
            if page.is_empty() {
                return Err(format!("the log ends at {offset}, not at {}", bounds.end));
            }
            for delivered in page {
                if delivered.offset != offset {
                    return Err(format!("offset {} where {offset} was due", delivered.offset));
                }
                if delivered.delivered_at < delivered.id.key.due {
                    return Err(format!("{} has a time before its due time", delivered.id));
                }
                offset += 1;
                self.logged.entry(delivered.id).or_default().push(delivered.message);
            }
        }
        Ok(())
    }

    /// Holds the counts of the store against what it lists.
    pub fn compare_counts(&self, store: &Store) -> Result<(), String> {
        let mut counted: BTreeMap<TopicId, u64> = BTreeMap::new();
        for id in self.pending.keys() {
            *counted.entry(id.topic).or_default() += 1;
        }
        let told: BTreeMap<TopicId, u64> = store.counts().into_iter().collect();
        if told == counted {
            Ok(())
        } else {
            Err(format!("the store counts {told:?} and lists {counted:?}"))
        }
    }
}

/// How much one call hands out: little, so that there are many.
pub const FEW: ArmLimit = ArmLimit { entries: 6, bytes: 700 };

const MANY: ArmLimit = ArmLimit { entries: 40, bytes: 1 << 20 };

/// Everything due before `until`, as it comes.
pub fn arm_all(store: &Store, until: Timestamp) -> Result<Vec<Armed>, StoreError> {
    let mut all = Vec::new();
    for lane in Lane::ALL {
        loop {
            let batch = store.arm(lane, until, FEW)?;
            if batch.is_empty() {
                break;
            }
            all.extend(batch);
        }
    }
    Ok(all)
}

/// Delivers everything there is, as if it were the end of time.
pub fn drain(store: &Store) -> Result<(), StoreError> {
    for lane in Lane::ALL {
        loop {
            let mut batch = store.arm(lane, Timestamp::MAX, MANY)?;
            if batch.is_empty() {
                break;
            }
            store.claim(&mut batch)?;
            store.deliver(&batch, Timestamp::MAX)?;
            store.settle(&batch).unwrap();
        }
    }
    Ok(())
}
