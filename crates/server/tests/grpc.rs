//! Does gRPC do what HTTP does, with the same refusals? (G43)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod grpc_support;
mod support;

use bytes::Bytes;
use grpc_support::{Clients, channel, delayed, message, name, refusal, secs, talk};
use punctual_proto::v1;
use support::Server;
use tonic::Code;
use tonic::codec::CompressionEncoding;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

fn receive(max: u32, wait: i64) -> v1::ReceiveRequest {
    v1::ReceiveRequest {
        topic: "orders".to_owned(),
        group: "billing".to_owned(),
        max,
        wait: Some(secs(wait)),
        lease: None,
    }
}

#[test]
fn a_message_is_sent_received_and_acked() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let full = v1::NewMessage {
            key: Some(Bytes::from_static(b"\xff\x00")),
            headers: vec![v1::Header { name: "a".to_owned(), value: Bytes::from_static(b"\xfe") }],
            ttl: Some(secs(3600)),
            max_attempts: Some(3),
            ..message("hello")
        };
        let request = v1::SendRequest { topic: "orders".to_owned(), messages: vec![full] };
        let sent = clients.messages.send(request).await.unwrap().into_inner();
        assert_eq!(sent.messages[0].state(), v1::State::Scheduled);
        let received = clients.consumers.receive(receive(10, 20)).await.unwrap().into_inner();
        let [delivery] = &received.deliveries[..] else { panic!("one message: {received:?}") };
        assert_eq!(delivery.id, sent.messages[0].id);
        assert_eq!(delivery.body, "hello");
        assert_eq!(delivery.key.as_deref(), Some(&b"\xff\x00"[..]));
        assert_eq!(delivery.headers.len(), 1, "{:?}", delivery.headers);
        assert_eq!(delivery.ttl, Some(secs(3600)));
        assert_eq!((delivery.max_attempts, delivery.attempt), (Some(3), 1));
        let ack = v1::AckRequest {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            receipts: vec![delivery.receipt.clone(), "nonsense".to_owned()],
        };
        let acked = clients.consumers.ack(ack.clone()).await.unwrap().into_inner();
        let results: Vec<_> = acked.results().collect();
        assert_eq!(results, [v1::SettleResult::Acked, v1::SettleResult::NotHeld]);
        let again = clients.consumers.ack(ack).await.unwrap().into_inner();
        assert_eq!(again.results().next(), Some(v1::SettleResult::NotHeld));
    });
}

#[test]
fn a_batch_is_accepted_whole_or_not_at_all() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let wrong = v1::NewMessage { partition: Some(9), ..message("b") };
        let messages = vec![message("a"), wrong, message("c")];
        let request = v1::SendRequest { topic: "orders".to_owned(), messages };
        let status = clients.messages.send(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(status.metadata().get("punctual-code").unwrap(), "no_such_partition");
        assert_eq!(status.metadata().get("punctual-index").unwrap(), "1");
        let name = v1::TopicName { topic: "orders".to_owned() };
        assert_eq!(clients.admin.get_topic(name).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn what_is_sent_again_under_its_own_id_is_the_same() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let own = v1::NewMessage { id: Some("own-1".to_owned()), ..delayed("a", 60) };
        let request =
            |message| v1::SendRequest { topic: "orders".to_owned(), messages: vec![message] };
        let first = clients.messages.send(request(own.clone())).await.unwrap().into_inner();
        let second = clients.messages.send(request(own.clone())).await.unwrap().into_inner();
        assert!(!first.messages[0].duplicate && second.messages[0].duplicate);
        assert_eq!(first.messages[0].id, second.messages[0].id);
        let other = v1::NewMessage { body: Bytes::from_static(b"b"), ..own };
        let refused = refusal(clients.messages.send(request(other)).await);
        assert_eq!(refused, (Code::AlreadyExists, "id_conflict".to_owned()));
    });
}

