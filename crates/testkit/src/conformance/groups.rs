//! The contract of [`Groups`], with the store that fills their sources, and the words in which its
//! cases are told.

mod catalogue;
mod progress;
mod placed;
mod moving;
mod restart;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_executor::block_on;
use punctual_model::group::{GroupChange, Mark, Note, SeekBy, Standing, Start};
use punctual_model::ports::{
    ArmLimit, Armed, Delivered, Groups, LogPosition, Outlet, Timeline, Topic, Topics,
};
use punctual_model::{
    Basis, Entry, Group, GroupName, GroupSettings, Lane, MessageId, Partition, Source, Span,
    Timestamp, TopicId, TopicName, TopicSettings,
};

use super::{after, message, partition};

/// A store with groups: all its sides at once.
pub trait GroupStore: Timeline + Topics + Outlet + Groups {}

impl<S: Timeline + Topics + Outlet + Groups> GroupStore for S {}

/// Holds a store to what it promises about groups. `make` gives a fresh one each time; `reopen`
/// ends one and starts it again with what it has stored.
///
/// # Panics
/// Where the store breaks it.
pub fn groups<S: GroupStore>(make: impl Fn() -> S, reopen: impl Fn(S) -> S) {
    catalogue::a_group_brings_its_own_topics(&make());
    catalogue::settings_of_a_group_can_be_changed(&make());
    catalogue::groups_are_listed_by_topic_and_name(&make());
    catalogue::a_name_that_is_taken_is_refused(&make());
    catalogue::a_name_that_is_too_long_is_refused(&make());
    catalogue::only_some_topics_can_have_groups(&make());
    catalogue::the_topics_of_a_group_are_reserved(&make());
    catalogue::a_deleted_group_is_gone_with_all_it_had(&make());
    catalogue::a_deleted_topic_takes_its_groups_along(&make());
    progress::what_is_not_settled_is_pulled(&make());
    progress::what_is_settled_is_never_pulled_again(&make());
    progress::the_cursor_moves_over_what_is_settled(&make());
    progress::notes_are_given_back(&make());
    progress::a_seek_forgets_what_was_there(&make());
    progress::a_group_may_start_at_the_end(&make());
    progress::groups_and_partitions_are_independent(&make());
    progress::the_standing_tells_how_far_a_group_is(&make());
    progress::a_source_that_is_not_of_the_group_is_refused(&make());
    progress::many_settle_at_once(&make());
    placed::what_was_committed_is_told_exactly(&make());
    placed::what_is_forgotten_was_never_there(&make());
    moving::an_empty_apply_is_nothing(&make());
    moving::entries_go_to_the_retry_lane(&make());
    moving::lanes_are_claimed_and_settled_apart(&make());
    moving::cancel_works_in_both_lanes(&make());
    moving::the_listener_hears_which_lane(&make());
    moving::a_failed_message_comes_back_through_the_retry_topic(&make());
    moving::a_dead_letter_can_be_redriven_and_purged(&make());
    moving::changes_are_applied_in_their_order(&make());
    moving::changes_of_what_is_no_more_are_left_out(&make());
    restart::progress_survives_a_restart(make(), &reopen);
    restart::the_catalogue_survives_a_restart(make(), &reopen);
    restart::settings_survive_a_restart(make(), &reopen);
    restart::moves_survive_a_restart(make(), &reopen);
    restart::numbers_are_not_given_again(make(), &reopen);
    placed::places_survive_a_restart(make(), &reopen);
}

/// A topic with two partitions and a group of it.
struct Scene {
    topic: Arc<Topic>,
    group: Arc<Group>,
}

impl Scene {
    fn new<S: GroupStore>(store: &S) -> Self {
        let topic = topic(store, "orders", 2);
        let group = group(store, &topic, "billing");
        Self { topic, group }
    }

    fn main(&self, number: u16) -> Source {
        Source { group: self.group.id, topic: self.topic.id, partition: partition(number) }
    }

