//! Do all nodes of a cluster have the same topics and groups, whoever makes and changes them?

#![expect(clippy::unwrap_used, reason = "a test ends with what is wrong")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use punctual_cluster::catalogue::{KnownTopics, SharedGroups, SharedTopics};
use punctual_cluster::store::memory::{Call, Fault, Gate, Memory, Moment};
use punctual_cluster::store::{Document, Documents, Failure};
use punctual_model::group::{RetryPolicy, Start};
use punctual_model::ports::{GroupError, Groups, StoreError, Topic, TopicError, Topics};
use punctual_model::{
    DelayLevels, GroupName, GroupSettings, Span, TopicId, TopicKind, TopicName, TopicSettings,
};
use punctual_testkit::conformance;
use punctual_testkit::reference::Reference;
use tokio::runtime::{Builder, Runtime};

const DEADLINE: Duration = Duration::from_secs(60);
const KIND: &str = "catalogue";

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn open<D: Documents>(runtime: &Runtime, documents: &Arc<D>) -> Arc<SharedTopics> {
    let opening = SharedTopics::open(Arc::clone(documents), runtime.handle().clone());
    runtime.block_on(opening).unwrap()
}

/// Waits until it is so.
fn until(runtime: &Runtime, what: &str, so: impl Fn() -> bool) {
    let waited = runtime.block_on(async {
        tokio::time::timeout(DEADLINE, async {
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            while !so() {
                ticks.tick().await;
            }
        })
        .await
    });
    assert!(waited.is_ok(), "{what}");
}

/// Two nodes over one store.
struct Two {
    runtime: Runtime,
    store: Arc<Memory>,
    here: Arc<SharedTopics>,
    there: Arc<SharedTopics>,
}

impl Two {
    fn new() -> Self {
        let (runtime, store) = (runtime(), Arc::new(Memory::default()));
        let (here, there) = (open(&runtime, &store), open(&runtime, &store));
        Self { runtime, store, here, there }
    }

    fn groups(&self) -> [SharedGroups<Reference>; 2] {
        [&self.here, &self.there]
            .map(|topics| SharedGroups::new(Arc::clone(topics), Arc::new(Reference::default())))
    }

    fn until(&self, what: &str, so: impl Fn() -> bool) {
        until(&self.runtime, what, so);
    }

    fn refresh(&self) {
        for node in [&self.here, &self.there] {
            self.runtime.block_on(node.refresh()).unwrap();
        }
    }

    fn known(&self, node: &SharedTopics, ids: &[TopicId]) -> Vec<bool> {
        self.runtime.block_on(node.known(ids.to_vec())).unwrap()
    }

    /// Waits until a call stands at the gate.
    fn reached(&self, gate: &Gate) {
        let waited =
            self.runtime.block_on(async { tokio::time::timeout(DEADLINE, gate.reached()).await });
        assert!(waited.is_ok(), "nobody came to the gate");
    }

    /// Lets so many calls pass, and waits until one more stands at the gate.
    fn pass(&self, gate: &Gate, calls: usize) {
        for _ in 0..calls {
            self.reached(gate);
            gate.let_one_pass();
        }
        self.reached(gate);
    }

    fn documents(&self) -> Vec<Document> {
        self.runtime.block_on(self.store.changed_since(KIND, 0)).unwrap().0
    }
}

fn name(text: &str) -> TopicName {
    TopicName::new(text).unwrap()
}

fn group(text: &str) -> GroupName {
    GroupName::new(text).unwrap()
}

fn settings(partitions: u16) -> TopicSettings {
    TopicSettings { partitions, ..TopicSettings::default() }
}

fn ladder(seconds: u64) -> GroupSettings {
    let rungs = [Span::from_secs(seconds)];
    GroupSettings { retry: RetryPolicy::Ladder(rungs.into()), ..GroupSettings::default() }
}

#[test]
fn shared_topics_keep_to_the_contract_of_topics() {
    let runtime = runtime();
    conformance::catalogue(|| open(&runtime, &Arc::new(Memory::default())));
}

