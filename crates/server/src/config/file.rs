//! The configuration as somebody wrote it: texts from the file, the environment and the flags,
//! later ones over earlier ones, each with who wrote it.
//!
//! A name that no key has is an error, wherever it stands. Secrets are in here, but no text, error
//! or dump that leaves this file has one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;

use crate::config::keys::{KEYS, Key, Kind, find, nearest};

/// What stands for a secret where it would be shown.
pub const HIDDEN: &str = "(hidden)";
/// What follows the name of a secret in the name of the key that says which file it is in.
const FILE_SUFFIX: &str = "_file";
/// Largest file that is read for a secret, in bytes.
const SECRET_FILE_BYTES_MAX: u64 = 4096;

/// Who wrote a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody.
    Default,
    /// A file, and the line in it.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// The environment variable of that name.
    Environment(String),
    /// The flag of that name.
    Flag(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Flag(name) => write!(f, "the flag {name}"),
        }
    }
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// The file is not TOML.
    #[error("{}:{line} is not TOML: {reason}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
        /// Why; without the text itself, which may be a secret.
        reason: String,
    },
    /// There is no such key.
    #[error("{source_name}: there is no key {name}; did you mean {nearest}?")]
    UnknownKey {
        /// Who wrote it.
        source_name: Source,
        /// What was written.
        name: String,
        /// The known key most like it.
        nearest: String,
    },
    /// A value is not what the key takes.
    #[error("{name} = {value:?} ({source_name}): {reason}")]
    IllegalValue {
        /// The key.
        name: &'static str,
        /// What was written.
        value: String,
        /// Who wrote it.
        source_name: Source,
        /// What the key takes.
        reason: String,
    },
}

/// The configuration as written: texts by key, each with who wrote it.
#[derive(Clone)]
pub struct ConfigFile {
    values: BTreeMap<&'static str, (String, Source)>,
}

impl Default for ConfigFile {
    fn default() -> Self {
        let values =
            KEYS.iter().map(|key| (key.name, (key.default.to_owned(), Source::Default))).collect();
        Self { values }
    }
}

impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.values().map(|written| (written.key.name, written.value)))
            .finish()
    }
}

/// A key as it is set, fit to be shown.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The key.
    pub key: &'static Key,
    /// Its value; [`HIDDEN`] for a secret.
    pub value: &'a str,
    /// Who wrote it.
    pub source: &'a Source,
}

impl ConfigFile {
    /// Reads a TOML file over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when it cannot be read or has a key that does not exist.
    pub fn read_file(&mut self, path: PathBuf) -> Result<(), ConfigError> {
        match std::fs::read_to_string(&path) {
            Ok(text) => self.read_toml(&text, path),
            Err(error) => Err(ConfigError::Unreadable { path, error }),
        }
    }

    /// Takes TOML text over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when it is not TOML or has a key that does not exist.
    pub fn read_toml(&mut self, text: &str, path: PathBuf) -> Result<(), ConfigError> {
        let not_toml = |error: &toml::de::Error| ConfigError::NotToml {
            path: path.clone(),
            line: error.span().map_or(1, |span| line(text, span.start)),
            reason: error.message().to_owned(),
        };
        let table: toml::Table = toml::from_str(text).map_err(|error| not_toml(&error))?;
        let lines = lines(text).map_err(|error| not_toml(&error))?;
        for (section, content) in table {
            let source = |name: &str| Source::File {
                path: path.clone(),
                line: lines.get(name).copied().unwrap_or(1),
            };
            match content {
                toml::Value::Table(keys) if KEYS.iter().any(|key| key.section() == section) => {
                    for (key, value) in keys {
                        let name = format!("{section}.{key}");
                        self.set_toml(&name, &value, source(&name))?;
                    }
                }
                toml::Value::Table(keys) => {
                    let first = keys.keys().next().map_or("", String::as_str);
                    let name = format!("{section}.{first}");
                    let source = source(&name);
                    return Err(unknown(name, source));
                }
                _ => {
                    let source = source(&section);
                    return Err(unknown(section, source));
                }
            }
        }
        Ok(())
    }

    fn set_toml(
        &mut self,
        name: &str,
        value: &toml::Value,
        source: Source,
    ) -> Result<(), ConfigError> {
        let Some(key) = find(name) else {
            return Err(unknown(name.to_owned(), source));
        };
        match plain(key, value) {
            Ok(value) => self.set(name, value, source),
            Err(reason) => {
                let value = if key.secret() { HIDDEN.to_owned() } else { value.to_string() };
                Err(ConfigError::IllegalValue {
                    name: key.name,
                    value,
                    source_name: source,
                    reason,
                })
            }
        }
    }

