//! Connections to shards, their pools and their health.

pub mod catalog_reader;
