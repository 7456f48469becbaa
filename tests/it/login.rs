//! How clients are let in: SCRAM by password and verifier, trust, TLS in its modes, channel binding, what each refusal says.
//!
//! The clients are psql (libpq) and tokio-postgres; the server is the entrance alone, without shards.

use std::process::Output;

use shardgate::auth::BackendSecret;
use shardgate::config::{AuthMethod, Config, ScramVerifier, Secret, TlsMode, UserConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Certificates, Doorman, psql_output};

/// `app` with a password, `keeper` with a verifier of the password "kept", `boss` an admin.
fn scram_config() -> Config {
    let mut config = Config::default();
    let user = |name: &str, password: &str| UserConfig {
        name: name.into(),
        password: Some(Secret::new(password)),
        ..UserConfig::default()
    };
    let verifier = postgres_protocol::password::scram_sha_256(b"kept");
    let keeper = UserConfig { name: "keeper".into(), verifier: ScramVerifier::parse(&verifier), ..UserConfig::default() };
    config.auth.users = vec![user("app", "pass\u{2168}word"), keeper, UserConfig { admin: true, ..user("boss", "b") }];
    config
}

fn with_tls(mode: TlsMode, certificates: &Certificates) -> Config {
    let files = certificates.issue("proxy", "127.0.0.1");
    let mut config = scram_config();
    config.listen.tls.mode = mode;
    config.listen.tls.cert = Some(files.cert);
    config.listen.tls.key = Some(files.key);
    config
}

/// psql, off the runtime's thread; its standard error where it fails.
async fn psql(conninfo: String) -> Result<String, String> {
    let run = move || psql_output(&conninfo, &["-c", "SELECT", "-c", "\\conninfo"]);
    let Output { status, stdout, stderr } = tokio::task::spawn_blocking(run).await.expect("psql ran");
    match status.success() {
        true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&stderr).into_owned()),
    }
}

