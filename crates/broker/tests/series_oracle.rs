//! Cron series against an independent oracle: a cron library and a time zone library of another
//! language, put together in `scripts/cron-oracle.py`.
//!
//! Random expressions in zones with daylight saving, over a year and around each change of the
//! clocks: not one instant may differ. `PUNCTUAL_CRON_SERIES` and `PUNCTUAL_CRON_TIMES` ask for more
//! series, and for more times of each.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use punctual_broker::series::{Rule, RuleError};
use punctual_model::{Span, Timestamp};

const SERIES: u64 = 1000;
const TIMES: u64 = 40;

/// Zones, and when their clocks change in 2027.
const ZONES: [(&str, [&str; 2]); 3] = [
    ("America/New_York", ["2027-03-14T07:00:00Z", "2027-11-07T06:00:00Z"]),
    ("Europe/Berlin", ["2027-03-28T01:00:00Z", "2027-10-31T01:00:00Z"]),
    ("Australia/Lord_Howe", ["2027-04-03T15:00:00Z", "2027-10-02T15:30:00Z"]),
];

/// A stretch of time in which times are compared, in epoch seconds.
struct Window {
    after: u64,
    until: u64,
    max: u64,
}

struct Question {
    zone: &'static str,
    text: String,
    windows: Vec<Window>,
}

#[test]
fn an_independent_oracle_names_the_same_instants() {
    let (series, times) =
        (setting("PUNCTUAL_CRON_SERIES", SERIES), setting("PUNCTUAL_CRON_TIMES", TIMES));
    let mut dice = Dice(2027);
    let questions: Vec<Question> = (0..series).map(|_| question(&mut dice, times)).collect();
    let answers = ask(&questions);
    let mut compared = 0;
    let mut differences = Vec::new();
    for (question, theirs) in questions.iter().zip(answers.lines()) {
        let ours = answer(question);
        compared += ours.split_whitespace().filter(|word| *word != "|").count();
        if ours != theirs {
            let Question { zone, text, .. } = question;
            differences.push(format!("{text} in {zone}\n  ours   {ours}\n  theirs {theirs}"));
        }
    }
    println!("{series} series, {compared} instants, {} series differ", differences.len());
    assert_eq!(answers.lines().count(), questions.len(), "one answer for each question");
    assert!(differences.is_empty(), "{}", differences[..differences.len().min(10)].join("\n"));
    assert!(compared as u64 > series * 40, "most series come round often enough to be compared");
}

/// Our own answer, in the form of the oracle.
fn answer(question: &Question) -> String {
    let rule = match Rule::cron(&question.text, Some(question.zone)) {
        Ok(rule) => rule,
        Err(RuleError::CronNeverFires) => return "never".to_owned(),
        Err(error) => panic!("{}: {error}", question.text),
    };
    let instants = |window: &Window| {
        let mut time = Timestamp::from_millis(window.after * 1000).unwrap();
        let mut all = String::new();
        for _ in 0..window.max {
            time = rule.next(time, time).unwrap();
            let seconds = time.as_millis() / 1000;
            assert_eq!(time.as_millis() % 1000, 0);
            if seconds > window.until {
                break;
            }
            let gap = if all.is_empty() { "" } else { " " };
            write!(all, "{gap}{seconds}").unwrap();
        }
        all
    };
    question.windows.iter().map(instants).collect::<Vec<_>>().join(" | ")
}

