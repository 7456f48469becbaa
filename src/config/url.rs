//! The address of a shard, or of the map database, as operators write it: `postgres://user:password@host:port/database?sslmode=…`.
//!
//! Reads libpq's URL form as far as a proxy needs it: one host, TCP, a database. What libpq would take and this does not
//! (several hosts, sockets, other parameters) is an error that says so, never ignored: a dropped `sslmode` would be a hole.
//! Every connection of the proxy goes by what was read here, so that a URL which was accepted once is good for all of them.
//! Neither `Debug` nor any error shows the password.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

use super::Secret;

/// Where a shard is, as whom to log in when the proxy acts for itself, and how much TLS is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardUrl {
    /// A name or an address, an IPv6 address without brackets.
    pub host: String,
    pub port: u16,
    pub user: String,
    pub password: Option<Secret>,
    pub database: String,
    /// As libpq takes it: `require` beside `sslrootcert` is `verify-ca`.
    pub ssl_mode: SslMode,
    /// Certificate authorities (PEM) that the server's certificate is checked against; `system` for the public ones.
    pub ssl_root_cert: Option<PathBuf>,
    /// The startup parameter `options`.
    pub options: Option<String>,
    pub application_name: Option<String>,
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
    #[error("the URL's parameter \"{name}\" is not known: allowed are {}", PARAMETERS.join(", "))]
    Parameter { name: String },
    #[error("the URL's parameter \"{name}\" is given twice")]
    Repeated { name: String },
    #[error("the URL's sslmode is \"{value}\": allowed are disable, prefer, require, verify-ca, verify-full")]
    SslMode { value: String },
    #[error("the URL's sslmode {0} needs sslrootcert: the path of a PEM file with certificate authorities, or \"system\"")]
    RootCert(&'static str),
    /// The public authorities sign for everybody: without the host's name that proves nothing.
    #[error("the URL's sslmode {0} may not be used with sslrootcert=system: use verify-full")]
    WeakForSystem(&'static str),
}

impl ShardUrl {
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        // The url crate drops tabs and line breaks and trims blanks, so that what is checked would not be what was written.
        if text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
            return Err(UrlError::Malformed);
        }
        let url = url::Url::parse(text).map_err(|_| UrlError::Malformed)?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(UrlError::Scheme(url.scheme().into()));
        }
        let host = match url.host().ok_or(UrlError::Missing("host"))? {
            url::Host::Domain(name) => decode("host", name)?,
            url::Host::Ipv4(address) => address.to_string(),
            url::Host::Ipv6(address) => address.to_string(),
        };
        let user = decode("user", url.username())?;
        let database = decode("database", url.path().trim_start_matches('/'))?;
        for (part, what) in [(&host, "host"), (&user, "user"), (&database, "database")] {
            if part.is_empty() {
                return Err(UrlError::Missing(what));
            }
        }
        let password = url.password().map(|password| decode("password", password).map(Secret::new)).transpose()?;
        let mut parsed = Self {
            host,
            port: url.port().unwrap_or(DEFAULT_PORT),
            user,
            password,
            database,
            ssl_mode: SslMode::Prefer,
            ssl_root_cert: None,
            options: None,
            application_name: None,
        };
        let ssl_mode = parsed.take_parameters(url.query().unwrap_or(""))?;
        parsed.ssl_mode = parsed.effective_ssl_mode(ssl_mode)?;
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

    /// The sslmode, where one is given.
    fn take_parameters(&mut self, query: &str) -> Result<Option<SslMode>, UrlError> {
        let (mut seen, mut given) = (Vec::new(), None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode("parameter", name)?;
            let value = decode("parameter", value)?;
            if seen.contains(&name) {
                return Err(UrlError::Repeated { name });
            }
            match name.as_str() {
                "sslmode" => given = Some(ssl_mode(value)?),
                "sslrootcert" => self.ssl_root_cert = Some(PathBuf::from(value)),
                "options" => self.options = Some(value),
                "application_name" => self.application_name = Some(value),
                _ => return Err(UrlError::Parameter { name }),
            }
            seen.push(name);
        }
        Ok(given)
    }
}

fn ssl_mode(value: String) -> Result<SslMode, UrlError> {
    [SslMode::Disable, SslMode::Prefer, SslMode::Require, SslMode::VerifyCa, SslMode::VerifyFull]
        .into_iter()
        .find(|mode| mode.as_str() == value)
        .ok_or(UrlError::SslMode { value })
}

/// As libpq: percent signs only, a plus is a plus.
fn decode(what: &'static str, text: &str) -> Result<String, UrlError> {
    let decoded = percent_decode_str(text).decode_utf8().map_err(|_| UrlError::Encoding(what))?;
    if decoded.contains('\0') {
        return Err(UrlError::Encoding(what));
    }
    Ok(decoded.into_owned())
}

