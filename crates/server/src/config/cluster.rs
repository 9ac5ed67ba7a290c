//! More than one machine: who divides the slots, where pending messages are, where due ones go, and
//! which of these fit together.
//!
//! The keys are there in every program. One that was built without clusters refuses what it cannot
//! do, and says why. No secret is in anything that is shown.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use punctual_model::{Span, TopicName};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::values::{bytes, choice, file as path, name, span, texts, time, truth};
use super::{Config, ConfigError, ConfigFile};

/// The most slots that a cluster may have.
const SLOTS_MAX: u32 = 65_536;
/// A lease is not shorter, so that a pause of the process does not cost all slots, and not longer.
const LEASE: std::ops::RangeInclusive<Span> = Span::from_secs(2)..=Span::from_secs(3600);
/// Shortest and longest secret of a cluster.
const SECRET_CHARS: std::ops::RangeInclusive<usize> = 16..=256;

/// Who makes up the cluster.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Who says which node holds which slots.
    pub coordinator: CoordinatorKind,
    /// Where that is.
    pub endpoints: Vec<String>,
    /// The name of the cluster.
    pub name: String,
    /// The name of this node; something is put behind it at each start.
    pub node: Option<String>,
    /// Where other nodes reach this one, if not at its own address.
    pub advertise: Option<Url>,
    /// What nodes show each other.
    pub secret: Option<ClusterSecret>,
    /// Authorities of the certificates of other nodes, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// Slots of a cluster that starts for the first time.
    pub slots: u32,
    /// For how long a node that is not heard of keeps its slots.
    pub lease: Span,
    /// How long to wait for other changes before slots are assigned anew.
    pub rebalance_delay: Span,
    /// For how long a request is tried again while slots move.
    pub patience: Duration,
}

/// Who says which node holds which slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorKind {
    /// Nobody: there is one node.
    None,
    /// etcd.
    Etcd,
    /// ZooKeeper.
    ZooKeeper,
}

/// What nodes show each other. Only whoever sends it gets to see it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterSecret {
    text: String,
    hash: [u8; 32],
}

impl ClusterSecret {
    fn read(text: &str) -> Result<Option<Self>, String> {
        if text.is_empty() {
            return Ok(None);
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if !plain || !SECRET_CHARS.contains(&text.len()) {
            let (least, most) = (SECRET_CHARS.start(), SECRET_CHARS.end());
            return Err(format!("it is {least} to {most} visible characters without spaces"));
        }
        Ok(Some(Self { text: text.to_owned(), hash: Sha256::digest(text).into() }))
    }

    /// What is sent.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is compared.
    #[must_use]
    pub const fn hash(&self) -> [u8; 32] {
        self.hash
    }
}

impl fmt::Debug for ClusterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSecret")
    }
}

/// A text that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(String);

impl Hidden {
    /// The text, if there is one.
    pub(super) fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden")
    }
}

/// Where pending messages are.
#[derive(Clone, Debug)]
pub struct TimelineConfig {
    /// The kind of store.
    pub kind: TimelineKind,
    /// Where a MySQL database is; without a password.
    pub url: Option<Url>,
    /// Where Cassandra is.
    pub endpoints: Vec<String>,
    /// Who asks.
    pub user: Option<String>,
    /// What that one says.
    pub password: Option<Hidden>,
    /// The keyspace in Cassandra.
    pub keyspace: String,
    /// How many copies Cassandra keeps: in all, or in each data centre.
    pub replication: CopiesPer,
    /// What is due within this time is in memory.
    pub horizon: Span,
    /// Memory for it, in bytes.
    pub memory: usize,
    /// Whether messages that have ended are kept aside.
    pub archive: bool,
    /// For how long what has ended is remembered.
    pub finished_after: Span,
    /// Unsafe settings of the store that are accepted.
    pub allow_unsafe: Vec<String>,
}

