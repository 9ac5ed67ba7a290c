//! Can people sign in at a browser, and nobody in their name? (G44, G45)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use std::io::{BufRead as _, BufReader, Write as _};

use access_support::{Client, NOBODY, admin_token};
use serde_json::{Value, json};
use support::{Answer, Server, wait_for};

const SEND: &str = "/v1/topics/orders/messages";

fn guarded() -> Server {
    Server::with(&[("auth.enabled", "true")])
}

/// What a browser keeps: the cookie, and what the page knows.
struct Browser {
    cookie: String,
    csrf: String,
}

fn sign_in(server: &Server, token: &str) -> Browser {
    let answer = Client::new(server, NOBODY).json("POST", "/v1/session", &json!({"token": token}));
    assert_eq!(answer.status, 201, "{}", answer.body);
    let csrf = answer.json()["csrf"].as_str().expect("a proof").to_owned();
    Browser { cookie: cookie(&answer), csrf }
}

/// The cookie of an answer, without its attributes.
fn cookie(answer: &Answer) -> String {
    let line = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    line.expect("a cookie").split(';').next().expect("a part").to_owned()
}

impl Browser {
    fn ask(&self, server: &Server, method: &str, path: &str, more: &str, body: &Value) -> Answer {
        let headers =
            format!("content-type: application/json\r\ncookie: {}\r\n{more}", self.cookie);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Client::new(server, NOBODY).ask(method, path, &headers, &body)
    }

    fn proof(&self) -> String {
        format!("x-punctual-csrf: {}\r\n", self.csrf)
    }
}

#[test]
fn who_signs_in_may_do_what_the_app_may_and_changes_need_the_proof() {
    let server = guarded();
    let admin = sign_in(&server, &admin_token(&server));
    let message = json!({"body": "x", "delay": "1h"});
    assert_eq!(admin.ask(&server, "GET", "/v1/topics", "", &Value::Null).status, 200);
    for wrong in ["", "x-punctual-csrf: wrong\r\n", "x-punctual-csrf: \r\n"] {
        let refused = admin.ask(&server, "POST", SEND, wrong, &message);
        assert_eq!((refused.status, refused.code().as_str()), (403, "csrf"));
    }
    assert_eq!(admin.ask(&server, "POST", SEND, &admin.proof(), &message).status, 201);
    // The proof of another session is none.
    let other = sign_in(&server, &admin_token(&server));
    assert_eq!(admin.ask(&server, "POST", SEND, &other.proof(), &message).code(), "csrf");

    let verbs = json!([{"topics": "orders", "groups": "*", "verbs": ["see", "read"]}]);
    let token = Client::new(&server, &admin_token(&server)).create("reader", &verbs, &json!({}));
    let reader = sign_in(&server, &token);
    let session = reader.ask(&server, "GET", "/v1/session", "", &Value::Null).json();
    assert_eq!((&session["app"], &session["permissions"]), (&json!("reader"), &verbs));
    let listed = reader.ask(&server, "GET", "/v1/topics/orders/scheduled", "", &Value::Null);
    assert_eq!(listed.json()["messages"].as_array().map(Vec::len), Some(1));
    let refused = reader.ask(&server, "POST", SEND, &reader.proof(), &message);
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    assert_eq!(reader.ask(&server, "GET", "/v1/apps", "", &Value::Null).status, 403);
}

#[test]
fn g45_foreign_pages_get_nowhere() {
    let server = guarded();
    let browser = sign_in(&server, &admin_token(&server));
    let message = json!({"body": "x", "delay": "1h"});
    for site in ["cross-site", "same-site"] {
        let headers = format!("sec-fetch-site: {site}\r\n{}", browser.proof());
        let refused = browser.ask(&server, "POST", SEND, &headers, &message);
        assert_eq!((refused.status, refused.code().as_str()), (403, "cross_origin"), "{site}");
        let headers = format!("sec-fetch-site: {site}\r\n");
        let refused = browser.ask(&server, "GET", "/v1/topics", &headers, &Value::Null);
        assert_eq!(refused.status, 403, "{site}");
    }
    let headers = format!("origin: http://evil.test\r\n{}", browser.proof());
    assert_eq!(browser.ask(&server, "POST", SEND, &headers, &message).code(), "cross_origin");
    let headers = "origin: http://evil.test\r\n";
    let sign_in = json!({"token": admin_token(&server)});
    assert_eq!(browser.ask(&server, "POST", "/v1/session", headers, &sign_in).status, 403);
    assert_eq!(browser.ask(&server, "DELETE", "/v1/session", "", &Value::Null).code(), "csrf");
}

