//! The operating-system account that servers run under.
//!
//! PostgreSQL refuses to run as root. A process that is root therefore drops to an unprivileged account for servers, and
//! everything the servers own belongs to that account; any other process runs them as itself.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::ServerError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// The account of this process.
    Own,
    /// This process is root and drops to another account.
    Dropped { uid: u32, gid: u32 },
}

impl Account {
    /// Whose servers this process may start: its own account, or, as root, `postgres` or else `nobody`.
    pub fn for_servers() -> Result<Self, ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account::Own);
        }
        let passwd = fs::read_to_string(PASSWD).map_err(ServerError::file("read", PASSWD))?;
        PREFERRED_NAMES.iter().find_map(|name| parse_passwd(&passwd, name)).ok_or(ServerError::NoAccount)
    }

    /// A command that will run under this account, away from the caller's working directory (which the account may not be
    /// allowed to enter) and with messages in English, since they are looked at.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env("LC_ALL", "C").stdin(Stdio::null());
        match *self {
            Account::Own => {}
            // Supplementary groups are dropped too: the standard library clears them when a root process sets a uid.
            Account::Dropped { uid, gid } => {
                command.uid(uid).gid(gid).env("HOME", "/");
            }
        }
        command
    }

    /// Gives a file or directory to this account.
    pub fn take_over(&self, path: &Path) -> Result<(), ServerError> {
        match *self {
            Account::Own => Ok(()),
            Account::Dropped { uid, gid } => {
                chown(path, Some(uid), Some(gid)).map_err(ServerError::file("change the owner of", path))
            }
        }
    }

    /// Makes a directory that only this account may enter; it may exist already.
    pub fn create_directory(&self, path: &Path) -> Result<(), ServerError> {
        use std::os::unix::fs::PermissionsExt;
        fs::create_dir_all(path).map_err(ServerError::file("create directory", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(ServerError::file("set the permissions of", path))?;
        self.take_over(path)?;
        self.check_reach(path)
    }

    /// Whether this account can enter the directory.
    pub fn can_enter(&self, path: &Path) -> bool {
        match self {
            Account::Own => true,
            Account::Dropped { .. } => {
                let script = "cd -- \"$1\"";
                let mut command = self.command("sh");
                command.args(["-c", script, "sh"]).arg(path).stdout(Stdio::null()).stderr(Stdio::null());
                command.status().is_ok_and(|status| status.success())
            }
        }
    }

    fn check_reach(&self, path: &Path) -> Result<(), ServerError> {
        match *self {
            Account::Dropped { uid, .. } if !self.can_enter(path) => Err(ServerError::OutOfReach { uid, path: path.to_owned() }),
            Account::Dropped { .. } | Account::Own => Ok(()),
        }
    }
}

/// The account of that name in the text of /etc/passwd, unless it is root by another name.
fn parse_passwd(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid: u32 = fields.nth(1)?.parse().ok()?;
        let gid: u32 = fields.next()?.parse().ok()?;
        (uid != 0).then_some(Account::Dropped { uid, gid })
    })
}

const PASSWD: &str = "/etc/passwd";
const PREFERRED_NAMES: [&str; 2] = ["postgres", "nobody"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\npostgresql:x:7:8::/:/bin/sh\npostgres:x:101:104:PostgreSQL:/var/lib:/bin/bash\n";
        assert_eq!(parse_passwd(passwd, "postgres"), Some(Account::Dropped { uid: 101, gid: 104 }));
        assert_eq!(parse_passwd(passwd, "nobody"), None);
        assert_eq!(parse_passwd(passwd, "root"), None);
        assert_eq!(parse_passwd("postgres:x:what", "postgres"), None);
    }
}
