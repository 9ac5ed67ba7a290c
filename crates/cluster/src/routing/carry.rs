//! Carrying out what was asked where it belongs, and again where it belongs by then.
//!
//! A slot that moves, a node that is gone: both pass, so a request is tried again with a fresh view
//! of the cluster for as long as its patience lasts. What may have been carried out by a node that
//! did not answer is tried again only if doing it twice is the same as doing it once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use punctual_model::MessageId;
use punctual_model::ports::{
    CancelOutcome, Done, Node, OnConflict, Order, Refusal, Revised, StoreError, Timeline,
};
use punctual_model::{Entry, State};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::split::{Part, slot_of, split};
use super::wire::{Answer, Request, decode_answer, links};
use super::{Inner, PeerError};
use crate::store::Slot;

/// How long to wait for news of the cluster before the next try.
const PAUSE: Duration = Duration::from_millis(100);
/// Longest time for one call of another node.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Where something is carried out.
#[derive(Clone, Debug)]
enum Home {
    Here,
    There(Arc<Node>),
    /// Nobody holds it at the moment.
    Nowhere,
}

/// Why a try came to nothing.
#[derive(Clone, Debug)]
enum Trouble {
    /// Nothing was done: it may be tried again.
    Moved(Arc<str>),
    /// Nobody knows what was done.
    Unsure(Arc<str>),
    /// It was refused.
    Refused(StoreError),
}

/// For how long a request is tried again.
struct Patience {
    until: Instant,
    news: watch::Receiver<()>,
}

impl Patience {
    /// Waits for news, or a little. After the last moment it answers what was wrong last.
    async fn wait(&mut self, why: &Arc<str>) -> Result<(), StoreError> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(StoreError::Unavailable(Arc::clone(why)));
        }
        // No news, or nobody to tell any: the next try shows.
        let _no_news = timeout(PAUSE.min(left), self.news.changed()).await.is_err();
        Ok(())
    }
}

/// What became of one part of a call.
enum Carried {
    Done(Vec<(usize, Done)>),
    Refused(usize, Refusal),
}

impl<L: Timeline> Inner<L> {
    fn patience(&self) -> Patience {
        let mut news = self.news.subscribe();
        news.mark_unchanged();
        Patience { until: Instant::now() + self.patience, news }
    }

    /// Where a slot is, as far as this node knows.
    fn home(&self, slot: Slot) -> Home {
        let number = u32::from(slot.0);
        if self.coordinator.holding().slots.iter().any(|held| held.slot == number) {
            return Home::Here;
        }
        let view = self.coordinator.view();
        let place = view.slots.binary_search_by_key(&number, |view| view.slot);
        let owner = place.ok().and_then(|place| view.slots[place].owner.clone());
        let node = owner.and_then(|owner| view.nodes.iter().find(|node| node.name == owner));
        match node {
            Some(node) if Some(&node.name) != (self.name)().as_ref() => {
                Home::There(Arc::new(node.clone()))
            }
            _ => Home::Nowhere,
        }
    }

    /// Where new entries may go: here, or to one node after the other of those that hold slots.
    fn any_home(&self) -> Home {
        if self.takes_new() {
            return Home::Here;
        }
        let (view, own) = (self.coordinator.view(), (self.name)());
        let holds = |node: &&Node| {
            let is_owner = |slot: &punctual_model::ports::SlotView| {
                slot.owner.as_ref() == Some(&node.name) && slot.slot < view.slots_wanted
            };
            Some(&node.name) != own.as_ref() && view.slots.iter().any(is_owner)
        };
        let others: Vec<&Node> = view.nodes.iter().filter(holds).collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        match turn.checked_rem(others.len()) {
            Some(place) => Home::There(Arc::new(others[place].clone())),
            None => Home::Nowhere,
        }
    }

    /// Whether this node holds a slot that takes new entries.
    pub(super) fn takes_new(&self) -> bool {
        let holding = self.coordinator.holding();
        holding.slots.iter().any(|held| !held.leaving && !held.retired)
    }

