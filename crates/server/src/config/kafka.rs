//! The listener for Kafka clients: its keys, and who may reach it.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::cluster::leaves_kafka_alone;
use super::values::{address_or_off, bytes, count, time, truth};
use super::{Config, ConfigError, ConfigFile};

/// Less than this and a batch of legal size could never be sent.
const REQUEST_BYTES_LEAST: usize = 64 << 10;
/// No request is larger, whatever is configured; lengths on the wire end not far above.
const REQUEST_BYTES_MOST: usize = 1 << 30;
/// Less than this and requests would wait for each other without need.
const HELD_BYTES_LEAST: usize = 16 << 20;

/// The listener for Kafka clients.
#[derive(Clone, Debug)]
pub struct KafkaConfig {
    /// Where it listens, if it does; a loopback address unless callers have to say who they are.
    pub listen: Option<SocketAddr>,
    /// What clients are told to connect to, if it is not the address they came to.
    pub advertised: Option<Advertised>,
    /// Most connections at one time.
    pub connections_max: usize,
    /// Most connections at one time from one address, if they are counted.
    pub connections_per_address_max: Option<usize>,
    /// Longest time between two requests, and for a client to read on.
    pub idle_timeout: Duration,
    /// Longest time for a request to arrive.
    pub request_timeout: Duration,
    /// Longest time for a client to show who it is.
    pub stranger_timeout: Duration,
    /// Largest request, in bytes.
    pub request_bytes_max: usize,
    /// Most bytes of requests held at one time.
    pub held_bytes_max: usize,
    /// How long a group that was empty waits for more members.
    pub group_delay: Duration,
}

/// What clients are told to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// A name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

pub(super) fn read(file: &ConfigFile) -> Result<KafkaConfig, ConfigError> {
    Ok(KafkaConfig {
        listen: match leaves_kafka_alone(file)? {
            true => None,
            false => file.get("kafka.listen", address_or_off)?,
        },
        advertised: file.get("kafka.advertised", advertised)?,
        connections_max: file.get("kafka.connections_max", count)?,
        connections_per_address_max: file.get("kafka.connections_per_address_max", |text| {
            match text {
                "0" => Ok(None),
                text => count(text).map(Some),
            }
        })?,
        idle_timeout: file.get("kafka.idle_timeout", time)?,
        request_timeout: file.get("kafka.request_timeout", time)?,
        stranger_timeout: file.get("kafka.stranger_timeout", time)?,
        request_bytes_max: file.get("kafka.request_bytes_max", |text| {
            bytes(text, REQUEST_BYTES_LEAST..=REQUEST_BYTES_MOST)
        })?,
        held_bytes_max: file
            .get("kafka.held_bytes_max", |text| bytes(text, HELD_BYTES_LEAST..=usize::MAX >> 4))?,
        group_delay: file.get("kafka.group_delay", time)?,
    })
}

fn advertised(text: &str) -> Result<Option<Advertised>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let refusal = || "it is a name or an address, and a port: broker.example:9092".to_owned();
    let (host, port) = text.rsplit_once(':').ok_or_else(refusal)?;
    let port: u16 = port.parse().map_err(|_not_one| refusal())?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(bare) => bare,
        None if host.contains(':') => return Err(refusal()),
        None => host,
    };
    let legal =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b':');
    if host.is_empty() || host.len() > 255 || !host.bytes().all(legal) || port == 0 {
        return Err(refusal());
    }
    Ok(Some(Advertised { host: host.to_owned(), port }))
}

/// G42: whoever can be reached from elsewhere asks who calls, and does not ask in the clear.
pub(super) fn check_reach(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    let Some(listen) = config.kafka.listen else { return Ok(()) };
    if listen.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let refuse = |reason: &str| Err(file.refuse("kafka.listen", reason.to_owned()));
    if !config.auth.enabled {
        return refuse(
            "only loopback addresses (127.0.0.1, [::1]) are allowed without authentication: set \
             auth.enabled = true",
        );
    }
    if config.tls.is_none() && !file.get("kafka.insecure", truth)? {
        return refuse(
            "messages would cross the network in the clear: set tls.cert_file and tls.key_file, \
             or kafka.insecure = true where something in front of the server does TLS",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn config(values: &[(&str, &str)]) -> Result<Config, String> {
        let mut file = ConfigFile::default();
        for (name, value) in values {
            file.set(name, (*value).to_owned(), Source::Flag("test")).unwrap();
        }
        Config::try_from(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn it_listens_on_loopback_or_not_at_all() {
        let usual = config(&[]).unwrap().kafka.listen.unwrap();
        assert_eq!(usual.to_string(), "127.0.0.1:9092");
        assert_eq!(config(&[("kafka.listen", "off")]).unwrap().kafka.listen, None);
        let refused = config(&[("kafka.listen", "none")]).unwrap_err();
        assert!(refused.contains("or off"), "{refused}");
    }

    #[test]
    fn g42_others_are_served_only_with_authentication_and_not_in_the_clear() {
        let open = ("kafka.listen", "0.0.0.0:9092");
        let refused = config(&[open]).unwrap_err();
        assert!(refused.contains("auth.enabled"), "{refused}");
        let refused = config(&[open, ("auth.enabled", "true")]).unwrap_err();
        assert!(refused.contains("kafka.insecure"), "{refused}");
        let auth = ("auth.enabled", "true");
        assert!(config(&[open, auth, ("kafka.insecure", "true")]).is_ok());
        let tls = [("tls.cert_file", "c"), ("tls.key_file", "k")];
        assert!(config(&[open, auth, tls[0], tls[1]]).is_ok());
    }

    #[test]
    fn what_is_advertised_has_a_host_and_a_port() {
        for (text, shown) in [
            ("broker.example:9092", "broker.example:9092"),
            ("10.0.0.1:1", "10.0.0.1:1"),
            ("[::1]:9092", "[::1]:9092"),
        ] {
            assert_eq!(advertised(text).unwrap().unwrap().to_string(), shown);
        }
        assert_eq!(advertised(""), Ok(None));
        for text in ["broker", "broker:", ":9092", "a b:1", "::1:9092", "broker:0", "broker:99999"]
        {
            assert!(advertised(text).is_err(), "{text}");
        }
    }
}
