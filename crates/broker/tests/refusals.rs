//! An outlet or a store that refuses: nothing is lost, nothing comes twice, the order stays.

mod house;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use house::{House, Mood, Store, embedded, reference, request, soon, within_a_minute};
use punctual_broker::When;
use punctual_broker::deliver::Delivery;
use punctual_broker::fire::Firing;
use punctual_broker::time::BrokerTime;
use punctual_model::ports::{
    ArmLimit, Armed, CancelOutcome, Forecast, Found, LogPosition, Order, PendingPage, PendingQuery,
    Revised, StoreError, Timeline, Topics,
};
use punctual_model::{
    Basis, Entry, Lane, Message, MessageId, Partition, Span, Timestamp, TopicId, TopicName,
    TopicSettings,
};
use punctual_testkit::{ManualClock, Reference};

#[test]
fn a_full_outlet_loses_nothing_over_the_reference() {
    a_full_outlet_loses_nothing(&reference());
}

#[test]
fn a_full_outlet_loses_nothing_over_the_engine() {
    a_full_outlet_loses_nothing(&embedded());
}

fn a_full_outlet_loses_nothing<S: Store>(house: &House<S>) {
    let topic = house.topic("orders", 2);
    for (round, error) in [StoreError::Full, StoreError::Busy].into_iter().enumerate() {
        house.gate.set(Mood::Refuse(error));
        // More than one batch: what waits behind the refused one has to keep its place.
        house.schedule(&topic, vec![request(When::Now); 10_000]);
        house.gate.wait_for_refusals(3 * round + 1);
        house.schedule(&topic, vec![request(When::Now); 5_000]);
        house.schedule(&topic, vec![request(soon(20)); 5_000]);
        house.gate.wait_for_refusals(3 * round + 3);
        assert_eq!(house.received(&topic).len(), 20_000 * round);
        house.gate.open();
        house.gate.wait_for(20_000 * (round + 1));
    }
    assert_eq!(house.stop_and_count_pending(), 0);
    assert_eq!(house.received(&topic).len(), 40_000);
    for log in house.logs(&topic) {
        assert!(log.is_sorted_by_key(|delivered| delivered.id.key));
    }
    assert_eq!(house.broker.stats().delivered, 40_000);
}

#[test]
fn a_poisoned_outlet_is_reported() {
    let house = embedded();
    let topic = house.topic("orders", 1);
    let error = StoreError::Poisoned("planted".into());
    house.gate.set(Mood::Refuse(error.clone()));
    house.send(&topic, When::Now);
    assert_eq!(within_a_minute(house.broker.failed()), error);
    house.broker.stop();
    assert_eq!(house.received(&topic), []);
}

#[test]
fn a_panic_while_firing_is_reported() {
    let house = reference();
    let topic = house.topic("orders", 1);
    house.gate.set(Mood::Panic);
    house.send(&topic, When::Now);
    assert!(matches!(within_a_minute(house.broker.failed()), StoreError::Poisoned(_)));
}

/// A store that refuses every other call of claim, settle and arm.
#[derive(Debug, Default)]
struct Reluctant {
    inner: Reference,
    calls: AtomicUsize,
}

impl Reluctant {
    fn hesitate(&self) -> Result<(), StoreError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call.is_multiple_of(2) { Err(StoreError::Busy) } else { Ok(()) }
    }
}

impl Timeline for Reluctant {
    async fn schedule(&self, batch: Vec<Entry>) -> Result<Vec<MessageId>, StoreError> {
        self.inner.schedule(batch).await
    }

    async fn cancel(&self, ids: Vec<MessageId>) -> Result<Vec<CancelOutcome>, StoreError> {
        self.inner.cancel(ids).await
    }

    async fn revise(&self, orders: Vec<Order>) -> Result<Revised, StoreError> {
        self.inner.revise(orders).await
    }

