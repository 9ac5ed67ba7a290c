//! Batches, re-sending and refusals, without a runtime.

use tokio::sync::oneshot;

use super::*;
use crate::producer::parcel::Outcome;
use crate::producer::parcel::tests::loose;

const LINGER: Duration = Duration::from_millis(5);
const LIFE: Duration = Duration::from_secs(60);

struct Bench {
    outbox: Outbox,
    now: Instant,
    outcomes: Vec<oneshot::Receiver<Vec<Outcome>>>,
}

impl Bench {
    fn new(messages: usize, bytes: usize, under_way: usize) -> Self {
        let retry = RetryPolicy::default();
        let limits = Limits { messages, bytes, linger: LINGER, under_way, retry };
        let outbox = Outbox::new(limits);
        Self { outbox, now: Instant::now(), outcomes: Vec::new() }
    }

    fn push(&mut self, topic: &str, body: &'static str, id: Option<&str>) {
        let (mut slots, outcome) = loose(1);
        let message = v1::NewMessage {
            body: body.into(),
            id: id.map(str::to_owned),
            ..v1::NewMessage::default()
        };
        let slot = slots.pop().unwrap();
        let entry = Entry { message, weight: body.len(), slot, expires: self.now + LIFE };
        self.outbox.push(&Arc::from(topic), entry, self.now);
        self.outcomes.push(outcome);
    }

    /// The next batch as its sequence, topic and bodies.
    fn next(&mut self) -> Option<(u64, String, Vec<String>)> {
        let Outgoing { sequence, topic, messages } = self.outbox.next(self.now)?;
        let body = |message: &v1::NewMessage| String::from_utf8(message.body.to_vec()).unwrap();
        Some((sequence, topic.to_string(), messages.iter().map(body).collect()))
    }

    fn bodies(&mut self) -> Vec<String> {
        self.next().expect("a batch").2
    }

    fn stored(&mut self, sequence: u64, count: usize) -> bool {
        self.outbox.stored(sequence, vec![v1::Sent::default(); count])
    }

    /// What became of the messages, by the code; `stored`, or `open` where nothing is known.
    fn outcomes(&mut self) -> Vec<String> {
        let word = |outcome: &mut oneshot::Receiver<Vec<Outcome>>| match outcome.try_recv() {
            Ok(told) => match &told[0] {
                Ok(_) => "stored".to_owned(),
                Err(error) => error.code().to_owned(),
            },
            Err(oneshot::error::TryRecvError::Empty) => "open".to_owned(),
            Err(oneshot::error::TryRecvError::Closed) => "dropped".to_owned(),
        };
        self.outcomes.iter_mut().map(word).collect()
    }
}

fn problem(code: &str, index: Option<usize>, retriable: bool) -> Problem {
    Problem { index, retriable, ..Problem::of_client(code, "no") }
}

#[test]
fn the_first_message_goes_at_once_and_what_comes_meanwhile_goes_together() {
    let mut bench = Bench::new(10, 1000, 4);
    bench.push("t", "a", Some("1"));
    assert_eq!(bench.bodies(), ["a"]);
    bench.push("t", "b", Some("2"));
    bench.push("t", "c", Some("3"));
    assert_eq!(bench.next(), None, "they wait for more while another is under way");
    assert_eq!(bench.outbox.wake_at(), Some(bench.now + LINGER));
    bench.now += LINGER;
    assert_eq!(bench.bodies(), ["b", "c"]);
    bench.push("t", "d", Some("4"));
    assert!(bench.stored(0, 1) && bench.stored(1, 2));
    assert_eq!(bench.bodies(), ["d"], "nothing is under way any more");
    assert_eq!(bench.outcomes(), ["stored", "stored", "stored", "open"]);
}

#[test]
fn a_batch_is_full_by_messages_or_by_bytes_and_holds_one_topic() {
    let mut bench = Bench::new(3, 10, 9);
    for body in ["a", "b", "c", "d"] {
        bench.push("small", body, None);
    }
    for body in ["12345", "67890", "x"] {
        bench.push("large", body, None);
    }
    bench.push("huge", "more than ten bytes", None);
    bench.outbox.hurry();
    let mut batches: Vec<_> =
        std::iter::from_fn(|| bench.next()).map(|one| (one.1, one.2)).collect();
    batches.sort();
    let batch = |topic: &str, bodies: &[&str]| {
        (topic.to_owned(), bodies.iter().map(|body| (*body).to_owned()).collect::<Vec<_>>())
    };
    let expected = [
        batch("huge", &["more than ten bytes"]),
        batch("large", &["12345", "67890"]),
        batch("large", &["x"]),
        batch("small", &["a", "b", "c"]),
        batch("small", &["d"]),
    ];
    assert_eq!(batches, expected);
}

