//! Workloads of groups: written by hand as text, or drawn by a seed.

use punctual_model::Lane;
use punctual_model::group::SeekBy;

use crate::store_support::Dice;

/// One thing done to the store. Times are milliseconds after the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes or changes a topic: name, partitions, and how many bytes its logs keep.
    Put(String, u16, Option<u64>),
    /// Removes a topic, its groups too.
    Delete(String),
    /// Makes a group of a topic, at the end of its logs if so wanted.
    Group(Who, bool),
    /// Changes the settings of a group.
    Change(Who),
    /// Removes a group.
    Ungroup(Who),
    /// Messages to a topic, with these due times.
    Schedule(String, Vec<u64>),
    /// Delivers what a lane has that is due before.
    Fire(Lane, u64),
    /// What groups do, in one commit.
    Acts(Vec<Act>),
    /// Sets the tables aside.
    Freeze,
    /// Writes out, merges.
    Upkeep,
    /// Writes a checkpoint.
    Checkpoint,
    /// Housekeeping.
    Maintain,
}

/// A group by the names of its topic and its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub topic: String,
    pub group: String,
}

/// What a group reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Main(u16),
    Retry,
    Dead,
}

/// One change of a group's progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Act {
    pub who: Who,
    pub place: Place,
    pub what: What,
}

/// What a group does. Messages are named by their place among those that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// It is done with them.
    Settle(Vec<usize>),
    /// It has failed, and stays.
    Note(usize),
    /// It goes to the retry topic, due so much later.
    Retry(usize, u64),
    /// It goes to the dead letters.
    Bury(usize),
    /// The group goes on so many messages behind the start of the log.
    Seek(u64, SeekBy),
}

/// Reads steps from lines such as `settle a g 0 1 2`, where the words are the topic, the group,
/// what is read (a partition, `r` or `d`) and messages. Acts joined by `;` are one commit. Times
/// are in seconds.
pub fn script(text: &str) -> Vec<Step> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(line).collect()
}

fn line(line: &str) -> Step {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let mut word = || words.next().unwrap_or_else(|| panic!("a word is missing in {line:?}"));
    match verb {
        "put" => {
            let (name, partitions) = (word().to_owned(), word().parse().unwrap());
            Step::Put(name, partitions, words.next().map(|bytes| bytes.parse().unwrap()))
        }
        "delete" => Step::Delete(word().to_owned()),
        "group" => {
            let who = Who { topic: word().to_owned(), group: word().to_owned() };
            Step::Group(who, words.next() == Some("latest"))
        }
        "change" => Step::Change(Who { topic: word().to_owned(), group: word().to_owned() }),
        "ungroup" => Step::Ungroup(Who { topic: word().to_owned(), group: word().to_owned() }),
        "schedule" => Step::Schedule(word().to_owned(), words.map(seconds).collect()),
        "fire" => Step::Fire(Lane::Message, seconds(word())),
        "refire" => Step::Fire(Lane::Retry, seconds(word())),
        "freeze" => Step::Freeze,
        "upkeep" => Step::Upkeep,
        "checkpoint" => Step::Checkpoint,
        "maintain" => Step::Maintain,
        _ => Step::Acts(line.split(';').map(act).collect()),
    }
}

fn act(text: &str) -> Act {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [verb, topic, group, place, rest @ ..] = words.as_slice() else {
        panic!("no such step: {text:?}");
    };
    let number = |at: usize| rest[at].parse::<u64>().unwrap();
    let pick = |at: usize| rest[at].parse::<usize>().unwrap();
    let what = match *verb {
        "settle" => What::Settle((0..rest.len()).map(pick).collect()),
        "note" => What::Note(pick(0)),
        "retry" => What::Retry(pick(0), number(1) * 1000),
        "bury" => What::Bury(pick(0)),
        "seek" => What::Seek(number(0), SeekBy::Reset),
        "commit" => What::Seek(number(0), SeekBy::Commit),
        _ => panic!("no such step: {text:?}"),
    };
    let place = match *place {
        "r" => Place::Retry,
        "d" => Place::Dead,
        partition => Place::Main(partition.parse().unwrap()),
    };
    let who = Who { topic: (*topic).to_owned(), group: (*group).to_owned() };
    Act { who, place, what }
}

