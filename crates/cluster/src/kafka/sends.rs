//! What is on its way to Kafka, and what is held back: decisions without a network.
//!
//! Each entry is handed to Kafka's client once and stays listed until its batch has been answered
//! for, or, if nobody could wait for it, until somebody was told what became of it. Nothing listed
//! is handed over again, so that what the client still holds is never sent twice.
//!
//! A topic that refuses messages is held back for a second, then two, then four, up to a minute. A
//! partition that is silent takes nothing more until what it was given is answered for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use punctual_model::ports::{Armed, Fate, Told, Untaken};
use punctual_model::{Key, Lane, Partition, Span, TopicId};

/// The first wait of a topic that is held back, and the longest.
const WAIT_MIN: Duration = Duration::from_secs(1);
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How long a message waits that no try can help: until somebody has changed a setting of Kafka.
const HOPELESS_WAIT: Duration = Duration::from_secs(60);

/// Why Kafka did not take a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Its topic takes nothing.
    Topic,
    /// Nothing is wrong but the message: it is too large, for one.
    Message,
    /// The client gave it up; the next may go better.
    Client,
}

/// A place in Kafka, as the catalogue numbers it.
type Place = (TopicId, Partition);

/// All that is on its way.
#[derive(Debug, Default)]
pub(super) struct Sends {
    sends: HashMap<Key, Sending>,
    told: [Vec<Told>; 2],
    topics: HashMap<TopicId, Hold>,
    silent: HashMap<Place, Silent>,
    /// For each lane, what its batch still waits for, and when it last heard of one.
    rounds: [Round; 2],
}

#[derive(Debug)]
struct Sending {
    place: Place,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The batch waits for it.
    Flying,
    /// Nobody waits for it; whoever asks will be told.
    Open,
    Taken,
    Failed(Failure),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Round {
    /// How many are not answered for.
    pub(super) flying: usize,
    /// When the last one was.
    pub(super) heard: Option<Instant>,
}

/// Something takes nothing for a while.
#[derive(Clone, Copy, Debug)]
struct Hold {
    wait: Duration,
    until: Instant,
}

impl Hold {
    fn new(now: Instant) -> Self {
        Self { wait: WAIT_MIN, until: now + WAIT_MIN }
    }

    /// Twice as long, unless this wait is not over yet.
    fn again(&mut self, now: Instant) {
        if now >= self.until {
            self.wait = (self.wait * 2).min(WAIT_MAX);
            self.until = now + self.wait;
        }
    }

    fn left(&self, now: Instant) -> Option<Duration> {
        self.until.checked_duration_since(now).filter(|left| !left.is_zero())
    }
}

/// A partition that was given messages and does not answer.
#[derive(Debug)]
struct Silent {
    open: usize,
    hold: Hold,
}

/// What there is to be done about a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The batch of its lane waits for nothing more.
    pub(super) last: bool,
    /// Its topic is held back for so long from now on.
    pub(super) held: Option<Duration>,
}

/// What is to be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is on its way already, or was.
    Known,
    /// It is to be sent now.
    Send,
    /// Its topic is held back.
    Held(Span),
    /// Its partition is silent.
    Silent(Span),
}

impl Sends {
    /// What is to be done with an entry; one to be sent is listed from here on.
    pub(super) fn admit(&mut self, armed: &Armed, now: Instant) -> Admission {
        if self.sends.contains_key(&armed.key) {
            return Admission::Known;
        }
        let place = (armed.topic, armed.partition);
        if let Some(left) = self.topics.get(&armed.topic).and_then(|hold| hold.left(now)) {
            return Admission::Held(span(left));
        }
        if let Some(silent) = self.silent.get_mut(&place) {
            silent.hold.again(now);
            return Admission::Silent(span(silent.hold.left(now).unwrap_or(WAIT_MIN)));
        }
        self.sends.insert(armed.key, Sending { place, state: State::Flying });
        self.rounds[armed.key.sequence.lane().index()].flying += 1;
        Admission::Send
    }

