//! Options that every TCP connection of the proxy has, towards clients and towards shards.
//!
//! A peer that vanished without a FIN (power, network) must not hold a session, and with it locks, for the kernel's two hours. One
//! that is there and does not read may wait for as long as it likes, as with PostgreSQL: a dump that is paused, a client that works
//! on the rows that it has, a shard whose COPY waits for a lock. So a TCP_USER_TIMEOUT, which also counts the time in
//! which the peer's window is closed, only towards shards, and only while so little is under way that it can't be closed.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Towards shards. Small messages leave at once. A silent peer to which nothing is on its way is probed, and given up after half a
/// minute; one that does not acknowledge what was sent, by the kernel's own limit of some fifteen minutes, or by
/// [`bound_acknowledgement`].
pub(super) fn set_options(stream: &TcpStream) -> io::Result<()> {
    probe(stream, KEEPALIVE_IDLE, KEEPALIVE_INTERVAL)
}

/// Towards clients, which may be asleep or without a network for a while: they are given up after a minute and a half.
pub(super) fn set_options_of_client(stream: &TcpStream) -> io::Result<()> {
    probe(stream, CLIENT_KEEPALIVE_IDLE, CLIENT_KEEPALIVE_INTERVAL)
}

fn probe(stream: &TcpStream, idle: Duration, interval: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval).with_retries(KEEPALIVE_RETRIES);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Where it is bounded: as long as probes take. By a shorter time the first probe that is lost would end the connection.
pub(super) fn bound_acknowledgement(stream: &TcpStream, is_bounded: bool) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(is_bounded.then_some(ACKNOWLEDGED_WITHIN))?;
    #[cfg(not(target_os = "linux"))]
    let _ = (stream, is_bounded);
    Ok(())
}

/// Silence before the first probe.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(20);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
const CLIENT_KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const CLIENT_KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
#[cfg(target_os = "linux")]
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(35);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_silent_peer_is_probed_and_one_that_does_not_read_is_waited_for() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).await.expect("connected");
        set_options(&stream).expect("options");
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().expect("read") && socket.keepalive().expect("read"));
        assert_eq!(socket.tcp_keepalive_time().expect("read"), KEEPALIVE_IDLE);
        #[cfg(target_os = "linux")]
        for (is_bounded, expected) in [(false, None), (true, Some(ACKNOWLEDGED_WITHIN)), (false, None)] {
            bound_acknowledgement(&stream, is_bounded).expect("set");
            assert_eq!(socket.tcp_user_timeout().expect("read"), expected);
        }
    }
}
