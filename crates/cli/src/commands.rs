//! The client commands.

mod topics;
mod receive;
mod consume;
mod groups;
mod dead;
mod job;
mod pending;
mod transactions;
mod transfer;

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::{anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::args::{ClientCommand, ClientOptions, RepeatOptions, SendOptions};
use crate::client::{Client, escaped};
use crate::output::{field, fields, line};

/// Most messages the server gives in one page.
const PAGE_MESSAGES_MAX: usize = 1000;
/// How much of a body a list shows.
const BODY_CHARS_SHOWN: usize = 60;

pub(crate) fn run(options: &ClientOptions, command: ClientCommand) -> anyhow::Result<()> {
    let session = Session { client: Client::new(&options.server), json: options.json };
    match command {
        ClientCommand::Send(options) => session.send(options),
        ClientCommand::Get(place) => session.get(&place),
        ClientCommand::Cancel { ids, topic } => session.cancel(&ids, topic.as_deref()),
        ClientCommand::Reschedule { place, time } => session.reschedule(&place, time),
        ClientCommand::Pause(place) => session.set_paused(&place, true),
        ClientCommand::Resume(place) => session.set_paused(&place, false),
        ClientCommand::DeliverNow(place) => session.deliver_now(&place),
        ClientCommand::List(options) => session.list(&options),
        ClientCommand::Bulk { command } => session.bulk(command),
        ClientCommand::Forecast { topic } => session.forecast(topic.as_deref()),
        ClientCommand::Series { topic, limit } => session.series(&topic, limit),
        ClientCommand::Levels { command } => session.levels(command),
        ClientCommand::Transactions { command } => session.transactions(command),
        ClientCommand::Export(options) => session.export(&options),
        ClientCommand::Import(options) => session.import(&options),
        ClientCommand::Audit { topic, limit } => session.audit(topic.as_deref(), limit),
        ClientCommand::Receive(options) => session.receive(&options),
        ClientCommand::Consume(options) => consume::run(session, options),
        ClientCommand::Topics { command } => session.topics(command),
        ClientCommand::Groups { command } => session.groups(command),
        ClientCommand::Dead { command } => session.dead(command),
    }
}

struct Session {
    client: Client,
    json: bool,
}

impl Session {
    fn send(&self, options: SendOptions) -> anyhow::Result<()> {
        let path = format!("/v1/topics/{}/messages", escaped(&options.topic));
        let answer = self.client.post(&path, &message(options)?)?;
        if self.json {
            line(&answer.to_string())
        } else {
            let before = if answer["duplicate"] == true { "  sent before" } else { "" };
            line(&format!("{}  due {}{before}", field(&answer, "id"), field(&answer, "due")))
        }
    }

    fn listed(&self, message: &Value) -> anyhow::Result<()> {
        if self.json {
            return line(&message.to_string());
        }
        let [due, id, key] = ["due", "id", "key"].map(|name| field(message, name));
        line(&format!("{due}  {id}  {key}  {}", shown_body(message)))
    }

    /// An answer in whole: for programs as it is, for people a field per line.
    fn show(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json { line(&answer.to_string()) } else { fields(answer) }
    }

    /// Every element of a list that comes in pages, at most `limit` of them.
    fn pages(
        &self,
        path: &str,
        name: &str,
        limit: usize,
        mut show: impl FnMut(&Value) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (mut left, mut cursor) = (limit, String::new());
        let join = if path.contains('?') { '&' } else { '?' };
        while left > 0 {
            let limit = left.min(PAGE_MESSAGES_MAX);
            let page = self.client.get(&format!("{path}{join}limit={limit}{cursor}"))?;
            let elements = page[name].as_array().ok_or_else(|| anyhow!("not a page"))?;
            for element in elements.iter().take(left) {
                show(element)?;
            }
            left = left.saturating_sub(elements.len());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", escaped(next)),
                None => break,
            }
        }
        Ok(())
    }
}

/// The text that people see of a body.
fn shown_body(message: &Value) -> String {
    let body = if message["body"].is_string() { "body" } else { "body_base64" };
    field(message, body).chars().take(BODY_CHARS_SHOWN).collect()
}

/// Adds parameters to a path, those that are there.
fn with_parameters(mut path: String, parameters: &[(&str, Option<&str>)]) -> String {
    for (name, value) in parameters {
        if let Some(value) = value {
            let join = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{join}{name}={}", escaped(value)));
        }
    }
    path
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
fn headers(given: Vec<(String, String)>) -> Option<Value> {
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
