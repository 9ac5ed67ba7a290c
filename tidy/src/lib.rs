//! The rules of this project that no compiler and no linter knows.
//!
//! Each check reads text files and answers with findings; none changes anything, and none depends on
//! what was built. The list of rules is the list of modules here.

pub mod layers;
pub mod sources;
pub mod strays;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories that hold no text of ours.
const SKIPPED: &[&str] = &["target", ".git", "node_modules", "punctual-data", "out", "corpus"];

/// Something that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, below the root.
    pub path: String,
    /// The line, where there is one to name.
    pub line: Option<usize>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Finding {
    pub(crate) fn new(path: &str, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line: None, message: message.into() }
    }

    pub(crate) fn at(mut self, line: usize) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// A text file of the checkout.
#[derive(Clone, Debug)]
pub struct Text {
    /// Where it is, below the root, with forward slashes.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Text {
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Runs every check over the checkout at `root`.
///
/// # Errors
/// When a file cannot be read.
pub fn check(root: &Path) -> io::Result<Vec<Finding>> {
    let files = read_tree(root)?;
    let mut findings = layers::check(&files);
    findings.extend(sources::check(&files));
    findings.extend(strays::check(&files));
    findings.sort();
    Ok(findings)
}

/// Every text file below `root`, by path.
fn read_tree(root: &Path) -> io::Result<Vec<Text>> {
    let mut files = Vec::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(root.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                if !entry.file_name().to_str().is_some_and(|name| SKIPPED.contains(&name)) {
                    waiting.push(path);
                }
            } else if let Ok(text) = String::from_utf8(fs::read(root.join(&path))?) {
                let path = path.to_string_lossy().replace('\\', "/");
                files.push(Text { path, text });
            }
        }
    }
    files.sort_by(|one, two| one.path.cmp(&two.path));
    Ok(files)
}
