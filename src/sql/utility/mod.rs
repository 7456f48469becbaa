//! Statements other than queries and schema changes: COPY, EXECUTE, EXPLAIN, CREATE TABLE AS, commands of the session, and what
//! concerns the schema `shardgate`.

pub mod cluster_state;
pub mod copy_in;
pub mod copy_out;
pub mod dump;
pub(super) mod execute;
pub mod explain;
pub mod materialized;
pub mod own_relations;
pub(super) mod session_command;
pub(super) mod set_config;
pub mod set_sequence;
pub mod shardgate_call;
pub mod table_as;
