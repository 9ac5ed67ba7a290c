//! The client: where the broker is, who is calling, and how patient it is.
//!
//! What must hold: a client never has to be made again. Its connection comes back by itself when
//! the broker does.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::backoff::RetryPolicy;
use crate::connection::{self, Connection, Stamp};
use crate::consumer::Consumer;
use crate::error::ConnectError;
use crate::names::Names;
use crate::producer::{Producer, ProducerOptions};

/// Bytes of answers that may be on their way to one stream, and to all of a connection.
const STREAM_WINDOW_BYTES: u32 = 4 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// How often a connection in use is asked whether it still stands, and how long it may take to say.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one broker. Clones share its connection, which reconnects by itself.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use punctual_client::{Client, Message};
///
/// let client = Client::connect("http://127.0.0.1:7070").await?;
/// client.producer().send("orders", Message::new("order 42").key("42")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    names: Arc<Names>,
    options: ProducerOptions,
    /// What [`Client::producer`] gives out, until it is closed.
    producer: Mutex<Option<Producer>>,
}

impl Client {
    /// Connects to the broker at an address such as `http://127.0.0.1:7070`.
    ///
    /// If the future is dropped, nothing is left behind.
    ///
    /// # Errors
    /// When this is not an address, or nobody answers there.
    pub async fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::builder(address).connect().await
    }

    /// A client with settings of its own.
    #[must_use]
    pub fn builder(address: &str) -> ClientBuilder {
        ClientBuilder::new(address)
    }

    /// The producer of this client. All that are got here share one stream and one queue.
    #[must_use]
    pub fn producer(&self) -> Producer {
        let mut kept = self.inner.producer.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(producer) if !producer.is_closed() => producer.clone(),
            _ => {
                let producer = self.producer_with(self.inner.options);
                kept.insert(producer).clone()
            }
        }
    }

    /// A producer with options, a stream and a queue of its own.
    #[must_use]
    pub fn producer_with(&self, options: ProducerOptions) -> Producer {
        let Inner { connection, names, .. } = &*self.inner;
        Producer::new(connection.clone(), Arc::clone(names), options)
    }

    /// A consumer of a topic for a group.
    #[must_use]
    pub fn consumer(&self, topic: &str, group: &str) -> Consumer {
        Consumer::new(self.inner.connection.clone(), topic, group)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.inner.connection
    }

    pub(crate) fn names(&self) -> &Names {
        &self.inner.names
    }
}

/// The settings of a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    address: String,
    token: Option<String>,
    user_agent: String,
    connect_timeout: Duration,
    answer_timeout: Duration,
    retry: RetryPolicy,
    producer: ProducerOptions,
    tls: TlsSettings,
}

#[derive(Clone, Debug, Default)]
struct TlsSettings {
    authority: Option<Vec<u8>>,
    /// Certificate and key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
    server_name: Option<String>,
}

