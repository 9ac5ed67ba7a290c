//! Some nodes over one memory, whose slots, sight and calls a test moves by hand.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, ClusterView, Coordinator, CoordinatorError, Done, Forecast,
    Found, Held, Holding, Node, OnConflict, Order, PendingEntry, PendingPage, PendingQuery,
    Refusal, Revised, SlotView, StoreError, Timeline,
};
use punctual_model::{
    Basis, Entry, Key, Lane, Message, MessageId, OwnId, Partition, State, Timestamp, TopicId,
};
use tokio::runtime::Handle;

use super::super::wire::{Request, encode_answer};
use super::super::{PeerError, Peers, Routed, RoutedParts};
use crate::store::Slot;

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// It never leaves.
    NotSent,
    /// It is carried out, and nobody hears of it.
    LoseAnswer,
}

type Hook = Box<dyn FnOnce(&World) + Send>;
type Listener = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Inner {
    /// Who holds each slot, and who is believed to.
    owners: Vec<Option<usize>>,
    seen: Vec<Option<usize>>,
    down: Vec<bool>,
    messages: BTreeMap<MessageId, Known>,
    names: BTreeMap<Arc<str>, MessageId>,
    counter: u64,
    faults: VecDeque<Fault>,
    hook: Option<Hook>,
    nodes: Vec<Routed<Local>>,
    listeners: Vec<Listener>,
}

struct Known {
    key: Key,
    state: State,
    entry: Entry,
}

#[derive(Clone)]
pub(super) struct World(Arc<Mutex<Inner>>);

pub(super) fn entry() -> Entry {
    Entry {
        topic: TopicId::new(20).unwrap(),
        partition: Partition::new(0).unwrap(),
        due: Timestamp::from_millis(5_000).unwrap(),
        basis: Basis::Delay,
        message: Message::default(),
        extra: None,
    }
}

pub(super) fn named(name: &str) -> Entry {
    let own_id = OwnId { text: name.into(), print: 1 };
    entry().with_extra(|extra| extra.own_id = Some(own_id))
}

impl World {
    /// Slots are given to nodes in turn.
    pub(super) fn new(nodes: usize, slots: usize) -> Self {
        Self::with(nodes, slots, Duration::from_secs(60))
    }

    pub(super) fn impatient(nodes: usize, slots: usize) -> Self {
        Self::with(nodes, slots, Duration::from_millis(1))
    }

    fn with(nodes: usize, slots: usize, patience: Duration) -> Self {
        let world = Self(Arc::default());
        let owners: Vec<Option<usize>> = (0..slots).map(|slot| Some(slot % nodes)).collect();
        {
            let mut inner = world.0.lock();
            inner.seen.clone_from(&owners);
            inner.owners = owners;
            inner.down = vec![false; nodes];
        }
        for index in 0..nodes {
            let seat = Seat { world: world.clone(), index };
            let routed = Routed::new(RoutedParts {
                local: Arc::new(Local { world: world.clone(), index }),
                coordinator: Arc::new(seat),
                peers: Arc::new(Calls(world.clone())),
                name: Arc::new(move || Some(name(index))),
                tasks: Handle::current(),
                patience,
            });
            world.0.lock().nodes.push(routed);
        }
        world
    }

    pub(super) fn node(&self, index: usize) -> Routed<Local> {
        self.0.lock().nodes[index].clone()
    }

    pub(super) fn owner(&self, id: MessageId) -> Option<usize> {
        self.0.lock().owners[usize::from(Slot::of(id.key.sequence).0)]
    }

    pub(super) fn state(&self, id: MessageId) -> Option<State> {
        self.0.lock().messages.get(&id).map(|known| known.state)
    }

    pub(super) fn stored(&self) -> usize {
        self.0.lock().messages.len()
    }

    pub(super) fn end(&self, id: MessageId, state: State) {
        self.0.lock().messages.get_mut(&id).unwrap().state = state;
    }

    /// A slot is given to a node, and everybody knows.
    pub(super) fn give(&self, slot: usize, node: usize) {
        self.move_unseen(slot, node);
        self.see_all();
    }

    pub(super) fn move_unseen(&self, slot: usize, node: usize) {
        self.0.lock().owners[slot] = Some(node);
    }

    pub(super) fn see_all(&self) {
        let listeners = {
            let mut inner = self.0.lock();
            inner.seen = inner.owners.clone();
            inner.listeners.clone()
        };
        listeners.iter().for_each(|listener| listener());
    }

    /// A node has no slots any more, and nobody else has them.
    pub(super) fn take_away(&self, node: usize) {
        for owner in &mut self.0.lock().owners {
            *owner = owner.filter(|owner| *owner != node);
        }
        self.see_all();
    }

    pub(super) fn down(&self, node: usize) {
        self.0.lock().down[node] = true;
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.0.lock().faults.push_back(fault);
    }

