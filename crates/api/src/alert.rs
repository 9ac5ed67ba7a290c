//! Alerts: what is watched, what was wrong, and who was told.

use serde::{Serialize, Serializer};

/// All rules, and what happened lately.
#[derive(Clone, Debug, Serialize)]
pub struct AlertsView {
    /// Every rule there is.
    pub rules: Vec<RuleView>,
    /// What was told, newest first.
    pub history: Vec<HistoryView>,
    /// The address that is told too.
    pub webhook: WebhookView,
}

/// A rule and where it stands.
#[derive(Clone, Debug, Serialize)]
pub struct RuleView {
    /// Its name.
    pub name: &'static str,
    /// What it watches.
    pub about: &'static str,
    /// What its number counts.
    pub unit: &'static str,
    /// What the number is compared with; nothing where the rule is off.
    pub threshold: Figure,
    /// How long it must be broken before it fires: a duration.
    #[serde(rename = "for")]
    pub hold: String,
    /// Whether it is on.
    pub enabled: bool,
    /// Where it stands: `ok`, `pending` or `firing`.
    pub state: &'static str,
    /// The number, as it was last seen.
    pub value: Option<Figure>,
    /// Since when it is pending or firing, as RFC 3339.
    pub since: Option<String>,
    /// What else there is to say of it.
    pub detail: Option<String>,
}

/// Something that was told.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryView {
    /// The rule, or `test`.
    pub rule: &'static str,
    /// What happened: `firing`, `resolved` or `test`.
    pub event: &'static str,
    /// When, as RFC 3339.
    pub at: String,
    /// The number at that time.
    pub value: Option<Figure>,
    /// What else there was to say.
    pub detail: Option<String>,
}

/// The address that is told.
#[derive(Clone, Debug, Serialize)]
pub struct WebhookView {
    /// Whether there is one.
    pub configured: bool,
    /// How the last attempt to reach it went.
    pub last: Option<ReachedView>,
}

/// An attempt to reach the address.
#[derive(Clone, Debug, Serialize)]
pub struct ReachedView {
    /// When, as RFC 3339.
    pub at: String,
    /// Whether it took the news.
    pub ok: bool,
    /// If not, why.
    pub error: Option<String>,
}

/// What came of a test.
#[derive(Clone, Debug, Serialize)]
pub struct TestedView {
    /// `sent`, `failed`, or `none` where nobody is told.
    pub webhook: &'static str,
    /// Why it failed.
    pub error: Option<String>,
}

/// What the address is sent.
#[derive(Clone, Debug, Serialize)]
pub struct NoticeView {
    /// The rule, or `test`.
    pub rule: &'static str,
    /// What happened: `firing`, `resolved` or `test`.
    pub event: &'static str,
    /// The number.
    pub value: Option<Figure>,
    /// What it is compared with.
    pub threshold: Option<Figure>,
    /// What it counts.
    pub unit: Option<&'static str>,
    /// What else there is to say.
    pub detail: Option<String>,
    /// When, as RFC 3339.
    pub at: String,
    /// The machine that noticed.
    pub node: String,
}

/// A number; whole ones are written without a fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure(pub f64);

/// Whole numbers up to here are exact.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(number) = *self;
        if number.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(&number) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "it is whole and within the range"
            )]
            return serializer.serialize_u64(number as u64);
        }
        serializer.serialize_f64(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_as_such() {
        let text = |number| serde_json::to_string(&Figure(number)).unwrap();
        assert_eq!([0.0, 3.0, 0.5, 1e7].map(text), ["0", "3", "0.5", "10000000"]);
        assert_eq!(text(f64::NAN), "null");
    }
}
