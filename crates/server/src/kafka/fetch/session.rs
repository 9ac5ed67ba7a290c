//! Fetch sessions: a consumer names its partitions once, and is then told only of those in which
//! something has changed.
//!
//! A session is a convenience of the wire and carries no right: every fetch is checked again. It
//! belongs to whoever began it. There is a bounded number of them, and of partitions in them; where
//! there is no room, a fetch is answered without one, and the consumer goes on naming everything.
//! Partitions that gave something go to the end of the line, so that all get their turn.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Most sessions.
const SESSIONS_MAX: usize = 1000;
/// Most partitions of one session.
const SESSION_PARTITIONS_MAX: usize = 10_000;
/// Most partitions of all sessions together.
const PARTITIONS_MAX: usize = 200_000;
/// A session that was not used for so long makes room for another.
const IDLE_MIN: Duration = Duration::from_secs(120);
/// The epoch of a fetch that begins a session.
const FIRST: i32 = 0;
/// The epoch of a fetch that wants none.
const NONE: i32 = -1;

/// How a request names a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TopicKey {
    /// By name.
    Name(Arc<str>),
    /// By id.
    Id([u8; 16]),
}

/// What is asked of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The topic.
    pub(crate) topic: TopicKey,
    /// The partition, as the request has it.
    pub(crate) partition: i32,
    /// From which offset on.
    pub(crate) offset: i64,
    /// How many bytes at most.
    pub(crate) bytes_max: i32,
}

/// What a request says of its session.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// The session; 0 for none.
    pub(crate) id: i32,
    /// How often it was used.
    pub(crate) epoch: i32,
    /// Whether topics are named by id.
    pub(crate) by_id: bool,
    /// What is new or has changed; in the first request, everything.
    pub(crate) asked: Vec<Asked>,
    /// What is no longer wanted.
    pub(crate) forgotten: Vec<(TopicKey, i32)>,
}

/// Why there is no such session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is not known, or no more.
    NotFound,
    /// A request is missing before this one, or it is repeated.
    WrongEpoch,
    /// It names topics in the other way.
    OtherNames,
}

/// A fetch under way.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Everything to look at, in this order.
    pub(crate) asked: Vec<Asked>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Without a session.
    Alone,
    /// A session begins with it, if there is room.
    First { owner: Box<str>, by_id: bool },
    /// It goes on.
    Next { id: i32 },
}

/// What is answered about one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Whether it is an error.
    pub(crate) failed: bool,
    /// Where its log starts.
    pub(crate) start: i64,
    /// Where its log ends.
    pub(crate) end: i64,
    /// How many bytes of records are sent.
    pub(crate) bytes: u64,
}

/// How a fetch is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The session; 0 for none.
    pub(crate) session: i32,
    /// For each partition, whether it is told of.
    pub(crate) told: Vec<bool>,
}

/// All sessions.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    sessions: HashMap<i32, Session>,
    /// Of all sessions together.
    partitions: usize,
}

#[derive(Debug)]
struct Session {
    owner: Box<str>,
    by_id: bool,
    /// That of the next request.
    epoch: i32,
    used: Instant,
    /// What is asked for, in the order in which it is looked at.
    line: BTreeMap<u64, Kept>,
    places: HashMap<(TopicKey, i32), u64>,
    next_place: u64,
}

/// A partition, and what was last told of it.
#[derive(Debug)]
struct Kept {
    asked: Asked,
    told: Option<(i64, i64)>,
}

impl Sessions {
    /// What a fetch is about.
    pub(crate) fn begin(
        &self,
        owner: &str,
        opening: Opening,
        now: Instant,
    ) -> Result<Turn, Refusal> {
        let mut table = self.table.lock();
        let Opening { id, epoch, by_id, asked, forgotten } = opening;
        if epoch == FIRST || epoch == NONE {
            table.remove(id, owner);
            let kind = match epoch {
                FIRST => Kind::First { owner: owner.into(), by_id },
                _ => Kind::Alone,
            };
            return Ok(Turn { asked, kind });
        }
        let session = table.sessions.get_mut(&id).filter(|session| *session.owner == *owner);
        let session = session.ok_or(Refusal::NotFound)?;
        if session.by_id != by_id {
            return Err(Refusal::OtherNames);
        }
        if session.epoch != epoch {
            return Err(Refusal::WrongEpoch);
        }
        let before = session.line.len();
        session.forget(&forgotten);
        session.ask(asked);
        session.used = now;
        session.epoch = after(epoch);
        let asked: Vec<Asked> = session.line.values().map(|kept| kept.asked.clone()).collect();
        table.partitions = table.partitions + asked.len() - before;
        if asked.is_empty() {
            table.remove(id, owner);
            return Ok(Turn { asked, kind: Kind::Alone });
        }
        if asked.len() > SESSION_PARTITIONS_MAX || table.partitions > PARTITIONS_MAX {
            // The consumer begins anew, naming everything.
            table.remove(id, owner);
            return Err(Refusal::NotFound);
        }
        Ok(Turn { asked, kind: Kind::Next { id } })
    }

