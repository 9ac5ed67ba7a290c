//! What is written is read again, and nothing else is; whatever the bytes.

use proptest::prelude::*;
use punctual_model::{Basis, Message, OwnId, Partition, Span, TopicId};

use super::*;

fn any_id() -> impl Strategy<Value = MessageId> {
    (0..1u64 << 40, 0..1u64 << 56, 0..1u32 << 24, 0..1024u16).prop_map(
        |(due, sequence, topic, partition)| MessageId {
            key: Key {
                due: Timestamp::from_millis(due).unwrap(),
                sequence: Sequence::new(sequence).unwrap(),
            },
            topic: TopicId::new(topic).unwrap(),
            partition: Partition::new(partition).unwrap(),
        },
    )
}

fn any_link(orders: u32) -> impl Strategy<Value = Link> {
    prop_oneof![any_id().prop_map(Link::Id), (0..orders).prop_map(Link::Order)]
}

fn any_extra(orders: u32) -> impl Strategy<Value = Extra> {
    let series = proptest::option::of(any_link(orders));
    let links = proptest::collection::vec(any_link(orders), 0..4);
    let half = proptest::option::of(any_link(orders));
    let own_id = proptest::option::of((".{1,20}", any::<u64>()));
    (series, links, half, own_id).prop_map(|(series, links, half, own_id)| Extra {
        series,
        links,
        parked: half.map(|transaction| Parked::Half {
            transaction,
            delay: Some(Span::from_secs(5)),
            due: Timestamp::from_millis(7).unwrap(),
        }),
        own_id: own_id.map(|(text, print)| OwnId { text: text.into(), print }),
        ..Extra::default()
    })
}

fn any_entry(orders: u32) -> impl Strategy<Value = Entry> {
    let extra = proptest::option::of(any_extra(orders).prop_map(Box::new));
    let key = proptest::option::of(any::<Vec<u8>>().prop_map(Bytes::from));
    (any_id(), key, any::<Vec<u8>>(), extra).prop_map(|(id, key, body, extra)| Entry {
        topic: id.topic,
        partition: id.partition,
        due: id.key.due,
        basis: Basis::Date,
        message: Message { key, headers: Vec::new(), body: body.into() },
        extra,
    })
}

fn any_order(orders: u32) -> impl Strategy<Value = Order> {
    let schedule =
        (any_entry(orders), any::<bool>(), any::<bool>()).prop_map(|(entry, retry, replace)| {
            Order::Schedule {
                lane: if retry { Lane::Retry } else { Lane::Message },
                entry,
                conflict: if replace { OnConflict::Replace } else { OnConflict::Reject },
            }
        });
    let replace = (any_id(), any_entry(orders)).prop_map(|(id, entry)| Order::Replace {
        id,
        expected: id.key,
        entry,
    });
    let cancel = (any_id(), any::<bool>())
        .prop_map(|(id, expects)| Order::Cancel { id, expected: expects.then_some(id.key) });
    prop_oneof![schedule, replace, cancel]
}

fn any_request() -> impl Strategy<Value = Request> {
    prop_oneof![
        proptest::collection::vec(any_entry(1), 0..4).prop_map(Request::Schedule),
        proptest::collection::vec(any_id(), 0..8).prop_map(Request::Cancel),
        proptest::collection::vec(any_order(3), 3..6).prop_map(Request::Revise),
        ("[a-z]{1,9}", 0..100usize, any::<u64>()).prop_map(|(group, max, wait_ms)| {
            Request::Ready { group: GroupName::new(&group).unwrap(), max, wait_ms }
        }),
        ".{0,40}".prop_map(|name| Request::Leaving(name.into())),
    ]
}

