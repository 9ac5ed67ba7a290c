//! Things that are named by an id: one that is foreign is looked for under an id that names nothing.
//!
//! So the request goes the same way as one for a thing that is missing, and the answer is the same to
//! the last byte, whatever else may be wrong with the request.

use std::future::pending;
use std::time::Duration;

use punctual_broker::transaction::{Check, SomeChecks, Transaction};
use punctual_model::ports::StoreError;
use punctual_model::{GroupName, Key, Lane, MessageId, Sequence, TopicId, TopicName};

use crate::access::{Caller, Permission, Target};
use crate::app::Broker;

/// A topic that is never made: there cannot be so many.
const NOWHERE: TopicId = match TopicId::new(TopicId::MAX.get() - 1) {
    Some(topic) => topic,
    None => TopicId::MAX,
};

/// How long somebody waits who was woken for what is not for it.
const PASSED_OVER_PAUSE: Duration = Duration::from_millis(250);

/// The same kind of id, of nothing.
fn nothing(id: MessageId) -> MessageId {
    let last = match id.key.sequence.lane() {
        Lane::Retry => Sequence::MAX,
        Lane::Message => Sequence::new(Sequence::MAX.get() >> 1).unwrap_or(Sequence::MAX),
    };
    let key = Key { due: id.key.due, sequence: last };
    MessageId { key, topic: NOWHERE, partition: id.partition }
}

/// The id of a message, or of nothing where the caller does not have the right on its topic.
pub(crate) fn own_message(
    caller: &Caller,
    broker: &Broker,
    permission: Permission,
    id: MessageId,
) -> MessageId {
    let Caller::App(_) = caller else { return id };
    let topic = broker.topics().by_id(id.topic);
    match topic.is_some_and(|topic| caller.may(permission, Target::Topic(&topic.name))) {
        true => id,
        false => nothing(id),
    }
}

/// The id of a transaction, or of nothing where the caller does not have the right on it.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn own_transaction(
    caller: &Caller,
    broker: &Broker,
    permission: Permission,
    id: MessageId,
) -> Result<MessageId, StoreError> {
    let Caller::App(_) = caller else { return Ok(id) };
    let found = broker.transactions().get(id).await?;
    let own = found.is_some_and(|found| has_transaction(caller, permission, &found));
    Ok(if own { id } else { nothing(id) })
}

/// Whether the caller has the right on a transaction: on its producer group, together with each topic
/// that its messages go to.
pub(crate) fn has_transaction(
    caller: &Caller,
    permission: Permission,
    transaction: &Transaction,
) -> bool {
    let topics = transaction.messages.iter().filter_map(|half| half.topic.as_ref());
    has_halves(caller, permission, &transaction.producer_group, topics)
}

/// Checks for a member of that producer group, as far as the caller may decide about them.
///
/// # Errors
/// As the store says; then no check was counted.
pub(crate) async fn checks_for(
    caller: &Caller,
    broker: &Broker,
    group: &GroupName,
    max: usize,
) -> Result<Vec<Check>, StoreError> {
    let Caller::App(_) = caller else { return broker.transactions().checks(group, max).await };
    let wanted = |topics: &[TopicName]| has_halves(caller, Permission::Send, group, topics);
    let some = broker.transactions().checks_where(group, max, wanted).await?;
    let SomeChecks { checks, passed_over } = some;
    if checks.is_empty() && passed_over {
        // Those who wait are woken for what is not for them; they must not ask without end.
        let _elapsed = tokio::time::timeout(PASSED_OVER_PAUSE, pending::<()>()).await;
    }
    Ok(checks)
}

/// The same for the topics of a transaction.
fn has_halves<'a>(
    caller: &Caller,
    permission: Permission,
    group: &GroupName,
    topics: impl IntoIterator<Item = &'a TopicName>,
) -> bool {
    caller.may(permission, Target::ProducerGroup(group))
        && topics.into_iter().all(|topic| caller.may(permission, Target::Group(topic, group)))
}

#[cfg(test)]
mod tests {
    use punctual_model::{Partition, Timestamp};

    use super::*;

    #[test]
    fn nothing_has_an_id_that_no_message_has() {
        let key = Key { due: Timestamp::MIN, sequence: Sequence::new(1).unwrap() };
        let topic = TopicId::new(1).unwrap();
        let id = MessageId { key, topic, partition: Partition::new(0).unwrap() };
        let nothing = nothing(id);
        assert_ne!(nothing.topic, TopicId::TRANSACTIONS);
        assert_ne!((nothing.topic, nothing.key), (id.topic, id.key));
        assert_eq!(nothing.key.sequence.lane(), id.key.sequence.lane());
        assert_eq!(nothing.to_string().parse(), Ok(nothing));
    }
}
