//! Is the listener encrypted as configured, for clients with the right papers and for no others?
//! (G47, G50)
#![expect(clippy::panic, reason = "test helpers outside test functions")]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]
#![allow(clippy::disallowed_methods, reason = "test helpers outside test functions")]

mod support;
mod tls_support;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use punctual_server::app::{self, Ready};
use punctual_server::config::{Config, ConfigFile, Source};
use punctual_server::live::Reload;
use serde_json::json;
use support::{PATIENCE, Server, read_answer, until_closed};
use tls_support::{Authority, Client, Files, Kind, ask, certificate_of, shown};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::version;

/// A busy machine is late, never early.
const LATE: Duration = Duration::from_secs(20);

fn served(more: &[(&str, &str)]) -> (Authority, Files, Server) {
    let authority = Authority::new();
    let files = Files::new(&authority.sign(Kind::Server));
    let server = files.serve(more);
    (authority, files, server)
}

#[test]
fn a_client_that_trusts_the_authority_is_served() {
    let (authority, _files, server) = served(&[]);
    let mut tls = Client::trusting(&authority).connect(server.address).expect("it agrees");
    // As large as a message may be, in both directions.
    let body = "x".repeat((4 << 20) - 1);
    let message = json!({"body": body, "delay": "1h"}).to_string();
    let made = ask(&mut tls, "POST", "/v1/topics/t/messages", &message).expect("an answer");
    assert_eq!(made.status, 201, "{}", made.body);
    let path = format!("/v1/messages/{}", made.json()["id"].as_str().expect("an id"));
    let found = ask(&mut tls, "GET", &path, "").expect("an answer").json();
    assert_eq!(found["body"].as_str().expect("a body").len(), body.len());
}

#[test]
fn the_session_of_a_browser_travels_encrypted_only() {
    let token = "admin.only-for-this-test-0123456789";
    let (authority, _files, server) =
        served(&[("auth.enabled", "true"), ("auth.admin_token", token)]);
    let mut tls = Client::trusting(&authority).connect(server.address).expect("it agrees");
    let asked = json!({"token": token}).to_string();
    let answer = ask(&mut tls, "POST", "/v1/session", &asked).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    let line = answer.head.lines().find_map(|line| line.strip_prefix("set-cookie: "));
    let cookie = line.expect("a cookie");
    for attribute in ["Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(cookie.split("; ").any(|one| one == attribute), "{attribute}: {cookie}");
    }
}

#[test]
fn a_client_that_trusts_somebody_else_goes_away() {
    let (authority, _files, server) = served(&[]);
    let stranger = Client::trusting(&Authority::new());
    let refused = stranger.connect(server.address).expect_err("not its authority");
    assert!(refused.to_string().contains("UnknownIssuer"), "{refused}");
    assert_eq!(Client::trusting(&authority).greets(server.address).expect("it lives"), 200);
}

#[test]
fn a_certificate_that_has_run_out_is_noticed() {
    let authority = Authority::new();
    let files = Files::new(&authority.sign(Kind::ExpiredServer));
    let server = files.serve(&[]);
    let refused = Client::trusting(&authority).connect(server.address).expect_err("it ran out");
    assert!(refused.to_string().contains("expired"), "{refused}");
}

#[test]
fn g47_only_current_versions_are_spoken() {
    let (authority, _files, server) = served(&[]);
    for version in [&version::TLS12, &version::TLS13] {
        let client = Client::trusting(&authority).only(version);
        assert_eq!(client.greets(server.address).expect("it is spoken"), 200, "{version:?}");
    }
    // The greeting of a client that knows 1.1 at most, with ciphers of its time.
    for old in [0x00, 0x01, 0x02] {
        let mut stream = server.connect();
        stream.write_all(&hello(old)).expect("it is open");
        let (_, bytes) = until_closed(&mut stream);
        // A fatal alert and nothing else: no version, or no cipher, in common.
        let alert = [bytes.first(), bytes.get(5)];
        assert_eq!(alert, [Some(&0x15), Some(&2)], "{bytes:?}");
        assert!(matches!(bytes[6..], [40 | 70]), "{bytes:?}");
    }
}

/// The first message of a client that offers this minor version at most.
fn hello(minor: u8) -> Vec<u8> {
    let mut hello = vec![3, minor];
    hello.extend_from_slice(&[7; 32]);
    // No session; two suites: ECDHE-ECDSA and ECDHE-RSA with AES 128 and SHA; no compression.
    hello.extend_from_slice(&[0, 0, 4, 0xc0, 0x09, 0xc0, 0x13, 1, 0]);
    // Groups, and points, as such a client sends them.
    hello.extend_from_slice(&[0, 14, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0]);
    let length = u8::try_from(hello.len()).expect("short");
    let mut record = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend_from_slice(&hello);
    record
}