#[test]
fn what_is_made_on_one_node_is_seen_on_the_other_and_told_there() {
    let two = Two::new();
    let told = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&told);
    two.there.listen(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    }));
    let made = two.here.put(&name("orders"), settings(3)).unwrap();
    // It only looks at what it has read: nobody misses it.
    two.until("seen there", || two.there.list() == [Arc::clone(&made)]);
    assert_eq!(two.there.by_id(made.id), Some(Arc::clone(&made)));
    two.until("told there", || told.load(Ordering::SeqCst) > 0);
    let changed = two.there.put(&name("orders"), settings(5)).unwrap();
    two.until("changed here", || two.here.list() == [Arc::clone(&changed)]);
    assert_eq!(two.here.delete(&name("orders")), Ok(true));
    assert_eq!(two.here.list(), []);
    two.until("gone there", || two.there.list().is_empty());
    let levels = DelayLevels::new(std::array::from_fn(|_| Span::from_millis(7)));
    two.there.put_levels(levels.clone()).unwrap();
    two.until("levels here", || two.here.levels() == levels);
}

#[test]
fn one_that_is_missed_is_asked_for_and_not_once_for_each_question() {
    let runtime = runtime();
    let store = Arc::new(Counting::default());
    let (here, there) = (open(&runtime, &store), open(&runtime, &store));
    // So that only misses read.
    here.stop();
    there.stop();
    let made = here.put(&name("orders"), settings(1)).unwrap();
    let before = store.reads.load(Ordering::SeqCst);
    // It is asked for; on a machine under load the answer may come after the short wait for it.
    let _found = there.by_name(&name("orders"));
    until(&runtime, "read there", || there.list() == [Arc::clone(&made)]);
    assert_eq!(there.by_name(&name("orders")), Some(made), "found by asking the store");
    assert_eq!(store.reads.load(Ordering::SeqCst), before + 1);
    for number in 0..1000 {
        assert_eq!(there.by_name(&name(&format!("absent-{number}"))), None);
    }
    let reads = store.reads.load(Ordering::SeqCst) - before;
    assert!(reads < 500, "{reads} reads for 1000 questions");
}

/// Counts reads.
#[derive(Default)]
struct Counting {
    memory: Memory,
    reads: AtomicUsize,
}

impl Documents for Counting {
    async fn changed_since(
        &self,
        kind: &'static str,
        revision: u64,
    ) -> Result<(Vec<Document>, u64), Failure> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.memory.changed_since(kind, revision).await
    }

    async fn put(
        &self,
        kind: &'static str,
        name: Arc<str>,
        expected: u64,
        content: Option<Bytes>,
    ) -> Result<Option<u64>, Failure> {
        self.memory.put(kind, name, expected, content).await
    }
}

#[test]
fn however_many_make_the_same_topic_at_once_there_is_one() {
    let two = Two::new();
    for round in 0..10 {
        let topic = name(&format!("topic-{round}"));
        let made: Vec<Arc<Topic>> = std::thread::scope(|scope| {
            let makers: Vec<_> = [&two.here, &two.there, &two.here, &two.there]
                .into_iter()
                .map(|node| scope.spawn(|| node.put(&topic, settings(2)).unwrap()))
                .collect();
            makers.into_iter().map(|maker| maker.join().unwrap()).collect()
        });
        assert!(made.iter().all(|one| *one == made[0]), "{made:?}");
    }
    two.refresh();
    assert_eq!(two.here.list().len(), 10);
    assert_eq!(two.here.list(), two.there.list());
}

#[test]
fn numbers_are_given_once_whoever_asks_for_them() {
    let two = Two::new();
    let ids = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for (number, node) in [&two.here, &two.there, &two.here, &two.there].into_iter().enumerate()
        {
            let ids = &ids;
            scope.spawn(move || {
                for round in 0..10 {
                    // Every other one is deleted again, and made anew under the same name.
                    let topic = name(&format!("topic-{number}-{}", round / 2));
                    ids.lock().push(node.put(&topic, settings(1)).unwrap().id);
                    if round % 2 == 0 {
                        assert_eq!(node.delete(&topic), Ok(true));
                    }
                }
            });
        }
    });
    let mut ids = ids.into_inner();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 40);
    two.refresh();
    assert_eq!((two.here.list().len(), two.here.list()), (20, two.there.list()));
}

