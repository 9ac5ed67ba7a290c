//! Time in JSON: what time it is, and moving it where it is virtual.

use std::borrow::Cow;

use serde::Serialize;

use crate::code::Code;
use crate::problem::Problem;
use crate::request::fields::Fields;

/// How far time is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Advance<'a> {
    /// By a duration as it was written.
    By(Cow<'a, str>),
    /// To a time as it was written.
    To(Cow<'a, str>),
}

impl<'a> Advance<'a> {
    /// Reads `{"by":…}` or `{"to":…}`.
    ///
    /// # Errors
    /// A [`Problem`] for the first thing that is wrong.
    pub fn read(json: &'a [u8], depth_max: usize) -> Result<Self, Problem> {
        let mut fields = Fields::read(json, depth_max)?;
        let by = fields.take_text("by")?;
        let to = fields.take_time("to")?;
        fields.end()?;
        match (by, to) {
            (Some(by), None) => Ok(Self::By(by)),
            (None, Some(to)) => Ok(Self::To(to)),
            (Some(_), Some(_)) => {
                Err(Problem::new(Code::ConflictingFields, "give either by or to, not both"))
            }
            (None, None) => {
                let detail = "say how far: {\"by\":\"30d\"} or {\"to\":\"2030-01-31T00:00:00Z\"}";
                Err(Problem::new(Code::InvalidRequest, detail))
            }
        }
    }
}

/// What time it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TimeView {
    /// The broker clock.
    pub now: String,
    /// Whether it only moves when somebody moves it.
    #[serde(rename = "virtual")]
    pub is_virtual: bool,
}

/// How far time was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Advanced {
    /// The time it is now.
    pub now: String,
    /// Messages whose moment came on the way, retries too.
    pub fired: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_by_or_to() {
        let read = |json: &'static str| Advance::read(json.as_bytes(), 8);
        assert_eq!(read(r#"{"by":"30d"}"#), Ok(Advance::By("30d".into())));
        assert_eq!(read(r#"{"to":1800000000000}"#), Ok(Advance::To("1800000000000".into())));
        let code = |json| read(json).unwrap_err().code;
        assert_eq!(code(r#"{"by":"1s","to":"2030-01-01T00:00:00Z"}"#), Code::ConflictingFields);
        assert_eq!(code("{}"), Code::InvalidRequest);
        assert_eq!(code(r#"{"until":1}"#), Code::UnknownField);
    }
}
