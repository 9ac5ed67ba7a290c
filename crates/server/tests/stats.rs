//! Do the figures about the whole broker tell the truth, and does every answer name its request?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use std::collections::HashSet;

use serde_json::{Value, json};
use support::{Server, wait_for};
use wire::{Wire, ask};

#[test]
fn figures_follow_what_happens() {
    let server = Server::start();
    let empty = server.get("/v1/stats").json();
    assert_eq!((&empty["topic_count"], &empty["pending"]), (&json!(0), &json!(0)));
    assert_eq!(empty["lateness"], json!({"p50_ms": null, "p99_ms": null, "count": 0}));
    for n in 0..3 {
        server.send("a", &json!({"body": n, "delay": "1h"}));
    }
    let gone = server.send("b", &json!({"body": "gone", "delay": "1h"}));
    server.send("b", &json!({"body": "stays", "delay": "1h"}));
    server.delete(&format!("/v1/messages/{gone}"));
    server.send("a", &json!({"body": "now"}));
    server.send("a", &json!({"body": "now"}));
    let group = "/v1/topics/a/groups/g";
    let got = server.receive_all(group, 2);
    server.settle(group, "ack", &json!({"receipts": [got[0]["receipt"]]}));
    server.settle(group, "nack", &json!({"receipts": [got[1]["receipt"]], "reject": true}));
    // What was delivered is counted, and no longer pending, a moment after it can be seen.
    let stats = wait_for("the dead letter", || {
        let stats = server.get("/v1/stats").json();
        let is_counted = stats["lateness"]["count"].as_u64() >= Some(2);
        (stats["dead_letters"] == 1 && stats["pending"] == 4 && is_counted).then_some(stats)
    });
    // The dead letters of the group are a topic too.
    assert_eq!((&stats["group_count"], &stats["topic_count"]), (&json!(1), &json!(3)), "{stats}");
    assert_eq!((&stats["pending"], &stats["in_flight"]), (&json!(4), &json!(0)), "{stats}");
    let totals = &stats["totals"];
    for (name, count) in
        [("received", 2), ("acked", 1), ("cancelled", 1), ("dead", 1), ("retried", 0)]
    {
        assert_eq!(totals[name], count, "{name}: {totals}");
    }
    assert!(totals["scheduled"].as_u64() >= Some(7), "{totals}");
    assert_eq!(stats["topics"][0], json!({"name": "a", "pending": 3}));
    assert_eq!(stats["topics"][1], json!({"name": "b", "pending": 1}));
    assert_eq!(stats["groups"][0]["name"], "g");
    assert!(stats["lateness"]["count"].as_u64() >= Some(2), "{stats}");
    assert!(stats["lateness"]["p99_ms"].as_f64() >= stats["lateness"]["p50_ms"].as_f64());
    assert!(stats["journal_sync"]["count"].as_u64() > Some(0), "{stats}");
    assert!(stats["memory_bytes"].as_u64() > Some(1 << 20), "{stats}");
    assert!(stats["store_bytes"].as_u64() > Some(0), "{stats}");
    assert!(stats["connections"]["open"].as_u64() >= Some(1), "{stats}");
    assert_eq!(stats["connections"]["max"], 1024);
    assert_eq!((&stats["version"], &stats["virtual"]), (&json!("0.1.0"), &json!(false)));
    assert!(stats["started_at"].as_str() <= stats["now"].as_str(), "{stats}");
    let one = server.get("/v1/stats?limit=1").json();
    assert_eq!(one["topics"].as_array().map(Vec::len), Some(1));
    for query in ["?limit=0", "?limit=1001", "?x=1"] {
        assert_eq!(server.get(&format!("/v1/stats{query}")).status, 400, "{query}");
    }
}