fn ask(questions: &[Question]) -> String {
    let mut text = String::new();
    for Question { zone, text: expression, windows } in questions {
        write!(text, "{zone}\t{expression}").unwrap();
        for Window { after, until, max } in windows {
            write!(text, "\t{after}:{until}:{max}").unwrap();
        }
        text.push('\n');
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/cron-oracle.sh");
    let mut oracle = Command::new(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", script.display()));
    let mut stdin = oracle.stdin.take().unwrap();
    let asking = std::thread::Builder::new().spawn(move || stdin.write_all(text.as_bytes()));
    let output = oracle.wait_with_output().unwrap();
    let asked = asking.unwrap().join().unwrap();
    assert!(
        output.status.success() && asked.is_ok(),
        "the cron oracle failed; it says above what it needs (scripts/cron-oracle.sh)"
    );
    String::from_utf8(output.stdout).unwrap()
}

fn question(dice: &mut Dice, times: u64) -> Question {
    let (zone, changes) = ZONES[dice.index(ZONES.len())];
    let start = seconds("2027-01-01T00:00:00Z");
    let year = Span::from_days(365).as_millis() / 1000;
    let text = expression(dice);
    let mut windows = vec![
        Window { after: start, until: start + year, max: times },
        Window { after: start + dice.below(year), until: start + 2 * year, max: times / 4 },
    ];
    for change in changes {
        let change = seconds(change);
        let shortly_before = change - dice.below(2400);
        let around = change + 5400 - dice.below(10_800);
        for (after, max) in [(shortly_before, 25), (around, 10), (change, 2), (change - 1, 2)] {
            windows.push(Window { after, until: after + year, max });
        }
    }
    Question { zone, text, windows }
}

/// An expression that both sides understand in the same way. Left out is what croniter reads in its
/// own way: a range from a value to itself, 7 for Sunday beside seconds, a whole week beside steps of
/// days, and what is refused here: ranges that run backwards, steps without a range.
fn expression(dice: &mut Dice) -> String {
    let seconds = dice.below(4) == 0;
    let mut fields = Vec::new();
    if seconds {
        fields.push(field(dice, 0, 59, &[]));
    }
    // Hours around the change of the clocks are the interesting ones.
    let minute = if seconds && dice.below(3) > 0 {
        dice.below(60).to_string()
    } else {
        field(dice, 0, 59, &[])
    };
    let hour = match dice.below(4) {
        0 => dice.below(4).to_string(),
        1 => "*".to_owned(),
        2 => format!("{}-{}", dice.below(3), 3 + dice.below(20)),
        _ => field(dice, 0, 23, &[]),
    };
    fields.extend([minute, hour]);
    let day = match dice.below(6) {
        0..=2 => "*".to_owned(),
        3 => "L".to_owned(),
        _ => field(dice, 1, 31, &[]),
    };
    let month = match dice.below(3) {
        0 | 1 => "*".to_owned(),
        _ => field(dice, 1, 12, &MONTHS),
    };
    let weekday = match dice.below(8) {
        0..=3 => "*".to_owned(),
        4 => format!("{}#{}", dice.below(7), 1 + dice.below(5)),
        5 => format!("{}L", dice.below(7)),
        6 if !seconds => "5-7".to_owned(),
        _ => WEEKDAYS[dice.index(7)].to_owned(),
    };
    fields.extend([day, month, weekday]);
    fields.join(" ")
}

const MONTHS: [&str; 12] =
    ["JAN", "feb", "Mar", "APR", "MAY", "JUN", "jul", "AUG", "SEP", "OCT", "NOV", "dec"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "tue", "WED", "THU", "FRI", "sat"];

fn field(dice: &mut Dice, min: u64, max: u64, names: &[&str]) -> String {
    let named = |number: u64| match names.get(usize::try_from(number - min).unwrap()) {
        Some(name) => (*name).to_owned(),
        None => number.to_string(),
    };
    let range = |dice: &mut Dice| {
        let first = min + dice.below(max - min);
        let last = first + 1 + dice.below(max - first);
        (named(first), named(last))
    };
    match dice.below(6) {
        0 => "*".to_owned(),
        1 => named(min + dice.below(max - min + 1)),
        2 => format!("*/{}", 2 + dice.below(max / 2)),
        3 => {
            let (first, last) = range(dice);
            format!("{first}-{last}")
        }
        4 => {
            let (first, last) = range(dice);
            format!("{first}-{last}/{}", 1 + dice.below(max / 3))
        }
        _ => {
            let count = 2 + dice.below(3);
            let parts: Vec<String> =
                (0..count).map(|_| named(min + dice.below(max - min + 1))).collect();
            parts.join(",")
        }
    }
}

fn seconds(text: &str) -> u64 {
    text.parse::<Timestamp>().unwrap().as_millis() / 1000
}

#[expect(clippy::disallowed_methods, reason = "how long a test runs is up to who runs it")]
fn setting(name: &str, absent: u64) -> u64 {
    std::env::var(name).map_or(absent, |text| text.parse().unwrap())
}

/// A small generator of numbers that are the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(u64::try_from(bound).unwrap())).unwrap()
    }
}
