//! The queue against a model that is too simple to be wrong: one list of messages for each feed,
//! and for each message what is known of it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use punctual_model::ports::Delivered;
use punctual_model::{Key, Message, MessageId, Partition, Sequence, TopicId};

use super::*;

const FEEDS: u16 = 3;
const OPEN_MAX: usize = 12;

/// What the model knows of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Nobody has it.
    Free,
    /// Nobody has it, and nobody may before this.
    Waits(Timestamp),
    Leased(Lease),
    Settling(Lease),
    Done,
}

#[derive(Clone, Debug)]
enum Step {
    Deliver {
        key: Option<u64>,
    },
    Take,
    /// And while it is read, something is delivered.
    TakeAndDeliver {
        key: Option<u64>,
    },
    Pass {
        millis: u64,
    },
    Begin {
        pick: usize,
    },
    Expire,
    Settled {
        pick: usize,
    },
    Again {
        pick: usize,
        wait: u64,
    },
    PutBack {
        pick: usize,
    },
    Extend {
        pick: usize,
        more: u64,
    },
    Seek {
        feed: u16,
        pick: usize,
    },
    Rebuild {
        ordered: bool,
    },
}

fn any_step() -> impl Strategy<Value = Step> {
    let pick = 0..64usize;
    prop_oneof![
        6 => proptest::option::of(0..4u64).prop_map(|key| Step::Deliver { key }),
        6 => Just(Step::Take),
        2 => proptest::option::of(0..4u64).prop_map(|key| Step::TakeAndDeliver { key }),
        3 => (1..30u64).prop_map(|millis| Step::Pass { millis }),
        4 => pick.clone().prop_map(|pick| Step::Begin { pick }),
        2 => Just(Step::Expire),
        4 => pick.clone().prop_map(|pick| Step::Settled { pick }),
        2 => (pick.clone(), 0..20u64).prop_map(|(pick, wait)| Step::Again { pick, wait }),
        1 => pick.clone().prop_map(|pick| Step::PutBack { pick }),
        1 => (pick.clone(), 0..40u64).prop_map(|(pick, more)| Step::Extend { pick, more }),
        1 => (0..FEEDS, pick).prop_map(|(feed, pick)| Step::Seek { feed, pick }),
        1 => any::<bool>().prop_map(|ordered| Step::Rebuild { ordered }),
    ]
}

struct Bench {
    queue: Queue,
    ordered: bool,
    logs: Vec<Vec<Option<u64>>>,
    known: BTreeMap<Place, Known>,
    now: u64,
    nonces: u64,
}

fn sequence(place: Place) -> Sequence {
    Sequence::new(place.offset).expect("small")
}

impl Bench {
    fn new(ordered: bool) -> Self {
        let mut queue = Queue::new(ordered, FEEDS - 1);
        queue.open_max = OPEN_MAX;
        let logs = vec![Vec::new(); usize::from(FEEDS)];
        Self { queue, ordered, logs, known: BTreeMap::new(), now: 0, nonces: 0 }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis_saturating(self.now)
    }

    fn lease(&mut self, millis: u64) -> Lease {
        self.nonces += 1;
        Lease { nonce: self.nonces, deadline: Duration::from_millis(self.now + millis) }
    }

    /// A message as it would be read.
    fn open(&self, place: Place) -> Open {
        let key = Key { due: Timestamp::MIN, sequence: sequence(place) };
        let topic = TopicId::new(1).expect("small");
        let id = MessageId { key, topic, partition: Partition::new(0).expect("small") };
        let message = Message { body: "x".into(), ..Message::default() };
        let offset = place.offset;
        let delivered =
            Delivered { id, offset, due: id.key.due, delivered_at: Timestamp::MIN, message };
        let mut open = Open::new(delivered, None, false);
        let keyed = self.logs[usize::from(place.feed)][usize::try_from(offset).expect("small")];
        open.key = keyed.filter(|_| self.ordered);
        if let Some(Known::Waits(until)) = self.known.get(&place) {
            open.not_before = *until;
        }
        open
    }

    /// Whether the model would let this one go out now.
    fn may_go(&self, place: Place) -> bool {
        let free = match self.known[&place] {
            Known::Free => true,
            Known::Waits(until) => until <= self.time(),
            Known::Leased(_) | Known::Settling(_) | Known::Done => false,
        };
        let log = &self.logs[usize::from(place.feed)];
        let key = |offset: u64| log[usize::try_from(offset).expect("small")];
        let blocks = |offset: u64| {
            let earlier = Place { offset, ..place };
            self.known[&earlier] != Known::Done
                && key(offset).is_some()
                && key(offset) == key(place.offset)
        };
        free && !(self.ordered && (0..place.offset).any(blocks))
    }

    fn read(&mut self, from: ReadFrom, meanwhile: impl FnOnce(&mut Self)) {
        let end = self.logs[usize::from(from.feed)].len() as u64;
        let mut page = Vec::new();
        let mut next = from.offset;
        while next < end && page.len() < from.room.min(4) {
            let place = Place { feed: from.feed, offset: next };
            if self.known[&place] != Known::Done {
                page.push(self.open(place));
            }
            next += 1;
        }
        meanwhile(self);
        assert!(self.queue.is_current(from));
        self.queue.admit(from, page, next, self.time());
    }

