//! MERGE whose source is not sharded like its target: the source is answered first, and becomes constants.
//!
//! Where nothing is inserted all shards get all of these rows: a row of the target is on one shard and meets them all there. A row
//! that is inserted must be met by one shard alone, the one of its key: else it would be missing on the others, and inserted by
//! each. So the rows are split by the columns that ON compares with the key, and each shard merges its own.

use pg_raw_parse::{Node, nodes};

use super::{Answer, Finder, Stage, type_name};
use crate::catalog::{Catalog, Oid, Relation, quoted_identifier, quoted_literal, quoted_name};
use crate::error::PgError;
use crate::shard_key::oid;
use crate::shardmap::TableKind;
use crate::sql::clock_literals::clock_literals;
use crate::sql::context::Context;
use crate::sql::query::{Resolved, resolve};
use crate::sql::tree;

/// A MERGE that inserts into a sharded table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merging {
    pub source: Stage,
    /// As SQL names it anywhere.
    target: String,
    /// Of the target: those that take values.
    columns: Vec<String>,
    key: Vec<MergedKey>,
    /// Names that the alias gives to the source's first columns.
    renamed: Vec<String>,
}

/// A column of the shard key, and the source's that ON compares with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MergedKey {
    column: String,
    type_oid: Oid,
    source: String,
}

impl Finder<'_> {
    /// Only what it has in WITH and its source are answered first.
    pub(super) fn merge(&mut self, merge: &nodes::MergeStmt, context: &Context) {
        if self.find_merge(merge, context).is_none() {
            self.is_unknown = true;
        }
    }

    fn find_merge(&mut self, merge: &nodes::MergeStmt, context: &Context) -> Option<()> {
        let name = merge.relation().filter(|_| merge.returning_clause().is_none())?;
        let sharded = match resolve(context, name, &context.search_path) {
            Resolved::Sharded { table, relation, .. } => Some((table, relation)),
            Resolved::Home(_) => None,
            Resolved::Reference(_)
            | Resolved::View(_)
            | Resolved::System
            | Resolved::Map(_)
            | Resolved::Proxy(_)
            | Resolved::Mixed(_) => return None,
        };
        let renamed = match merge.source_relation() {
            Node::RangeVar(table) => {
                self.table(table)?;
                table.alias().map(nodes::Alias::colnames)
            }
            Node::RangeSubselect(query) if !query.lateral => {
                self.subselect(query)?;
                query.alias().map(nodes::Alias::colnames)
            }
            _ => return None,
        };
        // In what is answered first they are that query's.
        let is_answered = |start: usize| self.stages.stages().any(|stage| stage.start <= start && start < stage.end);
        if clock_literals(self.text, context).ok()?.iter().any(|literal| !is_answered(literal.start)) {
            return None;
        }
        let inserts = merge.merge_when_clauses().iter().any(|clause| clause.command_type == nodes::CmdType::CMD_INSERT);
        if let Some((table, relation)) = sharded.filter(|_| inserts) {
            let TableKind::Sharded { key, .. } = &table.kind else { return None };
            let called = name.alias().and_then(|alias| alias.aliasname()).or(name.relname())?;
            let source = match merge.source_relation() {
                Node::RangeVar(table) => table.alias().and_then(|alias| alias.aliasname()).or(table.relname())?,
                Node::RangeSubselect(query) => query.alias()?.aliasname()?,
                _ => return None,
            };
            let merged = |column: &str| {
                let type_oid = relation.column(column)?.type_oid;
                let source = compared(merge.join_condition(), (called, column), source)?;
                Some(MergedKey { column: column.to_owned(), type_oid, source })
            };
            let key = key.iter().map(|key| merged(&key.column)).collect::<Option<_>>()?;
            let columns = taking_values(relation);
            let target = quoted_name(&relation.schema, &relation.name);
            let renamed = renamed.into_iter().flat_map(|names| names.iter()).filter_map(Node::as_str).map(str::to_owned).collect();
            let source = self.stages.tables.pop()?;
            self.stages.merging = Some(Merging { source, target, columns, key, renamed });
            self.drop_with();
        }
        Some(())
    }
}

impl Merging {
    /// A query that stands for the source where it is to be proven that each shard merges its own rows: rows of the target's own
    /// shard by the same key, of the source's columns.
    pub fn stand_in(&self, answer: &Answer, catalog: &Catalog) -> Result<String, PgError> {
        let places = self.places(answer)?;
        let mut columns = Vec::new();
        for (place, column) in answer.columns.iter().enumerate() {
            let value = match places.iter().position(|key| *key == place).and_then(|key| self.key.get(key)) {
                Some(key) => format!("shardgate_key.{}", quoted_identifier(&key.column)),
                None => format!("NULL::{}", type_name(column.type_oid, catalog)?),
            };
            columns.push(format!("{value} AS {}", quoted_identifier(&column.name)));
        }
        let alias = match &self.source.kind {
            super::StageKind::From { alias: Some(alias) } => format!(" AS {}", quoted_identifier(alias)),
            _ => String::new(),
        };
        Ok(format!(" (SELECT {} FROM {} AS shardgate_key){alias} ", columns.join(", "), self.target))
    }