    fn retry(&self) -> Source {
        Source { group: self.group.id, topic: self.group.retry, partition: partition(0) }
    }

    fn dead(&self) -> Source {
        Source { group: self.group.id, topic: self.group.dead, partition: partition(0) }
    }
}

fn topic_name(text: &str) -> TopicName {
    TopicName::new(text).expect("suites use legal names")
}

fn group_name(text: &str) -> GroupName {
    GroupName::new(text).expect("suites use legal names")
}

fn topic<S: Topics>(store: &S, text: &str, partitions: u16) -> Arc<Topic> {
    let settings = TopicSettings { partitions, retention: None, ..TopicSettings::default() };
    Topics::put(store, &topic_name(text), settings).expect("a working store makes topics")
}

fn group_from<S: Groups>(store: &S, topic: &Topic, text: &str, start: Start) -> Arc<Group> {
    Groups::put(store, topic.id, &group_name(text), GroupSettings::default(), start)
        .expect("a working store makes groups")
}

fn group<S: Groups>(store: &S, topic: &Topic, text: &str) -> Arc<Group> {
    group_from(store, topic, text, Start::Earliest)
}

/// An entry as the broker makes it when it moves a message.
fn entry(topic: TopicId, due: u64, body: &str) -> Entry {
    let (due, message) = (after(due), message(body));
    Entry { topic, partition: partition(0), due, basis: Basis::Delay, message, extra: None }
}

/// The number of pending entries of each topic in both lanes together, by topic.
fn counts<S: Timeline>(store: &S) -> Vec<(TopicId, u64)> {
    let mut counts = BTreeMap::new();
    for (topic, count) in Lane::ALL.into_iter().flat_map(|lane| store.counts(lane)) {
        *counts.entry(topic).or_default() += count;
    }
    counts.into_iter().collect()
}

fn arm<S: Timeline>(store: &S, lane: Lane, until: Timestamp) -> Vec<Armed> {
    let limit = ArmLimit { entries: 1000, bytes: 64 << 20 };
    let mut all = Vec::new();
    loop {
        let armed = block_on(store.arm(lane, until, limit)).expect("a working store arms");
        if armed.is_empty() {
            return all;
        }
        assert!(armed.iter().all(|armed| armed.key.sequence.lane() == lane), "of one lane only");
        all.extend(armed);
        assert!(all.len() < 100_000, "a store that never runs dry hands out entries again");
    }
}

/// Delivers what is armed, at the time `now`.
fn deliver<S: Timeline + Outlet>(store: &S, mut batch: Vec<Armed>, now: Timestamp) {
    block_on(store.claim(&mut batch)).expect("a working store lets claim");
    block_on(store.deliver(&batch, now)).expect("a working outlet takes a batch");
    block_on(store.settle(&batch)).expect("a working store settles");
}

/// Delivers all of a lane that is due before `until`.
fn fire<S: Timeline + Outlet>(store: &S, lane: Lane, until: Timestamp) -> usize {
    let batch = arm(store, lane, until);
    let count = batch.len();
    deliver(store, batch, until);
    count
}

/// Sends messages to a partition and answers what is in its log of them, in order.
fn send<S: GroupStore>(
    store: &S,
    topic: TopicId,
    place: Partition,
    bodies: &[&str],
) -> Vec<Delivered> {
    let place_entry = |body: &&str| Entry { partition: place, ..entry(topic, 1, body) };
    let batch = bodies.iter().map(place_entry).collect();
    let offset = store.bounds(topic, place).expect("the partition is there").end;
    block_on(store.schedule(batch)).expect("a working store takes a batch");
    assert_eq!(fire(store, Lane::Message, after(100)), bodies.len());
    let log = read(store, LogPosition { topic, partition: place, offset });
    assert_eq!(log.len(), bodies.len(), "everything was delivered");
    log
}

