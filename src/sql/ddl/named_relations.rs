//! The relations that a schema change is about, and whether these are temporary tables of the session.
//!
//! A temporary table hides a lasting one of its name on the one connection that has it. On that connection the text would change the
//! temporary table, on all others the lasting one. So the names are resolved here, before the statement goes anywhere: a change of
//! temporary tables alone runs on their connection, and one that names temporary and lasting tables is refused.
//!
//! [`subjects`] lists every kind of statement of PostgreSQL's grammar that is about a relation. What a statement names besides, as the
//! type of a column or in the condition of a policy, is looked for among the words of its text, which may refuse too much and never
//! too little.

use pg_raw_parse::{Node, nodes};

use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse::lexer::TokenKind;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::parse::tree;
use crate::sql::query::means_temporary;
use crate::sql::statement::Source;

/// What a statement is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject<'n> {
    /// Of a relation, or of what belongs to one.
    Relation { schema: Option<&'n str>, name: &'n str },
    /// PostgreSQL does not look for it among what is temporary.
    Lasting,
}

impl<'n> Subject<'n> {
    fn of(relation: &'n nodes::RangeVar) -> Self {
        Subject::Relation { schema: relation.schemaname(), name: relation.relname().unwrap_or_default() }
    }

    /// Of `name`, `schema.name` or `database.schema.name`.
    fn dotted(names: &[&'n str]) -> Self {
        match names {
            [.., schema, name] => Subject::Relation { schema: Some(schema), name },
            [name] => Subject::Relation { schema: None, name },
            [] => Subject::Lasting,
        }
    }

    fn is_temporary(self, context: &Context) -> bool {
        match self {
            Subject::Relation { schema, name } => means_temporary(context, schema, name, &context.search_path),
            Subject::Lasting => false,
        }
    }
}

/// Is the schema change about temporary tables of the session, and about nothing else?
pub fn are_temporary(node: Node<'_>, context: &Context) -> bool {
    let subjects = subjects(node);
    !subjects.is_empty() && subjects.iter().all(|subject| subject.is_temporary(context))
}

/// As [`are_temporary`]. Refuses a statement that would mean temporary tables on one shard and lasting ones on others.
pub fn is_of_temporary(node: Node<'_>, source: Source<'_>, context: &Context) -> Result<bool, PgError> {
    if let Node::CreateStatsStmt(create) = node
        && is_after_from(source, context)
    {
        return if is_temporary_statistics(create) { Ok(true) } else { Err(lasting_statistics()) };
    }
    if are_temporary(node, context) {
        return Ok(true);
    }
    match mentioned(source, context) {
        Some(name) => Err(beside_lasting(&name)),
        None => Ok(false),
    }
}

/// A temporary table that the text may name, where other shards would take the name for another table.
pub fn mentioned(source: Source<'_>, context: &Context) -> Option<String> {
    let names = &context.temporary_tables;
    if names.is_empty() || context.map.shards.len() < 2 {
        return None;
    }
    let alone = source.alone();
    if may_spell_names(alone) {
        return names.first().cloned();
    }
    let tokens = Tokens::of(alone);
    let is_meant = |schema: Option<&str>, name: &str| means_temporary(context, schema, name, &context.search_path);
    (0..tokens.count()).find_map(|index| {
        if let Some(name) = tokens.identifier(index) {
            let is_qualified = index > 0 && tokens.piece(index - 1) == ".";
            let schema = if is_qualified { index.checked_sub(2).and_then(|schema| tokens.identifier(schema)) } else { None };
            return ((!is_qualified || schema.is_some()) && is_meant(schema.as_deref(), &name)).then_some(name);
        }
        // A name for regclass, which nextval and its like take.
        let is_string = matches!(tokens.get(index)?.kind, TokenKind::Literal(_));
        let text = tokens.piece(index).trim_matches('\'').trim_matches('"');
        let name = text.rsplit_once('.').map_or(text, |(_, name)| name.trim_matches('"'));
        names.iter().find(|own| is_string && own.eq_ignore_ascii_case(name)).cloned()
    })
}

/// The first of these names that means a temporary table.
pub fn temporary_among<'n>(names: impl IntoIterator<Item = &'n nodes::RangeVar>, context: &Context) -> Option<&'n str> {
    names.into_iter().find(|name| Subject::of(name).is_temporary(context)).and_then(|name| name.relname())
}

/// One statement for both kinds.
pub fn beside_lasting(name: &str) -> PgError {
    PgError::unsupported(
        format!("temporary table \"{name}\" beside lasting tables in this statement is not supported"),
        "Every shard runs the statement, and only one connection has the temporary table: elsewhere the name means another table.",
        "Use a statement for each, write the schema before the names of lasting tables, or drop the temporary table first.",
    )
}

/// CREATE STATISTICS is of a temporary table. By the text, since the grammar takes whatever a FROM clause may hold.
fn is_after_from(source: Source<'_>, context: &Context) -> bool {
    let tokens = Tokens::of(source.alone());
    let names = tokens.from_at_top(0).and_then(|from| tokens.names(from + 1)).unwrap_or_default();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Subject::dotted(&names).is_temporary(context)
}

