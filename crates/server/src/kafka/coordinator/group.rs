//! One group: who is in it, and the only steps from one generation to the next.
//!
//! ```text
//! Empty ──join──► Preparing ──all joined, or time is up──► Completing ──leader syncs──► Stable
//!   ▲                │  ▲                                     │                           │
//!   └──all are gone──┘  └──────── somebody joins, leaves or is lost ──────────────────────┘
//! ```
//!
//! What must hold: a call that waits is answered when the group goes on, whatever way it goes; a
//! member without a call that waits has an alarm, so nobody is waited for who is gone.

mod joining;
mod generation;

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_broker::wheel::{self, Wheel};
use punctual_model::{GroupName, Span, Timestamp};

use super::member::Member;
use super::terms::{
    Effect, GroupShown, Identity, JoinAnswer, Phase, Refusal, SyncAnswer, Synced, Syncing, Ticket,
};

/// Something that happens unless somebody prevents it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    pub(super) group: GroupName,
    pub(super) what: What,
}

/// What an alarm is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The session of a member.
    Session(Arc<str>),
    /// Somebody who was told to come back.
    Pending(Arc<str>),
    /// The time to join, or to sync.
    Phase,
}

/// What a step may use.
pub(super) struct Env<'a> {
    pub(super) now: Timestamp,
    pub(super) wheel: &'a mut Wheel<Alarm>,
    pub(super) out: &'a mut Vec<Effect>,
    /// How long a group that was empty waits for more members.
    pub(super) delay: Span,
    pub(super) members_max: usize,
    /// Counts those who join.
    pub(super) order: &'a mut u64,
}

impl Env<'_> {
    fn arm(&mut self, group: &GroupName, after: Span, what: What) -> wheel::Ticket {
        let alarm = Alarm { group: group.clone(), what };
        self.wheel.insert(self.now.saturating_add(after), alarm)
    }

    fn disarm(&mut self, alarm: &mut Option<wheel::Ticket>) {
        if let Some(alarm) = alarm.take() {
            self.wheel.cancel(alarm);
        }
    }

    fn joined(&mut self, ticket: Ticket, answer: JoinAnswer) {
        self.out.push(Effect::Joined(ticket, answer));
    }

    fn synced(&mut self, ticket: Ticket, answer: SyncAnswer) {
        self.out.push(Effect::Synced(ticket, answer));
    }
}

/// The time in which the first members of a group come together.
#[derive(Debug)]
struct Gathering {
    /// How much longer it may be drawn out.
    left: Span,
    /// Whether somebody came since it was last drawn out.
    grew: bool,
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    name: GroupName,
    phase: Phase,
    generation: i32,
    protocol_type: Arc<str>,
    protocol: Option<Arc<str>>,
    leader: Option<Arc<str>>,
    members: BTreeMap<Arc<str>, Member>,
    /// The members that have given themselves a name.
    instances: BTreeMap<Arc<str>, Arc<str>>,
    /// Those who were told to come back.
    pending: BTreeMap<Arc<str>, wheel::Ticket>,
    gathering: Option<Gathering>,
    /// The end of the time to join, or to sync.
    alarm: Option<wheel::Ticket>,
}

impl Group {
    /// A group without members.
    pub(super) fn new(name: GroupName) -> Self {
        Self {
            name,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: "".into(),
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            gathering: None,
            alarm: None,
        }
    }

    /// Whether nothing would be missed without it.
    pub(super) fn is_gone(&self) -> bool {
        self.phase == Phase::Empty && self.pending.is_empty()
    }

    /// Whether nobody is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn protocol_type(&self) -> &Arc<str> {
        &self.protocol_type
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// What it takes of memory, about.
    pub(super) fn weight(&self) -> usize {
        let pending: usize = self.pending.keys().map(|id| id.len() + 64).sum();
        size_of::<Self>() + pending + self.members.values().map(Member::weight).sum::<usize>()
    }

    /// The group as it is shown.
    pub(super) fn shown(&self) -> GroupShown {
        let protocol = self.protocol.clone().filter(|_| self.phase == Phase::Stable);
        GroupShown {
            phase: self.phase,
            protocol_type: Arc::clone(&self.protocol_type),
            members: self.members.values().map(|one| one.shown(protocol.as_deref())).collect(),
            protocol,
        }
    }
}

// Shares and signs of life.
impl Group {
    /// A member asks for its share; the leader says what everybody's is.
    pub(super) fn sync(&mut self, env: &mut Env<'_>, ticket: Ticket, syncing: Syncing) {
        if let Err(refusal) = self.check_sync(&syncing) {
            return env.synced(ticket, Err(refusal));
        }
        let id = Arc::clone(&syncing.who.member);
        let leads = self.leader.as_ref() == Some(&id);
        let stable = self.phase == Phase::Stable;
        let Some(member) = self.members.get_mut(&id) else { return };
        member.synced = true;
        env.disarm(&mut member.alarm);
        if let Some(older) = member.sync.replace(ticket) {
            env.synced(older, Err(Refusal::Rebalancing));
        }
        if leads && !stable {
            // Who is not named gets nothing.
            self.members.values_mut().for_each(|member| member.share.clear());
            for (member, share) in syncing.shares {
                if let Some(member) = self.members.get_mut(&member) {
                    member.share = share;
                }
            }
            self.phase = Phase::Stable;
        }
        if self.phase == Phase::Stable {
            self.tell_shares(env);
        }
        if self.phase == Phase::Stable && self.members.values().all(|member| member.synced) {
            env.disarm(&mut self.alarm);
        }
    }

