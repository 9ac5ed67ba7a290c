//! Are apps made, used, changed and removed as they should be, over HTTP and across restarts? (G42, G47)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use std::os::unix::fs::PermissionsExt as _;

use access_support::{Client, NOBODY, admin_token};
use serde_json::{Value, json};
use support::Server;

const AUTH: [(&str, &str); 2] = [("auth.enabled", "true"), ("store.durability", "os")];

fn may_send(server: &Server, token: &str) -> u16 {
    let message = json!({"body": "x", "delay": "1d"});
    Client::new(server, token).json("POST", "/v1/topics/orders/messages", &message).status
}

fn sender() -> Value {
    json!([{"topics": "orders", "verbs": ["send"]}])
}

#[test]
fn an_app_lives_from_its_making_to_its_end() {
    let server = Server::with(&AUTH);
    let mut admin = Client::new(&server, &admin_token(&server));
    let quotas = json!({"messages_per_second": 100, "pending": 50});
    let new = json!({"key": "orders-service", "permissions": sender(), "quotas": quotas});
    let made = admin.json("POST", "/v1/apps", &new);
    assert_eq!(made.status, 201, "{}", made.body);
    let made = made.json();
    let (secret, token) = (made["secret"].as_str().unwrap(), made["token"].as_str().unwrap());
    assert_eq!((secret.len(), token), (43, &*format!("orders-service.{secret}")));
    assert_eq!(made["permissions"], json!([{"topics": "orders", "verbs": ["send"]}]));
    assert_eq!(
        (&made["quotas"], &made["enabled"], &made["built_in"]),
        (&quotas, &json!(true), &json!(false))
    );
    assert_eq!(may_send(&server, token), 201);
    let path = "/v1/apps/orders-service";
    let shown = admin.json("GET", path, &Value::Null);
    assert_eq!(shown.status, 200);
    assert!(!shown.body.contains(secret) && shown.json().get("secret").is_none());
    assert_eq!(admin.json("POST", "/v1/apps", &new).code(), "app_exists");

    let wider = json!({"permissions": [{"topics": "*", "groups": "*", "verbs": ["read", "read"]}]});
    let changed = admin.done("PATCH", path, &wider);
    assert_eq!(changed["permissions"][0]["verbs"], json!(["read"]));
    assert_eq!(changed["quotas"], quotas, "what is not said stays");
    assert_eq!(may_send(&server, token), 403, "a change counts at once");
    admin.done("PATCH", path, &json!({"permissions": sender(), "quotas": {}}));
    assert_eq!(admin.done("GET", path, &Value::Null)["quotas"], json!({}));
    assert_eq!(may_send(&server, token), 201);

    assert_eq!(admin.done("POST", &format!("{path}/disable"), &Value::Null)["enabled"], false);
    assert_eq!(may_send(&server, token), 401);
    assert_eq!(admin.done("POST", &format!("{path}/enable"), &Value::Null)["enabled"], true);
    assert_eq!(may_send(&server, token), 201);

    assert_eq!(admin.done("DELETE", path, &Value::Null), json!({"result": "deleted"}));
    assert_eq!(may_send(&server, token), 401);
    for (method, rest) in
        [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/rotate"), ("POST", "/disable")]
    {
        let answer = admin.json(method, &format!("{path}{rest}"), &json!({"quotas": {}}));
        assert_eq!((answer.status, &*answer.code()), (404, "app_not_found"), "{method} {rest}");
    }
}

#[test]
fn a_secret_is_rotated_with_and_without_a_time_of_grace() {
    let server = Server::with(&AUTH);
    let mut admin = Client::new(&server, &admin_token(&server));
    let first = admin.create("orders-service", &sender(), &json!({}));
    let path = "/v1/apps/orders-service/rotate";
    let rotated = admin.done("POST", path, &json!({"keep_old": "1h"}));
    let second = rotated["token"].as_str().unwrap().to_owned();
    assert!(rotated["old_secret_until"].is_string() && rotated["rotated"].is_string());
    assert_eq!((may_send(&server, &first), may_send(&server, &second)), (201, 201));
    let third = admin.done("POST", path, &Value::Null);
    assert!(third.get("old_secret_until").is_none(), "{third}");
    let third = third["token"].as_str().unwrap().to_owned();
    let sent = [&first, &second, &third].map(|token| may_send(&server, token));
    assert_eq!(sent, [401, 401, 201]);
    let short = admin.done("POST", path, &json!({"keep_old": "1ms"}));
    let last = short["token"].as_str().unwrap().to_owned();
    support::wait_for("the end of the old secret", || {
        (may_send(&server, &third) == 401).then_some(())
    });
    assert_eq!(may_send(&server, &last), 201);
    for keep in [json!("31d"), json!("soon"), json!(-1), json!([])] {
        let answer = admin.json("POST", path, &json!({"keep_old": keep}));
        assert_eq!(answer.status, 400, "{}", answer.body);
    }
    assert_eq!(may_send(&server, &last), 201, "what is refused changes nothing");
}

#[test]
fn apps_and_the_token_are_there_after_a_restart() {
    let server = Server::with(&AUTH);
    let token = admin_token(&server);
    let mut admin = Client::new(&server, &token);
    let sends = admin.create("sends", &sender(), &json!({}));
    let gone = admin.create("gone", &sender(), &json!({}));
    let disabled = admin.create("disabled", &sender(), &json!({}));
    admin.done("DELETE", "/v1/apps/gone", &Value::Null);
    admin.done("POST", "/v1/apps/disabled/disable", &Value::Null);
    let rotated = admin.done("POST", "/v1/apps/sends/rotate", &json!({"keep_old": "1h"}));
    let rotated = rotated["token"].as_str().unwrap().to_owned();
    drop(admin);
    let server = server.restarted(&AUTH);
    assert_eq!(admin_token(&server), token);
    let sent = [&sends, &rotated, &gone, &disabled].map(|token| may_send(&server, token));
    assert_eq!(sent, [201, 201, 401, 401]);
    let mut admin = Client::new(&server, &token);
    let apps = admin.done("GET", "/v1/apps", &Value::Null);
    let keys: Vec<&str> =
        apps["apps"].as_array().unwrap().iter().map(|app| app["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["admin", "disabled", "sends"]);
    let new = admin.done("POST", "/v1/apps/admin/rotate", &Value::Null);
    let new = new["token"].as_str().unwrap().to_owned();
    assert_eq!(admin_token(&server), new, "the file follows");
    drop(admin);
    let server = server.restarted(&AUTH);
    assert_eq!(Client::new(&server, &token).json("GET", "/v1/apps", &Value::Null).status, 401);
    assert_eq!(Client::new(&server, &new).json("GET", "/v1/apps", &Value::Null).status, 200);
}

#[test]
fn g47_the_token_of_the_administrator_is_for_the_owner_of_the_data_alone() {
    let server = Server::with(&AUTH);
    let file = server.data().join("admin-token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let token = admin_token(&server);
    let (_, secret) = token.split_once('.').unwrap();
    // Beside that file nothing holds the secret.
    let mut folders = vec![server.data()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path != file {
                let bytes = std::fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                assert!(!text.contains(secret), "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 3, "{files}");
}

#[test]
fn a_configured_token_counts_and_is_not_written_down() {
    let mut settings = AUTH.to_vec();
    settings.push(("auth.admin_token", "admin.0123456789abcdef-chosen"));
    let server = Server::with(&settings);
    assert!(!server.data().join("admin-token").exists());
    let mut admin = Client::new(&server, "admin.0123456789abcdef-chosen");
    assert_eq!(admin.json("GET", "/v1/apps", &Value::Null).status, 200);
    let answer = admin.json("POST", "/v1/apps/admin/rotate", &Value::Null);
    assert_eq!(answer.code(), "app_reserved", "{}", answer.body);
    assert_eq!(
        Client::new(&server, "admin.0123456789abcdef-chosem")
            .json("GET", "/v1/apps", &Value::Null)
            .status,
        401
    );
}

#[test]
fn the_built_in_app_stays_as_it_is() {
    let server = Server::with(&AUTH);
    let mut admin = Client::new(&server, &admin_token(&server));
    for (method, path, body) in [
        ("POST", "/v1/apps", json!({"key": "admin"})),
        ("PATCH", "/v1/apps/admin", json!({"permissions": []})),
        ("DELETE", "/v1/apps/admin", Value::Null),
        ("POST", "/v1/apps/admin/disable", Value::Null),
    ] {
        let answer = admin.json(method, path, &body);
        assert!(["app_reserved", "app_exists"].contains(&&*answer.code()), "{}", answer.body);
        assert_eq!(answer.status, 409);
    }
    assert_eq!(admin.done("GET", "/v1/apps/admin", &Value::Null)["built_in"], true);
}

#[test]
fn bad_requests_about_apps_are_told_what_is_wrong() {
    let server = Server::with(&AUTH);
    let mut admin = Client::new(&server, &admin_token(&server));
    let permission = |permission: Value| json!({"key": "k", "permissions": [permission]});
    let many: Vec<Value> = (0..65).map(|_| json!({"topics": "a", "verbs": ["send"]})).collect();
    for (body, code) in [
        (json!({}), "invalid_app_key"),
        (json!({"key": ""}), "invalid_app_key"),
        (json!({"key": "a.b"}), "invalid_app_key"),
        (json!({"key": "../../etc/passwd"}), "invalid_app_key"),
        (json!({"key": "x".repeat(65)}), "invalid_app_key"),
        (json!({"key": "k", "secret": "mine"}), "unknown_field"),
        (json!({"key": "k", "enabled": true}), "unknown_field"),
        (permission(json!({"topics": "a"})), "invalid_permission"),
        (permission(json!({"topics": "a", "verbs": ["fly"]})), "invalid_permission"),
        (permission(json!({"topics": "a", "verbs": ["anybody"]})), "invalid_permission"),
        (permission(json!({"topics": "a*b", "verbs": ["send"]})), "invalid_permission"),
        (permission(json!({"topics": "", "verbs": ["send"]})), "invalid_permission"),
        (
            permission(json!({"topics": "a", "groups": "?", "verbs": ["send"]})),
            "invalid_permission",
        ),
        (permission(json!({"topics": "a", "verbs": ["admin"]})), "invalid_permission"),
        (permission(json!({"topics": "*", "verbs": ["observe"]})), "invalid_permission"),
        (
            permission(json!({"topics": "*", "groups": "a*", "verbs": ["audit"]})),
            "invalid_permission",
        ),
        (json!({"key": "k", "permissions": many}), "invalid_permission"),
        (json!({"key": "k", "quotas": {"pending": 0}}), "invalid_field"),
        (json!({"key": "k", "quotas": {"pending": "many"}}), "invalid_field"),
    ] {
        let answer = admin.json("POST", "/v1/apps", &body);
        assert_eq!((answer.status, &*answer.code()), (400, code), "{body}: {}", answer.body);
    }
    for (path, code) in [
        ("/v1/apps?limit=0", "invalid_parameter"),
        ("/v1/apps?cursor=a.b", "invalid_cursor"),
        ("/v1/apps?colour=red", "unknown_field"),
        ("/v1/apps/absent", "app_not_found"),
        ("/v1/apps/..%2Fadmin", "app_not_found"),
        ("/v1/apps/%ff", "app_not_found"),
    ] {
        assert_eq!(admin.json("GET", path, &Value::Null).code(), code, "{path}");
    }
    assert_eq!(admin.done("GET", "/v1/apps", &Value::Null)["apps"].as_array().unwrap().len(), 1);
}

#[test]
fn apps_are_listed_page_by_page() {
    let server = Server::with(&AUTH);
    let mut admin = Client::new(&server, &admin_token(&server));
    for number in 0..5 {
        admin.create(&format!("app-{number}"), &json!([]), &json!({}));
    }
    let (mut keys, mut query) = (Vec::new(), "?limit=2".to_owned());
    loop {
        let page = admin.done("GET", &format!("/v1/apps{query}"), &Value::Null);
        let apps = page["apps"].as_array().unwrap().clone();
        assert!(apps.len() <= 2);
        keys.extend(apps.iter().map(|app| app["key"].as_str().unwrap().to_owned()));
        match page["next"].as_str() {
            Some(next) => query = format!("?limit=2&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(keys, ["admin", "app-0", "app-1", "app-2", "app-3", "app-4"]);
}

#[test]
fn tokens_of_other_kinds_let_nobody_in() {
    let server = Server::with(&AUTH);
    let token = admin_token(&server);
    let (_, secret) = token.split_once('.').unwrap();
    let none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.eyJzdWIiOiJhZG1pbiJ9.";
    for header in [
        format!("authorization: Bearer {none}\r\n"),
        format!("authorization: Bearer admin.{}\r\n", "0".repeat(43)),
        format!("authorization: Bearer {secret}\r\n"),
        "authorization: Bearer  \r\n".to_owned(),
        format!("authorization: Basic {token}\r\n"),
        format!("authorization: {token}\r\n"),
        format!("authorization: Bearer {token}\r\nauthorization: Bearer {token}\r\n"),
        format!("authorization: Bearer {token},{token}\r\n"),
        format!("authorization: Bearer admin.{}\r\n", "x".repeat(8 << 10)),
        format!("x-authorization: Bearer {token}\r\n"),
        format!("cookie: token={token}\r\n"),
        String::new(),
    ] {
        let answer = server.request("GET", "/v1/topics", &header, b"");
        assert_eq!((answer.status, &*answer.code()), (401, "unauthenticated"), "{header}");
        assert!(answer.head.contains("www-authenticate: Bearer"), "{}", answer.head);
        assert!(!answer.body.contains(secret));
    }
    let query = format!("/v1/topics?token={token}&authorization=Bearer%20{token}");
    assert_eq!(server.get(&query).status, 401, "a token in the address is none");
    let header = format!("Authorization: bearer {token}\r\n");
    assert_eq!(server.request("GET", "/v1/topics", &header, b"").status, 200);
}

#[test]
fn health_is_open_and_nothing_else() {
    let server = Server::with(&AUTH);
    for path in ["/health/live", "/health/ready"] {
        assert_eq!(Client::new(&server, NOBODY).ask("GET", path, "", "").status, 200);
        assert_eq!(Client::new(&server, "wrong.token").ask("GET", path, "", "").status, 200);
    }
    assert_eq!(server.get("/metrics").status, 401);
}

#[test]
fn without_authentication_everything_is_as_it_was() {
    let server = Server::start();
    assert!(!server.data().join("admin-token").exists());
    let made =
        server.post("/v1/apps", json!({"key": "later", "permissions": sender()}).to_string());
    assert_eq!(made.status, 201, "apps can be made beforehand: {}", made.body);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(server.get("/v1/topics").status, 200);
    let server = server.restarted(&AUTH);
    assert_eq!(may_send(&server, &token), 201);
    assert_eq!(server.get("/v1/topics").status, 401);
}
