//! Tags of what a resource is now, and requests that are meant for one of them only.
//!
//! A message has its version as tag. Settings have a hash of what is shown of them, without figures
//! that change by themselves. The same content in another coding has a tag of its own; what a
//! request demands is compared without that.

use http::header::{ETAG, HeaderValue, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, Response, StatusCode};
use punctual_api::{Code, Problem};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::http::coding::Coding;
use crate::http::reply::{Body, Reply};

/// The tag of what settings are now.
pub(crate) fn of(settings: &impl Serialize) -> HeaderValue {
    let text = serde_json::to_vec(settings).expect("our own shapes have string keys and no faults");
    let hash = Sha256::digest(&text);
    let mut tag = String::with_capacity(34);
    tag.push('"');
    for byte in hash.iter().take(16) {
        for digit in [byte >> 4, byte & 15] {
            tag.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    tag.push('"');
    HeaderValue::from_str(&tag).expect("digits are visible")
}

/// The tag of a message.
pub(crate) fn of_version(version: u32) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("digits are visible")
}

/// The tag of the same content in that coding.
pub(crate) fn coded(tag: &HeaderValue, coding: Coding) -> Option<HeaderValue> {
    let inner = tag.to_str().ok()?.strip_suffix('"')?;
    HeaderValue::from_str(&format!("{inner}-{}\"", coding.name())).ok()
}

/// An answer with its tag.
pub(crate) fn tagged(mut reply: Reply, tag: HeaderValue) -> Reply {
    reply.headers_mut().insert(ETAG, tag);
    reply
}

/// The answer that nothing has changed.
pub(crate) fn not_modified(tag: HeaderValue) -> Reply {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NOT_MODIFIED;
    tagged(reply, tag)
}

/// What a request demands of the present tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conditions {
    only_if: Option<Tags>,
    only_if_not: Option<Tags>,
}

/// The tags of one of the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Tags {
    /// Any at all.
    Any,
    /// What stands between the quotes, without the coding, and whether it is a strong one.
    These(Vec<(String, bool)>),
}

