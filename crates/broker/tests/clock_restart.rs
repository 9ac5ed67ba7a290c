//! Down-time of any length loses nothing: G15, on the embedded store.

#![expect(clippy::panic, reason = "helpers of tests")]

mod stage;

use std::sync::Arc;

use punctual_engine::{Engine, Options};
use punctual_model::{MessageId, Span, Timestamp};
use punctual_testkit::ManualClock;
use punctual_testkit::forgetful::ForgetfulDisk;
use stage::{Dice, Stage};

const START: Timestamp = Timestamp::from_millis_saturating(1_900_000_000_000);

fn span(text: &str) -> Span {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A stage on the embedded store, so that it can be left and entered again.
fn embedded(disk: &Arc<ForgetfulDisk>, clock: &ManualClock) -> Stage<Engine> {
    let options = Options {
        table_bytes: 16 << 10,
        near_bytes: 1 << 20,
        journal_file_bytes: 1 << 20,
        reserve_bytes: 64 << 10,
        block_bytes: 1 << 10,
        ..Options::default()
    };
    let disk = Arc::clone(disk);
    let engine = Engine::open(disk, options, Arc::new(clock.clone()));
    let engine = engine.unwrap_or_else(|error| panic!("the store opens: {error}"));
    Stage::new(Arc::new(engine), clock.clone(), 3)
}

/// Leaves the stage, lets the clock change and enters it again.
fn restart(
    stage: Stage<Engine>,
    disk: &Arc<ForgetfulDisk>,
    change: impl FnOnce(&ManualClock),
) -> Stage<Engine> {
    let (clock, waiting) = stage.leave();
    change(&clock);
    let mut stage = embedded(disk, &clock);
    stage.waiting = waiting;
    stage
}

#[test]
fn g15_down_time_of_any_length_loses_nothing() {
    for down in ["1ms", "1s", "1h", "1d", "365d", "3653d"] {
        let disk = Arc::new(ForgetfulDisk::new());
        let mut stage = embedded(&disk, &ManualClock::new(START));
        let mut dice = Dice(15);
        for number in 0..1000 {
            // From milliseconds to a month, the same number of each size.
            let size = 4 << dice.below(30);
            let away = Span::from_millis(dice.below(size));
            if number % 2 == 0 {
                stage.delay(away);
            } else {
                stage.date(START.saturating_add(away));
            }
        }
        let mut fired = stage.run(span("3s"));
        let mut stage = restart(stage, &disk, |clock| clock.advance(span(down)));
        let (overdue, _) = stage.fire();
        assert!(overdue.is_sorted_by_key(|id| id.key));
        let now = stage.now().timestamp();
        assert!(stage.waiting.keys().all(|id| id.key.due > now), "overdue after {down}");
        fired.extend(overdue);
        stage.clock.advance(span("50d"));
        fired.extend(stage.fire().0);
        assert_eq!((fired.len(), stage.waiting.len()), (1000, 0), "after {down}");
    }
}

#[test]
fn g15_a_restart_with_an_earlier_wall_clock_makes_nothing_early() {
    let disk = Arc::new(ForgetfulDisk::new());
    let mut stage = embedded(&disk, &ManualClock::new(START));
    let first = stage.date(START.saturating_add(span("1s")));
    let delayed = stage.delay(span("10s"));
    let dated = stage.date(START.saturating_add(span("20s")));
    assert_eq!(stage.run(span("5s")), [first]);
    let mut stage = restart(stage, &disk, |clock| clock.step_wall(-3_600_000));
    assert!(stage.run(span("1h4s999ms")).is_empty());
    assert_eq!(stage.run(span("1ms")), [delayed]);
    assert!(stage.run(span("9s999ms")).is_empty());
    assert_eq!(stage.run(span("1ms")), [dated]);
}

#[test]
fn g15_held_dates_survive_a_restart() {
    let disk = Arc::new(ForgetfulDisk::new());
    let mut stage = embedded(&disk, &ManualClock::new(START));
    let ids: Vec<MessageId> =
        (1..=50).map(|second| stage.date(START.saturating_add(Span::from_secs(second)))).collect();
    stage.clock.step_wall(-3_600_000);
    assert!(stage.run(span("1m")).is_empty(), "held: the broker clock is past all of them");
    let mut stage = restart(stage, &disk, |clock| clock.advance(span("1m")));
    assert!(stage.run(span("58m")).is_empty());
    assert_eq!(stage.run(span("1m")), ids);
}
