//! The open messages of one group, and the only steps between their states.
//!
//! Pure: no clock, no I/O, no locks; time enters as a number. What must always hold:
//! - an open message is in one state, and in the list that belongs to it: ready ones are in
//!   `again` or in their feed's `fresh`, leased ones in `leases`, waiting ones in `waits`;
//! - only a lease's own nonce, before its deadline, takes a message out of the hands of a consumer;
//! - in an ordered group the messages of one key form a chain, and only its front is ever out of
//!   [`State::Held`].
//!
//! When as many messages are open as may be, nothing more is read until some are settled. In an
//! ordered group a key whose message keeps failing therefore stops the others too, once that many
//! messages wait behind it.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use punctual_model::Timestamp;
use punctual_model::limits::OPEN_MESSAGES_MAX;

use super::feed::Feed;
use super::open::{Lease, Open, State};

#[cfg(test)]
mod tests;

/// Bytes of content that a group keeps in memory. What is over that is read again when needed. Past
/// half of it, only what is ready to be given out is kept.
const KEPT_BYTES_MAX: usize = 8 << 20;

/// Where an open message lies: its feed, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) feed: u16,
    pub(crate) offset: u64,
}

/// What to do next to get something to give out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Give out this one.
    Give(Place),
    /// Read.
    Read(ReadFrom),
    /// Nothing can be done for now.
    Nothing,
}

/// Where to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadFrom {
    pub(crate) feed: u16,
    pub(crate) offset: u64,
    /// How many more messages may be open.
    pub(crate) room: usize,
    news: u64,
}

/// The open messages of a group.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ordered: bool,
    /// How many messages may be open.
    open_max: usize,
    open: BTreeMap<Place, Open>,
    feeds: Vec<Feed>,
    /// Feeds that are worth a turn, the next one first.
    rota: VecDeque<u16>,
    /// What is given out before anything else: leases that ran out, waits that ended.
    again: VecDeque<Place>,
    leases: BTreeSet<(Duration, Place)>,
    waits: BTreeSet<(Timestamp, Place)>,
    /// The open messages of each key, in order.
    chains: HashMap<u64, VecDeque<Place>>,
    /// Bytes of content in memory, and how many there may be.
    kept_bytes: usize,
    kept_max: usize,
}

impl Queue {
    /// Nothing read yet of the retry topic and `partitions` partitions.
    pub(crate) fn new(ordered: bool, partitions: u16) -> Self {
        let (open_max, kept_max) = (OPEN_MESSAGES_MAX, KEPT_BYTES_MAX);
        let mut queue = Self { ordered, open_max, kept_max, ..Self::default() };
        queue.grow(partitions);
        queue
    }

    /// The topic has that many partitions now.
    pub(crate) fn grow(&mut self, partitions: u16) {
        while self.feeds.len() < usize::from(partitions) + 1 {
            let Ok(feed) = u16::try_from(self.feeds.len()) else { return };
            self.feeds.push(Feed::new());
            self.enrol(feed);
        }
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Open> {
        self.open.get(&place)
    }

    /// Bytes of content in memory.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Memory is short, or no longer.
    pub(crate) fn be_thrifty(&mut self, thrifty: bool) {
        self.kept_max = if thrifty { KEPT_BYTES_MAX / 32 } else { KEPT_BYTES_MAX };
    }

    /// How many messages are with consumers.
    pub(crate) fn in_flight(&self) -> usize {
        self.leases.len()
    }

    /// Whether another take may find something.
    pub(crate) fn has_more(&self) -> bool {
        !self.again.is_empty() || !self.rota.is_empty()
    }

    /// When the first lease runs out.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.leases.first().map(|(deadline, _)| *deadline)
    }

    /// When the first wait ends.
    pub(crate) fn next_wait(&self) -> Option<Timestamp> {
        self.waits.first().map(|(not_before, _)| *not_before)
    }

    /// Something was delivered to a feed.
    pub(crate) fn hear(&mut self, feed: u16) {
        if let Some(known) = self.feeds.get_mut(usize::from(feed)) {
            known.hear();
            self.enrol(feed);
        }
    }