#[test]
fn a_pending_message_is_looked_at_changed_delivered_and_cancelled() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let messages = vec![delayed("a", 3600), delayed("b", 7200)];
        let request = v1::SendRequest { topic: "orders".to_owned(), messages };
        let sent = clients.messages.send(request).await.unwrap().into_inner().messages;
        let named = |id: &str| Some(v1::MessageName { topic: None, id: id.to_owned() });
        let get = v1::GetRequest { name: named(&sent[0].id) };
        let got = clients.messages.get(get).await.unwrap().into_inner();
        assert_eq!((got.version, got.body.as_deref()), (Some(1), Some(&b"a"[..])));
        let change = v1::ChangeRequest {
            name: name("orders", &sent[0].id),
            version: Some(1),
            body: Some(Bytes::from_static(b"changed")),
            when: Some(v1::change_request::When::Delay(secs(60))),
            ..Default::default()
        };
        let changed = clients.messages.change(change.clone()).await.unwrap().into_inner();
        assert_eq!(changed.version, Some(2));
        let refused = refusal(clients.messages.change(change).await);
        assert_eq!(refused, (Code::Aborted, "version_conflict".to_owned()));
        let empty = v1::ChangeRequest { name: named(&sent[0].id), ..Default::default() };
        let refused = refusal(clients.messages.change(empty).await);
        assert_eq!(refused, (Code::InvalidArgument, "empty_change".to_owned()));
        let list = v1::ListRequest { topic: "orders".to_owned(), limit: 1, ..Default::default() };
        let page = clients.messages.list(list.clone()).await.unwrap().into_inner();
        assert_eq!((page.messages.len(), page.messages[0].id.as_str()), (1, sent[0].id.as_str()));
        let rest = v1::ListRequest { cursor: page.next, ..list };
        let page = clients.messages.list(rest).await.unwrap().into_inner();
        assert_eq!(page.messages[0].id, sent[1].id);
        let deliver = v1::DeliverRequest { name: named(&sent[0].id) };
        clients.messages.deliver(deliver).await.unwrap();
        let cancel = |id| v1::CancelRequest { name: named(id) };
        clients.messages.cancel(cancel(&sent[1].id)).await.unwrap();
        let refused = refusal(clients.messages.cancel(cancel(&sent[1].id)).await);
        assert_eq!(refused, (Code::FailedPrecondition, "already_cancelled".to_owned()));
        let refused = refusal(clients.messages.cancel(cancel("nothing")).await);
        assert_eq!(refused, (Code::NotFound, "not_found".to_owned()));
        let forecast = v1::ForecastRequest { topic: "orders".to_owned() };
        let forecast = clients.messages.forecast(forecast).await.unwrap().into_inner();
        assert_eq!(forecast.due.len(), 7);
    });
}

#[test]
fn a_failed_message_comes_again_or_is_dead() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        clients.send_now("orders", &["a", "b"]).await;
        let mut receipts = Vec::new();
        while receipts.len() < 2 {
            let received = clients.consumers.receive(receive(10, 20)).await.unwrap().into_inner();
            receipts.extend(received.deliveries.into_iter().map(|one| one.receipt));
        }
        let nack = |receipt: &String, nack| v1::NackRequest {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            receipts: vec![receipt.clone()],
            nack: Some(nack),
        };
        let soon = v1::NackThese { delay: Some(secs(0)), ..Default::default() };
        let again = clients.consumers.nack(nack(&receipts[0], soon)).await.unwrap().into_inner();
        assert_eq!(again.results().next(), Some(v1::SettleResult::Requeued));
        let reject = v1::NackThese { reject: true, ..Default::default() };
        let dead = clients.consumers.nack(nack(&receipts[1], reject)).await.unwrap().into_inner();
        assert_eq!(dead.results().next(), Some(v1::SettleResult::Dead));
        let received = clients.consumers.receive(receive(10, 20)).await.unwrap().into_inner();
        assert_eq!(received.deliveries[0].attempt, 2);
        let extend = v1::ExtendRequest {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            receipts: vec![received.deliveries[0].receipt.clone()],
            lease: Some(secs(600)),
        };
        let extended = clients.consumers.extend(extend).await.unwrap().into_inner();
        assert_eq!(extended.results().next(), Some(v1::SettleResult::Extended));
        let retry = v1::RetryRequest {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            message: Some(message("from elsewhere")),
            attempt: 1,
            ..Default::default()
        };
        let retried = clients.consumers.retry(retry.clone()).await.unwrap().into_inner();
        assert_eq!(retried.result(), v1::SettleResult::Requeued);
        let wrong = v1::RetryRequest { attempt: 0, ..retry };
        let refused = refusal(clients.consumers.retry(wrong).await);
        assert_eq!(refused, (Code::InvalidArgument, "invalid_field".to_owned()));
    });
}

