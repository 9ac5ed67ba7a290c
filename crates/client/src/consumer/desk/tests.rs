//! Holding, settling and giving back, without a runtime.

use std::time::UNIX_EPOCH;

use super::*;

const LEASE: Duration = Duration::from_secs(30);

struct Bench {
    desk: Desk,
    now: Instant,
}

impl Bench {
    fn new(concurrency: usize, prefetch: usize, is_ordered: bool) -> Self {
        let retry = RetryPolicy::default();
        let limits = Limits { concurrency, prefetch, is_ordered, lease: LEASE, retry };
        let now = Instant::now();
        Self { desk: Desk::new(limits, now), now }
    }

    fn offer(&mut self, id: &str, receipt: &str, key: Option<&str>) {
        let delivery = Delivery {
            id: id.into(),
            topic: "t".into(),
            group: "g".into(),
            partition: 0,
            offset: 0,
            key: key.map(|key| Bytes::from(key.to_owned())),
            headers: Vec::new(),
            body: Bytes::new(),
            due: UNIX_EPOCH,
            delivered_at: UNIX_EPOCH,
            attempt: 1,
            ttl: None,
            receipt: receipt.to_owned(),
        };
        self.desk.offer(delivery, self.now);
    }

    /// Begins what can be begun: jobs and ids.
    fn begin(&mut self) -> Vec<(u64, String)> {
        std::iter::from_fn(|| self.desk.begin())
            .map(|(job, one)| (job, one.id.to_string()))
            .collect()
    }

    fn finish(&mut self, job: u64, verdict: Verdict) {
        self.desk.finish(job, verdict, self.now);
    }

    /// What is asked now: the word, the receipts, the sequence.
    fn ask(&mut self) -> Option<(&'static str, String, u64)> {
        let settle = self.desk.ask(self.now)?;
        let word = match settle.what? {
            What::Ack(_) => "ack",
            What::Nack(nack) if nack.reject => "reject",
            What::Nack(_) => "nack",
            What::Extend(_) => "extend",
            What::Release(_) => "release",
        };
        Some((word, settle.receipts.join(" "), settle.sequence))
    }

    fn answer(&mut self, sequence: u64, result: SettleResult) {
        assert!(self.desk.answered(sequence, &[result]));
    }
}

fn failed(error: &str) -> Verdict {
    Verdict::Fail(Next::Again(None), error.to_owned())
}

#[test]
fn never_more_is_asked_for_than_can_be_held() {
    let mut bench = Bench::new(2, 1, false);
    assert_eq!((bench.desk.grant(), bench.desk.grant()), (3, 0));
    bench.offer("a", "r1", None);
    bench.offer("b", "r2", None);
    bench.offer("c", "r3", None);
    assert_eq!(bench.begin(), [(0, "a".to_owned()), (1, "b".to_owned())]);
    assert_eq!(bench.desk.grant(), 0);
    bench.finish(0, Verdict::Ack);
    assert_eq!(bench.begin(), [(2, "c".to_owned())]);
    assert_eq!(
        bench.desk.grant(),
        1,
        "a handler that has ended makes room before its ack is known"
    );
    bench.desk.lost(bench.now);
    assert_eq!(bench.desk.grant(), 1, "credit ends with its stream");
}

#[test]
fn what_has_the_same_outcome_is_settled_together_and_in_order() {
    let mut bench = Bench::new(9, 0, false);
    for (id, receipt) in [("a", "r1"), ("b", "r2"), ("c", "r3"), ("d", "r4")] {
        bench.offer(id, receipt, None);
    }
    bench.begin();
    bench.finish(0, Verdict::Ack);
    bench.finish(1, Verdict::Ack);
    bench.finish(2, failed("no"));
    bench.finish(3, Verdict::Fail(Next::Never, "never".to_owned()));
    assert_eq!(bench.ask(), Some(("ack", "r1 r2".to_owned(), 0)));
    assert_eq!(bench.ask(), Some(("nack", "r3".to_owned(), 1)));
    assert_eq!(bench.ask(), Some(("reject", "r4".to_owned(), 2)));
    assert_eq!(bench.ask(), None);
    assert!(!bench.desk.is_idle());
    for sequence in 0..3 {
        bench.answer(sequence, SettleResult::Acked);
    }
    assert!(bench.desk.is_idle());
}

#[test]
fn an_ack_lost_with_its_stream_is_sent_again() {
    let mut bench = Bench::new(1, 0, false);
    bench.offer("a", "r1", None);
    bench.begin();
    bench.finish(0, Verdict::Ack);
    assert_eq!(bench.ask(), Some(("ack", "r1".to_owned(), 0)));
    bench.desk.lost(bench.now);
    assert_eq!(bench.ask(), Some(("ack", "r1".to_owned(), 1)));
    assert!(!bench.desk.answered(0, &[SettleResult::Acked]), "that was the old stream");
    bench.answer(1, SettleResult::Acked);
    assert!(bench.desk.is_idle());
}

