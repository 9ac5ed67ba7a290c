//! Changes of many pending messages at once: over the reference store, on a clock moved by hand.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod market;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use market::{Finally, Market, request, wait_until, within_a_minute};
use parking_lot::{Condvar, Mutex};
use punctual_broker::audit::{Entry, Sink};
use punctual_broker::{
    Bulk, BulkError, BulkId, BulkReport, BulkState, BulkWork, Change, ChangeError, Filter, Invalid,
    Options, Report, Request, Shift, When,
};
use punctual_model::{MessageId, Span, State, Timestamp, TopicName};

const SECOND: Span = Span::from_secs(1);
const MINUTE: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);

/// A record in memory, which can be told to hold up who writes to it, or to fail.
#[derive(Debug, Default)]
struct Book {
    state: Mutex<Pages>,
    opened: Condvar,
}

#[derive(Debug, Default)]
struct Pages {
    entries: Vec<Entry>,
    waiting: usize,
    shut: bool,
    torn: bool,
}

impl Sink for Book {
    fn append(&self, entry: &Entry) -> io::Result<()> {
        let mut state = self.state.lock();
        state.waiting += 1;
        self.opened.wait_while(&mut state, |state| state.shut);
        state.waiting -= 1;
        if state.torn {
            return Err(io::Error::other("torn"));
        }
        state.entries.push(entry.clone());
        Ok(())
    }
}

impl Book {
    fn shut(&self) {
        self.state.lock().shut = true;
    }

    fn open(&self) {
        self.state.lock().shut = false;
        self.opened.notify_all();
    }
}

fn new() -> (Market, Arc<Book>) {
    let book = Arc::new(Book::default());
    let audit: Arc<dyn Sink> = book.clone();
    (Market::with(2, Options { audit, ..Options::default() }), book)
}

fn send(market: &Market, count: usize, key: &str, after: Span) -> Vec<MessageId> {
    let request = Request { when: When::After(after), ..request(&format!("{key}:x")) };
    market.schedule(vec![request; count])
}

fn bulk(work: BulkWork, filter: Filter) -> Bulk {
    Bulk { filter, all: false, dry_run: false, work, who: Arc::from("local") }
}

fn all(work: BulkWork) -> Bulk {
    Bulk { all: true, ..bulk(work, Filter::default()) }
}

fn try_begin(market: &Market, bulk: Bulk) -> Result<BulkId, BulkError> {
    within_a_minute(market.broker.bulk(&market.topic, bulk))
}

fn ended(market: &Market, id: BulkId) -> BulkReport {
    within_a_minute(market.broker.bulk_ended(&market.topic, id)).unwrap()
}

fn run(market: &Market, bulk: Bulk) -> BulkReport {
    let id = try_begin(market, bulk).unwrap();
    let report = ended(market, id);
    assert_eq!(report.state, BulkState::Done);
    report
}

fn counts(report: &BulkReport) -> (u64, u64, u64) {
    (report.matched, report.done, report.failed)
}

fn get(market: &Market, id: MessageId) -> Report {
    within_a_minute(market.broker.get(id)).unwrap().unwrap()
}

fn states(market: &Market, ids: &[MessageId]) -> Vec<State> {
    let mut states: Vec<State> = ids.iter().map(|id| get(market, *id).state).collect();
    states.dedup();
    states
}

