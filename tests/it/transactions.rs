//! Transactions that write on several shards: on all of them or on none, whoever is killed when, and finished by any proxy.

mod atomic;
mod bank;
mod kills;
mod ledger;
mod planted;
mod refusals;

pub use ledger::Ledger;
