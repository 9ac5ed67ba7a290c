//! The end of a topic's pause: what fell due meanwhile becomes due.
//!
//! Such messages are parked on the timeline with nothing left of their wait; a message that somebody
//! paused has some of it left and stays. The sweep needs no record of its own: whatever is parked so
//! in a topic that is not paused is to be woken, so at the start every topic with parked messages is
//! looked through, and a sweep that a crash has cut short goes on there. Series wait in the same way.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_executor::block_on;
use parking_lot::{Condvar, Mutex};
use punctual_model::ports::{PendingEntry, PendingQuery, StoreError, Timeline, Topics};
use punctual_model::{Key, Lane, Parked, Span, Timestamp, TopicId, TopicKind};

use crate::activity::Work;
use crate::moves::{revise_all, unpark};
use crate::time::BrokerTime;

/// Messages looked at with one call.
const PAGE_MAX: usize = 256;
/// How long to wait when the store has refused.
const REFUSED_WAIT: Duration = Duration::from_millis(100);

/// Wakes what a paused topic has put to sleep. Clones are handles of the same.
#[derive(Clone)]
pub(crate) struct Resume {
    desk: Arc<Desk>,
}

#[derive(Default)]
struct Desk {
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    asked: BTreeMap<TopicId, Work>,
    stopped: bool,
}

struct Sweep<T> {
    desk: Arc<Desk>,
    timeline: Arc<T>,
    topics: Arc<dyn Topics>,
    time: Arc<BrokerTime>,
}

impl Resume {
    /// Starts the thread that sweeps.
    ///
    /// # Errors
    /// As the operating system says.
    pub(crate) fn start<T: Timeline>(
        timeline: Arc<T>,
        topics: Arc<dyn Topics>,
        time: Arc<BrokerTime>,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let starting = time.activity().begin();
        let sweep = Sweep { desk: Arc::clone(&desk), timeline, topics, time };
        let thread = std::thread::Builder::new().name("punctual-resume".to_owned());
        let thread = thread.spawn(move || {
            let swept = sweep.begin(starting).and_then(|()| sweep.run());
            if let Err(error) = swept {
                tracing::error!(%error, "messages of topics that were paused are not woken");
            }
        })?;
        *desk.thread.lock() = Some(thread);
        Ok(Self { desk })
    }

    /// The pause of a topic has ended.
    pub(crate) fn ask(&self, topic: TopicId, work: Work) {
        self.desk.state.lock().asked.insert(topic, work);
        self.desk.changed.notify_one();
    }

    /// Ends the thread after the step it is at.
    pub(crate) fn stop(&self) {
        let mut state = self.desk.state.lock();
        state.stopped = true;
        state.asked.clear();
        self.desk.changed.notify_one();
        drop(state);
        if let Some(thread) = self.desk.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the waking of messages ended by a panic");
        }
    }
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").finish_non_exhaustive()
    }
}

impl<T: Timeline> Sweep<T> {
    /// Looks through the topics that have parked messages.
    fn begin(&self, starting: Work) -> Result<(), StoreError> {
        let counts = self.timeline.counts(Lane::Message);
        for (topic, _) in counts.into_iter().filter(|(_, pending)| *pending > 0) {
            if self.is_awake(topic) && self.parked(topic)? > 0 {
                self.sweep(topic, Lane::Message)?;
            }
        }
        // Few topics have series.
        for (topic, _) in self.timeline.counts(Lane::Retry) {
            self.sweep(topic, Lane::Retry)?;
        }
        drop(starting);
        Ok(())
    }

    fn run(&self) -> Result<(), StoreError> {
        loop {
            let mut state = self.desk.state.lock();
            let (topic, work) = loop {
                if state.stopped {
                    return Ok(());
                }
                if let Some(asked) = state.asked.pop_first() {
                    break asked;
                }
                self.desk.changed.wait(&mut state);
            };
            drop(state);
            for lane in Lane::ALL {
                self.sweep(topic, lane)?;
            }
            drop(work);
        }
    }

    fn parked(&self, topic: TopicId) -> Result<u64, StoreError> {
        let forecast = self.patiently(|| block_on(self.timeline.forecast(topic, Vec::new())))?;
        Ok(forecast.map_or(0, |forecast| forecast.paused))
    }

    fn sweep(&self, topic: TopicId, lane: Lane) -> Result<(), StoreError> {
        let mut after = None;
        while self.is_awake(topic) {
            let Some(next) = self.patiently(|| block_on(self.wake_page(topic, lane, after)))?
            else {
                return Ok(());
            };
            if next.is_none() {
                return Ok(());
            }
            after = next;
        }
        Ok(())
    }

    async fn wake_page(
        &self,
        topic: TopicId,
        lane: Lane,
        after: Option<Key>,
    ) -> Result<Option<Key>, StoreError> {
        let query = PendingQuery {
            from: Timestamp::PAUSED,
            after,
            ..PendingQuery::all_of(topic, lane, PAGE_MAX)
        };
        let page = self.timeline.pending(query).await?;
        let now = self.time.read().timestamp_up();
        let asleep = page.entries.iter().filter(|pending| sleeps(pending));
        let orders: Vec<_> = asleep.map(|pending| unpark(pending, now)).collect();
        if !orders.is_empty() {
            revise_all(&*self.timeline, orders).await?;
        }
        Ok(page.next)
    }

    /// Asks again while the store is full or busy. Nothing when the thread is to end.
    fn patiently<R>(
        &self,
        mut ask: impl FnMut() -> Result<R, StoreError>,
    ) -> Result<Option<R>, StoreError> {
        loop {
            if self.desk.state.lock().stopped {
                return Ok(None);
            }
            match ask() {
                Err(error) if error.passes() => {
                    let mut state = self.desk.state.lock();
                    if !state.stopped {
                        self.desk.changed.wait_for(&mut state, REFUSED_WAIT);
                    }
                }
                answer => return answer.map(Some),
            }
        }
    }

    /// Whether it is a topic that fires.
    fn is_awake(&self, topic: TopicId) -> bool {
        let topic = self.topics.by_id(topic);
        topic.is_some_and(|topic| topic.kind == TopicKind::Plain && !topic.settings.paused)
    }
}

/// Whether the message waits for its topic only.
fn sleeps(pending: &PendingEntry) -> bool {
    let parked = pending.extra.as_ref().and_then(|extra| extra.parked);
    matches!(parked, Some(Parked::Paused { remaining: Span::ZERO, .. }))
}
