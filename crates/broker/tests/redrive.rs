//! Redrive: dead letters start again at attempt 1, each once, at the rate and from the time asked
//! for, also across a restart.

mod market;
mod dead_support;

use bytes::Bytes;
use dead_support::{all, fill, finished, kill, redrive, texts, wait_for_dead, wait_for_lag};
use market::{Market, bodies, ladder, receipts, receive, receive_all, request, take};
use punctual_broker::group::{
    DeadFilter, Edit, Failure, JobError, JobKind, JobState, MoveResult, NackOutcome, Reason,
    Redrive,
};
use punctual_broker::{Invalid, Request};
use punctual_model::limits::{HEADERS_MAX, KEY_BYTES_MAX};
use punctual_model::{GroupSettings, Header, MessageId, Span};

const SECOND: Span = Span::from_secs(1);

fn one(id: MessageId) -> Redrive {
    let filter = DeadFilter { id: Some(id), ..DeadFilter::default() };
    Redrive { filter, ..Redrive::default() }
}

#[test]
fn a_redriven_message_is_the_one_it_was_and_starts_again_at_attempt_1() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[SECOND]));
    let mut sent = request("k:a");
    sent.message.headers = vec![Header { name: "h".to_owned(), value: Bytes::from("v") }];
    let id = market.schedule(vec![sent.clone()])[0];
    let first = receive(&consumer, 1).remove(0);
    let failure = Failure { error: Some("bad".to_owned()), ..Failure::default() };
    assert_eq!(consumer.nack(&[first.receipt], &failure).unwrap(), [NackOutcome::Requeued]);
    market.pass(SECOND);
    let second = receive(&consumer, 1).remove(0);
    assert_eq!(consumer.nack(&[second.receipt], &failure).unwrap(), [NackOutcome::Dead]);
    wait_for_dead(&consumer, 1);
    market.clock.advance(SECOND);

    let report = redrive(&consumer, Redrive::default());
    assert_eq!((report.kind, report.matched, report.done), (JobKind::Redrive, 1, 1));
    assert_eq!((report.results[0].id, report.results[0].result), (id, MoveResult::Redriven));
    assert_eq!(report.results[0].due, Some(market.clock.now()));
    assert!(all(&consumer, &DeadFilter::default()).is_empty());
    let again = receive(&consumer, 1).remove(0);
    assert_eq!((again.id, again.attempt), (id, 1));
    assert_eq!((again.offset, again.due, &again.message), (first.offset, first.due, &sent.message));

    assert_eq!(
        consumer.nack(&[again.receipt], &Failure::default()).unwrap(),
        [NackOutcome::Requeued]
    );
    market.pass(SECOND);
    let last = receive(&consumer, 1).remove(0);
    assert_eq!(last.attempt, 2);
    assert_eq!(consumer.nack(&[last.receipt], &Failure::default()).unwrap(), [NackOutcome::Dead]);
    wait_for_dead(&consumer, 1);
    let letter = all(&consumer, &DeadFilter::default()).remove(0);
    assert_eq!((letter.history.id, letter.history.failed), (id, 2));
    assert_eq!((letter.history.first_error, letter.history.last_error), (None, None));
}

#[test]
fn what_has_expired_does_not_expire_again_when_it_is_redriven() {
    let market = Market::new(1);
    let consumer = market.put("workers", ladder(&[SECOND]));
    market.schedule(vec![Request { ttl: Some(SECOND), ..request("k:a") }]);
    wait_for_lag(&consumer, 1);
    market.pass(SECOND);
    assert!(consumer.take(1, SECOND).unwrap().is_empty());
    wait_for_dead(&consumer, 1);
    let letter = all(&consumer, &DeadFilter::default()).remove(0);
    assert_eq!(letter.history.reason, Some(Reason::Expired));
    redrive(&consumer, Redrive::default());
    let first = receive(&consumer, 1).remove(0);
    assert_eq!(
        consumer.nack(&[first.receipt], &Failure::default()),
        Ok(vec![NackOutcome::Requeued])
    );
    market.pass(SECOND);
    assert_eq!(receive(&consumer, 1)[0].attempt, 2);
}

