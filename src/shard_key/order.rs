//! The order of PostgreSQL.
