//! What the tests with a real Kafka share: topics of their own, and a reader that misses nothing.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use punctual_model::ports::Armed;
use punctual_model::{
    Basis, Header, Key, Message, MessageId, Partition, Sequence, Timestamp, TopicId, TopicName,
};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::metadata::{MetadataPartition, MetadataTopic};
use rdkafka::{Offset, TopicPartitionList};
use tokio::runtime::{Handle, Runtime};

/// No test waits longer for anything.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How long one answer of Kafka may take, before it is asked again.
const ANSWER_WAIT: Duration = Duration::from_secs(30);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
});

/// A runtime that lasts as long as the tests.
pub fn handle() -> Handle {
    RUNTIME.handle().clone()
}

/// Runs something on it and waits.
pub fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// A name that no other test has, in this run or another.
pub fn unique(what: &str) -> TopicName {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let run = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    TopicName::new(&format!("{what}-{run}-{}-{number}", std::process::id())).unwrap()
}

/// Makes a topic in Kafka by hand, with these settings, and waits until Kafka tells of it.
pub fn make_topic(brokers: &str, name: &TopicName, partitions: i32, settings: &[(&str, &str)]) {
    let mut topic = NewTopic::new(name.as_str(), partitions, TopicReplication::Fixed(1));
    for (name, value) in settings {
        topic = topic.set(name, value);
    }
    let admin = admin(brokers);
    let made = block_on(admin.create_topics([&topic], &AdminOptions::new())).unwrap();
    made.into_iter().next().unwrap().unwrap();
    wait_until("Kafka tells of the topic", || {
        let told = admin.inner().fetch_metadata(Some(name.as_str()), ANSWER_WAIT);
        let is_whole = |topic: &MetadataTopic| {
            let has_leader = |partition: &MetadataPartition| partition.leader() >= 0;
            i32::try_from(topic.partitions().len()) == Ok(partitions)
                && topic.partitions().iter().all(has_leader)
        };
        told.is_ok_and(|told| told.topics().iter().any(is_whole))
    });
}

/// Deletes a topic of Kafka and waits until it is gone.
pub fn delete_topic(brokers: &str, name: &TopicName) {
    let admin = admin(brokers);
    let gone = block_on(admin.delete_topics(&[name.as_str()], &AdminOptions::new())).unwrap();
    gone.into_iter().next().unwrap().unwrap();
    wait_until("the topic is gone", || {
        let told = admin.inner().fetch_metadata(None, ANSWER_WAIT);
        told.is_ok_and(|told| told.topics().iter().all(|topic| topic.name() != name.as_str()))
    });
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

/// A record as a Kafka client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub key: Option<Bytes>,
    pub body: Option<Bytes>,
    pub headers: Vec<Header>,
}

impl Read {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|header| header.name == name).map(|header| &*header.value)
    }

    /// The id that the outlet put on it.
    pub fn id(&self) -> MessageId {
        MessageId::try_from(self.header("punctual-id").unwrap()).unwrap()
    }

    /// The message as it was sent.
    pub fn message(&self) -> Message {
        let sent = |header: &&Header| !["punctual-id", "punctual-due"].contains(&&*header.name);
        Message {
            key: self.key.clone(),
            headers: self.headers.iter().filter(sent).cloned().collect(),
            body: self.body.clone().unwrap_or_default(),
        }
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone().unwrap().to_vec()).unwrap()
    }
}

/// Everything that a partition of Kafka holds.
pub fn read_partition(brokers: &str, topic: &str, partition: i32) -> Vec<Read> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.message.max.bytes", "16777216")
        .create()
        .unwrap();
    let mut end = 0;
    wait_until("Kafka tells how long the partition is", || {
        let told = consumer.fetch_watermarks(topic, partition, ANSWER_WAIT);
        end = told.as_ref().map_or(0, |(_, end)| *end);
        told.is_ok()
    });
    let mut place = TopicPartitionList::new();
    place.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    consumer.assign(&place).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut found = Vec::new();
    let mut next = 0;
    while next < end {
        assert!(Instant::now() < deadline, "{topic}/{partition} was read to {next} of {end}");
        // After an error the client goes on by itself.
        let Some(Ok(record)) = consumer.poll(Duration::from_millis(500)) else { continue };
        next = record.offset() + 1;
        let headers = record.headers().map_or_else(Vec::new, |headers| {
            let owned = |header: rdkafka::message::Header<'_, &[u8]>| Header {
                name: header.key.to_owned(),
                value: Bytes::copy_from_slice(header.value.unwrap_or_default()),
            };
            headers.iter().map(owned).collect()
        });
        found.push(Read {
            key: record.key().map(Bytes::copy_from_slice),
            body: record.payload().map(Bytes::copy_from_slice),
            headers,
        });
    }
    found
}

/// Everything in the first `partitions` of a topic.
pub fn read_topic(brokers: &str, topic: &str, partitions: i32) -> Vec<Read> {
    (0..partitions).flat_map(|partition| read_partition(brokers, topic, partition)).collect()
}

/// Waits until something is so.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// The `number`-th entry, for a partition of a topic.
pub fn armed(number: u64, topic: TopicId, partition: u16, body: impl Into<Bytes>) -> Armed {
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    Armed {
        key: Key {
            due: Timestamp::from_millis_saturating(now),
            sequence: Sequence::new(number).unwrap(),
        },
        topic,
        partition: Partition::new(partition).unwrap(),
        basis: Basis::Delay,
        message: Message { body: body.into(), ..Message::default() },
        extra: None,
        origin: punctual_model::ports::Origin(0),
    }
}

/// What time it is.
pub fn now() -> Timestamp {
    let now = u64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    Timestamp::from_millis_saturating(now)
}