    fn enrol(&mut self, feed: u16) {
        let known = &mut self.feeds[usize::from(feed)];
        if known.is_promising() && !known.in_rota {
            known.in_rota = true;
            self.rota.push_back(feed);
        }
    }

    /// What to do next. Feeds take turns, message by message, so none starves another. A place that
    /// is answered is out of its list: it is to be leased or seized before anything else happens.
    pub(crate) fn next(&mut self) -> Next {
        if let Some(place) = self.again.pop_front() {
            return Next::Give(place);
        }
        let room = self.open_max.saturating_sub(self.open.len());
        for _ in 0..self.rota.len() {
            let Some(number) = self.rota.pop_front() else { break };
            let feed = &mut self.feeds[usize::from(number)];
            feed.in_rota = false;
            if let Some(offset) = feed.fresh.pop_front() {
                self.enrol(number);
                return Next::Give(Place { feed: number, offset });
            }
            let (offset, news) = (feed.head, feed.news());
            let readable = feed.is_unread() && room > 0;
            self.enrol(number);
            if readable {
                return Next::Read(ReadFrom { feed: number, offset, room, news });
            }
        }
        Next::Nothing
    }

    /// Whether nobody has read there since.
    pub(crate) fn is_current(&self, from: ReadFrom) -> bool {
        let feed = self.feeds.get(usize::from(from.feed));
        feed.is_some_and(|feed| feed.head == from.offset && feed.fresh.is_empty())
    }

    /// Takes in what was read, which ends at `next`.
    pub(crate) fn admit(&mut self, from: ReadFrom, page: Vec<Open>, next: u64, now: Timestamp) {
        let number = from.feed;
        if page.is_empty() && next == from.offset {
            self.feeds[usize::from(number)].reached_end(from.news);
        }
        let mut head = next;
        let mut ready = 0;
        for mut open in page {
            let place = Place { feed: number, offset: open.mark.offset };
            if self.open.contains_key(&place) {
                // On its way to the disk since before everything began anew.
                continue;
            }
            open.state = self.first_state(&open, now);
            let is_ready = open.state == State::Ready;
            // What does not fit is read again later, when there is use for it.
            let crowded = is_ready && ready > 0 && self.kept_bytes + open.kept() > self.kept_max;
            if crowded || self.open.len() >= self.open_max {
                head = place.offset;
                break;
            }
            if let Some(key) = open.key {
                self.chains.entry(key).or_default().push_back(place);
            }
            match open.state {
                State::Waiting => drop(self.waits.insert((open.not_before, place))),
                State::Ready => {
                    self.feeds[usize::from(number)].fresh.push_back(place.offset);
                    ready += 1;
                }
                State::Held | State::Leased(_) | State::Settling(_) => {}
            }
            if !is_ready && self.kept_bytes > self.kept_max / 2 {
                open.content = None;
            }
            self.kept_bytes += open.kept();
            self.open.insert(place, open);
        }
        self.feeds[usize::from(number)].head = head;
        self.enrol(number);
    }

    fn first_state(&self, open: &Open, now: Timestamp) -> State {
        if open.key.is_some_and(|key| self.chains.contains_key(&key)) {
            State::Held
        } else if open.not_before > now {
            State::Waiting
        } else {
            State::Ready
        }
    }

    /// Gives a message to whoever knows the nonce. Answers it as it is given out; without content
    /// if that is to be read again.
    pub(crate) fn lease(&mut self, place: Place, lease: Lease) -> Option<Open> {
        let open = self.open.get_mut(&place).filter(|open| open.state == State::Ready)?;
        open.state = State::Leased(lease);
        self.leases.insert((lease.deadline, place));
        let given = open.clone();
        if self.kept_bytes > self.kept_max / 2 {
            self.kept_bytes -= open.kept();
            open.content = None;
        }
        Some(given)
    }

