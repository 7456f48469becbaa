//! Reading SQL: parse, analyse, rewrite. Pure: no I/O, no clock, no wait.

pub mod analysis;
pub mod body;
mod cache;
pub mod chosen;
pub mod clock;
pub mod clock_literals;
mod context;
pub mod copies_locked;
pub mod copies_named;
pub mod copy_in;
pub mod copy_out;
#[cfg(test)]
mod corpus;
mod ddl;
pub mod ddl_locks;
mod do_block;
pub mod drawing;
mod execute;
pub mod explain;
pub mod gather;
#[cfg(test)]
mod hostile;
pub mod lexer;
pub mod literal;
pub mod moving;
mod named_relations;
mod notes;
pub mod own_database;
pub mod own_relations;
mod parse;
mod placing;
mod query;
pub mod redefined;
pub mod resumable;
pub mod returned;
pub mod role_password;
mod schema_guard;
mod second;
mod session_command;
mod set_config;
pub mod set_sequence;
mod shardgate_call;
pub mod staging;
mod statement;
pub mod table_as;
#[cfg(test)]
mod testing;
pub mod tokens;
mod tree;
mod truncate;
pub mod value_rows;
pub mod written;

pub use cache::{Analyzed, Analyzer, Read, RecentTemplates};
pub use context::Context;
pub use parse::parse;
pub use statement::is_access_share;
