//! Is whoever follows messages told of each step of theirs, and of nobody else's?

mod market;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use market::{Market, ack, fail, receipts, receive, request};
use parking_lot::Mutex;
use punctual_broker::group::{Leased, Receipt};
use punctual_broker::watch::{Accepting, FOLLOWED_HEADER, Fired, Leasing, Outcome, Settled, Watch};
use punctual_broker::{Options, Request, When};
use punctual_model::message::Header;
use punctual_model::{GroupSettings, Message, Span, TopicName, limits};

/// Follows messages whose body begins with `f`, and takes down what it is told.
#[derive(Debug, Default)]
struct Diary {
    lines: Arc<Mutex<Vec<String>>>,
}

impl Diary {
    fn note(&self, line: String) {
        self.lines.lock().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.lines.lock())
    }
}

fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.body).into_owned()
}

impl Watch for Diary {
    fn accepting(
        &self,
        topic: &TopicName,
        message: &mut Message,
        _at: Duration,
    ) -> Option<Accepting> {
        if !message.body.starts_with(b"f") {
            return None;
        }
        let value = Bytes::from_static(b"here");
        message.headers.push(Header { name: FOLLOWED_HEADER.to_owned(), value });
        let (lines, line) =
            (Arc::clone(&self.lines), format!("{topic} accepted {}", text(message)));
        Some(Box::new(move |accepted| {
            let again = if accepted.scheduled.duplicate { " again" } else { "" };
            lines.lock().push(format!("{line}{again}"));
        }))
    }

    fn fired(&self, fired: &Fired<'_>) {
        let topic = fired.topic.map_or("", TopicName::as_str);
        let (message, late) = (text(fired.message), fired.lateness.as_millis());
        assert!(fired.began <= fired.ended);
        self.note(format!("{topic} fired {message} late {late}"));
    }

    fn leased(&self, leased: &mut Leased, leasing: &Leasing<'_>) {
        let length = (leasing.until - leasing.at).as_secs();
        self.note(format!("{} leased {} for {length}", leasing.group, text(&leased.message)));
        leased.message.headers.clear();
    }

    fn extended(&self, receipts: &[Receipt], _until: Duration) {
        self.note(format!("extended {}", receipts.len()));
    }

    fn settled(&self, _receipt: Receipt, settled: Settled) {
        self.note(format!("{:?}", settled.outcome));
    }
}

fn new() -> (Market, Arc<Diary>) {
    let diary = Arc::new(Diary::default());
    let watch: Option<Arc<dyn Watch>> = Some(Arc::clone(&diary) as Arc<dyn Watch>);
    (Market::with(1, Options { watch, ..Options::default() }), diary)
}

#[test]
fn each_step_of_a_followed_message_is_told() {
    let (market, diary) = new();
    let consumer = market.put("billing", GroupSettings::default());
    market.send(&["followed", "other"]);
    market.wait_for_delivered(2);
    // A message that is due at once may fire before its sender is told.
    let mut told = diary.take();
    told.sort();
    assert_eq!(told, ["orders accepted followed", "orders fired followed late 0"]);
    let leased = receive(&consumer, 2);
    assert_eq!(diary.take(), ["billing leased followed for 30"]);
    assert!(leased[0].message.headers.is_empty(), "the consumer sees what was left of the headers");
    assert_eq!(consumer.extend(&receipts(&leased)[..1], Span::from_secs(60)), [true]);
    assert_eq!(diary.take(), ["extended 1"]);
    ack(&consumer, &receipts(&leased));
    assert_eq!(diary.take(), ["Acked", "Acked"]);
    assert_eq!(ack(&consumer, &receipts(&leased)), [false, false]);
    assert!(diary.take().is_empty(), "what is not held is not settled");
}

#[test]
fn failures_and_what_is_given_back_are_told() {
    let (market, diary) = new();
    let consumer = market.put("billing", GroupSettings::default());
    market.send(&["f"]);
    market.wait_for_delivered(1);
    diary.take();
    let leased = receive(&consumer, 1);
    consumer.release(&receipts(&leased));
    let leased = receive(&consumer, 1);
    fail(&consumer, leased[0].receipt, "no");
    let lease = "billing leased f for 30";
    assert_eq!(diary.take(), [lease, "Released", lease, "Requeued"]);
    assert_eq!(format!("{:?}", Outcome::Dead), "Dead");
}

#[test]
fn a_mark_is_no_part_of_what_was_asked_for() {
    let (market, diary) = new();
    let named = Request {
        own_id: Some(Arc::from("one")),
        when: When::After(Span::from_secs(60)),
        ..request("f")
    };
    let first = market.schedule(vec![named.clone()]);
    let mut marked = named.clone();
    assert_eq!(market.schedule(vec![named]), first, "the same request again");
    assert_eq!(diary.take(), ["orders accepted f", "orders accepted f again"]);
    let value = Bytes::from_static(b"x");
    marked.message.headers.push(Header { name: "a".to_owned(), value });
    let refused = market::within_a_minute(market.broker.schedule(&market.topic, vec![marked]));
    assert!(refused.is_err(), "another request");
    assert!(diary.take().is_empty(), "what was refused was not accepted");
}

#[test]
fn a_message_without_room_for_a_mark_is_taken_as_it_is() {
    let (market, diary) = new();
    let mut full = request("f");
    let header = Header { name: "a".to_owned(), value: Bytes::new() };
    full.message.headers = vec![header; limits::HEADERS_MAX];
    market.schedule(vec![full]);
    market.wait_for_delivered(1);
    assert!(diary.take().is_empty());
}
