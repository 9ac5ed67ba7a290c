//! Series over the reference store: each time of a rule has one occurrence, in time and without
//! drift, through restarts, cancels and down-time.

mod series_support;

use futures_executor::block_on;
use punctual_broker::series::{Opening, Repeat, RepeatError, Rule};
use punctual_model::ports::{CancelOutcome, Done, Order, Revised, Timeline};
use punctual_model::{
    Basis, CatchUp, Lane, Link, Message, Partition, Sequence, Span, State, TopicSettings,
};

use series_support::{Round, at, dated, every, opening, secs, times};

#[test]
fn the_first_occurrence_is_after_one_interval() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    assert_eq!(id.key.sequence.lane(), Lane::Retry);
    assert_eq!(round.pending(), [10]);
    let occurrence = &round.occurrences()[0];
    let extra = occurrence.extra.as_ref().unwrap();
    assert_eq!(extra.series.and_then(Link::id), Some(id), "it knows its series");
    round.run(35);
    assert_eq!((round.delivered(), round.pending()), (vec![10, 20, 30], vec![40]));
}

#[test]
fn a_given_time_is_that_of_the_first_occurrence() {
    let mut round = Round::new();
    round.open(Opening { first: dated(3), ..opening(every(10)) });
    round.run(25);
    assert_eq!((round.delivered(), round.pending()), (vec![3, 13, 23], vec![33]));
    assert!(round.occurrences().iter().all(|entry| entry.basis == Basis::Date));
}

#[test]
fn a_first_time_in_the_past_means_at_once_and_the_rest_follows_from_it() {
    let mut round = Round::new();
    round.run(15);
    round.open(Opening { first: dated(2), ..opening(every(10)) });
    round.fire();
    assert_eq!((round.delivered(), round.pending()), (vec![2], vec![22]));
}

#[test]
fn a_cron_series_follows_its_expression() {
    let mut round = Round::new();
    let minutes = || Repeat::new(Rule::cron("* * * * *", None).unwrap());
    round.open(opening(minutes()));
    assert_eq!(round.pending(), [60]);
    round.open(Opening { first: dated(65), ..opening(minutes()) });
    round.run(190);
    assert_eq!(round.delivered(), [60, 65, 120, 120, 180, 180]);
    assert_eq!(round.pending(), [240, 240]);
}

#[test]
fn a_thousand_late_occurrences_do_not_drift() {
    let mut round = Round::new();
    let rule = Rule::every(Span::from_millis(7_001)).unwrap();
    round.open(opening(Repeat::new(rule)));
    // The clock is never where an occurrence is due: each is some milliseconds late.
    while round.time.read().timestamp().since(at(0)).as_millis() < 7_001 * 1_000 {
        round.clock.advance(Span::from_millis(3_333));
        round.fire();
    }
    let log = round.log();
    assert_eq!(log.len(), 1_000);
    for (number, delivered) in (1u64..).zip(&log) {
        assert_eq!(delivered.due.since(at(0)).as_millis(), 7_001 * number);
    }
}

#[test]
fn occurrences_carry_the_message_and_their_own_ids() {
    let mut round = Round::new();
    let key = Some("k".into());
    let message = Message { key, body: "hello".into(), ..Message::default() };
    let asked = Opening { message: message.clone(), ..opening(every(1)) };
    let id = round.open(asked);
    round.run(5);
    let log = round.log();
    for delivered in &log {
        let Message { key, body, .. } = &delivered.message;
        assert_eq!((key, body), (&message.key, &message.body));
    }
    let mut ids: Vec<_> = log.iter().map(|delivered| delivered.id).collect();
    ids.push(id);
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6);
}

#[test]
fn without_a_key_occurrences_take_turns() {
    let mut round = Round::new();
    round.set(TopicSettings { partitions: 4, ..TopicSettings::default() });
    round.open(opening(every(1)));
    round.open(Opening { partition: Partition::new(2), ..opening(every(1)) });
    round.run(8);
    let mut counts = [0; 4];
    round.log().iter().for_each(|delivered| counts[usize::from(delivered.id.partition.get())] += 1);
    assert_eq!(counts, [2, 2, 10, 2]);
}

#[test]
fn count_and_until_end_a_series() {
    let mut round = Round::new();
    let counted = round.open(opening(times(every(10), 3)));
    let until = Repeat { until: Some(at(24)), ..every(12) };
    round.open(opening(until));
    round.run(25);
    assert_eq!(round.series().len(), 1, "the one that ends at 24 is over");
    round.run(100);
    assert_eq!(round.delivered(), [10, 12, 20, 24, 30]);
    assert!(round.series().is_empty() && round.pending().is_empty());
    assert_eq!(block_on(round.keeper.cancel(counted)), Ok(CancelOutcome::AlreadyCancelled));
}