    /// Whether this node holds the slots of all these messages.
    pub(super) fn holds_all(&self, ids: &[MessageId]) -> bool {
        let holding = self.coordinator.holding();
        let holds = |id: &MessageId| {
            let number = u32::from(slot_of(*id).0);
            holding.slots.binary_search_by_key(&number, |held| held.slot).is_ok()
        };
        ids.iter().all(holds)
    }

    /// What the timeline of this node makes of a request.
    pub(super) async fn here(&self, request: Request) -> Result<Answer, StoreError> {
        match request {
            Request::Schedule(batch) => self.local.schedule(batch).await.map(Answer::Scheduled),
            Request::Cancel(ids) => self.local.cancel(ids).await.map(Answer::Cancelled),
            Request::Revise(orders) => self.local.revise(orders).await.map(Answer::Revised),
            Request::Ready { .. } | Request::Leaving(_) => {
                Err(StoreError::Unavailable("it is not for a timeline".into()))
            }
        }
    }

    async fn try_at(&self, home: &Home, request: Request) -> Result<Answer, Trouble> {
        match home {
            Home::Nowhere => Err(Trouble::Moved("nobody holds the slot at the moment".into())),
            Home::Here => self.here(request).await.map_err(|error| match error {
                StoreError::Elsewhere => Trouble::Moved("the slot is moving".into()),
                error => Trouble::Refused(error),
            }),
            Home::There(node) => self.call(node, &request).await,
        }
    }

    async fn call(&self, node: &Node, request: &Request) -> Result<Answer, Trouble> {
        self.figures.calls.fetch_add(1, Ordering::Relaxed);
        let answer = self.peers.call(Arc::clone(&node.address), request.encode(), CALL_TIMEOUT);
        let answer = answer.await.map_err(|error| {
            self.figures.failed.fetch_add(1, Ordering::Relaxed);
            match error {
                PeerError::NotSent(why) => Trouble::Moved(why),
                PeerError::Unanswered(why) => Trouble::Unsure(why),
            }
        })?;
        let nonsense = |_malformed| Trouble::Unsure("a node's answer cannot be read".into());
        match decode_answer(&answer).map_err(nonsense)? {
            Ok(answer) => Ok(answer),
            Err(StoreError::Elsewhere) => Err(Trouble::Moved("the slot is moving".into())),
            Err(error) => Err(Trouble::Refused(error)),
        }
    }

