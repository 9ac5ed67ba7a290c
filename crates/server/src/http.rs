//! The HTTP listener: connections, routes, and one file per resource.
//!
//! Wire shapes come from `api` and stop here; behind this module there are only the model's types.

pub(crate) mod listener;
pub(crate) mod socket;
mod leaving;
mod routes;
pub(crate) use self::routes::{ROUTES, Route};
mod call;
mod flow;
pub(crate) mod access_log;
mod request_id;
mod origin;
pub(crate) use self::origin::Hosts;
pub(crate) mod shared;
mod coding;
mod decode;
pub(crate) mod body;
mod lines;
pub(crate) mod reply;
mod encode;
mod etag;
mod cors;
pub(crate) mod problem;
mod time;
pub(crate) mod page;
mod asked;
mod apps;
pub(crate) mod audit;
mod clock;
pub(crate) mod messages;
mod pending;
mod forecast;
mod bulk;
pub(crate) mod transactions;
mod export;
mod import;
pub(crate) mod levels;
pub(crate) mod settings;
pub(crate) mod topics;
pub(crate) mod groups;
pub(crate) mod send_stream;
mod legacy;
pub(crate) mod receive;
mod receive_stream;
pub(crate) mod consume;
mod dead;
mod health;
#[cfg(feature = "cluster")]
pub(crate) use self::health::live as answer_live;
mod stats;
mod figures;
pub(crate) use self::figures::Pulse;
mod session;
mod console;
mod trends;
mod alerts;
mod cluster;
#[cfg(feature = "cluster")]
mod internal;
mod metrics;
mod openapi;
