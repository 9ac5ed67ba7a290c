//! Commands about messages that are still to come.

use anyhow::bail;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::listing::Listing;
use super::{Session, shown_body, with_parameters};
use crate::args::{ListOptions, Place, TimeOptions};
use crate::client::escaped;
use crate::output::{
    Column, Table, cut, distance, failure, field, harmless, line, say, time_field,
};

/// How much of a rule a list shows.
const RULE_CHARS_SHOWN: usize = 60;

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
                Ok(_) if self.quiet => line(&harmless(id))?,
                Ok(answer) => line(&format!("{}  {}", harmless(id), field(&answer, "result")))?,
                Err(error) if ids.len() == 1 => return Err(error.context("not cancelled")),
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
        if self.json || self.quiet {
            return self.show(message);
        }
        let [id, state] = ["id", "state"].map(|name| field(message, name));
        match message["remaining"].is_null() {
            true => line(&format!("{id}  {state}, due {}", time_field(message, "due", self.now()))),
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
            ("app", filter.app.as_deref()),
            ("state", filter.state.as_deref()),
        ];
        let is_filtered = parameters.iter().any(|(_, value)| value.is_some());
        let topic = &options.topic;
        let empty = match is_filtered {
            true => format!("nothing in {topic} is pending that fits"),
            false => format!(
                "nothing is pending in {topic}; `punctual send {topic} BODY --delay 30s` sends"
            ),
        };
        let listing = Listing {
            name: "messages",
            names: "id",
            columns: &[
                Column::Whole("ID"),
                Column::Whole("DUE"),
                Column::Whole("WHEN"),
                Column::Cut("KEY"),
                Column::Cut("BODY"),
            ],
            row: &|message, now| {
                let when = when(message, now);
                let [id, due, key] = ["id", "due", "key"].map(|name| field(message, name));
                vec![id, due, when, key, shown_body(message)]
            },
            empty: &empty,
        };
        self.listed(&with_parameters(path, &parameters), options.limit, &listing)
    }

    pub(super) fn series(&self, topic: &str, limit: usize) -> anyhow::Result<()> {
        let path = format!("{}/series", topic_path(topic));
        let empty =
            format!("no series in {topic}; `punctual send {topic} BODY --every 10m` makes one");
        let listing = Listing {
            name: "series",
            names: "id",
            columns: &[
                Column::Whole("ID"),
                Column::Whole("NEXT"),
                Column::Whole("WHEN"),
                Column::Number("NUMBER"),
                Column::Cut("REPEAT"),
                Column::Cut("BODY"),
            ],
            row: &|series, now| {
                let when = when(series, now);
                let [id, due, number] = ["id", "due", "number"].map(|name| field(series, name));
                vec![id, due, when, number, rule(&series["repeat"]), shown_body(series)]
            },
            empty: &empty,
        };
        self.listed(&path, limit, &listing)
    }

    pub(super) fn forecast(&self, topic: Option<&str>) -> anyhow::Result<()> {
        let mut topics = Vec::new();
        match topic {
            Some(topic) => topics.push(topic.to_owned()),
            None => self.pages("/v1/topics", "topics", usize::MAX, |page| {
                let plain =
                    page.iter().filter(|topic| topic["kind"].is_null() || topic["kind"] == "plain");
                topics.extend(plain.filter_map(|topic| topic["name"].as_str().map(str::to_owned)));
                Ok(())
            })?,
        }
        if topics.is_empty() && !self.json && !self.quiet {
            say("there are no topics; `punctual send TOPIC BODY --delay 30s` makes one");
        }
        let mut table = Table::new(FORECAST);
        for topic in topics {
            let mut forecast = self.client.get(&format!("{}/forecast", topic_path(&topic)))?;
            if self.json {
                forecast["topic"] = topic.into();
                line(&forecast.to_string())?;
            } else if self.quiet {
                line(&field(&forecast, "total"))?;
            } else {
                table.row(forecast_row(&topic, &forecast));
            }
        }
        table.print()
    }

    pub(super) fn audit(&self, topic: Option<&str>, limit: usize) -> anyhow::Result<()> {
        let path = with_parameters("/v1/audit".to_owned(), &[("topic", topic)]);
        let listing = Listing {
            name: "entries",
            names: "what",
            columns: &[
                Column::Whole("AT"),
                Column::Whole("WHEN"),
                Column::Cut("WHO"),
                Column::Whole("WHAT"),
                Column::Cut("TOPIC"),
                Column::Cut("DETAILS"),
            ],
            row: &|entry, now| {
                let [at, who, what, topic, details] =
                    ["at", "who", "what", "topic", "details"].map(|name| field(entry, name));
                let when = distance(&at, now).unwrap_or_default();
                vec![at, when, who, what, topic, details]
            },
            empty: "nothing was changed yet",
        };
        self.listed(&path, limit, &listing)
    }
}

/// How far away the time of a message is, or what is left of it.
fn when(message: &Value, now: Timestamp) -> String {
    if message["remaining"].is_string() {
        return format!("paused, {} left", field(message, "remaining"));
    }
    distance(&field(message, "due"), now).unwrap_or_else(|| "-".to_owned())
}

/// When a series comes round, in words.
fn rule(repeat: &Value) -> String {
    let text = match (repeat["every"].as_str(), repeat["cron"].as_str()) {
        (Some(every), _) => format!("every {every}"),
        (None, Some(cron)) => format!("{cron} {}", repeat["zone"].as_str().unwrap_or("UTC")),
        (None, None) => repeat.to_string(),
    };
    cut(&harmless(&text), RULE_CHARS_SHOWN)
}

const FORECAST: &[Column] = &[
    Column::Cut("TOPIC"),
    Column::Number("PENDING"),
    Column::Number("PAUSED"),
    Column::Number("1M"),
    Column::Number("10M"),
    Column::Number("1H"),
    Column::Number("6H"),
    Column::Number("1D"),
    Column::Number("7D"),
    Column::Number("40D"),
    Column::Number("LATER"),
];

fn forecast_row(topic: &str, forecast: &Value) -> Vec<String> {
    let within = |span: &str| {
        let mut due = forecast["due"].as_array().into_iter().flatten();
        let reach = due.find(|reach| reach["within"] == span);
        reach.map_or_else(|| "-".to_owned(), |reach| field(reach, "count"))
    };
    let mut row = vec![harmless(topic), field(forecast, "total"), field(forecast, "paused")];
    row.extend(["1m", "10m", "1h", "6h", "1d", "7d", "40d"].map(within));
    row.push(field(forecast, "later"));
    row
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
