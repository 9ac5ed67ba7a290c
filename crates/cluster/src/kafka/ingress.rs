//! The way in from Kafka: records of some topics are read with a consumer group and handed to
//! whoever schedules them; their offsets are committed after that.
//!
//! Nothing is lost: an offset is committed only when everything before it is in the timeline, or in
//! the topic of dead letters. Nothing is doubled: each record has a name of its own, made of where it
//! stands, so that one that is read again after a crash is known. A record that asks for something
//! impossible goes to `{topic}.dead` with the reason and does not stop the rest. While the timeline
//! takes nothing, nothing more is read.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use punctual_model::TopicName;
use punctual_model::ports::StoreError;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::message::{BorrowedMessage, Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientContext, Offset, TopicPartitionList};
use tokio::runtime::Handle;

use super::client::say;
use super::topics::{KafkaTopics, Shape};
use super::{KafkaError, KafkaOptions, monotonic};

/// Records that are handed on together, and bytes of them.
const BATCH_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 4 << 20;
/// How long a batch waits for more after its first record.
const GATHER: Duration = Duration::from_millis(20);
/// How long one look for records takes at most.
const LOOK: Duration = Duration::from_millis(200);
/// How long to wait before something that was refused is tried again.
const RETRY_WAIT: Duration = Duration::from_millis(500);
/// How long Kafka may take for a dead letter.
const DEAD_WAIT: Duration = Duration::from_secs(10);
/// The header of a dead letter that says what was wrong.
const REASON_HEADER: &str = "punctual-reason";
/// The header of a dead letter that says where it stood.
const ORIGIN_HEADER: &str = "punctual-origin";

/// What is read, and how.
#[derive(Clone, Debug)]
pub struct IngressOptions {
    /// How Kafka is reached.
    pub kafka: KafkaOptions,
    /// The topics whose records are scheduled.
    pub topics: Vec<String>,
    /// The consumer group.
    pub group: String,
}

/// A record as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The topic it stands in.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// Its time, in milliseconds since 1970, if it has one.
    pub timestamp: Option<i64>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its headers.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Its value.
    pub body: Option<Bytes>,
}

impl Incoming {
    /// A name that no other record has.
    #[must_use]
    pub fn own_id(&self) -> String {
        format!("kafka/{}/{}/{}", self.topic, self.partition, self.offset)
    }

    fn weight(&self) -> usize {
        let headers = self.headers.iter();
        let headers: usize = headers
            .map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len) + 64)
            .sum();
        let key = self.key.as_ref().map_or(0, Bytes::len);
        key + headers + self.body.as_ref().map_or(0, Bytes::len) + 256
    }
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// The timeline has it, or has done what it asked for.
    Taken,
    /// It asks for something impossible: why.
    Bad(String),
}

/// The answer for each record of a batch; an error when none of them could be dealt with now.
pub type Accepting =
    Pin<Box<dyn Future<Output = Result<Vec<Accepted>, StoreError>> + Send + 'static>>;
/// Whoever schedules records. The same records may be handed over again.
pub type Accept = Arc<dyn Fn(Arc<Vec<Incoming>>) -> Accepting + Send + Sync>;

/// Reads records from Kafka until it is stopped.
#[derive(Debug)]
pub struct KafkaIngress {
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Stop {
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Waits; true when it is time to stop.
    fn wait(&self, time: Duration) -> bool {
        let mut guard = self.lock.lock();
        if !self.is_asked() {
            self.changed.wait_for(&mut guard, time);
        }
        self.is_asked()
    }
}

impl KafkaIngress {
    /// Starts to read. It does not wait for Kafka.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] when the settings make no sense.
    pub fn start(
        options: &IngressOptions,
        accept: Accept,
        handle: Handle,
    ) -> Result<Self, KafkaError> {
        let stop = Arc::new(Stop::default());
        let reader = Reader::new(options, accept, handle, Arc::clone(&stop))?;
        let thread = std::thread::Builder::new().name("punctual-ingress".to_owned());
        let thread = thread.spawn(move || reader.run());
        let thread = thread.map_err(|error| KafkaError::Unavailable(error.to_string()))?;
        Ok(Self { stop, thread: Mutex::new(Some(thread)) })
    }

    /// Lets the batch in hand end, commits it and leaves the group. Blocks until then.
    pub fn stop(&self) {
        self.stop.asked.store(true, Ordering::Release);
        drop(self.stop.lock.lock());
        self.stop.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("reading from Kafka ended by a panic");
        }
    }
}

impl Drop for KafkaIngress {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What was taken from this reader while it held records of it.
#[derive(Debug, Default)]
struct Places {
    lost: Mutex<BTreeSet<(String, i32)>>,
}

impl ClientContext for Places {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        say(level, facility, message);
    }

    fn error(&self, error: rdkafka::error::KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka's client has trouble");
    }
}

impl ConsumerContext for Places {
    fn pre_rebalance(&self, _consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let Rebalance::Revoke(places) = rebalance {
            let places = places.elements();
            let lost = places.iter().map(|place| (place.topic().to_owned(), place.partition()));
            self.lost.lock().extend(lost);
        }
    }
}

