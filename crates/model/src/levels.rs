//! The eighteen delay levels.

use crate::time::Span;

/// Number of delay levels; they are counted from 1.
pub const LEVELS: usize = 18;

const DEFAULT_SECS: [u64; LEVELS] =
    [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200];

/// The delay each level stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayLevels([Span; LEVELS]);

impl Default for DelayLevels {
    fn default() -> Self {
        Self(DEFAULT_SECS.map(Span::from_secs))
    }
}

impl DelayLevels {
    /// These delays, from level 1 on.
    #[must_use]
    pub const fn new(delays: [Span; LEVELS]) -> Self {
        Self(delays)
    }

    /// The delays, from level 1 on.
    #[must_use]
    pub const fn delays(&self) -> &[Span; LEVELS] {
        &self.0
    }

    /// The delay of `level`, which counts from 1 to [`LEVELS`]; anything else is `None`.
    #[must_use]
    pub fn delay(&self, level: u64) -> Option<Span> {
        let index = usize::try_from(level.checked_sub(1)?).ok()?;
        self.0.get(index).copied()
    }
}
