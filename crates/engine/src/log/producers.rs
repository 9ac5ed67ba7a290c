//! What producers have sent to each partition: how a batch that comes a second time is known.
//!
//! A producer counts its records, and may have five batches on the way. So the last five of each
//! are kept: one of them again is answered as it was the first time, one that leaves a gap is refused.
//! There is a bound on how many producers are known. The one that was silent longest is forgotten
//! first; it may go on with any number.

use std::collections::{BTreeMap, HashMap, VecDeque};

use punctual_model::{Partition, Span, Timestamp, TopicId};

use crate::codec::{self, Malformed};

use super::batch::{BatchHeader, Sent};

/// Batches that a producer may have on the way.
const BATCHES: usize = 5;
/// Producers that are known at most, counting one for each partition.
const PRODUCERS_MAX: usize = 64 << 10;
/// The part of them that is forgotten together.
const FORGOTTEN_PART: usize = 8;
/// How long a silent producer is known.
const SILENCE_MAX: Span = Span::from_days(1);

type Place = (TopicId, Partition);

/// The producers of all partitions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    known: HashMap<(Place, u64), Producer>,
    /// Counts what was noted, to tell who was silent longest.
    turn: u64,
}

/// What is known of a producer in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// The number that comes next.
    next: u32,
    /// How many numbers before it were appended, at least.
    accepted: u64,
    /// Oldest first.
    batches: VecDeque<Noted>,
    turn: u64,
    /// When it was heard; not known after a restart.
    heard: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Noted {
    first: u32,
    last: u32,
    base: u64,
}

/// What a batch is to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It comes next.
    Fresh,
    /// It was appended at this offset.
    Known(u64),
    /// It was appended, so long ago that its offset is forgotten.
    Old,
    /// Something is missing before it.
    Gap,
    /// Its producer has a newer epoch.
    Stale,
}

impl Producers {
    /// What to do with a batch.
    pub(crate) fn judge(&self, place: Place, sent: &Sent) -> Verdict {
        let Some(known) = self.known.get(&(place, sent.producer)) else { return Verdict::Fresh };
        if sent.epoch < known.epoch {
            return Verdict::Stale;
        }
        if sent.epoch > known.epoch {
            return if sent.first == 0 { Verdict::Fresh } else { Verdict::Gap };
        }
        let same = |noted: &&Noted| (noted.first, noted.last) == (sent.first, sent.last);
        if let Some(noted) = known.batches.iter().find(same) {
            return Verdict::Known(noted.base);
        }
        if sent.first == known.next {
            return Verdict::Fresh;
        }
        let behind = u64::from(known.next.wrapping_sub(sent.first) & Sent::LAST);
        let records = u64::from(sent.last.wrapping_sub(sent.first) & Sent::LAST) + 1;
        if behind <= known.accepted && records <= behind { Verdict::Old } else { Verdict::Gap }
    }

    /// Notes a batch that is in the log. One that is known already, or older, changes nothing.
    pub(crate) fn note(&mut self, place: Place, batch: &BatchHeader, now: Option<Timestamp>) {
        let Some(sent) = batch.producer else { return };
        self.turn += 1;
        let turn = self.turn;
        let known =
            self.known.entry((place, sent.producer)).or_insert_with(|| Producer::new(&sent));
        let last = known.batches.back().map(|noted| noted.base);
        if last.is_some_and(|last| last >= batch.base_offset) {
            return;
        }
        if sent.epoch != known.epoch || sent.first != known.next {
            *known = Producer::new(&sent);
        }
        if known.batches.len() == BATCHES {
            known.batches.pop_front();
        }
        known.batches.push_back(Noted {
            first: sent.first,
            last: sent.last,
            base: batch.base_offset,
        });
        known.accepted += u64::from(sent.last.wrapping_sub(sent.first) & Sent::LAST) + 1;
        known.next = sent.last.wrapping_add(1) & Sent::LAST;
        (known.turn, known.heard) = (turn, now);
        self.make_room();
    }

    /// Notes that the first batch of a producer was refused for no fault of its own: what follows it
    /// must not be taken for the first.
    pub(crate) fn expect(&mut self, place: Place, sent: &Sent) {
        self.turn += 1;
        let turn = self.turn;
        let producer = || Producer { turn, ..Producer::new(sent) };
        self.known.entry((place, sent.producer)).or_insert_with(producer);
        self.make_room();
    }

    /// Forgets the producers of a topic.
    pub(crate) fn forget_topic(&mut self, topic: TopicId) {
        self.known.retain(|((of, _), _), _| *of != topic);
    }

    /// Forgets whoever was silent for long.
    pub(crate) fn forget_silent(&mut self, now: Timestamp) {
        self.known.retain(|_, known| {
            let heard = *known.heard.get_or_insert(now);
            now.since(heard) <= SILENCE_MAX
        });
    }

