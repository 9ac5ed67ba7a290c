//! `punctual topics`.

use serde_json::{Value, json};

use super::Session;
use super::listing::Listing;
use super::pending::topic_path;
use crate::args::{TopicSettings, TopicsCommand};
use crate::output::{Column, field};

impl Session {
    pub(super) fn topics(&self, command: Option<TopicsCommand>) -> anyhow::Result<()> {
        let path = topic_path;
        let answer = match command.unwrap_or(TopicsCommand::List) {
            TopicsCommand::List => return self.list_topics(),
            TopicsCommand::Show { topic } => self.client.get(&path(&topic))?,
            TopicsCommand::Delete { topic } => self.client.delete(&path(&topic))?,
            TopicsCommand::Create { topic, settings } => {
                self.client.put(&path(&topic), &change(settings)?)?
            }
            TopicsCommand::Set { topic, settings } => {
                self.client.patch(&path(&topic), &change(settings)?)?
            }
        };
        self.show(&answer)
    }

    fn list_topics(&self) -> anyhow::Result<()> {
        let listing = Listing {
            name: "topics",
            names: "name",
            columns: &[
                Column::Cut("TOPIC"),
                Column::Number("PARTITIONS"),
                Column::Whole("RETENTION"),
                Column::Whole("STATE"),
            ],
            row: &|topic, _| {
                let [name, partitions, retention, kind] =
                    ["name", "partitions", "retention", "kind"].map(|of| field(topic, of));
                let state = match (topic["paused"] == true, kind.as_str()) {
                    (true, _) => "paused".to_owned(),
                    (false, "plain") => "-".to_owned(),
                    (false, _) => kind,
                };
                vec![name, partitions, retention, state]
            },
            empty: "there are no topics; `punctual send TOPIC BODY --delay 30s` makes one",
        };
        self.listed("/v1/topics", usize::MAX, &listing)
    }
}

fn change(settings: TopicSettings) -> anyhow::Result<Value> {
    let backlog = match (settings.max_backlog.as_deref(), settings.max_backlog_bytes) {
        (None, None) => Value::Null,
        (Some("none"), None) => "none".into(),
        (Some("none"), Some(bytes)) => json!({"bytes": bytes}),
        (Some(messages), bytes) => json!({"messages": number(messages)?, "bytes": bytes}),
        (None, bytes) => json!({"bytes": bytes}),
    };
    let bytes = settings.retention_bytes.map(|text| match text.as_str() {
        "forever" => Ok(Value::from(text)),
        text => number(text).map(Value::from),
    });
    let rate_cap = settings.rate_cap.map(|text| match text.as_str() {
        "none" => Ok(Value::from(text)),
        text => number(text).map(Value::from),
    });
    Ok(json!({
        "partitions": settings.partitions,
        "retention": settings.retention,
        "retention_bytes": bytes.transpose()?,
        "default_ttl": settings.default_ttl,
        "max_backlog": backlog,
        "overflow": settings.overflow,
        "max_delay": settings.max_delay,
        "rate_cap": rate_cap.transpose()?,
        "jitter": settings.jitter,
        "catch_up": settings.catch_up,
        "paused": settings.paused,
    }))
}

fn number(text: &str) -> anyhow::Result<u64> {
    text.parse().map_err(|error| anyhow::anyhow!("{text:?} is not a number: {error}"))
}
