//! `punctual receive`.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value, json};

use super::{Session, shown_body};
use crate::args::ReceiveOptions;
use crate::client::escaped;
use crate::output::{field, line};

impl Session {
    pub(super) fn receive(&self, options: &ReceiveOptions) -> anyhow::Result<()> {
        let group = group_path(&options.topic, &options.group);
        let mut ask = Map::new();
        ask.insert("max".to_owned(), options.max.into());
        for (name, value) in [("wait", &options.wait), ("lease", &options.lease)] {
            if let Some(text) = value {
                ask.insert(name.to_owned(), text.as_str().into());
            }
        }
        let answer = self.client.post_waiting(&format!("{group}/receive"), &ask.into())?;
        let messages = answer["messages"].as_array().ok_or_else(|| anyhow!("not messages"))?;
        for message in messages {
            self.received(message, options.ack)?;
        }
        if options.ack && !messages.is_empty() { self.ack(&group, messages) } else { Ok(()) }
    }

    fn received(&self, message: &Value, acks: bool) -> anyhow::Result<()> {
        if self.json {
            return line(&message.to_string());
        }
        let [id, attempt, key] = ["id", "attempt", "key"].map(|name| field(message, name));
        let body = shown_body(message);
        if acks {
            line(&format!("{id}  attempt {attempt}  {key}  {body}"))
        } else {
            // Without its receipt nothing can be done with it.
            let receipt = field(message, "receipt");
            line(&format!("{id}  {receipt}  attempt {attempt}  {key}  {body}"))
        }
    }

    /// Says that the group is done with messages.
    pub(super) fn ack(&self, group: &str, messages: &[Value]) -> anyhow::Result<()> {
        let receipts: Vec<&Value> = messages.iter().map(|message| &message["receipt"]).collect();
        let answer = self.client.post(&format!("{group}/ack"), &json!({"receipts": receipts}))?;
        let results = answer["results"].as_array().into_iter().flatten();
        let late = results.filter(|result| result["result"] != "acked").count();
        if late > 0 {
            bail!("{late} of {} were not held any more and will come again", messages.len())
        }
        Ok(())
    }
}

/// Where a group is found.
pub(super) fn group_path(topic: &str, group: &str) -> String {
    format!("/v1/topics/{}/groups/{}", escaped(topic), escaped(group))
}
