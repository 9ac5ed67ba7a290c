//! The contract of [`Clock`].

use punctual_model::Clock;

/// Holds a clock to its contract.
///
/// # Panics
/// Where the clock breaks it.
pub fn clock<C: Clock>(make: impl Fn() -> C) {
    the_monotonic_part_never_decreases(&make());
    the_timestamp_is_the_wall_rounded_down(&make());
}

fn the_monotonic_part_never_decreases<C: Clock>(clock: &C) {
    let mut last = clock.read().monotonic;
    for _ in 0..10_000 {
        let next = clock.read().monotonic;
        assert!(last <= next, "the monotonic clock went back from {last:?} to {next:?}");
        last = next;
    }
}

fn the_timestamp_is_the_wall_rounded_down<C: Clock>(clock: &C) {
    let reading = clock.read();
    let shown = u128::from(reading.timestamp().as_millis());
    assert_eq!(shown, reading.wall.as_millis(), "a rounded-up clock would make messages early");
}
