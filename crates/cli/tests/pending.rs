//! Commands about messages that are still to come, against a real server.
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod command_support;
mod process_support;

use command_support::{Server, text};
use process_support::http::Client;
use process_support::wait_for;
use serde_json::{Value, json};
use tempfile::TempDir;

fn id_of(value: &Value) -> String {
    value["id"].as_str().expect("an id").to_owned()
}

#[test]
fn an_own_id_names_a_message_in_its_topic() {
    let server = Server::start();
    let send = ["send", "orders", "hello", "--delay", "1h", "--id", "order/1 ü"];
    let first = server.json(&send).remove(0);
    let again = server.json(&send).remove(0);
    assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    let other = server.run(&["send", "orders", "other", "--delay", "1h", "--id", "order/1 ü"]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("id_conflict"), "{}", text(&other.stderr));
    let place = ["order/1 ü", "--topic", "orders"];
    let message = server.json(&[&["get"], &place[..]].concat()).remove(0);
    assert_eq!((&message["id"], &message["own_id"]), (&first["id"], &json!("order/1 ü")));
    let replaced = [&send[..2], &["new"], &send[3..], &["--replace"]].concat();
    let second = server.json(&replaced).remove(0);
    assert_ne!(second["id"], first["id"]);
    assert_eq!(server.json(&["get", &id_of(&first)])[0]["state"], "cancelled");
    assert_eq!(server.json(&[&["cancel"], &place[..]].concat())[0]["result"], "cancelled");
    assert_eq!(server.json(&["get", &id_of(&second)])[0]["state"], "cancelled");
}

#[test]
fn a_message_is_put_off_paused_and_delivered_at_last() {
    let server = Server::start();
    let sent = server.json(&["send", "orders", "hello", "--delay", "1h", "--id", "a"]).remove(0);
    let id = id_of(&sent);
    let at = "2031-01-01T00:00:00.000Z";
    let refused = server.run(&["reschedule", &id, "--at", at]);
    assert!(text(&refused.stderr).contains("delay"), "{}", text(&refused.stderr));
    let moved = server.json(&["reschedule", &id, "--delay", "2h"]).remove(0);
    assert_eq!((&moved["id"], &moved["version"]), (&json!(id), &json!(2)));
    assert_ne!(moved["due"], sent["due"]);
    let paused = server.json(&["pause", "a", "--topic", "orders"]).remove(0);
    assert_eq!(paused["state"], "paused");
    assert!(paused["remaining"].is_string());
    assert_eq!(server.json(&["list", "orders"]).len(), 0);
    assert_eq!(server.json(&["list", "orders", "--state", "paused"])[0]["id"], json!(id));
    assert_eq!(server.json(&["resume", &id])[0]["state"], "scheduled");
    let human = text(&server.run(&["pause", &id]).stdout);
    assert!(human.contains("paused") && human.contains("left"), "{human}");
    server.json(&["deliver-now", &id]);
    let delivered = || {
        let message = server.json(&["get", &id]).remove(0);
        (message["state"] == "delivered").then_some(())
    };
    wait_for("the delivery", delivered);
    let late = server.run(&["pause", &id]);
    assert!(text(&late.stderr).contains("already_delivered"), "{}", text(&late.stderr));
}

#[test]
fn many_messages_are_changed_at_once() {
    let server = Server::start();
    for key in ["a-1", "a-2", "b-1"] {
        server.json(&["send", "orders", "x", "--delay", "1h", "--key", key]);
    }
    let bulk = |arguments: &[&str]| server.json(&[&["bulk"], arguments].concat()).remove(0);
    let dry = bulk(&["cancel", "orders", "--key-prefix", "a-", "--dry-run"]);
    assert_eq!((&dry["matched"], &dry["cancelled"]), (&json!(2), &json!(0)));
    let refused = server.run(&["bulk", "cancel", "orders"]);
    assert!(text(&refused.stderr).contains("empty_filter"), "{}", text(&refused.stderr));
    assert_eq!(bulk(&["pause", "orders", "--all"])["paused"], 3);
    assert_eq!(bulk(&["resume", "orders", "--key", "a-1"])["resumed"], 1);
    assert_eq!(bulk(&["resume", "orders", "--all"])["resumed"], 2);
    assert_eq!(bulk(&["reschedule", "orders", "--shift", "-10m", "--all"])["rescheduled"], 3);
    assert_eq!(bulk(&["reschedule", "orders", "--delay", "2h", "--all"])["rescheduled"], 3);
    let human = server.run(&["bulk", "cancel", "orders", "--key-prefix", "a-"]);
    assert_eq!(text(&human.stdout), "2 of 2 cancelled\n", "{}", text(&human.stderr));
    assert_eq!(server.json(&["list", "orders"]).len(), 1);
    assert_eq!(server.json(&["list", "orders", "--key-prefix", "b"]).len(), 1);
    let audit = server.json(&["audit", "--topic", "orders"]);
    assert!(audit.iter().any(|entry| entry["what"] == "bulk_cancel"), "{audit:?}");
}

