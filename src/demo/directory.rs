//! The demo's directory: what lies where, and who owns it now.
//!
//! ```text
//! .shardgate/
//!   demo.lock        locked while a demo runs here; holds its process id
//!   ready            there while the demo is ready; holds what was printed
//!   demo.log         output of a detached demo
//!   shardgate.toml   the proxy's configuration, written anew at every start
//!   proxy.log
//!   servers/         map, bookdbshard0, bookdbshard1, …: each with its data, its log and its port
//! ```
//! Where the account that servers run under may not enter the directory (root's home), the servers lie in a directory of
//! their own below /var/tmp, named after this one.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::DemoError;
use super::servers::Account;

/// The demo's directory, not necessarily owned.
#[derive(Clone, Debug)]
pub struct DemoDirectory {
    root: PathBuf,
}

/// Proof that no other demo runs in the directory; held for the life of one.
#[must_use = "the lock is given up when this is dropped"]
#[derive(Debug)]
pub struct DirectoryLock {
    _lock: File,
}

impl DemoDirectory {
    /// Makes the directory where it is missing.
    pub fn create(root: &Path) -> Result<Self, DemoError> {
        fs::create_dir_all(root).map_err(DemoError::file("create directory", root))?;
        let root = fs::canonicalize(root).map_err(DemoError::file("find", root))?;
        Ok(DemoDirectory { root })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn ready_path(&self) -> PathBuf {
        self.root.join("ready")
    }

    pub fn log_path(&self) -> PathBuf {
        self.root.join("demo.log")
    }

    pub fn proxy_log_path(&self) -> PathBuf {
        self.root.join("proxy.log")
    }

    pub fn config_path(&self) -> PathBuf {
        self.root.join("shardgate.toml")
    }

    /// Where the servers' directories are to be made.
    pub fn servers_path(&self, account: Account) -> PathBuf {
        if account.can_enter(&self.root) {
            return self.root.join("servers");
        }
        let mut hasher = DefaultHasher::new();
        self.root.hash(&mut hasher);
        PathBuf::from(format!("/var/tmp/shardgate-demo-{:016x}", hasher.finish()))
    }

    /// Takes the directory for this process, or tells who has it.
    pub fn lock(&self) -> Result<DirectoryLock, DemoError> {
        let path = self.lock_path();
        let mut file =
            File::options().create(true).truncate(false).write(true).open(&path).map_err(DemoError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0).map_err(DemoError::file("write", &path))?;
                write!(file, "{}", std::process::id()).map_err(DemoError::file("write", &path))?;
                Ok(DirectoryLock { _lock: file })
            }
            Err(fs::TryLockError::WouldBlock) => {
                Err(DemoError::AlreadyRunning { dir: self.root.clone(), pid: self.written_pid().unwrap_or(0) })
            }
            Err(fs::TryLockError::Error(source)) => Err(DemoError::File { action: "lock", path, source }),
        }
    }

    /// Process id of the demo that runs here now, if one does.
    pub fn running(&self) -> Result<Option<i32>, DemoError> {
        match self.lock() {
            // The lock is given up again at once.
            Ok(_) => Ok(None),
            Err(DemoError::AlreadyRunning { pid, .. }) => Ok(Some(pid)),
            Err(error) => Err(error),
        }
    }

    /// Ends the demo that runs here and waits for its end. `false`: none runs.
    pub fn stop(&self, patience: Duration) -> Result<bool, DemoError> {
        let Some(pid) = self.running()? else { return Ok(false) };
        if let Some(target) = Pid::from_raw(pid) {
            match kill_process(target, Signal::TERM) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(errno) => {
                    return Err(DemoError::File { action: "signal the owner of", path: self.lock_path(), source: errno.into() });
                }
            }
        }
        let deadline = Instant::now() + patience;
        while self.running()?.is_some() {
            if Instant::now() >= deadline {
                return Err(DemoError::DoesNotEnd { pid, seconds: patience.as_secs() });
            }
            thread::sleep(POLL);
        }
        Ok(true)
    }

    fn written_pid(&self) -> Option<i32> {
        fs::read_to_string(self.lock_path()).ok()?.trim().parse().ok()
    }

    fn lock_path(&self) -> PathBuf {
        self.root.join("demo.lock")
    }
}

const POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locked_directory_names_its_owner_and_is_free_after_it() {
        let parent = tempfile::tempdir().unwrap();
        let directory = DemoDirectory::create(&parent.path().join("new")).unwrap();
        assert_eq!(directory.running().unwrap(), None);
        let lock = directory.lock().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(matches!(directory.lock(), Err(DemoError::AlreadyRunning { pid, .. }) if pid == own));
        drop(lock);
        assert_eq!(directory.running().unwrap(), None);
        assert!(!directory.stop(Duration::from_secs(1)).unwrap());
    }
}