#[test]
fn only_what_the_filter_names_is_redriven() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["x:a", "y:b", "x:c"]);
    let filter = DeadFilter { key: Some(Bytes::from("x")), ..DeadFilter::default() };
    assert_eq!(consumer.count_dead(&filter), Ok(2), "a dry run");
    let report = redrive(&consumer, Redrive { filter, ..Redrive::default() });
    assert_eq!((report.matched, report.done, report.cut), (2, 2, false));
    assert_eq!(bodies(&receive_all(&consumer, 2)), ["x:a", "x:c"]);
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["y:b"]);
    let none = DeadFilter { reason: Some(Reason::Overflow), ..DeadFilter::default() };
    let report = redrive(&consumer, Redrive { filter: none, ..Redrive::default() });
    assert_eq!((report.matched, report.results.len()), (0, 0));
}

#[test]
fn a_rate_spreads_messages_from_the_start_time_on() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a", "b", "c", "d"]);
    let at = market.clock.now().saturating_add(Span::from_secs(60));
    let report = redrive(&consumer, Redrive { rate: Some(2), at: Some(at), ..Redrive::default() });
    let dues: Vec<u64> =
        report.results.iter().map(|r| r.due.unwrap().since(at).as_millis()).collect();
    assert_eq!(dues, [0, 500, 1000, 1500]);
    // The start and the rate are on the timeline, so a restart does not matter.
    let market = market.restart();
    let consumer = market.group("workers");
    market.pass(Span::from_millis(59_999));
    assert!(take(&consumer).is_empty());
    market.pass(Span::from_millis(1));
    assert_eq!(bodies(&receive(&consumer, 10)), ["a"]);
    market.pass(Span::from_millis(499));
    assert!(take(&consumer).is_empty());
    market.pass(Span::from_millis(1));
    assert_eq!(bodies(&receive(&consumer, 10)), ["b"]);
    market.pass(SECOND);
    assert_eq!(bodies(&receive_all(&consumer, 2)), ["c", "d"]);
}

#[test]
fn a_start_time_in_the_past_means_at_once() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a"]);
    let at = Some(market.clock.now().saturating_sub(SECOND));
    let report = redrive(&consumer, Redrive { at, ..Redrive::default() });
    assert_eq!(report.results[0].due, Some(market.clock.now()));
    assert_eq!(bodies(&receive(&consumer, 1)), ["a"]);
}

#[test]
fn what_has_expired_is_given_out_after_a_redrive() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.schedule(vec![Request { ttl: Some(SECOND), ..request("a") }]);
    wait_for_lag(&consumer, 1);
    market.clock.advance(SECOND);
    assert!(take(&consumer).is_empty());
    wait_for_dead(&consumer, 1);
    let filter = DeadFilter { reason: Some(Reason::Expired), ..DeadFilter::default() };
    assert_eq!(redrive(&consumer, Redrive { filter, ..Redrive::default() }).done, 1);
    assert_eq!(bodies(&receive(&consumer, 1)), ["a"]);
}

#[test]
fn one_message_can_be_edited() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let ids = kill(&market, &consumer, &["k:a", "k:b"]);
    let headers = vec![Header { name: "fixed".to_owned(), value: Bytes::from("yes") }];
    let edit =
        Edit { body: Some("better".into()), headers: Some(headers.clone()), key: Some(None) };
    let report = redrive(&consumer, Redrive { edit: Some(edit), ..one(ids[1]) });
    assert_eq!((report.matched, report.done, report.results[0].id), (1, 1, ids[1]));
    let again = receive(&consumer, 1).remove(0);
    assert_eq!((again.id, again.attempt), (ids[1], 1));
    assert_eq!((again.message.key, again.message.headers), (None, headers));
    assert_eq!(again.message.body, "better");
    let edit = Edit { key: Some(Some(Bytes::from("q"))), ..Edit::default() };
    redrive(&consumer, Redrive { edit: Some(edit), ..one(ids[0]) });
    let again = receive(&consumer, 1).remove(0);
    assert_eq!((again.message.key, again.message.body), (Some("q".into()), "k:a".into()));
}