#[test]
fn of_two_who_add_partitions_at_once_none_takes_any_away() {
    let two = Two::new();
    two.here.put(&name("orders"), settings(1)).unwrap();
    std::thread::scope(|scope| {
        for (node, wanted) in [(&two.here, 40u16), (&two.there, 60)] {
            scope.spawn(move || {
                for partitions in 2..=wanted {
                    match node.put(&name("orders"), settings(partitions)) {
                        Ok(topic) => assert_eq!(topic.settings.partitions, partitions),
                        Err(TopicError::CannotShrink(has)) => assert!(has > partitions),
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    two.refresh();
    assert_eq!(two.here.by_name(&name("orders")).unwrap().settings.partitions, 60);
    assert_eq!(two.here.list(), two.there.list());
}

#[test]
fn a_change_by_somebody_who_has_old_news_is_held_to_the_new() {
    let two = Two::new();
    two.here.put(&name("orders"), settings(2)).unwrap();
    two.refresh();
    two.there.stop();
    two.here.put(&name("orders"), settings(8)).unwrap();
    assert_eq!(two.there.put(&name("orders"), settings(4)), Err(TopicError::CannotShrink(8)));
    let wanted = two.there.make(&name("orders"), settings(1)).unwrap();
    assert_eq!(wanted.settings.partitions, 8);
}

#[test]
fn somebody_who_only_wants_a_topic_leaves_it_as_another_node_made_it() {
    let two = Two::new();
    two.there.stop();
    let paused = TopicSettings { paused: true, ..settings(7) };
    two.here.put(&name("orders"), paused.clone()).unwrap();
    let made = two.there.make(&name("orders"), TopicSettings::default()).unwrap();
    assert_eq!(made.settings, paused);
    assert_eq!(two.here.by_name(&name("orders")), Some(made));
}

#[test]
fn whether_a_topic_is_gone_is_told_for_certain() {
    let two = Two::new();
    two.here.stop();
    two.there.stop();
    let made = two.here.put(&name("orders"), settings(1)).unwrap();
    let (id, transactions) = (made.id, TopicId::TRANSACTIONS);
    assert!(!two.there.is_known(id) && two.there.is_known(transactions));
    assert_eq!(two.known(&two.there, &[id, transactions]), [true, true], "it was made elsewhere");
    assert!(two.there.is_known(id));
    two.here.delete(&name("orders")).unwrap();
    assert!(two.there.is_known(id), "nobody told it yet");
    two.refresh();
    assert_eq!(two.known(&two.there, &[transactions, id]), [true, false]);
    // Once it is known to be gone nobody asks again.
    two.store.fail_next(Call::ChangedSince, Fault::Unavailable, 1);
    assert_eq!(two.known(&two.there, &[id]), [false]);
    let other = TopicId::new(id.get() + 1).unwrap();
    let unsure = two.runtime.block_on(two.there.known(vec![other]));
    assert!(matches!(unsure, Err(StoreError::Unavailable(_))), "{unsure:?}");
    assert_eq!(two.known(&two.there, &[other]), [false]);
    assert!(two.there.is_gone(other) && two.there.is_gone(id) && !two.there.is_gone(transactions));
    let made = two.here.put(&name("stock"), settings(1)).unwrap();
    assert!(!two.there.is_gone(made.id), "it was made elsewhere");
    let third = TopicId::new(made.id.get() + 1).unwrap();
    two.store.fail_next(Call::ChangedSince, Fault::Unavailable, 1);
    assert!(!two.there.is_gone(third), "nobody can say so while the store is away");
    // The wait for an answer is short, and nobody says so before it is there.
    two.until("it is known to be gone", || two.there.is_gone(third));
}

#[test]
fn what_cannot_be_read_is_not_taken_for_deleted() {
    let two = Two::new();
    let made = two.here.put(&name("orders"), settings(1)).unwrap();
    two.refresh();
    let document = two.documents().into_iter().find(|one| &*one.name == "t/orders").unwrap();
    let newer = Bytes::from_static(b"\xff of a later version");
    let put = two.store.put(KIND, document.name, document.revision, Some(newer));
    two.runtime.block_on(put).unwrap().unwrap();
    two.refresh();
    assert_eq!(two.known(&two.here, &[made.id]), [true], "as it was read last");
    let fresh = SharedTopics::open(Arc::clone(&two.store), two.runtime.handle().clone());
    let refused = two.runtime.block_on(fresh).map(drop);
    assert!(matches!(refused, Err(StoreError::Damaged(_))), "{refused:?}");
    let other = TopicId::new(77).unwrap();
    let unsure = two.runtime.block_on(two.here.known(vec![other]));
    assert!(matches!(unsure, Err(StoreError::Damaged(_))), "{unsure:?}");
}

#[test]
fn while_the_store_is_away_topics_stay_as_they_are() {
    let two = Two::new();
    let made = two.here.put(&name("orders"), settings(1)).unwrap();
    two.store.fail_next(Call::ChangedSince, Fault::Unavailable, 10_000);
    two.store.fail_next(Call::PutDocument, Fault::Unavailable, 10_000);
    assert_eq!(two.here.by_name(&name("orders")), Some(made));
    assert_eq!(two.here.by_name(&name("stock")), None);
    for refused in
        [two.here.put(&name("stock"), settings(1)), two.here.make(&name("stock"), settings(1))]
    {
        assert!(matches!(refused, Err(TopicError::Store(StoreError::Unavailable(_)))));
    }
}

#[test]
fn a_change_of_which_nobody_hears_is_done_once_when_it_is_asked_for_again() {
    for fault in [Fault::UnsureDone, Fault::UnsureNotDone] {
        for nth in 0..2 {
            let two = Two::new();
            let gate = two.store.gate(Call::PutDocument, Moment::Before);
            let refused = std::thread::scope(|scope| {
                let maker = scope.spawn(|| two.here.put(&name("orders"), settings(1)));
                two.pass(&gate, nth);
                two.store.fail_next(Call::PutDocument, fault, 1);
                drop(gate);
                maker.join().unwrap()
            });
            let told = matches!(refused, Err(TopicError::Store(StoreError::Unavailable(_))));
            assert!(told, "{refused:?}");
            let made = two.here.put(&name("orders"), settings(1)).unwrap();
            assert_eq!(two.here.list(), [made]);
        }
    }
}

#[test]
fn a_group_has_its_topics_on_all_nodes_and_takes_them_with_it() {
    let two = Two::new();
    let [here, there] = two.groups();
    let orders = two.here.put(&name("orders"), settings(2)).unwrap();
    let made = here.put(orders.id, &group("mail"), ladder(5), Start::Latest).unwrap();
    two.until("the group is there", || there.by_name(orders.id, &group("mail")).is_some());
    assert_eq!(there.by_name(orders.id, &group("mail")), Some(Arc::clone(&made)));
    let own = [made.retry, made.dead].map(|id| two.there.by_id(id).unwrap());
    assert_eq!(
        own.each_ref().map(|one| one.name.as_str()),
        ["orders.mail.retry", "orders.mail.dead"]
    );
    assert_eq!(own.each_ref().map(|one| one.kind), [TopicKind::Retry, TopicKind::Dead]);
    let same = there.put(orders.id, &group("mail"), ladder(5), Start::Earliest).unwrap();
    assert_eq!(same, made);
    let changed = there.put(orders.id, &group("mail"), ladder(9), Start::Earliest).unwrap();
    assert_eq!((changed.id, changed.retry, &changed.settings), (made.id, made.retry, &ladder(9)));
    two.until("changed here", || here.list() == [Arc::clone(&changed)]);
    assert_eq!(two.here.delete(&name("orders.mail.dead")), Err(TopicError::Reserved));
    // The dead letters have a group of their own.
    let inner = here.put(made.dead, &group("care"), ladder(1), Start::Earliest).unwrap();
    assert_eq!(
        here.put(made.retry, &group("x"), ladder(1), Start::Earliest),
        Err(GroupError::TopicNotFound)
    );
    assert_eq!(there.delete(made.id), Ok(true));
    assert_eq!(there.delete(made.id), Ok(false));
    assert_eq!((there.list(), two.there.list()), (vec![], vec![Arc::clone(&orders)]));
    let gone = [made.retry, made.dead, inner.retry, inner.dead];
    two.refresh();
    assert_eq!(two.known(&two.here, &gone), [false; 4]);
    let again = here.put(orders.id, &group("mail"), ladder(5), Start::Latest).unwrap();
    assert!(again.id > made.id && again.retry > made.dead, "{again:?} after {made:?}");
    assert_eq!(two.here.delete(&name("orders")), Ok(true));
    assert_eq!((two.here.list(), here.list()), (vec![], vec![]));
}

#[test]
fn a_name_that_a_group_needs_may_not_be_taken() {
    let two = Two::new();
    let [here, there] = two.groups();
    let orders = two.here.put(&name("a.b"), settings(1)).unwrap();
    let other = two.here.put(&name("a"), settings(1)).unwrap();
    two.there.put(&name("a.b.c.dead"), settings(1)).unwrap();
    let taken = here.put(orders.id, &group("c"), ladder(1), Start::Earliest);
    assert_eq!(taken, Err(GroupError::NameTaken(name("a.b.c.dead"))));
    two.there.delete(&name("a.b.c.dead")).unwrap();
    here.put(orders.id, &group("c"), ladder(1), Start::Earliest).unwrap();
    // Another group whose topics would have the same names.
    let taken = there.put(other.id, &group("b.c"), ladder(1), Start::Earliest);
    assert_eq!(taken, Err(GroupError::NameTaken(name("a.b.c.retry"))));
    let long = group(&"x".repeat(245));
    let refused = here.put(other.id, &long, ladder(1), Start::Earliest);
    assert_eq!(refused, Err(GroupError::NameTooLong));
    let absent = TopicId::new(999).unwrap();
    let refused = here.put(absent, &group("c"), ladder(1), Start::Earliest);
    assert_eq!(refused, Err(GroupError::TopicNotFound));
}

#[test]
fn however_many_make_the_same_group_at_once_there_is_one() {
    let two = Two::new();
    let [here, there] = two.groups();
    let orders = two.here.put(&name("orders"), settings(1)).unwrap();
    for round in 0..10 {
        let name = group(&format!("group-{round}"));
        let made = std::thread::scope(|scope| {
            [&here, &there]
                .map(|node| scope.spawn(|| node.put(orders.id, &name, ladder(1), Start::Earliest)))
                .map(|maker| maker.join().unwrap().unwrap())
        });
        assert_eq!(made[0], made[1]);
        let own = [made[0].retry, made[0].dead].map(|id| two.here.by_id(id).unwrap().kind);
        assert_eq!(own, [TopicKind::Retry, TopicKind::Dead]);
    }
    two.refresh();
    assert_eq!((here.list().len(), two.here.list().len()), (10, 21));
}

#[test]
fn a_crash_at_every_step_of_making_or_removing_a_group_is_put_right_by_asking_again() {
    for removing in [false, true] {
        for nth in 0..4 {
            let two = Two::new();
            let [here, there] = two.groups();
            let orders = two.here.put(&name("orders"), settings(1)).unwrap();
            let put = |node: &SharedGroups<Reference>| {
                node.put(orders.id, &group("mail"), ladder(1), Start::Earliest)
            };
            let made = removing.then(|| put(&here).unwrap());
            let gate = two.store.gate(Call::PutDocument, Moment::Before);
            let outcome = std::thread::scope(|scope| {
                let work = scope.spawn(|| match &made {
                    None => put(&here).map(drop),
                    Some(made) => here.delete(made.id).map(drop),
                });
                // What removes takes three steps, what makes takes four.
                two.pass(&gate, nth.min(if removing { 2 } else { 3 }));
                two.store.fail_next(Call::PutDocument, Fault::Unavailable, 1);
                drop(gate);
                work.join().unwrap()
            });
            assert!(matches!(outcome, Err(GroupError::Store(_))), "{outcome:?}");
            let whole = put(&there).unwrap();
            let own = [whole.retry, whole.dead].map(|id| two.there.by_id(id).unwrap().kind);
            assert_eq!(own, [TopicKind::Retry, TopicKind::Dead], "step {nth}");
            assert_eq!(there.delete(whole.id), Ok(true));
            assert_eq!((there.list(), two.there.list()), (vec![], vec![Arc::clone(&orders)]));
        }
    }
}

#[test]
fn a_group_that_is_made_while_its_topic_goes_goes_too() {
    let two = Two::new();
    let [here, _] = two.groups();
    let orders = two.here.put(&name("orders"), settings(1)).unwrap();
    two.refresh();
    let gate = two.store.gate(Call::PutDocument, Moment::Before);
    let (made, deleted) = std::thread::scope(|scope| {
        let maker = scope
            .spawn(|| here.put(orders.id, &group("mail"), ladder(1), Start::Earliest).map(drop));
        two.reached(&gate);
        let deleter = scope.spawn(|| two.there.delete(&name("orders")));
        two.reached(&gate);
        drop(gate);
        (maker.join().unwrap(), deleter.join().unwrap())
    });
    assert_eq!(deleted, Ok(true));
    assert!(matches!(made, Ok(()) | Err(GroupError::TopicNotFound)), "{made:?}");
    two.refresh();
    assert_eq!((here.list(), two.here.list()), (vec![], vec![]), "nothing is left");
}
