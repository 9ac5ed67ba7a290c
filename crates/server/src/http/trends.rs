//! How it went over time: points of ten minutes, of the whole, a topic, an app or a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_api::request::Parameters;
use punctual_api::stats::{TrendFigure, TrendPointView, TrendsView};
use punctual_api::{Code, Problem};
use punctual_model::ports::{POINTS_KEPT, StoreError};
use punctual_model::{Span, Timestamp, TopicName};

use crate::http::call::Call;
use crate::http::problem::{of_broken_off, of_store};
use crate::http::reply::{Reply, large_json};
use crate::http::time;
use crate::trends::{Gauges, Keeper, MessageCounts, Point, SentCounts, start_of};

/// What one point covers.
const INTERVAL: &str = "10m";
/// Points of this time are read at once.
const STEP: Span = Span::from_secs(6 * 3600);
/// Hex digits at the end of the name of a node, other ones after each start.
const NUMBER_CHARS: usize = 16;

/// What is told of the whole and of topics.
const OF_MESSAGES: [&str; 8] =
    ["scheduled", "fired", "delivered", "acked", "cancelled", "retried", "dead", "pending"];
/// What is told of apps.
const OF_APPS: [&str; 3] = SentCounts::SERIES;
/// What is told of nodes.
const OF_NODES: [&str; 11] = [
    "scheduled",
    "fired",
    "delivered",
    "pending",
    "entries",
    "slots",
    "memory_bytes",
    "store_bytes",
    "disk_free_bytes",
    "journal_p99_ms",
    "lateness_p99_ms",
];

/// Whose trend is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    Whole,
    Topic(Box<str>),
    App(Box<str>),
    Node(Box<str>),
}

/// `GET /v1/trends`
pub(crate) async fn show(call: Call) -> Result<Reply, Problem> {
    let mut parameters = Parameters::read(call.query())?;
    let subject = subject(&mut parameters)?;
    let series = series(&subject, parameters.take("series")?.as_deref())?;
    let from = parameters.take_time("from")?.map(|text| time::edge(&text)).transpose()?;
    let until = parameters.take_time("to")?.map(|text| time::edge(&text)).transpose()?;
    parameters.end()?;
    let now = call.shared.broker.now();
    let oldest = start_of(now.saturating_sub(POINTS_KEPT));
    // The ten minutes in which a time lies count.
    let from = from.map_or(oldest, |from| start_of(from).max(oldest));
    let until = until.unwrap_or(Timestamp::MAX);
    // One at a time: a week of many nodes is much to read.
    let _turn = call.shared.listing().await;
    let (trends, asked) = (Arc::clone(&call.shared.trends), subject.clone());
    let read = move || {
        trends.turn_over();
        read(&trends, &asked, (from, until), now)
    };
    let read = call.shared.tasks.blocking(read).await.map_err(of_broken_off)?;
    let points = summed(&subject, read.map_err(of_store)?);
    let points = points.iter().map(|(at, figures)| view(*at, figures, &series)).collect();
    large_json(&call.shared, &TrendsView { interval: INTERVAL, points })
}

fn subject(parameters: &mut Parameters<'_>) -> Result<Subject, Problem> {
    type Of = fn(Box<str>) -> Subject;
    const KINDS: [(&str, Of); 3] =
        [("topic", Subject::Topic), ("app", Subject::App), ("node", Subject::Node)];
    let mut subject = Subject::Whole;
    for (name, of) in KINDS {
        let Some(text) = parameters.take(name)? else { continue };
        if subject != Subject::Whole {
            let detail = "say one of topic, app and node, or none of them";
            return Err(Problem::new(Code::ConflictingFields, detail));
        }
        if name == "topic" {
            TopicName::new(&text)
                .map_err(|error| Problem::new(Code::InvalidTopicName, error.to_string()))?;
        }
        subject = of(text.into());
    }
    Ok(subject)
}

