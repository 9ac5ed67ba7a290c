//! Who may do what: one table of operations for all listeners, and the callers that are held to it.
//!
//! A listener finds out which [`Operation`] is asked for, and by whom; what that takes stands in
//! [`Operation::rule`], which does not compile without an answer for every operation. What is named
//! by the request itself is checked before a handler runs. What is named by an id is checked by the
//! handler, once it knows what the id stands for; there a foreign thing is answered exactly like a
//! missing one.

mod operation;
mod caller;

pub(crate) use caller::{Caller, Target};
pub(crate) use operation::{Operation, Permission, Scope};
