//! Every key of the configuration: its name, kind, default and meaning, in one table.
//!
//! The parser, the reference page, `config print` and the reload read this table and nothing else.
//! A key that is not marked [`Key::reload`] never changes while the server runs, and none can be
//! changed over a listener.

use std::fmt;

use self::Kind::{
    Address, AddressOrOff, Bytes, Choice, Count, Fraction, List, Path, Secret, Text, Time, Truth,
};

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section and key: `http.listen`.
    pub name: &'static str,
    /// What its value is.
    pub kind: Kind,
    /// What holds when nobody says anything, as one would write it.
    pub default: &'static str,
    /// Whether a running server takes a new value when it is asked to read its configuration again.
    pub reload: bool,
    /// What it means.
    pub about: &'static str,
}

impl Key {
    /// Whether its value is shown to nobody.
    #[must_use]
    pub const fn secret(&self) -> bool {
        matches!(self.kind, Secret)
    }

    /// The section it is in.
    #[must_use]
    pub fn section(&self) -> &'static str {
        self.name.split_once('.').map_or("", |(section, _)| section)
    }

    /// The environment variable that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("PUNCTUAL_{}", self.name.replace('.', "__").to_ascii_uppercase())
    }

    /// The same key, taken anew by a running server.
    const fn live(self) -> Self {
        Self { reload: true, ..self }
    }
}

/// What the value of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An address and a port.
    Address,
    /// An address and a port, or `off`.
    AddressOrOff,
    /// `true` or `false`.
    Truth,
    /// A whole number.
    Count,
    /// A number from 0 to 1.
    Fraction,
    /// A length of time.
    Time,
    /// A number of bytes.
    Bytes,
    /// A file or a directory.
    Path,
    /// Any number of texts.
    List,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Some text.
    Text,
    /// Some text that is shown to nobody.
    Secret,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address and port"),
            Self::AddressOrOff => f.write_str("address and port, or off"),
            Self::Truth => f.write_str("true or false"),
            Self::Count => f.write_str("whole number"),
            Self::Fraction => f.write_str("number from 0 to 1"),
            Self::Time => f.write_str("duration"),
            Self::Bytes => f.write_str("bytes"),
            Self::Path => f.write_str("path"),
            Self::List => f.write_str("list of texts"),
            Self::Choice(words) => f.write_str(&words.join(", ")),
            Self::Text => f.write_str("text"),
            Self::Secret => f.write_str("secret"),
        }
    }
}

const fn key(name: &'static str, kind: Kind, default: &'static str, about: &'static str) -> Key {
    Key { name, kind, default, reload: false, about }
}

