//! Commands about the server as a whole: its figures, its nodes, its time; and reading a log.

use anyhow::anyhow;
use serde_json::{Value, json};

use super::pending::topic_path;
use super::{PAGE_MESSAGES_MAX, Session, shown_body};
use crate::args::{ClusterCommand, ReadOptions, TimeCommand};
use crate::output::{Column, Table, field, fields, line, say};

impl Session {
    pub(super) fn time(&self, command: Option<TimeCommand>) -> anyhow::Result<()> {
        let advance = |how: Value| self.client.post("/v1/time/advance", &how);
        let answer = match command.unwrap_or(TimeCommand::Show) {
            TimeCommand::Show => self.client.get("/v1/time")?,
            TimeCommand::Advance { by } => advance(json!({"by": by}))?,
            TimeCommand::Set { to } => advance(json!({"to": to}))?,
        };
        if self.json {
            return line(&answer.to_string());
        }
        let note = match (&answer["fired"], answer["virtual"] == true) {
            (Value::Null, true) => ", virtual".to_owned(),
            (Value::Null, false) => String::new(),
            (fired, _) if !self.quiet => format!(", {fired} fired"),
            _ => String::new(),
        };
        line(&format!("{}{note}", field(&answer, "now")))
    }

    pub(super) fn cluster(&self, command: Option<ClusterCommand>) -> anyhow::Result<()> {
        let answer = match command.unwrap_or(ClusterCommand::Show { slots: false }) {
            ClusterCommand::Show { slots: false } => self.client.get("/v1/cluster")?,
            ClusterCommand::Show { slots: true } => self.client.get("/v1/cluster?slots=true")?,
            ClusterCommand::Set { slots } => {
                self.client.put("/v1/cluster", &json!({"slots": slots}))?
            }
        };
        if self.json {
            return line(&answer.to_string());
        }
        let listed = |name| answer[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let (nodes, lost) = (listed("nodes"), listed("lost"));
        if self.quiet {
            return nodes.iter().try_for_each(|node| line(&field(node, "id")));
        }
        let mut table = Table::new(&[
            Column::Whole("NODE"),
            Column::Whole("ADDRESS"),
            Column::Whole("STATE"),
            Column::Number("SLOTS"),
            Column::Number("TERM"),
            Column::Whole("VERSION"),
            Column::Whole("STARTED"),
        ]);
        for node in nodes.iter().chain(lost) {
            let cells = ["id", "address", "state", "slots", "term", "version", "started_at"];
            table.row(cells.map(|name| field(node, name)).into());
        }
        table.print()?;
        self.assignment(&answer["assignment"])?;
        line(&summary(&answer))
    }

    /// Who has which slot, if the server told.
    fn assignment(&self, slots: &Value) -> anyhow::Result<()> {
        let Some(slots) = slots.as_array() else { return Ok(()) };
        let mut table = Table::new(&[
            Column::Number("SLOT"),
            Column::Whole("OWNER"),
            Column::Number("TERM"),
            Column::Whole("NEXT"),
        ]);
        for slot in slots {
            table.row(["slot", "owner", "term", "next"].map(|name| field(slot, name)).into());
        }
        line("")?;
        table.print()
    }

    pub(super) fn stats(&self) -> anyhow::Result<()> {
        let mut answer = self.client.get("/v1/stats")?;
        if self.json {
            return line(&answer.to_string());
        }
        let mut taken = |name| answer.as_object_mut().and_then(|fields| fields.remove(name));
        let totals = taken("totals");
        let lists = [taken("topics"), taken("groups")];
        let nested = [("lateness", taken("lateness")), ("journal_sync", taken("journal_sync"))];
        fields(&answer, self.now())?;
        for (name, histogram) in nested {
            let Some(histogram) = histogram.filter(Value::is_object) else { continue };
            let [p50, p99, count] =
                ["p50_ms", "p99_ms", "count"].map(|name| field(&histogram, name));
            line(&format!("{name}  p50 {p50} ms, p99 {p99} ms, of {count}"))?;
        }
        if let Some(totals) = totals {
            line("")?;
            line("since the start")?;
            fields(&totals, self.now())?;
        }
        let [topics, groups] = lists;
        self.busiest(topics, groups)
    }

    fn busiest(&self, topics: Option<Value>, groups: Option<Value>) -> anyhow::Result<()> {
        let mut table = Table::new(&[Column::Cut("TOPIC"), Column::Number("PENDING")]);
        for topic in topics.iter().filter_map(Value::as_array).flatten() {
            table.row(["name", "pending"].map(|name| field(topic, name)).into());
        }
        line("")?;
        table.print()?;
        let mut table = Table::new(&[
            Column::Cut("TOPIC"),
            Column::Cut("GROUP"),
            Column::Number("LAG"),
            Column::Number("IN FLIGHT"),
            Column::Number("RETRYING"),
            Column::Number("DEAD"),
        ]);
        for group in groups.iter().filter_map(Value::as_array).flatten() {
            let cells = ["topic", "name", "lag", "in_flight", "retrying", "dead"];
            table.row(cells.map(|name| field(group, name)).into());
        }
        table.print()
    }

    /// `punctual read`: pages by offset, which go on where the last one ended.
    pub(super) fn read(&self, options: &ReadOptions) -> anyhow::Result<()> {
        let ReadOptions { topic, partition, offset, limit } = options;
        let path = format!("{}/partitions/{partition}/messages", topic_path(topic));
        let (mut left, mut next) = (*limit, *offset);
        let mut table = Table::new(READ);
        let mut is_empty = true;
        while left > 0 {
            let limit = left.min(PAGE_MESSAGES_MAX);
            let page = self.client.get(&format!("{path}?offset={next}&limit={limit}"))?;
            let messages = page["messages"].as_array().ok_or_else(|| anyhow!("not a page"))?;
            for message in messages {
                if self.json {
                    line(&message.to_string())?;
                } else if self.quiet {
                    line(&field(message, "id"))?;
                } else {
                    let [offset, id, delivered, key] =
                        ["offset", "id", "delivered_at", "key"].map(|name| field(message, name));
                    table.row(vec![offset, id, delivered, key, shown_body(message)]);
                }
            }
            table.print()?;
            is_empty &= messages.is_empty();
            left = left.saturating_sub(messages.len());
            match page["next"].as_u64() {
                Some(to) if to > next && !messages.is_empty() => next = to,
                _ => break,
            }
        }
        if is_empty && !self.json && !self.quiet {
            say(&format!("partition {partition} of {topic} has nothing from offset {offset} on"));
        }
        Ok(())
    }
}

/// A cluster in a line.
fn summary(answer: &Value) -> String {
    let slots = &answer["slots"];
    let [mode, leader] = [field(answer, "mode"), field(answer, "leader")];
    let [total, unowned] = [field(slots, "total"), field(slots, "unowned")];
    let slot = if total == "1" { "slot" } else { "slots" };
    let mut summary = format!("mode {mode}, {total} {slot}, {unowned} without an owner");
    // What was asked for comes about step by step.
    let on_the_way = |name: &str| match name {
        "wanted" => slots["wanted"] != slots["total"],
        name => slots[name].as_u64().unwrap_or(0) > 0,
    };
    for (name, words) in [("moving", "on their way"), ("retired", "to end"), ("wanted", "wanted")] {
        if on_the_way(name) {
            summary.push_str(&format!(", {} {words}", field(slots, name)));
        }
    }
    if answer["mode"] != "single" {
        let leader = if leader == "-" { "nobody".to_owned() } else { leader };
        summary.push_str(&format!(", led by {leader}"));
    }
    summary
}

const READ: &[Column] = &[
    Column::Number("OFFSET"),
    Column::Whole("ID"),
    Column::Whole("DELIVERED"),
    Column::Cut("KEY"),
    Column::Cut("BODY"),
];
