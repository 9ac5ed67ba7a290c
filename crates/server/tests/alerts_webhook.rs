//! Is whoever is to be told of alerts told: signed, again if it has to be, and never to the harm of
//! anything else?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod alert_support;
mod push_support;
mod support;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alert_support::{Watched, pairs, settings, wait_for_state};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use push_support::{Endpoint, reply};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use support::{Server, wait_for};

const BACKLOG: &str = "pending_backlog";

fn schedule(server: &Server) -> String {
    server.send("t", &json!({"body": "x", "delay": "1h"}))
}

fn cancel(server: &Server, id: &str) {
    assert_eq!(server.delete(&format!("/v1/messages/{id}")).status, 200);
}

fn test(server: &Server) -> Value {
    let answer = server.post("/v1/alerts/test", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
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
fn a_test_is_sent_signed_and_remembered() {
    let watched = Watched::with(BACKLOG, "5", &[]);
    assert_eq!(test(&watched.server), json!({"webhook": "sent", "error": null}));
    let request = watched.next();
    assert_eq!(request.line, "POST /in?x=1 HTTP/1.1");
    assert_eq!(request.headers["content-type"], "application/json");
    let (id, time) = (&request.headers["webhook-id"], &request.headers["webhook-timestamp"]);
    let signed = format!("{id}.{time}.{}", request.text());
    let key = b"a secret for alerts";
    let signature = format!("v1,{}", STANDARD.encode(hmac(key, signed.as_bytes())));
    assert_eq!(request.headers["webhook-signature"], signature);
    let told: Value = serde_json::from_str(request.text()).expect("JSON");
    assert_eq!((&told["rule"], &told["event"]), (&json!("test"), &json!("test")), "{told}");
    assert_eq!(told["node"], "single");
    for field in ["value", "threshold", "unit", "detail"] {
        assert_eq!(told.get(field), Some(&Value::Null), "{field}: {told}");
    }
    let alerts = watched.server.get("/v1/alerts").json();
    assert_eq!(alerts["history"][0]["event"], "test", "{alerts}");
    let webhook = &alerts["webhook"];
    assert_eq!((&webhook["configured"], &webhook["last"]["ok"]), (&json!(true), &json!(true)));
    test(&watched.server);
    assert_ne!(watched.next().headers["webhook-id"], *id, "another one has another id");
}

#[test]
fn nobody_to_tell_and_an_address_that_does_not_answer_are_told_apart() {
    let server = Server::start();
    assert_eq!(test(&server), json!({"webhook": "none", "error": null}));
    // A port that nobody listens at.
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    let settings = settings(&format!("http://{gone}/hidden"), BACKLOG, "5", &[]);
    let server = Server::with(&pairs(&settings));
    let failed = test(&server);
    assert_eq!(failed["webhook"], "failed", "{failed}");
    assert_eq!(failed["error"], "cannot connect: connection refused", "{failed}");
    let webhook = server.get("/v1/alerts").json()["webhook"].clone();
    assert_eq!(
        (&webhook["last"]["ok"], &webhook["last"]["error"]),
        (&json!(false), &failed["error"])
    );
    for shown in [server.get("/v1/alerts").body, failed.to_string()] {
        assert!(!shown.contains("hidden") && !shown.contains(&gone.to_string()), "{shown}");
    }
    assert_eq!(server.post("/v1/alerts/test?x=1", "").status, 400);
}

#[test]
fn a_failing_address_is_tried_again_with_the_same_id() {
    let count = AtomicUsize::new(0);
    let endpoint = Endpoint::start(move |_| match count.fetch_add(1, Ordering::SeqCst) {
        0 => reply(500, "", "not now"),
        _ => reply(200, "", ""),
    });
    let watched = Watched::telling(endpoint, BACKLOG, "1", &[]);
    schedule(&watched.server);
    let (first, second) = (watched.next(), watched.next());
    assert_eq!(first.headers["webhook-id"], second.headers["webhook-id"]);
    assert_eq!(first.body, second.body);
    assert!(second.at.duration_since(first.at) >= Duration::from_millis(900), "there is a pause");
    wait_for("that it was told", || {
        let webhook = watched.server.get("/v1/alerts").json()["webhook"].clone();
        (webhook["last"]["ok"] == true).then_some(())
    });
}

#[test]
fn an_address_that_never_answers_holds_up_nothing() {
    // Takes connections and says nothing.
    let endpoint = Endpoint::serving(|stream, _seen| {
        let _kept = stream;
        std::thread::park();
    });
    let watched = Watched::telling(endpoint, BACKLOG, "1", &[]);
    let server = &watched.server;
    for round in 1..=3 {
        let id = schedule(server);
        wait_for_state(server, BACKLOG, "firing");
        cancel(server, &id);
        wait_for_state(server, BACKLOG, "ok");
        let history = server.get("/v1/alerts").json()["history"].as_array().map(Vec::len);
        assert_eq!(history, Some(2 * round), "all is seen while nobody could be told");
    }
    assert_eq!(server.get("/v1/alerts").json()["webhook"]["last"], Value::Null);
}

#[test]
fn the_address_can_be_changed_while_the_server_runs() {
    let watched = Watched::with(BACKLOG, "1", &[]);
    let other = Endpoint::start(|_| reply(200, "", ""));
    watched.server.reload(&[("alerts.webhook", &other.url())]);
    schedule(&watched.server);
    let told: Value = serde_json::from_str(other.next().text()).expect("JSON");
    assert_eq!(told["event"], "firing");
    assert_eq!(watched.endpoint.connections(), 0);
}

#[test]
fn g46_what_is_not_allowed_any_more_is_not_reached() {
    let watched = Watched::with(BACKLOG, "1", &[]);
    assert_eq!(test(&watched.server)["webhook"], "sent");
    for refused in [
        [("push.allow", "10.0.0.0/8"), ("alerts.webhook", "http://localhost:1/hidden")],
        [("push.allow", ""), ("alerts.webhook", "http://169.254.169.254/hidden")],
        [("push.allow", ""), ("alerts.webhook", "http://[::ffff:10.0.0.1]/hidden")],
    ] {
        let error = watched.server.try_reload(&refused).expect_err("it is refused").to_string();
        assert!(error.contains("push.allow") && !error.contains("hidden\""), "{error}");
    }
    assert_eq!(test(&watched.server)["webhook"], "sent", "all is as before");
}

#[test]
fn a_redirect_is_not_followed() {
    let inside = Endpoint::start(|_| reply(200, "", ""));
    let location = format!("location: {}\r\n", inside.url());
    let endpoint = Endpoint::start(move |_| reply(307, &location, ""));
    let watched = Watched::telling(endpoint, BACKLOG, "5", &[]);
    let failed = test(&watched.server);
    assert_eq!((&failed["webhook"], &failed["error"]), (&json!("failed"), &json!("HTTP 307")));
    assert_eq!(inside.connections(), 0);
}
