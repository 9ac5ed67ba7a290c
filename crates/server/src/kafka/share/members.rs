//! Who is in a share group: names, epochs, and when each was last heard of. No clock is read here.
//!
//! An epoch counts what a member was assigned. What must hold: a member is told of its assignment
//! until it has shown, by the epoch of its next heartbeat, that it knows it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use punctual_kafka_wire::error::ErrorCode;
use punctual_model::{GroupName, TopicId, TopicName};
use tokio::time::Instant;

use super::MemberKey;

/// How often members are asked to be heard of.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// After so long a silence a member is none any more.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Most members of all groups together.
const MEMBERS_MAX: usize = 10_000;
/// Most topics that they subscribe to, counted once for each member.
const TOPICS_MAX: usize = 100_000;

/// What a member is assigned: how many partitions of each topic, which is all of them.
pub(super) type Assignment = BTreeMap<TopicId, u16>;

/// All members of all share groups.
#[derive(Debug, Default)]
pub(super) struct Members {
    by_key: HashMap<MemberKey, Member>,
    /// Topics of all subscriptions.
    topics: usize,
}

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) epoch: i32,
    pub(super) topics: BTreeSet<TopicName>,
    pub(super) assigned: Assignment,
    pub(super) who: Who,
    heard: Instant,
    /// The epoch of its last heartbeat.
    knows: i32,
}

/// What is shown of a member beside its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) client_id: Option<Arc<str>>,
    pub(super) host: String,
    pub(super) rack: Option<String>,
}

/// What a heartbeat says.
#[derive(Clone, Debug)]
pub(super) struct Beat {
    /// 0 for a member that joins.
    pub(super) epoch: i32,
    /// What it subscribes to, if that has changed.
    pub(super) topics: Option<BTreeSet<TopicName>>,
    pub(super) who: Who,
}

impl Members {
    /// A member is heard of. Answers what it is subscribed to.
    pub(super) fn beat(
        &mut self,
        key: &MemberKey,
        beat: Beat,
        now: Instant,
    ) -> Result<BTreeSet<TopicName>, ErrorCode> {
        if beat.epoch == 0 {
            return self.join(key, beat, now);
        }
        let subscribed = self.subscribed(key, beat.topics.as_ref())?;
        let member = self.by_key.get_mut(key).ok_or(ErrorCode::UNKNOWN_MEMBER_ID)?;
        if beat.epoch != member.epoch && beat.epoch != member.epoch - 1 {
            return Err(ErrorCode::FENCED_MEMBER_EPOCH);
        }
        member.heard = now;
        member.knows = beat.epoch;
        if let Some(topics) = beat.topics {
            member.topics = topics;
            self.topics = subscribed;
        }
        Ok(member.topics.clone())
    }

    /// How many topics all are subscribed to, with these for a member.
    fn subscribed(
        &self,
        key: &MemberKey,
        topics: Option<&BTreeSet<TopicName>>,
    ) -> Result<usize, ErrorCode> {
        let before = self.by_key.get(key).map_or(0, |member| member.topics.len());
        let all = self.topics - before + topics.map_or(before, BTreeSet::len);
        if all <= TOPICS_MAX { Ok(all) } else { Err(ErrorCode::GROUP_MAX_SIZE_REACHED) }
    }

    fn join(
        &mut self,
        key: &MemberKey,
        beat: Beat,
        now: Instant,
    ) -> Result<BTreeSet<TopicName>, ErrorCode> {
        let topics = beat.topics.ok_or(ErrorCode::INVALID_REQUEST)?;
        if self.by_key.len() >= MEMBERS_MAX && !self.by_key.contains_key(key) {
            return Err(ErrorCode::GROUP_MAX_SIZE_REACHED);
        }
        self.topics = self.subscribed(key, Some(&topics))?;
        let member = Member {
            epoch: 1,
            topics: topics.clone(),
            assigned: Assignment::new(),
            who: beat.who,
            heard: now,
            knows: 0,
        };
        self.by_key.insert(key.clone(), member);
        Ok(topics)
    }

    /// A member is assigned this. Answers its epoch, and whether it has to be told what it is
    /// assigned; nothing when it left meanwhile.
    pub(super) fn assign(&mut self, key: &MemberKey, assigned: &Assignment) -> Option<(i32, bool)> {
        let member = self.by_key.get_mut(key)?;
        if member.assigned != *assigned {
            member.assigned.clone_from(assigned);
            // One that has just joined is in its first epoch already.
            if member.knows != 0 {
                member.epoch = member.epoch.checked_add(1).unwrap_or(1);
            }
        }
        Some((member.epoch, member.knows != member.epoch))
    }

    /// A member leaves. False when it was none.
    pub(super) fn leave(&mut self, key: &MemberKey) -> bool {
        let left = self.by_key.remove(key);
        self.topics -= left.as_ref().map_or(0, |member| member.topics.len());
        left.is_some()
    }

