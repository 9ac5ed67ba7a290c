//! `punctual bulk` and `punctual levels`: changes of many messages at once.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value};

use super::Session;
use super::pending::topic_path;
use crate::args::{BulkCommand, BulkOptions, LevelsCommand, PendingFilter};
use crate::client::escaped;
use crate::output::{Column, Table, field, harmless, line};

impl Session {
    pub(super) fn bulk(&self, command: BulkCommand) -> anyhow::Result<()> {
        let (word, done, options, time) = match command {
            BulkCommand::Cancel(options) => ("cancel", "cancelled", options, Map::new()),
            BulkCommand::Reschedule { options, delay, at, shift } => {
                let time = [("delay", delay), ("deliver_at", at), ("shift", shift)];
                ("reschedule", "rescheduled", options, present(time))
            }
            BulkCommand::DeliverNow(options) => ("deliver", "delivered", options, Map::new()),
            BulkCommand::Pause(options) => ("pause", "paused", options, Map::new()),
            BulkCommand::Resume(options) => ("resume", "resumed", options, Map::new()),
        };
        let BulkOptions { topic, filter, all, dry_run } = options;
        let mut ask = time;
        ask.insert("filter".to_owned(), filter_of(filter));
        ask.insert("all".to_owned(), all.into());
        ask.insert("dry_run".to_owned(), dry_run.into());
        let path = format!("{}/scheduled", topic_path(&topic));
        let mut answer = self.client.post(&format!("{path}/{word}"), &ask.into())?;
        if answer["state"] == "running" {
            let job = format!("{path}/jobs/{}", escaped(&field(&answer, "job")));
            answer = self.job_ended(&job, &answer)?;
            answer[done] = answer["done"].take();
        }
        if answer["state"] == "failed" {
            bail!("{} were {done}, then: {}", field(&answer, done), field(&answer, "error"));
        }
        if self.json {
            return line(&answer.to_string());
        }
        let [matched, count, failed] = ["matched", done, "failed"].map(|name| field(&answer, name));
        match dry_run {
            true => line(&format!("{matched} would be {done}")),
            false if failed == "0" || failed == "-" => {
                line(&format!("{count} of {matched} {done}"))
            }
            false => line(&format!("{count} of {matched} {done}, {failed} not")),
        }
    }

    pub(super) fn levels(&self, command: Option<LevelsCommand>) -> anyhow::Result<()> {
        let mut answer = self.client.get("/v1/levels")?;
        if let Some(LevelsCommand::Set { levels }) = command {
            let delays = answer["levels"].as_array_mut().ok_or_else(|| anyhow!("no levels"))?;
            for (level, delay) in levels {
                let slot = level.checked_sub(1).and_then(|index| delays.get_mut(index));
                *slot.ok_or_else(|| anyhow!("there is no level {level}"))? = delay.into();
            }
            answer = self.client.put("/v1/levels", &answer)?;
        }
        if self.json {
            return line(&answer.to_string());
        }
        let mut table = Table::new(&[Column::Number("LEVEL"), Column::Whole("DELAY")]);
        for (index, delay) in answer["levels"].as_array().into_iter().flatten().enumerate() {
            table.row(vec![(index + 1).to_string(), harmless(delay.as_str().unwrap_or("-"))]);
        }
        table.print()
    }
}

fn filter_of(filter: PendingFilter) -> Value {
    let PendingFilter { from, to, key, key_prefix, app, state } = filter;
    present([
        ("from", from),
        ("to", to),
        ("key", key),
        ("key_prefix", key_prefix),
        ("app", app),
        ("state", state),
    ])
    .into()
}

/// Those that are there.
fn present<const N: usize>(given: [(&str, Option<String>); N]) -> Map<String, Value> {
    let present = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.map(|(name, value)| (name.to_owned(), value.into())).collect()
}
