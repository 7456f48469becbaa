//! What a schema change gives another meaning: views, functions and the like, of which a statement that was read before it would
//! be answered wrongly after it.
//!
//! Where the rows of a view lie, and what a function or a policy looks at, the reader of a statement knows by their definitions.
//! A table's own change needs little of this: its shape comes with each answer, but not how its text sorts. What is dropped needs
//! none either, unless it uncovers another of its name: who has counted on it has been more careful than it takes.

use std::collections::BTreeSet;
use std::sync::Arc;

use pg_raw_parse::{Node, nodes};

use crate::shardmap::TableName;
use crate::sql::context::Context;
use crate::sql::ddl::schema_guard::distributed_rename;
use crate::sql::parse::tree;
use crate::sql::query::{Resolved, resolve};

/// Names without their schemas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Redefined {
    #[default]
    Nothing,
    These(Arc<[String]>),
    /// It has no name that would stand in a statement: an operator, a cast.
    Anything,
}

impl Redefined {
    fn names<'n>(names: impl IntoIterator<Item = Option<&'n str>>) -> Self {
        let names: BTreeSet<String> = names.into_iter().flatten().map(str::to_owned).collect();
        if names.is_empty() { Redefined::Nothing } else { Redefined::These(names.into_iter().collect()) }
    }

    /// Both of them.
    pub fn with(self, other: Self) -> Self {
        match (self, other) {
            (Redefined::Nothing, other) | (other, Redefined::Nothing) => other,
            (Redefined::Anything, _) | (_, Redefined::Anything) => Redefined::Anything,
            (Redefined::These(one), Redefined::These(other)) => {
                Self::names(one.iter().chain(other.iter()).map(|name| Some(name.as_str())))
            }
        }
    }
}

pub fn redefined(node: Node<'_>, context: &Context) -> Redefined {
    use nodes::ObjectType;
    match node {
        Node::ViewStmt(view) => relation(view.view(), context),
        Node::CreateStmt(table) => relation(table.relation(), context),
        Node::AlterTableStmt(alter) if alters_what_is_hidden(alter) => Redefined::names([name_of(alter.relation())]),
        Node::CreatePolicyStmt(policy) => Redefined::names([name_of(policy.table())]),
        Node::AlterPolicyStmt(policy) => Redefined::names([name_of(policy.table())]),
        Node::CreateTrigStmt(trigger) => Redefined::names([name_of(trigger.relation())]),
        Node::RuleStmt(rule) => Redefined::names([name_of(rule.relation())]),
        Node::CreateFunctionStmt(create) => {
            function(tree::names(create.funcname()).and_then(|names| names.last().copied()), context)
        }
        Node::AlterFunctionStmt(alter) => {
            let names = alter.func().and_then(|found| tree::names(found.objname()));
            Redefined::names([names.and_then(|names| names.last().copied())])
        }
        Node::DefineStmt(define) if define.kind == ObjectType::OBJECT_AGGREGATE => {
            function(define.defnames().iter().filter_map(nodes::String::sval).next_back(), context)
        }
        Node::DefineStmt(define) if define.kind == ObjectType::OBJECT_OPERATOR => Redefined::Anything,
        Node::CreateCastStmt(_) | Node::CreateOpClassStmt(_) => Redefined::Anything,
        Node::RenameStmt(rename) => match rename.rename_type {
            // PostgreSQL renames a table by ALTER INDEX, too.
            ObjectType::OBJECT_VIEW
            | ObjectType::OBJECT_TABLE
            | ObjectType::OBJECT_INDEX
            | ObjectType::OBJECT_MATVIEW
            | ObjectType::OBJECT_FOREIGN_TABLE => Redefined::names([name_of(rename.relation()), rename.newname()]),
            ObjectType::OBJECT_COLUMN if renames_key(rename, context) => Redefined::names([name_of(rename.relation())]),
            ObjectType::OBJECT_FUNCTION
            | ObjectType::OBJECT_PROCEDURE
            | ObjectType::OBJECT_ROUTINE
            | ObjectType::OBJECT_AGGREGATE => Redefined::names([object_name(rename.object()), rename.newname()]),
            ObjectType::OBJECT_SCHEMA => Redefined::Anything,
            _ => Redefined::Nothing,
        },
        Node::DropStmt(drop) => uncovered(drop, context),
        Node::AlterObjectSchemaStmt(moved) => match moved.relation() {
            Some(relation) => Redefined::names([name_of(Some(relation))]),
            None => Redefined::names([object_name(moved.object())]),
        },
        _ => Redefined::Nothing,
    }
}

