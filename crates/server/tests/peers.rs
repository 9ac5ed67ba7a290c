//! The way by which nodes call each other: is everybody else refused, and is a node that was taken over
//! by somebody hostile kept from doing harm?
#![cfg(feature = "cluster")]
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support module serves several tests")]

mod access_support;
mod support;

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::Command;

use access_support::Client;
use bytes::Bytes;
use punctual_cluster::routing::wire::{Answer as PeerAnswer, BYTES_MAX, Request, decode_answer};
use punctual_model::MessageId;
use punctual_model::ports::CancelOutcome;
use punctual_testkit::services;
use serde_json::json;
use support::{Answer, Server};

const PATH: &str = "/internal/v1/timeline";
const SECRET: &str = "a-secret-between-nodes";
const ADMIN: &str = "admin.0123456789abcdefgh";

/// A node of a cluster of its own, with a message that is due in an hour.
struct Node {
    server: Server,
    topic: String,
    id: MessageId,
    // After whoever uses it.
    _database: Database,
}

/// A database in the MariaDB that tests share, for one test alone.
struct Database {
    server: SocketAddr,
    name: String,
}

impl Database {
    fn make(server: SocketAddr, tag: &str) -> Self {
        let database = Self { server, name: format!("punctual_test_{tag}") };
        assert!(database.run("CREATE DATABASE"), "{}", database.name);
        database
    }

    fn run(&self, statement: &str) -> bool {
        let port = format!("-P{}", self.server.port());
        let status = Command::new("mariadb")
            .args(["--no-defaults", "-h127.0.0.1", "-uroot", &port, "-e"])
            .arg(format!("{statement} {}", self.name))
            .status();
        status.expect("the client of MariaDB").success()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // A test that fails must not fail again while it cleans up.
        let _gone = self.run("DROP DATABASE");
    }
}

/// What nobody else has in its names.
fn tag() -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let chance = directory.path().file_name().expect("a name").to_string_lossy().replace('.', "");
    format!("{}{chance}", std::process::id())
}

/// A server with authentication over a new database; nothing where a service cannot be had.
fn serve(tag: &str, more: &[(&str, &str)]) -> Option<(Database, Server)> {
    let (mariadb, kafka) = (services::mariadb()?, services::kafka()?.to_string());
    let database = Database::make(mariadb, tag);
    let url = format!("mysql://root@{mariadb}/{}", database.name);
    let settings = [
        ("timeline.kind", "mysql"),
        ("timeline.url", &url),
        ("outlet.kind", "kafka"),
        ("outlet.brokers", &kafka),
        ("kafka.listen", "off"),
        ("auth.enabled", "true"),
        ("auth.admin_token", ADMIN),
    ];
    Some((database, Server::with(&[&settings[..], more].concat())))
}

impl Node {
    fn start() -> Option<Self> {
        let (etcd, tag) = (services::etcd()?.to_string(), tag());
        let (database, server) = serve(
            &tag,
            &[
                ("cluster.coordinator", "etcd"),
                ("cluster.endpoints", &etcd),
                ("cluster.name", &tag),
                ("cluster.slots", "2"),
                ("cluster.secret", SECRET),
            ],
        )?;
        let topic = format!("peers-{tag}");
        let message = json!({"body": "x", "delay": "1h"});
        let path = format!("/v1/topics/{topic}/messages");
        let sent = Client::new(&server, ADMIN).done("POST", &path, &message);
        let id = sent["id"].as_str().expect("an id").parse().expect("an id");
        Some(Self { server, topic, id, _database: database })
    }

    /// Calls it like a node, with these headers.
    fn call(&self, headers: &str, body: &[u8]) -> Answer {
        self.server.request("POST", PATH, headers, body)
    }

