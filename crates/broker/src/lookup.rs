//! Questions: one message, or what is pending.

use std::sync::Arc;

use bytes::Bytes;
use punctual_model::ports::{
    Delivered, PendingEntry, PendingPage, PendingQuery, StoreError, Timeline, Topic, TopicError,
};
use punctual_model::{
    Action, Extra, Header, Key, Lane, Link, Message, MessageId, Parked, Span, State, Timestamp,
    TopicName,
};

use crate::broker::Broker;
use crate::place::SENDER_HEADER;

/// The header in which a delivered message carries the name that its sender gave it.
pub const OWN_ID_HEADER: &str = "punctual-own-id";
/// The header in which a delivered message carries the series it is an occurrence of.
pub const SERIES_HEADER: &str = "punctual-series";

/// Messages that are looked at together for those of one sender, and how often a page may look.
const LOOK_MESSAGES: usize = 1000;
const LOOKS_MAX: usize = 50;

/// What is known of a message.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its id.
    pub id: MessageId,
    /// Where it is in its life.
    pub state: State,
    /// Its topic.
    pub topic: Arc<Topic>,
    /// What happens when it is due: a series has an id too.
    pub action: Action,
    /// When it is or was due. Of a paused one when it was due before, of a half message when it
    /// would be; `None` when that is not known any more.
    pub due: Option<Timestamp>,
    /// How often it was changed, counted from 1, while it is pending.
    pub version: Option<u32>,
    /// What is left of its wait, while it is paused.
    pub remaining: Option<Span>,
    /// The name its sender gave it.
    pub own_id: Option<Arc<str>>,
    /// The series it is an occurrence of.
    pub series: Option<MessageId>,
    /// The transaction it is a half message of.
    pub transaction: Option<MessageId>,
    /// The message, while it is pending.
    pub message: Option<Message>,
    /// The message as it was delivered, while the log holds it.
    pub delivered: Option<Delivered>,
}

impl Report {
    /// What a pending entry tells.
    #[must_use]
    pub fn of_pending(topic: Arc<Topic>, entry: PendingEntry) -> Self {
        let (state, version) = (entry.state(), entry.version());
        let due = due_of(&entry);
        let Extra { action, own_id, series, parked, .. } =
            entry.extra.map(|extra| *extra).unwrap_or_default();
        let (remaining, transaction) = match parked {
            None => (None, None),
            Some(Parked::Paused { remaining, .. }) => (Some(remaining), None),
            Some(Parked::Half { transaction, .. }) => (None, transaction.id()),
        };
        Self {
            id: entry.id,
            state,
            topic,
            action,
            due: Some(due),
            version: Some(version),
            remaining,
            own_id: own_id.map(|own| own.text),
            series: series.and_then(Link::id),
            transaction,
            // What a series keeps as its message is the broker's own.
            message: (action == Action::Deliver).then_some(entry.message),
            delivered: None,
        }
    }

    /// What is left to tell of a message that has ended.
    fn of_ended(
        id: MessageId,
        state: State,
        topic: Arc<Topic>,
        delivered: Option<Delivered>,
    ) -> Self {
        let text = |name| delivered.as_ref().and_then(|delivered| header(delivered, name));
        let known = delivered.as_ref().map(|delivered| delivered.due);
        Self {
            id,
            state,
            topic,
            action: Action::Deliver,
            due: known.or(Some(id.key.due)).filter(|due| !due.is_parked()),
            version: None,
            remaining: None,
            own_id: text(OWN_ID_HEADER).map(Arc::from),
            series: text(SERIES_HEADER).and_then(|text| text.parse().ok()),
            transaction: None,
            message: None,
            delivered,
        }
    }
}

/// When a pending entry is due; of a parked one, when it was or would be.
pub(crate) fn due_of(entry: &PendingEntry) -> Timestamp {
    match entry.extra.as_ref().and_then(|extra| extra.parked) {
        None => entry.key.due,
        Some(Parked::Paused { due, .. } | Parked::Half { due, .. }) => due,
    }
}

/// The app that sent a message, where the broker has noted it.
#[must_use]
pub fn sender_of(message: &Message) -> Option<&str> {
    let mut headers = message.headers.iter().rev();
    let header = headers.find(|header| header.name == SENDER_HEADER)?;
    std::str::from_utf8(&header.value).ok()
}

/// The last header of that name; the broker puts its own behind those of the sender.
fn header<'a>(delivered: &'a Delivered, name: &str) -> Option<&'a str> {
    let headers = &delivered.message.headers;
    let header: &Header = headers.iter().rev().find(|header| header.name == name)?;
    std::str::from_utf8(&header.value).ok()
}

/// Which pending messages of a topic are meant. Everything that is said must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Due at this time or later.
    pub from: Option<Timestamp>,
    /// Due before this time.
    pub to: Option<Timestamp>,
    /// With this key.
    pub key: Option<Bytes>,
    /// With a key that begins so.
    pub key_prefix: Option<Bytes>,
    /// In this state; scheduled ones where nothing is said.
    pub state: Option<State>,
    /// Sent by this app.
    pub sender: Option<Arc<str>>,
}

