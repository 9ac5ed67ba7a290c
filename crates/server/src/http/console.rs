//! The console: pages for people, which ask for everything over the public interface.
//!
//! Its files are in the program. Where nobody has built them, a page says how that is done.

use std::sync::LazyLock;

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, ETAG, HeaderName, HeaderValue, IF_NONE_MATCH,
    REFERRER_POLICY, X_FRAME_OPTIONS,
};
use http::{Response, StatusCode};
use punctual_api::{Code, Problem};
use sha2::{Digest as _, Sha256};

use crate::http::call::Call;
use crate::http::reply::{Body, Reply, typed};

/// By name, as they were built.
static FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/console.rs"));
const INDEX: &str = "index.html";
const NOT_BUILT: &str = include_str!("console/not_built.html");
/// Nothing but what this server sends counts; no page of anybody else shows this one.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'",
);
const GUARDS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// The tag of the first page, which keeps its name when it changes.
static INDEX_TAG: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let digest = Sha256::digest(file(INDEX)?);
    let digits: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::from_str(&format!("\"{digits}\"")).ok()
});

/// `GET /`
pub(crate) fn page(call: &Call) -> Reply {
    let Some(bytes) = file(INDEX) else {
        return guarded(typed(StatusCode::OK, media_type(INDEX), NOT_BUILT), "no-store");
    };
    let tag = INDEX_TAG.as_ref();
    let known = call.parts.headers.get(IF_NONE_MATCH);
    let mut reply = if tag.is_some() && known == tag {
        let mut reply = Response::new(Body::empty());
        *reply.status_mut() = StatusCode::NOT_MODIFIED;
        reply
    } else {
        typed(StatusCode::OK, media_type(INDEX), bytes)
    };
    if let Some(tag) = tag {
        reply.headers_mut().insert(ETAG, tag.clone());
    }
    guarded(reply, "no-cache")
}

/// `GET /assets/{file}`. What such a file is called changes with what is in it.
pub(crate) fn asset(call: &Call) -> Result<Reply, Problem> {
    let name = call.parts.uri.path().trim_start_matches('/');
    let bytes = file(name).ok_or(Code::RouteNotFound)?;
    let reply = typed(StatusCode::OK, media_type(name), bytes);
    Ok(guarded(reply, "public, max-age=31536000, immutable"))
}

fn file(name: &str) -> Option<&'static [u8]> {
    let place = FILES.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
    FILES.get(place).map(|(_, bytes)| *bytes)
}

fn media_type(name: &str) -> HeaderValue {
    HeaderValue::from_static(match name.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("woff2") => "font/woff2",
        Some("json" | "webmanifest") => "application/json",
        _ => "application/octet-stream",
    })
}

fn guarded(mut reply: Reply, kept: &'static str) -> Reply {
    let headers = reply.headers_mut();
    headers.extend(GUARDS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(kept));
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_names_and_by_nothing_else() {
        assert!(FILES.is_sorted_by_key(|(name, _)| *name));
        for (name, bytes) in FILES {
            assert_eq!(file(name), Some(*bytes));
            assert!(!name.starts_with('.') && !name.contains(".."), "{name}");
        }
        for name in ["", "assets", "assets/", "assets/../index.html", ".gitignore"] {
            assert_eq!(file(name), None, "{name}");
        }
    }

    #[test]
    fn g44_neither_page_runs_what_is_written_into_it() {
        let pages = [Some(NOT_BUILT.as_bytes()), file(INDEX)];
        for page in pages.into_iter().flatten() {
            let text = std::str::from_utf8(page).unwrap();
            assert!(!text.contains("style=") && !text.contains("<style"), "{text}");
            for script in text.split("<script").skip(1) {
                assert!(script.contains("src=\"/assets/"), "{script}");
            }
        }
    }
}
