//! The outlet to Kafka: a message is delivered once Kafka has acknowledged it, on all replicas.
//!
//! While Kafka as a whole is silent nothing is moved: the batch is offered again, and what the client
//! holds of it is waited for, not sent again. A topic that Kafka refuses, or a partition that is
//! silent while others answer, is held back by itself; see [`sends`](super::sends).
//!
//! The client has threads of its own; waiting is done by tasks of the runtime that is given at the
//! start, so that whoever delivers needs none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_model::ports::{Armed, Outlet, StoreError, Told, Topic, Topics, Untaken};
use punctual_model::{Lane, Span, Timestamp, TopicId, TopicKind};
use rdkafka::producer::{BaseRecord, Producer};
use tokio::runtime::Handle;

use super::client::{self, Sender, Shared};
use super::sends::{Admission, Failure};
use super::topics::{KafkaTopics, Shape, partitions_in};
use super::{KafkaError, KafkaOptions, monotonic, record};

/// How long Kafka may take to give a sign of life.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// How long it is believed that a topic of Kafka has too few partitions.
const COUNT_AGE_MAX: Duration = Duration::from_secs(60);
/// How long a message waits for which the client has no room.
const FULL_WAIT: Span = Span::from_millis(200);
/// When a message of a topic that cannot be found yet is offered again.
const UNKNOWN_TOPIC_WAIT: Span = Span::from_secs(1);

/// Delivers to Kafka.
pub struct KafkaOutlet {
    options: KafkaOptions,
    shared: Arc<Shared>,
    sender: Mutex<Arc<Sender>>,
    topics: Arc<dyn Topics>,
    kafka: KafkaTopics,
    /// Topics that have fewer partitions in Kafka than in the catalogue.
    counts: Arc<Mutex<HashMap<TopicId, Count>>>,
    handle: Handle,
}

#[derive(Clone, Copy)]
struct Count {
    partitions: i32,
    since: Instant,
}

/// What became of the entries of a batch that were not sent.
#[derive(Default)]
struct Offered {
    /// By place, how long each has to wait.
    refused: HashMap<usize, Span>,
    /// Some wait for a partition that is silent.
    silent: bool,
}

impl std::fmt::Debug for KafkaOutlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaOutlet").field("options", &self.options).finish_non_exhaustive()
    }
}

impl KafkaOutlet {
    /// An outlet for the topics of a catalogue. It does not wait for Kafka.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] when the settings make no sense.
    pub fn start(
        options: &KafkaOptions,
        topics: Arc<dyn Topics>,
        handle: Handle,
    ) -> Result<Self, KafkaError> {
        let shared = Arc::new(Shared::default());
        let sender = Mutex::new(client::sender(options, &shared)?);
        let kafka = KafkaTopics::connect(options, handle.clone())?;
        let (options, counts) = (options.clone(), Arc::default());
        Ok(Self { options, shared, sender, topics, kafka, counts, handle })
    }

    /// Waits at most so long for what is on its way, and gives up the rest. Whoever delivered has to
    /// have stopped.
    pub fn close(&self, wait: Duration) {
        let sender = Arc::clone(&self.sender.lock());
        if let Err(error) = sender.flush(wait) {
            let left = self.shared.sends.lock().len();
            tracing::warn!(%error, left, "messages on their way to Kafka will be sent again");
        }
    }

    /// Whether Kafka answered when it was last spoken to.
    #[must_use]
    pub fn is_reachable(&self) -> bool {
        !self.shared.unreachable.load(Ordering::Relaxed)
    }

    /// The client; a new one if the old one has given up for good.
    fn sender(&self) -> Result<Arc<Sender>, StoreError> {
        let mut sender = self.sender.lock();
        if let Some((code, reason)) = sender.client().fatal_error() {
            tracing::error!(%code, reason, "Kafka's client has given up; a new one takes its place");
            let fresh = client::sender(&self.options, &self.shared)?;
            let spent = std::mem::replace(&mut *sender, fresh);
            // Its end takes a while. It reports what it still held.
            self.handle.spawn_blocking(move || drop(spent));
        }
        Ok(Arc::clone(&sender))
    }