    /// Stores new entries wherever there is room.
    pub(super) async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        let count = batch.len();
        let anchor = batch.iter().find_map(super::split::parent).map(slot_of);
        let mut unsure = None;
        let request = Request::Schedule(batch);
        match self.carry(anchor, &request, &mut unsure).await? {
            Answer::Scheduled(ids) if ids.len() == count => Ok(ids),
            _ => Err(nonsense()),
        }
    }

    /// Carries a request out at whoever holds the slot; what may have been done is not done again
    /// unless `unsure` says what to take it for.
    async fn carry(
        &self,
        slot: Option<Slot>,
        request: &Request,
        unsure: &mut Option<bool>,
    ) -> Result<Answer, StoreError> {
        let mut patience = self.patience();
        loop {
            let home = slot.map_or_else(|| self.any_home(), |slot| self.home(slot));
            let why = match self.try_at(&home, request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(Trouble::Refused(error)) => return Err(error),
                Err(Trouble::Moved(why)) => why,
                Err(Trouble::Unsure(why)) => match unsure {
                    Some(unsure) => {
                        *unsure = true;
                        why
                    }
                    None => return Err(StoreError::Unavailable(why)),
                },
            };
            self.figures.retried.fetch_add(1, Ordering::Relaxed);
            patience.wait(&why).await?;
        }
    }

    /// Withdraws messages, each where it is.
    pub(super) async fn cancel(
        &self,
        ids: Vec<MessageId>,
    ) -> Result<Vec<CancelOutcome>, StoreError> {
        let mut open: Vec<Open> =
            ids.into_iter().map(|id| Open { id, unsure: false, outcome: None }).collect();
        let mut patience = self.patience();
        let mut by_slot = false;
        while open.iter().any(|one| one.outcome.is_none()) {
            let tries = self.group(&open, by_slot).into_iter().map(|(home, places)| {
                let ids = places.iter().map(|place| open[*place].id).collect();
                async move { (places, self.try_at(&home, Request::Cancel(ids)).await) }
            });
            let tried = join_all(tries).await;
            let Some(why) = take_outcomes(&mut open, tried)? else { continue };
            // Slots of one node may go different ways.
            by_slot = true;
            self.figures.retried.fetch_add(1, Ordering::Relaxed);
            patience.wait(&why).await?;
        }
        Ok(open.into_iter().filter_map(|one| one.outcome).collect())
    }

    /// What is still to be withdrawn, by who is asked to.
    fn group(&self, open: &[Open], by_slot: bool) -> Vec<(Home, Vec<usize>)> {
        let mut slots: BTreeMap<Slot, Vec<usize>> = BTreeMap::new();
        for (place, one) in open.iter().enumerate().filter(|(_, one)| one.outcome.is_none()) {
            slots.entry(slot_of(one.id)).or_default().push(place);
        }
        let homes = slots.into_iter().map(|(slot, places)| (self.home(slot), places));
        if by_slot {
            return homes.collect();
        }
        let mut nodes: BTreeMap<Option<Arc<str>>, (Home, Vec<usize>)> = BTreeMap::new();
        let mut groups = Vec::new();
        for (home, places) in homes {
            let name = match &home {
                Home::Here => None,
                Home::There(node) => Some(Arc::clone(&node.name)),
                Home::Nowhere => {
                    groups.push((home, places));
                    continue;
                }
            };
            nodes.entry(name).or_insert_with(|| (home, Vec::new())).1.extend(places);
        }
        groups.extend(nodes.into_values());
        groups
    }

    /// Carries orders out, those of each slot together.
    pub(super) async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        let count = orders.len();
        let mut patience = self.patience();
        let parts = loop {
            let named = self.names_wanted(&orders).await?;
            let parts = split(orders.clone(), |place| named.get(&place).copied());
            let torn = |_torn| StoreError::Unavailable("orders of one call are torn apart".into());
            let mut parts = parts.map_err(torn)?;
            if parts.len() > 1 || named.is_empty() {
                break parts;
            }
            // Who has a name may change until it is taken over, so it is looked up for each try.
            let part = parts.remove(0);
            let home = part.slot.map_or_else(|| self.any_home(), |slot| self.home(slot));
            match self.try_at(&home, Request::Revise(part.orders)).await {
                Ok(Answer::Revised(revised)) => return in_range(revised, count),
                Ok(_) => return Err(nonsense()),
                Err(Trouble::Refused(error)) => return Err(error),
                Err(Trouble::Unsure(why)) => return Err(StoreError::Unavailable(why)),
                Err(Trouble::Moved(why)) => patience.wait(&why).await?,
            }
        };
        let mut all = vec![None; count];
        let mut refused: Option<(usize, Refusal)> = None;
        for carried in join_all(parts.into_iter().map(|part| self.revise_part(part))).await {
            match carried? {
                Carried::Done(done) => {
                    done.into_iter().for_each(|(place, what)| all[place] = Some(what));
                }
                Carried::Refused(place, reason) => {
                    let first = refused.is_none_or(|(other, _)| place < other);
                    refused = if first { Some((place, reason)) } else { refused };
                }
            }
        }
        match refused {
            Some((index, reason)) => Ok(Revised::Refused { index, reason }),
            None => Ok(Revised::Done(all.into_iter().flatten().collect())),
        }
    }

    /// The messages whose names are to be taken over, by the places of the orders that want to.
    async fn names_wanted(
        &self,
        orders: &[Order],
    ) -> Result<BTreeMap<usize, MessageId>, StoreError> {
        let mut named = BTreeMap::new();
        for (place, order) in orders.iter().enumerate() {
            let Order::Schedule { entry, conflict: OnConflict::Replace, .. } = order else {
                continue;
            };
            let own_id = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
            let Some(own_id) = own_id else { continue };
            let found = self.local.named(entry.topic, vec![Arc::clone(&own_id.text)]).await?;
            if let Some(id) = found.into_iter().next().flatten() {
                named.insert(place, id);
            }
        }
        Ok(named)
    }

    /// Carries out the orders of one slot.
    async fn revise_part(&self, part: Part) -> Result<Carried, StoreError> {
        let Part { slot, places, orders } = part;
        // New entries would be stored twice, and links to orders cannot be told from others.
        let repeatable = orders.iter().all(|order| match order {
            Order::Schedule { .. } => false,
            Order::Replace { entry, .. } => {
                links(entry.extra.as_deref()).all(|link| link.id().is_some())
            }
            Order::Cancel { .. } => true,
        });
        let mut unsure = repeatable.then_some(false);
        let mut left: Vec<(usize, Order)> = places.into_iter().zip(orders).collect();
        let mut done = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let orders = left.iter().map(|(_, order)| order.clone()).collect();
            let request = Request::Revise(orders);
            let Answer::Revised(revised) = self.carry(slot, &request, &mut unsure).await? else {
                return Err(nonsense());
            };
            match in_range(revised, left.len())? {
                Revised::Done(all) => {
                    done.extend(left.drain(..).zip(all).map(|((place, _), what)| (place, what)));
                }
                Revised::Refused { index, reason } => {
                    let was_done = match repeatable {
                        true => self.was_done(&left[index].1, reason, unsure == Some(true)).await?,
                        false => None,
                    };
                    let (place, _) = left.remove(index);
                    match was_done {
                        Some(what) => done.push((place, what)),
                        None => return Ok(Carried::Refused(place, reason)),
                    }
                }
            }
        }
        Ok(Carried::Done(done))
    }

    /// Whether an order is refused only because it was carried out already: by a try that was not
    /// answered, or by a call of which another part was refused.
    async fn was_done(
        &self,
        order: &Order,
        reason: Refusal,
        unsure: bool,
    ) -> Result<Option<Done>, StoreError> {
        match (order, reason) {
            (Order::Replace { id, entry, .. }, Refusal::Changed) => {
                let found = self.local.find(vec![*id]).await?;
                let found = found.into_iter().next().flatten().and_then(|found| found.entry);
                let same = found.filter(|found| {
                    let stands = (found.key.due, found.basis) == (entry.due, entry.basis);
                    stands && found.message == entry.message && found.extra == entry.extra
                });
                Ok(same.map(|found| Done::Moved(found.key)))
            }
            (Order::Cancel { .. }, Refusal::Ended(State::Cancelled)) if unsure => {
                Ok(Some(Done::Cancelled))
            }
            _ => Ok(None),
        }
    }
}

