//! Calls of functions of the schema `shardgate` where a shard would make them: in bodies and views. No shard has these functions.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{BodyReader, BodyReferences};
use crate::error::PgError;
use crate::sql::body::{self, SqlBodyReader};
use crate::sql::utility::shardgate_call::{self, UNIQUE_ID};

/// A schema change that stores such a call. `text`: of the statement alone.
pub(super) fn guard(node: Node<'_>, text: &str) -> Result<(), PgError> {
    // Few texts are read for it.
    if !text.contains(shardgate_call::SCHEMA) {
        return Ok(());
    }
    match node {
        Node::CreateFunctionStmt(create) => {
            let what = if create.is_procedure { "a procedure" } else { "a function" };
            let option = |name: &str| create.options().iter().find(|option| option.defname() == Some(name));
            let language = option("language").and_then(|option| option.arg().as_str()).unwrap_or("sql").to_ascii_lowercase();
            let bodies = option("as").and_then(|option| option.arg().as_node_list()).into_iter().flatten();
            bodies
                .filter_map(|body| body.as_str())
                .try_for_each(|body| refuse(what, &SqlBodyReader.references(&language, body)))?;
            refuse(what, &body::references_of(create.sql_body(), text))
        }
        Node::ViewStmt(view) => refuse("a view", &body::references_of(view.query(), text)),
        _ => Ok(()),
    }
}

pub fn guard_block(block: &nodes::DoStmt) -> Result<(), PgError> {
    let (language, body) = super::super::in_bodies::block_body(block);
    let body = body.filter(|body| body.contains(shardgate_call::SCHEMA));
    body.map_or(Ok(()), |body| refuse("a DO block", &SqlBodyReader.references(&language, body)))
}

fn refuse(what: &str, references: &BodyReferences) -> Result<(), PgError> {
    let is_own = |schema: Option<&str>, name| schema == Some(shardgate_call::SCHEMA) && shardgate_call::answers(name).is_some();
    match references.functions.iter().find(|called| is_own(called.schema.as_deref(), &called.name)) {
        None => Ok(()),
        Some(called) => Err(PgError::unsupported(
            format!("shardgate.{}() cannot be called in {what}", called.name),
            "The proxy answers it by itself, and no shard has such a function.",
            match called.name.as_str() {
                UNIQUE_ID => {
                    "Make it the column's default, ALTER COLUMN ... SET DEFAULT shardgate.unique_id(), or call it in a statement of \
                     its own and pass the number on."
                }
                _ => "Call it in a statement of its own, and pass on what it gives.",
            },
        )),
    }
}