struct Reader {
    consumer: BaseConsumer<Places>,
    dead: FutureProducer,
    kafka: KafkaTopics,
    accept: Accept,
    handle: Handle,
    stop: Arc<Stop>,
    /// Topics of dead letters that are there.
    made: Mutex<BTreeSet<String>>,
}

impl Reader {
    fn new(
        options: &IngressOptions,
        accept: Accept,
        handle: Handle,
        stop: Arc<Stop>,
    ) -> Result<Self, KafkaError> {
        if options.topics.is_empty() || options.group.is_empty() {
            return Err(KafkaError::Settings("reading needs topics and a group".to_owned()));
        }
        let defaults = [
            ("auto.offset.reset", "earliest"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("queued.max.messages.kbytes", "32768"),
            ("fetch.message.max.bytes", "6291456"),
            ("topic.metadata.refresh.interval.ms", "30000"),
            // One that was killed holds its partitions for so long, also against itself.
            ("session.timeout.ms", "10000"),
        ];
        let fixed = [("group.id", options.group.as_str()), ("enable.auto.commit", "false")];
        let config = options.kafka.config(&defaults, &fixed)?;
        let consumer: BaseConsumer<Places> =
            BaseConsumer::from_config_and_context(&config, Places::default())?;
        let topics: Vec<&str> = options.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        let fixed = [("acks", "all"), ("enable.idempotence", "true")];
        let dead = options.kafka.config(&[("message.max.bytes", "16777216")], &fixed)?.create()?;
        let kafka = KafkaTopics::connect(&options.kafka, handle.clone())?;
        Ok(Self { consumer, dead, kafka, accept, handle, stop, made: Mutex::default() })
    }

    fn run(self) {
        while !self.stop.is_asked() {
            let (batch, torn) = self.gather();
            if batch.is_empty() {
                continue;
            }
            self.places().lost.lock().clear();
            self.deal_with(batch, &torn);
        }
    }

    fn places(&self) -> &Places {
        self.consumer.context()
    }

    /// The next records, and of those that cannot be read why.
    fn gather(&self) -> (Vec<Incoming>, BTreeMap<usize, String>) {
        let (mut batch, mut torn) = (Vec::new(), BTreeMap::new());
        let (mut bytes, mut until) = (0, None);
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX && !self.stop.is_asked() {
            let wait =
                until.map_or(LOOK, |until: Instant| until.saturating_duration_since(monotonic()));
            match self.consumer.poll(wait) {
                None => break,
                Some(Err(error)) => {
                    tracing::debug!(%error, "nothing to be read from Kafka for now");
                    if batch.is_empty() {
                        self.stop.wait(LOOK);
                    }
                    break;
                }
                Some(Ok(record)) => {
                    let (incoming, wrong) = incoming(&record);
                    if let Some(wrong) = wrong {
                        torn.insert(batch.len(), wrong);
                    }
                    bytes += incoming.weight();
                    batch.push(incoming);
                    until.get_or_insert_with(|| monotonic() + GATHER);
                }
            }
        }
        (batch, torn)
    }

    /// Sees to it that everything in the batch is where it belongs, then commits.
    fn deal_with(&self, mut batch: Vec<Incoming>, torn: &BTreeMap<usize, String>) {
        let mut bad: Vec<(Incoming, String)> = Vec::new();
        let ends = ends(&batch);
        for (index, why) in torn.iter().rev() {
            bad.push((batch.remove(*index), why.clone()));
        }
        let mut batch = Arc::new(batch);
        while !batch.is_empty() {
            let answer = self.handle.block_on((self.accept)(Arc::clone(&batch)));
            match answer {
                Ok(accepted) => {
                    for (record, accepted) in batch.iter().zip(accepted) {
                        if let Accepted::Bad(why) = accepted {
                            bad.push((record.clone(), why));
                        }
                    }
                    break;
                }
                Err(error) if error.passes() => {
                    tracing::debug!(%error, "records of Kafka wait for the timeline");
                    let Some(left) = self.hold(&batch) else { return };
                    batch = left;
                }
                Err(error) => {
                    tracing::error!(%error, "nothing more is read from Kafka");
                    while !self.stop.wait(LOOK) {}
                    return;
                }
            }
        }
        for (record, why) in bad {
            while let Err(error) = self.bury(&record, &why) {
                tracing::warn!(%error, "a dead letter waits for Kafka");
                if self.hold(&batch).is_none() {
                    return;
                }
            }
        }
        self.commit(&ends);
    }

    /// Waits a while without reading more, and answers what of the batch is still ours to deal with;
    /// nothing when it is time to stop.
    fn hold(&self, batch: &Arc<Vec<Incoming>>) -> Option<Arc<Vec<Incoming>>> {
        let until = monotonic() + RETRY_WAIT;
        while let left = until.saturating_duration_since(monotonic())
            && !left.is_zero()
        {
            if let Ok(places) = self.consumer.assignment() {
                // Not ours any more: then there is nothing to be held.
                drop(self.consumer.pause(&places));
            }
            // Whoever does not ask for records is thought to be gone. One that comes all the same was
            // on its way already, and is read again.
            if let Some(Ok(record)) = self.consumer.poll(left.min(LOOK)) {
                let again = Offset::Offset(record.offset());
                let (topic, partition) = (record.topic(), record.partition());
                if let Err(error) = self.consumer.seek(topic, partition, again, DEAD_WAIT) {
                    tracing::warn!(%error, topic, partition, "a record is read again only after a restart");
                }
            }
            if self.stop.is_asked() {
                return None;
            }
        }
        if let Ok(places) = self.consumer.assignment() {
            drop(self.consumer.resume(&places));
        }
        let lost = self.places().lost.lock();
        if lost.is_empty() {
            return Some(Arc::clone(batch));
        }
        let ours =
            |record: &&Incoming| !lost.contains(&(record.topic.to_string(), record.partition));
        Some(Arc::new(batch.iter().filter(ours).cloned().collect()))
    }

    /// Puts a record where somebody can look at it.
    fn bury(&self, record: &Incoming, why: &str) -> Result<(), KafkaError> {
        let topic = format!("{}.dead", record.topic);
        self.make(&topic)?;
        let mut headers = OwnedHeaders::new_with_capacity(record.headers.len() + 2);
        for (name, value) in &record.headers {
            headers = headers.insert(Header { key: name, value: value.as_deref() });
        }
        let origin = format!("{}/{}/{}", record.topic, record.partition, record.offset);
        headers = headers.insert(Header { key: REASON_HEADER, value: Some(why) });
        headers = headers.insert(Header { key: ORIGIN_HEADER, value: Some(&origin) });
        let mut dead: FutureRecord<'_, [u8], [u8]> = FutureRecord::to(&topic).headers(headers);
        if let Some(key) = &record.key {
            dead = dead.key(key);
        }
        if let Some(body) = &record.body {
            dead = dead.payload(body);
        }
        let sent = self.handle.block_on(self.dead.send(dead, DEAD_WAIT));
        sent.map_err(|(error, _)| KafkaError::from(error))?;
        tracing::warn!(topic = %record.topic, partition = record.partition, offset = record.offset, why, "a record cannot be scheduled; it is a dead letter");
        Ok(())
    }

    /// Sees to it that there is a topic for dead letters.
    fn make(&self, topic: &str) -> Result<(), KafkaError> {
        if self.made.lock().contains(topic) {
            return Ok(());
        }
        let refused = |error| KafkaError::Refused(format!("{topic}: {error}"));
        let name = TopicName::new(topic).map_err(refused)?;
        self.kafka.make_blocking(&name, Shape { partitions: 1, retention: None })?;
        self.made.lock().insert(topic.to_owned());
        Ok(())
    }

    /// Commits that everything before these offsets is dealt with.
    fn commit(&self, ends: &BTreeMap<(Arc<str>, i32), i64>) {
        let lost = self.places().lost.lock().clone();
        let mut offsets = TopicPartitionList::new();
        for ((topic, partition), offset) in ends {
            if !lost.contains(&(topic.to_string(), *partition)) {
                let added =
                    offsets.add_partition_offset(topic, *partition, Offset::Offset(*offset));
                if let Err(error) = added {
                    tracing::warn!(%error, %topic, partition, "an offset cannot be committed");
                }
            }
        }
        // The next commit says the same and more; until then a record may be read again, and is known.
        if let Err(error) = self.consumer.commit(&offsets, CommitMode::Sync) {
            tracing::debug!(%error, "offsets are not committed yet");
        }
    }
}

/// One past the last record of each partition.
fn ends(batch: &[Incoming]) -> BTreeMap<(Arc<str>, i32), i64> {
    let mut ends = BTreeMap::new();
    for record in batch {
        let end = ends.entry((Arc::clone(&record.topic), record.partition)).or_insert(0);
        *end = record.offset.saturating_add(1).max(*end);
    }
    ends
}

/// The record, and what is wrong with it if it cannot be read.
fn incoming(record: &BorrowedMessage<'_>) -> (Incoming, Option<String>) {
    let read = || -> Vec<(String, Option<Bytes>)> {
        let Some(headers) = record.headers() else { return Vec::new() };
        let owned = |header: Header<'_, &[u8]>| {
            (header.key.to_owned(), header.value.map(Bytes::copy_from_slice))
        };
        headers.iter().map(owned).collect()
    };
    // The library stops at a name that is no text, and anybody may have sent one.
    let headers = catch_unwind(AssertUnwindSafe(read));
    let wrong = headers.is_err().then(|| "names of headers are UTF-8 text".to_owned());
    let incoming = Incoming {
        topic: record.topic().into(),
        partition: record.partition(),
        offset: record.offset(),
        timestamp: record.timestamp().to_millis().filter(|millis| *millis >= 0),
        key: record.key().map(Bytes::copy_from_slice),
        headers: headers.unwrap_or_default(),
        body: record.payload().map(Bytes::copy_from_slice),
    };
    (incoming, wrong)
}
