//! How a handler says that a message was not handled, and what should become of it.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::time::Duration;

/// Longest text of an error that is sent along, in bytes; the broker keeps no more.
const ERROR_BYTES_MAX: usize = 1024;

/// A message was not handled.
///
/// Every error becomes one by `?`, and then the message comes again as the ladder of the group
/// says. [`Retry`] and [`Reject`] say something else.
///
/// ```
/// use std::time::Duration;
/// use punctual_client::{Failure, Reject, Retry};
///
/// fn handle(body: &str) -> Result<(), Failure> {
///     let amount: u32 = body.parse()?; // comes again, as the group says
///     if amount == 0 {
///         return Err(Reject::new("nothing to pay").into()); // a dead letter
///     }
///     if amount > 1000 {
///         return Err(Retry::after(Duration::from_secs(60)).because("the till is empty").into());
///     }
///     Ok(())
/// }
/// # assert!(handle("1").is_ok() && handle("0").is_err() && handle("x").is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(crate) error: String,
    pub(crate) next: Next,
}

/// What becomes of a message that was not handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    /// It comes again, after this time or as the group says.
    Again(Option<Duration>),
    /// It is a dead letter.
    Never,
}

impl Failure {
    /// It failed for this reason, and comes again as the group says.
    #[must_use]
    pub fn new(error: impl fmt::Display) -> Self {
        Self { error: cut(error.to_string()), next: Next::Again(None) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.error)
    }
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let any: &dyn Any = &error;
        if let Some(retry) = any.downcast_ref::<Retry>() {
            return Self { error: cut(retry.to_string()), next: Next::Again(Some(retry.after)) };
        }
        if any.is::<Reject>() {
            return Self { error: cut(error.to_string()), next: Next::Never };
        }
        Self::new(error)
    }
}

/// An error after which the message comes again after a given time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    after: Duration,
    because: Option<String>,
}

impl Retry {
    /// Again after that time.
    #[must_use]
    pub fn after(after: Duration) -> Self {
        Self { after, because: None }
    }

    /// For this reason, which is kept with the message.
    #[must_use]
    pub fn because(mut self, reason: impl fmt::Display) -> Self {
        self.because = Some(reason.to_string());
        self
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.because {
            Some(reason) => f.write_str(reason),
            None => write!(f, "to be tried again after {:?}", self.after),
        }
    }
}

impl Error for Retry {}

/// An error after which the message is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    because: String,
}

impl Reject {
    /// Never again, for this reason, which is kept with the message.
    #[must_use]
    pub fn new(reason: impl fmt::Display) -> Self {
        Self { because: reason.to_string() }
    }
}

impl fmt::Display for Reject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.because)
    }
}

impl Error for Reject {}

/// The beginning of a text, as much as the broker keeps.
fn cut(mut text: String) -> String {
    if text.len() > ERROR_BYTES_MAX {
        text.truncate(text.floor_char_boundary(ERROR_BYTES_MAX));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_says_what_becomes_of_the_message() {
        let minute = Duration::from_secs(60);
        let retry = Failure::from(Retry::after(minute).because("no paper"));
        assert_eq!((retry.error.as_str(), retry.next), ("no paper", Next::Again(Some(minute))));
        let reject = Failure::from(Reject::new("no such order"));
        assert_eq!((reject.error.as_str(), reject.next), ("no such order", Next::Never));
        let other = Failure::from(fmt::Error);
        assert_eq!(other.next, Next::Again(None));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let failure = Failure::new("ä".repeat(ERROR_BYTES_MAX));
        assert_eq!(failure.error, "ä".repeat(ERROR_BYTES_MAX / 2));
        let odd = Failure::new(format!("x{}", "ä".repeat(ERROR_BYTES_MAX)));
        assert_eq!(odd.error.len(), ERROR_BYTES_MAX - 1);
    }
}
