//! Do hostile frames cost no more than they should, and are they refused with a status? (G40, G50)
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod grpc_support;
mod support;

use std::io::Write as _;

use bytes::Bytes;
use grpc_support::{Raw, RawAnswer, delayed, frame, framed, message, read_all, talk};
use http::StatusCode;
use prost::Message as _;
use punctual_proto::v1;
use support::Server;

const SEND: &str = "punctual.v1.MessageService/Send";
const SEND_STREAM: &str = "punctual.v1.MessageService/SendStream";
const GRPC: &str = "application/grpc";

fn request(body: &str) -> v1::SendRequest {
    v1::SendRequest { topic: "t".to_owned(), messages: vec![delayed(body, 60)] }
}

fn code(answer: &RawAnswer) -> (&str, &str) {
    let told = |name| {
        let value = answer.trailers.get(name).or_else(|| answer.headers.get(name));
        value.and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    (told("grpc-status"), told("punctual-code"))
}

#[test]
fn frames_that_are_none_are_refused() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        let good = request("a").encode_to_vec();
        let huge = [&[0, 0xff, 0xff, 0xff, 0xff][..], b"x"].concat();
        let cut = framed(0, &good).slice(..8);
        let twice = [framed(0, &good), framed(0, &good)].concat();
        for (what, body, status, word) in [
            ("nothing", Bytes::new(), "3", "invalid_request"),
            ("half a head", Bytes::from_static(b"\x00\x00"), "3", "invalid_request"),
            ("a cut frame", cut, "3", "invalid_request"),
            ("a length beyond all", huge.into(), "3", "request_too_large"),
            ("no protobuf", framed(0, b"\xff\xff\xff"), "3", "invalid_request"),
            ("two messages", twice.into(), "3", "invalid_request"),
            ("compressed without saying how", framed(1, &good), "3", "invalid_request"),
            ("an unknown flag", framed(9, &good), "3", "invalid_request"),
        ] {
            let answer = raw.call(SEND, GRPC, body).await;
            assert_eq!(answer.status, StatusCode::OK, "{what}");
            assert_eq!(code(&answer), (status, word), "{what}");
        }
        let answer = raw.call(SEND, GRPC, framed(0, &good)).await;
        assert_eq!(code(&answer).0, "0", "the connection is as good as before");
    });
}

#[test]
fn an_empty_frame_behind_the_message_is_no_harm() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        let body = [frame(&request("a")), framed(0, b"")].concat();
        let answer = raw.call(SEND, "application/grpc+data", body.into()).await;
        assert_eq!(code(&answer).0, "0");
    });
}

#[test]
fn g40_messages_that_would_grow_when_read_are_counted_first() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        // Two bytes each on the wire, hundreds in memory.
        let empty = [&b"\x0a\x01t"[..], &b"\x12\x00".repeat(8 << 20)[..]].concat();
        let answer = raw.call(SEND, GRPC, framed(0, &empty)).await;
        assert_eq!(code(&answer), ("3", "batch_too_large"));
        let headers = b"\x1a\x00".repeat(4 << 20);
        let change = v1::ChangeRequest { name: None, ..Default::default() };
        let mut bytes = change.encode_to_vec();
        bytes.push(8 << 3 | 2);
        prost::encoding::encode_varint((4 << 20) * 2, &mut bytes);
        bytes.extend(b"\x0a\x00".repeat(4 << 20));
        let answer = raw.call("punctual.v1.MessageService/Change", GRPC, framed(0, &bytes)).await;
        assert_eq!(code(&answer), ("3", "too_many_headers"));
        let mut bytes = vec![3 << 3 | 2];
        prost::encoding::encode_varint(headers.len() as u64, &mut bytes);
        bytes.extend(&headers);
        let answer = raw.call("punctual.v1.ConsumerService/Retry", GRPC, framed(0, &bytes)).await;
        assert_eq!(code(&answer), ("3", "too_many_headers"));
    });
}

#[test]
fn g40_a_compressed_bomb_stays_small() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        for _ in 0..256 {
            gzip.write_all(&[0; 1 << 20]).expect("memory");
        }
        let bomb = gzip.finish().expect("memory");
        assert!(bomb.len() < 1 << 20);
        let headers = [("content-type", GRPC), ("grpc-encoding", "gzip")];
        let (mut to, answer) = raw.open(SEND, &headers).await;
        to.send_data(framed(1, &bomb), true).expect("it is open");
        let (parts, body) = answer.await.expect("an answer").into_parts();
        let (_, trailers) = read_all(body).await;
        let told = trailers.get("punctual-code").or_else(|| parts.headers.get("punctual-code"));
        assert_eq!(told.expect("a refusal"), "request_too_large");
        let headers = [("content-type", GRPC), ("grpc-encoding", "deflate")];
        let (mut to, answer) = raw.open(SEND, &headers).await;
        // Refused by its head already, the stream may be over before its end is sent.
        let _sent = to.send_data(Bytes::new(), true);
        let parts = answer.await.expect("an answer").into_parts().0;
        assert_eq!(parts.headers["grpc-status"], "12", "unknown codings are unimplemented");
    });
}

#[test]
fn half_a_stream_is_refused_and_what_came_before_is_answered() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        let batch = v1::SendStreamRequest {
            sequence: 5,
            topic: "t".to_owned(),
            messages: vec![message("a")],
        };
        let good = frame(&batch);
        let body = [&good[..], &good[..7]].concat();
        let answer = raw.call(SEND_STREAM, GRPC, body.into()).await;
        assert_eq!(code(&answer), ("3", "invalid_request"));
        let first = v1::SendStreamResponse::decode(answer.body.slice(5..)).expect("an answer");
        assert_eq!(first.sequence, 5);
        let body = [&good[..], &framed(0, b"\xff")[..]].concat();
        let answer = raw.call(SEND_STREAM, GRPC, body.into()).await;
        assert_eq!(code(&answer), ("3", "invalid_request"));
        assert!(!answer.body.is_empty(), "the first batch was answered");
    });
}

#[test]
fn g50_a_frame_that_never_ends_times_out() {
    let server = Server::with(&[("http.body_idle_timeout", "200ms")]);
    talk(async {
        let mut raw = Raw::of(&server).await;
        let headers = [("content-type", GRPC)];
        for method in [SEND, SEND_STREAM] {
            let (mut to, answer) = raw.open(method, &headers).await;
            to.send_data(framed(0, &[0; 100]).slice(..20), false).expect("it is open");
            let (parts, body) = answer.await.expect("an answer").into_parts();
            let (_, trailers) = read_all(body).await;
            let told = trailers.get("punctual-code").or_else(|| parts.headers.get("punctual-code"));
            assert_eq!(told.expect("a refusal"), "request_timeout", "{method}");
        }
    });
}

#[test]
fn what_is_no_call_is_refused_in_words_that_its_caller_reads() {
    let server = Server::start();
    talk(async {
        let mut raw = Raw::of(&server).await;
        let body = frame(&request("a"));
        let answer = raw.call("punctual.v1.MessageService/Missing", GRPC, body.clone()).await;
        assert_eq!(answer.grpc_status(), Some("12"));
        let answer = raw.call("grpc.other.Service/Missing", GRPC, body.clone()).await;
        assert_eq!(answer.grpc_status(), Some("12"));
        let answer = raw.call(SEND, "text/plain", body.clone()).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        let answer = raw.call(SEND, "application/grpc-web", body).await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    });
    let answer = server.get("/punctual.v1.MessageService/Send");
    assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"));
}
