//! Batches of producers come into the logs whole, are read like any message, and name what was taken
//! out of them.

mod records_support;
mod store_support;

use punctual_kafka_wire::records::Compression;
use punctual_model::ports::{LogBounds, SliceError, Stamped};
use punctual_model::{MessageId, Sequence};
use punctual_testkit::forgetful::ForgetfulDisk;
use records_support::*;

#[test]
fn a_batch_is_read_by_offset_by_id_by_time_and_as_it_was_sent() {
    let store = open(&ForgetfulDisk::new(), &small());
    let topic = put_topic(&store, "orders", 2).id;
    for (n, how) in (0..).zip(Compression::ALL) {
        let bytes = batch(&["a", "bc", ""], 100 * n, NOBODY, how);
        let appended = send(&store, append(topic, bytes)).unwrap();
        assert_eq!((appended.base_offset, appended.start, appended.duplicate), (3 * n, 0, false));
    }
    let all = read_all(&store, topic);
    assert_eq!(all.len(), 15);
    for (offset, one) in (0..).zip(&all) {
        let time = at(100 * (offset / 3) + offset % 3);
        assert_eq!(one.offset, offset);
        assert_eq!((one.due, one.delivered_at), (time, time));
        assert_eq!(one.message.body, ["a", "bc", ""][usize::try_from(offset % 3).unwrap()]);
        assert_eq!(one.id.key.sequence, Sequence::of_offset(offset).unwrap());
        assert_eq!(store.locate(one.id).unwrap().as_ref(), Some(one));
        let other = MessageId { key: punctual_model::Key { due: at(99), ..one.id.key }, ..one.id };
        assert_eq!(store.locate(other).unwrap(), None);
        let millis = i64::try_from(time.as_millis()).unwrap();
        let found = store.logs().first_since(topic, partition(0), millis).unwrap();
        assert_eq!(found, Some(Stamped { offset, millis }));
    }
    let latest = store.logs().latest(topic, partition(0)).unwrap().unwrap();
    assert_eq!(latest.offset, 14);
    assert_eq!(store.logs().first_since(topic, partition(0), latest.millis + 1).unwrap(), None);
    let slice = store.logs().slice(place(topic, 4), 1).unwrap();
    assert_eq!(slice.bounds, LogBounds { start: 0, end: 15 });
    let mut bytes = vec![0; usize::try_from(slice.length).unwrap()];
    slice.file.unwrap().read_at(&mut bytes, slice.position).unwrap();
    let mut expected = batch(&["a", "bc", ""], 100, NOBODY, Compression::Gzip).to_vec();
    punctual_kafka_wire::records::place(&mut expected, 3, 0);
    assert_eq!(bytes, expected, "byte for byte but for its offset");
    assert!(store.logs().slice(place(topic, 15), 1).unwrap().file.is_none());
    let past = store.logs().slice(place(topic, 16), 1).unwrap_err();
    assert_eq!(past, SliceError::OutOfRange(LogBounds { start: 0, end: 15 }));
}
