//! Is it known who sent a message, and nobody sent it in another's name?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use access_support::{Client, admin_token};
use serde_json::{Value, json};
use support::Server;

const TOPIC: &str = "/v1/topics/orders";

fn ids(page: &Value) -> Vec<&str> {
    let messages = page["messages"].as_array().expect("a list");
    messages.iter().map(|message| message["id"].as_str().expect("an id")).collect()
}

#[test]
fn what_an_app_sent_is_shown_found_and_moved_by_its_key() {
    let server = Server::with(&[("auth.enabled", "true")]);
    let mut admin = Client::new(&server, &admin_token(&server));
    let all =
        json!([{"topics": "*", "groups": "*", "verbs": ["send", "read", "change", "manage"]}]);
    let shop = admin.create("shop", &all, &json!({}));
    let other = admin.create("other", &all, &json!({}));
    let (mut shop, mut other) = (Client::new(&server, &shop), Client::new(&server, &other));
    let message =
        json!({"body": "x", "delay": "1h", "headers": {"punctual-app": "admin", "a": "b"}});
    let sent = shop.done("POST", &format!("{TOPIC}/messages"), &message);
    let batch: Vec<&Value> = vec![&message; 50];
    for _ in 0..3 {
        other.done("POST", &format!("{TOPIC}/messages"), &json!({"messages": batch}));
    }
    let id = sent["id"].as_str().unwrap().to_owned();
    let shown = admin.done("GET", &format!("/v1/messages/{id}"), &Value::Null);
    assert_eq!((&shown["app"], &shown["headers"]), (&json!("shop"), &json!({"a": "b"})));

    let found = admin.done("GET", &format!("{TOPIC}/scheduled?app=shop"), &Value::Null);
    assert_eq!(ids(&found), [id.as_str()]);
    assert_eq!(found["next"], Value::Null);
    let mut seen = 0;
    let mut cursor = String::new();
    loop {
        let path = format!("{TOPIC}/scheduled?app=other&limit=40{cursor}");
        let page = admin.done("GET", &path, &Value::Null);
        assert!(ids(&page).len() <= 40 && !ids(&page).contains(&id.as_str()));
        seen += ids(&page).len();
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, 150);

    // Whoever edits it did not send it.
    let edit = json!({"headers": {"punctual-app": "other", "c": "d"}});
    other.done("PATCH", &format!("/v1/messages/{id}"), &edit);
    let shown = admin.done("GET", &format!("/v1/messages/{id}"), &Value::Null);
    assert_eq!((&shown["app"], &shown["headers"]), (&json!("shop"), &json!({"c": "d"})));
    let cancel = json!({"filter": {"app": "shop"}, "wait": "10s"});
    let job = admin.done("POST", &format!("{TOPIC}/scheduled/cancel"), &cancel);
    assert_eq!((&job["matched"], &job["cancelled"]), (&json!(1), &json!(1)), "{job}");
    let found = admin.done("GET", &format!("{TOPIC}/scheduled?app=shop"), &Value::Null);
    assert_eq!(ids(&found), Vec::<&str>::new());
}

#[test]
fn where_nobody_says_who_they_are_nobody_is_named() {
    let server = Server::start();
    let message = json!({"body": "x", "delay": "1h", "headers": {"punctual-app": "shop"}});
    let id = server.send("orders", &message);
    let shown = server.get(&format!("/v1/messages/{id}")).json();
    assert_eq!((&shown["app"], &shown["headers"]), (&Value::Null, &Value::Null));
}
