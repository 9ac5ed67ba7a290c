//! A broker of a few lines for faults that a real one does not produce on demand: answers that are
//! lost, streams that are cut at a given point, refusals of one message.
//!
//! It keeps messages by their own id, as the contract says, so that a test can see what came into
//! being. What it does is set before; what it saw is looked at afterwards.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "each test uses a part of this, and a failed set-up may stop a test"
)]

mod messages;
mod consuming;
mod transactions;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use punctual_client::{Client, RetryPolicy};
use punctual_proto::v1;
use punctual_proto::v1::consumer_service_server::ConsumerServiceServer;
use punctual_proto::v1::message_service_server::MessageServiceServer;
use punctual_proto::v1::transaction_service_server::TransactionServiceServer;
use tokio::sync::Notify;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Code, Status};

/// Longest wait for anything; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What the broker does with the next batch of a stream of sends.
#[derive(Clone, Debug)]
pub enum OnSend {
    /// Stores it and answers.
    Store,
    /// Stores it and cuts the stream instead of answering.
    StoreAndCut,
    /// Cuts the stream.
    Cut,
    /// Refuses it.
    Refuse(v1::Problem),
    /// Never answers.
    Silence,
}

/// What the broker does with the next request to settle.
#[derive(Clone, Copy, Debug)]
pub enum OnSettle {
    /// Cuts the stream.
    Cut,
    /// Says that the message is not held.
    NotHeld,
}

/// What was done to a message that was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Settled {
    Acked(String),
    Nacked(String, v1::NackThese),
    Extended(String),
    Released(String),
}

#[derive(Debug, Default)]
pub struct State {
    /// The plan for batches; what is not planned is stored.
    pub on_send: VecDeque<OnSend>,
    /// Bodies by own id, and bodies that had none.
    pub stored: HashMap<String, String>,
    pub nameless: Vec<String>,
    /// The sizes of the batches that came, by number of messages.
    pub batches: Vec<usize>,
    /// What is to be given to consumers, by receipt.
    pub deliveries: VecDeque<v1::Delivery>,
    pub on_settle: VecDeque<OnSettle>,
    pub settled: Vec<Settled>,
    pub credit_max: u64,
    pub was_stopped: bool,
    /// How many calls of a kind fail before one is carried out, and whether it was carried out.
    pub commits_lost: usize,
    pub decisions: Vec<(String, &'static str)>,
    pub prepared: Vec<v1::PrepareRequest>,
    pub checks: VecDeque<v1::Check>,
    pub tokens: Vec<String>,
    pub request_ids: Vec<String>,
}

#[derive(Clone, Debug)]
pub struct Broker {
    state: Arc<Mutex<State>>,
    /// Something changed.
    changed: Arc<Notify>,
    pub address: SocketAddr,
}

impl Broker {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let broker = Self { state: Arc::default(), changed: Arc::default(), address };
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        let serving = Server::builder()
            .add_service(MessageServiceServer::new(broker.clone()))
            .add_service(ConsumerServiceServer::new(broker.clone()))
            .add_service(TransactionServiceServer::new(broker.clone()))
            .serve_with_incoming(incoming);
        tokio::spawn(serving);
        broker
    }

    pub async fn client(&self) -> Client {
        let quick = RetryPolicy {
            first: Duration::from_millis(1),
            longest: Duration::from_millis(20),
            give_up_after: PATIENCE,
        };
        let builder = Client::builder(&self.url()).retry(quick).token("key.secret");
        builder.connect().await.unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Looks at the state, or changes it.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let looked = look(&mut self.state.lock().unwrap());
        self.changed.notify_waiters();
        looked
    }

    /// Waits until something is so.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = look(&mut self.state.lock().unwrap()) {
                    return found;
                }
                changed.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}"))
    }

    fn note(&self, metadata: &MetadataMap) {
        let text = |name: &str| metadata.get(name).map(|value| value.to_str().unwrap().to_owned());
        self.with(|state| {
            state.tokens.extend(text("authorization"));
            state.request_ids.extend(text("x-request-id"));
        });
    }
}

/// A refusal as the broker writes it.
pub fn refusal(code: &str) -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("punctual-code", code.parse().unwrap());
    Status::with_metadata(Code::FailedPrecondition, "no", metadata)
}

pub fn problem(code: &str, index: Option<u32>, retriable: bool) -> v1::Problem {
    v1::Problem { code: code.to_owned(), index, retriable, ..v1::Problem::default() }
}

/// A connection that broke.
fn cut() -> Status {
    Status::unavailable("cut")
}