    /// Hands everything to the client that may go now and is not there yet.
    fn offer(&self, sender: &Sender, batch: &[Armed], now: Timestamp) -> Offered {
        let mut offered = Offered::default();
        let mut to_send = Vec::with_capacity(batch.len());
        let begun = monotonic();
        let mut sends = self.shared.sends.lock();
        let mut known: Option<Option<Arc<Topic>>> = None;
        for (index, armed) in batch.iter().enumerate() {
            let same = |topic: &Option<Arc<Topic>>| {
                topic.as_ref().is_some_and(|topic| topic.id == armed.topic)
            };
            let topic = known.take().filter(same).unwrap_or_else(|| self.topics.by_id(armed.topic));
            // A topic that was deleted after the claim takes nothing, and misses nothing. One that
            // only cannot be found yet does.
            if topic.is_none() && !self.topics.is_gone(armed.topic) {
                offered.refused.insert(index, UNKNOWN_TOPIC_WAIT);
            }
            if let Some(topic) = &topic {
                match sends.admit(armed, begun) {
                    Admission::Known => {}
                    Admission::Send => to_send.push((index, armed, Arc::clone(topic))),
                    Admission::Held(wait) => drop(offered.refused.insert(index, wait)),
                    Admission::Silent(wait) => {
                        offered.refused.insert(index, wait);
                        offered.silent = true;
                    }
                }
            }
            known = Some(topic);
        }
        drop(sends);
        for (index, armed, topic) in to_send {
            if let Some(wait) = self.send(sender, armed, &topic, now) {
                offered.refused.insert(index, wait);
            }
        }
        offered
    }

    /// Hands one entry to the client. Answers how long it has to wait if that has no room.
    fn send(&self, sender: &Sender, armed: &Armed, topic: &Topic, now: Timestamp) -> Option<Span> {
        let mut record: BaseRecord<'_, [u8], [u8], _> =
            BaseRecord::with_opaque_to(topic.name.as_str(), Box::new(armed.key))
                .partition(self.partition(armed, topic))
                .headers(record::headers(armed, self.options.id_header))
                .timestamp(record::millis(now));
        if let Some(key) = &armed.message.key {
            record = record.key(key);
        }
        if let Some(body) = record::body(armed) {
            record = record.payload(body);
        }
        let Err((error, _)) = sender.send(record) else { return None };
        let failure = client::failure(&error);
        let heard = self.shared.sends.lock().reported(armed.key, Err(failure), monotonic());
        if heard.last {
            self.shared.done[armed.key.sequence.lane().index()].notify_one();
        }
        if heard.held.is_some() {
            tracing::warn!(topic = %topic.name, %error, "Kafka refuses messages of a topic; they are put off");
        }
        (failure == Failure::Client).then_some(FULL_WAIT)
    }

    /// The partition in Kafka: the same, unless Kafka's topic has fewer.
    fn partition(&self, armed: &Armed, topic: &Topic) -> i32 {
        let partition = i32::from(armed.partition.get());
        let mut counts = self.counts.lock();
        let Some(count) = counts.get_mut(&armed.topic) else { return partition };
        if count.since.elapsed() > COUNT_AGE_MAX {
            count.since = monotonic();
            self.look_into(topic);
        }
        if partition < count.partitions { partition } else { partition % count.partitions }
    }

    /// Waits until everything of the batch of a lane is answered for, or Kafka has been silent for
    /// too long.
    async fn wait(&self, lane: Lane) {
        if self.shared.sends.lock().round(lane).flying == 0 {
            return;
        }
        let (shared, patience) = (Arc::clone(&self.shared), self.options.patience);
        let waiting = self.handle.spawn(async move {
            let begun = monotonic();
            loop {
                let round = shared.sends.lock().round(lane);
                let until = round.heard.unwrap_or(begun).max(begun) + patience;
                if round.flying == 0 || monotonic() >= until {
                    return;
                }
                let done = shared.done[lane.index()].notified();
                // Too late is what the turn of the loop finds out.
                drop(tokio::time::timeout_at(until.into(), done).await);
            }
        });
        // It ends early only with the runtime.
        drop(waiting.await);
    }

