//! Does the program keep its promises about time when its wall clock is stepped, when it is
//! stopped for a while, and at strange dates?
//!
//! The real program under libfaketime, with only the wall clock faked. Each scenario is a timeline,
//! one action a line, in milliseconds:
//!
//! ```text
//! delay N…   send a message for each, with this delay
//! date N…    send a message for each, dated so much after the present wall clock
//! run N      look at the log for so long
//! step N     step the wall clock by so much
//! pause N    stop the process for so long and let it go on
//! kill       end the process at once; start begins another; down N waits without one
//! ```
//!
//! Nothing may be seen before its time and everything must be seen soon after it, exactly once;
//! when that is, `process_support/faked.rs` says. `PUNCTUAL_PAUSE_MS=60000` makes the pause long.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a failed step may stop the test, which is about real time"
)]

mod process_support;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use jiff::Timestamp;
use process_support::faked::{Course, FakedClock, History, TrueClock, Wait, library};
use process_support::http::Client;
use process_support::logs::{self, Delivered};
use process_support::process::{Launch, Process};
use process_support::{LOOK_INTERVAL, number_from_environment};
use serde_json::json;
use tempfile::TempDir;

const TOPIC: &str = "clock";
const SECOND: i64 = 1000;
const HOUR: i64 = 3600 * SECOND;
const YEAR: i64 = 365 * 24 * HOUR;

/// Where a scenario plays.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    /// What the wall clock shows at first, in epoch milliseconds; the true time if nothing.
    start: Option<i64>,
    /// The time zone of the process.
    zone: Option<&'static str>,
}

struct Scenario {
    name: String,
    clock: TrueClock,
    wall: FakedClock,
    history: History,
    launch: Launch,
    process: Option<Process>,
    client: Option<Client>,
    courses: HashMap<String, Course>,
    /// When each message was first seen.
    seen: HashMap<String, i64>,
    log: Vec<Delivered>,
    _directory: TempDir,
}