    /// Takes a ready message to be settled without anybody having held it.
    pub(crate) fn seize(&mut self, place: Place, lease: Lease) -> Option<Open> {
        let open = self.open.get_mut(&place).filter(|open| open.state == State::Ready)?;
        open.state = State::Settling(lease);
        Some(open.clone())
    }

    /// Takes a message out of the hands of its holder to be settled. `None` if it is not held.
    pub(crate) fn begin(
        &mut self,
        place: Place,
        nonce: u64,
        now: Duration,
    ) -> Option<(&Open, Lease)> {
        let open = self.open.get_mut(&place)?;
        let State::Leased(lease) = open.state else { return None };
        if lease.nonce != nonce || lease.deadline <= now {
            return None;
        }
        self.leases.remove(&(lease.deadline, place));
        open.state = State::Settling(lease);
        Some((open, lease))
    }

    /// Whether whoever knows the nonce holds the message, or what they said of it is on its way to
    /// the disk.
    pub(crate) fn is_held(&self, place: Place, nonce: u64, now: Duration) -> bool {
        match self.open.get(&place).map(|open| &open.state) {
            Some(State::Leased(lease)) => lease.nonce == nonce && lease.deadline > now,
            Some(State::Settling(lease)) => lease.nonce == nonce,
            _ => false,
        }
    }

