//! Keeps the figures: adds what was counted before this start to what is counted now, writes it down
//! every few seconds, and a point whenever ten minutes are over.
//!
//! One thread at a time looks and writes; whoever asks for figures never waits for the store. What
//! cannot be written waits, up to a bound.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_model::Timestamp;
use punctual_model::ports::{POINTS_KEPT, StoreError, StoredPoint, Trends};
use tokio::runtime::Handle;
use tracing::{error, info, warn};

use crate::access::AppIdentity;
use crate::backend::ALONE;
use crate::tasks::Tasks;
use crate::trends::counts::{MessageCounts, SentCounts, Tally};
use crate::trends::files::TrendFiles;
use crate::trends::point::Point;
use crate::trends::saved::Saved;
use crate::trends::window::{Look, Window, start_of, turn};

/// How often what was counted is written down, if it has changed.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
/// How often somebody looks whether ten minutes are over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Points that may wait to be written: those of a day.
const UNWRITTEN_MAX: usize = 144;

/// Where figures are kept, and what is there.
pub(crate) struct Kept {
    pub(crate) store: Arc<dyn Trends>,
    /// The name of this node.
    pub(crate) node: Arc<str>,
    /// Whether there may be others.
    pub(crate) shared: bool,
    /// What all nodes have written of themselves.
    pub(crate) totals: Vec<(Arc<str>, Saved)>,
}

impl Kept {
    /// Reads what is there.
    ///
    /// # Errors
    /// As the store says. What is damaged is said in the log and left out.
    pub(crate) async fn read(
        store: Arc<dyn Trends>,
        node: Arc<str>,
        shared: bool,
    ) -> Result<Self, StoreError> {
        let totals = read_totals(&*store, |node, reason| {
            warn!(%node, reason, "the totals of a node are not counted");
        });
        let totals = totals.await?;
        Ok(Self { store, node, shared, totals })
    }

    /// What the store of a cluster holds.
    ///
    /// # Errors
    /// As the store says.
    #[cfg(feature = "cluster")]
    pub(crate) async fn of_cluster(store: Arc<dyn Trends>) -> Result<Self, StoreError> {
        Self::read(store, ALONE.into(), true).await
    }

    /// The same for the node that has this name and this data directory. The name alone is not
    /// enough: two that have it by mistake would write over each other's figures.
    #[cfg(feature = "cluster")]
    pub(crate) fn named(self, name: &str, directory: &crate::kafka::ClusterId) -> Self {
        use sha2::Digest as _;
        let number = sha2::Sha256::digest(directory.as_str());
        let digits: String = number.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Self { node: format!("{name}-{digits}").into(), ..self }
    }

    /// What the files of this machine hold. Blocks on the disk.
    pub(crate) fn of_machine(files: TrendFiles, handle: &Handle) -> Self {
        let (store, node): (Arc<dyn Trends>, Arc<str>) = (Arc::new(files), ALONE.into());
        let read = handle.block_on(Self::read(Arc::clone(&store), Arc::clone(&node), false));
        read.unwrap_or_else(|error| {
            error!(%error, "what was counted before cannot be read; counting begins anew");
            Self { store, node, shared: false, totals: Vec::new() }
        })
    }
}

/// What the figures are kept with.
pub(crate) struct KeeperParts {
    pub(crate) kept: Kept,
    pub(crate) look: Box<dyn Fn() -> Look + Send + Sync>,
    pub(crate) now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

/// Keeps the figures.
pub(crate) struct Keeper {
    store: Arc<dyn Trends>,
    node: Arc<str>,
    shared: bool,
    look: Box<dyn Fn() -> Look + Send + Sync>,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
    handle: Handle,
    /// Held by whoever looks and writes.
    work: Mutex<Work>,
    state: Mutex<State>,
}

/// What only whoever writes needs.
#[derive(Default)]
struct Work {
    saved: Option<Saved>,
    /// The store did not take something, and that was said.
    is_failing: bool,
}

struct State {
    /// What was counted before this start.
    base: Tally,
    window: Window,
    /// Points that are over and not in the store yet, the oldest first.
    unwritten: VecDeque<Point>,
    /// What other nodes have written of themselves, those that are gone too.
    others: Vec<(Arc<str>, Saved)>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Goes on from what was written before. Blocks.
    pub(crate) fn open(parts: KeeperParts, handle: Handle) -> Self {
        let KeeperParts { kept, look, now } = parts;
        let Kept { store, node, shared, mut totals } = kept;
        let own = totals.iter().position(|(of, _)| *of == node);
        let own = own.map(|place| totals.swap_remove(place).1);
        let Saved { tally, point } = own.unwrap_or_default();
        let (seen, time) = (look(), now());
        let mut unwritten = VecDeque::new();
        let goes_on = point.as_ref().is_some_and(|point| turn(point.start(), time).is_none());
        let (at, before) = match point {
            Some(point) if goes_on => (point.start(), Some(point)),
            point => {
                // It was over while nobody was there.
                unwritten.extend(point);
                let at = start_of(time);
                let before = handle.block_on(written(&*store, &node, at));
                (at, before.unwrap_or_default())
            }
        };
        let window = Window::begin(at, seen, before);
        let state = Mutex::new(State { base: tally, window, unwritten, others: totals });
        Self { store, node, shared, look, now, handle, work: Mutex::default(), state }
    }

