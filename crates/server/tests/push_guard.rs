//! Does a push reach nothing but what it may reach, and nobody but who it is meant for?
#![expect(
    clippy::disallowed_methods,
    clippy::panic,
    reason = "test helpers outside test functions"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "the support modules serve several tests")]

mod push_support;
mod support;

use std::io::{BufReader, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use push_support::{
    Endpoint, QUIET, push_to, put_group, read_request, reply, send, server, wait_for,
    wait_for_dead, wait_until_done,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use support::Server;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

#[test]
fn g46_an_address_inside_is_refused_when_the_group_is_made() {
    let endpoint = Endpoint::start(|_request| reply(200, "", ""));
    let port = endpoint.address.port();
    let server = Server::start();
    for url in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f.0.0.1:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "https://user:password@example.org/".to_owned(),
        "ftp://example.org/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "not a url".to_owned(),
    ] {
        let settings = json!({"push": {"url": url}}).to_string();
        let json = "content-type: application/json\r\n";
        let answer = server.request("PUT", "/v1/topics/t/groups/g", json, settings.as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_field"), "{url}");
        assert!(answer.body.contains("push.url"), "{}", answer.body);
    }
    for push in [
        json!({"url": "https://example.org/", "secret": "whsec_not base 64"}),
        json!({"url": "https://example.org/", "concurrency": 0}),
        json!({"url": "https://example.org/", "concurrency": 257}),
        json!({"url": "https://example.org/", "timeout": "6m"}),
        json!({"url": "https://example.org/", "timeout": "100ms"}),
    ] {
        let settings = json!({"push": push}).to_string();
        let json = "content-type: application/json\r\n";
        let answer = server.request("PUT", "/v1/topics/t/groups/g", json, settings.as_bytes());
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_field"), "{push}");
    }
    assert_eq!(endpoint.connections(), 0);
}

#[test]
fn g46_an_address_that_is_no_longer_allowed_is_not_reached() {
    let endpoint = Endpoint::start(|_request| reply(200, "", ""));
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data").display().to_string();
    let allowing = [("push.allow", "127.0.0.1/32"), ("store.data", &data)];
    let mut server = Server::with(&allowing);
    push_to(&server, "t", &endpoint.url(), &["10ms"]);
    server.join().expect("it ends well");

    let mut server = Server::with(&[("store.data", &data)]);
    send(&server, "t", &json!({"body": "x"}));
    wait_for(&server, "t", |group| group["lag"] == 1);
    endpoint.stays_quiet(QUIET);
    assert_eq!(endpoint.connections(), 0);
    server.join().expect("it ends well");

    let server = Server::with(&allowing);
    assert_eq!(endpoint.next().attempt(), 1, "it was not even tried");
    wait_until_done(&server, "t");
}

#[test]
fn g46_a_redirect_is_a_failure() {
    let target = Endpoint::start(|_request| reply(200, "", ""));
    let location = target.url();
    let endpoint =
        Endpoint::start(move |_request| reply(307, &format!("location: {location}\r\n"), ""));
    let server = server();
    push_to(&server, "t", &endpoint.url(), &["10ms"]);
    send(&server, "t", &json!({"body": "x"}));
    let letter = wait_for_dead(&server, "t");
    assert_eq!(letter["last_error"], "HTTP 307");
    assert_eq!(target.connections(), 0);
}

#[test]
fn the_secret_is_shown_to_nobody() {
    let server = Server::start();
    let push = json!({"url": "https://example.org/in", "secret": "hush-hush"});
    put_group(&server, "t", &json!({"push": push}));
    for path in ["/v1/topics/t/groups/g", "/v1/topics/t/groups", "/v1/groups"] {
        let answer = server.get(path);
        assert_eq!(answer.status, 200);
        assert!(!answer.body.contains("hush-hush"), "{}", answer.body);
    }
}

/// An endpoint with TLS for `name`; the file of the authority that signed it is written.
fn secure_endpoint(name: &str, authority_file: &Path) -> Endpoint {
    let authority_key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("a certificate");
    std::fs::write(authority_file, authority.pem()).expect("a file");
    let issuer = Issuer::new(params, authority_key);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("a certificate and its key");
    let config = Arc::new(config);
    Endpoint::serving(move |stream, seen| {
        let connection = ServerConnection::new(Arc::clone(&config)).expect("a configuration");
        let mut reading = BufReader::new(StreamOwned::new(connection, stream));
        while let Some(request) = read_request(&mut reading) {
            seen.send(request).expect("the test goes on");
            reading.get_mut().write_all(&reply(200, "", "")).expect("it reads");
        }
    })
}

#[test]
fn tls_trusts_the_configured_authority_and_checks_the_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, other) = (directory.path().join("ca.pem"), directory.path().join("other.pem"));
    let ours = secure_endpoint("127.0.0.1", &file);
    let stranger = secure_endpoint("127.0.0.1", &other);
    let server = Server::with(&[
        ("push.allow", "127.0.0.0/8, localhost:*"),
        ("push.ca_file", &file.display().to_string()),
    ]);
    let push = |topic: &str, host: &str, endpoint: &Endpoint| {
        let url = format!("https://{host}:{}/", endpoint.address.port());
        put_group(&server, topic, &json!({"push": {"url": url}, "max_attempts": 1}));
        send(&server, topic, &json!({"body": "x"}));
    };
    push("right", "127.0.0.1", &ours);
    assert_eq!(ours.next().text(), "x");
    wait_until_done(&server, "right");
    for (topic, host, endpoint) in
        [("wrong-name", "localhost", &ours), ("stranger", "127.0.0.1", &stranger)]
    {
        push(topic, host, endpoint);
        let letter = wait_for_dead(&server, topic);
        let error = letter["last_error"].as_str().expect("an error");
        assert!(error.starts_with("TLS failed"), "{error}");
        endpoint.stays_quiet(Duration::ZERO);
    }
}