#[test]
fn a_series_without_a_time_is_refused() {
    let round = Round::new();
    let now = round.time.read();
    let late = Repeat { until: Some(at(9)), ..every(10) };
    let refused = opening(late).orders(&round.topic(), now, 0);
    assert!(matches!(refused, Err(RepeatError::EndsBeforeFirst)));
    let far = Repeat::new(Rule::every(Span::from_days(4_000_000)).unwrap());
    let refused = opening(far).orders(&round.topic(), now, 0);
    assert!(matches!(refused, Err(RepeatError::DueOutOfRange)));
}

#[test]
fn cancelling_an_occurrence_skips_it() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    round.run(15);
    let second = round.occurrences()[0].id;
    assert_eq!(block_on(round.store.cancel(vec![second])), Ok(vec![CancelOutcome::Cancelled]));
    let shown = &round.series()[0];
    assert_eq!((shown.id, shown.number, shown.occurrence), (id, 2, Some(second)));
    round.run(20);
    assert_eq!((round.delivered(), round.pending()), (vec![10, 30], vec![40]));
}

#[test]
fn cancelling_the_series_stops_it() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    let other = round.open(opening(every(10)));
    round.run(15);
    let next = round.series()[0].occurrence.unwrap();
    assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::Cancelled));
    assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::AlreadyCancelled));
    let found = block_on(round.store.find(vec![next])).unwrap();
    assert_eq!(found[0].as_ref().map(|found| found.state), Some(State::Cancelled));
    round.run(20);
    assert_eq!(round.delivered(), [10, 10, 20, 30], "the other one goes on");
    assert_eq!(round.series()[0].id, other);
    let mut unknown = id;
    unknown.key.sequence = Sequence::MAX;
    assert_eq!(block_on(round.keeper.cancel(unknown)), Ok(CancelOutcome::NotFound));
    let plain = round.occurrences()[0].id;
    assert_eq!(block_on(round.keeper.cancel(plain)), Ok(CancelOutcome::NotFound));
}

#[test]
fn a_cancel_between_arming_and_moving_on_wins() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    round.clock.advance(Span::from_secs(10));
    let armed = round.arm(Lane::Retry);
    assert_eq!(armed.len(), 1);
    assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::Cancelled));
    assert!(block_on(round.keeper.handle(armed)).is_ok());
    round.run(30);
    assert!(round.delivered().is_empty() && round.pending().is_empty());
}

#[test]
fn an_occurrence_that_fires_during_the_cancel_is_delivered_and_nothing_after_it() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    round.clock.advance(Span::from_secs(10));
    assert!(round.fire_messages());
    assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::Cancelled));
    round.run(30);
    assert_eq!((round.delivered(), round.pending()), (vec![10], vec![]));
}

#[test]
fn one_refused_series_does_not_hold_up_the_others() {
    let mut round = Round::new();
    let first = round.open(opening(every(10)));
    round.open(opening(every(10)));
    round.clock.advance(Span::from_secs(10));
    let armed = round.arm(Lane::Retry);
    let cancelled = Order::Cancel { id: first, expected: None };
    assert_eq!(round.revise(vec![cancelled]), Revised::Done(vec![Done::Cancelled]));
    assert!(block_on(round.keeper.handle(armed)).is_ok());
    assert_eq!(round.pending(), [10, 10, 20], "the occurrence of the first is still to come");
}

#[test]
fn a_series_goes_on_after_a_restart() {
    let mut round = Round::new();
    round.open(opening(every(10)));
    round.run(15);
    let mut round = round.down_for(Span::ZERO);
    round.run(10);
    assert_eq!((round.delivered(), round.pending()), (vec![10, 20], vec![30]));
    // Down between the delivery and the step of the series, and the other way round.
    round.clock.advance(Span::from_secs(5));
    assert!(round.fire_messages());
    round = round.down_for(Span::ZERO);
    round.fire();
    assert_eq!((round.delivered(), round.pending()), (vec![10, 20, 30], vec![40]));
    round.clock.advance(Span::from_secs(10));
    assert!(round.fire_series());
    round = round.down_for(Span::ZERO);
    assert_eq!(round.pending(), [40, 50]);
    round.fire();
    assert_eq!((round.delivered(), round.pending()), (vec![10, 20, 30, 40], vec![50]));
}

/// A series every ten seconds that was down from 15 to 75.
fn after_down_time(catch_up: CatchUp, of_series: Option<CatchUp>) -> Round {
    let mut round = Round::new();
    round.set(TopicSettings { partitions: 1, catch_up, ..TopicSettings::default() });
    round.open(Opening { catch_up: of_series, ..opening(every(10)) });
    round.run(15);
    let round = round.down_for(Span::from_secs(60));
    round.fire();
    round
}

