//! Pages of other origins that were let in by name.
//!
//! Nobody is let in unless the configuration names the origin, exactly. No answer ever says that
//! credentials of the browser count: a page that may call gives its own in the `Authorization`
//! header.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};

use crate::http::reply::{Body, Reply};

/// Headers that a page may send.
const MAY_SEND: &str = "authorization, content-type, content-encoding, if-match, if-none-match, \
                        last-event-id, x-request-id";
/// Headers of an answer that a page may read.
const MAY_READ: &str = "etag, location, retry-after, x-request-id, allow";
/// For how long a browser may remember what it was told, in seconds.
const REMEMBERED: &str = "600";

/// What the configured origins mean for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// No origin is configured: pages of other origins are none of our business.
    Off,
    /// The request comes from no page, or from one that was not let in.
    Stranger,
    /// The request comes from a page that was let in.
    Guest(HeaderValue),
}

impl Page {
    pub(crate) fn of(origins: &[String], headers: &HeaderMap) -> Self {
        if origins.is_empty() {
            return Self::Off;
        }
        let origin = headers.get(ORIGIN).filter(|origin| {
            origins.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(origin.as_bytes()))
        });
        origin.map_or(Self::Stranger, |origin| Self::Guest(origin.clone()))
    }

    /// Whether it may ask though it is of another origin.
    pub(crate) const fn is_guest(&self) -> bool {
        matches!(self, Self::Guest(_))
    }

    /// Whether the browser asks for leave before the page's own request.
    pub(crate) fn asks_first(&self, method: &Method, headers: &HeaderMap) -> bool {
        self.is_guest()
            && method == Method::OPTIONS
            && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Tells the browser whether the page may read the answer.
    pub(crate) fn sign(&self, reply: &mut Reply) {
        let headers = reply.headers_mut();
        match self {
            Self::Off => return,
            Self::Stranger => {}
            Self::Guest(origin) => {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
                let may_read = HeaderValue::from_static(MAY_READ);
                headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, may_read);
            }
        }
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

/// The answer to a browser that asks for leave to use those methods.
pub(crate) fn leave(methods: HeaderValue) -> Reply {
    let mut reply = Response::new(Body::empty());
    *reply.status_mut() = StatusCode::NO_CONTENT;
    let headers = reply.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(MAY_SEND));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(REMEMBERED));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(origins: &[&str], origin: Option<&'static str>) -> Page {
        let origins: Vec<String> = origins.iter().map(|origin| (*origin).to_owned()).collect();
        let mut headers = HeaderMap::new();
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_static(origin));
        }
        Page::of(&origins, &headers)
    }

    #[test]
    fn only_exact_origins_are_let_in() {
        let known = ["https://console.test", "http://localhost:3000"];
        assert!(page(&known, Some("https://console.test")).is_guest());
        for origin in [
            "http://console.test",
            "https://console.test:8443",
            "https://console.test.evil.test",
            "https://evil.test/https://console.test",
            "null",
            "*",
            "",
        ] {
            assert_eq!(page(&known, Some(origin)), Page::Stranger, "{origin}");
        }
        assert_eq!(page(&known, None), Page::Stranger);
        assert_eq!(page(&[], Some("https://console.test")), Page::Off);
    }
}
