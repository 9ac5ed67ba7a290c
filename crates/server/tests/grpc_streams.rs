//! Do streams keep their promises: order, credit, flow control, and a clean end? (G40, G41)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod grpc_support;
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use grpc_support::{Clients, Raw, channel, delayed, frame, message, secs, talk};
use punctual_proto::v1;
use punctual_proto::v1::receive_stream_request::Request;
use punctual_proto::v1::receive_stream_response::Response;
use punctual_proto::v1::send_stream_response::Outcome;
use support::Server;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Nothing is expected to come within this time.
const QUIET: Duration = Duration::from_millis(300);

fn batch(sequence: u64, messages: Vec<v1::NewMessage>) -> v1::SendStreamRequest {
    v1::SendStreamRequest { sequence, topic: "orders".to_owned(), messages }
}

#[test]
fn batches_of_a_stream_are_answered_in_order_and_refused_one_by_one() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let wrong = v1::NewMessage { partition: Some(99), ..delayed("x", 60) };
        let batches = (0..200).map(move |sequence| match sequence % 10 {
            3 => batch(sequence, vec![delayed("a", 60), wrong.clone()]),
            4 => batch(sequence, Vec::new()),
            _ => batch(sequence, vec![delayed("a", 60), delayed("b", 60)]),
        });
        let stream = clients.messages.send_stream(tokio_stream::iter(batches)).await.unwrap();
        let mut stream = stream.into_inner();
        let mut ids = BTreeSet::new();
        for sequence in 0..200 {
            let answer = stream.message().await.unwrap().expect("an answer to each");
            assert_eq!(answer.sequence, sequence);
            match (sequence % 10, answer.outcome.unwrap()) {
                (3, Outcome::Problem(problem)) => {
                    assert_eq!((&*problem.code, problem.index), ("no_such_partition", Some(1)));
                    assert!(!problem.retriable);
                }
                (4, Outcome::Problem(problem)) => assert_eq!(problem.code, "empty_batch"),
                (_, Outcome::Sent(sent)) => {
                    ids.extend(sent.messages.into_iter().map(|sent| sent.id));
                }
                (_, Outcome::Problem(problem)) => panic!("{problem:?}"),
            }
        }
        assert!(stream.message().await.unwrap().is_none());
        assert_eq!(ids.len(), 320);
        let topic = v1::TopicName { topic: "orders".to_owned() };
        let topic = clients.admin.get_topic(topic).await.unwrap().into_inner();
        assert_eq!(topic.pending, Some(320));
    });
}

/// A stream that receives, and the end by which it is told what to do.
struct Receiving {
    to: mpsc::Sender<v1::ReceiveStreamRequest>,
    stream: Streaming<v1::ReceiveStreamResponse>,
}

impl Receiving {
    async fn open(clients: &mut Clients, credit: u32) -> Self {
        let (to, requests) = mpsc::channel(16);
        let open = v1::OpenReceive {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            lease: Some(secs(600)),
            credit,
        };
        let first = v1::ReceiveStreamRequest { request: Some(Request::Open(open)) };
        to.send(first).await.expect("there is room");
        let stream = clients.consumers.receive_stream(ReceiverStream::new(requests)).await;
        Self { to, stream: stream.expect("it opens").into_inner() }
    }

    async fn say(&self, request: Request) {
        let request = v1::ReceiveStreamRequest { request: Some(request) };
        self.to.send(request).await.expect("the stream is open");
    }

    /// So many messages, as they come.
    async fn messages(&mut self, count: usize) -> Vec<v1::Delivery> {
        let mut all = Vec::new();
        while all.len() < count {
            match self.stream.message().await.expect("it goes on").expect("it goes on").response {
                Some(Response::Received(received)) => all.extend(received.deliveries),
                other => panic!("messages: {other:?}"),
            }
        }
        assert_eq!(all.len(), count, "no more than there is credit for");
        all
    }

    async fn settled(&mut self) -> v1::Settled {
        match self.stream.message().await.expect("it goes on").expect("it goes on").response {
            Some(Response::Settled(settled)) => settled,
            other => panic!("a settlement: {other:?}"),
        }
    }

    async fn is_quiet(&mut self) -> bool {
        timeout(QUIET, self.stream.message()).await.is_err()
    }
}

