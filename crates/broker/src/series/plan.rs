//! What a series puts on the timeline when its time comes: mostly the next occurrence, and after
//! down-time what was missed, as the policy of the topic says.
//!
//! Times that passed while the broker was down are missed; a time that passed while it was running,
//! however late it is noticed, is made in any case. Skipped times count as times. A long down-time
//! is worked off in portions: the series stays due until it has reached the future.

use punctual_model::{CatchUp, Span, Timestamp};

use super::spec::{Place, Spec};

/// The circumstances of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// What time it is.
    pub(crate) now: Timestamp,
    /// When the broker started: what fell due before was missed.
    pub(crate) started: Timestamp,
    /// What becomes of missed times.
    pub(crate) catch_up: CatchUp,
    /// At most this many occurrences; one at least.
    pub(crate) made_max: usize,
    /// At most this many times are looked at; two at least.
    pub(crate) search_max: usize,
}

/// What a series does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The occurrences to put on the timeline, soonest first.
    pub(crate) made: Vec<Place>,
    /// Where the series stands then; `None` when it has ended.
    pub(crate) place: Option<Place>,
    /// The occurrence before these was missed, and a later one takes its place.
    pub(crate) overtaken: bool,
}

/// Decides what the series does, whose occurrence on the timeline is due.
pub(crate) fn plan(spec: &Spec, moment: Moment) -> Plan {
    let Moment { now, started, catch_up, made_max, search_max } = moment;
    let missed = |place: Place| place.time < started;
    let mut made = Vec::new();
    let mut place = spec.place;
    // The latest of the missed times so far, and the place before it.
    let mut latest: Option<(Place, Place)> = None;
    let mut overtaken = false;
    let mut next = spec.after(place);
    for _ in 0..search_max {
        if !next.is_some_and(missed) {
            made.extend(latest.take().map(|(latest, _)| latest));
        }
        let Some(there) = next.filter(|_| made.len() < made_max) else { break };
        if !missed(there) || keeps(catch_up, started.since(there.time)) {
            made.push(there);
        } else if catch_up == CatchUp::Latest {
            overtaken = missed(spec.place);
            latest = Some((there, place));
        }
        place = there;
        if there.time > now {
            break;
        }
        next = spec.after(place);
    }
    match latest {
        // The search ended before it was clear that this is the latest: it is looked at again.
        Some((_, before)) if next.is_some_and(missed) => place = before,
        Some((latest, _)) => made.push(latest),
        None => {}
    }
    let ended = made.is_empty() && next.is_none();
    Plan { made, place: (!ended).then_some(place), overtaken }
}