    async fn named(
        &self,
        topic: TopicId,
        own_ids: Vec<Arc<str>>,
    ) -> Result<Vec<Option<MessageId>>, StoreError> {
        self.inner.named(topic, own_ids).await
    }

    async fn forecast(
        &self,
        topic: TopicId,
        bounds: Vec<Timestamp>,
    ) -> Result<Forecast, StoreError> {
        self.inner.forecast(topic, bounds).await
    }

    async fn release(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.inner.release(batch).await
    }

    async fn find(&self, ids: Vec<MessageId>) -> Result<Vec<Option<Found>>, StoreError> {
        self.inner.find(ids).await
    }

    async fn pending(&self, query: PendingQuery) -> Result<PendingPage, StoreError> {
        self.inner.pending(query).await
    }

    async fn arm(
        &self,
        lane: Lane,
        until: Timestamp,
        limit: ArmLimit,
    ) -> Result<Vec<Armed>, StoreError> {
        self.hesitate()?;
        self.inner.arm(lane, until, limit).await
    }

    async fn claim(&self, batch: &mut Vec<Armed>) -> Result<(), StoreError> {
        self.hesitate()?;
        self.inner.claim(batch).await
    }

    async fn settle(&self, batch: &[Armed]) -> Result<(), StoreError> {
        self.hesitate()?;
        self.inner.settle(batch).await
    }

    async fn defer(&self, batch: Vec<(Armed, Timestamp)>) -> Result<(), StoreError> {
        self.hesitate()?;
        self.inner.defer(batch).await
    }

    async fn next_due(&self, lane: Lane) -> Result<Option<Timestamp>, StoreError> {
        self.inner.next_due(lane).await
    }

    fn listen(&self, listener: Arc<dyn Fn(Lane) + Send + Sync>) {
        self.inner.listen(listener);
    }

    fn counts(&self, lane: Lane) -> Vec<(TopicId, u64)> {
        self.inner.counts(lane)
    }
}

#[test]
fn a_busy_store_loses_and_repeats_nothing() {
    let start = Timestamp::from_millis_saturating(1_900_000_000_000);
    let store = Arc::new(Reluctant::default());
    let outlet = Arc::new(store.inner.clone());
    let settings = TopicSettings { partitions: 1, ..TopicSettings::default() };
    let topic = outlet.put(&TopicName::new("orders").unwrap(), settings).unwrap().id;
    let partition = Partition::new(0).unwrap();
    let second = Span::from_secs(1);
    let entry = |due| Entry {
        topic,
        partition,
        due,
        basis: Basis::Delay,
        message: Message::default(),
        extra: None,
    };
    let mut sent = within_a_minute(store.schedule(vec![entry(start); 20_000])).unwrap();
    // These are ready in memory when their moment comes, more than one batch of them.
    let later = vec![entry(start.saturating_add(second)); 20_000];
    sent.extend(within_a_minute(store.schedule(later)).unwrap());
    let clock = ManualClock::new(start);
    let time = Arc::new(BrokerTime::new(Arc::new(clock.clone())));
    let delivery = Delivery::new(Arc::clone(&store), Arc::clone(&outlet), time, Arc::default());
    let mut firing = Firing::new(Lane::Message, delivery);
    step_until_quiet(&mut firing);
    clock.advance(second);
    step_until_quiet(&mut firing);
    let log = outlet.read(LogPosition { topic, partition, offset: 0 }, usize::MAX).unwrap();
    let received: Vec<MessageId> = log.iter().map(|delivered| delivered.id).collect();
    assert!(received == sent, "{} of {} arrived", received.len(), sent.len());
}

fn step_until_quiet(firing: &mut Firing<Reluctant, Reference>) {
    for _ in 0..1000 {
        match within_a_minute(firing.step()) {
            Ok(wait) if wait.is_zero() => {}
            Err(error) => assert_eq!(error, StoreError::Busy),
            Ok(_quiet) => return,
        }
    }
    unreachable!("it never gets to an end");
}