#[test]
fn the_protocol_is_chosen_in_the_handshake() {
    let (authority, _files, server) = served(&[]);
    for (offered, chosen) in [
        (&["h2", "http/1.1"][..], Some("h2")),
        (&["http/1.1", "h2"], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&[], None),
    ] {
        let client = Client::trusting(&authority).offering(offered);
        let tls = client.connect(server.address).expect("it agrees");
        assert_eq!(tls.conn.alpn_protocol(), chosen.map(str::as_bytes), "{offered:?}");
    }
    let odd = Client::trusting(&authority).offering(&["spdy/3"]);
    assert!(odd.connect(server.address).is_err());
}

#[test]
fn http2_is_spoken_over_tls() {
    let (authority, _files, server) = served(&[]);
    let config = Client::trusting(&authority).offering(&["h2"]).config();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let test = async {
        let stream = tokio::net::TcpStream::connect(server.address).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = TlsConnector::from(Arc::new(config)).connect(name, stream).await.expect("agreed");
        let (mut send, connection) = h2::client::handshake(tls).await.expect("it takes HTTP/2");
        let connection = tokio::spawn(connection);
        let request = http::Request::post("https://localhost/v1/topics/t/messages");
        let request = request.header("content-type", "application/json").body(()).expect("one");
        let (answer, mut stream) = send.send_request(request, false).expect("it is open");
        stream.send_data(Bytes::from_static(br#"{"body":"x"}"#), true).expect("it is open");
        assert_eq!(answer.await.expect("an answer").status(), 201);
        drop(send);
        drop(connection);
    };
    runtime.block_on(async { timeout(PATIENCE, test).await.expect("nothing waits so long") });
}

#[test]
fn g47_every_client_shows_a_certificate_of_the_authority_named() {
    let (authority, people) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.sign(Kind::Server));
    let ca = files.write("people.pem", &people.pem).display().to_string();
    let server = files.serve(&[("tls.client_ca_file", &ca)]);
    let client = || Client::trusting(&authority);
    for version in [&version::TLS12, &version::TLS13] {
        let known = client().only(version).showing(&people.sign(Kind::Client));
        assert_eq!(known.greets(server.address).expect("it is known"), 200);
        for (who, unknown) in [
            ("nobody", client()),
            ("foreign", client().showing(&Authority::new().sign(Kind::Client))),
            ("of the server's authority", client().showing(&authority.sign(Kind::Client))),
            ("run out", client().showing(&people.sign(Kind::ExpiredClient))),
            ("for servers", client().showing(&people.sign(Kind::Server))),
        ] {
            let outcome = unknown.only(version).greets(server.address);
            assert!(outcome.is_err(), "{who}: {outcome:?}");
        }
    }
}

#[test]
fn a_certificate_may_be_left_to_the_client() {
    let (authority, people) = (Authority::new(), Authority::new());
    let files = Files::new(&authority.sign(Kind::Server));
    let ca = files.write("people.pem", &people.pem).display().to_string();
    let server = files.serve(&[("tls.client_ca_file", &ca), ("tls.client_auth", "optional")]);
    let client = || Client::trusting(&authority);
    assert_eq!(client().greets(server.address).expect("nobody has to"), 200);
    let known = client().showing(&people.sign(Kind::Client));
    assert_eq!(known.greets(server.address).expect("it is known"), 200);
    let foreign = client().showing(&Authority::new().sign(Kind::Client));
    assert!(foreign.greets(server.address).is_err(), "who shows one shows a good one");
}

#[test]
fn certificates_change_while_connections_go_on() {
    let authority = Authority::new();
    let first = authority.sign(Kind::Server);
    let files = Files::new(&first);
    let data = tempfile::tempdir().expect("a directory");
    let mut file = ConfigFile::default();
    let text = |path: std::path::PathBuf| path.display().to_string();
    for (name, value) in [
        ("http.listen", "127.0.0.1:0".to_owned()),
        ("kafka.listen", "127.0.0.1:0".to_owned()),
        ("store.data", text(data.path().join("data"))),
        ("tls.cert_file", text(files.path("cert.pem"))),
        ("tls.key_file", text(files.path("key.pem"))),
    ] {
        file.set(name, value, Source::Flag("test")).expect("a known key");
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (ready, started) = oneshot::channel::<Ready>();
    let (stop, stopped) = oneshot::channel::<()>();
    let config = Config::try_from(&file).expect("a valid configuration");
    let serving = runtime.spawn(app::serve(config, ready, async {
        let _sender_gone = stopped.await.is_err();
    }));
    let started = runtime.block_on(async { timeout(PATIENCE, started).await });
    let ready = started.expect("it starts in time").expect("it starts");
    let mut reload = Reload::new(ready.live.clone(), file.clone());
    let connect = || Client::trusting(&authority).connect(ready.http).expect("it agrees");

    let mut old = connect();
    assert_eq!(shown(&old), certificate_of(&first));
    // A certificate whose key is another's, then none at all: nothing changes.
    let second = authority.sign(Kind::Server);
    files.write("cert.pem", &second.certificate);
    reload.take(file.clone()).expect("the configuration is as before");
    assert_eq!(shown(&connect()), certificate_of(&first), "the key of another certificate");
    files.write("key.pem", "nonsense");
    reload.take(file.clone()).expect("the configuration is as before");
    assert_eq!(shown(&connect()), certificate_of(&first), "no key");

    files.put(&second);
    reload.take(file).expect("the configuration is as before");
    assert_eq!(shown(&connect()), certificate_of(&second));
    assert_eq!(ask(&mut old, "GET", "/health/live", "").expect("it goes on").status, 200);

    stop.send(()).expect("it runs");
    let ended = runtime.block_on(async { timeout(PATIENCE, serving).await });
    ended.expect("it ends in time").expect("it does not panic").expect("it ends well");
}

#[test]
fn g50_handshakes_that_stop_half_way_are_ended() {
    let (authority, _files, server) = served(&[("tls.handshake_timeout", "2s")]);
    let whole = hello(3);
    for sent in [&[][..], &whole[..1], &whole[..30], &[0x16, 3, 1, 0x40, 0][..]] {
        let mut stream = server.connect();
        stream.write_all(sent).expect("it is open");
        let (open, _) = until_closed(&mut stream);
        assert!(open < LATE, "{open:?} after {} bytes", sent.len());
    }
    // The server has answered and waits for the rest.
    let mut stream = server.connect();
    stream.write_all(&whole).expect("it is open");
    let (open, _) = until_closed(&mut stream);
    assert!(open < LATE, "{open:?}");
    assert_eq!(Client::trusting(&authority).greets(server.address).expect("it lives"), 200);
}

#[test]
fn g50_silence_after_the_handshake_is_ended_too() {
    let (authority, _files, server) = served(&[
        ("http.header_timeout", "1s"),
        ("http.idle_timeout", "1s"),
        ("http.body_idle_timeout", "1s"),
    ]);
    let connect = || Client::trusting(&authority).connect(server.address).expect("it agrees");
    let mut silent = connect();
    let (open, bytes) = until_closed(&mut Hung(&mut silent));
    assert!(open < LATE && bytes.is_empty(), "{open:?}");
    let mut idle = connect();
    assert_eq!(ask(&mut idle, "GET", "/v1/topics", "").expect("an answer").status, 200);
    let (open, bytes) = until_closed(&mut Hung(&mut idle));
    assert!(open < LATE && bytes.is_empty(), "{open:?}");
    let mut half = connect();
    let head =
        "POST /v1/topics/t/publish HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx";
    half.write_all(head.as_bytes()).expect("it is open");
    assert_eq!(read_answer(&mut half).status, 408);
}

/// A connection that is cut off without a farewell has ended all the same.
struct Hung<'a>(&'a mut tls_support::Tls);

impl std::io::Read for Hung<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(into) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }
}

