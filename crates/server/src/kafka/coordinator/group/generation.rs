//! From one generation to the next.

use std::sync::Arc;

use punctual_model::Span;

use super::{Env, Gathering, Group, What};
use crate::kafka::coordinator::member::Member;
use crate::kafka::coordinator::terms::{Phase, Refusal};

impl Group {
    /// Goes on after somebody came, went, or joined again.
    pub(super) fn stir(&mut self, env: &mut Env<'_>) {
        if self.members.is_empty() {
            return self.become_empty(env);
        }
        if self.phase != Phase::Preparing {
            self.prepare(env);
        }
        let all = self.members.values().all(|member| member.join.is_some());
        if all && self.pending.is_empty() && self.gathering.is_none() {
            self.complete(env);
        }
    }

    fn prepare(&mut self, env: &mut Env<'_>) {
        env.disarm(&mut self.alarm);
        if self.phase == Phase::Completing {
            self.break_off(env);
        }
        let whole = self.time_to_join();
        let wait = if self.phase == Phase::Empty {
            let first = env.delay.min(whole);
            let left = Span::from_millis(whole.as_millis() - first.as_millis());
            self.gathering = Some(Gathering { left, grew: false });
            first
        } else {
            whole
        };
        self.phase = Phase::Preparing;
        self.alarm = Some(env.arm(&self.name, wait, What::Phase));
    }

    /// Nobody gets a share of this generation any more.
    fn break_off(&mut self, env: &mut Env<'_>) {
        for member in self.members.values_mut() {
            member.share.clear();
            if let Some(waits) = member.sync.take() {
                env.synced(waits, Err(Refusal::Rebalancing));
                let what = What::Session(Arc::clone(&member.id));
                member.alarm = Some(env.arm(&self.name, member.session, what));
            }
        }
    }

    fn time_to_join(&self) -> Span {
        let longest = self.members.values().map(|member| member.rebalance).max();
        longest.unwrap_or(Span::ZERO)
    }

    /// The time to join, or to sync, is up.
    pub(in super::super) fn time_is_up(&mut self, env: &mut Env<'_>) {
        self.alarm = None;
        match self.phase {
            Phase::Empty => {}
            Phase::Preparing => self.stop_waiting(env),
            Phase::Completing | Phase::Stable => {
                let late = self.members.values().filter(|member| !member.synced);
                let late: Vec<Arc<str>> = late.map(|member| Arc::clone(&member.id)).collect();
                for id in &late {
                    self.remove(env, id);
                }
                if !late.is_empty() {
                    self.stir(env);
                }
            }
        }
    }

    /// Goes on with those who are there, unless a group that begins is still growing.
    fn stop_waiting(&mut self, env: &mut Env<'_>) {
        if let Some(gathering) = &mut self.gathering {
            let more = env.delay.min(gathering.left);
            if gathering.grew && more > Span::ZERO {
                let left = gathering.left.as_millis() - more.as_millis();
                *gathering = Gathering { left: Span::from_millis(left), grew: false };
                self.alarm = Some(env.arm(&self.name, more, What::Phase));
                return;
            }
        }
        self.complete(env);
    }

    fn complete(&mut self, env: &mut Env<'_>) {
        env.disarm(&mut self.alarm);
        self.gathering = None;
        // Who has a name of its own may come back to its place while its session lasts.
        let late = |member: &&Member| member.join.is_none() && member.instance.is_none();
        let late = self.members.values().filter(late).map(|member| Arc::clone(&member.id));
        for id in late.collect::<Vec<_>>() {
            self.remove(env, &id);
        }
        if self.members.is_empty() {
            return self.become_empty(env);
        }
        let there = self.members.values().filter(|member| member.join.is_some());
        let Some(first) = there.min_by_key(|member| member.order) else {
            self.alarm = Some(env.arm(&self.name, self.time_to_join(), What::Phase));
            return;
        };
        let first = Arc::clone(&first.id);
        let leader = self.leader.as_ref().and_then(|leader| self.members.get(leader));
        if leader.is_none_or(|leader| leader.join.is_none()) {
            self.leader = Some(first);
        }
        self.generation = next_generation(self.generation);
        self.protocol = self.select();
        self.phase = Phase::Completing;
        self.alarm = Some(env.arm(&self.name, self.time_to_join(), What::Phase));
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for id in ids {
            self.tell_joined(env, &id);
        }
    }

    fn tell_joined(&mut self, env: &mut Env<'_>, id: &Arc<str>) {
        let answer = self.membership(id);
        let Some(member) = self.members.get_mut(id) else { return };
        member.synced = false;
        if let Some(waits) = member.join.take() {
            env.joined(waits, Ok(answer));
            self.alive(env, id);
        }
    }

    fn become_empty(&mut self, env: &mut Env<'_>) {
        env.disarm(&mut self.alarm);
        self.generation = next_generation(self.generation);
        self.phase = Phase::Empty;
        self.protocol = None;
        self.leader = None;
        self.gathering = None;
    }

    /// The way to share that everybody knows and most like best; of several such the one that
    /// comes first with who was there first.
    pub(super) fn select(&self) -> Option<Arc<str>> {
        let everybody = |name: &str| self.members.values().all(|member| member.knows(name));
        let first = self.members.values().min_by_key(|member| member.order)?;
        let mut best: Option<(usize, &Arc<str>)> = None;
        for candidate in first.protocols.iter().filter(|protocol| everybody(&protocol.name)) {
            let favours = |member: &&Member| {
                let favourite = member.protocols.iter().find(|protocol| everybody(&protocol.name));
                favourite.is_some_and(|favourite| favourite.name == candidate.name)
            };
            let votes = self.members.values().filter(favours).count();
            if best.is_none_or(|(most, _)| votes > most) {
                best = Some((votes, &candidate.name));
            }
        }
        best.map(|(_, name)| Arc::clone(name))
    }
}

/// A generation is never negative: that is how one says that one has none.
fn next_generation(generation: i32) -> i32 {
    generation.checked_add(1).unwrap_or(1)
}
