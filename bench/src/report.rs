//! What a scenario found: printed as tables, kept as JSON and as a picture.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use punctual_model::{Clock as _, SystemClock};
use serde_json::{Map, Value, json};

use crate::args::Common;
use crate::measure::{self, Latency, Memory, POINTS};
use crate::picture::{self, Chart, Series};

/// One line on standard output.
pub(crate) fn say(text: &str) {
    // Nobody reads any more: the files are written all the same.
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// One line on standard error.
pub(crate) fn complain(text: &str) {
    drop(writeln!(std::io::stderr(), "punctual-bench: {text}"));
}

/// Rows of figures, each with a name.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    pub(crate) fn new(title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        Self { title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// A table of distributions in milliseconds.
    pub(crate) fn of_latency(title: &str) -> Self {
        Self::new(&format!("{title}, ms"), &POINTS.map(|(name, _)| name))
    }

    pub(crate) fn row(&mut self, name: impl Into<String>, values: Vec<f64>) {
        self.rows.push((name.into(), values));
    }

    pub(crate) fn latency(mut self, name: &str, latency: &Latency) -> Self {
        self.row(name, latency.millis());
        self
    }

    fn print(&self) {
        let name = self.rows.iter().map(|(name, _)| name.len()).chain([self.title.len()]).max();
        let name = name.unwrap_or_default();
        let width = self.columns.iter().map(String::len).chain([11]).max().unwrap_or_default() + 1;
        let cells = |cells: Vec<String>| -> String {
            cells.iter().map(|cell| format!("{cell:>width$}")).collect()
        };
        say(&format!("{:<name$}{}", self.title, cells(self.columns.clone())));
        for (row, values) in &self.rows {
            let values = values.iter().map(|&value| number(value)).collect();
            say(&format!("{row:<name$}{}", cells(values)));
        }
        say("");
    }

    fn json(&self) -> Value {
        let row = |(name, values): &(String, Vec<f64>)| {
            let named = self.columns.iter().cloned().zip(values.iter().map(|value| json!(value)));
            let mut row: Map<String, Value> = named.collect();
            row.insert("name".to_owned(), json!(name));
            Value::Object(row)
        };
        json!({ "title": self.title, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

/// Everything one scenario found.
#[derive(Debug)]
pub(crate) struct Report {
    name: String,
    settings: Value,
    figures: Vec<(String, f64)>,
    tables: Vec<Table>,
    /// Tables for the file only.
    details: Vec<Table>,
    charts: Vec<Chart>,
}

/// What every scenario says of its main part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) messages: u64,
    pub(crate) took: Duration,
    pub(crate) cpu: Duration,
}

impl Cost {
    pub(crate) fn rate(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64().max(1e-9)
    }

    pub(crate) fn cpu_per_million(&self) -> f64 {
        self.cpu.as_secs_f64() / (self.messages as f64).max(1.0) * 1e6
    }
}

impl Report {
    pub(crate) fn new(name: impl Into<String>, common: &Common, mut settings: Value) -> Self {
        if let Some(settings) = settings.as_object_mut() {
            settings.insert("durability".to_owned(), json!(common.durability.word()));
        }
        let name = name.into();
        Self {
            name,
            settings,
            figures: Vec::new(),
            tables: Vec::new(),
            details: Vec::new(),
            charts: Vec::new(),
        }
    }

    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.push((name.to_owned(), value));
    }

    pub(crate) fn cost(&mut self, cost: &Cost) {
        self.figure("messages", cost.messages as f64);
        self.figure("seconds", cost.took.as_secs_f64());
        self.figure("messages per second", cost.rate());
        self.figure("CPU seconds per million", cost.cpu_per_million());
    }

    pub(crate) fn memory(&mut self, memory: Memory) {
        self.figure("RSS, MB", memory.now as f64 / 1e6);
        self.figure("peak RSS, MB", memory.peak as f64 / 1e6);
    }

    /// What the data directory takes for each of `messages`.
    pub(crate) fn disk(&mut self, dir: &Path, messages: u64) {
        let per_message = |bytes: u64| bytes as f64 / (messages as f64).max(1.0);
        let (all, journal) = (measure::allocated(dir), measure::allocated(&dir.join("journal")));
        self.figure("disk bytes per message", per_message(all));
        self.figure("disk bytes per message without journal", per_message(all - journal));
        self.figure("data directory, MB", all as f64 / 1e6);
        self.figure("journal, MB", journal as f64 / 1e6);
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.tables.push(table);
    }

    pub(crate) fn detail(&mut self, table: Table) {
        self.details.push(table);
    }

    pub(crate) fn chart(&mut self, chart: Chart) {
        self.charts.push(chart);
    }

    /// A picture of distributions.
    pub(crate) fn latency_chart(&mut self, title: &str, rows: &[(&str, &Latency)]) {
        let series = rows.iter().map(|(name, latency)| Series {
            name: (*name).to_owned(),
            points: (0u32..).map(f64::from).zip(latency.millis()).collect(),
        });
        let ticks = (0u32..).map(f64::from).zip(POINTS.map(|(name, _)| name.to_owned()));
        self.charts.push(Chart {
            title: title.to_owned(),
            x_label: "share of all".to_owned(),
            y_label: "ms".to_owned(),
            x_ticks: ticks.collect(),
            log_y: true,
            series: series.collect(),
        });
    }

    /// Prints everything and writes the files.
    pub(crate) fn finish(mut self, common: &Common) -> Result<()> {
        self.figure("cores used by other programs", common.start.cores_used_by_others());
        say(&format!("\n== {} ==", self.name));
        say(&format!("{}\n", self.settings));
        self.tables.iter().for_each(Table::print);
        let width = self.figures.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        for (name, value) in &self.figures {
            say(&format!("{name:<width$}  {:>14}", number(*value)));
        }
        let figures: Map<String, Value> =
            self.figures.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        let tables: Vec<Value> = self.tables.iter().chain(&self.details).map(Table::json).collect();
        let all = json!({
            "scenario": self.name,
            "at": SystemClock::new().read().timestamp().to_string(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "settings": self.settings,
            "figures": figures,
            "tables": tables,
        });
        let out = &common.out;
        fs::create_dir_all(out).with_context(|| format!("{}", out.display()))?;
        let path = out.join(&self.name);
        fs::write(path.with_added_extension("json"), format!("{all:#}\n"))?;
        fs::write(path.with_added_extension("svg"), picture::draw(&self.name, &self.charts))?;
        say(&format!("\nwritten: {}.json and .svg", path.display()));
        Ok(())
    }
}

/// `1234567` as `1,234,567`; small numbers with as many places as matter.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() {
        return "-".to_owned();
    }
    if size < 10.0 {
        return format!("{value:.3}");
    }
    if size < 1000.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{size:.0}");
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `50000000` as `50M`, for names of files and rows.
pub(crate) fn short(count: u64) -> String {
    match count {
        n if n >= 1_000_000 && n.is_multiple_of(1_000_000) => format!("{}M", n / 1_000_000),
        n if n >= 1000 && n.is_multiple_of(1000) => format!("{}k", n / 1000),
        n => n.to_string(),
    }
}