impl Scenario {
    fn new(name: &str, setting: Setting) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = TrueClock::new();
        let wall = FakedClock::new(directory.path());
        let offset = setting.start.map_or(0, |start| start * 1000 - clock.now());
        wall.set(offset);
        let mut launch = wall.rule(Launch::on(directory.path().join("data")));
        if let Some(zone) = setting.zone {
            launch = launch.with("TZ", zone);
        }
        let mut scenario = Self {
            name: name.to_owned(),
            history: History::new(clock.now(), offset),
            clock,
            wall,
            launch,
            process: None,
            client: None,
            courses: HashMap::new(),
            seen: HashMap::new(),
            log: Vec::new(),
            _directory: directory,
        };
        scenario.start();
        let settings = json!({ "partitions": 1 });
        scenario.client().put(&format!("/v1/topics/{TOPIC}"), &settings).unwrap().expect(201);
        scenario
    }

    fn client(&mut self) -> &mut Client {
        self.client.as_mut().unwrap()
    }

    fn play(&mut self, timeline: &str) {
        for line in timeline.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let mut words = line.split_whitespace();
            let action = words.next().unwrap();
            let numbers: Vec<i64> = words.map(|word| word.parse().unwrap()).collect();
            match (action, &numbers[..]) {
                ("delay", delays) => {
                    delays.iter().for_each(|delay| self.send(Wait::Delay(delay * 1000)));
                }
                ("date", dates) => dates.iter().for_each(|date| {
                    let wall_ms = (self.clock.now() + self.history.offset()) / 1000;
                    self.send(Wait::Date((wall_ms + date) * 1000));
                }),
                ("run", [millis]) => self.run(*millis),
                ("step", [millis]) => self.step(*millis),
                ("pause", [millis]) => self.pause(*millis),
                ("down", [millis]) => std::thread::sleep(duration(*millis)),
                ("kill", []) => self.kill(),
                ("start", []) => self.start(),
                _ => panic!("no such action: {line}"),
            }
        }
    }

    fn send(&mut self, wait: Wait) {
        let mut message = json!({ "body": format!("{wait:?}") });
        match wait {
            Wait::Delay(micros) => message["delay"] = (micros / 1000).into(),
            // Both ways to write a date, turn by turn.
            Wait::Date(micros) if self.courses.len().is_multiple_of(2) => {
                message["deliver_at"] = (micros / 1000).into();
            }
            Wait::Date(micros) => message["deliver_at"] = eastern(micros / 1000).into(),
        }
        let sent = self.clock.now();
        let path = format!("/v1/topics/{TOPIC}/messages");
        let answer = self.client().post(&path, &message).unwrap().expect(201);
        let answered = self.clock.now();
        if let Wait::Date(micros) = wait {
            assert_eq!(i64::try_from(logs::time_ms(&answer["due"])).unwrap(), micros / 1000);
        }
        let id = answer["id"].as_str().unwrap().to_owned();
        self.courses.insert(id, Course { wait, sent, answered });
    }

    fn run(&mut self, millis: i64) {
        let end = self.clock.now() + millis * 1000;
        while self.clock.now() < end {
            self.look();
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Reads what is new in the log, and checks that nothing came before its time.
    fn look(&mut self) {
        let offset = u64::try_from(self.log.len()).unwrap();
        let (page, _) = logs::read_page(self.client(), TOPIC, 0, offset).unwrap();
        let now = self.clock.now();
        for message in page {
            let name = &self.name;
            let course = &self.courses[&message.id];
            let earliest = self.history.earliest(course);
            assert!(earliest.is_some_and(|earliest| earliest <= now), "{name}: early {message:?}");
            assert!(message.delivered_ms >= message.due_ms, "{name}: early {message:?}");
            assert_eq!(message.offset, u64::try_from(self.log.len()).unwrap(), "{name}");
            let twice = self.seen.insert(message.id.clone(), now);
            assert!(twice.is_none(), "{name}: twice {message:?}");
            self.log.push(message);
        }
    }

    fn step(&mut self, millis: i64) {
        self.look_if_there();
        let offset = self.history.offset() + millis * 1000;
        let from = self.clock.now();
        self.wall.set(offset);
        self.history.step(from, self.clock.now(), offset);
    }

    fn look_if_there(&mut self) {
        if self.client.is_some() {
            self.look();
        }
    }

    fn pause(&mut self, millis: i64) {
        let from = self.clock.now();
        self.process.as_ref().unwrap().signal("STOP");
        // Until the signal arrived it may have gone on, so what came meanwhile is not early.
        self.history.run(self.clock.now(), from, false);
        std::thread::sleep(duration(millis));
        let from = self.clock.now();
        self.process.as_ref().unwrap().signal("CONT");
        self.history.run(from, self.clock.now(), true);
        // After a long pause the server may have closed the idle connection.
        self.client = Some(self.process.as_ref().unwrap().client());
    }

    fn kill(&mut self) {
        self.look();
        self.client = None;
        let mut process = self.process.take().unwrap();
        process.kill();
        process.check_log();
        let now = self.clock.now();
        self.history.run(now, now, false);
    }

    fn start(&mut self) {
        let from = self.clock.now();
        let process = self.launch.start();
        self.history.start(from, self.clock.now());
        self.client = Some(process.client());
        self.process = Some(process);
    }

    /// Everything sent was seen in its time, or waits with good reason.
    fn finish(mut self) -> Ending {
        self.look();
        let name = self.name.clone();
        let mut pending = HashSet::new();
        let client = self.client.as_mut().unwrap();
        logs::read_pending(client, TOPIC, |id, _, _| {
            pending.insert(id.to_owned());
        });
        let now = self.clock.now();
        let mut latest_slack = i64::MAX;
        for (id, course) in &self.courses {
            let latest = self.history.latest(course);
            let seen = self.seen.get(id);
            let by = seen.copied().unwrap_or(now);
            assert!(
                latest.is_none_or(|latest| by <= latest),
                "{name}: {course:?} had to be seen by {latest:?}, and was at {seen:?}"
            );
            latest_slack = latest_slack.min(latest.map_or(i64::MAX, |latest| latest - by));
            let is_pending = pending.remove(id);
            // A message on its way when the pending ones were read is in both or in neither.
            let is_certain = self.history.earliest(course).is_none_or(|time| time > now);
            assert!(!is_certain || is_pending, "{name}: {course:?} is lost");
        }
        assert!(pending.is_empty(), "{name}: nobody sent {pending:?}");
        let process = self.process.as_ref().unwrap();
        process.check_log();
        let steps = process.log().matches("the wall clock was stepped").count();
        eprintln!("{name}: {} seen, {} ms to spare", self.seen.len(), latest_slack / 1000);
        Ending { seen: self.seen.len(), steps, log: self.log }
    }
}

/// What a scenario came to.
struct Ending {
    seen: usize,
    steps: usize,
    log: Vec<Delivered>,
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap())
}

/// The time as somebody four hours behind the zero meridian writes it.
fn eastern(epoch_ms: i64) -> String {
    let local = Timestamp::from_millisecond(epoch_ms - 4 * HOUR).unwrap();
    format!("{local:.3}").replace('Z', "-04:00")
}

