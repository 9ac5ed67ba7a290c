//! The configuration: as somebody wrote it, and as the server uses it.
//!
//! [`ConfigFile`] collects texts from the file, the environment and the flags, later ones over
//! earlier ones. [`Config`] is valid by existing. Every key, its default and its meaning stand in
//! one table, [`KEYS`]; a name that is not there is an error that names the nearest one.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use punctual_model::limits::{BODY_BYTES_CEILING, DELAY_CEILING};
use punctual_model::time::SpanError;
use punctual_model::{Span, Timestamp};

use crate::push::{Allowed, Secret};

/// A key of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section and key: `http.listen`.
    pub name: &'static str,
    /// What holds when nobody says anything, as one would write it.
    pub default: &'static str,
    /// What it means.
    pub about: &'static str,
}

const fn key(name: &'static str, default: &'static str, about: &'static str) -> Key {
    Key { name, default, about }
}

/// Every key there is.
pub const KEYS: &[Key] = &[
    key("http.listen", "127.0.0.1:7070", "address of the HTTP listener; loopback only for now"),
    key("http.hosts", "", "further names in the Host header to answer to, separated by commas"),
    key("http.connections_max", "1024", "most connections at one time"),
    key("http.header_timeout", "10s", "longest time for a request's head to arrive"),
    key("http.idle_timeout", "60s", "longest time a connection may wait for its next request"),
    key("http.body_idle_timeout", "10s", "longest pause while a body arrives or an answer leaves"),
    key("http.body_timeout", "2m", "longest time for a request's body to arrive"),
    key("http.drain_timeout", "10s", "longest time requests under way are waited for at the end"),
    key("http.held_bytes_max", "128MiB", "most bytes of requests held at one time"),
    key("store.data", "./punctual-data", "directory of the data"),
    key("store.durability", "fsync", "when a write is on disk: fsync, interval or os"),
    key("store.interval", "100ms", "time between two flushes with durability = \"interval\""),
    key("store.memory", "256MiB", "memory for messages on their way to and from the disk"),
    key("limits.body_bytes_max", "4MiB", "largest body of a message"),
    key("limits.delay_max", "40d", "longest delay"),
    key("topics.auto_create", "true", "whether a topic comes into being at its first use"),
    key("push.allow", "", "what may be pushed to though not public: 10.0.0.0/8, hooks.lan:8080"),
    key("push.ca_file", "", "PEM file of authorities that pushes trust besides the system's"),
    key("push.check_secret", "", "secret that questions about transactions are signed with"),
];

/// Who wrote a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    Default,
    /// The file of that name.
    File(PathBuf),
    /// The environment variable of that name.
    Environment(String),
    /// The flag of that name.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Flag(name) => write!(f, "the flag {name}"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{} is not TOML: {error}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        error: toml::de::Error,
    },
    /// There is no such key.
    #[error("{source_name}: there is no key {name}; did you mean {nearest}?")]
    UnknownKey {
        /// Who wrote it.
        source_name: Source,
        /// What was written.
        name: String,
        /// The known key most like it.
        nearest: &'static str,
    },
    /// A value is not what the key takes.
    #[error("{name} = {value:?} ({source_name}): {reason}")]
    IllegalValue {
        /// The key.
        name: &'static str,
        /// What was written.
        value: String,
        /// Who wrote it.
        source_name: Source,
        /// What the key takes.
        reason: String,
    },
}

/// The configuration as written: texts by key, each with who wrote it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    values: BTreeMap<&'static str, (String, Source)>,
}

impl Default for ConfigFile {
    fn default() -> Self {
        let values =
            KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Source::Default))).collect();
        Self { values }
    }
}

impl ConfigFile {
    /// Reads a TOML file over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when it cannot be read or has a key that does not exist.
    pub fn read_file(&mut self, path: PathBuf) -> Result<(), ConfigError> {
        match std::fs::read_to_string(&path) {
            Ok(text) => self.read_toml(&text, path),
            Err(error) => Err(ConfigError::Unreadable { path, error }),
        }
    }

    /// Takes TOML text over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when it is not TOML or has a key that does not exist.
    pub fn read_toml(&mut self, text: &str, path: PathBuf) -> Result<(), ConfigError> {
        let table: toml::Table = match toml::from_str(text) {
            Ok(table) => table,
            Err(error) => return Err(ConfigError::NotToml { path, error }),
        };
        for (section, content) in table {
            match content {
                toml::Value::Table(keys) => {
                    for (key, value) in keys {
                        let name = format!("{section}.{key}");
                        let source = Source::File(path.clone());
                        match plain(&value) {
                            Some(value) => self.set(&name, value, source)?,
                            None => return Err(unknown(name, source)),
                        }
                    }
                }
                _ => return Err(unknown(section, Source::File(path))),
            }
        }
        Ok(())
    }