    /// What of it is answered. `seen` has what was found for each partition of the turn.
    pub(crate) fn finish(
        &self,
        turn: Turn,
        seen: &[Seen],
        now: Instant,
        mut random: impl FnMut() -> Option<i32>,
    ) -> Shown {
        debug_assert_eq!(turn.asked.len(), seen.len());
        let everything = vec![true; seen.len()];
        match turn.kind {
            Kind::Alone => Shown { session: 0, told: everything },
            Kind::First { owner, by_id } => {
                let session = Session::new(owner, by_id, now, turn.asked, seen);
                let kept = self.table.lock().insert(session, now, &mut random);
                Shown { session: kept.unwrap_or(0), told: everything }
            }
            Kind::Next { id } => {
                let mut table = self.table.lock();
                // One that made room for another meanwhile is answered for the last time.
                let told = table.sessions.get_mut(&id).map_or(everything, |session| {
                    session.used = now;
                    turn.asked
                        .iter()
                        .zip(seen)
                        .map(|(asked, seen)| session.tell(asked, seen))
                        .collect()
                });
                Shown { session: id, told }
            }
        }
    }
}

impl Table {
    /// Ends a session, if it is that owner's.
    fn remove(&mut self, id: i32, owner: &str) {
        if self.sessions.get(&id).is_some_and(|session| *session.owner == *owner) {
            self.drop_session(id);
        }
    }

    fn drop_session(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.partitions -= session.line.len();
        }
    }

    /// Keeps a session if there is room, if need be in the place of those that are not used.
    fn insert(
        &mut self,
        session: Session,
        now: Instant,
        random: &mut impl FnMut() -> Option<i32>,
    ) -> Option<i32> {
        let size = session.line.len();
        if size == 0 || size > SESSION_PARTITIONS_MAX {
            return None;
        }
        while self.sessions.len() >= SESSIONS_MAX || self.partitions + size > PARTITIONS_MAX {
            let (id, oldest) = self.sessions.iter().min_by_key(|(_, session)| session.used)?;
            if now.saturating_duration_since(oldest.used) < IDLE_MIN {
                return None;
            }
            self.drop_session(*id);
        }
        let id = std::iter::from_fn(random)
            .take(8)
            .find(|id| *id > 0 && !self.sessions.contains_key(id))?;
        self.partitions += size;
        self.sessions.insert(id, session);
        Some(id)
    }
}

impl Session {
    fn new(owner: Box<str>, by_id: bool, now: Instant, asked: Vec<Asked>, seen: &[Seen]) -> Self {
        let (line, places) = (BTreeMap::new(), HashMap::new());
        let epoch = after(FIRST);
        let mut session = Self { owner, by_id, epoch, used: now, line, places, next_place: 0 };
        // Each has its place before any gives it up.
        session.ask(asked.clone());
        for (asked, seen) in asked.iter().zip(seen) {
            session.tell(asked, seen);
        }
        session
    }

    fn forget(&mut self, forgotten: &[(TopicKey, i32)]) {
        for key in forgotten {
            if let Some(place) = self.places.remove(key) {
                self.line.remove(&place);
            }
        }
    }

    fn ask(&mut self, asked: Vec<Asked>) {
        for asked in asked {
            let key = (asked.topic.clone(), asked.partition);
            let kept = self.places.get(&key).and_then(|place| self.line.get_mut(place));
            if let Some(kept) = kept {
                kept.asked = asked;
                continue;
            }
            self.places.insert(key, self.next_place);
            self.line.insert(self.next_place, Kept { asked, told: None });
            self.next_place += 1;
        }
    }

    /// Whether the answer says anything new; and takes down what it says.
    fn tell(&mut self, asked: &Asked, seen: &Seen) -> bool {
        let key = (asked.topic.clone(), asked.partition);
        let Some(place) = self.places.get_mut(&key) else { return true };
        let Some(mut kept) = self.line.remove(place) else { return true };
        let now = (seen.start, seen.end);
        let news = seen.failed || seen.bytes > 0 || kept.told != Some(now);
        // After an error the next answer is news, whatever it is.
        kept.told = (!seen.failed).then_some(now);
        if seen.bytes > 0 {
            *place = self.next_place;
            self.next_place += 1;
        }
        self.line.insert(*place, kept);
        news
    }
}

