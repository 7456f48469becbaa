//! How the proxy logs in to real servers: each authentication method, each sslmode, the shard's own errors, cancels, and
//! connections that move between runtimes. And what it takes from servers that are none.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use shardgate::auth::{BackendCredentials, BackendSecret, Greeting, LoginError, login};
use shardgate::config::{Config, ScramVerifier, Secret, ShardUrl, UserConfig};
use shardgate::demo::servers::{Server, ServerOptions, test_settings};
use shardgate::error::SqlState;
use shardgate::net::{ConnectError, ShardEndpoint, ShardStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::{Certificates, Doorman, connect, psql_output, server_directory};

/// A server that wants a password by the user's name: `md5_user`, `clear_user`, `scram_user`; with TLS where certificates are given.
async fn server(certificates: Option<&Certificates>) -> Server {
    let mut settings = test_settings();
    if let Some(certificates) = certificates {
        let files = certificates.issue_for_server("shard", "localhost");
        settings.push(("ssl".into(), "on".into()));
        settings.push(("ssl_cert_file".into(), files.cert.display().to_string()));
        settings.push(("ssl_key_file".into(), files.key.display().to_string()));
        settings.push(("ssl_ca_file".into(), certificates.authority_path().display().to_string()));
    }
    let hba = [("md5_user", "md5"), ("clear_user", "password"), ("scram_user", "scram-sha-256")];
    let by_certificate = certificates.map(|_| "hostssl all certuser 127.0.0.1/32 cert".to_owned());
    let options = ServerOptions {
        dir: server_directory(),
        settings,
        hba: hba.iter().map(|(user, method)| format!("host all {user} 127.0.0.1/32 {method}")).chain(by_certificate).collect(),
        template_cache: Some(std::env::temp_dir().join("shardgate-postgresql-templates")),
        ephemeral: true,
        ..ServerOptions::default()
    };
    let server = Server::start(&options).expect("started");
    let client = connect(&server.url("postgres")).await;
    let script = "SET password_encryption = 'md5'; CREATE ROLE md5_user LOGIN PASSWORD 'secret';
        SET password_encryption = 'scram-sha-256';
        CREATE ROLE scram_user LOGIN PASSWORD 'secret'; CREATE ROLE clear_user LOGIN PASSWORD 'secret'; CREATE ROLE certuser LOGIN";
    client.batch_execute(script).await.expect("roles");
    server
}

fn endpoint(server: &Server, host: &str, parameters: &str) -> Arc<ShardEndpoint> {
    let url = format!("postgres://postgres@{host}:{}/postgres?{parameters}", server.port());
    ShardEndpoint::of(ShardUrl::parse(&url).expect("valid")).expect("usable").remove(0)
}

fn credentials(user: &str, password: &str) -> BackendCredentials {
    BackendCredentials { user: user.into(), secret: BackendSecret::Password(Secret::new(password)) }
}

async fn log_in(endpoint: &ShardEndpoint, credentials: &BackendCredentials) -> Result<(ShardStream, Greeting), LoginError> {
    let mut stream = endpoint.connect().await.expect("connected");
    let greeting =
        login(&mut stream, credentials, "postgres", &[("application_name", "edge"), ("client_encoding", "UTF8")], &[]).await?;
    Ok((stream, greeting))
}

/// Sends a Query and returns the texts of the rows' first columns, or the SQLSTATE.
async fn query(stream: &mut ShardStream, sql: &str) -> Result<Vec<String>, String> {
    let mut packet = BytesMut::new();
    postgres_protocol::message::frontend::query(sql, &mut packet).expect("a query");
    stream.write_all(&packet).await.expect("written");
    stream.flush().await.expect("flushed");
    let (mut rows, mut failure) = (Vec::new(), None);
    loop {
        let tag = stream.read_u8().await.expect("a message");
        let mut body = vec![0; stream.read_u32().await.expect("a length") as usize - 4];
        stream.read_exact(&mut body).await.expect("a body");
        match tag {
            b'D' => rows.push(String::from_utf8_lossy(&body[6..]).into_owned()),
            b'E' => {
                let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C")).expect("a code");
                failure = Some(String::from_utf8_lossy(code).into_owned());
            }
            b'Z' => return failure.map_or(Ok(rows), Err),
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_authentication_method_is_spoken() {
    let server = server(None).await;
    let endpoint = endpoint(&server, "127.0.0.1", "sslmode=disable");
    for user in ["md5_user", "clear_user", "scram_user", "postgres"] {
        let (mut stream, greeting) = log_in(&endpoint, &credentials(user, "secret")).await.expect(user);
        let value = |name: &str| greeting.parameter_status.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!((value("application_name"), value("session_authorization")), (Some("edge"), Some(user)));
        assert!(value("server_version").is_some_and(|version| version.starts_with("1")));
        assert!(greeting.leftover.is_empty());
        assert_eq!(query(&mut stream, "SELECT current_user").await, Ok(vec![user.to_owned()]));
        let pid = greeting.backend_key.expect("a key").process_id.to_string();
        assert_eq!(query(&mut stream, "SELECT pg_backend_pid()").await, Ok(vec![pid]));
    }
}

/// By sessions' connections and by those of the proxy itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_certificate_is_shown_to_a_server_that_asks_for_one() {
    let certificates = Certificates::new();
    let server = server(Some(&certificates)).await;
    let files = certificates.issue("client", "certuser");
    let stranger = certificates.issue("stranger", "somebody");
    let parameters = |cert: &Path, key: &Path| format!("sslmode=require&sslcert={}&sslkey={}", cert.display(), key.display());
    let url = |parameters: &str| {
        ShardUrl::parse(&format!("postgres://certuser@127.0.0.1:{}/postgres?{parameters}", server.port())).expect("valid")
    };
    let nothing = BackendCredentials { user: "certuser".into(), secret: BackendSecret::None };
    for (parameters, is_let_in) in [
        (parameters(&files.cert, &files.key), true),
        (format!("{}&sslrootcert={}", parameters(&files.cert, &files.key), certificates.authority_path().display()), true),
        (parameters(&stranger.cert, &stranger.key), false),
        ("sslmode=require".to_owned(), false),
    ] {
        let endpoint = ShardEndpoint::of(url(&parameters)).expect("usable").remove(0);
        let answer = log_in(&endpoint, &nothing).await;
        assert_eq!(answer.is_ok(), is_let_in, "{parameters}: {:?}", answer.err());
        let own = shardgate::net::connect_to(&url(&parameters), endpoint.host(), "own").await;
        assert_eq!(own.is_ok(), is_let_in, "{parameters}: {:?}", own.err());
    }
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o644)).expect("open to others");
    let error = ShardEndpoint::of(url(&parameters(&files.cert, &files.key))).expect_err("refused").to_string();
    assert!(error.starts_with("sslkey: others may read") && error.ends_with("u=rw (0600) or less"), "{error}");
    let error = ShardEndpoint::of(url(&parameters(&files.cert, &files.cert))).expect_err("refused").to_string();
    assert!(error.starts_with("sslkey: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shard_s_refusal_is_kept_field_by_field() {
    let server = server(None).await;
    let endpoint = endpoint(&server, "127.0.0.1", "sslmode=disable");
    for user in ["md5_user", "clear_user", "scram_user"] {
        match log_in(&endpoint, &credentials(user, "wrong")).await {
            Err(LoginError::Shard(error)) => {
                assert_eq!(error.code(), Some(SqlState::INVALID_PASSWORD));
                assert_eq!(error.message(), format!("password authentication failed for user \"{user}\""));
                assert_eq!((error.field(b'S'), error.field(b'V')), (Some(&b"FATAL"[..]), Some(&b"FATAL"[..])));
            }
            other => panic!("{user}: {other:?}"),
        }
        let without = BackendCredentials { user: user.into(), secret: BackendSecret::None };
        assert!(matches!(log_in(&endpoint, &without).await, Err(LoginError::Secret(_) | LoginError::Scram(_))));
    }
    let nobody = log_in(&endpoint, &credentials("nobody_at_all", "x")).await;
    assert!(matches!(nobody, Err(LoginError::Shard(error)) if error.code() == Some(SqlState::INVALID_AUTHORIZATION)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_passes_through_the_proxy_without_its_password() {
    let server = server(None).await;
    let admin = connect(&server.url("postgres")).await;
    let row = admin.query_one("SELECT rolpassword FROM pg_authid WHERE rolname = 'scram_user'", &[]).await.expect("a row");
    let verifier = ScramVerifier::parse(row.get(0));
    assert!(verifier.is_some(), "PostgreSQL's own form is read");
    let mut config = Config::default();
    config.auth.users = vec![UserConfig { name: "scram_user".into(), verifier, ..UserConfig::default() }];
    let door = Doorman::start(&config).await;
    let conninfo = door.conninfo("scram_user", "password=secret");
    let output = tokio::task::spawn_blocking(move || psql_output(&conninfo, &["-c", ""])).await.expect("psql ran");
    assert!(output.status.success());
    let login = door.record(|record| record.logins[0].clone());

    let endpoint = endpoint(&server, "127.0.0.1", "sslmode=disable");
    let (mut stream, _) = log_in(&endpoint, &login.backend_credentials).await.expect("the keys are enough");
    assert_eq!(query(&mut stream, "SELECT current_user").await, Ok(vec!["scram_user".to_owned()]));

    admin.batch_execute("ALTER ROLE scram_user PASSWORD 'secret'").await.expect("another salt");
    let error = log_in(&endpoint, &login.backend_credentials).await.expect_err("the same password under another salt");
    assert!(error.to_string().contains("another salt or iteration count"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_sslmode_does_what_libpq_s_does() {
    let certificates = Certificates::new();
    let server = server(Some(&certificates)).await;
    let ca = format!("sslrootcert={}", certificates.authority_path().display());
    let foreign = Certificates::new();
    let foreign_ca = format!("sslrootcert={}", foreign.authority_path().display());
    let user = credentials("scram_user", "secret");
    // (host, parameters, connected under TLS; none: refused by the handshake)
    let cases = [
        ("localhost", "sslmode=disable".to_owned(), Some(false)),
        ("localhost", "sslmode=prefer".to_owned(), Some(true)),
        ("localhost", "sslmode=require".to_owned(), Some(true)),
        ("127.0.0.1", format!("sslmode=verify-ca&{ca}"), Some(true)),
        ("127.0.0.1", format!("sslmode=require&{ca}"), Some(true)),
        ("localhost", format!("sslmode=require&{foreign_ca}"), None),
        ("localhost", format!("sslmode=prefer&{foreign_ca}"), Some(true)),
        ("localhost", format!("sslmode=verify-full&{ca}"), Some(true)),
        ("127.0.0.1", format!("sslmode=verify-full&{ca}"), None),
        ("localhost", format!("sslmode=verify-full&{foreign_ca}"), None),
        ("localhost", format!("sslmode=verify-ca&{foreign_ca}"), None),
        ("localhost", "sslmode=verify-full&sslrootcert=system".to_owned(), None),
        ("localhost", "sslrootcert=system".to_owned(), None),
    ];
    for (host, parameters, expected) in cases {
        let endpoint = endpoint(&server, host, &parameters);
        match (endpoint.connect().await, expected) {
            (Ok(mut stream), Some(is_tls)) => {
                assert_eq!(stream.is_tls(), is_tls, "{host} {parameters}");
                // Under TLS this is SCRAM-SHA-256-PLUS.
                login(&mut stream, &user, "postgres", &[], &[]).await.expect("logged in");
                let rows = query(&mut stream, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await;
                assert_eq!(rows, Ok(vec![if is_tls { "t".to_owned() } else { "f".to_owned() }]));
            }
            (Err(ConnectError::Tls(_)), None) => {}
            (outcome, _) => panic!("{host} {parameters}: {outcome:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_tls_is_required() {
    let server = server(None).await;
    let refused = endpoint(&server, "127.0.0.1", "sslmode=require").connect().await;
    assert!(matches!(refused, Err(ConnectError::TlsRefused("require"))), "{refused:?}");
    let plain = endpoint(&server, "127.0.0.1", "sslmode=prefer").connect().await.expect("connected");
    assert!(!plain.is_tls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_stops_the_query_and_is_over_when_it_returns() {
    let certificates = Certificates::new();
    let server = server(Some(&certificates)).await;
    for mode in ["sslmode=disable", "sslmode=require"] {
        let endpoint = endpoint(&server, "localhost", mode);
        let (mut stream, greeting) = log_in(&endpoint, &credentials("scram_user", "secret")).await.expect("logged in");
        let key = greeting.backend_key.expect("a key");
        let observer = connect(&server.url("postgres")).await;
        let running = tokio::spawn(async move {
            let outcome = query(&mut stream, "SELECT pg_sleep(60)").await;
            (outcome, query(&mut stream, "SELECT 1").await)
        });
        let pid = key.process_id;
        let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'";
        while observer.query_one(sleeping, &[&pid]).await.expect("a count").get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        endpoint.cancel(&key.bytes).await.expect("cancelled");
        let (cancelled, next) = running.await.expect("the query ended");
        assert_eq!((cancelled, next), (Err("57014".to_owned()), Ok(vec!["1".to_owned()])));
    }
}

#[test]
fn an_idle_connection_moves_between_runtimes_also_under_tls() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let first = runtime();
    let certificates = Certificates::new();
    let server = first.block_on(server(Some(&certificates)));
    for mode in ["sslmode=disable", "sslmode=require"] {
        let endpoint = endpoint(&server, "localhost", mode);
        let detached = first.block_on(async {
            let (stream, _) = log_in(&endpoint, &credentials("scram_user", "secret")).await.expect("logged in");
            stream.detach().expect("detached")
        });
        let detached = std::thread::spawn(move || {
            let second = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            second.block_on(async {
                let mut stream = detached.attach().expect("attached");
                assert_eq!(query(&mut stream, "SELECT 7").await, Ok(vec!["7".to_owned()]));
                stream.detach().expect("detached")
            })
        });
        let detached = detached.join().expect("the other thread ended");
        first.block_on(async {
            let mut stream = detached.attach().expect("attached");
            assert_eq!(query(&mut stream, "SELECT 8").await, Ok(vec!["8".to_owned()]));
        });
    }
}

/// A peer that sends these bytes after it has read something, and ends.
async fn impostor(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("accepted");
        assert!(stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0));
        stream.write_all(bytes).await.expect("written");
        stream.shutdown().await.expect("ended");
        // Until the other side has seen it all.
        while stream.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {}
    });
    format!("postgres://a@127.0.0.1:{port}/b")
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_before_the_handshake_are_refused_on_the_way_to_a_shard_too() {
    for (answer, expected) in [
        (&b"SE"[..], "the server sent more than its answer"),
        (b"NE", "the server sent more than its answer"),
        (b"E", "the server answered the request for TLS with byte 0x45"),
        (b"", "the connection could not be made"),
    ] {
        let url = format!("{}?sslmode=prefer", impostor(answer).await);
        let endpoint = ShardEndpoint::of(ShardUrl::parse(&url).expect("valid")).expect("usable").remove(0);
        let error = endpoint.connect().await.expect_err("refused").to_string();
        assert!(error.starts_with(expected), "{answer:?} gave {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_from_a_server_is_an_error() {
    let cases: [(&[u8], &str); 14] = [
        (b"", "the shard closed the connection during login"),
        (b"R\0\0", "the shard closed the connection during login"),
        (b"R\0\0\0\x03", "a message of invalid length"),
        (b"R\xff\xff\xff\xff", "a message of invalid length"),
        (b"R\x7f\xff\xff\xff", "a message of invalid length"),
        (b"R\0\0\0\x06ab", "an authentication request without code"),
        (b"R\0\0\0\x08\0\0\0\x07", "not supported (code 7)"),
        (b"R\0\0\0\x0a\0\0\0\x05ab", "an MD5 request without salt"),
        (b"R\0\0\0\x0d\0\0\0\x0aX\0\0X\0", "no SASL mechanism that is supported"),
        (b"Z\0\0\0\x05I", "not an authentication request"),
        (b"R\0\0\0\x08\0\0\0\0S\0\0\0\x06a\0", "a malformed ParameterStatus"),
        (b"R\0\0\0\x08\0\0\0\0K\0\0\0\x05a", "a malformed BackendKeyData"),
        (b"R\0\0\0\x08\0\0\0\0D\0\0\0\x04", "a message that does not belong to a login"),
        (b"E\0\0\0\x0bMno\0\0xy", "the shard refused the login: no"),
    ];
    for (bytes, expected) in cases {
        let url = format!("{}?sslmode=disable", impostor(bytes).await);
        let endpoint = ShardEndpoint::of(ShardUrl::parse(&url).expect("valid")).expect("usable").remove(0);
        let mut stream = endpoint.connect().await.expect("connected");
        let error = login(&mut stream, &credentials("a", "b"), "b", &[], &[]).await.expect_err("refused").to_string();
        assert!(error.contains(expected), "{bytes:?} gave {error}");
    }
}
