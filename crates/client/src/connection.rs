//! One way to the broker: a channel that reconnects when it is used, and calls that are repeated.
//!
//! What must hold: every request carries the token and an id of its own. A call is repeated only
//! where repeating it is harmless, and never longer than the policy allows.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_proto::v1::admin_service_client::AdminServiceClient;
use punctual_proto::v1::consumer_service_client::ConsumerServiceClient;
use punctual_proto::v1::message_service_client::MessageServiceClient;
use punctual_proto::v1::transaction_service_client::TransactionServiceClient;
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::backoff::{Backoff, RetryPolicy};
use crate::fault::Fault;
use crate::tasks::pause;

/// Largest answer that is read, in bytes: a full page of the largest messages.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Puts the token and the id of the request into its metadata.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    token: Option<MetadataValue<Ascii>>,
    /// Tells the requests of one client from those of another.
    name: Arc<str>,
    count: Arc<AtomicU64>,
}

impl Stamp {
    pub(crate) fn new(token: Option<MetadataValue<Ascii>>, name: Arc<str>) -> Self {
        Self { token, name, count: Arc::default() }
    }
}

impl Interceptor for Stamp {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if let Ok(id) = format!("{}-{number}", self.name).parse() {
            request.metadata_mut().insert("x-request-id", id);
        }
        Ok(request)
    }
}

/// A channel with a stamp.
pub(crate) type Stamped = InterceptedService<Channel, Stamp>;

/// The way to the broker. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    channel: Channel,
    stamp: Stamp,
    pub(crate) retry: RetryPolicy,
    /// For one answer to one request.
    pub(crate) answer_timeout: Duration,
}

impl Connection {
    pub(crate) fn new(
        channel: Channel,
        stamp: Stamp,
        retry: RetryPolicy,
        answer_timeout: Duration,
    ) -> Self {
        Self { channel, stamp, retry, answer_timeout }
    }

    pub(crate) fn messages(&self) -> MessageServiceClient<Stamped> {
        MessageServiceClient::with_interceptor(self.channel.clone(), self.stamp.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn consuming(&self) -> ConsumerServiceClient<Stamped> {
        ConsumerServiceClient::with_interceptor(self.channel.clone(), self.stamp.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn transactions(&self) -> TransactionServiceClient<Stamped> {
        TransactionServiceClient::with_interceptor(self.channel.clone(), self.stamp.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Stamped> {
        AdminServiceClient::with_interceptor(self.channel.clone(), self.stamp.clone())
            .max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    /// Makes a call that may be repeated, until it is answered or the policy gives up.
    pub(crate) async fn call<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now().checked_add(self.retry.give_up_after);
        self.repeat(until, |_fault| true, attempt).await
    }

    /// The same for a call of which a repetition may find its own work and take it for another's:
    /// it is repeated only if it surely was not carried out.
    pub(crate) async fn call_once<T, F>(&self, attempt: impl FnMut() -> F) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let until = Instant::now().checked_add(self.retry.give_up_after);
        let is_surely_undone =
            |fault: &Fault| !matches!(fault, Fault::Lost { is_unsent: false, .. });
        self.repeat(until, is_surely_undone, attempt).await
    }

    /// The same without an end: until there is a definite answer.
    pub(crate) async fn call_until_definite<T, F>(
        &self,
        attempt: impl FnMut() -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        self.repeat(None, |_fault| true, attempt).await
    }

    async fn repeat<T, F>(
        &self,
        until: Option<Instant>,
        may_repeat: impl Fn(&Fault) -> bool,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, Fault>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let mut backoff = Backoff::new(self.retry);
        let mut was_sent = false;
        loop {
            let fault = match tokio::time::timeout(self.answer_timeout, attempt()).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(status)) => Fault::from(status),
                Err(_elapsed) => Fault::late(),
            };
            was_sent |= matches!(fault, Fault::Lost { is_unsent: false, .. });
            let wait = backoff.after_failure().max(fault.retry_after().unwrap_or_default());
            let is_over = until.is_some_and(|until| Instant::now() + wait >= until);
            if !fault.is_passing() || !may_repeat(&fault) || is_over {
                return Err(told(fault, was_sent));
            }
            tracing::debug!(fault = %fault.text(), ?wait, "the call is repeated");
            pause(wait).await;
        }
    }
}

/// A loss counts as unsent only if no attempt before it was sent.
fn told(fault: Fault, was_sent: bool) -> Fault {
    match fault {
        Fault::Lost { detail, .. } => Fault::Lost { detail, is_unsent: !was_sent },
        refused @ Fault::Refused(_) => refused,
    }
}

/// The metadata value of a token.
pub(crate) fn bearer(token: &str) -> Option<MetadataValue<Ascii>> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}").parse().ok()?;
    value.set_sensitive(true);
    Some(value)
}