    fn make_room(&mut self) {
        if self.known.len() <= PRODUCERS_MAX {
            return;
        }
        let mut turns: Vec<u64> = self.known.values().map(|known| known.turn).collect();
        let (_, limit, _) = turns.select_nth_unstable(PRODUCERS_MAX / FORGOTTEN_PART);
        let limit = *limit;
        self.known.retain(|_, known| known.turn > limit);
        tracing::warn!(
            left = self.known.len(),
            "too many producers; the most silent are forgotten"
        );
    }

    /// Appends the stored form.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let by_turn: BTreeMap<u64, _> =
            self.known.iter().map(|(key, known)| (known.turn, (key, known))).collect();
        let heard = by_turn.values().filter(|(_, known)| !known.batches.is_empty());
        codec::put_varint(out, heard.clone().count() as u64);
        for (((topic, partition), producer), known) in heard {
            out.extend_from_slice(&topic.get().to_le_bytes());
            out.extend_from_slice(&partition.get().to_le_bytes());
            out.extend_from_slice(&producer.to_le_bytes());
            out.extend_from_slice(&known.epoch.to_le_bytes());
            out.extend_from_slice(&known.accepted.to_le_bytes());
            let heard = known.heard.map_or(u64::MAX, Timestamp::as_millis);
            out.extend_from_slice(&heard.to_le_bytes());
            codec::put_varint(out, known.batches.len() as u64);
            for noted in &known.batches {
                out.extend_from_slice(&noted.first.to_le_bytes());
                out.extend_from_slice(&noted.last.to_le_bytes());
                out.extend_from_slice(&noted.base.to_le_bytes());
            }
        }
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Malformed`] for anything else.
    pub(crate) fn decode(rest: &mut &[u8]) -> Result<Self, Malformed> {
        let mut producers = Self::default();
        for _ in 0..codec::get_length(rest)? {
            let topic = TopicId::new(codec::get_u32(rest)?).ok_or(Malformed)?;
            let partition = Partition::new(codec::get_u16(rest)?).ok_or(Malformed)?;
            let producer = codec::get_u64(rest)?;
            let epoch = codec::get_u16(rest)?.cast_signed();
            let accepted = codec::get_u64(rest)?;
            let heard = Timestamp::from_millis(codec::get_u64(rest)?);
            let mut batches = VecDeque::with_capacity(BATCHES);
            for _ in 0..codec::get_length(rest)?.min(BATCHES) {
                let (first, last) = (codec::get_u32(rest)?, codec::get_u32(rest)?);
                batches.push_back(Noted { first, last, base: codec::get_u64(rest)? });
            }
            let last = batches.back().ok_or(Malformed)?.last;
            let next = last.wrapping_add(1) & Sent::LAST;
            producers.turn += 1;
            let turn = producers.turn;
            let known = Producer { epoch, next, accepted, batches, turn, heard };
            producers.known.insert(((topic, partition), producer), known);
        }
        Ok(producers)
    }
}

impl Producer {
    /// One that comes with this batch, which is not noted yet.
    fn new(sent: &Sent) -> Self {
        Self {
            epoch: sent.epoch,
            next: sent.first,
            accepted: 0,
            batches: VecDeque::with_capacity(BATCHES),
            turn: 0,
            heard: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        (TopicId::new(1).unwrap(), Partition::new(0).unwrap())
    }

    fn sent(producer: u64, epoch: i16, first: u32, records: u32) -> Sent {
        let last = first.wrapping_add(records - 1) & Sent::LAST;
        Sent { producer, epoch, first, last }
    }

    fn batch(sent: Sent, base: u64) -> BatchHeader {
        BatchHeader {
            base_offset: base,
            last_offset: base + u64::from(sent.last.wrapping_sub(sent.first) & Sent::LAST),
            bytes: 61,
            timestamp: None,
            fired: false,
            producer: Some(sent),
        }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    #[test]
    fn batches_follow_each_other_and_the_last_five_are_known_again() {
        let mut producers = Producers::default();
        for n in 0..8 {
            let next = sent(7, 0, n * 10, 10);
            assert_eq!(producers.judge(place(), &next), Verdict::Fresh);
            producers.note(place(), &batch(next, u64::from(n) * 10), None);
        }
        let judge = |first, records| producers.judge(place(), &sent(7, 0, first, records));
        for n in 3..8 {
            assert_eq!(judge(n * 10, 10), Verdict::Known(u64::from(n) * 10));
        }
        for n in 0..3 {
            assert_eq!(judge(n * 10, 10), Verdict::Old);
        }
        assert_eq!(judge(81, 1), Verdict::Gap);
        assert_eq!(judge(75, 10), Verdict::Gap, "it reaches over what was appended");
        assert_eq!(judge(80, 1), Verdict::Fresh);
        let other = (TopicId::new(1).unwrap(), Partition::new(1).unwrap());
        assert_eq!(producers.judge(other, &sent(7, 0, 500, 1)), Verdict::Fresh, "nobody knows it");
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_ends_the_older() {
        let mut producers = Producers::default();
        producers.note(place(), &batch(sent(7, 3, 0, 5), 0), None);
        assert_eq!(producers.judge(place(), &sent(7, 4, 5, 1)), Verdict::Gap);
        assert_eq!(producers.judge(place(), &sent(7, 4, 0, 5)), Verdict::Fresh);
        producers.note(place(), &batch(sent(7, 4, 0, 5), 5), None);
        assert_eq!(producers.judge(place(), &sent(7, 3, 5, 1)), Verdict::Stale);
        assert_eq!(producers.judge(place(), &sent(7, 4, 0, 5)), Verdict::Known(5));
    }

    #[test]
    fn numbers_begin_anew_behind_the_largest() {
        let mut producers = Producers::default();
        let first = sent(7, 0, Sent::LAST - 1, 4);
        assert_eq!(first.last, 1);
        producers.note(place(), &batch(first, 0), None);
        assert_eq!(producers.judge(place(), &sent(7, 0, 2, 1)), Verdict::Fresh);
        assert_eq!(producers.judge(place(), &sent(7, 0, 3, 1)), Verdict::Gap);
        assert_eq!(producers.judge(place(), &first), Verdict::Known(0));
        assert_eq!(producers.judge(place(), &sent(7, 0, Sent::LAST, 2)), Verdict::Old);
    }

    #[test]
    fn what_was_never_appended_is_no_old_duplicate() {
        let mut producers = Producers::default();
        producers.note(place(), &batch(sent(7, 0, 50, 5), 0), None);
        assert_eq!(producers.judge(place(), &sent(7, 0, 45, 5)), Verdict::Gap);
    }

    #[test]
    fn a_refused_first_batch_is_expected_before_its_followers() {
        let mut producers = Producers::default();
        producers.expect(place(), &sent(7, 0, 0, 5));
        assert_eq!(producers.judge(place(), &sent(7, 0, 5, 5)), Verdict::Gap);
        assert_eq!(producers.judge(place(), &sent(7, 0, 0, 5)), Verdict::Fresh);
        producers.note(place(), &batch(sent(7, 0, 0, 5), 0), None);
        producers.expect(place(), &sent(7, 0, 9, 5));
        assert_eq!(producers.judge(place(), &sent(7, 0, 5, 5)), Verdict::Fresh);
    }

    #[test]
    fn noting_a_batch_again_changes_nothing() {
        let mut producers = Producers::default();
        for n in 0..3 {
            producers.note(place(), &batch(sent(7, 0, n, 1), n.into()), Some(at(5)));
        }
        let before = producers.known.clone();
        for n in 0..3 {
            producers.note(place(), &batch(sent(7, 0, n, 1), n.into()), None);
        }
        assert_eq!(producers.known, before);
    }

    #[test]
    fn silent_producers_and_those_of_removed_topics_are_forgotten() {
        let mut producers = Producers::default();
        producers.note(place(), &batch(sent(1, 0, 0, 1), 0), Some(at(0)));
        producers.note(place(), &batch(sent(2, 0, 0, 1), 1), None);
        let day = SILENCE_MAX.as_millis();
        producers.forget_silent(at(day));
        assert_eq!(producers.known.len(), 2);
        producers.forget_silent(at(day + 1));
        assert_eq!(producers.known.len(), 1, "the other one is known since the first look");
        producers.forget_silent(at(2 * day + 1));
        assert!(producers.known.is_empty());
        producers.note(place(), &batch(sent(1, 0, 0, 1), 0), None);
        producers.forget_topic(place().0);
        assert!(producers.known.is_empty());
    }

    #[test]
    fn the_number_of_producers_is_bounded_and_the_latest_stay() {
        let mut producers = Producers::default();
        let all = PRODUCERS_MAX as u64 + 100;
        for n in 0..all {
            producers.note(place(), &batch(sent(n, 0, 0, 1), n), None);
        }
        assert!(producers.known.len() <= PRODUCERS_MAX);
        assert_eq!(producers.judge(place(), &sent(all - 1, 0, 0, 1)), Verdict::Known(all - 1));
        assert_eq!(producers.judge(place(), &sent(0, 0, 9, 1)), Verdict::Fresh);
    }

    #[test]
    fn producers_survive_their_stored_form() {
        let mut producers = Producers::default();
        for n in 0..20_u32 {
            let from = sent(u64::from(n % 3), 2, n / 3, 1);
            producers.note(place(), &batch(from, n.into()), Some(at(n.into())));
        }
        producers.expect(place(), &sent(99, 0, 0, 1));
        let mut bytes = Vec::new();
        producers.encode(&mut bytes);
        let mut rest = bytes.as_slice();
        let read = Producers::decode(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!(read.known.len(), 3, "who has nothing in the log is not kept");
        for (key, known) in &read.known {
            let before = producers.known.get(key).expect("it was noted");
            assert_eq!(
                Producer { turn: 0, ..known.clone() },
                Producer { turn: 0, ..before.clone() }
            );
        }
        for length in 0..bytes.len() {
            let (mut cut, _) = bytes.split_at(length);
            assert!(Producers::decode(&mut cut).is_err());
        }
    }
}
