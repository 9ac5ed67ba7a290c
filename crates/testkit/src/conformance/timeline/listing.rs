//! Listing what is pending: order, pages and filters.

use bytes::Bytes;
use punctual_model::Message;
use punctual_model::ports::{PendingQuery, Timeline};

use super::super::{Stage, after, message};
use super::{
    PLENTY, arm_all, cancel, claim, entry, everything, listed, schedule, schedule_at, settle,
    sorted,
};

pub(super) fn pending_is_listed_by_due_time_and_paged<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let mut given = schedule_at(stage, &[40, 10, 30, 10, 20]);
    given.extend(schedule_at(stage, &[10, 50]));
    let given = sorted(given);
    let all = everything(stage.topics[0]);
    for limit in [1, 2, 3, 7, 100] {
        let query = PendingQuery { limit, ..all.clone() };
        assert_eq!(listed(timeline, query), given, "in pages of {limit}");
    }
    let middle = PendingQuery { after: Some(given[2].key), limit: 2, ..all.clone() };
    assert_eq!(listed(timeline, middle), given[3..], "past a key");

    let armed = arm_all(timeline, after(25), PLENTY);
    assert_eq!(listed(timeline, all.clone()), given, "what is armed is still pending");
    cancel(timeline, &[given[0], given[5]]);
    let rest = [&given[1..5], &given[6..]].concat();
    assert_eq!(listed(timeline, all.clone()), rest, "what was cancelled is not");
    settle(timeline, &claim(timeline, armed));
    assert_eq!(listed(timeline, all), [given[4], given[6]], "what was delivered is not");
}

pub(super) fn pending_is_filtered<T: Timeline>(stage: &Stage<T>) {
    let timeline = &stage.subject;
    let [topic, other] = stage.topics;
    let keyed = |key: &'static [u8]| Some(Bytes::from_static(key));
    let keys = [keyed(b"a"), keyed(b"b"), None, keyed(b"a"), keyed(b"ab"), keyed(b"")];
    let with_key = |(due, key): (u64, &Option<Bytes>)| {
        entry(topic, after(due), Message { key: key.clone(), ..Message::default() })
    };
    let given = schedule(timeline, (0..).zip(&keys).map(with_key).collect());
    let others = schedule(timeline, vec![entry(other, after(2), message("of another topic"))]);

    let all = everything(topic);
    assert_eq!(listed(timeline, everything(other)), others, "only its own topic");
    let window = PendingQuery { from: after(1), to: after(4), ..all.clone() };
    assert_eq!(listed(timeline, window), given[1..4], "`from` is inside, `to` is not");
    let nothing = PendingQuery { from: after(4), to: after(4), ..all.clone() };
    assert_eq!(listed(timeline, nothing), []);
    for limit in [1, 100] {
        let of_key = PendingQuery { key: keyed(b"a"), limit, ..all.clone() };
        assert_eq!(listed(timeline, of_key), [given[0], given[3]], "only its own key");
    }
    let of_empty = PendingQuery { key: keyed(b""), ..all };
    assert_eq!(listed(timeline, of_empty), given[5..], "an empty key is a key");
}
