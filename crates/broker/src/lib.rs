//! The scheduler: what a message goes through, in five verbs.
//!
//! *schedule* checks and places it, the timeline *persists* it, *fire* waits for its moment,
//! *deliver* hands it to the outlet; in [`group`] consumers take it and *ack* it. Nothing in this
//! crate knows how anything is stored or who is asking.

pub mod time;
mod bounds;
mod place;
pub mod schedule;
mod produce;
pub mod wheel;
pub mod fire;
pub mod rate;
mod catch_up;
mod rules;
mod pace;
mod moves;
mod resume;
mod aside;
pub mod deliver;
mod arrivals;
mod control;
pub mod activity;
pub mod series;
pub mod transaction;
pub mod group;
mod lookup;
mod change;
mod bulk;
pub mod audit;
pub mod watch;
mod forecast;
mod errands;
pub mod stats;
pub mod pulse;
mod broker;
mod virtual_time;

pub use arrivals::Arrivals;
pub use bounds::Bounds;
pub use broker::{Broker, Options, Parts};
pub use bulk::{Bulk, BulkError, BulkId, BulkIdError, BulkReport, BulkState, BulkWork, Shift};
pub use change::{Change, ChangeError};
pub use forecast::{Outlook, Steps};
pub use lookup::{Filter, OWN_ID_HEADER, Report, SERIES_HEADER, sender_of};
pub use place::{CATCH_UP_HEADER, SENDER_HEADER};
pub use produce::{Cancel, Produce, ProduceError, Produced, Producing};
pub use schedule::{Invalid, Request, ScheduleError, Scheduled, When};
pub use stats::{Stats, TopicCounts};
pub use virtual_time::{MoveError, Moved};
