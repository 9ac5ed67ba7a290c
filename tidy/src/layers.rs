//! Which of our crates may name which, and which must build without an async runtime.
//!
//! Arrows point inward: nouns at the bottom, verbs in the middle, protocols at the rim. Only what a
//! crate ships with counts; tests may use what they like.

use crate::{Finding, Text};

/// Our crates that each crate may name. Adding an edge is a design change and needs a reason.
const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("api", &[]),
    ("proto", &[]),
    ("kafka-wire", &[]),
    ("engine", &["model", "kafka-wire"]),
    ("broker", &["model"]),
    ("cluster", &["model"]),
    ("testkit", &["model", "engine"]),
    ("client", &["proto"]),
    ("cli", &["server", "client", "api"]),
    ("sim", &["model", "engine", "broker", "testkit"]),
    ("server", &["model", "engine", "broker", "cluster", "kafka-wire", "api", "proto"]),
];

/// Crates that must build without an async runtime.
const RUNTIME_FREE: &[&str] = &["model", "engine", "kafka-wire"];

/// First word of the names of crates that are or bring a runtime.
const RUNTIMES: &[&str] = &["tokio", "async", "smol", "monoio", "glommio", "compio"];

/// Crates of generated code, which is held to nobody's lints.
const GENERATED: &[&str] = &["proto"];

const PREFIX: &str = "punctual-";

pub(crate) fn check(files: &[Text]) -> Vec<Finding> {
    let manifests = files.iter().filter(|file| file.name() == "Cargo.toml");
    manifests.flat_map(check_manifest).collect()
}

fn check_manifest(file: &Text) -> Vec<Finding> {
    let Some(dir) = file.path.strip_suffix("/Cargo.toml").and_then(|path| path.rsplit('/').next())
    else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if !GENERATED.contains(&dir) && !has(&file.text, "lints", "workspace = true") {
        findings.push(Finding::new(&file.path, "does not take the lints of the workspace"));
    }
    if file.path.starts_with("crates/") {
        let name = format!("name = \"{PREFIX}{dir}\"");
        if !has(&file.text, "package", &name) {
            findings.push(Finding::new(&file.path, format!("the package must have {name}")));
        }
        findings.extend(check_edges(file, dir));
    }
    findings
}

fn check_edges(file: &Text, dir: &str) -> Vec<Finding> {
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == dir) else {
        return vec![Finding::new(&file.path, "this crate has no place among the layers")];
    };
    let refuse = |dependency: Dependency| {
        let runtime =
            dependency.name.split('-').next().is_some_and(|word| RUNTIMES.contains(&word));
        let message = match dependency.name.strip_prefix(PREFIX) {
            Some(ours) if allowed.contains(&ours) => return None,
            Some(ours) => format!("`{dir}` must not depend on `{ours}`"),
            None if runtime && RUNTIME_FREE.contains(&dir) => {
                format!("`{dir}` must build without a runtime such as `{}`", dependency.name)
            }
            None => return None,
        };
        Some(Finding::new(&file.path, message).at(dependency.line))
    };
    dependencies(&file.text).into_iter().filter_map(refuse).collect()
}

struct Dependency {
    name: String,
    line: usize,
}

/// What a manifest ships with: `[dependencies]`, also per target, and `[build-dependencies]`; each
/// as a key of the section or as a section of its own.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = Section::Other;
    for (line, text) in (1..).zip(manifest.lines()) {
        let text = text.trim();
        if let Some(header) = text.strip_prefix('[') {
            section = Section::of(header.trim_end_matches(']'));
            if let Section::One(name) = &section {
                found.push(Dependency { name: name.clone(), line });
            }
        } else if let Some((key, value)) = text.split_once('=').filter(|_| !text.starts_with('#')) {
            let key = key.trim();
            match &section {
                Section::Other => {}
                Section::All => {
                    let name = renamed(value).unwrap_or_else(|| first_part(key));
                    found.push(Dependency { name, line });
                }
                Section::One(_) if key == "package" => {
                    found.push(Dependency { name: unquoted(value), line });
                }
                Section::One(_) => {}
            }
        }
    }
    found
}

enum Section {
    All,
    One(String),
    Other,
}

impl Section {
    fn of(header: &str) -> Self {
        for kind in ["dependencies", "build-dependencies"] {
            if header == kind || header.ends_with(&format!(".{kind}")) {
                return Self::All;
            }
            if let Some(name) = header.strip_prefix(&format!("{kind}.")) {
                return Self::One(unquoted(name));
            }
            if let Some((_, name)) = header.split_once(&format!(".{kind}.")) {
                return Self::One(unquoted(name));
            }
        }
        Self::Other
    }
}

/// The crate behind `{ package = "…" }`.
fn renamed(value: &str) -> Option<String> {
    let (_, rest) = value.split_once("package")?;
    let rest = rest.trim_start().strip_prefix('=')?.trim_start().strip_prefix('"')?;
    rest.split('"').next().map(str::to_owned)
}

fn first_part(key: &str) -> String {
    unquoted(key.split('.').next().unwrap_or(key))
}

fn unquoted(text: &str) -> String {
    text.trim().trim_matches('"').to_owned()
}

fn has(manifest: &str, section: &str, line: &str) -> bool {
    let header = format!("[{section}]");
    let inside = manifest.lines().map(str::trim).skip_while(|text| *text != header).skip(1);
    inside.take_while(|text| !text.starts_with('[')).any(|text| text == line)
}
