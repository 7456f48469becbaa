//! Somebody is killed at a named point of a commit over several shards: the transaction is whole or absent afterwards.
