//! Record batches: what is written is read again, by us and by another implementation; hostile bytes
//! are refused without harm, and bombs do not go off.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::{
    Compression as TheirCompression, Record as TheirRecord, RecordBatchDecoder, RecordBatchEncoder,
    RecordEncodeOptions, TimestampType,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use punctual_kafka_wire::records::{
    Attributes, Batch, BatchError, BatchHeader, BatchWriter, Compression, HEADER_BYTES,
    NO_TIMESTAMP, NewRecord, Opening, Unpacked, place, restamp, set_max_timestamp, varint,
};

const BUDGET: usize = 1 << 20;
const BASE: i64 = 1_760_000_000_000;

/// A record that owns its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Own {
    delta: u32,
    time: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn plain(delta: u32, value: &[u8]) -> Own {
    let value = Some(value.to_vec());
    Own { delta, time: i64::from(delta), key: None, value, headers: Vec::new() }
}

fn write_as(opening: Opening, records: &[Own]) -> Bytes {
    let mut writer = BatchWriter::new(opening);
    for record in records {
        let headers: Vec<(&[u8], Option<&[u8]>)> =
            record.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        writer.push(&NewRecord {
            offset_delta: record.delta,
            timestamp_delta: record.time,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: &headers,
        });
    }
    writer.finish().unwrap()
}

fn write(compression: Compression, records: &[Own]) -> Bytes {
    let attributes = Attributes::default().with_compression(compression);
    write_as(Opening { base_timestamp: BASE, attributes, ..Opening::default() }, records)
}

fn unpack(batch: &Bytes) -> Unpacked {
    Batch::check(batch.clone()).unwrap().unpack(BUDGET).unwrap()
}

fn read(unpacked: &Unpacked) -> Result<Vec<Own>, BatchError> {
    let own = |bytes: Option<&[u8]>| bytes.map(<[u8]>::to_vec);
    let records = unpacked.records().map(|record| {
        record.map(|record| Own {
            delta: record.offset_delta,
            time: record.timestamp_delta,
            key: own(record.key),
            value: own(record.value),
            headers: record.headers().map(|(name, value)| (name.to_vec(), own(value))).collect(),
        })
    });
    records.collect()
}

fn any_records() -> impl Strategy<Value = Vec<Own>> {
    let bytes = |most| option::of(vec(any::<u8>(), 0..most));
    let headers = vec((vec(any::<u8>(), 0..12), bytes(20)), 0..4);
    let time = prop_oneof![-5_i64..2_000_000, Just(i64::from(u32::MAX) * 3)];
    let record = (1_u32..4, time, bytes(40), bytes(300), headers);
    vec(record, 0..20).prop_map(|records| {
        let mut next = 0;
        let place = |(step, time, key, value, headers)| {
            next += step;
            Own { delta: next - 1, time, key, value, headers }
        };
        records.into_iter().map(place).collect()
    })
}

fn any_compression() -> impl Strategy<Value = Compression> {
    proptest::sample::select(Compression::ALL.to_vec())
}

