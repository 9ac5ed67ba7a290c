//! Which partitions a request means, and whether its caller may read them.
//!
//! Rights come first: whoever may not read a topic is not told whether it exists. The topics through
//! which failed messages of a group come back are nobody's but the group's, and so unknown here.

use std::sync::Arc;

use punctual_kafka_wire::ErrorCode;
use punctual_model::ports::{Records, Topic, TopicError};
use punctual_model::{Partition, TopicKind, TopicName};

use crate::kafka::call::Call;
use crate::kafka::fetch::session::TopicKey;

/// The topic of that name, for somebody who reads it.
pub(crate) fn named(call: &Call, name: &str) -> Result<Arc<Topic>, ErrorCode> {
    let name = TopicName::new(name).map_err(|_illegal| ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
    if !call.may_fetch(&name) {
        return Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED);
    }
    let topic = call.shared.broker.topics().by_name(&name).filter(is_shown);
    topic.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The topic that a request means, for somebody who reads it.
pub(crate) fn meant(call: &Call, key: &TopicKey) -> Result<Arc<Topic>, ErrorCode> {
    let id = match key {
        TopicKey::Name(name) => return named(call, name),
        TopicKey::Id(id) => *id,
    };
    let topic = call.shared.cluster.topic(&**call.shared.broker.topics(), &id);
    let topic = topic.filter(is_shown).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
    match call.may_fetch(&topic.name) {
        true => Ok(topic),
        false => Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
    }
}

/// The partition of that number, as far as any topic may have it.
pub(crate) fn partition(number: i32) -> Result<Partition, ErrorCode> {
    let number = u16::try_from(number).ok().and_then(Partition::new);
    number.ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
}

/// The logs, which are here wherever there is a listener.
pub(crate) fn records(call: &Call) -> Result<&Arc<dyn Records>, ErrorCode> {
    call.shared.broker.local_records().ok_or(ErrorCode::KAFKA_STORAGE_ERROR)
}

/// What a refusal of the logs is called.
pub(crate) fn refusal(error: &TopicError) -> ErrorCode {
    match error {
        TopicError::NotFound => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
        TopicError::CannotShrink(_)
        | TopicError::TooMany
        | TopicError::Reserved
        | TopicError::Store(_) => ErrorCode::KAFKA_STORAGE_ERROR,
    }
}

fn is_shown(topic: &Arc<Topic>) -> bool {
    topic.kind != TopicKind::Retry
}
