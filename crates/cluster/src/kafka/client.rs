//! Kafka's client as the outlet uses it: its settings, what it reports, and what it says.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use punctual_model::Key;
use punctual_model::limits::BODY_BYTES_MAX;
use rdkafka::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError as ClientError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{NoCustomPartitioner, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use super::sends::{Failure, Sends};
use super::{KafkaError, KafkaOptions, monotonic};

/// What a record may have beside its body: key and headers.
const BESIDE_BODY: usize = 1 << 20;

/// Sends records and reports about each.
pub(super) type Sender = ThreadedProducer<Reports>;

/// What the outlet and the reports of Kafka's client share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) sends: Mutex<Sends>,
    /// For each lane: its batch waits for nothing more.
    pub(super) done: [Notify; 2],
    /// When Kafka last gave a sign of life.
    heard: Mutex<Option<Instant>>,
    /// Whether Kafka was found silent and has not been heard since.
    pub(super) unreachable: AtomicBool,
}

impl Shared {
    /// Kafka is there.
    pub(super) fn heard(&self) {
        *self.heard.lock() = Some(monotonic());
        if self.unreachable.swap(false, Ordering::Relaxed) {
            tracing::info!("Kafka is back");
        }
    }

    /// When Kafka last gave a sign of life.
    pub(super) fn last_heard(&self) -> Option<Instant> {
        *self.heard.lock()
    }
}

/// Takes the reports of Kafka's client.
#[derive(Debug)]
pub(super) struct Reports(pub(super) Arc<Shared>);

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        say(level, facility, message);
    }

    fn error(&self, error: ClientError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka's client has trouble");
    }
}

/// What the client says goes to our log; whatever matters is told where it is dealt with.
pub(super) fn say(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::warn!(facility, message, "Kafka's client");
        }
        _ => tracing::debug!(facility, message, "Kafka's client"),
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<Key>;

    fn delivery(&self, report: &DeliveryResult<'_>, key: Box<Key>) {
        let outcome = match report {
            Ok(_) => {
                self.0.heard();
                Ok(())
            }
            Err((error, _)) => Err(failure(error)),
        };
        let heard = self.0.sends.lock().reported(*key, outcome, monotonic());
        if heard.last {
            self.0.done[key.sequence.lane().index()].notify_one();
        }
        if let (Err((error, record)), Some(wait)) = (report, heard.held) {
            let (topic, partition, seconds) = (record.topic(), record.partition(), wait.as_secs());
            tracing::warn!(topic, partition, %error, seconds, "Kafka refuses messages of a topic; they are put off");
        } else if let (Err((error, record)), Err(Failure::Message)) = (report, outcome) {
            let topic = record.topic();
            tracing::warn!(topic, %error, "Kafka refuses a message; it is put off");
        }
    }
}

/// What an error means for others.
pub(super) fn failure(error: &ClientError) -> Failure {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        Some(
            Code::UnknownTopic
            | Code::UnknownTopicOrPartition
            | Code::UnknownPartition
            | Code::TopicAuthorizationFailed
            | Code::InvalidTopic
            | Code::PolicyViolation,
        ) => Failure::Topic,
        Some(
            Code::MessageSizeTooLarge
            | Code::InvalidMessageSize
            | Code::InvalidMessage
            | Code::InvalidRecord
            | Code::InvalidTimestamp,
        ) => Failure::Message,
        _ => Failure::Client,
    }
}

/// A client that writes each record once, in order, to all replicas, and does not give up.
pub(super) fn sender(
    options: &KafkaOptions,
    shared: &Arc<Shared>,
) -> Result<Arc<Sender>, KafkaError> {
    let bytes_max = (BODY_BYTES_MAX + BESIDE_BODY).to_string();
    let defaults = [
        ("linger.ms", "2"),
        ("message.max.bytes", bytes_max.as_str()),
        ("queue.buffering.max.messages", "1000000"),
        ("queue.buffering.max.kbytes", "1048576"),
        ("topic.metadata.propagation.max.ms", "5000"),
        ("topic.metadata.refresh.interval.ms", "30000"),
    ];
    // Whatever the client holds stays there until Kafka has said yes or no.
    let fixed = [("acks", "all"), ("enable.idempotence", "true"), ("message.timeout.ms", "0")];
    let config = options.config(&defaults, &fixed)?;
    let reports = Reports(Arc::clone(shared));
    let sender: ThreadedProducer<Reports, NoCustomPartitioner> =
        ThreadedProducer::from_config_and_context(&config, reports)?;
    Ok(Arc::new(sender))
}
