//! Who may do what: one table of operations for all listeners, and the callers that are held to it.
//!
//! A listener finds out which [`Operation`] is asked for, and by whom; what that takes stands in
//! [`Operation::rule`], which does not compile without an answer for every operation. What is named
//! by the request itself is checked before a handler runs. What is named by an id is checked by the
//! handler, once it knows what the id stands for; there a foreign thing is answered exactly like a
//! missing one.

mod operation;
mod grant;
mod quota;
mod scram;
mod record;
mod files;
mod store;
#[cfg(feature = "cluster")]
mod shared;
mod session;
mod facts;
mod connection;
mod gate;
mod caller;
mod own;

pub(crate) use caller::{Caller, Charged, Target};
pub(crate) use connection::Connection;
pub(crate) use facts::Facts;
pub(crate) use files::{AppFiles, TOKEN};
pub(crate) use gate::{
    AppCounts, AppError, AppIdentity, Auth, COOKIE_NAME, FirstToken, Gate, ScramClaim, SignedIn,
};
pub(crate) use grant::{Grant, Pattern};
pub(crate) use operation::{Operation, Permission, Rule, Scope};
pub(crate) use own::{checks_for, has_transaction, own_message, own_transaction};
pub(crate) use quota::{Cost, Quotas, Sending};
pub(crate) use record::{AppKey, AppRecord, KEY_CHARS_MAX as APP_KEY_CHARS_MAX, NewSecret};
pub(crate) use scram::{ScramHash, ScramKeys};
pub(crate) use session::SESSION_TIME;
#[cfg(feature = "cluster")]
pub(crate) use shared::AppDocuments;
#[cfg(feature = "cluster")]
pub(crate) use store::AppStore;