    /// Looks and writes from time to time until the tasks are asked to stop.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Tasks) {
        let (keeper, own) = (Arc::clone(self), tasks.clone());
        tasks.spawn(async move {
            let mut interval = tokio::time::interval(LOOK_INTERVAL);
            interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut saved_at = tokio::time::Instant::now();
            loop {
                tokio::select! {
                    _ = interval.tick() => {}
                    () = own.stopped() => return,
                }
                if saved_at.elapsed() >= SAVE_INTERVAL {
                    let keeper = Arc::clone(&keeper);
                    // A panic was told where it happened; the next turn may fare better.
                    let _ended = own.blocking(move || keeper.save()).await.is_ok();
                    saved_at = tokio::time::Instant::now();
                } else if keeper.is_over() {
                    let keeper = Arc::clone(&keeper);
                    let _ended = own.blocking(move || keeper.turn_over()).await.is_ok();
                }
            }
        });
    }

    fn is_over(&self) -> bool {
        turn(self.state.lock().window.at(), (self.now)()).is_some()
    }

    /// If ten minutes are over, their point is written and the next ones begin. Blocks.
    pub(crate) fn turn_over(&self) {
        let mut work = self.work.lock();
        if self.is_over() {
            self.turn_to(&mut work);
        }
    }

    /// Writes down what was counted. Blocks.
    pub(crate) fn save(&self) {
        let mut work = self.work.lock();
        if self.is_over() {
            self.turn_to(&mut work);
        } else {
            let look = (self.look)();
            self.write(&mut work, &look);
        }
    }

    fn turn_to(&self, work: &mut Work) {
        let now = (self.now)();
        let look = (self.look)();
        let at = start_of(now);
        // Nothing, but where the clock was set back.
        let before = match self.handle.block_on(written(&*self.store, &self.node, at)) {
            Ok(before) => before,
            Err(error) => {
                self.failed(work, &error);
                None
            }
        };
        {
            let mut state = self.state.lock();
            let point = state.window.point(&look);
            let waiting = state.unwritten.iter().position(|point| point.start() == at);
            let waiting = waiting.and_then(|place| state.unwritten.remove(place));
            state.unwritten.push_back(point);
            if state.unwritten.len() > UNWRITTEN_MAX {
                state.unwritten.pop_front();
            }
            state.window = Window::begin(at, look.clone(), waiting.or(before));
        }
        self.write(work, &look);
        self.forget(work, now);
    }

    /// Writes what waits, and then what was counted: a crash in between loses nothing.
    fn write(&self, work: &mut Work, look: &Look) {
        match self.handle.block_on(self.write_all(work, look)) {
            Ok(()) if work.is_failing => {
                work.is_failing = false;
                info!("the figures of this node are written down again");
            }
            Ok(()) => {}
            Err(error) => self.failed(work, &error),
        }
    }

    async fn write_all(&self, work: &mut Work, look: &Look) -> Result<(), StoreError> {
        let store = &*self.store;
        loop {
            let Some(point) = self.state.lock().unwritten.front().cloned() else { break };
            let known = written(store, &self.node, point.start()).await?;
            if known.is_none_or(|known| known.activity() <= point.activity()) {
                let content = serde_json::to_vec(&point).map_err(unwritable)?.into();
                let (at, node) = (point.start(), Arc::clone(&self.node));
                store.put_point(StoredPoint { at, node, content }).await?;
            }
            self.state.lock().unwritten.retain(|waiting| *waiting != point);
        }
        let saved = {
            let mut state = self.state.lock();
            state.base.keep(|topic| look.topics.contains_key(&topic), &look.apps);
            let tally = state.base.plus(&look.tally);
            Saved { tally, point: Some(state.window.point(look)) }
        };
        if work.saved.as_ref().is_none_or(|earlier| !saved.is_as(earlier)) {
            let content = Bytes::from(saved.encode());
            store.put_totals(Arc::clone(&self.node), content).await?;
            work.saved = Some(saved);
        }
        if self.shared {
            // What cannot be read was said at the start, or by whoever wrote it.
            let mut others = read_totals(store, |_, _| {}).await?;
            others.retain(|(node, _)| *node != self.node);
            self.state.lock().others = others;
        }
        Ok(())
    }