fn key(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

#[test]
fn those_that_match_are_cancelled_and_no_others() {
    let (market, _) = new();
    let ours = send(&market, 700, "a-1", HOUR);
    let close = send(&market, 3, "a-2", MINUTE);
    let other = send(&market, 2, "b-1", HOUR);
    let from = Some(market.clock.now().saturating_add(HOUR));
    let filter = Filter { from, key_prefix: key("a-"), ..Filter::default() };
    let dry = Bulk { dry_run: true, ..bulk(BulkWork::Cancel, filter.clone()) };
    assert_eq!(counts(&run(&market, dry)), (700, 0, 0));
    assert_eq!(states(&market, &ours), [State::Scheduled]);
    assert_eq!(counts(&run(&market, bulk(BulkWork::Cancel, filter))), (700, 700, 0));
    assert_eq!(states(&market, &ours), [State::Cancelled]);
    assert_eq!(states(&market, &[close.clone(), other].concat()), [State::Scheduled]);
    assert_eq!(market.broker.stats().cancelled, 700);
    let filter = Filter { key: key("a-2"), ..Filter::default() };
    assert_eq!(counts(&run(&market, bulk(BulkWork::Cancel, filter))), (3, 3, 0));
    assert_eq!(states(&market, &close), [State::Cancelled]);
}

#[test]
fn an_empty_filter_means_nothing_unless_all_is_said() {
    let (market, _) = new();
    send(&market, 3, "a", HOUR);
    let refused = try_begin(&market, bulk(BulkWork::Cancel, Filter::default())).unwrap_err();
    assert_eq!(refused, BulkError::EmptyFilter);
    let state = Some(State::Scheduled);
    let refused = try_begin(&market, bulk(BulkWork::Cancel, Filter { state, ..Filter::default() }));
    assert_eq!(refused.unwrap_err(), BulkError::EmptyFilter);
    assert_eq!(counts(&run(&market, all(BulkWork::Cancel))), (3, 3, 0));
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_done() {
    let (market, book) = new();
    let with_state = |work, state| {
        let filter = Filter { state: Some(state), ..Filter::default() };
        try_begin(&market, Bulk { all: true, ..bulk(work, filter) }).unwrap_err()
    };
    assert_eq!(with_state(BulkWork::Cancel, State::Prepared), BulkError::BadState);
    assert_eq!(with_state(BulkWork::Cancel, State::Delivered), BulkError::BadState);
    assert_eq!(with_state(BulkWork::Pause, State::Paused), BulkError::BadState);
    assert_eq!(with_state(BulkWork::Resume, State::Scheduled), BulkError::BadState);
    let far = BulkWork::Reschedule(When::After(Span::from_days(41)));
    let max = Span::from_days(40);
    let refused = try_begin(&market, all(far)).unwrap_err();
    assert_eq!(refused, BulkError::Invalid(Invalid::DelayTooLong { max }));
    let nowhere = TopicName::new("nowhere").unwrap();
    let refused = within_a_minute(market.broker.bulk(&nowhere, all(BulkWork::Cancel)));
    assert_eq!(refused.unwrap_err(), BulkError::TopicNotFound);
    assert_eq!(book.state.lock().entries, []);
}

#[test]
fn a_job_does_not_meet_again_what_it_has_moved() {
    let (market, _) = new();
    let ids = send(&market, 1234, "a", MINUTE);
    let later = BulkWork::Reschedule(When::After(HOUR));
    assert_eq!(counts(&run(&market, all(later))), (1234, 1234, 0));
    let due = Some(market.clock.now().saturating_add(HOUR));
    for id in &ids {
        let report = get(&market, *id);
        assert_eq!((report.due, report.version), (due, Some(2)));
    }
    // Paused ones stand where they stood before.
    run(&market, all(BulkWork::Pause));
    let paused = Filter { state: Some(State::Paused), ..Filter::default() };
    assert_eq!(counts(&run(&market, bulk(later, paused))), (1234, 1234, 0));
    assert!(ids.iter().all(|id| get(&market, *id).version == Some(4)));
}

#[test]
fn all_are_paused_and_go_on() {
    let (market, _) = new();
    let ids = send(&market, 600, "a", HOUR);
    market.clock.advance(MINUTE);
    assert_eq!(counts(&run(&market, all(BulkWork::Pause))), (600, 600, 0));
    assert_eq!(states(&market, &ids), [State::Paused]);
    assert_eq!(counts(&run(&market, all(BulkWork::Pause))), (0, 0, 0));
    market.clock.advance(Span::from_days(1));
    assert_eq!(counts(&run(&market, all(BulkWork::Resume))), (600, 600, 0));
    let due = market.clock.now().saturating_add(Span::from_secs(59 * 60));
    assert!(ids.iter().all(|id| get(&market, *id).due == Some(due)));
}

#[test]
fn all_are_delivered_now() {
    let (market, _) = new();
    let scheduled = send(&market, 3, "a", HOUR);
    let paused = send(&market, 3, "b", HOUR);
    run(&market, bulk(BulkWork::Pause, Filter { key: key("b"), ..Filter::default() }));
    assert_eq!(counts(&run(&market, all(BulkWork::DeliverNow))), (3, 3, 0));
    wait_until("delivery", || states(&market, &scheduled) == [State::Delivered]);
    assert_eq!(states(&market, &paused), [State::Paused]);
    let state = Some(State::Paused);
    run(&market, bulk(BulkWork::DeliverNow, Filter { state, ..Filter::default() }));
    wait_until("delivery", || states(&market, &paused) == [State::Delivered]);
    let due = get(&market, paused[0]).delivered.unwrap().due;
    assert_eq!(due, market.clock.now());
}

#[test]
fn times_are_moved_but_not_past_now_and_not_too_far() {
    let (market, _) = new();
    let ids: Vec<MessageId> = [1, 10, 40 * 24]
        .map(|hours| send(&market, 1, "a", Span::from_secs(3600 * hours))[0])
        .into();
    run(
        &market,
        bulk(BulkWork::Pause, Filter { to: Some(hours(&market, 2)), ..Filter::default() }),
    );
    let move_all = |shift| run(&market, all(BulkWork::Shift(shift)));
    assert_eq!(counts(&move_all(Shift::Later(HOUR))), (2, 1, 1), "40 days are the longest delay");
    let due = |id: MessageId| get(&market, id).due.unwrap();
    assert_eq!([due(ids[1]), due(ids[2])], [hours(&market, 11), hours(&market, 40 * 24)]);
    assert_eq!(counts(&move_all(Shift::Earlier(SECOND))), (2, 2, 0));
    assert_eq!(due(ids[1]), hours(&market, 11).saturating_sub(SECOND));
    let paused = Filter { state: Some(State::Paused), ..Filter::default() };
    let later = BulkWork::Shift(Shift::Later(MINUTE));
    assert_eq!(counts(&run(&market, bulk(later, paused.clone()))), (1, 1, 0));
    assert_eq!(get(&market, ids[0]).remaining, Some(Span::from_secs(3660)));
    let earlier = BulkWork::Shift(Shift::Earlier(Span::from_days(1)));
    run(&market, bulk(earlier, paused));
    assert_eq!(get(&market, ids[0]).remaining, Some(Span::from_millis(1)));
    let near = Filter { to: Some(hours(&market, 24)), ..Filter::default() };
    run(&market, bulk(earlier, near));
    wait_until("delivery", || states(&market, &ids[1..2]) == [State::Delivered]);
    assert_eq!(get(&market, ids[1]).due, Some(market.clock.now()));
}

fn hours(market: &Market, count: u64) -> Timestamp {
    market.clock.now().saturating_add(Span::from_secs(3600 * count))
}

#[test]
fn a_job_is_taken_down_when_it_begins_and_when_it_ends() {
    let (market, book) = new();
    send(&market, 5, "a", HOUR);
    let filter = Filter { key: key("a"), ..Filter::default() };
    run(&market, Bulk { dry_run: true, ..bulk(BulkWork::Cancel, filter.clone()) });
    let report = run(&market, Bulk { who: Arc::from("ada"), ..bulk(BulkWork::Cancel, filter) });
    let entries = book.state.lock().entries.clone();
    assert_eq!(entries.len(), 2, "a look needs no record");
    let text = |entry: &Entry| {
        let details: Vec<String> =
            entry.details.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("{} {} {}", entry.who, entry.what, details.join(" "))
    };
    let id = report.id;
    let begun = format!("ada bulk_cancel job={id} key=a messages=scheduled");
    assert_eq!(text(&entries[0]), begun);
    assert_eq!(text(&entries[1]), format!("{begun} state=done matched=5 done=5 failed=0"));
    assert_eq!(
        (entries[0].topic.as_ref(), entries[0].at),
        (Some(&market.topic), market.clock.now())
    );
}

#[test]
fn without_a_record_nothing_is_done() {
    let (market, book) = new();
    let ids = send(&market, 5, "a", HOUR);
    book.state.lock().torn = true;
    let refused = try_begin(&market, all(BulkWork::Cancel)).unwrap_err();
    assert_eq!(refused, BulkError::Audit("torn".into()));
    let jobs = market.broker.bulk_jobs(&market.topic);
    wait_until("end of the job", || ended(&market, jobs[0].id).state.word() == "failed");
    assert_eq!(states(&market, &ids), [State::Scheduled]);
}

#[test]
fn few_jobs_run_at_once_and_each_can_be_stopped() {
    let (market, book) = new();
    let ids = send(&market, 5, "a", HOUR);
    book.shut();
    let _open = Finally(|| book.open());
    std::thread::scope(|scope| {
        // Other threads wait for it while a test fails, too.
        let _open = Finally(|| book.open());
        for number in 1..=4 {
            scope.spawn(|| try_begin(&market, all(BulkWork::Pause)).unwrap());
            wait_until("a job", || book.state.lock().waiting == number);
        }
        assert_eq!(try_begin(&market, all(BulkWork::Pause)).unwrap_err(), BulkError::TooMany);
        let jobs = market.broker.bulk_jobs(&market.topic);
        assert_eq!(jobs.len(), 4);
        for job in &jobs {
            assert_eq!(job.state, BulkState::Running);
            assert!(market.broker.stop_bulk(&market.topic, job.id).is_some());
        }
        book.open();
        for job in &jobs {
            let report = ended(&market, job.id);
            assert_eq!((report.state, report.done), (BulkState::Stopped, 0));
        }
    });
    assert_eq!(states(&market, &ids), [State::Scheduled]);
    assert_eq!(counts(&run(&market, all(BulkWork::Pause))), (5, 5, 0));
}

#[test]
fn only_the_latest_jobs_are_remembered() {
    let (market, _) = new();
    let reports: Vec<BulkReport> = (0..20).map(|_| run(&market, all(BulkWork::Cancel))).collect();
    let known = market.broker.bulk_jobs(&market.topic);
    assert!((16..=17).contains(&known.len()), "{}", known.len());
    assert_eq!(known[0].id, reports[19].id);
    assert_eq!(market.broker.bulk_job(&market.topic, reports[0].id), None);
    assert_eq!(market.broker.bulk_job(&market.topic, reports[19].id), Some(reports[19].clone()));
    let text = reports[19].id.to_string();
    assert_eq!(text.parse::<BulkId>(), Ok(reports[19].id));
}

#[test]
fn others_may_change_the_same_messages_meanwhile() {
    let (market, _) = new();
    let ids = send(&market, 1500, "a", HOUR);
    let over = AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let _over = Finally(|| over.store(true, Ordering::Relaxed));
        scope.spawn(|| {
            for id in ids.iter().cycle().step_by(7) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let change = Change { ttl: Some(MINUTE), ..Change::default() };
                let changed = within_a_minute(market.broker.change(*id, change));
                assert!(matches!(changed, Ok(_) | Err(ChangeError::AlreadyCancelled)));
            }
        });
        scope.spawn(|| {
            for chunk in ids.chunks(10).step_by(5) {
                within_a_minute(market.broker.cancel(chunk.to_vec())).unwrap();
            }
        });
        let id = try_begin(&market, all(BulkWork::Pause));
        id.map(|id| ended(&market, id)).unwrap()
    });
    assert_eq!(report.state, BulkState::Done);
    let count = |state| ids.iter().filter(|id| get(&market, **id).state == state).count();
    assert_eq!(count(State::Scheduled), 0, "also what was edited meanwhile: {report:?}");
    assert!(count(State::Paused) as u64 <= report.done, "{report:?}");
    assert_eq!(count(State::Cancelled), 300);
}