    fn take(&mut self, mut meanwhile: impl FnMut(&mut Self)) {
        loop {
            match self.queue.next() {
                Next::Read(from) => self.read(from, &mut meanwhile),
                Next::Give(place) => {
                    assert!(self.may_go(place), "{place:?} is {:?}", self.known[&place]);
                    let lease = self.lease(25);
                    assert!(self.queue.lease(place, lease).is_some());
                    self.known.insert(place, Known::Leased(lease));
                    return;
                }
                Next::Nothing => {
                    let full = self.queue.open.len() >= OPEN_MAX;
                    let open = |place: &Place| self.queue.open.contains_key(place);
                    let missed = self.known.keys().find(|p| self.may_go(**p) && (!full || open(p)));
                    assert_eq!(missed, None, "it could have been given out");
                    return;
                }
            }
        }
    }

    /// One of the messages in that state.
    fn pick(&self, pick: usize, of: impl Fn(Known) -> Option<Lease>) -> Option<(Place, Lease)> {
        let found: Vec<(Place, Lease)> =
            self.known.iter().filter_map(|(place, known)| Some((*place, of(*known)?))).collect();
        found.get(pick % found.len().max(1)).copied()
    }

    fn leased(&self, pick: usize) -> Option<(Place, Lease)> {
        self.pick(pick, |known| if let Known::Leased(lease) = known { Some(lease) } else { None })
    }

    fn settling(&self, pick: usize) -> Option<(Place, Lease)> {
        self.pick(pick, |known| if let Known::Settling(lease) = known { Some(lease) } else { None })
    }

    fn step(&mut self, step: Step) {
        let now = Duration::from_millis(self.now);
        match step {
            Step::Deliver { key } => self.deliver(key),
            Step::Take => self.take(|_| {}),
            Step::TakeAndDeliver { key } => {
                let mut key = Some(key);
                self.take(|bench| {
                    if let Some(key) = key.take() {
                        bench.deliver(key);
                    }
                });
            }
            Step::Pass { millis } => {
                self.now += millis;
                self.queue.end_waits(self.time());
            }
            Step::Begin { pick } => self.begin(pick, now),
            Step::Expire => self.expire(now),
            Step::Settled { pick } => {
                if let Some((place, lease)) = self.settling(pick) {
                    self.queue.settled(place, lease, self.time());
                    self.known.insert(place, Known::Done);
                }
            }
            Step::Again { pick, wait } => {
                if let Some((place, lease)) = self.settling(pick) {
                    let until = Timestamp::from_millis_saturating(self.now + wait);
                    let ready = self.queue.offer_again(place, lease, until, self.time());
                    assert_eq!(ready, wait == 0);
                    self.known.insert(place, Known::Waits(until));
                }
            }
            Step::PutBack { pick } => {
                if let Some((place, lease)) = self.settling(pick) {
                    self.queue.put_back(place, lease, lease.deadline);
                    self.known.insert(place, Known::Leased(lease));
                }
            }
            Step::Extend { pick, more } => {
                if let Some((place, lease)) = self.leased(pick) {
                    let deadline = Duration::from_millis(self.now + more);
                    let extended = self.queue.extend(place, lease.nonce, now, deadline);
                    assert_eq!(extended, lease.deadline > now);
                    if extended {
                        self.known.insert(place, Known::Leased(Lease { deadline, ..lease }));
                    }
                }
            }
            Step::Seek { feed, pick } => self.seek(feed, pick),
            Step::Rebuild { ordered } => {
                // The order of what is on its way to the disk is not kept; let it arrive first.
                while let Some((place, lease)) = self.settling(0).filter(|_| ordered) {
                    self.queue.settled(place, lease, self.time());
                    self.known.insert(place, Known::Done);
                }
                self.queue.rebuild(ordered);
                self.ordered = ordered;
                for known in self.known.values_mut() {
                    if let Known::Leased(_) = known {
                        *known = Known::Free;
                    }
                }
            }
        }
    }

    /// A key always goes to the same feed.
    fn deliver(&mut self, key: Option<u64>) {
        let feed = key.unwrap_or(self.now) % u64::from(FEEDS);
        let feed = u16::try_from(feed).expect("small");
        let log = &mut self.logs[usize::from(feed)];
        self.known.insert(Place { feed, offset: log.len() as u64 }, Known::Free);
        log.push(key);
        self.queue.hear(feed);
    }

    fn begin(&mut self, pick: usize, now: Duration) {
        let Some((place, lease)) = self.leased(pick) else { return };
        assert!(self.queue.begin(place, lease.nonce ^ 1 << 40, now).is_none(), "a wrong nonce");
        let begun = self.queue.begin(place, lease.nonce, now).map(|(_, lease)| lease);
        assert_eq!(begun, (lease.deadline > now).then_some(lease));
        if begun.is_some() {
            assert!(self.queue.begin(place, lease.nonce, now).is_none(), "begun twice");
            self.known.insert(place, Known::Settling(lease));
        }
    }

