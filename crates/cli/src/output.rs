//! What people and programs read: answers on standard output, reasons on standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::Value;

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

/// A line on standard error that is no failure.
pub(crate) fn remark(text: &str) {
    // Nobody to read it is fine.
    let _unread = writeln!(io::stderr().lock(), "punctual: {}", harmless(text)).is_err();
}

/// Text that cannot play tricks on a terminal.
pub(crate) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// A field of an answer, for people.
pub(crate) fn field(object: &Value, name: &str) -> String {
    match &object[name] {
        Value::Null => "-".to_owned(),
        Value::String(text) => harmless(text),
        other => harmless(&other.to_string()),
    }
}

/// All fields of an answer, one per line, for people.
pub(crate) fn fields(object: &Value) -> anyhow::Result<()> {
    let members = object.as_object().into_iter().flatten();
    for (name, _) in members {
        line(&format!("{name:<20}{}", field(object, name)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_cannot_command_the_terminal() {
        assert_eq!(harmless("\u{1b}[2Jé\r\n"), "\\u{1b}[2Jé\\r\\n");
    }
}
