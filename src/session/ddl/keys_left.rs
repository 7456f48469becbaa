//! DROP ... CASCADE may take a column of a shard key away: with the column's collation, with a function that computes it, with a schema
//! or an extension that has these, or with all that a role owns.
//!
//! PostgreSQL alone knows what goes with what. So the home shard is asked once it has made the change, which is refused and undone
//! where a sharded table is there without its key.

use crate::catalog::quoted_literal;
use crate::shardmap::{MapSnapshot, TableKind};

/// May a schema change of this text take more away than it names? That of a body may always.
pub(super) fn may_cascade(text: &str) -> bool {
    text.to_ascii_lowercase().contains("cascade")
}

/// A query for columns of shard keys whose tables are there without them; `None`: no table is sharded. In the transaction that renames a
/// table or a column of a key each of its names may be the one.
pub(super) fn keys_that_are_gone(map: &MapSnapshot) -> Option<String> {
    let mut columns = Vec::new();
    for ((schema, name), table) in &map.tables {
        if !matches!(table.kind, TableKind::Sharded { .. }) {
            continue;
        }
        for names in table.key_names() {
            let all: Vec<String> = names.iter().map(|name| quoted_literal(name)).collect();
            columns.push(format!("({},{},ARRAY[{}])", quoted_literal(schema), quoted_literal(name), all.join(",")));
        }
    }
    (!columns.is_empty()).then(|| {
        format!(
            "SELECT k.names[1] FROM (VALUES {}) k(schema, name, names) \
             JOIN pg_catalog.pg_namespace n ON n.nspname OPERATOR(pg_catalog.=) k.schema::pg_catalog.name \
             JOIN pg_catalog.pg_class c ON c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) k.name::pg_catalog.name \
             WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid OPERATOR(pg_catalog.=) c.oid \
             AND NOT a.attisdropped AND a.attname OPERATOR(pg_catalog.=) ANY (k.names::pg_catalog.name[])) LIMIT 1",
            columns.join(",")
        )
    })
}
