//! Finds PostgreSQL's server programs on this machine.
//!
//! Looks on `PATH`, then where `pg_config --bindir` points, then in Debian's layout (the newest first), and takes the first
//! place with `initdb` and `postgres` of version 15 or newer. Installs nothing.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::ServerError;

#[derive(Clone, Debug)]
pub struct PostgresInstallation {
    bin: PathBuf,
    version: String,
    major: u32,
}

impl PostgresInstallation {
    pub fn find() -> Result<Self, ServerError> {
        let mut rejected = Vec::new();
        for directory in candidate_directories() {
            let Some(bin) = directory_of_programs(&directory) else { continue };
            match read_version(&bin) {
                Some((version, major)) if major >= MAJOR_MIN => return Ok(PostgresInstallation { bin, version, major }),
                Some((version, _)) => rejected.push(format!("{version} in {}", bin.display())),
                None => rejected.push(format!("an unreadable version in {}", bin.display())),
            }
        }
        rejected.dedup();
        let found = if rejected.is_empty() { "none at all".to_owned() } else { format!("only {}", rejected.join(", ")) };
        Err(ServerError::NotInstalled { minimum: MAJOR_MIN, found })
    }

    /// The one in this directory.
    pub fn at(directory: &Path) -> Result<Self, ServerError> {
        let found = directory_of_programs(directory).and_then(|bin| read_version(&bin).map(|version| (bin, version)));
        match found {
            Some((bin, (version, major))) if major >= MAJOR_MIN => Ok(PostgresInstallation { bin, version, major }),
            Some((bin, (version, _))) => {
                Err(ServerError::NotInstalled { minimum: MAJOR_MIN, found: format!("only {version} in {}", bin.display()) })
            }
            None => Err(ServerError::NotInstalled { minimum: MAJOR_MIN, found: format!("none in {}", directory.display()) }),
        }
    }

    /// Path of one of the programs beside `postgres`. Client programs such as psql may be missing there.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// As in `15.4`.
    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn major(&self) -> u32 {
        self.major
    }
}

fn candidate_directories() -> Vec<PathBuf> {
    let path: OsString = env::var_os("PATH").unwrap_or_default();
    let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
    directories.extend(pg_config_directory());
    directories.extend(debian_directories(Path::new(DEBIAN_ROOT)));
    directories
}

/// The real directory of the programs, symbolic links followed: `initdb` looks for `postgres` beside itself.
fn directory_of_programs(directory: &Path) -> Option<PathBuf> {
    let initdb = fs::canonicalize(directory.join("initdb")).ok()?;
    let bin = initdb.parent()?;
    bin.join("postgres").is_file().then(|| bin.to_owned())
}

fn pg_config_directory() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| PathBuf::from(text.trim()))
}

/// `/usr/lib/postgresql/17/bin` before `/usr/lib/postgresql/15/bin`.
fn debian_directories(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut majors: Vec<u32> =
        entries.filter_map(|entry| entry.ok()).filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    majors.sort_unstable_by(|a, b| b.cmp(a));
    majors.into_iter().map(|major| root.join(major.to_string()).join("bin")).collect()
}

fn read_version(bin: &Path) -> Option<(String, u32)> {
    let output = Command::new(bin.join("postgres")).arg("--version").output().ok()?;
    parse_version(&String::from_utf8(output.stdout).ok()?)
}

/// From `postgres (PostgreSQL) 15.4 (Debian 15.4-1)` or `postgres (PostgreSQL) 18beta1`.
fn parse_version(line: &str) -> Option<(String, u32)> {
    let version = line.split_whitespace().nth(2)?;
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((version.to_owned(), digits.parse().ok()?))
}

const MAJOR_MIN: u32 = 15;
const DEBIAN_ROOT: &str = "/usr/lib/postgresql";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_server_prints_them() {
        let read = |line| parse_version(line).map(|(version, major)| format!("{version}/{major}"));
        assert_eq!(read("postgres (PostgreSQL) 15.4 (Debian 15.4-1)").as_deref(), Some("15.4/15"));
        assert_eq!(read("postgres (PostgreSQL) 18beta1\n").as_deref(), Some("18beta1/18"));
        assert_eq!(read("postgres (PostgreSQL)"), None);
        assert_eq!(read("postgres (PostgreSQL) devel"), None);
    }

    #[test]
    fn debian_directories_come_newest_first() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9.6", "15", "9", "17", "common"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        let found = debian_directories(root.path());
        let expected: Vec<PathBuf> = ["17", "15", "9"].iter().map(|major| root.path().join(major).join("bin")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn an_installation_is_found_here() {
        let installation = PostgresInstallation::find().unwrap();
        assert!(installation.major() >= MAJOR_MIN);
        assert!(installation.program("initdb").is_file());
    }
}
