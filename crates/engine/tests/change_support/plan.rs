//! Makes orders of what a workload wants, and says whether they can be carried out.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_model::ports::{OnConflict, Order, PendingEntry, Refusal};
use punctual_model::{
    Action, Basis, Changed, Entry, Extra, Lane, Link, MessageId, OwnId, Parked, Partition, Span,
    State, Timestamp, TopicId,
};

use super::runner::Runner;
use super::steps::Act;
use super::world::is_message;
use crate::store_support::{at, message};

/// Orders in the making, and whether they can be carried out.
pub struct Plan<'a> {
    runner: &'a Runner,
    /// The orders.
    pub orders: Vec<Order>,
    /// Messages that an order names already; nothing else may name them.
    touched: BTreeSet<MessageId>,
    /// The names that this call has given.
    named: Vec<(TopicId, Arc<str>)>,
    /// The first order that cannot be carried out, and why.
    pub expected: Result<(), (usize, Refusal)>,
}

impl<'a> Plan<'a> {
    /// Nothing yet.
    pub fn new(runner: &'a Runner) -> Self {
        let (orders, touched, named) = (Vec::new(), BTreeSet::new(), Vec::new());
        Self { runner, orders, touched, named, expected: Ok(()) }
    }

    fn refuse(&mut self, reason: Refusal) {
        if self.expected.is_ok() {
            self.expected = Err((self.orders.len(), reason));
        }
    }

    /// Adds the orders of an act; one that makes no sense is left out.
    pub fn add(&mut self, act: &Act) {
        match act {
            Act::Send(topic, dues) => {
                for due in dues {
                    if let Some(entry) = self.entry(topic, at(*due)) {
                        self.schedule(Lane::Message, entry);
                    }
                }
            }
            Act::Name(topic, name, print, due, replace) => {
                self.name(topic, name, *print, *due, *replace);
            }
            Act::Move(number, due) => {
                self.replace(*number, at(*due), |extra| extra.parked = None);
            }
            Act::Pause(number) => {
                let parked = Parked::Paused { remaining: Span::from_millis(9), due: at(3) };
                self.replace(*number, Timestamp::PAUSED, |extra| extra.parked = Some(parked));
            }
            Act::Cancel(number, placed) => self.cancel(*number, *placed),
            Act::Series(topic, due) => self.series(topic, *due),
            Act::Next(number, due) => self.next(*number, *due),
            Act::Prepare(topics) => self.prepare(topics),
            Act::Commit(number, due) => self.decide(*number, Some(*due)),
            Act::Rollback(number) => self.decide(*number, None),
        }
    }

    /// A new entry for a topic, if there is such a topic.
    fn entry(&self, topic: &str, due: Timestamp) -> Option<Entry> {
        let topic = self.runner.world.topic(topic)?;
        let number = self.runner.stored.len() + self.orders.len();
        let partition = u16::try_from(number).unwrap() % topic.settings.partitions;
        Some(Entry {
            topic: topic.id,
            partition: Partition::new(partition).unwrap(),
            due,
            basis: Basis::Delay,
            message: message(number),
            extra: None,
        })
    }

    fn schedule(&mut self, lane: Lane, entry: Entry) {
        self.orders.push(Order::Schedule { lane, entry, conflict: OnConflict::Reject });
    }

    fn place(&self) -> u32 {
        u32::try_from(self.orders.len()).unwrap()
    }

    fn name(&mut self, topic: &str, name: &str, print: u64, due: u64, replace: bool) {
        let Some(entry) = self.entry(topic, at(due)) else { return };
        let text: Arc<str> = name.into();
        let key = (entry.topic, Arc::clone(&text));
        // A call does not give a name twice.
        if self.named.contains(&key) {
            return;
        }
        let owner = self.runner.world.names.get(&key).copied();
        // What is withdrawn with it is named by this order.
        if replace && owner.is_some_and(|(id, _)| !self.touched.insert(id)) {
            return;
        }
        match owner {
            Some((id, before)) if !replace && before != print => {
                self.refuse(Refusal::OwnIdTaken(id));
            }
            Some(_) if !replace => {}
            _ => self.named.push(key),
        }
        let conflict = if replace { OnConflict::Replace } else { OnConflict::Reject };
        let entry = entry.with_extra(|extra| extra.own_id = Some(OwnId { text, print }));
        self.orders.push(Order::Schedule { lane: Lane::Message, entry, conflict });
    }

    /// A message that may be named, and whether an order about the place where it stands works.
    fn pick(&mut self, number: usize) -> Option<(MessageId, Result<PendingEntry, Refusal>)> {
        let id = self.runner.id_of(number)?;
        if !self.touched.insert(id) {
            return None;
        }
        let refusal = match self.runner.ended(id) {
            None => return Some((id, Ok(self.runner.world.alive[&id].clone()))),
            Some(Some(state)) => Refusal::Ended(state),
            Some(None) => Refusal::NotFound,
        };
        Some((id, Err(refusal)))
    }

