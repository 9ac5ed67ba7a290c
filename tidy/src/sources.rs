//! How a source file must look from outside: a header, a name that says something, and a length that
//! one sitting can take in.
//!
//! A file above the limit needs an entry in `tidy/ceilings.txt`. A ceiling only falls: when the file
//! shrinks, the entry must follow.

use std::collections::BTreeMap;

use crate::{Finding, Text};

/// Production lines a file may have without an entry.
const LINES_MAX: usize = 600;

const CEILINGS: &str = "tidy/ceilings.txt";

/// Names that say nothing about what is inside.
const EMPTY_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "common", "misc", "impls", "manager"];

pub(crate) fn check(files: &[Text]) -> Vec<Finding> {
    let sources: Vec<&Text> = files.iter().filter(|file| file.path.ends_with(".rs")).collect();
    let mut findings: Vec<Finding> = sources.iter().flat_map(|file| check_one(file)).collect();
    let ceilings = files.iter().find(|file| file.path == CEILINGS);
    findings.extend(check_sizes(&sources, ceilings.map_or("", |file| &file.text)));
    findings
}

fn check_one(file: &Text) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !file.text.starts_with("//!") {
        let message = "must begin with `//!`: what it owns and what must always hold";
        findings.push(Finding::new(&file.path, message).at(1));
    }
    let name = module_name(&file.path);
    if EMPTY_NAMES.contains(&name) {
        findings.push(Finding::new(&file.path, format!("`{name}` says nothing: name the duty")));
    }
    if name.ends_with(|last: char| last.is_ascii_digit()) {
        let message = format!("`{name}` ends in a digit: say what differs instead");
        findings.push(Finding::new(&file.path, message));
    }
    findings
}

/// The name of the module: of the file, or of the directory for a `mod.rs`.
fn module_name(path: &str) -> &str {
    let mut parts = path.trim_end_matches(".rs").rsplit('/');
    match parts.next() {
        Some("mod") => parts.next().unwrap_or("mod"),
        Some(name) => name,
        None => path,
    }
}

fn check_sizes(sources: &[&Text], ceilings: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut entries = BTreeMap::new();
    for (line, entry) in (1..).zip(ceilings.lines()) {
        let entry = entry.trim();
        if entry.is_empty() || entry.starts_with('#') {
            continue;
        }
        let parsed = entry.rsplit_once(' ').and_then(|(path, max)| Some((path, max.parse().ok()?)));
        match parsed {
            Some((path, max)) => drop(entries.insert(path.trim(), (line, max))),
            None => findings.push(Finding::new(CEILINGS, "wants `path lines`").at(line)),
        }
    }
    for file in sources.iter().filter(|file| !is_test(&file.path)) {
        let lines = production_lines(&file.text);
        let entry: Option<(usize, usize)> = entries.remove(file.path.as_str());
        findings.extend(judge(&file.path, lines, entry));
    }
    for (path, (line, _)) in entries {
        findings.push(Finding::new(CEILINGS, format!("{path} is not a source file")).at(line));
    }
    findings
}

fn judge(path: &str, lines: usize, entry: Option<(usize, usize)>) -> Option<Finding> {
    match entry {
        None if lines > LINES_MAX => {
            let message = format!("{lines} production lines, above {LINES_MAX}: split it");
            Some(Finding::new(path, message))
        }
        None => None,
        Some((_, max)) if lines > max => {
            let message = format!("{lines} production lines, above its ceiling of {max}: split it");
            Some(Finding::new(path, message))
        }
        Some((line, _)) if lines <= LINES_MAX => {
            Some(Finding::new(CEILINGS, format!("{path} needs no entry any more")).at(line))
        }
        Some((line, max)) if lines < max => {
            Some(Finding::new(CEILINGS, format!("lower the ceiling of {path} to {lines}")).at(line))
        }
        Some(_) => None,
    }
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "examples"))
}

/// Lines before the module of unit tests, which stands last.
fn production_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let opens_tests = |pair: &[&str]| {
        pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    lines.windows(2).position(opens_tests).unwrap_or(lines.len())
}
