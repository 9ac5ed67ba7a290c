//! Messages that have a name or come round: the store has to look whether the name is taken, and
//! stores a series together with its first occurrence.

use std::collections::HashMap;
use std::sync::Arc;

use punctual_model::ports::{
    Done, OnConflict, Order, Refusal, Revised, StoreError, Timeline, Topic,
};
use punctual_model::{Lane, MessageId};

use super::{Request, ScheduleError, Scheduled};
use crate::broker::Broker;
use crate::change::is_series;
use crate::place::fingerprint;
use crate::series::cancel_orders;
use crate::time::Now;

/// How often a series that gives way is looked at while it moves on.
const TRIES: usize = 100;

/// The orders of one call, and which of them tells what became of each request.
struct Batch {
    orders: Vec<Order>,
    /// What gives way to the others comes first.
    ahead: usize,
    /// The request of each order behind that.
    requests: Vec<usize>,
}

impl<T: Timeline> Broker<T> {
    /// Stores messages of which some have a name or come round.
    pub(super) async fn schedule_orders(
        &self,
        topic: &Topic,
        mut requests: Vec<Request>,
        now: Now,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let names = Names::of(&requests)?;
        let acceptance = self.watch(&topic.name, &mut requests);
        let scheduled = self.carry_out_all(topic, requests, &names, now).await?;
        acceptance.done(&scheduled, || self.shared.time.read().wall);
        Ok(scheduled)
    }

    async fn carry_out_all(
        &self,
        topic: &Topic,
        requests: Vec<Request>,
        names: &Names,
        now: Now,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let replaces = |request: &Request| request.on_conflict == OnConflict::Replace;
        if !requests.iter().any(replaces) {
            let batch = self.batch(topic, requests, names, Vec::new(), now)?;
            return self.carry_out(batch, names).await?.ok_or(StoreError::Busy.into());
        }
        for _ in 0..TRIES {
            let giving_way = self.giving_way(topic, &requests).await?;
            let batch = self.batch(topic, requests.clone(), names, giving_way, now)?;
            if let Some(scheduled) = self.carry_out(batch, names).await? {
                return Ok(scheduled);
            }
        }
        Err(StoreError::Busy.into())
    }

    /// Stores a batch; `None` if a series has moved on or ended before it could give way.
    async fn carry_out(
        &self,
        batch: Batch,
        names: &Names,
    ) -> Result<Option<Vec<Scheduled>>, ScheduleError> {
        let Batch { orders, ahead, requests: places } = batch;
        match self.shared.timeline.revise(orders).await? {
            Revised::Done(done) => {
                self.answer(&done[ahead..], &places, &names.firsts).await.map(Some)
            }
            Revised::Refused { index, reason } => {
                let place = index.checked_sub(ahead).and_then(|index| places.get(index));
                match (place, reason) {
                    (Some(index), Refusal::OwnIdTaken(id)) => {
                        Err(ScheduleError::OwnIdTaken { index: *index, id: Some(id) })
                    }
                    _ => Ok(None),
                }
            }
        }
    }