    /// Takes every variable of the form `PUNCTUAL_SECTION__KEY` over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] for one that names no key, also where its section and key are held together
    /// by a single underscore.
    pub fn read_environment(
        &mut self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<(), ConfigError> {
        for (variable, value) in variables {
            let Some(rest) = variable.strip_prefix("PUNCTUAL_") else {
                continue;
            };
            let rest = rest.to_ascii_lowercase();
            let name = match rest.split_once("__") {
                Some((section, key)) => format!("{section}.{key}"),
                // One underscore instead of two; whatever else there is may be somebody else's.
                None if find(&rest.replacen('_', ".", 1)).is_some() => rest,
                None => continue,
            };
            if find(&name).is_none() {
                let known = find(nearest(&name)).map(Key::variable).unwrap_or_default();
                let source_name = Source::Environment(variable);
                return Err(ConfigError::UnknownKey {
                    source_name,
                    nearest: format!("{known} ({})", nearest(&name)),
                    name,
                });
            }
            self.set(&name, value, Source::Environment(variable))?;
        }
        Ok(())
    }

    /// Takes one value over what is there.
    ///
    /// # Errors
    /// [`ConfigError`] when there is no such key.
    pub fn set(&mut self, name: &str, value: String, source: Source) -> Result<(), ConfigError> {
        match find(name) {
            Some(key) => {
                self.values.insert(key.name, (value, source));
                Ok(())
            }
            None => Err(unknown(name.to_owned(), source)),
        }
    }

    /// Every key with its value and who wrote it, in the order of the table.
    pub fn values(&self) -> impl Iterator<Item = Written<'_>> {
        KEYS.iter().map(|key| {
            let (value, source) = self.written(key.name);
            Written { key, value: shown(key, value), source }
        })
    }

    /// The keys whose values differ from those of `other`.
    pub fn changed<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'static Key> + 'a {
        KEYS.iter().filter(|key| self.written(key.name).0 != other.written(key.name).0)
    }

    /// Takes over the values of all keys that a running server cannot change.
    pub(crate) fn keep_fixed(&mut self, running: &Self) {
        for key in KEYS.iter().filter(|key| !key.reload) {
            if let Some(value) = running.values.get(key.name) {
                self.values.insert(key.name, value.clone());
            }
        }
    }

    fn written(&self, name: &str) -> (&str, &Source) {
        let (value, source) = self.values.get(name).expect("every key has a default");
        (value, source)
    }

    /// The value of a key, read.
    pub(crate) fn get<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        read(self.written(name).0).map_err(|reason| self.refuse(name, reason))
    }

    /// The value of a secret: as written, or what is in the file that `name` with `_file` names.
    pub(crate) fn get_secret<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, ConfigError> {
        let in_file = find(&format!("{name}{FILE_SUFFIX}")).expect("every secret has such a key");
        let path = self.written(in_file.name).0;
        if path.is_empty() {
            return self.get(name, read);
        }
        if !self.written(name).0.is_empty() {
            let reason = format!("{name} is set too, and only one can hold");
            return Err(self.refuse(in_file.name, reason));
        }
        let secret = read_secret(path).map_err(|reason| self.refuse(in_file.name, reason))?;
        read(&secret).map_err(|reason| self.refuse(in_file.name, reason))
    }

    /// Whether nobody wrote a value.
    pub(crate) fn is_default(&self, name: &'static str) -> bool {
        *self.written(name).1 == Source::Default
    }

    /// The error for a key that cannot be as it is.
    pub(crate) fn refuse(&self, name: &'static str, reason: String) -> ConfigError {
        let (value, source) = self.written(name);
        let secret = find(name).is_some_and(Key::secret) || has_password(value);
        let value = if secret { HIDDEN } else { value };
        ConfigError::IllegalValue { name, value: value.into(), source_name: source.clone(), reason }
    }
}

/// The value as somebody may see it. That a secret is not set may be known.
fn shown<'a>(key: &Key, value: &'a str) -> &'a str {
    let secret = key.secret() && !value.is_empty();
    if secret || has_password(value) { HIDDEN } else { value }
}

/// Whether somebody wrote a password into an address, where it does not belong.
fn has_password(value: &str) -> bool {
    value.contains("://") && url::Url::parse(value).is_ok_and(|url| url.password().is_some())
}

/// The first line of a file of reasonable size.
fn read_secret(path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("it cannot be read: {error}");
    let length = std::fs::metadata(path).map_err(failed)?.len();
    if length > SECRET_FILE_BYTES_MAX {
        return Err(format!("it has more than {SECRET_FILE_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        secret => Ok(secret.to_owned()),
    }
}

/// A value of TOML as text; lists are separated by commas.
fn plain(key: &Key, value: &toml::Value) -> Result<String, String> {
    match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(truth) => Ok(truth.to_string()),
        toml::Value::Array(items) if key.kind == Kind::List => {
            let texts = items.iter().map(|item| match item {
                toml::Value::String(text) if !text.contains(',') => Ok(text.as_str()),
                _ => Err(format!("it takes a {} (without commas)", key.kind)),
            });
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join(","))
        }
        toml::Value::Array(_) => Err(format!("it takes one value ({}), not a list", key.kind)),
        toml::Value::Datetime(_) => Err(format!("it takes a value ({}), not a date", key.kind)),
        toml::Value::Table(_) => Err(format!("it takes a value ({}), not a table", key.kind)),
    }
}

/// The lines in which sections and keys stand, by name.
fn lines(text: &str) -> Result<HashMap<String, usize>, toml::de::Error> {
    let table = toml::de::DeTable::parse(text)?;
    let mut lines = HashMap::new();
    for (section, content) in table.get_ref() {
        lines.insert(section.get_ref().to_string(), line(text, section.span().start));
        for (key, _) in content.get_ref().as_table().into_iter().flatten() {
            let name = format!("{}.{}", section.get_ref(), key.get_ref());
            lines.insert(name, line(text, key.span().start));
        }
    }
    Ok(lines)
}

/// The line of a place in the text, counted from 1.
fn line(text: &str, place: usize) -> usize {
    text.bytes().take(place).filter(|byte| *byte == b'\n').count() + 1
}

fn unknown(name: String, source_name: Source) -> ConfigError {
    ConfigError::UnknownKey { source_name, nearest: nearest(&name).to_owned(), name }
}
