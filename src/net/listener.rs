//! Listening sockets: one for each runtime, all on the same address.
//!
//! With SO_REUSEPORT the kernel spreads connections over the sockets, so that runtimes share nothing at accept. Port 0 picks a
//! port for the first socket; the others are bound to [`Listener::local_address`].

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
    /// Binds on the runtime that will accept. `backlog` is the kernel's queue of connections not yet accepted.
    pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        Self::from_std(Self::bind_std(address, backlog)?)
    }

    /// Registers a bound socket with the runtime that will accept.
    pub fn from_std(socket: std::net::TcpListener) -> io::Result<Self> {
        Ok(Self { inner: TcpListener::from_std(socket)? })
    }

    /// Binds without a runtime, for a thread that has none yet.
    pub fn bind_std(address: SocketAddr, backlog: u32) -> io::Result<std::net::TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(false)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn two_sockets_share_an_address_and_one_accepts() {
        let first = Listener::bind("127.0.0.1:0".parse().expect("an address"), 16).expect("bound");
        let address = first.local_address().expect("an address");
        let second = Listener::bind(address, 16).expect("bound again");
        let client = TcpStream::connect(address).await.expect("connected");
        let (stream, peer) = tokio::select! {
            accepted = first.accept() => accepted.expect("accepted"),
            accepted = second.accept() => accepted.expect("accepted"),
        };
        assert_eq!(peer, client.local_addr().expect("an address"));
        assert!(stream.nodelay().expect("an option"));
    }
}
