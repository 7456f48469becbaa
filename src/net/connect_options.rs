//! The URL of a shard or of the map database for sqlx, by which the proxy's own statements run: declarations, the map, schemas.
//!
//! sqlx would read the URL by rules of its own: parameters that sessions refuse, `require` that verifies nothing beside
//! `sslrootcert`, no `sslrootcert=system`, the brackets of an IPv6 address as part of its name. So it is given what [`ShardUrl`]
//! has read. And it would log statements, slow ones at a level that everybody sees: their texts may hold passwords, as those of
//! user mappings in a schema do.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::config::{Host, PasswordError, Secret, ShardUrl, SslMode, UrlError};

/// Why sqlx cannot be told to connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectOptionsError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Password(#[from] PasswordError),
}

/// For a connection of the proxy itself to this host, which says so by `application_name`; with the password as it is now.
pub fn connect_options(url: &ShardUrl, host: &Host, application_name: &str) -> Result<PgConnectOptions, ConnectOptionsError> {
    let password = url.password_for(host)?;
    // Options of the server are taken from a text only.
    let read: PgConnectOptions = plain_url(url, host, password.as_ref()).parse().map_err(|_| UrlError::Malformed)?;
    let options = read.host(&host.name).ssl_mode(ssl_mode(url.ssl_mode)).application_name(application_name);
    let options = match &url.ssl_root_cert {
        // Without a file it goes by the public authorities.
        Some(_) if url.has_system_authorities() => options,
        Some(path) => options.ssl_root_cert(path),
        None => options,
    };
    let options = match &url.client_certificate {
        Some(client) => options.ssl_client_cert(&client.certificate).ssl_client_key(&client.key),
        None => options,
    };
    Ok(options.disable_statement_logging())
}

fn plain_url(url: &ShardUrl, host: &Host, password: Option<&Secret>) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let password = password.map(|password| format!(":{}", encoded(Secret::reveal(password)))).unwrap_or_default();
    let name = if host.name.contains(':') { format!("[{}]", host.name) } else { host.name.clone() };
    let mut text = format!("postgres://{}{password}@{name}:{}/{}", encoded(&url.user), host.port, encoded(&url.database));
    if let Some(options) = &url.options {
        text.push_str(&format!("?options={}", encoded(options)));
    }
    text
}

fn ssl_mode(mode: SslMode) -> PgSslMode {
    match mode {
        SslMode::Disable => PgSslMode::Disable,
        SslMode::Prefer => PgSslMode::Prefer,
        SslMode::Require => PgSslMode::Require,
        SslMode::VerifyCa => PgSslMode::VerifyCa,
        SslMode::VerifyFull => PgSslMode::VerifyFull,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(url: &str) -> PgConnectOptions {
        let url = ShardUrl::parse(url).expect("valid");
        connect_options(&url, &url.hosts[0], "us").expect("options")
    }

    #[test]
    fn every_part_arrives() {
        let url = "postgresql://us%40er:p%3Ass@[::1]:5433/d%20b?sslmode=require&sslrootcert=/a.pem&options=-c%20a%3Db%2B";
        let options = options_of(url);
        assert_eq!((options.get_host(), options.get_port(), options.get_username()), ("::1", 5433, "us@er"));
        assert_eq!((options.get_database(), options.get_application_name()), (Some("d b"), Some("us")));
        assert_eq!(options.get_options(), Some("-c a=b+"));
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyCa));
        let shown = format!("{options:?}");
        assert!(shown.contains("p:ss") && shown.contains("/a.pem"), "{shown}");
    }

    #[test]
    fn the_public_authorities_are_no_file() {
        let options = options_of("postgres://a@db.example/c?sslrootcert=system");
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyFull));
        assert_eq!(options.get_host(), "db.example");
        assert!(!format!("{options:?}").contains("\"system\""));
    }
}
