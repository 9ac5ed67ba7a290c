//! Messages that are with consumers: their spans end with the ack, the nack or the lease.
//!
//! Never more than [`OPEN_MAX`]; then the one whose lease ends first gives way.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use punctual_broker::group::Receipt;

use crate::trace::context::Context;
use crate::trace::span::Draft;

/// Most spans that wait for their end.
pub(super) const OPEN_MAX: usize = 64 << 10;

/// A span that waits for its end.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) draft: Draft,
    pub(super) context: Context,
    pub(super) topic: String,
    pub(super) since: Duration,
    /// When the lease ends, by the wall clock.
    pub(super) until: Duration,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct OpenSpans {
    by_receipt: HashMap<Receipt, Open>,
    by_end: BTreeSet<(Duration, Receipt)>,
}

impl OpenSpans {
    /// Adds one; the one that gave way, if one had to.
    pub(super) fn insert(&mut self, receipt: Receipt, open: Open) -> Option<Open> {
        let crowded = self.by_receipt.len() >= OPEN_MAX;
        let first = self.by_end.first().filter(|_| crowded).map(|(_, receipt)| *receipt);
        let gone = first.and_then(|receipt| self.remove(&receipt));
        self.by_end.insert((open.until, receipt));
        self.by_receipt.insert(receipt, open);
        gone
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, receipt: &Receipt) -> Option<Open> {
        let open = self.by_receipt.remove(receipt)?;
        self.by_end.remove(&(open.until, *receipt));
        Some(open)
    }

    /// A lease has a new end.
    pub(super) fn extend(&mut self, receipt: &Receipt, until: Duration) {
        if let Some(open) = self.by_receipt.get_mut(receipt) {
            self.by_end.remove(&(open.until, *receipt));
            open.until = until;
            self.by_end.insert((until, *receipt));
        }
    }

    /// Takes out one whose lease has ended.
    pub(super) fn ended(&mut self, now: Duration) -> Option<Open> {
        let (_, receipt) = self.by_end.first().filter(|(until, _)| *until <= now).copied()?;
        self.remove(&receipt)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

    use super::*;

    fn receipt(number: usize) -> Receipt {
        format!("{number:035}0").parse().unwrap()
    }

    fn open(until: u64) -> Open {
        let context = Context { trace: 1, span: 2, sampled: true };
        let draft = Draft::new(("deliver", "orders"), SpanKind::Consumer, context, None);
        let (since, until) = (Duration::ZERO, Duration::from_secs(until));
        Open { draft, context, topic: "orders".to_owned(), since, until }
    }

    #[test]
    fn what_was_not_settled_ends_with_its_lease() {
        let mut spans = OpenSpans::default();
        for (number, until) in [(1, 30), (2, 10), (3, 20)] {
            assert!(spans.insert(receipt(number), open(until)).is_none());
        }
        spans.extend(&receipt(2), Duration::from_secs(40));
        assert!(spans.remove(&receipt(1)).is_some());
        let ended = |spans: &mut OpenSpans, now| {
            spans.ended(Duration::from_secs(now)).map(|open| open.until.as_secs())
        };
        assert_eq!(ended(&mut spans, 19), None);
        assert_eq!(ended(&mut spans, 20), Some(20));
        assert_eq!(ended(&mut spans, 39), None);
        assert_eq!(ended(&mut spans, 40), Some(40));
        assert!(spans.by_receipt.is_empty() && spans.by_end.is_empty());
    }

    #[test]
    fn never_more_than_so_many_are_open() {
        let mut spans = OpenSpans::default();
        for number in 0..OPEN_MAX {
            assert!(spans.insert(receipt(number), open(100)).is_none());
        }
        let first = spans.insert(receipt(OPEN_MAX), open(50)).unwrap();
        assert_eq!(first.until.as_secs(), 100);
        let second = spans.insert(receipt(OPEN_MAX + 1), open(100)).unwrap();
        assert_eq!(second.until.as_secs(), 50, "the one that ends first gives way");
        assert_eq!(spans.by_receipt.len(), OPEN_MAX);
    }
}