#[test]
fn g45_a_foreign_page_lends_itself_no_messages_where_nobody_signs_in() {
    let server = Server::start();
    server.put("/v1/topics/orders/groups/g", "");
    server.send("orders", &json!({"body": "x"}));
    let path = "/v1/topics/orders/groups/g/stream";
    let refused = server.request("GET", path, "origin: http://evil.test\r\n", b"");
    assert_eq!((refused.status, refused.code().as_str()), (403, "cross_origin"));
    let got = server.receive_all("/v1/topics/orders/groups/g", 1);
    assert_eq!(got[0]["attempt"], 1);
}

#[test]
fn the_cookie_is_for_this_server_alone_and_no_script_reads_it() {
    let server = guarded();
    let token = admin_token(&server);
    let answer = Client::new(&server, NOBODY).json("POST", "/v1/session", &json!({"token": token}));
    let line = answer.head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(answer.head.contains("cache-control: no-store"));
    let secret = token.split_once('.').unwrap().1;
    assert!(!answer.body.contains(secret) && !answer.head.contains(secret));
}

#[test]
fn what_is_no_session_lets_nobody_in() {
    let server = guarded();
    let token = admin_token(&server);
    let known = sign_in(&server, &token);
    let mut wrong = vec![
        String::new(),
        format!("punctual-session={token}"),
        format!("{}x", known.cookie),
        format!("{}; {}", known.cookie, known.cookie),
        "punctual-session=".to_owned(),
        "punctual-session=admin.99999999999999.AAAA.AAAA".to_owned(),
        format!("punctual-session={}", "x".repeat(4000)),
    ];
    wrong.push(known.cookie.replacen("admin.", "nobody.", 1));
    for cookie in wrong {
        let browser = Browser { cookie: cookie.clone(), csrf: known.csrf.clone() };
        let refused = browser.ask(&server, "GET", "/v1/topics", "", &Value::Null);
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthenticated"), "{cookie}");
        let session = browser.ask(&server, "GET", "/v1/session", "", &Value::Null);
        assert_eq!((session.status, &session.json()["signed_in"]), (200, &json!(false)));
    }
    for token in ["", "admin", "admin.wrong", "nobody.x"] {
        let sign_in = json!({"token": token});
        let refused = Client::new(&server, NOBODY).json("POST", "/v1/session", &sign_in);
        assert_eq!(refused.status, 401, "{token}");
    }
}

#[test]
fn a_session_ends_with_signing_out_and_with_its_app() {
    let server = guarded();
    let token = admin_token(&server);
    let mut admin = Client::new(&server, &token);
    let all = json!([{"topics": "*", "groups": "*", "verbs": ["see", "observe"]}]);
    let stands = |browser: &Browser| {
        browser.ask(&server, "GET", "/v1/topics", "", &Value::Null).status == 200
    };
    let out = sign_in(&server, &admin.create("out", &all, &json!({})));
    assert!(stands(&out));
    assert_eq!(out.ask(&server, "DELETE", "/v1/session", &out.proof(), &Value::Null).status, 204);
    assert!(!stands(&out), "also for whoever has kept the cookie");

    let rotated = sign_in(&server, &admin.create("rotated", &all, &json!({})));
    admin.done("POST", "/v1/apps/rotated/rotate", &json!({"keep_old": "1h"}));
    assert!(stands(&rotated), "the secret it began with still counts");
    admin.done("POST", "/v1/apps/rotated/rotate", &Value::Null);
    assert!(!stands(&rotated));

    let disabled = sign_in(&server, &admin.create("disabled", &all, &json!({})));
    admin.done("POST", "/v1/apps/disabled/disable", &Value::Null);
    assert!(!stands(&disabled));
    admin.done("POST", "/v1/apps/disabled/enable", &Value::Null);
    assert!(stands(&disabled));
    admin.done("DELETE", "/v1/apps/disabled", &Value::Null);
    admin.create("disabled", &all, &json!({}));
    assert!(!stands(&disabled), "another app of that name is another app");

    let server = server.restarted(&[("auth.enabled", "true")]);
    let before = sign_in(&server, &token);
    let server = server.restarted(&[("auth.enabled", "true")]);
    let after = before.ask(&server, "GET", "/v1/topics", "", &Value::Null);
    assert_eq!(after.status, 401, "sessions of one server end with it");
}

