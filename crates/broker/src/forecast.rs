//! Forecast: how much of a topic is due when.

use punctual_model::ports::{StoreError, Timeline};
use punctual_model::{Span, TopicId};

use crate::broker::Broker;

/// How far ahead is looked.
const REACHES: [Span; 7] = [
    Span::from_secs(60),
    Span::from_secs(10 * 60),
    Span::from_secs(3600),
    Span::from_secs(6 * 3600),
    Span::from_days(1),
    Span::from_days(7),
    Span::from_days(40),
];

/// How much of a topic is due when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Everything that is pending, but for half messages.
    pub total: u64,
    /// Of that, what is paused.
    pub paused: u64,
    /// Half messages of transactions, beside that.
    pub prepared: u64,
    /// How much is due within each of these times from now on; each count has those before it. What
    /// is overdue is due within all of them. The last second may be counted whole.
    pub due: Vec<(Span, u64)>,
    /// What is due after the last of them.
    pub later: u64,
}

impl<T: Timeline> Broker<T> {
    /// How much of a topic is due when.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn forecast(&self, topic: TopicId) -> Result<Outlook, StoreError> {
        let now = self.now();
        // What is due at the end of a reach is within it.
        let past = |reach: Span| now.saturating_add(reach).saturating_add(Span::from_millis(1));
        let bounds = REACHES.map(past).to_vec();
        let forecast = self.shared.timeline.forecast(topic, bounds).await?;
        let within = forecast.before.last().copied().unwrap_or(0);
        Ok(Outlook {
            total: forecast.scheduled + forecast.paused,
            paused: forecast.paused,
            prepared: forecast.prepared,
            due: REACHES.into_iter().zip(forecast.before).collect(),
            later: forecast.scheduled.saturating_sub(within),
        })
    }
}