/// Whether a time that was so late when the broker started is made, whatever follows it.
fn keeps(catch_up: CatchUp, late: Span) -> bool {
    match catch_up {
        CatchUp::All | CatchUp::Spread(_) => true,
        CatchUp::SkipOlder(limit) => late <= limit,
        CatchUp::Latest => false,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::super::rule::Rule;
    use super::super::spec::Repeat;
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000).unwrap()
    }

    /// Every ten seconds from 10 on, with the occurrence of `place` on the timeline.
    fn spec(place: u64) -> Spec {
        let place = Place { time: at(place * 10), number: place };
        let repeat = Repeat::new(Rule::every(Span::from_secs(10)).unwrap());
        Spec { repeat, catch_up: None, partition: None, turn: 0, start: at(10), place }
    }

    fn moment(now: u64, started: u64, catch_up: CatchUp) -> Moment {
        let (now, started) = (at(now), at(started));
        Moment { now, started, catch_up, made_max: 1000, search_max: 1000 }
    }

    fn made(plan: &Plan) -> Vec<u64> {
        plan.made.iter().map(|place| place.number).collect()
    }

    #[test]
    fn in_time_the_next_one_is_made() {
        for catch_up in [CatchUp::All, CatchUp::SkipOlder(Span::ZERO), CatchUp::Latest] {
            let plan = plan(&spec(3), moment(30, 0, catch_up));
            assert_eq!((made(&plan), plan.overtaken), (vec![4], false));
            assert_eq!(plan.place, Some(Place { time: at(40), number: 4 }));
        }
    }

    #[test]
    fn what_a_running_broker_notices_late_is_made_whatever_the_policy() {
        for catch_up in [CatchUp::All, CatchUp::SkipOlder(Span::ZERO), CatchUp::Latest] {
            let plan = plan(&spec(3), moment(65, 5, catch_up));
            assert_eq!((made(&plan), plan.overtaken), (vec![4, 5, 6, 7], false));
        }
    }

    #[test]
    fn the_policy_decides_what_becomes_of_missed_times() {
        let plan = |catch_up| plan(&spec(3), moment(75, 75, catch_up));
        assert_eq!(made(&plan(CatchUp::All)), [4, 5, 6, 7, 8]);
        assert_eq!(made(&plan(CatchUp::Spread(Span::from_secs(9)))), [4, 5, 6, 7, 8]);
        assert_eq!(made(&plan(CatchUp::SkipOlder(Span::from_secs(15)))), [6, 7, 8]);
        assert_eq!(made(&plan(CatchUp::SkipOlder(Span::ZERO))), [8]);
        let latest = plan(CatchUp::Latest);
        assert_eq!((made(&latest), latest.overtaken), (vec![7, 8], true));
    }

    #[test]
    fn what_fell_due_after_the_start_was_not_missed() {
        let plan = plan(&spec(3), moment(75, 55, CatchUp::Latest));
        assert_eq!((made(&plan), plan.overtaken), (vec![5, 6, 7, 8], true));
    }

    #[test]
    fn a_missed_occurrence_without_a_later_one_is_the_latest() {
        let plan = plan(&spec(3), moment(35, 35, CatchUp::Latest));
        assert_eq!((made(&plan), plan.overtaken), (vec![4], false));
    }

    #[test]
    fn the_end_comes_after_the_last_occurrence() {
        let mut spec = spec(3);
        spec.repeat.count = NonZeroU32::new(5);
        let last = plan(&spec, moment(75, 75, CatchUp::All));
        assert_eq!((made(&last), last.place.is_some()), (vec![4, 5], true));
        let latest = plan(&spec, moment(75, 75, CatchUp::Latest));
        assert_eq!((made(&latest), latest.place.is_some()), (vec![5], true));
        let none = plan(&spec, moment(75, 75, CatchUp::SkipOlder(Span::from_secs(1))));
        assert_eq!((made(&none), none.place), (vec![], None), "all that was left was skipped");
        spec.place = Place { time: at(50), number: 5 };
        assert_eq!(plan(&spec, moment(50, 0, CatchUp::All)).place, None);
    }

    #[test]
    fn ten_thousand_steps_do_not_drift() {
        let mut spec = spec(1);
        for number in 2..=10_000u64 {
            // Noticed late, and later every time.
            let now = at(spec.place.number * 10).saturating_add(Span::from_millis(number % 9_999));
            let moment = Moment { now, ..moment(0, 0, CatchUp::All) };
            let Plan { made, place: Some(place), .. } = plan(&spec, moment) else {
                panic!("it goes on");
            };
            assert_eq!(made, [Place { time: at(number * 10), number }]);
            spec.place = place;
        }
    }

    proptest! {
        /// In portions of any size the same occurrences are made as at once.
        #[test]
        fn portions_add_up(
            (started, late) in (20u64..400, 0u64..100),
            policy in 0..4u8,
            (made_max, search_max) in (1usize..5, 2usize..6),
            count in 2u32..40,
        ) {
            let catch_up = match policy {
                0 => CatchUp::All,
                1 => CatchUp::Latest,
                2 => CatchUp::SkipOlder(Span::from_secs(25)),
                _ => CatchUp::Spread(Span::from_secs(25)),
            };
            let mut whole = spec(1);
            whole.repeat.count = NonZeroU32::new(count);
            let moment = moment(started + late, started, catch_up);
            let at_once = plan(&whole, moment);
            let mut parts = whole;
            let mut all = Vec::new();
            let mut ended = false;
            for _ in 0..1000 {
                let part = plan(&parts, Moment { made_max, search_max, ..moment });
                prop_assert!(part.made.len() <= made_max.max(2));
                all.extend(part.made);
                ended = part.place.is_none();
                let Some(place) = part.place else { break };
                prop_assert!(place.number > parts.place.number, "a portion gets somewhere");
                parts.place = place;
                if place.time > moment.now {
                    break;
                }
            }
            prop_assert_eq!(all, at_once.made);
            let future = parts.place.time > moment.now;
            prop_assert!(ended || future, "it ends in the future, or for good");
        }
    }
}
