//! Batches of producers at the edges: who sent them, full disks, groups, fronts that are taken off, times
//! in any order, and whatever producers may write.

mod records_support;
mod store_support;

use bytes::Bytes;
use punctual_engine::log::LogOptions;
use punctual_engine::store::{Appending, InLogs, Outcome, Request, Store};
use punctual_engine::{Durability, Options};
use punctual_kafka_wire::records::{
    BatchWriter, Compression, NewRecord, Opening, set_max_timestamp,
};
use punctual_model::group::{GroupChange, GroupSettings, Mark, Source, Start};
use punctual_model::ports::{
    AppendError, CancelOutcome, LogBounds, SliceError, Stamped, StoreError,
};
use punctual_model::{GroupName, OwnId, Span, State, Timestamp, TopicName, TopicSettings};
use punctual_testkit::forgetful::{Fate, Fault, ForgetfulDisk};
use records_support::*;

fn numbered(sequence: i32, epoch: i16) -> From {
    From { producer: 9, epoch, sequence }
}

fn of(values: &[&str], from: From) -> Bytes {
    batch(values, 10, from, Compression::None)
}

#[test]
fn a_producer_is_held_to_its_numbers_also_over_restarts_and_within_a_group() {
    let disk = ForgetfulDisk::new();
    let mut store = open(&disk, &small());
    let topic = put_topic(&store, "a", 1).id;
    let try_one = |store: &Store, sequence, epoch| {
        send(store, append(topic, of(&["x", "y"], numbered(sequence, epoch))))
    };
    assert_eq!(try_one(&store, 0, 0).unwrap().base_offset, 0);
    assert_eq!(try_one(&store, 4, 0), Err(AppendError::OutOfOrder));
    let again = try_one(&store, 0, 0).unwrap();
    assert!(again.duplicate && again.base_offset == 0);
    let group = [(2, 0), (2, 0), (6, 0), (4, 0)].map(|(sequence, epoch)| {
        request(append(topic, of(&["x", "y"], numbered(sequence, epoch))), at(0))
    });
    let mut answers = store.commit(group.into()).into_iter().map(sent);
    let mut next = || answers.next().unwrap();
    assert_eq!(next().unwrap().base_offset, 2);
    let twin = next().unwrap();
    assert!(twin.duplicate && twin.base_offset == 2, "one of the same group");
    assert_eq!(next(), Err(AppendError::OutOfOrder));
    assert_eq!(next().unwrap().base_offset, 4);
    for round in 0..3 {
        store = match round {
            // What the journal and the log tell.
            0 => open(&disk.reopen(), &small()),
            1 => {
                store.checkpoint(at(0)).unwrap();
                store
            }
            _ => {
                let after = disk.reopen();
                let store = open(&after, &small());
                store.checkpoint(at(0)).unwrap();
                drop(store);
                open(&after.crash_image(|_| Fate::Lost), &small())
            }
        };
        for (sequence, base) in [(0, 0), (2, 2), (4, 4)] {
            let known = try_one(&store, sequence, 0).unwrap();
            assert!(known.duplicate && known.base_offset == base, "round {round}: {known:?}");
        }
        assert_eq!(try_one(&store, 8, 0), Err(AppendError::OutOfOrder));
        assert_eq!(try_one(&store, 1, 1), Err(AppendError::OutOfOrder));
    }
    assert_eq!(try_one(&store, 0, 1).unwrap().base_offset, 6);
    assert_eq!(try_one(&store, 6, 0), Err(AppendError::StaleEpoch));
    for sequence in (2..20).step_by(2) {
        try_one(&store, sequence, 1).unwrap();
    }
    assert_eq!(try_one(&store, 2, 1), Err(AppendError::OldDuplicate));
}

