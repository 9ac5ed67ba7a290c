//! The public contract over HTTP: the shapes of requests and answers, and the stable error codes.
//!
//! Nothing here knows the broker, nor how times and durations are written: they pass through as
//! text. A request that was read is well-formed; what its texts mean and whether it is allowed
//! (sizes, longest delay, partitions) is decided behind the listener.

pub mod code;
pub mod problem;
pub mod request;
pub mod repeat;
pub mod topic;
pub mod group;
pub mod consume;
pub mod dead;
pub mod pending;
pub mod transaction;
pub mod transfer;
pub mod app;
pub mod session;
pub mod audit;
pub mod clock;
pub mod stats;
pub mod alert;
pub mod legacy;
pub mod answer;
pub mod schema;

pub use code::Code;
pub use problem::Problem;
