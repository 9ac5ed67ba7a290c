//! Questions: one message, or what is pending.

use std::sync::Arc;

use punctual_model::ports::{
    Delivered, PendingPage, PendingQuery, StoreError, Timeline, Topic, TopicError,
};
use punctual_model::{Message, MessageId, State};

use crate::broker::Broker;

/// What is known of a message.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its id.
    pub id: MessageId,
    /// Where it is in its life.
    pub state: State,
    /// Its topic.
    pub topic: Arc<Topic>,
    /// The message, while it is pending.
    pub message: Option<Message>,
    /// The message as it was delivered, while the log holds it.
    pub delivered: Option<Delivered>,
}

impl<T: Timeline> Broker<T> {
    /// What is known of the message `id`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get(&self, id: MessageId) -> Result<Option<Report>, StoreError> {
        let Some(topic) = self.shared.topics.by_id(id.topic) else { return Ok(None) };
        let found = self.shared.timeline.find(vec![id]).await?;
        let Some(found) = found.into_iter().next().flatten() else { return Ok(None) };
        let delivered = if found.state == State::Delivered {
            let topics = Arc::clone(&self.shared.topics);
            let located = self.shared.errands.run(move || topics.locate(id)).await?;
            located.or_else(|error| match error {
                TopicError::Store(error) => Err(error),
                TopicError::NotFound
                | TopicError::TooMany
                | TopicError::CannotShrink(_)
                | TopicError::Reserved => Ok(None),
            })?
        } else {
            None
        };
        let message = found.entry.map(|entry| entry.message);
        Ok(Some(Report { id, state: found.state, topic, message, delivered }))
    }

    /// One page of what is pending.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn scheduled(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        self.shared.timeline.pending(query).await
    }
}