#[test]
fn only_whole_batches_of_producers_are_taken() {
    let store = open(&ForgetfulDisk::new(), &small());
    let topic = put_topic(&store, "a", 1).id;
    let good = plain(&["x"], 0);
    let taken = |bytes: Vec<u8>| Appending::new(append(topic, bytes.into()), at(0)).map(drop);
    taken(good.to_vec()).unwrap();
    let seal = |mut bytes: Vec<u8>| {
        let crc = crc32c::crc32c(&bytes[21..]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        bytes
    };
    let with = |at: usize, bits: u8| {
        let mut bytes = good.to_vec();
        bytes[at] |= bits;
        seal(bytes)
    };
    let mut longer = good.to_vec();
    longer.push(0);
    let mut flipped = good.to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let mut stamped = good.to_vec();
    set_max_timestamp(&mut stamped, i64::MAX);
    let hostile = [
        (longer, "bytes behind it"),
        (good[..good.len() - 1].to_vec(), "cut"),
        (Vec::new(), "empty"),
        (flipped, "another checksum"),
        (with(22, 1 << 3), "our own kind"),
        (with(22, 1 << 4), "a transaction"),
        (with(22, 1 << 5), "a mark of a broker"),
        (with(22, 7), "an unknown compression"),
        (with(23, 0x01), "too many offsets"),
        (stamped, "past all times"),
        (of(&["x"], From { producer: 4, epoch: 0, sequence: -1 }).to_vec(), "no number"),
    ];
    for (bytes, what) in hostile {
        assert_eq!(taken(bytes), Err(AppendError::Malformed), "{what}");
    }
    taken({
        let mut bytes = with(22, 1 << 3);
        bytes[21] |= 1;
        seal(bytes)
    })
    .unwrap();
    let mut outside = append(topic, good.clone());
    outside.entries.push((1, entry(topic, at(9), "y")));
    assert_eq!(Appending::new(outside, at(0)).map(drop), Err(AppendError::Malformed));
    let nowhere = append(punctual_model::TopicId::new(77).unwrap(), good.clone());
    assert_eq!(send(&store, nowhere), Err(AppendError::NotFound));
    let mut beside = append(topic, good.clone());
    beside.partition = partition(1);
    assert_eq!(send(&store, beside), Err(AppendError::NotFound));
    let name = GroupName::new("g").unwrap();
    let put = Request::PutGroup(topic, name, GroupSettings::default(), Start::Earliest);
    let Some(Ok(Outcome::Group(group))) = store.commit(vec![put]).pop() else { panic!("a group") };
    for own in [group.retry, group.dead] {
        assert_eq!(send(&store, append(own, good.clone())), Err(AppendError::Reserved));
    }
}

#[test]
fn what_producers_write_wrong_ends_their_batch_and_nothing_else() {
    let store = open(&ForgetfulDisk::new(), &small());
    let topic = put_topic(&store, "a", 1).id;
    let broken = |bytes: &Bytes, at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] = 0xff;
        let crc = crc32c::crc32c(&bytes[21..]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        Bytes::from(bytes)
    };
    let two = plain(&["first", "second"], 0);
    let second = 61 + (two.len() - 61) / 2;
    send(&store, append(topic, broken(&two, second))).unwrap();
    let squeezed = batch(&["never"], 0, NOBODY, Compression::Snappy);
    send(&store, append(topic, broken(&squeezed, 61))).unwrap();
    let mut writer = BatchWriter::new(Opening { base_timestamp: -1, ..Opening::default() });
    let headers: [(&[u8], Option<&[u8]>); 2] = [(b"\xff\xfe", Some(b"1")), (b"n", None)];
    writer.push(&NewRecord { key: Some(b""), headers: &headers, ..NewRecord::default() });
    let id = punctual_engine::log::batch::ID_HEADER.as_bytes();
    let forged: [(&[u8], Option<&[u8]>); 1] = [(id, Some(b"x"))];
    writer.push(&NewRecord { offset_delta: 1, headers: &forged, ..NewRecord::default() });
    send(&store, append(topic, writer.finish().unwrap())).unwrap();
    send(&store, append(topic, plain(&["last"], 5))).unwrap();
    let all = read_all(&store, topic);
    let offsets: Vec<u64> = all.iter().map(|one| one.offset).collect();
    assert_eq!(offsets, [0, 3, 4, 5]);
    assert_eq!(all[1].delivered_at, Timestamp::MIN);
    assert_eq!(all[1].message.body, "");
    assert_eq!(all[1].message.headers[0].name, "\u{fffd}\u{fffd}");
    assert_eq!(all[1].message.headers[1].value, "");
    assert_eq!(all[2].id.key.sequence.offset(), Some(4), "nobody forges an id");
    for one in &all {
        assert_eq!(store.locate(one.id).unwrap().as_ref(), Some(one));
    }
}

