//! `CREATE INDEX CONCURRENTLY` and `DROP INDEX CONCURRENTLY`: which index they are about, so that one that stopped half-way over
//! the shards can be taken up again.

use pg_raw_parse::{Node, nodes};

use super::context::Context;
use super::tokens::quoted;
use super::{parse, tree};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConcurrentIndex {
    /// As the input of regclass has it; without a schema where the search path decides.
    pub name: String,
    pub is_drop: bool,
}

/// `None`: another statement, one that lets PostgreSQL choose the name, or one about several indexes.
pub fn concurrent_index(text: &str, context: &Context) -> Option<ConcurrentIndex> {
    let tree = parse::parse(text).ok()?;
    match tree.stmts().next()? {
        Node::IndexStmt(index) if index.concurrent => {
            let table = index.relation()?;
            let found = context.catalog.resolve(table.schemaname(), table.relname()?, &context.search_path)?;
            let name = format!("{}.{}", quoted(&found.schema), quoted(index.idxname()?));
            Some(ConcurrentIndex { name, is_drop: false })
        }
        Node::DropStmt(drop)
            if drop.concurrent && drop.remove_type == nodes::ObjectType::OBJECT_INDEX && drop.objects().len() == 1 =>
        {
            let names = tree::names(drop.objects().first()?.as_node_list()?)?;
            let name = names.into_iter().map(quoted).collect::<Vec<_>>().join(".");
            Some(ConcurrentIndex { name, is_drop: true })
        }
        _ => None,
    }
}
