//! Does the command line speak TLS: trust whom it should, show who it is, and say what is wrong?
#![allow(
    dead_code,
    clippy::allow_attributes,
    clippy::unwrap_used,
    clippy::panic,
    reason = "the support module serves several tests, and helpers of tests may stop them"
)]

mod command_support;
mod process_support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Output;

use command_support::{Server, text};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// An authority, a server and a client that it vouches for, as files.
struct Papers {
    directory: TempDir,
}

impl Papers {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let papers = Self { directory };
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        papers.write("ca.pem", &issuer.pem());
        for (name, host) in
            [("server", "127.0.0.1"), ("elsewhere", "192.0.2.1"), ("client", "shop")]
        {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            let certificate = params.signed_by(&key, &issuer).unwrap();
            papers.write(&format!("{name}.pem"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        // A key that others can read is not used.
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
    }

    fn shown(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A server with one of the certificates, and what else its section says.
    fn server(&self, name: &str, more: &str) -> Server {
        let config = format!(
            "[tls]\ncert_file = {:?}\nkey_file = {:?}\n{more}",
            self.path(&format!("{name}.pem")),
            self.path(&format!("{name}.key"))
        );
        self.write("punctual.toml", &config);
        let config = self.shown("punctual.toml");
        let data = TempDir::new().unwrap();
        let mut server = Server::with(&["--http", "127.0.0.1:0", "--config", &config], data);
        server.url = server.url.replace("http://", "https://");
        server
    }
}

fn refused(output: &Output, hint: &str) {
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains(hint), "{told}");
    assert!(!told.contains("panicked"), "{told}");
}

#[test]
fn a_server_is_trusted_by_its_authority() {
    let papers = Papers::new();
    let server = papers.server("server", "");
    let ca = papers.shown("ca.pem");
    let sent = server.json(&["send", "t", "x", "--delay", "1h", "--ca-file", &ca]);
    assert_eq!(sent[0]["state"], "scheduled");
    let listed = server.json(&["list", "t", "--ca-file", &ca]);
    assert_eq!(listed[0]["id"], sent[0]["id"]);
    refused(&server.run(&["topics"]), "--ca-file");
    let plain = server.url.replace("https://", "http://");
    refused(&server.run(&["topics", "--server", &plain]), &format!("--server {}", server.url));
    let empty = papers.shown("server.key");
    refused(&server.run(&["topics", "--ca-file", &empty]), "no certificate");
    refused(&server.run(&["topics", "--ca-file", "/nowhere.pem"]), "/nowhere.pem");
}

#[test]
fn a_certificate_for_another_name_is_refused() {
    let papers = Papers::new();
    let server = papers.server("elsewhere", "");
    let ca = papers.shown("ca.pem");
    refused(&server.run(&["topics", "--ca-file", &ca]), "another name");
}

#[test]
fn tls_to_a_port_without_it_is_told() {
    let papers = Papers::new();
    let server = Server::start();
    let wrong = server.url.replace("http://", "https://");
    let ca = papers.shown("ca.pem");
    let output = server.run(&["topics", "--server", &wrong, "--ca-file", &ca]);
    refused(&output, &format!("--server {}", server.url));
}

#[test]
fn a_server_that_asks_gets_a_certificate() {
    let papers = Papers::new();
    let authority = format!("client_ca_file = {:?}\n", papers.path("ca.pem"));
    let server = papers.server("server", &authority);
    let [ca, cert, key, other] =
        ["ca.pem", "client.pem", "client.key", "server.key"].map(|name| papers.shown(name));
    let known = ["topics", "--ca-file", &ca, "--cert", &cert, "--cert-key", &key];
    assert_eq!(server.run(&known).status.code(), Some(0), "{}", text(&server.run(&known).stderr));
    refused(&server.run(&["topics", "--ca-file", &ca]), "--cert FILE --cert-key FILE");
    let mixed = ["topics", "--ca-file", &ca, "--cert", &cert, "--cert-key", &other];
    refused(&server.run(&mixed), "do not fit");
    let half = server.run(&["topics", "--ca-file", &ca, "--cert", &cert]);
    assert_eq!(half.status.code(), Some(2), "a certificate without its key is no usage");
}
