//! Does the forecast tell how much is due when, step by step, of a topic and of everything?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::Server;

const START: &str = "2030-01-01T00:00:00Z";

/// Schedules messages that are due so many seconds after the start.
fn schedule(server: &Server, topic: &str, seconds: &[u64]) {
    for second in seconds {
        server.send(topic, &json!({"body": "x", "delay": format!("{second}s")}));
    }
}

fn counts(forecast: &Value) -> Vec<u64> {
    let steps = forecast["steps"].as_array().unwrap_or_else(|| panic!("{forecast}"));
    steps.iter().map(|step| step["count"].as_u64().expect("a count")).collect()
}

#[test]
fn steps_count_for_themselves() {
    let server = Server::on_virtual_time(START);
    schedule(&server, "t", &[30, 60, 61, 119, 120, 200, 10_000]);
    let forecast = server.get("/v1/topics/t/forecast?within=4m&steps=4").json();
    assert_eq!(counts(&forecast), [2, 3, 0, 1], "{forecast}");
    assert_eq!(forecast["steps"][0]["until"], "2030-01-01T00:01:00.000Z");
    assert_eq!(forecast["steps"][3]["until"], "2030-01-01T00:04:00.000Z");
    assert_eq!((&forecast["total"], &forecast["later"]), (&json!(7), &json!(0)));
    assert_eq!(forecast["due"][0], json!({"within": "1m", "count": 2}));
    assert_eq!(forecast["due"][1], json!({"within": "10m", "count": 6}));
    let plain = server.get("/v1/topics/t/forecast").json();
    assert!(plain.get("steps").is_none() && plain["due"] == forecast["due"], "{plain}");
    // What is not said has a default, and no step is shorter than a second.
    for (query, steps) in [
        ("within=1h", 60),
        ("steps=7", 7),
        ("within=3s&steps=200", 3),
        ("within=0&steps=5", 1),
        ("within=1d&steps=200", 200),
    ] {
        let forecast = server.get(&format!("/v1/topics/t/forecast?{query}")).json();
        assert_eq!(counts(&forecast).len(), steps, "{query}");
    }
}

