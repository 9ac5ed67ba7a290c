//! The scheduler: what a message goes through, in five verbs.
//!
//! *schedule* checks and places it, the timeline *persists* it, *fire* waits for its moment,
//! *deliver* hands it to the outlet; in [`group`] consumers take it and *ack* it. Nothing in this
//! crate knows how anything is stored or who is asking.

pub mod time;
pub mod schedule;
pub mod wheel;
pub mod fire;
pub mod deliver;
pub mod group;
mod lookup;
mod errands;
pub mod stats;
mod broker;

pub use broker::{Broker, Options, Parts};
pub use lookup::Report;
pub use schedule::{Invalid, Request, ScheduleError, Scheduled, When};
pub use stats::Stats;
