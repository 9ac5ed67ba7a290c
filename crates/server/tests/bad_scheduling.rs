//! Is every bad request about pending messages, levels and transactions refused with its code, and
//! does it change nothing? (G16)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod support;

use serde_json::{Value, json};
use support::{Answer, Server};

const TOPIC: &str = "/v1/topics/orders";

fn refused(what: &str, answer: &Answer, status: u16, code: &str) {
    let json = answer.json();
    let what = what.get(..100).unwrap_or(what);
    assert_eq!((answer.status, json["code"].as_str()), (status, Some(code)), "{what}: {json}");
    assert!(answer.head.contains("application/problem+json"), "{what}: {}", answer.head);
}

#[test]
fn bad_names_and_rules_of_messages() {
    let server = Server::start();
    let before = server.footprint();
    let long = format!(r#"{{"body":1,"id":"{}"}}"#, "x".repeat(257));
    let ours = server.post(&format!("{TOPIC}-else/messages"), r#"{"body":1,"delay":"1h"}"#);
    let ours = format!(r#"{{"body":1,"id":{}}}"#, ours.json()["id"]);
    for (json, code) in [
        (r#"{"body":1,"id":""}"#, "invalid_id"),
        (r#"{"body":1,"id":"a\u0000b"}"#, "invalid_id"),
        (r#"{"body":1,"id":"a\nb"}"#, "invalid_id"),
        (&long, "invalid_id"),
        (&ours, "reserved_id"),
        (r#"{"body":1,"id":5}"#, "invalid_field"),
        (r#"{"body":1,"id":"a","on_conflict":"overwrite"}"#, "invalid_field"),
        (r#"{"body":1,"on_conflict":true}"#, "invalid_field"),
        (r#"{"body":1,"repeat":"10m"}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"10m","cron":"* * * * *"}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"10m","zone":"UTC"}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"soon"}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"-10s"}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"10m","count":0}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"10m","count":4294967296}}"#, "invalid_repeat"),
        (r#"{"body":1,"repeat":{"every":"10m","until":"soon"}}"#, "invalid_time"),
        (r#"{"body":1,"repeat":{"every":"10m","times":3}}"#, "unknown_field"),
        (r#"{"body":1,"repeat":{"every":"999ms"}}"#, "interval_too_short"),
        (r#"{"body":1,"repeat":{"every":0}}"#, "interval_too_short"),
        (r#"{"body":1,"repeat":{"cron":"* * *"}}"#, "invalid_cron"),
        (r#"{"body":1,"repeat":{"cron":"60 * * * *"}}"#, "invalid_cron"),
        (r#"{"body":1,"repeat":{"cron":""}}"#, "invalid_cron"),
        (r#"{"body":1,"repeat":{"cron":"0 0 30 2 *"}}"#, "cron_never_fires"),
        (r#"{"body":1,"repeat":{"cron":"* * * * *","zone":"Mars/Olympus"}}"#, "unknown_zone"),
        (r#"{"body":1,"repeat":{"cron":"* * * * *","zone":"../../etc/passwd"}}"#, "unknown_zone"),
        (r#"{"body":1,"catch_up":"some"}"#, "invalid_catch_up"),
        (r#"{"body":1,"catch_up":{"spread":"soon"}}"#, "invalid_catch_up"),
        (r#"{"body":1,"catch_up":{"spread":0}}"#, "invalid_catch_up"),
        (r#"{"body":1,"catch_up":{"skip_older_than":"-1h"}}"#, "invalid_catch_up"),
        (r#"{"body":1,"catch_up":{"spread":"1m","skip_older_than":"1m"}}"#, "invalid_catch_up"),
        (r#"{"body":1,"catch_up":{"later":"1m"}}"#, "unknown_field"),
    ] {
        refused(json, &server.post(&format!("{TOPIC}/messages"), json), 400, code);
    }
    let ended = r#"{"body":1,"repeat":{"every":"1h","until":"2001-01-01T00:00:00Z"}}"#;
    let answer = server.post(&format!("{TOPIC}-else/messages"), ended);
    refused(ended, &answer, 400, "ends_before_first");
    for (query, code) in [
        ("id=", "invalid_id"),
        ("on_conflict=x", "invalid_field"),
        ("every=10m&cron=x", "invalid_repeat"),
        ("zone=UTC", "invalid_repeat"),
        ("every=1ms", "interval_too_short"),
        ("cron=x", "invalid_cron"),
        ("catch_up=x", "invalid_catch_up"),
    ] {
        let path = format!("{TOPIC}/publish?{query}");
        refused(query, &server.request("POST", &path, "", b"x"), 400, code);
    }
    let topics = |text: &str| text.matches("\"name\"").count();
    assert_eq!(topics(&server.footprint().1), topics(&before.1) + 1, "nothing else was made");
}

#[test]
fn bad_changes() {
    let server = Server::start();
    let id = server.send("orders", &json!({"body": "x", "delay": "1h"}));
    let path = format!("{TOPIC}/messages/{id}");
    let before = server.get(&path).json();
    let large = format!(r#"{{"body":"{}"}}"#, "x".repeat((4 << 20) + 1));
    let headers: String = (0..257).map(|number| format!(r#""h{number}":"","#)).collect();
    let headers = format!(r#"{{"headers":{{{}}}}}"#, headers.trim_end_matches(','));
    for (json, status, code) in [
        ("", 400, "empty_change"),
        ("{}", 400, "empty_change"),
        (r#"{"version":1}"#, 400, "empty_change"),
        ("[]", 400, "invalid_request"),
        ("{", 400, "invalid_json"),
        (r#"{"colour":1}"#, 400, "unknown_field"),
        (r#"{"delay":"1s","deliver_at":1}"#, 400, "conflicting_fields"),
        (r#"{"delay":"soon"}"#, 400, "invalid_delay"),
        (r#"{"delay":-1}"#, 400, "invalid_delay"),
        (r#"{"delay":"41d"}"#, 400, "delay_too_long"),
        (r#"{"deliver_at":"2001-01-01"}"#, 400, "invalid_time"),
        (r#"{"deliver_at":253402300799999}"#, 400, "delay_too_long"),
        (r#"{"delay_level":19}"#, 400, "unknown_level"),
        (r#"{"delay_level":0}"#, 400, "unknown_level"),
        (r#"{"paused":"yes"}"#, 400, "invalid_field"),
        (r#"{"body":1,"body_base64":""}"#, 400, "conflicting_fields"),
        (r#"{"body_base64":"*"}"#, 400, "invalid_base64"),
        (&large, 413, "body_too_large"),
        (&headers, 400, "too_many_headers"),
        (r#"{"ttl":0}"#, 400, "invalid_field"),
        (r#"{"paused":true,"version":"1"}"#, 400, "invalid_field"),
        (r#"{"paused":true,"version":4294967296}"#, 400, "invalid_field"),
        (r#"{"paused":true,"version":7}"#, 409, "version_conflict"),
    ] {
        refused(json, &server.patch(&path, json), status, code);
    }
    assert_eq!(server.get(&path).json(), before, "nothing has changed");
    let foreign = server.send("others", &json!({"body": "x", "delay": "1h"}));
    for missing in ["nothing", &"x".repeat(300), "%ff", &foreign, "%2F"] {
        let path = format!("{TOPIC}/messages/{missing}");
        refused(missing, &server.get(&path), 404, "not_found");
        refused(missing, &server.delete(&path), 404, "not_found");
        refused(missing, &server.patch(&path, r#"{"paused":true}"#), 404, "not_found");
        refused(missing, &server.post(&format!("{path}/deliver"), ""), 404, "not_found");
    }
    for method in ["GET", "DELETE", "PATCH"] {
        let answer = server.request(method, "/v1/topics/absent/messages/x", "", b"");
        refused(method, &answer, 404, "topic_not_found");
    }
    let typed = server.request("PATCH", &path, "", b"{\"paused\":true}");
    refused("no type", &typed, 415, "unsupported_media_type");
}

#[test]
fn bad_lists_and_bulk_changes() {
    let server = Server::start();
    server.send("orders", &json!({"body": "x", "delay": "1h"}));
    for (path, code) in [
        ("scheduled?state=prepared", "invalid_state"),
        ("scheduled?state=delivered", "invalid_state"),
        ("scheduled?key=a&key_base64=YQ==", "conflicting_fields"),
        ("scheduled?key_base64=*", "invalid_base64"),
        ("scheduled?cursor=x", "invalid_cursor"),
        ("scheduled?limit=1001", "invalid_parameter"),
        ("scheduled?from=soon", "invalid_time"),
        ("series?cursor=x", "invalid_cursor"),
        ("series?limit=0", "invalid_parameter"),
        ("series?state=paused", "unknown_field"),
        ("forecast?from=1", "unknown_field"),
        ("scheduled/jobs?limit=0", "invalid_parameter"),
    ] {
        refused(path, &server.get(&format!("{TOPIC}/{path}")), 400, code);
    }
    for verb in ["cancel", "reschedule", "deliver", "pause", "resume"] {
        let time = if verb == "reschedule" { r#","delay":"1h""# } else { "" };
        for (json, code) in [
            (format!(r#"{{"dry_run":false{time}}}"#), "empty_filter"),
            (format!(r#"{{"filter":{{}}{time}}}"#), "empty_filter"),
            (format!(r#"{{"filter":{{"state":"scheduled"}},"all":false{time}}}"#), "empty_filter"),
            (format!(r#"{{"filter":[]{time}}}"#), "invalid_field"),
            (format!(r#"{{"filter":{{"colour":1}}{time}}}"#), "unknown_field"),
            (format!(r#"{{"filter":{{"state":"prepared"}}{time}}}"#), "invalid_state"),
            (format!(r#"{{"filter":{{"from":"soon"}}{time}}}"#), "invalid_time"),
            (format!(r#"{{"filter":{{"key":1}}{time}}}"#), "invalid_field"),
            (format!(r#"{{"all":"yes"{time}}}"#), "invalid_field"),
            (format!(r#"{{"all":true,"dry_run":1{time}}}"#), "invalid_field"),
            (format!(r#"{{"all":true,"wait":"61s"{time}}}"#), "invalid_field"),
            (format!(r#"{{"all":true,"colour":1{time}}}"#), "unknown_field"),
            ("[]".to_owned(), "invalid_request"),
        ] {
            let answer = server.post(&format!("{TOPIC}/scheduled/{verb}"), &json);
            refused(&format!("{verb} {json}"), &answer, 400, code);
        }
        let missing = server
            .post(&format!("/v1/topics/absent/scheduled/{verb}"), r#"{"all":true,"delay":"1h"}"#);
        let code =
            if verb == "reschedule" { (404, "topic_not_found") } else { (400, "unknown_field") };
        refused(verb, &missing, code.0, code.1);
    }
    for (verb, json, code) in [
        ("resume", r#"{"all":true,"filter":{"state":"scheduled"}}"#, "invalid_state"),
        ("pause", r#"{"filter":{"state":"paused"}}"#, "invalid_state"),
        ("reschedule", r#"{"all":true}"#, "missing_time"),
        ("reschedule", r#"{"all":true,"shift":"soon"}"#, "invalid_shift"),
        ("reschedule", r#"{"all":true,"shift":"-"}"#, "invalid_shift"),
        ("reschedule", r#"{"all":true,"shift":0}"#, "invalid_shift"),
        ("reschedule", r#"{"all":true,"shift":true}"#, "invalid_shift"),
        ("reschedule", r#"{"all":true,"shift":"1s","delay":"1s"}"#, "conflicting_fields"),
        ("reschedule", r#"{"all":true,"delay":"41d"}"#, "delay_too_long"),
        ("reschedule", r#"{"all":true,"delay_level":19}"#, "unknown_level"),
    ] {
        refused(json, &server.post(&format!("{TOPIC}/scheduled/{verb}"), json), 400, code);
    }
    for job in ["x", "0000000000000000", "%ff"] {
        let path = format!("{TOPIC}/scheduled/jobs/{job}");
        refused(job, &server.get(&path), 404, "job_not_found");
        refused(job, &server.delete(&path), 404, "job_not_found");
    }
    for path in ["scheduled", "series", "forecast", "scheduled/jobs", "scheduled/jobs/x"] {
        refused(path, &server.get(&format!("/v1/topics/absent/{path}")), 404, "topic_not_found");
    }
    assert_eq!(server.get(&format!("{TOPIC}/scheduled")).json()["messages"][0]["version"], 1);
    let jobs = server.get(&format!("{TOPIC}/scheduled/jobs")).json();
    assert_eq!(jobs, json!({"jobs": [], "next": null}));
}

#[test]
fn bad_settings_and_levels() {
    let server = Server::start();
    let levels = |level: &str| json!({"levels": vec![level; 18]}).to_string();
    for (json, code) in [
        (r#"{"max_delay":"0s"}"#.to_owned(), "invalid_field"),
        (r#"{"max_delay":"41d"}"#.to_owned(), "invalid_field"),
        (r#"{"max_delay":true}"#.to_owned(), "invalid_field"),
        (r#"{"rate_cap":0}"#.to_owned(), "invalid_field"),
        (r#"{"rate_cap":1000001}"#.to_owned(), "invalid_field"),
        (r#"{"rate_cap":1.5}"#.to_owned(), "invalid_field"),
        (r#"{"jitter":"25h"}"#.to_owned(), "invalid_field"),
        (r#"{"jitter":"-1s"}"#.to_owned(), "invalid_field"),
        (r#"{"catch_up":"none"}"#.to_owned(), "invalid_catch_up"),
        (r#"{"catch_up":{"spread":"-1s"}}"#.to_owned(), "invalid_catch_up"),
        (r#"{"check":{"max":0}}"#.to_owned(), "invalid_check"),
        (r#"{"check":{"max":1001}}"#.to_owned(), "invalid_check"),
        (r#"{"check":{"interval":"999ms"}}"#.to_owned(), "invalid_check"),
        (r#"{"check":{"first":"41d"}}"#.to_owned(), "invalid_check"),
        (r#"{"check":{"url":"https://example.test/"}}"#.to_owned(), "invalid_check"),
        (r#"{"check":{"often":1}}"#.to_owned(), "unknown_field"),
        (r#"{"check":[]}"#.to_owned(), "invalid_field"),
        (r#"{"paused":"no"}"#.to_owned(), "invalid_field"),
        (r#"{"levels":["1s"]}"#.to_owned(), "invalid_levels"),
        (levels("0s"), "invalid_levels"),
        (levels("41d"), "invalid_levels"),
        (levels("soon"), "invalid_levels"),
    ] {
        refused(&json, &server.put(TOPIC, &json), 400, code);
    }
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]), "nothing was made");
    let before = server.get("/v1/levels").json();
    let many = json!({"levels": vec!["1s"; 100_000]}).to_string();
    for (json, status, code) in [
        (String::new(), 400, "invalid_levels"),
        (r#"{"levels":null}"#.to_owned(), 400, "invalid_levels"),
        (r#"{"levels":{}}"#.to_owned(), 400, "invalid_levels"),
        (json!({"levels": vec!["1s"; 17]}).to_string(), 400, "invalid_levels"),
        (json!({"levels": vec!["1s"; 19]}).to_string(), 400, "invalid_levels"),
        (json!({"levels": vec![Value::Bool(true); 18]}).to_string(), 400, "invalid_levels"),
        (levels("0"), 400, "invalid_levels"),
        (levels("-1s"), 400, "invalid_levels"),
        (levels("41d"), 400, "invalid_levels"),
        (r#"{"level":[]}"#.to_owned(), 400, "unknown_field"),
        (many, 413, "request_too_large"),
    ] {
        refused(&json, &server.put("/v1/levels", &json), status, code);
    }
    assert_eq!(server.get("/v1/levels").json(), before);
}

fn nothing_was_made(server: &Server) {
    assert_eq!(server.get("/v1/topics").json()["topics"], json!([]), "nothing was made");
    assert_eq!(server.get("/v1/transactions").json()["transactions"], json!([]));
}

#[test]
fn bad_prepares() {
    let server = Server::start();
    let empty = ",{}".repeat(10_000);
    let many = format!(r#"{{"producer_group":"p","messages":[{{}}{empty}]}}"#);
    let body = r#""messages":[{"topic":"orders","body":1}]"#;
    for (json, status, code) in [
        ("", 400, "invalid_field"),
        ("[]", 400, "invalid_request"),
        (&format!("{{{body}}}"), 400, "invalid_field"),
        (&format!(r#"{{"producer_group":"a b",{body}}}"#), 400, "invalid_group_name"),
        (&format!(r#"{{"producer_group":"",{body}}}"#), 400, "invalid_group_name"),
        (&format!(r#"{{"producer_group":"p",{body},"colour":1}}"#), 400, "unknown_field"),
        (r#"{"producer_group":"p"}"#, 400, "invalid_field"),
        (r#"{"producer_group":"p","messages":[]}"#, 400, "empty_batch"),
        (r#"{"producer_group":"p","messages":{}}"#, 400, "invalid_field"),
        (&many, 413, "batch_too_large"),
    ] {
        refused(json, &server.post("/v1/transactions", json), status, code);
    }
    for (check, code) in [
        (r#"{"max":0}"#, "invalid_check"),
        (r#"{"max":70000}"#, "invalid_check"),
        (r#"{"first":"soon"}"#, "invalid_check"),
        (r#"{"first":"41d"}"#, "invalid_check"),
        (r#"{"interval":0}"#, "invalid_check"),
        (r#"{"url":"http://169.254.169.254/"}"#, "invalid_url"),
        (r#"{"url":"nowhere"}"#, "invalid_url"),
        (r#"{"url":5}"#, "invalid_field"),
        (r#"{"often":5}"#, "unknown_field"),
        ("5", "invalid_field"),
    ] {
        let json = format!(r#"{{"producer_group":"p",{body},"check":{check}}}"#);
        refused(&json, &server.post("/v1/transactions", &json), 400, code);
    }
    nothing_was_made(&server);
}

#[test]
fn bad_half_messages() {
    let server = Server::start();
    for (message, code) in [
        ("5", "invalid_field"),
        (r#"{"body":1}"#, "invalid_field"),
        (r#"{"topic":"a b","body":1}"#, "invalid_topic_name"),
        (r#"{"topic":"t"}"#, "missing_body"),
        (r#"{"topic":"t","body":1,"delay":"41d"}"#, "delay_too_long"),
        (r#"{"topic":"t","body":1,"delay":"soon"}"#, "invalid_delay"),
        (r#"{"topic":"t","body":1,"partition":9}"#, "no_such_partition"),
        (r#"{"topic":"t","body":1,"delay_from":"now"}"#, "invalid_field"),
        (r#"{"topic":"t","body":1,"repeat":{"every":"1m"}}"#, "not_supported"),
        (r#"{"topic":"t","body":1,"id":""}"#, "invalid_id"),
        (r#"{"topic":"t","body":1,"colour":1}"#, "unknown_field"),
    ] {
        let first = r#"{"topic":"t","body":0}"#;
        let json = format!(r#"{{"producer_group":"p","messages":[{first},{message}]}}"#);
        let answer = server.post("/v1/transactions", &json);
        refused(message, &answer, 400, code);
        assert_eq!(answer.json()["index"], 1, "{message}");
    }
    nothing_was_made(&server);
}

#[test]
fn bad_calls_about_transactions() {
    let server = Server::start();
    let message = server.send("orders", &json!({"body": "x", "delay": "1h"}));
    for id in ["x", "%ff", &message] {
        refused(id, &server.get(&format!("/v1/transactions/{id}")), 404, "transaction_not_found");
        for verb in ["commit", "rollback", "resume"] {
            let answer = server.post(&format!("/v1/transactions/{id}/{verb}"), "");
            refused(verb, &answer, 404, "transaction_not_found");
        }
    }
    let reason = json!({"reason": "x".repeat(1025)}).to_string();
    let answer = server.post(&format!("/v1/transactions/{message}/commit"), reason);
    refused("a long reason", &answer, 400, "invalid_field");
    for (query, code) in [
        ("state=done", "invalid_state"),
        ("producer_group=a%20b", "invalid_group_name"),
        ("limit=0", "invalid_parameter"),
        ("cursor=x", "invalid_cursor"),
        ("colour=red", "unknown_field"),
    ] {
        refused(query, &server.get(&format!("/v1/transactions?{query}")), 400, code);
    }
    for (json, code) in [
        (r#"{"max":0}"#, "invalid_field"),
        (r#"{"max":1001}"#, "invalid_field"),
        (r#"{"wait":"61s"}"#, "invalid_field"),
        (r#"{"lease":"1s"}"#, "unknown_field"),
        ("[]", "invalid_request"),
    ] {
        refused(json, &server.post("/v1/producer-groups/shop/checks", json), 400, code);
    }
    let named = server.post("/v1/producer-groups/a%20b/checks", "{}");
    refused("a name", &named, 400, "invalid_group_name");
    refused("time", &server.post("/v1/time/advance", r#"{"by":"1s"}"#), 409, "not_virtual_time");
}
