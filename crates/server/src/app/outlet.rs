//! Kafka as the outlet: topics and groups are there too, and records may come from there.

use std::sync::Arc;

use punctual_cluster::kafka::{
    GroupsInKafka, IngressOptions, KafkaError, KafkaIngress, KafkaOptions, KafkaOutlet,
    KafkaTopics, TopicsInKafka,
};
use punctual_model::ports::{Groups, Topics};
use tokio::runtime::Handle;

use crate::app::Broker;
use crate::config::{Config, OutletConfig};
use crate::kafka::ingress;

/// What goes through Kafka.
pub(super) struct Kafka {
    pub(super) outlet: Arc<KafkaOutlet>,
    pub(super) topics: Arc<dyn Topics>,
    admin: KafkaTopics,
}

impl Kafka {
    /// Begins to connect, and does not wait for it. Topics that are made are made there too.
    pub(super) fn start(
        config: &OutletConfig,
        topics: Arc<dyn Topics>,
        handle: &Handle,
    ) -> Result<Self, KafkaError> {
        let options = options(config);
        let admin = KafkaTopics::connect(&options, handle.clone())?;
        let topics: Arc<dyn Topics> = Arc::new(TopicsInKafka::new(topics, admin.clone()));
        let outlet = KafkaOutlet::start(&options, Arc::clone(&topics), handle.clone())?;
        Ok(Self { outlet: Arc::new(outlet), topics, admin })
    }

    /// These groups, with their topics in Kafka.
    pub(super) fn groups(&self, inner: Arc<dyn Groups>) -> Arc<dyn Groups> {
        Arc::new(GroupsInKafka::new(inner, Arc::clone(&self.topics), self.admin.clone()))
    }
}

/// Begins to take in records, where that is configured.
pub(super) fn take_in(
    config: &Config,
    broker: &Broker,
    handle: &Handle,
) -> Result<Option<Arc<KafkaIngress>>, KafkaError> {
    if config.ingress.topics.is_empty() {
        return Ok(None);
    }
    let options = IngressOptions {
        kafka: options(&config.outlet),
        topics: config.ingress.topics.clone(),
        group: config.ingress.group.clone(),
    };
    let accept = ingress::accept(broker.clone(), config.ingress.topic.clone());
    KafkaIngress::start(&options, accept, handle.clone()).map(|ingress| Some(Arc::new(ingress)))
}

fn options(config: &OutletConfig) -> KafkaOptions {
    let mut options = KafkaOptions::new(config.brokers.join(","));
    let property =
        |(name, value): &(String, crate::config::Hidden)| (name.clone(), value.text().to_owned());
    options.properties = config.properties.iter().map(property).collect();
    options.id_header = config.id_header;
    options.replication = config.replication.map_or(-1, i32::from);
    options
}
