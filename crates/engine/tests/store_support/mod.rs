//! What the tests of the whole store share: small sizes, workloads as steps, and a ledger that
//! knows what the store has promised at every moment.
//!
//! The ledger knows only what a client knows: what it asked for, what it was told, and when. It
//! never looks into the store.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test file uses a part of this, and a failed set-up may stop a test"
)]

pub mod crash;
pub mod ledger;
pub mod look;
pub mod runner;
pub mod steps;

use std::sync::Arc;

use bytes::Bytes;
use punctual_engine::log::LogOptions;
use punctual_engine::store::{OpenError, Store};
use punctual_engine::{Durability, Options};
use punctual_model::{Message, Span, Timestamp};
use punctual_testkit::forgetful::ForgetfulDisk;

/// The moment from which the tests count, in milliseconds.
pub const START_MS: u64 = 1_800_000_000_000;

/// The moment `millis` after the start.
pub fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis_saturating(START_MS + millis)
}

/// Sizes so small that everything happens within a few messages.
pub fn small() -> Options {
    Options {
        durability: Durability::Fsync,
        table_bytes: 1500,
        near_bytes: 1200,
        journal_file_bytes: 32 << 10,
        reserve_bytes: 8 << 10,
        block_bytes: 256,
        runs_max: 3,
        horizon: Span::from_secs(5),
        log: LogOptions {
            segment_bytes: 2 << 10,
            segment_age: Span::from_days(1),
            index_interval_bytes: 256,
        },
        ..Options::default()
    }
}

/// Opens the store on `disk`, which the caller goes on sharing.
pub fn open(disk: &ForgetfulDisk, options: &Options) -> Result<Store, OpenError> {
    Store::open(Arc::new(disk.clone()), options.clone())
}

/// A message that tells its number and is of a size of its own.
pub fn message(number: usize) -> Message {
    let length = [0, 20, 90, 30, 200, 45, 130, 10][number % 8];
    let body = format!("{number}:{}", "x".repeat(length));
    let key = (number % 3 == 1).then(|| Bytes::from(format!("key-{}", number % 5)));
    Message { key, headers: Vec::new(), body: Bytes::from(body) }
}

/// Small random numbers, the same on every machine.
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// A place in something of that length.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    /// True so many times in a hundred.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// A number from the environment, for whoever wants more or fewer rounds.
#[expect(clippy::disallowed_methods, reason = "the size of a test run is asked for by its caller")]
pub fn scaled(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}