/// The figures that are asked for.
fn series(subject: &Subject, asked: Option<&str>) -> Result<Vec<&'static str>, Problem> {
    let known: &[&'static str] = match subject {
        Subject::Whole | Subject::Topic(_) => &OF_MESSAGES,
        Subject::App(_) => &OF_APPS,
        Subject::Node(_) => &OF_NODES,
    };
    let Some(asked) = asked else { return Ok(known.to_vec()) };
    let one = |name: &str| {
        let found = known.iter().find(|known| **known == name).copied();
        found.ok_or_else(|| {
            let detail = format!("series names some of {}", known.join(","));
            Problem::new(Code::InvalidParameter, detail)
        })
    };
    asked.split(',').map(one).collect()
}

/// What one node says about what is asked for; nothing where it has nothing to say.
#[derive(Clone, Debug)]
struct Said {
    /// How much its whole point has counted: of two the one that goes on counts.
    activity: u64,
    figures: Option<Figures>,
}

/// The figures of a point.
#[derive(Clone, Debug, Default, PartialEq)]
struct Figures {
    messages: MessageCounts,
    sent: SentCounts,
    pending: u64,
    gauges: Gauges,
    journal_p99_ms: Option<f64>,
    lateness_p99_ms: Option<f64>,
}

/// What nodes say, by time and node.
type Sayings = BTreeMap<(Timestamp, Arc<str>), Said>;

/// Reads what nodes say about it. Blocks.
fn read(
    trends: &Keeper,
    subject: &Subject,
    (from, until): (Timestamp, Timestamp),
    now: Timestamp,
) -> Result<Sayings, StoreError> {
    let mut sayings = Sayings::new();
    let mut note = |node: Arc<str>, point: &Point| {
        let key = (point.start(), node);
        let said = said(subject, &key.1, point);
        let is_newer = |known: &Said| known.activity < said.activity;
        if (from..until).contains(&key.0) && sayings.get(&key).is_none_or(is_newer) {
            sayings.insert(key, said);
        }
    };
    let mut start = from;
    // A clock may have been ahead for a while.
    let end = until.min(now.saturating_add(Span::from_days(1)));
    while start < end {
        let next = start.saturating_add(STEP).min(end);
        for (node, point) in trends.stored(start, next)? {
            note(node, &point);
        }
        start = next;
    }
    for (node, point) in trends.open_points() {
        note(node, &point);
    }
    Ok(sayings)
}

fn said(subject: &Subject, node: &str, point: &Point) -> Said {
    let whole = || Figures { messages: point.whole, pending: point.pending, ..Figures::default() };
    let figures = match subject {
        Subject::Whole => Some(whole()),
        Subject::Topic(name) => point.topics.get(name).map(|topic| Figures {
            messages: topic.0,
            pending: topic.1,
            ..Figures::default()
        }),
        Subject::App(key) => {
            point.apps.get(key).map(|sent| Figures { sent: *sent, ..Figures::default() })
        }
        Subject::Node(name) => is_node(name, node).then(|| Figures {
            gauges: point.gauges,
            journal_p99_ms: point.journal.p99_ms(),
            lateness_p99_ms: point.lateness.p99_ms(),
            ..whole()
        }),
    };
    Said { activity: point.activity(), figures }
}

/// Whether that node is meant: by the name it writes under, by the one it has now, or by what both
/// begin with.
fn is_node(asked: &str, node: &str) -> bool {
    asked == node || stem(asked) == stem(node)
}

/// The name of a node without the number that makes it unique.
fn stem(name: &str) -> &str {
    let is_number =
        |end: &str| end.len() == NUMBER_CHARS && end.bytes().all(|byte| byte.is_ascii_hexdigit());
    name.rsplit_once('-').filter(|(_, end)| is_number(end)).map_or(name, |(stem, _)| stem)
}

