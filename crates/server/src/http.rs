//! The HTTP listener: connections, routes, and one file per resource.
//!
//! Wire shapes come from `api` and stop here; behind this module there are only the model's types.

pub(crate) mod listener;
mod socket;
mod routes;
mod call;
mod flow;
mod origin;
pub(crate) mod shared;
mod body;
mod reply;
mod problem;
mod time;
mod page;
mod asked;
mod audit;
mod clock;
mod messages;
mod pending;
mod bulk;
mod transactions;
mod export;
mod import;
mod levels;
mod settings;
mod topics;
mod groups;
mod receive;
mod consume;
mod dead;
mod health;
mod metrics;