/// The kind of store for pending messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineKind {
    /// The embedded engine.
    Embedded,
    /// MySQL or MariaDB.
    Mysql,
    /// Cassandra.
    Cassandra,
}

/// How many copies are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopiesPer {
    /// So many in all.
    Cluster(u32),
    /// So many in each of these data centres.
    Datacentre(Vec<(String, u32)>),
}

/// Where due messages go.
#[derive(Clone, Debug)]
pub struct OutletConfig {
    /// The kind of outlet.
    pub kind: OutletKind,
    /// Where Kafka is.
    pub brokers: Vec<String>,
    /// Whether the id of a message goes with it as a header.
    pub id_header: bool,
    /// Copies of topics that are made there; without it Kafka decides.
    pub replication: Option<i16>,
    /// Further settings of the Kafka client.
    pub properties: Vec<(String, Hidden)>,
}

/// The kind of outlet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutletKind {
    /// The topics of this server.
    Local,
    /// Kafka.
    Kafka,
}

/// What comes from Kafka.
#[derive(Clone, Debug)]
pub struct IngressConfig {
    /// Topics whose records are scheduled.
    pub topics: Vec<String>,
    /// Where those go that name no topic.
    pub topic: Option<TopicName>,
    /// The group that reads them.
    pub group: String,
}

pub(super) fn cluster(file: &ConfigFile) -> Result<ClusterConfig, ConfigError> {
    Ok(ClusterConfig {
        coordinator: file.get("cluster.coordinator", |text| {
            let words = [
                ("none", CoordinatorKind::None),
                ("etcd", CoordinatorKind::Etcd),
                ("zookeeper", CoordinatorKind::ZooKeeper),
            ];
            choice(text, &words)
        })?,
        endpoints: file.get("cluster.endpoints", texts)?,
        name: file.get("cluster.name", node_name)?,
        node: file.get("cluster.node", |text| optional(text, node_name))?,
        advertise: file.get("cluster.advertise", advertised)?,
        secret: file.get_secret("cluster.secret", ClusterSecret::read)?,
        ca_file: file.get("cluster.ca_file", path)?,
        slots: file.get("cluster.slots", |text| {
            let slots = text.parse().ok().filter(|slots| (1..=SLOTS_MAX).contains(slots));
            slots.ok_or_else(|| format!("it is a whole number from 1 to {SLOTS_MAX}"))
        })?,
        lease: file.get("cluster.lease", |text| {
            let lease = span(text)?;
            let fits = LEASE.contains(&lease);
            fits.then_some(lease).ok_or_else(|| "it is from 2s to 1h".to_owned())
        })?,
        rebalance_delay: file.get("cluster.rebalance_delay", span)?,
        patience: file.get("cluster.patience", time)?,
    })
}

pub(super) fn timeline(file: &ConfigFile) -> Result<TimelineConfig, ConfigError> {
    Ok(TimelineConfig {
        kind: file.get("timeline.kind", |text| {
            let words = [
                ("embedded", TimelineKind::Embedded),
                ("mysql", TimelineKind::Mysql),
                ("cassandra", TimelineKind::Cassandra),
            ];
            choice(text, &words)
        })?,
        url: file.get("timeline.url", database)?,
        endpoints: file.get("timeline.endpoints", texts)?,
        user: file.get("timeline.user", |text| optional(text, name))?,
        password: file.get_secret("timeline.password", |text| Ok(Hidden::read(text)))?,
        keyspace: file.get("timeline.keyspace", keyspace)?,
        replication: file.get("timeline.replication", copies)?,
        horizon: file.get("timeline.horizon", span)?,
        memory: file.get("timeline.memory", |text| bytes(text, 16 << 20..=1 << 40))?,
        archive: file.get("timeline.finished", |text| {
            choice(text, &[("delete", false), ("archive", true)])
        })?,
        finished_after: file.get("timeline.finished_after", span)?,
        allow_unsafe: file.get("timeline.allow_unsafe", texts)?,
    })
}

