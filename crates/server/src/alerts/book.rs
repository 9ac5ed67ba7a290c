//! Where all rules stand, and what was told lately.

use std::collections::VecDeque;
use std::time::Duration;

use punctual_api::alert::{Figure, HistoryView, NoticeView, RuleView};
use punctual_model::{Span, Timestamp};

use crate::alerts::rules::{COUNT, RULES, Rule};
use crate::alerts::state::{Phase, Terms, Turn};
use crate::config::AlertsConfig;

/// Events that are remembered.
const HISTORY_MAX: usize = 200;
/// What stands for a rule in a test.
pub(crate) const TEST: &str = "test";

/// What somebody saw of what a rule watches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Seen {
    /// It could not be found out this time; everything stays as it is.
    #[default]
    Unknown,
    /// There is nothing to judge, so nothing is wrong.
    Nothing,
    /// A number, and what else there is to say of it.
    Number(f64, Option<String>),
}

/// What everybody is told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// `None` for a test.
    pub(crate) rule: Option<&'static Rule>,
    pub(crate) word: &'static str,
    pub(crate) at: Timestamp,
    pub(crate) value: Option<f64>,
    pub(crate) threshold: Option<f64>,
    pub(crate) detail: Option<String>,
}

impl PartialEq for Rule {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

impl Event {
    /// Somebody wants to see whether news arrives.
    pub(crate) const fn test(at: Timestamp) -> Self {
        Self { rule: None, word: TEST, at, value: None, threshold: None, detail: None }
    }

    /// As the webhook is told.
    pub(crate) fn notice(&self, node: String) -> NoticeView {
        NoticeView {
            rule: self.name(),
            event: self.word,
            value: self.value.map(Figure),
            threshold: self.threshold.map(Figure),
            unit: self.rule.map(|rule| rule.unit.word()),
            detail: self.detail.clone(),
            at: self.at.to_string(),
            node,
        }
    }

    /// The rule's name.
    pub(crate) fn name(&self) -> &'static str {
        self.rule.map_or(TEST, Rule::name)
    }

    fn view(&self) -> HistoryView {
        HistoryView {
            rule: self.name(),
            event: self.word,
            at: self.at.to_string(),
            value: self.value.map(Figure),
            detail: self.detail.clone(),
        }
    }
}

/// Where one rule stands.
#[derive(Clone, Debug, Default)]
struct Standing {
    phase: Phase,
    /// Since when, where it is not fine.
    since: Option<Timestamp>,
    value: Option<f64>,
    detail: Option<String>,
}

/// Where all rules stand, and what was told.
#[derive(Debug, Default)]
pub(crate) struct Book {
    standings: [Standing; COUNT],
    /// Oldest first.
    history: VecDeque<Event>,
}

/// When something was seen: on the clock of the broker, and on one that only grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Timestamp,
    pub(crate) since_start: Duration,
}

impl Book {
    /// Takes in what was seen, one for each rule; answers what everybody is to be told.
    pub(crate) fn take(
        &mut self,
        seen: [Seen; COUNT],
        now: Moment,
        config: &AlertsConfig,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        for ((standing, rule), seen) in self.standings.iter_mut().zip(&RULES).zip(seen) {
            events.extend(standing.take(rule, seen, now, config));
        }
        events.iter().for_each(|event| self.note(event.clone()));
        events
    }

    /// Remembers an event.
    pub(crate) fn note(&mut self, event: Event) {
        if self.history.len() >= HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }

    /// Which rules fire.
    pub(crate) fn firing(&self) -> [(&'static str, bool); COUNT] {
        std::array::from_fn(|place| (RULES[place].name(), self.standings[place].fires()))
    }

    /// All rules as they are shown.
    pub(crate) fn rules(&self, config: &AlertsConfig) -> Vec<RuleView> {
        let lines = self.standings.iter().zip(&RULES);
        lines.map(|(standing, rule)| standing.view(rule, config)).collect()
    }

    /// What was told, newest first.
    pub(crate) fn history(&self) -> Vec<HistoryView> {
        self.history.iter().rev().map(Event::view).collect()
    }
}

impl Standing {
    fn take(
        &mut self,
        rule: &'static Rule,
        seen: Seen,
        now: Moment,
        config: &AlertsConfig,
    ) -> Option<Event> {
        let set = config.rule(rule.kind);
        let (broken, fresh) = match seen {
            Seen::Unknown => (None, None),
            Seen::Nothing => (Some(false), Some((None, None))),
            Seen::Number(value, detail) => {
                let broken = set.threshold.is_some_and(|limit| rule.is_broken(value, limit));
                (Some(broken), Some((Some(value), detail)))
            }
        };
        if let Some(fresh) = fresh {
            (self.value, self.detail) = fresh;
        }
        let terms = Terms { hold: set.hold, settle: config.interval };
        let (phase, turn) = match (set.threshold, broken) {
            (None, _) => self.phase.switched_off(),
            (Some(_), Some(broken)) => self.phase.after(broken, now.since_start, terms),
            (Some(_), None) => (self.phase, None),
        };
        if phase.word() != self.phase.word() {
            self.since = (phase != Phase::Fine).then_some(now.at);
        }
        self.phase = phase;
        let word = match turn? {
            Turn::Fires => "firing",
            Turn::Resolves => "resolved",
        };
        let off = || "the rule was switched off".to_owned();
        Some(Event {
            rule: Some(rule),
            word,
            at: now.at,
            value: self.value,
            threshold: set.threshold,
            detail: if set.threshold.is_none() { Some(off()) } else { self.detail.clone() },
        })
    }

