//! A store for tests: everything in maps, nothing durable, and whatever can go wrong with a database
//! goes wrong when the test says so.
//!
//! It keeps the contract of [`SlotStore`] and [`Documents`] in the simplest way that can be seen to
//! be right. Calls can be made to fail ([`Memory::fail_next`]) or to stand still before or after
//! they are carried out ([`Memory::gate`]), so that a test decides what happens in which order.

mod gate;
mod rows;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::ports::{Forecast, PendingPage, PendingQuery};
use punctual_model::{Key, Lane, MessageId, Timestamp, TopicId};

use self::gate::Gates;
use self::rows::Rows;
use super::{
    Counted, Document, Documents, Failure, Group, Marks, Named, Outcome, Slot, SlotStore, Stored,
    Tenure,
};

pub use self::gate::{Call, Gate, Moment};

/// A store in memory; clones share everything.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    rows: Arc<Mutex<Rows>>,
    gates: Arc<Gates>,
    faults: Arc<Mutex<VecDeque<(Call, Fault)>>>,
}

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is changed.
    Unavailable,
    /// It is carried out, and nobody hears of it.
    UnsureDone,
    /// It is not carried out, and nobody hears of that either.
    UnsureNotDone,
    /// It is carried out, and whoever called it comes to grief.
    Panics,
}

impl Memory {
    /// The next `times` calls of that kind fail so.
    pub fn fail_next(&self, call: Call, fault: Fault, times: usize) {
        self.faults.lock().extend(std::iter::repeat_n((call, fault), times));
    }

    /// From here on each call of that kind stands still at that moment until the gate lets it pass.
    /// Without the gate all go on.
    #[must_use]
    pub fn gate(&self, call: Call, moment: Moment) -> Gate {
        Gates::put(&self.gates, call, moment)
    }

    /// The marks of a slot, as they were last written down.
    #[must_use]
    pub fn marks(&self, slot: Slot) -> Option<Marks> {
        self.rows.lock().marks(slot)
    }

    async fn call<T>(
        &self,
        call: Call,
        carry_out: impl FnOnce(&mut Rows) -> T,
    ) -> Result<T, Failure> {
        self.gates.pass(call, Moment::Before).await;
        let fault = self.next_fault(call);
        let done = match fault {
            None | Some(Fault::UnsureDone | Fault::Panics) => {
                Some(carry_out(&mut self.rows.lock()))
            }
            Some(Fault::Unavailable | Fault::UnsureNotDone) => None,
        };
        self.gates.pass(call, Moment::After).await;
        match (fault, done) {
            (None, Some(done)) => Ok(done),
            (Some(Fault::Panics), _) => std::panic::resume_unwind(Box::new("the test says so")),
            (Some(Fault::UnsureDone | Fault::UnsureNotDone), _) => {
                Err(Failure::Unsure("the test says so".into()))
            }
            (Some(Fault::Unavailable), _) | (None, None) => {
                Err(Failure::Unavailable("the test says so".into()))
            }
        }
    }

    fn next_fault(&self, call: Call) -> Option<Fault> {
        let mut faults = self.faults.lock();
        let place = faults.iter().position(|(of, _)| *of == call)?;
        faults.remove(place).map(|(_, fault)| fault)
    }
}

impl SlotStore for Memory {
    async fn take(&self, tenure: Tenure) -> Result<Option<Marks>, Failure> {
        self.call(Call::Take, |rows| rows.take(tenure)).await
    }

    async fn keep(&self, slots: Vec<(Tenure, Marks, Vec<Counted>)>) -> Result<Vec<bool>, Failure> {
        let keep = |rows: &mut Rows| {
            let slots = slots.into_iter();
            slots.map(|(tenure, marks, counted)| rows.keep(tenure, marks, &counted)).collect()
        };
        self.call(Call::Keep, keep).await
    }

    async fn apply(&self, groups: Vec<Group>) -> Result<Vec<Outcome>, Failure> {
        let apply = |rows: &mut Rows| groups.into_iter().map(|group| rows.apply(group)).collect();
        self.call(Call::Apply, apply).await?
    }

    async fn page(
        &self,
        slot: Slot,
        lane: Lane,
        after: Key,
        until: Timestamp,
        limit: (usize, usize),
    ) -> Result<Vec<Stored>, Failure> {
        self.call(Call::Page, |rows| rows.page((slot, lane), after, until, limit)).await
    }

    async fn get(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Stored>>, Failure> {
        self.call(Call::Get, |rows| ids.into_iter().map(|id| rows.get(id)).collect()).await
    }

    async fn names(
        &self,
        topic: TopicId,
        texts: Vec<Arc<str>>,
    ) -> Result<Vec<Option<Named>>, Failure> {
        let names = |rows: &mut Rows| texts.iter().map(|text| rows.named(topic, text)).collect();
        self.call(Call::Names, names).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, Failure> {
        self.call(Call::Pending, |rows| rows.pending(&query)).await
    }

    async fn forecast(&self, topic: TopicId, bounds: Vec<Timestamp>) -> Result<Forecast, Failure> {
        self.call(Call::Forecast, |rows| rows.forecast(topic, &bounds)).await
    }

    async fn counts(&self, lane: Lane) -> Result<Vec<(TopicId, u64)>, Failure> {
        self.call(Call::Counts, |rows| rows.counts(lane)).await
    }

    async fn purge(&self, tenure: Tenure, before: Timestamp) -> Result<bool, Failure> {
        self.call(Call::Purge, |rows| rows.purge(tenure, before)).await
    }

    async fn is_empty(&self, slot: Slot) -> Result<bool, Failure> {
        self.call(Call::IsEmpty, |rows| rows.is_empty(slot)).await
    }
}

impl Documents for Memory {
    async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.call(Call::ChangedSince, |rows| rows.changed_since(kind, revision)).await
    }

    async fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        self.call(Call::PutDocument, |rows| rows.put(kind, name, expected, content)).await
    }
}