#[test]
fn after_down_time_all_are_made() {
    for policy in [CatchUp::All, CatchUp::Spread(Span::from_secs(60))] {
        let round = after_down_time(policy, None);
        assert_eq!(round.delivered(), [10, 20, 30, 40, 50, 60, 70]);
        assert_eq!(round.pending(), [80]);
    }
}

#[test]
fn after_down_time_only_those_are_made_that_are_not_too_late() {
    let round = after_down_time(CatchUp::SkipOlder(Span::from_secs(20)), None);
    // The one of 20 was on the timeline; to skip it is up to the firing.
    assert_eq!(round.delivered(), [10, 20, 60, 70]);
    assert_eq!((round.pending(), round.series()[0].number), (vec![80], 8));
}

#[test]
fn after_down_time_only_the_latest_is_made() {
    let round = after_down_time(CatchUp::Latest, None);
    assert_eq!((round.delivered(), round.pending()), (vec![10, 70], vec![80]));
    round.run(10);
    assert_eq!((round.delivered(), round.pending()), (vec![10, 70, 80], vec![90]));
}

#[test]
fn the_latest_alone_is_made_whichever_lane_fires_first() {
    let mut round = Round::new();
    let catch_up = CatchUp::Latest;
    round.set(TopicSettings { partitions: 1, catch_up, ..TopicSettings::default() });
    round.open(opening(every(10)));
    let round = round.down_for(Span::from_secs(35));
    assert!(round.fire_series());
    round.fire();
    assert_eq!((round.delivered(), round.pending()), (vec![30], vec![40]));
}

#[test]
fn a_policy_of_the_series_itself_comes_first() {
    let round = after_down_time(CatchUp::SkipOlder(Span::ZERO), Some(CatchUp::All));
    assert_eq!(round.delivered(), [10, 20, 30, 40, 50, 60, 70]);
}

#[test]
fn a_long_down_time_is_worked_off_in_portions() {
    let mut round = Round::new();
    round.open(opening(times(every(1), 2_600)));
    let round = round.down_for(Span::from_secs(2_500));
    assert!(round.fire_series());
    assert_eq!(round.occurrences().len(), 1000, "a page is all that is listed");
    assert_eq!(round.series()[0].number, 1001);
    round.fire();
    assert_eq!(round.delivered(), (1..=2_500).collect::<Vec<_>>());
    assert_eq!(round.pending(), [2_501]);
    let round = round.down_for(Span::from_secs(1000));
    round.fire();
    assert_eq!(round.delivered(), (1..=2_600).collect::<Vec<_>>(), "the count is the end");
    assert!(round.pending().is_empty() && round.series().is_empty());
}

#[test]
fn jitter_delays_but_never_disorders() {
    let mut round = Round::new();
    let jitter = Some(Span::from_secs(60));
    round.set(TopicSettings { partitions: 1, jitter, ..TopicSettings::default() });
    round.open(opening(every(10)));
    round.run(1000);
    let late: Vec<u64> = (1u64..)
        .zip(round.log())
        .map(|(number, delivered)| delivered.due.since(at(10 * number)).as_millis())
        .collect();
    assert!(late.len() >= 98);
    assert!(late.iter().all(|late| *late < 10_000), "each before the next: {late:?}");
    assert!(late.iter().any(|late| *late > 5_000) && late.iter().any(|late| *late < 5_000));
}

#[test]
fn a_series_of_a_deleted_topic_ends() {
    let mut round = Round::new();
    round.open(opening(every(10)));
    round.clock.advance(Span::from_secs(10));
    let armed = round.arm(Lane::Retry);
    let name = round.topic().name.clone();
    assert_eq!(punctual_model::ports::Topics::delete(&round.store, &name), Ok(true));
    assert!(block_on(round.keeper.handle(armed)).is_ok());
    assert!(round.arm(Lane::Retry).is_empty());
}

#[test]
fn what_cannot_be_read_waits() {
    let mut round = Round::new();
    let id = round.open(opening(every(10)));
    round.clock.advance(Span::from_secs(10));
    let mut armed = round.arm(Lane::Retry);
    armed[0].message.body = vec![99].into();
    assert!(block_on(round.keeper.handle(armed)).is_ok());
    let found = block_on(round.store.find(vec![id])).unwrap();
    let Some(entry) = found[0].as_ref().and_then(|found| found.entry.as_ref()) else {
        panic!("the series is still there");
    };
    assert_eq!(secs(entry.key.due), 3610);
    assert_eq!(block_on(round.keeper.cancel(id)), Ok(CancelOutcome::Cancelled));
}