#[test]
fn transactions_are_prepared_checked_and_decided() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let half = |body: &str| v1::HalfMessage {
            topic: "orders".to_owned(),
            message: Some(message(body)),
            delay_from_send: false,
        };
        let prepare = v1::PrepareRequest {
            producer_group: "shop".to_owned(),
            messages: vec![half("a"), half("b")],
            check: Some(v1::CheckPolicy {
                first: Some(secs(0)),
                interval: Some(secs(1)),
                max: Some(3),
                url: None,
            }),
        };
        let prepared = clients.transactions.prepare(prepare).await.unwrap().into_inner();
        assert_eq!(prepared.state(), v1::TransactionState::Prepared);
        assert_eq!(prepared.messages.len(), 2);
        let checks =
            v1::ChecksRequest { producer_group: "shop".to_owned(), max: 0, wait: Some(secs(20)) };
        let checks = clients.transactions.checks(checks).await.unwrap().into_inner().checks;
        assert_eq!((checks[0].transaction.as_str(), checks[0].attempt), (&*prepared.id, 1));
        assert_eq!(checks[0].messages[0].body, "a");
        let decide = |reason: Option<&str>| v1::DecideRequest {
            id: prepared.id.clone(),
            reason: reason.map(str::to_owned),
        };
        let committed = clients.transactions.commit(decide(None)).await.unwrap().into_inner();
        assert_eq!(committed.state(), v1::TransactionState::Committed);
        let refused = refusal(clients.transactions.rollback(decide(Some("by hand"))).await);
        assert_eq!(refused, (Code::FailedPrecondition, "already_decided".to_owned()));
        let list = v1::ListTransactionsRequest::default();
        let listed = clients.transactions.list(list).await.unwrap().into_inner();
        assert_eq!(listed.transactions.len(), 1);
        let get = v1::GetTransactionRequest { id: "nothing".to_owned() };
        let refused = refusal(clients.transactions.get(get).await);
        assert_eq!(refused, (Code::NotFound, "transaction_not_found".to_owned()));
    });
}

#[test]
fn topics_and_groups_are_made_changed_and_removed() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let settings = v1::TopicSettings {
            partitions: Some(2),
            retention: Some(secs(3600)),
            jitter: Some(secs(1)),
            overflow: v1::Overflow::DropOldest.into(),
            ..Default::default()
        };
        let put = v1::PutTopicRequest {
            topic: "orders".to_owned(),
            settings: Some(settings),
            clear: Vec::new(),
        };
        let topic = clients.admin.put_topic(put.clone()).await.unwrap().into_inner();
        assert_eq!(topic.settings.unwrap().partitions, Some(2));
        let clear = vec!["retention".to_owned(), "jitter".to_owned()];
        let put = v1::PutTopicRequest { settings: None, clear, ..put };
        let topic = clients.admin.put_topic(put.clone()).await.unwrap().into_inner();
        let settings = topic.settings.unwrap();
        assert_eq!(
            (settings.partitions, settings.retention, settings.jitter),
            (Some(2), None, None)
        );
        assert_eq!(settings.overflow(), v1::Overflow::DropOldest);
        let wrong = v1::PutTopicRequest { clear: vec!["partitions".to_owned()], ..put };
        let refused = refusal(clients.admin.put_topic(wrong).await);
        assert_eq!(refused, (Code::InvalidArgument, "invalid_field".to_owned()));
        let ladder = v1::Ladder { waits: vec![secs(1), secs(2)] };
        let group = v1::PutGroupRequest {
            topic: "orders".to_owned(),
            group: "billing".to_owned(),
            settings: Some(v1::GroupSettings {
                ordered: Some(true),
                retry: Some(v1::group_settings::Retry::Ladder(ladder)),
                ..Default::default()
            }),
            start: v1::Start::Latest.into(),
            clear_push: false,
        };
        let made = clients.admin.put_group(group).await.unwrap().into_inner();
        assert_eq!(made.settings.unwrap().max_attempts, Some(3));
        assert_eq!(made.dead_topic, "orders.billing.dead");
        let named = v1::GroupName { topic: "orders".to_owned(), group: "billing".to_owned() };
        let shown = clients.admin.get_group(named.clone()).await.unwrap().into_inner();
        assert_eq!(shown.standing.unwrap().partitions.len(), 2);
        let groups = clients.admin.list_groups(v1::ListGroupsRequest::default()).await.unwrap();
        assert_eq!(groups.into_inner().groups.len(), 1);
        let topics = clients.admin.list_topics(v1::ListTopicsRequest::default()).await.unwrap();
        let kinds: Vec<_> = topics.into_inner().topics.iter().map(v1::Topic::kind).collect();
        assert_eq!(kinds, [v1::TopicKind::Plain, v1::TopicKind::Dead]);
        clients.admin.delete_group(named.clone()).await.unwrap();
        let refused = refusal(clients.admin.get_group(named).await);
        assert_eq!(refused, (Code::NotFound, "group_not_found".to_owned()));
        let levels = clients.admin.get_levels(v1::GetLevelsRequest {}).await.unwrap().into_inner();
        assert_eq!(levels.levels.len(), 18);
        clients.admin.put_levels(levels).await.unwrap();
        let few = v1::Levels { levels: vec![secs(1)] };
        let refused = refusal(clients.admin.put_levels(few).await);
        assert_eq!(refused, (Code::InvalidArgument, "invalid_levels".to_owned()));
        let named = v1::TopicName { topic: "orders".to_owned() };
        clients.admin.delete_topic(named.clone()).await.unwrap();
        assert_eq!(refusal(clients.admin.delete_topic(named).await).1, "topic_not_found");
    });
}