/// Every key there is, section by section.
#[rustfmt::skip]
pub const KEYS: &[Key] = &[
    key("http.listen", Address, "127.0.0.1:7070", "address of the HTTP and gRPC listener; one that others can reach needs `auth.enabled`"),
    key("http.insecure", Truth, "false", "whether an address that others can reach may be served without TLS, for instance behind a proxy that ends it"),
    key("http.hosts", List, "", "further names in the Host header to answer to").live(),
    key("http.cors_origins", List, "", "origins whose web pages may call the API, like `https://console.example`; none by default").live(),
    key("http.connections_max", Count, "1024", "most connections at one time").live(),
    key("http.connections_per_address_max", Count, "0", "most connections at one time from one address; 0 for no such cap").live(),
    key("http.header_timeout", Time, "10s", "longest time for a request's head to arrive").live(),
    key("http.idle_timeout", Time, "60s", "longest time a connection may wait for its next request").live(),
    key("http.stranger_timeout", Time, "1m", "longest life of a connection on which no request was let in").live(),
    key("http.body_idle_timeout", Time, "10s", "longest pause while a body arrives or an answer leaves").live(),
    key("http.body_timeout", Time, "2m", "longest time for a request's body to arrive, and for an answer or a piece of one to leave").live(),
    key("http.drain_timeout", Time, "10s", "longest time requests under way are waited for at the end").live(),
    key("http.held_bytes_max", Bytes, "128MiB", "most bytes of requests held at one time"),
    key("kafka.listen", AddressOrOff, "127.0.0.1:9092", "address of the listener for Kafka clients, or `off`; one that others can reach needs `auth.enabled`"),
    key("kafka.insecure", Truth, "false", "whether an address that others can reach may be served to Kafka clients without TLS, for instance behind a proxy that ends it; secrets of SASL PLAIN and messages cross the network as they are then"),
    key("kafka.advertised", Text, "", "name and port that Kafka clients are told to connect to, like `broker.example:9092`; by default the address they came to"),
    key("kafka.connections_max", Count, "1024", "most connections of Kafka clients at one time").live(),
    key("kafka.connections_per_address_max", Count, "0", "most of them at one time from one address; 0 for no such cap").live(),
    key("kafka.idle_timeout", Time, "10m", "longest time a connection may wait for its next request, and a client may leave an answer unread").live(),
    key("kafka.request_timeout", Time, "2m", "longest time for a request to arrive once it has begun").live(),
    key("kafka.stranger_timeout", Time, "1m", "longest time a client may take to show who it is").live(),
    key("kafka.request_bytes_max", Bytes, "40MiB", "largest request of a Kafka client").live(),
    key("kafka.held_bytes_max", Bytes, "128MiB", "most bytes of requests of Kafka clients held at one time; past it nothing more is read"),
    key("kafka.group_delay", Time, "100ms", "how long a group of Kafka consumers that was empty waits for more members before the first share its partitions; Apache Kafka waits 3 s, which every consumer that is alone would wait too"),
    key("tls.cert_file", Path, "", "PEM file of the server's certificate and those between it and its authority; with it everything is served over TLS"),
    key("tls.key_file", Path, "", "PEM file of the certificate's private key"),
    key("tls.client_ca_file", Path, "", "PEM file of the authorities whose client certificates are accepted"),
    key("tls.client_auth", Choice(&["required", "optional"]), "required", "whether a client must show a certificate, where `tls.client_ca_file` is set"),
    key("tls.handshake_timeout", Time, "10s", "longest time for a TLS handshake").live(),
    key("auth.enabled", Truth, "false", "whether callers must say who they are and may do only what they were granted"),
    key("auth.admin_token", Secret, "", "token that may do everything; without it one is made at the first start and written into the data directory").live(),
    key("auth.admin_token_file", Path, "", "file that holds `auth.admin_token`, instead of the token itself").live(),
    key("store.data", Path, "./punctual-data", "directory of the data"),
    key("store.durability", Choice(&["fsync", "interval", "os"]), "fsync", "when a write is on disk: before it is acknowledged, at most `store.interval` later, or when the operating system likes"),
    key("store.interval", Time, "100ms", "time between two flushes with `store.durability = \"interval\"`"),
    key("store.memory", Bytes, "256MiB", "memory for messages on their way to and from the disk"),
    key("timeline.kind", Choice(&["embedded", "mysql", "cassandra"]), "embedded", "where pending messages are: in `store.data` of this machine, or in a database that nodes share"),
    key("timeline.url", Text, "", "the MySQL or MariaDB database, like `mysql://127.0.0.1:3306/punctual`; the password goes into `timeline.password`"),
    key("timeline.endpoints", List, "", "addresses of Cassandra, like `10.0.0.1:9042`"),
    key("timeline.user", Text, "", "user of the database"),
    key("timeline.password", Secret, "", "password of that user"),
    key("timeline.password_file", Path, "", "file that holds `timeline.password`, instead of the password itself"),
    key("timeline.keyspace", Text, "punctual", "keyspace in Cassandra; made if it is not there"),
    key("timeline.replication", Text, "3", "copies that Cassandra keeps when it makes the keyspace: a number, or one for each data centre (`east=3,west=3`)"),
    key("timeline.horizon", Time, "5m", "what is due within this time is in memory, as far as `timeline.memory` goes"),
    key("timeline.memory", Bytes, "256MiB", "memory for messages of a shared timeline that are due soon"),
    key("timeline.finished", Choice(&["delete", "archive"]), "delete", "what becomes of messages in the database some time after they have ended"),
    key("timeline.finished_after", Time, "24h", "for how long messages that have ended are remembered there, and their own ids with them"),
    key("timeline.allow_unsafe", List, "", "names of unsafe settings of the database that are accepted all the same"),
    key("outlet.kind", Choice(&["local", "kafka"]), "local", "where due messages go: to the topics of this server, or to Kafka"),
    key("outlet.brokers", List, "", "addresses of Kafka, like `10.0.0.1:9092`"),
    key("outlet.id_header", Truth, "true", "whether records carry the id of their message as a header"),
    key("outlet.replication", Count, "0", "copies of topics that are made in Kafka; 0 leaves it to Kafka"),
    key("outlet.properties", Secret, "", "further settings of the Kafka client, `name=value` with commas or line ends between them, for instance for TLS and SASL; hidden because there may be a password among them"),
    key("outlet.properties_file", Path, "", "file that holds `outlet.properties`, one a line, instead of the settings themselves"),
    key("ingress.topics", List, "", "topics of Kafka whose records with delay headers are scheduled"),
    key("ingress.topic", Text, "", "topic for those of them that name none in the header `punctual-topic`; without it such records are dead letters"),
    key("ingress.group", Text, "punctual", "consumer group that reads them"),
    key("cluster.coordinator", Choice(&["none", "etcd", "zookeeper"]), "none", "who divides slots among nodes; needs a `timeline.kind` that nodes share"),
    key("cluster.endpoints", List, "", "addresses of etcd or ZooKeeper, like `10.0.0.1:2379`"),
    key("cluster.name", Text, "punctual", "name of the cluster; nodes with the same one belong together"),
    key("cluster.node", Text, "", "name of this node in lists; by default that of the machine. Something is put behind it at each start"),
    key("cluster.advertise", Text, "", "where other nodes reach this one, like `https://node-1.example:7070`; by default the address of the HTTP listener"),
    key("cluster.secret", Secret, "", "secret that nodes show each other, the same on all of them; needed where others could reach the listener"),
    key("cluster.secret_file", Path, "", "file that holds `cluster.secret`, instead of the secret itself"),
    key("cluster.ca_file", Path, "", "PEM file of authorities that are trusted for other nodes besides the system's"),
    key("cluster.slots", Count, "64", "number of slots of a cluster that starts for the first time; later it is changed with `punctual cluster set --slots`"),
    key("cluster.lease", Time, "9s", "for how long a node that is not heard of keeps its slots"),
    key("cluster.rebalance_delay", Time, "1s", "how long further changes are waited for before slots are assigned anew"),
    key("cluster.patience", Time, "10s", "for how long a request is tried again while the slot that it is about moves"),
    key("limits.body_bytes_max", Bytes, "4MiB", "largest body of a message").live(),
    key("limits.delay_max", Time, "40d", "longest delay").live(),
    key("topics.auto_create", Truth, "true", "whether a topic comes into being at its first use").live(),
    key("push.allow", List, "", "what may be pushed to though it is not public: `10.0.0.0/8`, `hooks.lan:8080`").live(),
    key("push.ca_file", Path, "", "PEM file of authorities that pushes trust besides the system's"),
    key("push.check_secret", Secret, "", "secret that questions about transactions are signed with"),
    key("push.check_secret_file", Path, "", "file that holds `push.check_secret`, instead of the secret itself"),
    key("alerts.interval", Time, "10s", "time between two looks at all rules").live(),
    key("alerts.window", Time, "10m", "how far back rules look that count over time: `success_rate`, `attempts`, `dead_letter_growth` and `clock_step`; `lateness_p99` looks back a minute, or this if it is shorter").live(),
    key("alerts.webhook", Secret, "", "where alerts are sent to by POST; an address that is not public must be listed in `push.allow`. Hidden, because such addresses often carry a secret").live(),
    key("alerts.webhook_file", Path, "", "file that holds `alerts.webhook`, instead of the address itself").live(),
    key("alerts.webhook_secret", Secret, "", "secret that they are signed with, as pushes are").live(),
    key("alerts.webhook_secret_file", Path, "", "file that holds `alerts.webhook_secret`, instead of the secret itself").live(),
    key("alerts.pending_backlog", Count, "0", "messages that wait for their due time; 0 switches the rule off, as it does for each of these").live(),
    key("alerts.pending_backlog_for", Time, "1m", "how long it must be so before the alert fires").live(),
    key("alerts.oldest_overdue", Time, "60s", "how long a message that is due may wait to be delivered").live(),
    key("alerts.oldest_overdue_for", Time, "10s", "how long it must be so").live(),
    key("alerts.lateness_p99", Time, "5s", "how late 99 in 100 messages may be delivered at most").live(),
    key("alerts.lateness_p99_for", Time, "1m", "how long it must be so").live(),
    key("alerts.success_rate", Fraction, "0.9", "least share of attempts of groups that end in an ack; judged from 20 attempts on").live(),
    key("alerts.success_rate_for", Time, "1m", "how long it must be so").live(),
    key("alerts.attempts", Count, "10", "failed attempts of one message that are no reason for an alert; one more is").live(),
    key("alerts.attempts_for", Time, "0s", "how long it must be so").live(),
    key("alerts.dead_letter_growth", Count, "100", "messages that become dead letters within `alerts.window`").live(),
    key("alerts.dead_letter_growth_for", Time, "0s", "how long it must be so").live(),
    key("alerts.undecided_transactions", Count, "1", "transactions that are undecided for longer than `alerts.undecided_after`").live(),
    key("alerts.undecided_transactions_for", Time, "0s", "how long it must be so").live(),
    key("alerts.undecided_after", Time, "10m", "how long a transaction may be undecided").live(),
    key("alerts.node_lost", Count, "1", "nodes of a cluster that have gone without leaving it in order; slots without an owner count as one").live(),
    key("alerts.node_lost_for", Time, "5s", "how long it must be so").live(),
    key("alerts.disk_space", Count, "10", "least free space on the disk of `store.data`, in percent").live(),
    key("alerts.disk_space_for", Time, "1m", "how long it must be so").live(),
    key("alerts.clock_step", Count, "1", "steps of the wall clock within `alerts.window`").live(),
    key("alerts.clock_step_for", Time, "0s", "how long it must be so").live(),
    key("metrics.topics_max", Count, "100", "most topics with lines of their own in `/metrics`, the largest; the others are summed under `topic=\"~other\"`").live(),
    key("metrics.groups_max", Count, "100", "most groups with lines of their own in `/metrics`, the furthest behind; the others are summed under `group=\"~other\"`").live(),
    key("log.format", Choice(&["text", "json"]), "text", "how log lines are written: for people, or one JSON object a line").live(),
    key("log.level", List, "info", "what is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`; for single parts as in `info,punctual_server::push=debug`").live(),
    key("otel.endpoint", Text, "", "where traces are sent to by OTLP over gRPC: `http://127.0.0.1:4317`; without it there are none"),
    key("otel.sample", Fraction, "1.0", "share of the traces begun here that are recorded; a caller's own decision is kept").live(),
    key("otel.service_name", Text, "punctual", "name of this server in traces"),
];

