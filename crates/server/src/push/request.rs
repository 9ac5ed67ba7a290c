//! A message as an HTTP request: a CloudEvent in binary mode, signed; and our own JSON likewise.
//!
//! Only this file decides which fields a request has. What a sender put into a message reaches the
//! endpoint under the prefix [`HEADER_PREFIX`] alone, so that it can neither end the head nor stand
//! for a field that means something on the way.

use std::fmt::Write as _;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, Request};
use http_body_util::Full;
use punctual_model::{GroupName, Message, MessageId, Partition, Timestamp, TopicName};

use crate::push::endpoint::Endpoint;
use crate::push::sign::{Signer, seconds};
use crate::trace::context::{Context, TRACEPARENT, TRACESTATE, is_state};

/// Before the names of the message's own headers.
const HEADER_PREFIX: &str = "punctual-header-";
/// The type of every event.
const EVENT_TYPE: &str = "punctual.message";
/// The type of a body that says nothing about itself.
const UNKNOWN_TYPE: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// Receivers take such a body for the event itself, with whatever attributes its sender gave it.
const EVENT_BODY_TYPE: &str = "application/cloudevents";
/// How requests of ours call themselves.
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("punctual/", env!("CARGO_PKG_VERSION")));

/// A message on its way to an endpoint.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) topic: &'a TopicName,
    pub(crate) group: &'a GroupName,
    pub(crate) id: MessageId,
    pub(crate) partition: Partition,
    pub(crate) offset: u64,
    pub(crate) due: Timestamp,
    pub(crate) attempt: u16,
    pub(crate) message: &'a Message,
}

/// The request that carries the message; `now` is when it is signed.
pub(crate) fn build(
    outgoing: &Outgoing<'_>,
    endpoint: &Endpoint,
    signer: Option<&Signer>,
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let message = outgoing.message;
    let mut request = Request::new(Full::new(message.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint.target.parse().map_err(http::Error::from)?;
    let head = request.headers_mut();
    head.insert(HOST, HeaderValue::try_from(&endpoint.authority)?);
    head.insert(USER_AGENT, AGENT);
    head.insert(CONTENT_TYPE, content_type(message));
    event(head, outgoing)?;
    let id = outgoing.id.to_string();
    head.insert("webhook-id", HeaderValue::try_from(&id)?);
    head.insert("webhook-timestamp", HeaderValue::from(seconds(now)));
    if let Some(signer) = signer {
        let signature = signer.sign(&id, now, &message.body);
        head.insert("webhook-signature", HeaderValue::try_from(signature)?);
    }
    trace(head, message);
    for header in message.headers.iter().filter(|header| !header.name.is_empty()) {
        let name = HeaderName::try_from(format!("{HEADER_PREFIX}{}", header.name));
        let value = HeaderValue::from_bytes(&header.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            head.append(name, value);
        }
    }
    Ok(request)
}

/// The request that carries some JSON of our own; `now` is when it is signed.
pub(crate) fn json(
    endpoint: &Endpoint,
    (id, body): (&str, Vec<u8>),
    signer: Option<&Signer>,
    now: Timestamp,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let signature = signer.map(|signer| signer.sign(id, now, &body));
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = endpoint.target.parse().map_err(http::Error::from)?;
    let head = request.headers_mut();
    head.insert(HOST, HeaderValue::try_from(&endpoint.authority)?);
    head.insert(USER_AGENT, AGENT);
    head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.insert("webhook-id", HeaderValue::try_from(id)?);
    head.insert("webhook-timestamp", HeaderValue::from(seconds(now)));
    if let Some(signature) = signature {
        head.insert("webhook-signature", HeaderValue::try_from(signature)?);
    }
    Ok(request)
}

/// The place in a trace that the message names, under the names that everybody looks for. Nothing
/// but well-formed ones pass, so a sender gains nothing by it.
fn trace(head: &mut HeaderMap, message: &Message) {
    let named = |name: &str| {
        let found = message.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| &header.value[..])
    };
    let Some(parent) = named(TRACEPARENT).filter(|text| Context::read(text).is_some()) else {
        return;
    };
    let state = named(TRACESTATE).filter(|text| is_state(text));
    for (name, text) in [(TRACEPARENT, Some(parent)), (TRACESTATE, state)] {
        if let Some(value) = text.and_then(|text| HeaderValue::from_bytes(text).ok()) {
            head.insert(name, value);
        }
    }
}

/// The attributes of the event.
fn event(head: &mut HeaderMap, outgoing: &Outgoing<'_>) -> Result<(), http::Error> {
    head.insert("ce-specversion", HeaderValue::from_static("1.0"));
    head.insert("ce-type", HeaderValue::from_static(EVENT_TYPE));
    head.insert("ce-id", HeaderValue::try_from(outgoing.id.to_string())?);
    head.insert("ce-source", HeaderValue::try_from(format!("/topics/{}", outgoing.topic))?);
    head.insert("ce-time", HeaderValue::try_from(outgoing.due.to_string())?);
    head.insert("ce-group", HeaderValue::try_from(outgoing.group.as_str())?);
    head.insert("ce-partition", HeaderValue::from(outgoing.partition.get()));
    head.insert("ce-offset", HeaderValue::from(outgoing.offset));
    head.insert("ce-attempt", HeaderValue::from(outgoing.attempt));
    if let Some(key) = outgoing.message.key.as_deref().and_then(printable) {
        let value = HeaderValue::try_from(encoded(key))?;
        head.insert("ce-subject", value.clone());
        head.insert("ce-partitionkey", value);
    }
    Ok(())
}

/// The key, if it is a text that an attribute may hold.
fn printable(key: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(key).ok()?;
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

/// A text as the HTTP binding of CloudEvents writes it.
fn encoded(text: &str) -> String {
    let mut written = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => write!(written, "%{byte:02X}").expect("a string takes all"),
            b'!'..=b'~' => written.push(char::from(byte)),
            _ => write!(written, "%{byte:02X}").expect("a string takes all"),
        }
    }
    written
}

