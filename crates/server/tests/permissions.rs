//! May everybody do exactly what they were granted, on everything that can be asked? (G43)
//!
//! The list of routes comes from the server itself, so a new one is asked about too. For each of them
//! every caller asks about what is its own and what is foreign, what is there and what is missing.
//! What a path names is decided before anything else is looked at; an unknown parameter therefore
//! tells a request that was let in from one that was not, and changes nothing.
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use access_support::{
    Client, NOBODY, PARTIAL, WHOLE, admin_token, comparable, let_in, visitors, world,
};
use punctual_server::rules::{RouteRule, operations, route_rules};
use serde_json::{Value, json};

/// Operations whose right depends on more than their path; each has a test below.
const BY_ID: [&str; 8] = [
    "GetMessage",
    "CancelMessage",
    "PatchMessage",
    "DeliverMessage",
    "GetTransaction",
    "Commit",
    "Rollback",
    "ResumeTransaction",
];
const BY_CONTENT: [&str; 3] = ["Prepare", "LegacySend", "LegacyCancel"];
const BY_LIST: [&str; 3] = ["ListTopics", "ListGroups", "ListTransactions"];

fn path(rule: &RouteRule, topic: &str, group: &str) -> String {
    let path = rule.path.replace("{topic}", topic).replace("{group}", group);
    let path = path.replace("{id}", "own-id").replace("{job}", "5").replace("{partition}", "0");
    format!("{}?unknown-parameter=1", path.replace("{app}", "own-send"))
}

#[test]
fn g43_every_route_lets_in_exactly_those_who_have_the_right() {
    let server = world();
    let visitors = visitors(&server);
    let rules = route_rules();
    let (mut asked, mut refused) = (0, 0);
    for visitor in &visitors {
        let mut client = Client::new(&server, &visitor.token);
        for rule in &rules {
            for (topic, topic_own) in [("own.t", true), ("foreign.t", false)] {
                for (group, group_own) in [("own-g", true), ("foreign-g", false)] {
                    let answer = client.ask(rule.method, &path(rule, topic, group), "", "");
                    let expected = visitor.may(rule, topic_own, group_own);
                    assert_eq!(
                        let_in(&answer),
                        expected,
                        "{} asks for {} {topic} {group}: {}",
                        visitor.name,
                        rule.operation,
                        answer.body
                    );
                    assert!(answer.status != 500, "{}", answer.body);
                    asked += 1;
                    refused += u32::from(!expected);
                }
            }
        }
    }
    assert!(asked > 5000 && refused > 3000, "{asked} {refused}");
    println!("{asked} requests, {refused} of them refused");
}

#[test]
fn g43_whoever_does_not_say_who_they_are_is_let_in_nowhere_but_at_health() {
    let server = world();
    let key = "own-send";
    Client::new(&server, &admin_token(&server)).create(key, &json!([]), &json!({}));
    for token in [NOBODY, "own-send.wrong", "admin.wrong", "nobody.wrong", "x"] {
        let mut client = Client::new(&server, token);
        for rule in route_rules() {
            let answer = client.ask(rule.method, &path(&rule, "own.t", "own-g"), "", "");
            assert_eq!(let_in(&answer), rule.scope == "open", "{} {token}", rule.operation);
            assert!(answer.status != 403, "{} {token}", rule.operation);
        }
    }
}

#[test]
fn what_is_refused_does_not_tell_whether_it_exists() {
    let server = world();
    let visitors = visitors(&server);
    for visitor in visitors.iter().filter(|visitor| !visitor.everywhere) {
        let mut client = Client::new(&server, &visitor.token);
        for rule in route_rules().iter().filter(|rule| rule.path.contains('{')) {
            let there = client.ask(rule.method, &path(rule, "foreign.t", "foreign-g"), "", "");
            let missing = client.ask(rule.method, &path(rule, "foreign.x", "foreign-x"), "", "");
            if !let_in(&there) {
                assert_eq!(comparable(&there), comparable(&missing), "{}", rule.operation);
            }
        }
    }
}

#[test]
fn every_operation_that_decides_later_has_a_test_of_its_own() {
    for rule in route_rules() {
        let known = match rule.scope {
            "found" => BY_ID.contains(&rule.operation),
            "content" => BY_CONTENT.contains(&rule.operation),
            "visible" => BY_LIST.contains(&rule.operation),
            "open" | "whole" | "anything" | "topic" | "group" | "producer_group" => true,
            _ => false,
        };
        assert!(known, "nobody asks for {} here", rule.operation);
        let verbs = PARTIAL.iter().chain(&WHOLE);
        assert!(rule.scope == "open" || verbs.into_iter().any(|verb| *verb == rule.verb));
    }
    for operation in operations() {
        let asked = route_rules().iter().any(|rule| rule.operation == operation);
        assert!(asked, "{operation} has no route, so nobody asks for it here");
    }
}