    /// Happens after the next call was answered, and before its caller knows.
    pub(super) fn at_next_call(&self, hook: impl FnOnce(&Self) + Send + 'static) {
        self.0.lock().hook = Some(Box::new(hook));
    }

    /// An order that gives a message another body.
    pub(super) fn replace(&self, id: MessageId, body: &str) -> Order {
        let inner = self.0.lock();
        let known = &inner.messages[&id];
        let mut entry = known.entry.clone();
        entry.message.body = Bytes::copy_from_slice(body.as_bytes());
        Order::Replace { id, expected: known.key, entry }
    }

    pub(super) fn entry_of(&self, order: &Order) -> Entry {
        match order {
            Order::Replace { entry, .. } | Order::Schedule { entry, .. } => entry.clone(),
            Order::Cancel { .. } => panic!("it has none"),
        }
    }
}

fn name(index: usize) -> Arc<str> {
    format!("node-{index}").into()
}

struct Seat {
    world: World,
    index: usize,
}

impl Coordinator for Seat {
    fn holding(&self) -> Arc<Holding> {
        let inner = self.world.0.lock();
        let slots = inner.owners.iter().zip(0..).filter(|(owner, _)| **owner == Some(self.index));
        let held = |(_, slot)| Held { slot, term: 1, leaving: false, retired: false };
        Arc::new(Holding { slots: slots.map(held).collect() })
    }

    fn is_certain(&self) -> bool {
        true
    }

    fn view(&self) -> Arc<ClusterView> {
        let inner = self.world.0.lock();
        let node = |index| Node {
            name: name(index),
            address: format!("http://{index}").into(),
            version: "1".into(),
            since: Timestamp::MIN,
        };
        let slot = |(owner, slot): (&Option<usize>, u32)| SlotView {
            slot,
            owner: owner.map(name),
            term: 1,
            next: None,
        };
        Arc::new(ClusterView {
            nodes: (0..inner.down.len()).map(node).collect(),
            leader: None,
            slots_wanted: u32::try_from(inner.seen.len()).unwrap(),
            slots: inner.seen.iter().zip(0..).map(slot).collect(),
        })
    }

    fn listen(&self, listener: Arc<dyn Fn() + Send + Sync>) {
        self.world.0.lock().listeners.push(listener);
    }

    fn released(&self, _slot: u32, _term: u64) {}

    fn drained(&self, _slot: u32, _term: u64) {}

    fn resize(
        &self,
        _slots: u32,
    ) -> Pin<Box<dyn Future<Output = Result<(), CoordinatorError>> + Send + '_>> {
        Box::pin(std::future::ready(Err(CoordinatorError::Alone)))
    }
}

struct Calls(World);

impl Peers for Calls {
    fn call(
        &self,
        address: Arc<str>,
        request: Bytes,
        _within: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, PeerError>> + Send>> {
        let world = self.0.clone();
        Box::pin(async move {
            let index: usize = address.strip_prefix("http://").unwrap().parse().unwrap();
            let (fault, node, down) = {
                let mut inner = world.0.lock();
                (inner.faults.pop_front(), inner.nodes[index].clone(), inner.down[index])
            };
            let answer = match fault {
                _ if down => Err(PeerError::NotSent("it is down".into())),
                Some(Fault::NotSent) => Err(PeerError::NotSent("the cable is cut".into())),
                fault => {
                    let answer = node.answer(Request::decode(&request).unwrap()).await;
                    match fault {
                        Some(_) => Err(PeerError::Unanswered("the cable is cut".into())),
                        None => Ok(encode_answer(&answer)),
                    }
                }
            };
            let hook = world.0.lock().hook.take();
            if let Some(hook) = hook {
                hook(&world);
            }
            answer
        })
    }
}

/// The slots of one node.
pub(super) struct Local {
    world: World,
    index: usize,
}

impl Inner {
    fn holds(&self, node: usize, id: MessageId) -> bool {
        self.owners[usize::from(Slot::of(id.key.sequence).0)] == Some(node)
    }

    fn key(&mut self, slot: Slot, due: Timestamp) -> Key {
        self.counter += 1;
        Key { due, sequence: slot.sequence(Lane::Message, self.counter) }
    }

    fn store(&mut self, slot: Slot, entry: Entry) -> MessageId {
        let key = self.key(slot, entry.due);
        let id = MessageId { key, topic: entry.topic, partition: entry.partition };
        if let Some(own) = entry.extra.as_ref().and_then(|extra| extra.own_id.clone()) {
            self.names.insert(own.text, id);
        }
        self.messages.insert(id, Known { key, state: State::Scheduled, entry });
        id
    }

    fn own_slot(&self, node: usize) -> Option<Slot> {
        let slot = self.owners.iter().position(|owner| *owner == Some(node))?;
        Some(Slot(u16::try_from(slot).unwrap()))
    }

