//! Alerts: rules that watch over the broker, and what is told when one of them is broken.
//!
//! Read in the order of the modules: what the rules are (`rules`), the steps of each (`state`), what
//! was counted lately (`window`), who is missing (`roster`), from counts to numbers (`lookout`),
//! where all stand (`book`), who is told (`webhook`), and the loop around it (`watch`). Everything is
//! in memory: after a restart all rules begin at ok, and one that is still broken fires again.

mod rules;
mod state;
mod window;
mod roster;
mod lookout;
mod book;
mod webhook;
mod watch;

pub(crate) use self::rules::{COUNT, Kind, RULES, Rule, Unit};
pub(crate) use self::watch::{Alerts, start};
pub(crate) use self::webhook::Told;