    fn expire(&mut self, now: Duration) {
        let mut nonces = self.nonces;
        let expired = self.queue.expire(now, || {
            nonces += 1;
            nonces
        });
        self.nonces = nonces;
        for (place, lease) in expired {
            let Known::Leased(held) = self.known[&place] else {
                unreachable!("{place:?} was free")
            };
            assert!(held.deadline <= now && held.nonce != lease.nonce);
            self.known.insert(place, Known::Settling(lease));
        }
        let late = |known: &Known| matches!(known, Known::Leased(held) if held.deadline <= now);
        assert!(!self.known.values().any(late), "a lease was forgotten");
    }

    fn seek(&mut self, feed: u16, pick: usize) {
        let end = self.logs[usize::from(feed)].len();
        let offset = (pick % (end + 1)) as u64;
        self.queue.seek(feed, offset, self.time());
        for (place, known) in self.known.iter_mut().filter(|(place, _)| place.feed == feed) {
            *known = if place.offset < offset { Known::Done } else { Known::Free };
        }
    }

    /// What holds between any two steps.
    fn check(&self) {
        let queue = &self.queue;
        let leased = self.known.values().filter(|known| matches!(known, Known::Leased(_))).count();
        assert_eq!(queue.in_flight(), leased);
        assert!(queue.open.len() <= OPEN_MAX);
        assert_eq!(queue.kept_bytes, queue.open.values().map(Open::kept).sum::<usize>());
        let count = |of: fn(&State) -> bool| queue.open.values().filter(|o| of(&o.state)).count();
        let fresh: usize = queue.feeds.iter().map(|feed| feed.fresh.len()).sum();
        assert_eq!(count(|state| *state == State::Ready), queue.again.len() + fresh);
        assert_eq!(count(|state| *state == State::Waiting), queue.waits.len());
        let chained: usize = queue.chains.values().map(VecDeque::len).sum();
        let keyed = queue.open.values().filter(|open| open.key.is_some()).count();
        assert_eq!((chained, queue.chains.values().any(VecDeque::is_empty)), (keyed, false));
        let fronts = queue.chains.values().filter_map(VecDeque::front);
        assert!(fronts.into_iter().all(|front| queue.open[front].state != State::Held));
        assert_eq!(count(|state| *state == State::Held), chained - queue.chains.len());
    }
}

proptest! {
    #[test]
    fn it_does_what_the_model_says(
        ordered in any::<bool>(),
        steps in proptest::collection::vec(any_step(), 1..200),
    ) {
        let mut bench = Bench::new(ordered);
        for step in steps {
            bench.step(step);
            bench.check();
        }
    }
}

#[test]
fn feeds_take_turns() {
    let mut bench = Bench::new(false);
    for _ in 0..4 {
        for feed in 0..u64::from(FEEDS) {
            bench.deliver(Some(feed));
        }
    }
    let mut given = Vec::new();
    while given.len() < 12 {
        match bench.queue.next() {
            Next::Give(place) => given.push(place.feed),
            Next::Read(from) => bench.read(from, |_| {}),
            Next::Nothing => unreachable!("there are twelve"),
        }
    }
    for turn in given.chunks(3) {
        assert_eq!(turn.iter().copied().collect::<BTreeSet<u16>>().len(), 3, "{given:?}");
    }
}

/// Gives out the next message of a bench that has one.
fn give(bench: &mut Bench, deadline: Duration) -> Option<(Place, Lease)> {
    loop {
        match bench.queue.next() {
            Next::Give(place) => {
                let lease = Lease { deadline, ..bench.lease(0) };
                bench.queue.lease(place, lease)?;
                return Some((place, lease));
            }
            Next::Read(from) => bench.read(from, |_| {}),
            Next::Nothing => return None,
        }
    }
}

#[test]
fn a_lease_lasts_to_its_last_moment() {
    let mut bench = Bench::new(false);
    bench.deliver(None);
    let deadline = Duration::from_millis(5);
    let (place, lease) = give(&mut bench, deadline).expect("there is one");
    let moment = Duration::from_nanos(1);
    assert!(bench.queue.expire(deadline - moment, || 7).is_empty());
    assert!(bench.queue.begin(place, lease.nonce, deadline).is_none());
    assert_eq!(bench.queue.expire(deadline, || 7).len(), 1);
}

#[test]
fn who_makes_room_in_a_full_queue_says_so() {
    let mut bench = Bench::new(false);
    (0..=OPEN_MAX).for_each(|_| bench.deliver(None));
    let deadline = Duration::from_millis(5);
    let given: Vec<_> = std::iter::from_fn(|| give(&mut bench, deadline)).collect();
    assert_eq!(given.len(), OPEN_MAX);
    let settle = |bench: &mut Bench, (place, lease): (Place, Lease)| {
        bench.queue.begin(place, lease.nonce, Duration::ZERO);
        bench.queue.settled(place, lease, Timestamp::MIN)
    };
    assert_eq!(settle(&mut bench, given[0]), 1, "there is room for another");
    assert_eq!(settle(&mut bench, given[1]), 0, "there was room already");
    assert!(give(&mut bench, deadline).is_some());
}
