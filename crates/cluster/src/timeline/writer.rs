//! The writer of a slot: gathers the calls that wait, decides them, and writes them down together.
//!
//! A batch is read for, decided under the lock, applied as one group and then carried out in memory.
//! While it is on its way nothing else changes the slot, and what it takes away is not handed out.
//! What the store did not do is undone; of what nobody knows whether it was done, the slot is read
//! again before anything else happens in it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use punctual_model::ports::{OnConflict, StoreError};
use punctual_model::{Lane, MessageId, TopicId};

use crate::store::{Change, Failure, Group, Outcome, Slot, SlotStore, Tenure};

use super::Phase;
use super::decide::{Decision, Desk, Reads};
use super::inner::{Inner, refusal};
use super::job::{Job, Remembered};

/// Calls that are written together.
const BATCH_JOBS: usize = 512;
/// Bytes of them.
const BATCH_BYTES: usize = 8 << 20;

/// Calls that were decided together.
struct Plan {
    jobs: Vec<(Job, Decision)>,
}

impl Plan {
    fn is_empty(&self) -> bool {
        self.jobs.iter().all(|(_, decision)| decision.changes.is_empty())
    }

    fn has_names(&self) -> bool {
        let mut changes = self.jobs.iter().flat_map(|(_, decision)| &decision.changes);
        changes.any(|change| matches!(change, Change::Name { .. }))
    }

    /// All changes. Only names can be in the way, so without one they are needed once.
    fn changes(&mut self) -> Vec<Change> {
        let again = self.has_names();
        let take = |decision: &mut Decision| {
            if again { decision.changes.clone() } else { std::mem::take(&mut decision.changes) }
        };
        self.jobs.iter_mut().flat_map(|(_, decision)| take(decision)).collect()
    }

    /// Takes the call out to which the change at this place belongs.
    fn take_out(&mut self, index: usize) -> Option<Job> {
        let mut seen = 0;
        let place = self.jobs.iter().position(|(_, decision)| {
            seen += decision.changes.len();
            index < seen
        })?;
        Some(self.jobs.remove(place).0)
    }

    fn answer(self) {
        for (job, decision) in self.jobs {
            job.answer(decision.answer);
        }
    }

    fn refuse(self, error: &StoreError) {
        for (job, _) in self.jobs {
            job.answer(Err(error.clone()));
        }
    }
}

/// Has a slot read again whose writer has failed in a way that nobody foresaw.
struct Rescue<'a, S: SlotStore> {
    inner: &'a Arc<Inner<S>>,
    tenure: Tenure,
}

impl<S: SlotStore> Drop for Rescue<'_, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(owned) = self.inner.state.lock().owned_mut(self.tenure) {
                owned.writing = false;
            }
            self.inner.reload(self.tenure);
        }
    }
}

/// Writes until nothing waits.
pub(super) async fn run<S: SlotStore>(inner: Arc<Inner<S>>, tenure: Tenure) {
    let rescue = Rescue { inner: &inner, tenure };
    while let Some(jobs) = inner.next_batch(tenure) {
        inner.write(tenure, jobs).await;
    }
    drop(rescue);
    // A slot that is to be let go may have waited for this.
    inner.signals.tenures.notify_one();
}

impl<S: SlotStore> Inner<S> {
    fn next_batch(&self, tenure: Tenure) -> Option<Vec<Job>> {
        let mut state = self.state.lock();
        let owned = state.owned_mut(tenure)?;
        let mut jobs = Vec::new();
        let mut bytes = 0;
        while jobs.len() < BATCH_JOBS && bytes < BATCH_BYTES && owned.phase != Phase::Reloading {
            let Some(job) = owned.queue.pop_front() else { break };
            owned.queue_bytes = owned.queue_bytes.saturating_sub(job.bytes);
            bytes += job.bytes;
            jobs.push(job);
        }
        if jobs.is_empty() {
            owned.writing = false;
            return None;
        }
        state.pass_on(tenure.slot);
        Some(jobs)
    }

