//! `punctual dead`.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use serde_json::{Map, Value, json};

use super::listing::Listing;
use super::receive::group_path;
use super::send::headers;
use super::{Session, shown_body, with_parameters};
use crate::args::{DeadCommand, DeadFilter, DeadListOptions, PurgeOptions, RedriveOptions};
use crate::client::escaped;
use crate::output::{Column, cut, distance, field, line};

/// How much of an error a list shows.
const ERROR_CHARS_SHOWN: usize = 60;

impl Session {
    pub(super) fn dead(&self, command: DeadCommand) -> anyhow::Result<()> {
        match command {
            DeadCommand::List(options) => self.list_dead(&options),
            DeadCommand::Show { topic, group, id } => {
                let path = format!("{}/dead?id={}", group_path(&topic, &group), escaped(&id));
                let mut found = None;
                self.pages(&path, "messages", 1, |letters| {
                    found = letters.first().cloned();
                    Ok(())
                })?;
                match found {
                    Some(letter) => self.show(&letter),
                    None => bail!("{id} is not among the dead letters of {group}"),
                }
            }
            DeadCommand::Redrive(options) => self.redrive(options),
            DeadCommand::Purge(options) => self.purge(&options),
        }
    }

    fn list_dead(&self, options: &DeadListOptions) -> anyhow::Result<()> {
        let filter = &options.filter;
        let path = format!("{}/dead", group_path(&options.topic, &options.group));
        let parameters = [
            ("reason", filter.reason.as_deref()),
            ("from", filter.from.as_deref()),
            ("to", filter.to.as_deref()),
            ("day", filter.day.as_deref()),
            ("key", filter.key.as_deref()),
            ("id", filter.id.as_deref()),
        ];
        let empty = format!("{} has no dead letters in {}", options.group, options.topic);
        let listing = Listing {
            name: "messages",
            names: "id",
            columns: &[
                Column::Whole("ID"),
                Column::Whole("DIED"),
                Column::Whole("REASON"),
                Column::Number("ATTEMPTS"),
                Column::Cut("ERROR"),
                Column::Cut("BODY"),
            ],
            row: &|letter, now| {
                let [id, died_at, reason, attempts, error] =
                    ["id", "died_at", "reason", "attempts", "last_error"]
                        .map(|name| field(letter, name));
                let died = distance(&died_at, now).unwrap_or(died_at);
                let error = cut(&error, ERROR_CHARS_SHOWN);
                vec![id, died, reason, attempts, error, shown_body(letter)]
            },
            empty: &empty,
        };
        self.listed(&with_parameters(path, &parameters), options.limit, &listing)
    }

    fn redrive(&self, options: RedriveOptions) -> anyhow::Result<()> {
        let path = format!("{}/dead/redrive", group_path(&options.topic, &options.group));
        let filter = filter(&options.filter);
        let count = || self.client.post(&path, &json!({"filter": filter, "dry_run": true}));
        if options.dry_run {
            return self.counted(&count()?);
        }
        // How many there are is only worth a look where somebody watches.
        let total = if io::stderr().is_terminal() { count()?["matched"].as_u64() } else { None };
        let mut edit = Map::new();
        for (name, value) in [
            ("body", options.set_body.map(Value::from)),
            ("key", options.set_key.map(Value::from)),
            ("headers", headers(options.set_headers)),
        ] {
            if let Some(value) = value {
                edit.insert(name.to_owned(), value);
            }
        }
        let edit = if edit.is_empty() { Value::Null } else { edit.into() };
        let (rate, at) = (options.rate, options.at);
        let ask = json!({"filter": filter, "rate": rate, "at": at, "edit": edit});
        let answer = self.client.post(&path, &ask)?;
        let job = escaped(&field(&answer, "job"));
        self.follow(&format!("{path}/{job}"), total, "redriven")
    }

    fn counted(&self, answer: &Value) -> anyhow::Result<()> {
        if self.json {
            line(&answer.to_string())
        } else {
            line(&format!("{} dead letters", field(answer, "matched")))
        }
    }

    fn purge(&self, options: &PurgeOptions) -> anyhow::Result<()> {
        let path = format!("{}/dead/purge", group_path(&options.topic, &options.group));
        let filter = filter(&options.filter);
        let ask = json!({"filter": filter, "all": options.all, "dry_run": options.dry_run});
        let answer = self.client.post(&path, &ask)?;
        if self.json || options.dry_run {
            return self.counted(&answer);
        }
        line(&format!("{} dead letters thrown away", field(&answer, "purged")))
    }
}

fn filter(options: &DeadFilter) -> Value {
    json!({
        "reason": options.reason,
        "from": options.from,
        "to": options.to,
        "day": options.day,
        "key": options.key,
        "id": options.id,
    })
}
