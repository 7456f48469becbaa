//! Machines of a test: network namespaces on one bridge, each with an address and a link of its own, which can be set down.
//!
//! A link that is down is another failure than a process that has died: nobody is told, and connections stay half open. The bridge is in
//! a namespace too, in which the test itself runs, so that tests do not meet each other's and nothing is left on the machine: a namespace
//! ends with its last process, and each is kept by one that ends with the test.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub struct Machine {
    namespace: Namespace,
    address: Ipv4Addr,
}

impl Machine {
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// What is started by this is on the machine.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.namespace.run(work)
    }

    /// Its link is set down: what it sends does not arrive, nor what is sent to it.
    pub fn cut_off(&self) {
        self.run(|| ip("link set eth0 down")).expect("the link is down");
    }

    pub fn reconnect(&self) {
        self.run(|| ip("link set eth0 up")).expect("the link is up");
    }
}

/// Runs a test on a network with so many machines. Where none can be made it is skipped, and says so: as `SHARDGATE_REFUSE_SKIPS` wants
/// it, that is a failure.
pub fn on_machines<F: Future<Output = ()>>(name: &str, count: u8, test: impl FnOnce(Arc<[Machine]>) -> F + Send) {
    let made = Namespace::make().and_then(|hub| Ok((network(&hub, count)?, hub)));
    let (machines, hub) = match made {
        Ok(made) => made,
        Err(error) => {
            assert!(std::env::var_os("SHARDGATE_REFUSE_SKIPS").is_none(), "{name} needs network namespaces: {error}");
            return println!("skipped: {name}: network namespaces cannot be made here: {error}");
        }
    };
    hub.run(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(Box::pin(test(machines)));
    });
}

fn network(hub: &Namespace, count: u8) -> io::Result<Arc<[Machine]>> {
    hub.run(|| {
        ip("link set lo up")?;
        ip("link add bridge0 type bridge")?;
        ip("addr add 10.77.0.1/24 dev bridge0")?;
        ip("link set bridge0 up")
    })?;
    (0..count).map(|number| machine(hub, number)).collect()
}

fn machine(hub: &Namespace, number: u8) -> io::Result<Machine> {
    let namespace = Namespace::make()?;
    let address = Ipv4Addr::new(10, 77, 0, 10 + number);
    hub.run(|| {
        ip(&format!("link add port{number} type veth peer name eth0 netns {}", namespace.holder.id()))?;
        ip(&format!("link set port{number} master bridge0"))?;
        ip(&format!("link set port{number} up"))
    })?;
    namespace.run(|| {
        ip("link set lo up")?;
        ip(&format!("addr add {address}/24 dev eth0"))?;
        ip("link set eth0 up")
    })?;
    Ok(Machine { namespace, address })
}

/// Kept by a process that does nothing.
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn make() -> io::Result<Self> {
        // `cat` ends when nobody holds its input any more.
        let mut command = Command::new("unshare");
        command.args(["--net", "--", "sh", "-c", "echo made; exec cat"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        match line.trim() {
            "made" => Ok(Self { holder }),
            _ => Err(io::Error::other(format!("unshare ended with {}", holder.wait()?))),
        }
    }

    /// In a thread of its own, since a thread that has moved does not come back.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/proc/{}/ns/net", self.holder.id());
        std::thread::scope(|scope| {
            let moved = scope.spawn(move || {
                let link = File::open(path).expect("the namespace");
                move_into_link_name_space(link.as_fd(), Some(LinkNameSpaceType::Network)).expect("moved into the namespace");
                work()
            });
            moved.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        drop(self.holder.wait());
    }
}

fn ip(arguments: &str) -> io::Result<()> {
    let output = Command::new("ip").args(arguments.split(' ')).output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))),
    }
}
