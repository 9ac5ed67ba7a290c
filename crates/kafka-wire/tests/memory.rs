//! Reading a request takes no more memory than a small multiple of its bytes, whatever they claim.
//!
//! What is counted is what the whole program allocates, so this file has a single test.

use std::alloc::System;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use punctual_kafka_wire::api::{APIS, Api, api};
use punctual_kafka_wire::codec::LengthForm;
use punctual_kafka_wire::{Reader, WireError, Writer};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What all allocations may take together: arrays up to sixteen times the body, texts, and all of it
/// written again, in a buffer that grows by doubling.
const BYTES_PER_BODY_BYTE: usize = 24;
/// What they may take whatever the size of the body.
const BYTES_FLOOR: usize = 96 * 1024;

#[test]
fn requests_take_memory_in_proportion_to_their_size() {
    array_claims();
    tiny_elements();
    bodies(&proptest::collection::vec(any::<u8>(), 0..600));
    bodies(&proptest::collection::vec(0_u8..4, 0..600));
    for api in APIS {
        for version in api.versions.clone() {
            assert_frugal(api, version, &vec![1; 300_000]);
            assert_frugal(api, version, &vec![0; 300_000]);
        }
    }
}

/// Wherever the first array or text starts within the first bytes, it claims two billion elements.
fn array_claims() {
    for api in APIS {
        for version in api.versions.clone() {
            for before in 0..24 {
                let mut body = vec![0; before];
                body.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f]);
                assert_frugal(api, version, &body);
            }
        }
    }
}

/// Texts of no letters take one byte each in the body, and 24 in memory.
fn tiny_elements() {
    const DESCRIBE_GROUPS: i16 = 15;
    let body = |count: usize| {
        let mut writer = Writer::default();
        writer.length(Some(count), LengthForm::Compact).expect("it is no more than the form holds");
        writer.bytes(&vec![1; count]);
        writer.bytes(&[0, 0]);
        writer.into_bytes().expect("there is no gap")
    };
    let api = api(DESCRIBE_GROUPS).expect("it stands in the table");
    assert_eq!(api.reencode(&mut Reader::new(body(1000)), 5), Ok(body(1000)));
    let many = body(300_000);
    assert_eq!(api.reencode(&mut Reader::new(many.clone()), 5), Err(WireError::Budget));
    assert_frugal(api, 5, &many);
}

fn bodies(bodies: &impl Strategy<Value = Vec<u8>>) {
    let mut runner = TestRunner::new(ProptestConfig::with_cases(48));
    let outcome = runner.run(bodies, |body| {
        for api in APIS {
            for version in api.versions.clone() {
                assert_frugal(api, version, &body);
            }
        }
        Ok(())
    });
    assert_eq!(outcome, Ok(()));
}

fn assert_frugal(api: &Api, version: i16, body: &[u8]) {
    let frame = Bytes::copy_from_slice(body);
    let region = Region::new(ALLOCATOR);
    let _outcome = api.reencode(&mut Reader::new(frame), version);
    let taken = region.change().bytes_allocated;
    let ceiling = BYTES_PER_BODY_BYTE * body.len() + BYTES_FLOOR;
    assert!(
        taken <= ceiling,
        "{} in version {version} took {taken} bytes for {} bytes: {:?}",
        api.name,
        body.len(),
        body.get(..64)
    );
}
