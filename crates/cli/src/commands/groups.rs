//! `punctual groups`.

use serde_json::{Map, Value, json};

use super::Session;
use super::listing::Listing;
use super::receive::group_path;
use crate::args::{GroupPlace, GroupSettings, GroupsCommand, ResetOptions};
use crate::client::escaped;
use crate::output::{Column, Table, field, fields, line};

impl Session {
    pub(super) fn groups(&self, command: Option<GroupsCommand>) -> anyhow::Result<()> {
        let path = |place: &GroupPlace| group_path(&place.topic, &place.group);
        let client = &self.client;
        let answer = match command.unwrap_or(GroupsCommand::List { topic: None }) {
            GroupsCommand::List { topic } => return self.list_groups(topic.as_deref()),
            GroupsCommand::Show(place) => return self.show_group(&client.get(&path(&place))?),
            GroupsCommand::Create { place, settings, start } => {
                let mut change = change(settings);
                change.insert("start".to_owned(), start.into());
                client.put(&path(&place), &change.into())?
            }
            GroupsCommand::Set { place, settings } => {
                client.patch(&path(&place), &change(settings).into())?
            }
            GroupsCommand::Delete(place) => client.delete(&path(&place))?,
            GroupsCommand::Pause(place) => {
                client.post(&format!("{}/pause", path(&place)), &json!({}))?
            }
            GroupsCommand::Resume(place) => {
                client.post(&format!("{}/resume", path(&place)), &json!({}))?
            }
            GroupsCommand::Reset(options) => {
                client.post(&format!("{}/reset", path(&options.place)), &reset(&options))?
            }
            GroupsCommand::Offsets { place, commit } if commit.is_empty() => {
                client.get(&format!("{}/offsets", path(&place)))?
            }
            GroupsCommand::Offsets { place, commit } => {
                let offsets = json!({"offsets": offsets(&commit)});
                client.put(&format!("{}/offsets", path(&place)), &offsets)?
            }
            GroupsCommand::Drain { place, to, max } => {
                return self.drain(&path(&place), &json!({"to": to, "max": max}));
            }
        };
        self.show(&answer)
    }

    fn list_groups(&self, topic: Option<&str>) -> anyhow::Result<()> {
        let path = topic.map(|topic| format!("/v1/topics/{}/groups", escaped(topic)));
        let path = path.unwrap_or_else(|| "/v1/groups".to_owned());
        let listing = Listing {
            name: "groups",
            names: "name",
            columns: &[
                Column::Cut("TOPIC"),
                Column::Cut("GROUP"),
                Column::Number("ATTEMPTS"),
                Column::Whole("LEASE"),
                Column::Whole("STATE"),
            ],
            row: &|group, _| {
                let [topic, name, attempts, lease] =
                    ["topic", "name", "max_attempts", "lease"].map(|of| field(group, of));
                let mut state = Vec::new();
                for (word, holds) in [
                    ("paused", group["paused"] == true),
                    ("ordered", group["ordered"] == true),
                    ("push", group["push"].is_object()),
                ] {
                    state.extend(holds.then_some(word));
                }
                let state = if state.is_empty() { "-".to_owned() } else { state.join(", ") };
                vec![topic, name, attempts, lease, state]
            },
            empty: "there are no groups; `punctual receive TOPIC --group GROUP` makes one",
        };
        self.listed(&path, usize::MAX, &listing)
    }

    fn show_group(&self, group: &Value) -> anyhow::Result<()> {
        if self.json || self.quiet {
            return self.show(group);
        }
        let mut settings = group.clone();
        let partitions = settings.as_object_mut().and_then(|fields| fields.remove("partitions"));
        fields(&settings, self.now())?;
        let mut table = Table::new(&[
            Column::Number("PARTITION"),
            Column::Number("CURSOR"),
            Column::Number("END"),
            Column::Number("LAG"),
        ]);
        for partition in partitions.iter().filter_map(Value::as_array).flatten() {
            let cells = ["partition", "cursor", "end", "lag"].map(|name| field(partition, name));
            table.row(cells.into());
        }
        line("")?;
        table.print()
    }

    fn drain(&self, group: &str, ask: &Value) -> anyhow::Result<()> {
        let answer = self.client.post(&format!("{group}/drain"), ask)?;
        let job = field(&answer, "job");
        self.follow(&format!("{group}/drain/{}", escaped(&job)), None, "moved")
    }
}

fn reset(options: &ResetOptions) -> Value {
    match (&options.to, &options.time) {
        (Some(word), _) => json!({"to": word}),
        (None, Some(time)) => json!({"to": {"time": time}}),
        (None, None) => json!({"to": {"offsets": offsets(&options.offsets)}}),
    }
}

fn offsets(given: &[(u16, u64)]) -> Value {
    let offset = |(partition, offset): &(u16, u64)| (partition.to_string(), (*offset).into());
    Value::Object(given.iter().map(offset).collect())
}

fn change(settings: GroupSettings) -> Map<String, Value> {
    let mut change = Map::new();
    let retry = match (settings.ladder, settings.backoff) {
        (Some(rungs), _) => json!({"ladder": rungs}),
        (None, Some(first)) => {
            json!({"exponential": {"first": first, "max": settings.backoff_max}})
        }
        (None, None) => Value::Null,
    };
    for (name, value) in [
        ("ordered", settings.ordered.map(Value::from)),
        ("retry", Some(retry)),
        ("max_attempts", settings.max_attempts.map(Value::from)),
        ("lease", settings.lease.map(Value::from)),
    ] {
        change.insert(name.to_owned(), value.unwrap_or_default());
    }
    let mut push = Map::new();
    // The key may lie in the environment of commands that are not about pushing.
    let secret = settings.push.as_ref().and(settings.push_secret);
    for (name, value) in [
        ("url", settings.push.clone().map(Value::from)),
        ("secret", secret.map(|secret| secret.reveal().into())),
        ("concurrency", settings.push_concurrency.map(Value::from)),
        ("timeout", settings.push_timeout.map(Value::from)),
    ] {
        if let Some(value) = value {
            push.insert(name.to_owned(), value);
        }
    }
    if settings.push.as_deref() == Some("") {
        // Null takes it away; nothing leaves it as it is.
        change.insert("push".to_owned(), Value::Null);
    } else if !push.is_empty() {
        change.insert("push".to_owned(), push.into());
    }
    change
}
