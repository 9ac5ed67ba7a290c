//! Log lines: what happens, one line each, on standard error; for people or for machines.
//!
//! Whatever a value contains, it cannot end its line, begin another or move a terminal's cursor.
//! How lines look and which there are may change while the program runs.

use std::fmt::{self, Write as _};
use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use punctual_server::config::{Levels, LogConfig, LogFormat};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, reload};

/// The field whose value stands apart from the others, on every line of its request.
const REQUEST_ID: &str = "request_id";

/// The log that was started, for changing it.
#[derive(Debug)]
pub(crate) struct Logs {
    levels: reload::Handle<Targets, Registry>,
    json: Arc<AtomicBool>,
}

impl Logs {
    /// From now on lines are written.
    pub(crate) fn start(config: &LogConfig) -> anyhow::Result<Self> {
        let (filter, levels) = reload::Layer::new(targets(&config.level));
        let json = Arc::new(AtomicBool::new(config.format == LogFormat::Json));
        let ansi = std::io::stderr().is_terminal();
        let lines = Lines { json: Arc::clone(&json), ansi };
        tracing_subscriber::registry().with(filter).with(lines).try_init()?;
        Ok(Self { levels, json })
    }

    /// Lines are written like this from now on.
    pub(crate) fn set(&self, config: &LogConfig) {
        self.json.store(config.format == LogFormat::Json, Ordering::Relaxed);
        // It fails only when nothing is logged any more.
        let _ended = self.levels.reload(targets(&config.level)).is_err();
    }
}

fn targets(levels: &Levels) -> Targets {
    Targets::new().with_default(levels.general).with_targets(levels.parts.iter().cloned())
}

/// Writes each event as a line.
struct Lines {
    json: Arc<AtomicBool>,
    /// Whether a terminal reads them.
    ansi: bool,
}

/// What a span remembers, if it is that of a request.
struct RequestId(String);

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let (Some(span), Some(request)) = (context.span(id), fields.request_id) {
            span.extensions_mut().insert(RequestId(request));
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if fields.request_id.is_none() {
            fields.request_id = context.event_scope(event).into_iter().flatten().find_map(|span| {
                span.extensions().get::<RequestId>().map(|request| request.0.clone())
            });
        }
        let (time, metadata) = (Timestamp::now(), event.metadata());
        let line = Line { time, level: *metadata.level(), target: metadata.target(), fields };
        let text = match self.json.load(Ordering::Relaxed) {
            true => line.json(),
            false => line.text(self.ansi),
        };
        // Written at once, so that lines of several threads stay whole. Nobody to read them is fine.
        let _unread = std::io::stderr().write_all(text.as_bytes()).is_err();
    }
}

/// What an event has to say.
#[derive(Default)]
struct Fields {
    message: String,
    request_id: Option<String>,
    others: Vec<(&'static str, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        match field.name() {
            "message" => self.message = text(value),
            REQUEST_ID => self.request_id = Some(text(value)),
            name => self.others.push((name, value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
}

struct Line<'a> {
    time: Timestamp,
    level: Level,
    target: &'a str,
    fields: Fields,
}

impl Line<'_> {
    fn json(self) -> String {
        let mut line = Map::new();
        line.insert("time".to_owned(), format!("{:.3}", self.time).into());
        line.insert("level".to_owned(), self.level.as_str().to_ascii_lowercase().into());
        line.insert("target".to_owned(), self.target.into());
        line.insert("message".to_owned(), self.fields.message.into());
        if let Some(request) = self.fields.request_id {
            line.insert(REQUEST_ID.to_owned(), request.into());
        }
        let others = self.fields.others.into_iter();
        let others: Map<String, Value> =
            others.map(|(name, value)| (name.to_owned(), value)).collect();
        line.insert("fields".to_owned(), others.into());
        format!("{}\n", Value::Object(line))
    }

    fn text(self, ansi: bool) -> String {
        let (dim, bright, plain) = match self.level {
            _ if !ansi => ("", "", ""),
            Level::ERROR => ("\x1b[2m", "\x1b[31m", "\x1b[0m"),
            Level::WARN => ("\x1b[2m", "\x1b[33m", "\x1b[0m"),
            Level::INFO => ("\x1b[2m", "\x1b[32m", "\x1b[0m"),
            _ => ("\x1b[2m", "\x1b[34m", "\x1b[0m"),
        };
        let Self { time, level, target, fields } = self;
        let message = Escaped(&fields.message);
        let mut line = format!(
            "{dim}{time:.3}{plain} {bright}{level:>5}{plain} {dim}{target}:{plain} {message}"
        );
        for (name, value) in &fields.others {
            let text = match value {
                Value::String(text) => format!(" {name}={}", Escaped(text)),
                other => format!(" {name}={other}"),
            };
            line.push_str(&text);
        }
        if let Some(request) = &fields.request_id {
            line.push_str(&format!(" {REQUEST_ID}={}", Escaped(request)));
        }
        line.push('\n');
        line
    }
}

/// A text in which nothing can be taken for the end of the line or a command to the terminal.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if letter.is_control() || turns(letter) {
                write!(f, "{}", letter.escape_default())?;
            } else {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// Whether a character ends lines or turns the direction of writing, where those are heeded.
const fn turns(letter: char) -> bool {
    matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(others: Vec<(&'static str, Value)>) -> Line<'static> {
        let fields = Fields {
            message: "pushed\nINFO forged".to_owned(),
            request_id: Some("r\r1".to_owned()),
            others,
        };
        let time = "2026-01-02T03:04:05.678912Z".parse().unwrap();
        Line { time, level: Level::WARN, target: "punctual_server::push", fields }
    }

    #[test]
    fn no_value_ends_its_line() {
        let others = vec![("topic", "a\u{1b}[2Jb\u{2028}\u{202e}c\0".into()), ("count", 7.into())];
        let text = line(others).text(false);
        assert_eq!(
            text,
            "2026-01-02T03:04:05.678Z  WARN punctual_server::push: pushed\\nINFO forged \
             topic=a\\u{1b}[2Jb\\u{2028}\\u{202e}c\\u{0} count=7 request_id=r\\r1\n"
        );
    }

    #[test]
    fn a_line_of_json_is_one_object() {
        let text = line(vec![("topic", "a\nb".into()), ("ms", 1.5.into())]).json();
        assert_eq!(text.matches('\n').count(), 1);
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["time"], "2026-01-02T03:04:05.678Z");
        assert_eq!(json["level"], "warn");
        assert_eq!(json["request_id"], "r\r1");
        assert_eq!(json["fields"]["topic"], "a\nb");
        assert_eq!(json["fields"]["ms"], 1.5);
    }
}
