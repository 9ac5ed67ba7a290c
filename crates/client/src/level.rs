//! The eighteen delay levels by name.

/// A delay by its level. What a level stands for is set at the broker; the names are the waits it
/// has out of the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DelayLevel {
    /// Level 1: a second.
    S1 = 1,
    /// Level 2: five seconds.
    S5,
    /// Level 3: ten seconds.
    S10,
    /// Level 4: thirty seconds.
    S30,
    /// Level 5: a minute.
    M1,
    /// Level 6: two minutes.
    M2,
    /// Level 7: three minutes.
    M3,
    /// Level 8: four minutes.
    M4,
    /// Level 9: five minutes.
    M5,
    /// Level 10: six minutes.
    M6,
    /// Level 11: seven minutes.
    M7,
    /// Level 12: eight minutes.
    M8,
    /// Level 13: nine minutes.
    M9,
    /// Level 14: ten minutes.
    M10,
    /// Level 15: twenty minutes.
    M20,
    /// Level 16: half an hour.
    M30,
    /// Level 17: an hour.
    H1,
    /// Level 18: two hours.
    H2,
}

impl DelayLevel {
    /// Every level, from the first on.
    pub const ALL: [Self; 18] = [
        Self::S1,
        Self::S5,
        Self::S10,
        Self::S30,
        Self::M1,
        Self::M2,
        Self::M3,
        Self::M4,
        Self::M5,
        Self::M6,
        Self::M7,
        Self::M8,
        Self::M9,
        Self::M10,
        Self::M20,
        Self::M30,
        Self::H1,
        Self::H2,
    ];

    /// Its number, from 1 to 18.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_numbered_from_one_without_a_gap() {
        let numbers: Vec<u8> = DelayLevel::ALL.iter().map(|level| level.number()).collect();
        assert_eq!(numbers, (1..=18).collect::<Vec<u8>>());
        assert_eq!(DelayLevel::S30.number(), 4);
        assert_eq!(DelayLevel::H2.number(), 18);
    }
}