#[test]
fn one_machine_is_all_of_the_cluster() {
    let server = Server::start();
    let cluster = server.get("/v1/cluster").json();
    assert_eq!(cluster["mode"], "single");
    let nodes = cluster["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0]["id"], cluster["node"]);
    assert_eq!(nodes[0]["address"], server.address.to_string());
    assert_eq!(nodes[0]["slots"], cluster["slots"]["total"]);
    assert_eq!((&cluster["slots"]["unowned"], &nodes[0]["term"]), (&json!(0), &json!(1)));
    assert!(cluster["assignment"].is_null() && cluster["leader"] == cluster["node"], "{cluster}");
    assert_eq!(cluster["memory"], json!({"slots": 1, "entries": 0, "bytes": 0, "frontier": null}));
    server.send("orders", &json!({"body": "x", "delay": "1h"}));
    let memory = &server.get("/v1/cluster").json()["memory"];
    assert!(memory["entries"] == 1 && memory["bytes"].as_u64() > Some(1), "{memory}");
    let slots = server.get("/v1/cluster?slots=true").json();
    let only = json!([{"slot": 0, "owner": "single", "term": 1, "next": null}]);
    assert_eq!(slots["assignment"], only);
    for query in ["?slots=maybe", "?x=1"] {
        assert_eq!(server.get(&format!("/v1/cluster{query}")).status, 400, "{query}");
    }
}

#[test]
fn one_machine_has_nothing_to_divide() {
    let server = Server::start();
    let put = |json: &str| server.put("/v1/cluster", json);
    assert_eq!(put(r#"{"slots":1}"#).json()["slots"]["total"], 1, "that is what it has");
    let refused = put(r#"{"slots":2}"#);
    assert_eq!((refused.status, refused.code()), (409, "not_a_cluster".to_owned()));
    for json in [r#"{"slots":0}"#, r#"{"slots":65537}"#, "{}", r#"{"slots":1,"nodes":2}"#] {
        assert_eq!(put(json).status, 400, "{json}");
    }
}

#[test]
fn nobody_speaks_like_a_node_where_there_is_no_cluster() {
    let server = Server::start();
    let secret = [("punctual-cluster-secret", "none")];
    for method in ["POST", "GET", "PUT"] {
        let (head, _) = ask(&server, method, "/internal/v1/timeline", &secret, b"\x01\x02\x00");
        assert_eq!(head.status, 404, "{method}");
    }
}

#[test]
fn every_answer_names_its_request() {
    let server = Server::start();
    let asked = [
        ("GET", "/v1/topics", 200),
        ("HEAD", "/v1/topics", 200),
        ("GET", "/v1/topics/none", 404),
        ("GET", "/nowhere", 404),
        ("PUT", "/metrics", 405),
        ("POST", "/v1/topics/t/messages", 415),
        ("GET", "/health/live", 200),
    ];
    let mut seen = HashSet::new();
    for (method, path, status) in asked {
        let (head, _) = ask(&server, method, path, &[], b"");
        assert_eq!(head.status, status, "{method} {path}");
        let id = head.get("x-request-id").expect("an id").to_owned();
        assert!(seen.insert(id.clone()), "{id} twice");
        let (head, _) = ask(&server, method, path, &[("x-request-id", "mine-7")], b"");
        assert_eq!(head.all("x-request-id"), ["mine-7"], "{method} {path}");
        let long = "x".repeat(129);
        let (head, _) = ask(&server, method, path, &[("x-request-id", &long)], b"");
        assert_ne!(head.get("x-request-id"), Some(long.as_str()));
    }
    // Also one that is refused before its body was read.
    let mut wire = Wire::open(&server);
    wire.send(
        "POST /v1/topics/t/messages HTTP/1.1\r\nhost: localhost\r\nx-request-id: big\r\n\
         content-type: application/json\r\ncontent-length: 9999999999\r\n\r\n",
    );
    let head = wire.head();
    assert_eq!((head.status, head.get("x-request-id")), (413, Some("big")));
    let mut wire = Wire::open(&server);
    wire.send("GET / HTTP/1.1\r\nhost: evil.test\r\nx-request-id: evil\r\n\r\n");
    let head = wire.head();
    assert_eq!((head.status, head.get("x-request-id")), (421, Some("evil")));
}

#[test]
fn every_path_answers_a_head_like_a_get() {
    let server = Server::start();
    let id = server.send("t", &json!({"body": "x", "delay": "1h"}));
    server.put("/v1/topics/t/groups/g", "{}");
    let by_id = format!("/v1/messages/{id}");
    for path in [
        "/v1/topics",
        "/v1/topics/t",
        "/v1/topics/t/scheduled",
        "/v1/topics/t/scheduled/jobs",
        "/v1/topics/t/series",
        "/v1/topics/t/forecast",
        "/v1/topics/t/forecast?within=1h&steps=4",
        "/v1/forecast",
        "/v1/topics/t/export",
        "/v1/topics/t/partitions/0/messages",
        "/v1/topics/t/groups",
        "/v1/topics/t/groups/g",
        "/v1/topics/t/groups/g/offsets",
        "/v1/topics/t/groups/g/dead",
        "/v1/topics/t/groups/g/dead/summary",
        "/v1/groups",
        "/v1/levels",
        "/v1/transactions",
        "/v1/audit",
        "/v1/time",
        "/v1/stats",
        "/v1/cluster",
        "/health/live",
        "/health/ready",
        "/metrics",
        "/openapi.json",
        &by_id,
    ] {
        let (get, _) = ask(&server, "GET", path, &[], b"");
        let (head, _) = ask(&server, "HEAD", path, &[], b"");
        assert_eq!((get.status, head.status), (200, 200), "{path}");
        assert_eq!(get.get("content-type"), head.get("content-type"), "{path}");
        let (options, body) = ask(&server, "OPTIONS", path, &[], b"");
        assert_eq!(options.status, 405, "{path}");
        assert!(options.get("allow").is_some_and(|allow| allow.contains("GET")), "{path}");
        let problem: Value = serde_json::from_slice(&body).expect("a problem");
        assert_eq!(problem["code"], "method_not_allowed");
    }
}

#[test]
fn every_list_is_read_page_by_page() {
    let server = Server::with(&[("store.durability", "os")]);
    for n in 0..5 {
        server.put(&format!("/v1/topics/t{n}/groups/g"), "{}");
        let every = json!({"body": n, "repeat": {"every": "1h"}});
        server.send("t", &every);
        server.send("t", &json!({"body": n, "delay": "1h"}));
        server.post("/v1/topics/t/scheduled/pause", r#"{"filter":{"key":"none"}}"#);
        let prepare = json!({"producer_group": "p", "messages": [{"topic": "t", "body": "x"}]});
        assert_eq!(server.post("/v1/transactions", prepare.to_string()).status, 201);
    }
    let lists = [
        ("/v1/topics", "topics"),
        ("/v1/groups", "groups"),
        ("/v1/topics/t/scheduled", "messages"),
        ("/v1/topics/t/series", "series"),
        ("/v1/topics/t/scheduled/jobs", "jobs"),
        ("/v1/transactions", "transactions"),
        ("/v1/audit", "entries"),
    ];
    for (path, field) in lists {
        let whole = server.get(&format!("{path}?limit=1000")).json();
        let whole = whole[field].as_array().expect("a list").clone();
        assert!(whole.len() >= 5, "{path}: {}", whole.len());
        let (mut pages, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("{path}?limit=2{cursor}")).json();
            let items = page[field].as_array().expect("a list").clone();
            assert!(items.len() <= 2, "{path}");
            pages.extend(items);
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", next.replace('/', "%2F")),
                None => {
                    assert!(page.get("next").is_some(), "{path}: next is always told");
                    break;
                }
            }
        }
        assert_eq!(pages, whole, "{path}");
        for (query, code) in [
            ("limit=0", "invalid_parameter"),
            ("limit=1001", "invalid_parameter"),
            ("cursor=%20", "invalid_cursor"),
        ] {
            let refused = server.get(&format!("{path}?{query}"));
            assert_eq!((refused.status, refused.code().as_str()), (400, code), "{path} {query}");
        }
    }
}

#[test]
fn what_is_made_says_where_it_is() {
    let server = Server::start();
    let post = |path: &str, body: Value| {
        let json = ("content-type", "application/json");
        ask(&server, "POST", path, &[json], body.to_string().as_bytes())
    };
    let (head, body) =
        post("/v1/topics/t/messages", json!({"body": "x", "delay": "1h", "id": "a"}));
    let view: Value = serde_json::from_slice(&body).expect("JSON");
    let place = head.get("location").expect("a place").to_owned();
    assert_eq!(
        (head.status, place.as_str()),
        (201, &*format!("/v1/messages/{}", view["id"].as_str().expect("an id")))
    );
    assert_eq!(server.get(&place).json()["id"], view["id"]);
    let (head, _) = post("/v1/topics/t/messages", json!({"body": "x", "delay": "1h", "id": "a"}));
    assert_eq!((head.status, head.get("location")), (200, None), "nothing new");
    let prepare = json!({"producer_group": "p", "messages": [{"topic": "t", "body": "x"}]});
    let (head, _) = post("/v1/transactions", prepare);
    let place = head.get("location").expect("a place").to_owned();
    assert_eq!(server.get(&place).json()["state"], "prepared");
}
