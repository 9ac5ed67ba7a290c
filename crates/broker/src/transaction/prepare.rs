//! Prepare: half messages and their transaction, stored whole or not at all.
//!
//! If every message has an own id, so has the transaction: made of the first of them. Then the very
//! same prepare again, after a lost answer, finds the transaction by it and stores nothing. To be the
//! very same it must agree in everything, so own ids carry a fingerprint of the whole prepare.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_model::ports::{Done, OnConflict, Order, Refusal, Revised, StoreError, Timeline};
use punctual_model::{CheckPolicy, Lane, Link, MessageId, OwnId, Parked, Timestamp, TopicId};

use super::desk::{Desk, Inner};
use super::print::Print;
use super::record::{Record, Stored};
use super::{Draft, Half, PrepareError, Prepared, TransactionState, URL_BYTES_MAX, valid_check};

impl<T: Timeline> Desk<T> {
    /// Stores a transaction with its messages, which nobody sees until it is committed. `Ok` means
    /// that it survives a crash. If the future is dropped, it may have been stored.
    ///
    /// # Errors
    /// See [`PrepareError`].
    pub async fn prepare(&self, mut draft: Draft) -> Result<Prepared, PrepareError> {
        let policy = valid_check(self.inner.policy(&draft))?;
        if draft.url.as_ref().is_some_and(|url| url.len() > URL_BYTES_MAX) {
            return Err(PrepareError::UrlTooLong);
        }
        check_own_ids(&draft.halves)?;
        let mut name = sign(&mut draft);
        if let Some(own) = name.take() {
            match self.inner.named(&own).await? {
                Named::Same(stored) => return Ok(again(&stored)),
                Named::Nobody => name = Some(own),
                // Its own ids decide; without a name of its own it is not found again.
                Named::Other => {}
            }
            if let Err(taken) = self.inner.check_names(&draft.halves).await {
                // Perhaps by the very same prepare, which was stored since its name was asked for.
                if let Some(own) = &name
                    && let Named::Same(stored) = self.inner.named(own).await?
                {
                    return Ok(again(&stored));
                }
                return Err(taken);
            }
        }
        self.inner.store(draft, policy, name).await
    }
}

/// Whose the name of a transaction is.
enum Named {
    Nobody,
    Same(Box<Stored>),
    Other,
}

impl<T: Timeline> Inner<T> {
    async fn named(&self, own: &OwnId) -> Result<Named, StoreError> {
        let names = vec![Arc::clone(&own.text)];
        let ids = self.timeline.named(TopicId::TRANSACTIONS, names).await?;
        let Some(id) = ids.into_iter().next().flatten() else { return Ok(Named::Nobody) };
        let same = |stored: &Stored| stored.own_id.as_ref() == Some(own);
        let stored = self.load(id).await?.filter(same);
        Ok(stored.map_or(Named::Other, |stored| Named::Same(Box::new(stored))))
    }

    /// Refuses halves whose own ids are taken, before anything is stored: a half that is known would
    /// be left out of its transaction.
    async fn check_names(&self, halves: &[Half]) -> Result<(), PrepareError> {
        let mut by_topic: BTreeMap<TopicId, Vec<(usize, Arc<str>)>> = BTreeMap::new();
        for (index, half) in halves.iter().enumerate() {
            if let Some(own) = own_id(half) {
                by_topic.entry(half.entry.topic).or_default().push((index, Arc::clone(&own.text)));
            }
        }
        for (topic, names) in by_topic {
            let (indices, names): (Vec<usize>, Vec<Arc<str>>) = names.into_iter().unzip();
            let ids = self.timeline.named(topic, names).await?;
            let taken = indices.into_iter().zip(ids).find_map(|(index, id)| Some((index, id?)));
            if let Some((index, id)) = taken {
                return Err(PrepareError::OwnIdTaken { index, id: Some(id) });
            }
        }
        Ok(())
    }

    /// As it says itself; else as the first of its topics that says anything.
    fn policy(&self, draft: &Draft) -> CheckPolicy {
        let of_topic = |half: &Half| self.topics.by_id(half.entry.topic)?.settings.check;
        let policy = draft.check.or_else(|| draft.halves.iter().find_map(of_topic));
        policy.unwrap_or_default()
    }

    async fn store(
        &self,
        draft: Draft,
        policy: CheckPolicy,
        name: Option<OwnId>,
    ) -> Result<Prepared, PrepareError> {
        let Draft { producer_group, halves, url, .. } = draft;
        let now = self.time.read();
        let created = now.timestamp();
        let record = Record {
            producer_group,
            state: TransactionState::Prepared,
            created,
            decided: None,
            policy,
            checks_sent: 0,
            ready_since: None,
            url: url.filter(|url| !url.is_empty()).map(Arc::from),
        };
        let places = (1u32..).take(halves.len());
        let due = now.timestamp_up().saturating_add(policy.first);
        let entry = record.entry(due, places.map(Link::Order).collect(), name);
        let conflict = OnConflict::Reject;
        let mut orders = vec![Order::Schedule { lane: Lane::Retry, entry, conflict }];
        orders.extend(halves.into_iter().map(parked));
        match self.timeline.revise(orders).await? {
            Revised::Done(done) => {
                let prepared = self.stored(&done).await?;
                if !prepared.duplicate {
                    self.undecided.note(created, prepared.id);
                }
                Ok(prepared)
            }
            Revised::Refused { index, reason: Refusal::OwnIdTaken(id) } => {
                Err(PrepareError::OwnIdTaken { index: index.saturating_sub(1), id: Some(id) })
            }
            // A topic was deleted at this moment.
            Revised::Refused { .. } => Err(StoreError::Busy.into()),
        }
    }

