//! Can a service that spoke to an older delay server go on as it did?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::Server;

const SEND: &str = "/delay/sendDelayMsg";
const CANCEL: &str = "/delay/cancelDelayMsg";

fn call(server: &Server, path: &str, ask: &Value) -> (u16, Value) {
    let answer = server.post(path, ask.to_string());
    assert!(answer.head.contains("content-type: application/json"), "{}", answer.head);
    (answer.status, answer.json())
}

fn started() -> Server {
    Server::with(&[("store.durability", "os")])
}

/// Thirty days from now, as digits.
fn soon(server: &Server) -> u64 {
    let now = server.get("/v1/time").json()["now"].as_str().expect("a time").to_owned();
    let answer = server.post(
        "/v1/topics/clock/messages",
        json!({"body": "x", "delay": "30d", "id": now}).to_string(),
    );
    assert!(answer.status < 300, "{}", answer.body);
    let due = answer.json()["due"].as_str().expect("a time").to_owned();
    let listed = server.get(&format!("/v1/topics/clock/scheduled?from={due}")).json();
    assert_eq!(listed["messages"].as_array().map(Vec::len), Some(1));
    millis(&due)
}

/// Epoch milliseconds of a time in UTC.
fn millis(text: &str) -> u64 {
    let number = |range: std::ops::Range<usize>| text[range].parse::<u64>().expect("digits");
    let (year, month, day) = (number(0..4), number(5..7), number(8..10));
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let days_of = |year| if leap(year) { 366 } else { 365 };
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before: u64 = (1970..year).map(days_of).sum();
    let months: u64 = lengths.iter().take(usize::try_from(month - 1).expect("a month")).sum();
    let seconds = number(11..13) * 3600 + number(14..16) * 60 + number(17..19);
    ((before + months + day - 1) * 86_400 + seconds) * 1000 + number(20..23)
}

