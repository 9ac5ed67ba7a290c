//! Do the commands about apps do what they say, and does a token let in whom it should?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the support module serves several tests, and helpers of tests may stop them"
)]

mod command_support;
mod process_support;

use command_support::{LIMIT_SECONDS, Server, text};
use serde_json::{Value, json};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A server that asks who is there, and the token of its administrator.
fn guarded() -> (Server, String) {
    let data = TempDir::new().unwrap();
    let config = data.path().join("punctual.toml");
    std::fs::write(&config, "[auth]\nenabled = true\n").unwrap();
    let config = config.to_str().unwrap().to_owned();
    let server = Server::with(&["--http", "127.0.0.1:0", "--config", &config], data);
    let file = server.data.as_ref().unwrap().path().join("data/admin-token");
    let token = std::fs::read_to_string(file).unwrap().trim().to_owned();
    (server, token)
}

fn run(server: &Server, token: &str, arguments: &[&str]) -> Output {
    Command::new("timeout")
        .args([LIMIT_SECONDS, env!("CARGO_BIN_EXE_punctual")])
        .args(arguments)
        .envs([("PUNCTUAL_SERVER", server.url.as_str()), ("PUNCTUAL_TOKEN", token)])
        .output()
        .expect("it runs")
}

fn json_of(server: &Server, token: &str, arguments: &[&str]) -> Value {
    let output = run(server, token, &[arguments, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{arguments:?} {}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn an_app_does_what_it_may_and_no_more() {
    let (server, admin) = guarded();
    let create = ["apps", "create", "shop", "--allow", "send,read:orders*", "--pending", "5"];
    let made = json_of(&server, &admin, &create);
    let token = made["token"].as_str().unwrap().to_owned();
    assert_eq!(made["quotas"], json!({"pending": 5}));
    let sent = json_of(&server, &token, &["send", "orders.eu", "x", "--delay", "1h"]);
    let id = sent["id"].as_str().unwrap();
    assert_eq!(json_of(&server, &token, &["get", id])["body"], "x");
    for arguments in [&["send", "letters", "x"][..], &["topics", "delete", "orders.eu"], &["apps"]]
    {
        let refused = run(&server, &token, arguments);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}");
        let told = text(&refused.stderr);
        assert!(told.contains("(forbidden)") && told.contains("--allow"), "{told}");
    }
    let granted =
        ["apps", "set", "shop", "--allow", "send:letters", "--allow", "consume:*:billing"];
    let changed = json_of(&server, &admin, &granted);
    assert_eq!(changed["permissions"][1]["groups"], "billing");
    assert_eq!(changed["quotas"], json!({"pending": 5}), "what is not said stays");
    json_of(&server, &token, &["send", "letters", "x"]);
    assert_eq!(run(&server, &token, &["get", id]).status.code(), Some(1), "replaced, not added to");
    let unbound = json_of(&server, &admin, &["apps", "set", "shop", "--pending", "none"]);
    assert_eq!(unbound["quotas"], json!({}));
}

#[test]
fn a_secret_is_shown_once_and_can_be_changed_or_refused() {
    let (server, admin) = guarded();
    let made = run(&server, &admin, &["apps", "create", "shop", "--allow", "send:*"]);
    let (shown, note) = (text(&made.stdout), text(&made.stderr));
    let token = shown.split_whitespace().find(|word| word.starts_with("shop.")).unwrap();
    assert!(note.contains("shown this once"), "{note}");
    let secret = token.split_once('.').unwrap().1;
    assert_eq!(shown.matches(secret).count(), 1, "{shown}");
    for arguments in [&["apps", "show", "shop"][..], &["apps"], &["audit"]] {
        let output = run(&server, &admin, arguments);
        assert!(!text(&output.stdout).contains(secret), "{arguments:?}");
    }
    let send = ["send", "t", "x"];
    assert_eq!(run(&server, token, &send).status.code(), Some(0));
    let second = text(&run(&server, &admin, &["apps", "rotate", "shop", "-q"]).stdout);
    let old = run(&server, token, &send);
    assert_eq!(old.status.code(), Some(1));
    let told = text(&old.stderr);
    assert!(told.contains("(unauthenticated)") && told.contains("PUNCTUAL_TOKEN"), "{told}");
    assert!(!told.contains(secret), "{told}");
    assert_eq!(run(&server, second.trim(), &send).status.code(), Some(0));
    assert_eq!(json_of(&server, &admin, &["apps", "disable", "shop"])["enabled"], false);
    assert_eq!(run(&server, second.trim(), &send).status.code(), Some(1));
    assert_eq!(json_of(&server, &admin, &["apps", "enable", "shop"])["enabled"], true);
    assert_eq!(run(&server, second.trim(), &send).status.code(), Some(0));
    json_of(&server, &admin, &["apps", "delete", "shop"]);
    let gone = run(&server, &admin, &["apps", "show", "shop"]);
    assert!(text(&gone.stderr).contains("(app_not_found)"), "{}", text(&gone.stderr));
    assert_eq!(run(&server, second.trim(), &send).status.code(), Some(1));
}

#[test]
fn without_a_token_nobody_is_let_in() {
    let (server, admin) = guarded();
    for token in ["", "shop.wrong", "nonsense", "admin.", &format!("{admin}x")] {
        let refused = run(&server, token, &["topics"]);
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{told}");
        assert!(told.contains("(unauthenticated)") && told.contains("admin-token"), "{told}");
    }
    assert_eq!(run(&server, &admin, &["topics"]).status.code(), Some(0));
    let slip = run(&server, &admin, &["apps", "show", "admn"]);
    assert!(text(&slip.stderr).contains("did you mean `admin`?"), "{}", text(&slip.stderr));
    let listed = text(&run(&server, &admin, &["apps"]).stdout);
    assert!(listed.contains("admin  built in"), "{listed}");
    let wrong = run(&server, &admin, &["apps", "create", "x", "--allow", "dance:orders"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("manage"), "{}", text(&wrong.stderr));
}
