//! What PostgreSQL allows in no transaction and does not let repeat: `CREATE INDEX CONCURRENTLY` and `CREATE DATABASE`, and their
//! `DROP`. Which thing they are about, so that what stopped half-way over the shards can be taken up again.

use pg_raw_parse::{Node, nodes};

use crate::catalog::{quoted_identifier, quoted_literal, quoted_name};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tree;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Thing {
    /// As the input of regclass has it; without a schema where the search path decides.
    Index(String),
    /// `template`: the one that it is a copy of, if the statement says.
    Database { name: String, template: Option<String> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumable {
    pub thing: Thing,
    pub is_drop: bool,
}

impl Resumable {
    pub fn kind(&self) -> &'static str {
        match self.thing {
            Thing::Index(_) => "index",
            Thing::Database { .. } => "database",
        }
    }

    /// A query for two booleans, what is there is whole, and somebody is at work on it, and for its definition. No row: it is not there.
    pub fn state_query(&self) -> String {
        match &self.thing {
            Thing::Index(name) => format!(
                "SELECT i.indisvalid, EXISTS (SELECT FROM pg_catalog.pg_stat_progress_create_index p \
                 WHERE p.datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND p.index_relid OPERATOR(pg_catalog.=) i.indexrelid), \
                 pg_catalog.pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i WHERE i.indexrelid = pg_catalog.to_regclass({})",
                quoted_literal(name)
            ),
            // A DROP DATABASE that was cut short leaves a limit of -2 connections.
            Thing::Database { name, .. } => {
                format!(
                    "SELECT d.datconnlimit <> -2, false, NULL FROM pg_catalog.pg_database d WHERE d.datname = {}",
                    quoted_literal(name)
                )
            }
        }
    }

    /// Removes what an attempt has left invalid.
    pub fn removal(&self) -> String {
        match &self.thing {
            Thing::Index(name) => format!("DROP INDEX CONCURRENTLY IF EXISTS {name}"),
            Thing::Database { name, .. } => format!("DROP DATABASE IF EXISTS {}", quoted_identifier(name)),
        }
    }
}

/// Does it wait for every transaction of the database, prepared ones included?
pub fn waits_for_transactions(text: &str) -> bool {
    let Ok(tree) = parse::parse(text) else { return false };
    let is_concurrent = |option: &nodes::DefElem| option.defname() == Some("concurrently");
    match tree.stmts().next() {
        Some(Node::IndexStmt(index)) => index.concurrent,
        Some(Node::DropStmt(drop)) => drop.concurrent,
        Some(Node::ReindexStmt(reindex)) => reindex.params().iter().any(is_concurrent),
        Some(_) | None => false,
    }
}

/// `None`: another statement, one that lets PostgreSQL choose the name, or one about several indexes.
pub fn resumable(text: &str, context: &Context) -> Option<Resumable> {
    let tree = parse::parse(text).ok()?;
    match tree.stmts().next()? {
        Node::IndexStmt(index) if index.concurrent => {
            let table = index.relation()?;
            let found = context.catalog.resolve(table.schemaname(), table.relname()?, &context.search_path)?;
            let name = quoted_name(&found.schema, index.idxname()?);
            Some(Resumable { thing: Thing::Index(name), is_drop: false })
        }
        Node::DropStmt(drop)
            if drop.concurrent && drop.remove_type == nodes::ObjectType::OBJECT_INDEX && drop.objects().len() == 1 =>
        {
            let names = tree::names(drop.objects().first()?.as_node_list()?)?;
            let name = names.into_iter().map(quoted_identifier).collect::<Vec<_>>().join(".");
            Some(Resumable { thing: Thing::Index(name), is_drop: true })
        }
        Node::CreatedbStmt(create) => {
            let template = create.options().iter().find(|option| option.defname() == Some("template"));
            let template = template.and_then(|option| word(option.arg()));
            let name = create.dbname()?.to_owned();
            Some(Resumable { thing: Thing::Database { name, template }, is_drop: false })
        }
        Node::DropdbStmt(drop) => {
            let name = drop.dbname()?.to_owned();
            Some(Resumable { thing: Thing::Database { name, template: None }, is_drop: true })
        }
        _ => None,
    }
}

fn word(argument: Node<'_>) -> Option<String> {
    match argument {
        Node::String(name) => name.sval().map(str::to_owned),
        Node::TypeName(name) => name.names().iter().next_back().and_then(nodes::String::sval).map(str::to_owned),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing::library;

    #[test]
    fn a_database_is_named_with_its_template() {
        let context = library().context(&["public"], &[]);
        for (text, name, template, is_drop) in [
            ("CREATE DATABASE Reports", "reports", None, false),
            ("CREATE DATABASE \"Reports\" WITH OWNER me TEMPLATE = App ENCODING 'UTF8'", "Reports", Some("app"), false),
            ("CREATE DATABASE x TEMPLATE 'App'", "x", Some("App"), false),
            ("CREATE DATABASE x TEMPLATE DEFAULT", "x", None, false),
            ("DROP DATABASE IF EXISTS reports WITH (FORCE)", "reports", None, true),
        ] {
            let template = template.map(str::to_owned);
            let wanted = Resumable { thing: Thing::Database { name: name.to_owned(), template }, is_drop };
            assert_eq!(resumable(text, &context), Some(wanted), "{text}");
        }
        assert_eq!(resumable("ALTER DATABASE x CONNECTION LIMIT 1", &context), None);
    }
}