impl Filter {
    /// The state that is meant.
    pub(crate) fn wanted(&self) -> State {
        self.state.unwrap_or(State::Scheduled)
    }

    /// Whether a message that was found where those of the wanted state stand is due in time.
    pub(crate) fn is_in_window(&self, entry: &PendingEntry) -> bool {
        let due = due_of(entry);
        self.from.is_none_or(|from| from <= due) && self.to.is_none_or(|to| due < to)
    }

    /// Whether the whole filter holds for an entry.
    pub(crate) fn matches(&self, entry: &PendingEntry) -> bool {
        let key = entry.message.key.as_ref();
        entry.state() == self.wanted()
            && self.is_in_window(entry)
            && self.key.as_ref().is_none_or(|wanted| key == Some(wanted))
            && self
                .key_prefix
                .as_ref()
                .is_none_or(|prefix| key.is_some_and(|key| key.starts_with(prefix)))
            && self.is_sent_by(entry)
    }

    fn is_sent_by(&self, entry: &PendingEntry) -> bool {
        self.sender.as_deref().is_none_or(|wanted| sender_of(&entry.message) == Some(wanted))
    }

    /// Where to look: parked messages do not stand at their due time.
    fn query(&self, topic: &Topic, after: Option<Key>, limit: usize) -> Option<PendingQuery> {
        let (from, to) = match self.wanted() {
            State::Scheduled => (
                self.from.unwrap_or(Timestamp::MIN),
                self.to.unwrap_or(Timestamp::PREPARED).min(Timestamp::PREPARED),
            ),
            State::Prepared => (Timestamp::PREPARED, Timestamp::PAUSED),
            State::Paused => (Timestamp::PAUSED, Timestamp::MAX),
            State::Delivered | State::Cancelled => return None,
        };
        Some(PendingQuery {
            topic: topic.id,
            lane: Lane::Message,
            from,
            to,
            after,
            key: self.key.clone(),
            key_prefix: self.key_prefix.clone(),
            limit,
        })
    }
}

impl<T: Timeline> Broker<T> {
    /// The message of a topic that is called so: by an id of ours, or by the one its sender gave it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn resolve(
        &self,
        topic: &TopicName,
        text: &str,
    ) -> Result<Option<MessageId>, StoreError> {
        let Some(topic) = self.shared.topics.by_name(topic) else { return Ok(None) };
        if let Ok(id) = text.parse::<MessageId>() {
            return Ok(Some(id).filter(|id| id.topic == topic.id));
        }
        let named = self.shared.timeline.named(topic.id, vec![Arc::from(text)]).await?;
        Ok(named.into_iter().next().flatten())
    }

    /// What is known of the message `id`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn get(&self, id: MessageId) -> Result<Option<Report>, StoreError> {
        let Some(topic) = self.shared.topics.by_id(id.topic) else { return Ok(None) };
        let found = self.shared.timeline.find(vec![id]).await?;
        let Some(found) = found.into_iter().next().flatten() else { return Ok(None) };
        if let Some(entry) = found.entry {
            return Ok(Some(Report::of_pending(topic, entry)));
        }
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
        Ok(Some(Report::of_ended(id, found.state, topic, delivered)))
    }

    /// One page of what is pending in a topic: scheduled messages soonest first, others in the order
    /// in which they came to their state. It may be short although more follows.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn scheduled(
        &self,
        topic: &Topic,
        filter: &Filter,
        after: Option<Key>,
        limit: usize,
    ) -> Result<PendingPage, StoreError> {
        let Some(query) = filter.query(topic, after, limit) else {
            return Ok(PendingPage::default());
        };
        if filter.sender.is_some() {
            return self.scheduled_by(filter, query).await;
        }
        let mut page = self.shared.timeline.pending(query).await?;
        if filter.wanted() != State::Scheduled {
            page.entries.retain(|entry| filter.is_in_window(entry));
        }
        Ok(page)
    }

    /// The same for one sender. No store knows who sent what, so it takes a bounded number of looks.
    async fn scheduled_by(
        &self,
        filter: &Filter,
        mut query: PendingQuery,
    ) -> Result<PendingPage, StoreError> {
        let limit = query.limit;
        query.limit = limit.max(LOOK_MESSAGES);
        let mut found = PendingPage::default();
        for _ in 0..LOOKS_MAX {
            let page = self.shared.timeline.pending(query.clone()).await?;
            let fits = page.entries.into_iter().filter(|entry| filter.matches(entry));
            found.entries.extend(fits);
            found.next = page.next;
            if found.entries.len() > limit {
                found.entries.truncate(limit);
                found.next = found.entries.last().map(|last| last.key);
            }
            match found.next {
                Some(next) if found.entries.len() < limit => query.after = Some(next),
                _ => break,
            }
        }
        Ok(found)
    }
}