#[test]
fn the_state_of_a_record_is_known_by_its_id() {
    let store = open(&ForgetfulDisk::new(), &small());
    let topic = put_topic(&store, "a", 1).id;
    send(&store, append(topic, plain(&["x"], 3))).unwrap();
    let id = read_all(&store, topic)[0].id;
    let mut unknown = id;
    unknown.key.sequence = punctual_model::Sequence::of_offset(1).unwrap();
    let found = store.find(&[id, unknown]).unwrap();
    assert_eq!(found[0].as_ref().map(|found| found.state), Some(State::Delivered));
    assert!(found[1].is_none());
    let known = store.past_in_logs(&[id, unknown]).unwrap();
    let cancel = Request::Cancel(vec![id, unknown], InLogs::Known(known));
    let Ok(Outcome::Cancelled(outcomes)) = store.commit(vec![cancel]).remove(0) else {
        panic!("an answer")
    };
    assert_eq!(outcomes, [CancelOutcome::AlreadyDelivered, CancelOutcome::NotFound]);
}

#[test]
fn offsets_name_what_was_taken_out_and_own_ids_are_stored_once() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small());
    let topic = put_topic(&store, "a", 1).id;
    let named = |body: &str, print| {
        entry(topic, at(500), body)
            .with_extra(|extra| extra.own_id = Some(OwnId { text: "order-1".into(), print }))
    };
    let whole = plain(&["a", "b", "c", "d"], 0);
    let mut first = append(topic, thinned(&whole, &[0, 1, 2]));
    first.entries = vec![(0, named("a", 1)), (1, entry(topic, at(600), "b")), (2, named("a", 1))];
    let answer = send(&store, first.clone()).unwrap();
    assert_eq!(answer.ids.len(), 3);
    assert_eq!(answer.ids[0], answer.ids[2], "one message, two offsets");
    let mut other = first;
    other.entries[2] = (2, named("c", 2));
    let twice = AppendError::OwnIdTaken { index: 2, id: None };
    assert_eq!(Appending::new(other.clone(), at(0)).map(drop), Err(twice));
    other.entries.remove(0);
    let taken = AppendError::OwnIdTaken { index: 1, id: Some(answer.ids[0]) };
    assert_eq!(send(&store, other), Err(taken));
    let mut later = append(topic, thinned(&whole, &[0, 1, 2, 3]));
    later.entries = vec![(3, named("a", 1))];
    later.aliases = vec![(1, answer.ids[1])];
    let known = send(&store, later).unwrap();
    assert_eq!((known.base_offset, &known.ids[..]), (4, &answer.ids[..1]));
    let check = |store: &Store| {
        for (offset, id) in [(0, 0), (1, 1), (2, 0), (7, 0), (5, 1)] {
            let named = store.reserved(place(topic, offset)).unwrap();
            assert_eq!(named, Some(answer.ids[id]), "{offset}");
        }
        assert_eq!(store.reserved(place(topic, 3)).unwrap(), None);
        assert_eq!(store.counts(), [(topic, 2)]);
    };
    check(&store);
    let after = disk.reopen();
    check(&open(&after, &small()));
    store.freeze();
    store.upkeep(at(0), true).unwrap();
    check(&store);
    check(&open(&disk.crash_image(|_| Fate::Lost), &small()));
    assert_eq!(fire(&store, at(1000)).unwrap(), 2);
    assert_eq!(bodies(&store, topic), [(3, "d".into()), (8, "a".into()), (9, "b".into())]);
}