/// A message that is to be withdrawn.
struct Open {
    id: MessageId,
    /// It may have been withdrawn by a try that was not answered.
    unsure: bool,
    outcome: Option<CancelOutcome>,
}

type Tried = (Vec<usize>, Result<Answer, Trouble>);

/// Takes down what became of messages; answers why some are still open.
fn take_outcomes(open: &mut [Open], tried: Vec<Tried>) -> Result<Option<Arc<str>>, StoreError> {
    let mut failed = None;
    for (places, result) in tried {
        match result {
            Ok(Answer::Cancelled(outcomes)) if outcomes.len() == places.len() => {
                for (place, outcome) in places.into_iter().zip(outcomes) {
                    let mine = open[place].unsure && outcome == CancelOutcome::AlreadyCancelled;
                    open[place].outcome =
                        Some(if mine { CancelOutcome::Cancelled } else { outcome });
                }
            }
            Ok(_) => return Err(nonsense()),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Moved(why)) => failed = Some(why),
            Err(Trouble::Unsure(why)) => {
                places.into_iter().for_each(|place| open[place].unsure = true);
                failed = Some(why);
            }
        }
    }
    Ok(failed)
}

/// An answer that speaks of the orders that were sent.
fn in_range(revised: Revised, count: usize) -> Result<Revised, StoreError> {
    let fits = match &revised {
        Revised::Done(done) => done.len() == count,
        Revised::Refused { index, .. } => *index < count,
    };
    if fits { Ok(revised) } else { Err(nonsense()) }
}

fn nonsense() -> StoreError {
    StoreError::Unavailable("a node answered something else than it was asked".into())
}
