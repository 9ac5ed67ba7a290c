//! The configuration as the server uses it: whoever holds a [`Config`] holds a valid one.
//!
//! `keys.rs` has the table of all keys, `file.rs` collects what was written and by whom,
//! `values.rs` reads single values, `reference.rs` writes the page about them. What must hold
//! between keys is checked here and nowhere else: in particular that nobody beyond this machine is
//! served without authentication (G42).

mod keys;
mod file;
mod values;
mod auth;
mod kafka;
mod cluster;
mod alerts;
mod reference;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_model::limits::{BODY_BYTES_CEILING, DELAY_CEILING};
use punctual_model::{Span, Timestamp};
use url::Url;

pub use self::alerts::AlertsConfig;
pub use self::auth::{AdminToken, AuthConfig};
pub use self::cluster::{
    ClusterConfig, ClusterSecret, CoordinatorKind, CopiesPer, Hidden, IngressConfig, OutletConfig,
    OutletKind, TimelineConfig, TimelineKind,
};
pub use self::file::{ConfigError, ConfigFile, HIDDEN, Source, Written};
pub use self::kafka::{Advertised, KafkaConfig};
pub use self::keys::{KEYS, Key, Kind};
pub use self::reference::{effective, reference};
pub use self::values::Levels;
use self::values::{
    address, bytes, choice, collector, count, directory, file, fraction, levels, list, name,
    origins, span, time, truth,
};
use crate::push::{Allowed, Secret};

/// The configuration as it is used. Whoever holds one holds a valid one.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP listener.
    pub http: HttpConfig,
    /// The listener for Kafka clients.
    pub kafka: KafkaConfig,
    /// TLS on the listeners, if it is served.
    pub tls: Option<TlsConfig>,
    /// Who may call.
    pub auth: AuthConfig,
    /// The embedded store.
    pub store: StoreConfig,
    /// Where pending messages are.
    pub timeline: TimelineConfig,
    /// Where due messages go.
    pub outlet: OutletConfig,
    /// What comes from Kafka.
    pub ingress: IngressConfig,
    /// Who makes up the cluster.
    pub cluster: ClusterConfig,
    /// Limits that may be changed.
    pub limits: LimitsConfig,
    /// Topics.
    pub topics: TopicsConfig,
    /// Pushing.
    pub push: PushConfig,
    /// Alerts.
    pub alerts: AlertsConfig,
    /// Metrics.
    pub metrics: MetricsConfig,
    /// Log lines.
    pub log: LogConfig,
    /// Traces.
    pub otel: OtelConfig,
    /// Where time begins that is moved by hand; without it the clock of the machine counts. No key
    /// of the file: nobody is to come by it unawares.
    pub virtual_time: Option<Timestamp>,
}

/// The HTTP listener.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where it listens; a loopback address unless callers have to say who they are.
    pub listen: SocketAddr,
    /// Further names to answer to.
    pub hosts: Vec<String>,
    /// Origins whose pages may call, in lower case, as a browser writes them.
    pub cors_origins: Vec<String>,
    /// Most connections at one time.
    pub connections_max: usize,
    /// Most connections at one time from one address, if they are counted.
    pub connections_per_address_max: Option<usize>,
    /// Longest time for a request's head.
    pub header_timeout: Duration,
    /// Longest time between two requests of a connection.
    pub idle_timeout: Duration,
    /// Longest life of a connection on which nobody has shown who it is.
    pub stranger_timeout: Duration,
    /// Longest pause within a request's body or an answer.
    pub body_idle_timeout: Duration,
    /// Longest time for a request's body.
    pub body_timeout: Duration,
    /// Longest wait for requests under way at the end.
    pub drain_timeout: Duration,
    /// Most bytes of requests held at one time.
    pub held_bytes_max: usize,
}

/// TLS on the listener.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// PEM file of the certificate chain.
    pub cert_file: PathBuf,
    /// PEM file of the private key.
    pub key_file: PathBuf,
    /// Whose client certificates are accepted; without it none is asked for.
    pub client_ca_file: Option<PathBuf>,
    /// Whether a client must show one.
    pub client_auth: ClientAuth,
    /// Longest time for a handshake.
    pub handshake_timeout: Duration,
}

