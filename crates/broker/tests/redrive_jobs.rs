//! Jobs: few at once, their reports bounded, and all ended before the broker is.

mod market;
mod dead_support;

use std::str::FromStr;

use dead_support::{fill, finished, kill, redrive};
use market::{Finally, Market, wait_until};
use punctual_broker::group::{DeadFilter, Drain, JobError, JobId, JobState, Redrive};
use punctual_model::ports::{GroupError, StoreError};
use punctual_model::{Span, TopicName};

#[test]
fn only_four_run_at_once() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a"]);
    market.valve.shut();
    let jobs: Vec<JobId> = (0..4).map(|_| consumer.redrive(Redrive::default()).unwrap()).collect();
    assert_eq!(consumer.redrive(Redrive::default()), Err(JobError::TooMany));
    let other = market.group("others");
    assert_eq!(other.redrive(Redrive::default()), Err(JobError::TooMany));
    market.valve.open();
    let done: u64 = jobs.iter().map(|job| finished(&consumer, *job).done).sum();
    assert_eq!(done, 1);
    redrive(&consumer, Redrive::default());
}

#[test]
fn sixteen_finished_jobs_of_a_group_are_remembered() {
    let market = Market::new(1);
    let (consumer, other) = (market.group("workers"), market.group("others"));
    let kept = redrive(&other, Redrive::default()).id;
    let jobs: Vec<JobId> = (0..20).map(|_| redrive(&consumer, Redrive::default()).id).collect();
    assert!(jobs.is_sorted());
    // A job that is forgotten at the end of another is forgotten soon, not at once.
    wait_until("end of what is remembered", || consumer.jobs().len() <= 16);
    let listed: Vec<JobId> = consumer.jobs().into_iter().map(|report| report.id).collect();
    let newest: Vec<JobId> = jobs.iter().rev().take(listed.len()).copied().collect();
    assert_eq!((listed.len(), &listed), (16, &newest));
    assert!(consumer.job(jobs[0], 0, 1).is_none());
    assert!(other.job(kept, 0, 1).is_some());
    assert!(consumer.job(kept, 0, 1).is_none(), "of another group");
}

#[test]
fn results_are_read_page_by_page() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    fill(&market, &consumer, 25);
    let id = redrive(&consumer, Redrive::default()).id;
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let report = consumer.job(id, after, 10).unwrap();
        all.extend(report.results);
        match report.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(all, consumer.job(id, 0, usize::MAX).unwrap().results);
    assert_eq!(all.len(), 25);
    assert!(consumer.job(id, 1000, 10).unwrap().results.is_empty());
}

#[test]
fn names_are_read_back_and_nothing_else_is_one() {
    let market = Market::new(1);
    let id = redrive(&market.group("workers"), Redrive::default()).id;
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in
        ["", "1", "+000000000000001", "00000000000000001", "000000000000000G", "000000000000000A"]
    {
        assert!(JobId::from_str(text).is_err(), "{text}");
    }
}

#[test]
fn a_job_ends_with_the_broker_and_a_new_one_goes_on() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    fill(&market, &consumer, 1200);
    market.valve.shut();
    let id = consumer.redrive(Redrive::default()).unwrap();
    // Or one of those below, which are to be refused, might take the letters from it.
    wait_until("step of the job", || market.valve.is_holding());
    let stopping = std::thread::scope(|scope| {
        let stop = scope.spawn(|| market.broker.stop());
        let open = Finally(|| market.valve.open());
        // The step under way is seen to its end, and is the last.
        wait_until("refusal of jobs", || consumer.redrive(Redrive::default()) == Err(closed()));
        drop(open);
        stop.join()
    });
    assert!(stopping.is_ok());
    let report = consumer.job(id, 0, 0).unwrap();
    assert!(matches!(report.state, JobState::Failed(_)) && report.done <= 500, "{report:?}");
    let done: u64 = consumer.jobs().iter().map(|report| report.done).sum();
    market.clock.advance(Span::from_millis(1));
    let market = market.restart();
    let consumer = market.group("workers");
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Ok(1200 - done));
    assert_eq!(redrive(&consumer, Redrive::default()).done, 1200 - done);
    assert!(consumer.job(id, 0, 0).is_none());
}

fn closed() -> JobError {
    JobError::Group(GroupError::Store(StoreError::Closed))
}

#[test]
fn after_the_end_nothing_is_started() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    market.broker.stop();
    assert_eq!(consumer.redrive(Redrive::default()), Err(closed()));
    let order = Drain { to: TopicName::new("elsewhere").unwrap(), max: None };
    assert_eq!(consumer.drain(&order), Err(JobError::NoTarget));
}