/// Sharded and reference tables whose names the statement gives to something else: it can only do so where they are gone.
pub fn taken(node: Node<'_>, context: &Context) -> Vec<TableName> {
    use nodes::ObjectType;
    match node {
        Node::CreateStmt(table) => taken_by(table.relation(), context),
        Node::CreateTableAsStmt(table) => taken_by(table.into().and_then(|into| into.rel()), context),
        Node::ViewStmt(view) => taken_by(view.view(), context),
        Node::RenameStmt(rename) if rename.rename_type == ObjectType::OBJECT_SCHEMA => {
            context.map.tables.keys().filter(|(schema, _)| Some(schema.as_str()) == rename.newname()).cloned().collect()
        }
        Node::RenameStmt(rename) => match rename.rename_type {
            ObjectType::OBJECT_TABLE
            | ObjectType::OBJECT_INDEX
            | ObjectType::OBJECT_VIEW
            | ObjectType::OBJECT_MATVIEW
            | ObjectType::OBJECT_FOREIGN_TABLE => {
                tables(rename.relation().and_then(|relation| relation.schemaname()), rename.newname(), context)
            }
            _ => Vec::new(),
        },
        Node::AlterObjectSchemaStmt(moved) => tables(moved.newschema(), name_of(moved.relation()), context),
        Node::CreateSchemaStmt(schema) => {
            let made = schema.schema_elts().iter().filter_map(|element| match element {
                Node::CreateStmt(table) => name_of(table.relation()),
                Node::ViewStmt(view) => name_of(view.view()),
                _ => None,
            });
            // The schema may be called after a role.
            let is_meant = |of: &str| schema.schemaname().is_none_or(|schema| schema == of);
            made.flat_map(|name| named(name, context, is_meant)).collect()
        }
        _ => Vec::new(),
    }
}

/// Perhaps some that the map knows.
pub fn drops_tables(node: Node<'_>) -> bool {
    use nodes::ObjectType::{OBJECT_FOREIGN_TABLE, OBJECT_MATVIEW, OBJECT_SCHEMA, OBJECT_TABLE, OBJECT_VIEW};
    let kinds = [OBJECT_TABLE, OBJECT_VIEW, OBJECT_MATVIEW, OBJECT_FOREIGN_TABLE, OBJECT_SCHEMA];
    matches!(node, Node::DropStmt(drop) if kinds.contains(&drop.remove_type))
}

/// By a new relation of this name.
pub fn taken_by(new: Option<&nodes::RangeVar>, context: &Context) -> Vec<TableName> {
    tables(new.and_then(|new| new.schemaname()), name_of(new), context)
}

/// Those of the map, in this schema or, where there is none, in any that is searched: it may be the first one.
fn tables(schema: Option<&str>, name: Option<&str>, context: &Context) -> Vec<TableName> {
    let is_meant = |of: &str| match schema {
        Some(schema) => schema == of,
        None => context.search_path.iter().any(|searched| searched == of),
    };
    name.map(|name| named(name, context, is_meant)).unwrap_or_default()
}

fn named(name: &str, context: &Context, is_meant: impl Fn(&str) -> bool) -> Vec<TableName> {
    context.map.tables.keys().filter(|(schema, table)| table == name && is_meant(schema)).cloned().collect()
}

/// A new one means something else only where there is one of that name: the same, or one in another schema.
pub fn relation(new: Option<&nodes::RangeVar>, context: &Context) -> Redefined {
    let name = name_of(new).filter(|name| context.catalog.relations.values().any(|relation| relation.name == *name));
    Redefined::names([name])
}

fn function(name: Option<&str>, context: &Context) -> Redefined {
    Redefined::names([name.filter(|name| context.catalog.function_names.contains_key(*name))])
}

/// A name may mean another function, or a relation of another schema, when this one is gone.
fn uncovered(drop: &nodes::DropStmt, context: &Context) -> Redefined {
    use nodes::ObjectType;
    let catalog = &context.catalog;
    let functions = |name: &str| catalog.function_names.get(name).map_or(0, Vec::len);
    let relations = |name: &str| catalog.relations.values().filter(|relation| relation.name == name).count();
    let count: &dyn Fn(&str) -> usize = match drop.remove_type {
        ObjectType::OBJECT_FUNCTION | ObjectType::OBJECT_PROCEDURE | ObjectType::OBJECT_ROUTINE | ObjectType::OBJECT_AGGREGATE => {
            &functions
        }
        ObjectType::OBJECT_TABLE | ObjectType::OBJECT_VIEW | ObjectType::OBJECT_MATVIEW | ObjectType::OBJECT_FOREIGN_TABLE => {
            &relations
        }
        ObjectType::OBJECT_OPERATOR | ObjectType::OBJECT_CAST => return Redefined::Anything,
        ObjectType::OBJECT_SCHEMA => {
            let dropped: Vec<&str> = drop.objects().iter().filter_map(Node::as_str).collect();
            let is_dropped = |schema: &str| dropped.contains(&schema);
            let of_relations = catalog.relations.values().filter(|relation| is_dropped(&relation.schema));
            let of_relations = of_relations.map(|relation| relation.name.as_str()).filter(|name| relations(name) > 1);
            let of_functions = catalog.functions.values().filter(|function| is_dropped(&function.schema));
            let of_functions = of_functions.map(|function| function.name.as_str()).filter(|name| functions(name) > 1);
            return Redefined::names(of_relations.chain(of_functions).map(Some));
        }
        _ => return Redefined::Nothing,
    };
    Redefined::names(drop.objects().iter().map(|object| object_name(object).filter(|name| count(name) > 1)))
}