#[test]
fn a_group_settles_records_by_their_offsets_and_passes_over_what_was_taken_out() {
    let disk = ForgetfulDisk::new();
    let mut store = open(&disk, &small());
    let topic = put_topic(&store, "a", 1).id;
    let name = GroupName::new("g").unwrap();
    let put = Request::PutGroup(topic, name, GroupSettings::default(), Start::Earliest);
    let Some(Ok(Outcome::Group(group))) = store.commit(vec![put]).pop() else { panic!("a group") };
    let source = Source { group: group.id, topic, partition: partition(0) };
    schedule(&store, entry(topic, at(1), "fired"));
    fire(&store, at(2)).unwrap();
    send(&store, append(topic, plain(&["a", "b"], 0))).unwrap();
    let whole = plain(&["c", "d", "e"], 0);
    let mut empty = append(topic, thinned(&whole, &[0, 1, 2]));
    empty.entries = (0..3).map(|n| (n, entry(topic, at(900), "later"))).collect();
    send(&store, empty).unwrap();
    let pulled = store.pull(source, 0, 100).unwrap();
    assert_eq!((pulled.messages.len(), pulled.next), (3, 6));
    let marks = pulled
        .messages
        .iter()
        .skip(1)
        .map(|(one, _)| Mark { offset: one.offset, sequence: one.id.key.sequence });
    let settle = GroupChange::Settle(source, marks.collect());
    store.commit(vec![Request::Progress(vec![settle], None)]).remove(0).unwrap();
    for kept in [true, false] {
        // Without the log the fired message comes again, at another offset; the others where they were.
        let after = disk.crash_image(|_| if kept { Fate::Kept } else { Fate::Lost });
        store = open(&after, &small());
        fire(&store, at(2)).unwrap();
        let open: Vec<u64> = store
            .pull(source, 0, 100)
            .unwrap()
            .messages
            .iter()
            .map(|(one, _)| one.offset)
            .collect();
        assert_eq!(open, [if kept { 0 } else { 6 }]);
        let standing = &store.standing(group.id, true).unwrap()[0];
        assert_eq!(standing.cursor, if kept { 0 } else { 6 });
        let id = bodies(&store, topic);
        assert_eq!(id.iter().filter(|(offset, _)| [1, 2].contains(offset)).count(), 2);
    }
}

#[test]
fn a_front_that_was_taken_off_stays_off() {
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &small());
    let topic = put_topic(&store, "a", 1).id;
    let body = "x".repeat(300);
    for n in 0..12 {
        send(&store, append(topic, plain(&[&body, &body], 100 - n))).unwrap();
    }
    let first = read_all(&store, topic)[0].id;
    let trim =
        |store: &Store, offset| store.commit(vec![Request::Trim(place(topic, offset))]).remove(0);
    assert!(matches!(trim(&store, 15), Ok(Outcome::Trimmed(15))));
    assert!(matches!(trim(&store, 3), Ok(Outcome::Trimmed(15))), "never back");
    let past = trim(&store, 25).unwrap_err();
    let bounds = LogBounds { start: 15, end: 24 };
    assert!(
        matches!(past, punctual_engine::store::CommitError::Slice(SliceError::OutOfRange(found)) if found == bounds)
    );
    let check = |store: &Store| {
        assert_eq!(store.logs().bounds(topic, partition(0)).unwrap(), bounds);
        assert_eq!(bodies(store, topic)[0].0, 15);
        assert_eq!(store.locate(first).unwrap(), None);
        let out = store.logs().slice(place(topic, 14), 9).unwrap_err();
        assert_eq!(out, SliceError::OutOfRange(bounds));
        assert!(store.logs().slice(place(topic, 15), 9).unwrap().length > 600);
        let latest = store.logs().latest(topic, partition(0)).unwrap().unwrap();
        // The largest time was taken off with the first batches.
        let millis = i64::try_from(START_MS + 94).unwrap();
        assert_eq!(latest, Stamped { offset: 15, millis });
        assert_eq!(store.logs().first_since(topic, partition(0), 0).unwrap().unwrap().offset, 15);
    };
    check(&store);
    check(&open(&disk.crash_image(|_| Fate::Lost), &small()));
    store.checkpoint(at(0)).unwrap();
    store.checkpoint(at(0)).unwrap();
    let files = |disk: &ForgetfulDisk| disk.files().iter().filter(|f| f.ends_with(".log")).count();
    let before = files(&disk);
    store.maintain(at(0)).unwrap();
    assert!(files(&disk) < before, "whole segments are gone");
    check(&store);
    check(&open(&disk.crash_image(|_| Fate::Lost), &small()));
    assert!(matches!(trim(&store, 24), Ok(Outcome::Trimmed(24))));
    store.checkpoint(at(0)).unwrap();
    store.checkpoint(at(0)).unwrap();
    store.maintain(at(0)).unwrap();
    store.maintain(at(0)).unwrap();
    let after = disk.crash_image(|_| Fate::Lost);
    let store = open(&after, &small());
    assert_eq!(store.logs().bounds(topic, partition(0)).unwrap(), LogBounds { start: 24, end: 24 });
    assert_eq!(send(&store, append(topic, plain(&["y"], 0))).unwrap().base_offset, 24);
}

