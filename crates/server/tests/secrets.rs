//! Does any secret get into the log, the record of changes, the figures or the configuration as it is
//! shown? (G47)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use access_support::{Client, admin_token};
use punctual_server::config::{Config, ConfigFile, Source};
use serde_json::{Value, json};
use support::Server;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Takes down everything that is ever logged, whatever its level.
#[derive(Clone, Default)]
struct Everything {
    text: Arc<Mutex<String>>,
    spans: Arc<AtomicU64>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(self.0, "{field}={value:?}").expect("a string takes it");
    }
}

impl Subscriber for Everything {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("punctual")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut self.text.lock().expect("nobody panics here")));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut self.text.lock().expect("nobody panics here")));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Fields(&mut self.text.lock().expect("nobody panics here")));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// All that is shown of a configuration, of a legal one and of one that is not.
fn configured(settings: &[(&str, &str)]) -> String {
    let mut shown = String::new();
    let mut file = ConfigFile::default();
    for (name, value) in settings {
        file.set(name, (*value).to_owned(), Source::Flag("test")).expect("a known key");
    }
    for written in file.values() {
        let (name, value, source) = (written.key.name, written.value, written.source);
        writeln!(shown, "{name} = {value} ({source})").expect("a string takes all");
    }
    write!(shown, "{file:?}").expect("a string takes all");
    let config = Config::try_from(file).expect("it is legal");
    write!(shown, "{config:?}").expect("a string takes all");
    let mut illegal = ConfigFile::default();
    illegal
        .set("auth.admin_token", "admin.short-secret".to_owned(), Source::Flag("test"))
        .expect("a known key");
    let error = Config::try_from(illegal).expect_err("too short");
    write!(shown, "{error} {error:?}").expect("a string takes all");
    shown
}

#[test]
fn g47_no_secret_is_ever_told() {
    let logged = Everything::default();
    tracing::subscriber::set_global_default(logged.clone()).unwrap();
    let chosen = "admin.a-chosen-secret-0123456789";
    let settings = [
        ("auth.enabled", "true"),
        ("store.durability", "os"),
        ("push.check_secret", "a-secret-for-checks"),
        ("alerts.webhook", "http://alerts.example.test/an-address-that-is-a-secret"),
        ("alerts.webhook_secret", "a-secret-for-alerts"),
    ];
    let server = Server::with(&settings);
    let made = admin_token(&server);
    let mut admin = Client::new(&server, &made);
    let permissions = json!([{"topics": "t", "groups": "*", "verbs": ["send", "consume"]}]);
    let app = admin.create("app", &permissions, &json!({"pending": 1}));
    let rotated = admin.done("POST", "/v1/apps/app/rotate", &json!({"keep_old": "1h"}));
    let rotated = rotated["token"].as_str().unwrap().to_owned();
    let push = json!({"push": {"url": "https://example.test/", "secret": "a-secret-for-pushes"}});
    admin.done("PUT", "/v1/topics/t/groups/g", &push);
    let wrong = "app.a-wrong-secret-0123456789";
    for token in [&app, &rotated, wrong] {
        let mut client = Client::new(&server, token);
        client.json("POST", "/v1/topics/t/messages", &json!({"body": "x", "delay": "1d"}));
        client.json("GET", "/v1/audit", &Value::Null);
        client.json("POST", "/v1/nowhere", &json!({"secret": "no"}));
    }
    let admin_rotated = admin.done("POST", "/v1/apps/admin/rotate", &Value::Null);
    let admin_rotated = admin_rotated["token"].as_str().unwrap().to_owned();
    let mut admin = Client::new(&server, &admin_rotated);
    admin.json("DELETE", "/v1/apps/app", &Value::Null);
    let mut shown = String::new();
    let tested = admin.ask("POST", "/v1/alerts/test", "", "");
    assert_eq!(tested.json()["webhook"], "failed", "{}", tested.body);
    shown.push_str(&tested.body);
    for path in
        ["/v1/audit", "/metrics", "/v1/apps", "/v1/topics/t/groups/g", "/v1/stats", "/v1/alerts"]
    {
        shown.push_str(&admin.ask("GET", path, "", "").body);
    }
    assert!(shown.contains("app_rotate") && shown.contains("punctual_pending_messages"));
    drop(admin);
    let mut settings = settings.to_vec();
    settings.push(("auth.admin_token", chosen));
    let server = server.restarted(&settings);
    assert_eq!(Client::new(&server, chosen).ask("GET", "/v1/apps", "", "").status, 200);
    drop(server);

    shown.push_str(&configured(&settings));
    let logged = logged.text.lock().unwrap().clone();
    assert!(logged.contains("admin-token"), "the log says where the token is: {logged}");
    let tokens = [chosen, &made, &app, &rotated, wrong, &admin_rotated];
    let secrets = tokens.iter().map(|token| token.split_once('.').unwrap().1);
    let others = [
        "a-secret-for-checks",
        "a-secret-for-pushes",
        "short-secret",
        "an-address-that-is-a-secret",
        "alerts.example.test",
        "a-secret-for-alerts",
    ];
    for secret in secrets.chain(others) {
        assert!(!logged.contains(secret), "{secret} is in the log");
        assert!(!shown.contains(secret), "{secret} is shown");
    }
}