impl Conditions {
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let read = |name: http::HeaderName| {
            let mut values = headers.get_all(&name).iter().peekable();
            values.peek()?;
            let mut text = String::new();
            for value in values {
                if !text.is_empty() {
                    text.push(',');
                }
                text.push_str(value.to_str().unwrap_or("?"));
            }
            let malformed = || {
                let detail = format!("{name} is * or tags in quotes, as an ETag gives them");
                Problem::new(Code::InvalidRequest, detail)
            };
            Some(Tags::read(&text).ok_or_else(malformed))
        };
        Ok(Self {
            only_if: read(IF_MATCH).transpose()?,
            only_if_not: read(IF_NONE_MATCH).transpose()?,
        })
    }

    /// Whether anything is demanded before a change.
    pub(crate) const fn is_conditional(&self) -> bool {
        self.only_if.is_some() || self.only_if_not.is_some()
    }

    /// Refuses a change of what is not as the request demands. `None` is for what does not exist.
    pub(crate) fn check(&self, now: Option<&HeaderValue>) -> Result<(), Problem> {
        let met = match (&self.only_if, now) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(tags), Some(now)) => tags.has(now, Comparison::Strong),
        };
        let barred = match (&self.only_if_not, now) {
            (None, _) | (Some(_), None) => false,
            (Some(tags), Some(now)) => tags.has(now, Comparison::Weak),
        };
        if met && !barred { Ok(()) } else { Err(Code::PreconditionFailed.into()) }
    }

    /// Whether the caller has it already.
    pub(crate) fn is_known(&self, now: &HeaderValue) -> bool {
        self.only_if_not.as_ref().is_some_and(|tags| tags.has(now, Comparison::Weak))
    }

    /// The version that a message must have, if exactly one is demanded.
    pub(crate) fn version(&self) -> Result<Option<u32>, Problem> {
        if self.only_if_not.is_some() {
            let detail = "if-none-match is for reading; a change is made by if-match";
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        match &self.only_if {
            None | Some(Tags::Any) => Ok(None),
            Some(Tags::These(tags)) => match tags.as_slice() {
                // What is no version is the tag of no message.
                [(tag, true)] => match tag.parse() {
                    Ok(version) => Ok(Some(version)),
                    Err(_no_number) => Err(Code::PreconditionFailed.into()),
                },
                [(_, false)] => Err(Code::PreconditionFailed.into()),
                _ => {
                    let detail = "a message has one version: give one tag";
                    Err(Problem::new(Code::InvalidRequest, detail))
                }
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Strong,
    Weak,
}

impl Tags {
    fn read(text: &str) -> Option<Self> {
        let mut rest = text.trim();
        if rest == "*" {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            if rest.is_empty() {
                return (!tags.is_empty()).then_some(Self::These(tags));
            }
            let (strong, quoted) = match rest.strip_prefix("W/") {
                Some(quoted) => (false, quoted),
                None => (true, rest),
            };
            let (tag, after) = quoted.strip_prefix('"')?.split_once('"')?;
            let coding = Coding::ALL.into_iter().find_map(|coding| {
                tag.strip_suffix(coding.name()).and_then(|tag| tag.strip_suffix('-'))
            });
            tags.push((coding.unwrap_or(tag).to_owned(), strong));
            rest = after.trim_start();
            if !rest.is_empty() && !rest.starts_with(',') {
                return None;
            }
        }
    }

    fn has(&self, now: &HeaderValue, comparison: Comparison) -> bool {
        let now = now.to_str().unwrap_or_default().trim_matches('"');
        match self {
            Self::Any => true,
            Self::These(tags) => tags
                .iter()
                .any(|(tag, strong)| tag == now && (*strong || comparison == Comparison::Weak)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(name: http::HeaderName, text: &'static str) -> Result<Conditions, Code> {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(text));
        Conditions::of(&headers).map_err(|problem| problem.code)
    }

    #[test]
    fn a_change_is_made_only_for_the_tag_it_names() {
        let now = HeaderValue::from_static("\"3\"");
        for (text, ok) in [
            ("\"3\"", true),
            ("*", true),
            ("\"2\", \"3\"", true),
            ("\"3-gzip\"", true),
            ("\"3-zstd\"", true),
            ("W/\"3\"", false),
            ("\"2\"", false),
            ("\"33\"", false),
        ] {
            let met = conditions(IF_MATCH, text).unwrap().check(Some(&now));
            assert_eq!(met.is_ok(), ok, "{text}");
            let missing = conditions(IF_MATCH, text).unwrap().check(None);
            assert_eq!(missing.unwrap_err().code, Code::PreconditionFailed, "{text}");
        }
        assert!(Conditions::default().check(None).is_ok());
        let unless_there = conditions(IF_NONE_MATCH, "*").unwrap();
        assert!(unless_there.check(None).is_ok() && unless_there.check(Some(&now)).is_err());
    }

    #[test]
    fn who_has_it_already_is_told_so() {
        let now = HeaderValue::from_static("\"3\"");
        for (text, known) in [
            ("\"3\"", true),
            ("W/\"3\"", true),
            ("*", true),
            ("\"3-gzip\"", true),
            ("\"4\"", false),
        ] {
            assert_eq!(conditions(IF_NONE_MATCH, text).unwrap().is_known(&now), known, "{text}");
        }
        assert!(!Conditions::default().is_known(&now));
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        for text in ["3", "", "\"3", "\"3\" \"4\"", "w/\"3\"", ",", "*, \"3\"", "\"3\"x"] {
            assert_eq!(conditions(IF_MATCH, text), Err(Code::InvalidRequest), "{text:?}");
        }
    }

    #[test]
    fn a_message_has_one_version() {
        let version =
            |text| conditions(IF_MATCH, text).unwrap().version().map_err(|problem| problem.code);
        assert_eq!(version("\"3\""), Ok(Some(3)));
        assert_eq!(version("\"3-gzip\""), Ok(Some(3)));
        assert_eq!(version("*"), Ok(None));
        for text in ["\"x\"", "\"-1\"", "W/\"3\"", "\"99999999999\"", "\"\""] {
            assert_eq!(version(text), Err(Code::PreconditionFailed), "{text}");
        }
        assert_eq!(version("\"3\", \"4\""), Err(Code::InvalidRequest));
    }

    #[test]
    fn a_tag_says_what_there_is() {
        assert_eq!(of(&serde_json::json!({"a": 1})), of(&serde_json::json!({"a": 1})));
        assert_ne!(of(&serde_json::json!({"a": 1})), of(&serde_json::json!({"a": 2})));
        assert_eq!(of_version(7), "\"7\"");
        assert_eq!(coded(&of_version(7), Coding::Gzip).unwrap(), "\"7-gzip\"");
    }
}
