//! Follows a job of the server to its end.

use std::thread::park_timeout;
use std::time::Duration;

use anyhow::{anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::{PAGE_MESSAGES_MAX, Session};
use crate::client::escaped;
use crate::output::{field, line};

/// Time between two looks at a job: short at first, as most are short.
const LOOK_MIN: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);

impl Session {
    /// Shows what the job does until it ends: a bar for people who watch, a line for each message
    /// for programs, and at the end how many there were. `done` is what was done to each.
    pub(super) fn follow(&self, path: &str, total: Option<u64>, done: &str) -> anyhow::Result<()> {
        let bar = progress_bar(total);
        let mut look = LOOK_MIN;
        let mut cursor = 0;
        loop {
            let page =
                format!("{path}?limit={PAGE_MESSAGES_MAX}&cursor={}", escaped(&cursor.to_string()));
            let report = self.client.get(&page)?;
            let results = report["results"].as_array().ok_or_else(|| anyhow!("not a job"))?;
            for result in results {
                self.moved(result)?;
            }
            cursor += results.len();
            bar.set_position(report["done"].as_u64().unwrap_or_default());
            let is_running = report["state"] == "running";
            if !is_running && report["next"].is_null() {
                bar.finish_and_clear();
                return self.finished(&report, done);
            }
            if results.is_empty() {
                // Nobody unparks this thread, so it is a pause.
                park_timeout(look);
                look = (look * 2).min(LOOK_MAX);
            }
        }
    }

    /// Waits for the end of a job that tells nothing of single messages, and answers how it ended.
    pub(super) fn job_ended(&self, path: &str, begun: &Value) -> anyhow::Result<Value> {
        let bar = progress_bar(begun["matched"].as_u64());
        let mut look = LOOK_MIN;
        loop {
            let report = self.client.get(path)?;
            if report["state"] != "running" {
                bar.finish_and_clear();
                return Ok(report);
            }
            bar.set_length(report["matched"].as_u64().unwrap_or_default());
            bar.set_position(report["done"].as_u64().unwrap_or_default());
            park_timeout(look);
            look = (look * 2).min(LOOK_MAX);
        }
    }

    fn moved(&self, result: &Value) -> anyhow::Result<()> {
        if self.json { line(&result.to_string()) } else { Ok(()) }
    }

    fn finished(&self, report: &Value, done: &str) -> anyhow::Result<()> {
        let [moved, matched] = ["done", "matched"].map(|name| field(report, name));
        if report["state"] == "failed" {
            bail!("{moved} were {done}, then: {}", field(report, "error"))
        }
        if self.json { Ok(()) } else { line(&format!("{moved} of {matched} {done}")) }
    }
}

/// A bar on a terminal; in a pipe it draws nothing.
pub(super) fn progress_bar(total: Option<u64>) -> ProgressBar {
    let template = "{bar:40} {pos}/{len} {per_sec} {elapsed}";
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::no_length(),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) if total.is_some() => bar.with_style(style),
        _ => bar,
    }
}