    /// Everything that a call could have changed.
    fn state(&self) -> String {
        let path = format!("/v1/topics/{}/scheduled", self.topic);
        let pending = self.server.request("GET", &path, &bearer(ADMIN), b"");
        assert_eq!(pending.status, 200, "{}", pending.body);
        pending.body
    }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn shown(secret: &str) -> String {
    format!("punctual-cluster-secret: {secret}\r\n")
}

#[test]
fn whoever_does_not_know_the_secret_is_refused_whatever_else_he_knows() {
    let Some(node) = Node::start() else { return };
    let (cancel, before) = (Request::Cancel(vec![node.id]).encode(), node.state());
    let mut admin = Client::new(&node.server, ADMIN);
    let app =
        admin.create("orders", &json!([{"topics": "*", "verbs": ["send", "cancel"]}]), &json!({}));
    let own = shown(SECRET);
    for (what, headers, status, code) in [
        ("nothing", String::new(), 401, "unauthenticated"),
        ("another secret", shown("a-secret-between-enemies"), 401, "unauthenticated"),
        ("an empty one", shown(""), 401, "unauthenticated"),
        ("the beginning of it", shown(&SECRET[..8]), 401, "unauthenticated"),
        ("more than it", shown(&format!("{SECRET}s")), 401, "unauthenticated"),
        ("what is shown where there is none", shown("none"), 401, "unauthenticated"),
        ("it and another", own.clone() + &shown("x"), 401, "unauthenticated"),
        ("a token of the administrator", bearer(ADMIN), 401, "unauthenticated"),
        ("a token of an app", bearer(&app), 401, "unauthenticated"),
        ("the secret as a token", bearer(SECRET), 401, "unauthenticated"),
        ("it from a web page", own.clone() + "origin: http://127.0.0.1\r\n", 403, "cross_origin"),
    ] {
        let refused = node.call(&headers, &cancel);
        assert_eq!((refused.status, &*refused.code()), (status, code), "{what}: {}", refused.body);
        assert!(!refused.body.contains(SECRET), "{what}");
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(node.server.request(method, PATH, &own, &cancel).status, 404, "{method}");
    }
    assert_eq!(node.state(), before, "nothing was carried out");
    // The secret opens nothing else.
    for headers in [own.clone(), bearer(SECRET), bearer(&format!("admin.{SECRET}"))] {
        assert_eq!(node.server.request("GET", "/v1/topics", &headers, b"").status, 401);
    }
    // And a node is answered.
    let answered = Bytes::from(node.call(&own, &cancel).body.into_bytes());
    let done = PeerAnswer::Cancelled(vec![CancelOutcome::Cancelled]);
    assert_eq!(decode_answer(&answered), Ok(Ok(done)));
    assert_ne!(node.state(), before);
}

/// Numbers that a seed gives again.
fn next(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn bytes_that_no_node_sends_are_refused_and_change_nothing() {
    let Some(node) = Node::start() else { return };
    let (own, before) = (shown(SECRET), node.state());
    let whole = Request::Cancel(vec![node.id; 40]).encode();
    let mut hostile: Vec<Vec<u8>> = (0..whole.len()).map(|end| whole[..end].to_vec()).collect();
    hostile.push([&whole[..], b"\0"].concat());
    for version in [0, 2, 255] {
        hostile.push([&[version], &whole[1..]].concat());
    }
    for kind in [0, 5, 200] {
        hostile.push([&[1, kind], &whole[2..]].concat());
        // As many as a number can say.
        hostile.push([&[1, kind % 4], &[0xff; 9][..], &[1]].concat());
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15;
    for round in 0..400_u64 {
        let length = usize::try_from(next(&mut seed) % 200).expect("small");
        let mut bytes = vec![1, u8::try_from(round % 3).expect("small") + 1];
        bytes.extend((0..length).map(|_| next(&mut seed).to_le_bytes()[0]));
        // A few of them could be read by chance, if all that follows were good as well.
        bytes.push(0xff);
        hostile.push(bytes);
    }
    for bytes in &hostile {
        let refused = node.call(&own, bytes);
        let told = (refused.status, refused.code());
        assert_eq!(told, (400, "invalid_request".to_owned()), "{bytes:?}");
    }
    let announced = format!("content-length: {}\r\n", BYTES_MAX + 1);
    let head =
        format!("POST {PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{own}{announced}\r\n");
    let large = node.server.raw(head.as_bytes());
    assert_eq!((large.status, large.code()), (413, "request_too_large".to_owned()));
    // Less than was announced, and then nothing more.
    let announced = format!("content-length: {}\r\n", whole.len());
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\n{own}{announced}\r\n");
    for end in [0, 1, whole.len() - 1] {
        let mut stream = node.server.connect();
        stream.write_all(&[head.as_bytes(), &whole[..end]].concat()).expect("it listens");
    }
    assert_eq!(node.state(), before, "nothing was carried out");
    assert_eq!(node.server.get("/health/ready").status, 200);
}

#[test]
fn a_node_that_is_alone_is_called_by_nobody() {
    let tag = tag();
    let Some((_database, server)) = serve(&tag, &[]) else { return };
    let cancel = Request::Cancel(Vec::new()).encode();
    for headers in [String::new(), shown("none"), shown("anything"), shown("x") + &bearer(ADMIN)] {
        assert_eq!(server.request("POST", PATH, &headers, &cancel).status, 404, "{headers}");
    }
}
