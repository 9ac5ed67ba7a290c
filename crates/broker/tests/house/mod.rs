//! A whole broker with its threads, over the reference store or the embedded one, and a gate in
//! front of the outlet that can be shut and that says what went through.

#![allow(
    dead_code,
    unused_imports,
    clippy::allow_attributes,
    reason = "each test file uses its own part of it"
)]
#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

#[path = "../patience/mod.rs"]
mod patience;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use punctual_broker::{Broker, Options, Parts, Request, Scheduled, When};
use punctual_engine::disk::RealDisk;
use punctual_engine::{Durability, Engine};
use punctual_model::ports::{
    Armed, Delivered, Groups, LogPosition, Outlet, StoreError, Timeline, Topics, Untaken,
};
use punctual_model::{
    Clock, Message, MessageId, Partition, Span, SystemClock, Timestamp, TopicName, TopicSettings,
};
use punctual_testkit::Reference;
use tempfile::TempDir;

pub(crate) use patience::{Finally, PATIENCE, Patience, wait_until, within_a_minute};

/// All that a broker needs of a store.
pub(crate) trait Store: Timeline + Outlet + Topics + Groups {}
impl<S: Timeline + Outlet + Topics + Groups> Store for S {}

/// A broker and what is around it.
pub(crate) struct House<S: Store> {
    pub(crate) broker: Broker<S>,
    pub(crate) gate: Arc<Gate<S>>,
    _dir: Option<TempDir>,
}

pub(crate) fn reference() -> House<Reference> {
    House::new(Reference::new(), Options::default())
}

pub(crate) fn embedded() -> House<Engine> {
    let dir = tempfile::tempdir().unwrap();
    let mut house = House::new(engine(dir.path()), Options::default());
    house._dir = Some(dir);
    house
}

/// The embedded store on a real disk; what the disk does on a loss of power is tested elsewhere.
pub(crate) fn engine(dir: &Path) -> Engine {
    let options = punctual_engine::Options {
        durability: Durability::Os,
        table_bytes: 256 << 10,
        reserve_bytes: 1 << 20,
        ..punctual_engine::Options::default()
    };
    Engine::open(Arc::new(RealDisk::new(dir).unwrap()), options, Arc::new(SystemClock::new()))
        .unwrap()
}

