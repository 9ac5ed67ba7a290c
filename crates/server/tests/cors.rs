//! Are pages of other origins let in only where they are named? (G45)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod support;
mod wire;

use support::Server;
use wire::{Head, ask};

const PAGE: &str = "https://console.test";
const JSON: (&str, &str) = ("content-type", "application/json");
const MESSAGE: &[u8] = br#"{"body":"x","delay":"1h"}"#;

fn cors_headers(head: &Head) -> Vec<&str> {
    let lines = head.text.lines();
    lines.filter(|line| line.to_ascii_lowercase().starts_with("access-control")).collect()
}

fn preflight(server: &Server, path: &str, origin: &str, method: &str) -> Head {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", method),
        ("access-control-request-headers", "authorization,content-type"),
    ];
    ask(server, "OPTIONS", path, &headers, b"").0
}

#[test]
fn without_the_setting_no_page_hears_of_it() {
    let server = Server::start();
    let head = preflight(&server, "/v1/topics/t/messages", PAGE, "POST");
    assert_eq!((head.status, head.get("allow")), (405, Some("POST")));
    assert!(cors_headers(&head).is_empty(), "{}", head.text);
    let headers = [JSON, ("origin", PAGE)];
    let (head, _) = ask(&server, "POST", "/v1/topics/t/messages", &headers, MESSAGE);
    assert_eq!(head.status, 403);
    assert!(cors_headers(&head).is_empty(), "{}", head.text);
    let (head, _) = ask(&server, "GET", "/v1/topics", &[("origin", PAGE)], b"");
    assert_eq!(head.status, 200);
    assert!(cors_headers(&head).is_empty() && head.get("vary").is_none(), "{}", head.text);
}

#[test]
fn a_page_that_is_named_may_ask_and_read() {
    let server = Server::with(&[("http.cors_origins", "https://console.test,http://a.test:81")]);
    let head = preflight(&server, "/v1/topics/t/messages", PAGE, "POST");
    assert_eq!(head.status, 204, "{}", head.text);
    assert_eq!(head.get("access-control-allow-origin"), Some(PAGE));
    assert_eq!(head.get("access-control-allow-methods"), Some("POST"));
    let allowed = head.get("access-control-allow-headers").expect("headers");
    for name in ["authorization", "content-type", "if-match", "x-request-id"] {
        assert!(allowed.contains(name), "{allowed}");
    }
    assert_eq!(head.all("vary"), ["origin"]);
    assert!(head.get("access-control-allow-credentials").is_none());
    let headers = [JSON, ("origin", PAGE)];
    let (head, _) = ask(&server, "POST", "/v1/topics/t/messages", &headers, MESSAGE);
    assert_eq!(head.status, 201);
    assert_eq!(head.get("access-control-allow-origin"), Some(PAGE));
    let exposed = head.get("access-control-expose-headers").expect("headers");
    for name in ["etag", "x-request-id", "retry-after", "location"] {
        assert!(exposed.contains(name), "{exposed}");
    }
    // Refusals can be read too.
    let (head, _) = ask(&server, "GET", "/v1/topics/none", &[("origin", PAGE)], b"");
    assert_eq!((head.status, head.get("access-control-allow-origin")), (404, Some(PAGE)));
    let head = preflight(&server, "/nowhere", PAGE, "GET");
    assert_eq!(head.status, 404);
}

#[test]
fn g45_any_other_page_is_kept_out() {
    let server = Server::with(&[("http.cors_origins", PAGE)]);
    for origin in ["https://evil.test", "http://console.test", "https://console.test:444", "null"] {
        let head = preflight(&server, "/v1/topics/t/messages", origin, "POST");
        assert_eq!(head.status, 405, "{origin}");
        assert!(cors_headers(&head).is_empty(), "{origin}: {}", head.text);
        let headers = [JSON, ("origin", origin)];
        let (head, _) = ask(&server, "POST", "/v1/topics/t/messages", &headers, MESSAGE);
        assert_eq!(head.status, 403, "{origin}");
        let (head, _) = ask(&server, "GET", "/v1/topics", &[("origin", origin)], b"");
        assert!(cors_headers(&head).is_empty(), "{origin}: {}", head.text);
        assert_eq!(head.all("vary"), ["origin"], "what one was told is not for another");
    }
    // A name that points here is no name of ours, whoever asks.
    let mut wire = wire::Wire::open(&server);
    wire.send(format!(
        "POST /v1/topics/t/messages HTTP/1.1\r\nhost: evil.test\r\norigin: {PAGE}\r\n\
         content-type: application/json\r\ncontent-length: 0\r\n\r\n"
    ));
    assert_eq!(wire.head().status, 421);
    assert_eq!(server.get("/v1/topics").json()["topics"], serde_json::json!([]));
}