#[test]
fn who_never_reads_over_tls_is_cut_off() {
    let (authority, _files, server) = served(&[("http.body_idle_timeout", "2s")]);
    let mut tls = Client::trusting(&authority).connect(server.address).expect("it agrees");
    let message = json!({"body": "x".repeat(1 << 20), "delay": "1h"}).to_string();
    let made = ask(&mut tls, "POST", "/v1/topics/t/messages", &message).expect("an answer");
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let request = format!("GET /v1/messages/{id} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let start = std::time::Instant::now();
    while tls.write_all(request.repeat(64).as_bytes()).is_ok() && tls.flush().is_ok() {
        assert!(start.elapsed() < PATIENCE, "still open");
    }
}

#[test]
fn who_has_hung_up_over_tls_takes_nothing() {
    let (authority, _files, server) = served(&[]);
    let connect = || Client::trusting(&authority).connect(server.address).expect("it agrees");
    let group = "/v1/topics/t/groups/g";
    let mut watch = connect();
    assert_eq!(ask(&mut watch, "PUT", group, "{}").expect("an answer").status, 201);
    for farewell in [true, false] {
        for _ in 0..5 {
            let mut waiting = connect();
            let ask = r#"{"wait":"60s","lease":"12h"}"#;
            let head = format!(
                "POST {group}/receive HTTP/1.1\r\nhost: localhost\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{ask}",
                ask.len()
            );
            waiting.write_all(head.as_bytes()).expect("it is open");
            waiting.flush().expect("it is open");
            if farewell {
                waiting.conn.send_close_notify();
                waiting.flush().expect("it is open");
                // The server has understood once it answers in kind.
                let (open, _) = until_closed(&mut Hung(&mut waiting));
                assert!(open < LATE, "{open:?}");
            }
        }
    }
    // Nobody waits any more, or nobody has seen it yet: then what was taken comes back.
    let sent = ask(&mut watch, "POST", "/v1/topics/t/messages", r#"{"body":"x"}"#);
    assert_eq!(sent.expect("an answer").status, 201);
    let received = ask(&mut watch, "POST", &format!("{group}/receive"), r#"{"wait":"20s"}"#);
    let received = received.expect("an answer").json();
    assert_eq!(received["messages"][0]["body"], "x", "{received}");
}

#[test]
fn who_does_not_encrypt_is_told() {
    let (_authority, _files, server) = served(&[]);
    let answer = server.get("/health/live");
    assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"));
    assert!(answer.body.contains("this port speaks TLS"), "{}", answer.body);
    // A request with much behind it is told too.
    let answer = server.post("/v1/topics/t/messages", "x".repeat(40_000));
    assert_eq!(answer.status, 400);
}

#[test]
fn there_are_no_more_places_over_tls_either() {
    let (authority, _files, server) = served(&[("http.connections_max", "2")]);
    let connect = || Client::trusting(&authority).connect(server.address);
    let mut known = connect().expect("it agrees");
    assert_eq!(ask(&mut known, "GET", "/v1/topics", "").expect("an answer").status, 200);
    // One half-open handshake after the other: each takes the place of the one before.
    let mut half: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    let mut late = connect().expect("a stranger gave way");
    assert_eq!(ask(&mut late, "GET", "/v1/topics", "").expect("an answer").status, 200);
    for stream in &mut half {
        until_closed(stream);
    }
    assert!(connect().is_err(), "both are known now");
    assert_eq!(ask(&mut known, "GET", "/v1/topics", "").expect("an answer").status, 200);
}

#[test]
fn a_server_does_not_start_with_files_it_cannot_use() {
    let authority = Authority::new();
    let (one, other) = (authority.sign(Kind::Server), authority.sign(Kind::Server));
    let files = Files::new(&one);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let start = || {
        let data = tempfile::tempdir().expect("a directory");
        let mut file = ConfigFile::default();
        let text = |path: std::path::PathBuf| path.display().to_string();
        for (name, value) in [
            ("http.listen", "127.0.0.1:0".to_owned()),
            ("kafka.listen", "127.0.0.1:0".to_owned()),
            ("store.data", text(data.path().join("data"))),
            ("tls.cert_file", text(files.path("cert.pem"))),
            ("tls.key_file", text(files.path("key.pem"))),
            ("tls.client_ca_file", text(files.path("ca.pem"))),
        ] {
            file.set(name, value, Source::Flag("test")).expect("a known key");
        }
        let config = Config::try_from(file).expect("a valid configuration");
        let (ready, _started) = oneshot::channel::<Ready>();
        let serving = app::serve(config, ready, std::future::ready(()));
        runtime.block_on(serving).map_err(|error| error.to_string())
    };
    let refused = start().expect_err("there is no authority");
    assert!(refused.contains("ca.pem"), "{refused}");
    files.write("ca.pem", &authority.pem);
    start().expect("all is well");
    for (cert, key, culprit) in [
        (one.certificate.as_str(), other.key.as_str(), "cert.pem"),
        (&one.certificate, "", "key.pem"),
        (&one.certificate, &one.certificate, "key.pem"),
        ("", &one.key, "cert.pem"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &one.key, "cert.pem"),
    ] {
        files.write("cert.pem", cert);
        files.write("key.pem", key);
        let refused = start().expect_err("they cannot be used");
        assert!(refused.contains(culprit), "{refused}");
        assert!(!refused.contains("PRIVATE"), "{refused}");
    }
}

#[test]
fn curl_talks_to_it() {
    let (authority, files, server) = served(&[]);
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl on this machine");
        return;
    }
    let ca = files.write("ca.pem", &authority.pem);
    let foreign = files.write("foreign.pem", &Authority::new().pem);
    let url = format!("https://localhost:{}/health/live", server.address.port());
    let curl = |ca: &std::path::Path, more: &[&str]| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "60", "--write-out"]);
        command.arg("%{http_code} %{http_version}").arg("--cacert").arg(ca);
        let output = command.args(more).arg(&url).output().expect("curl runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said + &String::from_utf8_lossy(&output.stderr))
    };
    for (more, version) in [
        (&["--http2"][..], "200 2"),
        (&["--http1.1"], "200 1.1"),
        (&["--http1.1", "--tls-max", "1.2"], "200 1.1"),
    ] {
        let (well, said) = curl(&ca, more);
        assert!(well && said.ends_with(version), "{more:?}: {said}");
    }
    let (well, said) = curl(&foreign, &[]);
    assert!(!well, "{said}");
    let (well, said) = curl(&ca, &["--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0"]);
    assert!(!well, "{said}");
}
