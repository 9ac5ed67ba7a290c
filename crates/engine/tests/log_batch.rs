//! The batch format: exact bytes out, and no harm from any bytes in.

mod log_support;

use bytes::Bytes;
use log_support::*;
use proptest::prelude::*;
use punctual_engine::log::batch::{Batch, BatchError, BatchWriter, HEADER_BYTES};
use punctual_model::Message;

fn encode(messages: &[Message]) -> Vec<u8> {
    let mut writer = BatchWriter::default();
    writer.clear();
    for (sequence, message) in (0..).zip(messages) {
        assert!(writer.push(&armed(sequence, 3, message.clone())));
    }
    writer.finish(42, at(1_700_000_000_000)).to_vec()
}

fn decode(bytes: Vec<u8>) -> Result<Vec<Message>, BatchError> {
    let batch = Batch::check(Bytes::from(bytes))?.open(topic(TOPIC), partition(3));
    batch
        .records()
        .map(|record| record.and_then(|record| batch.delivered(&record)))
        .map(|delivered| delivered.map(|delivered| delivered.message))
        .collect()
}

/// Puts the right checksum over whatever the bytes are.
fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[21..]).to_be_bytes();
    bytes[17..21].copy_from_slice(&crc);
}

#[test]
fn the_header_is_as_the_format_says() {
    let bytes = encode(&[body("a"), body("b")]);
    let (head, _) = bytes.split_at(HEADER_BYTES);
    assert_eq!(head[..8], 42_i64.to_be_bytes());
    assert_eq!(head[8..12], (i32::try_from(bytes.len()).unwrap() - 12).to_be_bytes());
    assert_eq!(head[12..17], [0, 0, 0, 0, 2]);
    assert_eq!(head[17..21], crc32c::crc32c(&bytes[21..]).to_be_bytes());
    assert_eq!(head[21..27], [0, 8, 0, 0, 0, 1]);
    assert_eq!(head[27..35], 1_700_000_000_000_i64.to_be_bytes());
    assert_eq!(head[35..43], 1_700_000_000_000_i64.to_be_bytes());
    assert_eq!(head[43..57], [0xff; 14]);
    assert_eq!(head[57..], [0, 0, 0, 2]);
}

fn any_message() -> impl Strategy<Value = Message> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    let headers = prop::collection::vec((".{0,20}", bytes()), 0..5);
    (prop::option::of(bytes()), headers, bytes()).prop_map(|(key, headers, body)| Message {
        key,
        headers: headers.iter().map(|(name, value)| header(name, value)).collect(),
        body,
    })
}

proptest! {
    #[test]
    fn messages_survive_their_bytes(messages in prop::collection::vec(any_message(), 1..20)) {
        prop_assert_eq!(decode(encode(&messages)), Ok(messages));
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(bytes).is_err());
    }

    /// With a right checksum the damage reaches the record reader.
    #[test]
    fn hostile_records_never_panic(
        changes in prop::collection::vec((HEADER_BYTES - 4..400_usize, any::<u8>()), 1..8),
        length in 0..400_usize,
        header_value in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let message = Message { headers: vec![header("name", &header_value)], ..body("content") };
        let mut bytes = encode(&[message.clone(), message]);
        bytes.truncate(bytes.len().min(HEADER_BYTES + length));
        let counted = i32::try_from(bytes.len() - 12).unwrap().to_be_bytes();
        bytes[8..12].copy_from_slice(&counted);
        for (place, byte) in changes {
            if let Some(slot) = bytes.get_mut(place) {
                *slot = byte;
            }
        }
        seal(&mut bytes);
        if let Ok(messages) = decode(bytes) {
            prop_assert!(messages.len() <= 2);
        }
    }
}
