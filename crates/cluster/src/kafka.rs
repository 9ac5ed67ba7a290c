//! Kafka: where due messages go, and where messages with delays may come from.
//!
//! Read in this order: what is on its way and what is held back (`sends.rs`), how a message becomes a
//! record, the outlet, the administration of topics, the catalogue and the groups whose topics are
//! made in Kafka as well, and the way in.

mod sends;
mod record;
mod client;
mod outlet;
mod topics;
mod catalogue;
mod groups;
mod ingress;

use std::time::{Duration, Instant};

use punctual_model::ports::{StoreError, TopicError};
use rdkafka::ClientConfig;
use rdkafka::error::RDKafkaErrorCode;

pub use catalogue::TopicsInKafka;
pub use groups::GroupsInKafka;
pub use ingress::{Accept, Accepted, Accepting, Incoming, IngressOptions, KafkaIngress};
pub use outlet::KafkaOutlet;
pub use topics::{KafkaTopics, Shape};

/// Settings that decide about what is promised, so that nobody else sets them.
const RESERVED: [&str; 8] = [
    "bootstrap.servers",
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "group.id",
    "enable.auto.commit",
];

/// How Kafka is reached, and how messages are written to it.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Some of its brokers: host and port, separated by commas.
    pub brokers: String,
    /// Further settings of its client, by the names that librdkafka has for them.
    pub properties: Vec<(String, String)>,
    /// Whether each record has the header with the id of its message.
    pub id_header: bool,
    /// Replicas of topics that are made; -1 leaves that to Kafka.
    pub replication: i32,
    /// How long a partition may be silent before the others go on without it.
    pub patience: Duration,
}

impl KafkaOptions {
    /// The defaults, with these brokers.
    #[must_use]
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            properties: Vec::new(),
            id_header: true,
            replication: -1,
            patience: Duration::from_secs(2),
        }
    }

    /// The settings of a client: `defaults` may be set otherwise, `fixed` may not.
    fn config(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, KafkaError> {
        let mut config = ClientConfig::new();
        config.set("client.id", "punctual");
        config.set("reconnect.backoff.max.ms", "1000");
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            if RESERVED.contains(&name.as_str()) {
                let why = format!("{name} is not for anybody to set: promises depend on it");
                return Err(KafkaError::Settings(why));
            }
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        Ok(config)
    }
}

/// How Kafka refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaError {
    /// It cannot be reached, or does not answer in time.
    #[error("Kafka is unavailable: {0}")]
    Unavailable(String),
    /// It says no.
    #[error("Kafka refuses: {0}")]
    Refused(String),
    /// The settings of its client make no sense.
    #[error("the settings for Kafka are wrong: {0}")]
    Settings(String),
}

impl From<rdkafka::error::KafkaError> for KafkaError {
    fn from(error: rdkafka::error::KafkaError) -> Self {
        match &error {
            rdkafka::error::KafkaError::ClientConfig(..)
            | rdkafka::error::KafkaError::ClientCreation(_) => Self::Settings(error.to_string()),
            _ => match error.rdkafka_error_code() {
                Some(code) if !is_passing(code) => Self::Refused(error.to_string()),
                _ => Self::Unavailable(error.to_string()),
            },
        }
    }
}

/// Whether it is likely to go better without anybody doing anything.
const fn is_passing(code: RDKafkaErrorCode) -> bool {
    matches!(
        code,
        RDKafkaErrorCode::AllBrokersDown
            | RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::MessageTimedOut
            | RDKafkaErrorCode::RequestTimedOut
            | RDKafkaErrorCode::TimedOutQueue
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::NotController
            | RDKafkaErrorCode::BrokerNotAvailable
            | RDKafkaErrorCode::LeaderNotAvailable
            | RDKafkaErrorCode::Fail
    )
}

impl From<KafkaError> for StoreError {
    fn from(error: KafkaError) -> Self {
        Self::Unavailable(error.to_string().into())
    }
}

impl From<KafkaError> for TopicError {
    fn from(error: KafkaError) -> Self {
        Self::Store(error.into())
    }
}

/// By what waits for Kafka are measured.
#[expect(
    clippy::disallowed_methods,
    reason = "how long another system is silent is no broker time"
)]
fn monotonic() -> Instant {
    Instant::now()
}

/// Waits before Kafka is asked again.
#[expect(
    clippy::disallowed_methods,
    reason = "how long another system is silent is no broker time"
)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
