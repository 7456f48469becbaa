//! TLS towards a shard: which certificates are accepted under each `sslmode`.
//!
//! libpq's rules: `prefer` and `require` encrypt and accept any certificate, `verify-ca` wants one signed by a known authority,
//! `verify-full` one for the host's name too. `require` beside `sslrootcert` is `verify-ca`, which the URL's reader sees to. Accepting any certificate still checks that the server owns its key.
//! `sslcert` and `sslkey` are shown to a server that asks for a certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WantsClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::tls::{TlsError, authorities, certificates, private_key};
use crate::config::{ClientCertificate, ShardUrl, SslMode};

/// None for `disable`.
pub(super) fn connector(url: &ShardUrl) -> Result<Option<TlsConnector>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let roots = || -> Result<Arc<RootCertStore>, TlsError> {
        let path = url.ssl_root_cert.as_deref().ok_or(TlsError::Unset { key: ROOT_CERT })?;
        Ok(Arc::new(if url.has_system_authorities() {
            RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
        } else {
            authorities(ROOT_CERT, path)?
        }))
    };
    let verifier = match url.ssl_mode {
        SslMode::Disable => return Ok(None),
        SslMode::Prefer | SslMode::Require => LaxVerifier { provider, chain: None },
        SslMode::VerifyCa => {
            let chain = WebPkiServerVerifier::builder_with_provider(roots()?, provider.clone()).build()?;
            LaxVerifier { provider, chain: Some(chain) }
        }
        SslMode::VerifyFull => {
            let config = with_certificate(builder.with_root_certificates(roots()?), url.client_certificate.as_ref())?;
            return Ok(Some(TlsConnector::from(Arc::new(config))));
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let config = with_certificate(builder, url.client_certificate.as_ref())?;
    Ok(Some(TlsConnector::from(Arc::new(config))))
}

/// Shows the certificate to a server that asks for one.
fn with_certificate(
    builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    certificate: Option<&ClientCertificate>,
) -> Result<ClientConfig, TlsError> {
    let Some(ClientCertificate { certificate, key }) = certificate else { return Ok(builder.with_no_client_auth()) };
    refuse_open_key(key)?;
    Ok(builder.with_client_auth_cert(certificates(CERT, certificate)?, private_key(KEY, key)?)?)
}

/// As libpq: a key that others may read is none. Root's own may be read by its group.
fn refuse_open_key(path: &Path) -> Result<(), TlsError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        // One that is not there is named by who reads it.
        if let Ok(metadata) = std::fs::metadata(path) {
            let others = if metadata.uid() == 0 { 0o037 } else { 0o077 };
            if metadata.mode() & others != 0 {
                return Err(TlsError::Permissions { key: KEY, path: path.into() });
            }
        }
    }
    Ok(())
}

/// Checks less than everything: with `chain` all but the name, without it only that the server owns the certificate's key.
#[derive(Debug)]
struct LaxVerifier {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for LaxVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        match chain.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The verifier comes to the name last: the chain has been found good.
            Err(Error::InvalidCertificate(CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

const ROOT_CERT: &str = "sslrootcert";
const CERT: &str = "sslcert";
const KEY: &str = "sslkey";
