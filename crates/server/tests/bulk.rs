//! Can many pending messages be changed at once over HTTP, and are jobs seen and stopped?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::Server;

const SCHEDULED: &str = "/v1/topics/orders/scheduled";

fn filled(server: &Server) {
    let message = |number: usize| {
        let key = if number.is_multiple_of(2) { "even-1" } else { "odd-1" };
        json!({"body": number, "key": key, "delay": "1h"})
    };
    let batch = json!({"messages": (0..10).map(message).collect::<Vec<_>>()});
    let answer = server.post("/v1/topics/orders/messages", batch.to_string());
    assert_eq!(answer.status, 201, "{}", answer.body);
}

fn bulk(server: &Server, verb: &str, ask: &Value) -> Value {
    let mut ask = ask.clone();
    ask["wait"] = json!("20s");
    let answer = server.post(&format!("{SCHEDULED}/{verb}"), ask.to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

fn count(server: &Server, query: &str) -> usize {
    let listed = server.get(&format!("{SCHEDULED}?{query}")).json();
    listed["messages"].as_array().expect("messages").len()
}

#[test]
fn many_are_cancelled_after_they_were_counted() {
    let server = Server::start();
    filled(&server);
    let even = json!({"filter": {"key_prefix": "even"}, "dry_run": true});
    let counted = bulk(&server, "cancel", &even);
    assert_eq!((&counted["matched"], &counted["cancelled"]), (&json!(5), &json!(0)));
    assert_eq!(count(&server, ""), 10);
    let cancelled = bulk(&server, "cancel", &json!({"filter": {"key_prefix": "even"}}));
    assert_eq!((&cancelled["matched"], &cancelled["cancelled"]), (&json!(5), &json!(5)));
    assert_eq!((&cancelled["state"], &cancelled["failed"]), (&json!("done"), &json!(0)));
    assert_eq!((count(&server, ""), count(&server, "key_prefix=even")), (5, 0));
    let all = bulk(&server, "cancel", &json!({"all": true}));
    assert_eq!(all["cancelled"], 5);
    let jobs = server.get(&format!("{SCHEDULED}/jobs")).json()["jobs"].clone();
    assert_eq!((jobs.as_array().unwrap().len(), &jobs[0]["job"]), (3, &all["job"]));
    let job = cancelled["job"].as_str().unwrap();
    let shown = server.get(&format!("{SCHEDULED}/jobs/{job}")).json();
    assert_eq!((&shown["kind"], &shown["done"]), (&json!("cancel"), &json!(5)));
    let stopped = server.delete(&format!("{SCHEDULED}/jobs/{job}"));
    assert_eq!((stopped.status, &stopped.json()["state"]), (200, &json!("done")));
    assert_eq!(server.get(&format!("{SCHEDULED}/jobs/0000000000000000")).code(), "job_not_found");
}

#[test]
fn many_are_moved_paused_resumed_and_delivered() {
    let server = Server::start();
    filled(&server);
    let odd = json!({"key": "odd-1"});
    let to = "2030-01-01T00:00:00.000Z";
    let late = server.post(
        &format!("{SCHEDULED}/reschedule"),
        json!({"filter": odd, "deliver_at": to, "wait": "20s"}).to_string(),
    );
    assert_eq!((late.status, late.code().as_str()), (400, "delay_too_long"), "{}", late.body);
    let moved = bulk(&server, "reschedule", &json!({"filter": odd, "delay": "5h"}));
    assert_eq!(moved["rescheduled"], 5);
    let due = |server: &Server| {
        let listed = server.get(&format!("{SCHEDULED}?key=odd-1")).json();
        listed["messages"][0]["due"].as_str().unwrap().to_owned()
    };
    let before = due(&server);
    let shifted = bulk(&server, "reschedule", &json!({"filter": odd, "shift": "-1h"}));
    assert_eq!(shifted["rescheduled"], 5);
    assert!(due(&server) < before);
    let paused = bulk(&server, "pause", &json!({"filter": odd}));
    assert_eq!((&paused["paused"], count(&server, "state=paused")), (&json!(5), 5));
    let resumed = bulk(&server, "resume", &json!({"all": true}));
    assert_eq!((&resumed["resumed"], count(&server, "state=paused")), (&json!(5), 0));
    let delivered = bulk(&server, "deliver", &json!({"filter": odd}));
    assert_eq!(delivered["delivered"], 5);
    let received = server.receive_all("/v1/topics/orders/groups/g", 5);
    assert!(received.iter().all(|message| message["key"] == "odd-1"));
    // What was delivered is no longer pending a moment after it can be received.
    support::wait_for("five to be left", || (count(&server, "") == 5).then_some(()));
}

#[test]
fn a_long_job_is_answered_before_it_ends() {
    let server = Server::start();
    filled(&server);
    let ask = json!({"all": true, "wait": 0});
    let answer = server.post(&format!("{SCHEDULED}/pause"), ask.to_string());
    assert!(matches!(answer.status, 200 | 202), "{}", answer.body);
    let job = answer.json()["job"].as_str().unwrap().to_owned();
    support::wait_for("the end of the job", || {
        let job = server.get(&format!("{SCHEDULED}/jobs/{job}")).json();
        (job["state"] == "done").then_some(())
    });
    assert_eq!(count(&server, "state=paused"), 10);
}