/// Computes the checksum of a batch anew, so that damage gets past it.
fn mend(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(records in any_records(), compression in any_compression()) {
        let batch = write(compression, &records);
        let header = BatchHeader::checked(&batch).unwrap();
        prop_assert_eq!(header.count as usize, records.len());
        prop_assert_eq!(header.attributes.compression(), Some(compression));
        let latest = records.iter().map(|record| BASE + record.time).max();
        prop_assert_eq!(header.max_timestamp, latest.unwrap_or(NO_TIMESTAMP));
        prop_assert_eq!(read(&unpack(&batch)), Ok(records));
    }

    #[test]
    fn another_implementation_reads_what_is_written(mut records in any_records()) {
        for record in &mut records {
            // It keeps one header of each name, and wants names to be text.
            record.headers.truncate(1);
            record.headers.iter_mut().for_each(|(name, _)| *name = b"name".to_vec());
        }
        let mut batch = write(Compression::None, &records);
        let decoded = RecordBatchDecoder::decode(&mut batch).unwrap().records;
        prop_assert_eq!(decoded.len(), records.len());
        for (theirs, ours) in decoded.iter().zip(&records) {
            prop_assert_eq!(theirs.offset, i64::from(ours.delta));
            prop_assert_eq!(theirs.timestamp, BASE + ours.time);
            prop_assert_eq!(theirs.key.as_deref(), ours.key.as_deref());
            prop_assert_eq!(theirs.value.as_deref(), ours.value.as_deref());
            let headers: Vec<_> = theirs
                .headers
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_ref().map(|v| v.to_vec())))
                .collect();
            prop_assert_eq!(&headers, &ours.headers);
        }
    }

    #[test]
    fn what_another_implementation_writes_is_read(
        values in vec((option::of(vec(any::<u8>(), 0..20)), vec(any::<u8>(), 0..200)), 1..20),
        producer in 0_i64..1 << 62,
    ) {
        let theirs = |(index, (key, value)): (i32, &(Option<Vec<u8>>, Vec<u8>))| TheirRecord {
            transactional: false,
            control: false,
            partition_leader_epoch: 0,
            producer_id: producer,
            producer_epoch: 3,
            timestamp_type: TimestampType::Creation,
            offset: 70 + i64::from(index),
            sequence: 5 + index,
            timestamp: BASE + i64::from(index),
            key: key.clone().map(Bytes::from),
            value: Some(Bytes::from(value.clone())),
            headers: Default::default(),
            delete_horizon: false,
        };
        let records: Vec<TheirRecord> = (0..).zip(&values).map(theirs).collect();
        let mut out = BytesMut::new();
        let options = RecordEncodeOptions { version: 2, compression: TheirCompression::None };
        RecordBatchEncoder::encode(&mut out, &records, &options).unwrap();
        let batch = Batch::check(out.freeze()).unwrap();
        let header = batch.header();
        prop_assert_eq!(header.base_offset, 70);
        prop_assert_eq!((header.producer_id, header.producer_epoch), (producer, 3));
        prop_assert_eq!(header.base_sequence, 5);
        let ours = read(&batch.unpack(BUDGET).unwrap()).unwrap();
        let parts: Vec<_> = ours.into_iter().map(|own| (own.key, own.value.unwrap())).collect();
        prop_assert_eq!(parts, values);
    }

    #[test]
    fn thinning_keeps_the_rest_as_it_was(
        records in any_records(),
        taken in vec(0_u32..80, 0..20),
        compression in any_compression(),
    ) {
        let mut taken = taken;
        taken.sort_unstable();
        taken.dedup();
        let attributes = Attributes::default().with_compression(compression);
        let opening = Opening {
            base_offset: 9,
            base_timestamp: BASE,
            attributes,
            producer_id: 77,
            producer_epoch: 2,
            base_sequence: 1000,
        };
        let before = unpack(&write_as(opening, &records));
        let thinned = before.thin(&taken).unwrap();
        let after = unpack(&thinned);
        let stays: Vec<Own> =
            records.into_iter().filter(|record| !taken.contains(&record.delta)).collect();
        let latest = stays.iter().map(|record| BASE + record.time).max();
        prop_assert_eq!(after.header().max_timestamp, latest.unwrap_or(NO_TIMESTAMP));
        prop_assert_eq!(read(&after), Ok(stays.clone()));
        let expected = BatchHeader {
            bytes: thinned.len(),
            crc: after.header().crc,
            attributes: Attributes::default(),
            max_timestamp: after.header().max_timestamp,
            count: u32::try_from(stays.len()).unwrap(),
            ..*before.header()
        };
        prop_assert_eq!(*after.header(), expected);
    }

    #[test]
    fn reading_from_the_middle_finds_the_same_records(records in any_records(), from in 0_u32..80) {
        let unpacked = unpack(&write(Compression::None, &records));
        let found: Vec<u32> =
            unpacked.records_from(from).map(|record| record.unwrap().offset_delta).collect();
        let expected: Vec<u32> =
            records.iter().map(|record| record.delta).filter(|delta| *delta >= from).collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn damage_behind_a_right_checksum_is_refused_or_read(
        records in any_records(),
        compression in any_compression(),
        damage in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6),
        cut in 0_usize..8,
    ) {
        let mut batch = write(compression, &records).to_vec();
        for (place, byte) in damage {
            let place = place.index(batch.len());
            batch[place] = byte;
        }
        batch.truncate(batch.len() - cut.min(batch.len() - HEADER_BYTES));
        let length = i32::try_from(batch.len() - 12).unwrap();
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        mend(&mut batch);
        if let Ok(unpacked) = Batch::check(batch.into()).and_then(|batch| batch.unpack(BUDGET)) {
            prop_assert!(unpacked.size() <= BUDGET);
            if let Ok(records) = read(&unpacked) {
                prop_assert_eq!(records.len(), unpacked.header().count as usize);
                unpacked.thin(&[0, 2]).unwrap();
            }
        }
    }

    #[test]
    fn any_bytes_at_all_are_refused_or_within_the_budget(
        bytes in vec(any::<u8>(), 0..400),
        compression in any_compression(),
    ) {
        BatchHeader::checked(&bytes).unwrap_err();
        if let Ok(unpacked) = compression.unpack(&bytes, 1000) {
            prop_assert!(unpacked.len() <= 1000);
        }
    }
}

