//! Apps: who may do what, and how much.

use serde_json::json;

use super::{
    Bounds, Named, Schema, count, integer, list, object, span_asked, text, time, truth, word,
};
use crate::schema::pending::page;

pub(super) fn components(bounds: &Bounds) -> Named {
    vec![
        ("NewApp", new_app(bounds)),
        ("AppChange", app_change(bounds)),
        ("Rotation", rotation(bounds)),
        ("App", app(bounds)),
        ("IssuedApp", issued(bounds)),
        ("AppPage", page("apps", "App")),
    ]
}

/// What an app may do and how much, as somebody asks for it.
fn with_rights(shape: Schema, bounds: &Bounds) -> Schema {
    let pattern = || {
        let most = bounds.name_chars + 1;
        text().pattern("^[A-Za-z0-9._-]*\\*?$").length(1, most).format("names")
    };
    let verbs = list(word(bounds.verbs)).items(1, bounds.verbs.len());
    let permission = object()
        .with("topics", pattern().about("A name, or the beginning of names and a star."))
        .can("groups", pattern().about("Of consumers and producers; none, if not said."))
        .with("verbs", verbs.about("observe, audit and admin need both patterns to be *."))
        .closed();
    let whole = json!({"contains": {"enum": ["observe", "audit", "admin"]}});
    let not_all = json!({"not": {"const": "*"}});
    let permission = permission
        .never(json!({"properties": {"verbs": whole, "topics": not_all}}))
        .never(json!({"properties": {"verbs": whole, "groups": not_all}}));
    let quota = || integer(1u64, u64::MAX);
    let quotas = object()
        .can("messages_per_second", quota())
        .can("bytes_per_second", quota())
        .can("pending", quota().about("Messages pending in the topics it may send to."))
        .can("connections", quota())
        .closed();
    shape
        .can("permissions", list(permission).set("maxItems", bounds.permissions))
        .can("quotas", quotas.about("What is not said has no bound."))
}

fn new_app(bounds: &Bounds) -> Schema {
    let key = text().pattern("^[A-Za-z0-9_-]+$").length(1, bounds.app_key_chars);
    with_rights(object().with("key", key), bounds).closed().example(json!({
        "key": "orders-service",
        "permissions": [{"topics": "orders.*", "groups": "billing", "verbs": ["send", "read"]}],
        "quotas": {"messages_per_second": 100},
    }))
}

fn app_change(bounds: &Bounds) -> Schema {
    with_rights(object(), bounds)
        .closed()
        .at_least_one(&["permissions", "quotas"])
        .about("Each part that is said takes the place of what was.")
        .example(json!({"quotas": {"pending": 5000}}))
}

fn rotation(bounds: &Bounds) -> Schema {
    let keep_old = span_asked(0, bounds.keep_old).about("How long the old secret still counts.");
    object().can("keep_old", keep_old).closed().example(json!({"keep_old": "1h"}))
}

/// A permission as it is shown.
pub(super) fn permission(bounds: &Bounds) -> Schema {
    object().with("topics", text()).may("groups", text()).with("verbs", list(word(bounds.verbs)))
}

fn app(bounds: &Bounds) -> Schema {
    let quotas = object()
        .may("messages_per_second", count())
        .may("bytes_per_second", count())
        .may("pending", count())
        .may("connections", count());
    let totals = object()
        .with("scheduled", count())
        .with("bytes", count())
        .with("refused", count().about("Messages that a quota refused."));
    object()
        .with("key", text())
        .with("enabled", truth())
        .with("built_in", truth())
        .with("permissions", list(permission(bounds)))
        .with("quotas", quotas)
        .with("created", time())
        .may("rotated", time())
        .may("old_secret_until", time())
        .with("totals", totals.about("What it has sent since it was made."))
}

fn issued(bounds: &Bounds) -> Schema {
    app(bounds)
        .with("secret", text().about("Shown this once."))
        .with("token", text().about("What the app says to be let in: KEY.SECRET."))
}