impl<S: Store> House<S> {
    pub(crate) fn new(store: S, options: Options) -> Self {
        let store = Arc::new(store);
        let gate = Arc::new(Gate {
            inner: Arc::clone(&store),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let parts = Parts {
            timeline: Arc::clone(&store),
            outlet: Arc::clone(&gate),
            topics: Arc::clone(&store) as Arc<dyn Topics>,
            groups: store,
            records: None,
            clock: Arc::new(SystemClock::new()),
        };
        let broker = Broker::start(options, parts).unwrap();
        Self { broker, gate, _dir: None }
    }

    pub(crate) fn topic(&self, name: &str, partitions: u16) -> TopicName {
        let name = TopicName::new(name).unwrap();
        let settings = TopicSettings { partitions, ..TopicSettings::default() };
        self.broker.topics().put(&name, settings).unwrap();
        name
    }

    pub(crate) fn schedule(&self, topic: &TopicName, requests: Vec<Request>) -> Vec<Scheduled> {
        within_a_minute(self.broker.schedule(topic, requests)).unwrap()
    }

    /// One message without a key.
    pub(crate) fn send(&self, topic: &TopicName, when: When) -> Scheduled {
        self.schedule(topic, vec![request(when)])[0]
    }

    /// What each partition of a topic has received.
    pub(crate) fn logs(&self, topic: &TopicName) -> Vec<Vec<Delivered>> {
        let topic = self.broker.topics().by_name(topic).unwrap();
        let read = |number| {
            let partition = Partition::new(number).unwrap();
            let mut all: Vec<Delivered> = Vec::new();
            loop {
                let offset = all.last().map_or(0, |last| last.offset + 1);
                let from = LogPosition { topic: topic.id, partition, offset };
                let page = self.broker.topics().read(from, 1000).unwrap();
                if page.is_empty() {
                    return all;
                }
                all.extend(page);
            }
        };
        (0..topic.settings.partitions).map(read).collect()
    }

    /// The ids a topic has received, each once.
    pub(crate) fn received(&self, topic: &TopicName) -> Vec<MessageId> {
        let mut ids: Vec<MessageId> =
            self.logs(topic).into_iter().flatten().map(|delivered| delivered.id).collect();
        ids.sort();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count, "something was delivered twice");
        ids
    }

    /// Stops, so that what the outlet has taken is settled too, and counts what is left.
    pub(crate) fn stop_and_count_pending(&self) -> u64 {
        self.broker.stop();
        self.broker.stats().pending.iter().map(|(_, count)| count).sum()
    }
}

impl<S: Store> Drop for House<S> {
    fn drop(&mut self) {
        // A broker that is not stopped would fire on; stopping twice is fine.
        self.broker.stop();
    }
}

pub(crate) fn request(when: When) -> Request {
    Request::new(Message::default(), when)
}

pub(crate) fn with_body(when: When, body: impl Into<Bytes>) -> Request {
    let message = Message { body: body.into(), ..Message::default() };
    Request::new(message, when)
}

pub(crate) fn with_key(when: When, key: &str) -> Request {
    let message = Message { key: Some(key.to_owned().into()), ..Message::default() };
    Request::new(message, when)
}

pub(crate) fn soon(millis: u64) -> When {
    When::After(Span::from_millis(millis))
}

pub(crate) fn wall() -> Timestamp {
    SystemClock::new().read().timestamp()
}

/// What the gate does with a batch.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mood {
    #[default]
    Open,
    Refuse(StoreError),
    Panic,
}

#[derive(Debug, Default)]
struct State {
    mood: Mood,
    refused: usize,
    taken: Vec<MessageId>,
}

/// An outlet that can be told to refuse.
#[derive(Debug)]
pub(crate) struct Gate<S> {
    pub(crate) inner: Arc<S>,
    state: Mutex<State>,
    changed: Condvar,
}

impl<S> Gate<S> {
    pub(crate) fn set(&self, mood: Mood) {
        self.state.lock().mood = mood;
    }

    pub(crate) fn open(&self) {
        self.set(Mood::Open);
    }

    /// Waits until `count` messages went through in all, and answers them in order.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<MessageId> {
        self.wait_until(|state| state.taken.len() >= count).taken.clone()
    }

    /// Waits until a batch was refused `count` times in all.
    pub(crate) fn wait_for_refusals(&self, count: usize) {
        drop(self.wait_until(|state| state.refused >= count));
    }

    fn wait_until(&self, done: impl Fn(&State) -> bool) -> parking_lot::MutexGuard<'_, State> {
        let mut state = self.state.lock();
        while !done(&state) {
            let late = self.changed.wait_for(&mut state, PATIENCE).timed_out();
            assert!(!late, "waited for a minute in vain: {} taken", state.taken.len());
        }
        state
    }
}

impl<S: Outlet> Outlet for Gate<S> {
    async fn deliver(&self, batch: &[Armed], now: Timestamp) -> Result<Vec<Untaken>, StoreError> {
        let shown = wall();
        for armed in batch {
            assert!(armed.key.due <= shown, "due {} delivered at {shown}", armed.key.due);
        }
        let mood = self.state.lock().mood.clone();
        match mood {
            Mood::Open => drop(self.inner.deliver(batch, now).await?),
            Mood::Panic => panic!("told to panic"),
            Mood::Refuse(error) => {
                self.state.lock().refused += 1;
                self.changed.notify_all();
                return Err(error);
            }
        }
        self.state.lock().taken.extend(batch.iter().map(Armed::id));
        self.changed.notify_all();
        Ok(Vec::new())
    }
}
