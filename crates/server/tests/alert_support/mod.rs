//! A server that looks at one rule very often, and somebody who is told.

use serde_json::Value;

use crate::push_support::{Endpoint, Seen, reply};
use crate::support::{Server, wait_for};

/// How the usual server of these tests is set.
const USUAL: &[(&str, &str)] = &[
    ("store.durability", "os"),
    ("push.allow", "127.0.0.0/8"),
    ("alerts.interval", "100ms"),
    ("alerts.webhook_secret", "a secret for alerts"),
];
/// All rules that are on by default.
const ON: &[&str] = &[
    "alerts.oldest_overdue",
    "alerts.lateness_p99",
    "alerts.success_rate",
    "alerts.attempts",
    "alerts.dead_letter_growth",
    "alerts.undecided_transactions",
    "alerts.node_lost",
    "alerts.disk_space",
    "alerts.clock_step",
];

/// A server with a single rule, and who is told.
pub(crate) struct Watched {
    pub(crate) server: Server,
    pub(crate) endpoint: Endpoint,
    rule: &'static str,
}

impl Watched {
    /// Only that rule is on, and fires at once.
    pub(crate) fn with(rule: &'static str, threshold: &str, more: &[(&str, &str)]) -> Self {
        let endpoint = Endpoint::start(|_| reply(204, "", ""));
        Self::telling(endpoint, rule, threshold, more)
    }

    pub(crate) fn telling(
        endpoint: Endpoint,
        rule: &'static str,
        threshold: &str,
        more: &[(&str, &str)],
    ) -> Self {
        let settings = settings(&endpoint.url(), rule, threshold, more);
        let settings: Vec<(&str, &str)> = pairs(&settings);
        Self { server: Server::with(&settings), endpoint, rule }
    }

    /// The rule as it is shown.
    pub(crate) fn shown(&self) -> Value {
        shown(&self.server, self.rule)
    }

    /// Waits for the rule to fire: it is shown, told, counted and remembered. What was told.
    pub(crate) fn fires(&self) -> Value {
        self.turns("firing", "firing", 1)
    }

    /// Waits for the rule to be over.
    pub(crate) fn resolves(&self) -> Value {
        self.turns("resolved", "ok", 0)
    }

    fn turns(&self, event: &str, state: &str, gauge: u8) -> Value {
        let told: Value = serde_json::from_str(self.endpoint.next().text()).expect("JSON");
        assert_eq!((&told["rule"], &told["event"]), (&self.rule.into(), &event.into()), "{told}");
        let shown = self.shown();
        assert_eq!(shown["state"], state, "{shown}");
        assert_eq!(shown["since"].is_string(), state != "ok", "{shown}");
        for field in ["threshold", "unit"] {
            assert_eq!(told[field], shown[field], "{told} {shown}");
        }
        let alerts = self.server.get("/v1/alerts").json();
        let newest = &alerts["history"][0];
        for field in ["rule", "event", "at", "value", "detail"] {
            assert_eq!(newest[field], told[field], "{newest} {told}");
        }
        let metrics = self.server.get("/metrics").body;
        let line = format!("punctual_alert_firing{{rule=\"{}\"}} {gauge}\n", self.rule);
        assert!(metrics.contains(&line), "{metrics}");
        told
    }

    /// The next request, as it came.
    pub(crate) fn next(&self) -> Seen {
        self.endpoint.next()
    }
}

/// What a server with a single rule is started with.
pub(crate) fn settings(
    url: &str,
    rule: &str,
    threshold: &str,
    more: &[(&str, &str)],
) -> Vec<(String, String)> {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let mut settings: Vec<_> = USUAL.iter().copied().map(own).collect();
    settings.extend(ON.iter().map(|name| own((name, "0"))));
    settings.push(own(("alerts.webhook", url)));
    settings.push((format!("alerts.{rule}"), threshold.to_owned()));
    settings.push((format!("alerts.{rule}_for"), "0s".to_owned()));
    settings.extend(more.iter().copied().map(own));
    settings
}

pub(crate) fn pairs(settings: &[(String, String)]) -> Vec<(&str, &str)> {
    settings.iter().map(|(name, value)| (&**name, &**value)).collect()
}

/// A rule as it is shown.
pub(crate) fn shown(server: &Server, rule: &str) -> Value {
    let alerts = server.get("/v1/alerts").json();
    let rules = alerts["rules"].as_array().expect("rules");
    rules.iter().find(|shown| shown["name"] == rule).expect("the rule").clone()
}

/// Waits until the rule is shown like that.
pub(crate) fn wait_for_state(server: &Server, rule: &str, state: &str) -> Value {
    wait_for("the state of a rule", || {
        Some(shown(server, rule)).filter(|shown| shown["state"] == state)
    })
}
