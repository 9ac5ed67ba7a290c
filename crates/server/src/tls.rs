//! TLS for a listener: the certificate, who must show one, and how both change while it runs.
//!
//! An `Acceptor` belongs to one listener and turns accepted connections into encrypted ones, all
//! within the time for a handshake. Its files are read again when somebody asks and whenever they
//! have changed. What cannot be used is reported and changes nothing: the listener goes on with
//! what it has, and connections that are open are never touched. The provider of the ciphers is
//! named here and nowhere taken from the process.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, version};
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};

use crate::config::{ClientAuth, TlsConfig};
use crate::tasks::Tasks;

/// How often the files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);
/// The first byte of every handshake.
const HANDSHAKE: u8 = 0x16;
/// Others may read or write a file.
const OPEN_TO_OTHERS: u32 = 0o006;

/// Why the files of a listener cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {} for TLS: {reason}", path.display())]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

/// Why a connection is not encrypted.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// The other side does not speak TLS; what it has sent is still unread.
    Plain(TcpStream),
    /// It took too long.
    Late,
    /// It is gone, or it does not agree.
    Failed(io::Error),
}

/// Accepts connections of one listener. See the head of this file.
pub(crate) struct Acceptor {
    config: TlsConfig,
    protocols: Vec<Vec<u8>>,
    current: ArcSwap<ServerConfig>,
    /// What the files looked like when they were last read, usable or not.
    seen: Mutex<Vec<Option<Stamp>>>,
}

impl Acceptor {
    /// Reads the files. `protocols` are offered to clients that ask, the favourite first.
    pub(crate) fn open(config: &TlsConfig, protocols: &[&[u8]]) -> Result<Self, TlsError> {
        let protocols: Vec<Vec<u8>> = protocols.iter().map(|name| name.to_vec()).collect();
        let seen = stamps(config);
        let current = read(config, &protocols)?;
        warn_of_open_key(&config.key_file);
        Ok(Self {
            config: config.clone(),
            protocols,
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new(seen),
        })
    }

    /// Reads the files again; blocks on the disk. Connections accepted from now on get what was
    /// read, unless it cannot be used.
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let mut seen = self.seen.lock();
        self.renew(&mut seen)
    }

    /// The same if one of the files has changed.
    fn reload_if_changed(&self) {
        let mut seen = self.seen.lock();
        if *seen != stamps(&self.config) {
            // What is wrong has been reported.
            let _kept = self.renew(&mut seen).is_err();
        }
    }

    fn renew(&self, seen: &mut Vec<Option<Stamp>>) -> Result<(), TlsError> {
        // Looked at before they are read: what changes meanwhile is seen as a change later.
        *seen = stamps(&self.config);
        match read(&self.config, &self.protocols) {
            Ok(new) => {
                self.current.store(Arc::new(new));
                warn_of_open_key(&self.config.key_file);
                info!(certificate = %self.config.cert_file.display(), "certificates were read anew");
                Ok(())
            }
            Err(error) => {
                warn!(%error, "certificates are kept as they were");
                Err(error)
            }
        }
    }

    /// Looks at the files from time to time, until the tasks are asked to stop.
    pub(crate) async fn watch(self: Arc<Self>, tasks: Tasks) {
        while tokio::time::timeout(LOOK_INTERVAL, tasks.stopped()).await.is_err() {
            let acceptor = Arc::clone(&self);
            let looked = tasks.blocking(move || acceptor.reload_if_changed()).await;
            if let Err(error) = looked {
                warn!(%error, "the files of certificates could not be looked at");
            }
        }
    }

    /// Agrees with the other side, within the time for it.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        patience: Duration,
    ) -> Result<TlsStream<TcpStream>, HandshakeError> {
        let agreeing = tokio::time::timeout(patience, self.agree(stream));
        agreeing.await.unwrap_or(Err(HandshakeError::Late))
    }

    async fn agree(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, HandshakeError> {
        let mut first = [0];
        match stream.peek(&mut first).await {
            Ok(1..) if first[0] != HANDSHAKE => return Err(HandshakeError::Plain(stream)),
            Ok(_) => {}
            Err(error) => return Err(HandshakeError::Failed(error)),
        }
        let acceptor = TlsAcceptor::from(self.current.load_full());
        acceptor.accept(stream).await.map_err(HandshakeError::Failed)
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("config", &self.config).finish_non_exhaustive()
    }
}

/// What tells that a file is another one or has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    bytes: u64,
    file: (u64, u64),
}

fn stamps(config: &TlsConfig) -> Vec<Option<Stamp>> {
    let files = [config.cert_file.as_path(), config.key_file.as_path()];
    files.into_iter().chain(config.client_ca_file.as_deref()).map(stamp).collect()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let data = fs::metadata(path).ok()?;
    let modified = (data.mtime(), data.mtime_nsec());
    Some(Stamp { modified, bytes: data.size(), file: (data.dev(), data.ino()) })
}