fn instant(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

/// Plays a scenario; nothing where the library is not installed.
fn play(name: &str, setting: Setting, timeline: &str) -> Option<Ending> {
    if library().is_none() {
        eprintln!("skipped: libfaketime is not installed; scripts/setup-tests.sh does that");
        return None;
    }
    let mut scenario = Scenario::new(name, setting);
    scenario.play(timeline);
    Some(scenario.finish())
}

/// Plays them all at the same time.
fn play_all(scenarios: Vec<(String, Setting, String)>) -> Vec<Ending> {
    std::thread::scope(|scope| {
        let playing: Vec<_> = scenarios
            .iter()
            .map(|(name, setting, timeline)| scope.spawn(|| play(name, *setting, timeline)))
            .collect();
        playing.into_iter().filter_map(|one| one.join().unwrap()).collect()
    })
}

/// Messages due before, between and after two steps, of which the second undoes the first.
fn there_and_back(step: i64) -> String {
    format!(
        "
        delay 0 400 1500 3000 1800000 5400000
        date -5000 0 400 1500 3000 1800000 5400000
        run 700
        step {step}
        delay 0 400 1500 1800000 5400000
        date -5000 0 400 1500 1800000 5400000
        run 3200
        step {back}
        delay 0 400 1500 1800000 5400000
        date -5000 0 400 1500 1800000 5400000
        run 4000
    ",
        back = -step
    )
}

fn steps(name: &str, steps: &[i64]) -> Vec<Ending> {
    let one = |step: &i64| (format!("{name} {step} ms"), Setting::default(), there_and_back(*step));
    play_all(steps.iter().map(one).collect())
}

#[test]
fn g9_g11_a_backward_step_neither_loses_nor_repeats_nor_hurries() {
    for ending in steps("back", &[-1, -300, -SECOND, -HOUR, -YEAR]) {
        assert!(ending.seen >= 20, "{}", ending.seen);
    }
}

#[test]
fn g9_g12_a_forward_step_delivers_what_became_due() {
    for ending in steps("forth", &[1, 300, SECOND, HOUR, YEAR]) {
        assert!(ending.seen >= 20, "{}", ending.seen);
    }
}

#[test]
fn g12_a_large_step_is_reported() {
    let timeline = "
        run 300
        step 3600000
        run 800
        step -3600000
        run 800
    ";
    if let Some(ending) = play("reported", Setting::default(), timeline) {
        assert_eq!(ending.steps, 2);
    }
}

#[test]
fn g13_strange_dates_and_zones_have_no_effect() {
    let timeline = "
        delay 0 400 1500 2500 3600000
        date -5000 0 400 1500 2500 3600000
        run 2000
        delay 0 400 1500 3600000
        date -7200000 0 400 1500 3600000
        run 4000
    ";
    let at = |text: &str, zone: Option<&'static str>| {
        let name = format!("{text} {}", zone.unwrap_or_default());
        let start = Some(instant(text) - 2 * SECOND);
        (name, Setting { start, zone }, timeline.to_owned())
    };
    let endings = play_all(vec![
        at("2038-01-19T03:14:08Z", None),
        at("2106-02-07T06:28:16Z", None),
        at("2026-03-08T07:00:00Z", Some("America/New_York")),
        at("2026-11-01T06:00:00Z", Some("America/New_York")),
        at("2027-03-28T01:00:00Z", Some("Europe/Berlin")),
        at("2028-02-29T23:59:59Z", Some("Pacific/Kiritimati")),
    ]);
    for ending in endings {
        assert_eq!(ending.seen, 16);
    }
}

#[test]
fn g10_a_pause_of_the_process_delays_and_does_nothing_else() {
    let pause = number_from_environment("PUNCTUAL_PAUSE_MS", 3000);
    let timeline = format!(
        "
        delay 0 400 1500 2500 7000 3600000
        date -5000 0 400 1500 2500 7000 3600000
        run 600
        pause {pause}
        delay 0 400
        date 0 400
        run 6000
    "
    );
    if let Some(ending) = play("pause", Setting::default(), &timeline) {
        assert_eq!(ending.seen, 15);
    }
}

#[test]
fn g15_down_time_loses_nothing_and_what_is_overdue_comes_in_due_order() {
    let down = |step: &str| {
        format!(
            "
            delay 1700 0 900 400 1300 3600000
            date 1600 -5000 0 800 400 1200 3600000
            run 200
            kill
            down 2200
            {step}
            start
            delay 0 400
            date 0 400
            run 4000
        "
        )
    };
    let scenarios = [
        ("down", ""),
        ("down and forth", "step 86400000"),
        ("down and back", "step -1000"),
        ("down and far back", "step -3600000\nstart\nrun 1000\nkill\nstep 3600000"),
    ];
    let scenario = |(name, step): (&str, &str)| (name.to_owned(), Setting::default(), down(step));
    for ending in play_all(scenarios.into_iter().map(scenario).collect()) {
        // Those that were overdue when the process came back have the same time of delivery.
        let mut batches: HashMap<u64, Vec<u64>> = HashMap::new();
        for message in &ending.log {
            batches.entry(message.delivered_ms).or_default().push(message.due_ms);
        }
        assert!(batches.values().all(|due| due.is_sorted()), "{:?}", ending.log);
        assert!(batches.values().any(|due| due.len() >= 6), "{:?}", ending.log);
    }
}
