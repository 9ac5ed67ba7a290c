//! Metadata: where the broker is, and which topics there are.
//!
//! A topic is known to whoever may do anything at all with it. One that a client names and may not
//! know is refused whether it exists or not; in a listing it is left out. Retry topics are never
//! shown, dead letters are when there are some.

use std::sync::Arc;

use punctual_kafka_wire::error::ErrorCode;
use punctual_kafka_wire::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
use punctual_model::ports::{Topic, Topics};
use punctual_model::topic::TopicKind;
use punctual_model::{Partition, TopicName, TopicSettings};
use tracing::warn;

use crate::access::Permission;
use crate::config::Advertised;
use crate::kafka::call::Call;
use crate::kafka::refusal::Refusal;
use crate::kafka::rights::{cluster_operations, topic_operations};
use crate::kafka::shared::NODE_ID;
use crate::kafka::topic_id::NO_TOPIC;

/// The epoch of the one leader there ever is.
pub(crate) const LEADER_EPOCH: i32 = 0;

/// Where the broker is, and what is known of these topics.
pub(crate) async fn metadata(call: &Call, request: MetadataRequest) -> MetadataResponse {
    let Advertised { host, port } = call.advertised();
    let broker =
        MetadataResponseBroker { node_id: NODE_ID, host, port: i32::from(port), rack: None };
    let mut topics = match &request.topics {
        None => all(call).await,
        // In the first version nothing named means everything.
        Some(named) if named.is_empty() && call.version == 0 => all(call).await,
        Some(named) => {
            let mut found = Vec::with_capacity(named.len());
            for topic in named {
                found.push(one(call, topic, request.allow_auto_topic_creation).await);
            }
            found
        }
    };
    if request.include_topic_authorized_operations {
        for shown in topics.iter_mut().filter(|shown| shown.error_code == 0) {
            let name = shown.name.as_deref().and_then(|name| TopicName::new(name).ok());
            shown.topic_authorized_operations =
                name.map_or(i32::MIN, |name| topic_operations(call, &name));
        }
    }
    let cluster_authorized_operations = match request.include_cluster_authorized_operations {
        true => cluster_operations(call),
        false => i32::MIN,
    };
    MetadataResponse {
        brokers: vec![broker],
        cluster_id: Some(call.shared.cluster.as_str().to_owned()),
        controller_id: NODE_ID,
        topics,
        cluster_authorized_operations,
        ..MetadataResponse::default()
    }
}

/// Every topic that the caller may know, by name.
pub(crate) async fn known_topics(call: &Call) -> Vec<Arc<Topic>> {
    let topics = Arc::clone(call.shared.broker.topics());
    let listed = call.shared.tasks.blocking(move || {
        let mut all = topics.list();
        all.retain(|topic| is_listed(&*topics, topic));
        all
    });
    match listed.await {
        Ok(mut all) => {
            all.retain(|topic| call.may_know(&topic.name));
            all
        }
        Err(error) => {
            warn!(%error, "topics could not be listed");
            Vec::new()
        }
    }
}

async fn all(call: &Call) -> Vec<MetadataResponseTopic> {
    known_topics(call).await.iter().map(|topic| shown(call, topic)).collect()
}

/// Whether a topic is shown to those who name none.
fn is_listed(topics: &dyn Topics, topic: &Topic) -> bool {
    match topic.kind {
        TopicKind::Plain => true,
        TopicKind::Retry => false,
        TopicKind::Dead => (0..topic.settings.partitions).any(|number| {
            let bounds = Partition::new(number).map(|number| topics.bounds(topic.id, number));
            bounds.is_some_and(|bounds| bounds.is_ok_and(|bounds| bounds.start < bounds.end))
        }),
    }
}

/// The topic that a request names, made if that is wanted.
async fn one(call: &Call, asked: &MetadataRequestTopic, may_make: bool) -> MetadataResponseTopic {
    let refused = |refusal: Refusal| MetadataResponseTopic {
        error_code: refusal.code.code(),
        name: asked.name.clone(),
        topic_id: asked.topic_id,
        ..MetadataResponseTopic::default()
    };
    let found = match &asked.name {
        // Java's client gives an empty name beside an id, where the protocol has none.
        Some(name) if asked.topic_id == NO_TOPIC => named(call, name, may_make).await,
        _ => call.topic_of_id(&asked.topic_id),
    };
    match found {
        Ok(topic) => shown(call, &topic),
        Err(refusal) => refused(refusal),
    }
}

async fn named(call: &Call, name: &str, may_make: bool) -> Result<Arc<Topic>, Refusal> {
    let found = call.topic_named(name);
    let missing = |refusal: &Refusal| refusal.code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    match found {
        Err(refusal) if missing(&refusal) && may_make => make(call, name, refusal).await,
        found => found,
    }
}

/// Makes a topic for somebody who could send to it, as a first message would.
async fn make(call: &Call, name: &str, missing: Refusal) -> Result<Arc<Topic>, Refusal> {
    let name = TopicName::new(name).map_err(|_illegal| Refusal::illegal_name())?;
    let auto_create = call.shared.live().config.topics.auto_create;
    if !auto_create || !call.may_topic(Permission::Send, &name) {
        return Err(missing);
    }
    let work = call.shared.with_topics(move |topics| {
        match topics.make(&name, TopicSettings::default()).map_err(Refusal::of_topic)? {
            // A topic that nobody is shown has that name.
            topic if topic.kind == TopicKind::Retry => Err(Refusal::illegal_name()),
            topic => Ok(topic),
        }
    });
    let made = work.await?;
    call.shared.broker.topics_changed();
    Ok(made)
}

fn shown(call: &Call, topic: &Topic) -> MetadataResponseTopic {
    let partitions = (0..i32::from(topic.settings.partitions)).map(|partition_index| {
        MetadataResponsePartition {
            partition_index,
            leader_id: NODE_ID,
            leader_epoch: LEADER_EPOCH,
            replica_nodes: vec![NODE_ID],
            isr_nodes: vec![NODE_ID],
            ..MetadataResponsePartition::default()
        }
    });
    let topic_id = call.shared.cluster.uuid(topic.id);
    debug_assert_ne!(topic_id, NO_TOPIC, "it would stand for no topic");
    MetadataResponseTopic {
        name: Some(topic.name.to_string()),
        topic_id,
        partitions: partitions.collect(),
        ..MetadataResponseTopic::default()
    }
}
