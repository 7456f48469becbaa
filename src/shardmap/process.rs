//! Which process a proxy is, so that another one on its machine can see that it has ended.
//!
//! A proxy that is killed leaves its row, and from the map alone nobody can tell it from one that is cut off or frozen. Who sees
//! the same processes can: it is told from others by the machine's boot, the namespace of its number, the number, and when it
//! started. Of a process elsewhere nothing is said.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// This one; `None` where it cannot be told.
pub(super) fn own() -> Option<String> {
    let number = std::process::id();
    Some(format!("{} {} {number} {}", boot()?, namespace()?, status(number)?.started))
}

/// Of what [`own`] has given somewhere: it has ended for certain.
pub(super) fn has_ended(process: &str) -> bool {
    let parts: Vec<&str> = process.split(' ').collect();
    let [its_boot, its_namespace, number, started] = parts.as_slice() else { return false };
    if boot().as_deref() != Some(*its_boot) || namespace().as_deref() != Some(*its_namespace) {
        return false;
    }
    let Some((number, pid)) = number.parse::<i32>().ok().and_then(|number| Some((number, Pid::from_raw(number)?))) else {
        return false;
    };
    // Others' processes may be hidden, but not that there are any.
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return true;
    }
    status(number.unsigned_abs()).is_some_and(|status| status.is_dead || status.started != *started)
}

struct Status {
    /// In ticks since the machine's boot.
    started: String,
    /// Nothing of it is left but its number.
    is_dead: bool,
}

fn status(number: u32) -> Option<Status> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // After the name, in which anything may stand.
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?;
    Some(Status { started: fields.nth(STARTED_AFTER_STATE)?.to_owned(), is_dead: matches!(state, "Z" | "X") })
}

fn boot() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|id| id.trim().to_owned())
}

fn namespace() -> Option<String> {
    fs::read_link("/proc/self/ns/pid").ok()?.to_str().map(str::to_owned)
}

/// Fields between the third, the state, and the twenty-second.
const STARTED_AFTER_STATE: usize = 18;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn only_what_has_ended_here_has_ended_for_certain() {
        let own = own().expect("told");
        assert!(!has_ended(&own));
        let parts: Vec<&str> = own.split(' ').collect();
        let [boot, namespace, number, started] = parts.as_slice() else { panic!("{own}") };
        assert!(has_ended(&format!("{boot} {namespace} {number} 1{started}")), "its number is another one's now");
        assert!(!has_ended(&format!("x{boot} {namespace} {number} 1{started}")), "on another machine");
        assert!(!has_ended(&format!("{boot} x{namespace} {number} 1{started}")), "in another container");
        assert!(!has_ended("nothing") && !has_ended(""));
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
        let other = status(child.id()).expect("it runs");
        let process = format!("{boot} {namespace} {} {}", child.id(), other.started);
        assert!(!has_ended(&process));
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(has_ended(&process));
    }
}