    /// Why an order cannot be carried out.
    fn refusal(&self, order: &Order) -> Option<Refusal> {
        let (id, expected) = match order {
            Order::Schedule { .. } => return None,
            Order::Replace { id, expected, .. } => (id, Some(*expected)),
            Order::Cancel { id, expected } => (id, *expected),
        };
        match self.messages.get(id) {
            None => Some(Refusal::NotFound),
            Some(known) if known.state != State::Scheduled => Some(Refusal::Ended(known.state)),
            Some(known) if expected.is_some_and(|key| key != known.key) => Some(Refusal::Changed),
            Some(_) => None,
        }
    }

    fn carry_out(&mut self, slot: Slot, order: Order) -> Done {
        match order {
            Order::Schedule { entry, conflict, .. } => {
                let own = entry.extra.as_ref().and_then(|extra| extra.own_id.clone());
                let had = own.and_then(|own| self.names.get(&own.text).copied());
                if let Some(had) = had.filter(|_| conflict == OnConflict::Replace) {
                    self.messages.get_mut(&had).unwrap().state = State::Cancelled;
                }
                Done::Stored(self.store(slot, entry))
            }
            Order::Replace { id, entry, .. } => {
                let key = self.key(slot, entry.due);
                self.messages.insert(id, Known { key, state: State::Scheduled, entry });
                Done::Moved(key)
            }
            Order::Cancel { id, .. } => {
                self.messages.get_mut(&id).unwrap().state = State::Cancelled;
                Done::Cancelled
            }
        }
    }
}

impl Timeline for Local {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        let mut inner = self.world.0.lock();
        let slot = inner.own_slot(self.index).ok_or(StoreError::Elsewhere)?;
        Ok(batch.into_iter().map(|entry| inner.store(slot, entry)).collect())
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        let mut inner = self.world.0.lock();
        if !ids.iter().all(|id| inner.holds(self.index, *id)) {
            return Err(StoreError::Elsewhere);
        }
        let cancel = |id: MessageId| match inner.messages.get_mut(&id) {
            None => CancelOutcome::NotFound,
            Some(known) => match std::mem::replace(&mut known.state, State::Cancelled) {
                State::Delivered => {
                    known.state = State::Delivered;
                    CancelOutcome::AlreadyDelivered
                }
                State::Cancelled => CancelOutcome::AlreadyCancelled,
                _ => CancelOutcome::Cancelled,
            },
        };
        Ok(ids.into_iter().map(cancel).collect())
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        let mut inner = self.world.0.lock();
        let mut slot = inner.own_slot(self.index).ok_or(StoreError::Elsewhere)?;
        for order in &orders {
            let id = match order {
                Order::Replace { id, .. } | Order::Cancel { id, .. } => Some(*id),
                Order::Schedule { entry, conflict: OnConflict::Replace, .. } => {
                    let own = entry.extra.as_ref().and_then(|extra| extra.own_id.as_ref());
                    own.and_then(|own| inner.names.get(&own.text).copied())
                }
                Order::Schedule { .. } => None,
            };
            let Some(id) = id else { continue };
            if !inner.holds(self.index, id) {
                return Err(StoreError::Elsewhere);
            }
            slot = Slot::of(id.key.sequence);
        }
        for (index, order) in orders.iter().enumerate() {
            if let Some(reason) = inner.refusal(order) {
                return Ok(Revised::Refused { index, reason });
            }
        }
        Ok(Revised::Done(orders.into_iter().map(|order| inner.carry_out(slot, order)).collect()))
    }

    async fn named(
        &self,
        _topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        let inner = self.world.0.lock();
        Ok(own_ids.iter().map(|name| inner.names.get(name).copied()).collect())
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        let inner = self.world.0.lock();
        let find = |id: &MessageId| {
            let known = inner.messages.get(id)?;
            let pending = (known.state == State::Scheduled).then(|| PendingEntry {
                id: *id,
                key: known.key,
                basis: known.entry.basis,
                message: known.entry.message.clone(),
                extra: known.entry.extra.clone(),
            });
            Some(Found { state: known.state, entry: pending })
        };
        Ok(ids.iter().map(find).collect())
    }

    async fn forecast(
        &self,
        _topic: TopicId,
        _bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        Ok(Forecast::default())
    }

    async fn pending(&self, _query: PendingQuery) -> Result<PendingPage, StoreError> {
        Ok(PendingPage::default())
    }

    async fn arm(
        &self,
        _lane: Lane,
        _until: Timestamp,
        _limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        Ok(Vec::new())
    }

    async fn claim(&self, _batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn settle(&self, _batch: &[Armed]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn defer(&self, _batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        Ok(())
    }

    async fn release(&self, _batch: &[Armed]) -> Result<(), StoreError> {
        Ok(())
    }

    fn listen(&self, _listener: Arc<dyn Fn(Lane) + Send + Sync>) {}

    async fn next_due(&self, _lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        Ok(None)
    }

    fn counts(&self, _lane: Lane) -> Vec<(TopicId, u64)> {
        Vec::new()
    }
}
