//! Do share consumers get, keep and give back messages as the contract of groups says?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use std::collections::BTreeMap;

use kafka::Client;
use punctual_kafka_wire::Records;
use punctual_kafka_wire::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch, ShareAcknowledgeRequest,
};
use punctual_kafka_wire::messages::share_fetch::{
    self, FetchPartition, FetchTopic, ShareFetchRequest, ShareFetchResponse,
};
use punctual_kafka_wire::messages::share_group_describe::ShareGroupDescribeRequest;
use punctual_kafka_wire::messages::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use punctual_kafka_wire::records::{Batch, BatchHeader, UNPACKED_BYTES_MAX};
use serde_json::{Value, json};
use support::{Server, wait_for};

const GROUP: &str = "/v1/topics/orders/groups/workers";

const INVALID_GROUP: i16 = 24;
const UNKNOWN_MEMBER: i16 = 25;
const INVALID_REQUEST: i16 = 42;
const UNKNOWN_TOPIC_ID: i16 = 100;
const FENCED: i16 = 110;
const NOT_HELD: i16 = 121;
const NO_SESSION: i16 = 122;
const WRONG_EPOCH: i16 = 123;

const ACCEPT: i8 = 1;
const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;

type TopicUuid = [u8; 16];
type Settled = (TopicUuid, i32, i64, i8);

/// A record as a member got it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    topic: TopicUuid,
    partition: i32,
    offset: i64,
    count: i16,
    text: String,
    headers: Vec<String>,
}

impl Got {
    fn be(&self, kind: i8) -> Settled {
        (self.topic, self.partition, self.offset, kind)
    }
}

/// A share consumer.
struct Member {
    client: Client,
    name: String,
    /// What it fetches, from the last heartbeat that said so.
    assigned: Vec<(TopicUuid, Vec<i32>)>,
    member_epoch: i32,
    session_epoch: i32,
}

impl Member {
    /// Joins the group, subscribed to these topics.
    fn join(server: &Server, name: &str, topics: &[&str]) -> Self {
        let mut member = Self {
            client: Client::connect(server),
            name: name.to_owned(),
            assigned: Vec::new(),
            member_epoch: 0,
            session_epoch: 0,
        };
        let answer = member.beat(Some(topics));
        assert_eq!((answer.error_code, answer.member_epoch), (0, 1), "{answer:?}");
        assert_eq!(answer.member_id.as_deref(), Some(name));
        assert!(answer.heartbeat_interval_ms > 0);
        member
    }

    fn beat(&mut self, topics: Option<&[&str]>) -> ShareGroupHeartbeatResponse {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let request = ShareGroupHeartbeatRequest {
            group_id: "workers".to_owned(),
            member_id: self.name.clone(),
            member_epoch: self.member_epoch,
            rack_id: None,
            subscribed_topic_names: topics.map(names),
        };
        let answer = self.client.call(1, &request);
        if answer.error_code == 0 {
            self.member_epoch = answer.member_epoch;
        }
        if let Some(assignment) = &answer.assignment {
            let topics = assignment.topic_partitions.iter();
            self.assigned =
                topics.map(|topic| (topic.topic_id, topic.partitions.clone())).collect();
        }
        answer
    }

