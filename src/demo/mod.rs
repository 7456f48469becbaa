//! A local cluster of real PostgreSQL servers.
