//! Sockets and TLS.