#[test]
fn what_was_delivered_is_read_by_its_offset_and_a_series_is_listed() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let put = v1::PutTopicRequest {
            topic: "orders".to_owned(),
            settings: Some(v1::TopicSettings { partitions: Some(1), ..Default::default() }),
            clear: Vec::new(),
        };
        clients.admin.put_topic(put).await.unwrap();
        clients.send_now("orders", &["a"]).await;
        clients.consumers.receive(receive(1, 20)).await.unwrap();
        let read = v1::ReadRequest { topic: "orders".to_owned(), ..Default::default() };
        let page = clients.messages.read(read.clone()).await.unwrap().into_inner();
        assert_eq!((page.messages.len(), page.messages[0].offset), (1, Some(0)));
        assert_eq!(page.next, 1);
        let wrong = v1::ReadRequest { partition: 1, ..read };
        assert_eq!(refusal(clients.messages.read(wrong).await).1, "no_such_partition");
        let round =
            v1::Repeat { rule: Some(v1::repeat::Rule::Every(secs(600))), ..Default::default() };
        let series = v1::NewMessage { repeat: Some(round), ..message("again") };
        let request = v1::SendRequest { topic: "orders".to_owned(), messages: vec![series] };
        let sent = clients.messages.send(request).await.unwrap().into_inner().messages;
        let list = v1::ListSeriesRequest { topic: "orders".to_owned(), ..Default::default() };
        let listed = clients.messages.list_series(list).await.unwrap().into_inner().messages;
        assert_eq!(listed[0].id, sent[0].id);
        assert_eq!(listed[0].round.as_ref().unwrap().number, 1);
        let get = v1::GetRequest { name: name("orders", &sent[0].id) };
        let got = clients.messages.get(get).await.unwrap().into_inner();
        assert_eq!(got.round, listed[0].round);
    });
}

#[test]
fn illegal_names_and_numbers_are_refused_with_their_codes() {
    let server = Server::start();
    talk(async {
        let mut clients = Clients::of(&server).await;
        let send = |topic: &str, messages| v1::SendRequest { topic: topic.to_owned(), messages };
        let long = delayed("a", 41 * 86_400);
        for (request, code) in [
            (send("a/b", vec![message("a")]), "invalid_topic_name"),
            (send("t", Vec::new()), "empty_batch"),
            (send("t", vec![delayed("a", -1)]), "invalid_delay"),
            (send("t", vec![long]), "delay_too_long"),
            (send("t", vec![v1::NewMessage { on_conflict: 9, ..message("a") }]), "invalid_field"),
        ] {
            let refused = refusal(clients.messages.send(request).await);
            assert_eq!(refused, (Code::InvalidArgument, code.to_owned()));
        }
        assert_eq!(refusal(clients.consumers.receive(receive(1001, 0)).await).1, "invalid_field");
        assert_eq!(refusal(clients.consumers.receive(receive(1, 61)).await).1, "invalid_field");
        let get = v1::GetRequest { name: None };
        assert_eq!(refusal(clients.messages.get(get).await).1, "invalid_field");
        let list = v1::ListRequest { topic: "none".to_owned(), ..Default::default() };
        assert_eq!(refusal(clients.messages.list(list).await).1, "topic_not_found");
    });
}

#[test]
fn compressed_calls_are_understood() {
    let server = Server::start();
    talk(async {
        for encoding in [CompressionEncoding::Gzip, CompressionEncoding::Zstd] {
            let clients = Clients::of(&server).await;
            let mut messages = clients.messages.send_compressed(encoding);
            let body = "a".repeat(100_000);
            let request = v1::SendRequest { topic: "t".to_owned(), messages: vec![message(&body)] };
            let sent = messages.send(request).await.unwrap().into_inner();
            assert_eq!(sent.messages.len(), 1, "{encoding:?}");
        }
    });
}

#[test]
fn the_health_service_tells_of_all_and_of_each() {
    let server = Server::start();
    talk(async {
        let mut health = HealthClient::new(channel(server.address).await);
        for service in ["", "punctual.v1.MessageService", "punctual.v1.ConsumerService"] {
            let request = HealthCheckRequest { service: service.to_owned() };
            let answer = health.check(request).await.unwrap().into_inner();
            assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
        }
        let request = HealthCheckRequest { service: "other.Service".to_owned() };
        assert_eq!(health.check(request.clone()).await.unwrap_err().code(), Code::NotFound);
        let mut watched = health.watch(request).await.unwrap().into_inner();
        let told = watched.message().await.unwrap().unwrap();
        assert_eq!(told.status(), ServingStatus::ServiceUnknown);
    });
}