    /// When to look next for those who have fallen silent.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.by_key.values().map(|member| member.heard + SILENCE_MAX).min()
    }

    /// Those who have fallen silent, who are no members any more.
    pub(super) fn take_silent(&mut self, now: Instant) -> Vec<MemberKey> {
        let silent = |_: &MemberKey, member: &mut Member| now >= member.heard + SILENCE_MAX;
        let gone: Vec<_> = self.by_key.extract_if(silent).collect();
        self.topics -= gone.iter().map(|(_, member)| member.topics.len()).sum::<usize>();
        gone.into_iter().map(|(key, _)| key).collect()
    }

    /// Whether a group has any.
    pub(super) fn has_members(&self, group: &GroupName) -> bool {
        self.by_key.keys().any(|key| key.group == *group)
    }

    /// The members of a group, by name.
    pub(super) fn of_group(&self, group: &GroupName) -> Vec<(Arc<str>, Member)> {
        let of_group = self.by_key.iter().filter(|(key, _)| key.group == *group);
        let mut members: Vec<_> =
            of_group.map(|(key, member)| (Arc::clone(&key.member), member.clone())).collect();
        members.sort_by(|one, other| one.0.cmp(&other.0));
        members
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(member: &str) -> MemberKey {
        MemberKey::test(member)
    }

    fn topics(names: &[&str]) -> Option<BTreeSet<TopicName>> {
        Some(names.iter().map(|name| TopicName::new(name).unwrap()).collect())
    }

    fn beat(epoch: i32, topics: Option<BTreeSet<TopicName>>) -> Beat {
        Beat { epoch, topics, who: Who::default() }
    }

    fn all(partitions: u16) -> Assignment {
        Assignment::from([(TopicId::new(7).unwrap(), partitions)])
    }

    #[test]
    fn a_member_is_told_what_it_is_assigned_until_it_knows() {
        let (mut members, now, one) = (Members::default(), Instant::now(), key("one"));
        members.beat(&one, beat(0, topics(&["t"])), now).unwrap();
        assert_eq!(members.assign(&one, &all(2)), Some((1, true)));
        // The answer was lost: it joins again.
        members.beat(&one, beat(0, topics(&["t"])), now).unwrap();
        assert_eq!(members.assign(&one, &all(2)), Some((1, true)));
        members.beat(&one, beat(1, None), now).unwrap();
        assert_eq!(members.assign(&one, &all(2)), Some((1, false)));
        members.beat(&one, beat(1, None), now).unwrap();
        assert_eq!(members.assign(&one, &all(3)), Some((2, true)));
        // The answer was lost: it still has the epoch before.
        members.beat(&one, beat(1, None), now).unwrap();
        assert_eq!(members.assign(&one, &all(3)), Some((2, true)));
        members.beat(&one, beat(2, None), now).unwrap();
        assert_eq!(members.assign(&one, &all(3)), Some((2, false)));
    }

    #[test]
    fn epochs_and_names_that_nobody_has_are_refused() {
        let (mut members, now, one) = (Members::default(), Instant::now(), key("one"));
        let refused = |members: &mut Members, beat| members.beat(&one, beat, now).unwrap_err();
        assert_eq!(refused(&mut members, beat(1, None)), ErrorCode::UNKNOWN_MEMBER_ID);
        assert_eq!(refused(&mut members, beat(0, None)), ErrorCode::INVALID_REQUEST);
        members.beat(&one, beat(0, topics(&["t"])), now).unwrap();
        assert_eq!(refused(&mut members, beat(5, None)), ErrorCode::FENCED_MEMBER_EPOCH);
        assert_eq!(refused(&mut members, beat(-7, None)), ErrorCode::FENCED_MEMBER_EPOCH);
        assert!(members.leave(&one));
        assert!(!members.leave(&one));
    }

    #[test]
    fn all_subscriptions_together_are_bounded_and_what_is_over_counts_no_more() {
        let (mut members, now, one) = (Members::default(), Instant::now(), key("one"));
        let many = |count: usize| {
            let name = |number| TopicName::new(&format!("t{number}")).unwrap();
            Some((0..count).map(name).collect::<BTreeSet<_>>())
        };
        members.beat(&one, beat(0, many(TOPICS_MAX)), now).unwrap();
        let refused = members.beat(&key("two"), beat(0, many(1)), now).unwrap_err();
        assert_eq!(refused, ErrorCode::GROUP_MAX_SIZE_REACHED);
        members.beat(&one, beat(1, many(5)), now).unwrap();
        members.beat(&key("two"), beat(0, many(TOPICS_MAX - 5)), now).unwrap();
        let refused = members.beat(&one, beat(1, many(6)), now).unwrap_err();
        assert_eq!(refused, ErrorCode::GROUP_MAX_SIZE_REACHED);
        assert!(members.leave(&one));
        assert_eq!(members.take_silent(now + SILENCE_MAX).len(), 1);
        assert_eq!(members.topics, 0);
    }

    #[test]
    fn whoever_is_silent_for_too_long_is_no_member_any_more() {
        let (mut members, start) = (Members::default(), Instant::now());
        members.beat(&key("one"), beat(0, topics(&["t"])), start).unwrap();
        members.beat(&key("two"), beat(0, topics(&["t"])), start).unwrap();
        let later = start + SILENCE_MAX / 2;
        members.beat(&key("two"), beat(1, None), later).unwrap();
        assert_eq!(members.next_end(), Some(start + SILENCE_MAX));
        assert_eq!(members.take_silent(start + SILENCE_MAX), [key("one")]);
        assert_eq!(members.next_end(), Some(later + SILENCE_MAX));
        let group = GroupName::new("workers").unwrap();
        assert_eq!(members.of_group(&group).len(), 1);
    }
}
