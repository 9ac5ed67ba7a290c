//! What is read and written by hand is what the generated shapes read and write.

use prost_types::{Duration as WireDuration, Timestamp as WireTimestamp};
use punctual_model::{Key, MessageId, Partition, Sequence, Timestamp, TopicId};

use super::*;

fn full() -> v1::NewMessage {
    v1::NewMessage {
        body: Bytes::from_static(b"body"),
        key: Some(Bytes::from_static(b"key")),
        headers: vec![
            v1::Header { name: "a".to_owned(), value: Bytes::from_static(b"\xff") },
            v1::Header { name: "a".to_owned(), value: Bytes::new() },
        ],
        id: Some("own".to_owned()),
        on_conflict: v1::OnConflict::Replace.into(),
        when: Some(v1::new_message::When::Delay(WireDuration { seconds: 3, nanos: 1 })),
        repeat: Some(v1::Repeat {
            rule: Some(v1::repeat::Rule::Cron(v1::Cron {
                expression: "0 9 * * 1-5".to_owned(),
                zone: Some("Asia/Shanghai".to_owned()),
            })),
            count: Some(3),
            until: Some(WireTimestamp { seconds: 4_000_000_000, nanos: 0 }),
        }),
        ttl: Some(WireDuration { seconds: 60, nanos: 0 }),
        partition: Some(2),
        max_attempts: Some(5),
        catch_up: Some(v1::CatchUp { policy: Some(v1::catch_up::Policy::Latest(())) }),
    }
}

fn frame(messages: Vec<v1::NewMessage>) -> Bytes {
    let request = v1::SendStreamRequest { sequence: 9, topic: "t".to_owned(), messages };
    request.encode_to_vec().into()
}

fn one(message: v1::NewMessage) -> Result<Request, Problem> {
    let batch = NumberedBatch::read(&frame(vec![message])).unwrap();
    batch.requests.map(|mut requests| requests.pop().unwrap())
}

#[test]
fn every_field_of_a_message_is_read() {
    let batch = NumberedBatch::read(&frame(vec![full(), v1::NewMessage::default()])).unwrap();
    assert_eq!((batch.sequence, batch.topic.as_str()), (9, "t"));
    let requests = batch.requests.unwrap();
    assert_eq!(requests.len(), 2);
    let request = &requests[0];
    assert_eq!(request.message.body, "body");
    assert_eq!(request.message.key.as_deref(), Some(&b"key"[..]));
    assert_eq!(request.message.headers.len(), 2);
    assert_eq!(request.message.headers[0].value, &b"\xff"[..]);
    assert_eq!(request.own_id.as_deref(), Some("own"));
    assert_eq!(request.on_conflict, OnConflict::Replace);
    assert_eq!(request.when, When::After(Span::from_millis(3001)));
    assert_eq!(request.ttl, Some(Span::from_secs(60)));
    assert_eq!(request.partition, Some(2));
    assert_eq!(request.max_attempts, Some(5));
    assert_eq!(request.catch_up, Some(CatchUp::Latest));
    let repeat = request.repeat.as_ref().unwrap();
    assert_eq!(repeat.count.map(NonZeroU32::get), Some(3));
    assert!(repeat.until.is_some());
    assert!(matches!(repeat.rule, Rule::Cron(_)));
    let plain = &requests[1];
    assert_eq!((plain.when, plain.message.body.len()), (When::Now, 0));
}

#[test]
fn when_it_is_wanted_is_read_in_every_form() {
    let at = |when| one(v1::NewMessage { when: Some(when), ..Default::default() }).unwrap().when;
    let time = WireTimestamp { seconds: 1, nanos: 0 };
    let known = Timestamp::from_millis(1000).unwrap();
    assert_eq!(at(v1::new_message::When::DeliverAt(time)), When::At(known));
    assert_eq!(at(v1::new_message::When::DelayLevel(18)), When::Level(18));
}

#[test]
fn a_wrong_message_is_refused_with_its_place() {
    let wrong = v1::NewMessage { max_attempts: Some(0), ..Default::default() };
    let batch = NumberedBatch::read(&frame(vec![full(), wrong])).unwrap();
    let problem = batch.requests.unwrap_err();
    assert_eq!((problem.code, problem.index), (Code::InvalidField, Some(1)));
}

#[test]
fn too_many_messages_or_headers_are_not_even_read() {
    let many = vec![v1::NewMessage::default(); BATCH_MESSAGES_MAX + 1];
    let problem = NumberedBatch::read(&frame(many)).unwrap().requests.unwrap_err();
    assert_eq!(problem.code, Code::BatchTooLarge);
    let headers = vec![v1::Header::default(); HEADERS_MAX + 1];
    let problem = one(v1::NewMessage { headers, ..Default::default() }).unwrap_err();
    assert_eq!(problem.code, Code::TooManyHeaders);
}

#[test]
fn no_bytes_make_it_panic() {
    let whole = frame(vec![full()]);
    for length in 0..whole.len() {
        let _refused = NumberedBatch::read(&whole.slice(..length));
        let _refused = Batch::read(&whole.slice(..length));
    }
    for place in 0..whole.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[place] ^= flip;
            let _maybe = NumberedBatch::read(&bytes.into());
        }
    }
}

#[test]
fn the_answer_is_what_the_generated_shape_reads() {
    let sent = |millis: u64, state: State, duplicate: bool| {
        let due = Timestamp::from_millis(millis).unwrap();
        let key = Key { due, sequence: Sequence::new(millis % 1000).unwrap() };
        let topic = TopicId::new(7).unwrap();
        let id = MessageId { key, topic, partition: Partition::new(3).unwrap() };
        Scheduled { id, due, duplicate, state }
    };
    let all = vec![
        sent(0, State::Scheduled, false),
        sent(1_700_000_000_123, State::Delivered, true),
        sent(Timestamp::MAX.as_millis(), State::Cancelled, false),
    ];
    let mut bytes = BytesMut::new();
    NumberedAnswer { sequence: 300, outcome: Ok(Accepted(all.clone())) }.write(&mut bytes);
    let read = v1::SendStreamResponse::decode(bytes.freeze()).unwrap();
    assert_eq!(read.sequence, 300);
    let Some(v1::send_stream_response::Outcome::Sent(response)) = read.outcome else {
        panic!("it was accepted");
    };
    let mut alone = BytesMut::new();
    Accepted(all.clone()).write(&mut alone);
    assert_eq!(v1::SendResponse::decode(alone.freeze()).unwrap(), response);
    for (scheduled, shown) in all.iter().zip(&response.messages) {
        assert_eq!(shown.id, scheduled.id.to_string());
        assert_eq!(shown.due, Some(time::timestamp(scheduled.due)));
        assert_eq!(shown.state(), state(scheduled.state));
        assert_eq!(shown.duplicate, scheduled.duplicate);
    }
    assert_eq!(response.messages.len(), all.len());
}

#[test]
fn a_refusal_is_what_the_generated_shape_reads() {
    let problem = Problem::new(Code::BacklogFull, "full").at(2);
    let mut bytes = BytesMut::new();
    NumberedAnswer { sequence: 0, outcome: Err(problem) }.write(&mut bytes);
    let read = v1::SendStreamResponse::decode(bytes.freeze()).unwrap();
    let Some(v1::send_stream_response::Outcome::Problem(problem)) = read.outcome else {
        panic!("it was refused");
    };
    assert_eq!((problem.code.as_str(), problem.index), ("backlog_full", Some(2)));
    assert!(problem.retriable);
}