#[test]
fn where_nobody_has_to_sign_in_everybody_is() {
    let server = Server::start();
    let session = server.get("/v1/session").json();
    assert_eq!((&session["auth"], &session["signed_in"]), (&json!(false), &json!(true)));
    assert_eq!((&session["csrf"], &session["app"]), (&Value::Null, &Value::Null));
    assert_eq!(session["permissions"][0]["verbs"].as_array().map(Vec::len), Some(10));
    assert_eq!((&session["mode"], &session["outlet"]), (&json!("single"), &json!("log")));
}

#[test]
fn g44_the_console_is_served_under_a_strict_policy_to_anybody() {
    for server in [Server::start(), guarded()] {
        let page = server.get("/");
        assert_eq!(page.status, 200);
        let policy = page.head.lines().find(|line| line.starts_with("content-security-policy: "));
        let policy = policy.expect("a policy");
        for part in ["default-src 'none'", "script-src 'self';", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(page.head.contains("x-frame-options: DENY"));
        assert!(page.body.contains("Punctual"));
        for missing in ["/assets/none.js", "/assets/", "/assets/..%2findex.html", "/index.html"] {
            assert_eq!(server.get(missing).status, 404, "{missing}");
        }
    }
}

#[test]
fn live_figures_come_at_once_and_once_a_second_to_whoever_may_observe() {
    let server = guarded();
    let token = admin_token(&server);
    let mut admin = Client::new(&server, &token);
    admin.done("POST", SEND, &json!({"body": "x", "delay": "1h"}));
    let few = json!([{"topics": "*", "groups": "*", "verbs": ["see", "read"]}]);
    let reader = admin.create("reader", &few, &json!({}));
    assert_eq!(Client::new(&server, &reader).ask("GET", "/v1/live", "", "").status, 403);
    let all = json!([{"topics": "*", "groups": "*", "verbs": ["observe"]}]);
    let observer = sign_in(&server, &admin.create("observer", &all, &json!({})));
    let mut stream = server.connect();
    let ask =
        format!("GET /v1/live HTTP/1.1\r\nhost: localhost\r\ncookie: {}\r\n\r\n", observer.cookie);
    stream.write_all(ask.as_bytes()).expect("it is open");
    let mut lines = BufReader::new(stream).lines().map(|line| line.expect("the stream goes on"));
    let mut figures = || {
        let data = lines.find_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        serde_json::from_str::<Value>(&data.expect("an event")).expect("JSON")
    };
    let first = figures();
    assert_eq!((&first["pending"], &first["totals"]["scheduled"]), (&json!(1), &json!(1)));
    assert_eq!((&first["app_count"], &first["topic_count"]), (&json!(3), &json!(1)));
    let batch: Vec<Value> = (0..50).map(|_| json!({"body": "x", "delay": "1h"})).collect();
    admin.done("POST", SEND, &json!({"messages": batch}));
    let later = wait_for("the messages to be counted", || {
        let next = figures();
        (next["pending"] == 51).then_some(next)
    });
    assert!(later["rates"]["scheduled"].as_f64().unwrap() > 0.0, "{later}");
    admin.done("POST", "/v1/apps/observer/disable", &Value::Null);
    assert!(lines.any(|line| line == "0"), "the stream ends, with its last chunk");
}
