//! Connections to shards, their pools and their health.