    fn forget(&self, work: &mut Work, now: Timestamp) {
        let before = now.saturating_sub(POINTS_KEPT);
        if let Err(error) = self.handle.block_on(self.store.forget(before)) {
            self.failed(work, &error);
        }
    }

    fn failed(&self, work: &mut Work, error: &StoreError) {
        if !work.is_failing {
            work.is_failing = true;
            warn!(node = %self.node, %error, "the figures of this node cannot be written down");
        }
    }

    /// All that was counted, by what this process has counted.
    pub(crate) fn whole(&self, counted: MessageCounts) -> MessageCounts {
        self.sum(counted, MessageCounts::plus, |tally| Some(tally.whole))
    }

    /// The same for a topic.
    pub(crate) fn topic(&self, topic: u32, counted: MessageCounts) -> MessageCounts {
        self.sum(counted, MessageCounts::plus, |tally| tally.topics.get(&topic).copied())
    }

    /// The same for an app.
    pub(crate) fn app(&self, app: &AppIdentity, counted: SentCounts) -> SentCounts {
        self.sum(counted, SentCounts::plus, |tally| tally.apps.get(app).copied())
    }

    fn sum<C>(&self, counted: C, plus: fn(C, C) -> C, of: impl Fn(&Tally) -> Option<C>) -> C {
        let state = self.state.lock();
        let others = state.others.iter().map(|(_, saved)| &saved.tally);
        others.chain([&state.base]).filter_map(of).fold(counted, plus)
    }

    /// The points in the store that start in `from..until`, by time and node. Blocks.
    ///
    /// # Errors
    /// As the store says.
    pub(crate) fn stored(
        &self,
        from: Timestamp,
        until: Timestamp,
    ) -> Result<Vec<(Arc<str>, Point)>, StoreError> {
        let stored = self.handle.block_on(self.store.points(from, until))?;
        let read = |StoredPoint { at, node, content }: StoredPoint| match serde_json::from_slice::<
            Point,
        >(&content)
        {
            Ok(point) => Some((node, Point { at: at.as_millis(), ..point })),
            Err(error) => {
                warn!(%node, %at, %error, "a point of the trends cannot be read");
                None
            }
        };
        Ok(stored.into_iter().filter_map(read).collect())
    }

    /// What is not in the store yet, and what is under way, here and elsewhere.
    pub(crate) fn open_points(&self) -> Vec<(Arc<str>, Point)> {
        let look = (self.look)();
        let state = self.state.lock();
        let own = state.unwritten.iter().cloned().chain([state.window.point(&look)]);
        let own = own.map(|point| (Arc::clone(&self.node), point));
        let of_other = |(node, saved): &(Arc<str>, Saved)| {
            saved.point.clone().map(|point| (Arc::clone(node), point))
        };
        own.chain(state.others.iter().filter_map(of_other)).collect()
    }
}

/// What all nodes have written of themselves; `left_out` hears of what cannot be read, and why.
async fn read_totals(
    store: &dyn Trends,
    left_out: impl Fn(&str, &str),
) -> Result<Vec<(Arc<str>, Saved)>, StoreError> {
    let mut read = Vec::new();
    for (node, content) in store.totals().await? {
        match Saved::decode(&content) {
            Ok(saved) => read.push((node, saved)),
            Err(reason) => left_out(&node, reason),
        }
    }
    Ok(read)
}

/// What a node has written for the ten minutes that start then.
async fn written(
    store: &dyn Trends,
    node: &str,
    at: Timestamp,
) -> Result<Option<Point>, StoreError> {
    let until = Timestamp::from_millis_saturating(at.as_millis() + 1);
    let points = store.points(at, until).await?;
    let own = points.into_iter().find(|point| &*point.node == node);
    Ok(own.and_then(|point| serde_json::from_slice(&point.content).ok()))
}

fn unwritable(error: serde_json::Error) -> StoreError {
    StoreError::Damaged(error.to_string().into())
}

#[cfg(test)]
mod tests;