pub(super) fn outlet(file: &ConfigFile) -> Result<OutletConfig, ConfigError> {
    Ok(OutletConfig {
        kind: outlet_kind(file)?,
        brokers: file.get("outlet.brokers", texts)?,
        id_header: file.get("outlet.id_header", truth)?,
        replication: file.get("outlet.replication", |text| match text {
            "0" => Ok(None),
            text => {
                let copies = text.parse().ok().filter(|copies| (1..=100).contains(copies));
                copies.map(Some).ok_or_else(|| "it is a whole number from 0 to 100".to_owned())
            }
        })?,
        properties: file.get_secret("outlet.properties", properties)?,
    })
}

fn outlet_kind(file: &ConfigFile) -> Result<OutletKind, ConfigError> {
    let words = [("local", OutletKind::Local), ("kafka", OutletKind::Kafka)];
    file.get("outlet.kind", |text| choice(text, &words))
}

/// Whether nobody asked for a listener for Kafka clients where a real Kafka is beside it.
pub(super) fn leaves_kafka_alone(file: &ConfigFile) -> Result<bool, ConfigError> {
    Ok(outlet_kind(file)? == OutletKind::Kafka && file.is_default("kafka.listen"))
}

pub(super) fn ingress(file: &ConfigFile) -> Result<IngressConfig, ConfigError> {
    Ok(IngressConfig {
        topics: file.get("ingress.topics", texts)?,
        topic: file.get("ingress.topic", |text| {
            optional(text, |text| TopicName::new(text).map_err(|error| error.to_string()))
        })?,
        group: file.get("ingress.group", name)?,
    })
}

/// Which of these fit together.
pub(super) fn check(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    let refuse = |name, reason: &str| Err(file.refuse(name, reason.to_owned()));
    let (cluster, timeline, outlet) = (&config.cluster, &config.timeline, &config.outlet);
    let divided = cluster.coordinator != CoordinatorKind::None;
    let shared = timeline.kind != TimelineKind::Embedded;
    let kafka = outlet.kind == OutletKind::Kafka;
    if !cfg!(feature = "cluster") {
        let built = "this program was built without clusters (cargo feature cluster)";
        let asked = [
            ("cluster.coordinator", divided),
            ("timeline.kind", shared),
            ("outlet.kind", kafka),
            ("ingress.topics", !config.ingress.topics.is_empty()),
        ];
        if let Some((name, _)) = asked.into_iter().find(|(_, asked)| *asked) {
            return refuse(name, built);
        }
    }
    match (divided, shared, kafka) {
        (true, false, _) => refuse(
            "cluster.coordinator",
            "nodes need a store that they share: set timeline.kind to mysql or cassandra",
        ),
        (_, true, false) => refuse(
            "timeline.kind",
            "what is due has to go to Kafka then: set outlet.kind = \"kafka\"",
        ),
        _ => Ok(()),
    }?;
    let missing = [
        ("cluster.endpoints", divided && cluster.endpoints.is_empty()),
        ("timeline.url", timeline.kind == TimelineKind::Mysql && timeline.url.is_none()),
        (
            "timeline.endpoints",
            timeline.kind == TimelineKind::Cassandra && timeline.endpoints.is_empty(),
        ),
        ("outlet.brokers", kafka && outlet.brokers.is_empty()),
    ];
    if let Some((name, _)) = missing.into_iter().find(|(_, missing)| *missing) {
        return refuse(name, "it has to be said where that is");
    }
    if !config.ingress.topics.is_empty() && !kafka {
        return refuse("ingress.topics", "it needs outlet.kind = \"kafka\"");
    }
    if shared && config.auth.enabled && config.auth.admin_token.is_none() {
        return refuse("auth.admin_token", "a cluster makes none: it has to be set on every node");
    }
    if divided { check_nodes(file, config) } else { Ok(()) }
}

