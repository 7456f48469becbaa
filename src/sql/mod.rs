//! Reading SQL: parse, analyse, rewrite. Pure: no I/O, no clock, no wait.

pub mod analysis;
pub mod body;
mod cache;
mod called;
mod context;
pub mod copies_locked;
pub mod copies_named;
#[cfg(test)]
mod corpus;
pub mod ddl;
mod effects;
pub mod gather;
#[cfg(test)]
mod hostile;
mod notes;
pub mod parse;
mod placing;
mod query;
pub mod residues;
pub mod rewrite;
mod second;
mod statement;
mod temporary_parts;
#[cfg(test)]
mod testing;
pub mod utility;
pub mod written;

pub use cache::{Analyzed, Analyzer, Read, RecentTemplates};
pub use context::Context;
pub use parse::parse;
pub use query::{keyed_by_row, may_read_settings};
pub use statement::is_access_share;
pub use utility::shardgate_call::declaration;