fn name_of(relation: Option<&nodes::RangeVar>) -> Option<&str> {
    relation?.relname()
}

/// A column by which rows are placed, or perhaps one: a view may show the key by any name.
fn renames_key(rename: &nodes::RenameStmt, context: &Context) -> bool {
    let is_view = |name| matches!(resolve(context, name, &context.search_path), Resolved::View(_));
    rename.relation().is_some_and(is_view) || distributed_rename(Node::RenameStmt(rename), context).is_some()
}

/// Of a function, or of whatever has a dotted name.
fn object_name(object: Node<'_>) -> Option<&str> {
    let names = match object {
        Node::ObjectWithArgs(object) => tree::names(object.objname())?,
        other => tree::names(other.as_node_list()?)?,
    };
    names.last().copied()
}

/// Defaults, triggers, policies, collations: what a statement about the table does not show, nor its answer.
fn alters_what_is_hidden(alter: &nodes::AlterTableStmt) -> bool {
    use nodes::AlterTableType as Kind;
    alter.cmds().iter().any(|command| match command {
        Node::AlterTableCmd(command) => matches!(
            command.subtype,
            Kind::AT_ColumnDefault
                | Kind::AT_AlterColumnType
                | Kind::AT_AddIdentity
                | Kind::AT_SetIdentity
                | Kind::AT_EnableTrig
                | Kind::AT_EnableAlwaysTrig
                | Kind::AT_EnableReplicaTrig
                | Kind::AT_EnableTrigAll
                | Kind::AT_EnableTrigUser
                | Kind::AT_EnableRule
                | Kind::AT_EnableAlwaysRule
                | Kind::AT_EnableReplicaRule
                | Kind::AT_EnableRowSecurity
                | Kind::AT_ForceRowSecurity
        ),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::analysis::Command;
    use crate::sql::{Analyzer, testing};

    fn of(text: &str) -> Redefined {
        let mut fixture = testing::library();
        fixture.view("seen", "k int8", "SELECT t.k FROM public.t");
        fixture.table("twice", "k int8");
        fixture.table("app.twice", "k int8");
        let context = fixture.context(&["public"], &[]);
        let read = Analyzer::new().read(text, &context).expect(text);
        match &read.analyzed.statements.first().expect("a statement").command {
            Command::Ddl { redefines, .. } => redefines.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn new_definitions_of_what_is_there_are_told() {
        for (text, names) in [
            ("CREATE OR REPLACE VIEW seen AS SELECT 1", &["seen"][..]),
            ("CREATE VIEW other.seen AS SELECT 1", &["seen"]),
            ("ALTER VIEW seen RENAME TO gone", &["gone", "seen"]),
            ("ALTER TABLE t ENABLE ROW LEVEL SECURITY", &["t"]),
            ("ALTER TABLE t ALTER x SET DEFAULT 1", &["t"]),
            ("ALTER TABLE t ALTER x TYPE text COLLATE \"C\"", &["t"]),
            ("DROP TABLE nobody, app.twice", &["twice"]),
            ("DROP SCHEMA app CASCADE", &["t", "twice"]),
            ("ALTER FUNCTION f(int) STABLE", &["f"]),
            ("ALTER FUNCTION public.f(int) RENAME TO g", &["f", "g"]),
        ] {
            assert_eq!(of(text), Redefined::names(names.iter().map(|name| Some(*name))), "{text}");
        }
        for text in ["CREATE CAST (text AS int) WITH INOUT AS IMPLICIT", "ALTER SCHEMA a RENAME TO b"] {
            assert_eq!(of(text), Redefined::Anything, "{text}");
        }
        for text in [
            "CREATE VIEW new AS SELECT 1",
            "CREATE TABLE new (k int)",
            "CREATE FUNCTION new() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "DROP VIEW seen",
            "ALTER TABLE t ADD COLUMN n int",
            "CREATE INDEX ON t (x)",
        ] {
            assert_eq!(of(text), Redefined::Nothing, "{text}");
        }
    }
}
