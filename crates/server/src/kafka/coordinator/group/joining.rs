//! Joining: who is let in, and who keeps the place it had.

use std::sync::Arc;

use super::{Env, Group, What};
use crate::kafka::coordinator::member::Member;
use crate::kafka::coordinator::terms::{Identity, Joined, Joining, Phase, Refusal, Ticket};

/// Longest part of a member's id that tells which client it is.
const CLIENT_CHARS_MAX: usize = 200;

impl Group {
    /// Somebody wants to be a member, or to stay one.
    pub(in super::super) fn join(&mut self, env: &mut Env<'_>, ticket: Ticket, joining: Joining) {
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
    pub(super) fn membership(&self, id: &Arc<str>) -> Joined {
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