    async fn write(self: &Arc<Self>, tenure: Tenure, jobs: Vec<Job>) {
        let counters = jobs.iter().map(Job::counters).sum();
        let reads = match self.read_for(tenure, &jobs).await {
            Ok(reads) => reads,
            Err(failure) => return self.refuse(jobs, &failure),
        };
        if let Err(failure) = self.reserve(tenure, counters).await {
            return self.refuse(jobs, &failure);
        }
        let Some(mut plan) = self.decide(tenure, jobs, &reads) else { return };
        while !plan.is_empty() {
            if let Err(failure) = self.lower_marks(tenure).await {
                return self.undo(tenure, plan, &failure);
            }
            let changes = plan.changes();
            let count = changes.len();
            match self.store.apply(vec![Group { tenure, changes }]).await {
                Ok(outcomes) => match outcomes.first() {
                    Some(Outcome::Done) => {
                        self.stats.commits.fetch_add(1, Ordering::Relaxed);
                        self.stats.changes.fetch_add(count as u64, Ordering::Relaxed);
                        return self.commit(tenure, plan);
                    }
                    Some(Outcome::NameTaken { index }) => {
                        self.decide_again(tenure, &mut plan, *index);
                    }
                    Some(Outcome::Fenced) | None => {
                        plan.refuse(&StoreError::Elsewhere);
                        return self.fenced(tenure);
                    }
                },
                Err(failure @ Failure::Unsure(_)) => {
                    let error = self.failed(&failure);
                    // First the slot stops, so that nobody who hears of this finds it as it was.
                    self.reload(tenure);
                    return plan.refuse(&error);
                }
                Err(failure) => return self.undo(tenure, plan, &failure),
            }
        }
        self.commit(tenure, plan);
    }

    /// Reads what the calls need and memory does not tell.
    async fn read_for(&self, tenure: Tenure, jobs: &[Job]) -> Result<Reads, Failure> {
        let mut reads = Reads::default();
        let mut by_topic: HashMap<TopicId, Vec<Arc<str>>> = HashMap::new();
        let mut replacing = HashSet::new();
        for (topic, text, conflict) in jobs.iter().flat_map(Job::own_ids) {
            if conflict == OnConflict::Replace {
                replacing.insert((topic, Arc::clone(&text)));
            }
            by_topic.entry(topic).or_default().push(text);
        }
        for (topic, texts) in by_topic {
            let found = self.store.names(topic, texts.clone()).await?;
            let named = texts.into_iter().map(|text| (topic, text)).zip(found);
            reads.names.extend(named);
        }
        let owners = replacing.iter().filter_map(|name| reads.names.get(name).copied().flatten());
        let owners = owners.map(|named| named.id);
        let owners = owners.filter(|id| Slot::of(id.key.sequence) == tenure.slot);
        let ids: HashSet<MessageId> = jobs.iter().flat_map(Job::ids).chain(owners).collect();
        let unknown: Vec<MessageId> = {
            let state = self.state.lock();
            let owned = state.owned(tenure);
            let here = |id: &MessageId| owned.is_some_and(|owned| owned.held(*id).is_some());
            ids.into_iter().filter(|id| !here(id)).collect()
        };
        if !unknown.is_empty() {
            let found = self.store.get(unknown.clone()).await?;
            reads.messages.extend(unknown.into_iter().zip(found));
        }
        Ok(reads)
    }

    /// Sees to it that so many counters may be given out.
    async fn reserve(self: &Arc<Self>, tenure: Tenure, counters: u64) -> Result<(), Failure> {
        loop {
            let short = {
                let state = self.state.lock();
                let counter = state.counter;
                let owned = state.owned(tenure);
                owned.is_some_and(|owned| counter + counters > owned.marks.counters_until)
            };
            if counters == 0 || !short {
                return Ok(());
            }
            self.keep([(tenure.slot, None)].into()).await?;
        }
    }

    /// Sees to it that whoever takes the slot over reads from where the earliest change is.
    async fn lower_marks(self: &Arc<Self>, tenure: Tenure) -> Result<(), Failure> {
        let needed = {
            let state = self.state.lock();
            state.owned(tenure).is_some_and(super::slot::Owned::needs_lower_marks)
        };
        if needed { self.keep([(tenure.slot, None)].into()).await } else { Ok(()) }
    }

