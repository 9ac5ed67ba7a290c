//! The states of a message and the only legal steps between them.
//!
//! Nothing outside this file decides what may follow what; callers ask [`State::after`] and handle
//! the refusal.
//!
//! ```text
//!                 ┌── cancel ──► cancelled
//!   schedule ──► scheduled ── fire ──► delivered
//! ```

/// Where a message is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepted and waiting for its due time.
    Scheduled,
    /// Handed to the outlet.
    Delivered,
    /// Withdrawn before it fired; it will never be delivered.
    Cancelled,
}

/// What can happen to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its due time came and the outlet took it.
    Fire,
    /// Somebody withdrew it.
    Cancel,
}

impl State {
    /// The state after `event`, or `None` where that step is not allowed.
    #[must_use]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Scheduled, Event::Fire) => Some(Self::Delivered),
            (Self::Scheduled, Event::Cancel) => Some(Self::Cancelled),
            (Self::Delivered | Self::Cancelled, Event::Fire | Event::Cancel) => None,
        }
    }

    /// The word used for it everywhere.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ended_message_stays_ended() {
        for ended in [State::Delivered, State::Cancelled] {
            for event in [Event::Fire, Event::Cancel] {
                assert_eq!(ended.after(event), None, "{ended:?} after {event:?}");
            }
        }
    }
}
