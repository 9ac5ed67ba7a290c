//! What a producer appends is seen by nobody before the journal has it, nor is anything behind it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic, and a failed set-up may stop a test"
)]

mod log_support;
mod records_support;
mod store_support;

use std::sync::{Arc, Mutex, OnceLock};

use log_support::{Seen, Watched};
use punctual_engine::store::{Outcome, Request, Store};
use punctual_kafka_wire::records::Compression;
use punctual_model::group::{GroupSettings, Source, Start};
use punctual_model::ports::{LogBounds, SliceError};
use punctual_model::{GroupName, TopicId};
use punctual_testkit::forgetful::ForgetfulDisk;
use records_support::*;

type Hook = Box<dyn FnOnce() + Send>;

/// A disk that does something else before the next write to the journal.
struct Hooked {
    disk: ForgetfulDisk,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Hooked {
    fn new() -> Self {
        Self { disk: ForgetfulDisk::new(), hook: Arc::default() }
    }

    fn open(&self) -> Store {
        let hook = Arc::clone(&self.hook);
        let watched = Watched::new(self.disk.clone(), move |seen| {
            let next = matches!(seen, Seen::JournalNext);
            let hook = if next { hook.lock().unwrap().take() } else { None };
            if let Some(hook) = hook {
                hook();
            }
        });
        Store::open(Arc::new(watched), small()).unwrap()
    }

    fn before_journal(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }
}

/// Holds everything that can be asked against a log that ends at `end` and has `bodies`.
fn shows(store: &Store, topic: TopicId, source: Source, bodies: &[&str]) {
    let end = bodies.len() as u64;
    let logs = store.logs();
    assert_eq!(logs.bounds(topic, partition(0)).unwrap(), LogBounds { start: 0, end });
    let read: Vec<String> =
        records_support::bodies(store, topic).into_iter().map(|b| b.1).collect();
    assert_eq!(read, bodies);
    assert_eq!(store.pull(source, 0, 100).unwrap().messages.len(), bodies.len());
    assert_eq!(store.pull(source, 0, 100).unwrap().next, end);
    let standing = store.standing(source.group, true).unwrap();
    assert_eq!(standing[0].end, end);
    let past = logs.slice(place(topic, end + 1), 1 << 20);
    assert_eq!(past.unwrap_err(), SliceError::OutOfRange(LogBounds { start: 0, end }));
    assert!(logs.slice(place(topic, end), 1 << 20).unwrap().file.is_none());
    let all: u64 = logs.bytes_from(topic, partition(0), 0).unwrap();
    let mut sliced = 0;
    let mut offset = 0;
    while offset < end {
        let slice = logs.slice(place(topic, offset), u64::MAX).unwrap();
        let mut bytes = vec![0; usize::try_from(slice.length).unwrap()];
        slice.file.unwrap().read_at(&mut bytes, slice.position).unwrap();
        sliced += slice.length;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let header = punctual_engine::log::batch::checked_header(rest).unwrap();
            offset = header.last_offset + 1;
            rest = &rest[usize::try_from(header.bytes).unwrap()..];
        }
    }
    assert_eq!(sliced, all);
    let latest = logs.latest(topic, partition(0)).unwrap();
    let found = read_all(store, topic);
    assert_eq!(
        latest.map(|l| l.millis.cast_unsigned()),
        found.iter().map(|d| d.delivered_at.as_millis()).max()
    );
    let beyond = latest.map_or(0, |latest| latest.millis + 1);
    assert_eq!(logs.first_since(topic, partition(0), beyond).unwrap(), None);
    assert_eq!(logs.offset_at(topic, partition(0), at(1 << 30)).unwrap(), end);
}

fn group(store: &Store, topic: TopicId) -> Source {
    let name = GroupName::new("billing").unwrap();
    let put = Request::PutGroup(topic, name, GroupSettings::default(), Start::Earliest);
    let Some(Ok(Outcome::Group(group))) = store.commit(vec![put]).pop() else {
        panic!("a group can be made");
    };
    Source { group: group.id, topic, partition: partition(0) }
}