/// Adds up what nodes say, and leaves out when nobody has anything to say. What is pending each of
/// them knows of the whole cluster.
fn summed(subject: &Subject, sayings: Sayings) -> Vec<(Timestamp, Figures)> {
    let mut sums: BTreeMap<Timestamp, Figures> = BTreeMap::new();
    for ((at, _), said) in sayings {
        let Some(figures) = said.figures else { continue };
        let sum = sums.entry(at).or_default();
        *sum = Figures {
            messages: sum.messages.plus(figures.messages),
            sent: sum.sent.plus(figures.sent),
            pending: sum.pending.max(figures.pending),
            ..figures
        };
    }
    let says = |figures: &Figures| match subject {
        Subject::Whole => figures.messages.activity() > 0 || figures.pending > 0,
        Subject::Topic(_) | Subject::App(_) | Subject::Node(_) => true,
    };
    sums.into_iter().filter(|(_, figures)| says(figures)).collect()
}

fn view(at: Timestamp, figures: &Figures, series: &[&'static str]) -> TrendPointView {
    let figures = series.iter().filter_map(|name| Some((*name, figures.get(name)?))).collect();
    TrendPointView { at: at.to_string(), figures }
}

impl Figures {
    fn get(&self, series: &str) -> Option<TrendFigure> {
        let count = |count: Option<u64>| count.map(TrendFigure::Count);
        match series {
            "pending" => count(Some(self.pending)),
            "bytes" | "refused" => count(Some(self.sent.get(series))),
            "entries" => count(self.gauges.entries),
            "slots" => count(self.gauges.slots),
            "memory_bytes" => count(self.gauges.memory_bytes),
            "store_bytes" => count(self.gauges.store_bytes),
            "disk_free_bytes" => count(self.gauges.disk_free_bytes),
            "journal_p99_ms" => self.journal_p99_ms.map(TrendFigure::Millis),
            "lateness_p99_ms" => self.lateness_p99_ms.map(TrendFigure::Millis),
            // Of an app or of messages: the other one has none.
            _ => count(Some(self.sent.get(series).saturating_add(self.messages.get(series)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_broker::TopicCounts;

    use super::*;

    fn at(minute: u64) -> Timestamp {
        Timestamp::from_millis_saturating(minute * 60_000)
    }

    fn saying(
        minute: u64,
        node: &str,
        figures: Option<(u64, u64)>,
    ) -> ((Timestamp, Arc<str>), Said) {
        let figures = figures.map(|(scheduled, pending)| {
            let counts = TopicCounts { scheduled, ..TopicCounts::default() };
            Figures { messages: counts.into(), pending, ..Figures::default() }
        });
        ((at(minute), node.into()), Said { activity: 1, figures })
    }

    #[test]
    fn nodes_are_added_up_and_all_of_them_know_what_is_pending() {
        let sayings = Sayings::from([
            saying(0, "a", Some((3, 7))),
            saying(0, "b", Some((4, 7))),
            saying(10, "a", None),
            saying(10, "b", Some((1, 8))),
            saying(20, "a", None),
        ]);
        let summed = summed(&Subject::Topic("t".into()), sayings);
        let shown =
            |(at, of): &(Timestamp, Figures)| (*at, of.messages.get("scheduled"), of.pending);
        let shown: Vec<_> = summed.iter().map(shown).collect();
        assert_eq!(shown, [(at(0), 7, 7), (at(10), 1, 8)]);
    }

    #[test]
    fn a_node_is_known_by_either_name() {
        assert!(is_node("single", "single"));
        assert!(is_node("host-1-00112233445566aa", "host-1-ffffffffffffffff"));
        assert!(is_node("host-1", "host-1-ffffffffffffffff"));
        assert!(!is_node("host", "host-1-ffffffffffffffff"));
        assert!(!is_node("host-2", "host-1-ffffffffffffffff"));
    }

    #[test]
    fn only_figures_that_there_are_can_be_asked_for() {
        let of = |subject: &Subject, text: &str| series(subject, Some(text)).map_err(|no| no.code);
        assert_eq!(of(&Subject::Whole, "fired,pending"), Ok(vec!["fired", "pending"]));
        assert_eq!(of(&Subject::Whole, "bytes"), Err(Code::InvalidParameter));
        assert_eq!(of(&Subject::App("x".into()), "bytes"), Ok(vec!["bytes"]));
        assert_eq!(of(&Subject::Node("x".into()), ""), Err(Code::InvalidParameter));
    }
}
