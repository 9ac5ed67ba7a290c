//! All groups that have members: the whole coordinator, without a clock, a network or a disk.
//!
//! Time enters as a number with every step; what a step brings about leaves as [`Effect`]s. What
//! must hold: whatever was let in is counted, and nothing is let in past the [`Bounds`]; a group
//! without members, and without anybody who was told to come back, takes no memory.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use punctual_broker::wheel::Wheel;
use punctual_model::{GroupName, Span, Timestamp};

use super::group::{Alarm, Env, Group, What};
use super::member;
use super::terms::{Effect, GroupShown, Identity, Joining, Phase, Refusal, Syncing, Ticket};

/// What the coordinator takes at most, and how patient it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Groups with members.
    pub(crate) groups: usize,
    /// Members of one group.
    pub(crate) members: usize,
    /// Bytes of one group.
    pub(crate) group_bytes: usize,
    /// Bytes of all groups.
    pub(crate) bytes: usize,
    /// The shortest session.
    pub(crate) session_min: Span,
    /// The longest session.
    pub(crate) session_max: Span,
    /// How long a group that was empty waits for more members, before the first of them have to
    /// share everything only to share it again.
    pub(crate) delay: Span,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            groups: 20_000,
            members: 1000,
            group_bytes: 16 << 20,
            bytes: 64 << 20,
            // Whoever asks for so short a session wants to be missed soon; below it a busy machine
            // would throw out members that live.
            session_min: Span::from_secs(1),
            session_max: Span::from_secs(30 * 60),
            // Members that start together arrive within a blink on one machine. Longer makes every
            // single consumer wait before its first message.
            delay: Span::from_millis(100),
        }
    }
}

/// All groups that have members.
#[derive(Debug)]
pub(crate) struct Machine {
    bounds: Bounds,
    groups: HashMap<GroupName, Group>,
    /// Of all groups together.
    bytes: usize,
    wheel: Wheel<Alarm>,
    order: u64,
}

impl Machine {
    /// No groups, at the time `now`.
    pub(crate) fn new(bounds: Bounds, now: Timestamp) -> Self {
        Self { bounds, groups: HashMap::new(), bytes: 0, wheel: Wheel::new(now), order: 0 }
    }