    /// What became of an entry.
    pub(super) fn reported(
        &mut self,
        key: Key,
        outcome: Result<(), Failure>,
        now: Instant,
    ) -> Heard {
        let mut heard = Heard::default();
        let Some(sending) = self.sends.get_mut(&key) else { return heard };
        let (place, was_open) = (sending.place, sending.state == State::Open);
        sending.state = match outcome {
            Ok(()) => State::Taken,
            Err(failure) => State::Failed(failure),
        };
        match outcome {
            Ok(()) => drop(self.topics.remove(&place.0)),
            Err(Failure::Topic) => {
                let before = self.topics.get(&place.0).map(|hold| hold.wait);
                let hold = self.topics.entry(place.0).or_insert_with(|| Hold::new(now));
                hold.again(now);
                heard.held = (before != Some(hold.wait)).then_some(hold.wait);
            }
            Err(Failure::Message | Failure::Client) => {}
        }
        let lane = key.sequence.lane().index();
        if was_open {
            self.sends.remove(&key);
            self.answered(place);
            let later = outcome.err().map(|failure| self.wait(place.0, failure, now));
            self.told[lane].push(Told { key, later });
            return heard;
        }
        let round = &mut self.rounds[lane];
        round.flying = round.flying.saturating_sub(1);
        round.heard = Some(now);
        heard.last = round.flying == 0;
        heard
    }

    /// One of the open ones of a partition was answered for.
    fn answered(&mut self, place: Place) {
        if let Some(silent) = self.silent.get_mut(&place) {
            silent.open = silent.open.saturating_sub(1);
            if silent.open == 0 {
                self.silent.remove(&place);
            }
        }
    }

    /// How long a message waits after a failure.
    fn wait(&self, topic: TopicId, failure: Failure, now: Instant) -> Span {
        span(match failure {
            Failure::Topic => {
                self.topics.get(&topic).and_then(|hold| hold.left(now)).unwrap_or(WAIT_MIN)
            }
            Failure::Message => HOPELESS_WAIT,
            Failure::Client => WAIT_MIN,
        })
    }

    /// What the batch of a lane waits for.
    pub(super) fn round(&self, lane: Lane) -> Round {
        self.rounds[lane.index()]
    }

    /// One that the batch of its lane waits for.
    pub(super) fn missing<'a>(&self, batch: &'a [Armed]) -> Option<&'a Armed> {
        let flies =
            |key: &Key| self.sends.get(key).is_some_and(|sending| sending.state == State::Flying);
        batch.iter().find(|armed| flies(&armed.key))
    }

    /// Ends a batch: answers what of it was not taken. What is not answered for is open from now on.
    /// `refused` has, by place, what was not even sent.
    pub(super) fn finish(
        &mut self,
        batch: &[Armed],
        refused: &HashMap<usize, Span>,
        now: Instant,
    ) -> Vec<Untaken> {
        let mut untaken = Vec::new();
        for (index, armed) in batch.iter().enumerate() {
            if let Some(wait) = refused.get(&index) {
                // The client may have had no room for it.
                self.sends.remove(&armed.key);
                untaken.push(Untaken { index, fate: Fate::Later(*wait) });
                continue;
            }
            let Some(sending) = self.sends.get_mut(&armed.key) else { continue };
            match sending.state {
                State::Taken => drop(self.sends.remove(&armed.key)),
                State::Failed(failure) => {
                    self.sends.remove(&armed.key);
                    let wait = self.wait(armed.topic, failure, now);
                    untaken.push(Untaken { index, fate: Fate::Later(wait) });
                }
                State::Flying | State::Open => {
                    sending.state = State::Open;
                    let silent = self.silent.entry(sending.place);
                    let new = || Silent { open: 0, hold: Hold::new(now) };
                    silent.or_insert_with(new).open += 1;
                    untaken.push(Untaken { index, fate: Fate::Open });
                }
            }
        }
        if let Some(first) = batch.first() {
            self.rounds[first.key.sequence.lane().index()] = Round::default();
        }
        untaken
    }

    /// What became of open ones of a lane.
    pub(super) fn told(&mut self, lane: Lane) -> Vec<Told> {
        std::mem::take(&mut self.told[lane.index()])
    }

    /// How many are listed.
    pub(super) fn len(&self) -> usize {
        self.sends.len()
    }
}

fn span(duration: Duration) -> Span {
    Span::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).max(1))
}

#[cfg(test)]
mod tests {
    use punctual_model::ports::Origin;
    use punctual_model::{Basis, Message, Sequence, Timestamp};

    use super::*;
    use crate::kafka::monotonic;

    fn armed(number: u64, topic: u32, partition: u16) -> Armed {
        Armed {
            key: Key { due: Timestamp::MIN, sequence: Sequence::new(number).unwrap() },
            topic: TopicId::new(topic).unwrap(),
            partition: Partition::new(partition).unwrap(),
            basis: Basis::Delay,
            message: Message::default(),
            extra: None,
            origin: Origin(0),
        }
    }

    fn later(index: usize, seconds: u64) -> Untaken {
        Untaken { index, fate: Fate::Later(Span::from_secs(seconds)) }
    }

