//! The address of a shard, or of the map database, as operators write it: `postgres://user:password@host:port/database?sslmode=…`.
//!
//! Reads libpq's URL form as far as a proxy needs it: TCP, a database, and one host or several, of which the primary is meant. What
//! libpq would take and this does not (sockets, other parameters) is an error that says so, never ignored: a dropped `sslmode` would
//! be a hole. Every connection of the proxy goes by what was read here, so that a URL which was accepted once is good for all of them.
//! Neither `Debug` nor any error shows the password.
//!
//! * [`hosts`](mod@hosts): the hosts of the authority or of the parameters `host` and `port`
//! * [`password`](mod@password): a password that stands in a file or in the environment
//! * [`conninfo`](mod@conninfo): the same address for programs that use libpq

mod conninfo;
mod hosts;
mod password;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

pub use hosts::Host;
pub use password::{PasswordError, PasswordSource};

use super::Secret;
use hosts::Authority;

/// Where a shard is, as whom to log in when the proxy acts for itself, and how much TLS is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardUrl {
    /// At least one. Of several, the one that is the primary is meant.
    pub hosts: Vec<Host>,
    pub user: String,
    /// As it stands in the URL; see [`ShardUrl::password_for`].
    pub password: Option<Secret>,
    /// Where it stands otherwise.
    pub password_source: Option<PasswordSource>,
    pub database: String,
    pub target_session: TargetSession,
    /// As libpq takes it: `require` beside `sslrootcert` is `verify-ca`.
    pub ssl_mode: SslMode,
    /// Certificate authorities (PEM) that the server's certificate is checked against; `system` for the public ones.
    pub ssl_root_cert: Option<PathBuf>,
    pub client_certificate: Option<ClientCertificate>,
    /// The startup parameter `options`.
    pub options: Option<String>,
    pub application_name: Option<String>,
}

/// What the proxy shows to a server that asks for a certificate: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// libpq's `target_session_attrs`, as far as it is of use to who writes: every server of ours has to be a primary in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetSession {
    /// Not given, `any` or `primary`.
    Primary,
    /// And its sessions may write by default.
    ReadWrite,
}

/// libpq's, without `allow`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// TLS when the server has it; not verified.
    Prefer,
    /// TLS or no connection; not verified. With `sslrootcert` it is [`SslMode::VerifyCa`].
    Require,
    /// The certificate must be signed by one of the authorities.
    VerifyCa,
    /// And be for this host.
    VerifyFull,
}

