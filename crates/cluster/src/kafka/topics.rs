//! Topics of Kafka: made, adopted, looked at.

use std::sync::Arc;
use std::time::Duration;

use punctual_model::limits::{BODY_BYTES_MAX, PARTITIONS_MAX};
use punctual_model::{Span, TopicName, TopicSettings};
use rdkafka::ClientContext;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::error::RDKafkaErrorCode;
use tokio::runtime::Handle;

use super::{KafkaError, KafkaOptions, monotonic, pause};

/// How long Kafka may take for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How soon it is looked again for a topic that was just made.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The largest record of a topic that is made: the largest body, with key and headers.
const RECORD_BYTES_MAX: usize = BODY_BYTES_MAX + (1 << 20);

/// What a topic of Kafka is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The number of its partitions.
    pub partitions: u16,
    /// How long its messages are kept; `None` keeps them for ever.
    pub retention: Option<Span>,
}

impl Shape {
    /// As the settings of a topic say.
    #[must_use]
    pub const fn of(settings: &TopicSettings) -> Self {
        Self { partitions: settings.partitions, retention: settings.retention }
    }
}

/// The administration of Kafka's topics. Clones share a connection.
#[derive(Clone)]
pub struct KafkaTopics {
    admin: Arc<AdminClient<DefaultClientContext>>,
    replication: i32,
    handle: Handle,
}

impl std::fmt::Debug for KafkaTopics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaTopics")
            .field("replication", &self.replication)
            .finish_non_exhaustive()
    }
}

impl KafkaTopics {
    /// The administration of the Kafka that the options name. It does not wait for Kafka.
    ///
    /// # Errors
    /// [`KafkaError::Settings`] when the settings make no sense.
    pub fn connect(options: &KafkaOptions, handle: Handle) -> Result<Self, KafkaError> {
        let admin: AdminClient<DefaultClientContext> = options.config(&[], &[])?.create()?;
        Ok(Self { admin: Arc::new(admin), replication: options.replication, handle })
    }

    /// The number of partitions of a topic in Kafka; `None` when it has none of that name.
    ///
    /// # Errors
    /// As Kafka says.
    pub async fn partitions(&self, name: &TopicName) -> Result<Option<u16>, KafkaError> {
        let (admin, name) = (Arc::clone(&self.admin), name.clone());
        let asked =
            self.handle.spawn_blocking(move || partitions_in(admin.inner(), &name, PATIENCE));
        asked.await.unwrap_or_else(|ended| Err(KafkaError::Unavailable(ended.to_string())))
    }

    /// Makes a topic in Kafka, or adopts one that is there; answers the number of its partitions.
    /// One with fewer than asked for gains some; settings of one that is there stay as they are.
    ///
    /// # Errors
    /// As Kafka says.
    pub async fn make(&self, name: &TopicName, shape: Shape) -> Result<u16, KafkaError> {
        let (own, name) = (self.clone(), name.clone());
        let made = self.handle.spawn(async move { own.make_here(&name, shape).await });
        made.await.unwrap_or_else(|ended| Err(KafkaError::Unavailable(ended.to_string())))
    }

    /// The same from a thread that may block, and is none of the runtime's.
    ///
    /// # Errors
    /// As Kafka says.
    pub fn make_blocking(&self, name: &TopicName, shape: Shape) -> Result<u16, KafkaError> {
        let (answer, answered) = std::sync::mpsc::sync_channel(1);
        let (own, name) = (self.clone(), name.clone());
        self.handle.spawn(async move {
            // Whoever asked may be gone.
            drop(answer.send(own.make_here(&name, shape).await));
        });
        let gone = |_ended| KafkaError::Unavailable("the runtime has ended".to_owned());
        answered.recv().map_err(gone).flatten()
    }

    async fn make_here(&self, name: &TopicName, shape: Shape) -> Result<u16, KafkaError> {
        if let Some(found) = self.partitions(name).await? {
            if found >= shape.partitions {
                return Ok(found);
            }
            return self.grow(name, shape.partitions).await;
        }
        let retention =
            shape.retention.map_or_else(|| "-1".to_owned(), |kept| kept.as_millis().to_string());
        let bytes = RECORD_BYTES_MAX.to_string();
        let topic = NewTopic::new(
            name.as_str(),
            i32::from(shape.partitions),
            TopicReplication::Fixed(self.replication),
        );
        // The time of delivery is Kafka's own, so that it does not refuse what a clock that goes
        // wrong says.
        let topic = topic.set("retention.ms", &retention).set("max.message.bytes", &bytes);
        let topic = topic.set("message.timestamp.type", "LogAppendTime");
        let made = self.admin.create_topics([&topic], &options()).await?;
        match made.into_iter().next() {
            Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => self.await_known(name).await,
            Some(Err((_, code))) => Err(refused(code)),
            Some(Ok(_)) => Ok(shape.partitions),
            None => Err(KafkaError::Unavailable("no answer about a new topic".to_owned())),
        }
    }

    /// The partitions of a topic that somebody has just made: Kafka tells of it in a moment.
    async fn await_known(&self, name: &TopicName) -> Result<u16, KafkaError> {
        let until = monotonic() + PATIENCE;
        loop {
            if let Some(found) = self.partitions(name).await? {
                return Ok(found);
            }
            if monotonic() >= until {
                return Err(KafkaError::Unavailable("a new topic is not there yet".to_owned()));
            }
            pause(LOOK_AGAIN).await;
        }
    }

    async fn grow(&self, name: &TopicName, partitions: u16) -> Result<u16, KafkaError> {
        let wanted = NewPartitions::new(name.as_str(), usize::from(partitions));
        let grown = self.admin.create_partitions([&wanted], &options()).await?;
        match grown.into_iter().next() {
            Some(Err((_, code))) => Err(refused(code)),
            Some(Ok(_)) | None => Ok(partitions),
        }
    }

    /// Deletes a topic of Kafka with all that is in it. False when there was none.
    ///
    /// # Errors
    /// As Kafka says.
    pub async fn delete(&self, name: &TopicName) -> Result<bool, KafkaError> {
        let (own, name) = (self.clone(), name.clone());
        let deleted = self.handle.spawn(async move {
            let deleted = own.admin.delete_topics(&[name.as_str()], &options()).await?;
            match deleted.into_iter().next() {
                Some(Err((_, RDKafkaErrorCode::UnknownTopicOrPartition))) => Ok(false),
                Some(Err((_, code))) => Err(refused(code)),
                Some(Ok(_)) | None => Ok(true),
            }
        });
        deleted.await.unwrap_or_else(|ended| Err(KafkaError::Unavailable(ended.to_string())))
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
}

fn refused(code: RDKafkaErrorCode) -> KafkaError {
    if super::is_passing(code) {
        KafkaError::Unavailable(code.to_string())
    } else {
        KafkaError::Refused(code.to_string())
    }
}

/// The number of partitions of a topic in Kafka, asked with this client; blocks.
pub(super) fn partitions_in<C: ClientContext>(
    client: &Client<C>,
    name: &TopicName,
    patience: Duration,
) -> Result<Option<u16>, KafkaError> {
    let metadata = client.fetch_metadata(Some(name.as_str()), patience)?;
    let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name.as_str()) else {
        return Ok(None);
    };
    match topic.error().map(RDKafkaErrorCode::from) {
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            Ok(None)
        }
        Some(code) => Err(refused(code)),
        None => {
            let count = topic.partitions().len();
            Ok(Some(u16::try_from(count).unwrap_or(PARTITIONS_MAX).min(PARTITIONS_MAX)))
        }
    }
}
