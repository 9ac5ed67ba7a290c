//! The address of an endpoint as it was written, read by the same rules as browsers read it, and
//! what the configuration lets a push reach beyond public addresses.
//!
//! Whatever can be told from the text alone is told here, before anything is stored. Names are
//! resolved, and checked again, at each connection.

use std::net::IpAddr;
use std::sync::Arc;

use url::{Host, Url};

use crate::push::address::{Network, refusal};

/// Longest address of an endpoint, in characters.
pub(crate) const URL_CHARS_MAX: usize = 2048;

/// What a push may reach although it is not public.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    rules: Arc<[Rule]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    /// Every address of a range, at every port.
    Network(Network),
    /// A host by its name, or, with a leading `*.`, every name below it; at one port or at all.
    Host { name: Box<str>, below: bool, port: Option<u16> },
}

impl Allowed {
    /// What a list such as `10.0.0.0/8, 192.168.1.7, hooks.internal:8080, *.lan:*` allows.
    ///
    /// # Errors
    /// What an item has to look like.
    pub fn read(text: &str) -> Result<Self, String> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let rules = items.map(|item| {
            Rule::read(item).ok_or_else(|| {
                format!("{item:?} is neither a range of addresses (10.0.0.0/8) nor host:port")
            })
        });
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    fn host(&self, host: &str, port: u16) -> bool {
        self.rules.iter().any(|rule| rule.names(host, port))
    }

    fn address(&self, address: IpAddr) -> bool {
        let within = |rule: &Rule| matches!(rule, Rule::Network(range) if range.contains(address));
        self.rules.iter().any(within)
    }
}

impl Rule {
    fn read(item: &str) -> Option<Self> {
        if let Some(range) = Network::read(item) {
            return Some(Self::Network(range));
        }
        let (name, port) = item.rsplit_once(':')?;
        let port = match port {
            "*" => None,
            port => Some(port.parse().ok().filter(|port| *port != 0)?),
        };
        let (name, below) = match name.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (name, false),
        };
        // Written the way hosts of endpoints are written once they are read.
        let name = Host::parse(name).ok()?.to_string().into();
        Some(Self::Host { name, below, port })
    }

    fn names(&self, host: &str, port: u16) -> bool {
        match self {
            Self::Network(_) => false,
            Self::Host { name, below, port: only } => {
                let fits = if *below {
                    host.strip_suffix(&**name).is_some_and(|rest| rest.ends_with('.'))
                } else {
                    host == &**name
                };
                fits && only.is_none_or(|only| only == port)
            }
        }
    }
}

/// Why an address cannot be an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EndpointError {
    #[error("it is longer than {URL_CHARS_MAX} characters")]
    TooLong,
    #[error("it is not a URL: {0}")]
    NotUrl(url::ParseError),
    #[error("it must begin with http:// or https://")]
    Scheme,
    #[error("it must not contain a user or a password")]
    UserInfo,
    #[error("port 0 cannot be reached")]
    Port,
    #[error("{0} addresses must be listed in push.allow")]
    Refused(&'static str),
}

/// Where the messages of a group are pushed to.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) secure: bool,
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// Host and port as the `Host` header wants them.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) target: String,
    /// Whether the configuration names the host, so that its addresses are not checked.
    named: bool,
}