/// A message that is due in a day; its id.
fn message(client: &mut Client<'_>, topic: &str, own_id: Option<&str>) -> String {
    let message = json!({"body": "x", "delay": "1d", "id": own_id});
    let sent = client.done("POST", &format!("/v1/topics/{topic}/messages"), &message);
    sent["id"].as_str().expect("an id").to_owned()
}

/// An id that was given to a message of a topic that is no more.
fn missing_id(admin: &mut Client<'_>) -> String {
    let id = message(admin, "own.gone", None);
    admin.done("DELETE", "/v1/topics/own.gone", &Value::Null);
    id
}

/// Ways to ask about a message or a transaction, right and wrong.
fn ways(operation: &str) -> Vec<(&'static str, &'static str, &'static str, &'static str)> {
    let json = "content-type: application/json\r\n";
    match operation {
        "GetMessage" => vec![
            ("GET", "", "", ""),
            ("HEAD", "", "connection: close\r\n", ""),
            ("GET", "?x=1", "", ""),
            ("GET", "", "if-none-match: \"1\"\r\n", ""),
        ],
        "CancelMessage" => vec![
            ("DELETE", "", "", ""),
            ("DELETE", "?x=1", "", ""),
            ("DELETE", "", "if-match: \"1\"\r\n", ""),
        ],
        "PatchMessage" => vec![
            ("PATCH", "", json, r#"{"delay":"2d"}"#),
            ("PATCH", "", json, r#"{"delay":"2d","version":1}"#),
            ("PATCH", "", json, r#"{"delay":"never"}"#),
            ("PATCH", "", json, "{}"),
            ("PATCH", "", json, "{"),
            ("PATCH", "", "", "x"),
            (
                "PATCH",
                "",
                "if-match: \"9\"\r\ncontent-type: application/json\r\n",
                r#"{"ttl":"1h"}"#,
            ),
        ],
        "DeliverMessage" => vec![("POST", "/deliver", "", ""), ("POST", "/deliver?x=1", "", "")],
        "GetTransaction" => vec![("GET", "", "", ""), ("GET", "?x=1", "", "")],
        "Commit" => vec![
            ("POST", "/commit", "", ""),
            ("POST", "/commit", json, r#"{"reason":"by hand"}"#),
            ("POST", "/commit", json, "{"),
        ],
        "Rollback" => vec![("POST", "/rollback", "", ""), ("POST", "/rollback", json, "[]")],
        "ResumeTransaction" => vec![("POST", "/resume", "", ""), ("POST", "/resume?x", "", "")],
        other => panic!("nobody asks for {other}"),
    }
}

#[test]
fn g43_a_foreign_id_answers_exactly_like_a_missing_one() {
    let server = world();
    let visitors = visitors(&server);
    let mut admin = Client::new(&server, &admin_token(&server));
    let missing = missing_id(&mut admin);
    let foreign = message(&mut admin, "foreign.t", None);
    let prepared = prepared(&mut admin, "own-p", &["own.t", "foreign.t"]);
    let series = json!({"body": "x", "repeat": {"every": "1d"}});
    let series = admin.done("POST", "/v1/topics/foreign.t/messages", &series);
    let series = series["id"].as_str().unwrap().to_owned();
    for operation in BY_ID {
        let is_message = operation.ends_with("Message");
        let base = if is_message { "/v1/messages" } else { "/v1/transactions" };
        let rule = route_rules().into_iter().find(|rule| rule.operation == operation).unwrap();
        for visitor in visitors.iter().filter(|visitor| !visitor.everywhere) {
            let mut client = Client::new(&server, &visitor.token);
            for (method, rest, headers, body) in ways(operation) {
                let mut ask =
                    |id: &str| client.ask(method, &format!("{base}/{id}{rest}"), headers, body);
                let absent = ask(&missing);
                assert_eq!(let_in(&absent), visitor.verb == Some(rule.verb), "{operation}");
                let wrong: &[&String] = match is_message {
                    true => &[&foreign, &series],
                    // A transaction of theirs with a message that is foreign, and no transaction.
                    false => &[&prepared, &foreign],
                };
                for id in wrong {
                    let answer = ask(id);
                    assert_eq!(
                        comparable(&answer),
                        comparable(&absent),
                        "{operation} {rest} {body}"
                    );
                    let untold = !answer.body.contains(id.as_str()) || method == "HEAD";
                    assert!(untold, "{}", answer.body);
                }
            }
        }
    }
    // Nothing of what was foreign was touched.
    let state = |admin: &mut Client<'_>, path: String| admin.done("GET", &path, &Value::Null);
    assert_eq!(state(&mut admin, format!("/v1/messages/{foreign}"))["version"], 1);
    assert_eq!(state(&mut admin, format!("/v1/transactions/{prepared}"))["state"], "prepared");
    assert_eq!(state(&mut admin, format!("/v1/messages/{series}"))["state"], "scheduled");
}

/// A transaction with one message for each topic; its id.
fn prepared(client: &mut Client<'_>, group: &str, topics: &[&str]) -> String {
    let messages: Vec<Value> =
        topics.iter().map(|topic| json!({"topic": topic, "body": "x"})).collect();
    let check = json!({"first": "12h", "interval": "12h"});
    let prepare = json!({"producer_group": group, "messages": messages, "check": check});
    let made = client.done("POST", "/v1/transactions", &prepare);
    made["id"].as_str().expect("an id").to_owned()
}

#[test]
fn whoever_has_the_right_reaches_their_own_by_its_id() {
    let server = world();
    let visitors = visitors(&server);
    let mut admin = Client::new(&server, &admin_token(&server));
    for visitor in &visitors {
        let mut client = Client::new(&server, &visitor.token);
        for operation in BY_ID {
            let rule = route_rules().into_iter().find(|rule| rule.operation == operation).unwrap();
            let right = visitor.name == "admin" || visitor.verb == Some(rule.verb);
            let (method, rest, headers, body) = ways(operation)[0];
            let paths = match operation.ends_with("Message") {
                true => {
                    let id = message(&mut admin, "own.t", None);
                    let own_id = format!("{}-{operation}", visitor.name);
                    message(&mut admin, "own.t", Some(&own_id));
                    vec![
                        format!("/v1/messages/{id}"),
                        format!("/v1/topics/own.t/messages/{own_id}"),
                    ]
                }
                false => {
                    let id = prepared(&mut admin, "own-p", &["own.t", "own.t"]);
                    vec![format!("/v1/transactions/{id}")]
                }
            };
            for path in paths {
                let answer = client.ask(method, &format!("{path}{rest}"), headers, body);
                let expected = if right { 200 } else { 403 };
                let name = &visitor.name;
                assert_eq!(answer.status, expected, "{name} {operation} {path}: {}", answer.body);
            }
        }
    }
}

#[test]
fn a_transaction_is_prepared_only_for_topics_and_a_group_of_ones_own() {
    let server = world();
    for visitor in visitors(&server) {
        let mut client = Client::new(&server, &visitor.token);
        for (group, group_own) in [("own-p", true), ("foreign-p", false)] {
            for (topics, topics_own) in
                [(["own.t", "own.t"], true), (["own.t", "foreign.t"], false)]
            {
                let messages = topics.map(|topic| json!({"topic": topic, "body": "x"}));
                let prepare = json!({"producer_group": group, "messages": messages});
                let answer = client.json("POST", "/v1/transactions", &prepare);
                let sends = visitor.verb == Some("send");
                let own = visitor.everywhere || (group_own && topics_own);
                let may = visitor.name == "admin" || (sends && own);
                assert_eq!(answer.status, if may { 201 } else { 403 }, "{}", answer.body);
                if sends && group_own && !topics_own && !visitor.everywhere {
                    assert_eq!(answer.json()["index"], 1, "{}", answer.body);
                }
            }
        }
    }
}

#[test]
fn the_older_calls_ask_for_the_same_rights() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    let missing = missing_id(&mut admin);
    for visitor in visitors(&server) {
        let mut client = Client::new(&server, &visitor.token);
        let all = visitor.name == "admin";
        for (topic, own) in [("own.t", true), ("foreign.t", false), ("foreign.absent", false)] {
            let send = json!({"topic": topic, "message": "x", "execTime": 1000});
            let answer = client.json("POST", "/delay/sendDelayMsg", &send);
            let may = all || (visitor.verb == Some("send") && (own || visitor.everywhere));
            assert_eq!(answer.status, if may { 200 } else { 403 }, "{}", answer.body);
        }
        for (topic, own) in [("own.t", true), ("foreign.t", false)] {
            let cancel = |client: &mut Client<'_>, id: &str| {
                client.json("POST", "/delay/cancelDelayMsg", &json!({"messageId": id}))
            };
            let id = message(&mut admin, topic, None);
            let answer = cancel(&mut client, &id);
            match (all || visitor.verb == Some("cancel"), own || visitor.everywhere) {
                (false, _) => assert_eq!(answer.status, 403, "{}", answer.body),
                (true, true) => assert_eq!(answer.status, 200, "{}", answer.body),
                (true, false) => {
                    let absent = cancel(&mut client, &missing);
                    assert_eq!(comparable(&answer), comparable(&absent));
                }
            }
        }
    }
}

#[test]
fn lists_show_what_is_ones_own_and_nothing_else() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    let own = prepared(&mut admin, "own-p", &["own.t"]);
    prepared(&mut admin, "foreign-p", &["foreign.t"]);
    prepared(&mut admin, "foreign-p", &["own.t"]);
    prepared(&mut admin, "own-p", &["own.t", "foreign.t"]);
    let permission = json!([{"topics": "own.*", "groups": "own-*", "verbs": ["see", "read"]}]);
    let token = admin.create("looks", &permission, &json!({}));
    let mut client = Client::new(&server, &token);
    let names = |list: &Value, list_name: &str, name: &str| -> Vec<String> {
        let items = list[list_name].as_array().expect("a list");
        items.iter().map(|item| item[name].as_str().expect("a name").to_owned()).collect()
    };
    let topics = client.done("GET", "/v1/topics", &Value::Null);
    assert_eq!(names(&topics, "topics", "name"), ["own.t", "own.t.own-g.dead"]);
    assert_eq!(topics["next"], Value::Null);
    let groups = client.done("GET", "/v1/groups", &Value::Null);
    assert_eq!(names(&groups, "groups", "name"), ["own-g"]);
    let groups = client.done("GET", "/v1/topics/own.t/groups", &Value::Null);
    assert_eq!(names(&groups, "groups", "name"), ["own-g"]);
    for query in ["", "?limit=1", "?state=prepared", "?producer_group=own-p"] {
        let list = client.done("GET", &format!("/v1/transactions{query}"), &Value::Null);
        let ids = names(&list, "transactions", "id");
        assert!(ids.iter().all(|id| *id == own) && !ids.is_empty(), "{query}: {list}");
    }
    let list = client.done("GET", "/v1/transactions?producer_group=foreign-p", &Value::Null);
    assert_eq!(list["transactions"], json!([]));
    // Page by page there is the same, however little fits one.
    let (mut seen, mut query) = (Vec::new(), "?limit=1".to_owned());
    loop {
        let page = client.done("GET", &format!("/v1/topics{query}"), &Value::Null);
        seen.extend(names(&page, "topics", "name"));
        match page["next"].as_str() {
            Some(next) => query = format!("?limit=1&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["own.t", "own.t.own-g.dead"]);
}

/// The dead letters at that path, once there are any: they come as messages that are due at once.
fn letters(client: &mut Client<'_>, path: &str) -> Vec<Value> {
    support::wait_for("a dead letter", || {
        let page = client.done("GET", path, &Value::Null);
        page["messages"].as_array().filter(|letters| !letters.is_empty()).cloned()
    })
}

#[test]
fn g43_the_topics_of_a_group_are_no_way_around() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    // A dead letter of a foreign group, and one of an own group.
    for group in ["own-g", "foreign-g"] {
        let base = format!("/v1/topics/own.t/groups/{group}");
        admin.done("POST", "/v1/topics/own.t/messages", &json!({"body": "x"}));
        let ask = json!({"max": 1, "wait": "30s"});
        let messages = admin.done("POST", &format!("{base}/receive"), &ask);
        let receipt = &messages["messages"][0]["receipt"];
        let reject = json!({"receipts": [receipt], "reject": true});
        admin.done("POST", &format!("{base}/nack"), &reject);
    }
    let all = json!(PARTIAL);
    // One by the beginnings of names, one by the very names.
    let by_start = json!([{"topics": "own.t.*", "groups": "own-*", "verbs": all}]);
    let by_name = json!([
        {"topics": "own.t.foreign-g.dead", "groups": "*", "verbs": all},
        {"topics": "own.t.foreign-g.retry", "groups": "*", "verbs": all},
        {"topics": "own.t.own-g.dead", "groups": "*", "verbs": all},
    ]);
    let by_group = json!([{"topics": "own.t", "groups": "own-g", "verbs": all}]);
    let ways = [
        ("GET", ""),
        ("GET", "/partitions/0/messages"),
        ("GET", "/scheduled"),
        ("GET", "/export"),
        ("POST", "/messages"),
        ("DELETE", ""),
        ("POST", "/groups/own-x/receive"),
        ("GET", "/groups/own-g"),
    ];
    for (key, permissions) in [("by-start", by_start), ("by-name", by_name)] {
        let token = admin.create(key, &permissions, &json!({}));
        let mut client = Client::new(&server, &token);
        for topic in ["own.t.own-g.dead", "own.t.foreign-g.dead", "own.t.foreign-g.retry"] {
            for (method, rest) in ways {
                let path = format!("/v1/topics/{topic}{rest}");
                let answer = client.json(method, &path, &json!({"body": "x"}));
                assert_eq!(answer.status, 403, "{key} {method} {path}: {}", answer.body);
            }
        }
        let listed = client.done("GET", "/v1/topics", &Value::Null);
        assert_eq!(listed["topics"], json!([]), "{key}");
    }
    let token = admin.create("by-group", &by_group, &json!({}));
    let mut client = Client::new(&server, &token);
    let path = "/v1/topics/own.t.own-g.dead/partitions/0/messages";
    let dead = letters(&mut client, path);
    assert_eq!(dead.len(), 1, "whoever has the group has its dead letters");
    let path = "/v1/topics/own.t.foreign-g.dead/partitions/0/messages";
    assert_eq!(client.ask("GET", path, "", "").status, 403);
    // By its id a foreign dead letter is as good as missing.
    let foreign = letters(&mut admin, path)[0]["id"].as_str().unwrap().to_owned();
    let missing = missing_id(&mut admin);
    let of = |client: &mut Client<'_>, id: &str| {
        comparable(&client.ask(
            "GET",
            &format!("/v1/topics/own.t.own-g.dead/messages/{id}"),
            "",
            "",
        ))
    };
    assert_eq!(of(&mut client, &foreign), of(&mut client, &missing));
}

#[test]
fn a_backlog_is_moved_only_to_where_one_may_send() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    let permissions = json!([
        {"topics": "own.*", "groups": "own-*", "verbs": ["manage"]},
        {"topics": "own.to", "verbs": ["send"]},
    ]);
    let token = admin.create("moves", &permissions, &json!({}));
    admin.done("PUT", "/v1/topics/own.to", &Value::Null);
    let mut client = Client::new(&server, &token);
    let path = "/v1/topics/own.t/groups/own-g/drain";
    for (to, status) in [("foreign.t", 403), ("own.t", 403), ("foreign.x", 403), ("own.to", 202)] {
        let answer = client.json("POST", path, &json!({"to": to}));
        assert_eq!(answer.status, status, "{to}: {}", answer.body);
    }
}

#[test]
fn producers_are_asked_only_about_what_they_may_decide() {
    let server = world();
    let mut admin = Client::new(&server, &admin_token(&server));
    let message = |topic: &str| json!({"topic": topic, "body": "x"});
    let prepare = |topic: &str| {
        let check = json!({"first": "1ms", "interval": "12h", "max": 1});
        json!({"producer_group": "shared", "messages": [message(topic)], "check": check})
    };
    let grant =
        |topics: &str| json!([{"topics": topics, "groups": "*", "verbs": ["send", "read"]}]);
    let (own, other) = (
        admin.create("one", &grant("own.*"), &json!({})),
        admin.create("two", &grant("foreign.*"), &json!({})),
    );
    let id = admin.done("POST", "/v1/transactions", &prepare("foreign.t"))["id"].clone();
    let checks = "/v1/producer-groups/shared/checks";
    let mut one = Client::new(&server, &own);
    for _ in 0..3 {
        let none = one.done("POST", checks, &json!({"wait": "100ms"}));
        assert_eq!(none, json!({"checks": []}));
    }
    let shown =
        admin.done("GET", &format!("/v1/transactions/{}", id.as_str().unwrap()), &Value::Null);
    assert_eq!(shown["checks_sent"], 0, "nobody was asked, so nothing counts");
    let mut two = Client::new(&server, &other);
    let given = two.done("POST", checks, &json!({"wait": "30s"}));
    assert_eq!(given["checks"][0]["transaction"], id);
    let mine = admin.done("POST", "/v1/transactions", &prepare("own.t"))["id"].clone();
    let given = one.done("POST", checks, &json!({"wait": "30s"}));
    assert_eq!(given["checks"][0]["transaction"], mine);
}