    fn request(&self, settled: &[Settled], wait_ms: i32, max: i32) -> ShareFetchRequest {
        let mut parts: BTreeMap<TopicUuid, BTreeMap<i32, Vec<share_fetch::AcknowledgementBatch>>> =
            BTreeMap::new();
        // What is fetched is told once.
        for (topic, partitions) in self.assigned.iter().filter(|_| self.session_epoch == 0) {
            let empty = partitions.iter().map(|partition| (*partition, Vec::new()));
            parts.entry(*topic).or_default().extend(empty);
        }
        for (topic, partition, offset, kind) in settled {
            let batch = share_fetch::AcknowledgementBatch {
                first_offset: *offset,
                last_offset: *offset,
                acknowledge_types: vec![*kind],
            };
            parts.entry(*topic).or_default().entry(*partition).or_default().push(batch);
        }
        let partition = |(partition_index, acknowledgement_batches)| FetchPartition {
            partition_index,
            acknowledgement_batches,
        };
        let topic = |(topic_id, partitions): (TopicUuid, BTreeMap<_, _>)| FetchTopic {
            topic_id,
            partitions: partitions.into_iter().map(partition).collect(),
        };
        ShareFetchRequest {
            group_id: Some("workers".to_owned()),
            member_id: Some(self.name.clone()),
            share_session_epoch: self.session_epoch,
            max_wait_ms: wait_ms,
            min_bytes: 1,
            max_records: max,
            batch_size: max,
            is_renew_ack: settled.iter().any(|settled| settled.3 == RENEW),
            topics: parts.into_iter().map(topic).collect(),
            ..ShareFetchRequest::default()
        }
    }

    fn exchange(&mut self, request: &ShareFetchRequest) -> ShareFetchResponse {
        let answer = self.client.call(2, request);
        if answer.error_code == 0 {
            self.session_epoch += 1;
        }
        answer
    }

    /// Says what became of records, and fetches what is there.
    fn fetch(&mut self, settled: &[Settled]) -> Vec<Got> {
        self.fetch_for(settled, 0)
    }

    fn fetch_for(&mut self, settled: &[Settled], wait_ms: i32) -> Vec<Got> {
        let request = self.request(settled, wait_ms, 500);
        let answer = self.exchange(&request);
        assert_eq!(answer.error_code, 0, "{answer:?}");
        for part in answer.responses.iter().flat_map(|topic| &topic.partitions) {
            assert_eq!((part.error_code, part.acknowledge_error_code), (0, 0), "{part:?}");
        }
        got(&answer)
    }

    /// Fetches until there are so many.
    fn fetch_all(&mut self, count: usize) -> Vec<Got> {
        let mut all = Vec::new();
        wait_for("records", || {
            all.extend(self.fetch_for(&[], 1000));
            (all.len() >= count).then_some(())
        });
        assert_eq!(all.len(), count);
        all
    }

    /// Says what became of records that it holds.
    fn say(&mut self, settled: &[Settled]) {
        let codes = self.acknowledge(settled, self.session_epoch);
        assert_eq!(codes, Ok(vec![0; settled.len()]));
        self.session_epoch += 1;
    }

    /// Says what became of records; the codes of the partitions.
    fn acknowledge(&mut self, settled: &[Settled], epoch: i32) -> Result<Vec<i16>, i16> {
        let topic = |(topic_id, partition_index, offset, kind): &Settled| AcknowledgeTopic {
            topic_id: *topic_id,
            partitions: vec![AcknowledgePartition {
                partition_index: *partition_index,
                acknowledgement_batches: vec![AcknowledgementBatch {
                    first_offset: *offset,
                    last_offset: *offset,
                    acknowledge_types: vec![*kind],
                }],
            }],
        };
        let request = ShareAcknowledgeRequest {
            group_id: Some("workers".to_owned()),
            member_id: Some(self.name.clone()),
            share_session_epoch: epoch,
            is_renew_ack: settled.iter().any(|settled| settled.3 == RENEW),
            topics: settled.iter().map(topic).collect(),
        };
        let answer = self.client.call(2, &request);
        if answer.error_code != 0 {
            return Err(answer.error_code);
        }
        let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
        Ok(partitions.map(|part| part.error_code).collect())
    }
}

