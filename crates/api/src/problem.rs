//! An error as it is answered: RFC 9457 problem details with a stable code.

use std::borrow::Cow;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::code::Code;

/// The media type of a [`Problem`] over HTTP.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was refused, for callers and for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The stable code.
    pub code: Code,
    /// What was wrong this time.
    pub detail: Cow<'static, str>,
    /// Which message of a batch it was, counted from 0.
    pub index: Option<usize>,
    /// In how many seconds the same request may succeed, where that is known. Told in a header.
    pub retry_after: Option<u64>,
}

impl Problem {
    /// A problem with its particulars.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), index: None, retry_after: None }
    }

    /// The same problem, of the message at `index` of a batch.
    #[must_use]
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// The same problem, which may be gone in so many seconds.
    #[must_use]
    pub fn after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<Code> for Problem {
    fn from(code: Code) -> Self {
        Self::new(code, code.title())
    }
}

impl Serialize for Problem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.index.is_some() { 6 } else { 5 };
        let mut object = serializer.serialize_struct("Problem", fields)?;
        object.serialize_field("type", &format!("urn:punctual:error:{}", self.code.as_str()))?;
        object.serialize_field("title", self.code.title())?;
        object.serialize_field("status", &self.code.status())?;
        object.serialize_field("detail", &self.detail)?;
        object.serialize_field("code", self.code.as_str())?;
        if let Some(index) = self.index {
            object.serialize_field("index", &index)?;
        }
        object.end()
    }
}