fn ack(sequence: u64, receipts: Vec<String>) -> Request {
    let what = Some(v1::settle::What::Ack(v1::AckThese {}));
    Request::Settle(v1::Settle { sequence, receipts, what })
}

#[test]
fn nothing_is_sent_beyond_the_credit() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        clients.send_now("orders", &["x"; 20]).await;
        let mut receiving = Receiving::open(&mut clients, 5).await;
        let first = receiving.messages(5).await;
        assert!(receiving.is_quiet().await, "the credit is spent");
        let receipts = first.iter().map(|one| one.receipt.clone()).collect();
        receiving.say(ack(7, receipts)).await;
        let settled = receiving.settled().await;
        assert_eq!(settled.sequence, 7);
        let Some(v1::settled::Outcome::Results(results)) = settled.outcome else {
            panic!("it is settled");
        };
        assert!(results.results().all(|result| result == v1::SettleResult::Acked));
        assert!(receiving.is_quiet().await, "settling gives no credit");
        receiving.say(Request::Credit(7)).await;
        let second = receiving.messages(7).await;
        assert!(receiving.is_quiet().await, "the credit is spent again");
        let ids: BTreeSet<_> = first.iter().chain(&second).map(|one| &one.id).collect();
        assert_eq!(ids.len(), 12, "each comes once");
    });
}

#[test]
fn what_was_sent_stays_leased_when_its_stream_breaks_and_the_rest_is_there_for_others() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        clients.send_now("orders", &["x"; 10]).await;
        let mut receiving = Receiving::open(&mut clients, 4).await;
        let held = receiving.messages(4).await;
        drop(receiving);
        let mut others = Receiving::open(&mut clients, 100).await;
        let rest = others.messages(6).await;
        let held_ids: BTreeSet<_> = held.iter().map(|one| &one.id).collect();
        assert!(rest.iter().all(|one| !held_ids.contains(&one.id)));
        // Whoever has the receipts may settle over another stream.
        others.say(ack(1, held.iter().map(|one| one.receipt.clone()).collect())).await;
        let Some(v1::settled::Outcome::Results(results)) = others.settled().await.outcome else {
            panic!("it is settled");
        };
        assert!(results.results().all(|result| result == v1::SettleResult::Acked));
    });
}

#[test]
fn a_message_that_comes_later_is_sent_at_once_and_a_wrong_settlement_ends_nothing() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let mut receiving = Receiving::open(&mut clients, 10).await;
        assert!(receiving.is_quiet().await);
        receiving.say(Request::Settle(v1::Settle { sequence: 3, ..Default::default() })).await;
        let settled = receiving.settled().await;
        assert!(matches!(settled.outcome, Some(v1::settled::Outcome::Problem(_))), "{settled:?}");
        clients.send_now("orders", &["late"]).await;
        assert_eq!(receiving.messages(1).await[0].body, "late");
        let drop_it = Request::Settle(v1::Settle {
            sequence: 4,
            receipts: vec!["nonsense".to_owned()],
            what: Some(v1::settle::What::Extend(v1::ExtendThese { lease: Some(secs(0)) })),
        });
        receiving.say(drop_it).await;
        let Some(v1::settled::Outcome::Problem(problem)) = receiving.settled().await.outcome else {
            panic!("it is refused");
        };
        assert_eq!(problem.code, "invalid_field");
    });
}

#[test]
fn a_stream_that_does_not_begin_with_open_is_refused() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let credit = v1::ReceiveStreamRequest { request: Some(Request::Credit(1)) };
        let stream = clients.consumers.receive_stream(tokio_stream::iter([credit])).await;
        let mut stream = stream.unwrap().into_inner();
        assert_eq!(stream.message().await.unwrap_err().code(), Code::InvalidArgument);
        let (_to, requests) = mpsc::channel::<v1::CheckStreamRequest>(1);
        let checks = v1::OpenChecks { producer_group: "a/b".to_owned(), credit: 1 };
        let open = v1::check_stream_request::Request::Open(checks);
        _to.send(v1::CheckStreamRequest { request: Some(open) }).await.unwrap();
        let stream = clients.transactions.check_stream(ReceiverStream::new(requests)).await;
        let status = stream.unwrap().into_inner().message().await.unwrap_err();
        assert_eq!(status.metadata().get("punctual-code").unwrap(), "invalid_group_name");
    });
}