#[test]
fn a_handled_message_that_comes_again_is_acked_and_not_handled_twice() {
    let mut bench = Bench::new(1, 0, false);
    bench.offer("a", "r1", None);
    bench.begin();
    bench.finish(0, Verdict::Ack);
    assert_eq!(bench.ask(), Some(("ack", "r1".to_owned(), 0)));
    bench.answer(0, SettleResult::NotHeld);
    bench.offer("a", "r2", None);
    assert_eq!(bench.begin(), []);
    assert_eq!(bench.ask(), Some(("ack", "r2".to_owned(), 1)));
    bench.answer(1, SettleResult::Acked);
    bench.offer("a", "r3", None);
    assert_eq!(bench.begin().len(), 1, "after an ack that worked, somebody wants it again");
}

#[test]
fn a_failed_message_that_comes_again_is_handled_again() {
    let mut bench = Bench::new(1, 0, false);
    bench.offer("a", "r1", None);
    bench.begin();
    bench.finish(0, failed("no"));
    bench.ask();
    bench.desk.lost(bench.now);
    bench.offer("a", "r2", None);
    assert_eq!(bench.begin().len(), 1);
}

#[test]
fn the_outcome_counts_for_the_newest_receipt() {
    let mut bench = Bench::new(1, 1, false);
    bench.offer("a", "r1", None);
    bench.offer("b", "s1", None);
    bench.begin();
    bench.desk.lost(bench.now);
    bench.offer("a", "r2", None);
    bench.offer("b", "s2", None);
    assert_eq!(bench.begin(), [], "it is being handled");
    bench.finish(0, Verdict::Ack);
    assert_eq!(bench.ask(), Some(("ack", "r2".to_owned(), 0)));
    assert_eq!(bench.begin().len(), 1);
    bench.finish(1, Verdict::Ack);
    assert_eq!(bench.ask(), Some(("ack", "s2".to_owned(), 1)));
}

#[test]
fn in_an_ordered_group_one_message_of_a_key_is_handled_at_a_time() {
    let mut bench = Bench::new(9, 9, true);
    for (id, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")] {
        bench.offer(id, id, Some(key));
    }
    bench.offer("none", "none", None);
    let ids = |begun: Vec<(u64, String)>| begun.into_iter().map(|one| one.1).collect::<Vec<_>>();
    assert_eq!(ids(bench.begin()), ["a1", "b1", "none"]);
    bench.finish(0, failed("no"));
    assert_eq!(ids(bench.begin()), ["a2"]);
    bench.finish(1, Verdict::Ack);
    assert_eq!(ids(bench.begin()), Vec::<String>::new());
}

#[test]
fn leases_are_extended_after_a_third_and_at_once_on_a_new_stream() {
    let mut bench = Bench::new(1, 1, false);
    bench.offer("a", "r1", None);
    bench.offer("b", "r2", None);
    bench.begin();
    assert_eq!(bench.ask(), None);
    assert_eq!(bench.desk.wake_at(), Some(bench.now + LEASE / 3));
    bench.now += LEASE / 3;
    assert_eq!(bench.ask(), Some(("extend", "r1 r2".to_owned(), 0)));
    assert_eq!(bench.ask(), None);
    bench.answer(0, SettleResult::NotHeld);
    bench.desk.lost(bench.now);
    assert_eq!(bench.ask(), Some(("extend", "r1 r2".to_owned(), 1)));
    assert!(!bench.desk.is_settling());
}

#[test]
fn many_leases_are_extended_in_several_requests() {
    let mut bench = Bench::new(1, 5000, false);
    for number in 0..2500 {
        bench.offer(&number.to_string(), "r", None);
    }
    bench.now += LEASE / 3;
    let sizes: Vec<usize> =
        std::iter::from_fn(|| bench.ask()).map(|one| one.1.split(' ').count()).collect();
    assert_eq!(sizes, [1000, 1000, 500]);
}

#[test]
fn a_consumer_that_stops_gives_back_what_nobody_looked_at() {
    let mut bench = Bench::new(1, 1, false);
    bench.desk.grant();
    bench.offer("a", "r1", None);
    bench.offer("b", "r2", None);
    bench.begin();
    bench.desk.stop();
    bench.offer("c", "r3", None);
    assert_eq!(bench.ask(), Some(("release", "r2 r3".to_owned(), 0)));
    assert_eq!((bench.begin().len(), bench.desk.grant()), (0, 0));
    bench.answer(0, SettleResult::Released);
    bench.finish(0, Verdict::Ack);
    assert_eq!(bench.ask(), Some(("ack", "r1".to_owned(), 1)));
    bench.answer(1, SettleResult::Acked);
    assert!(bench.desk.is_idle());
}

#[test]
fn a_busy_broker_is_left_alone_for_a_while_and_then_asked_again() {
    let mut bench = Bench::new(1, 0, false);
    bench.offer("a", "r1", None);
    bench.begin();
    bench.finish(0, Verdict::Ack);
    bench.ask();
    let wait = Duration::from_secs(3);
    let busy = Problem {
        retriable: true,
        retry_after: Some(wait),
        ..Problem::of_client("too_busy", "no")
    };
    bench.desk.refused(0, &busy, bench.now);
    assert_eq!((bench.ask(), bench.desk.wake_at()), (None, Some(bench.now + wait)));
    bench.now += wait;
    assert_eq!(bench.ask(), Some(("ack", "r1".to_owned(), 1)));
    bench.desk.refused(1, &Problem::of_client("forbidden", "no"), bench.now);
    assert!(bench.desk.is_idle(), "what is refused for good is not asked again");
}
