//! Authorities and certificates made for a test, and clients that encrypt.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    date_time_ymd,
};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version,
};

use crate::support::{Answer, PATIENCE, Server, read_answer};

/// A connection that encrypts.
pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

static SERIAL: AtomicU32 = AtomicU32::new(1);

/// Somebody who signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Whose certificate it is, and whether it still holds.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Server,
    Client,
    ExpiredServer,
    ExpiredClient,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        // No two authorities have the same name, or they would be taken for one.
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(DnType::CommonName, format!("authority {serial}"));
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate for localhost.
    pub(crate) fn sign(&self, kind: Kind) -> Pair {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, "somebody");
        params.extended_key_usages = vec![match kind {
            Kind::Server | Kind::ExpiredServer => ExtendedKeyUsagePurpose::ServerAuth,
            Kind::Client | Kind::ExpiredClient => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        if matches!(kind, Kind::ExpiredServer | Kind::ExpiredClient) {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        let own = CertificateDer::from_pem_slice(self.pem.as_bytes()).expect("our own");
        roots.add(own).expect("our own");
        roots
    }
}

/// The files a server reads.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new(pair: &Pair) -> Self {
        let files = Self(TempDir::new().expect("a directory"));
        files.put(pair);
        files
    }

    pub(crate) fn put(&self, pair: &Pair) {
        self.write("cert.pem", &pair.certificate);
        self.write("key.pem", &pair.key);
    }

    /// Writes a file, all at once.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let (path, new) = (self.path(name), self.path("new"));
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(&new, &path).expect("a file");
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A server with these files and settings.
    pub(crate) fn serve(&self, more: &[(&str, &str)]) -> Server {
        let text = |path: &Path| path.display().to_string();
        let (cert, key) = (text(&self.path("cert.pem")), text(&self.path("key.pem")));
        let mut settings = vec![("tls.cert_file", cert.as_str()), ("tls.key_file", key.as_str())];
        settings.extend_from_slice(more);
        Server::with(&settings)
    }
}

/// A client, as it is put together.
pub(crate) struct Client {
    roots: RootCertStore,
    identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    versions: Vec<&'static SupportedProtocolVersion>,
    protocols: Vec<Vec<u8>>,
}

impl Client {
    pub(crate) fn trusting(authority: &Authority) -> Self {
        Self {
            roots: authority.roots(),
            identity: None,
            versions: vec![&version::TLS13, &version::TLS12],
            protocols: Vec::new(),
        }
    }

    /// One that shows a certificate.
    pub(crate) fn showing(mut self, pair: &Pair) -> Self {
        let certificate = CertificateDer::from_pem_slice(pair.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("our own");
        self.identity = Some((vec![certificate.expect("our own")], key));
        self
    }

    pub(crate) fn only(mut self, version: &'static SupportedProtocolVersion) -> Self {
        self.versions = vec![version];
        self
    }

    pub(crate) fn offering(mut self, protocols: &[&str]) -> Self {
        self.protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        self
    }

    pub(crate) fn config(self) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&self.versions)
            .expect("versions")
            .with_root_certificates(self.roots);
        let mut config = match self.identity {
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("a pair"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.protocols;
        config
    }

    /// Connects and agrees. What the server thinks of a client's certificate shows only at the
    /// first answer.
    pub(crate) fn connect(self, address: SocketAddr) -> io::Result<Tls> {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut session =
            ClientConnection::new(Arc::new(self.config()), name).map_err(io::Error::other)?;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(StreamOwned::new(session, stream))
    }

    /// Connects and asks whether the server lives; its status.
    pub(crate) fn greets(self, address: SocketAddr) -> io::Result<u16> {
        let mut tls = self.connect(address)?;
        Ok(ask(&mut tls, "GET", "/health/live", "")?.status)
    }
}

/// One request on an open connection.
pub(crate) fn ask(tls: &mut Tls, method: &str, path: &str, json: &str) -> io::Result<Answer> {
    let length = json.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n"
    );
    tls.write_all(head.as_bytes())?;
    tls.write_all(json.as_bytes())?;
    tls.flush()?;
    let answer = read_answer(tls);
    if answer.status == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}

/// The certificate the server has shown.
pub(crate) fn shown(tls: &Tls) -> Vec<u8> {
    tls.conn.peer_certificates().expect("a certificate")[0].to_vec()
}

/// The certificate of a pair, as it is shown.
pub(crate) fn certificate_of(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).expect("our own").to_vec()
}
