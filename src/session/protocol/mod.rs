//! The wire protocol with the client: its messages in, the answers out, statements and portals by name.

pub(super) mod at_once;
mod bound_unseen;
pub(super) mod client;
pub(super) mod constants;
pub(super) mod describe;
pub(super) mod diversion;
pub(super) mod drain;
pub(super) mod extended;
pub(super) mod fast_path;
pub(super) mod foreign_oids;
pub(super) mod greet;
pub(super) mod named;
pub(super) mod panicked;
pub(super) mod parameter;
pub(super) mod portals;
pub(super) mod printed;
pub(super) mod relay;
pub(super) mod simple;
pub(super) mod statement;
pub(super) mod told;