    fn fires(&self) -> bool {
        matches!(self.phase, Phase::Firing { .. })
    }

    fn view(&self, rule: &'static Rule, config: &AlertsConfig) -> RuleView {
        let set = config.rule(rule.kind);
        let hold = u64::try_from(set.hold.as_millis()).unwrap_or(u64::MAX);
        RuleView {
            name: rule.name(),
            about: rule.about,
            unit: rule.unit.word(),
            threshold: Figure(set.threshold.unwrap_or(0.0)),
            hold: Span::from_millis(hold).to_string(),
            enabled: set.threshold.is_some(),
            state: self.phase.word(),
            value: self.value.map(Figure),
            since: self.since.map(|since| since.to_string()),
            detail: self.detail.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::rules::Kind;
    use crate::config::{Config, ConfigFile, Source};

    fn config(settings: &[(&str, &str)]) -> AlertsConfig {
        let mut file = ConfigFile::default();
        for (name, value) in settings {
            file.set(name, (*value).to_owned(), Source::Flag("test")).unwrap();
        }
        Config::try_from(file).unwrap().alerts
    }

    fn at(seconds: u64) -> Moment {
        let at = Timestamp::from_millis(1_800_000_000_000 + seconds * 1000).unwrap();
        Moment { at, since_start: Duration::from_secs(seconds) }
    }

    fn backlog(pending: Seen) -> [Seen; COUNT] {
        let mut seen = [const { Seen::Nothing }; COUNT];
        seen[Kind::PendingBacklog as usize] = pending;
        seen
    }

    #[test]
    fn what_is_seen_is_shown_and_told() {
        let config = config(&[
            ("alerts.pending_backlog", "10"),
            ("alerts.pending_backlog_for", "20s"),
            ("alerts.interval", "10s"),
        ]);
        let mut book = Book::default();
        let number = |value| Seen::Number(value, Some("many".into()));
        assert_eq!(book.take(backlog(number(10.0)), at(0), &config), []);
        let shown = &book.rules(&config)[0];
        assert_eq!(
            (shown.state, shown.value, &*shown.hold),
            ("pending", Some(Figure(10.0)), "20s")
        );
        assert_eq!(shown.since, Some(at(0).at.to_string()));
        assert_eq!(book.take(backlog(Seen::Unknown), at(10), &config), [], "it stays");
        let fired = book.take(backlog(number(12.0)), at(20), &config);
        let [event] = &fired[..] else { panic!("{fired:?}") };
        assert_eq!(
            (event.name(), event.word, event.value),
            ("pending_backlog", "firing", Some(12.0))
        );
        assert_eq!(book.firing()[0], ("pending_backlog", true));
        assert_eq!(book.rules(&config)[0].since, Some(at(20).at.to_string()));
        assert_eq!(book.take(backlog(Seen::Unknown), at(100), &config), [], "nobody knows");
        assert_eq!(book.take(backlog(number(9.0)), at(110), &config), []);
        assert_eq!(book.take(backlog(number(9.0)), at(120), &config)[0].word, "resolved");
        let shown = &book.rules(&config)[0];
        assert_eq!((shown.state, &shown.since), ("ok", &None));
        let words: Vec<&str> = book.history().iter().map(|event| event.event).collect();
        assert_eq!(words, ["resolved", "firing"], "newest first");
    }

    #[test]
    fn a_rule_that_is_off_ends_and_starts_nothing() {
        let on = config(&[("alerts.pending_backlog", "1"), ("alerts.pending_backlog_for", "0s")]);
        let off = config(&[]);
        let mut book = Book::default();
        let many = || backlog(Seen::Number(5.0, None));
        assert_eq!(book.take(many(), at(0), &off), []);
        assert_eq!(book.take(many(), at(1), &on)[0].word, "firing");
        let ended = book.take(many(), at(2), &off);
        assert_eq!(ended[0].word, "resolved");
        assert_eq!(ended[0].detail.as_deref(), Some("the rule was switched off"));
        assert!(!book.rules(&off)[0].enabled);
    }

    #[test]
    fn the_history_is_bounded() {
        let mut book = Book::default();
        (0..1000).for_each(|second| book.note(Event::test(at(second).at)));
        let history = book.history();
        assert_eq!(history.len(), HISTORY_MAX);
        assert_eq!(history[0].at, at(999).at.to_string());
        assert_eq!((history[0].rule, history[0].event), ("test", "test"));
    }
}
