//! What is read from URLs, and what is refused.

use super::*;

#[test]
fn all_parts_are_read_and_decoded() {
    let url = ShardUrl::parse(
        "postgresql://us%40er:p%3Ass%2Fw+rd%25@[::1]:5433/d%20b?sslmode=verify-full&sslrootcert=/a%20b.pem&options=-c%20a%3Db&application_name=x",
    )
    .expect("valid");
    assert_eq!((url.hosts, url.user.as_str(), url.database.as_str()), (hosts(&[("::1", 5433)]), "us@er", "d b"));
    assert_eq!(url.password.as_ref().map(Secret::reveal), Some("p:ss/w+rd%"));
    assert_eq!((url.ssl_mode, url.ssl_root_cert), (SslMode::VerifyFull, Some(PathBuf::from("/a b.pem"))));
    assert_eq!((url.options.as_deref(), url.application_name.as_deref()), (Some("-c a=b"), Some("x")));
}

#[test]
fn what_is_left_out_has_libpq_s_defaults() {
    let url = ShardUrl::parse("postgres://app@db.example/books").expect("valid");
    assert_eq!(
        (url.hosts, url.password.is_none(), url.ssl_mode, url.target_session),
        (hosts(&[("db.example", 5432)]), true, SslMode::Prefer, TargetSession::Primary)
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
        ("postgres://a@/c", "names no host"),
        ("postgres:///c", "names no host"),
        ("postgres://b/c", "names no user"),
        ("postgres://a@b", "names no database"),
        ("postgres://a@b/", "names no database"),
        ("postgres://a@b:99999/c", "the URL's port \"99999\" is not a number from 1 to 65535"),
        ("postgres://a:%00@b/c", "the URL's password holds a NUL"),
        ("postgres://a%ff@b/c", "the URL's user holds a NUL or is not UTF-8"),
        ("postgres://a@b/c?sslmode=on", "sslmode is \"on\""),
        ("postgres://a@b/c?sslmode=verify-ca", "sslmode verify-ca needs sslrootcert"),
        ("postgres://a@b/c?sslmode=require&sslmode=disable", "\"sslmode\" is given twice"),
        ("postgres://a@b/c?hostaddr=127.0.0.1", "\"hostaddr\" is not known: allowed are host, port,"),
        ("postgres://a@b/c?target_session_attrs=master", "is \"master\": allowed are any, primary, read-write"),
        ("postgres://a@b/c?target_session_attrs=prefer-standby", "leads to servers that take no writes"),
        ("postgres://a@b,,d/c", "names no host"),
        ("postgres://a@b:1,d:x/c", "not a URL"),
        ("postgres://a@b:0/c", "port \"0\" is not a number"),
        ("postgres://a@[::1/c", "not a URL"),
        ("postgres://a@%2Ftmp/c", "\"/tmp\" is the directory of a socket"),
        ("postgres://a@/c?host=b,/tmp", "is the directory of a socket"),
        ("postgres://a@b/c?host=d", "\"host\" is given twice"),
        ("postgres://a@b:1/c?port=2", "\"port\" is given twice"),
        ("postgres://a@b,d,e/c?port=1,2", "2 ports for 3 hosts"),
        ("postgres://a@b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b,b/c", "more than 16 hosts"),
        ("postgres://a@b/c?sslpassword=x", "\"sslpassword\" is not supported: use a key that is not encrypted"),
        ("postgres://a@b/c?sslcert=x", "sslcert needs sslkey"),
        ("postgres://a@b/c?sslkey=x", "sslkey needs sslcert"),
        ("postgres://a@b/c?password_env=PATH", "must begin with SHARDGATE_PASSWORD"),
        ("postgres://a@b/c?passfile=/x&password_env=SHARDGATE_PASSWORD", "both passfile and password_env"),
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

fn hosts(hosts: &[(&str, u16)]) -> Vec<Host> {
    hosts.iter().map(|(name, port)| Host { name: (*name).to_owned(), port: *port }).collect()
}

#[test]
fn several_hosts_are_read_as_libpq_reads_them() {
    for (text, expected) in [
        ("a@h1:1,h2,[::1]:3/c", &[("h1", 1), ("h2", 5432), ("::1", 3)][..]),
        ("a@/c?host=h1,h2&port=1,2", &[("h1", 1), ("h2", 2)]),
        ("/c?host=h1,h2&port=7", &[("h1", 7), ("h2", 7)]),
        ("a@h1,h2/c?port=,2", &[("h1", 5432), ("h2", 2)]),
        ("a@h%2D1:/c", &[("h-1", 5432)]),
    ] {
        let text = format!("postgres://{}", if text.contains('@') { text.to_owned() } else { format!("a@{text}") });
        assert_eq!(ShardUrl::parse(&text).expect(&text).hosts, hosts(expected), "{text}");
    }
    for (value, expected) in
        [("any", TargetSession::Primary), ("primary", TargetSession::Primary), ("read-write", TargetSession::ReadWrite)]
    {
        let url = ShardUrl::parse(&format!("postgres://a@b,c/d?target_session_attrs={value}")).expect(value);
        assert_eq!(url.target_session, expected);
    }
}

#[test]
fn programs_that_use_libpq_are_told_the_same() {
    let conninfo = |text: &str| ShardUrl::parse(text).expect(text).conninfo_with(Some(&Secret::new("p\\w d'")));
    assert_eq!(
        conninfo("postgres://a%27b:ignored@db.example:5433/x?sslmode=require"),
        "host='db.example' port=5433 user='a\\'b' dbname='x' sslmode=require password='p\\\\w d\\''"
    );
    assert_eq!(
        conninfo("postgres://a@h1,h2:2/x?sslcert=/c.pem&sslkey=/k.pem"),
        "host='h1,h2' port=5432,2 user='a' dbname='x' sslmode=prefer target_session_attrs=primary sslcert='/c.pem' sslkey='/k.pem' \
         password='p\\\\w d\\''"
    );
}