/// PostgreSQL puts statistics into the schema that their name says, also those of a temporary table.
fn is_temporary_statistics(create: &nodes::CreateStatsStmt) -> bool {
    let names: Vec<&str> = create.defnames().iter().filter_map(nodes::String::sval).collect();
    matches!(names.as_slice(), [] | [.., "pg_temp", _])
}

fn lasting_statistics() -> PgError {
    PgError::unsupported(
        "statistics of a temporary table in another schema are not supported",
        "They would be in a schema that the shards share, on one shard only.",
        "Name them in the schema pg_temp: CREATE STATISTICS pg_temp.name ON ...",
    )
}

/// The relations that are changed, by the kind of the statement. Empty: none, or what the statement makes.
fn subjects(node: Node<'_>) -> Vec<Subject<'_>> {
    match node {
        Node::DropStmt(s) => s.objects().iter().map(|object| object_subject(s.remove_type, object)).collect(),
        Node::CommentStmt(s) => vec![object_subject(s.objtype, s.object())],
        Node::SecLabelStmt(s) => vec![object_subject(s.objtype, s.object())],
        Node::AlterExtensionContentsStmt(s) => vec![object_subject(s.objtype, s.object())],
        Node::RenameStmt(s) => relation_or_object(s.relation(), s.rename_type, s.object()),
        Node::AlterObjectDependsStmt(s) => relation_or_object(s.relation(), s.object_type, s.object()),
        Node::AlterObjectSchemaStmt(s) => relation_or_object(s.relation(), s.object_type, s.object()),
        Node::AlterOwnerStmt(s) => relation_or_object(s.relation(), s.object_type, s.object()),
        Node::GrantStmt(s) => {
            // The objects of other kinds are no relations.
            let has_relations = s.targtype == nodes::GrantTargetType::ACL_TARGET_OBJECT
                && matches!(s.objtype, nodes::ObjectType::OBJECT_TABLE | nodes::ObjectType::OBJECT_SEQUENCE);
            if has_relations { s.objects().iter().map(Subject::of).collect() } else { Vec::new() }
        }
        Node::VacuumStmt(s) => s.rels().iter().filter_map(nodes::VacuumRelation::relation).map(Subject::of).collect(),
        Node::AlterStatsStmt(s) => {
            let names: Vec<&str> = s.defnames().iter().filter_map(nodes::String::sval).collect();
            vec![statistics(&names)]
        }
        _ => relation_of(node).map(Subject::of).into_iter().collect(),
    }
}

/// The table that a statement about one table names.
fn relation_of(node: Node<'_>) -> Option<&nodes::RangeVar> {
    match node {
        Node::AlterTableStmt(s) => s.relation(),
        Node::IndexStmt(s) => s.relation(),
        Node::CreateTrigStmt(s) => s.relation(),
        Node::AlterSeqStmt(s) => s.sequence(),
        Node::ClusterStmt(s) => s.relation(),
        Node::ReindexStmt(s) => s.relation(),
        Node::CreatePolicyStmt(s) => s.table(),
        Node::AlterPolicyStmt(s) => s.table(),
        Node::RuleStmt(s) => s.relation(),
        _ => None,
    }
}

fn relation_or_object<'n>(
    relation: Option<&'n nodes::RangeVar>,
    kind: nodes::ObjectType::Type,
    object: Node<'n>,
) -> Vec<Subject<'n>> {
    match relation {
        Some(relation) => vec![Subject::of(relation)],
        None => vec![object_subject(kind, object)],
    }
}

/// What an object of this kind is, or belongs to.
fn object_subject(kind: nodes::ObjectType::Type, object: Node<'_>) -> Subject<'_> {
    use nodes::ObjectType as Kind;
    let names = match object {
        Node::TypeName(name) => name.names().iter().filter_map(nodes::String::sval).collect(),
        other => other.as_node_list().and_then(tree::names).unwrap_or_default(),
    };
    match kind {
        Kind::OBJECT_TABLE
        | Kind::OBJECT_INDEX
        | Kind::OBJECT_SEQUENCE
        | Kind::OBJECT_VIEW
        | Kind::OBJECT_MATVIEW
        | Kind::OBJECT_FOREIGN_TABLE
        // A table's row type has its name.
        | Kind::OBJECT_TYPE
        | Kind::OBJECT_DOMAIN => Subject::dotted(&names),
        // The name of the table, and then its own.
        Kind::OBJECT_COLUMN
        | Kind::OBJECT_ATTRIBUTE
        | Kind::OBJECT_TABCONSTRAINT
        | Kind::OBJECT_TRIGGER
        | Kind::OBJECT_RULE
        | Kind::OBJECT_POLICY => names.split_last().map_or(Subject::Lasting, |(_, table)| Subject::dotted(table)),
        Kind::OBJECT_STATISTIC_EXT => statistics(&names),
        _ => Subject::Lasting,
    }
}

/// Found among what is temporary only where the name says so.
fn statistics<'n>(names: &[&'n str]) -> Subject<'n> {
    if names.len() > 1 { Subject::dotted(names) } else { Subject::Lasting }
}

#[cfg(test)]
mod tests;
