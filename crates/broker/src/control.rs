//! Due entries that are not simply delivered, and who takes care of them.
//!
//! The firing of the retry lane hands them over and claims none. Whoever takes one changes it on
//! the timeline and then gives it back with `release`, whatever came of the change; until then it
//! can be cancelled and changed like any other entry.

use std::fmt;
use std::sync::Arc;

use punctual_model::Action;
use punctual_model::ports::Armed;

/// Takes due entries. It is called on the firing thread, so it passes them on and returns.
pub(crate) type Handler = Arc<dyn Fn(Vec<Armed>) + Send + Sync>;

/// Who takes care of what.
#[derive(Clone)]
pub(crate) struct Controls {
    /// Of series.
    pub(crate) repeat: Handler,
    /// Of transactions.
    pub(crate) check: Handler,
}

impl Controls {
    /// Takes everything out of `due` that is not to be delivered, and hands it over in order.
    pub(crate) fn take(&self, due: &mut Vec<Armed>) {
        for (action, handler) in [(Action::Repeat, &self.repeat), (Action::Check, &self.check)] {
            let taken: Vec<Armed> = due.extract_if(.., |armed| armed.action() == action).collect();
            if !taken.is_empty() {
                handler(taken);
            }
        }
    }
}

impl fmt::Debug for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controls").finish_non_exhaustive()
    }
}
