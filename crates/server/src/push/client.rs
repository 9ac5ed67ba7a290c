//! Sends requests to one endpoint and reads the answers, as far as anybody needs them.
//!
//! Whatever an endpoint does, a request is over within its time-out and an answer takes no more
//! memory than [`HEAD_BYTES_MAX`] and what is kept of its body. Redirects are answers like others.
//! A connection lives inside the request that uses it: nobody has to be told to close it.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::push::connect::{ConnectError, Connector};
use crate::push::endpoint::Endpoint;

/// Largest head of an answer, in bytes; also how much is read ahead.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most header fields of an answer.
const HEAD_FIELDS_MAX: usize = 100;
/// Longest body of an answer that is read, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 10;
/// How much of a body is kept for the error text, in bytes.
const EXCERPT_BYTES_MAX: usize = 1024;
/// A connection that waited longer is not used again.
pub(crate) const IDLE_MAX: Duration = Duration::from_secs(15);
/// A connection that is older is not used again, so that a name may change its address.
const AGE_MAX: Duration = Duration::from_secs(60);

/// An answer, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<HeaderValue>,
    /// The first bytes of the body.
    pub(crate) excerpt: Vec<u8>,
    /// Whether the body ended within [`ANSWER_BYTES_MAX`].
    pub(crate) whole: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("no whole answer within {0:?}")]
    Late(Duration),
    #[error("no HTTP answer: {0}")]
    Http(#[from] hyper::Error),
}

/// Sends to one endpoint.
pub(crate) struct Client {
    connector: Arc<Connector>,
    endpoint: Endpoint,
    timeout: Duration,
    /// Connections that wait for their next request; the last one used is the first one used again.
    idle: Mutex<Vec<Connection>>,
}

impl Client {
    pub(crate) fn new(connector: Arc<Connector>, endpoint: Endpoint, timeout: Duration) -> Self {
        Self { connector, endpoint, timeout, idle: Mutex::default() }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Sends the request and reads the answer, all within the time-out.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>) -> Result<Answer, SendError> {
        let exchange = Box::pin(self.exchange(request));
        let outcome = tokio::time::timeout(self.timeout, exchange).await;
        outcome.unwrap_or(Err(SendError::Late(self.timeout)))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, SendError> {
        if let Some(mut connection) = self.waiting().await {
            match connection.request(request.clone()).await {
                Ok(response) => return self.finish(connection, response).await,
                // It was closed while it waited, most likely before anybody read the request.
                // Whoever did read it knows it by its id.
                Err(error) if !error.is_parse() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let stream = self.connector.connect(&self.endpoint).await?;
        let mut connection = Connection::over(TokioIo::new(stream)).await?;
        let response = connection.request(request).await?;
        self.finish(connection, response).await
    }

    /// A connection that can take a request at once.
    async fn waiting(&self) -> Option<Connection> {
        let now = Instant::now();
        loop {
            let mut connection = self.idle.lock().pop()?;
            if connection.is_fresh(now) && connection.ready().await {
                return Some(connection);
            }
        }
    }

    async fn finish(
        &self,
        mut connection: Connection,
        response: Response<Incoming>,
    ) -> Result<Answer, SendError> {
        let answer = connection.read(response).await?;
        if answer.whole && connection.driver.is_some() {
            connection.used = Instant::now();
            self.idle.lock().push(connection);
        }
        Ok(answer)
    }

    /// Closes connections that have waited too long. Nobody else does while nothing is sent.
    pub(crate) fn close_idle(&self) {
        let now = Instant::now();
        self.idle.lock().retain(|connection| connection.is_fresh(now));
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// A connection and the work that moves its bytes, which goes on only while somebody waits for a
/// request. Dropping it closes it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Gone once the connection has ended.
    driver: Option<Driver>,
    opened: Instant,
    used: Instant,
}

impl Connection {
    async fn over<S>(stream: S) -> hyper::Result<Self>
    where
        S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEAD_FIELDS_MAX)
            .handshake(stream)
            .await?;
        let opened = Instant::now();
        Ok(Self { sender, driver: Some(Box::pin(driver)), opened, used: opened })
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.used) < IDLE_MAX && now.duration_since(self.opened) < AGE_MAX
    }

    async fn ready(&mut self) -> bool {
        drive(&mut self.driver, self.sender.ready()).await.is_ok() && self.driver.is_some()
    }

    async fn request(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        drive(&mut self.driver, self.sender.send_request(request)).await
    }

    async fn read(&mut self, response: Response<Incoming>) -> Result<Answer, SendError> {
        let (head, mut body) = response.into_parts();
        let mut answer = Answer {
            status: head.status,
            retry_after: head.headers.get(RETRY_AFTER).cloned(),
            excerpt: Vec::new(),
            whole: false,
        };
        let mut length = 0;
        while let Some(frame) = drive(&mut self.driver, body.frame()).await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            let room = EXCERPT_BYTES_MAX.saturating_sub(length).min(data.len());
            answer.excerpt.extend_from_slice(&data[..room]);
            length += data.len();
            if length > ANSWER_BYTES_MAX {
                return Ok(answer);
            }
        }
        answer.whole = true;
        Ok(answer)
    }
}

/// Waits for `work` while the connection moves its bytes.
async fn drive<T>(driver: &mut Option<Driver>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        // How a connection ended is told to whoever waits for an answer on it.
        if let Some(running) = driver
            && running.as_mut().poll(context).is_ready()
        {
            *driver = None;
        }
        match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[cfg(test)]
mod tests;