#[test]
fn questions_come_only_as_there_is_credit() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        for body in ["a", "b", "c"] {
            let half = v1::HalfMessage {
                topic: "orders".to_owned(),
                message: Some(message(body)),
                delay_from_send: false,
            };
            let check = v1::CheckPolicy {
                first: Some(secs(0)),
                interval: Some(secs(3600)),
                ..Default::default()
            };
            let prepare = v1::PrepareRequest {
                producer_group: "shop".to_owned(),
                messages: vec![half],
                check: Some(check),
            };
            clients.transactions.prepare(prepare).await.unwrap();
        }
        let (to, requests) = mpsc::channel(4);
        let say = |request| v1::CheckStreamRequest { request: Some(request) };
        let open = v1::OpenChecks { producer_group: "shop".to_owned(), credit: 2 };
        to.send(say(v1::check_stream_request::Request::Open(open))).await.unwrap();
        let stream = clients.transactions.check_stream(ReceiverStream::new(requests)).await;
        let mut stream = stream.unwrap().into_inner();
        let mut asked = BTreeSet::new();
        for _ in 0..2 {
            let check = stream.message().await.unwrap().unwrap();
            assert_eq!(check.attempt, 1);
            asked.insert(check.transaction);
        }
        assert!(timeout(QUIET, stream.message()).await.is_err(), "the credit is spent");
        to.send(say(v1::check_stream_request::Request::Credit(1))).await.unwrap();
        asked.insert(stream.message().await.unwrap().unwrap().transaction);
        assert_eq!(asked.len(), 3);
        drop(to);
        assert!(stream.message().await.unwrap().is_none(), "it ends when the producer ends");
    });
}

#[test]
fn streams_end_as_unavailable_at_shutdown_and_the_server_ends_in_time() {
    let mut server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let mut receiving = Receiving::open(&mut clients, 10).await;
        let (sends, requests) = mpsc::channel(4);
        let mut sending =
            clients.messages.send_stream(ReceiverStream::new(requests)).await.unwrap().into_inner();
        sends.send(batch(1, vec![delayed("a", 60)])).await.unwrap();
        assert_eq!(sending.message().await.unwrap().unwrap().sequence, 1);
        let mut health = HealthClient::new(channel(server.address).await);
        let mut watched = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
        server.stop();
        assert_eq!(sending.message().await.unwrap_err().code(), Code::Unavailable);
        let ended = receiving.stream.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unavailable);
        assert_eq!(watched.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        assert_eq!(watched.message().await.unwrap_err().code(), Code::Unavailable);
    });
    server.join().unwrap();
}

#[test]
fn g40_a_sender_that_reads_no_answers_is_stopped_and_others_are_not() {
    let server = Server::with(&[("http.body_timeout", "50s"), ("http.body_idle_timeout", "50s")]);
    talk(async {
        let mut raw = Raw::of(&server).await;
        let headers = [("content-type", "application/grpc")];
        let (mut to, answer) = raw.open("punctual.v1.MessageService/SendStream", &headers).await;
        let messages = vec![delayed(&"x".repeat(100), 60); 100];
        let bytes = frame(&batch(1, messages));
        let mut sent = 0_usize;
        // Answers are never taken, so the server must stop reading at some point.
        while sent < (64 << 20) {
            to.reserve_capacity(bytes.len());
            let room = std::future::poll_fn(|cx| to.poll_capacity(cx));
            let Ok(Some(Ok(room))) = timeout(Duration::from_secs(2), room).await else {
                break;
            };
            let whole = &bytes[..];
            let at = sent % whole.len();
            let piece = Bytes::copy_from_slice(&whole[at..(at + room).min(whole.len())]);
            sent += piece.len();
            to.send_data(piece, false).expect("the stream is open");
        }
        assert!(sent < (64 << 20), "the sender was slowed down, after {sent} bytes");
        let mut clients = Clients::of(&server).await;
        clients.send_now("orders", &["others go on"]).await;
        drop((to, answer));
    });
}
