//! The public contract over HTTP: the shapes of requests and answers, the stable error codes, and
//! the one way times and durations are read from text.
//!
//! Nothing here knows the broker. A request that was read is well-formed; whether it is allowed
//! (sizes, longest delay, partitions) is decided behind the listener.

pub mod code;
pub mod problem;
pub mod time;
pub mod request;
pub mod topic;
pub mod answer;

pub use code::Code;
pub use problem::Problem;