    /// When to call [`advance`](Self::advance) next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.wheel.next_due()
    }

    /// Does what is due by now.
    pub(crate) fn advance(&mut self, now: Timestamp, out: &mut Vec<Effect>) {
        let mut due = Vec::new();
        self.wheel.advance(now, &mut due);
        for (_, Alarm { group, what }) in due {
            self.step(now, &group, out, |group, env| match &what {
                What::Session(id) => group.expire(env, id),
                What::Pending(id) => group.forget(env, id),
                What::Phase => group.time_is_up(env),
            });
        }
    }

    /// Somebody wants to be a member, or to stay one. The answer comes as an effect.
    pub(crate) fn join(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        joining: Joining,
        out: &mut Vec<Effect>,
    ) {
        if let Err(refusal) = self.admit(&joining) {
            let id = joining.member.unwrap_or_default();
            out.push(Effect::Joined(ticket, Err((refusal, id))));
            return;
        }
        let name = joining.group.clone();
        if !self.groups.contains_key(&name) {
            let group = Group::new(name.clone());
            self.bytes += group.weight();
            self.groups.insert(name.clone(), group);
        }
        self.step(now, &name, out, |group, env| group.join(env, ticket, joining));
    }

    fn admit(&self, joining: &Joining) -> Result<(), Refusal> {
        let Bounds { session_min, session_max, .. } = self.bounds;
        if joining.session < session_min || joining.session > session_max {
            return Err(Refusal::InvalidSession);
        }
        let group = self.groups.get(&joining.group);
        if group.is_none() && joining.member.is_some() {
            return Err(Refusal::UnknownMember);
        }
        let more = member::weight(&joining.protocols) + 1024;
        if group.is_some_and(|group| group.weight() + more > self.bounds.group_bytes) {
            return Err(Refusal::Full);
        }
        let crowded = group.is_none() && self.groups.len() >= self.bounds.groups;
        if crowded || self.bytes + more > self.bounds.bytes {
            return Err(Refusal::NotNow);
        }
        Ok(())
    }

    /// A member asks for its share. The answer comes as an effect.
    pub(crate) fn sync(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        syncing: Syncing,
        out: &mut Vec<Effect>,
    ) {
        let more: usize = syncing.shares.iter().map(|(_, share)| share.len()).sum();
        let refusal = match self.groups.get(&syncing.group) {
            None => Some(Refusal::UnknownMember),
            Some(group) => {
                let fits = group.weight() + more <= self.bounds.group_bytes
                    && self.bytes + more <= self.bounds.bytes;
                (!fits).then_some(Refusal::TooLarge)
            }
        };
        if let Some(refusal) = refusal {
            out.push(Effect::Synced(ticket, Err(refusal)));
            return;
        }
        let name = syncing.group.clone();
        self.step(now, &name, out, |group, env| group.sync(env, ticket, syncing));
    }

    /// A member says that it lives.
    ///
    /// # Errors
    /// [`Refusal::Rebalancing`] when it is to join again, and whatever else it has to know.
    pub(crate) fn heartbeat(
        &mut self,
        now: Timestamp,
        group: &GroupName,
        (who, generation): (&Identity, i32),
    ) -> Result<(), Refusal> {
        let mut out = Vec::new();
        self.step(now, group, &mut out, |group, env| group.heartbeat(env, who, generation))
            .unwrap_or(Err(Refusal::UnknownMember))
    }

    /// Whether a commit counts.
    ///
    /// # Errors
    /// As [`heartbeat`](Self::heartbeat).
    pub(crate) fn commit(
        &mut self,
        now: Timestamp,
        group: &GroupName,
        (who, generation): (&Identity, i32),
    ) -> Result<(), Refusal> {
        let mut out = Vec::new();
        let alone = if generation < 0 { Ok(()) } else { Err(Refusal::IllegalGeneration) };
        self.step(now, group, &mut out, |group, env| group.commit(env, who, generation))
            .unwrap_or(alone)
    }

    /// Somebody leaves, or is made to.
    ///
    /// # Errors
    /// When there is nobody like that.
    pub(crate) fn leave(
        &mut self,
        now: Timestamp,
        group: &GroupName,
        who: &Identity,
        out: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.step(now, group, out, |group, env| group.leave(env, who))
            .unwrap_or(Err(Refusal::UnknownMember))
    }

    /// Whoever made this call is gone.
    pub(crate) fn abandon(
        &mut self,
        now: Timestamp,
        group: &GroupName,
        ticket: Ticket,
        out: &mut Vec<Effect>,
    ) {
        self.step(now, group, out, |group, env| group.abandon(env, ticket));
    }

    /// One step of a group that is there. It is forgotten if nobody is left.
    fn step<T>(
        &mut self,
        now: Timestamp,
        name: &GroupName,
        out: &mut Vec<Effect>,
        step: impl FnOnce(&mut Group, &mut Env<'_>) -> T,
    ) -> Option<T> {
        let group = self.groups.get_mut(name)?;
        let before = group.weight();
        let mut env = Env {
            now,
            wheel: &mut self.wheel,
            out,
            delay: self.bounds.delay,
            members_max: self.bounds.members,
            order: &mut self.order,
        };
        let answer = step(group, &mut env);
        let after = if group.is_gone() { 0 } else { group.weight() };
        self.bytes = self.bytes.saturating_sub(before) + after;
        if after == 0 {
            self.groups.remove(name);
        }
        Some(answer)
    }
}

// What is shown.
impl Machine {
    /// A group that has members, as it is shown.
    pub(crate) fn shown(&self, group: &GroupName) -> Option<GroupShown> {
        self.groups.get(group).map(Group::shown)
    }

    /// Whether somebody is in the group.
    pub(crate) fn has_members(&self, group: &GroupName) -> bool {
        self.groups.get(group).is_some_and(|group| !group.is_empty())
    }

    /// The groups there are, with where they are in their life and what they are for.
    pub(crate) fn list(&self) -> Vec<(GroupName, Phase, Arc<str>)> {
        let one = |(name, group): (&GroupName, &Group)| {
            (name.clone(), group.phase(), Arc::clone(group.protocol_type()))
        };
        self.groups.iter().map(one).collect()
    }

    /// What the members of a group have said about themselves, with what the group is for; none
    /// without members.
    pub(crate) fn said(&self, group: &GroupName) -> Option<(Arc<str>, Vec<Bytes>)> {
        let group = self.groups.get(group).filter(|group| !group.is_empty())?;
        let protocols = group.members().flat_map(|member| &member.protocols);
        let said = protocols.map(|protocol| protocol.metadata.clone()).collect();
        Some((Arc::clone(group.protocol_type()), said))
    }

    /// Bytes that the groups take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}
