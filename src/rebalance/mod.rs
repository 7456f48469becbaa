//! The verbs of `shard-rebalance`: what an operator sees of the cluster and asks it to do. None exists yet.
