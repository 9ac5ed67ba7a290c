//! `punctual topics`.

use serde_json::{Value, json};

use super::Session;
use crate::args::{TopicSettings, TopicsCommand};
use crate::client::escaped;
use crate::output::{field, line};

impl Session {
    pub(super) fn topics(&self, command: TopicsCommand) -> anyhow::Result<()> {
        let path = |topic: &str| format!("/v1/topics/{}", escaped(topic));
        let answer = match command {
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
        self.pages("/v1/topics", "topics", usize::MAX, |topic| {
            if self.json {
                return line(&topic.to_string());
            }
            let [name, kind, partitions] =
                ["name", "kind", "partitions"].map(|of| field(topic, of));
            let kind = if kind == "plain" { String::new() } else { format!("  {kind}") };
            line(&format!("{name}  {partitions} partitions{kind}"))
        })
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