fn read<S: Topics>(store: &S, mut from: LogPosition) -> Vec<Delivered> {
    let mut all: Vec<Delivered> = Vec::new();
    loop {
        let page = store.read(from, 1000).expect("a working store reads");
        let Some(last) = page.last() else { return all };
        from.offset = last.offset + 1;
        all.extend(page);
    }
}

fn apply<S: Groups>(store: &S, changes: Vec<GroupChange>, entries: Vec<Entry>) -> Vec<MessageId> {
    block_on(store.apply(changes, entries)).expect("a working store applies")
}

fn mark(delivered: &Delivered) -> Mark {
    Mark { offset: delivered.offset, sequence: delivered.id.key.sequence }
}

fn settled<'a>(
    source: Source,
    messages: impl IntoIterator<Item = &'a Delivered>,
) -> Vec<GroupChange> {
    vec![GroupChange::Settle(source, messages.into_iter().map(mark).collect())]
}

fn settle<'a, S: Groups>(
    store: &S,
    source: Source,
    messages: impl IntoIterator<Item = &'a Delivered>,
) {
    apply(store, settled(source, messages), Vec::new());
}

fn seek<S: Groups>(store: &S, source: Source, offset: u64, by: SeekBy) {
    apply(store, vec![GroupChange::Seek(source, offset, by)], Vec::new());
}

/// Notes that a message has failed.
fn note<S: Groups>(store: &S, source: Source, delivered: &Delivered, note: Note) {
    apply(store, vec![GroupChange::Note(source, mark(delivered), note)], Vec::new());
}

/// A note that differs from all others of another number.
fn a_note(number: u16) -> Note {
    Note {
        failed: number,
        not_before: after(u64::from(number) * 1000),
        first_error: (number > 1).then(|| "größer als erlaubt".into()),
        last_error: (!number.is_multiple_of(2)).then(|| format!("error {number}").into()),
    }
}

type Pending = Vec<(Delivered, Option<Note>)>;

/// All that the group has not settled from `from` on, asked for in steps of `limit`.
fn pull_from<S: Groups>(store: &S, source: Source, from: u64, limit: usize) -> Pending {
    let mut all: Pending = Vec::new();
    let mut next = from;
    loop {
        let pulled = store.pull(source, next, limit).expect("a working store lets pull");
        assert!(pulled.messages.len() <= limit, "{} of {limit}", pulled.messages.len());
        assert!(pulled.next >= next, "from {next} back to {}", pulled.next);
        for (delivered, _) in &pulled.messages {
            let page = next..pulled.next;
            assert!(page.contains(&delivered.offset), "{} in {page:?}", delivered.offset);
        }
        all.extend(pulled.messages);
        if pulled.next == next {
            break;
        }
        next = pulled.next;
    }
    assert!(all.is_sorted_by(|one, other| one.0.offset < other.0.offset), "offsets grow");
    all
}

fn pull<S: Groups>(store: &S, source: Source) -> Pending {
    pull_from(store, source, 0, 100)
}

/// What of `messages` the group is given, without notes.
fn assert_pulled<'a, S: Groups>(
    store: &S,
    source: Source,
    messages: impl IntoIterator<Item = &'a Delivered>,
    why: &str,
) {
    let expected: Pending = messages.into_iter().map(|message| (message.clone(), None)).collect();
    assert_eq!(pull(store, source), expected, "{why}");
}

fn bodies(pending: &Pending) -> Vec<String> {
    let text = |(delivered, _): &(Delivered, Option<Note>)| {
        String::from_utf8_lossy(&delivered.message.body).into_owned()
    };
    pending.iter().map(text).collect()
}

fn standing<S: Groups>(store: &S, source: Source) -> Standing {
    let all = store.standing(source.group, true).expect("a working store tells the standing");
    let found = all.into_iter().find(|standing| standing.source == source);
    found.expect("every source of a group is told")
}

const A_DAY: Span = Span::from_days(1);
