//! Handing out checks: each is counted, durably, before anybody sees it.

use punctual_model::ports::{Order, PendingEntry, Revised, StoreError, Timeline};
use punctual_model::{GroupName, MessageId, State, TopicName, limits};

use super::desk::{Desk, Inner};
use super::ready::{Ready, Waiting, Way};
use super::record::Stored;
use super::{Callback, CallbackAnswer, Check, DecideError, HalfMessage, TransactionState};

impl<T: Timeline> Desk<T> {
    /// Up to `max` checks for a member of that group. Each counts as sent; the next one of the same
    /// transaction comes an interval later, if nobody has decided by then.
    ///
    /// # Errors
    /// As the store says; then no check was counted.
    pub async fn checks(
        &self,
        producer_group: &GroupName,
        max: usize,
    ) -> Result<Vec<Check>, StoreError> {
        let drawn = self.inner.draw(&Way::Call(producer_group.clone()), max, &|_| true).await?;
        Ok(drawn.checks.into_iter().map(|(_, check)| check).collect())
    }

    /// The same for somebody who is not to see every transaction of the group: only those whose
    /// topics are `wanted`. Others stay for somebody else, and do not count.
    ///
    /// # Errors
    /// As [`checks`](Self::checks).
    pub async fn checks_where(
        &self,
        producer_group: &GroupName,
        max: usize,
        wanted: impl Fn(&[TopicName]) -> bool + Sync,
    ) -> Result<SomeChecks, StoreError> {
        let drawn = self.inner.draw(&Way::Call(producer_group.clone()), max, &wanted).await?;
        let checks = drawn.checks.into_iter().map(|(_, check)| check).collect();
        Ok(SomeChecks { checks, passed_over: drawn.passed_over })
    }

    /// Up to `max` checks that are to be sent to URLs. Each counts as sent.
    ///
    /// # Errors
    /// As the store says; then no check was counted.
    pub async fn take_callbacks(&self, max: usize) -> Result<Vec<Callback>, StoreError> {
        let callback = |(stored, check): (Stored, Check)| {
            let url = stored.record.url?;
            Some(Callback { url, producer_group: stored.record.producer_group, check })
        };
        let drawn = self.inner.draw(&Way::Url, max, &|_| true).await?;
        Ok(drawn.checks.into_iter().filter_map(callback).collect())
    }

    /// What came back from the URL of a transaction.
    ///
    /// # Errors
    /// As [`commit`](Self::commit) and [`rollback`](Self::rollback).
    pub async fn callback_answered(
        &self,
        id: MessageId,
        answer: CallbackAnswer,
    ) -> Result<(), DecideError> {
        match answer {
            CallbackAnswer::Committed => self.commit(id).await.map(drop),
            CallbackAnswer::RolledBack => self.rollback(id).await.map(drop),
            CallbackAnswer::Unknown => Ok(()),
        }
    }
}

/// Checks for somebody who is not to see all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SomeChecks {
    /// Those that are handed out.
    pub checks: Vec<Check>,
    /// Whether others are ready that are not for this one.
    pub passed_over: bool,
}

/// Which transactions are wanted, by their topics.
type Wanted<'a> = dyn Fn(&[TopicName]) -> bool + Sync + 'a;

/// Transactions that are passed over in one draw.
const PASSED_OVER_MAX: usize = 10_000;

struct Drawn {
    checks: Vec<(Stored, Check)>,
    passed_over: bool,
}

impl<T: Timeline> Inner<T> {
    /// Takes checks that are ready and wanted, and counts them.
    async fn draw(&self, way: &Way, max: usize, wanted: &Wanted<'_>) -> Result<Drawn, StoreError> {
        // What is not wanted goes back at the end, so that it is not taken again before.
        let mut aside = Hand { ready: &self.ready, way, waiting: Vec::new() };
        loop {
            let mut hand = Hand { ready: &self.ready, way, waiting: self.ready.take(way, max) };
            let passed_over = !aside.waiting.is_empty();
            if hand.waiting.is_empty() || aside.waiting.len() >= PASSED_OVER_MAX {
                return Ok(Drawn { checks: Vec::new(), passed_over });
            }
            let checks = self.read(&mut hand, &mut aside, wanted).await?;
            let checks = self.count(checks, &mut hand).await?;
            if !checks.is_empty() {
                return Ok(Drawn { checks, passed_over });
            }
        }
    }

