//! Turns bound keys into shards.
