//! Workloads of changes: written by hand as text, or drawn by a seed.

use crate::store_support::Dice;

/// One thing done to the store. Times are milliseconds after the start; messages are named by their
/// number in the order in which they were stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Makes or changes a topic: name and partitions.
    Put(String, u16),
    /// Removes a topic.
    Delete(String),
    /// Orders that are carried out together.
    Revise(Vec<Act>),
    /// Withdraws messages, without an order.
    Withdraw(Vec<usize>),
    /// Asks for what is due before, and keeps it in hand.
    Arm(u64),
    /// Asks for what is due before, and delivers it, with what is in hand.
    Fire(u64),
    /// Sets the tables aside.
    Freeze,
    /// Writes out, merges.
    Upkeep,
    /// Writes a checkpoint.
    Checkpoint,
    /// Housekeeping.
    Maintain,
}

/// What is ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Messages to a topic, with these due times.
    Send(String, Vec<u64>),
    /// A message with an own id: topic, name, print, due time, and whether it takes the place of
    /// what has the name.
    Name(String, String, u64, u64, bool),
    /// A new due time.
    Move(usize, u64),
    /// No due time any more.
    Pause(usize),
    /// Withdraws it where it stands; otherwise wherever it is.
    Cancel(usize, bool),
    /// A series and its first occurrence.
    Series(String, u64),
    /// The next occurrence of a series.
    Next(usize, u64),
    /// A transaction with half messages to these topics.
    Prepare(Vec<String>),
    /// Its half messages are due then.
    Commit(usize, u64),
    /// Its half messages are withdrawn.
    Rollback(usize),
}

/// Reads steps from lines such as `send a 10 20`, `move 0 30`; acts joined by `;` are carried out
/// together. Times are in seconds.
pub fn script(text: &str) -> Vec<Step> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).map(line).collect()
}

fn line(line: &str) -> Step {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["put", name, partitions] => Step::Put((*name).to_owned(), partitions.parse().unwrap()),
        ["delete", name] => Step::Delete((*name).to_owned()),
        ["withdraw", numbers @ ..] => {
            Step::Withdraw(numbers.iter().map(|number| number.parse().unwrap()).collect())
        }
        ["arm", until] => Step::Arm(seconds(until)),
        ["fire", until] => Step::Fire(seconds(until)),
        ["freeze"] => Step::Freeze,
        ["upkeep"] => Step::Upkeep,
        ["checkpoint"] => Step::Checkpoint,
        ["maintain"] => Step::Maintain,
        _ => Step::Revise(line.split(';').map(act).collect()),
    }
}

fn act(text: &str) -> Act {
    let words: Vec<&str> = text.split_whitespace().collect();
    let number = |word: &str| word.parse::<usize>().unwrap();
    let own = |word: &str| word.to_owned();
    match words.as_slice() {
        ["send", topic, dues @ ..] => {
            Act::Send(own(topic), dues.iter().map(|due| seconds(due)).collect())
        }
        ["name", topic, name, print, due] => {
            Act::Name(own(topic), own(name), print.parse().unwrap(), seconds(due), false)
        }
        ["rename", topic, name, print, due] => {
            Act::Name(own(topic), own(name), print.parse().unwrap(), seconds(due), true)
        }
        ["move", message, due] => Act::Move(number(message), seconds(due)),
        ["pause", message] => Act::Pause(number(message)),
        ["cancel", message] => Act::Cancel(number(message), true),
        ["drop", message] => Act::Cancel(number(message), false),
        ["series", topic, due] => Act::Series(own(topic), seconds(due)),
        ["next", message, due] => Act::Next(number(message), seconds(due)),
        ["prepare", topics @ ..] => Act::Prepare(topics.iter().map(|topic| own(topic)).collect()),
        ["commit", message, due] => Act::Commit(number(message), seconds(due)),
        ["rollback", message] => Act::Rollback(number(message)),
        _ => panic!("no such step: {text:?}"),
    }
}

fn seconds(word: &str) -> u64 {
    word.parse::<u64>().unwrap() * 1000
}

/// A random workload; the same seed gives the same one.
pub fn random(seed: u64, count: usize) -> Vec<Step> {
    let mut draw = Draw { dice: Dice(seed), now: 0 };
    let mut steps = vec![
        Step::Put("a".to_owned(), 2),
        Step::Put("b".to_owned(), 1),
        Step::Revise(vec![Act::Send("a".to_owned(), vec![100, 3000, 9000])]),
    ];
    while steps.len() < count {
        let step = draw.step();
        steps.push(step);
    }
    steps
}

/// Messages that a random workload names: whatever is past the end is left out by the runner.
const NAMED: usize = 40;

/// Numbers from here on count backwards from the last message.
pub const FROM_THE_END: usize = 100_000;

struct Draw {
    dice: Dice,
    now: u64,
}

impl Draw {
    fn step(&mut self) -> Step {
        match self.dice.below(100) {
            0..58 => {
                let count = if self.dice.percent(65) { 1 } else { 2 + self.dice.place(3) };
                Step::Revise((0..count).map(|_| self.act()).collect())
            }
            58..62 => Step::Withdraw((0..2).map(|_| self.message()).collect()),
            62..66 => Step::Arm(self.now + self.dice.below(9000)),
            66..77 => {
                self.now += self.dice.below(4000);
                Step::Fire(self.now)
            }
            77..84 => Step::Freeze,
            84..94 => Step::Upkeep,
            94..96 => Step::Checkpoint,
            96 => Step::Maintain,
            97..99 => Step::Put(self.topic(), 2),
            _ if self.dice.percent(50) => Step::Delete("b".to_owned()),
            _ => Step::Freeze,
        }
    }

    fn act(&mut self) -> Act {
        let message = self.message();
        let due = self.due();
        match self.dice.below(100) {
            0..14 => {
                Act::Send(self.topic(), (0..=self.dice.below(3)).map(|_| self.due()).collect())
            }
            14..32 => {
                let name = format!("n{}", self.dice.below(9));
                let replace = self.dice.percent(40);
                Act::Name(self.topic(), name, self.dice.below(2), due, replace)
            }
            32..66 => Act::Move(message, due),
            66..74 => Act::Pause(message),
            74..80 => Act::Cancel(message, true),
            80..84 => Act::Cancel(message, false),
            84..87 => Act::Series(self.topic(), due),
            87..92 => Act::Next(message, due),
            92..94 => Act::Prepare(vec![self.topic(), self.topic()]),
            94..98 => Act::Commit(message, due),
            _ => Act::Rollback(message),
        }
    }

    fn message(&mut self) -> usize {
        if self.dice.percent(75) {
            FROM_THE_END + self.dice.place(14)
        } else {
            self.dice.place(NAMED)
        }
    }

    fn topic(&mut self) -> String {
        ["a", "a", "a", "b"][self.dice.place(4)].to_owned()
    }

    fn due(&mut self) -> u64 {
        let ahead = match self.dice.below(6) {
            0 => 0,
            1..3 => self.dice.below(300),
            3..5 => self.dice.below(8000),
            _ => self.dice.below(200_000),
        };
        if self.dice.percent(8) { self.now.saturating_sub(ahead) } else { self.now + ahead }
    }
}
