//! Does every operation that takes the right to manage or to administer leave its record, with the
//! name of the app and its address? (G48)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use access_support::{Client, admin_token};
use punctual_server::rules::route_rules;
use serde_json::{Value, json};
use support::Server;

const TOPIC: &str = "/v1/topics/orders";
const GROUP: &str = "/v1/topics/orders/groups/g";

/// A request that is made first.
type Before = (&'static str, &'static str, Value);

/// What there must be, the request itself, and the word for it in the record.
fn case(operation: &str) -> (Vec<Before>, (String, Value), &'static str) {
    let topic = ("PUT", TOPIC, Value::Null);
    let group = ("PUT", GROUP, Value::Null);
    let app = ("POST", "/v1/apps", json!({"key": "app"}));
    let bulk = json!({"filter": {"key": "k"}, "wait": "20s"});
    let of_topic =
        |rest: &str, body, what| (vec![topic.clone()], (format!("{TOPIC}{rest}"), body), what);
    let of_group = |rest: &str, body, what| {
        (vec![topic.clone(), group.clone()], (format!("{GROUP}{rest}"), body), what)
    };
    let of_app =
        |rest: &str, body, what| (vec![app.clone()], (format!("/v1/apps/app{rest}"), body), what);
    match operation {
        "CancelMany" => of_topic("/scheduled/cancel", bulk, ""),
        "RescheduleMany" => {
            let bulk = json!({"filter": {"key": "k"}, "wait": "20s", "delay": "1d"});
            of_topic("/scheduled/reschedule", bulk, "")
        }
        "DeliverMany" => of_topic("/scheduled/deliver", bulk, ""),
        "PauseMany" => of_topic("/scheduled/pause", bulk, ""),
        "ResumeMany" => of_topic("/scheduled/resume", bulk, ""),
        "StopJob" => of_topic("/scheduled/jobs/", Value::Null, "bulk_stop"),
        "PutTopic" => of_topic("", json!({"partitions": 5}), "topic_put"),
        "PatchTopic" => of_topic("", json!({"jitter": "1s"}), "topic_patch"),
        "DeleteTopic" => of_topic("", Value::Null, "topic_delete"),
        "PutGroup" => of_group("", Value::Null, "group_put"),
        "PatchGroup" => of_group("", json!({"lease": "2m"}), "group_patch"),
        "DeleteGroup" => of_group("", Value::Null, "group_delete"),
        "PauseGroup" => of_group("/pause", Value::Null, "group_pause"),
        "ResumeGroup" => of_group("/resume", Value::Null, "group_resume"),
        "ResetGroup" => of_group("/reset", json!({"to": "latest"}), "group_reset"),
        "Redrive" => of_group("/dead/redrive", Value::Null, "dead_redrive"),
        "Purge" => of_group("/dead/purge", json!({"all": true}), "dead_purge"),
        "Drain" => of_group("/drain", json!({"to": "other"}), "group_drain"),
        "PutLevels" => {
            (vec![], ("/v1/levels".into(), json!({"levels": vec!["1s"; 18]})), "levels_put")
        }
        "PutCluster" => (vec![], ("/v1/cluster".into(), json!({"slots": 1})), "cluster_put"),
        "TestAlerts" => (vec![], ("/v1/alerts/test".into(), Value::Null), "alerts_test"),
        "ResumeTransaction" => (vec![], (String::new(), Value::Null), "transaction_resume"),
        "CreateApp" => (vec![], ("/v1/apps".into(), json!({"key": "new"})), "app_create"),
        "PatchApp" => of_app("", json!({"quotas": {"pending": 5}}), "app_patch"),
        "DeleteApp" => of_app("", Value::Null, "app_delete"),
        "RotateApp" => of_app("/rotate", Value::Null, "app_rotate"),
        "DisableApp" => of_app("/disable", Value::Null, "app_disable"),
        "EnableApp" => of_app("/enable", Value::Null, "app_enable"),
        "AdvanceTime" => (vec![], ("/v1/time/advance".into(), json!({"by": "1s"})), "time_advance"),
        other => panic!("nobody knows whether {other} leaves a record"),
    }
}

fn entries(client: &mut Client<'_>) -> Vec<Value> {
    let page = client.done("GET", "/v1/audit?limit=1000", &Value::Null);
    page["entries"].as_array().expect("entries").clone()
}

#[test]
fn g48_every_operation_of_an_administrator_is_taken_down() {
    let settings = [("auth.enabled", "true")];
    let server = Server::on_virtual_time_with("2030-01-01T00:00:00Z", &settings);
    let mut admin = Client::new(&server, &admin_token(&server));
    let rights =
        json!([{"topics": "*", "groups": "*", "verbs": ["manage", "admin", "send", "see"]}]);
    let token = admin.create("operator", &rights, &json!({}));
    admin.done("PUT", "/v1/topics/other", &Value::Null);
    let mut client = Client::new(&server, &token);
    let mut asked = 0;
    let changes = route_rules().into_iter().filter(|rule| rule.method != "GET");
    for rule in changes.filter(|rule| ["manage", "admin"].contains(&rule.verb)) {
        let (needed, (mut path, body), what) = case(rule.operation);
        for (method, path, body) in needed {
            let answer = admin.json(method, path, &body);
            assert!(answer.status < 300 || answer.status == 409, "{path}: {}", answer.body);
        }
        if rule.operation == "StopJob" {
            let bulk = json!({"filter": {"key": "k"}, "wait": "20s"});
            let job = admin.done("POST", &format!("{TOPIC}/scheduled/cancel"), &bulk);
            path.push_str(job["job"].as_str().unwrap());
        }
        if rule.operation == "ResumeTransaction" {
            let messages = json!([{"topic": "other", "body": "x"}]);
            let prepare = json!({"producer_group": "p", "messages": messages});
            let prepared = admin.done("POST", "/v1/transactions", &prepare);
            path = format!("/v1/transactions/{}/resume", prepared["id"].as_str().unwrap());
        }
        let before = entries(&mut admin).len();
        let answer = client.json(rule.method, &path, &body);
        assert!(answer.status < 300, "{} {path}: {}", rule.operation, answer.body);
        let after = entries(&mut admin);
        assert!(after.len() > before, "{} leaves no record", rule.operation);
        let newest = &after[0];
        assert_eq!(newest["who"], "operator@127.0.0.1", "{newest}");
        assert!(what.is_empty() || newest["what"] == what, "{}: {newest}", rule.operation);
        assert!(newest["at"].as_str().unwrap().starts_with("2030-01-01T"));
        asked += 1;
    }
    assert!(asked >= 27, "{asked}");
}

#[test]
fn a_transaction_decided_by_hand_names_who_did_it() {
    let server = Server::with(&[("auth.enabled", "true"), ("store.durability", "os")]);
    let mut admin = Client::new(&server, &admin_token(&server));
    let messages = json!([{"topic": "t", "body": "x"}]);
    let prepare = json!({"producer_group": "p", "messages": messages});
    let prepared = admin.done("POST", "/v1/transactions", &prepare);
    let id = prepared["id"].as_str().unwrap();
    let path = format!("/v1/transactions/{id}/rollback");
    admin.done("POST", &path, &json!({"reason": "the order is gone"}));
    let newest = &entries(&mut admin)[0];
    assert_eq!(newest["what"], "transaction_rollback");
    assert_eq!(newest["who"], "admin@127.0.0.1");
    assert_eq!(newest["details"], json!({"transaction": id, "reason": "the order is gone"}));
}
