//! Points in time and spans of time, and the one way each is read from text.
//!
//! Both are whole milliseconds. A [`Timestamp`] lies between the epoch and the end of year 9999,
//! so adding any legal span never overflows. Nothing here reads a clock; that is `clock.rs`.

use std::fmt;

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The epoch itself: earlier than every due time.
    pub const MIN: Self = Self(0);
    /// The last millisecond of year 9999.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// The point `millis` after the epoch, or `None` past year 9999.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Option<Self> {
        if millis <= Self::MAX.0 { Some(Self(millis)) } else { None }
    }

    /// The point `millis` after the epoch; anything past year 9999 becomes its last millisecond.
    #[must_use]
    pub const fn from_millis_saturating(millis: u64) -> Self {
        if millis <= Self::MAX.0 { Self(millis) } else { Self::MAX }
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This point moved later, or `None` past year 9999.
    #[must_use]
    pub const fn checked_add(self, span: Span) -> Option<Self> {
        match self.0.checked_add(span.0) {
            Some(millis) => Self::from_millis(millis),
            None => None,
        }
    }

    /// This point moved later, stopping at the end of year 9999.
    #[must_use]
    pub const fn saturating_add(self, span: Span) -> Self {
        Self::from_millis_saturating(self.0.saturating_add(span.0))
    }

    /// This point moved earlier, stopping at the epoch.
    #[must_use]
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// How much later this is than `earlier`; nothing when it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

/// A length of time, in milliseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// A span of whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// A span of whole seconds.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1000))
    }

    /// A span of days of 24 hours.
    #[must_use]
    pub const fn from_days(days: u64) -> Self {
        Self(days.saturating_mul(86_400_000))
    }

    /// The number of milliseconds.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}
