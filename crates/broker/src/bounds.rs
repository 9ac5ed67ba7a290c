//! What messages and topics are held to. It may change while the broker runs; what was accepted
//! before stays accepted.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use punctual_model::Span;

use crate::broker::Options;

/// What messages and topics are held to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest body.
    pub body_bytes_max: usize,
    /// Longest delay.
    pub delay_max: Span,
    /// Whether a topic is made when it is first used.
    pub auto_create: bool,
}

/// The bounds in force. Each is read by itself: whoever reads two may see one of them changed
/// already and the other not yet, which is as good as a moment earlier or later.
#[derive(Debug)]
pub(crate) struct InForce {
    body_bytes_max: AtomicUsize,
    delay_millis_max: AtomicU64,
    auto_create: AtomicBool,
}

impl InForce {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            body_bytes_max: AtomicUsize::new(options.body_bytes_max),
            delay_millis_max: AtomicU64::new(options.delay_max.as_millis()),
            auto_create: AtomicBool::new(options.auto_create),
        }
    }

    pub(crate) fn set(&self, bounds: Bounds) {
        self.body_bytes_max.store(bounds.body_bytes_max, Ordering::Relaxed);
        self.delay_millis_max.store(bounds.delay_max.as_millis(), Ordering::Relaxed);
        self.auto_create.store(bounds.auto_create, Ordering::Relaxed);
    }

    pub(crate) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn delay_max(&self) -> Span {
        Span::from_millis(self.delay_millis_max.load(Ordering::Relaxed))
    }

    pub(crate) fn auto_create(&self) -> bool {
        self.auto_create.load(Ordering::Relaxed)
    }
}