    /// Takes every variable of the form `PUNCTUAL_SECTION__KEY` over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] for one that names no key.
    pub fn read_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, value) in variables {
            let Some(rest) = variable.strip_prefix("PUNCTUAL_") else {
                continue;
            };
            let Some((section, key)) = rest.split_once("__") else {
                continue;
            };
            let name = format!("{section}.{key}").to_ascii_lowercase();
            self.set(&name, value, Source::Environment(variable))?;
        }
        Ok(())
    }

    /// Takes one value over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no such key.
    pub fn set(&mut self, name: &str, value: String, source: Source) -> Result<(), ConfigError> {
        match KEYS.iter().find(|key| key.name == name) {
            Some(key) => {
                self.values.insert(key.name, (value, source));
                Ok(())
            }
            None => Err(unknown(name.to_owned(), source)),
        }
    }

    /// Every key with its value and who wrote it.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &str, &Source)> {
        self.values.iter().map(|(name, (value, source))| (*name, shown(name, value), source))
    }

    fn get<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let (value, source) = self.values.get(name).expect("every key has a default");
        read(value).map_err(|reason| ConfigError::IllegalValue {
            name,
            value: shown(name, value).to_owned(),
            source_name: source.clone(),
            reason,
        })
    }
}

/// The value as somebody may see it.
fn shown<'a>(name: &str, value: &'a str) -> &'a str {
    if name.ends_with("secret") && !value.is_empty() { "(hidden)" } else { value }
}

/// A value of TOML as text; lists are separated by commas. A table is no value.
fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Datetime(time) => Some(time.to_string()),
        toml::Value::Array(items) => {
            Some(items.iter().map(plain).collect::<Option<Vec<_>>>()?.join(","))
        }
        toml::Value::Table(_) => None,
    }
}

fn unknown(name: String, source_name: Source) -> ConfigError {
    let nearest = KEYS
        .iter()
        .map(|key| key.name)
        .min_by_key(|known| distance(&name, known))
        .expect("there are keys");
    ConfigError::UnknownKey { source_name, name, nearest }
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

/// The configuration as it is used. Whoever holds one holds a valid one.
#[derive(Clone, Debug)]
pub struct Config {
    /// The HTTP listener.
    pub http: HttpConfig,
    /// The embedded store.
    pub store: StoreConfig,
    /// Limits that may be changed.
    pub limits: LimitsConfig,
    /// Topics.
    pub topics: TopicsConfig,
    /// Pushing.
    pub push: PushConfig,
    /// Where time begins that is moved by hand; without it the clock of the machine counts. No key
    /// of the file: nobody is to come by it unawares.
    pub virtual_time: Option<Timestamp>,
}

/// The HTTP listener.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Where it listens; always a loopback address, because there is no authentication yet.
    pub listen: SocketAddr,
    /// Further names to answer to.
    pub hosts: Vec<String>,
    /// Most connections at one time.
    pub connections_max: usize,
    /// Longest time for a request's head.
    pub header_timeout: Duration,
    /// Longest time between two requests of a connection.
    pub idle_timeout: Duration,
    /// Longest pause within a request's body or an answer.
    pub body_idle_timeout: Duration,
    /// Longest time for a request's body.
    pub body_timeout: Duration,
    /// Longest wait for requests under way at the end.
    pub drain_timeout: Duration,
    /// Most bytes of requests held at one time.
    pub held_bytes_max: usize,
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

impl TryFrom<ConfigFile> for Config {
    type Error = ConfigError;

    fn try_from(file: ConfigFile) -> Result<Self, ConfigError> {
        let interval = file.get("store.interval", time)?;
        Ok(Self {
            http: HttpConfig {
                listen: file.get("http.listen", loopback)?,
                hosts: file.get("http.hosts", list)?,
                connections_max: file.get("http.connections_max", count)?,
                header_timeout: file.get("http.header_timeout", time)?,
                idle_timeout: file.get("http.idle_timeout", time)?,
                body_idle_timeout: file.get("http.body_idle_timeout", time)?,
                body_timeout: file.get("http.body_timeout", time)?,
                drain_timeout: file.get("http.drain_timeout", time)?,
                held_bytes_max: file.get("http.held_bytes_max", |text| {
                    bytes(text, HELD_BYTES_LEAST..=usize::MAX >> 4)
                })?,
            },
            store: StoreConfig {
                data: file.get("store.data", directory)?,
                durability: file.get("store.durability", |text| match text {
                    "fsync" => Ok(Durability::Fsync),
                    "interval" => Ok(Durability::Interval(interval)),
                    "os" => Ok(Durability::Os),
                    _ => Err("it is fsync, interval or os".to_owned()),
                })?,
                memory: file.get("store.memory", |text| bytes(text, 16 << 20..=1 << 40))?,
            },
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
                ca_file: file.get("push.ca_file", |text| {
                    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
                })?,
                check_secret: file.get("push.check_secret", Secret::read)?,
            },
            virtual_time: None,
        })
    }
}

