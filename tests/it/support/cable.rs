//! What lies between the proxy and a shard: it carries bytes, holds new connections up, breaks, and changes what the shard says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
    lies_told: Arc<AtomicUsize>,
    stalls: watch::Sender<bool>,
    /// Grows whenever the connections of movers are lost.
    losses: watch::Sender<u64>,
    task: JoinHandle<()>,
}

/// What goes on in place of a message of the shard, by its type; `frame` is the whole message.
pub type Lie = fn(tag: u8, frame: &[u8]) -> Vec<u8>;

/// Only on a connection that has carried a request with this in it what the shard says is changed.
pub const LIAR: &str = "liar";

/// Movers say so when they log in.
const MOVER: &[u8] = b"shardgate mover";

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
        let (stalls, losses) = (watch::Sender::new(false), watch::Sender::new(0));
        let lies_told = Arc::<AtomicUsize>::default();
        let ends = Ends {
            modes: mode.subscribe(),
            breaks: cuts.subscribe(),
            lies: lie.subscribe(),
            lies_told: Arc::clone(&lies_told),
            stalls: stalls.subscribe(),
            losses: losses.subscribe(),
        };
        let task = tokio::spawn(async move {
            while let Ok((end, _)) = listener.accept().await {
                tokio::spawn(carry(end, target, ends.clone()));
            }
        });
        Self { address, mode, cuts, lie, lies_told, stalls, losses, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on what is said on connections that have carried [`LIAR`] is changed; `None`: no more.
    pub fn lie(&self, lie: Option<Lie>) {
        self.lie.send_replace(lie);
    }

    /// How many messages were changed.
    pub fn lies_told(&self) -> usize {
        self.lies_told.load(Ordering::SeqCst)
    }

    /// All connections stay, and nothing is carried until they go on; new ones are taken, and nothing is carried either.
    pub fn stall(&self, stalls: bool) {
        self.stalls.send_replace(stalls);
    }

    /// The connections that movers have now stay, and carry nothing any more; new ones are carried.
    pub fn lose_movers(&self) {
        self.losses.send_modify(|losses| *losses += 1);
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
    lies_told: Arc<AtomicUsize>,
    stalls: watch::Receiver<bool>,
    losses: watch::Receiver<u64>,
}

async fn carry(mut end: TcpStream, target: SocketAddr, mut ends: Ends) {
    end.set_zero_linger().expect("linger");
    let Ok(mode) = ends.modes.wait_for(|mode| *mode != Mode::Held).await.map(|mode| *mode) else { return };
    if mode == Mode::Refused {
        return;
    }
    ends.breaks.mark_unchanged();
    ends.losses.mark_unchanged();
    let Ok(mut other) = TcpStream::connect(target).await else { return };
    for stream in [&end, &other] {
        stream.set_nodelay(true).expect("nodelay");
    }
    let ((from_proxy, to_proxy), (from_shard, to_shard)) = (end.split(), other.split());
    let (is_liar, is_mover) = (AtomicBool::new(false), AtomicBool::new(false));
    let (stalls, lies) = (ends.stalls.clone(), (ends.lies.clone(), Arc::clone(&ends.lies_told)));
    let both = async {
        tokio::join!(
            carry_requests(from_proxy, to_shard, (&is_liar, &is_mover), stalls.clone()),
            carry_answers(from_shard, to_proxy, &is_liar, &lies, stalls.clone()),
        )
    };
    let lost = async { while ends.losses.changed().await.is_ok() && !is_mover.load(Ordering::SeqCst) {} };
    let is_lost = tokio::select! {
        // Either end's end is the other's.
        _ = both => false,
        _ = ends.breaks.changed() => false,
        () = lost => true,
    };
    if is_lost {
        drop(ends.breaks.changed().await);
    }
}

/// False at the end.
async fn read(from: &mut ReadHalf<'_>, bytes: &mut BytesMut) -> bool {
    bytes.reserve(64 * 1024);
    from.read_buf(bytes).await.is_ok_and(|read| read > 0)
}

async fn carry_requests(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    (is_liar, is_mover): (&AtomicBool, &AtomicBool),
    mut stalls: watch::Receiver<bool>,
) {
    let mut bytes = BytesMut::new();
    while read(&mut from, &mut bytes).await {
        for (is_it, mark) in [(is_liar, LIAR.as_bytes()), (is_mover, MOVER)] {
            if bytes.windows(mark.len()).any(|part| part == mark) {
                is_it.store(true, Ordering::SeqCst);
            }
        }
        if stalls.wait_for(|stalls| !stalls).await.is_err() || to.write_all(&bytes).await.is_err() {
            break;
        }
        bytes.clear();
    }
    drop(to.shutdown().await);
}

/// Until it lies it does not know where messages begin; it begins to, and ends, where nothing is under way.
async fn carry_answers(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    is_liar: &AtomicBool,
    (lies, lies_told): &(watch::Receiver<Option<Lie>>, Arc<AtomicUsize>),
    mut stalls: watch::Receiver<bool>,
) {
    let mut bytes = BytesMut::new();
    while read(&mut from, &mut bytes).await {
        let lie = *lies.borrow();
        let told = match lie.filter(|_| is_liar.load(Ordering::SeqCst)) {
            Some(lie) => changed(&mut bytes, lie, lies_told),
            None => bytes.split(),
        };
        if stalls.wait_for(|stalls| !stalls).await.is_err() || to.write_all(&told).await.is_err() {
            break;
        }
    }
    drop(to.shutdown().await);
}

/// Whole messages.
fn changed(bytes: &mut BytesMut, lie: Lie, lies_told: &AtomicUsize) -> BytesMut {
    let mut told = BytesMut::new();
    while let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<5>() {
        let length = u32::from_be_bytes([a, b, c, d]) as usize + 1;
        if bytes.len() < length {
            return told;
        }
        let frame = bytes.split_to(length);
        let said = lie(tag, &frame);
        lies_told.fetch_add(usize::from(said != frame), Ordering::SeqCst);
        told.put_slice(&said);
    }
    told
}
