//! Who a client is, and how the proxy logs in to a shard.
