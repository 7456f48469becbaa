//! What is accepted, what is refused and with which words; and that the documented file is the defaults.

use std::ffi::OsString;
use std::io::Write;

use super::*;

const MAP_URL: &str = "[map]\nurl = \"postgres://u:hunter2@localhost/map\"\n";

fn load(toml: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(toml.as_bytes()).expect("written");
    let environment = environment.iter().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    Config::load_with_environment(Some(file.path()), environment)
}

/// The error's text with the temporary file's name cut out.
fn refusal(toml: &str, environment: &[(&str, &str)]) -> String {
    let error = load(toml, environment).expect_err(toml);
    let text = error.to_string();
    let words: Vec<_> = text.split(' ').map(|word| if word.contains("/.tmp") { "FILE" } else { word }).collect();
    words.join(" ")
}

#[test]
fn the_documented_file_is_the_defaults_and_names_every_setting() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/shardgate.toml");
    let text = std::fs::read_to_string(&path).expect("config/shardgate.toml");
    let mut loaded = Config::load_with_environment(Some(&path), []).expect("the documented file is valid");
    loaded.map.url = Secret::default();
    assert_eq!(loaded, Config::default());

    let mut missing = Vec::new();
    let defaults = serde_json::to_value(Config::default()).expect("serializable");
    collect_missing(&defaults, "", &text, &mut missing);
    let user = serde_json::to_value(UserConfig::default()).expect("serializable");
    for key in user.as_object().expect("an object").keys() {
        if !text.contains(&format!("# {key} = ")) {
            missing.push(format!("auth.users.{key}"));
        }
    }
    assert_eq!(missing, Vec::<String>::new(), "settings that config/shardgate.toml does not show");
}

/// Leaves of `value` that have no line `key = …` (or `# key = …` where there is no default) under `[section]` in the text.
fn collect_missing(value: &serde_json::Value, section: &str, text: &str, missing: &mut Vec<String>) {
    for (key, value) in value.as_object().expect("a section") {
        let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
        if value.is_object() {
            collect_missing(value, &path, text, missing);
            continue;
        }
        if value.is_array() {
            continue;
        }
        let body = text.split_once(&format!("\n[{section}]\n")).map_or("", |(_, rest)| rest);
        let body = body.split("\n[").next().unwrap_or("");
        let line = if value.is_null() { format!("\n# {key} = ") } else { format!("\n{key} = ") };
        if !format!("\n{body}").contains(&line) {
            missing.push(path);
        }
    }
}