#[test]
fn bombs_end_at_the_budget() {
    let zeros = vec![0; 4 << 20];
    for compression in Compression::ALL {
        let bomb = compression.pack(&zeros).unwrap();
        assert_eq!(compression.unpack(&bomb, BUDGET), Err(BatchError::TooLarge), "{compression:?}");
    }
    // In the framing of Java clients no block is too large, but all of them are.
    let block = Compression::Snappy.pack(&vec![0; 64 << 10]).unwrap();
    let framed = xerial(std::iter::repeat_n(block.as_slice(), 100));
    assert_eq!(Compression::Snappy.unpack(&framed, BUDGET), Err(BatchError::TooLarge));
}

#[test]
fn a_budget_may_be_used_to_the_last_byte() {
    let records: Vec<u8> = (0..300_000_u32).flat_map(u32::to_be_bytes).collect();
    for compression in Compression::ALL {
        let packed = compression.pack(&records).unwrap();
        assert_eq!(compression.unpack(&packed, records.len()).unwrap(), records, "{compression:?}");
        let short = compression.unpack(&packed, records.len() - 1);
        assert_eq!(short, Err(BatchError::TooLarge), "{compression:?}");
    }
}

#[test]
fn claims_of_snappy_are_not_believed() {
    // A block of six bytes that says it stands for 512 KiB.
    let mut claim = Vec::new();
    varint::put(&mut claim, 512 << 10);
    claim.extend_from_slice(b"abc");
    assert_eq!(Compression::Snappy.unpack(&claim, BUDGET), Err(BatchError::Compressed));
    // A frame that says it has a block of 4 GiB.
    let mut framed = xerial([]);
    framed.extend_from_slice(&[0xff; 8]);
    assert_eq!(Compression::Snappy.unpack(&framed, BUDGET), Err(BatchError::Compressed));
}

fn xerial<'a>(blocks: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut framed = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for block in blocks {
        framed.extend_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes());
        framed.extend_from_slice(block);
    }
    framed
}

#[test]
fn snappy_is_read_with_and_without_the_framing_of_java_clients() {
    let blocks = ["first ", "second ", ""].map(|text| Compression::Snappy.pack(text.as_bytes()));
    let blocks = blocks.map(Result::unwrap);
    let framed = xerial(blocks.iter().map(Vec::as_slice));
    assert_eq!(Compression::Snappy.unpack(&framed, 100).unwrap(), b"first second ");
    assert_eq!(Compression::Snappy.unpack(&blocks[0], 100).unwrap(), b"first ");
    assert_eq!(Compression::Snappy.unpack(&framed[..12], 100), Err(BatchError::Compressed));
}