fn any_answer() -> impl Strategy<Value = Result<Answer, StoreError>> {
    let done = prop_oneof![
        any_id().prop_map(Done::Stored),
        any_id().prop_map(Done::Known),
        any_id().prop_map(|id| Done::Moved(id.key)),
        Just(Done::Cancelled),
        Just(Done::Nothing),
    ];
    let refusal = prop_oneof![
        any_id().prop_map(Refusal::OwnIdTaken),
        Just(Refusal::Changed),
        Just(Refusal::Ended(State::Cancelled)),
        Just(Refusal::Ended(State::Delivered)),
        Just(Refusal::NotFound),
    ];
    let outcome = proptest::sample::select(vec![
        CancelOutcome::Cancelled,
        CancelOutcome::AlreadyDelivered,
        CancelOutcome::AlreadyCancelled,
        CancelOutcome::Undecided,
        CancelOutcome::NotFound,
    ]);
    let error = prop_oneof![
        Just(StoreError::Full),
        Just(StoreError::Busy),
        Just(StoreError::Elsewhere),
        ".{0,20}".prop_map(|text| StoreError::Unavailable(text.into())),
        ".{0,20}".prop_map(|text| StoreError::Damaged(text.into())),
    ];
    prop_oneof![
        proptest::collection::vec(any_id(), 0..5).prop_map(|ids| Ok(Answer::Scheduled(ids))),
        proptest::collection::vec(outcome, 0..5).prop_map(|all| Ok(Answer::Cancelled(all))),
        proptest::collection::vec(done, 0..5)
            .prop_map(|done| Ok(Answer::Revised(Revised::Done(done)))),
        (0..9usize, refusal).prop_map(|(index, reason)| {
            Ok(Answer::Revised(Revised::Refused { index, reason }))
        }),
        proptest::collection::vec(any_id(), 0..5)
            .prop_map(|ids| Ok(Answer::Ready(ids.iter().map(|id| (id.key.due, *id)).collect()))),
        Just(Ok(Answer::Noted)),
        error.prop_map(Err),
    ]
}

proptest! {
    #[test]
    fn a_request_survives(request in any_request()) {
        let bytes = request.encode();
        let read = Request::decode(&bytes).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{request:?}"));
        prop_assert_eq!(read.encode(), bytes);
    }

    #[test]
    fn an_answer_survives(answer in any_answer()) {
        prop_assert_eq!(decode_answer(&encode_answer(&answer)), Ok(answer));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes: Vec<u8>) {
        let read = Request::decode(&Bytes::from(bytes.clone()));
        prop_assert!(read.is_err() || bytes.first() == Some(&VERSION));
        drop(decode_answer(&Bytes::from(bytes)));
    }

    #[test]
    fn a_request_that_was_bent_is_refused_or_is_another_request(
        request in any_request(),
        place in any::<prop::sample::Index>(),
        bits in 1..=255u8,
    ) {
        let mut bytes = request.encode().to_vec();
        let place = place.index(bytes.len());
        bytes[place] ^= bits;
        let bytes = Bytes::from(bytes);
        if let Ok(other) = Request::decode(&bytes) {
            // Whatever it is, it is one that can be written.
            drop(Request::decode(&other.encode()).unwrap());
        }
        let cut = bytes.slice(..bytes.len() - 1);
        drop(Request::decode(&cut));
    }
}

#[test]
fn more_than_one_call_may_be_is_refused() {
    let mut bytes = vec![VERSION, 2];
    codec::put_varint(&mut bytes, ITEMS_MAX as u64 + 1);
    bytes.resize(bytes.len() + (ITEMS_MAX + 1) * 22, 0);
    assert!(Request::decode(&Bytes::from(bytes)).is_err());
    let mut announced = vec![VERSION, 1];
    codec::put_varint(&mut announced, u64::MAX);
    assert!(Request::decode(&Bytes::from(announced)).is_err());
}

#[test]
fn orders_that_are_not_there_cannot_be_named() {
    let entry = Entry {
        topic: TopicId::new(20).unwrap(),
        partition: Partition::new(0).unwrap(),
        due: Timestamp::from_millis(1).unwrap(),
        basis: Basis::Delay,
        message: Message::default(),
        extra: None,
    };
    let entry = entry.with_extra(|extra| extra.series = Some(Link::Order(1)));
    let order = Order::Schedule { lane: Lane::Message, entry, conflict: OnConflict::Reject };
    assert!(Request::decode(&Request::Revise(vec![order.clone()]).encode()).is_err());
    assert!(Request::decode(&Request::Revise(vec![order.clone(), order]).encode()).is_ok());
}

#[test]
fn another_version_is_refused() {
    let mut bytes = Request::Cancel(Vec::new()).encode().to_vec();
    bytes[0] = VERSION + 1;
    assert!(Request::decode(&Bytes::from(bytes)).is_err());
}

#[test]
fn what_is_out_of_order_at_another_node_is_not_so_here() {
    for error in [StoreError::Closed, StoreError::Poisoned("disk".into())] {
        let read = decode_answer(&encode_answer(&Err(error))).unwrap().unwrap_err();
        assert!(matches!(read, StoreError::Unavailable(_)), "{read:?}");
    }
}
