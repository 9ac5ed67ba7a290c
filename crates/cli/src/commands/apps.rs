//! `punctual apps`: who may do what, and how much.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Session;
use super::listing::Listing;
use crate::args::{AppSettings, AppsCommand};
use crate::client::escaped;
use crate::output::{Column, field, fields, harmless, line, say};

impl Session {
    pub(super) fn apps(&self, command: Option<AppsCommand>) -> anyhow::Result<()> {
        let path = |app: &str| format!("/v1/apps/{}", escaped(app));
        let client = &self.client;
        let answer = match command.unwrap_or(AppsCommand::List) {
            AppsCommand::List => return self.listed("/v1/apps", usize::MAX, &LISTING),
            AppsCommand::Show { app } => client.get(&path(&app))?,
            AppsCommand::Create { app, settings } => {
                let mut ask = change(settings, &Value::Null);
                ask.insert("key".to_owned(), app.into());
                return self.issued(&client.post("/v1/apps", &ask.into())?);
            }
            AppsCommand::Set { app, settings } => {
                // Quotas are replaced as a whole, so those that are not named are said again.
                let before = client.get(&path(&app))?;
                client.patch(&path(&app), &change(settings, &before["quotas"]).into())?
            }
            AppsCommand::Rotate { app, keep_old } => {
                let ask = keep_old.map_or_else(|| json!({}), |kept| json!({"keep_old": kept}));
                return self.issued(&client.post(&format!("{}/rotate", path(&app)), &ask)?);
            }
            AppsCommand::Disable { app } => {
                client.post(&format!("{}/disable", path(&app)), &json!({}))?
            }
            AppsCommand::Enable { app } => {
                client.post(&format!("{}/enable", path(&app)), &json!({}))?
            }
            AppsCommand::Delete { app } => client.delete(&path(&app))?,
        };
        self.show_app(&answer)
    }

    fn show_app(&self, app: &Value) -> anyhow::Result<()> {
        if self.json || self.quiet {
            return self.show(app);
        }
        let mut shown = app.clone();
        let permissions = app["permissions"].as_array().into_iter().flatten();
        let permissions: Vec<String> = permissions.map(allowed).collect();
        if let Some(fields) = shown.as_object_mut().filter(|_| app["permissions"].is_array()) {
            fields.remove("permissions");
            fields.insert("allowed".to_owned(), permissions.join("; ").into());
        }
        fields(&shown, self.now())
    }

    /// An app with its secret, which nobody can show again.
    fn issued(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json {
            return line(&answer.to_string());
        }
        if self.quiet {
            return line(&field(answer, "token"));
        }
        let mut app = answer.clone();
        if let Some(fields) = app.as_object_mut() {
            // It is the second half of the token.
            fields.remove("secret");
        }
        self.show_app(&app)?;
        say("keep the token: it is shown this once. Use it with PUNCTUAL_TOKEN or --token");
        Ok(())
    }
}

const LISTING: Listing<'_> = Listing {
    name: "apps",
    names: "key",
    columns: &[
        Column::Cut("APP"),
        Column::Whole("STATE"),
        Column::Cut("ALLOWED"),
        Column::Cut("QUOTAS"),
        Column::Whole("CREATED"),
    ],
    row: &row,
    empty: "there are no apps; `punctual apps create APP --allow send:TOPIC` makes one",
};

fn row(app: &Value, _now: Timestamp) -> Vec<String> {
    let state = match (app["enabled"] == true, app["built_in"] == true) {
        (false, _) => "disabled",
        (true, true) => "built in",
        (true, false) => "enabled",
    };
    let permissions = app["permissions"].as_array().into_iter().flatten();
    let permissions: Vec<String> = permissions.map(allowed).collect();
    let quotas = app["quotas"].as_object().into_iter().flatten();
    let quotas: Vec<String> = quotas.map(|(name, quota)| format!("{name}={quota}")).collect();
    let or_none = |texts: Vec<String>| match texts.is_empty() {
        true => "-".to_owned(),
        false => harmless(&texts.join("; ")),
    };
    vec![
        field(app, "key"),
        state.to_owned(),
        or_none(permissions),
        or_none(quotas),
        field(app, "created"),
    ]
}

/// A permission in the form in which it is given.
fn allowed(permission: &Value) -> String {
    let verbs = permission["verbs"].as_array().into_iter().flatten();
    let verbs: Vec<&str> = verbs.filter_map(Value::as_str).collect();
    let topics = permission["topics"].as_str().unwrap_or("-");
    let groups = permission["groups"].as_str().map(|groups| format!(":{groups}"));
    harmless(&format!("{}:{topics}{}", verbs.join(","), groups.unwrap_or_default()))
}

/// What is to be, as the API takes it.
fn change(settings: AppSettings, quotas_before: &Value) -> Map<String, Value> {
    let mut change = Map::new();
    let AppSettings { mut permissions, group, .. } = settings;
    if !permissions.is_empty() {
        for permission in permissions.iter_mut().filter(|one| one["groups"].is_null()) {
            if let Some(group) = &group {
                permission["groups"] = group.as_str().into();
            }
        }
        change.insert("permissions".to_owned(), permissions.into());
    }
    let mut quotas = quotas_before.as_object().cloned().unwrap_or_default();
    let given = [
        ("messages_per_second", settings.messages_per_second),
        ("bytes_per_second", settings.bytes_per_second),
        ("pending", settings.pending),
        ("connections", settings.connections),
    ];
    let is_said = given.iter().any(|(_, quota)| quota.is_some());
    for (name, quota) in given.into_iter().filter_map(|(name, quota)| Some((name, quota?))) {
        match quota {
            Value::Null => quotas.remove(name),
            quota => quotas.insert(name.to_owned(), quota),
        };
    }
    if is_said {
        change.insert("quotas".to_owned(), quotas.into());
    }
    change
}