    async fn stored(&self, done: &[Done]) -> Result<Prepared, PrepareError> {
        let stored: Vec<MessageId> = done
            .iter()
            .filter_map(|done| match done {
                Done::Stored(id) => Some(*id),
                _ => None,
            })
            .collect();
        if stored.len() == done.len()
            && let [id, messages @ ..] = &stored[..]
        {
            self.counters.scheduled.fetch_add(messages.len() as u64, Ordering::Relaxed);
            let topics = messages.iter().map(|id| id.topic);
            self.counters.topics.note_each(topics, |of| &of.scheduled);
            let (state, messages) = (TransactionState::Prepared, messages.to_vec());
            return Ok(Prepared { id: *id, state, duplicate: false, messages });
        }
        // Somebody has sent the very same at this moment, and was faster.
        if let Some(Done::Known(id)) = done.first()
            && stored.is_empty()
            && let Some(stored) = self.load(*id).await?
        {
            return Ok(again(&stored));
        }
        // It had no name to be found by: what was stored of it goes again.
        let cancel = |id| Order::Cancel { id, expected: None };
        self.timeline.revise(stored.into_iter().map(cancel).collect()).await?;
        let known = done.iter().skip(1).enumerate().find_map(|(index, done)| match done {
            Done::Known(id) => Some((index, *id)),
            _ => None,
        });
        let (index, id) = known.map_or((0, None), |(index, id)| (index, Some(id)));
        Err(PrepareError::OwnIdTaken { index, id })
    }
}

/// The answer that was given before.
fn again(stored: &Stored) -> Prepared {
    let (id, state) = (stored.id, stored.record.state);
    Prepared { id, state, duplicate: true, messages: stored.halves.clone() }
}

/// The order that stores a half; that of the transaction is the first of the call.
fn parked(half: Half) -> Order {
    let Half { mut entry, delay, conflict } = half;
    let due = std::mem::replace(&mut entry.due, Timestamp::PREPARED);
    let parked = Parked::Half { transaction: Link::Order(0), delay, due };
    let entry = entry.with_extra(|extra| extra.parked = Some(parked));
    Order::Schedule { lane: Lane::Message, entry, conflict }
}

fn own_id(half: &Half) -> Option<&OwnId> {
    half.entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref())
}

/// No two halves of one topic may have the same own id.
fn check_own_ids(halves: &[Half]) -> Result<(), PrepareError> {
    let mut seen = HashSet::new();
    for (index, half) in halves.iter().enumerate() {
        if let Some(own) = own_id(half)
            && !seen.insert((half.entry.topic, Arc::clone(&own.text)))
        {
            return Err(PrepareError::OwnIdTaken { index, id: None });
        }
    }
    Ok(())
}

/// Puts the fingerprint of the whole prepare into the own ids. Answers the name of the transaction,
/// if it is one that can be repeated.
fn sign(draft: &mut Draft) -> Option<OwnId> {
    let repeatable = |half: &Half| own_id(half).is_some() && half.conflict == OnConflict::Reject;
    let repeatable = draft.halves.iter().all(repeatable);
    let print = print(draft);
    // Another print for each of those that cannot be repeated: none of them is like another.
    let print = if repeatable { print } else { RandomState::new().hash_one(print) };
    for half in &mut draft.halves {
        if let Some(own) = half.entry.extra.as_mut().and_then(|extra| extra.own_id.as_mut()) {
            own.print = Print::new().number(print).number(own.print).finish();
        }
    }
    let first = draft.halves.first().filter(|_| repeatable)?;
    let text = format!("{}/{}", first.entry.topic.get(), own_id(first)?.text);
    Some(OwnId { text: text.into(), print })
}

fn print(draft: &Draft) -> u64 {
    // As it was asked for: what the topic says may change before it is asked for again.
    let (first, interval, max) = draft.check.map_or_else(Default::default, |check| {
        (check.first.as_millis(), check.interval.as_millis(), check.max)
    });
    let mut print = Print::new()
        .bytes(draft.producer_group.as_str().as_bytes())
        .bytes(draft.url.as_deref().unwrap_or_default().as_bytes())
        .number(first)
        .number(interval)
        .number(u64::from(max));
    for half in &draft.halves {
        print =
            print.number(u64::from(half.entry.topic.get())).number(u64::from(half.delay.is_some()));
        if let Some(own) = own_id(half) {
            print = print.bytes(own.text.as_bytes()).number(own.print);
        }
    }
    print.finish()
}