/// Nodes must reach each other, and nobody else may speak like one.
fn check_nodes(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    let refuse = |name, reason: &str| Err(file.refuse(name, reason.to_owned()));
    let listen = config.http.listen.ip().to_canonical();
    if config.cluster.secret.is_none() && (config.auth.enabled || !listen.is_loopback()) {
        return refuse(
            "cluster.secret",
            "others could speak like a node: set the same secret on every node (cluster.secret or \
             cluster.secret_file)",
        );
    }
    if listen.is_unspecified() && config.cluster.advertise.is_none() {
        return refuse(
            "cluster.advertise",
            "nobody can call http.listen as it is: say where other nodes reach this one, like \
             https://node-1.example:7070",
        );
    }
    Ok(())
}

fn optional<T>(
    text: &str,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if text.is_empty() { Ok(None) } else { read(text).map(Some) }
}

/// A name that every coordinator takes as part of a path.
fn node_name(text: &str) -> Result<String, String> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let fits = (1..=100).contains(&text.len()) && text.bytes().all(legal);
    fits.then(|| text.to_owned())
        .ok_or_else(|| "it is 1 to 100 letters, digits, dots, dashes or underscores".to_owned())
}

fn advertised(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let fits = |url: &Url| {
        let plain = url.username().is_empty() && url.password().is_none();
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        matches!(url.scheme(), "http" | "https") && url.has_host() && plain && bare
    };
    let url = Url::parse(text).ok().filter(fits);
    url.map(Some).ok_or_else(|| "it is an address like https://node-1.example:7070".to_owned())
}

fn database(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).ok();
    let url = url.filter(|url| matches!(url.scheme(), "mysql" | "mariadb") && url.has_host());
    match url {
        // A password would show up wherever the address is named.
        Some(url) if url.password().is_some() => {
            Err("the password goes into timeline.password".to_owned())
        }
        Some(url) if url.path().trim_start_matches('/').is_empty() => {
            Err("it names a database: mysql://127.0.0.1:3306/punctual".to_owned())
        }
        Some(url) => Ok(Some(url)),
        None => Err("it is an address like mysql://127.0.0.1:3306/punctual".to_owned()),
    }
}

fn keyspace(text: &str) -> Result<String, String> {
    let mut bytes = text.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase());
    let rest = bytes.all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_'));
    let fits = first && rest && text.len() <= 48;
    fits.then(|| text.to_owned())
        .ok_or_else(|| "it is 1 to 48 small letters, digits or underscores".to_owned())
}

fn copies(text: &str) -> Result<CopiesPer, String> {
    let refusal = || "it is a number (3), or one for each data centre (east=3,west=3)".to_owned();
    let number = |text: &str| {
        let number = text.trim().parse::<u32>().ok();
        number.filter(|number| (1..=100).contains(number)).ok_or_else(refusal)
    };
    if !text.contains('=') {
        return number(text).map(CopiesPer::Cluster);
    }
    let centre = |item: &str| {
        let (centre, copies) = item.split_once('=').ok_or_else(refusal)?;
        Ok((name(centre.trim())?, number(copies)?))
    };
    text.split(',').map(centre).collect::<Result<_, String>>().map(CopiesPer::Datacentre)
}

/// `name=value`, one a line, or with commas between them.
fn properties(text: &str) -> Result<Vec<(String, Hidden)>, String> {
    let between = if text.contains('\n') { '\n' } else { ',' };
    let items = text.split(between).map(str::trim).filter(|item| !item.is_empty());
    let property = |item: &str| {
        let (name, value) = item.split_once('=').filter(|(name, _)| !name.trim().is_empty())?;
        Some((name.trim().to_owned(), Hidden(value.trim().to_owned())))
    };
    let read: Option<Vec<_>> = items.map(property).collect();
    read.ok_or_else(|| "it is name=value, one a line, or with commas between them".to_owned())
}

#[cfg(test)]
mod tests;
