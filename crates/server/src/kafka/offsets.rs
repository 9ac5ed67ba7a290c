//! Committed offsets: where consumers of a group go on. They are the cursors of the same groups
//! that are consumed over HTTP, so that both see the same numbers, and a reset moves both.
//!
//! A group of this protocol spans topics; ours is one for each topic and comes into being with the
//! first commit. What must hold: a commit is answered when it survives a crash; it is told again
//! exactly as it was made, also where the log does not reach so far; a partition without a commit is
//! told as such (-1), whatever was committed for its neighbours.

mod commit;
mod fetch;
mod delete;

use std::sync::Arc;

use punctual_kafka_wire::ErrorCode;
use punctual_model::ports::{GroupError, Topic};
use punctual_model::{Partition, TopicKind, TopicName};

use crate::kafka::call::Call;

pub(crate) use self::commit::offset_commit;
pub(crate) use self::delete::offset_delete;
pub(crate) use self::fetch::offset_fetch;

/// From here on topics are named by their ids.
const BY_ID: i16 = 10;

/// The topic that is named, or whose id that is; retries are nobody's business.
///
/// # Errors
/// The code to answer with.
fn topic(call: &Call, name: &str, id: &[u8; 16]) -> Result<Arc<Topic>, ErrorCode> {
    let topics = call.shared.broker.topics();
    let (found, missing) = if call.version >= BY_ID {
        (call.shared.cluster.topic(&**topics, id), ErrorCode::UNKNOWN_TOPIC_ID)
    } else {
        let name = TopicName::new(name).ok();
        let found = name.and_then(|name| topics.by_name(&name));
        (found, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
    };
    found.filter(|topic| topic.kind != TopicKind::Retry).ok_or(missing)
}

/// The partition of that number, if the topic has it.
fn partition(topic: &Topic, index: i32) -> Option<Partition> {
    let number = u16::try_from(index).ok().filter(|number| *number < topic.settings.partitions)?;
    Partition::new(number)
}

/// The code for what a group refuses.
fn of_group(error: &GroupError) -> ErrorCode {
    match error {
        GroupError::TopicNotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        // The names of its topics, made of both, would not do.
        GroupError::NameTaken(_) | GroupError::NameTooLong => ErrorCode::INVALID_GROUP_ID,
        GroupError::TooMany => ErrorCode::UNKNOWN_SERVER_ERROR,
        GroupError::NotFound | GroupError::Store(_) => ErrorCode::COORDINATOR_NOT_AVAILABLE,
    }
}