impl SslMode {
    pub fn as_str(self) -> &'static str {
        match self {
            SslMode::Disable => "disable",
            SslMode::Prefer => "prefer",
            SslMode::Require => "require",
            SslMode::VerifyCa => "verify-ca",
            SslMode::VerifyFull => "verify-full",
        }
    }

    pub fn is_verifying(self) -> bool {
        matches!(self, SslMode::VerifyCa | SslMode::VerifyFull)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("not a URL: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Malformed,
    #[error("the URL begins with \"{0}\": expected \"postgres\" or \"postgresql\"")]
    Scheme(String),
    #[error("the URL names no {0}: expected postgres://USER:PASSWORD@HOST:PORT/DATABASE")]
    Missing(&'static str),
    #[error("the URL's {0} holds a NUL or is not UTF-8 when its percent signs are decoded")]
    Encoding(&'static str),
    #[error("the URL's host \"{0}\" is the directory of a socket: only TCP is supported")]
    Socket(String),
    #[error("the URL's port \"{port}\" is not a number from 1 to 65535")]
    Port { port: String },
    #[error("the URL has {ports} ports for {hosts} hosts: give one for each, or one for all")]
    Ports { ports: usize, hosts: usize },
    #[error("the URL has more than {HOSTS_MAX} hosts")]
    TooManyHosts,
    #[error("the URL's parameter \"{name}\" is not known: allowed are {}", PARAMETERS.join(", "))]
    Parameter { name: String },
    #[error("the URL's parameter \"{name}\" is given twice")]
    Repeated { name: String },
    #[error("the URL's sslmode is \"{value}\": allowed are disable, prefer, require, verify-ca, verify-full")]
    SslMode { value: String },
    /// Who writes needs a primary.
    #[error(
        "the URL's target_session_attrs is \"{value}\", which leads to servers that take no writes: allowed are any, primary, read-write"
    )]
    Standby { value: String },
    #[error("the URL's target_session_attrs is \"{value}\": allowed are any, primary, read-write")]
    TargetSession { value: String },
    #[error(
        "the URL's parameter \"sslpassword\" is not supported: use a key that is not encrypted, in a file that only the proxy can read"
    )]
    SslPassword,
    #[error("the URL's {0} needs {1}: a client certificate is of use with its key only")]
    HalfOfCertificate(&'static str, &'static str),
    #[error("the URL has both passfile and password_env: give one of them")]
    TwoPasswords,
    #[error("the URL's password_env is \"{name}\": the name of the variable must begin with {PASSWORD_VARIABLE_PREFIX}")]
    PasswordVariable { name: String },
    #[error("the URL's sslmode {0} needs sslrootcert: the path of a PEM file with certificate authorities, or \"system\"")]
    RootCert(&'static str),
    /// The public authorities sign for everybody: without the host's name that proves nothing.
    #[error("the URL's sslmode {0} may not be used with sslrootcert=system: use verify-full")]
    WeakForSystem(&'static str),
}

impl ShardUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return Err(UrlError::Malformed);
        }
        let (scheme, rest) = text.split_once("://").ok_or(UrlError::Malformed)?;
        if !matches!(scheme.to_ascii_lowercase().as_str(), "postgres" | "postgresql") {
            return Err(UrlError::Scheme(scheme.into()));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let authority = Authority::read(authority)?;
        let mut parsed = Self {
            hosts: Vec::new(),
            user: decode("user", authority.user)?,
            password: authority.password.map(|password| decode("password", password).map(Secret::new)).transpose()?,
            password_source: None,
            database: decode("database", path.trim_start_matches('/'))?,
            target_session: TargetSession::Primary,
            ssl_mode: SslMode::Prefer,
            ssl_root_cert: None,
            client_certificate: None,
            options: None,
            application_name: None,
        };
        let parameters = Parameters::read(query)?;
        parsed.hosts = authority.hosts(parameters.take("host"), parameters.take("port"))?;
        for (part, what) in [(&parsed.user, "user"), (&parsed.database, "database")] {
            if part.is_empty() {
                return Err(UrlError::Missing(what));
            }
        }
        parsed.take_parameters(&parameters)?;
        Ok(parsed)
    }

    /// Are the certificate authorities the public ones?
    pub fn has_system_authorities(&self) -> bool {
        self.ssl_root_cert.as_deref() == Some(Path::new(SYSTEM))
    }

    /// What libpq makes of the sslmode that was given.
    fn effective_ssl_mode(&self, given: Option<SslMode>) -> Result<SslMode, UrlError> {
        match (given, &self.ssl_root_cert) {
            (None | Some(SslMode::VerifyFull), Some(_)) if self.has_system_authorities() => Ok(SslMode::VerifyFull),
            (Some(weak), Some(_)) if self.has_system_authorities() => Err(UrlError::WeakForSystem(weak.as_str())),
            (Some(SslMode::Require), Some(_)) => Ok(SslMode::VerifyCa),
            (Some(verifying), None) if verifying.is_verifying() => Err(UrlError::RootCert(verifying.as_str())),
            (given, _) => Ok(given.unwrap_or(SslMode::Prefer)),
        }
    }

    fn take_parameters(&mut self, parameters: &Parameters) -> Result<(), UrlError> {
        self.ssl_root_cert = parameters.take("sslrootcert").map(PathBuf::from);
        self.options = parameters.take("options").map(str::to_owned);
        self.application_name = parameters.take("application_name").map(str::to_owned);
        self.client_certificate = match (parameters.take("sslcert"), parameters.take("sslkey")) {
            (Some(certificate), Some(key)) => Some(ClientCertificate { certificate: certificate.into(), key: key.into() }),
            (None, None) => None,
            (Some(_), None) => return Err(UrlError::HalfOfCertificate("sslcert", "sslkey")),
            (None, Some(_)) => return Err(UrlError::HalfOfCertificate("sslkey", "sslcert")),
        };
        if let Some(value) = parameters.take("target_session_attrs") {
            self.target_session = target_session(value)?;
        }
        self.password_source = password::source(parameters.take("passfile"), parameters.take("password_env"))?;
        let given = parameters.take("sslmode").map(ssl_mode).transpose()?;
        self.ssl_mode = self.effective_ssl_mode(given)?;
        Ok(())
    }
}

/// Names and values of what stands behind the question mark.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(query: &str) -> Result<Self, UrlError> {
        let mut read: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decode("parameter", name)?, decode("parameter", value)?);
            if read.iter().any(|(known, _)| *known == name) {
                return Err(UrlError::Repeated { name });
            }
            match name.as_str() {
                "sslpassword" => return Err(UrlError::SslPassword),
                known if PARAMETERS.contains(&known) => read.push((name, value)),
                _ => return Err(UrlError::Parameter { name }),
            }
        }
        Ok(Self(read))
    }

    fn take(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

fn target_session(value: &str) -> Result<TargetSession, UrlError> {
    match value {
        "any" | "primary" => Ok(TargetSession::Primary),
        "read-write" => Ok(TargetSession::ReadWrite),
        "read-only" | "standby" | "prefer-standby" => Err(UrlError::Standby { value: value.to_owned() }),
        _ => Err(UrlError::TargetSession { value: value.to_owned() }),
    }
}

fn ssl_mode(value: &str) -> Result<SslMode, UrlError> {
    [SslMode::Disable, SslMode::Prefer, SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull]
        .into_iter()
        .find(|mode| mode.as_str() == value)
        .ok_or_else(|| UrlError::SslMode { value: value.to_owned() })
}

/// As libpq: percent signs only, a plus is a plus.
fn decode(what: &'static str, text: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::Encoding(what))?;
    if decoded.contains('\0') {
        return Err(UrlError::Encoding(what));
    }
    Ok(decoded.into_owned())
}

/// In place of a file with certificate authorities.
const SYSTEM: &str = "system";
/// Bounds what one attempt to connect asks.
const HOSTS_MAX: usize = 16;
/// Who may add a shard must not be able to send any other variable of the proxy's to a server of their choice.
const PASSWORD_VARIABLE_PREFIX: &str = "SHARDGATE_PASSWORD";
const PARAMETERS: [&str; 11] = [
    "host",
    "port",
    "target_session_attrs",
    "passfile",
    "password_env",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "options",
    "application_name",
];