#[test]
fn times_of_producers_may_be_in_any_order() {
    let disk = ForgetfulDisk::new();
    let mut store = open(&disk, &small());
    let topic = put_topic(&store, "a", 1).id;
    let mut dice = Dice(5);
    let body = "x".repeat(100);
    for n in 0..60 {
        if n % 9 == 8 {
            schedule(&store, entry(topic, at(500), "fired"));
            assert_eq!(fire(&store, at(501 + n)).unwrap(), 1);
        } else {
            let how = Compression::ALL[dice.place(5)];
            let bytes = batch(&[&body, "b", "c"], dice.below(1000), NOBODY, how);
            send(&store, append(topic, bytes)).unwrap();
        }
    }
    for round in 0..4 {
        let all = read_all(&store, topic);
        let millis = |one: &punctual_model::ports::Delivered| {
            i64::try_from(one.delivered_at.as_millis()).unwrap()
        };
        for since in (0..1005).step_by(7).map(|n| i64::try_from(START_MS + n).unwrap()) {
            let expected = all.iter().find(|one| millis(one) >= since);
            let expected = expected.map(|one| Stamped { offset: one.offset, millis: millis(one) });
            let found = store.logs().first_since(topic, partition(0), since).unwrap();
            assert_eq!(found, expected, "round {round}, since {since}");
        }
        let largest = all.iter().map(millis).max().unwrap();
        let latest = store.logs().latest(topic, partition(0)).unwrap().unwrap();
        let first = all.iter().find(|one| millis(one) == largest).unwrap();
        assert_eq!(latest, Stamped { offset: first.offset, millis: largest }, "round {round}");
        for one in &all {
            assert_eq!(store.locate(one.id).unwrap().as_ref(), Some(one), "round {round}");
        }
        match round {
            0 => store.maintain(at(2000)).unwrap(),
            1 => store.checkpoint(at(2000)).unwrap(),
            _ => store = open(&disk.crash_image(|_| Fate::Lost), &small()),
        }
    }
}

#[test]
fn segments_are_as_old_as_their_appends_and_go_by_their_largest_time() {
    let log = LogOptions { segment_age: Span::from_secs(60), ..small().log };
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &Options { log, ..small() });
    let name = TopicName::new("a").unwrap();
    let retention = Some(Span::from_secs(100));
    let settings = TopicSettings { partitions: 1, retention, ..TopicSettings::default() };
    let put = Request::PutTopic(name, settings);
    let Ok(Outcome::Topic(topic)) = store.commit(vec![put]).remove(0) else { panic!("a topic") };
    let topic = topic.id;
    // Ancient times do not make a segment old.
    let old = BatchWriter::new(Opening { base_timestamp: 5, ..Opening::default() });
    for now in [0, 10, 59_999] {
        let mut old = old.clone();
        old.push(&NewRecord::default());
        let bytes = old.finish().unwrap();
        store.commit(vec![request(append(topic, bytes), at(now))]).remove(0).unwrap();
    }
    let logs = |disk: &ForgetfulDisk| disk.files().iter().filter(|f| f.ends_with(".log")).count();
    assert_eq!(logs(&disk), 1);
    let late = request(append(topic, plain(&["x"], 61_000)), at(60_000));
    store.commit(vec![late]).remove(0).unwrap();
    assert_eq!(logs(&disk), 2);
    store.checkpoint(at(0)).unwrap();
    store.checkpoint(at(0)).unwrap();
    store.maintain(at(100_000)).unwrap();
    let start = |store: &Store| store.logs().bounds(topic, partition(0)).unwrap().start;
    assert_eq!(start(&store), 3, "the first segment is ancient");
    store.maintain(at(161_000)).unwrap();
    assert_eq!(start(&store), 3);
    store.maintain(at(161_001)).unwrap();
    assert_eq!(start(&store), 4);
}

