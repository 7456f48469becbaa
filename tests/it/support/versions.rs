//! PostgreSQL of another major version than the system's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use shardgate::demo::servers::PostgresInstallation;

/// What `scripts/postgres.sh` gives: the directories of the servers' programs and of the clients'.
#[derive(Clone, Debug)]
pub struct OtherVersion {
    pub servers: PathBuf,
    pub clients: PathBuf,
}

/// PostgreSQL 18. `make test` has fetched it before any test begins, and names it in `SHARDGATE_TEST_PG18`; where a test is run by
/// itself the script says where it is, and fetches it the first time. A test never goes without it.
pub fn postgres_18() -> OtherVersion {
    static FOUND: OnceLock<OtherVersion> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let path = std::env::var("SHARDGATE_TEST_PG18").unwrap_or_else(|_| fetched());
        let mut directories = std::env::split_paths(path.trim());
        let servers = directories.next().expect("a directory of PostgreSQL 18's programs");
        OtherVersion { clients: directories.next().unwrap_or_else(|| servers.clone()), servers }
    });
    assert_eq!(PostgresInstallation::at(&found.servers).expect("PostgreSQL 18").major(), 18);
    found.clone()
}

fn fetched() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres.sh");
    let output = Command::new("sh").arg(script).arg("18").output().expect("run scripts/postgres.sh");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "PostgreSQL 18 cannot be had; SHARDGATE_TEST_PG18 may name its directories:\n{said}");
    String::from_utf8(output.stdout).expect("a path")
}

/// Of the PostgreSQL that all other servers of the tests are.
pub fn system_major() -> u32 {
    PostgresInstallation::find().expect("PostgreSQL's programs").major()
}
