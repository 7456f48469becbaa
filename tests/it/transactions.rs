//! Transactions that write on several shards: on all of them or on none, whoever is killed when, and finished by any proxy.

mod atomic;
mod bank;
mod collect;
mod deadlocks;
mod kills;
mod ledger;
mod map_away;
mod places;
mod planted;
mod refusals;
mod rights;

pub use kills::Points;
pub use ledger::Ledger;