#[test]
fn what_is_overdue_is_in_the_first_step() {
    let server = Server::on_virtual_time(START);
    server.put("/v1/topics/t", r#"{"rate_cap":1}"#);
    schedule(&server, "t", &[5, 5, 5, 5, 5, 5, 5, 5, 3600]);
    assert_eq!(server.post("/v1/time/advance", r#"{"by":"7s"}"#).status, 200);
    let forecast = server.get("/v1/topics/t/forecast?within=2h&steps=4").json();
    let late = forecast["total"].as_u64().expect("a count") - 1;
    assert!((1..8).contains(&late), "some wait for their turn: {forecast}");
    assert_eq!(counts(&forecast), [late, 1, 0, 0], "{forecast}");
}

#[test]
fn the_whole_is_the_sum_of_its_topics() {
    let server = Server::on_virtual_time(START);
    let empty = server.get("/v1/forecast?within=1m&steps=2").json();
    assert_eq!((&empty["total"], counts(&empty)), (&json!(0), vec![0, 0]));
    schedule(&server, "a", &[10, 50, 90_000]);
    schedule(&server, "b", &[40]);
    server.send("c", &json!({"body": "x", "delay": "1h", "id": "p"}));
    server.patch("/v1/topics/c/messages/p", r#"{"paused":true}"#);
    let half = json!({"producer_group": "p", "messages": [{"topic": "a", "body": "x"}]});
    assert_eq!(server.post("/v1/transactions", half.to_string()).status, 201);
    // Another group of steps has its own look; time has not moved.
    let whole = server.get("/v1/forecast?within=60s&steps=4").json();
    assert_eq!(counts(&whole), [1, 0, 1, 1], "{whole}");
    assert_eq!((&whole["total"], &whole["paused"]), (&json!(5), &json!(1)), "{whole}");
    assert_eq!((&whole["prepared"], &whole["later"]), (&json!(1), &json!(0)), "{whole}");
    assert_eq!(whole["due"][4], json!({"within": "1d", "count": 3}));
    assert_eq!(whole["due"][5], json!({"within": "7d", "count": 4}));
}

#[test]
fn many_who_look_share_one_look() {
    let server = Server::start();
    schedule(&server, "a", &[3600]);
    assert_eq!(server.get("/v1/forecast").json()["total"], 1);
    schedule(&server, "a", &[3600]);
    // Within two seconds, which a slow machine may have passed.
    let soon = server.get("/v1/forecast").json()["total"].as_u64();
    assert!(matches!(soon, Some(1 | 2)), "{soon:?}");
    support::wait_for("a new look", || {
        (server.get("/v1/forecast").json()["total"] == 2).then_some(())
    });
    // Where time is moved by hand, what was told of another time does not count.
    let moved = Server::on_virtual_time(START);
    schedule(&moved, "a", &[100]);
    assert_eq!(counts(&moved.get("/v1/forecast?within=60s&steps=1").json()), [0]);
    assert_eq!(moved.post("/v1/time/advance", r#"{"by":"50s"}"#).status, 200);
    assert_eq!(counts(&moved.get("/v1/forecast?within=60s&steps=1").json()), [1]);
}

#[test]
fn what_makes_no_steps_is_refused() {
    let server = Server::start();
    schedule(&server, "t", &[3600]);
    for path in ["/v1/forecast", "/v1/topics/t/forecast"] {
        for (query, code) in [
            ("within=-1s&steps=1", "invalid_field"),
            ("within=4000d", "invalid_field"),
            ("within=soon", "invalid_field"),
            ("steps=0", "invalid_parameter"),
            ("steps=201", "invalid_parameter"),
            ("steps=x", "invalid_parameter"),
            ("from=1", "unknown_field"),
            ("steps=1&steps=2", "duplicate_field"),
        ] {
            let refused = server.get(&format!("{path}?{query}"));
            assert_eq!((refused.status, refused.code().as_str()), (400, code), "{path} {query}");
        }
    }
}

#[test]
fn lists_are_searched_by_a_part_of_the_name() {
    let server = Server::start();
    for name in ["Orders", "orders-eu", "payments", "re.orders"] {
        server.put(&format!("/v1/topics/{name}/groups/Billing-{name}"), "{}");
    }
    let names = |path: &str, field: &str| -> Vec<String> {
        let answer = server.get(path).json();
        let items = answer[field].as_array().unwrap_or_else(|| panic!("{path}: {answer}"));
        items.iter().map(|item| item["name"].as_str().expect("a name").to_owned()).collect()
    };
    let plain = |path: &str| -> Vec<String> {
        names(path, "topics").into_iter().filter(|name| !name.contains("illing")).collect()
    };
    assert_eq!(plain("/v1/topics?name=ORDER"), ["Orders", "orders-eu", "re.orders"]);
    assert_eq!(plain("/v1/topics?name=.orders"), ["re.orders"]);
    assert_eq!(plain("/v1/topics?name=nowhere"), Vec::<String>::new());
    assert_eq!(plain("/v1/topics?name=%22%3B"), Vec::<String>::new());
    assert_eq!(plain("/v1/topics?name=").len(), 4, "nothing is in every name");
    assert_eq!(names("/v1/groups?name=billing-PAY", "groups"), ["Billing-payments"]);
    let of_topic = "/v1/topics/payments/groups?name=orders";
    assert_eq!(names(of_topic, "groups"), Vec::<String>::new());
    // Page by page, as without.
    let page = server.get("/v1/groups?name=orders&limit=2").json();
    let next = page["next"].as_str().expect("more").replace('/', "%2F");
    let rest = names(&format!("/v1/groups?name=orders&limit=2&cursor={next}"), "groups");
    assert_eq!(rest, ["Billing-re.orders"]);
}