/// The type the sender gave the body, if it is one.
fn content_type(message: &Message) -> HeaderValue {
    let named =
        message.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-type"));
    named
        .and_then(|header| std::str::from_utf8(&header.value).ok())
        .map(str::trim)
        .filter(|text| is_media_type(text))
        .and_then(|text| HeaderValue::from_str(text).ok())
        .unwrap_or(UNKNOWN_TYPE)
}

fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    let Some((kind, subtype)) = essence.split_once('/') else {
        return false;
    };
    let ours = essence.get(..EVENT_BODY_TYPE.len());
    is_token(kind)
        && is_token(subtype)
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !ours.is_some_and(|start| start.eq_ignore_ascii_case(EVENT_BODY_TYPE))
}

fn is_token(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(legal)
}

#[cfg(test)]
mod tests {
    use punctual_model::message::Header;
    use punctual_model::{Key, Sequence, TopicId};

    use super::*;
    use crate::push::endpoint::Allowed;

    fn built(message: &Message) -> Request<Full<Bytes>> {
        let due = Timestamp::from_millis(1_700_000_000_123).unwrap();
        let partition = Partition::new(3).unwrap();
        let key = Key { due, sequence: Sequence::new(7).unwrap() };
        let outgoing = Outgoing {
            topic: &TopicName::new("orders").unwrap(),
            group: &GroupName::new("billing").unwrap(),
            id: MessageId { key, topic: TopicId::new(1).unwrap(), partition },
            partition,
            offset: 42,
            due,
            attempt: 2,
            message,
        };
        let endpoint =
            Endpoint::read("https://hooks.example:8443/in?x=1", &Allowed::default()).unwrap();
        let signer = Signer::new("secret").unwrap();
        build(&outgoing, &endpoint, Some(&signer), Timestamp::from_millis(5_999).unwrap()).unwrap()
    }

    fn with(headers: &[(&str, &[u8])]) -> Message {
        let header = |&(name, value): &(&str, &[u8])| Header {
            name: name.to_owned(),
            value: Bytes::copy_from_slice(value),
        };
        Message { headers: headers.iter().map(header).collect(), ..Message::default() }
    }

