//! What lies between the proxy and a shard: it carries bytes, holds new connections up, breaks, and changes what the shard says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub struct Cable {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    /// Grows whenever all connections break.
    cuts: watch::Sender<u64>,
    lie: watch::Sender<Option<Lie>>,
    stalls: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What goes on in place of a message of the shard, by its type; `frame` is the whole message.
pub type Lie = fn(tag: u8, frame: &[u8]) -> Vec<u8>;

/// Only the answer to a request with this in it is changed.
pub const LIAR: &str = "liar";

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
        let (mode, cuts, lie) = (watch::Sender::new(Mode::Carried), watch::Sender::new(0), watch::Sender::new(None));
        let stalls = watch::Sender::new(false);
        let ends = Ends { modes: mode.subscribe(), breaks: cuts.subscribe(), lies: lie.subscribe(), stalls: stalls.subscribe() };
        let task = tokio::spawn(async move {
            while let Ok((end, _)) = listener.accept().await {
                tokio::spawn(carry(end, target, ends.clone()));
            }
        });
        Self { address, mode, cuts, lie, stalls, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on the answers to requests that have [`LIAR`] in them are changed; `None`: no more.
    pub fn lie(&self, lie: Option<Lie>) {
        self.lie.send_replace(lie);
    }

    /// All connections stay, and nothing is carried until they go on; new ones are taken, and nothing is carried either.
    pub fn stall(&self, stalls: bool) {
        self.stalls.send_replace(stalls);
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

/// What a connection is told.
#[derive(Clone)]
struct Ends {
    modes: watch::Receiver<Mode>,
    breaks: watch::Receiver<u64>,
    lies: watch::Receiver<Option<Lie>>,
    stalls: watch::Receiver<bool>,
}

async fn carry(mut end: TcpStream, target: SocketAddr, mut ends: Ends) {
    end.set_zero_linger().expect("linger");
    let Ok(mode) = ends.modes.wait_for(|mode| *mode != Mode::Held).await.map(|mode| *mode) else { return };
    if mode == Mode::Refused {
        return;
    }
    ends.breaks.mark_unchanged();
    let Ok(mut other) = TcpStream::connect(target).await else { return };
    for stream in [&end, &other] {
        stream.set_nodelay(true).expect("nodelay");
    }
    let ((from_proxy, to_proxy), (from_shard, to_shard)) = (end.split(), other.split());
    let lies_now = AtomicBool::new(false);
    let (stalls, lies) = (ends.stalls.clone(), ends.lies.clone());
    let both = async {
        tokio::join!(
            carry_requests(from_proxy, to_shard, &lies_now, stalls.clone()),
            carry_answers(from_shard, to_proxy, &lies_now, &lies, stalls.clone()),
        )
    };
    tokio::select! {
        // Either end's end is the other's.
        _ = both => {}
        _ = ends.breaks.changed() => {}
    }
}

/// False at the end.
async fn read(from: &mut ReadHalf<'_>, bytes: &mut BytesMut) -> bool {
    bytes.reserve(64 * 1024);
    from.read_buf(bytes).await.is_ok_and(|read| read > 0)
}

async fn carry_requests(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, lies_now: &AtomicBool, mut stalls: watch::Receiver<bool>) {
    let mut bytes = BytesMut::new();
    while read(&mut from, &mut bytes).await {
        if bytes.windows(LIAR.len()).any(|part| part == LIAR.as_bytes()) {
            lies_now.store(true, Ordering::SeqCst);
        }
        if stalls.wait_for(|stalls| !stalls).await.is_err() || to.write_all(&bytes).await.is_err() {
            break;
        }
        bytes.clear();
    }
    drop(to.shutdown().await);
}

/// Until it lies it does not know where messages begin; a request is sent when all before it are answered.
async fn carry_answers(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    lies_now: &AtomicBool,
    lies: &watch::Receiver<Option<Lie>>,
    mut stalls: watch::Receiver<bool>,
) {
    let mut bytes = BytesMut::new();
    while read(&mut from, &mut bytes).await {
        let lie = *lies.borrow();
        let told = match lie.filter(|_| lies_now.load(Ordering::SeqCst)) {
            Some(lie) => changed(&mut bytes, lie, lies_now),
            None => bytes.split(),
        };
        if stalls.wait_for(|stalls| !stalls).await.is_err() || to.write_all(&told).await.is_err() {
            break;
        }
    }
    drop(to.shutdown().await);
}

/// Whole messages, up to the end of an answer.
fn changed(bytes: &mut BytesMut, lie: Lie, lies_now: &AtomicBool) -> BytesMut {
    let mut told = BytesMut::new();
    while let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<5>() {
        let length = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        if bytes.len() < length {
            return told;
        }
        let frame = bytes.split_to(length);
        told.put_slice(&lie(tag, &frame));
        if tag == b'Z' {
            lies_now.store(false, Ordering::SeqCst);
            told.unsplit(bytes.split());
        }
    }
    told
}
