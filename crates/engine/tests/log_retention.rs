//! Retention gives back what nobody needs any more, and nothing else.

mod log_support;

use std::fs;
use std::sync::Arc;

use log_support::*;
use punctual_model::ports::{LogBounds, Topic};
use punctual_model::{Partition, Span, TopicId, TopicKind};

/// 400 messages of 100 bytes in batches of ten, one batch a second.
fn forty_batches() -> Store {
    let store = Store::new(small(), 1);
    for n in 1..=40 {
        let batch = numbered(n * 10..n * 10 + 10, 100);
        store.logs.deliver(&batch, at(n * 1000)).expect("there is room");
    }
    store
}

fn bounds(store: &Store) -> LogBounds {
    store.logs.bounds(topic(TOPIC), partition(0)).expect("the topic is open")
}

fn floor(offset: u64) -> impl Fn(TopicId, Partition) -> Option<u64> {
    move |of, number| (of == topic(TOPIC) && number == partition(0)).then_some(offset)
}

#[test]
fn a_segment_that_somebody_needs_stays_whatever_the_settings_say() {
    for wanted in [settings(Some(Span::from_secs(1)), None), settings(None, Some(1))] {
        let store = forty_batches();
        store.checkpoint();
        let wanted = [wanted];
        for needed in [0, 1, 75, 76, 200, 398, 399] {
            store.logs.maintain(&wanted, at(99_000), floor(needed)).unwrap();
            let start = bounds(&store).start;
            assert!(start <= needed, "{start} of {needed}");
            assert_eq!(store.logs.read(place(0, needed), 1).unwrap()[0].offset, needed);
            // At most the segment that holds it, and what lies behind.
            let next = store.files("log").get(1).map(|file| {
                let name = file.file_stem().expect("a file has a name").to_string_lossy();
                name.parse::<u64>().expect("segments are named after offsets")
            });
            assert!(next.is_none_or(|next| next > needed), "{next:?} of {needed}");
        }
    }
}

#[test]
fn a_floor_at_the_first_offset_of_a_segment_lets_the_one_before_go() {
    let store = forty_batches();
    store.checkpoint();
    let wanted = [settings(Some(Span::from_secs(1)), None)];
    let file = store.files("log").remove(2);
    let base: u64 = file.file_stem().unwrap().to_string_lossy().parse().unwrap();
    store.logs.maintain(&wanted, at(99_000), floor(base - 1)).unwrap();
    assert!(bounds(&store).start < base);
    store.logs.maintain(&wanted, at(99_000), floor(base)).unwrap();
    assert_eq!(bounds(&store).start, base);
}

#[test]
fn a_floor_does_not_let_go_of_what_no_checkpoint_knows() {
    let store = forty_batches();
    let wanted = [settings(Some(Span::from_secs(0)), None)];
    store.logs.maintain(&wanted, at(99_000), floor(400)).unwrap();
    assert_eq!(bounds(&store), LogBounds { start: 0, end: 400 });
}

#[test]
fn a_retry_topic_gives_everything_back_once_it_is_settled_and_checkpointed() {
    let mut store = Store::new(small(), 1);
    let mut topic = Topic::clone(&settings(Some(Span::from_secs(0)), None));
    topic.kind = TopicKind::Retry;
    let retries = [Arc::new(topic)];
    let mut saved = Vec::new();
    for round in 1..=5 {
        let end = round * 3;
        let now = at(round * 1000);
        store.logs.deliver(&numbered(end - 3..end, 100), now).unwrap();
        store.logs.maintain(&retries, at(round * 1000 + 1), floor(end)).unwrap();
        assert_eq!(bounds(&store).start, end - 3, "no checkpoint knows that it was delivered");
        saved = store.checkpoint();
        store.logs.maintain(&retries, at(round * 1000 + 1), floor(end - 1)).unwrap();
        assert_eq!(bounds(&store).start, end - 3, "one is not settled");
        store.logs.maintain(&retries, at(round * 1000 + 1), floor(end)).unwrap();
        assert_eq!(bounds(&store), LogBounds { start: end, end });
        let left = store.files("log");
        assert_eq!((left.len(), fs::metadata(&left[0]).unwrap().len()), (1, 0));
        // Again and again: an empty segment is not replaced by another one.
        store.logs.maintain(&retries, at(round * 1000 + 2), floor(end)).unwrap();
        assert_eq!(store.files("log"), left);
    }
    store = store.reopen(small(), 1, &saved);
    assert_eq!(bounds(&store), LogBounds { start: 15, end: 15 });
    assert!(store.found.is_empty());
}
