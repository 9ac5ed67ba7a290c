//! Is every batch refused that no honest client sends, and does nothing of it stay?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod kafka;
mod support;

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use kafka::Client;
use kafka::batches::{Draft, PRODUCE, batch, opening, record, records, request};
use punctual_kafka_wire::messages::produce::ProduceRequest;
use punctual_kafka_wire::records::{Compression, HEADER_BYTES, Opening};
use support::Server;

const CORRUPT: i16 = 2;
const TOO_LARGE: i16 = 10;
const INVALID_TIMESTAMP: i16 = 32;
const UNSUPPORTED_COMPRESSION: i16 = 76;
const INVALID_RECORD: i16 = 87;

const LENGTH: usize = 8;
const MAGIC: usize = 16;
const CRC: usize = 17;
const ATTRIBUTES: usize = 21;
const LAST_DELTA: usize = 23;
const BASE_TIMESTAMP: usize = 27;
const PRODUCER_ID: usize = 43;
const COUNT: usize = 57;

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
    i64::try_from(since.as_millis()).expect("a time")
}

fn good() -> Vec<u8> {
    batch(opening(now(), Compression::None), &[record("a"), record("b")]).to_vec()
}

/// The batch with other bytes at a place, and a checksum that fits.
fn with(at: usize, bytes: &[u8]) -> Bytes {
    let mut batch = good();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    mended(batch)
}

