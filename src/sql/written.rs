//! What a statement writes, as PostgreSQL names it in its errors. Pure.

use pg_raw_parse::{Node, nodes};

use super::context::Context;
use super::parse;
use super::query::{Resolved, resolve};
use crate::error::PgError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteOf {
    /// `INSERT`; of a query with writes in its WITH: `SELECT`.
    pub verb: &'static str,
    /// Some table of it is no temporary one.
    pub is_of_lasting_tables: bool,
}

impl WriteOf {
    /// `text`: one statement alone. `None`: it writes nothing.
    pub fn read(text: &str, context: &Context) -> Result<Option<Self>, PgError> {
        let parsed = parse::parse(text)?;
        let Some(statement) = parsed.stmts().next() else { return Ok(None) };
        let (verb, with) = match statement {
            Node::InsertStmt(insert) => ("INSERT", insert.with_clause()),
            Node::UpdateStmt(update) => ("UPDATE", update.with_clause()),
            Node::DeleteStmt(delete) => ("DELETE", delete.with_clause()),
            Node::MergeStmt(merge) => ("MERGE", merge.with_clause()),
            Node::SelectStmt(select) => ("SELECT", select.with_clause()),
            _ => return Ok(None),
        };
        let parts = with.into_iter().flat_map(|with| with.ctes()).map(|cte| cte.ctequery()).chain([statement]);
        let targets: Vec<&nodes::RangeVar> = parts.filter_map(target).collect();
        let is_lasting = |name: &&nodes::RangeVar| !matches!(resolve(context, name, &context.search_path), Resolved::Home(None));
        let is_of_lasting_tables = targets.iter().any(is_lasting);
        Ok((!targets.is_empty()).then_some(Self { verb, is_of_lasting_tables }))
    }
}

fn target(part: Node<'_>) -> Option<&nodes::RangeVar> {
    match part {
        Node::InsertStmt(insert) => insert.relation(),
        Node::UpdateStmt(update) => update.relation(),
        Node::DeleteStmt(delete) => delete.relation(),
        Node::MergeStmt(merge) => merge.relation(),
        _ => None,
    }
}