    #[test]
    fn the_event_has_its_attributes() {
        let message =
            Message { key: Some(Bytes::from_static(b"a 1")), ..with(&[("trace", b"t1")]) };
        let request = built(&message);
        assert_eq!((request.method(), request.uri()), (&Method::POST, &"/in?x=1".parse().unwrap()));
        let id = request.headers()["ce-id"].to_str().unwrap().to_owned();
        for (name, value) in [
            ("host", "hooks.example:8443"),
            ("ce-specversion", "1.0"),
            ("ce-type", "punctual.message"),
            ("ce-source", "/topics/orders"),
            ("ce-time", "2023-11-14T22:13:20.123Z"),
            ("ce-subject", "a%201"),
            ("ce-partitionkey", "a%201"),
            ("ce-group", "billing"),
            ("ce-partition", "3"),
            ("ce-offset", "42"),
            ("ce-attempt", "2"),
            ("content-type", "application/octet-stream"),
            ("webhook-id", &id),
            ("webhook-timestamp", "5"),
            ("punctual-header-trace", "t1"),
        ] {
            assert_eq!(request.headers()[name], value, "{name}");
        }
    }

    #[test]
    fn attributes_are_encoded_as_the_binding_says() {
        assert_eq!(encoded("Euro € 😀"), "Euro%20%E2%82%AC%20%F0%9F%98%80");
        assert_eq!(encoded("\"100%\"~!"), "%22100%25%22~!");
        for key in [&b"a\r\nb"[..], b"\xff", b"", b"\x7f", "\u{85}".as_bytes()] {
            let message = Message { key: Some(Bytes::copy_from_slice(key)), ..Message::default() };
            let request = built(&message);
            assert!(!request.headers().contains_key("ce-subject"), "{key:?}");
            assert!(!request.headers().contains_key("ce-partitionkey"), "{key:?}");
        }
    }

    #[test]
    fn a_sender_cannot_add_fields_of_its_own() {
        let hostile = with(&[
            ("Host", b"evil"),
            ("transfer-encoding", b"chunked"),
            ("content-length", b"0"),
            ("webhook-signature", b"v1,forged"),
            ("ce-id", b"forged"),
            ("a", b"x\r\nhost: evil"),
            ("b", b"x\0"),
            ("c", b"x\x7f"),
            ("d\r\nhost: evil\r\ne", b"x"),
            ("f: g", b"x"),
            ("", b"x"),
            ("\u{e9}", b"x"),
        ]);
        let plain = built(&Message::default());
        let request = built(&hostile);
        for (name, value) in request.headers() {
            match name.as_str().strip_prefix(HEADER_PREFIX) {
                Some(rest) => {
                    assert!(!value.as_bytes().contains(&b'\n'));
                    let known = [
                        "host",
                        "transfer-encoding",
                        "content-length",
                        "webhook-signature",
                        "ce-id",
                    ];
                    assert!(known.contains(&rest), "{rest}");
                }
                None => assert_eq!(value, &plain.headers()[name], "{name}"),
            }
        }
        assert_eq!(request.headers()["punctual-header-host"], "evil");
    }

    #[test]
    fn a_place_in_a_trace_is_handed_on_if_it_is_one() {
        const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let message = with(&[("traceparent", PARENT.as_bytes()), ("tracestate", b"a=1")]);
        let request = built(&message);
        assert_eq!(request.headers()["traceparent"], PARENT);
        assert_eq!(request.headers()["tracestate"], "a=1");
        for parent in [&b"x"[..], b"", b"00-0-0-0\r\nhost: evil"] {
            let request = built(&with(&[("traceparent", parent), ("tracestate", b"a=1")]));
            assert!(!request.headers().contains_key("traceparent"));
            assert!(!request.headers().contains_key("tracestate"));
        }
    }

    #[test]
    fn a_repeated_header_stays_repeated() {
        let request = built(&with(&[("tag", b"1"), ("Tag", b"2")]));
        let values: Vec<_> = request.headers().get_all("punctual-header-tag").iter().collect();
        assert_eq!(values, ["1", "2"]);
    }

    #[test]
    fn the_type_of_a_body_is_taken_over_only_if_it_is_one() {
        for (given, sent) in [
            ("application/json", "application/json"),
            ("text/plain; charset=utf-8", "text/plain; charset=utf-8"),
            ("", "application/octet-stream"),
            ("json", "application/octet-stream"),
            ("a/b/c", "application/octet-stream"),
            ("a/ b", "application/octet-stream"),
            ("a/b\r\nhost: x", "application/octet-stream"),
            ("application/cloudevents+json", "application/octet-stream"),
            ("Application/CloudEvents-batch+json; a=b", "application/octet-stream"),
        ] {
            let request = built(&with(&[("Content-Type", given.as_bytes())]));
            assert_eq!(request.headers()["content-type"], sent, "{given}");
        }
    }
}
