//! The states of a message and the only legal steps between them.
//!
//! Nothing outside this file decides what may follow what; callers ask [`State::after`] and handle
//! the refusal.
//!
//! ```text
//!               ┌─ pause ─► paused ─ resume ─┐
//!   schedule ─► scheduled ◄──────────────────┘ ─ fire ─► delivered
//!               ▲                any of these three ─ cancel ─► cancelled
//!   prepare ─► prepared ─ commit ─► scheduled
//! ```

/// Where a message is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Accepted and waiting for its due time.
    Scheduled,
    /// Waiting for somebody to let it go on.
    Paused,
    /// Half of a transaction that is not decided: nobody sees it.
    Prepared,
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
    /// Somebody withdrew it, or its transaction was rolled back.
    Cancel,
    /// Somebody changed its time or its content.
    Change,
    /// Somebody stopped its countdown.
    Pause,
    /// Somebody let its countdown go on.
    Resume,
    /// Its transaction was committed.
    Commit,
}

impl State {
    /// The state after `event`, or `None` where that step is not allowed.
    #[must_use]
    pub const fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Scheduled, Event::Fire) => Some(Self::Delivered),
            (Self::Scheduled | Self::Paused | Self::Prepared, Event::Cancel) => {
                Some(Self::Cancelled)
            }
            (Self::Scheduled, Event::Change | Event::Resume) => Some(Self::Scheduled),
            (Self::Paused, Event::Change | Event::Pause) => Some(Self::Paused),
            (Self::Scheduled, Event::Pause) => Some(Self::Paused),
            (Self::Paused, Event::Resume) | (Self::Prepared, Event::Commit) => {
                Some(Self::Scheduled)
            }
            (Self::Scheduled | Self::Paused, Event::Commit)
            | (Self::Paused, Event::Fire)
            | (Self::Prepared, Event::Fire | Event::Change | Event::Pause | Event::Resume)
            | (Self::Delivered | Self::Cancelled, _) => None,
        }
    }

    /// Whether it may still be delivered.
    #[must_use]
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Scheduled | Self::Paused | Self::Prepared)
    }

    /// The word used for it everywhere.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Paused => "paused",
            Self::Prepared => "prepared",
            Self::Delivered => "delivered",
            Self::Cancelled => "cancelled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 6] =
        [Event::Fire, Event::Cancel, Event::Change, Event::Pause, Event::Resume, Event::Commit];

    #[test]
    fn an_ended_message_stays_ended() {
        for ended in [State::Delivered, State::Cancelled] {
            for event in EVENTS {
                assert_eq!(ended.after(event), None, "{ended:?} after {event:?}");
            }
        }
    }

    #[test]
    fn only_what_is_scheduled_fires() {
        for state in [State::Paused, State::Prepared] {
            assert_eq!(state.after(Event::Fire), None);
            assert_eq!(state.after(Event::Cancel), Some(State::Cancelled));
        }
    }
}