fn read(config: &TlsConfig, protocols: &[Vec<u8>]) -> Result<ServerConfig, TlsError> {
    let chain = read_certificates(&config.cert_file)?;
    let key = read_key(&config.key_file)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|error| unusable(&config.cert_file, error))?;
    let builder = match &config.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            builder.with_client_cert_verifier(verifier(path, config.client_auth, provider)?)
        }
    };
    let made = builder.with_single_cert(chain, key);
    let mut made = made.map_err(|error| unusable(&config.cert_file, error))?;
    made.alpn_protocols = protocols.to_vec();
    Ok(made)
}

fn verifier(
    path: &Path,
    asked: ClientAuth,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for authority in read_certificates(path)? {
        roots.add(authority).map_err(|error| unusable(path, error))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match asked {
        ClientAuth::Required => builder,
        ClientAuth::Optional => builder.allow_unauthenticated(),
    };
    builder.build().map_err(|error| unusable(path, error))
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = fs::read(path).map_err(|error| unusable(path, error))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let certificates = read.map_err(|error| unusable(path, error))?;
    if certificates.is_empty() {
        return Err(unusable(path, "there is no certificate in it"));
    }
    Ok(certificates)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = fs::read(path).map_err(|error| unusable(path, error))?;
    // What the library says of a file without a key could be clearer; what is in the file is
    // never repeated.
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|_not_one| unusable(path, "there is no private key in it"))
}

fn unusable(path: &Path, reason: impl fmt::Display) -> TlsError {
    TlsError { path: path.to_owned(), reason: reason.to_string() }
}

fn warn_of_open_key(path: &Path) {
    let open = fs::metadata(path).is_ok_and(|data| data.permissions().mode() & OPEN_TO_OTHERS != 0);
    if open {
        warn!(file = %path.display(), "others on this machine can read or change the private key");
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use tempfile::TempDir;

    use super::*;

    struct Test {
        directory: TempDir,
        config: TlsConfig,
    }

    impl Test {
        fn new() -> Self {
            let directory = TempDir::new().unwrap();
            let config = TlsConfig {
                cert_file: directory.path().join("cert.pem"),
                key_file: directory.path().join("key.pem"),
                client_ca_file: None,
                client_auth: ClientAuth::Required,
                handshake_timeout: Duration::from_secs(10),
            };
            let test = Self { directory, config };
            test.renew();
            test
        }

        fn renew(&self) {
            let CertifiedKey { cert, signing_key } =
                generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            self.put("cert.pem", &cert.pem());
            self.put("key.pem", &signing_key.serialize_pem());
        }

        /// Another file of that name, so that a clock that is coarse does not matter.
        fn put(&self, name: &str, text: &str) {
            let new = self.directory.path().join("new");
            fs::write(&new, text).unwrap();
            fs::rename(new, self.directory.path().join(name)).unwrap();
        }
    }

    fn changed(acceptor: &Acceptor, act: impl FnOnce(&Acceptor)) -> bool {
        let before = acceptor.current.load_full();
        act(acceptor);
        !Arc::ptr_eq(&before, &acceptor.current.load_full())
    }

    #[test]
    fn files_that_have_changed_are_read_and_others_are_not() {
        let test = Test::new();
        let acceptor = Acceptor::open(&test.config, &[]).unwrap();
        assert!(!changed(&acceptor, Acceptor::reload_if_changed));
        test.renew();
        assert!(changed(&acceptor, Acceptor::reload_if_changed));
        assert!(!changed(&acceptor, Acceptor::reload_if_changed));
        assert!(changed(&acceptor, |acceptor| acceptor.reload().unwrap()), "asked, it reads");
    }

    #[test]
    fn what_cannot_be_used_changes_nothing_until_it_can() {
        let test = Test::new();
        let acceptor = Acceptor::open(&test.config, &[]).unwrap();
        let key = fs::read_to_string(&test.config.key_file).unwrap();
        fs::remove_file(&test.config.key_file).unwrap();
        assert!(!changed(&acceptor, Acceptor::reload_if_changed));
        assert!(!changed(&acceptor, |acceptor| assert!(acceptor.reload().is_err())));
        test.put("key.pem", "half of a k");
        assert!(!changed(&acceptor, Acceptor::reload_if_changed));
        test.put("key.pem", &key);
        assert!(changed(&acceptor, Acceptor::reload_if_changed));
    }

    #[test]
    fn g47_nothing_of_a_key_is_shown() {
        let test = Test::new();
        let key = fs::read_to_string(&test.config.key_file).unwrap();
        let secret = key.lines().nth(1).unwrap();
        test.put("key.pem", &key.replace("BEGIN PRIVATE KEY", "BEGIN SECRET"));
        let error = Acceptor::open(&test.config, &[]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
        test.put("key.pem", &key);
        let acceptor = Acceptor::open(&test.config, &[]).unwrap();
        assert!(!format!("{acceptor:?}").contains(secret));
    }
}