#[test]
fn a_full_disk_refuses_a_batch_and_leaves_everything_as_it_was() {
    let sizes = [10, 400, 900];
    let mut refused = 0;
    'fault: for n in 1..60 {
        let disk = ForgetfulDisk::new();
        let store = open(&disk, &small());
        let topic = put_topic(&store, "a", 1).id;
        let mut expected = Vec::new();
        let mut sequence = 0;
        disk.fail_at(disk.ops() + n, Fault::NoSpace, false);
        for round in 0..8_usize {
            let body = format!("{round}{}", "x".repeat(sizes[round % 3]));
            let whole = of(&[&body, "later"], numbered(sequence, 0));
            let mut append = append(topic, whole.clone());
            if round % 2 == 1 {
                append.batch = thinned(&whole, &[1]);
                append.entries.push((1, entry(topic, at(9), "later")));
            }
            let mut tries = 0;
            let appended = loop {
                match send(&store, append.clone()) {
                    Ok(appended) => break appended,
                    Err(AppendError::Store(StoreError::Full)) if tries < 3 => {
                        // What follows does not overtake it.
                        let after = of(&["z"], numbered(sequence + 2, 0));
                        let early = send(&store, records_support::append(topic, after));
                        assert_ne!(early.map(|a| a.duplicate), Ok(false), "fault {n}");
                        store.maintain(at(0)).unwrap();
                        refused += 1;
                    }
                    // The journal has its space beforehand; if a write fails all the same, that is the end.
                    Err(AppendError::Store(StoreError::Poisoned(_))) => continue 'fault,
                    Err(error) => panic!("fault {n}, round {round}: {error}"),
                }
                tries += 1;
            };
            assert!(!appended.duplicate);
            expected.push((appended.base_offset, body));
            if round % 2 == 0 {
                expected.push((appended.base_offset + 1, "later".into()));
            }
            sequence += 2;
            if round % 3 == 2 && matches!(store.checkpoint(at(0)), Err(StoreError::Poisoned(_))) {
                continue 'fault;
            }
        }
        assert_eq!(bodies(&store, topic), expected, "fault {n}");
        let store = open(&disk.crash_image(|_| Fate::Lost), &small());
        assert_eq!(bodies(&store, topic), expected, "fault {n}, after a loss of power");
        assert_eq!(store.counts(), [(topic, 4)]);
    }
    assert!(refused > 5, "{refused} batches met a full disk");
}

#[test]
fn a_failed_write_stops_the_store_and_a_restart_has_what_was_answered() {
    for n in 1..40 {
        for fault in [Fault::Eio, Fault::ShortWrite] {
            let disk = ForgetfulDisk::new();
            let store = open(&disk, &small());
            let topic = put_topic(&store, "a", 1).id;
            disk.fail_at(disk.ops() + n, fault, false);
            let mut answered = Vec::new();
            for round in 0..6 {
                let body = format!("{round}{}", "x".repeat(300));
                match send(&store, append(topic, of(&[&body], numbered(round, 0)))) {
                    Ok(appended) => answered.push((appended.base_offset, body)),
                    Err(AppendError::Store(StoreError::Poisoned(_))) => break,
                    Err(error) => panic!("fault {n}: {error}"),
                }
                if round == 3 && store.checkpoint(at(0)).is_err() {
                    break;
                }
            }
            drop(store);
            disk.heal();
            let store = open(&disk.reopen(), &small());
            let found = bodies(&store, topic);
            assert_eq!(found.get(..answered.len()), Some(&answered[..]), "fault {n} {fault:?}");
            let next = i32::try_from(answered.len()).unwrap();
            for sequence in next..next + 2 {
                let body = format!("{sequence}{}", "x".repeat(300));
                send(&store, append(topic, of(&[&body], numbered(sequence, 0)))).unwrap();
            }
            assert_eq!(bodies(&store, topic).len(), answered.len() + 2, "fault {n} {fault:?}");
        }
    }
}

#[test]
fn without_waiting_for_the_disk_a_lost_batch_leaves_its_offsets_to_nobody() {
    let options = Options { durability: Durability::Os, ..small() };
    let disk = ForgetfulDisk::new();
    let store = open(&disk, &options);
    let topic = put_topic(&store, "a", 1).id;
    let big = "x".repeat(5000);
    let used = store.progress();
    send(&store, append(topic, plain(&[&big, "b"], 0))).unwrap();
    send(&store, append(topic, plain(&["c"], 0))).unwrap();
    assert!(!store.is_far_from(used));
    let journal_kept = |change: &punctual_testkit::forgetful::Unsynced| {
        if change.path.starts_with("topics") && !change.is_name { Fate::Lost } else { Fate::Kept }
    };
    let after = disk.crash_image(journal_kept);
    let store = open(&after, &options);
    assert_eq!(bodies(&store, topic), []);
    assert_eq!(store.logs().bounds(topic, partition(0)).unwrap(), LogBounds { start: 0, end: 3 });
    assert_eq!(send(&store, append(topic, plain(&["d"], 0))).unwrap().base_offset, 3);
    let killed = open(&disk.reopen(), &options);
    assert_eq!(bodies(&killed, topic).len(), 3);
}