const DEFAULT_PORT: u16 = 5432;
/// In place of a file with certificate authorities.
const SYSTEM: &str = "system";
const PARAMETERS: [&str; 4] = ["sslmode", "sslrootcert", "options", "application_name"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_read_and_decoded() {
        let url = ShardUrl::parse(
            "postgresql://us%40er:p%3Ass%2Fw+rd%25@[::1]:5433/d%20b?sslmode=verify-full&sslrootcert=/a%20b.pem&options=-c%20a%3Db&application_name=x",
        )
        .expect("valid");
        assert_eq!((url.host.as_str(), url.port, url.user.as_str(), url.database.as_str()), ("::1", 5433, "us@er", "d b"));
        assert_eq!(url.password.as_ref().map(Secret::reveal), Some("p:ss/w+rd%"));
        assert_eq!((url.ssl_mode, url.ssl_root_cert), (SslMode::VerifyFull, Some(PathBuf::from("/a b.pem"))));
        assert_eq!((url.options.as_deref(), url.application_name.as_deref()), (Some("-c a=b"), Some("x")));
    }

    #[test]
    fn what_is_left_out_has_libpq_s_defaults() {
        let url = ShardUrl::parse("postgres://app@db.example/books").expect("valid");
        assert_eq!(
            (url.host.as_str(), url.port, url.password.is_none(), url.ssl_mode),
            ("db.example", 5432, true, SslMode::Prefer)
        );
    }

    #[test]
    fn sslmode_and_sslrootcert_mean_together_what_libpq_takes_them_for() {
        let modes = [
            ("sslrootcert=/ca.pem", SslMode::Prefer),
            ("sslmode=prefer&sslrootcert=/ca.pem", SslMode::Prefer),
            ("sslmode=require", SslMode::Require),
            ("sslmode=require&sslrootcert=/ca.pem", SslMode::VerifyCa),
            ("sslrootcert=/ca.pem&sslmode=require", SslMode::VerifyCa),
            ("sslmode=verify-full&sslrootcert=/ca.pem", SslMode::VerifyFull),
            ("sslrootcert=system", SslMode::VerifyFull),
            ("sslmode=verify-full&sslrootcert=system", SslMode::VerifyFull),
        ];
        for (parameters, expected) in modes {
            let url = ShardUrl::parse(&format!("postgres://a@b/c?{parameters}")).expect(parameters);
            assert_eq!(url.ssl_mode, expected, "{parameters}");
        }
        for weak in ["disable", "prefer", "require", "verify-ca"] {
            let error = ShardUrl::parse(&format!("postgres://a@b/c?sslmode={weak}&sslrootcert=system")).expect_err(weak);
            let expected = format!("the URL's sslmode {weak} may not be used with sslrootcert=system: use verify-full");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn every_mistake_has_its_own_words() {
        let cases = [
            ("", "not a URL"),
            ("host=localhost dbname=x", "not a URL"),
            ("postgres://a@b/c\n", "not a URL"),
            ("mysql://a@b/c", "begins with \"mysql\""),
            ("postgres://a@/c", "not a URL"),
            ("postgres:///c", "names no host"),
            ("postgres://b/c", "names no user"),
            ("postgres://a@b", "names no database"),
            ("postgres://a@b/", "names no database"),
            ("postgres://a@b:99999/c", "not a URL"),
            ("postgres://a:%00@b/c", "the URL's password holds a NUL"),
            ("postgres://a%ff@b/c", "the URL's user holds a NUL or is not UTF-8"),
            ("postgres://a@b/c?sslmode=on", "sslmode is \"on\""),
            ("postgres://a@b/c?sslmode=verify-ca", "sslmode verify-ca needs sslrootcert"),
            ("postgres://a@b/c?sslmode=require&sslmode=disable", "\"sslmode\" is given twice"),
            ("postgres://a@b/c?target_session_attrs=any", "\"target_session_attrs\" is not known: allowed are sslmode,"),
        ];
        for (text, expected) in cases {
            let error = ShardUrl::parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text:?} gave {error}");
        }
    }

    #[test]
    fn the_password_is_not_shown() {
        let text = "postgres://app:hunter2@b/c";
        assert!(!format!("{:?}", ShardUrl::parse(text)).contains("hunter2"));
        for text in ["postgres://app:hunter2@b", "postgres://app:hunter2@b/c?x=y", "postgres://app:hunter2@b/c?sslmode=x"] {
            let error = ShardUrl::parse(text).expect_err(text);
            assert!(!format!("{error} {error:?}").contains("hunter2"));
        }
    }
}
