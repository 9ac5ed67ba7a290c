//! What the clocks of the machine may do to a message: nothing but what is promised.
//!
//! G9 to G14, each told as a timeline. A line starts with the time that has really passed; then
//! - `delay NAME SPAN` and `date NAME SPAN` schedule, a date counted from the wall clock's start,
//! - `wall STEP` steps the wall clock, and `pause SPAN` lets time pass while nothing runs,
//! - `fires NAMES` says all that has fired since the last such line, in order.

#![expect(clippy::panic, reason = "helpers of tests")]

mod stage;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use punctual_model::{MessageId, Span, Timestamp};
use punctual_testkit::{ManualClock, Reference};
use stage::{Dice, Stage};

/// An ordinary day, and the moments before seconds outgrow 31 and 32 bits.
const STARTS: [&str; 3] =
    ["2027-03-04T05:06:07.089Z", "2038-01-19T03:14:05.500Z", "2106-02-07T06:28:14.500Z"];

fn time(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn span(text: &str) -> Span {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A span with a sign, in milliseconds.
fn signed(text: &str) -> i64 {
    let size = span(text.trim_start_matches(['+', '-']));
    let size = i64::try_from(size.as_millis()).unwrap_or_else(|error| panic!("{text}: {error}"));
    if text.starts_with('-') { -size } else { size }
}

fn moved(from: Timestamp, by: i64) -> Timestamp {
    let size = Span::from_millis(by.unsigned_abs());
    if by < 0 { from.saturating_sub(size) } else { from.saturating_add(size) }
}

fn check(table: &str) {
    for start in STARTS {
        Story::new(time(start)).tell(table);
    }
}

/// A timeline as it is told.
struct Story {
    start: Timestamp,
    stage: Stage<Reference>,
    passed: Span,
    names: BTreeMap<MessageId, String>,
    fired: Vec<String>,
}

impl Story {
    fn new(start: Timestamp) -> Self {
        let stage = Stage::new(Arc::new(Reference::new()), ManualClock::new(start), 1);
        Self { start, stage, passed: Span::ZERO, names: BTreeMap::new(), fired: Vec::new() }
    }

    fn tell(&mut self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let moment = span(words[0]);
            // What comes at the same moment comes before anything fires.
            if moment > self.passed || words[1] == "fires" {
                self.run_until(moment);
            }
            match words[1..] {
                ["delay", name, delay] => {
                    let id = self.stage.delay(span(delay));
                    self.names.insert(id, name.to_owned());
                }
                ["date", name, date] => {
                    let id = self.stage.date(moved(self.start, signed(date)));
                    self.names.insert(id, name.to_owned());
                }
                ["wall", step] => self.stage.clock.step_wall(signed(step)),
                ["pause", length] => {
                    self.stage.clock.advance(span(length));
                    self.passed =
                        Span::from_millis(self.passed.as_millis() + span(length).as_millis());
                }
                ["fires", ..] => {
                    let fired = std::mem::take(&mut self.fired);
                    assert_eq!(fired, words[2..], "at {line:?}, started {}", self.start);
                }
                _ => panic!("no such line: {line:?}"),
            }
        }
        assert!(self.fired.is_empty(), "fired after the last line: {:?}", self.fired);
        assert!(self.stage.waiting.is_empty(), "left: {:?}", self.stage.waiting);
    }

    fn run_until(&mut self, moment: Span) {
        let left = moment.as_millis().checked_sub(self.passed.as_millis());
        let left = left.unwrap_or_else(|| panic!("{moment} is past"));
        let fired = self.stage.run(Span::from_millis(left));
        self.fired.extend(fired.iter().map(|id| self.names[id].clone()));
        self.passed = moment;
    }
}

#[test]
fn g9_nothing_is_early_by_a_millisecond() {
    check(
        "
        0s      delay a 1ms
        0s      delay b 10s
        0s      date  c 10s
        0s      date  d 10001ms
        0s      fires
        1ms     fires a
        9999ms  fires
        10s     fires b c
        10001ms fires d
    ",
    );
}

#[test]
fn g9_far_messages_come_to_the_millisecond() {
    check(
        "
        0s              delay a 40d
        0s              date  b 3653d
        0s              pause 39d23h
        39d23h59m59999ms fires
        40d             fires a
        40d             pause 3612d23h
        3652d23h59m59999ms fires
        3653d           fires b
    ",
    );
}

#[test]
fn g11_a_backward_step_of_a_millisecond_is_waited_out() {
    check(
        "
        0s      delay a 10s
        0s      date  d 10s
        5s      wall  -1ms
        10s     fires
        10001ms fires a d
    ",
    );
}

#[test]
fn g11_a_backward_step_of_half_a_second_is_waited_out() {
    check(
        "
        0s      delay a 10s
        0s      date  d 10s
        5s      wall  -500ms
        5200ms  delay b 1s
        6499ms  fires
        6500ms  fires b
        10499ms fires
        10500ms fires a d
    ",
    );
}

#[test]
fn g11_a_backward_step_of_a_second_keeps_delays_and_holds_dates() {
    check(
        "
        0s      delay a 10s
        0s      date  d 10s
        5s      wall  -1s
        9999ms  fires
        10s     fires a
        10999ms fires
        11s     fires d
    ",
    );
}

#[test]
fn g11_a_backward_step_of_an_hour_keeps_delays_and_holds_dates() {
    check(
        "
        0s       delay a 10s
        0s       date  d 10s
        0s       date  e 20m
        5s       wall  -1h
        6s       delay b 1s
        6s       date  f 15s
        6999ms   fires
        7s       fires b
        9999ms   fires
        10s      fires a
        30m      delay c 1s
        1801s    fires c
        3609999ms fires
        3610s    fires d
        3614999ms fires
        3615s    fires f
        4799999ms fires
        4800s    fires e
    ",
    );
}

#[test]
fn g11_a_backward_step_of_a_year_keeps_delays_and_holds_dates() {
    check(
        "
        0s          delay a 10s
        0s          date  d 10s
        5s          wall  -365d
        10s         fires a
        11s         delay b 2s
        12999ms     fires
        13s         fires b
        20s         pause 364d23h
        365d9999ms  fires
        365d10s     fires d
    ",
    );
}

#[test]
fn g11_repeated_backward_steps_add_up_and_lose_nothing() {
    check(
        "
        0s      delay a 10s
        0s      date  d 10s
        1s      wall  -300ms
        1100ms  wall  -300ms
        1200ms  wall  -300ms
        2s      wall  -10s
        3s      wall  -1h
        10199ms fires
        10200ms fires a
        3620899ms fires
        3620900ms fires d
    ",
    );
}

#[test]
fn g12_a_forward_step_of_a_millisecond_or_a_second_is_followed() {
    check(
        "
        0s      delay a 10s
        0s      date  b 20s
        5s      wall  +1ms
        9998ms  fires
        9999ms  fires a
        10s     wall  +1s
        18998ms fires
        18999ms fires b
    ",
    );
}

#[test]
fn g12_a_forward_step_of_an_hour_fires_what_it_skipped() {
    check(
        "
        0s       date  c 30m
        0s       delay b 20m
        0s       delay a 10s
        0s       delay e 2h
        5s       wall  +1h
        5s       fires a b c
        3599999ms fires
        1h       fires e
    ",
    );
}

#[test]
fn g12_a_forward_step_of_a_year_fires_what_it_skipped() {
    check(
        "
        0s       delay a 40d
        0s       date  b 364d
        0s       date  c 366d
        5s       wall  +365d
        5s       fires a b
        6s       pause 23h
        23h59m59999ms fires
        1d       fires c
    ",
    );
}

#[test]
fn g12_after_the_clock_returns_new_delays_and_dates_behave_normally() {
    check(
        "
        0s      date  a 10s
        0s      delay z 2h
        1s      wall  +1h
        1s      fires a
        2s      wall  -1h
        2s      delay b 1s
        2s      date  c 4s
        2999ms  fires
        3s      fires b
        3999ms  fires
        4s      fires c
        3599999ms fires
        1h      fires z
    ",
    );
}

#[test]
fn g12_a_step_of_a_year_and_back_leaves_new_delays_alone() {
    check(
        "
        0s      wall  +365d
        1s      wall  -365d
        2s      delay a 1ms
        2s      delay b 5s
        2s      date  c 6s
        2001ms  fires a
        6999ms  fires c
        7s      fires b
    ",
    );
}

#[test]
fn g12_a_pause_of_a_minute_fires_what_it_skipped() {
    check(
        "
        0s      date  b 20s
        0s      delay a 10s
        0s      delay c 90s
        1s      pause 60s
        61s     fires a b
        89999ms fires
        90s     fires c
    ",
    );
}

#[test]
fn g12_a_pause_in_which_only_the_wall_clock_runs_is_a_forward_step() {
    check(
        "
        0s      delay a 10s
        0s      delay b 61s
        1s      wall  +60s
        1s      fires a b
        1s      delay c 1s
        1999ms  fires
        2s      fires c
    ",
    );
}

#[test]
fn g12_steps_of_a_second_and_more_are_reported() {
    let mut stage = Stage::new(Arc::new(Reference::new()), ManualClock::new(time(STARTS[0])), 1);
    let mut reported = 0;
    for step in ["+1s", "-1s", "+1h", "-1h", "+365d", "-365d", "+1h", "-1d"] {
        stage.run(Span::from_secs(1));
        stage.clock.step_wall(signed(step));
        stage.run(Span::from_secs(1));
        reported += 1;
        assert_eq!(stage.time.steps(), reported, "after {step}");
    }
    for step in ["+1ms", "-1ms", "+999ms", "-999ms"] {
        stage.clock.step_wall(signed(step));
        stage.run(Span::from_secs(1));
    }
    assert_eq!(stage.time.steps(), reported, "small steps are ordinary");
}

#[test]
fn g12_every_message_of_a_skipped_span_fires_once_and_in_order() {
    let start = time(STARTS[0]);
    let mut stage = Stage::new(Arc::new(Reference::new()), ManualClock::new(start), 4);
    let mut dice = Dice(12);
    for number in 0..20_000 {
        let away = Span::from_millis(dice.below(3_600_000));
        if number % 2 == 0 {
            stage.delay(away);
        } else {
            stage.date(start.saturating_add(away));
        }
    }
    stage.clock.step_wall(signed("+1h"));
    let (fired, _) = stage.fire();
    assert_eq!(fired.len(), 20_000);
    assert!(stage.waiting.is_empty());
}

#[test]
fn g11_many_held_dates_are_in_nobodys_way() {
    let start = time(STARTS[0]);
    let mut stage = Stage::new(Arc::new(Reference::new()), ManualClock::new(start), 4);
    let mut dice = Dice(11);
    for _ in 0..3_000 {
        stage.date(start.saturating_add(Span::from_millis(dice.below(600_000))));
    }
    stage.clock.step_wall(signed("+10m"));
    // The step back comes before anything noticed the step forward, or else all would have fired.
    assert_eq!(stage.now().timestamp(), moved(start, signed("+10m")));
    stage.clock.step_wall(signed("-20m"));
    for _ in 0..100 {
        let id = stage.delay(Span::from_millis(1 + dice.below(100)));
        assert_eq!(stage.run(Span::from_millis(100)), [id]);
    }
    assert_eq!(stage.waiting.len(), 3_000, "the wall clock has come to none of them");
    stage.clock.advance(span("9m45s"));
    assert!(stage.run(span("4s999ms")).is_empty());
    assert_eq!(stage.run(span("10m1ms")).len(), 3_000);
}

#[test]
fn g13_offsets_around_a_change_of_the_clocks_name_the_right_instant() {
    let berlin_spring = time("2026-03-29T01:00:00Z");
    assert_eq!(time("2026-03-29T02:00:00+01:00"), berlin_spring);
    assert_eq!(time("2026-03-29T03:00:00+02:00"), berlin_spring);
    let before = time("2026-03-29T01:59:59.999+01:00");
    assert_eq!(berlin_spring.since(before), Span::from_millis(1));

    // The same time of day twice in one night, an hour apart.
    let (first, second) = (time("2026-10-25T02:30:00+02:00"), time("2026-10-25T02:30:00+01:00"));
    assert_eq!(second.since(first), span("1h"));
    let (first, second) = (time("2026-11-01T01:30:00-07:00"), time("2026-11-01T01:30:00-08:00"));
    assert_eq!(second.since(first), span("1h"));
    // Half an hour's change, and an offset of three quarters.
    let (first, second) = (time("2026-04-05T01:45:00+11:00"), time("2026-04-05T01:45:00+10:30"));
    assert_eq!(second.since(first), span("30m"));
    assert_eq!(time("2026-01-01T05:45:00+05:45"), time("2026-01-01T00:00:00Z"));

    for start in ["2026-03-29T00:30:00Z", "2026-10-25T00:30:00Z", "2026-12-31T23:59:00Z"] {
        Story::new(time(start)).tell(
            "
            0s        delay a 1h
            0s        date  b 1h
            0s        delay c 24h
            3599999ms fires
            1h        fires a b
            1h        pause 22h
            86399999ms fires
            24h       fires c
        ",
        );
    }
}

#[test]
fn g13_the_time_zone_of_the_process_changes_nothing() {
    let this = std::env::current_exe().unwrap();
    for zone in ["UTC", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", ":bad", ""] {
        let mut test = Command::new(&this);
        test.env("TZ", zone).args(["--exact", "--test-threads=1"]);
        test.arg("g13_offsets_around_a_change_of_the_clocks_name_the_right_instant");
        let output = test.output().unwrap();
        assert!(output.status.success(), "TZ={zone}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "the test was found: {text}");
    }
}

#[test]
fn g14_what_is_due_already_fires_at_once() {
    check(
        "
        0s      date  c 0s
        0s      date  a -1h
        0s      date  b -1ms
        0s      delay d 0s
        0s      fires a b c d
        1500ms  delay e 0s
        1500ms  date  f 1499ms
        1500ms  date  g 1500ms
        1500ms  date  h -365d
        1500ms  fires h f e g
        1501ms  delay i 1ms
        1502ms  fires i
    ",
    );
}

#[test]
fn g14_a_past_date_is_past_for_the_wall_clock() {
    check(
        "
        0s      wall  -1h
        0s      date  a -2h
        0s      date  b -59m
        0s      fires a
        59999ms fires
        60s     fires b
    ",
    );
}

#[test]
fn g14_what_comes_behind_the_cursor_is_not_forgotten() {
    check(
        "
        0s      delay a 2s
        1s      fires
        1s      delay b 10ms
        1s      delay c 999ms
        1009ms  fires
        1010ms  fires b
        1990ms  delay d 1ms
        1991ms  fires d
        1999ms  fires c
        2s      fires a
    ",
    );
}
