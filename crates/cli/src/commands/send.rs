//! `punctual send`.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::bail;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::Session;
use super::pending::topic_path;
use crate::args::{RepeatOptions, SendOptions};
use crate::output::{field, line, time_field};

impl Session {
    pub(super) fn send(&self, options: SendOptions) -> anyhow::Result<()> {
        let path = format!("{}/messages", topic_path(&options.topic));
        let answer = self.client.post(&path, &message(options)?)?;
        if self.json || self.quiet {
            return self.show(&answer);
        }
        let before = if answer["duplicate"] == true { ", sent before" } else { "" };
        let due = time_field(&answer, "due", self.now());
        line(&format!("{}  due {due}{before}", field(&answer, "id")))
    }
}

/// The message as the API takes it.
fn message(options: SendOptions) -> anyhow::Result<Value> {
    let mut message = Map::new();
    match String::from_utf8(body(options.body)?) {
        Ok(text) => message.insert("body".to_owned(), text.into()),
        Err(error) => {
            message.insert("body_base64".to_owned(), STANDARD.encode(error.as_bytes()).into())
        }
    };
    let headers = headers(options.headers);
    for (name, value) in [
        ("delay", options.delay.map(Value::from)),
        ("deliver_at", options.at.map(Value::from)),
        ("delay_level", options.level.map(Value::from)),
        ("key", options.key.map(Value::from)),
        ("partition", options.partition.map(Value::from)),
        ("ttl", options.ttl.map(Value::from)),
        ("max_attempts", options.max_attempts.map(Value::from)),
        ("id", options.id.map(Value::from)),
        ("on_conflict", options.replace.then(|| "replace".into())),
        ("catch_up", options.catch_up),
        ("repeat", repeat(options.repeat)),
        ("headers", headers),
    ] {
        if let Some(value) = value {
            message.insert(name.to_owned(), value);
        }
    }
    Ok(Value::Object(message))
}

/// When a message comes round, as the API takes it.
fn repeat(options: RepeatOptions) -> Option<Value> {
    let RepeatOptions { every, cron, tz, count, until } = options;
    let rule = every.is_some() || cron.is_some();
    rule.then(|| json!({"every": every, "cron": cron, "zone": tz, "count": count, "until": until}))
}

/// Headers as the API takes them, if there are any.
pub(super) fn headers(given: Vec<(String, String)>) -> Option<Value> {
    let header = |(name, value)| json!({"name": name, "value": value});
    let headers: Vec<Value> = given.into_iter().map(header).collect();
    (!headers.is_empty()).then_some(Value::Array(headers))
}

fn body(given: Option<String>) -> anyhow::Result<Vec<u8>> {
    match given {
        Some(text) if text != "-" => return Ok(text.into_bytes()),
        None if io::stdin().is_terminal() => bail!("give a body, or `-` to read it from a pipe"),
        _ => {}
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
