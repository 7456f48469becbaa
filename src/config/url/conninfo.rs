//! A URL as libpq's keywords and values, for `pg_dump` and for subscriptions: programs that connect by libpq.

use super::{Secret, ShardUrl, TargetSession};

impl ShardUrl {
    /// Keywords and values, without a password.
    pub fn conninfo(&self) -> String {
        let list = |each: &dyn Fn(&super::Host) -> String| self.hosts.iter().map(each).collect::<Vec<_>>().join(",");
        let mut parts = vec![
            format!("host={}", quoted(&list(&|host| host.name.clone()))),
            format!("port={}", list(&|host| host.port.to_string())),
            format!("user={}", quoted(&self.user)),
            format!("dbname={}", quoted(&self.database)),
            format!("sslmode={}", self.ssl_mode.as_str()),
        ];
        if self.hosts.len() > 1 || self.target_session == TargetSession::ReadWrite {
            parts.push(format!("target_session_attrs={}", self.target_session.as_str()));
        }
        let files = [
            ("sslrootcert", self.ssl_root_cert.as_ref()),
            ("sslcert", self.client_certificate.as_ref().map(|client| &client.certificate)),
            ("sslkey", self.client_certificate.as_ref().map(|client| &client.key)),
        ];
        for (name, path) in files {
            if let Some(path) = path {
                parts.push(format!("{name}={}", quoted(&path.to_string_lossy())));
            }
        }
        parts.join(" ")
    }

    /// The same, with the startup parameter `options`.
    pub fn conninfo_with_options(&self) -> String {
        match &self.options {
            Some(options) => format!("{} options={}", self.conninfo(), quoted(options)),
            None => self.conninfo(),
        }
    }

    /// The same, for a server that cannot read this process's files and environment.
    pub fn conninfo_with(&self, password: Option<&Secret>) -> String {
        match password {
            Some(password) => format!("{} password={}", self.conninfo(), quoted(password.reveal())),
            None => self.conninfo(),
        }
    }
}

impl TargetSession {
    pub fn as_str(self) -> &'static str {
        match self {
            TargetSession::Primary => "primary",
            TargetSession::ReadWrite => "read-write",
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