/// What was acquired, in the order of the answer.
fn got(answer: &ShareFetchResponse) -> Vec<Got> {
    let mut all = Vec::new();
    for topic in &answer.responses {
        for part in &topic.partitions {
            let Some(Records::Here(mut bytes)) = part.records.clone() else { continue };
            let mut counts = BTreeMap::new();
            for range in &part.acquired_records {
                for offset in range.first_offset..=range.last_offset {
                    counts.insert(offset, range.delivery_count);
                }
            }
            while !bytes.is_empty() {
                let length = BatchHeader::checked(&bytes).expect("a batch").bytes;
                let batch = Batch::check(bytes.split_to(length)).expect("a batch");
                let unpacked = batch.unpack(UNPACKED_BYTES_MAX).expect("records");
                for record in unpacked.records() {
                    let record = record.expect("a record");
                    let base = i64::try_from(batch.header().base_offset).expect("an offset");
                    let offset = base + i64::from(record.offset_delta);
                    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                    all.push(Got {
                        topic: topic.topic_id,
                        partition: part.partition_index,
                        offset,
                        count: counts.remove(&offset).expect("it was acquired"),
                        text: text(record.value.expect("a value")),
                        headers: record.headers().map(|(name, _)| text(name)).collect(),
                    });
                }
            }
            assert_eq!(counts, BTreeMap::new(), "everything acquired is there");
        }
    }
    all
}

