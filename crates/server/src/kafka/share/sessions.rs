//! What members have open, and what they hold.
//!
//! A session is opened with epoch 0; each further request has the next epoch, so that a request
//! that was lost or comes twice is noticed. What must hold: a record is in at most one session, and
//! whatever leaves a session is settled, or goes back to the group.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use punctual_broker::group::Receipt;
use punctual_kafka_wire::error::ErrorCode;
use punctual_model::{GroupName, Partition, TopicId};

use super::MemberKey;

/// Most sessions at once.
const SESSIONS_MAX: usize = 2_000;
/// Most records that a session holds.
pub(super) const HELD_MAX: usize = 10_000;

/// A partition of a topic.
pub(super) type Part = (TopicId, Partition);

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) part: Part,
    pub(super) offset: u64,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    by_member: HashMap<MemberKey, Session>,
    last: u64,
    /// Connections whose end is waited for.
    followed: HashSet<u64>,
}

#[derive(Debug)]
struct Session {
    /// Differs from that of every other session.
    number: u64,
    /// Of the last request.
    epoch: i32,
    connection: u64,
    parts: BTreeSet<Part>,
    held: BTreeMap<Place, Receipt>,
}

/// A session as it was when a request began; by it the request knows whether it is still the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) member: MemberKey,
    number: u64,
}

/// What goes back, by group.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Given(pub(super) BTreeMap<(GroupName, TopicId), Vec<Receipt>>);

impl Given {
    fn add(&mut self, group: &GroupName, held: BTreeMap<Place, Receipt>) {
        for (place, receipt) in held {
            self.0.entry((group.clone(), place.part.0)).or_default().push(receipt);
        }
    }
}

impl Sessions {
    /// Opens a session for a member; what it held in one before goes back.
    pub(super) fn open(
        &mut self,
        member: &MemberKey,
        connection: u64,
    ) -> Result<(Ticket, Given), ErrorCode> {
        if self.by_member.len() >= SESSIONS_MAX && !self.by_member.contains_key(member) {
            return Err(ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        }
        let given = self.close(member);
        self.last += 1;
        let session = Session {
            number: self.last,
            epoch: 0,
            connection,
            parts: BTreeSet::new(),
            held: BTreeMap::new(),
        };
        self.by_member.insert(member.clone(), session);
        Ok((Ticket { member: member.clone(), number: self.last }, given))
    }

    /// The next request of a session.
    pub(super) fn go_on(
        &mut self,
        member: &MemberKey,
        epoch: i32,
        connection: u64,
    ) -> Result<Ticket, ErrorCode> {
        let session = self.by_member.get_mut(member).ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        if epoch != session.epoch.checked_add(1).unwrap_or(1) {
            return Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH);
        }
        session.epoch = epoch;
        session.connection = connection;
        Ok(Ticket { member: member.clone(), number: session.number })
    }

    /// The session of a member, whatever its epoch.
    pub(super) fn of(&self, member: &MemberKey) -> Result<Ticket, ErrorCode> {
        let session = self.by_member.get(member).ok_or(ErrorCode::SHARE_SESSION_NOT_FOUND)?;
        Ok(Ticket { member: member.clone(), number: session.number })
    }

    /// Ends the session of a member.
    pub(super) fn close(&mut self, member: &MemberKey) -> Given {
        let mut given = Given::default();
        if let Some(session) = self.by_member.remove(member) {
            given.add(&member.group, session.held);
        }
        given
    }

    /// Whether the end of a connection is to be waited for from now on.
    pub(super) fn follow(&mut self, connection: u64) -> bool {
        self.followed.insert(connection)
    }

    /// A connection has ended, and with it its sessions.
    pub(super) fn disconnected(&mut self, connection: u64) -> Given {
        self.followed.remove(&connection);
        let mut given = Given::default();
        let of_it = |_: &MemberKey, session: &mut Session| session.connection == connection;
        for (member, session) in self.by_member.extract_if(of_it) {
            given.add(&member.group, session.held);
        }
        given
    }

    /// Changes which partitions are fetched. Answers all of them, or nothing when the session is
    /// over.
    pub(super) fn list(
        &mut self,
        ticket: &Ticket,
        added: impl IntoIterator<Item = Part>,
        forgotten: &[Part],
    ) -> Option<BTreeSet<Part>> {
        let session = self.session(ticket)?;
        session.parts.extend(added);
        session.parts.retain(|part| !forgotten.contains(part));
        Some(session.parts.clone())
    }

    /// How many more records the session may hold.
    pub(super) fn room(&mut self, ticket: &Ticket) -> usize {
        self.session(ticket).map_or(0, |session| HELD_MAX.saturating_sub(session.held.len()))
    }

    /// The receipt by which a record is held.
    pub(super) fn receipt(&mut self, ticket: &Ticket, place: Place) -> Option<Receipt> {
        self.session(ticket)?.held.get(&place).copied()
    }

