//! What one look at the server gives, and the rates that two looks give.

use anyhow::anyhow;
use jiff::Timestamp;
use serde_json::Value;

use crate::commands::Session;
use crate::commands::pending::topic_path;
use crate::output::field;

/// Topics whose forecasts are added up: each is a call of its own.
const FORECASTS_MAX: usize = 10;

/// What is pending within a span, among the topics that were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) within: String,
    pub(super) count: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Topic {
    pub(super) name: String,
    pub(super) pending: u64,
    /// The lag of the group that is farthest behind.
    pub(super) backlog: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) topic: String,
    pub(super) name: String,
    pub(super) lag: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
}

/// The server at a moment.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    now: Timestamp,
    stats: Value,
    pub(super) topics: Vec<Topic>,
    pub(super) groups: Vec<Group>,
    pub(super) forecast: Vec<Reach>,
}

impl Sample {
    fn read(stats: Value) -> Option<Self> {
        let now = stats["now"].as_str()?.parse().ok()?;
        let list = |name: &str| stats[name].as_array().cloned().unwrap_or_default();
        let groups: Vec<Group> = list("groups").iter().map(Group::read).collect();
        let backlog = |topic: &str| {
            let lags = groups.iter().filter(|group| group.topic == topic).map(|group| group.lag);
            lags.max().unwrap_or_default()
        };
        let topics = list("topics");
        let mut topics: Vec<Topic> = topics
            .iter()
            .map(|topic| {
                let name = field(topic, "name");
                let backlog = backlog(&name);
                Topic { pending: number(topic, "pending"), name, backlog }
            })
            .collect();
        for group in &groups {
            // A topic may have a backlog and nothing pending.
            if !topics.iter().any(|topic| topic.name == group.topic) {
                let backlog = backlog(&group.topic);
                topics.push(Topic { name: group.topic.clone(), pending: 0, backlog });
            }
        }
        Some(Self { now, stats, topics, groups, forecast: Vec::new() })
    }

    /// A field, for people.
    pub(super) fn text(&self, name: &str) -> String {
        field(&self.stats, name)
    }

    /// A number, if it is known.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.stats[name].as_u64()
    }

    /// How late messages fire, at p50 and p99.
    pub(super) fn lateness(&self) -> Option<(f64, f64)> {
        let lateness = &self.stats["lateness"];
        Some((lateness["p50_ms"].as_f64()?, lateness["p99_ms"].as_f64()?))
    }

    pub(super) fn connections(&self) -> Option<(u64, u64)> {
        let connections = &self.stats["connections"];
        Some((connections["open"].as_u64()?, connections["max"].as_u64()?))
    }

    fn total(&self, name: &str) -> u64 {
        number(&self.stats["totals"], name)
    }
}

impl Group {
    fn read(group: &Value) -> Self {
        Self {
            topic: field(group, "topic"),
            name: field(group, "name"),
            lag: number(group, "lag"),
            in_flight: number(group, "in_flight"),
            dead: number(group, "dead"),
        }
    }
}

fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_default()
}

/// Looks at the server.
pub(super) fn take(session: &Session) -> anyhow::Result<Sample> {
    let stats = session.client.get("/v1/stats")?;
    let mut sample = Sample::read(stats).ok_or_else(|| anyhow!("these are no figures"))?;
    let mut largest: Vec<&Topic> = sample.topics.iter().filter(|topic| topic.pending > 0).collect();
    largest.sort_by_key(|topic| std::cmp::Reverse(topic.pending));
    let mut forecast = Vec::new();
    for topic in largest.iter().take(FORECASTS_MAX) {
        // A topic may be gone by now.
        let path = format!("{}/forecast", topic_path(&topic.name));
        add(&mut forecast, &session.client.get(&path).unwrap_or_default());
    }
    sample.forecast = forecast;
    Ok(sample)
}

