//! Reads the near future of each slot into memory, page by page.

use std::sync::{Arc, Weak};
use std::time::Duration;

use punctual_model::Lane;

use crate::store::{SlotStore, Tenure};

use super::inner::{Inner, Signals};
use super::near::Ask;

/// How often it is looked at without being told.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The most entries of one page, and bytes.
const PAGE_ENTRIES: usize = 4096;
const PAGE_BYTES: usize = 8 << 20;
/// The share of the memory that one page may take.
const PAGE_SHARE: usize = 16;

/// Reads while the timeline is there.
pub(super) async fn run<S: SlotStore>(inner: Weak<Inner<S>>, signals: Arc<Signals>) {
    while let Some(inner) = inner.upgrade() {
        let pages = inner.state.lock().pages(inner.now(), &inner.options);
        for (tenure, lane, ask) in pages {
            drop(inner.handle.spawn(read(Arc::clone(&inner), tenure, lane, ask)));
        }
        drop(inner);
        tokio::time::timeout(LOOK_EVERY, signals.pages.notified()).await.unwrap_or_default();
    }
}

async fn read<S: SlotStore>(inner: Arc<Inner<S>>, tenure: Tenure, lane: Lane, ask: Ask) {
    let entries = (inner.options.memory_entries / PAGE_SHARE).clamp(1, PAGE_ENTRIES);
    let bytes = (inner.options.memory_bytes / PAGE_SHARE).clamp(1, PAGE_BYTES);
    let page = inner.store.page(tenure.slot, lane, ask.after, ask.until, (entries, bytes)).await;
    let mut woken = [false; 2];
    {
        let mut state = inner.state.lock();
        let armed_until = state.armed_until[lane.index()];
        let Some(owned) = state.owned_mut(tenure) else { return };
        match page {
            Ok(page) => {
                let came = owned.end_read(lane, ask, page);
                woken[lane.index()] = came.iter().any(|key| key.due < armed_until);
                inner.signals.pages.notify_one();
            }
            Err(failure) => {
                owned.near_mut(lane).fail_read(ask);
                tracing::warn!(%failure, slot = tenure.slot.0, "a page cannot be read yet");
            }
        }
    }
    inner.progressed();
    inner.wake(woken);
}