/// Less than this and a single request of legal size could never be held.
const HELD_BYTES_LEAST: usize = 64 << 20;

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text
        .parse()
        .map_err(|_not_one| "it is an address and a port: 127.0.0.1:7070".to_owned())?;
    if address.ip().to_canonical().is_loopback() {
        Ok(address)
    } else {
        Err("only loopback addresses (127.0.0.1, [::1]) are allowed while no authentication is \
             configured"
            .to_owned())
    }
}

fn list(text: &str) -> Result<Vec<String>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(items.map(str::to_ascii_lowercase).collect())
}

fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=1_000_000).contains(number))
        .ok_or_else(|| "it is a whole number from 1 to 1000000".to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    span(text).map(|span| Duration::from_millis(span.as_millis()))
}

fn span(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(Span::ZERO) => Err("it must be longer than nothing".to_owned()),
        read => read.map_err(|error: SpanError| error.to_string()),
    }
}

fn directory(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("it is a directory".to_owned()) } else { Ok(PathBuf::from(text)) }
}

fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_neither| "it is true or false".to_owned())
}

fn bytes(text: &str, range: std::ops::RangeInclusive<usize>) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    digits
        .parse::<usize>()
        .ok()
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!("it is a number of bytes (4MiB) from {} to {}", range.start(), range.end())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(toml: &str) -> Result<Config, ConfigError> {
        let mut file = ConfigFile::default();
        file.read_toml(toml, "punctual.toml".into())?;
        Config::try_from(file)
    }

    #[test]
    fn the_defaults_are_valid_and_loopback() {
        let config = written("").unwrap();
        assert!(config.http.listen.ip().is_loopback(), "G42");
        assert_eq!(config.store.durability, Durability::Fsync);
        assert_eq!(config.limits.body_bytes_max, punctual_model::limits::BODY_BYTES_MAX);
        assert_eq!(config.limits.delay_max, punctual_model::limits::DELAY_MAX);
    }

    #[test]
    fn later_sources_win() {
        let mut file = ConfigFile::default();
        file.read_toml("[http]\nlisten = '127.0.0.1:1'\nconnections_max = 7", "f".into()).unwrap();
        let variable = ("PUNCTUAL_HTTP__LISTEN".to_owned(), "127.0.0.1:2".to_owned());
        let other = ("PUNCTUAL_SERVER".to_owned(), "x".to_owned());
        file.read_environment([variable, other]).unwrap();
        let config = Config::try_from(file.clone()).unwrap();
        assert_eq!((config.http.listen.port(), config.http.connections_max), (2, 7));
        file.set("http.listen", "[::1]:3".to_owned(), Source::Flag("--http")).unwrap();
        assert_eq!(Config::try_from(file).unwrap().http.listen.port(), 3);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let text = written("[http]\nlisten_on = 'x'").unwrap_err().to_string();
        assert!(text.contains("did you mean http.listen?"), "{text}");
        let text = written("[topic]\nauto_create = true").unwrap_err().to_string();
        assert!(text.contains("did you mean topics.auto_create?"), "{text}");
        let mut file = ConfigFile::default();
        let variable = ("PUNCTUAL_STORE__DURABILTY".to_owned(), "os".to_owned());
        let text = file.read_environment([variable]).unwrap_err().to_string();
        assert!(text.contains("PUNCTUAL_STORE__DURABILTY") && text.contains("store.durability"));
    }

    #[test]
    fn g42_an_address_that_others_can_reach_is_refused() {
        for address in ["0.0.0.0:7070", "[::]:7070", "192.168.1.1:7070", "[::ffff:10.0.0.1]:1"] {
            let text = written(&format!("[http]\nlisten = '{address}'")).unwrap_err().to_string();
            assert!(text.contains("authentication"), "{text}");
        }
    }

    #[test]
    fn illegal_values_are_refused() {
        for toml in [
            "[http]\nlisten = 'localhost'",
            "[http]\nconnections_max = 0",
            "[http]\nheader_timeout = 0",
            "[http]\nheader_timeout = -5",
            "[http]\nheader_timeout = 1.5",
            "[http]\nheader_timeout = '1w'",
            "[http]\nheader_timeout = '99999999999999999999'",
            "[store]\ndurability = 'sometimes'",
            "[store]\nmemory = '1 KB'",
            "[limits]\nbody_bytes_max = '1GiB'",
            "[limits]\ndelay_max = '4000d'",
            "[topics]\nauto_create = 'yes'",
            "[push]\nallow = 'hooks.lan'",
            "http = 5",
            "not toml",
        ] {
            assert!(written(toml).is_err(), "{toml}");
        }
    }
}