/// The epoch behind another.
const fn after(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        epoch => epoch + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: &str, partition: i32, offset: i64) -> Asked {
        Asked { topic: TopicKey::Name(name.into()), partition, offset, bytes_max: 1000 }
    }

    fn opening(id: i32, epoch: i32, asked: Vec<Asked>) -> Opening {
        Opening { id, epoch, by_id: false, asked, forgotten: Vec::new() }
    }

    fn seen(end: i64, bytes: u64) -> Seen {
        Seen { failed: false, start: 0, end, bytes }
    }

    const FAILED: Seen = Seen { failed: true, start: -1, end: -1, bytes: 0 };

    struct Rig {
        sessions: Sessions,
        now: Instant,
        next: i32,
    }

    impl Rig {
        fn new() -> Self {
            Self { sessions: Sessions::default(), now: Instant::now(), next: 0 }
        }

        fn begin(&self, opening: Opening) -> Result<Turn, Refusal> {
            self.sessions.begin("app", opening, self.now)
        }

        fn finish(&mut self, turn: Turn, seen: &[Seen]) -> Shown {
            let next = &mut self.next;
            self.sessions.finish(turn, seen, self.now, || {
                *next += 1;
                Some(*next)
            })
        }

        fn open(&mut self, partitions: Vec<Asked>, seen: &[Seen]) -> i32 {
            let turn = self.begin(opening(0, FIRST, partitions)).unwrap();
            self.finish(turn, seen).session
        }
    }

    fn offsets(turn: &Turn) -> Vec<(i32, i64)> {
        turn.asked.iter().map(|asked| (asked.partition, asked.offset)).collect()
    }

    #[test]
    fn a_fetch_without_a_session_is_told_everything() {
        let mut rig = Rig::new();
        let turn = rig.begin(opening(0, NONE, vec![asked("a", 0, 5)])).unwrap();
        let shown = rig.finish(turn, &[seen(5, 0)]);
        assert_eq!(shown, Shown { session: 0, told: vec![true] });
    }

    #[test]
    fn a_session_is_told_only_of_what_has_changed() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5), asked("a", 1, 7)], &[seen(5, 0), seen(7, 0)]);
        assert!(id > 0);
        let turn = rig.begin(opening(id, 1, Vec::new())).unwrap();
        assert_eq!(offsets(&turn), [(0, 5), (1, 7)]);
        assert_eq!(rig.finish(turn, &[seen(5, 0), seen(7, 0)]).told, [false, false]);
        // Records in one, another start of the other.
        let turn = rig.begin(opening(id, 2, Vec::new())).unwrap();
        let moved = Seen { start: 3, ..seen(7, 0) };
        assert_eq!(rig.finish(turn, &[seen(6, 100), moved]).told, [true, true]);
        let turn = rig.begin(opening(id, 3, vec![asked("a", 0, 6)])).unwrap();
        assert_eq!(offsets(&turn), [(1, 7), (0, 6)], "what gave something goes to the end");
        assert_eq!(rig.finish(turn, &[moved, seen(6, 0)]).told, [false, false]);
    }

    #[test]
    fn an_error_is_told_each_time_and_so_is_its_end() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5)], &[FAILED]);
        for (epoch, found, told) in
            [(1, FAILED, true), (2, FAILED, true), (3, seen(5, 0), true), (4, seen(5, 0), false)]
        {
            let turn = rig.begin(opening(id, epoch, Vec::new())).unwrap();
            assert_eq!(rig.finish(turn, &[found]).told, [told], "epoch {epoch}");
        }
    }

    #[test]
    fn partitions_are_added_changed_and_forgotten() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5), asked("a", 1, 7)], &[seen(5, 0), seen(7, 0)]);
        let mut next = opening(id, 1, vec![asked("b", 0, 1), asked("a", 1, 9)]);
        next.forgotten = vec![(TopicKey::Name("a".into()), 0), (TopicKey::Name("c".into()), 0)];
        let turn = rig.begin(next).unwrap();
        assert_eq!(turn.asked, [asked("a", 1, 9), asked("b", 0, 1)]);
        assert_eq!(rig.finish(turn, &[seen(7, 0), seen(1, 0)]).told, [false, true]);
        let mut last = opening(id, 2, Vec::new());
        last.forgotten = vec![(TopicKey::Name("a".into()), 1), (TopicKey::Name("b".into()), 0)];
        let turn = rig.begin(last).unwrap();
        assert!(turn.asked.is_empty());
        assert_eq!(rig.finish(turn, &[]).session, 0, "a session of nothing ends");
        assert_eq!(rig.begin(opening(id, 3, Vec::new())).unwrap_err(), Refusal::NotFound);
        assert_eq!(rig.sessions.table.lock().partitions, 0);
    }

    #[test]
    fn a_repeated_or_skipped_epoch_is_refused_and_a_fresh_start_ends_the_old_session() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]);
        assert_eq!(rig.begin(opening(id, 2, Vec::new())).unwrap_err(), Refusal::WrongEpoch);
        let turn = rig.begin(opening(id, 1, Vec::new())).unwrap();
        rig.finish(turn, &[seen(5, 0)]);
        assert_eq!(rig.begin(opening(id, 1, Vec::new())).unwrap_err(), Refusal::WrongEpoch);
        assert_eq!(rig.begin(opening(99, 1, Vec::new())).unwrap_err(), Refusal::NotFound);
        let turn = rig.begin(opening(id, FIRST, vec![asked("a", 0, 5)])).unwrap();
        let other = rig.finish(turn, &[seen(5, 0)]).session;
        assert_ne!(other, id);
        assert_eq!(rig.begin(opening(id, 2, Vec::new())).unwrap_err(), Refusal::NotFound);
        // A last fetch ends it without another.
        let turn = rig.begin(opening(other, NONE, vec![asked("a", 0, 5)])).unwrap();
        assert_eq!(rig.finish(turn, &[seen(5, 0)]).session, 0);
        assert!(rig.sessions.table.lock().sessions.is_empty());
    }

    #[test]
    fn epochs_begin_again_behind_the_largest() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]);
        rig.sessions.table.lock().sessions.get_mut(&id).unwrap().epoch = i32::MAX;
        let turn = rig.begin(opening(id, i32::MAX, Vec::new())).unwrap();
        rig.finish(turn, &[seen(5, 0)]);
        assert!(rig.begin(opening(id, 1, Vec::new())).is_ok());
    }

    #[test]
    fn a_session_is_nobody_elses_and_keeps_to_one_way_of_naming() {
        let mut rig = Rig::new();
        let id = rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]);
        let strange = rig.sessions.begin("other", opening(id, 1, Vec::new()), rig.now);
        assert_eq!(strange.unwrap_err(), Refusal::NotFound);
        rig.sessions.begin("other", opening(id, FIRST, Vec::new()), rig.now).unwrap();
        let by_id = Opening { by_id: true, ..opening(id, 1, Vec::new()) };
        assert_eq!(rig.begin(by_id).unwrap_err(), Refusal::OtherNames);
        assert!(rig.begin(opening(id, 1, Vec::new())).is_ok());
    }

    #[test]
    fn sessions_in_use_stay_and_idle_ones_make_room() {
        let mut rig = Rig::new();
        for _ in 0..SESSIONS_MAX {
            assert!(rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]) > 0);
        }
        assert_eq!(rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]), 0);
        rig.now += IDLE_MIN;
        let turn = rig.begin(opening(7, 1, Vec::new())).unwrap();
        rig.finish(turn, &[seen(5, 0)]);
        for _ in 1..SESSIONS_MAX {
            assert!(rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]) > 0);
        }
        assert_eq!(rig.open(vec![asked("a", 0, 5)], &[seen(5, 0)]), 0);
        assert!(rig.begin(opening(7, 2, Vec::new())).is_ok(), "it was in use");
    }

    #[test]
    fn there_is_an_end_to_the_partitions_that_are_kept() {
        let mut rig = Rig::new();
        let many = |count: usize| -> Vec<Asked> {
            (0..).take(count).map(|partition| asked("a", partition, 0)).collect()
        };
        let none = |count: usize| vec![seen(0, 0); count];
        let above = SESSION_PARTITIONS_MAX + 1;
        assert_eq!(rig.open(many(above), &none(above)), 0);
        let full = SESSION_PARTITIONS_MAX;
        for _ in 0..PARTITIONS_MAX / full {
            assert!(rig.open(many(full), &none(full)) > 0);
        }
        assert_eq!(rig.open(many(1), &none(1)), 0);
        let more = opening(1, 1, vec![asked("b", 0, 0)]);
        assert_eq!(rig.begin(more).unwrap_err(), Refusal::NotFound);
        assert_eq!(rig.sessions.table.lock().partitions, PARTITIONS_MAX - full);
        assert!(rig.open(many(1), &none(1)) > 0);
    }

    #[test]
    fn a_partition_named_twice_counts_once() {
        let mut rig = Rig::new();
        let twice = vec![asked("a", 0, 5), asked("a", 0, 6)];
        let id = rig.open(twice, &[seen(9, 10), seen(9, 10)]);
        let turn = rig.begin(opening(id, 1, Vec::new())).unwrap();
        assert_eq!(offsets(&turn), [(0, 6)]);
        assert_eq!(rig.sessions.table.lock().partitions, 1);
    }
}
