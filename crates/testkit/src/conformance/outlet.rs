//! The contract of [`Outlet`].

use futures_executor::block_on;
use punctual_model::ports::{Armed, Origin, Outlet};
use punctual_model::{
    Basis, Key, Lane, Message, MessageId, Partition, Sequence, Timestamp, TopicId,
};

use super::{START, Stage, after, delicate_messages, message, partition};

/// Holds an outlet to its contract. `make` gives a fresh one each time; `read` gives back all that
/// a partition has received, in its order.
///
/// # Panics
/// Where the outlet breaks it.
pub fn outlet<O: Outlet>(
    make: impl Fn() -> Stage<O>,
    read: impl Fn(&O, TopicId, Partition) -> Vec<(MessageId, Message)>,
) {
    an_empty_batch_is_nothing(&make(), &read);
    order_is_kept_within_each_partition(&make(), &read);
    content_arrives_byte_for_byte(&make(), &read);
    a_large_batch_arrives_whole(&make(), &read);
}

/// The `number`-th entry of a case, due that many milliseconds after the start.
pub(super) fn armed(number: u64, topic: TopicId, partition: Partition, message: Message) -> Armed {
    let sequence = Sequence::new(number).expect("cases are short");
    Armed {
        key: Key { due: after(number), sequence },
        topic,
        partition,
        basis: Basis::Delay,
        message,
        extra: None,
        origin: Origin(0),
    }
}

pub(super) fn deliver<O: Outlet>(outlet: &O, batch: &[Armed], now: Timestamp) {
    let untaken = block_on(outlet.deliver(batch, now)).expect("a working outlet takes a batch");
    assert!(untaken.is_empty(), "a working outlet takes everything, not all but {untaken:?}");
    for lane in Lane::ALL {
        assert!(outlet.told(lane).is_empty(), "nothing was left open");
    }
}

/// What a partition should have received of `sent`.
fn part(sent: &[Armed], topic: TopicId, partition: Partition) -> Vec<(MessageId, Message)> {
    let here = |armed: &&Armed| armed.topic == topic && armed.partition == partition;
    sent.iter().filter(here).map(|armed| (armed.id(), armed.message.clone())).collect()
}

fn an_empty_batch_is_nothing<O: Outlet>(
    stage: &Stage<O>,
    read: impl Fn(&O, TopicId, Partition) -> Vec<(MessageId, Message)>,
) {
    deliver(&stage.subject, &[], START);
    assert!(read(&stage.subject, stage.topics[0], partition(0)).is_empty());
}

fn order_is_kept_within_each_partition<O: Outlet>(
    stage: &Stage<O>,
    read: impl Fn(&O, TopicId, Partition) -> Vec<(MessageId, Message)>,
) {
    let mut sent = Vec::new();
    for number in 0..200 {
        let topic = stage.topics[usize::from(number % 3 == 0)];
        let place = u16::try_from(number * 7 % 4).expect("one of four partitions");
        sent.push(armed(number, topic, partition(place), message(&number.to_string())));
    }
    // Late arrivals come behind entries with a later due time; the order offered is what counts.
    sent.swap(20, 150);
    for batch in sent.chunks(33) {
        deliver(&stage.subject, batch, after(1000));
    }
    for topic in stage.topics {
        for number in 0..Stage::<O>::PARTITIONS {
            let place = partition(number);
            let arrived = read(&stage.subject, topic, place);
            assert!(arrived == part(&sent, topic, place), "topic {topic:?} partition {number}");
        }
    }
}

fn content_arrives_byte_for_byte<O: Outlet>(
    stage: &Stage<O>,
    read: impl Fn(&O, TopicId, Partition) -> Vec<(MessageId, Message)>,
) {
    let (topic, place) = (stage.topics[1], partition(2));
    let sent: Vec<Armed> = (1..)
        .zip(delicate_messages())
        .map(|(number, message)| armed(number, topic, place, message))
        .collect();
    deliver(&stage.subject, &sent, after(100));
    let arrived = read(&stage.subject, topic, place);
    assert_eq!(arrived.len(), sent.len());
    for (index, (armed, (id, message))) in sent.iter().zip(&arrived).enumerate() {
        assert_eq!(armed.id(), *id);
        assert!(armed.message == *message, "message {index} was changed on the way");
    }
}

fn a_large_batch_arrives_whole<O: Outlet>(
    stage: &Stage<O>,
    read: impl Fn(&O, TopicId, Partition) -> Vec<(MessageId, Message)>,
) {
    let (topic, place) = (stage.topics[0], partition(3));
    let sent: Vec<Armed> =
        (0..5000).map(|number| armed(number, topic, place, message("one of many"))).collect();
    deliver(&stage.subject, &sent, after(5000));
    assert!(read(&stage.subject, topic, place) == part(&sent, topic, place));
}
