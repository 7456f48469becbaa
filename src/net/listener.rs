//! Listening sockets: one for each runtime, all on the same address.
//!
//! With SO_REUSEPORT the kernel spreads connections over the sockets, so that runtimes share nothing at accept. Port 0 picks a
//! port for the first socket; the others are bound to [`Listener::local_address`].
//!
//! The option would also let a second proxy of the same user listen there, perhaps one of another cluster, and half of the clients would
//! come to each. So the first socket is bound and listens without it, which the kernel refuses where anybody listens, and gets it for the
//! sockets of its own process to join. A proxy that is restarted finds the address free as soon as the one before drains.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

use super::socket;

#[derive(Debug)]
pub struct Listener {
    inner: TcpListener,
}

impl Listener {
    /// Registers a bound socket with the runtime that will accept.
    pub fn from_std(socket: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { inner: TcpListener::from_std(socket)? })
    }

    /// The first socket: an error where anybody listens already. Needs no runtime, for threads that have none yet. `backlog` is the
    /// kernel's queue of connections not yet accepted.
    pub fn bind_first(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
        // Elsewhere than on Linux a socket that has the option late is joined by none.
        let is_joined_late = cfg!(target_os = "linux");
        let socket = bound(address, !is_joined_late)?;
        listen(&socket, backlog)?;
        socket.set_reuse_port(true)?;
        Ok(socket.into())
    }

    /// A further one, on the address of the first.
    pub fn join_first(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
        let socket = bound(address, true)?;
        listen(&socket, backlog)?;
        Ok(socket.into())
    }

    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    /// The next connection, with its options set. Cancel safe.
    ///
    /// An error may be about one connection (reset before it was accepted) or about the process (no more file descriptors):
    /// the caller logs it, waits a little and goes on.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.inner.accept().await?;
        socket::set_options_of_client(&stream)?;
        Ok((stream, address))
    }
}

fn bound(address: SocketAddr, is_shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // Connections of a process that has ended, or drains, do not count.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(is_shared)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn listen(socket: &Socket, backlog: u32) -> io::Result<()> {
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANY_PORT: &str = "127.0.0.1:0";

    fn first() -> Listener {
        let bound = Listener::bind_first(ANY_PORT.parse().expect("an address"), 16).expect("bound");
        Listener::from_std(bound).expect("registered")
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_where_somebody_listens_is_refused() {
        let first = first();
        let address = first.local_address().expect("an address");
        let refused = |found: io::Result<std::net::TcpListener>| found.expect_err("taken").kind();
        assert_eq!(refused(Listener::bind_first(address, 16)), io::ErrorKind::AddrInUse);
        let joined = Listener::join_first(address, 16).expect("bound again");
        drop(first);
        assert_eq!(refused(Listener::bind_first(address, 16)), io::ErrorKind::AddrInUse);
        drop(joined);
        // By connections that are open it is not taken.
        let again = Listener::from_std(Listener::bind_first(address, 16).expect("free again")).expect("registered");
        let client = TcpStream::connect(address).await.expect("connected");
        let accepted = again.accept().await.expect("accepted");
        drop(again);
        drop(Listener::bind_first(address, 16).expect("free while it drains"));
        drop((client, accepted));
    }

    /// The kernel spreads connections over both sockets: neither is without any for long.
    #[tokio::test]
    async fn two_sockets_share_an_address_and_both_accept() {
        let first = first();
        let address = first.local_address().expect("an address");
        let second = Listener::from_std(Listener::join_first(address, 1024).expect("bound again")).expect("registered");
        let (mut by_first, mut by_second) = (0, 0);
        for _ in 0..CONNECTIONS_MAX {
            let client = TcpStream::connect(address).await.expect("connected");
            tokio::select! {
                accepted = first.accept() => by_first += usize::from(accepted.is_ok()),
                accepted = second.accept() => by_second += usize::from(accepted.is_ok()),
            }
            drop(client);
            if by_first > 0 && by_second > 0 {
                return;
            }
        }
        panic!("{by_first} and {by_second} connections");
    }

    /// By chance all of so many come to one of the two in fewer than one of 2^100 runs.
    const CONNECTIONS_MAX: usize = 100;

    #[tokio::test]
    async fn connections_have_their_options() {
        let first = first();
        let second = Listener::from_std(Listener::join_first(first.local_address().expect("an address"), 16).expect("bound again"))
            .expect("registered");
        let client = TcpStream::connect(first.local_address().expect("an address")).await.expect("connected");
        let (stream, peer) = tokio::select! {
            accepted = first.accept() => accepted.expect("accepted"),
            accepted = second.accept() => accepted.expect("accepted"),
        };
        assert_eq!(peer, client.local_addr().expect("an address"));
        assert!(stream.nodelay().expect("an option"));
    }
}
