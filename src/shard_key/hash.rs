//! The hash of PostgreSQL.
