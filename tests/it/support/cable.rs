//! What lies between the proxy and a shard: it carries bytes, holds new connections up, and breaks.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Cable {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Grows whenever all connections break.
    cuts: watch::Sender<u64>,
    task: JoinHandle<()>,
}

/// What becomes of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Carried,
    Held,
    Refused,
}

impl Cable {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let (mode, cuts) = (watch::Sender::new(Mode::Carried), watch::Sender::new(0));
        let (modes, breaks) = (mode.subscribe(), cuts.subscribe());
        let task = tokio::spawn(async move {
            while let Ok((end, _)) = listener.accept().await {
                tokio::spawn(carry(end, target, modes.clone(), breaks.clone()));
            }
        });
        Self { address, mode, cuts, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All connections break; new ones wait.
    pub fn hold(&self) {
        self.mode.send_replace(Mode::Held);
        self.cut();
    }

    /// All connections break, and new ones do at once.
    pub fn refuse(&self) {
        self.mode.send_replace(Mode::Refused);
        self.cut();
    }

    /// New connections are carried, and those that wait.
    pub fn release(&self) {
        self.mode.send_replace(Mode::Carried);
    }

    /// All connections break as when a host has gone: by a reset.
    pub fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(mut end: TcpStream, target: SocketAddr, mut modes: watch::Receiver<Mode>, mut breaks: watch::Receiver<u64>) {
    end.set_zero_linger().expect("linger");
    let Ok(mode) = modes.wait_for(|mode| *mode != Mode::Held).await.map(|mode| *mode) else { return };
    if mode == Mode::Refused {
        return;
    }
    breaks.mark_unchanged();
    let Ok(mut other) = TcpStream::connect(target).await else { return };
    tokio::select! {
        // Either end's end is the other's.
        _ = tokio::io::copy_bidirectional(&mut end, &mut other) => {}
        _ = breaks.changed() => {}
    }
}