#[test]
fn lz4_frames_are_read_as_java_and_c_clients_write_them() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    // As the Java client does it: no sizes, no checksums, independent blocks; here one that did not
    // shrink.
    let mut java = b"\x04\x22\x4d\x18\x60\x40\x82".to_vec();
    java.extend_from_slice(&[5, 0, 0, 0x80]);
    java.extend_from_slice(b"hello");
    java.extend_from_slice(&[0; 4]);
    assert_eq!(Compression::Lz4.unpack(&java, 100).unwrap(), b"hello");
    let text: Vec<u8> = (0..90_000_u32).flat_map(|n| (n % 700).to_be_bytes()).collect();
    for mode in [BlockMode::Independent, BlockMode::Linked] {
        for size in [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max4MB] {
            for checked in [false, true] {
                let info = FrameInfo::new()
                    .block_mode(mode)
                    .block_size(size)
                    .block_checksums(checked)
                    .content_checksum(checked)
                    .content_size(checked.then_some(text.len() as u64));
                let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(&text).unwrap();
                let packed = encoder.finish().unwrap();
                assert_eq!(Compression::Lz4.unpack(&packed, BUDGET).unwrap(), text);
            }
        }
    }
}

#[test]
fn gzip_members_and_zstd_frames_may_follow_each_other() {
    for compression in [Compression::Gzip, Compression::Zstd] {
        let mut packed = compression.pack(b"one ").unwrap();
        packed.extend(compression.pack(b"two").unwrap());
        assert_eq!(compression.unpack(&packed, 100).unwrap(), b"one two");
        packed.pop();
        assert_eq!(compression.unpack(&packed, 100), Err(BatchError::Compressed));
    }
}

#[test]
fn repeated_headers_and_empty_and_missing_values_are_kept() {
    let header = |value: Option<&[u8]>| (b"a".to_vec(), value.map(<[u8]>::to_vec));
    let headers = vec![header(Some(b"1")), header(None), header(Some(b"")), header(Some(b"1"))];
    let record = Own { key: Some(Vec::new()), value: None, headers, ..plain(0, b"") };
    let unpacked = unpack(&write(Compression::Gzip, std::slice::from_ref(&record)));
    assert_eq!(read(&unpacked), Ok(vec![record]));
    let first = unpacked.records().next().unwrap().unwrap();
    assert_eq!(first.header(b"a"), Some(Some(&b"1"[..])));
    assert_eq!(first.header(b"b"), None);
}

#[test]
fn counts_and_offsets_that_do_not_fit_are_refused() {
    let good = write(Compression::None, &[plain(0, b"a"), plain(1, b"b")]).to_vec();
    let with = |at: usize, number: i32| {
        let mut batch = good.clone();
        batch[at..at + 4].copy_from_slice(&number.to_be_bytes());
        mend(&mut batch);
        Batch::check(batch.into()).and_then(|batch| read(&batch.unpack(BUDGET)?))
    };
    let (last_delta, count) = (23, 57);
    assert_eq!(with(count, 2).map(|records| records.len()), Ok(2));
    assert_eq!(with(count, 3), Err(BatchError::Header));
    assert_eq!(with(count, -1), Err(BatchError::Header));
    assert_eq!(with(count, i32::MAX), Err(BatchError::Header));
    // A record that the header does not count is bytes that nobody owns.
    assert_eq!(with(count, 1), Err(BatchError::Record));
    assert_eq!(with(count, 0), Err(BatchError::Record));
    assert_eq!(with(last_delta, 0), Err(BatchError::Header));
    assert_eq!(with(last_delta, -1), Err(BatchError::Header));
    assert_eq!(with(last_delta, 7).map(|records| records.len()), Ok(2));
    // Both records say that they are the first one.
    let mut twice = good.clone();
    let record = (good.len() - HEADER_BYTES) / 2;
    twice.copy_within(HEADER_BYTES..HEADER_BYTES + record, HEADER_BYTES + record);
    mend(&mut twice);
    assert_eq!(read(&unpack(&twice.into())), Err(BatchError::Record));
}