    fn check_sync(&self, syncing: &Syncing) -> Result<(), Refusal> {
        self.check(&syncing.who)?;
        if syncing.generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        let differs = |said: &Option<Arc<str>>, is: Option<&str>| {
            said.as_deref().is_some_and(|said| Some(said) != is)
        };
        if self.phase == Phase::Preparing {
            return Err(Refusal::Rebalancing);
        }
        if differs(&syncing.protocol_type, Some(&self.protocol_type))
            || differs(&syncing.protocol, self.protocol.as_deref())
        {
            return Err(Refusal::InconsistentProtocol);
        }
        Ok(())
    }

    fn tell_shares(&mut self, env: &mut Env<'_>) {
        let (protocol_type, protocol) = (Arc::clone(&self.protocol_type), self.protocol.clone());
        for member in self.members.values_mut() {
            let Some(waits) = member.sync.take() else { continue };
            let synced = Synced {
                protocol_type: Some(Arc::clone(&protocol_type)),
                protocol: protocol.clone(),
                share: member.share.clone(),
            };
            env.synced(waits, Ok(synced));
            let what = What::Session(Arc::clone(&member.id));
            member.alarm = Some(env.arm(&self.name, member.session, what));
        }
    }

    /// A member says that it lives.
    pub(super) fn heartbeat(
        &mut self,
        env: &mut Env<'_>,
        who: &Identity,
        generation: i32,
    ) -> Result<(), Refusal> {
        self.check(who)?;
        if generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        self.alive(env, &who.member);
        if self.phase == Phase::Preparing { Err(Refusal::Rebalancing) } else { Ok(()) }
    }

    /// Whether a commit of this member counts; without a generation it is that of somebody who is
    /// in no group.
    pub(super) fn commit(
        &mut self,
        env: &mut Env<'_>,
        who: &Identity,
        generation: i32,
    ) -> Result<(), Refusal> {
        if generation < 0 && self.members.is_empty() {
            return Ok(());
        }
        self.check(who)?;
        if generation != self.generation {
            return Err(Refusal::IllegalGeneration);
        }
        self.alive(env, &who.member);
        // It knows of the generation, but not yet what its share is.
        if self.phase == Phase::Completing { Err(Refusal::Rebalancing) } else { Ok(()) }
    }

    /// Somebody leaves, or is made to.
    pub(super) fn leave(&mut self, env: &mut Env<'_>, who: &Identity) -> Result<(), Refusal> {
        if let Some(alarm) = self.pending.remove(&who.member) {
            env.disarm(&mut Some(alarm));
            self.after_loss(env);
            return Ok(());
        }
        let id = match &who.instance {
            Some(instance) if who.member.is_empty() => {
                self.instances.get(instance).cloned().ok_or(Refusal::UnknownMember)?
            }
            _ => {
                self.check(who)?;
                Arc::clone(&who.member)
            }
        };
        self.remove(env, &id);
        self.stir(env);
        Ok(())
    }

    /// The session of a member has ended.
    pub(super) fn expire(&mut self, env: &mut Env<'_>, id: &Arc<str>) {
        let Some(member) = self.members.get_mut(id) else { return };
        member.alarm = None;
        self.remove(env, id);
        self.stir(env);
    }

    /// Somebody who was told to come back did not.
    pub(super) fn forget(&mut self, env: &mut Env<'_>, id: &Arc<str>) {
        self.pending.remove(id);
        self.after_loss(env);
    }

    /// Whoever made this call is gone. Its session runs from now on.
    pub(super) fn abandon(&mut self, env: &mut Env<'_>, ticket: Ticket) {
        let waits = |member: &&mut Member| [member.join, member.sync].contains(&Some(ticket));
        let Some(member) = self.members.values_mut().find(waits) else { return };
        let id = Arc::clone(&member.id);
        if member.sync.take().is_some() {
            member.synced = false;
        }
        member.join = None;
        self.alive(env, &id);
    }

    fn after_loss(&mut self, env: &mut Env<'_>) {
        if self.phase == Phase::Preparing {
            self.stir(env);
        }
    }

    /// The session of a member begins anew, unless it waits for an answer.
    fn alive(&mut self, env: &mut Env<'_>, id: &Arc<str>) {
        let Some(member) = self.members.get_mut(id) else { return };
        env.disarm(&mut member.alarm);
        if member.join.is_none() && member.sync.is_none() {
            let what = What::Session(Arc::clone(id));
            member.alarm = Some(env.arm(&self.name, member.session, what));
        }
    }

    fn remove(&mut self, env: &mut Env<'_>, id: &Arc<str>) {
        let Some(mut member) = self.members.remove(id) else { return };
        env.disarm(&mut member.alarm);
        if let Some(waits) = member.join.take() {
            env.joined(waits, Err((Refusal::UnknownMember, Arc::clone(id))));
        }
        if let Some(waits) = member.sync.take() {
            env.synced(waits, Err(Refusal::UnknownMember));
        }
        if let Some(instance) = &member.instance {
            self.instances.remove(instance);
        }
        if self.leader.as_ref() == Some(id) {
            let oldest = self.members.values().min_by_key(|member| member.order);
            self.leader = oldest.map(|member| Arc::clone(&member.id));
        }
    }

    /// Refuses whoever is not a member, and an instance whose place another has.
    fn check(&self, who: &Identity) -> Result<(), Refusal> {
        if let Some(instance) = &who.instance {
            let holder = self.instances.get(instance).ok_or(Refusal::UnknownMember)?;
            if *holder != who.member {
                return Err(Refusal::Fenced);
            }
        }
        if self.members.contains_key(&who.member) { Ok(()) } else { Err(Refusal::UnknownMember) }
    }
}