/// Whether a client must show a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAuth {
    /// Without one there is no connection.
    Required,
    /// One that is shown must be good.
    Optional,
}

/// The embedded store.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Its directory.
    pub data: PathBuf,
    /// When a write is on disk.
    pub durability: Durability,
    /// Memory for messages on their way to and from the disk, in bytes.
    pub memory: usize,
}

/// When a write is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before it is acknowledged.
    Fsync,
    /// At most this much later.
    Interval(Duration),
    /// When the operating system likes.
    Os,
}

/// Limits that may be changed.
#[derive(Clone, Debug)]
pub struct LimitsConfig {
    /// Largest body, in bytes.
    pub body_bytes_max: usize,
    /// Longest delay.
    pub delay_max: Span,
}

/// Topics.
#[derive(Clone, Debug)]
pub struct TopicsConfig {
    /// Whether a topic comes into being at its first use.
    pub auto_create: bool,
}

/// Pushing to HTTP endpoints.
#[derive(Clone, Debug)]
pub struct PushConfig {
    /// What may be reached although it is not public.
    pub allow: Allowed,
    /// Certificates of authorities that are trusted besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// What questions about transactions are signed with.
    pub check_secret: Option<Secret>,
}

/// Metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Most topics with lines of their own.
    pub topics_max: usize,
    /// Most groups with lines of their own.
    pub groups_max: usize,
}

/// Log lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// How they are written.
    pub format: LogFormat,
    /// Which are.
    pub level: Levels,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Traces.
#[derive(Clone, Debug)]
pub struct OtelConfig {
    /// The collector they are sent to; without it there are none.
    pub endpoint: Option<Url>,
    /// Share of the traces begun here that are recorded, from 0 to 1.
    pub sample: f64,
    /// Name of this server in them.
    pub service_name: String,
}

impl TryFrom<ConfigFile> for Config {
    type Error = ConfigError;

    fn try_from(file: ConfigFile) -> Result<Self, ConfigError> {
        Self::try_from(&file)
    }
}

impl TryFrom<&ConfigFile> for Config {
    type Error = ConfigError;

    fn try_from(file: &ConfigFile) -> Result<Self, ConfigError> {
        let config = Self {
            http: http(file)?,
            kafka: kafka::read(file)?,
            tls: tls(file)?,
            auth: AuthConfig {
                enabled: file.get("auth.enabled", truth)?,
                admin_token: file.get_secret("auth.admin_token", AdminToken::read)?,
            },
            store: store(file)?,
            timeline: cluster::timeline(file)?,
            outlet: cluster::outlet(file)?,
            ingress: cluster::ingress(file)?,
            cluster: cluster::cluster(file)?,
            limits: LimitsConfig {
                body_bytes_max: file
                    .get("limits.body_bytes_max", |text| bytes(text, 1..=BODY_BYTES_CEILING))?,
                delay_max: file.get("limits.delay_max", |text| {
                    let delay = span(text)?;
                    (delay <= DELAY_CEILING)
                        .then_some(delay)
                        .ok_or_else(|| "it is at most 3653 days".to_owned())
                })?,
            },
            topics: TopicsConfig { auto_create: file.get("topics.auto_create", truth)? },
            push: PushConfig {
                allow: file.get("push.allow", Allowed::read)?,
                ca_file: file.get("push.ca_file", values::file)?,
                check_secret: file.get_secret("push.check_secret", Secret::read)?,
            },
            alerts: alerts::read(file)?,
            metrics: MetricsConfig {
                topics_max: file.get("metrics.topics_max", named_most)?,
                groups_max: file.get("metrics.groups_max", named_most)?,
            },
            log: LogConfig {
                format: file.get("log.format", |text| {
                    choice(text, &[("text", LogFormat::Text), ("json", LogFormat::Json)])
                })?,
                level: file.get("log.level", levels)?,
            },
            otel: OtelConfig {
                endpoint: file.get("otel.endpoint", collector)?,
                sample: file.get("otel.sample", fraction)?,
                service_name: file.get("otel.service_name", name)?,
            },
            virtual_time: None,
        };
        check_reach(file, &config)?;
        kafka::check_reach(file, &config)?;
        check_traces(file, &config)?;
        cluster::check(file, &config)?;
        alerts::check(file, &config)?;
        Ok(config)
    }
}

