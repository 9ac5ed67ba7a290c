//! What a topic delivered, and whether that is what its messages were said to come to.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use punctual_model::{Clock as _, SystemClock, Timestamp};
use serde_json::{Value, json};

use crate::races::Deed;
use crate::rig::pause;
use crate::server::{Connection, request};

/// Longest wait for what has to be delivered.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// What must not be delivered may still not be after this.
const SILENCE: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// The log of a topic whose messages have their numbers as bodies, and what has to be in it.
pub(crate) struct Log {
    deed: Deed,
    offset: u64,
    ids: Vec<String>,
    /// For which due time each message must be delivered, if at all.
    expected: Vec<Option<u64>>,
    /// For which due time each was delivered.
    delivered: Vec<Option<u64>>,
    /// Up to this number all is compared already.
    compared: usize,
}

impl Log {
    pub(crate) const fn new(deed: Deed) -> Self {
        Self {
            deed,
            offset: 0,
            ids: Vec::new(),
            expected: Vec::new(),
            delivered: Vec::new(),
            compared: 0,
        }
    }

    /// The next message must be delivered for that due time, or never.
    pub(crate) fn expect(&mut self, id: &str, due_ms: Option<u64>) {
        self.ids.push(id.to_owned());
        self.expected.push(due_ms);
        self.delivered.push(None);
    }

    /// Waits for everything that has to be delivered, and compares.
    pub(crate) fn settle(&mut self, connection: &mut Connection) -> Result<()> {
        let due = self.expected.iter().flatten().count() as u64;
        let clock = SystemClock::new();
        while self.offset < due && clock.read().monotonic < WAIT_MAX {
            if !self.read(connection)? {
                pause(LOOK_INTERVAL);
            }
        }
        self.compare(self.compared)?;
        self.compared = self.expected.len();
        if self.deed == Deed::Pause { self.check_paused(connection) } else { Ok(()) }
    }

    /// Looks once more at everything after a while.
    pub(crate) fn close(&mut self, connection: &mut Connection) -> Result<()> {
        pause(SILENCE);
        while self.read(connection)? {}
        self.compare(0)?;
        if self.deed == Deed::Pause { self.resume(connection) } else { Ok(()) }
    }

    /// Takes the next page; false when there was none.
    fn read(&mut self, connection: &mut Connection) -> Result<bool> {
        let path = format!(
            "/v1/topics/{}/partitions/0/messages?offset={}&limit=1000",
            self.deed.topic(),
            self.offset
        );
        let page = get(connection, &path)?;
        let messages = page["messages"].as_array().context("no messages in a page")?;
        for message in messages {
            let number: usize = message["body"].as_str().context("no body")?.parse()?;
            let (due_ms, delivered_ms) =
                (time_ms(&message["due"])?, time_ms(&message["delivered_at"])?);
            ensure!(delivered_ms >= due_ms, "early: {message}");
            ensure!(message["offset"].as_u64() == Some(self.offset), "a gap before {message}");
            let id = self.ids.get(number).with_context(|| format!("nobody sent {message}"))?;
            ensure!(message["id"].as_str() == Some(id), "another id: {message}");
            let before = self.delivered[number].replace(due_ms);
            ensure!(before.is_none(), "delivered twice: {message}");
            self.offset += 1;
        }
        Ok(!messages.is_empty())
    }

    fn compare(&self, from: usize) -> Result<()> {
        for number in from..self.expected.len() {
            let (expected, found) = (self.expected[number], self.delivered[number]);
            ensure!(
                expected == found,
                "{} was to be delivered for {expected:?} and was for {found:?}",
                self.ids[number]
            );
        }
        Ok(())
    }

    fn withheld(&self) -> impl Iterator<Item = &str> {
        let pairs = self.ids.iter().zip(&self.expected);
        pairs.filter(|(_, expected)| expected.is_none()).map(|(id, _)| id.as_str())
    }

    /// What was not delivered is paused, and nothing else is.
    fn check_paused(&self, connection: &mut Connection) -> Result<()> {
        let mut paused = HashSet::new();
        let mut cursor = String::new();
        loop {
            let topic = self.deed.topic();
            let path = format!("/v1/topics/{topic}/scheduled?state=paused&limit=1000{cursor}");
            let page = get(connection, &path)?;
            for message in page["messages"].as_array().context("no messages in a page")? {
                ensure!(message["state"] == "paused", "not paused: {message}");
                let id = message["id"].as_str().context("no id")?;
                ensure!(paused.insert(id.to_owned()), "listed twice: {message}");
            }
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        let count = self.withheld().count();
        let missing = self.withheld().find(|id| !paused.contains(*id));
        ensure!(missing.is_none(), "{missing:?} is not paused");
        ensure!(paused.len() == count, "{} are paused and not {count}", paused.len());
        Ok(())
    }

    /// Lets everything go that is paused: it comes once, and then there is nothing left.
    fn resume(&mut self, connection: &mut Connection) -> Result<()> {
        let path = format!("/v1/topics/{}/scheduled/resume", self.deed.topic());
        connection.call_json("POST", &path, &json!({ "filter": { "state": "paused" } }))?;
        let clock = SystemClock::new();
        while self.offset < self.ids.len() as u64 && clock.read().monotonic < WAIT_MAX {
            if !self.read(connection)? {
                pause(LOOK_INTERVAL);
            }
        }
        let lost = self.delivered.iter().position(Option::is_none);
        ensure!(
            lost.is_none(),
            "{:?} was resumed and is lost",
            lost.map(|number| &self.ids[number])
        );
        Ok(())
    }
}

fn get(connection: &mut Connection, path: &str) -> Result<Value> {
    let request = request("GET", path, b"");
    let answer = connection.call(&request, &SystemClock::new())?;
    Ok(serde_json::from_slice(answer)?)
}

fn time_ms(time: &Value) -> Result<u64> {
    let time: Timestamp = time.as_str().context("no time")?.parse()?;
    Ok(time.as_millis())
}
