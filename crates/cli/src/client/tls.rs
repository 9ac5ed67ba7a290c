//! How the command line trusts a server, and shows who it is.
//!
//! Files are checked here, before the first request: a library that is handed a key that does not
//! belong to its certificate would panic.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};

use crate::args::TlsOptions;

/// Largest file of certificates.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// Trust for a server that is spoken to over TLS.
pub(super) fn config(options: &TlsOptions) -> anyhow::Result<TlsConfig> {
    let provider = Arc::new(ring::default_provider());
    // An empty variable is none.
    let named = |path: &Option<PathBuf>| path.clone().filter(|path| !path.as_os_str().is_empty());
    let roots = match named(&options.ca_file) {
        Some(path) => certificates_of(&path)?,
        None => system_roots()?,
    };
    let identity = match (named(&options.cert), named(&options.cert_key)) {
        (Some(cert), Some(key)) => Some(identity(&cert, &key, &provider)?),
        _ => None,
    };
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::new_with_certs(&roots))
        .client_cert(identity)
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

fn system_roots() -> anyhow::Result<Vec<Certificate<'static>>> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let why = found.errors.first().map(|error| format!(" ({error})")).unwrap_or_default();
        bail!("the system trusts no authority{why}; name one with --ca-file");
    }
    Ok(found.certs.iter().map(|cert| Certificate::from_der(cert).to_owned()).collect())
}

fn certificates_of(path: &Path) -> anyhow::Result<Vec<Certificate<'static>>> {
    let mut certificates = Vec::new();
    for item in parse_pem(&read(path)?) {
        if let PemItem::Certificate(certificate) = item.with_context(|| shown(path))? {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        bail!("{} holds no certificate in PEM form", path.display());
    }
    Ok(certificates)
}

/// The certificate we show, once it is sure that the key belongs to it.
fn identity(cert: &Path, key: &Path, provider: &CryptoProvider) -> anyhow::Result<ClientCert> {
    let chain = certificates_of(cert)?;
    let pem = read(key)?;
    let missing = || format!("{} holds no private key in PEM form", key.display());
    let der = PrivateKeyDer::from_pem_slice(&pem).with_context(missing)?;
    let ders = chain.iter().map(|one| CertificateDer::from(one.der().to_vec())).collect();
    CertifiedKey::from_der(ders, der, provider)
        .with_context(|| format!("{} and its key do not fit", cert.display()))?;
    let key = PrivateKey::from_pem(&pem).with_context(missing)?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let length = std::fs::metadata(path).with_context(|| shown(path))?.len();
    if length > PEM_BYTES_MAX {
        bail!("{} is too large for a file of certificates", path.display());
    }
    std::fs::read(path).with_context(|| shown(path))
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}