    fn replace(&mut self, number: usize, due: Timestamp, change: impl FnOnce(&mut Extra)) {
        let Some((id, stands)) = self.pick(number) else { return };
        // Half messages change only with their transaction.
        if stands.as_ref().is_ok_and(|entry| entry.state() == State::Prepared) {
            return;
        }
        let (expected, entry) = match stands {
            Ok(entry) => (entry.key, changed(&entry, due)),
            Err(refusal) => {
                self.refuse(refusal);
                let entry = PendingEntry {
                    id,
                    key: id.key,
                    basis: Basis::Date,
                    message: message(0),
                    extra: None,
                };
                (id.key, changed(&entry, due))
            }
        };
        self.orders.push(Order::Replace { id, expected, entry: entry.with_extra(change) });
    }

    fn cancel(&mut self, number: usize, placed: bool) {
        let Some((id, stands)) = self.pick(number) else { return };
        let expected = match (placed, stands) {
            (false, _) => None,
            (true, Ok(entry)) => Some(entry.key),
            (true, Err(refusal)) => {
                self.refuse(refusal);
                Some(id.key)
            }
        };
        self.orders.push(Order::Cancel { id, expected });
    }

    fn series(&mut self, topic: &str, due: u64) {
        let Some(entry) = self.entry(topic, at(due)) else { return };
        let place = self.place();
        let series = entry.clone().with_extra(|extra| {
            extra.action = Action::Repeat;
            extra.links = vec![Link::Order(place + 1)];
        });
        self.schedule(Lane::Retry, series);
        let occurrence = entry.with_extra(|extra| extra.series = Some(Link::Order(place)));
        self.schedule(Lane::Message, occurrence);
    }

    fn next(&mut self, number: usize, due: u64) {
        let is_series = self.runner.id_of(number).is_some_and(|id| {
            let entry = self.runner.world.alive.get(&id);
            entry.is_some_and(|entry| !is_message(entry) && id.topic != TopicId::TRANSACTIONS)
        });
        if !is_series {
            return;
        }
        let Some((id, Ok(entry))) = self.pick(number) else { return };
        let place = self.place();
        let next = changed(&entry, at(due));
        let occurrence = Entry { extra: None, ..next.clone() };
        let next = next.with_extra(|extra| extra.links = vec![Link::Order(place + 1)]);
        self.orders.push(Order::Replace { id, expected: entry.key, entry: next });
        self.schedule(
            Lane::Message,
            occurrence.with_extra(|extra| extra.series = Some(Link::Order(place))),
        );
    }

    fn prepare(&mut self, topics: &[String]) {
        let halves: Vec<Entry> =
            topics.iter().filter_map(|topic| self.entry(topic, Timestamp::PREPARED)).collect();
        let Some(first) = halves.first() else { return };
        let place = self.place();
        let count = u32::try_from(halves.len()).unwrap();
        let transaction = Entry {
            topic: TopicId::TRANSACTIONS,
            partition: Partition::new(0).unwrap(),
            due: at(self.runner.now + 6000),
            ..first.clone()
        };
        let transaction = transaction.with_extra(|extra| {
            extra.action = Action::Check;
            extra.links = (1..=count).map(|half| Link::Order(place + half)).collect();
        });
        self.schedule(Lane::Retry, transaction);
        for half in halves {
            let transaction = Link::Order(place);
            let parked = Parked::Half { transaction, delay: None, due: at(77) };
            self.schedule(Lane::Message, half.with_extra(|extra| extra.parked = Some(parked)));
        }
    }

    fn decide(&mut self, number: usize, due: Option<u64>) {
        let Some(id) = self.runner.id_of(number) else { return };
        let Some(entry) = self.runner.world.alive.get(&id).cloned() else { return };
        if id.topic != TopicId::TRANSACTIONS || !self.touched.insert(id) {
            return;
        }
        let links = entry.extra.as_ref().map_or(&[][..], |extra| extra.links.as_slice());
        for half in links.iter().filter_map(|link| link.id()) {
            let Some(entry) = self.runner.world.alive.get(&half) else { continue };
            if entry.state() != State::Prepared || !self.touched.insert(half) {
                continue;
            }
            let expected = entry.key;
            self.orders.push(match due {
                Some(due) => {
                    let entry = changed(entry, at(due)).with_extra(|extra| extra.parked = None);
                    Order::Replace { id: half, expected, entry }
                }
                None => Order::Cancel { id: half, expected: Some(expected) },
            });
        }
        let decided = changed(&entry, at(self.runner.now + 90_000));
        self.orders.push(Order::Replace { id, expected: entry.key, entry: decided });
    }
}

/// What somebody who changes a message makes of it.
fn changed(shown: &PendingEntry, due: Timestamp) -> Entry {
    let version = shown.version() + 1;
    let entry = Entry {
        topic: shown.id.topic,
        partition: shown.id.partition,
        due,
        basis: shown.basis,
        message: shown.message.clone(),
        extra: shown.extra.clone(),
    };
    entry.with_extra(|extra| extra.changed = Some(Changed { first: shown.id.key, version }))
}