#[test]
fn a_series_is_sent_listed_and_cancelled() {
    let server = Server::start();
    let send = ["send", "orders", "tick", "--every", "10m", "--count", "3"];
    let series = id_of(&server.json(&send)[0]);
    let cron = ["send", "orders", "tock", "--cron", "0 9 * * 1-5", "--tz", "Asia/Shanghai"];
    server.json(&cron);
    assert_eq!(server.json(&["series", "orders"]).len(), 2);
    assert_eq!(server.json(&["get", &series])[0]["repeat"]["every"], "10m");
    assert_eq!(server.json(&["list", "orders"]).len(), 2);
    server.json(&["cancel", &series]);
    assert_eq!(server.json(&["series", "orders"]).len(), 1);
    assert_eq!(server.json(&["list", "orders"]).len(), 1);
    let both = server.run(&["send", "orders", "x", "--every", "1m", "--cron", "* * * * *"]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn the_forecast_and_the_levels() {
    let server = Server::start();
    for delay in ["30s", "5m", "2h"] {
        server.json(&["send", "orders", "x", "--delay", delay]);
    }
    server.json(&["send", "letters", "x", "--delay", "30s"]);
    let forecast = server.json(&["forecast", "orders"]).remove(0);
    let counts: Vec<u64> = forecast["due"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reach| reach["count"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [1, 2, 2, 3, 3, 3, 3]);
    assert_eq!(server.json(&["forecast"]).len(), 2);
    assert_eq!(server.json(&["levels", "list"])[0]["levels"][2], "10s");
    assert_eq!(server.json(&["levels", "set", "3=15s", "18=3h"])[0]["levels"][17], "3h");
    assert_eq!(server.json(&["levels", "list"])[0]["levels"][2], "15s");
    assert_eq!(server.run(&["levels", "set", "19=1s"]).status.code(), Some(1));
    assert_eq!(server.run(&["levels", "set", "3"]).status.code(), Some(2));
    let settings = ["--max-delay", "1h", "--jitter", "none", "--catch-up", "spread:10m"];
    let set = [&["topics", "set", "orders", "--rate-cap", "100"], &settings[..]].concat();
    let topic = server.json(&set).remove(0);
    assert_eq!((&topic["max_delay"], &topic["rate_cap"]), (&json!("1h"), &json!(100)));
    assert_eq!(topic["catch_up"], json!({"spread": "10m"}));
    assert_eq!(server.run(&["send", "orders", "x", "--delay", "2h"]).status.code(), Some(1));
}

#[test]
fn what_is_pending_moves_to_another_server() {
    let (from, to) = (Server::start(), Server::start());
    for number in 0..5 {
        let (body, id) = (format!("body {number}"), format!("id-{number}"));
        from.json(&["send", "orders", &body, "--delay", "1h", "--id", &id, "--key", "k"]);
    }
    from.json(&["pause", "id-4", "--topic", "orders"]);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("orders.ndjson");
    let file = file.to_str().unwrap();
    let export = from.run(&["export", "orders", "--file", file]);
    assert_eq!(export.status.code(), Some(0), "{}", text(&export.stderr));
    let lines = std::fs::read_to_string(file).unwrap();
    assert_eq!(lines.lines().count(), 6, "{lines}");
    assert_eq!(text(&from.run(&["export", "orders"]).stdout), lines);
    let imported = to.json(&["import", "orders", "--file", file]).remove(0);
    assert_eq!((&imported["imported"], &imported["duplicates"]), (&json!(5), &json!(0)));
    let again = to.json(&["import", "orders", "--file", file]).remove(0);
    assert_eq!((&again["imported"], &again["duplicates"]), (&json!(0), &json!(5)));
    let dues = |server: &Server| -> Vec<(Value, Value)> {
        let listed = server.json(&["list", "orders"]);
        listed.into_iter().map(|one| (one["due"].clone(), one["body"].clone())).collect()
    };
    assert_eq!(dues(&from), dues(&to));
    assert_eq!(to.json(&["list", "orders", "--state", "paused"]).len(), 1);
    let message = to.json(&["get", "id-3", "--topic", "orders"]).remove(0);
    assert_eq!((&message["body"], &message["key"]), (&json!("body 3"), &json!("k")));
    std::fs::write(file, format!("{lines}nonsense\n")).unwrap();
    let broken = to.run(&["import", "orders", "--file", file]);
    assert_eq!(broken.status.code(), Some(1));
    assert!(text(&broken.stderr).contains("line 7"), "{}", text(&broken.stderr));
}

#[test]
fn transactions_are_listed_and_decided() {
    let server = Server::start();
    assert_eq!(server.json(&["transactions", "list"]).len(), 0);
    let body = json!({"producer_group": "shop", "messages": [{"topic": "orders", "body": "x"}]});
    let address = server.url.trim_start_matches("http://").parse().unwrap();
    let mut client = Client::connect(address).unwrap();
    let id = id_of(&client.post("/v1/transactions", &body).unwrap().expect(201));
    let listed = server.json(&["transactions", "list", "--producer-group", "shop"]);
    assert_eq!((listed.len(), &listed[0]["state"]), (1, &json!("prepared")));
    let decided = server.json(&["transactions", "commit", &id, "--reason", "paid"]).remove(0);
    assert_eq!(decided["state"], "committed");
    let opposite = server.run(&["transactions", "rollback", &id]);
    assert!(text(&opposite.stderr).contains("already_decided"), "{}", text(&opposite.stderr));
    assert_eq!(server.json(&["transactions", "show", &id])[0]["state"], "committed");
}