fn mended(mut batch: Vec<u8>) -> Bytes {
    let length = i32::try_from(batch.len() - 12).expect("a small batch");
    batch[LENGTH..LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
    batch[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// A batch whose records are these bytes, whatever they are.
fn packed(compression: Compression, packed: &[u8]) -> Bytes {
    let mut bytes = batch(opening(now(), compression), &[record("a")]).to_vec();
    bytes.truncate(HEADER_BYTES);
    bytes.extend_from_slice(packed);
    mended(bytes)
}

#[test]
fn batches_that_are_not_in_order_are_refused() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let mut flipped = good();
    flipped[70] ^= 1;
    let mut twice = good();
    twice.extend_from_slice(&good());
    let mut stray = good();
    stray.extend_from_slice(b"stray");
    let year = i64::from(365 * 24 * 3600) * 1000;
    let cases: Vec<(&str, Bytes, i16)> = vec![
        ("a wrong checksum", flipped.into(), CORRUPT),
        ("a cut batch", good()[..70].to_vec().into(), CORRUPT),
        ("half a header", good()[..30].to_vec().into(), CORRUPT),
        ("another format", with(MAGIC, &[1]), INVALID_RECORD),
        ("two batches", twice.into(), INVALID_RECORD),
        ("bytes behind the batch", stray.clone().into(), INVALID_RECORD),
        ("bytes behind the records", mended(stray), INVALID_RECORD),
        ("a control batch", with(ATTRIBUTES, &[0, 1 << 5]), INVALID_RECORD),
        ("a transactional batch", with(ATTRIBUTES, &[0, 1 << 4]), INVALID_RECORD),
        ("the time of the append", with(ATTRIBUTES, &[0, 1 << 3]), INVALID_TIMESTAMP),
        ("a compression of nobody", with(ATTRIBUTES, &[0, 6]), UNSUPPORTED_COMPRESSION),
        ("too few records", with(COUNT, &3_i32.to_be_bytes()), INVALID_RECORD),
        ("too many records", with(COUNT, &1_i32.to_be_bytes()), INVALID_RECORD),
        ("no records", with(COUNT, &0_i32.to_be_bytes()), INVALID_RECORD),
        ("a negative count", with(COUNT, &(-1_i32).to_be_bytes()), INVALID_RECORD),
        ("the largest count", with(COUNT, &i32::MAX.to_be_bytes()), INVALID_RECORD),
        ("a gap at the end", with(LAST_DELTA, &5_i32.to_be_bytes()), INVALID_RECORD),
        ("the largest gap", with(LAST_DELTA, &i32::MAX.to_be_bytes()), INVALID_RECORD),
        ("a producer without sequence", with(PRODUCER_ID, &5_i64.to_be_bytes()), INVALID_RECORD),
        ("the far future", with(BASE_TIMESTAMP, &(now() + year).to_be_bytes()), INVALID_TIMESTAMP),
        ("the end of time", with(BASE_TIMESTAMP, &i64::MAX.to_be_bytes()), INVALID_TIMESTAMP),
        ("before all time", with(BASE_TIMESTAMP, &i64::MIN.to_be_bytes()), INVALID_TIMESTAMP),
        ("records that are no gzip", packed(Compression::Gzip, b"not gzip"), INVALID_RECORD),
        ("records that are no snappy", packed(Compression::Snappy, b"\xff\xff"), INVALID_RECORD),
        ("records that are no lz4", packed(Compression::Lz4, b"not lz4"), INVALID_RECORD),
        ("records that are no zstd", packed(Compression::Zstd, b"not zstd"), INVALID_RECORD),
        ("nothing", Bytes::new(), INVALID_RECORD),
    ];
    for (what, batch, code) in cases {
        let answer = client.produce("t", 0, batch);
        assert_eq!((answer.error_code, answer.base_offset), (code, -1), "{what}: {answer:?}");
        assert!(answer.error_message.is_some(), "{what}");
    }
    let mut missing = request("t", 0, Bytes::new());
    missing.topic_data[0].partition_data[0].records = None;
    let response = client.call(PRODUCE, &missing);
    assert_eq!(response.responses[0].partition_responses[0].error_code, INVALID_RECORD);
    // The connection is as good as before, and nothing is in the log.
    let answer = client.produce("t", 0, good().into());
    assert_eq!((answer.error_code, answer.base_offset), (0, 0));
    assert_eq!(records(&client.fetch("t", 0, 0)).len(), 2);
}

#[test]
fn every_byte_of_a_batch_may_be_wrong() {
    let server = Server::with(&[("store.durability", "os")]);
    let mut client = Client::connect(&server);
    let sent = [record("a").header("punctual-delay", "1h"), record("b").key("k")];
    let good = batch(opening(now(), Compression::None), &sent);
    for at in ATTRIBUTES..good.len() {
        for byte in [0x00, 0x7f, 0x80, 0xff] {
            let mut bad = good.to_vec();
            bad[at] = byte;
            let crc = crc32c::crc32c(&bad[ATTRIBUTES..]);
            bad[CRC..CRC + 4].copy_from_slice(&crc.to_be_bytes());
            // Refused or taken: it is answered, and what follows is too.
            client.send(PRODUCE, &request("t", 0, bad.into()));
        }
        for _ in 0..4 {
            client.receive::<ProduceRequest>(PRODUCE);
        }
    }
    assert_eq!(client.produce("t", 0, good).error_code, 0);
}

#[test]
fn bombs_are_refused() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let zeros = vec![0; 40 << 20];
    for compression in [Compression::Gzip, Compression::Lz4, Compression::Zstd, Compression::Snappy]
    {
        let bomb = compression.pack(&zeros).expect("it shrinks");
        let answer = client.produce("t", 0, packed(compression, &bomb));
        assert_eq!(answer.error_code, TOO_LARGE, "{compression:?}: {answer:?}");
    }
}

#[test]
fn what_is_too_large_is_refused() {
    let server = Server::with(&[("limits.body_bytes_max", "64KiB")]);
    let mut client = Client::connect(&server);
    let now = now();
    let mut send = |records: &[Draft], compression| {
        let answer = client.produce("t", 0, batch(opening(now, compression), records));
        let place = answer.record_errors.first().map(|error| error.batch_index);
        (answer.error_code, place)
    };
    let value = |bytes: usize| Draft { value: Some(vec![b'x'; bytes]), ..Draft::default() };
    for compression in Compression::ALL {
        assert_eq!(send(&[record("a"), value(64 << 10)], compression), (0, None));
        assert_eq!(send(&[record("a"), value((64 << 10) + 1)], compression), (TOO_LARGE, Some(1)));
    }
    let delayed = value((64 << 10) + 1).header("x-delay", "1");
    assert_eq!(send(&[delayed], Compression::None), (TOO_LARGE, Some(0)));
    // What stays in its batch may have more around its value than what is taken out.
    let key = Draft { key: Some(vec![b'k'; (32 << 10) + 1]), ..record("a") };
    assert_eq!(send(std::slice::from_ref(&key), Compression::None), (0, None));
    assert_eq!(send(&[key.header("x-delay", "1")], Compression::None), (TOO_LARGE, Some(0)));
    let large = record("a").header("h", &"v".repeat(64 << 10));
    assert_eq!(send(std::slice::from_ref(&large), Compression::None), (0, None));
    assert_eq!(send(&[large.header("x-delay", "1")], Compression::None), (TOO_LARGE, Some(0)));
    let larger = record("a").header("h", &"v".repeat(160 << 10));
    assert_eq!(send(&[larger], Compression::None), (TOO_LARGE, Some(0)));
    let many = |count| (0..count).fold(record("a"), |draft, _| draft.header("h", "v"));
    assert_eq!(send(&[many(1024)], Compression::None), (0, None));
    assert_eq!(send(&[many(1025)], Compression::None), (INVALID_RECORD, Some(0)));
    let delayed = many(257).header("x-delay", "1");
    assert_eq!(send(&[delayed], Compression::None), (INVALID_RECORD, Some(0)));
}

#[test]
fn zstandard_is_for_versions_that_know_it() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let bytes = batch(opening(now(), Compression::Zstd), &[record("a")]);
    let response = client.call(6, &request("t", 0, bytes.clone()));
    let answer = &response.responses[0].partition_responses[0];
    assert_eq!(answer.error_code, UNSUPPORTED_COMPRESSION);
    assert_eq!(
        client.call(7, &request("t", 0, bytes)).responses[0].partition_responses[0].error_code,
        0
    );
}

#[test]
fn a_largest_timestamp_that_is_not_the_largest_is_put_right() {
    let server = Server::start();
    let mut client = Client::connect(&server);
    let now = now();
    let mut wrong = batch(opening(now, Compression::None), &[record("a"), record("b")]).to_vec();
    wrong[35..43].copy_from_slice(&(now - 5000).to_be_bytes());
    assert_eq!(client.produce("t", 0, mended(wrong)).error_code, 0);
    let stored = client.fetch("t", 0, 0);
    assert_eq!(stored[0].header().max_timestamp, now + 1);
    // Records without a time are taken as they are.
    let timeless = batch(Opening::default(), &[record("c")]);
    assert_eq!(client.produce("t", 0, timeless).error_code, 0);
    let stored = records(&client.fetch("t", 0, 2));
    assert_eq!(stored[0].timestamp, -1);
}