/// Adds the forecast of a topic to that of others.
fn add(sum: &mut Vec<Reach>, forecast: &Value) {
    for reach in forecast["due"].as_array().into_iter().flatten() {
        let (within, count) = (field(reach, "within"), number(reach, "count"));
        match sum.iter_mut().find(|known| known.within == within) {
            Some(known) => known.count += count,
            None => sum.push(Reach { within, count }),
        }
    }
}

/// How much happened in a second between two looks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rates(Vec<(&'static str, f64)>);

const COUNTED: [&str; 6] = ["scheduled", "fired", "delivered", "acked", "dead", "retried"];

impl Rates {
    /// None when no time passed between them; a server that was started anew begins at nothing.
    pub(super) fn between(before: &Sample, after: &Sample) -> Option<Self> {
        let ms = after.now.as_millisecond().checked_sub(before.now.as_millisecond())?;
        let ms = u32::try_from(ms).ok().filter(|ms| *ms > 0)?;
        let rate = |name: &'static str| {
            let count = after.total(name).saturating_sub(before.total(name));
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            (name, f64::from(count) * 1000.0 / f64::from(ms))
        };
        Some(Self(COUNTED.map(rate).to_vec()))
    }

    pub(super) fn each(&self) -> impl Iterator<Item = (&'static str, f64)> {
        self.0.iter().copied()
    }

    pub(super) fn delivered_rounded(&self) -> u64 {
        let found = self.0.iter().find(|(name, _)| *name == "delivered");
        // Text rounds, and is never negative here.
        found.and_then(|(_, rate)| format!("{rate:.0}").parse().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in crate::commands::top) fn sample(now: &str, delivered: u64) -> Sample {
        let stats = json!({
            "now": now, "version": "0.1.0", "uptime": "1h", "pending": 1234, "lag": 7,
            "in_flight": 2, "lateness": {"p50_ms": 0.25, "p99_ms": 1.5, "count": 10},
            "totals": {"scheduled": 100, "fired": 50, "delivered": delivered, "acked": 40},
            "topics": [{"name": "orders", "pending": 1000}, {"name": "letters", "pending": 234}],
            "groups": [
                {"topic": "orders", "name": "billing", "lag": 7, "in_flight": 2, "dead": 1},
                {"topic": "old", "name": "\u{1b}[2Jevil", "lag": 0, "in_flight": 0, "dead": 0},
            ],
        });
        let mut sample = Sample::read(stats).unwrap();
        let due = json!({"due": [{"within": "1m", "count": 3}, {"within": "1h", "count": 30}]});
        add(&mut sample.forecast, &due);
        sample
    }

    #[test]
    fn rates_are_what_happened_in_a_second() {
        let before = sample("2030-01-31T00:00:00.000Z", 50);
        let after = sample("2030-01-31T00:00:02.000Z", 150);
        let rates = Rates::between(&before, &after).unwrap();
        assert_eq!(rates.delivered_rounded(), 50);
        assert_eq!(rates.each().find(|(name, _)| *name == "scheduled"), Some(("scheduled", 0.0)));
        assert_eq!(Rates::between(&before, &before), None, "no time has passed");
        let restarted = sample("2030-01-31T00:00:03.000Z", 0);
        assert_eq!(Rates::between(&after, &restarted).unwrap().delivered_rounded(), 0);
    }

    #[test]
    fn forecasts_add_up_and_backlogs_belong_to_topics() {
        let mut sample = sample("2030-01-31T00:00:00.000Z", 0);
        add(&mut sample.forecast, &json!({"due": [{"within": "1h", "count": 5}]}));
        assert_eq!(sample.forecast[1], Reach { within: "1h".to_owned(), count: 35 });
        let of = |name| sample.topics.iter().find(|topic| topic.name == name).map(|t| t.backlog);
        assert_eq!((of("orders"), of("letters"), of("old")), (Some(7), Some(0), Some(0)));
    }

    #[test]
    fn what_is_no_answer_is_no_sample() {
        assert!(Sample::read(json!({})).is_none());
        assert!(Sample::read(json!({"now": "yesterday"})).is_none());
        assert!(Sample::read(json!({"now": "2030-01-31T00:00:00Z"})).is_some());
    }
}
