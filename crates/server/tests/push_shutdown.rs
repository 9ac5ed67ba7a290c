//! What becomes of pushes that are under way when the server is asked to stop?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod push_support;
mod support;

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use push_support::{Endpoint, QUIET, push_to, reply, send, wait_until_done};
use serde_json::json;
use support::Server;

#[test]
fn a_push_under_way_is_finished_and_no_other_started() {
    let (release, released) = channel::<()>();
    let released = Mutex::new(released);
    let endpoint = Endpoint::start(move |_request| {
        // Whoever released it may be gone.
        let _gone = released.lock().expect("a lock").recv().is_err();
        reply(200, "", "")
    });
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data").display().to_string();
    let settings = [("push.allow", "127.0.0.0/8"), ("store.data", data.as_str())];
    let mut server = Server::with(&settings);
    push_to(&server, "t", &endpoint.url(), &["1s"]);
    send(&server, "t", &json!({"body": "first"}));
    assert_eq!(endpoint.next().text(), "first");
    server.stop();
    release.send(()).expect("it waits");
    server.join().expect("it ends well");

    drop(release);
    let server = Server::with(&settings);
    send(&server, "t", &json!({"body": "second"}));
    assert_eq!(endpoint.next().text(), "second", "the first was acked");
    wait_until_done(&server, "t");
    endpoint.stays_quiet(QUIET);
}

#[test]
fn a_push_that_does_not_end_is_not_waited_for_and_comes_again() {
    let (_held, never) = channel::<()>();
    let never = Mutex::new(Some(never));
    let endpoint = Endpoint::start(move |_request| {
        let first = never.lock().expect("a lock").take();
        if let Some(never) = first {
            let _gone = never.recv().is_err();
        }
        reply(200, "", "")
    });
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data").display().to_string();
    let settings = [
        ("push.allow", "127.0.0.0/8"),
        ("store.data", data.as_str()),
        ("http.drain_timeout", "50s"),
    ];
    let mut server = Server::with(&settings);
    push_to(&server, "t", &endpoint.url(), &["1s"]);
    send(&server, "t", &json!({"body": "first"}));
    endpoint.next();
    let start = Instant::now();
    server.join().expect("it ends well");
    // It is waited for five seconds; the endpoint has thirty.
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());

    let server = Server::with(&settings);
    let again = endpoint.next();
    assert_eq!((again.text(), again.attempt()), ("first", 1));
    wait_until_done(&server, "t");
}
