//! Certificates for one test: an authority, and a key pair that it signed, as PEM files that servers can read.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use shardgate::demo::servers::Account;
use tempfile::TempDir;

/// Lives as long as the test; the files go with it.
pub struct Certificates {
    directory: TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// Paths of a certificate and its key.
pub struct KeyFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

impl Certificates {
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("shardgate-certificates-").tempdir().expect("temporary directory");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("readable by servers");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, "authority of one test");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
        fs::write(directory.path().join("ca.crt"), authority.pem()).expect("written");
        Self { directory, authority }
    }

    pub fn authority_path(&self) -> PathBuf {
        self.directory.path().join("ca.crt")
    }

    /// A certificate for this host name or address.
    pub fn issue(&self, file_name: &str, host: &str) -> KeyFiles {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, host);
        let certificate = params.signed_by(&key, &self.authority).expect("signed");
        let files = KeyFiles { cert: self.path(file_name, "crt"), key: self.path(file_name, "key") };
        fs::write(&files.cert, certificate.pem()).expect("written");
        fs::write(&files.key, key.serialize_pem()).expect("written");
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).expect("private");
        files
    }

    /// The same, owned by the account that runs PostgreSQL servers, which insist on that for the key.
    pub fn issue_for_server(&self, file_name: &str, host: &str) -> KeyFiles {
        let files = self.issue(file_name, host);
        Account::for_servers().expect("account for servers").take_over(&files.key).expect("given away");
        files
    }

    fn path(&self, file_name: &str, extension: &str) -> PathBuf {
        Path::new(self.directory.path()).join(file_name).with_extension(extension)
    }
}
