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

use std::collections::BTreeMap;
use std::sync::Arc;

use punctual_broker::wheel::{self, Wheel};
use punctual_model::{GroupName, Span, Timestamp};

use super::member::Member;
use super::terms::{
    Effect, GroupShown, Identity, JoinAnswer, Joined, Joining, Phase, Refusal, SyncAnswer, Synced,
    Syncing, Ticket,
};

/// Longest part of a member's id that tells which client it is.
const CLIENT_CHARS_MAX: usize = 200;

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

// Joining.
impl Group {
    /// Somebody wants to be a member, or to stay one.
    pub(super) fn join(&mut self, env: &mut Env<'_>, ticket: Ticket, joining: Joining) {
        let echo = joining.member.clone().unwrap_or_default();
        if !self.supports(&joining) {
            return env.joined(ticket, Err((Refusal::InconsistentProtocol, echo)));
        }
        let refused = match joining.member.clone() {
            None => self.join_anew(env, ticket, joining),
            Some(id) => self.join_again(env, ticket, id, joining),
        };
        if let Err((refusal, id)) = refused {
            env.joined(ticket, Err((refusal, id.unwrap_or(echo))));
        }
    }

    /// Whether there is a way to share that everybody knows, the new one included.
    fn supports(&self, joining: &Joining) -> bool {
        if joining.protocols.is_empty() || joining.protocol_type.is_empty() {
            return false;
        }
        let everybody = |name: &str| self.members.values().all(|member| member.knows(name));
        self.members.is_empty()
            || (self.protocol_type == joining.protocol_type
                && joining.protocols.iter().any(|protocol| everybody(&protocol.name)))
    }

    fn join_anew(
        &mut self,
        env: &mut Env<'_>,
        ticket: Ticket,
        joining: Joining,
    ) -> Result<(), (Refusal, Option<Arc<str>>)> {
        let id = new_id(&joining);
        let place = joining.instance.as_ref().and_then(|instance| self.instances.get(instance));
        if let Some(old) = place.cloned() {
            self.replace(env, ticket, &old, id, joining);
            return Ok(());
        }
        if self.members.len() + self.pending.len() >= env.members_max {
            return Err((Refusal::Full, None));
        }
        if joining.twice && joining.instance.is_none() {
            let what = What::Pending(Arc::clone(&id));
            let alarm = env.arm(&self.name, joining.session, what);
            self.pending.insert(Arc::clone(&id), alarm);
            return Err((Refusal::ComeBack, Some(id)));
        }
        self.add(env, ticket, id, joining);
        Ok(())
    }

    fn join_again(
        &mut self,
        env: &mut Env<'_>,
        ticket: Ticket,
        id: Arc<str>,
        joining: Joining,
    ) -> Result<(), (Refusal, Option<Arc<str>>)> {
        if let Some(alarm) = self.pending.remove(&id) {
            env.disarm(&mut Some(alarm));
            self.add(env, ticket, id, joining);
            return Ok(());
        }
        let who = Identity { member: Arc::clone(&id), instance: joining.instance.clone() };
        self.check(&who).map_err(|refusal| (refusal, None))?;
        let leads = self.leader.as_ref() == Some(&id);
        let Some(member) = self.members.get_mut(&id) else {
            return Err((Refusal::UnknownMember, None));
        };
        let same = member.protocols == joining.protocols;
        let stays = match self.phase {
            Phase::Completing => same,
            // The leader asks because it wants to share out anew.
            Phase::Stable => same && !leads,
            Phase::Empty | Phase::Preparing => false,
        };
        if stays {
            // It may have missed the answer.
            self.alive(env, &id);
            let answer = self.membership(&id);
            env.joined(ticket, Ok(answer));
            return Ok(());
        }
        member.update(joining);
        self.wait_to_join(env, ticket, &id);
        self.stir(env);
        Ok(())
    }

