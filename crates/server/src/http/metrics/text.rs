//! Prometheus' text form: how a metric is announced, and how a line of it is written.
//!
//! Every metric is announced once, by [`head`], before its first line. What stands in a label may be
//! anything; here it is made harmless.

use std::fmt::{self, Write as _};

use punctual_model::Buckets;

/// Announces a metric.
pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
}

/// One line.
pub(super) fn line(text: &mut String, line: fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

/// A gauge without labels.
pub(super) fn gauge(text: &mut String, name: &str, help: &str, value: impl fmt::Display) {
    head(text, name, "gauge", help);
    line(text, format_args!("{name} {value}"));
}

/// A counter without labels.
pub(super) fn counter(text: &mut String, name: &str, help: &str, value: impl fmt::Display) {
    head(text, name, "counter", help);
    line(text, format_args!("{name} {value}"));
}

/// A histogram without labels.
pub(super) fn histogram(text: &mut String, name: &str, help: &str, histogram: &Buckets) {
    head(text, name, "histogram", help);
    buckets(text, name, None, histogram);
}

/// The lines of a histogram, or of the part of it that has this label.
pub(super) fn buckets(
    text: &mut String,
    name: &str,
    label: Option<(&str, &str)>,
    histogram: &Buckets,
) {
    let only = label.map_or_else(String::new, |label| Label::from(label).to_string());
    let gap = if only.is_empty() { "" } else { "," };
    for (bound, count) in histogram.bounds.iter().filter(|(bound, _)| bound.is_finite()) {
        line(text, format_args!("{name}_bucket{{{only}{gap}le=\"{bound}\"}} {count}"));
    }
    line(text, format_args!("{name}_bucket{{{only}{gap}le=\"+Inf\"}} {}", histogram.count));
    let braced = if only.is_empty() { only } else { format!("{{{only}}}") };
    line(text, format_args!("{name}_sum{braced} {}", histogram.sum));
    line(text, format_args!("{name}_count{braced} {}", histogram.count));
}

/// A label and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'a> {
    name: &'a str,
    value: &'a str,
}

impl<'a> From<(&'a str, &'a str)> for Label<'a> {
    fn from((name, value): (&'a str, &'a str)) -> Self {
        Self { name, value }
    }
}

impl fmt::Display for Label<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}=\"", self.name)?;
        for letter in self.value.chars() {
            match letter {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use punctual_model::Histogram;

    use super::*;

    #[test]
    fn no_value_ends_its_label() {
        let label = Label::from(("topic", "a\"} 1\nb\\"));
        assert_eq!(label.to_string(), r#"topic="a\"} 1\nb\\""#);
    }

    #[test]
    fn a_histogram_is_cumulative_and_ends_without_a_bound() {
        let histogram = Histogram::new(&[1_000, 10_000]);
        for millis in [1, 5, 500] {
            histogram.note(Duration::from_millis(millis));
        }
        let mut text = String::new();
        buckets(&mut text, "h", Some(("via", "http")), &histogram.read());
        let expected = "h_bucket{via=\"http\",le=\"0.001\"} 1\nh_bucket{via=\"http\",le=\"0.01\"} 2\n\
                        h_bucket{via=\"http\",le=\"+Inf\"} 3\nh_sum{via=\"http\"} 0.506\n\
                        h_count{via=\"http\"} 3\n";
        assert_eq!(text, expected);
        let mut text = String::new();
        buckets(&mut text, "h", None, &histogram.read());
        assert!(text.starts_with("h_bucket{le=\"0.001\"} 1\n"), "{text}");
        assert!(text.ends_with("h_sum 0.506\nh_count 3\n"), "{text}");
    }
}
