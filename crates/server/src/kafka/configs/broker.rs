//! The settings of the broker by the names that Kafka's tools have for them. All of them are read
//! from the configuration, and none can be changed over the network.

use punctual_model::limits::{BATCH_BYTES_MAX, PARTITIONS_DEFAULT};

use crate::config::Config;
use crate::kafka::call::Call;
use crate::kafka::configs::topic::{self, Kind};
use crate::kafka::shared::NODE_ID;

/// A setting of the broker.
#[derive(Clone, Debug)]
pub(crate) struct BrokerSetting {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) value: String,
    /// Whether it stands in the configuration, so that it may differ from the default.
    pub(crate) is_configured: bool,
}

/// Every setting there is, by name.
pub(crate) fn settings(call: &Call) -> Vec<BrokerSetting> {
    let live = call.shared.live();
    let config: &Config = &live.config;
    let kafka = &config.kafka;
    let protocol = match (call.shared.encrypted, config.auth.enabled) {
        (false, false) => "PLAINTEXT",
        (true, false) => "SSL",
        (false, true) => "SASL_PLAINTEXT",
        (true, true) => "SASL_SSL",
    };
    let own = [
        ("advertised.listeners", Kind::Text, format!("{protocol}://{}", call.advertised())),
        ("auto.create.topics.enable", Kind::Truth, config.topics.auto_create.to_string()),
        ("broker.id", Kind::Int, NODE_ID.to_string()),
        ("connections.max.idle.ms", Kind::Long, kafka.idle_timeout.as_millis().to_string()),
        ("listeners", Kind::Text, format!("{protocol}://{}", call.shared.address)),
        ("log.dirs", Kind::Text, config.store.data.display().to_string()),
        ("max.connections", Kind::Int, kafka.connections_max.to_string()),
        ("node.id", Kind::Int, NODE_ID.to_string()),
        ("socket.request.max.bytes", Kind::Int, kafka.request_bytes_max.to_string()),
    ];
    let fixed = [
        ("compression.type", Kind::Text, "producer".to_owned()),
        ("default.replication.factor", Kind::Int, "1".to_owned()),
        ("delete.topic.enable", Kind::Truth, "true".to_owned()),
        ("group.coordinator.rebalance.protocols", Kind::List, "classic,share".to_owned()),
        ("inter.broker.protocol.version", Kind::Text, "4.0".to_owned()),
        ("message.max.bytes", Kind::Int, BATCH_BYTES_MAX.to_string()),
        ("num.partitions", Kind::Int, PARTITIONS_DEFAULT.to_string()),
        ("process.roles", Kind::List, "broker,controller".to_owned()),
        ("sasl.enabled.mechanisms", Kind::List, "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512".to_owned()),
    ];
    let own = own.map(|setting| (setting, true));
    let fixed = fixed.map(|setting| (setting, false));
    let of_topics = topic::KEYS.iter().filter_map(|key| {
        let setting = (key.of_broker?, key.kind, key.default.to_owned());
        Some((setting, false))
    });
    let all = own.into_iter().chain(fixed).chain(of_topics);
    let mut all: Vec<BrokerSetting> = all
        .map(|((name, kind, value), is_configured)| BrokerSetting {
            name,
            kind,
            value,
            is_configured,
        })
        .collect();
    all.sort_by_key(|setting| setting.name);
    all.dedup_by_key(|setting| setting.name);
    all
}
