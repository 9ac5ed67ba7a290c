//! A place in a trace, in the form that W3C Trace Context gives it.
//!
//! Whatever comes from outside is read strictly: a text that is not exactly of that form is as good
//! as none.

use bytes::Bytes;
use http::HeaderMap;

/// The header with the place.
pub(crate) const TRACEPARENT: &str = "traceparent";
/// The header with what others have to say about the trace.
pub(crate) const TRACESTATE: &str = "tracestate";
/// Longest `tracestate` that is handed on.
const STATE_BYTES_MAX: usize = 512;
/// Length of the form in version 0.
const CHARS: usize = 55;

/// A span in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    /// Never 0.
    pub(crate) trace: u128,
    /// Never 0.
    pub(crate) span: u64,
    /// Whether the trace is recorded.
    pub(crate) sampled: bool,
}

impl Context {
    /// The place that a header names, if it does.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let (version, rest) = (text.get(..3)?, text.get(3..)?);
        let legal = match version {
            "00-" => text.len() == CHARS,
            "ff-" => false,
            // A later version may have more behind.
            _ => text.len() == CHARS || text.as_bytes().get(CHARS) == Some(&b'-'),
        };
        let (trace, rest) = (rest.get(..32)?, rest.get(32..)?.strip_prefix('-')?);
        let (span, flags) = (rest.get(..16)?, rest.get(16..)?.strip_prefix('-')?.get(..2)?);
        let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !legal || ![version.get(..2)?, trace, span, flags].into_iter().all(hex) {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, sampled: flags & 1 == 1 })
    }

    /// The header that names it.
    #[cfg(feature = "otel")]
    pub(crate) fn write(self) -> Bytes {
        let Self { trace, span, sampled } = self;
        format!("00-{trace:032x}-{span:016x}-{:02x}", u8::from(sampled)).into()
    }
}

/// Where in a trace a request comes from.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "otel"), expect(dead_code, reason = "only traces look at it"))]
pub(crate) struct Caller {
    pub(crate) context: Context,
    /// What others have to say about the trace.
    pub(crate) state: Option<Bytes>,
}

impl Caller {
    /// The place that a request names.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let context = Context::read(headers.get(TRACEPARENT)?.as_bytes())?;
        let state = headers.get(TRACESTATE).map(http::HeaderValue::as_bytes);
        Some(Self {
            context,
            state: state.filter(|state| is_state(state)).map(Bytes::copy_from_slice),
        })
    }
}

/// Whether this may be handed on as a `tracestate`.
pub(crate) fn is_state(text: &[u8]) -> bool {
    let visible = |byte: &u8| matches!(byte, b' '..=b'~');
    (1..=STATE_BYTES_MAX).contains(&text.len()) && text.iter().all(visible)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_form_is_read_and_written() {
        let context = Context::read(GOOD.as_bytes()).unwrap();
        assert_eq!(context.span, 0xb7ad_6b71_6920_3331);
        assert!(context.sampled);
        #[cfg(feature = "otel")]
        assert_eq!(context.write(), GOOD);
        let unsampled = GOOD.replace("-01", "-00");
        assert!(!Context::read(unsampled.as_bytes()).unwrap().sampled);
        let later = format!("{}-more", GOOD.replacen("00", "01", 1));
        assert_eq!(Context::read(later.as_bytes()), Some(context));
    }

    #[test]
    fn anything_else_is_none() {
        let bad = [
            String::new(),
            "00".to_owned(),
            GOOD.to_ascii_uppercase(),
            format!("{GOOD}-more"),
            format!("{GOOD} "),
            GOOD.replacen("00", "ff", 1),
            GOOD.replacen("00", "0g", 1),
            GOOD.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            GOOD.replace("b7ad6b7169203331", &"0".repeat(16)),
            GOOD.replace('-', "_"),
            GOOD.replace("-01", "-+1"),
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\u{e9}".to_owned(),
        ];
        for text in bad {
            assert_eq!(Context::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Context::read(b"\xff\xfe"), None);
    }

    #[test]
    fn a_state_is_plain_text_of_bounded_length() {
        assert!(is_state(b"vendor=1,other=2"));
        for bad in [&b""[..], b"a\r\nb", b"\xff", &[b'a'; 513]] {
            assert!(!is_state(bad));
        }
    }
}
