//! How texts become values. Each parser says in its refusal what the key takes.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use punctual_model::Span;
use punctual_model::time::SpanError;
use tracing::level_filters::LevelFilter;
use url::Url;

/// What is logged: a level for everything, and others for single parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// The level of what no part below names.
    pub general: LevelFilter,
    /// Parts, by the beginning of their module's path, with their levels.
    pub parts: Vec<(String, LevelFilter)>,
}

pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_not_one| "it is an address and a port: 127.0.0.1:7070".to_owned())
}

/// An address, or `off`.
pub(super) fn address_or_off(text: &str) -> Result<Option<SocketAddr>, String> {
    match text {
        "off" => Ok(None),
        text => address(text).map(Some).map_err(|refusal| format!("{refusal}, or off")),
    }
}

pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(items.map(str::to_ascii_lowercase).collect())
}

/// Any number of texts, as they are written.
pub(super) fn texts(text: &str) -> Result<Vec<String>, String> {
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    Ok(items.map(str::to_owned).collect())
}

/// Origins as a browser writes them: scheme, name and port, nothing behind.
pub(super) fn origins(text: &str) -> Result<Vec<String>, String> {
    let origins = list(text)?;
    for origin in &origins {
        let url = Url::parse(origin).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if url.is_none_or(|url| url.origin().ascii_serialization() != *origin) {
            return Err(format!("{origin} is not an origin, like https://console.example"));
        }
    }
    Ok(origins)
}

pub(super) fn count(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|number| (1..=1_000_000).contains(number))
        .ok_or_else(|| "it is a whole number from 1 to 1000000".to_owned())
}

pub(super) fn fraction(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| "it is a number from 0 to 1".to_owned())
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    span(text).map(|span| Duration::from_millis(span.as_millis()))
}

pub(super) fn span(text: &str) -> Result<Span, String> {
    match text.parse() {
        Ok(Span::ZERO) => Err("it must be longer than nothing".to_owned()),
        read => read.map_err(|error: SpanError| error.to_string()),
    }
}

pub(super) fn directory(text: &str) -> Result<PathBuf, String> {
    file(text)?.ok_or_else(|| "it is a directory".to_owned())
}

pub(super) fn file(text: &str) -> Result<Option<PathBuf>, String> {
    Ok((!text.is_empty()).then(|| PathBuf::from(text)))
}

pub(super) fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_neither| "it is true or false".to_owned())
}

pub(super) fn bytes(text: &str, range: RangeInclusive<usize>) -> Result<usize, String> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match text[digits.len()..].trim_start() {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        _ => None,
    };
    digits
        .parse::<usize>()
        .ok()
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit))
        .filter(|number| range.contains(number))
        .ok_or_else(|| {
            format!("it is a number of bytes (4MiB) from {} to {}", range.start(), range.end())
        })
}

/// One of the words, by what it stands for.
pub(super) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    match words.iter().find(|(word, _)| *word == text) {
        Some((_, meant)) => Ok(*meant),
        None => {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            Err(format!("it is one of: {}", words.join(", ")))
        }
    }
}

pub(super) fn levels(text: &str) -> Result<Levels, String> {
    let mut levels = Levels { general: LevelFilter::INFO, parts: Vec::new() };
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match item.split_once('=') {
            None => levels.general = level(item)?,
            Some((part, written)) => levels.parts.push((part.trim().to_owned(), level(written)?)),
        }
    }
    Ok(levels)
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let words = [
        ("off", LevelFilter::OFF),
        ("error", LevelFilter::ERROR),
        ("warn", LevelFilter::WARN),
        ("info", LevelFilter::INFO),
        ("debug", LevelFilter::DEBUG),
        ("trace", LevelFilter::TRACE),
    ];
    choice(text.trim(), &words)
        .map_err(|reason| format!("{reason}; for a part: punctual_server::push=debug"))
}

/// Where a collector listens, if there is one.
pub(super) fn collector(text: &str) -> Result<Option<Url>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = Url::parse(text).ok().filter(|url| url.scheme() == "http" && url.has_host());
    match url {
        // A password would show up wherever the address is named.
        Some(url) if url.username().is_empty() && url.password().is_none() => Ok(Some(url)),
        _ => Err("it is an address like http://127.0.0.1:4317".to_owned()),
    }
}

pub(super) fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty() && text.len() <= 255 && !text.contains(char::is_control);
    fits.then(|| text.to_owned()).ok_or_else(|| "it is a name of 1 to 255 bytes".to_owned())
}
