//! A coordination service without a network: what etcd and ZooKeeper have in common, and the worst
//! of each. Reads may come from the past, with the nodes newer than the assignment, but never from
//! before what the same session has seen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::super::assignment::Name;
use super::super::registry::{Changes, Revision, Snapshot, Trouble};

/// A call of a node.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Register {
        name: Name,
        about: Bytes,
        changes: Changed,
    },
    Renew,
    /// `age` says from how far in the past it is answered at most, in changes.
    Read {
        known: Option<Revision>,
        age: [usize; 2],
    },
    Lead,
    Write {
        expected: Option<Revision>,
        document: Bytes,
    },
    Say(Bytes),
    Ask(u32),
    End,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Registered(u64),
    Read(Snapshot),
    Written(bool),
    Done,
}

/// How a session is told of changes.
#[derive(Clone, Debug)]
pub(super) struct Changed(pub(super) Arc<Changes>);

/// What can be read.
#[derive(Clone, Debug, Default)]
struct State {
    document: Option<(Revision, Bytes)>,
    asked: Option<u32>,
    leader: Option<(u64, Name)>,
    members: BTreeMap<Name, (u64, Bytes)>,
    words: BTreeMap<Name, (u64, Bytes)>,
}

/// A session that has not ended.
#[derive(Debug)]
struct Open {
    name: Name,
    ends: Duration,
    changes: Changed,
    /// The last change that it has seen.
    seen: usize,
}

/// The service.
#[derive(Debug)]
pub(super) struct Service {
    lease: Duration,
    sessions: BTreeMap<u64, Open>,
    next_session: u64,
    /// All states there were; the last one is the present.
    history: Vec<State>,
}

impl Service {
    pub(super) fn new(lease: Duration) -> Self {
        let history = vec![State::default()];
        Self { lease, sessions: BTreeMap::new(), next_session: 1, history }
    }

    /// Carries out a call at `now`.
    pub(super) fn carry_out(
        &mut self,
        now: Duration,
        session: Option<u64>,
        call: Call,
    ) -> Result<Reply, Trouble> {
        if let Call::Register { name, about, changes } = call {
            return Ok(Reply::Registered(self.register(now, name, about, changes)));
        }
        let id = session.ok_or(Trouble::Gone)?;
        let name = self.sessions.get(&id).ok_or(Trouble::Gone)?.name.clone();
        match call {
            Call::Register { .. } => unreachable!("done above"),
            Call::Renew => self.open(id).ends = now + self.lease,
            Call::Read { known, age } => return Ok(Reply::Read(self.read(id, known, age))),
            Call::Lead => {
                if self.state().leader.is_none() {
                    self.change(|state| state.leader = Some((id, name)));
                }
            }
            Call::Write { expected, document } => {
                let state = self.state();
                let stands = state.document.as_ref().map(|(revision, _)| *revision);
                let leads = state.leader.as_ref().is_some_and(|(leader, _)| *leader == id);
                if leads && stands == expected {
                    let revision = Revision(self.history.len() as u64);
                    self.change(|state| state.document = Some((revision, document)));
                    return Ok(Reply::Written(true));
                }
                return Ok(Reply::Written(false));
            }
            Call::Say(word) => {
                self.change(|state| drop(state.words.insert(name, (id, word))));
            }
            Call::Ask(slots) => self.change(|state| state.asked = Some(slots)),
            Call::End => {
                self.sessions.remove(&id);
                self.clear(id);
                return Ok(Reply::Done);
            }
        }
        let last = self.history.len() - 1;
        self.open(id).seen = last;
        Ok(Reply::Done)
    }

    /// Ends the sessions that were not renewed, if `ends` says so.
    pub(super) fn expire(&mut self, now: Duration, mut ends: impl FnMut() -> bool) {
        let over = |open: &Open| open.ends <= now;
        let late: Vec<u64> =
            self.sessions.iter().filter(|(_, open)| over(open)).map(|(id, _)| *id).collect();
        for id in late {
            if ends() {
                self.sessions.remove(&id);
                self.clear(id);
            }
        }
    }

    /// Gives every session its lease anew, as a service does after a start.
    pub(super) fn restart(&mut self, now: Duration) {
        for open in self.sessions.values_mut() {
            open.ends = now + self.lease;
        }
    }

    /// Who leads.
    pub(super) fn leader(&self) -> Option<Name> {
        self.state().leader.as_ref().map(|(_, name)| name.clone())
    }

    fn state(&self) -> &State {
        self.history.last().expect("there is always a present")
    }

    fn open(&mut self, id: u64) -> &mut Open {
        self.sessions.get_mut(&id).expect("the caller has seen it")
    }

    fn register(&mut self, now: Duration, name: Name, about: Bytes, changes: Changed) -> u64 {
        let id = self.next_session;
        self.next_session += 1;
        let present = self.history.len();
        let open = Open { name: name.clone(), ends: now + self.lease, changes, seen: present };
        self.sessions.insert(id, open);
        self.change(|state| drop(state.members.insert(name, (id, about))));
        id
    }

    fn clear(&mut self, id: u64) {
        self.change(|state| {
            state.members.retain(|_, (session, _)| *session != id);
            state.words.retain(|_, (session, _)| *session != id);
            state.leader = state.leader.take().filter(|(session, _)| *session != id);
        });
    }

    fn change(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.state().clone();
        change(&mut state);
        self.history.push(state);
        for open in self.sessions.values() {
            open.changes.0.tell_all();
        }
    }

    fn read(&mut self, id: u64, known: Option<Revision>, age: [usize; 2]) -> Snapshot {
        let present = self.history.len() - 1;
        let seen = self.open(id).seen;
        let first = present.saturating_sub(age[0]).max(seen);
        let second = present.saturating_sub(age[1]).max(first);
        self.open(id).seen = second;
        let (old, new) = (&self.history[first], &self.history[second]);
        let plain = |map: &BTreeMap<Name, (u64, Bytes)>| {
            map.iter().map(|(name, (_, bytes))| (name.clone(), bytes.clone())).collect()
        };
        let revision = old.document.as_ref().map(|(revision, _)| *revision);
        Snapshot {
            revision,
            document: old.document.clone().filter(|_| revision != known).map(|(_, bytes)| bytes),
            asked: new.asked,
            members: plain(&new.members),
            words: plain(&new.words),
            leader: new.leader.as_ref().map(|(_, name)| name.clone()),
        }
    }
}
