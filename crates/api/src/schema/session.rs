//! Who sits at a browser.

use serde_json::json;

use super::{Bounds, Named, Schema, list, object, text, time, truth, word};
use crate::schema::app::permission;

pub(super) fn components(bounds: &Bounds) -> Named {
    let sign_in = object().with("token", text().about("KEY.SECRET")).closed();
    let sign_in = sign_in.example(json!({"token": "orders-service.secret"}));
    vec![("SignIn", sign_in), ("Session", session(bounds))]
}

fn session(bounds: &Bounds) -> Schema {
    let csrf = "Changes need it in the header X-Punctual-Csrf.";
    object()
        .with("auth", truth().about("Whether everybody must say who they are."))
        .with("signed_in", truth())
        .with("app", text().or_null())
        .with("permissions", list(permission(bounds)))
        .with("csrf", text().or_null().about(csrf))
        .with("expires_at", time().or_null())
        .with("mode", word(["single", "cluster"]))
        .with("outlet", word(["log", "kafka"]))
        .with("version", text())
}