#[test]
fn nothing_from_the_first_held_batch_on_is_seen_before_the_journal_has_it() {
    for lead in 0..12 {
        let disk = Hooked::new();
        let store = Arc::new(OnceLock::new());
        let opened = disk.open();
        let topic = put_topic(&opened, "a", 1).id;
        let source = group(&opened, topic);
        store.set(opened).unwrap();
        let opened = store.get().unwrap();
        let mut expected: Vec<String> = Vec::new();
        for n in 0..lead {
            // Sizes differ, so that the held batch begins a segment, or does not.
            let body = format!("{n}-{}", "x".repeat(350));
            send(opened, append(topic, plain(&[&body], n))).unwrap();
            expected.push(body);
        }
        let id = schedule(opened, entry(topic, at(4), "fired"));
        let fired = arm(opened, at(5));
        let (inside, before) = (Arc::clone(&store), expected.clone());
        disk.before_journal(move || {
            let store = inside.get().unwrap();
            let visible: Vec<&str> = before.iter().map(String::as_str).collect();
            shows(store, topic, source, &visible);
            store.deliver(&fired, at(5)).unwrap();
            store.settle(&fired).unwrap();
            shows(store, topic, source, &visible);
            assert_eq!(store.locate(id).unwrap(), None);
            assert!(store.logs().contains(id).unwrap(), "but it was delivered");
        });
        let requests = [
            request(append(topic, plain(&["one", "two"], 7000)), at(0)),
            request(append(topic, batch(&["three"], 9000, NOBODY, Compression::Zstd)), at(0)),
        ];
        let outcomes = opened.commit(requests.into());
        for (outcome, base) in outcomes.into_iter().zip([lead, lead + 2]) {
            assert_eq!(sent(outcome).unwrap().base_offset, base);
        }
        expected.extend(["one", "two", "three", "fired"].map(str::to_owned));
        let visible: Vec<&str> = expected.iter().map(String::as_str).collect();
        shows(opened, topic, source, &visible);
        assert_eq!(opened.locate(id).unwrap().unwrap().offset, lead + 3);
    }
}

/// The process ends, or power is lost, when the log has the batch and the journal does not.
#[test]
fn a_batch_that_nobody_was_told_of_goes_and_comes_back_whole_when_it_is_sent_again() {
    let from = From { producer: 3, epoch: 1, sequence: 0 };
    let whole = batch(&["now", "later", "now too"], 100, from, Compression::Lz4);
    for (taken, fires) in [(false, false), (true, false), (false, true), (true, true)] {
        let disk = Hooked::new();
        let store = Arc::new(OnceLock::new());
        let opened = disk.open();
        let topic = put_topic(&opened, "a", 1).id;
        store.set(opened).unwrap();
        let opened = store.get().unwrap();
        schedule(opened, entry(topic, at(4), "fired"));
        let fired = arm(opened, at(5));
        let mut append = append(topic, whole.clone());
        if taken {
            append.batch = thinned(&whole, &[1]);
            append.entries.push((1, entry(topic, at(60_000), "later")));
        }
        let left: Arc<Mutex<Vec<ForgetfulDisk>>> = Arc::default();
        let (inside, images, at_disk) = (Arc::clone(&store), Arc::clone(&left), disk.disk.clone());
        disk.before_journal(move || {
            if fires {
                inside.get().unwrap().deliver(&fired, at(5)).unwrap();
            }
            let mut images = images.lock().unwrap();
            images.push(at_disk.reopen());
            images.extend(at_disk.images(40, 1).map(|(_, image)| image));
        });
        send(opened, append.clone()).unwrap();
        let images = std::mem::take(&mut *left.lock().unwrap());
        assert!(images.len() > 3);
        for image in images {
            let store = open(&image, &small());
            let before = bodies(&store, topic);
            assert!(before.iter().all(|(_, body)| body == "fired"), "{before:?}");
            let again = send(&store, append.clone()).unwrap();
            assert!(!again.duplicate);
            assert!(send(&store, append.clone()).unwrap().duplicate);
            while fire(&store, at(70_000)).unwrap() > 0 {}
            let mut texts: Vec<String> = bodies(&store, topic).into_iter().map(|b| b.1).collect();
            texts.sort();
            assert_eq!(texts, ["fired", "later", "now", "now too"]);
        }
    }
}