    /// The topics that the messages of a transaction go to, as far as they exist.
    fn topics_of(&self, stored: &Stored) -> Vec<TopicName> {
        let topics = stored.halves.iter().filter_map(|half| self.topics.by_id(half.topic));
        let mut names: Vec<TopicName> = topics.map(|topic| topic.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Reads what is in hand, as far as an answer may be large; the rest stays for others.
    async fn read(
        &self,
        hand: &mut Hand<'_>,
        aside: &mut Hand<'_>,
        wanted: &Wanted<'_>,
    ) -> Result<Vec<(Stored, Check)>, StoreError> {
        let mut drawn = Vec::new();
        let (mut bytes, mut messages) = (0, 0);
        for waiting in hand.waiting.clone() {
            if bytes >= limits::BATCH_BYTES_MAX || messages >= limits::BATCH_MESSAGES_MAX {
                hand.put_back(waiting.id);
                continue;
            }
            let ready = self.load(waiting.id).await?.filter(|stored| {
                let record = &stored.record;
                record.state == TransactionState::Prepared && record.ready_since.is_some()
            });
            let Some(stored) = ready else {
                hand.forget(waiting.id);
                continue;
            };
            if !wanted(&self.topics_of(&stored)) {
                hand.forget(waiting.id);
                aside.waiting.push(waiting);
                continue;
            }
            let check = self.check(&stored).await?;
            bytes += check.messages.iter().map(|half| half.message.weight()).sum::<usize>();
            messages += check.messages.len();
            drawn.push((stored, check));
        }
        Ok(drawn)
    }

    async fn check(&self, stored: &Stored) -> Result<Check, StoreError> {
        let found = self.timeline.find(stored.halves.clone()).await?;
        let halves = found.into_iter().flatten().filter(|found| found.state == State::Prepared);
        let message = |entry: PendingEntry| {
            let own_id = entry.extra.and_then(|extra| extra.own_id).map(|own| own.text);
            let topic = self.topics.by_id(entry.id.topic)?.name.clone();
            Some(HalfMessage { topic, id: entry.id, own_id, message: entry.message })
        };
        Ok(Check {
            transaction: stored.id,
            attempt: stored.record.checks_sent.saturating_add(1),
            messages: halves.filter_map(|found| found.entry).filter_map(message).collect(),
        })
    }

    /// Makes the checks durable, but for those of transactions that were changed meanwhile.
    async fn count(
        &self,
        mut drawn: Vec<(Stored, Check)>,
        hand: &mut Hand<'_>,
    ) -> Result<Vec<(Stored, Check)>, StoreError> {
        let now = self.time.read().timestamp_up();
        let order = |(stored, check): &(Stored, Check)| {
            let mut next = stored.clone();
            next.record.checks_sent = check.attempt;
            next.record.ready_since = None;
            let entry = next.entry(now.saturating_add(stored.record.policy.interval));
            Order::Replace { id: stored.id, expected: stored.key, entry }
        };
        while !drawn.is_empty() {
            match self.timeline.revise(drawn.iter().map(order).collect()).await? {
                Revised::Done(_) => {
                    drawn.iter().for_each(|(stored, _)| hand.forget(stored.id));
                    break;
                }
                Revised::Refused { index, .. } => {
                    let (stored, _) = drawn.remove(index);
                    hand.forget(stored.id);
                }
            }
        }
        Ok(drawn)
    }
}

/// What was taken from those that are ready. It goes back when nothing comes of it, also when whoever
/// asked has gone: one that was counted after all is found not to be ready by the next who looks.
struct Hand<'a> {
    ready: &'a Ready,
    way: &'a Way,
    waiting: Vec<Waiting>,
}

impl Hand<'_> {
    fn forget(&mut self, id: MessageId) {
        self.waiting.retain(|waiting| waiting.id != id);
    }

    fn put_back(&mut self, id: MessageId) {
        for waiting in self.waiting.extract_if(.., |waiting| waiting.id == id) {
            self.ready.insert(self.way.clone(), waiting);
        }
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        for waiting in self.waiting.drain(..) {
            self.ready.insert(self.way.clone(), waiting);
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_model::{Key, Sequence, Timestamp, TopicId};

    use super::super::record::partition;
    use super::*;

    #[test]
    fn what_is_in_hand_goes_back_unless_it_was_handed_out() {
        let ready = Ready::default();
        let way = Way::Url;
        let waiting = [1, 2, 3, 4].map(|number| {
            let since = Timestamp::from_millis(number).unwrap();
            let key = Key { due: since, sequence: Sequence::new(number).unwrap() };
            let id = MessageId { key, topic: TopicId::TRANSACTIONS, partition: partition() };
            Waiting { since, id }
        });
        waiting.into_iter().for_each(|waiting| ready.insert(way.clone(), waiting));
        let mut hand = Hand { ready: &ready, way: &way, waiting: ready.take(&way, 3) };
        hand.forget(waiting[0].id);
        hand.put_back(waiting[1].id);
        assert_eq!(hand.waiting, [waiting[2]]);
        drop(hand);
        assert_eq!(ready.take(&way, 9), waiting[1..]);
    }
}