    /// Whether Kafka answers.
    async fn is_alive(&self, sender: Arc<Sender>, topic: &Topic) -> bool {
        let name = topic.name.clone();
        let asked = self.handle.spawn_blocking(move || {
            sender.client().fetch_metadata(Some(name.as_str()), PROBE_WAIT).is_ok()
        });
        let alive = asked.await.unwrap_or(false);
        if alive {
            self.shared.heard();
        }
        alive
    }

    /// The answer while Kafka as a whole is silent.
    fn unavailable(&self) -> StoreError {
        if !self.shared.unreachable.swap(true, Ordering::Relaxed) {
            tracing::warn!(brokers = self.options.brokers, "Kafka does not answer; messages wait");
        }
        StoreError::Unavailable("Kafka does not answer".into())
    }

    /// Finds out why a topic takes nothing: whether it has too few partitions, or is missing and
    /// ours to make.
    fn look_into(&self, topic: &Topic) {
        let (kafka, counts, topic) = (self.kafka.clone(), Arc::clone(&self.counts), topic.clone());
        let sender = Arc::clone(&self.sender.lock());
        self.handle.spawn(async move {
            let name = topic.name.clone();
            let asked = tokio::task::spawn_blocking(move || {
                partitions_in(sender.client(), &name, PROBE_WAIT)
            });
            let wanted = topic.settings.partitions;
            match asked.await {
                Ok(Ok(Some(found))) if found < wanted => {
                    let count = Count { partitions: i32::from(found), since: monotonic() };
                    if counts.lock().insert(topic.id, count).is_none() {
                        tracing::warn!(
                            topic = %topic.name, found, wanted,
                            "Kafka's topic has fewer partitions; messages of the others share them"
                        );
                    }
                }
                Ok(Ok(Some(_))) => drop(counts.lock().remove(&topic.id)),
                // Topics of groups come and go with the groups; others are made by those who want them.
                Ok(Ok(None)) if topic.kind != TopicKind::Plain => {
                    if let Err(error) = kafka.make(&topic.name, Shape::of(&topic.settings)).await {
                        tracing::warn!(topic = %topic.name, %error, "the topic of a group cannot be made in Kafka");
                    }
                }
                _ => {}
            }
        });
    }

    /// Looks into the topics that have refused something of this batch.
    fn look_into_refused(&self, batch: &[Armed], untaken: &[Untaken], offered: &Offered) {
        let mut seen = HashSet::new();
        for untaken in untaken.iter().filter(|one| !offered.refused.contains_key(&one.index)) {
            let Some(armed) = batch.get(untaken.index) else { continue };
            if seen.insert(armed.topic)
                && let Some(topic) = self.topics.by_id(armed.topic)
            {
                self.look_into(&topic);
            }
        }
    }
}

impl Outlet for KafkaOutlet {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        let Some(first) = batch.first() else { return Ok(Vec::new()) };
        let sender = self.sender()?;
        let offered = self.offer(&sender, batch, now);
        self.wait(first.key.sequence.lane()).await;
        let missing = self.shared.sends.lock().missing(batch).map(|armed| armed.topic);
        // A partition that was silent before may have gone silent with all the others since.
        let recent = |heard: Instant| heard.elapsed() < self.options.patience;
        let doubted = offered.silent && !self.shared.last_heard().is_some_and(recent);
        let asked = missing.or_else(|| doubted.then_some(first.topic));
        if let Some(topic) = asked.and_then(|topic| self.topics.by_id(topic))
            && !self.is_alive(sender, &topic).await
        {
            return Err(self.unavailable());
        }
        let now = monotonic();
        let untaken = self.shared.sends.lock().finish(batch, &offered.refused, now);
        if !untaken.is_empty() {
            self.look_into_refused(batch, &untaken, &offered);
        }
        Ok(untaken)
    }

    fn told(&self, lane: Lane) -> Vec<Told> {
        self.shared.sends.lock().told(lane)
    }
}