/// The key of that name.
pub(crate) fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name most like that one. A key that is only in the wrong section is named before
/// others that merely look alike.
pub(crate) fn nearest(name: &str) -> &'static str {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let wanted = last(name);
    let unlike = |known: &Key| (last(known.name) != wanted, distance(name, known.name));
    KEYS.iter().min_by_key(|known| unlike(known)).expect("there are keys").name
}

/// How many characters must be put in, left out or changed to get from one text to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_section_by_section_and_once() {
        let mut seen: Vec<&str> = Vec::new();
        for key in KEYS {
            let section = key.section();
            assert!(seen.last() == Some(&section) || !seen.contains(&section), "{section}");
            seen.push(section);
            assert_eq!(KEYS.iter().filter(|other| other.name == key.name).count(), 1);
        }
    }

    #[test]
    fn no_secret_has_a_default() {
        assert!(KEYS.iter().filter(|key| key.secret()).all(|key| key.default.is_empty()));
    }

    #[test]
    fn the_nearest_name_looks_beyond_the_section() {
        assert_eq!(nearest("http.listen_on"), "http.listen");
        assert_eq!(nearest("server.listen"), "http.listen");
        assert_eq!(nearest("http.durability"), "store.durability");
        assert_eq!(nearest("store.durabilty"), "store.durability");
        assert_eq!(nearest("topic.auto_create"), "topics.auto_create");
    }

    #[test]
    fn a_variable_follows_from_the_name() {
        assert_eq!(find("http.listen").unwrap().variable(), "PUNCTUAL_HTTP__LISTEN");
    }
}
