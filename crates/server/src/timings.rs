//! How long callers wait: for what they schedule to be safe, and for messages that are there.
//!
//! Each request counts once, or on a stream each batch. What was refused does not count: a refusal is
//! quick, and would make the rest look better than it is.

use punctual_model::{Buckets, Histogram};
use tokio::time::Instant;

/// Upper bounds of the buckets, in microseconds.
const BOUNDS_MICROS: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000, 60_000_000,
];

/// The way by which somebody calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Via {
    Http,
    Grpc,
    Kafka,
}

impl Via {
    /// All there are.
    pub(crate) const ALL: [Self; 3] = [Self::Http, Self::Grpc, Self::Kafka];

    /// As metrics name it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
            Self::Kafka => "kafka",
        }
    }
}

/// Times of one kind of call, by the way it came.
#[derive(Debug)]
pub(crate) struct Waits([Histogram; Via::ALL.len()]);

impl Default for Waits {
    fn default() -> Self {
        Self(Via::ALL.map(|_| Histogram::new(&BOUNDS_MICROS)))
    }
}

impl Waits {
    /// A call that began then has been answered.
    pub(crate) fn note(&self, via: Via, begun: Instant) {
        let [http, grpc, kafka] = &self.0;
        let histogram = match via {
            Via::Http => http,
            Via::Grpc => grpc,
            Via::Kafka => kafka,
        };
        histogram.note(begun.elapsed());
    }

    /// What was counted so far, for each way.
    pub(crate) fn read(&self) -> impl Iterator<Item = (Via, Buckets)> {
        Via::ALL.into_iter().zip(self.0.iter().map(Histogram::read))
    }
}

/// How long callers wait.
#[derive(Debug, Default)]
pub(crate) struct Timings {
    /// From when a request to schedule had arrived until it was durable and its answer made.
    pub(crate) schedule: Waits,
    /// From when messages were asked for, or the waiting call was woken for them, until they were
    /// handed to the connection.
    pub(crate) receive: Waits,
}
