//! Runs psql, as a user would.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use shardgate::demo::servers::PostgresInstallation;

/// Runs a script and returns what psql prints: rows without headers, columns separated by `|`. Panics when a statement fails.
pub fn psql_rows(conninfo: &str, script: &str) -> String {
    let output = psql_output(conninfo, &["-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", script]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "psql failed: {stderr}");
    String::from_utf8(output.stdout).expect("psql prints UTF-8").trim_end().to_owned()
}

/// Runs psql with these arguments, whatever comes of it.
pub fn psql_output(conninfo: &str, arguments: &[&str]) -> Output {
    let wants_tls = ["sslmode=require", "sslmode=verify"].iter().any(|mode| conninfo.contains(mode));
    Command::new(if wants_tls { psql_with_tls() } else { client_program("psql") })
        .arg("-X")
        .args(["-d", conninfo])
        .args(arguments)
        .env("PGCONNECT_TIMEOUT", "30")
        .env_remove("PGDATABASE")
        .output()
        .expect("run psql")
}

/// A client program of the servers' version, or else the one in the path: some packages have the servers alone.
pub fn client_program(name: &str) -> PathBuf {
    let beside_server = PostgresInstallation::find().expect("PostgreSQL's programs").program(name);
    if beside_server.is_file() { beside_server } else { name.into() }
}

/// The first psql in the path that can do TLS: some packages are built without it.
fn psql_with_tls() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    let can = |program: &PathBuf| {
        let tried = Command::new(program).args(["-X", "-d", "host=127.0.0.1 port=1 sslmode=require"]).output();
        tried.is_ok_and(|output| !String::from_utf8_lossy(&output.stderr).contains("SSL support is not compiled in"))
    };
    let in_path =
        || std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).map(|at| at.join("psql")).collect::<Vec<_>>();
    FOUND.get_or_init(|| in_path().into_iter().find(|program| program.is_file() && can(program)).expect("a psql with TLS")).clone()
}