fn assert_refused(outcome: Result<String, String>, words: &str) {
    match outcome {
        Err(text) if text.contains(words) => {}
        other => panic!("expected {words:?}, got {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_right_password_opens_and_the_wrong_one_does_not() {
    let door = Doorman::start(&scram_config()).await;
    psql(door.conninfo("app", "password=passIXword sslmode=disable")).await.expect("SASLprep makes the passwords alike");
    psql(door.conninfo("boss", "password=b sslmode=disable")).await.expect("let in");
    assert_refused(psql(door.conninfo("boss", "password=c")).await, "FATAL:  password authentication failed for user \"boss\"");
    assert_refused(psql(door.conninfo("no", "password=b")).await, "FATAL:  password authentication failed for user \"no\"");
    let admins = door.record(|record| record.logins.iter().map(|login| login.is_admin).collect::<Vec<_>>());
    assert_eq!(admins, [false, true]);
    door.record(|record| {
        assert!(matches!(&record.logins[1].backend_credentials.secret, BackendSecret::Password(secret) if secret.reveal() == "b"));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verifier_lets_in_and_yields_keys_for_the_shards() {
    let door = Doorman::start(&scram_config()).await;
    psql(door.conninfo("keeper", "password=kept")).await.expect("let in");
    assert_refused(psql(door.conninfo("keeper", "password=other")).await, "password authentication failed for user \"keeper\"");
    door.record(|record| {
        assert_eq!(record.logins.len(), 1);
        assert!(matches!(record.logins[0].backend_credentials.secret, BackendSecret::Keys(_)));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn another_database_is_refused_after_the_password() {
    let door = Doorman::start(&scram_config()).await;
    let elsewhere = |password: &str| door.conninfo("boss", &format!("password={password} dbname=elsewhere"));
    assert_refused(psql(elsewhere("b")).await, "FATAL:  database \"elsewhere\" does not exist");
    assert_refused(psql(elsewhere("c")).await, "FATAL:  password authentication failed for user \"boss\"");
    let replication = door.conninfo("boss", "password=b replication=database");
    assert_refused(psql(replication).await, "FATAL:  replication connections are not supported");
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_takes_any_name_and_the_listed_ones_keep_their_rights() {
    let mut config = scram_config();
    config.auth.method = AuthMethod::Trust;
    let door = Doorman::start(&config).await;
    for name in ["boss", "anyone"] {
        psql(door.conninfo(name, "")).await.expect("let in");
    }
    let admins = door.record(|record| record.logins.iter().map(|login| login.is_admin).collect::<Vec<_>>());
    assert_eq!(admins, [true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_users_are_given_the_same_salt_each_time() {
    let door = Doorman::start(&scram_config()).await;
    let mut parameters = Vec::new();
    for user in ["ghost", "ghost", "ghost2", "app", "app"] {
        parameters.push(salt_and_iterations(&door, user).await);
    }
    assert_eq!(parameters[0], parameters[1]);
    assert_ne!(parameters[0], parameters[2]);
    assert_eq!(parameters[3], parameters[4]);
    let shape = |text: &str| (text.len(), text.rsplit_once(",i=").map(|(_, count)| count.to_owned()));
    assert_eq!(shape(&parameters[0]), shape(&parameters[3]), "a user and nobody look alike");
}

/// `s=…,i=…` of the server's first message.
async fn salt_and_iterations(door: &Doorman, user: &str) -> String {
    let mut stream = TcpStream::connect(door.address()).await.expect("connected");
    let parameters = format!("user\0{user}\0database\0app\0\0");
    let length = u32::try_from(parameters.len() + 8).expect("short").to_be_bytes();
    let mut packet = [&length[..], &[0, 3, 0, 0], parameters.as_bytes()].concat();
    let first = b"n,,n=,r=nonce";
    let mechanism = b"SCRAM-SHA-256\0";
    let length = u32::try_from(4 + mechanism.len() + 4 + first.len()).expect("short").to_be_bytes();
    let first_length = u32::try_from(first.len()).expect("short").to_be_bytes();
    packet.extend([b"p", &length[..], mechanism, &first_length, first].concat());
    // Both at once: what follows the startup message without waiting is not lost.
    stream.write_all(&packet).await.expect("written");
    let mut text = String::new();
    while !text.contains(",i=4096") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).await.expect("read");
        assert!(count > 0, "closed after {text:?}");
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    text.split_once(",s=").expect("a salt").1.to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_off_allowed_or_required() {
    let certificates = Certificates::new();
    let off = Doorman::start(&scram_config()).await;
    psql(off.conninfo("boss", "password=b sslmode=prefer")).await.expect("falls back");
    assert_refused(psql(off.conninfo("boss", "password=b sslmode=require")).await, "server does not support SSL");

    let allow = Doorman::start(&with_tls(TlsMode::Allow, &certificates)).await;
    psql(allow.conninfo("boss", "password=b sslmode=disable")).await.expect("in the clear");
    let ca = certificates.authority_path().display().to_string();
    let verified = allow.conninfo("boss", &format!("password=b sslmode=verify-full sslrootcert={ca}"));
    let output = psql(verified).await.expect("under TLS");
    assert!(output.contains("SSL connection"), "{output}");

    let require = Doorman::start(&with_tls(TlsMode::Require, &certificates)).await;
    psql(require.conninfo("boss", "password=b sslmode=require")).await.expect("under TLS");
    assert_refused(psql(require.conninfo("boss", "password=b sslmode=disable")).await, "FATAL:  connection is not encrypted");
}

#[tokio::test(flavor = "multi_thread")]
async fn channel_binding_is_offered_under_tls() {
    let certificates = Certificates::new();
    let door = Doorman::start(&with_tls(TlsMode::Allow, &certificates)).await;
    let conninfo = |rest: &str| door.conninfo("keeper", &format!("password=kept {rest}"));
    psql(conninfo("sslmode=require channel_binding=require")).await.expect("bound");
    psql(conninfo("sslmode=require channel_binding=disable")).await.expect("declined");
    psql(conninfo("sslmode=require channel_binding=prefer")).await.expect("preferred");
    assert_refused(psql(conninfo("sslmode=disable channel_binding=require")).await, "channel binding");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_authority_wants_a_certificate_of_each_client() {
    let certificates = Certificates::new();
    let mut config = with_tls(TlsMode::Require, &certificates);
    config.listen.tls.client_ca = Some(certificates.authority_path());
    let door = Doorman::start(&config).await;
    let own = certificates.issue("client", "client.example");
    let foreign = Certificates::new().issue("client", "client.example");
    let conninfo = |rest: String| door.conninfo("boss", &format!("password=b sslmode=require {rest}"));
    let with = |files: &crate::support::KeyFiles| format!("sslcert={} sslkey={}", files.cert.display(), files.key.display());
    psql(conninfo(with(&own))).await.expect("let in");
    assert!(psql(conninfo("sslcert=/nonexistent".into())).await.is_err());
    assert!(psql(conninfo(with(&foreign))).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_requests_arrive_with_their_key_in_the_clear_and_under_tls() {
    let certificates = Certificates::new();
    let door = Doorman::start(&with_tls(TlsMode::Require, &certificates)).await;
    let url = format!("postgres://app@127.0.0.1:{}/app?sslmode=", door.address().port());
    for mode in ["disable", "require"] {
        let url = shardgate::config::ShardUrl::parse(&format!("{url}{mode}")).expect("valid");
        let endpoint = shardgate::net::ShardEndpoint::of(url).expect("usable").remove(0);
        endpoint.cancel(&[0, 0, 0, 9, 1, 2, 3, 4]).await.expect("the connection is closed after the cancel");
    }
    assert_eq!(door.record(|record| record.cancels.clone()), vec![vec![0, 0, 0, 9, 1, 2, 3, 4]; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_protocol_is_told_what_it_gets() {
    let mut config = scram_config();
    config.auth.method = AuthMethod::Trust;
    let door = Doorman::start(&config).await;
    let mut stream = TcpStream::connect(door.address()).await.expect("connected");
    let parameters = b"user\0app\0database\0app\0_pq_.shine\0on\0\0";
    let length = u32::try_from(parameters.len() + 8).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], &[0, 3, 0, 2], parameters].concat()).await.expect("written");
    let mut answer = [0; 24];
    stream.read_exact(&mut answer).await.expect("read");
    assert_eq!(&answer, b"v\0\0\0\x17\0\x03\0\0\0\0\0\x01_pq_.shine\0");
    let mut next = [0; 9];
    stream.read_exact(&mut next).await.expect("read");
    assert_eq!(&next, b"R\0\0\0\x08\0\0\0\0");
}