impl Endpoint {
    /// Reads and checks what can be checked without asking anybody.
    pub(crate) fn read(text: &str, allowed: &Allowed) -> Result<Self, EndpointError> {
        if text.len() > URL_CHARS_MAX {
            return Err(EndpointError::TooLong);
        }
        let url = Url::parse(text).map_err(EndpointError::NotUrl)?;
        let secure = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(EndpointError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EndpointError::UserInfo);
        }
        let port = match url.port_or_known_default() {
            None | Some(0) => return Err(EndpointError::Port),
            Some(port) => port,
        };
        let host = url.host().ok_or(EndpointError::Scheme)?.to_owned();
        let name = host.to_string();
        let endpoint = Self {
            secure,
            authority: url.port().map_or_else(|| name.clone(), |port| format!("{name}:{port}")),
            target: match url.query() {
                Some(query) => format!("{}?{query}", url.path()),
                None => url.path().to_owned(),
            },
            named: allowed.host(&name, port),
            host,
            port,
        };
        if let Some(address) = endpoint.literal() {
            endpoint.check(address, allowed)?;
        }
        Ok(endpoint)
    }

    /// Whether an address that the host turned out to have may be reached.
    pub(crate) fn check(&self, address: IpAddr, allowed: &Allowed) -> Result<(), EndpointError> {
        match refusal(address) {
            Some(kind) if !self.named && !allowed.address(address) => {
                Err(EndpointError::Refused(kind))
            }
            _ => Ok(()),
        }
    }

    /// The address, when the host is one, or is a name that always means one.
    fn literal(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Ipv4(address) => Some((*address).into()),
            Host::Ipv6(address) => Some((*address).into()),
            Host::Domain(name) => {
                let name = name.trim_end_matches('.');
                (name == "localhost" || name.ends_with(".localhost"))
                    .then_some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST))
            }
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the path, which may carry a secret.
        f.debug_tuple("Endpoint").field(&self.authority).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::read(text, &Allowed::default())
    }

    #[test]
    fn g46_an_address_is_refused_however_it_is_written() {
        for url in [
            "http://127.0.0.1/",
            "http://2130706433/",
            "http://0x7f000001/",
            "http://0x7f.1/",
            "http://0177.0.0.1/",
            "http://017700000001/",
            "http://127.1/",
            "http://127.0.1/",
            "http://0/",
            "http://0.0.0.0/",
            "http://127.0.0.1./",
            "http://%31%32%37.0.0.1/",
            "http://１２７.0.0.1/",
            "http://127。0。0。1/",
            "http:127.0.0.1/",
            "http:\\\\127.0.0.1\\",
            "ht\ntp://127.0.0.1/",
            "http://[::1]/",
            "http://[::]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[fd00:ec2::254]/",
            "http://[fe80::1]/",
            "http://169.254.169.254/latest/meta-data/",
            "http://0xA9FEA9FE/",
            "http://2852039166/",
            "https://10.0.0.1:8443/x",
            "https://192.168.0.1/",
            "http://localhost/",
            "http://LOCALHOST:8080/",
            "http://localhost./",
            "http://a.localhost/",
        ] {
            let refused = matches!(read(url), Err(EndpointError::Refused(_)));
            assert!(refused, "{url}: {:?}", read(url));
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused() {
        for url in [
            "",
            "example.org",
            "/path",
            "//example.org/",
            "http://",
            "http:///",
            "ftp://example.org/",
            "file:///etc/passwd",
            "gopher://example.org/",
            "unix:/run/docker.sock",
            "javascript:alert(1)",
            "http://user@example.org/",
            "http://user:secret@example.org/",
            "http://example.org@127.0.0.1/",
            "http://:secret@example.org/",
            "http://example.org:0/",
            "http://example.org:65536/",
            "http://example.org:x/",
            "http://exa mple.org/",
            "http://[::1/",
            "http://[fe80::1%25eth0]/",
            "http://1.2.3.4.5/",
            "http://256.1.1.1/",
        ] {
            assert!(read(url).is_err(), "{url}: {:?}", read(url));
        }
        assert_eq!(
            read(&format!("http://example.org/{}", "x".repeat(3000))),
            Err(EndpointError::TooLong)
        );
    }

    #[test]
    fn an_endpoint_is_read_into_its_parts() {
        let endpoint = read("https://Hooks.Example.org/in?a=1&b=%0a#part").unwrap();
        assert!(endpoint.secure);
        assert_eq!(endpoint.authority, "hooks.example.org");
        assert_eq!((endpoint.port, endpoint.target.as_str()), (443, "/in?a=1&b=%0a"));
        let endpoint = read("http://[2606:4700::1]:8080").unwrap();
        assert!(!endpoint.secure);
        assert_eq!(endpoint.authority, "[2606:4700::1]:8080");
        assert_eq!((endpoint.port, endpoint.target.as_str()), (8080, "/"));
        assert_eq!(read("http://a.example/x y\r\nz").unwrap().target, "/x%20yz", "no line breaks");
        let endpoint = read("https://a.example/secret?secret").unwrap();
        assert!(!format!("{endpoint:?}").contains("secret"), "{endpoint:?}");
    }

    #[test]
    fn what_the_configuration_allows_is_reached() {
        let allowed = Allowed::read(
            "10.0.0.0/8, 127.0.0.1:9000 ,[::1]:*,hooks.lan:8080,*.Internal:443,localhost:*",
        )
        .unwrap();
        let reaches = |url: &str, address: &str| {
            Endpoint::read(url, &allowed)
                .and_then(|endpoint| endpoint.check(address.parse().unwrap(), &allowed))
                .is_ok()
        };
        assert!(reaches("http://10.1.2.3/", "10.1.2.3"));
        assert!(reaches("http://anything.example/", "10.1.2.3"));
        assert!(reaches("http://127.0.0.1:9000/", "127.0.0.1"));
        assert!(!reaches("http://127.0.0.1:9001/", "127.0.0.1"));
        assert!(!reaches("http://anything.example:9000/", "127.0.0.1"));
        assert!(reaches("http://[::1]:1234/", "::1"));
        assert!(reaches("http://hooks.lan:8080/", "192.168.0.1"));
        assert!(!reaches("http://hooks.lan/", "192.168.0.1"));
        assert!(reaches("https://a.internal/", "172.16.0.1"));
        assert!(!reaches("https://internal/", "172.16.0.1"));
        assert!(!reaches("https://notinternal/", "172.16.0.1"));
        assert!(!reaches("https://a.notinternal/", "172.16.0.1"));
        assert!(reaches("http://localhost:1/", "127.0.0.1"));
        for text in ["hooks.lan", "hooks.lan:0", "hooks.lan:x", ":80", "10.0.0.0/64", "a b:1"] {
            assert!(Allowed::read(text).is_err(), "{text}");
        }
    }
}