/// A topic of two partitions and its group, whose messages come again at once when they failed.
fn server() -> Server {
    let server = Server::start();
    assert_eq!(server.put("/v1/topics/orders", r#"{"partitions":2}"#).status, 201);
    let settings = r#"{"retry":{"ladder":["1ms","1ms"]},"max_attempts":3}"#;
    assert_eq!(server.put(GROUP, settings).status, 201);
    server
}

fn send(server: &Server, texts: &[&str]) {
    for text in texts {
        server.send("orders", &json!({"body": text, "headers": {"h": "v"}}));
    }
}

fn standing(server: &Server) -> (Value, Value, Value) {
    let group = server.get(GROUP).json();
    (group["lag"].clone(), group["in_flight"].clone(), group["dead"].clone())
}

/// The only dead letter, once everything is settled: it comes there as a message that is due at once.
fn dead_letter(server: &Server) -> Value {
    wait_for("the dead letter", || {
        let is_there = standing(server) == (json!(0), json!(0), json!(1));
        is_there.then(|| server.get(&format!("{GROUP}/dead")).json()["messages"][0].clone())
    })
}

fn texts(got: &[Got]) -> Vec<&str> {
    let mut texts: Vec<&str> = got.iter().map(|got| got.text.as_str()).collect();
    texts.sort_unstable();
    texts
}

#[test]
fn accepted_records_are_acked_and_come_once() {
    let server = server();
    send(&server, &["a", "b", "c", "d"]);
    let mut member = Member::join(&server, "one", &["orders"]);
    assert_eq!(member.assigned.len(), 1);
    assert_eq!(member.assigned[0].1, [0, 1]);
    let all = member.fetch_all(4);
    assert_eq!(texts(&all), ["a", "b", "c", "d"]);
    assert!(all.iter().all(|got| got.count == 1), "{all:?}");
    assert!(all.iter().all(|got| got.headers.starts_with(&["h".to_owned()])), "{all:?}");
    assert_eq!(standing(&server), (json!(4), json!(4), json!(0)), "HTTP shows what is held");
    assert!(server.receive(GROUP, &json!({})).is_empty(), "and gives it to nobody else");
    let accepted: Vec<Settled> = all.iter().map(|got| got.be(ACCEPT)).collect();
    assert!(member.fetch(&accepted).is_empty());
    assert_eq!(standing(&server), (json!(0), json!(0), json!(0)));
}

#[test]
fn released_records_come_again_where_they_were_and_end_as_dead_letters() {
    let server = server();
    send(&server, &["again"]);
    let mut member = Member::join(&server, "one", &["orders"]);
    let mut last = member.fetch_all(1).remove(0);
    for count in 2..=3 {
        let before = last.clone();
        member.say(&[last.be(RELEASE)]);
        last = member.fetch_all(1).remove(0);
        assert_eq!(last, Got { count, ..before });
    }
    assert!(member.fetch(&[last.be(RELEASE)]).is_empty());
    let dead = dead_letter(&server);
    assert_eq!(dead["reason"], "attempts_exhausted", "{dead}");
}

#[test]
fn rejected_records_are_dead_letters_at_once() {
    let server = server();
    send(&server, &["bad"]);
    let mut member = Member::join(&server, "one", &["orders"]);
    let bad = member.fetch_all(1).remove(0);
    member.say(&[bad.be(REJECT)]);
    let dead = dead_letter(&server);
    assert_eq!((&dead["reason"], &dead["body"]), (&json!("rejected"), &json!("bad")), "{dead}");
}

#[test]
fn what_is_said_twice_or_about_nothing_is_refused() {
    let server = server();
    send(&server, &["a"]);
    let mut member = Member::join(&server, "one", &["orders"]);
    let one = member.fetch_all(1).remove(0);
    let epoch = member.session_epoch;
    assert_eq!(member.acknowledge(&[one.be(ACCEPT)], epoch), Ok(vec![0]));
    assert_eq!(member.acknowledge(&[one.be(ACCEPT)], epoch + 1), Ok(vec![NOT_HELD]));
    assert_eq!(member.acknowledge(&[one.be(9)], epoch + 2), Ok(vec![INVALID_REQUEST]));
    let nowhere = ([7; 16], 0, 0, ACCEPT);
    assert_eq!(member.acknowledge(&[nowhere], epoch + 3), Ok(vec![UNKNOWN_TOPIC_ID]));
    let whole = AcknowledgementBatch {
        first_offset: 0,
        last_offset: i64::MAX,
        acknowledge_types: vec![ACCEPT],
    };
    let partition =
        AcknowledgePartition { partition_index: 0, acknowledgement_batches: vec![whole] };
    let request = ShareAcknowledgeRequest {
        group_id: Some("workers".to_owned()),
        member_id: Some("one".to_owned()),
        share_session_epoch: epoch + 4,
        is_renew_ack: false,
        topics: vec![AcknowledgeTopic { topic_id: one.topic, partitions: vec![partition] }],
    };
    let answer = member.client.call(1, &request);
    assert_eq!(answer.responses[0].partitions[0].error_code, NOT_HELD);
}

#[test]
fn renewed_records_stay_with_their_member_and_others_do_not() {
    let server = Server::on_virtual_time("2030-01-01T00:00:00Z");
    let advance = |by: &str| {
        let moved = server.post("/v1/time/advance", json!({ "by": by }).to_string());
        assert_eq!(moved.status, 200, "{}", moved.body);
    };
    assert!(server.put("/v1/topics/orders", r#"{"partitions":1}"#).status < 300);
    assert!(server.put(GROUP, r#"{"lease":"10s","retry":{"ladder":["1ms"]}}"#).status < 300);
    send(&server, &["long"]);
    advance("1s");
    let mut member = Member::join(&server, "one", &["orders"]);
    let long = member.fetch_all(1).remove(0);
    for _ in 0..5 {
        advance("9s");
        let request = member.request(&[long.be(RENEW)], 0, 500);
        let answer = member.exchange(&request);
        assert_eq!(answer.responses[0].partitions[0].acknowledge_error_code, 0, "{answer:?}");
        assert_eq!(answer.acquisition_lock_timeout_ms, 10_000);
        assert!(server.receive(GROUP, &json!({})).is_empty());
    }
    // Once it is not renewed any more it comes again, and what was held before is void.
    advance("11s");
    advance("1s");
    let request = member.request(&[long.be(ACCEPT)], 0, 0);
    let answer = member.exchange(&request);
    assert_eq!(answer.responses[0].partitions[0].acknowledge_error_code, NOT_HELD, "{answer:?}");
    let again = member.fetch_all(1).remove(0);
    assert_eq!(again, Got { count: 2, ..long });
}

#[test]
fn epochs_of_a_session_are_held_to() {
    let server = server();
    let mut member = Member::join(&server, "one", &["orders"]);
    assert_eq!(member.acknowledge(&[], 1), Err(NO_SESSION));
    assert_eq!(member.acknowledge(&[], 0), Err(WRONG_EPOCH));
    let early = ShareFetchRequest { share_session_epoch: 1, ..member.request(&[], 0, 1) };
    assert_eq!(member.client.call(2, &early).error_code, NO_SESSION);
    assert!(member.fetch(&[]).is_empty());
    assert!(member.fetch(&[]).is_empty());
    for wrong in [1, 3, 7, -5] {
        let request = ShareFetchRequest { share_session_epoch: wrong, ..member.request(&[], 0, 1) };
        assert_eq!(member.client.call(2, &request).error_code, WRONG_EPOCH, "{wrong}");
    }
    assert!(member.fetch(&[]).is_empty(), "the session goes on");
    let strange =
        ShareFetchRequest { group_id: Some("no/group".to_owned()), ..member.request(&[], 0, 1) };
    assert_eq!(member.client.call(2, &strange).error_code, INVALID_GROUP);
    let nobody = ShareFetchRequest { member_id: None, ..member.request(&[], 0, 1) };
    assert_eq!(member.client.call(2, &nobody).error_code, INVALID_REQUEST);
}

#[test]
fn what_a_member_holds_goes_back_when_its_session_ends() {
    let server = server();
    send(&server, &["a"]);
    let mut other = Member::join(&server, "other", &["orders"]);
    // It closes the session.
    let mut member = Member::join(&server, "one", &["orders"]);
    let held = member.fetch_all(1).remove(0);
    assert!(other.fetch(&[]).is_empty());
    let closing = ShareFetchRequest { share_session_epoch: -1, ..member.request(&[], 0, 1) };
    assert_eq!(member.client.call(2, &closing).error_code, 0);
    let back = other.fetch_all(1).remove(0);
    assert_eq!(back, held, "that was no failed attempt");
    // It opens another one.
    other.session_epoch = 0;
    assert_eq!(other.fetch_all(1), std::slice::from_ref(&back));
    // It leaves, and closes the session after that, as clients do.
    other.member_epoch = -1;
    assert_eq!(other.beat(None).error_code, 0);
    assert_eq!(other.beat(None).error_code, UNKNOWN_MEMBER);
    assert_eq!(other.acknowledge(&[], -1), Ok(Vec::new()));
    assert_eq!(other.acknowledge(&[], -1), Err(NO_SESSION));
    member.session_epoch = 0;
    assert_eq!(member.fetch_all(1), std::slice::from_ref(&back));
    // Its connection ends.
    drop(member);
    let mut last = Member::join(&server, "last", &["orders"]);
    assert_eq!(last.fetch_all(1), [back]);
}

#[test]
fn members_and_http_consumers_compete_for_the_same_messages() {
    let server = server();
    let bodies: Vec<String> = (0..60).map(|number| format!("{number:02}")).collect();
    send(&server, &bodies.iter().map(String::as_str).collect::<Vec<_>>());
    let mut one = Member::join(&server, "one", &["orders"]);
    let mut two = Member::join(&server, "two", &["orders"]);
    let (mut seen, mut turns) = (Vec::new(), 0);
    wait_for("all messages", || {
        turns += 1;
        for member in [&mut one, &mut two] {
            let request = member.request(&[], 100, 5);
            let answer = member.exchange(&request);
            let got = got(&answer);
            assert!(got.len() <= 5, "{got:?}");
            let accepted: Vec<Settled> = got.iter().map(|got| got.be(ACCEPT)).collect();
            seen.extend(got.into_iter().map(|got| got.text));
            let request = member.request(&accepted, 0, 0);
            assert_eq!(member.exchange(&request).error_code, 0);
        }
        let received = server.receive(GROUP, &json!({"max": 5}));
        let receipts: Vec<_> = received.iter().map(|one| &one["receipt"]).collect();
        if !receipts.is_empty() {
            server.settle(GROUP, "ack", &json!({"receipts": receipts}));
        }
        seen.extend(received.iter().map(|one| one["body"].as_str().unwrap().to_owned()));
        (seen.len() >= 60).then_some(())
    });
    seen.sort_unstable();
    assert_eq!(seen, bodies);
    assert!(turns >= 4);
    assert_eq!(standing(&server), (json!(0), json!(0), json!(0)));
}

#[test]
fn a_fetch_waits_for_a_message_and_is_woken_by_it() {
    let server = server();
    let mut member = Member::join(&server, "one", &["orders"]);
    assert!(member.fetch(&[]).is_empty());
    let request = member.request(&[], 50_000, 10);
    member.client.send(2, &request);
    send(&server, &["late"]);
    // Far less than it was willing to wait, or the client gives up.
    let (_, answer) = member.client.receive::<ShareFetchRequest>(2);
    assert_eq!(texts(&got(&answer)), ["late"]);
}

#[test]
fn a_member_learns_of_topics_and_partitions_that_come_later() {
    let server = server();
    let mut member = Member::join(&server, "one", &["orders", "later"]);
    assert_eq!(member.assigned.len(), 1);
    let unchanged = member.beat(None);
    assert_eq!((unchanged.member_epoch, unchanged.assignment), (1, None));
    assert_eq!(server.put("/v1/topics/later", r#"{"partitions":1}"#).status, 201);
    assert_eq!(member.beat(None).member_epoch, 2);
    assert_eq!(member.assigned.len(), 2);
    assert_eq!(server.put("/v1/topics/orders", r#"{"partitions":3}"#).status, 200);
    assert_eq!(member.beat(None).member_epoch, 3);
    let partitions: Vec<usize> = member.assigned.iter().map(|topic| topic.1.len()).collect();
    assert_eq!(partitions.iter().sum::<usize>(), 4);
    let group = server.get("/v1/topics/later/groups/workers");
    assert_eq!(group.status, 200, "the group is there, over HTTP too");
    server.send("later", &json!({"body": "new"}));
    assert_eq!(texts(&member.fetch_all(1)), ["new"]);
    member.member_epoch = 9;
    assert_eq!(member.beat(None).error_code, FENCED);
    member.name = "nobody".to_owned();
    assert_eq!(member.beat(None).error_code, UNKNOWN_MEMBER);
}

#[test]
fn after_a_restart_members_join_again_and_nothing_is_lost() {
    let server = server();
    send(&server, &["kept"]);
    let mut member = Member::join(&server, "one", &["orders"]);
    let held = member.fetch_all(1);
    let (epoch, session) = (member.member_epoch, member.session_epoch);
    let server = server.restarted(&[]);
    member.client = Client::connect(&server);
    assert_eq!((member.member_epoch, member.session_epoch), (epoch, session));
    assert_eq!(member.beat(None).error_code, UNKNOWN_MEMBER);
    let request = member.request(&[held[0].be(ACCEPT)], 0, 1);
    assert_eq!(member.exchange(&request).error_code, NO_SESSION);
    let mut member = Member::join(&server, "one", &["orders"]);
    assert_eq!(member.fetch_all(1), held, "topics keep their ids, records their places");
}

#[test]
fn members_are_described() {
    let server = server();
    let mut member = Member::join(&server, "one", &["orders"]);
    let request = ShareGroupDescribeRequest {
        group_ids: vec!["workers".to_owned(), "nobody".to_owned()],
        ..ShareGroupDescribeRequest::default()
    };
    let answer = member.client.call(1, &request);
    let [workers, nobody] = answer.groups.as_slice() else { panic!("{answer:?}") };
    assert_eq!((workers.error_code, workers.group_state.as_str()), (0, "Stable"));
    assert_eq!(workers.members[0].member_id, "one");
    assert_eq!(workers.members[0].subscribed_topic_names, ["orders"]);
    let assigned = &workers.members[0].assignment.topic_partitions[0];
    assert_eq!((assigned.topic_name.as_str(), assigned.partitions.len()), ("orders", 2));
    assert_eq!(nobody.error_code, 69);
}