    /// Takes the messages whose lease has run out to be settled, under new nonces.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        mut nonce: impl FnMut() -> u64,
    ) -> Vec<(Place, Lease)> {
        let mut expired = Vec::new();
        while let Some((deadline, place)) = self.leases.first().copied() {
            if deadline > now {
                break;
            }
            self.leases.pop_first();
            let lease = Lease { nonce: nonce(), deadline };
            if let Some(open) = self.open.get_mut(&place) {
                open.state = State::Settling(lease);
                expired.push((place, lease));
            }
        }
        expired
    }

    /// Gives a lease a new deadline. False if it is not held.
    pub(crate) fn extend(
        &mut self,
        place: Place,
        nonce: u64,
        now: Duration,
        deadline: Duration,
    ) -> bool {
        let Some((_, lease)) = self.begin(place, nonce, now) else { return false };
        self.put_back(place, lease, deadline);
        true
    }

    /// What was on its way to the disk has failed: the holder has it again until `deadline`.
    pub(crate) fn put_back(&mut self, place: Place, lease: Lease, deadline: Duration) {
        if let Some(open) = self.settling(place, lease) {
            open.state = State::Leased(Lease { deadline, ..lease });
            self.leases.insert((deadline, place));
        }
    }

    /// Offers a message again, not before a time; answers whether it is ready now.
    pub(crate) fn offer_again(
        &mut self,
        place: Place,
        lease: Lease,
        not_before: Timestamp,
        now: Timestamp,
    ) -> bool {
        let Some(open) = self.settling(place, lease) else { return false };
        open.not_before = not_before;
        self.release(place, now)
    }

    /// The message, if it is still being settled by whoever has this lease.
    pub(crate) fn settling(&mut self, place: Place, lease: Lease) -> Option<&mut Open> {
        self.open.get_mut(&place).filter(|open| open.state == State::Settling(lease))
    }

    /// A message is settled, durably. Answers how many others are ready because of that.
    pub(crate) fn settled(&mut self, place: Place, lease: Lease, now: Timestamp) -> usize {
        if self.settling(place, lease).is_none() {
            return 0;
        }
        let was_full = self.open.len() >= self.open_max;
        self.remove(place, now) + usize::from(was_full)
    }

    /// Forgets all of a feed and goes on at an offset. Nobody holds any of it any more.
    pub(crate) fn seek(&mut self, feed: u16, offset: u64, now: Timestamp) {
        let Some(known) = self.feeds.get_mut(usize::from(feed)) else { return };
        known.fresh.clear();
        known.head = offset;
        self.again.retain(|listed| listed.feed != feed);
        let range = Place { feed, offset: 0 }..=Place { feed, offset: u64::MAX };
        let places: Vec<Place> = self.open.range(range).map(|(place, _)| *place).collect();
        // From the back, so that no chain is walked and nothing is freed only to be forgotten.
        for place in places.into_iter().rev() {
            self.remove(place, now);
        }
        self.hear(feed);
    }

    /// Begins anew, with or without order, except for what is on its way to the disk. Nobody holds
    /// anything any more.
    pub(crate) fn rebuild(&mut self, ordered: bool) {
        let mut anew = Self { ordered, open_max: self.open_max, ..Self::default() };
        anew.kept_max = self.kept_max;
        anew.feeds.resize_with(self.feeds.len(), Feed::new);
        for feed in (0..).take(self.feeds.len()) {
            anew.enrol(feed);
        }
        for (place, mut open) in std::mem::take(&mut self.open) {
            if let State::Settling(_) = open.state {
                open.key = None;
                anew.kept_bytes += open.kept();
                anew.open.insert(place, open);
            }
        }
        *self = anew;
    }

    /// Forgets what was read of a feed from `from` on, back to the last message of it that somebody
    /// holds; answers from where on it is to be read again.
    pub(crate) fn unread(&mut self, feed: u16, from: u64, now: Timestamp) -> u64 {
        let range = Place { feed, offset: from }..=Place { feed, offset: u64::MAX };
        let free = |open: &Open| !matches!(open.state, State::Leased(_) | State::Settling(_));
        let read = self.open.range(range).rev().take_while(|(_, open)| free(open));
        let places: Vec<Place> = read.map(|(place, _)| *place).collect();
        let Some(known) = self.feeds.get_mut(usize::from(feed)) else { return u64::MAX };
        if let Some(first) = places.last() {
            known.head = known.head.min(first.offset);
            known.fresh.retain(|offset| *offset < first.offset);
            self.again.retain(|listed| listed.feed != feed || listed.offset < first.offset);
        }
        let head = known.head;
        for place in places {
            self.remove(place, now);
        }
        self.hear(feed);
        head
    }

    /// Makes a message ready, or lets it wait; answers whether it is ready.
    fn release(&mut self, place: Place, now: Timestamp) -> bool {
        let Some(open) = self.open.get_mut(&place) else { return false };
        if open.not_before > now {
            open.state = State::Waiting;
            self.waits.insert((open.not_before, place));
            return false;
        }
        open.state = State::Ready;
        self.again.push_back(place);
        true
    }

    /// Makes ready what has waited long enough; answers how many.
    pub(crate) fn end_waits(&mut self, now: Timestamp) -> usize {
        let mut ready = 0;
        while let Some((not_before, place)) = self.waits.first().copied() {
            if not_before > now {
                break;
            }
            self.waits.pop_first();
            ready += usize::from(self.release(place, now));
        }
        ready
    }

    /// Takes a message out of everything but the lists of what is ready.
    fn remove(&mut self, place: Place, now: Timestamp) -> usize {
        let Some(open) = self.open.remove(&place) else { return 0 };
        self.kept_bytes -= open.kept();
        match open.state {
            State::Leased(lease) => drop(self.leases.remove(&(lease.deadline, place))),
            State::Waiting => drop(self.waits.remove(&(open.not_before, place))),
            State::Ready | State::Held | State::Settling(_) => {}
        }
        let Some(key) = open.key else { return 0 };
        self.unchain(key, place, now)
    }

    /// Takes a message out of its chain; the next one is then at the front.
    fn unchain(&mut self, key: u64, place: Place, now: Timestamp) -> usize {
        let Some(chain) = self.chains.get_mut(&key) else { return 0 };
        if chain.back() == Some(&place) && chain.len() > 1 {
            chain.pop_back();
            return 0;
        }
        if chain.front() != Some(&place) {
            chain.retain(|chained| *chained != place);
            return 0;
        }
        chain.pop_front();
        match chain.front().copied() {
            Some(next) => usize::from(self.release(next, now)),
            None => {
                self.chains.remove(&key);
                0
            }
        }
    }
}
