//! `punctual receive`, `ack`, `nack` and `extend`.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value, json};

use super::{Session, shown_body};
use crate::args::{NackOptions, Receipts, ReceiveOptions};
use crate::client::escaped;
use crate::output::{Column, Table, field, line, say};

const ACKED: &[Column] =
    &[Column::Whole("ID"), Column::Number("ATTEMPT"), Column::Cut("KEY"), Column::Cut("BODY")];
const RECEIVED: &[Column] = &[
    Column::Whole("ID"),
    Column::Whole("RECEIPT"),
    Column::Number("ATTEMPT"),
    Column::Cut("KEY"),
    Column::Cut("BODY"),
];

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
        self.received(messages, options)?;
        if options.ack && !messages.is_empty() { self.ack(&group, messages) } else { Ok(()) }
    }

    fn received(&self, messages: &[Value], options: &ReceiveOptions) -> anyhow::Result<()> {
        if self.json {
            return messages.iter().try_for_each(|message| line(&message.to_string()));
        }
        if self.quiet {
            // Without its receipt nothing can be done with it; with an ack the id tells more.
            let name = if options.ack { "id" } else { "receipt" };
            return messages.iter().try_for_each(|message| line(&field(message, name)));
        }
        if messages.is_empty() {
            say(&format!("nothing waits for {} in {}", options.group, options.topic));
        }
        let mut table = Table::new(if options.ack { ACKED } else { RECEIVED });
        for message in messages {
            let [id, attempt, key, receipt] =
                ["id", "attempt", "key", "receipt"].map(|name| field(message, name));
            let mut row = vec![id, attempt, key, shown_body(message)];
            if !options.ack {
                row.insert(1, receipt);
            }
            table.row(row);
        }
        table.print()
    }

    pub(super) fn nack(&self, options: &NackOptions) -> anyhow::Result<()> {
        let mut how = Map::new();
        for (name, value) in [("delay", &options.delay), ("error", &options.error)] {
            if let Some(text) = value {
                how.insert(name.to_owned(), text.as_str().into());
            }
        }
        how.insert("reject".to_owned(), options.reject.into());
        self.settle(&options.receipts, "nack", &how.into())
    }

    /// Says what becomes of messages that were received; `word` is the call.
    pub(super) fn settle(
        &self,
        receipts: &Receipts,
        word: &str,
        how: &Value,
    ) -> anyhow::Result<()> {
        let group = group_path(&receipts.topic, &receipts.group);
        let mut ask = how.clone();
        ask["receipts"] = json!(receipts.receipts);
        let answer = self.client.post(&format!("{group}/{word}"), &ask)?;
        let results = answer["results"].as_array().ok_or_else(|| anyhow!("not results"))?;
        for result in results {
            match self.json {
                true => line(&result.to_string())?,
                false if self.quiet => line(&field(result, "receipt"))?,
                false => {
                    line(&format!("{}  {}", field(result, "receipt"), field(result, "result")))?;
                }
            }
        }
        let late = results.iter().filter(|result| result["result"] == "not_held").count();
        if late > 0 { bail!("{late} of {} are not held any more", results.len()) } else { Ok(()) }
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