fn seconds(word: &str) -> u64 {
    word.parse::<u64>().unwrap() * 1000
}

/// A random workload; the same seed gives the same one.
pub fn random(seed: u64, count: usize) -> Vec<Step> {
    let mut draw = Draw { dice: Dice(seed), now: 0 };
    let keep = draw.dice.percent(40).then_some(1500);
    let mut steps = vec![
        Step::Put("a".to_owned(), 2, keep),
        Step::Group(who("a", "g"), false),
        Step::Schedule("a".to_owned(), (0..6).map(|due| due * 10).collect()),
        Step::Fire(Lane::Message, 60),
    ];
    draw.now = 60;
    while steps.len() < count {
        let step = draw.step();
        steps.push(step);
    }
    steps
}

fn who(topic: &str, group: &str) -> Who {
    Who { topic: topic.to_owned(), group: group.to_owned() }
}

struct Draw {
    dice: Dice,
    now: u64,
}

impl Draw {
    fn step(&mut self) -> Step {
        match self.dice.below(100) {
            0..12 => {
                let count = 1 + self.dice.below(6);
                let dues = (0..count).map(|_| self.now + self.dice.below(2000)).collect();
                Step::Schedule(self.topic(), dues)
            }
            12..20 => self.fire(Lane::Message),
            20..31 => self.fire(Lane::Retry),
            31..72 => {
                let count = if self.dice.percent(70) { 1 } else { 2 + self.dice.place(4) };
                Step::Acts((0..count).map(|_| self.act()).collect())
            }
            72..76 => Step::Freeze,
            76..82 => Step::Upkeep,
            82..85 => Step::Checkpoint,
            85..89 => Step::Maintain,
            89..92 => {
                let partitions = 2 + u16::try_from(self.dice.below(2)).unwrap();
                let keep = self.dice.percent(40).then_some(1500);
                Step::Put(self.topic(), partitions, keep)
            }
            92..96 => {
                let latest = self.dice.percent(50);
                Step::Group(self.who(), latest)
            }
            96..98 => Step::Change(self.who()),
            98 => Step::Ungroup(self.who()),
            _ if self.dice.percent(40) => Step::Delete(self.topic()),
            _ => Step::Group(who("a", "h"), true),
        }
    }

    fn fire(&mut self, lane: Lane) -> Step {
        self.now += self.dice.below(3000);
        Step::Fire(lane, self.now)
    }

    fn topic(&mut self) -> String {
        ["a", "a", "a", "a", "a", "b"][self.dice.place(6)].to_owned()
    }

    fn who(&mut self) -> Who {
        let (topic, group) = [
            ("a", "g"),
            ("a", "g"),
            ("a", "g"),
            ("a", "g"),
            ("a", "g"),
            ("a", "h"),
            ("a", "h"),
            ("b", "g"),
            ("a.g.dead", "w"),
        ][self.dice.place(9)];
        who(topic, group)
    }

    fn act(&mut self) -> Act {
        let place = match self.dice.below(10) {
            0..6 => Place::Main(u16::from(self.dice.percent(40))),
            6..8 => Place::Retry,
            _ => Place::Dead,
        };
        let what = match self.dice.below(20) {
            0..7 => {
                let count = 1 + self.dice.place(4);
                What::Settle((0..count).map(|_| self.pick()).collect())
            }
            7..10 => What::Note(self.pick()),
            10..14 => What::Retry(self.pick(), self.dice.below(3000)),
            14..18 => What::Bury(self.pick()),
            18 if self.dice.percent(60) => What::Seek(self.dice.below(12), SeekBy::Reset),
            19 if self.dice.percent(60) => What::Seek(self.dice.below(12), SeekBy::Commit),
            _ => What::Settle((0..5).collect()),
        };
        Act { who: self.who(), place, what }
    }

    /// Mostly the first ones, so that the cursor moves.
    fn pick(&mut self) -> usize {
        if self.dice.percent(60) { self.dice.place(2) } else { self.dice.place(6) }
    }
}