    /// Decides the calls. One that shares a message or a name with one before it waits, and with it
    /// all behind it.
    fn decide(&self, tenure: Tenure, jobs: Vec<Job>, reads: &Reads) -> Option<Plan> {
        let now = self.now();
        let times = Remembered { since: now.saturating_sub(self.options.finished_after), now };
        let mut state = self.state.lock();
        let mut counter = state.counter;
        let Some(owned) = state.owned_mut(tenure) else {
            drop(state);
            self.refuse_lost(jobs);
            return None;
        };
        let last = owned.marks.counters_until;
        let mut names: HashSet<(TopicId, Arc<str>)> = HashSet::new();
        let mut touched: HashSet<MessageId> = HashSet::new();
        let mut decided = Vec::with_capacity(jobs.len());
        let mut jobs = jobs.into_iter();
        let mut waits = Vec::new();
        for job in jobs.by_ref() {
            let ids = job.ids();
            let own: Vec<_> =
                job.own_ids().into_iter().map(|(topic, text, _)| (topic, text)).collect();
            let shared = ids.iter().any(|id| touched.contains(id))
                || own.iter().any(|name| names.contains(name))
                // Others have counted on since they were reserved.
                || (job.counters() > 0 && counter + job.counters() > last);
            if shared {
                waits.push(job);
                break;
            }
            let decision = Desk::new(owned, reads, times, &mut counter).decide(&job);
            let left: Vec<MessageId> = decision
                .effects
                .iter()
                .filter_map(|effect| effect.left())
                .map(|left| left.1)
                .collect();
            if left.iter().any(|id| touched.contains(id)) {
                waits.push(job);
                break;
            }
            touched.extend(ids.into_iter().chain(left));
            names.extend(own);
            decided.push((job, decision));
        }
        waits.extend(jobs);
        for job in waits.into_iter().rev() {
            owned.queue_bytes += job.bytes;
            owned.queue.push_front(job);
        }
        for effect in decided.iter().flat_map(|(_, decision)| &decision.effects) {
            owned.begin(effect);
        }
        state.counter = counter;
        Some(Plan { jobs: decided })
    }

    /// Somebody else got a name meanwhile: the call is decided again, with what is there now.
    fn decide_again(&self, tenure: Tenure, plan: &mut Plan, index: usize) {
        let Some(job) = plan.take_out(index) else { return };
        let mut state = self.state.lock();
        let Some(owned) = state.owned_mut(tenure) else {
            drop(state);
            return self.refuse_lost(vec![job]);
        };
        owned.nothing_on_its_way();
        for effect in plan.jobs.iter().flat_map(|(_, decision)| &decision.effects) {
            owned.begin(effect);
        }
        owned.queue_bytes += job.bytes;
        owned.queue.push_front(job);
    }

    /// What was written down is carried out in memory, and answered.
    fn commit(self: &Arc<Self>, tenure: Tenure, mut plan: Plan) {
        let now = self.now();
        let mut woken = [false; 2];
        {
            let mut state = self.state.lock();
            let armed_until = state.armed_until;
            let crowded = state.is_crowded(&self.options);
            // Without the slot it is the next owner's: it was done all the same.
            if let Some(owned) = state.owned_mut(tenure) {
                owned.nothing_on_its_way();
                for (_, decision) in &mut plan.jobs {
                    for effect in std::mem::take(&mut decision.effects) {
                        let Some(key) = effect.to() else {
                            owned.carry_out(effect);
                            continue;
                        };
                        owned.carry_out(effect);
                        let lane = key.sequence.lane().index();
                        woken[lane] |= key.due < armed_until[lane];
                    }
                }
                state.make_room(now, &self.options);
                if crowded {
                    // What has left may have made room for what waits to be read.
                    self.signals.pages.notify_one();
                }
            }
        }
        plan.answer();
        self.wake(woken);
    }

    /// The store did not do it.
    fn undo(&self, tenure: Tenure, plan: Plan, failure: &Failure) {
        let error = self.failed(failure);
        if let Some(owned) = self.state.lock().owned_mut(tenure) {
            owned.nothing_on_its_way();
        }
        plan.refuse(&error);
        // What was not handed out because of it may be now.
        self.wake([true; Lane::ALL.len()]);
    }

    fn refuse(&self, jobs: Vec<Job>, failure: &Failure) {
        let error = self.failed(failure);
        for job in jobs {
            job.answer(Err(error.clone()));
        }
    }

    fn failed(&self, failure: &Failure) -> StoreError {
        self.stats.failures.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%failure, "the store did not carry out a change");
        refusal(failure)
    }
}
