//! Clients of the contract, as they are generated, and frames written by hand.

use std::future::Future;
use std::net::SocketAddr;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request, StatusCode};
use punctual_proto::v1;
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use crate::support::{PATIENCE, Server};

pub(crate) type Messages = v1::message_service_client::MessageServiceClient<Channel>;
pub(crate) type Consumers = v1::consumer_service_client::ConsumerServiceClient<Channel>;
pub(crate) type Transactions = v1::transaction_service_client::TransactionServiceClient<Channel>;
pub(crate) type Admin = v1::admin_service_client::AdminServiceClient<Channel>;

/// Runs a test that talks; it fails when it takes too long.
pub(crate) fn talk<T>(test: impl Future<Output = T>) -> T {
    let runtime = Runtime::new().expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, test).await }).expect("it ends in time")
}

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("it listens")
}

/// The clients of all services, on one connection.
pub(crate) struct Clients {
    pub(crate) messages: Messages,
    pub(crate) consumers: Consumers,
    pub(crate) transactions: Transactions,
    pub(crate) admin: Admin,
}

impl Clients {
    pub(crate) async fn of(server: &Server) -> Self {
        let channel = channel(server.address).await;
        Self {
            messages: Messages::new(channel.clone()),
            consumers: Consumers::new(channel.clone()),
            transactions: Transactions::new(channel.clone()),
            admin: Admin::new(channel),
        }
    }

    /// Sends messages that are due now.
    pub(crate) async fn send_now(&mut self, topic: &str, bodies: &[&str]) -> Vec<v1::Sent> {
        let messages = bodies.iter().map(|body| message(body)).collect();
        let request = v1::SendRequest { topic: topic.to_owned(), messages };
        self.messages.send(request).await.expect("it is accepted").into_inner().messages
    }
}

pub(crate) fn message(body: &str) -> v1::NewMessage {
    v1::NewMessage { body: Bytes::copy_from_slice(body.as_bytes()), ..Default::default() }
}

pub(crate) fn delayed(body: &str, seconds: i64) -> v1::NewMessage {
    let delay = v1::new_message::When::Delay(secs(seconds));
    v1::NewMessage { when: Some(delay), ..message(body) }
}

pub(crate) const fn secs(seconds: i64) -> prost_types::Duration {
    prost_types::Duration { seconds, nanos: 0 }
}

pub(crate) fn name(topic: &str, id: &str) -> Option<v1::MessageName> {
    Some(v1::MessageName { topic: Some(topic.to_owned()), id: id.to_owned() })
}

/// The status and the stable code of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(outcome: Result<T, Status>) -> (Code, String) {
    let status = outcome.expect_err("it is refused");
    let code = status.metadata().get("punctual-code").map(|code| code.to_str().expect("a word"));
    (status.code(), code.unwrap_or_default().to_owned())
}

/// A connection of HTTP/2 on which frames are written by hand.
pub(crate) struct Raw {
    send: SendRequest<Bytes>,
    _connection: JoinHandle<Result<(), h2::Error>>,
    address: SocketAddr,
}

pub(crate) struct RawAnswer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: HeaderMap,
}

impl RawAnswer {
    /// How it ended, wherever that is told.
    pub(crate) fn grpc_status(&self) -> Option<&str> {
        let told = self.trailers.get("grpc-status").or_else(|| self.headers.get("grpc-status"));
        told.and_then(|status| status.to_str().ok())
    }
}

impl Raw {
    pub(crate) async fn of(server: &Server) -> Self {
        let stream = TcpStream::connect(server.address).await.expect("it listens");
        let (send, connection) = h2::client::handshake(stream).await.expect("it takes HTTP/2");
        Self { send, _connection: tokio::spawn(connection), address: server.address }
    }

    fn request(&self, method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let uri = format!("http://{}/{method}", self.address);
        let mut request = Request::post(uri).header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request")
    }

    /// Opens a stream; it is left to the caller to send and to read.
    pub(crate) async fn open(
        &mut self,
        method: &str,
        headers: &[(&str, &str)],
    ) -> (h2::SendStream<Bytes>, h2::client::ResponseFuture) {
        let request = self.request(method, headers);
        let mut send = self.send.clone().ready().await.expect("it is open");
        let (answer, stream) = send.send_request(request, false).expect("it is open");
        (stream, answer)
    }

    /// Sends these bytes as the whole body and reads the whole answer.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        content_type: &str,
        body: Bytes,
    ) -> RawAnswer {
        let headers = [("content-type", content_type)];
        let (mut stream, answer) = self.open(method, &headers).await;
        // A server that refuses early may not want all of it.
        let _refused_early = stream.send_data(body, true).is_err();
        let (parts, body) = answer.await.expect("an answer").into_parts();
        let (body, trailers) = read_all(body).await;
        RawAnswer { status: parts.status, headers: parts.headers, body, trailers }
    }
}

pub(crate) async fn read_all(mut body: RecvStream) -> (Bytes, HeaderMap) {
    let mut all = BytesMut::new();
    while let Some(Ok(piece)) = body.data().await {
        body.flow_control().release_capacity(piece.len()).expect("it was taken");
        all.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.ok().flatten().unwrap_or_default();
    (all.freeze(), trailers)
}

/// A frame as gRPC has it.
pub(crate) fn frame(message: &impl prost::Message) -> Bytes {
    framed(0, &message.encode_to_vec())
}

pub(crate) fn framed(flag: u8, bytes: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(flag);
    frame.put_u32(u32::try_from(bytes.len()).expect("a small frame"));
    frame.put_slice(bytes);
    frame.freeze()
}
