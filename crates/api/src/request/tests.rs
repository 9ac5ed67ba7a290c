//! What the reader takes, and what it refuses with which code.

use proptest::prelude::*;

use super::*;
use crate::consume::{Receive, Retry, Settle, SettleLimits};
use crate::dead::{Drain, Purge, Redrive};
use crate::group::{GroupChange, GroupLimits, OffsetLimits, Reset, read_offsets};
use crate::topic::TopicChange;

const LIMITS: ReadLimits = ReadLimits { depth: 64, messages: 3, headers: 4 };

fn one(json: &str) -> NewMessage<'_> {
    match read_messages(json.as_bytes(), LIMITS) {
        Ok(Posted::One(message)) => *message,
        other => panic!("{json}: {other:?}"),
    }
}

fn refused(json: &str) -> Problem {
    match read_messages(json.as_bytes(), LIMITS) {
        Err(problem) => problem,
        other => panic!("{json}: {other:?}"),
    }
}

#[test]
fn a_string_body_is_its_characters_and_anything_else_its_text() {
    for (json, body) in [
        (r#"{"body":"hello"}"#, "hello"),
        (r#"{"body":""}"#, ""),
        (r#"{"body":"a\"\u00e9\n"}"#, "a\"é\n"),
        (r#"{"body": {"b" : 1.50,"b":2} }"#, r#"{"b" : 1.50,"b":2}"#),
        (r#"{"body":[1, 2]}"#, "[1, 2]"),
        (r#"{"body":true}"#, "true"),
        (r#"{"body":-0.0}"#, "-0.0"),
        (r#"{"body_base64":"aGk="}"#, "hi"),
        (r#"{"body":null,"body_base64":""}"#, ""),
    ] {
        assert_eq!(one(json).body, body, "{json}");
    }
}

#[test]
fn a_message_with_everything() {
    let message = one(
        r#"{"body":"x","key":"k","headers":{"a":"1","b":"\u0000","c":null},"delay":"1h","partition":3,"deliver_at":null}"#,
    );
    assert_eq!(message.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(message.headers, [("a".into(), Bytes::from("1")), ("b".into(), Bytes::from("\0"))]);
    assert_eq!(message.when, When::After("1h".into()));
    assert_eq!(message.partition, Some(3));
    let message = one(
        r#"{"body":"x","key_base64":"/w==","headers":[{"name":"a","value":"1"},{"name":"a","value_base64":"/w=="}],"delay":1500}"#,
    );
    assert_eq!(message.key.as_deref(), Some(&b"\xff"[..]));
    assert_eq!(message.headers.len(), 2);
    assert_eq!(message.when, When::After("1500".into()));
    let message = one(r#"{"body":"x","ttl":"1h","max_attempts":3}"#);
    assert_eq!((message.ttl.as_deref(), message.max_attempts), (Some("1h"), Some(3)));
    assert_eq!(one(r#"{"body":"x","delay_level":"3"}"#).when, When::Level(3));
    assert_eq!(one(r#"{"body":"x","deliver_at":1000}"#).when, When::At("1000".into()));
    assert_eq!(one(r#"{"body":"x","deliver_at":"\u0031"}"#).when, When::At("1".into()));
}

#[test]
fn each_fault_has_its_code() {
    let deep = format!(r#"{{"body":{}{}}}"#, "[".repeat(64), "]".repeat(64));
    let cases = [
        ("", Code::InvalidJson),
        ("{", Code::InvalidJson),
        (r#"{"body":"x"} x"#, Code::InvalidJson),
        (r#"{"body":"x",}"#, Code::InvalidJson),
        (r#"{"body":"\ud800"}"#, Code::InvalidJson),
        (deep.as_str(), Code::InvalidJson),
        ("[]", Code::InvalidRequest),
        (r#""text""#, Code::InvalidRequest),
        ("{}", Code::MissingBody),
        (r#"{"body":null}"#, Code::MissingBody),
        (r#"{"body":"x","bodi":1}"#, Code::UnknownField),
        (r#"{"body":"x","bo\u0064y":1}"#, Code::DuplicateField),
        (r#"{"body":"x","body":null}"#, Code::DuplicateField),
        (r#"{"body":"x","body_base64":"eA=="}"#, Code::ConflictingFields),
        (r#"{"body":"x","id":5}"#, Code::InvalidField),
        (r#"{"body":"x","on_conflict":"shout"}"#, Code::InvalidField),
        (r#"{"body":"x","repeat":{"evry":"1m"}}"#, Code::UnknownField),
        (r#"{"body":"x","repeat":"1m"}"#, Code::InvalidRepeat),
        (r#"{"body":"x","catch_up":"some"}"#, Code::InvalidCatchUp),
        (r#"{"body":"x","ttl":true}"#, Code::InvalidDelay),
        (r#"{"body":"x","max_attempts":"3"}"#, Code::InvalidField),
        (r#"{"body":"x","max_attempts":-1}"#, Code::InvalidField),
        (r#"{"body_base64":"e"}"#, Code::InvalidBase64),
        (r#"{"body_base64":5}"#, Code::InvalidField),
        (r#"{"body":"x","key":5}"#, Code::InvalidField),
        (r#"{"body":"x","key_base64":"*"}"#, Code::InvalidBase64),
        (r#"{"body":"x","delay":true}"#, Code::InvalidDelay),
        (r#"{"body":"x","delay":{}}"#, Code::InvalidDelay),
        (r#"{"body":"x","deliver_at":[]}"#, Code::InvalidTime),
        (r#"{"body":"x","delay_level":1.5}"#, Code::UnknownLevel),
        (r#"{"body":"x","delay":"1s","deliver_at":5}"#, Code::ConflictingFields),
        (r#"{"body":"x","delay":"1s","delay_level":5}"#, Code::ConflictingFields),
        (r#"{"body":"x","partition":-1}"#, Code::InvalidField),
        (r#"{"body":"x","partition":70000}"#, Code::NoSuchPartition),
        (r#"{"body":"x","headers":"a"}"#, Code::InvalidField),
        (r#"{"body":"x","headers":{"a":1}}"#, Code::InvalidField),
        (r#"{"body":"x","headers":{"a":"1","a":"2"}}"#, Code::DuplicateField),
        (r#"{"body":"x","headers":[{"name":"a"}]}"#, Code::InvalidField),
        (r#"{"body":"x","headers":[{"name":"a","value":"b","x":1}]}"#, Code::UnknownField),
        (r#"{"body":"x","headers":[{"name":"a","value":"b","value":"b"}]}"#, Code::DuplicateField),
        (r#"{"body":"x","headers":{"a":"","b":"","c":"","d":"","e":""}}"#, Code::TooManyHeaders),
        (r#"{"messages":[]}"#, Code::EmptyBatch),
        (r#"{"messages":5}"#, Code::InvalidRequest),
        (r#"{"messages":[5]}"#, Code::InvalidRequest),
        (r#"{"messages":[{"body":1}],"body":2}"#, Code::InvalidRequest),
        (r#"{"body":2,"messages":[{"body":1}]}"#, Code::UnknownField),
        (r#"{"messages":[{"body":1},{"body":1},{"body":1},{"body":1}]}"#, Code::BatchTooLarge),
    ];
    for (json, code) in cases {
        assert_eq!(refused(json).code, code, "{json}");
    }
}

#[test]
fn what_a_duration_or_time_means_is_not_decided_here() {
    for text in ["-1", "1.5", "1e3", "-0.0E+7", "99999999999999999999"] {
        let number = format!(r#"{{"body":"x","delay":{text}}}"#);
        assert_eq!(one(&number).when, When::After(text.into()), "nothing is rounded or cut");
    }
    assert_eq!(one(r#"{"body":"x","delay":"soon"}"#).when, When::After("soon".into()));
}

#[test]
fn a_refusal_names_the_message_of_the_batch() {
    assert_eq!(refused(r#"{"messages":[{"body":1},{"body":1,"key":5}]}"#).index, Some(1));
    assert_eq!(refused(r#"{"body":1,"key":5}"#).index, None);
    assert!(refused(r#"{"body":1,"colour":"x"}"#).detail.contains("colour"));
}

#[test]
fn parameters_of_a_publish() {
    let message = published(Some("delay=30s&key=a%20b+c&partition=1")).unwrap();
    assert_eq!(message.when, When::After("30s".into()));
    assert_eq!(message.key.as_deref(), Some(&b"a b c"[..]));
    for plus in ["+", "%2B"] {
        let query = format!("deliver_at=2030-01-01T08:00:00{plus}08:00");
        let at = published(Some(&query)).unwrap();
        assert_eq!(at.when, When::At("2030-01-01T08:00:00+08:00".into()));
    }
    for (query, code) in [
        ("delay=1s&delay=2s", Code::DuplicateField),
        ("delay=1s&delay_level=2", Code::ConflictingFields),
        ("deliver_at=5&delay_level=2", Code::ConflictingFields),
        ("colour=1", Code::UnknownField),
        ("on_conflict=1", Code::InvalidField),
        ("cron=x&every=1s", Code::InvalidRepeat),
        ("zone=UTC", Code::InvalidRepeat),
        ("count=x&every=1s", Code::InvalidRepeat),
        ("catch_up=x", Code::InvalidCatchUp),
        ("max_attempts=many", Code::InvalidField),
        ("delay=%zz", Code::InvalidParameter),
        ("delay=%ff", Code::InvalidParameter),
        ("partition=x", Code::InvalidField),
    ] {
        assert_eq!(published(Some(query)).unwrap_err().code, code, "{query}");
    }
}

#[test]
fn g40_many_small_elements_are_skipped_not_kept() {
    let items = format!(r#"{{"body":1,"headers":[0{}]}}"#, ",0".repeat(100_000));
    assert_eq!(refused(&items).code, Code::TooManyHeaders);
    let members = format!(r#"{{"body":1,"headers":{{"":0{}}}}}"#, r#","":0"#.repeat(100_000));
    assert_eq!(refused(&members).code, Code::TooManyHeaders);
    let broken = format!(r#"{{"body":1,"headers":[0{},]}}"#, ",0".repeat(100));
    assert_eq!(refused(&broken).code, Code::InvalidJson);
}

proptest! {
    #[test]
    fn hostile_json_never_panics(text in r#"[\[\]{}",:\\a-z0-9. ]{0,80}"#) {
        let _outcome = read_messages(text.as_bytes(), LIMITS);
    }

    #[test]
    fn hostile_fields_never_panic(
        name in "body|delay|headers|key|messages|deliver_at|partition",
        value in r#"[\[\]{}",:\\a-z0-9. -]{0,30}"#,
    ) {
        let _outcome = read_messages(format!(r#"{{"{name}":{value}}}"#).as_bytes(), LIMITS);
    }

    #[test]
    fn hostile_queries_never_panic(query in ".{0,40}") {
        let _outcome = published(Some(&query));
    }

    #[test]
    fn hostile_requests_about_groups_never_panic(
        name in "receipts|max|wait|retry|push|to|offsets|filter|edit|message|max_backlog",
        inner in "ladder|exponential|first|url|time|offsets|key|body|messages|0",
        value in r#"[\[\]{}",:\\a-z0-9. -]{0,30}"#,
    ) {
        for json in [format!(r#"{{"{name}":{value}}}"#), format!(r#"{{"{name}":{{"{inner}":{value}}}}}"#)] {
            let json = json.as_bytes();
            let _receive = Receive::read(json, 8);
            let _settle = Settle::read_nack(json, SettleLimits { depth: 8, receipts: 3 });
            let _retry = Retry::read(json, LIMITS);
            let _group = GroupChange::read(json, GroupLimits { depth: 8, rungs: 3 });
            let _reset = Reset::read(json, OffsetLimits { depth: 8, partitions: 3 });
            let _offsets = read_offsets(json, OffsetLimits { depth: 8, partitions: 3 });
            let _redrive = Redrive::read(json, LIMITS);
            let _purge = Purge::read(json, 8);
            let _drain = Drain::read(json, 8);
            let _topic = TopicChange::read(json, 8);
        }
    }
}
