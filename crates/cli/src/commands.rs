//! The client commands.

mod topics;
mod receive;
mod consume;
mod groups;
mod dead;
mod job;

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::{anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::args::{ClientCommand, ClientOptions, ListOptions, SendOptions};
use crate::client::{Client, escaped};
use crate::output::{failure, field, fields, line};

/// Most messages the server gives in one page.
const PAGE_MESSAGES_MAX: usize = 1000;
/// How much of a body a list shows.
const BODY_CHARS_SHOWN: usize = 60;

pub(crate) fn run(options: &ClientOptions, command: ClientCommand) -> anyhow::Result<()> {
    let session = Session { client: Client::new(&options.server), json: options.json };
    match command {
        ClientCommand::Send(options) => session.send(options),
        ClientCommand::Get { id } => session.get(&id),
        ClientCommand::Cancel { ids } => session.cancel(&ids),
        ClientCommand::List(options) => session.list(&options),
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
            line(&format!("{}  due {}", field(&answer, "id"), field(&answer, "due")))
        }
    }

    fn get(&self, id: &str) -> anyhow::Result<()> {
        let answer = self.client.get(&format!("/v1/messages/{}", escaped(id)))?;
        self.show(&answer)
    }

    /// Tries every id; the first refusal is told at once and the code at the end.
    fn cancel(&self, ids: &[String]) -> anyhow::Result<()> {
        let mut refused = 0;
        for id in ids {
            match self.client.delete(&format!("/v1/messages/{}", escaped(id))) {
                Ok(answer) if self.json => {
                    line(&json!({"id": id, "result": answer["result"]}).to_string())?;
                }
                Ok(answer) => line(&format!("{id}  {}", field(&answer, "result")))?,
                Err(error) => {
                    refused += 1;
                    // The code is told for all of them at the end.
                    let _code = failure(&error.context(format!("{id} was not cancelled")));
                }
            }
        }
        if refused > 0 { bail!("{refused} of {} were not cancelled", ids.len()) } else { Ok(()) }
    }

    fn list(&self, options: &ListOptions) -> anyhow::Result<()> {
        let path = format!("/v1/topics/{}/scheduled", escaped(&options.topic));
        let parameters = [
            ("from", options.from.as_deref()),
            ("to", options.to.as_deref()),
            ("key", options.key.as_deref()),
        ];
        let path = with_parameters(path, &parameters);
        self.pages(&path, "messages", options.limit, |message| self.listed(message))
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
        ("headers", headers),
    ] {
        if let Some(value) = value {
            message.insert(name.to_owned(), value);
        }
    }
    Ok(Value::Object(message))
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
