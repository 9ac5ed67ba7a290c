//! Figures that outlive a process: what was counted since the first start, and how it went, ten
//! minutes a point, for the last seven days.
//!
//! The broker and the gate count since the start of the process, and know nothing of this. Here it is
//! looked at every few seconds, added to what was counted before, and written down: to files of this
//! machine, or with the figures of all nodes. A crash loses what was counted since the last writing.

mod counts;
mod point;
mod window;
mod saved;
mod files;
mod keeper;
mod look;

pub(crate) use self::counts::{MessageCounts, SentCounts};
pub(crate) use self::files::TrendFiles;
pub(crate) use self::keeper::{Keeper, KeeperParts, Kept};
pub(crate) use self::look::Looking;
pub(crate) use self::point::{Gauges, Point};
pub(crate) use self::window::start_of;
