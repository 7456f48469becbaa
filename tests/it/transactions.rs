//! Transactions that write on several shards: on all of them or on none, whoever is killed when, and finished by any proxy.

mod atomic;
mod bank;
mod collect;
mod copies;
mod deadlocks;
mod dumps;
mod forged;
mod kills;
mod kills_in_recovery;
mod ledger;
mod leftover;
mod levels;
mod lost_commits;
mod map_away;
mod one_time;
mod panics;
mod places;
mod planted;
mod refusals;
mod reports;
mod rights;
mod standby;
mod undelivered;

pub use kills::Points;
pub use ledger::Ledger;
