//! A process, or a server with all of its processes, that stands still and goes on later.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use shardgate::demo::servers::Server;

/// Goes on when it is dropped.
pub struct Frozen(i32);

impl Frozen {
    pub fn process(pid: i32) -> Self {
        signal(pid, Signal::STOP);
        Self(pid)
    }

    /// With all of its processes: first the one that would start others.
    pub fn server(server: &Server) -> Self {
        let frozen = Self::process(server.pid().expect("a server that runs"));
        children(frozen.0).into_iter().for_each(|child| signal(child, Signal::STOP));
        frozen
    }

    pub fn thaw(self) {}
}

impl Drop for Frozen {
    fn drop(&mut self) {
        children(self.0).into_iter().for_each(|child| signal(child, Signal::CONT));
        signal(self.0, Signal::CONT);
    }
}

fn signal(pid: i32, signal: Signal) {
    // It may have ended.
    kill_process(Pid::from_raw(pid).expect("a process"), signal).unwrap_or_default();
}

fn children(of: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("processes").filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes.filter(|pid| parent(*pid) == Some(of)).collect()
}

fn parent(pid: i32) -> Option<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the name, in which anything may stand, and the state.
    text.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}