#[test]
fn later_layers_win() {
    let toml = format!("{MAP_URL}[listen]\nmax_clients = 7\nbacklog = 9\n[pool]\nlate_joiner_share = 0\n");
    let config = load(&toml, &[("SHARDGATE__LISTEN__BACKLOG", "11"), ("SHARDGATE_OTHER", "x"), ("PATH", "/bin")]).expect("valid");
    assert_eq!((config.listen.max_clients, config.listen.backlog, config.listen.login_timeout_ms), (7, 11, 15_000));
    assert_eq!(config.pool.late_joiner_share, 0.0);
    assert_eq!(config.map.url.reveal(), "postgres://u:hunter2@localhost/map");
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn text_that_looks_like_a_number_stays_text() {
    let environment = [
        ("SHARDGATE__MAP__URL", "postgresql://u@localhost/map"),
        ("SHARDGATE__DATABASE__NAME", "6432"),
        ("SHARDGATE__AUTH__USERS__0__NAME", "1e3"),
        ("SHARDGATE__AUTH__USERS__0__PASSWORD", "007"),
        ("SHARDGATE__AUTH__USERS__0__ADMIN", "true"),
        ("SHARDGATE__POOL__HEALTH__BACKOFF_FACTOR", "3"),
        ("SHARDGATE__AUTH__BACKEND_USER", "shard"),
    ];
    let environment = environment.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let config = Config::load_with_environment(None, environment).expect("valid");
    assert_eq!(config.database.name, "6432");
    let user = &config.auth.users[0];
    assert_eq!((user.name.as_str(), user.admin), ("1e3", true));
    assert_eq!(user.password.as_ref().map(Secret::reveal), Some("007"));
    assert_eq!(config.pool.health.backoff_factor, 3.0);
    assert_eq!(config.auth.backend_user, BackendUser::Shard);
}

#[test]
fn errors_name_the_key_the_value_and_what_is_allowed() {
    let with = |rest: &str| format!("{MAP_URL}{rest}");
    let cases: [(&str, &str); 23] = [
        ("[listen]\nadress = \"x\"", "unknown setting listen.adress (in FILE allowed here are address, backlog, drain_timeout_ms,"),
        ("[liste]\nx = 1", "unknown setting liste (in FILE allowed here are admin, auth,"),
        ("[listen]\nmax_clients = \"7\"", "bad value \"7\" for listen.max_clients (in FILE expected a whole number"),
        ("[listen]\nmax_clients = 99.9", "bad value 99.9 for listen.max_clients (in FILE expected a whole number"),
        ("[listen]\nmax_clients = 0", "bad value 0 for listen.max_clients: expected 1 to 1000000"),
        ("[listen]\nmax_clients = -1", "listen.max_clients"),
        (
            "[listen]\naddress = \"here\"",
            "bad value for listen.address: \"here\" is not an address: expected IP:PORT, such as 127.0.0.1:6432 or [::]:6432",
        ),
        ("[listen.tls]\nmode = \"on\"", "bad value for listen.tls.mode: \"on\" is not one of off, allow, require"),
        ("[listen.tls]\nmode = \"allow\"", "listen.tls.cert is not set: expected the path of a PEM file"),
        ("[listen.tls]\nclient_ca = \"ca\"", "needs listen.tls.mode = \"require\""),
        ("[database]\nname = \"\"", "bad value \"\" for database.name: expected a name of 1 to 63 bytes"),
        ("[pool]\nlate_joiner_share = 0.95", "bad value 0.95 for pool.late_joiner_share: expected 0 to 0.9"),
        ("[pool.health]\nbackoff_max_ms = 1", "bad value 1 for pool.health.backoff_max_ms: expected 100 to 600000"),
        ("[log]\nlevel = \"loud=chatty\"", "bad value \"loud=chatty\" for log.level: expected off, error,"),
        ("[log]\nlevel = \"verbose\"", "bad value \"verbose\" for log.level: expected off, error,"),
        ("[log]\nlevel = \"info, hyper=debug\"", "bad value \"info, hyper=debug\" for log.level: expected off, error,"),
        (
            "[auth]\nmethod = \"trust\"\n[listen]\naddress = \"0.0.0.0:1\"",
            "bad value \"trust\" for auth.method: allowed only where",
        ),
        ("[[auth.users]]\nname = \"a\"", "auth.users[0].password is not set: user \"a\" needs a password or a verifier"),
        (
            "[[auth.users]]\nname = \"a\"\npassword = 17",
            "bad value *** for auth.users[0].password (in FILE expected text in quotes",
        ),
        ("[[auth.users]]\nname = \"a\"\nverifier = \"md5aa\"", "not a SCRAM verifier"),
        ("[auth]\nquery = \"SELECT 1\"", "bad value \"SELECT 1\" for auth.query: expected a query that takes the user's name"),
        (
            "[auth]\nmethod = \"trust\"\nquery = \"SELECT $1, $1\"",
            "for auth.query: allowed only under auth.method = \"scram-sha-256\"",
        ),
        ("[auth]\nusers = 3", "bad value 3 for auth.users (in FILE expected a list of sections"),
    ];
    for (toml, expected) in cases {
        let text = refusal(&with(toml), &[]);
        assert!(text.contains(expected), "{toml}\n gave {text}\n not  {expected}");
    }
}

#[test]
fn the_environment_is_held_to_the_same() {
    let cases = [
        ("SHARDGATE__LISTEN__MAX_CLIENTS", "many", "bad value \"many\" for listen.max_clients (environment variable"),
        ("SHARDGATE__LISTEN__MAXCLIENTS", "1", "unknown setting listen.maxclients (environment variable"),
        ("SHARDGATE__LISTEN", "1", "bad value \"1\" for listen (environment variable"),
        (
            "SHARDGATE__MAP__MIGRATE",
            "yes",
            "for map.migrate (environment variable SHARDGATE__MAP__MIGRATE): expected true or false",
        ),
        ("SHARDGATE__MAP__URL", "hunter3", "bad value *** for map.url: not a URL: expected postgres://USER:PASSWORD@HOST"),
        ("SHARDGATE__POOL__LATE_JOINER_SHARE", "NaN", "expected a number"),
        ("SHARDGATE__AUTH__USERS__X__NAME", "a", "unknown setting auth.users.x.name"),
    ];
    for (name, value, expected) in cases {
        let text = refusal(MAP_URL, &[(name, value)]);
        assert!(text.contains(expected), "{name}={value}\n gave {text}");
    }
}

#[test]
fn without_a_map_nothing_starts() {
    let error = Config::load_with_environment(None, []).expect_err("map.url is missing");
    assert_eq!(error.to_string(), "map.url is not set: expected the map database as postgres://USER:PASSWORD@HOST:PORT/DATABASE");
}

#[test]
fn a_syntax_error_does_not_quote_the_line() {
    let text = refusal("[map]\nurl = \"postgres://u:hunter2@localhost/map\n", &[]);
    assert!(text.contains("line 2") && !text.contains("hunter2"), "{text}");
}

#[test]
fn users_are_listed_once_and_have_one_secret() {
    let twice = "[[auth.users]]\nname = \"a\"\npassword = \"x\"\n";
    assert!(refusal(&format!("{MAP_URL}{twice}{twice}"), &[]).contains("bad value \"a\" for auth.users[1].name"));
    let verifier = postgres_protocol::password::scram_sha_256(b"x");
    let both = format!("{MAP_URL}{twice}verifier = \"{verifier}\"\n");
    let text = refusal(&both, &[]);
    assert!(text.contains("has both a password and a verifier") && !text.contains(&verifier), "{text}");
    let trusted = format!("{MAP_URL}[auth]\nmethod = \"trust\"\n[[auth.users]]\nname = \"boss\"\nadmin = true\n");
    assert!(load(&trusted, &[]).expect("valid").auth.users[0].admin);
}