    #[test]
    fn what_is_on_its_way_is_not_sent_again() {
        let (mut sends, now) = (Sends::default(), monotonic());
        let batch = [armed(1, 1, 0), armed(2, 1, 0)];
        assert_eq!(sends.admit(&batch[0], now), Admission::Send);
        assert_eq!(sends.admit(&batch[1], now), Admission::Send);
        assert!(!sends.reported(batch[0].key, Ok(()), now).last);
        // Kafka went silent; the same batch is offered again.
        assert_eq!(sends.admit(&batch[0], now), Admission::Known);
        assert_eq!(sends.admit(&batch[1], now), Admission::Known);
        assert_eq!(sends.round(Lane::Message).flying, 1);
        assert!(sends.reported(batch[1].key, Ok(()), now).last);
        assert_eq!(sends.finish(&batch, &HashMap::new(), now), []);
        assert_eq!(sends.len(), 0);
    }

    #[test]
    fn a_topic_that_refuses_is_held_back_longer_and_longer_and_others_are_not() {
        let mut sends = Sends::default();
        let mut now = monotonic();
        for (round, wait) in (0..).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            let batch =
                [armed(round * 3, 1, 0), armed(round * 3 + 1, 1, 1), armed(round * 3 + 2, 2, 0)];
            for armed in &batch {
                assert_eq!(sends.admit(armed, now), Admission::Send);
            }
            sends.reported(batch[0].key, Err(Failure::Topic), now);
            sends.reported(batch[1].key, Err(Failure::Topic), now);
            sends.reported(batch[2].key, Ok(()), now);
            let untaken = sends.finish(&batch, &HashMap::new(), now);
            assert_eq!(untaken, [later(0, wait), later(1, wait)]);
            let held = sends.admit(&armed(1000, 1, 3), now);
            assert_eq!(held, Admission::Held(Span::from_secs(wait)));
            now += Duration::from_secs(wait);
        }
        let last = armed(1001, 1, 0);
        assert_eq!(sends.admit(&last, now), Admission::Send);
        sends.reported(last.key, Ok(()), now);
        sends.finish(std::slice::from_ref(&last), &HashMap::new(), now);
        assert!(sends.topics.is_empty(), "whoever takes one is trusted again");
    }

    #[test]
    fn a_silent_partition_takes_nothing_more_until_it_has_answered() {
        let (mut sends, now) = (Sends::default(), monotonic());
        let batch = [armed(1, 1, 0), armed(2, 1, 1), armed(3, 1, 0)];
        for armed in &batch {
            assert_eq!(sends.admit(armed, now), Admission::Send);
        }
        sends.reported(batch[1].key, Ok(()), now);
        assert_eq!(sends.missing(&batch).map(|armed| armed.key), Some(batch[0].key));
        let open = |index| Untaken { index, fate: Fate::Open };
        assert_eq!(sends.finish(&batch, &HashMap::new(), now), [open(0), open(2)]);
        assert_eq!(sends.admit(&armed(4, 1, 0), now), Admission::Silent(Span::from_secs(1)));
        assert_eq!(sends.admit(&armed(5, 1, 1), now), Admission::Send);
        let now = now + Duration::from_secs(1);
        assert_eq!(sends.admit(&armed(4, 1, 0), now), Admission::Silent(Span::from_secs(2)));
        assert_eq!(sends.told(Lane::Message), []);
        sends.reported(batch[0].key, Ok(()), now);
        sends.reported(batch[2].key, Err(Failure::Client), now);
        let told = [
            Told { key: batch[0].key, later: None },
            Told { key: batch[2].key, later: Some(Span::from_secs(1)) },
        ];
        assert_eq!(sends.told(Lane::Retry), []);
        assert_eq!(sends.told(Lane::Message), told);
        assert_eq!(sends.told(Lane::Message), [], "each is told once");
        assert_eq!(sends.admit(&armed(4, 1, 0), now), Admission::Send);
    }

    #[test]
    fn a_message_that_is_too_large_holds_up_nobody() {
        let (mut sends, now) = (Sends::default(), monotonic());
        let batch = [armed(1, 1, 0), armed(2, 1, 0)];
        for armed in &batch {
            sends.admit(armed, now);
        }
        sends.reported(batch[0].key, Err(Failure::Message), now);
        sends.reported(batch[1].key, Ok(()), now);
        assert_eq!(sends.finish(&batch, &HashMap::new(), now), [later(0, 60)]);
        assert_eq!(sends.admit(&armed(3, 1, 0), now), Admission::Send);
    }
}
