//! Do totals and trends survive a restart, and do points say what ten minutes brought?

#![allow(dead_code, clippy::allow_attributes, reason = "the support is shared by all test files")]
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "helpers of tests, which measure real time"
)]

mod access_support;
mod support;

use access_support::{Client, admin_token};
use serde_json::{Value, json};
use support::{Server, wait_for};

/// The sum of a figure over all points.
fn sum(trends: &Value, name: &str) -> u64 {
    let points = trends["points"].as_array().expect("points");
    points.iter().map(|point| point[name].as_u64().unwrap_or(0)).sum()
}

fn trends(server: &Server, query: &str) -> Value {
    let answer = server.get(&format!("/v1/trends{query}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let trends = answer.json();
    assert_eq!(trends["interval"], "10m");
    trends
}

fn advance(server: &Server, by: &str) {
    let answer = server.post("/v1/time/advance", json!({ "by": by }).to_string());
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Sends, cancels, takes and gives up some messages.
fn use_it(server: &Server) {
    for _ in 0..3 {
        server.send("orders", &json!({"body": "later", "delay": "1h"}));
    }
    let gone = server.send("orders", &json!({"body": "gone", "delay": "1h"}));
    assert_eq!(server.delete(&format!("/v1/messages/{gone}")).status, 200);
    server.send("orders", &json!({"body": "now"}));
    server.send("orders", &json!({"body": "now"}));
    let group = "/v1/topics/orders/groups/g";
    let got = server.receive_all(group, 2);
    server.settle(group, "ack", &json!({"receipts": [got[0]["receipt"]]}));
    server.settle(group, "nack", &json!({"receipts": [got[1]["receipt"]], "reject": true}));
}

/// Waits until all of that is counted, and so many rounds of it.
fn counted(server: &Server, rounds: u64) -> Value {
    wait_for("what was done to be counted", || {
        let totals = server.get("/v1/topics/orders").json()["totals"].clone();
        let expected = json!({
            "scheduled": 6 * rounds, "fired": 2 * rounds, "delivered": 2 * rounds,
            "cancelled": rounds, "retried": 0, "dead": rounds,
        });
        (totals == expected).then_some(totals)
    })
}

#[test]
fn totals_and_trends_survive_restarts() {
    let server = Server::start();
    use_it(&server);
    let topic = counted(&server, 1);
    assert_eq!(server.get("/v1/topics").json()["topics"][0]["totals"], topic);
    let before = server.get("/v1/stats").json()["totals"].clone();
    assert_eq!((&before["acked"], &before["received"]), (&json!(1), &json!(2)), "{before}");

    let server = server.restarted(&[]);
    assert_eq!(counted(&server, 1), topic);
    let after = server.get("/v1/stats").json()["totals"].clone();
    for name in ["scheduled", "received", "acked", "cancelled", "retried", "dead"] {
        assert_eq!(after[name], before[name], "{name}");
    }
    // The counters of the process begin at its start.
    let metrics = server.get("/metrics").body;
    assert!(metrics.lines().any(|line| line == "punctual_scheduled_total 0"), "{metrics}");
    use_it(&server);
    counted(&server, 2);
    let server = server.restarted(&[]);
    counted(&server, 2);
    for (query, scheduled) in [("", 12), ("?topic=orders", 12), ("?topic=others", 0)] {
        assert_eq!(sum(&trends(&server, query), "scheduled"), scheduled, "{query}");
    }
    let orders = trends(&server, "?topic=orders");
    for (name, count) in
        [("fired", 4), ("delivered", 4), ("acked", 2), ("cancelled", 2), ("dead", 2)]
    {
        assert_eq!(sum(&orders, name), count, "{name}: {orders}");
    }
    let last = orders["points"].as_array().and_then(|points| points.last()).expect("a point");
    assert_eq!(last["pending"], 6, "{last}");
    let totals = server.get("/v1/stats").json()["totals"].clone();
    assert_eq!(sum(&trends(&server, ""), "acked"), totals["acked"].as_u64().expect("a count"));
    // A topic of the same name is another one.
    assert_eq!(server.delete("/v1/topics/orders").status, 200);
    server.send("orders", &json!({"body": "anew", "delay": "1h"}));
    let anew = server.get("/v1/topics/orders").json()["totals"].clone();
    assert_eq!((&anew["scheduled"], &anew["fired"]), (&json!(1), &json!(0)));
    let server = server.restarted(&[]);
    assert_eq!(server.get("/v1/topics/orders").json()["totals"], anew);
}

#[test]
fn damaged_totals_do_not_stop_a_start() {
    let server = Server::start();
    server.send("orders", &json!({"body": "x", "delay": "1h"}));
    let server = server.restarted_after(&[], |data| {
        let file = data.join("trends/totals.single");
        let text = std::fs::read_to_string(&file).expect("totals were written");
        let other = text.replacen("[1,", "[7,", 1);
        assert_ne!(text, other);
        std::fs::write(&file, other).expect("a file");
    });
    assert_eq!(server.get("/v1/stats").json()["totals"]["scheduled"], 0);
    assert_eq!(server.get("/v1/stats").json()["pending"], 1, "nothing else has changed");
    server.send("orders", &json!({"body": "x", "delay": "1h"}));
    let server = server.restarted(&[]);
    assert_eq!(server.get("/v1/stats").json()["totals"]["scheduled"], 1);
}

#[test]
fn apps_are_counted_by_what_was_stored() {
    let settings = [("auth.enabled", "true"), ("store.durability", "os")];
    let server = Server::with(&settings);
    let mut admin = Client::new(&server, &admin_token(&server));
    let grant = json!([{"topics": "*", "groups": "*", "verbs": ["send"]}]);
    let token = admin.create("shop", &grant, &json!({"pending": 5}));
    let mut shop = Client::new(&server, &token);
    let send = |shop: &mut Client<'_>, body: &Value| {
        shop.json("POST", "/v1/topics/orders/messages", body).status
    };
    let named = json!({"id": "order-1", "body": "abcd", "delay": "1d"});
    assert_eq!(send(&mut shop, &named), 201);
    assert_eq!(send(&mut shop, &named), 200, "it is known");
    let other = json!({"body": "abcd", "delay": "1d"});
    assert_eq!(send(&mut shop, &json!({"messages": [named, other, other]})), 201);
    assert_eq!(send(&mut shop, &json!({"messages": [other, {"body": "x", "delay": "-1s"}]})), 400);
    let many = json!({"messages": vec![other; 6]});
    assert_eq!(send(&mut shop, &many), 429);
    assert_eq!(send(&mut shop, &many), 429);
    let shown = admin.done("GET", "/v1/apps/shop", &Value::Null);
    let totals = shown["totals"].clone();
    assert_eq!((&totals["scheduled"], &totals["refused"]), (&json!(3), &json!(12)), "{totals}");
    let bytes = totals["bytes"].as_u64().expect("a number");
    assert!((12..200).contains(&bytes) && bytes.is_multiple_of(3), "{totals}");
    assert_eq!(admin.done("GET", "/v1/apps/admin", &Value::Null)["totals"]["scheduled"], 0);
    let trend = admin.done("GET", "/v1/trends?app=shop", &Value::Null);
    for (name, count) in [("scheduled", 3), ("bytes", bytes), ("refused", 12)] {
        assert_eq!(sum(&trend, name), count, "{trend}");
    }
    drop((admin, shop));

    let server = server.restarted(&settings);
    let mut admin = Client::new(&server, &admin_token(&server));
    let apps = admin.done("GET", "/v1/apps", &Value::Null);
    let kept =
        apps["apps"].as_array().and_then(|apps| apps.iter().find(|app| app["key"] == "shop"));
    assert_eq!(kept.expect("the app")["totals"], totals);
    assert_eq!(sum(&admin.done("GET", "/v1/trends?app=shop", &Value::Null), "refused"), 12);
    // An app of the same key is another one.
    admin.done("DELETE", "/v1/apps/shop", &Value::Null);
    admin.create("shop", &grant, &json!({}));
    let anew = admin.done("GET", "/v1/apps/shop", &Value::Null);
    assert_eq!(anew["totals"], json!({"scheduled": 0, "bytes": 0, "refused": 0}));
}

#[test]
fn a_point_for_every_ten_minutes() {
    let server = Server::on_virtual_time("2030-01-01T00:03:00Z");
    assert_eq!(trends(&server, ""), json!({"interval": "10m", "points": []}));
    server.send("a", &json!({"body": "x", "delay": "8m"}));
    server.send("a", &json!({"body": "x", "delay": "1d"}));
    server.send("b", &json!({"body": "x", "delay": "1d"}));
    let first = json!({
        "at": "2030-01-01T00:00:00.000Z", "scheduled": 3, "fired": 0, "delivered": 0, "acked": 0,
        "cancelled": 0, "retried": 0, "dead": 0, "pending": 3,
    });
    assert_eq!(trends(&server, "")["points"], json!([first]), "under way");
    advance(&server, "7m");
    advance(&server, "5m");
    assert_eq!(trends(&server, "")["points"][0], first);
    let points = trends(&server, "?topic=a&series=scheduled,fired,pending");
    let expected = json!([
        {"at": "2030-01-01T00:00:00.000Z", "scheduled": 2, "fired": 0, "pending": 2},
        {"at": "2030-01-01T00:10:00.000Z", "scheduled": 0, "fired": 1, "pending": 1},
    ]);
    assert_eq!(points["points"], expected);
    let quiet = trends(&server, "?topic=b&series=scheduled");
    assert_eq!(quiet["points"].as_array().map(Vec::len), Some(1), "it had nothing more to say");
    advance(&server, "10m");
    server.send("a", &json!({"body": "x", "delay": "1d"}));
    let at = |query: &str| -> Vec<String> {
        let points = trends(&server, query)["points"].as_array().expect("points").clone();
        let minute = |point: &Value| point["at"].as_str().expect("a time")[11..16].to_owned();
        points.iter().map(minute).collect()
    };
    assert_eq!(at("?topic=a"), ["00:00", "00:10", "00:20"]);
    assert_eq!(at("?topic=a&from=2030-01-01T00:19:59Z"), ["00:10", "00:20"]);
    assert_eq!(at("?topic=a&from=2030-01-01T00:10:00Z&to=2030-01-01T00:20:00Z"), ["00:10"]);
    assert_eq!(at("?topic=a&to=2029-01-01T00:20:00Z"), [""; 0]);
    let node = trends(&server, "?node=single");
    let last = node["points"].as_array().and_then(|points| points.last()).expect("a point").clone();
    assert_eq!(
        (&last["scheduled"], &last["pending"], &last["slots"]),
        (&json!(1), &json!(3), &json!(1))
    );
    for name in ["memory_bytes", "store_bytes", "disk_free_bytes"] {
        assert!(last[name].as_u64() > Some(0), "{name}: {last}");
    }
    assert_eq!(trends(&server, "?node=other")["points"], json!([]));
    let file = server.data().join("trends/2030-01-01.ndjson");
    assert_eq!(std::fs::read_to_string(file).expect("a day").lines().count(), 2);
    advance(&server, "8d");
    assert_eq!(at("?topic=a&to=2030-01-02T00:00:00Z"), [""; 0], "seven days are kept");
}

#[test]
fn what_cannot_be_asked_for_is_refused() {
    let server = Server::start();
    for (query, code) in [
        ("?topic=a&app=b", "conflicting_fields"),
        ("?topic=a%20b", "invalid_topic_name"),
        ("?topic=%F0%9F%91%BB", "invalid_topic_name"),
        ("?series=bytes", "invalid_parameter"),
        ("?series=", "invalid_parameter"),
        ("?app=x&series=fired", "invalid_parameter"),
        ("?from=yesterday", "invalid_time"),
        ("?limit=3", "unknown_field"),
        ("?topic=a&topic=b", "duplicate_field"),
    ] {
        let refused = server.get(&format!("/v1/trends{query}"));
        assert_eq!((refused.status, refused.code()), (400, code.to_owned()), "{query}");
    }
    for query in ["?topic=nobody", "?app=%F0%9F%91%BB", "?node=%F0%9F%91%BB"] {
        assert_eq!(trends(&server, query)["points"], json!([]), "{query}");
    }
}