/// How many topics or groups may have lines of their own; each has a few.
fn named_most(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= METRICS_NAMED_MAX);
    number.ok_or_else(|| format!("it is a whole number from 0 to {METRICS_NAMED_MAX}"))
}

/// More lines than this are a burden on whoever reads them.
const METRICS_NAMED_MAX: usize = 10_000;

/// Less than this and a single request of legal size could never be held.
const HELD_BYTES_LEAST: usize = 64 << 20;

fn http(file: &ConfigFile) -> Result<HttpConfig, ConfigError> {
    Ok(HttpConfig {
        listen: file.get("http.listen", address)?,
        hosts: file.get("http.hosts", list)?,
        cors_origins: file.get("http.cors_origins", origins)?,
        connections_max: file.get("http.connections_max", count)?,
        connections_per_address_max: file.get(
            "http.connections_per_address_max",
            |text| match text {
                "0" => Ok(None),
                text => count(text).map(Some),
            },
        )?,
        header_timeout: file.get("http.header_timeout", time)?,
        idle_timeout: file.get("http.idle_timeout", time)?,
        stranger_timeout: file.get("http.stranger_timeout", time)?,
        body_idle_timeout: file.get("http.body_idle_timeout", time)?,
        body_timeout: file.get("http.body_timeout", time)?,
        drain_timeout: file.get("http.drain_timeout", time)?,
        held_bytes_max: file
            .get("http.held_bytes_max", |text| bytes(text, HELD_BYTES_LEAST..=usize::MAX >> 4))?,
    })
}

/// The certificate and its key belong together; nothing else of TLS means anything without them.
fn tls(written: &ConfigFile) -> Result<Option<TlsConfig>, ConfigError> {
    let client_ca_file = written.get("tls.client_ca_file", file)?;
    let client_auth = written.get("tls.client_auth", |text| {
        choice(text, &[("required", ClientAuth::Required), ("optional", ClientAuth::Optional)])
    })?;
    let handshake_timeout = written.get("tls.handshake_timeout", time)?;
    let needs = |name, other: &str| Err(written.refuse(name, format!("it needs {other}")));
    match (written.get("tls.cert_file", file)?, written.get("tls.key_file", file)?) {
        (Some(cert_file), Some(key_file)) => Ok(Some(TlsConfig {
            cert_file,
            key_file,
            client_ca_file,
            client_auth,
            handshake_timeout,
        })),
        (Some(_), None) => needs("tls.cert_file", "tls.key_file"),
        (None, Some(_)) => needs("tls.key_file", "tls.cert_file"),
        (None, None) if client_ca_file.is_some() => needs("tls.client_ca_file", "tls.cert_file"),
        (None, None) => Ok(None),
    }
}

fn store(file: &ConfigFile) -> Result<StoreConfig, ConfigError> {
    let interval = file.get("store.interval", time)?;
    Ok(StoreConfig {
        data: file.get("store.data", directory)?,
        durability: file.get("store.durability", |text| {
            let words = [
                ("fsync", Durability::Fsync),
                ("interval", Durability::Interval(interval)),
                ("os", Durability::Os),
            ];
            choice(text, &words)
        })?,
        memory: file.get("store.memory", |text| bytes(text, 16 << 20..=1 << 40))?,
    })
}

/// G42: whoever can be reached from elsewhere asks who calls, and does not ask in the clear.
fn check_reach(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    if config.http.listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let refuse = |reason: &str| Err(file.refuse("http.listen", reason.to_owned()));
    if !config.auth.enabled {
        return refuse(
            "only loopback addresses (127.0.0.1, [::1]) are allowed without authentication: set \
             auth.enabled = true",
        );
    }
    if config.tls.is_none() && !file.get("http.insecure", truth)? {
        return refuse(
            "tokens would cross the network in the clear: set tls.cert_file and tls.key_file, or \
             http.insecure = true where something in front of the server does TLS",
        );
    }
    Ok(())
}

fn check_traces(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    if config.otel.endpoint.is_some() && !cfg!(feature = "otel") {
        let reason = "this program was built without traces (cargo feature otel)";
        return Err(file.refuse("otel.endpoint", reason.to_owned()));
    }
    Ok(())
}
