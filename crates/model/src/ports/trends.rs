//! Where figures are kept that outlive a process: what was counted, and how it went over time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::StoreError;
use crate::time::{Span, Timestamp};

/// What one point of a trend covers. Points start at whole multiples of it.
pub const POINT_SPAN: Span = Span::from_secs(600);

/// How long points are kept.
pub const POINTS_KEPT: Span = Span::from_days(7);

/// An answer on its way. It may block on the disk.
pub type Keeping<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The figures of all nodes, each of which writes its own. One machine alone is one node.
///
/// What a node writes is bytes to the store, given back as they were or not at all: something that is
/// damaged is left out and said in the log, and hides nothing else.
pub trait Trends: Send + Sync + 'static {
    /// Writes what a node has counted in all, in place of what it wrote before. `Ok` means that it
    /// survives a crash, and after one there is what was written last or before that.
    fn put_totals(&self, node: Arc<str>, content: Bytes) -> Keeping<'_, ()>;

    /// What all nodes have written last, those that are gone too, by name.
    fn totals(&self) -> Keeping<'_, Vec<(Arc<str>, Bytes)>>;

    /// Writes the point of a node that starts at a time, in place of what it wrote for it before.
    fn put_point(&self, point: StoredPoint) -> Keeping<'_, ()>;

    /// The points that start in `from..until`, by time and name of the node.
    fn points(&self, from: Timestamp, until: Timestamp) -> Keeping<'_, Vec<StoredPoint>>;

    /// Points that start before that time may go. Some may stay for a day.
    fn forget(&self, before: Timestamp) -> Keeping<'_, ()>;
}

/// A point as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPoint {
    /// When it starts.
    pub at: Timestamp,
    /// Whose it is.
    pub node: Arc<str>,
    /// What it says.
    pub content: Bytes,
}