    /// These are held from now on. False, and nothing is, when the session is over.
    pub(super) fn hold(
        &mut self,
        ticket: &Ticket,
        held: impl IntoIterator<Item = (Place, Receipt)>,
    ) -> bool {
        let Some(session) = self.session(ticket) else { return false };
        session.held.extend(held);
        true
    }

    /// The offsets of a stretch that are held, in order.
    pub(super) fn held_in(
        &mut self,
        ticket: &Ticket,
        part: Part,
        (first, last): (u64, u64),
    ) -> Vec<u64> {
        let Some(session) = self.session(ticket).filter(|_| first <= last) else {
            return Vec::new();
        };
        let stretch = Place { part, offset: first }..=Place { part, offset: last };
        session.held.range(stretch).map(|(place, _)| place.offset).collect()
    }

    /// Takes a record out of the session.
    pub(super) fn claim(&mut self, ticket: &Ticket, place: Place) -> Option<Receipt> {
        self.session(ticket)?.held.remove(&place)
    }

    fn session(&mut self, ticket: &Ticket) -> Option<&mut Session> {
        self.by_member.get_mut(&ticket.member).filter(|session| session.number == ticket.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str) -> MemberKey {
        MemberKey::test(name)
    }

    fn receipt(number: u8) -> Receipt {
        let digit = char::from(b'0' + number);
        format!("{digit}{}", "0".repeat(35)).parse().unwrap()
    }

    fn place(offset: u64) -> Place {
        Place { part: (TopicId::new(3).unwrap(), Partition::new(0).unwrap()), offset }
    }

    #[test]
    fn epochs_count_up_and_anything_else_is_refused() {
        let (mut sessions, one) = (Sessions::default(), member("one"));
        assert_eq!(sessions.go_on(&one, 1, 1), Err(ErrorCode::SHARE_SESSION_NOT_FOUND));
        let (ticket, _) = sessions.open(&one, 1).unwrap();
        assert_eq!(sessions.go_on(&one, 1, 1), Ok(ticket.clone()));
        for wrong in [0, 1, 3, -2] {
            let refused = sessions.go_on(&one, wrong, 1);
            assert_eq!(refused, Err(ErrorCode::INVALID_SHARE_SESSION_EPOCH), "{wrong}");
        }
        assert_eq!(sessions.go_on(&one, 2, 1), Ok(ticket));
    }

    #[test]
    fn after_the_largest_epoch_comes_the_first_again() {
        let (mut sessions, one) = (Sessions::default(), member("one"));
        sessions.open(&one, 1).unwrap();
        sessions.by_member.get_mut(&one).unwrap().epoch = i32::MAX;
        assert!(sessions.go_on(&one, 1, 1).is_ok());
    }

    #[test]
    fn what_was_held_goes_back_however_the_session_ends() {
        let mut sessions = Sessions::default();
        let (one, two) = (member("one"), member("two"));
        let hold = |sessions: &mut Sessions, member: &MemberKey, connection| {
            let (ticket, given) = sessions.open(member, connection).unwrap();
            assert!(sessions.hold(&ticket, [(place(5), receipt(1)), (place(6), receipt(2))]));
            (ticket, given.0.into_values().flatten().count())
        };
        let (stale, _) = hold(&mut sessions, &one, 1);
        let (_, given) = hold(&mut sessions, &one, 1);
        assert_eq!(given, 2);
        assert!(!sessions.hold(&stale, [(place(7), receipt(3))]));
        assert_eq!(sessions.claim(&stale, place(5)), None);
        hold(&mut sessions, &two, 2);
        let count = |given: Given| given.0.into_values().flatten().count();
        assert_eq!(count(sessions.disconnected(1)), 2);
        assert_eq!(count(sessions.disconnected(1)), 0);
        assert_eq!(count(sessions.close(&two)), 2);
        assert_eq!(count(sessions.close(&two)), 0);
    }

    #[test]
    fn a_stretch_names_what_is_held_in_it_and_nothing_else() {
        let (mut sessions, one) = (Sessions::default(), member("one"));
        let (ticket, _) = sessions.open(&one, 1).unwrap();
        let held = [3, 4, 9].map(|offset| (place(offset), receipt(1)));
        sessions.hold(&ticket, held);
        let part = place(0).part;
        assert_eq!(sessions.held_in(&ticket, part, (0, u64::MAX)), [3, 4, 9]);
        assert_eq!(sessions.held_in(&ticket, part, (4, 8)), [4]);
        let other = (part.0, Partition::new(1).unwrap());
        assert_eq!(sessions.held_in(&ticket, other, (0, u64::MAX)), [0; 0]);
    }

    #[test]
    fn there_are_only_so_many_sessions() {
        let mut sessions = Sessions::default();
        for number in 0..SESSIONS_MAX {
            sessions.open(&member(&number.to_string()), 1).unwrap();
        }
        let refused = sessions.open(&member("more"), 1).unwrap_err();
        assert_eq!(refused, ErrorCode::SHARE_SESSION_LIMIT_REACHED);
        assert!(sessions.open(&member("7"), 1).is_ok());
    }
}
