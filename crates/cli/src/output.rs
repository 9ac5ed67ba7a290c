//! What people and programs read: answers on standard output, reasons on standard error.
//!
//! Nothing of what a server or a message says reaches a terminal unescaped.

mod moment;
mod table;

use std::io::{self, Write};
use std::process::ExitCode;

use jiff::Timestamp;
use serde_json::Value;

pub(crate) use moment::distance;
pub(crate) use table::{Column, Table, is_coloured};

/// Fields that people look for first, in this order; the others follow.
const FIRST: &[&str] = &[
    "id",
    "own_id",
    "name",
    "key",
    "topic",
    "group",
    "producer_group",
    "kind",
    "state",
    "due",
    "remaining",
    "delivered_at",
    "died_at",
    "created",
    "version",
    "attempt",
    "attempts",
    "reason",
    "last_error",
    "partition",
    "partitions",
    "offset",
    "pending",
    "lag",
    "in_flight",
];
/// Fields that hold a time.
const TIMES: &[&str] = &[
    "due",
    "delivered_at",
    "died_at",
    "created",
    "created_at",
    "decided_at",
    "next_check",
    "at",
    "now",
    "oldest_unacked",
    "started_at",
    "until",
    "rotated",
    "old_secret_until",
];

/// A line on standard output. A reader that went away ends the program quietly.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").map_err(Into::into)
}

/// The reason on standard error, and the code that goes with it.
pub(crate) fn failure(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = error
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
    if broken_pipe {
        return ExitCode::SUCCESS;
    }
    // Nobody to read it is fine; the code still tells.
    let _unread = writeln!(io::stderr().lock(), "punctual: {error:#}").is_err();
    ExitCode::FAILURE
}

/// What to try next, on standard error.
pub(crate) fn hint(text: &str) {
    // Nobody to read it is fine.
    let _unread = writeln!(io::stderr().lock(), "  {text}").is_err();
}

/// That there is nothing to show, on standard error so that a pipe stays empty.
pub(crate) fn say(text: &str) {
    // Nobody to read it is fine.
    let _unread = writeln!(io::stderr().lock(), "{}", harmless(text)).is_err();
}

/// A line on standard error that is no failure.
pub(crate) fn remark(text: &str) {
    // Nobody to read it is fine.
    let _unread = writeln!(io::stderr().lock(), "punctual: {}", harmless(text)).is_err();
}

/// Text that cannot play tricks on a terminal.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || is_invisible(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// Letters that show nothing or change the direction of those around them.
const fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A field of an answer, for people.
pub(crate) fn field(object: &Value, name: &str) -> String {
    shown(&object[name])
}

/// A value, for people: what is inside others without quotes and brackets.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        Value::Object(members) if members.is_empty() => "-".to_owned(),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| match value {
                Value::Array(_) => format!("{} {}", harmless(name), shown(value)),
                _ => format!("{}={}", harmless(name), shown(value)),
            };
            members.iter().map(member).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A text of at most so many letters; what was cut off shows as `…`.
pub(crate) fn cut(text: &str, letters_max: usize) -> String {
    match text.char_indices().nth(letters_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(letters_max.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// A time with how far away it is.
pub(crate) fn time_field(object: &Value, name: &str, now: Timestamp) -> String {
    let time = field(object, name);
    match distance(&time, now) {
        Some(distance) => format!("{time}, {distance}"),
        None => time,
    }
}

/// All fields of an answer, one per line, for people.
pub(crate) fn fields(object: &Value, now: Timestamp) -> anyhow::Result<()> {
    let mut names: Vec<&str> =
        object.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let place = |name: &str| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
    names.sort_by_key(|name| place(name));
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    for name in names {
        let value =
            if TIMES.contains(&name) { time_field(object, name, now) } else { field(object, name) };
        line(format!("{:<width$}  {value}", harmless(name)).trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_body_cannot_command_the_terminal() {
        assert_eq!(harmless("\u{1b}[2Jé\r\n"), "\\u{1b}[2Jé\\r\\n");
    }

    #[test]
    fn letters_that_turn_the_line_around_are_shown_as_such() {
        assert_eq!(harmless("a\u{202e}b\u{200b}"), "a\\u{202e}b\\u{200b}");
    }

    #[test]
    fn what_is_nested_is_shown_without_brackets() {
        let object = json!({"a": {"ladder": ["1s", "2s"]}, "b": {"x\n": 1, "y": null}, "c": []});
        assert_eq!(field(&object, "a"), "ladder 1s, 2s");
        assert_eq!(field(&object, "b"), "x\\n=1, y=-");
        assert_eq!((field(&object, "c"), field(&object, "d")), ("-".into(), "-".into()));
    }

    #[test]
    fn a_long_text_is_cut() {
        assert_eq!(cut("ärger", 5), "ärger");
        assert_eq!(cut("ärgern", 5), "ärge…");
    }
}
