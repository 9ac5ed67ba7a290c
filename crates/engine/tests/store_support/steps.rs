//! Workloads: written by hand as text, or drawn by a seed.

use super::Dice;

/// One thing done to the store. Times are milliseconds after the start; messages and topics are
/// named by numbers and names of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes or changes a topic: name, partitions, and how many bytes its logs keep.
    Put(String, u16, Option<u64>),
    /// Removes a topic.
    Delete(String),
    /// One commit of batches and cancels.
    Commit(Vec<Part>),
    /// Asks for what is due before, and keeps it in hand.
    Arm(u64),
    /// Asks for what is due before, and delivers it, with what is in hand.
    Fire(u64),
    /// Sets the table aside.
    Freeze,
    /// Writes out, merges.
    Upkeep,
    /// Writes a checkpoint.
    Checkpoint,
    /// Housekeeping.
    Maintain,
}

/// One request of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// A batch to a topic, with these due times.
    Schedule(String, Vec<u64>),
    /// Cancels of the messages with these numbers, counted in the order of scheduling.
    Cancel(Vec<usize>),
}

/// Reads steps from lines such as `schedule a 10 20`, `cancel 0 1`, `fire 15`; times in seconds.
pub fn script(text: &str) -> Vec<Step> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(line).collect()
}

fn line(line: &str) -> Step {
    let mut words = line.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let mut word = || words.next().unwrap_or_else(|| panic!("a word is missing in {line:?}"));
    match verb {
        "put" => {
            let name = word().to_owned();
            let partitions = word().parse().unwrap();
            Step::Put(name, partitions, words.next().map(|bytes| bytes.parse().unwrap()))
        }
        "delete" => Step::Delete(word().to_owned()),
        "schedule" => {
            let name = word().to_owned();
            Step::Commit(vec![Part::Schedule(name, words.map(seconds).collect())])
        }
        "cancel" => {
            Step::Commit(vec![Part::Cancel(words.map(|word| word.parse().unwrap()).collect())])
        }
        "arm" => Step::Arm(seconds(word())),
        "fire" => Step::Fire(seconds(word())),
        "freeze" => Step::Freeze,
        "upkeep" => Step::Upkeep,
        "checkpoint" => Step::Checkpoint,
        "maintain" => Step::Maintain,
        _ => panic!("no such step: {line:?}"),
    }
}

fn seconds(word: &str) -> u64 {
    word.parse::<u64>().unwrap() * 1000
}

/// How a random workload leans.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Steps at most.
    pub steps: usize,
    /// Whether the clock may jump by days.
    pub days: bool,
    /// Messages in one batch at most.
    pub batch: u64,
}

/// A random workload; the same seed gives the same one.
pub fn random(seed: u64, taste: Taste) -> Vec<Step> {
    let mut draw = Draw { dice: Dice(seed), now: 0, scheduled: 0, taste };
    let mut steps = vec![Step::Put("a".to_owned(), 2, None)];
    while steps.len() < taste.steps {
        let step = draw.step();
        steps.push(step);
    }
    steps
}

struct Draw {
    dice: Dice,
    now: u64,
    scheduled: usize,
    taste: Taste,
}

impl Draw {
    fn step(&mut self) -> Step {
        match self.dice.below(100) {
            0..35 => Step::Commit(vec![self.batch()]),
            35..42 => {
                let mut parts = vec![self.batch(), self.cancel(), self.batch()];
                if self.dice.percent(50) {
                    parts.push(self.cancel());
                }
                Step::Commit(parts)
            }
            42..56 => Step::Commit(vec![self.cancel()]),
            56..62 => Step::Arm(self.now + self.dice.below(20_000)),
            62..76 => {
                self.now += self.stride();
                Step::Fire(self.now)
            }
            76..82 => Step::Freeze,
            82..91 => Step::Upkeep,
            91..93 => Step::Checkpoint,
            93..95 => Step::Maintain,
            95..98 => self.put(),
            _ => Step::Delete(self.name()),
        }
    }

    fn stride(&mut self) -> u64 {
        match self.dice.below(8) {
            0 => 0,
            1..4 => self.dice.below(50),
            4..6 => self.dice.below(4000),
            6 => self.dice.below(60_000),
            _ if self.taste.days => self.dice.below(200_000_000),
            _ => self.dice.below(600_000),
        }
    }

    fn name(&mut self) -> String {
        ["a", "a", "b", "c"][self.dice.place(4)].to_owned()
    }

    fn put(&mut self) -> Step {
        let partitions = 1 + u16::try_from(self.dice.below(3)).unwrap();
        let keep = self.dice.percent(25).then_some(3000);
        Step::Put(self.name(), partitions, keep)
    }

    fn batch(&mut self) -> Part {
        let count = 1 + self.dice.below(self.taste.batch);
        let dues = (0..count).map(|_| self.due()).collect();
        self.scheduled += usize::try_from(count).unwrap();
        Part::Schedule(self.name(), dues)
    }

    fn due(&mut self) -> u64 {
        let ahead = match self.dice.below(10) {
            0 => 0,
            1..4 => self.dice.below(100),
            4..7 => self.dice.below(6000),
            7..9 => self.dice.below(120_000),
            _ => self.dice.below(200_000_000),
        };
        // Sometimes in the past: an arrival behind what was asked for.
        if self.dice.percent(10) { self.now.saturating_sub(ahead) } else { self.now + ahead }
    }

    fn cancel(&mut self) -> Part {
        let count = 1 + self.dice.below(3);
        // One past the end is a message that never was.
        Part::Cancel((0..count).map(|_| self.dice.place(self.scheduled + 1)).collect())
    }
}
