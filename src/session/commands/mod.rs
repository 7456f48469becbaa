//! Statements that the session answers itself, or that stand around a query: EXPLAIN, PREPARE, LISTEN, the relations of
//! the schema `shardgate`, temporary tables.

pub(super) mod arguments;
pub(super) mod clients;
pub(super) mod cluster_state;
pub(super) mod command;
pub(super) mod dump;
pub(super) mod explain;
pub(super) mod inner_query;
pub(super) mod listening;
pub(super) mod map_database;
pub(super) mod materialized;
pub(super) mod permitted;
pub(super) mod prepare;
pub(super) mod question;
pub(super) mod relations;
pub(super) mod table_as;
pub(super) mod temporary;
