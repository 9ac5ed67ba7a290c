//! The client commands.

use std::io::{self, IsTerminal as _, Read as _};

use anyhow::{anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::args::{ClientCommand, ClientOptions, ListOptions, SendOptions, TopicsCommand};
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
        ClientCommand::Topics { command } => session.topics(command),
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
        if self.json { line(&answer.to_string()) } else { fields(&answer) }
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
        let mut left = options.limit;
        let mut cursor: Option<String> = None;
        while left > 0 {
            let page = self.client.get(&page_path(options, left, cursor.as_deref()))?;
            let messages = page["messages"].as_array().ok_or_else(|| anyhow!("not a page"))?;
            for message in messages.iter().take(left) {
                self.listed(message)?;
            }
            left = left.saturating_sub(messages.len());
            cursor = page["next"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn listed(&self, message: &Value) -> anyhow::Result<()> {
        if self.json {
            return line(&message.to_string());
        }
        let body = if message["body"].is_string() { "body" } else { "body_base64" };
        let body: String = field(message, body).chars().take(BODY_CHARS_SHOWN).collect();
        let [due, id, key] = ["due", "id", "key"].map(|name| field(message, name));
        line(&format!("{due}  {id}  {key}  {body}"))
    }

    fn topics(&self, command: TopicsCommand) -> anyhow::Result<()> {
        let path = |topic: &str| format!("/v1/topics/{}", escaped(topic));
        let answer = match command {
            TopicsCommand::List => return self.list_topics(),
            TopicsCommand::Show { topic } => self.client.get(&path(&topic))?,
            TopicsCommand::Delete { topic } => self.client.delete(&path(&topic))?,
            TopicsCommand::Create { topic, partitions, retention } => {
                let settings = json!({"partitions": partitions, "retention": retention});
                self.client.put(&path(&topic), &settings)?
            }
        };
        if self.json { line(&answer.to_string()) } else { fields(&answer) }
    }

    fn list_topics(&self) -> anyhow::Result<()> {
        let mut cursor = String::new();
        loop {
            let page = self.client.get(&format!("/v1/topics?limit=1000{cursor}"))?;
            for topic in page["topics"].as_array().into_iter().flatten() {
                if self.json {
                    line(&topic.to_string())?;
                } else {
                    let partitions = field(topic, "partitions");
                    line(&format!("{}  {partitions} partitions", field(topic, "name")))?;
                }
            }
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={}", escaped(next)),
                None => return Ok(()),
            }
        }
    }
}

fn page_path(options: &ListOptions, left: usize, cursor: Option<&str>) -> String {
    let limit = left.min(PAGE_MESSAGES_MAX);
    let mut path = format!("/v1/topics/{}/scheduled?limit={limit}", escaped(&options.topic));
    for (name, value) in [
        ("from", options.from.as_deref()),
        ("to", options.to.as_deref()),
        ("key", options.key.as_deref()),
        ("cursor", cursor),
    ] {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", escaped(value)));
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
    let headers: Vec<Value> = options
        .headers
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    for (name, value) in [
        ("delay", options.delay.map(Value::from)),
        ("deliver_at", options.at.map(Value::from)),
        ("delay_level", options.level.map(Value::from)),
        ("key", options.key.map(Value::from)),
        ("partition", options.partition.map(Value::from)),
        ("headers", (!headers.is_empty()).then_some(Value::Array(headers))),
    ] {
        if let Some(value) = value {
            message.insert(name.to_owned(), value);
        }
    }
    Ok(Value::Object(message))
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
