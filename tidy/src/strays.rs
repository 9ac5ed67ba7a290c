//! Keeps what belongs to one machine out of the project: absolute paths of people's own folders.

use crate::{Finding, Text};

/// Beginnings of such paths, in two parts so that this file does not find itself.
const OWN_FOLDERS: &[(&str, &str)] = &[
    ("/ho", "me/"),
    ("/ro", "ot/"),
    ("/Us", "ers/"),
    ("/wo", "rk/"),
    ("C:\\Us", "ers\\"),
    ("../sha", "red"),
];

pub(crate) fn check(files: &[Text]) -> Vec<Finding> {
    let folders: Vec<String> =
        OWN_FOLDERS.iter().map(|(head, tail)| format!("{head}{tail}")).collect();
    let mut findings = Vec::new();
    for file in files {
        for (line, text) in (1..).zip(file.text.lines()) {
            if let Some(folder) = folders.iter().find(|folder| starts_path(text, folder)) {
                let message = format!("`{folder}` is a path of one machine");
                findings.push(Finding::new(&file.path, message).at(line));
            }
        }
    }
    findings
}

/// Whether `folder` occurs in `text` at the beginning of a path, and not inside a longer one.
fn starts_path(text: &str, folder: &str) -> bool {
    text.match_indices(folder).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        before.is_none_or(|char| !char.is_alphanumeric() && !"-_.~}/$%".contains(char))
    })
}
