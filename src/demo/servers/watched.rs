//! A child process that cannot outlive its owner.
//!
//! The program runs under a small `sh` whose standard input is a pipe from the owner. When the pipe closes, because the
//! owner drops it, panics or is killed by whatever signal, the shell signals the program, waits for it, and removes a
//! directory if it was told to. No process id is ever signalled after it was reaped: the shell is the program's parent.
//!
//! ```text
//! owner ──pipe──► sh ── wait ──► program        (own process group: a terminal's Ctrl-C reaches the owner alone)
//!                 └── subshell: read until EOF, then signal the program; SIGKILL after ten seconds
//! ```

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Account, ServerError};

/// What the shell does for its program.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    pub account: Account,
    /// Standard output and standard error are appended here.
    pub log: PathBuf,
    /// Name for `kill -s` when the owner has gone: `QUIT`, `TERM`.
    pub end_signal: &'static str,
    /// Removed, with all it holds, when the owner has gone.
    pub remove_at_end: Option<PathBuf>,
    pub environment: Vec<(OsString, OsString)>,
}

#[derive(Debug)]
#[must_use = "the program ends when this is dropped"]
pub struct Watched {
    shell: Child,
    /// Open while the program shall live.
    leash: Option<ChildStdin>,
    program: Pid,
}

impl Watched {
    pub fn spawn(program: &Path, arguments: &[OsString], options: &WatchOptions) -> Result<Self, ServerError> {
        let spawn_error = |source| ServerError::Spawn { program: program.to_owned(), source };
        let mut command = options.account.command("sh");
        command.args(["-c", SCRIPT, "shardgate-watchdog"]).arg(&options.log).arg(options.end_signal);
        command.arg(options.remove_at_end.as_deref().map_or(OsStr::new(""), Path::as_os_str));
        command.arg(program).args(arguments);
        command.envs(options.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut shell = command.spawn().map_err(spawn_error)?;
        let leash = shell.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(spawn_error)?;
        }
        match line.trim().parse().ok().and_then(Pid::from_raw) {
            Some(program) => Ok(Watched { shell, leash, program }),
            None => {
                drop(leash);
                let status = shell.wait().map_err(spawn_error)?;
                Err(ServerError::Program { program: program.to_owned(), output: format!("its watchdog ended with {status}") })
            }
        }
    }

    /// Process id of the program itself, not of the shell.
    pub fn pid(&self) -> i32 {
        self.program.as_raw_nonzero().get()
    }

    /// Signals the program. The shell reaps the program and then ends, so the id is good while the shell has not been seen
    /// to end.
    pub fn signal(&mut self, signal: Signal) -> Result<(), ServerError> {
        if self.has_ended()?.is_some() {
            return Ok(());
        }
        match kill_process(self.program, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(errno) => Err(ServerError::Signal { pid: self.pid(), source: errno.into() }),
        }
    }

    /// The exit status, once the program has ended.
    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>, ServerError> {
        self.shell.try_wait().map_err(|source| ServerError::Signal { pid: self.program.as_raw_nonzero().get(), source })
    }

    /// Waits for the program's own end.
    pub fn wait(&mut self, patience: Duration) -> Result<ExitStatus, ServerError> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.has_ended()? {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(ServerError::DoesNotEnd { pid: self.pid(), seconds: patience.as_secs() });
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.leash.take());
        if let Err(error) = self.wait(DROP_PATIENCE) {
            tracing::warn!(error = %error, "process outlived its watchdog's patience");
        }
    }
}

const POLL: Duration = Duration::from_millis(2);
/// Longer than the shell's own ten seconds.
const DROP_PATIENCE: Duration = Duration::from_secs(15);

/// Arguments: log file, signal, directory to remove or nothing, the program and its arguments. Prints the program's id.
/// Exit code 7 of the subshell says that the owner has gone.
const SCRIPT: &str = r#"
log=$1 signal=$2 directory=$3; shift 3
exec 3<&0 </dev/null
"$@" 3<&- >>"$log" 2>&1 &
program=$!
(
    read -r nothing <&3
    trap 'exit 7' TERM
    kill -s "$signal" "$program"
    tenths=0
    while [ "$tenths" -lt 100 ]; do sleep 0.1; tenths=$((tenths + 1)); done
    kill -s KILL "$program"
    exit 7
) >/dev/null 2>&1 &
watcher=$!
exec 3<&-
echo "$program"
exec >/dev/null 2>&1
wait "$program"
code=$?
kill "$watcher"
wait "$watcher"
if [ $? -eq 7 ] && [ -n "$directory" ]; then rm -rf -- "$directory"; fi
exit "$code"
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(directory: &Path) -> WatchOptions {
        WatchOptions {
            account: Account::Own,
            log: directory.join("log"),
            end_signal: "TERM",
            remove_at_end: None,
            environment: Vec::new(),
        }
    }

    fn is_alive(pid: i32) -> bool {
        rustix::process::test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
    }

    #[test]
    fn dropping_ends_the_program_and_removes_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let doomed = directory.path().join("doomed");
        std::fs::create_dir(&doomed).unwrap();
        let options = WatchOptions { remove_at_end: Some(doomed.clone()), ..options(directory.path()) };
        let watched = Watched::spawn(Path::new("/bin/sleep"), &["60".into()], &options).unwrap();
        let pid = watched.pid();
        assert!(is_alive(pid));
        drop(watched);
        assert!(!is_alive(pid));
        assert!(!doomed.exists());
    }

    #[test]
    fn a_program_that_ends_by_itself_keeps_its_directory_and_tells_its_status() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        let options = WatchOptions { remove_at_end: Some(kept.clone()), ..options(directory.path()) };
        let script = ["-c".into(), "echo last words; exit 3".into()];
        let mut watched = Watched::spawn(Path::new("/bin/sh"), &script, &options).unwrap();
        assert_eq!(watched.wait(Duration::from_secs(10)).unwrap().code(), Some(3));
        drop(watched);
        assert!(kept.exists());
        assert_eq!(std::fs::read_to_string(&options.log).unwrap(), "last words\n");
    }

    #[test]
    fn a_program_outlives_neither_the_signal_nor_a_deaf_ear_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let script = ["-c".into(), "trap '' TERM; while :; do sleep 0.1; done".into()];
        let mut watched = Watched::spawn(Path::new("/bin/sh"), &script, &options(directory.path())).unwrap();
        watched.signal(Signal::KILL).unwrap();
        assert!(!watched.wait(Duration::from_secs(10)).unwrap().success());
    }
}
