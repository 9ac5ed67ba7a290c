//! Reads Prometheus' text form, and puts up with nothing that is not in order.

use std::collections::{BTreeMap, BTreeSet};

/// A metric and its lines.
#[derive(Debug, Default)]
pub(crate) struct Metric {
    pub(crate) kind: String,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

pub(crate) type Metrics = BTreeMap<String, Metric>;

/// Reads the whole text.
pub(crate) fn read(text: &str) -> Metrics {
    assert!(text.ends_with('\n'), "the last line ends");
    let mut metrics = Metrics::new();
    let mut current = String::new();
    let mut seen = BTreeSet::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help text");
            assert!(is_name(name) && help.len() > 4 && help.ends_with('.'), "{line}");
            let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
            let (of, kind) = kind.and_then(|kind| kind.split_once(' ')).expect("a type");
            assert_eq!(of, name, "the type follows the help");
            check_name(name, kind);
            let metric = Metric { kind: kind.to_owned(), samples: Vec::new() };
            assert!(metrics.insert(name.to_owned(), metric).is_none(), "{name} comes twice");
            name.clone_into(&mut current);
            continue;
        }
        assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
        let sample = sample(line);
        assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "{line} comes twice");
        let metric = metrics.get_mut(&current).expect("a metric is announced first");
        let rest = sample.name.strip_prefix(&current);
        let fits = match metric.kind.as_str() {
            "histogram" => matches!(rest, Some("_bucket" | "_sum" | "_count")),
            _ => rest == Some(""),
        };
        assert!(fits, "{line} does not belong to {current}");
        metric.samples.push(sample);
    }
    metrics.values().filter(|metric| metric.kind == "histogram").for_each(check_histogram);
    metrics
}

fn is_name(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    name.bytes().all(legal) && (name.starts_with("punctual_") || name.starts_with("process_"))
}

fn check_name(name: &str, kind: &str) {
    match kind {
        "counter" => assert!(name.ends_with("_total"), "{name}"),
        "histogram" => assert!(name.ends_with("_seconds"), "{name}: all of ours count time"),
        "gauge" => assert!(!name.ends_with("_total"), "{name}"),
        other => panic!("{name} is a {other}"),
    }
    for unit in ["_ms", "_millis", "_micros", "_kb", "_mb", "_percent", "_minutes", "_hours"] {
        assert!(!name.contains(unit), "{name}: seconds and bytes");
    }
}

/// Reads `name{label="value",…} number`.
fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).expect("a value");
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest),
        None => (BTreeMap::new(), rest),
    };
    let value = rest.strip_prefix(' ').and_then(|value| value.parse().ok());
    let value = value.unwrap_or_else(|| panic!("{line:?} has no number"));
    Sample { name: name.to_owned(), labels, value }
}

/// Reads labels up to their end, and what follows.
fn labels(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name:?}");
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next().expect("the value ends") {
                (at, '"') => break at,
                (_, '\\') => match letters.next().expect("something is escaped").1 {
                    'n' => value.push('\n'),
                    letter @ ('\\' | '"') => value.push(letter),
                    other => panic!("\\{other} means nothing"),
                },
                (_, letter) => value.push(letter),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').expect("the labels end")),
        }
    }
}

/// Bounds grow, counts never fall, and the last bucket has them all.
fn check_histogram(metric: &Metric) {
    let mut by_labels: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
    let mut counts = BTreeMap::new();
    for sample in &metric.samples {
        let mut labels = sample.labels.clone();
        if sample.name.ends_with("_bucket") {
            let bound = labels.remove("le").expect("a bound");
            let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().expect("le") };
            by_labels.entry(labels).or_default().push((bound, sample.value));
        } else if sample.name.ends_with("_count") {
            counts.insert(labels, sample.value);
        }
    }
    assert!(!by_labels.is_empty() && by_labels.len() == counts.len(), "{metric:?}");
    for (labels, buckets) in by_labels {
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, counts[&labels])));
    }
}

/// The one value with exactly these labels.
pub(crate) fn value(metrics: &Metrics, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let samples = metrics.values().flat_map(|metric| &metric.samples);
    let mut fitting = samples.filter(|sample| sample.name == name && sample.labels == labels);
    fitting.next().map(|sample| sample.value)
}
