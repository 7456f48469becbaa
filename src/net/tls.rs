//! TLS towards clients: certificate, key and client authorities from PEM files, ready to accept.
//!
//! TLS 1.2 and 1.3 by rustls with ring. No session tickets, as in PostgreSQL: a resumed session would skip the check of the
//! client's certificate. Files are read when [`ServerTls::load`] is called and never again; a reload makes a new value.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::channel_binding;
use crate::config::{ListenTlsConfig, TlsMode};

/// What the proxy offers to clients that ask for TLS. Cheap to clone.
#[derive(Clone, Default)]
pub struct ServerTls {
    offer: Option<Offer>,
}

#[derive(Clone)]
pub(super) struct Offer {
    pub(super) acceptor: TlsAcceptor,
    pub(super) is_required: bool,
    /// The hash of the certificate that SCRAM binds a login to; none when its signature algorithm defines none.
    pub(super) end_point: Option<Arc<[u8]>>,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{key}: could not read a {what} from \"{}\"", .path.display())]
    File { key: &'static str, what: &'static str, path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{key}: no {what} in \"{}\"", .path.display())]
    Empty { key: &'static str, what: &'static str, path: PathBuf },
    #[error("{key} is not set")]
    Unset { key: &'static str },
    #[error("{key}: \"{}\" is not accepted as an authority", .path.display())]
    Authority { key: &'static str, path: PathBuf, source: rustls::Error },
    #[error("{key}: others may read \"{}\": its permissions should be u=rw (0600) or less", .path.display())]
    Permissions { key: &'static str, path: PathBuf },
    #[error("TLS needs a host name or address, which \"{0}\" is not")]
    HostName(String),
    #[error("could not build the verifier of certificates")]
    Verifier(#[from] rustls::client::VerifierBuilderError),
    #[error("certificate and key are not usable together")]
    Configuration(#[from] rustls::Error),
}

impl ServerTls {
    /// No TLS: SSLRequest is answered `N`.
    pub fn off() -> Self {
        Self::default()
    }

    /// Reads the files that the settings name.
    pub fn load(settings: &ListenTlsConfig) -> Result<Self, TlsError> {
        let is_required = match settings.mode {
            TlsMode::Off => return Ok(Self::off()),
            TlsMode::Allow => false,
            TlsMode::Require => true,
        };
        let cert_path = settings.cert.as_deref().ok_or(TlsError::Unset { key: CERT })?;
        let key_path = settings.key.as_deref().ok_or(TlsError::Unset { key: KEY })?;
        let chain = certificates(CERT, cert_path)?;
        let key = private_key(KEY, key_path)?;
        let end_point = chain.first().and_then(|leaf| channel_binding::end_point_hash(leaf)).map(Arc::from);

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
        let builder = match &settings.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(authorities(CLIENT_CA, path)?);
                builder.with_client_cert_verifier(WebPkiClientVerifier::builder_with_provider(roots, provider).build()?)
            }
        };
        let mut config = builder.with_single_cert(chain, key)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(Self { offer: Some(Offer { acceptor: TlsAcceptor::from(Arc::new(config)), is_required, end_point }) })
    }

    pub(super) fn offer(&self) -> Option<&Offer> {
        self.offer.as_ref()
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match &self.offer {
            None => "ServerTls(off)",
            Some(Offer { is_required: false, .. }) => "ServerTls(allow)",
            Some(Offer { is_required: true, .. }) => "ServerTls(require)",
        })
    }
}

/// The private key of a PEM file, one that is not encrypted.
pub(super) fn private_key(key: &'static str, path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| match source {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::Empty { key, what: "private key", path: path.into() },
        source => TlsError::File { key, what: "private key", path: path.into(), source },
    })
}

/// Every certificate of a PEM file, at least one.
pub(super) fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let file_error = |source| TlsError::File { key, what, path: path.into(), source };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path).map_err(file_error)?.collect::<Result<_, _>>().map_err(file_error)?;
    if chain.is_empty() {
        return Err(TlsError::Empty { key, what, path: path.into() });
    }
    Ok(chain)
}

/// The certificates of a PEM file as authorities. `key` is the setting, for errors.
pub(super) fn authorities(key: &'static str, path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(key, path)? {
        roots.add(certificate).map_err(|source| TlsError::Authority { key, path: path.into(), source })?;
    }
    Ok(roots)
}

/// The protocol's registered name; a client that names others only is turned away by the handshake.
pub(super) const ALPN: &[u8] = b"postgresql";
const CERT: &str = "listen.tls.cert";
const KEY: &str = "listen.tls.key";
const CLIENT_CA: &str = "listen.tls.client_ca";