#[test]
fn no_more_batches_are_under_way_than_allowed() {
    let mut bench = Bench::new(1, 1000, 2);
    for body in ["a", "b", "c"] {
        bench.push("t", body, None);
    }
    assert_eq!((bench.bodies(), bench.bodies()), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!((bench.next(), bench.outbox.wake_at()), (None, None));
    bench.stored(0, 1);
    assert_eq!(bench.bodies(), ["c"]);
}

#[test]
fn after_a_loss_what_was_under_way_goes_again_first_and_in_the_old_order() {
    let mut bench = Bench::new(1, 1000, 3);
    for (body, id) in [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")] {
        bench.push("t", body, Some(id));
    }
    for _ in 0..3 {
        bench.next().unwrap();
    }
    bench.stored(1, 1);
    bench.outbox.lost("cut");
    let again: Vec<_> = std::iter::from_fn(|| bench.next()).map(|one| one.2.concat()).collect();
    assert_eq!(again, ["a", "c", "d"]);
    assert!(!bench.stored(0, 1), "an answer of the old stream is nobody's");
}

#[test]
fn without_an_own_id_a_lost_answer_is_told_and_nothing_is_sent_twice() {
    let mut bench = Bench::new(2, 1000, 1);
    bench.push("t", "named", Some("1"));
    bench.push("t", "nameless", None);
    bench.next().unwrap();
    bench.outbox.lost("cut");
    assert_eq!(bench.bodies(), ["named"]);
    assert_eq!(bench.outcomes(), ["open", "unanswered"]);
}

#[test]
fn what_never_left_goes_again_also_without_an_own_id() {
    let mut bench = Bench::new(2, 1000, 1);
    bench.push("t", "nameless", None);
    bench.next().unwrap();
    bench.outbox.unsent();
    assert_eq!(bench.bodies(), ["nameless"]);
    assert_eq!(bench.outcomes(), ["open"]);
}

#[test]
fn a_refused_message_takes_no_other_along() {
    let mut bench = Bench::new(3, 1000, 1);
    for body in ["a", "bad", "c"] {
        bench.push("t", body, None);
    }
    bench.next().unwrap();
    bench.outbox.refused(0, problem("id_conflict", Some(1), false), bench.now);
    assert_eq!(bench.bodies(), ["a", "c"]);
    bench.outbox.refused(1, problem("id_conflict", Some(7), false), bench.now);
    assert_eq!(bench.outcomes(), ["id_conflict", "id_conflict", "id_conflict"], "no such place");
    assert!(bench.outbox.is_empty());
}

#[test]
fn a_batch_that_is_too_large_is_halved_until_it_fits() {
    let mut bench = Bench::new(3, 1000, 9);
    for body in ["a", "b", "c"] {
        bench.push("t", body, None);
    }
    bench.next().unwrap();
    bench.outbox.refused(0, problem("batch_too_large", None, false), bench.now);
    assert_eq!(
        (bench.bodies(), bench.bodies()),
        (vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()])
    );
    bench.outbox.refused(1, problem("batch_too_large", None, false), bench.now);
    assert_eq!(bench.outcomes(), ["batch_too_large", "open", "open"]);
}

#[test]
fn what_is_refused_for_now_comes_again_after_the_wait() {
    let mut bench = Bench::new(3, 1000, 1);
    bench.push("t", "a", None);
    bench.next().unwrap();
    let wait = Duration::from_secs(7);
    let busy = Problem { retry_after: Some(wait), ..problem("too_busy", None, true) };
    bench.outbox.refused(0, busy, bench.now);
    assert_eq!((bench.next(), bench.outbox.wake_at()), (None, Some(bench.now + wait)));
    bench.now += wait;
    assert_eq!(bench.bodies(), ["a"]);
    assert_eq!(bench.outcomes(), ["open"]);
}

#[test]
fn a_sender_is_told_when_its_time_is_over_and_whether_the_message_may_be_stored() {
    let mut bench = Bench::new(1, 1000, 2);
    for (body, id) in [("lost", "1"), ("under way", "2"), ("waiting", "3")] {
        bench.push("t", body, Some(id));
    }
    bench.next().unwrap();
    bench.outbox.lost("cut");
    bench.now += LIFE;
    bench.outbox.expire(bench.now);
    assert_eq!(bench.outcomes(), ["unanswered", "unreachable", "unreachable"]);
    assert_eq!(bench.next(), None, "what was given up is not sent");
    assert!(bench.outbox.is_empty());
    bench.push("t", "late", Some("4"));
    bench.next().unwrap();
    bench.now += LIFE;
    bench.outbox.expire(bench.now);
    assert_eq!(bench.outcomes()[3], "unanswered");
    assert!(bench.stored(1, 1), "its answer still comes, and nobody hears it");
}

#[test]
fn an_answer_that_does_not_fit_is_no_answer() {
    let mut bench = Bench::new(2, 1000, 2);
    bench.push("t", "a", None);
    bench.next().unwrap();
    assert!(!bench.stored(0, 2));
    assert_eq!(bench.outcomes(), ["unanswered"]);
    assert!(!bench.stored(0, 1));
    assert!(!bench.outbox.refused(9, problem("internal", None, false), bench.now));
}
