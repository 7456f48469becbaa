//! The URL of a shard or of the map database for sqlx, by which the proxy's own statements run: declarations, the map, schemas.
//!
//! sqlx would read the URL by rules of its own: parameters that sessions refuse, `require` that verifies nothing beside
//! `sslrootcert`, no `sslrootcert=system`, the brackets of an IPv6 address as part of its name. So it is given what [`ShardUrl`]
//! has read. And it would log statements, slow ones at a level that everybody sees: their texts may hold passwords, as those of
//! user mappings in a schema do.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::config::{Secret, ShardUrl, SslMode, UrlError};

/// For connections of the proxy itself, which say so by `application_name`.
pub fn connect_options(url: &ShardUrl, application_name: &str) -> Result<PgConnectOptions, UrlError> {
    // Options of the server are taken from a text only.
    let read: PgConnectOptions = plain_url(url).parse().map_err(|_| UrlError::Malformed)?;
    let options = read.host(&url.host).ssl_mode(ssl_mode(url.ssl_mode)).application_name(application_name);
    let options = match &url.ssl_root_cert {
        // Without a file it goes by the public authorities.
        Some(_) if url.has_system_authorities() => options,
        Some(path) => options.ssl_root_cert(path),
        None => options,
    };
    Ok(options.disable_statement_logging())
}

fn plain_url(url: &ShardUrl) -> String {
    let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let password = url.password.as_ref().map(|password| format!(":{}", encoded(Secret::reveal(password)))).unwrap_or_default();
    let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
    let mut text = format!("postgres://{}{password}@{host}:{}/{}", encoded(&url.user), url.port, encoded(&url.database));
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

    #[test]
    fn every_part_arrives() {
        let url = "postgresql://us%40er:p%3Ass@[::1]:5433/d%20b?sslmode=require&sslrootcert=/a.pem&options=-c%20a%3Db%2B";
        let options = connect_options(&ShardUrl::parse(url).expect("valid"), "us").expect("options");
        assert_eq!((options.get_host(), options.get_port(), options.get_username()), ("::1", 5433, "us@er"));
        assert_eq!((options.get_database(), options.get_application_name()), (Some("d b"), Some("us")));
        assert_eq!(options.get_options(), Some("-c a=b+"));
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyCa));
        let shown = format!("{options:?}");
        assert!(shown.contains("p:ss") && shown.contains("/a.pem"), "{shown}");
    }

    #[test]
    fn the_public_authorities_are_no_file() {
        let url = ShardUrl::parse("postgres://a@db.example/c?sslrootcert=system").expect("valid");
        let options = connect_options(&url, "us").expect("options");
        assert!(matches!(options.get_ssl_mode(), PgSslMode::VerifyFull));
        assert_eq!(options.get_host(), "db.example");
        assert!(!format!("{options:?}").contains("\"system\""));
    }
}