#[test]
fn a_message_is_sent_and_withdrawn_in_the_older_words() {
    let server = started();
    let at = soon(&server);
    for (exec_time, id) in [(json!(at), "m-1"), (json!(at.to_string()), "m-2")] {
        let ask = json!({"appKey": "shop", "topic": "orders", "message": {"order": 7},
            "execTime": exec_time, "repeatInterval": 0, "messageId": id});
        let (status, answer) = call(&server, SEND, &ask);
        assert_eq!(status, 200, "{answer}");
        assert_eq!((&answer["code"], &answer["message"]), (&json!(0), &json!("success")));
        assert_eq!(answer["data"]["messageId"], id);
        let sent = server.get(&format!("/v1/topics/orders/messages/{id}")).json();
        assert_eq!(
            (&sent["body"], &sent["state"]),
            (&json!(r#"{"order":7}"#), &json!("scheduled"))
        );
        assert_eq!(millis(sent["due"].as_str().expect("a time")), at);
        assert_eq!(sent["id"], answer["data"]["id"]);
        // Repeated, it is the same message.
        let (status, again) = call(&server, SEND, &ask);
        assert_eq!((status, &again), (200, &answer));
        let ask = json!({"appKey": "shop", "topic": "orders", "messageId": id});
        let (status, answer) = call(&server, CANCEL, &ask);
        assert_eq!((status, &answer["code"]), (200, &json!(0)), "{answer}");
        assert_eq!(answer["data"]["messageId"], id);
        let (status, answer) = call(&server, CANCEL, &ask);
        assert_eq!((status, &answer["code"]), (409, &json!(409)), "{answer}");
        assert_eq!(answer["error"], "already_cancelled");
    }
}

#[test]
fn without_a_name_ours_is_told_and_needs_no_topic() {
    let server = started();
    let later = soon(&server);
    let (_, answer) =
        call(&server, SEND, &json!({"topic": "t", "message": "m", "execTime": later}));
    let id = answer["data"]["messageId"].as_str().expect("an id").to_owned();
    assert_eq!(server.get(&format!("/v1/messages/{id}")).json()["state"], "scheduled");
    let (status, answer) = call(&server, CANCEL, &json!({"messageId": id}));
    assert_eq!((status, &answer["code"]), (200, &json!(0)), "{answer}");
    assert_eq!(server.get(&format!("/v1/messages/{id}")).json()["state"], "cancelled");
    // A name of the sender's own says nothing without its topic.
    call(
        &server,
        SEND,
        &json!({"topic": "t", "message": "m", "execTime": later, "messageId": "own"}),
    );
    let (status, answer) = call(&server, CANCEL, &json!({"messageId": "own"}));
    assert_eq!((status, &answer["error"]), (404, &json!("not_found")));
    assert_eq!(server.get("/v1/topics/t/messages/own").json()["state"], "scheduled");
}

#[test]
fn what_is_due_comes_at_once_and_what_comes_round_is_a_series() {
    let server = started();
    let later = soon(&server);
    let (status, _) =
        call(&server, SEND, &json!({"topic": "t", "message": "past", "execTime": 1000}));
    assert_eq!(status, 200);
    assert_eq!(server.receive_all("/v1/topics/t/groups/g", 1)[0]["body"], "past");
    let ask = json!({"topic": "t", "message": "round", "execTime": later,
        "repeatInterval": "60000", "messageId": "series"});
    let (status, answer) = call(&server, SEND, &ask);
    assert_eq!(status, 200, "{answer}");
    let series = server.get("/v1/topics/t/series").json();
    assert_eq!(series["series"][0]["own_id"], "series");
    assert_eq!(series["series"][0]["repeat"]["every"], "1m");
    let (status, answer) = call(&server, CANCEL, &json!({"topic": "t", "messageId": "series"}));
    assert_eq!((status, &answer["code"]), (200, &json!(0)), "{answer}");
    assert_eq!(server.get("/v1/topics/t/series").json()["series"], json!([]));
}

#[test]
fn what_is_wrong_has_a_code_that_is_not_zero() {
    let server = started();
    let later = soon(&server);
    let good = json!({"topic": "t", "message": "m", "execTime": later, "messageId": "a"});
    assert_eq!(call(&server, SEND, &good).0, 200);
    let with = |field: &str, value: Value| {
        let mut ask = good.clone();
        ask[field] = value;
        ask
    };
    for (path, ask, status, error) in [
        (SEND, json!({}), 400, "invalid_request"),
        (SEND, json!({"topic": "t"}), 400, "missing_body"),
        (SEND, with("topic", json!("a b")), 400, "invalid_topic_name"),
        (SEND, with("execTime", json!("2040-01-01 00:00:00")), 400, "invalid_time"),
        (SEND, with("execTime", json!(-1)), 400, "invalid_time"),
        (SEND, with("execTime", json!(1.5)), 400, "invalid_time"),
        (SEND, with("repeatInterval", json!(10)), 400, "interval_too_short"),
        (SEND, with("delay", json!("1s")), 400, "unknown_field"),
        (SEND, with("message", json!("other")), 409, "id_conflict"),
        (CANCEL, json!({"messageId": "nope"}), 404, "not_found"),
        (CANCEL, json!({"topic": "t", "messageId": "nope"}), 404, "not_found"),
        (CANCEL, json!({"topic": "none", "messageId": "a"}), 404, "topic_not_found"),
        (CANCEL, json!({"topic": "t"}), 400, "invalid_request"),
    ] {
        let (found, answer) = call(&server, path, &ask);
        assert_eq!((found, &answer["error"]), (status, &json!(error)), "{ask} {answer}");
        assert_eq!((&answer["code"], &answer["data"]), (&json!(status), &Value::Null));
        assert!(answer["message"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
    }
    let refused = server.request("POST", SEND, "content-type: text/plain\r\n", b"{}");
    assert_eq!((refused.status, refused.json()["code"].clone()), (415, json!(415)));
    assert_eq!(server.get(SEND).status, 405);
}
