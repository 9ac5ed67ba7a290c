//! Are messages pushed to the endpoint of their group, and acked or tried again by its answers?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod push_support;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use push_support::{
    Endpoint, QUIET, metric, push_to, put_group, reply, send, server, wait_for_dead,
    wait_until_done,
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use support::PATIENCE;

#[test]
fn a_success_is_an_ack() {
    let endpoint = Endpoint::start(|_request| reply(204, "", ""));
    let server = server();
    push_to(&server, "t", &endpoint.url(), &["1s"]);
    for number in 0..20 {
        send(&server, "t", &json!({"body": format!("m{number}")}));
    }
    let mut bodies: Vec<_> = (0..20).map(|_| endpoint.next().text().to_owned()).collect();
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 20);
    wait_until_done(&server, "t");
    endpoint.stays_quiet(QUIET);
    assert_eq!(metric(&server, "punctual_push_delivered_total"), 20);
    assert_eq!(metric(&server, "punctual_push_failed_total"), 0);
}

/// HMAC-SHA256, straight from its definition.
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(text);
    let outer = Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c));
    outer.chain_update(inner.finalize()).finalize().to_vec()
}

#[test]
fn a_request_is_a_signed_cloud_event() {
    let endpoint = Endpoint::start(|_request| reply(200, "", "thanks"));
    let server = server();
    let key = b"an example of a key";
    let secret = format!("whsec_{}", STANDARD.encode(key));
    put_group(&server, "orders", &json!({"push": {"url": endpoint.url(), "secret": secret}}));
    let message = json!({
        "body": "{\"a\":1}",
        "key": "Äpfel 7",
        "headers": {"content-type": "application/json", "trace": "t1", "bad": "a\r\nhost: evil"},
    });
    let id = send(&server, "orders", &message);
    let request = endpoint.next();
    assert_eq!(request.line, "POST /in?x=1 HTTP/1.1");
    assert_eq!(request.text(), "{\"a\":1}");
    for (name, value) in [
        ("host", endpoint.address.to_string().as_str()),
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-type", "punctual.message"),
        ("ce-id", &id),
        ("ce-source", "/topics/orders"),
        ("ce-subject", "%C3%84pfel%207"),
        ("ce-partitionkey", "%C3%84pfel%207"),
        ("ce-group", "g"),
        ("ce-attempt", "1"),
        ("ce-offset", "0"),
        ("webhook-id", &id),
        ("punctual-header-trace", "t1"),
    ] {
        assert_eq!(request.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(request.headers["ce-time"].ends_with('Z'));
    assert!(!request.headers.contains_key("punctual-header-bad"));
    let signed = format!("{id}.{}.{}", request.headers["webhook-timestamp"], request.text());
    let signature = format!("v1,{}", STANDARD.encode(hmac(key, signed.as_bytes())));
    assert_eq!(request.headers["webhook-signature"], signature);
    wait_until_done(&server, "orders");
}

#[test]
fn a_failure_climbs_the_ladder_to_the_dead_letters() {
    let endpoint = Endpoint::start(|_request| reply(500, "", "no\r\nroom"));
    let server = server();
    push_to(&server, "t", &endpoint.url(), &["200ms", "400ms"]);
    let id = send(&server, "t", &json!({"body": "x"}));
    let tries: Vec<_> = (0..3).map(|_| endpoint.next()).collect();
    let attempts: Vec<_> = tries.iter().map(push_support::Seen::attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(tries.iter().all(|request| request.headers["webhook-id"] == id));
    assert!(tries[1].at - tries[0].at >= Duration::from_millis(200));
    assert!(tries[2].at - tries[1].at >= Duration::from_millis(400));
    let letter = wait_for_dead(&server, "t");
    assert_eq!(letter["reason"], "attempts_exhausted");
    assert_eq!(letter["last_error"], "HTTP 500: no  room");
    endpoint.stays_quiet(QUIET);
}

#[test]
fn an_endpoint_that_asks_for_time_gets_it() {
    for status in [429, 503] {
        let endpoint = Endpoint::start(move |request| match request.attempt() {
            1 => reply(status, "retry-after: 2\r\n", ""),
            _ => reply(200, "", ""),
        });
        let server = server();
        push_to(&server, "t", &endpoint.url(), &["10ms"]);
        send(&server, "t", &json!({"body": "x"}));
        let (first, second) = (endpoint.next(), endpoint.next());
        assert_eq!(second.attempt(), 2);
        assert!(second.at - first.at >= Duration::from_secs(2), "{status}");
        wait_until_done(&server, "t");
    }
}

#[test]
fn an_endpoint_that_hangs_is_given_up_after_the_timeout() {
    let released = Arc::new((Mutex::new(false), Condvar::new()));
    let release = Arc::clone(&released);
    let endpoint = Endpoint::start(move |request| {
        if request.attempt() == 1 {
            let (released, changed) = &*release;
            let guard = released.lock().expect("a lock");
            drop(changed.wait_while(guard, |released| !*released).expect("a lock"));
        }
        reply(200, "", "")
    });
    let server = server();
    let push = json!({"url": endpoint.url(), "timeout": "1s", "concurrency": 1});
    put_group(&server, "t", &json!({"push": push, "retry": {"ladder": ["10ms"]}}));
    // The time counts from when it is sent, which is before it is seen.
    let start = Instant::now();
    send(&server, "t", &json!({"body": "x"}));
    let (_first, second) = (endpoint.next(), endpoint.next());
    assert_eq!(second.attempt(), 2);
    assert!(second.at - start >= Duration::from_secs(1));
    wait_until_done(&server, "t");
    *released.0.lock().expect("a lock") = true;
    released.1.notify_all();
}

#[test]
fn an_endless_answer_is_a_failure() {
    let endpoint = Endpoint::serving(|stream, seen| {
        use std::io::Write as _;
        let mut writing = stream.try_clone().expect("a socket");
        let request = push_support::read_request(&mut std::io::BufReader::new(stream));
        seen.send(request.expect("a request")).expect("the test goes on");
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n";
        writing.write_all(head).expect("it reads");
        while writing.write_all(&[b'x'; 64 << 10]).is_ok() {}
    });
    let server = server();
    let settings = json!({"push": {"url": endpoint.url()}, "max_attempts": 1});
    put_group(&server, "t", &settings);
    send(&server, "t", &json!({"body": "x"}));
    let letter = wait_for_dead(&server, "t");
    assert_eq!(letter["last_error"], "HTTP 200, with an answer of more than 65536 bytes");
}

#[test]
fn never_more_requests_at_once_than_the_group_allows() {
    let now = Arc::new((Mutex::new(0_usize), Condvar::new()));
    let most = Arc::new(AtomicUsize::new(0));
    let (count, peak) = (Arc::clone(&now), Arc::clone(&most));
    let endpoint = Endpoint::start(move |_request| {
        let (now, changed) = &*count;
        let mut under_way = now.lock().expect("a lock");
        *under_way += 1;
        peak.fetch_max(*under_way, Ordering::SeqCst);
        changed.notify_all();
        // All three places are used; more would be noticed.
        let wait =
            changed.wait_timeout_while(under_way, PATIENCE, |_| peak.load(Ordering::SeqCst) < 3);
        drop(wait);
        *now.lock().expect("a lock") -= 1;
        reply(200, "", "")
    });
    let server = server();
    put_group(&server, "t", &json!({"push": {"url": endpoint.url(), "concurrency": 3}}));
    for _ in 0..30 {
        send(&server, "t", &json!({"body": "x"}));
    }
    for _ in 0..30 {
        endpoint.next();
    }
    wait_until_done(&server, "t");
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[test]
fn in_an_ordered_group_a_message_waits_for_the_one_before() {
    let endpoint = Endpoint::start(|request| match (request.text(), request.attempt()) {
        ("a", 1..3) => reply(400, "", ""),
        _ => reply(200, "", ""),
    });
    let server = server();
    let retry = json!({"ladder": ["100ms", "100ms"]});
    put_group(
        &server,
        "t",
        &json!({"push": {"url": endpoint.url()}, "retry": retry, "ordered": true}),
    );
    for body in ["a", "b", "c"] {
        send(&server, "t", &json!({"body": body, "key": "k"}));
    }
    let order: Vec<_> = (0..5).map(|_| endpoint.next().text().to_owned()).collect();
    assert_eq!(order, ["a", "a", "a", "b", "c"]);
    wait_until_done(&server, "t");
}

#[test]
fn a_failing_endpoint_is_spared_and_messages_keep_their_attempts() {
    let requests = AtomicUsize::new(0);
    let endpoint = Endpoint::start(move |_request| {
        // Five fail, and so does the first trial.
        reply(if requests.fetch_add(1, Ordering::SeqCst) < 6 { 500 } else { 200 }, "", "")
    });
    let server = server();
    let push = json!({"url": endpoint.url(), "concurrency": 1});
    put_group(&server, "t", &json!({"push": push, "retry": {"ladder": ["10m", "10m"]}}));
    for _ in 0..20 {
        send(&server, "t", &json!({"body": "x"}));
    }
    let [.., fifth] = [(); 5].map(|()| endpoint.next());
    let trial = endpoint.next();
    assert!(trial.at - fifth.at >= Duration::from_millis(900), "{:?}", trial.at - fifth.at);
    assert_eq!(metric(&server, "punctual_push_pauses_total"), 1);
    assert_eq!(metric(&server, "punctual_push_paused_endpoints"), 1);
    let second = endpoint.next();
    assert!(second.at - trial.at >= Duration::from_millis(1900), "{:?}", second.at - trial.at);
    for _ in 0..13 {
        assert_eq!(endpoint.next().attempt(), 1);
    }
    push_support::wait_for(&server, "t", |group| group["retrying"] == 6 && group["lag"] == 0);
    assert_eq!(metric(&server, "punctual_push_paused_endpoints"), 0);
}

#[test]
fn a_changed_group_is_pushed_as_it_now_says() {
    let (old, new) =
        (Endpoint::start(|_| reply(200, "", "")), Endpoint::start(|_| reply(200, "", "")));
    let server = server();
    send(&server, "t", &json!({"body": "before there was a group"}));
    push_to(&server, "t", &old.url(), &["1s"]);
    assert_eq!(old.next().text(), "before there was a group");
    wait_until_done(&server, "t");

    push_to(&server, "t", &new.url(), &["1s"]);
    send(&server, "t", &json!({"body": "to the new one"}));
    assert_eq!(new.next().text(), "to the new one");
    wait_until_done(&server, "t");

    assert_eq!(server.post("/v1/topics/t/groups/g/pause", "").status, 200);
    send(&server, "t", &json!({"body": "while paused"}));
    new.stays_quiet(QUIET);
    assert_eq!(server.post("/v1/topics/t/groups/g/resume", "").status, 200);
    assert_eq!(new.next().text(), "while paused");
    wait_until_done(&server, "t");

    put_group(&server, "t", &json!({"push": null}));
    send(&server, "t", &json!({"body": "to be fetched"}));
    new.stays_quiet(QUIET);
    let received = server.receive("/v1/topics/t/groups/g", &json!({"wait": "20s"}));
    assert_eq!(received[0]["body"], "to be fetched");
    old.stays_quiet(Duration::ZERO);
}