    fn add(&mut self, env: &mut Env<'_>, ticket: Ticket, id: Arc<str>, joining: Joining) {
        if self.members.is_empty() {
            self.protocol_type = Arc::clone(&joining.protocol_type);
        }
        if let Some(instance) = &joining.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        *env.order += 1;
        self.members.insert(Arc::clone(&id), Member::new(Arc::clone(&id), *env.order, joining));
        self.leader.get_or_insert_with(|| Arc::clone(&id));
        if let Some(gathering) = &mut self.gathering {
            gathering.grew = true;
        }
        self.wait_to_join(env, ticket, &id);
        self.stir(env);
    }

    /// An instance is back and takes its old place, under a new id.
    fn replace(
        &mut self,
        env: &mut Env<'_>,
        ticket: Ticket,
        old: &Arc<str>,
        id: Arc<str>,
        joining: Joining,
    ) {
        let Some(mut member) = self.members.remove(old) else { return };
        env.disarm(&mut member.alarm);
        if let Some(waits) = member.join.take() {
            env.joined(waits, Err((Refusal::Fenced, Arc::clone(old))));
        }
        if let Some(waits) = member.sync.take() {
            env.synced(waits, Err(Refusal::Fenced));
        }
        let can_skip = joining.can_skip;
        member.id = Arc::clone(&id);
        member.update(joining);
        if let Some(instance) = &member.instance {
            self.instances.insert(Arc::clone(instance), Arc::clone(&id));
        }
        self.members.insert(Arc::clone(&id), member);
        let leads = self.leader.as_ref() == Some(old);
        if leads {
            self.leader = Some(Arc::clone(&id));
        }
        if self.phase == Phase::Stable && self.select() == self.protocol {
            self.alive(env, &id);
            let mut answer = self.membership(&id);
            if leads && can_skip {
                answer.skip = true;
            } else if leads {
                // What it would share out now nobody would hear of: it is told of another leader.
                answer.leader = Arc::clone(old);
                answer.members.clear();
            }
            return env.joined(ticket, Ok(answer));
        }
        self.wait_to_join(env, ticket, &id);
        self.stir(env);
    }

    /// The member waits for the next generation. An older call of it is let go.
    fn wait_to_join(&mut self, env: &mut Env<'_>, ticket: Ticket, id: &Arc<str>) {
        let Some(member) = self.members.get_mut(id) else { return };
        env.disarm(&mut member.alarm);
        if let Some(older) = member.join.replace(ticket) {
            env.joined(older, Err((Refusal::Rebalancing, Arc::clone(id))));
        }
    }

    /// What a member is told of the generation.
    fn membership(&self, id: &Arc<str>) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let protocol = self.protocol.as_deref().unwrap_or_default();
        let members = if leader == *id {
            self.members.values().map(|member| member.peer(protocol)).collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: Some(Arc::clone(&self.protocol_type)),
            protocol: self.protocol.clone(),
            leader,
            skip: false,
            member: Arc::clone(id),
            members,
        }
    }
}

// From one generation to the next.
impl Group {
    /// Goes on after somebody came, went, or joined again.
    fn stir(&mut self, env: &mut Env<'_>) {
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
    pub(super) fn time_is_up(&mut self, env: &mut Env<'_>) {
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
    fn select(&self) -> Option<Arc<str>> {
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

/// A generation is never negative: that is how one says that one has none.
fn next_generation(generation: i32) -> i32 {
    generation.checked_add(1).unwrap_or(1)
}

/// An id for a new member, that tells people which client it is.
fn new_id(joining: &Joining) -> Arc<str> {
    let front = joining.instance.as_ref().unwrap_or(&joining.client_id);
    let front: String = front.chars().take(CLIENT_CHARS_MAX).collect();
    let hex = format!("{:032x}", joining.fresh);
    let mut id = front;
    for part in [0..8, 8..12, 12..16, 16..20, 20..32] {
        id.push('-');
        id.push_str(&hex[part]);
    }
    id.into()
}
