//! Where a second shard cannot be written it is refused there, by name, and nothing is half done.
