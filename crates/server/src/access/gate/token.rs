//! What an app shows to be let in: its key and its secret, as one text.

use http::HeaderValue;

/// Longest header that says who asks.
const HEADER_BYTES_MAX: usize = 1024;

/// Key and secret of `Bearer KEY.SECRET`.
pub(super) fn bearer(header: &HeaderValue) -> Option<(&str, &str)> {
    let text = header.to_str().ok().filter(|text| text.len() <= HEADER_BYTES_MAX)?;
    let (scheme, token) = text.split_once(' ')?;
    split(token.trim_matches(' ')).filter(|_| scheme.eq_ignore_ascii_case("bearer"))
}

/// Key and secret of `KEY.SECRET`. A key has no dot.
pub(super) fn split(token: &str) -> Option<(&str, &str)> {
    token.split_once('.').filter(|(key, secret)| !key.is_empty() && !secret.is_empty())
}
