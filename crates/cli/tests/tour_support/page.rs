//! The commands of a section of a Markdown page, and what it says they print.

use std::process::Command;

/// A block of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// To be run.
    Commands(String),
    /// What the commands before it print.
    Output(String),
}

/// The blocks of a section, in order.
pub fn parts(page: &str, heading: &str) -> Vec<Part> {
    let section = page.split_once(&format!("\n{heading}\n")).expect("the section is there").1;
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut parts = Vec::new();
    let mut block: Option<(&str, String)> = None;
    for line in section.lines() {
        match (&mut block, line.strip_prefix("```")) {
            (None, Some(language)) => block = Some((language, String::new())),
            (Some(_), Some(_)) => {
                let (language, text) = block.take().unwrap();
                match language {
                    "sh" => parts.push(Part::Commands(text)),
                    "text" | "json" => parts.push(Part::Output(text)),
                    other => panic!("a block of {other:?} is neither run nor compared"),
                }
            }
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(block.is_none(), "a block is not closed");
    parts
}

/// The commands of a block: each is as many lines as the shell needs to understand it.
pub fn commands(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut pending = String::new();
    for line in block.lines() {
        pending.push_str(line);
        pending.push('\n');
        let is_continued = line.ends_with('\\');
        if !is_continued && is_whole(&pending) {
            commands.push(std::mem::take(&mut pending));
        }
    }
    assert!(pending.is_empty(), "the shell does not understand {pending:?}");
    commands.retain(|command| !command.trim().is_empty());
    commands
}

fn is_whole(command: &str) -> bool {
    let output = Command::new("bash").args(["-n", "-c", command]).output().expect("bash");
    output.status.success()
}
