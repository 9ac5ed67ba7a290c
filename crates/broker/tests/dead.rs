//! Dead letters: looked at page by page, filtered, and thrown away for good.

mod market;
mod dead_support;

use bytes::Bytes;
use dead_support::{all, fill, kill, letter, page, texts, wait_for_dead};
use futures_executor::block_on;
use market::{Market, bodies, receipts, receive_all, take};
use punctual_broker::group::{DeadFilter, DeadQuery, Failure, NackOutcome, Reason};
use punctual_model::ports::{GroupError, Groups, StoreError};
use punctual_model::{GroupSettings, Span};

const SECOND: Span = Span::from_secs(1);

#[test]
fn a_letter_tells_who_it_was_and_why_it_died() {
    let market = Market::new(2);
    let consumer = market.group("workers");
    let ids = kill(&market, &consumer, &["k:a"]);
    let sent = market.clock.now();
    let letters = all(&consumer, &DeadFilter::default());
    let [letter] = &letters[..] else { panic!("one letter, not {letters:?}") };
    assert_eq!((letter.history.id, letter.history.offset), (ids[0], 0));
    assert_eq!((letter.history.due, letter.history.delivered_at), (sent, sent));
    assert_eq!((letter.history.failed, letter.history.reason), (1, Some(Reason::Rejected)));
    assert_eq!(letter.history.last_error.as_deref(), Some("no"));
    assert_eq!(letter.message.key.as_deref(), Some(&b"k"[..]));
    assert_eq!((&letter.message.body[..], letter.message.headers.len()), (&b"k:a"[..], 0));
    assert_eq!((letter.died_at, letter.offset), (sent, 0));
}

#[test]
fn letters_are_listed_in_the_order_of_dying_and_page_by_page() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    assert!(all(&consumer, &DeadFilter::default()).is_empty());
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        kill(&market, &consumer, &[name]);
    }
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), names);
    let first = page(&consumer, &DeadFilter::default(), None, 3);
    assert_eq!(
        (texts(&first.letters), first.next),
        (vec!["a".into(), "b".into(), "c".into()], Some(3))
    );
    let rest = page(&consumer, &DeadFilter::default(), first.next, 3);
    assert_eq!((texts(&rest.letters), rest.next), (vec!["d".into(), "e".into()], None));
}

#[test]
fn each_filter_leaves_out_what_it_should() {
    let market = Market::new(1);
    let consumer =
        market.put("workers", GroupSettings { attempts_max: Some(1), ..GroupSettings::default() });
    let start = market.clock.now();
    let ids = kill(&market, &consumer, &["x:a", "y:b"]);
    market.clock.advance(SECOND);
    kill(&market, &consumer, &["x:c"]);
    market.clock.advance(SECOND);
    market.send(&["y:d"]);
    let taken = receive_all(&consumer, 1);
    let outcomes = consumer.nack(&receipts(&taken), &Failure::default()).unwrap();
    assert_eq!(outcomes, [NackOutcome::Dead]);
    wait_for_dead(&consumer, 4);

    let with = |filter: DeadFilter| texts(&all(&consumer, &filter));
    let any = DeadFilter::default;
    let after = |seconds| Some(start.saturating_add(Span::from_secs(seconds)));
    assert_eq!(with(any()), ["x:a", "y:b", "x:c", "y:d"]);
    assert_eq!(with(DeadFilter { reason: Some(Reason::Rejected), ..any() }), ["x:a", "y:b", "x:c"]);
    assert_eq!(with(DeadFilter { reason: Some(Reason::AttemptsExhausted), ..any() }), ["y:d"]);
    assert_eq!(with(DeadFilter { reason: Some(Reason::Expired), ..any() }), [""; 0]);
    assert_eq!(with(DeadFilter { key: Some(Bytes::from("x")), ..any() }), ["x:a", "x:c"]);
    assert_eq!(with(DeadFilter { id: Some(ids[1]), ..any() }), ["y:b"]);
    assert_eq!(with(DeadFilter { from: after(1), ..any() }), ["x:c", "y:d"]);
    assert_eq!(with(DeadFilter { to: after(1), ..any() }), ["x:a", "y:b"]);
    assert_eq!(with(DeadFilter { from: after(1), to: after(2), ..any() }), ["x:c"]);
    assert_eq!(with(DeadFilter { from: after(3), ..any() }), [""; 0]);
    let both = DeadFilter { key: Some(Bytes::from("y")), to: after(2), ..any() };
    assert_eq!(with(both), ["y:b"]);
}

