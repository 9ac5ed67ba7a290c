//! Series: messages that come round by a rule.
//!
//! A series is an entry of its own in the retry lane, and its id names it. It fires together with
//! its occurrence, an ordinary message, and puts the next one on the timeline; so exactly one
//! occurrence is always to come, and can be seen, changed or cancelled as any message. What must
//! hold: each time of the rule has one occurrence, whatever crashes, or none where a policy says so.

mod cron;
mod rule;
mod spec;
mod plan;
mod opening;
mod keeper;
mod desk;

pub(crate) use desk::Desk;

pub use cron::{CRON_BYTES_MAX, CronError};
pub use keeper::{Keeper, Series, Unhandled, cancel_orders, describe};
pub use opening::{Opening, RepeatError};
pub use rule::{Cron, Every, Rule, RuleError, ZONE_DEFAULT};
pub use spec::Repeat;