#[test]
fn an_order_that_makes_no_sense_is_refused() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let ids = kill(&market, &consumer, &["a"]);
    let refused = |order: Redrive| consumer.redrive(order).unwrap_err();
    let edit = Some(Edit::default());
    assert_eq!(refused(Redrive { edit, ..Redrive::default() }), JobError::EditWithoutId);
    assert_eq!(refused(Redrive { rate: Some(0), ..Redrive::default() }), JobError::NoRate);
    let with = |edit: Edit| refused(Redrive { edit: Some(edit), ..one(ids[0]) });
    let max = punctual_broker::Options::default().body_bytes_max;
    let body = Some(Bytes::from(vec![0; max + 1]));
    let too_large = JobError::Edit(Invalid::BodyTooLarge { max });
    assert_eq!(with(Edit { body, ..Edit::default() }), too_large);
    let header = Header { name: "h".to_owned(), value: Bytes::new() };
    let headers = Some(vec![header; HEADERS_MAX + 1]);
    assert_eq!(with(Edit { headers, ..Edit::default() }), JobError::Edit(Invalid::TooManyHeaders));
    let key = Some(Some(Bytes::from(vec![0; KEY_BYTES_MAX + 1])));
    assert_eq!(with(Edit { key, ..Edit::default() }), JobError::Edit(Invalid::KeyTooLarge));
    let at = Some(market.clock.now().saturating_add(Span::from_days(400)));
    assert!(matches!(refused(Redrive { at, ..Redrive::default() }), JobError::At(_)));
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(1));
    assert!(consumer.jobs().is_empty());
}

#[test]
fn a_message_that_is_no_letter_is_gone() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let ids = kill(&market, &consumer, &["a"]);
    assert_eq!(redrive(&consumer, one(ids[0])).done, 1);
    let report = redrive(&consumer, one(ids[0]));
    assert_eq!((report.matched, report.done), (1, 0));
    assert_eq!((report.results[0].result, report.results[0].due), (MoveResult::Gone, None));
}

#[test]
fn what_the_store_refuses_stays_in_the_list() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a", "b"]);
    market.valve.refuse();
    let report = finished(&consumer, consumer.redrive(Redrive::default()).unwrap());
    assert_eq!(report.state, JobState::Failed("the disk is full".into()));
    assert_eq!((report.matched, report.done), (0, 0));
    market.valve.open();
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["a", "b"]);
    assert_eq!(redrive(&consumer, Redrive::default()).done, 2);
    assert_eq!(bodies(&receive_all(&consumer, 2)), ["a", "b"]);
}

#[test]
fn letters_that_die_again_meanwhile_are_left_to_the_next_redrive() {
    let market = Market::new(1);
    let consumer =
        market.put("workers", GroupSettings { attempts_max: Some(1), ..GroupSettings::default() });
    fill(&market, &consumer, 1200);
    let report = redrive(&consumer, Redrive::default());
    assert_eq!((report.matched, report.done), (1200, 1200));
    let mut ids = Vec::new();
    while ids.len() < 1200 {
        let taken = receive(&consumer, 1000);
        ids.extend(taken.iter().map(|leased| leased.id));
        consumer.nack(&receipts(&taken), &Failure::default()).unwrap();
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 1200, "each once");
    wait_for_dead(&consumer, 1200);
}

#[test]
fn redrives_and_purges_at_once_never_decide_twice_about_a_letter() {
    const LETTERS: u64 = 3000;
    let market = Market::new(1);
    let consumer = market.group("workers");
    fill(&market, &consumer, LETTERS);
    let jobs: Vec<_> = (0..3).map(|_| consumer.redrive(Redrive::default()).unwrap()).collect();
    let purged = consumer.purge(&DeadFilter::default()).unwrap();
    let reports = jobs.into_iter().map(|job| finished(&consumer, job));
    let redriven: u64 = reports.map(|report| report.done).sum();
    assert_eq!(purged + redriven, LETTERS);
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(0));
    let taken = if redriven > 0 {
        receive_all(&consumer, usize::try_from(redriven).unwrap())
    } else {
        Vec::new()
    };
    let mut ids: Vec<MessageId> = taken.iter().map(|leased| leased.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len() as u64, redriven);
    assert!(take(&consumer).is_empty());
}
