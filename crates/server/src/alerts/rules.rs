//! The rules: what each of them watches, in one table.
//!
//! A rule compares one number with its threshold. Thresholds and times come from the configuration,
//! under the keys named here; the configuration reads this table and nothing else.

/// What a rule watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    PendingBacklog,
    OldestOverdue,
    LatenessHigh,
    SuccessRate,
    Attempts,
    DeadLetterGrowth,
    UndecidedTransactions,
    NodeLost,
    DiskSpace,
    ClockStep,
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Messages,
    Millis,
    Ratio,
    Attempts,
    Transactions,
    Nodes,
    Percent,
    Steps,
}

impl Unit {
    /// The word used for it everywhere.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Millis => "ms",
            Self::Ratio => "ratio",
            Self::Attempts => "attempts",
            Self::Transactions => "transactions",
            Self::Nodes => "nodes",
            Self::Percent => "percent",
            Self::Steps => "steps",
        }
    }
}

/// On which side of the threshold something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    AtLeast,
    MoreThan,
    LessThan,
}

/// A line of the table.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) kind: Kind,
    /// The key of its threshold.
    pub(crate) key: &'static str,
    /// The key that says how long it must hold.
    pub(crate) hold_key: &'static str,
    pub(crate) unit: Unit,
    sense: Sense,
    pub(crate) about: &'static str,
}

/// Before the name of a rule in the keys of the configuration.
const SECTION: &str = "alerts.";
/// Number of rules.
pub(crate) const COUNT: usize = 10;

#[rustfmt::skip]
pub(crate) static RULES: [Rule; COUNT] = [
    rule(Kind::PendingBacklog, "alerts.pending_backlog", "alerts.pending_backlog_for",
        (Unit::Messages, Sense::AtLeast), "messages that wait for their due time"),
    rule(Kind::OldestOverdue, "alerts.oldest_overdue", "alerts.oldest_overdue_for",
        (Unit::Millis, Sense::AtLeast), "how long the oldest message that is due waits to be delivered"),
    rule(Kind::LatenessHigh, "alerts.lateness_p99", "alerts.lateness_p99_for",
        (Unit::Millis, Sense::AtLeast), "how late all but one in a hundred messages of the last minute were delivered"),
    rule(Kind::SuccessRate, "alerts.success_rate", "alerts.success_rate_for",
        (Unit::Ratio, Sense::LessThan), "share of attempts of groups that ended in an ack"),
    rule(Kind::Attempts, "alerts.attempts", "alerts.attempts_for",
        (Unit::Attempts, Sense::MoreThan), "failed attempts of one message"),
    rule(Kind::DeadLetterGrowth, "alerts.dead_letter_growth", "alerts.dead_letter_growth_for",
        (Unit::Messages, Sense::AtLeast), "messages that became dead letters"),
    rule(Kind::UndecidedTransactions, "alerts.undecided_transactions", "alerts.undecided_transactions_for",
        (Unit::Transactions, Sense::AtLeast), "transactions that nobody has decided for a long time"),
    rule(Kind::NodeLost, "alerts.node_lost", "alerts.node_lost_for",
        (Unit::Nodes, Sense::AtLeast), "nodes that went without leaving, or slots without an owner"),
    rule(Kind::DiskSpace, "alerts.disk_space", "alerts.disk_space_for",
        (Unit::Percent, Sense::LessThan), "free space on the disk of the data"),
    rule(Kind::ClockStep, "alerts.clock_step", "alerts.clock_step_for",
        (Unit::Steps, Sense::AtLeast), "steps of the wall clock"),
];

const fn rule(
    kind: Kind,
    key: &'static str,
    hold_key: &'static str,
    (unit, sense): (Unit, Sense),
    about: &'static str,
) -> Rule {
    Rule { kind, key, hold_key, unit, sense, about }
}

impl Rule {
    /// Its name, as everybody sees it.
    pub(crate) fn name(&self) -> &'static str {
        self.key.strip_prefix(SECTION).unwrap_or(self.key)
    }

    /// Whether something is wrong with this number.
    pub(crate) fn is_broken(&self, value: f64, threshold: f64) -> bool {
        match self.sense {
            Sense::AtLeast => value >= threshold,
            Sense::MoreThan => value > threshold,
            Sense::LessThan => value < threshold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KEYS;

    #[test]
    fn every_rule_has_its_place_its_keys_and_its_name() {
        let names: Vec<&str> = RULES.iter().map(Rule::name).collect();
        let known = [
            "pending_backlog",
            "oldest_overdue",
            "lateness_p99",
            "success_rate",
            "attempts",
            "dead_letter_growth",
            "undecided_transactions",
            "node_lost",
            "disk_space",
            "clock_step",
        ];
        assert_eq!(names, known);
        for (place, rule) in RULES.iter().enumerate() {
            assert_eq!(rule.kind as usize, place, "{}", rule.name());
            assert_eq!(rule.hold_key, format!("{}_for", rule.key));
            for name in [rule.key, rule.hold_key] {
                assert!(KEYS.iter().any(|key| key.name == name && key.reload), "{name}");
            }
        }
    }

    #[test]
    fn each_is_broken_on_its_side() {
        let broken = |kind: Kind, value| RULES[kind as usize].is_broken(value, 10.0);
        assert_eq!([9.0, 10.0, 11.0].map(|v| broken(Kind::Attempts, v)), [false, false, true]);
        assert_eq!([9.0, 10.0, 11.0].map(|v| broken(Kind::DiskSpace, v)), [true, false, false]);
        assert_eq!([9.0, 10.0, 11.0].map(|v| broken(Kind::ClockStep, v)), [false, true, true]);
    }
}