impl ClientBuilder {
    fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            token: None,
            user_agent: concat!("punctual-client/", env!("CARGO_PKG_VERSION")).to_owned(),
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
            retry: RetryPolicy::default(),
            producer: ProducerOptions::default(),
            tls: TlsSettings::default(),
        }
    }

    /// The credentials, of the form `KEY.SECRET`.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// What the client calls itself, such as `billing/1.2`.
    #[must_use]
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// How long it may take to connect; 5 seconds if nothing is said.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long one request may wait for its answer before it is made again; 30 seconds if nothing
    /// is said.
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// How requests are repeated, and when they are given up.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// How [`Client::producer`] gathers and repeats.
    #[must_use]
    pub fn producer_options(mut self, options: ProducerOptions) -> Self {
        self.producer = options;
        self
    }

    /// Trusts servers with a certificate of this authority (PEM), instead of those that the system
    /// trusts. The address begins with `https://`.
    #[must_use]
    pub fn certificate_authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// The same, from a file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn certificate_authority_file(self, path: impl AsRef<Path>) -> Result<Self, ConnectError> {
        let pem = read(path.as_ref())?;
        Ok(self.certificate_authority(pem))
    }

    /// Shows the server this certificate, with its key (both PEM).
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.identity = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Expects a certificate for this name, instead of the one in the address.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// Connects.
    ///
    /// If the future is dropped, nothing is left behind.
    ///
    /// # Errors
    /// When a setting cannot be used, or nobody answers.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let endpoint = self.endpoint()?;
        let channel = endpoint.connect().await.map_err(|error| unreachable(&error))?;
        self.client(channel)
    }

    /// A client that connects when it is first used.
    ///
    /// # Errors
    /// When a setting cannot be used.
    pub fn connect_lazy(self) -> Result<Client, ConnectError> {
        let channel = self.endpoint()?.connect_lazy();
        self.client(channel)
    }

    fn client(self, channel: tonic::transport::Channel) -> Result<Client, ConnectError> {
        let names = Names::new().map_err(|error| ConnectError::NoRandomness(error.to_string()))?;
        let token = match self.token.as_deref().map(connection::bearer) {
            None => None,
            Some(Some(token)) => Some(token),
            Some(None) => {
                let detail = "a token has no control characters".to_owned();
                return Err(ConnectError::InvalidSetting(detail));
            }
        };
        let stamp = Stamp::new(token, Arc::from(names.next()));
        let connection = Connection::new(channel, stamp, self.retry, self.answer_timeout);
        Ok(Client {
            inner: Arc::new(Inner {
                connection,
                names: Arc::new(names),
                options: self.producer,
                producer: Mutex::new(None),
            }),
        })
    }

    fn endpoint(&self) -> Result<Endpoint, ConnectError> {
        let invalid = |detail: String| ConnectError::InvalidAddress(detail);
        let endpoint = Endpoint::from_shared(self.address.clone());
        let endpoint = endpoint.map_err(|error| invalid(format!("{}: {error}", self.address)))?;
        let scheme = endpoint.uri().scheme_str().unwrap_or_default().to_owned();
        if endpoint.uri().host().is_none() || !["http", "https"].contains(&scheme.as_str()) {
            return Err(invalid(self.address.clone()));
        }
        let endpoint = endpoint
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .user_agent(self.user_agent.clone())
            .map_err(|error| unusable(&error))?;
        match scheme.as_str() {
            "https" => endpoint.tls_config(self.tls.config()).map_err(|error| unusable(&error)),
            _ if self.tls.is_set() => {
                Err(invalid(format!("{} is not an https address", self.address)))
            }
            _ => Ok(endpoint),
        }
    }
}

impl TlsSettings {
    fn is_set(&self) -> bool {
        self.authority.is_some() || self.identity.is_some() || self.server_name.is_some()
    }

    fn config(&self) -> ClientTlsConfig {
        let config = ClientTlsConfig::new();
        let mut config = match &self.authority {
            Some(pem) => config.ca_certificate(Certificate::from_pem(pem)),
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(certificate, key));
        }
        match &self.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

/// The innermost cause, which is the one that says something.
fn cause(error: &tonic::transport::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}

fn unreachable(error: &tonic::transport::Error) -> ConnectError {
    ConnectError::Unreachable(cause(error))
}

fn unusable(error: &tonic::transport::Error) -> ConnectError {
    ConnectError::InvalidSetting(cause(error))
}

fn read(path: &Path) -> Result<Vec<u8>, ConnectError> {
    let unreadable = |error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::read(path).map_err(|error| ConnectError::InvalidSetting(unreadable(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(builder: ClientBuilder) -> ConnectError {
        builder.connect().await.expect_err("it cannot be used")
    }

    #[tokio::test]
    async fn what_cannot_be_used_is_refused_by_name() {
        for address in ["", "orders", "ftp://broker:7070", "http://", "http://bro ker:7070"] {
            let error = refusal(Client::builder(address)).await;
            assert_eq!(error.code(), "invalid_address", "{address}: {error}");
        }
        let error = refusal(Client::builder("http://h:1").certificate_authority("x")).await;
        assert_eq!(error.code(), "invalid_address", "{error}");
        let error = refusal(Client::builder("http://h:1").user_agent("a\nb")).await;
        assert_eq!(error.code(), "invalid_setting", "{error}");
        let lazy = Client::builder("http://127.0.0.1:1").token("a\nb").connect_lazy();
        assert_eq!(
            lazy.map(drop).map_err(|error| error.code().to_owned()),
            Err("invalid_setting".to_owned())
        );
    }

    #[tokio::test]
    async fn a_broker_that_is_not_there_is_told_at_once() {
        // Bound and let go: nobody listens there.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let error = refusal(Client::builder(&address)).await;
        assert_eq!((error.code(), error.is_retriable()), ("unreachable", true), "{error}");
    }
}