    /// The orders that withdraw series whose names the requests take.
    async fn giving_way(
        &self,
        topic: &Topic,
        requests: &[Request],
    ) -> Result<Vec<Order>, StoreError> {
        let replacing =
            requests.iter().filter(|request| request.on_conflict == OnConflict::Replace);
        let mut names: Vec<Arc<str>> =
            replacing.filter_map(|request| request.own_id.clone()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let named = self.shared.timeline.named(topic.id, names).await?;
        let series = |id: &MessageId| id.key.sequence.lane() == Lane::Retry;
        let ids: Vec<MessageId> = named.into_iter().flatten().filter(series).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.shared.timeline.find(ids).await?;
        let entries = found.into_iter().flatten().filter_map(|found| found.entry);
        Ok(entries.filter(is_series).flat_map(|entry| cancel_orders(&entry)).collect())
    }

    fn batch(
        &self,
        topic: &Topic,
        requests: Vec<Request>,
        names: &Names,
        mut orders: Vec<Order>,
        now: Now,
    ) -> Result<Batch, ScheduleError> {
        let placing = &self.shared.placing;
        let ahead = orders.len();
        orders.reserve(requests.len());
        let mut places = Vec::with_capacity(requests.len());
        for ((index, mut request), print) in requests.into_iter().enumerate().zip(&names.prints) {
            if names.firsts.contains_key(&index) {
                continue;
            }
            let invalid = |reason| ScheduleError::Invalid { index, reason };
            if let Some(repeat) = request.repeat.clone() {
                let place = u32::try_from(orders.len()).expect("a batch is far smaller");
                let opened = placing.open(topic, request, repeat, (place, now));
                orders.extend(opened.map_err(invalid)?);
                places.extend([index, index]);
            } else {
                let conflict = std::mem::take(&mut request.on_conflict);
                let entry = placing.place_printed(topic, request, *print, now).map_err(invalid)?;
                orders.push(Order::Schedule { lane: Lane::Message, entry, conflict });
                places.push(index);
            }
        }
        Ok(Batch { orders, ahead, requests: places })
    }

    async fn answer(
        &self,
        done: &[Done],
        places: &[usize],
        firsts: &HashMap<usize, usize>,
    ) -> Result<Vec<Scheduled>, ScheduleError> {
        let stored = |done: &Done| match done {
            Done::Stored(id) => Some(*id).filter(|id| id.key.sequence.lane() == Lane::Message),
            Done::Known(_) | Done::Moved(_) | Done::Cancelled | Done::Nothing => None,
        };
        let stored: Vec<MessageId> = done.iter().filter_map(stored).collect();
        // A batch is for one topic.
        if let Some(first) = stored.first() {
            self.shared.counters.accepted(first.topic, stored.len() as u64);
        }
        let mut scheduled = Vec::with_capacity(places.len() + firsts.len());
        let mut last = None;
        for (done, place) in done.iter().zip(places) {
            // A series comes before its first occurrence, and its id is the answer.
            if last != Some(place) {
                scheduled.extend(answer(*done));
            }
            last = Some(place);
        }
        // In rising order, so that every message is back in its place.
        let mut again: Vec<(usize, usize)> =
            firsts.iter().map(|(of, first)| (*of, *first)).collect();
        again.sort_unstable();
        for (index, first) in again {
            scheduled.insert(index, Scheduled { duplicate: true, ..scheduled[first] });
        }
        self.tell_states(&mut scheduled).await?;
        Ok(scheduled)
    }

    /// Finds out where the duplicates are in their lives.
    async fn tell_states(&self, scheduled: &mut [Scheduled]) -> Result<(), StoreError> {
        let ids: Vec<MessageId> =
            scheduled.iter().filter(|one| one.duplicate).map(|one| one.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let found = self.shared.timeline.find(ids).await?;
        let duplicates = scheduled.iter_mut().filter(|one| one.duplicate);
        for (duplicate, found) in duplicates.zip(found) {
            if let Some(found) = found {
                duplicate.state = found.state;
            }
        }
        Ok(())
    }
}

fn answer(done: Done) -> Option<Scheduled> {
    match done {
        Done::Stored(id) => Some(Scheduled::new(id)),
        Done::Known(id) => Some(Scheduled { duplicate: true, ..Scheduled::new(id) }),
        // No answer to an order to schedule.
        Done::Moved(_) | Done::Cancelled | Done::Nothing => None,
    }
}

/// What is known of the names in a batch before anybody is asked.
struct Names {
    /// The fingerprint of each request that has a name.
    prints: Vec<u64>,
    /// Which messages repeat an earlier one of the batch, and which that is.
    firsts: HashMap<usize, usize>,
}

impl Names {
    fn of(requests: &[Request]) -> Result<Self, ScheduleError> {
        let print = |request: &Request| match &request.own_id {
            Some(_) => fingerprint(request, &[]),
            None => 0,
        };
        let prints: Vec<u64> = requests.iter().map(print).collect();
        let mut firsts = HashMap::new();
        let mut known = HashMap::with_capacity(requests.len());
        for (index, (request, print)) in requests.iter().zip(&prints).enumerate() {
            let Some(name) = &request.own_id else { continue };
            let (first, first_print) = *known.entry(name).or_insert((index, print));
            if first_print != print {
                return Err(ScheduleError::OwnIdTaken { index, id: None });
            }
            if first != index {
                firsts.insert(index, first);
            }
        }
        Ok(Self { prints, firsts })
    }
}
