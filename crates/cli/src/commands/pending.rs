//! Commands about messages that are still to come.

use anyhow::{anyhow, bail};
use serde_json::{Map, Value, json};

use super::{Session, with_parameters};
use crate::args::{
    BulkCommand, BulkOptions, LevelsCommand, ListOptions, PendingFilter, Place, TimeOptions,
};
use crate::client::escaped;
use crate::output::{failure, field, line};

impl Session {
    pub(super) fn get(&self, place: &Place) -> anyhow::Result<()> {
        let answer = self.client.get(&message_path(place))?;
        self.show(&answer)
    }

    /// Tries every id; the first refusal is told at once and the code at the end.
    pub(super) fn cancel(&self, ids: &[String], topic: Option<&str>) -> anyhow::Result<()> {
        let mut refused = 0;
        for id in ids {
            let place = Place { id: id.clone(), topic: topic.map(str::to_owned) };
            match self.client.delete(&message_path(&place)) {
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

    pub(super) fn reschedule(&self, place: &Place, time: TimeOptions) -> anyhow::Result<()> {
        let TimeOptions { delay, at, level } = time;
        let change = json!({"delay": delay, "deliver_at": at, "delay_level": level});
        self.changed(&self.client.patch(&message_path(place), &change)?)
    }

    pub(super) fn set_paused(&self, place: &Place, paused: bool) -> anyhow::Result<()> {
        self.changed(&self.client.patch(&message_path(place), &json!({"paused": paused}))?)
    }

    pub(super) fn deliver_now(&self, place: &Place) -> anyhow::Result<()> {
        let path = format!("{}/deliver", message_path(place));
        self.changed(&self.client.post(&path, &json!({}))?)
    }

    /// What a message has become: for people in a line.
    fn changed(&self, message: &Value) -> anyhow::Result<()> {
        if self.json {
            return line(&message.to_string());
        }
        let [id, state] = ["id", "state"].map(|name| field(message, name));
        match message["remaining"].is_null() {
            true => line(&format!("{id}  {state}, due {}", field(message, "due"))),
            false => line(&format!("{id}  {state}, {} left", field(message, "remaining"))),
        }
    }

    pub(super) fn list(&self, options: &ListOptions) -> anyhow::Result<()> {
        let path = format!("{}/scheduled", topic_path(&options.topic));
        let filter = &options.filter;
        let parameters = [
            ("from", filter.from.as_deref()),
            ("to", filter.to.as_deref()),
            ("key", filter.key.as_deref()),
            ("key_prefix", filter.key_prefix.as_deref()),
            ("state", filter.state.as_deref()),
        ];
        let path = with_parameters(path, &parameters);
        self.pages(&path, "messages", options.limit, |message| self.listed(message))
    }

    pub(super) fn series(&self, topic: &str, limit: usize) -> anyhow::Result<()> {
        let path = format!("{}/series", topic_path(topic));
        self.pages(&path, "series", limit, |series| {
            if self.json {
                return line(&series.to_string());
            }
            let [due, id, repeat, number] =
                ["due", "id", "repeat", "number"].map(|name| field(series, name));
            line(&format!("{due}  {id}  {repeat}  number {number}"))
        })
    }

    pub(super) fn forecast(&self, topic: Option<&str>) -> anyhow::Result<()> {
        if let Some(topic) = topic {
            return self.forecast_of(topic);
        }
        let mut topics = Vec::new();
        self.pages("/v1/topics", "topics", usize::MAX, |topic| {
            if topic["kind"].is_null() || topic["kind"] == "plain" {
                topics.extend(topic["name"].as_str().map(str::to_owned));
            }
            Ok(())
        })?;
        topics.iter().try_for_each(|topic| self.forecast_of(topic))
    }

    fn forecast_of(&self, topic: &str) -> anyhow::Result<()> {
        let mut forecast = self.client.get(&format!("{}/forecast", topic_path(topic)))?;
        if self.json {
            forecast["topic"] = topic.into();
            return line(&forecast.to_string());
        }
        let [total, paused, later] =
            ["total", "paused", "later"].map(|name| field(&forecast, name));
        let due = forecast["due"].as_array().into_iter().flatten();
        let due: Vec<String> = due
            .map(|reach| format!("{} within {}", field(reach, "count"), field(reach, "within")))
            .collect();
        line(&format!("{topic}  {total} pending, {paused} paused"))?;
        line(&format!("  {}, {later} later", due.join(", ")))
    }

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

    pub(super) fn levels(&self, command: LevelsCommand) -> anyhow::Result<()> {
        let mut answer = self.client.get("/v1/levels")?;
        if let LevelsCommand::Set { levels } = command {
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
        for (index, delay) in answer["levels"].as_array().into_iter().flatten().enumerate() {
            line(&format!("{:>2}  {}", index + 1, delay.as_str().unwrap_or("-")))?;
        }
        Ok(())
    }

    pub(super) fn audit(&self, topic: Option<&str>, limit: usize) -> anyhow::Result<()> {
        let path = with_parameters("/v1/audit".to_owned(), &[("topic", topic)]);
        self.pages(&path, "entries", limit, |entry| {
            if self.json {
                return line(&entry.to_string());
            }
            let [at, who, what, topic, details] =
                ["at", "who", "what", "topic", "details"].map(|name| field(entry, name));
            line(&format!("{at}  {who}  {what}  {topic}  {details}"))
        })
    }
}

/// Where a message is: by our id alone, by the sender's in its topic.
fn message_path(place: &Place) -> String {
    let id = escaped(&place.id);
    match &place.topic {
        Some(topic) => format!("{}/messages/{id}", topic_path(topic)),
        None => format!("/v1/messages/{id}"),
    }
}

pub(super) fn topic_path(topic: &str) -> String {
    format!("/v1/topics/{}", escaped(topic))
}

fn filter_of(filter: PendingFilter) -> Value {
    let PendingFilter { from, to, key, key_prefix, state } = filter;
    present([
        ("from", from),
        ("to", to),
        ("key", key),
        ("key_prefix", key_prefix),
        ("state", state),
    ])
    .into()
}

/// Those that are there.
fn present<const N: usize>(given: [(&str, Option<String>); N]) -> Map<String, Value> {
    let present = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
    present.map(|(name, value)| (name.to_owned(), value.into())).collect()
}
