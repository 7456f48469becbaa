//! Shardgate: a gateway in front of PostgreSQL shards.
//!
//! Clients speak the PostgreSQL protocol to it as to one server. Each statement is read, its shard key found and resolved
//! through a versioned map, and the statement forwarded to the shard that owns the key; where several shards are needed the
//! answers are merged exactly, or PostgreSQL computes over gathered rows, or the statement is refused. It never guesses.
//!
//! # The life of one statement
//!
//! ```text
//! client bytes ─ net, wire ─► frontend messages ─► session collects what the client waits for (a Query, or Parse…Sync)
//!    │ sql::Analyzer::read pure; cached by statement text, so once per prepared statement
//!    ▼
//!  Analysis              what it is, which tables, the KeyCondition over constants and $n
//!    │ routing::bind       pure: the $n values put in
//!    │ routing::resolve    the only wait on the shard map
//!    ▼
//!  Reach                 { shards, map, why }
//!    │ plan::plan          pure: (Analysis, Reach, transaction scope) → Plan, or a refusal
//!    ▼
//!  SingleShard | Scatter | Write | Split | Gather
//!    │                    a write whose queries reach other shards: these are answered first, each by this same way, and
//!    │                    their rows stand in its text as constants
//!    │ execute             waits for shards; a shard takes a text only with the reason why it may run there
//!    ▼
//!  backend frames ─► session relays ─► client bytes
//! ```
//!
//! `Session::route` does the steps from the Analysis to the plan for every statement, whoever asks: a Query, a portal, a cursor, COPY
//! (query), EXECUTE. Where it ends, one function runs it:
//!
//! * one shard: `run_on_shard` and `bind_on_shard` send the client's own text, and `drain` relays the answer.
//! * several shards that read: `scatter` asks them (`ask_several`), `execute::scatter` merges; what cannot be merged is gathered.
//! * gathered rows: `gather_for` loads them into temporary tables of the home shard (`execute::gather`), where PostgreSQL answers.
//! * several shards that write: `write_on`; outside of a transaction block between `begin_one_statement` and `end_one_statement`.
//! * what the proxy answers by itself: `own_command`, and `execute_own` of a portal.
//!
//! # Layers
//!
//! Imports go down only; `tests/tidy.rs` holds this table as data and checks it.
//!
//! | layer | modules |
//! |---|---|
//! | 6 | [`server`]: build, accept, drain, admin HTTP · [`demo`]: a local cluster of real servers |
//! | 5 | [`session`]: what one client connection owns; the query cycle; relay to the client |
//! | 4 | [`execute`]: single shard, scatter, merge, gather, transactions · [`declare`]: the functions of the `shardgate` schema · [`rebalance`]: the operator's verbs, and moves of partitions |
//! | 3 | [`plan`] (pure), [`routing`], [`backend`] (connections, pools, health, reading a shard's catalogue) |
//! | 2 | [`sql`] (parse, analyse, rewrite; pure), [`shardmap`] (model, store, cache, watch) |
//! | 1 | [`auth`], [`net`], [`telemetry`], [`config`], [`background`], [`failpoint`] |
//! | 0 | [`catalog`] (a schema as data), [`shard_key`], [`error`], [`wire`] (frames over `bytes`) |
//!
//! No mutable statics: [`server`] makes everything once from a [`config`] and hands it down, so that a test can run three
//! proxies in one process.
//!
//! # Glossary
//!
//! * **shard**: one PostgreSQL database. The **home shard** is the first one; tables that are not distributed live there.
//! * **colocation group**: tables sharded alike: same key types, same partitions.
//! * **partition**: a contiguous piece of a group's key space (hash range, key range, or the keys that a lookup names);
//!   owned by one shard.
//! * **key**: the value, or values, of a table's shard key columns; **key condition**: what a statement says about them.
//! * **epoch**: the version of the shard map: (incarnation of the map database, counter).
//! * **reference table**: a copy on every shard. **home table**: rows only on the home shard.
//! * **reach**: where a text runs, by which version of the map, and why it may run there: because its keys are pinned, because one
//!   shard owns all that it reads, because it reads no sharded table, or because a hint names the shard. Where none of these holds it
//!   is *covered*: it excludes rows that its shard does not own.
//! * **residue**: a row on a shard that does not own it, while its partition moves: a copy at the target, a left-over at the source.
//! * **covering view**: a view's query without residues, in the schema `shardgate`; a covered text names it in the view's place.
//! * **session**: one client connection; **backend**: one connection from the proxy to a shard; **participant**: a backend
//!   that has joined the session's transaction.
//! * **proof** of a snapshot: the message by which a shard shows that a statement has taken the snapshots that it reads by.

// What is awaited is moved into who awaits it, for every statement: what is rare and large is boxed.
#![deny(clippy::large_futures)]

pub mod auth;
pub mod backend;
pub mod background;
pub mod catalog;
pub mod config;
pub mod declare;
pub mod demo;
pub mod error;
pub mod execute;
pub mod failpoint;
pub mod net;
pub mod plan;
pub mod rebalance;
pub mod routing;
pub mod server;
pub mod session;
pub mod shard_key;
pub mod shardmap;
pub mod sql;
pub mod telemetry;
pub mod wire;