#[test]
fn lengths_of_parts_are_held_against_what_remains() {
    // A record of one length, then its parts; each claims more than there is.
    let huge = [0xfe, 0xff, 0xff, 0xff, 0x0f];
    let bodies: [&[&[u8]]; 6] = [
        &[&[0, 0, 0], &huge],
        &[&[0, 0, 0, 1], &huge],
        &[&[0, 0, 0, 1, 1], &huge],
        &[&[0, 0, 0, 1, 1, 2], &huge],
        &[&[0, 0, 0, 1, 1, 2, 2, b'n'], &huge],
        // The name of a header can not be nothing at all.
        &[&[0, 0, 0, 1, 1, 2, 1, 1]],
    ];
    for body in bodies {
        let body = body.concat();
        let mut batch = write(Compression::None, &[plain(0, b"")])[..HEADER_BYTES].to_vec();
        varint::put_bytes(&mut batch, &body);
        let length = i32::try_from(batch.len() - 12).unwrap();
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        mend(&mut batch);
        assert_eq!(read(&unpack(&batch.into())), Err(BatchError::Record), "{body:?}");
    }
}

#[test]
fn every_flipped_bit_under_the_checksum_is_found() {
    let good = write(Compression::None, &[plain(0, b"some value")]).to_vec();
    for bit in 17 * 8..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(BatchHeader::checked(&bad).is_err(), "bit {bit}");
    }
    let cut = BatchHeader::checked(&good[..good.len() - 1]);
    assert_eq!(cut, Err(BatchError::Torn));
    let mut older = good.clone();
    older[16] = 1;
    assert_eq!(BatchHeader::parse(&older), Err(BatchError::Magic));
    let mut more = good;
    more.push(0);
    assert_eq!(Batch::check(more.into()).err(), Some(BatchError::Header));
}

#[test]
fn a_place_in_the_log_leaves_the_checksum_right() {
    let mut batch = write(Compression::Zstd, &[plain(0, b"a"), plain(1, b"b")]).to_vec();
    place(&mut batch, 1 << 40, 7);
    let header = BatchHeader::checked(&batch).unwrap();
    assert_eq!((header.base_offset, header.leader_epoch), (1 << 40, 7));
    assert_eq!(header.last_offset(), (1 << 40) + 1);
}

#[test]
fn restamped_records_all_have_the_time_of_the_append() {
    for compression in Compression::ALL {
        let mut batch = write(compression, &[plain(0, b"a"), plain(1, b"b")]).to_vec();
        restamp(&mut batch, BASE + 500);
        let unpacked = unpack(&batch.into());
        assert!(unpacked.header().attributes.log_append_time());
        assert!(unpacked.header().attributes.restamped());
        assert_eq!(unpacked.header().attributes.compression(), Some(compression));
        for record in unpacked.records() {
            assert_eq!(record.unwrap().timestamp(unpacked.header()), BASE + 500);
        }
    }
    let mut batch = write(Compression::None, &[plain(0, b"a"), plain(1, b"b")]).to_vec();
    set_max_timestamp(&mut batch, BASE + 9);
    let unpacked = unpack(&batch.into());
    assert_eq!(unpacked.header().max_timestamp, BASE + 9);
    assert_eq!(unpacked.records().next().unwrap().unwrap().timestamp(unpacked.header()), BASE);
}

#[test]
fn patches_leave_alone_what_is_no_batch() {
    let mut short = [1; HEADER_BYTES - 1];
    place(&mut short, 5, 5);
    restamp(&mut short, 5);
    set_max_timestamp(&mut short, 5);
    assert_eq!(short, [1; HEADER_BYTES - 1]);
}

#[test]
fn an_empty_batch_takes_its_offsets() {
    let records: Vec<Own> = (0..5).map(|delta| plain(delta, b"later")).collect();
    let thinned = unpack(&write(Compression::Lz4, &records)).thin(&[0, 1, 2, 3, 4]).unwrap();
    assert_eq!(thinned.len(), HEADER_BYTES);
    let header = BatchHeader::checked(&thinned).unwrap();
    assert_eq!((header.count, header.last_offset_delta), (0, 4));
    assert_eq!((header.base_timestamp, header.max_timestamp), (BASE, NO_TIMESTAMP));
    assert_eq!(read(&unpack(&thinned)), Ok(Vec::new()));
}
