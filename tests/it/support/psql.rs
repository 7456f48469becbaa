//! Runs psql, as a user would.

use std::process::{Command, Output};

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
    let beside_server = PostgresInstallation::find().expect("PostgreSQL's programs").program("psql");
    let program = if beside_server.is_file() { beside_server } else { "psql".into() };
    Command::new(program)
        .arg("-X")
        .args(["-d", conninfo])
        .args(arguments)
        .env("PGCONNECT_TIMEOUT", "30")
        .env_remove("PGDATABASE")
        .output()
        .expect("run psql")
}
