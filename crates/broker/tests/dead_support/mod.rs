//! Groups with dead letters, on top of the market.

#![allow(dead_code, clippy::allow_attributes, reason = "each test file uses its own part of it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use futures_executor::block_on;
use punctual_broker::group::{
    Consumer, DeadFilter, DeadLetter, DeadPage, DeadQuery, Failure, History, JobId, JobReport,
    JobState, NackOutcome, Reason, Redrive,
};
use punctual_model::ports::Groups;
use punctual_model::{Basis, Entry, Key, Message, MessageId, Partition, Sequence, Timestamp};

use crate::market::{Market, receipts, receive_all, wait_until};

/// Sends messages that the group rejects, and waits until they are in its list.
pub(crate) fn kill(market: &Market, consumer: &Consumer, texts: &[&str]) -> Vec<MessageId> {
    let before = consumer.count_dead(&DeadFilter::default()).unwrap();
    let ids = market.send(texts);
    let taken = receive_all(consumer, texts.len());
    let failure = Failure { reject: true, error: Some("no".to_owned()), ..Failure::default() };
    let outcomes = consumer.nack(&receipts(&taken), &failure).unwrap();
    assert_eq!(outcomes, vec![NackOutcome::Dead; texts.len()]);
    wait_for_dead(consumer, before + texts.len() as u64);
    ids
}

pub(crate) fn wait_for_dead(consumer: &Consumer, count: u64) {
    wait_until("dead letters", || consumer.count_dead(&DeadFilter::default()).unwrap() >= count);
}

pub(crate) fn page(
    consumer: &Consumer,
    filter: &DeadFilter,
    after: Option<u64>,
    limit: usize,
) -> DeadPage {
    consumer.dead(&DeadQuery { filter: filter.clone(), after, limit }).unwrap()
}

/// All letters that fit, in pages of two.
pub(crate) fn all(consumer: &Consumer, filter: &DeadFilter) -> Vec<DeadLetter> {
    let mut letters = Vec::new();
    let mut after = None;
    loop {
        let page = page(consumer, filter, after, 2);
        assert!(page.letters.len() <= 2);
        letters.extend(page.letters);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(consumer.count_dead(filter).unwrap(), letters.len() as u64, "{filter:?}");
    letters
}

pub(crate) fn texts(letters: &[DeadLetter]) -> Vec<String> {
    letters.iter().map(|letter| String::from_utf8(letter.message.body.to_vec()).unwrap()).collect()
}

/// An entry by which the broker would store a dead letter.
pub(crate) fn letter(market: &Market, consumer: &Consumer, number: u64) -> Entry {
    let group = consumer.group();
    let partition = Partition::new(0).unwrap();
    let due = Timestamp::from_millis(number).unwrap();
    let key = Key { due, sequence: Sequence::new(number).unwrap() };
    let mut message = Message { body: number.to_string().into(), ..Message::default() };
    let history = History {
        id: MessageId { key, topic: group.topic, partition },
        topic: market.topic.clone(),
        partition,
        offset: number,
        due,
        delivered_at: due,
        failed: 1,
        first_error: None,
        last_error: None,
        reason: Some(Reason::Rejected),
    };
    history.attach(&mut message);
    let due = market.clock.now();
    Entry { topic: group.dead, partition, due, basis: Basis::Delay, message, extra: None }
}

/// Gives the group that many dead letters, numbered from 0.
pub(crate) fn fill(market: &Market, consumer: &Consumer, letters: u64) {
    let before = consumer.count_dead(&DeadFilter::default()).unwrap();
    let entries = (0..letters).map(|number| letter(market, consumer, number)).collect();
    block_on(market.store.apply(Vec::new(), entries)).unwrap();
    wait_for_dead(consumer, before + letters);
}

/// The report of a job once it has ended, with all its results.
pub(crate) fn finished(consumer: &Consumer, id: JobId) -> JobReport {
    wait_until("the end of a job", || consumer.job(id, 0, 0).unwrap().state != JobState::Running);
    consumer.job(id, 0, usize::MAX).unwrap()
}

/// Redrives and waits for the end of the job.
pub(crate) fn redrive(consumer: &Consumer, order: Redrive) -> JobReport {
    let report = finished(consumer, consumer.redrive(order).unwrap());
    assert_eq!(report.state, JobState::Done);
    report
}

/// Waits until that much waits for a group.
pub(crate) fn wait_for_lag(consumer: &Consumer, lag: u64) {
    wait_until("lag", || consumer.standing().unwrap().lag == lag);
}
