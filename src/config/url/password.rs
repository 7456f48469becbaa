//! A password that does not stand in the URL: in a password file, as libpq's `passfile`, or in a variable of the environment.
//!
//! Read for each connection that is opened, so that a file that is replaced holds from the next connection on. A file that others than
//! its owner may read is refused (libpq warns and goes on without it); a line that fits none gives no password, as with libpq.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Host, PASSWORD_VARIABLE_PREFIX, Secret, ShardUrl, UrlError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordSource {
    /// In the form of `.pgpass`.
    File(PathBuf),
    /// The variable's name.
    Environment(String),
}

#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    #[error("the password file \"{}\" cannot be read", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("the password file \"{}\" is not a plain file of at most {FILE_BYTES_MAX} bytes", .path.display())]
    Kind { path: PathBuf },
    #[error("others may read the password file \"{}\": its permissions should be u=rw (0600) or less", .path.display())]
    Permissions { path: PathBuf },
    #[error("the environment variable \"{0}\", which is to hold a password, is not set")]
    Variable(String),
}

/// Of the parameters `passfile` and `password_env`.
pub(super) fn source(file: Option<&str>, variable: Option<&str>) -> Result<Option<PasswordSource>, UrlError> {
    match (file, variable) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(UrlError::TwoPasswords),
        (Some(path), None) => Ok(Some(PasswordSource::File(path.into()))),
        (None, Some(name)) if name.starts_with(PASSWORD_VARIABLE_PREFIX) => Ok(Some(PasswordSource::Environment(name.to_owned()))),
        (None, Some(name)) => Err(UrlError::PasswordVariable { name: name.to_owned() }),
    }
}

impl ShardUrl {
    /// The password for this host, as it is now. One that stands in the URL comes first, as with libpq.
    pub fn password_for(&self, host: &Host) -> Result<Option<Secret>, PasswordError> {
        match (&self.password, &self.password_source) {
            (Some(password), _) => Ok(Some(password.clone())),
            (None, None) => Ok(None),
            (None, Some(PasswordSource::Environment(name))) => match std::env::var(name) {
                Ok(password) => Ok(Some(Secret::new(password))),
                Err(_) => Err(PasswordError::Variable(name.clone())),
            },
            (None, Some(PasswordSource::File(path))) => {
                let lines = read(path)?;
                Ok(find(&lines, &[&host.name, &host.port.to_string(), &self.database, &self.user]).map(Secret::new))
            }
        }
    }

    /// For all hosts: what a server may have that connects by libpq itself. The first host's.
    pub fn any_password(&self) -> Result<Option<Secret>, PasswordError> {
        self.hosts.first().map_or(Ok(None), |host| self.password_for(host))
    }

    /// May another password be there soon, without a change of the URL?
    pub fn has_password_file(&self) -> bool {
        self.password.is_none() && matches!(self.password_source, Some(PasswordSource::File(_)))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, PasswordError> {
    let failed = |source| PasswordError::File { path: path.to_owned(), source };
    // Before it is opened: a pipe would be waited for.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > FILE_BYTES_MAX {
        return Err(PasswordError::Kind { path: path.to_owned() });
    }
    if is_open_to_others(&metadata) {
        return Err(PasswordError::Permissions { path: path.to_owned() });
    }
    let mut lines = Vec::new();
    File::open(path).map_err(failed)?.take(FILE_BYTES_MAX).read_to_end(&mut lines).map_err(failed)?;
    Ok(lines)
}

#[cfg(unix)]
fn is_open_to_others(metadata: &std::fs::Metadata) -> bool {
    std::os::unix::fs::MetadataExt::mode(metadata) & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &std::fs::Metadata) -> bool {
    false
}

/// The password of the first line whose fields fit: host, port, database, user.
fn find(file: &[u8], fields: &[&str; 4]) -> Option<String> {
    file.split(|byte| *byte == b'\n').find_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.starts_with(b"#") {
            return None;
        }
        let password = fields.iter().try_fold(line, |rest, field| after_field(rest, field.as_bytes()))?;
        String::from_utf8(unescaped(password)).ok()
    })
}

/// What follows the field, if it is this one or a star: libpq's `pwdfMatchesString`.
fn after_field<'l>(line: &'l [u8], wanted: &[u8]) -> Option<&'l [u8]> {
    if let Some(rest) = line.strip_prefix(b"*:") {
        return Some(rest);
    }
    let (mut rest, mut wanted) = (line, wanted);
    loop {
        rest = match (rest.split_first()?, wanted.is_empty()) {
            ((b':', after), true) => return Some(after),
            ((b'\\', after), _) => after,
            _ => rest,
        };
        let ((byte, after), (expected, left)) = (rest.split_first()?, wanted.split_first()?);
        if byte != expected {
            return None;
        }
        (rest, wanted) = (after, left);
    }
}

/// Up to the next colon; a backslash takes the byte behind it as it is.
fn unescaped(password: &[u8]) -> Vec<u8> {
    let mut bytes = password.iter().copied();
    let mut read = Vec::with_capacity(password.len());
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => break,
            b'\\' => read.push(bytes.next().unwrap_or(byte)),
            byte => read.push(byte),
        }
    }
    read
}

/// Far more than the shards of a cluster need.
const FILE_BYTES_MAX: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_libpq_reads_them() {
        let file = b"# a comment\n\nh\\:1:5432:db:u:first\nh:5432:db:u:pass\\:word\\\\x:ignored\r\n*:5433:*:u:by port\n\
            h:5432:db\\\\2:*:odd\n*:*:*:last:\nshort:line\nh:*:*:*:fallback";
        let password = |host, port, database, user| find(file, &[host, port, database, user]);
        assert_eq!(password("h", "5432", "db", "u").as_deref(), Some("pass:word\\x"));
        assert_eq!(password("h:1", "5432", "db", "u").as_deref(), Some("first"));
        assert_eq!(password("other", "5433", "any", "u").as_deref(), Some("by port"));
        assert_eq!(password("h", "5432", "db\\2", "x").as_deref(), Some("odd"));
        assert_eq!(
            password("h", "1", "db", "last").as_deref(),
            Some(""),
            "the first line that fits counts, also without a password"
        );
        assert_eq!(password("h", "1", "db", "nobody").as_deref(), Some("fallback"));
        assert_eq!(password("other", "1", "db", "nobody"), None);
        // A field is compared as a whole.
        assert_eq!(find(b"ho:1:d:u:x", &["h", "1", "d", "u"]), None);
        assert_eq!(find(b"h:1:d:u:x", &["ho", "1", "d", "u"]), None);
        assert_eq!(find(b"*x:1:d:u:x", &["h", "1", "d", "u"]), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_may_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pass");
        let url = ShardUrl::parse(&format!("postgres://u@h,i/d?passfile={}", path.display())).expect("valid");
        let password = || url.password_for(&url.hosts[1]).map(|password| password.map(|password| password.reveal().to_owned()));
        assert!(matches!(password(), Err(PasswordError::File { .. })));
        std::fs::write(&path, "h:5432:d:u:one\ni:5432:d:u:two\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).expect("set");
        let error = password().expect_err("open to others").to_string();
        assert!(error.contains("permissions should be u=rw (0600) or less"), "{error}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("set");
        assert_eq!(password().expect("read").as_deref(), Some("two"));
        // It is read again each time.
        std::fs::write(&path, "*:*:*:*:three").expect("written");
        assert_eq!(password().expect("read").as_deref(), Some("three"));
        assert!(matches!(read(directory.path()), Err(PasswordError::Kind { .. })));
    }
}
