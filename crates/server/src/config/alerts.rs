//! Alerts: what is too much, for how long, and who is told.

use std::time::Duration;

use punctual_model::Span;
use punctual_model::time::SpanError;

use super::cluster::Hidden;
use super::values::{fraction, span, time};
use super::{Config, ConfigError, ConfigFile};
use crate::alerts::{COUNT, Kind, RULES, Rule, Unit};
use crate::push::{Secret, check_url};

/// Evaluating more often would tell nothing more.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Less often, and an alert would come too late to be one.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// How far back may be looked.
const WINDOW_MAX: Duration = Duration::from_secs(24 * 3600);
/// The largest number that something is compared with.
const COUNT_MAX: u64 = 1_000_000_000_000;

/// Alerts.
#[derive(Clone, Debug)]
pub struct AlertsConfig {
    /// Time between two evaluations.
    pub interval: Duration,
    /// How far back rules look that count over time.
    pub window: Duration,
    /// How long a transaction may be undecided.
    pub undecided_after: Span,
    /// Who is told. Hidden, since such addresses often let anybody in who knows them.
    pub webhook: Option<Hidden>,
    /// What it is signed with.
    pub webhook_secret: Option<Secret>,
    /// One for each line of the table of rules.
    rules: [RuleConfig; COUNT],
}

/// How a rule is set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RuleConfig {
    /// What its number is compared with; without it the rule is off.
    pub(crate) threshold: Option<f64>,
    /// How long it must be broken before it fires.
    pub(crate) hold: Duration,
}

impl AlertsConfig {
    /// How that rule is set.
    pub(crate) const fn rule(&self, kind: Kind) -> RuleConfig {
        self.rules[kind as usize]
    }
}

pub(super) fn read(file: &ConfigFile) -> Result<AlertsConfig, ConfigError> {
    let within = |least: Duration, most: Duration| {
        move |text: &str| {
            let time = time(text)?;
            let fits = (least..=most).contains(&time);
            fits.then_some(time).ok_or_else(|| format!("it is from {least:?} to {most:?}"))
        }
    };
    let mut rules = [RuleConfig::default(); COUNT];
    for (set, rule) in rules.iter_mut().zip(&RULES) {
        set.threshold = file.get(rule.key, |text| threshold(rule, text))?;
        set.hold = file.get(rule.hold_key, time_or_none)?;
    }
    Ok(AlertsConfig {
        interval: file.get("alerts.interval", within(INTERVAL_MIN, INTERVAL_MAX))?,
        window: file.get("alerts.window", within(Duration::from_secs(1), WINDOW_MAX))?,
        undecided_after: file.get("alerts.undecided_after", span)?,
        webhook: file.get_secret("alerts.webhook", |text| Ok(Hidden::read(text)))?,
        webhook_secret: file.get_secret("alerts.webhook_secret", Secret::read)?,
        rules,
    })
}

/// G46: nobody is told at an address that nothing may be pushed to.
pub(super) fn check(file: &ConfigFile, config: &Config) -> Result<(), ConfigError> {
    let Some(url) = &config.alerts.webhook else {
        return match config.alerts.webhook_secret {
            Some(_) => Err(file.refuse("alerts.webhook_secret", "it needs alerts.webhook".into())),
            None => Ok(()),
        };
    };
    let checked = check_url(url.text(), &config.push.allow);
    checked.map_err(|refused| file.refuse("alerts.webhook", refused.reason))
}

/// What the number of a rule is compared with; nothing is `None`.
fn threshold(rule: &Rule, text: &str) -> Result<Option<f64>, String> {
    let threshold = match rule.unit {
        Unit::Millis => time_or_none(text)?.as_secs_f64() * 1000.0,
        Unit::Ratio => fraction(text)?,
        Unit::Percent => number(text, 100)?,
        _ => number(text, COUNT_MAX)?,
    };
    Ok(Some(threshold).filter(|threshold| *threshold > 0.0))
}

/// A length of time, which may be nothing.
fn time_or_none(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse().map_err(|error: SpanError| error.to_string())?;
    Ok(Duration::from_millis(span.as_millis()))
}

#[expect(clippy::cast_precision_loss, reason = "such numbers are exact up to far past the most")]
fn number(text: &str, most: u64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0..=most).contains(number));
    number
        .map(|number: u64| number as f64)
        .ok_or_else(|| format!("it is a whole number from 0 to {most}; 0 switches the rule off"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Source;

    fn with(settings: &[(&str, &str)]) -> Result<Config, String> {
        let mut file = ConfigFile::default();
        for (name, value) in settings {
            file.set(name, (*value).to_owned(), Source::Flag("test")).unwrap();
        }
        Config::try_from(file).map_err(|error| error.to_string())
    }

    fn threshold_of(kind: Kind, settings: &[(&str, &str)]) -> Option<f64> {
        with(settings).unwrap().alerts.rule(kind).threshold
    }

    #[test]
    fn all_rules_but_the_backlog_are_on_and_nothing_switches_each_off() {
        for rule in &RULES {
            let on = threshold_of(rule.kind, &[]).is_some();
            assert_eq!(on, rule.kind != Kind::PendingBacklog, "{}", rule.name());
            assert_eq!(threshold_of(rule.kind, &[(rule.key, "0")]), None, "{}", rule.name());
            with(&[(rule.hold_key, "0s")]).unwrap();
        }
        assert_eq!(threshold_of(Kind::LatenessHigh, &[]), Some(5000.0));
        assert_eq!(threshold_of(Kind::SuccessRate, &[]), Some(0.9));
        let large = [("alerts.pending_backlog", "25000000")];
        assert_eq!(threshold_of(Kind::PendingBacklog, &large), Some(25_000_000.0));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (name, value) in [
            ("alerts.interval", "0s"),
            ("alerts.interval", "1ms"),
            ("alerts.interval", "2h"),
            ("alerts.window", "25h"),
            ("alerts.window", "10"),
            ("alerts.disk_space", "101"),
            ("alerts.disk_space", "-1"),
            ("alerts.success_rate", "1.5"),
            ("alerts.attempts", "some"),
            ("alerts.oldest_overdue", "late"),
            ("alerts.oldest_overdue_for", "-1s"),
            ("alerts.webhook_secret", "without-a-webhook"),
        ] {
            let refused = with(&[(name, value)]).unwrap_err();
            assert!(refused.starts_with(name), "{refused}");
        }
    }

    #[test]
    fn g46_a_webhook_inside_is_refused_unless_it_is_listed_and_never_shown() {
        for url in [
            "http://169.254.169.254/a-hidden-path",
            "http://127.0.0.1:80/a-hidden-path",
            "https://10.0.0.1/a-hidden-path",
            "http://user:a-hidden-path@example.org/",
            "ftp://example.org/a-hidden-path",
        ] {
            let refused = with(&[("alerts.webhook", url)]).unwrap_err();
            assert!(refused.starts_with("alerts.webhook = \"(hidden)\""), "{refused}");
            assert!(!refused.contains("a-hidden-path"), "{refused}");
        }
        let listed = [("alerts.webhook", "http://127.0.0.1/x"), ("push.allow", "127.0.0.0/8")];
        let config = with(&listed).unwrap();
        assert_eq!(config.alerts.webhook.as_ref().map(Hidden::text), Some("http://127.0.0.1/x"));
        assert!(!format!("{config:?}").contains("127.0.0.1/x"));
        with(&[("alerts.webhook", "https://hooks.example/in")]).unwrap();
    }
}