#[test]
fn one_look_reads_a_bounded_part_of_a_long_list() {
    const LETTERS: u64 = 11_000;
    let market = Market::new(1);
    let consumer = market.group("workers");
    fill(&market, &consumer, LETTERS);
    let last = page(&consumer, &DeadFilter::default(), Some(LETTERS - 1), 1).letters.remove(0);
    let filter = DeadFilter { id: Some(last.history.id), ..DeadFilter::default() };
    let (mut after, mut looks) = (None, 0);
    let found = loop {
        let page = page(&consumer, &filter, after, 10);
        looks += 1;
        assert!(page.next.unwrap_or(LETTERS) - after.unwrap_or(0) <= 10_000);
        match page.next {
            Some(next) => after = Some(next),
            None => break page.letters,
        }
        assert!(page.letters.is_empty());
    };
    assert_eq!((looks, texts(&found)), (2, vec![(LETTERS - 1).to_string()]));
    let early = DeadFilter { key: Some(Bytes::from("none")), ..DeadFilter::default() };
    assert_eq!(consumer.count_dead(&early).unwrap(), 0);
}

#[test]
fn a_letter_without_a_history_is_shown_too() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let mut entry = letter(&market, &consumer, 1);
    entry.message.headers.truncate(3);
    let id = block_on(market.store.apply(Vec::new(), vec![entry])).unwrap()[0];
    wait_for_dead(&consumer, 1);
    let letters = all(&consumer, &DeadFilter::default());
    assert_eq!((letters[0].history.id, letters[0].history.reason), (id, None));
    assert_eq!(letters[0].message.headers.len(), 3, "nothing is taken away");
}

#[test]
fn purged_letters_are_gone_for_good_and_others_stay() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    let other = market.group("others");
    kill(&market, &consumer, &["x:a", "y:b", "x:c"]);
    let failure = Failure { reject: true, ..Failure::default() };
    other.nack(&receipts(&receive_all(&other, 3)), &failure).unwrap();
    wait_for_dead(&other, 3);
    let filter = DeadFilter { key: Some(Bytes::from("x")), ..DeadFilter::default() };
    assert_eq!(consumer.purge(&filter).unwrap(), 2);
    assert_eq!(consumer.purge(&filter).unwrap(), 0);
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["y:b"]);
    let market = market.restart();
    let consumer = market.group("workers");
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["y:b"]);
    assert_eq!(consumer.purge(&DeadFilter::default()).unwrap(), 1);
    assert!(all(&consumer, &DeadFilter::default()).is_empty());
    assert!(take(&consumer).is_empty());
    assert_eq!(all(&market.group("others"), &DeadFilter::default()).len(), 3, "of another group");
    kill(&market, &consumer, &["z:d"]);
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["z:d"]);
}

#[test]
fn a_long_list_is_purged_in_steps() {
    const LETTERS: u64 = 2_500;
    let market = Market::new(1);
    let consumer = market.group("workers");
    fill(&market, &consumer, LETTERS);
    assert_eq!(consumer.purge(&DeadFilter::default()).unwrap(), LETTERS);
    assert_eq!(consumer.count_dead(&DeadFilter::default()).unwrap(), 0);
}

#[test]
fn what_the_store_refuses_to_purge_stays() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a"]);
    market.valve.refuse();
    let refused = consumer.purge(&DeadFilter::default());
    assert_eq!(refused, Err(GroupError::Store(StoreError::Full)));
    market.valve.open();
    assert_eq!(texts(&all(&consumer, &DeadFilter::default())), ["a"]);
    assert_eq!(consumer.purge(&DeadFilter::default()), Ok(1));
}

#[test]
fn a_deleted_group_has_no_letters() {
    let market = Market::new(1);
    let consumer = market.group("workers");
    kill(&market, &consumer, &["a"]);
    let name = consumer.group().name.clone();
    assert!(market.broker.consumers().delete(&market.topic, &name).unwrap());
    assert_eq!(consumer.count_dead(&DeadFilter::default()), Err(GroupError::NotFound));
    let query = DeadQuery { limit: 1, ..DeadQuery::default() };
    assert_eq!(consumer.dead(&query).map(|page| page.letters), Err(GroupError::NotFound));
    assert_eq!(consumer.purge(&DeadFilter::default()), Err(GroupError::NotFound));
    let again = market.group("workers");
    assert_eq!(bodies(&receive_all(&again, 1)), ["a"]);
    assert!(all(&again, &DeadFilter::default()).is_empty());
}
