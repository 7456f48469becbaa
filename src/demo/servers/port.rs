//! Free ports on 127.0.0.1.
//!
//! Ports come from below the kernel's usual range for outgoing connections (32768 and up): a server that is restarted must
//! find its own port again, and a client's socket could have been given it meanwhile. A port that was free when looked at
//! can be taken a moment later; whoever binds it retries with another.

use std::net::{Ipv4Addr, TcpListener};

use super::ServerError;

/// A port that nobody listens on at this moment.
pub fn free_port() -> Result<u16, ServerError> {
    (0..ATTEMPTS_MAX).map(|_| rand::random_range(PORTS)).find(|port| is_free_port(*port)).ok_or(ServerError::NoFreePort)
}

/// Whether a listener on this port could be opened right now.
pub fn is_free_port(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

const PORTS: std::ops::Range<u16> = 16_384..32_768;
const ATTEMPTS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_not_free() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(!is_free_port(listener.local_addr().unwrap().port()));
    }

    #[test]
    fn a_free_port_is_outside_the_range_of_outgoing_connections() {
        assert!(PORTS.contains(&free_port().unwrap()));
    }
}
