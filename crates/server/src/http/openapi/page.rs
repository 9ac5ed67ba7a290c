//! The page that shows the document. Everything it needs is in the binary; it asks nobody else.

use std::io::Read as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, HeaderMap,
    HeaderValue, REFERRER_POLICY, VARY, X_FRAME_OPTIONS,
};
use punctual_api::{Code, Problem};
use utoipa_swagger_ui::Config;

use crate::http::call::Call;
use crate::http::reply::{Reply, typed};

const INDEX: &str = include_str!("page/index.html");
const START: &str = include_str!("page/start.js");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const SCRIPT: HeaderValue = HeaderValue::from_static("text/javascript; charset=utf-8");
const STYLE: HeaderValue = HeaderValue::from_static("text/css; charset=utf-8");
/// Only scripts of this server run, none that is written into the page; and no other page shows it.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);
/// Larger than any file of the page.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// `GET /docs`
pub(crate) fn page() -> Reply {
    guarded(typed(StatusCode::OK, HTML, INDEX))
}

/// `GET /docs/{file}`, and `GET /docs/`
pub(crate) fn page_file(call: &Call) -> Result<Reply, Problem> {
    let path = call.parts.uri.path();
    let name = path.rsplit('/').next().unwrap_or_default();
    let mut reply = match name {
        // Many type a slash at the end.
        "" => return Ok(page()),
        "start.js" => typed(StatusCode::OK, SCRIPT, START),
        "swagger-ui-bundle.js" => vendored(name, SCRIPT, &call.parts.headers)?,
        "swagger-ui.css" => vendored(name, STYLE, &call.parts.headers)?,
        _ => return Err(Code::RouteNotFound.into()),
    };
    reply.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("max-age=3600"));
    Ok(guarded(reply))
}

fn guarded(mut reply: Reply) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
}

/// A file that is in the binary, compressed; whoever does not take that gets it as it was.
fn vendored(name: &str, media_type: HeaderValue, headers: &HeaderMap) -> Result<Reply, Problem> {
    let file = utoipa_swagger_ui::serve(name, Arc::new(Config::new(["/openapi.json"])));
    let file = file.ok().flatten().ok_or(Code::RouteNotFound)?;
    let as_it_is = !file.gzpipped || takes_gzip(headers);
    let bytes = match as_it_is {
        true => Bytes::from(file.bytes.into_owned()),
        false => unpacked(&file.bytes).ok_or(Code::Internal)?,
    };
    let mut reply = typed(StatusCode::OK, media_type, bytes);
    reply.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    if file.gzpipped && as_it_is {
        reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(reply)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let given = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    given.flat_map(|text| text.split(',')).any(|one| {
        let (name, weight) = one.split_once(';').unwrap_or((one, ""));
        let weight = weight.trim().trim_start_matches("q=");
        let refused = !weight.is_empty() && weight.chars().all(|c| matches!(c, '0' | '.'));
        name.trim().eq_ignore_ascii_case("gzip") && !refused
    })
}

fn unpacked(packed: &[u8]) -> Option<Bytes> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(text))])
    }

    #[test]
    fn only_whoever_takes_gzip_gets_it() {
        for text in ["gzip", "br, gzip;q=0.5", "GZIP;q=1.0", "deflate,gzip"] {
            assert!(takes_gzip(&accepting(text)), "{text}");
        }
        for text in ["", "br", "gzip;q=0", "gzip; q=0.000", "identity", "*;q=0"] {
            assert!(!takes_gzip(&accepting(text)), "{text}");
        }
    }

    #[test]
    fn the_files_are_in_the_binary_in_both_forms() {
        for name in ["swagger-ui-bundle.js", "swagger-ui.css"] {
            let packed = vendored(name, SCRIPT, &accepting("gzip")).unwrap();
            assert_eq!(packed.headers()[CONTENT_ENCODING], "gzip");
            let plain = vendored(name, SCRIPT, &HeaderMap::new()).unwrap();
            assert!(!plain.headers().contains_key(CONTENT_ENCODING));
        }
        assert!(INDEX.contains("/docs/swagger-ui-bundle.js") && INDEX.contains("/docs/start.js"));
        assert!(!INDEX.contains("http:") && !INDEX.contains("https:"), "the page asks nobody else");
    }
}