    /// The rows that have a key, and INSERTs, which are never run, of rows with these keys: they go where such rows go.
    pub fn routed(&self, answer: &Answer, catalog: &Catalog) -> Result<(Vec<usize>, Vec<String>), PgError> {
        let places = self.places(answer)?;
        let mut types = Vec::new();
        for key in &self.key {
            types.push(type_name(key.type_oid, catalog)?);
        }
        let value = |row: &Vec<Option<String>>, column: &String| {
            let key = self.key.iter().position(|key| key.column == *column)?;
            let value = row.get(*places.get(key)?)?.as_deref()?;
            Some(format!("{}::{}", quoted_literal(value), types.get(key)?))
        };
        let has_key = |row: &Vec<Option<String>>| places.iter().all(|place| row.get(*place).is_some_and(Option::is_some));
        let rows: Vec<usize> = answer.rows.iter().enumerate().filter(|(_, row)| has_key(row)).map(|(place, _)| place).collect();
        let names: Vec<String> = self.columns.iter().map(|column| quoted_identifier(column)).collect();
        let head = format!("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ", self.target, names.join(", "));
        let listed = |place: &usize| {
            let values = self.columns.iter().map(|column| answer.rows.get(*place).and_then(|row| value(row, column)));
            format!("({})", values.map(|value| value.unwrap_or_else(|| "NULL".to_owned())).collect::<Vec<_>>().join(", "))
        };
        let text = |places: &[usize]| {
            let mut values: Vec<String> = places.iter().map(listed).collect();
            // Rows are split where there are several.
            values.extend((values.len() == 1).then(|| values.concat()));
            format!("{head}{}", values.join(", "))
        };
        let texts = rows.chunks(ROUTED_ROWS_MAX).map(text).collect();
        Ok((rows, texts))
    }

    /// Where the key's columns are among the source's.
    fn places(&self, answer: &Answer) -> Result<Vec<usize>, PgError> {
        let place_of = |key: &MergedKey| {
            let renamed = self.renamed.iter().position(|name| *name == key.source);
            let place = renamed.or_else(|| {
                let mut named = answer.columns.iter().enumerate().skip(self.renamed.len());
                named.find(|(_, column)| column.name == key.source).map(|(place, _)| place)
            })?;
            let source = answer.columns.get(place)?;
            // Other types might be equal and not go to the same shard.
            let is_same = |types: &[Oid]| types.contains(&source.type_oid) && types.contains(&key.type_oid);
            (source.type_oid == key.type_oid || ALIKE.iter().any(|types| is_same(types))).then_some(place)
        };
        self.key.iter().map(place_of).collect::<Option<_>>().ok_or_else(|| {
            PgError::unsupported(
                "MERGE by a column of another type than the shard key is not supported across shards",
                "The rows of its source are split by that column, so that each goes to the shard of its key.",
                "Cast the column to the type of the shard key in a sub-select: USING (SELECT id::bigint AS id, ...) s.",
            )
        })
    }
}

fn taking_values(relation: &Relation) -> Vec<String> {
    relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.clone()).collect()
}

/// The column of the source that ON says is equal to this one of the target.
fn compared(on: Node<'_>, (target, column): (&str, &str), source: &str) -> Option<String> {
    let mut waiting = vec![on];
    while let Some(node) = waiting.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == nodes::BoolExprType::AND_EXPR => waiting.extend(all.args().iter()),
            Node::A_Expr(equality)
                if equality.kind == nodes::A_Expr_Kind::AEXPR_OP && tree::single_name(equality.name()) == Some("=") =>
            {
                for (own, other) in [(equality.lexpr(), equality.rexpr()), (equality.rexpr(), equality.lexpr())] {
                    if let (Some([table, name]), Some([alias, found])) = (qualified(own), qualified(other))
                        && (table, name, alias) == (target, column, source)
                    {
                        return Some(found.to_owned());
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// `table.column`.
fn qualified(node: Node<'_>) -> Option<[&str; 2]> {
    let Node::ColumnRef(column) = node else { return None };
    tree::names(column.fields())?.try_into().ok()
}

/// Types whose equal values are one key.
const ALIKE: [&[Oid]; 2] = [&[oid::INT2, oid::INT4, oid::INT8], &[oid::TEXT, oid::VARCHAR]];
/// Keys of one text.
const ROUTED_ROWS_MAX: usize = 1_000;
