//! The functions of the shardgate schema.
