//! UPDATE and DELETE whose sub-selects name the outer row and reach other shards: a query chooses the rows and computes their new
//! values, and the write is about these rows alone.
//!
//! ```text
//!   DELETE FROM t WHERE NOT EXISTS (SELECT FROM o WHERE o.t = t.id)
//!     SELECT t.id FROM t WHERE NOT EXISTS (…)                          the candidates
//!     SELECT 1 FROM t WHERE t.id IN (…) FOR UPDATE                     from here on they are as they are
//!     SELECT t.id FROM t WHERE (NOT EXISTS (…)) AND t.id IN (…)        those that still are to be written
//!     DELETE FROM t USING (VALUES …) AS rows WHERE t.id = rows.id
//! ```
//! PostgreSQL looks once more, too, at a row that somebody else has changed while it waited for it. Rows are known by their primary
//! key. Pure; knows no shard.

use pg_raw_parse::list::CastNodeList;
use pg_raw_parse::{Node, nodes};

use super::analysis::Splice;
use super::context::Context;
use super::parse;
use super::query::resolve;
use super::staging::spliced;
use super::tokens::Tokens;
use super::tree;
use crate::catalog::{Relation, RelationKind, quoted_identifier};
use crate::error::PgError;

/// The statements for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    verb: &'static str,
    /// The table as the statement calls it, and what that makes of a column's name.
    target: String,
    called: String,
    /// Quoted names of the primary key's columns.
    key: Vec<String>,
    condition: Option<String>,
    /// Columns that get a computed value, and the expressions, sub-selects in them.
    computed: Vec<(String, String)>,
    /// `column = expression`, without sub-selects.
    assignments: Vec<String>,
    /// From RETURNING on; may be empty.
    returning: String,
    /// Its rows may be written in several statements.
    pub may_batch: bool,
}

/// `text`: one UPDATE or DELETE alone. `None`: it is not about one table in a form that is known.
pub fn chosen(text: &str, context: &Context) -> Result<Option<Chosen>, PgError> {
    let parsed = parse::parse(text)?;
    let mut statements = parsed.stmts();
    let made = match (statements.next(), statements.next()) {
        (Some(Node::UpdateStmt(update)), None) if update.with_clause().is_none() && update.from_clause().is_empty() => {
            let parts = Parts { assigned: Some(update.target_list()), condition: update.where_clause() };
            update.relation().and_then(|name| parts.chosen(text, name, update.returning_clause(), context))
        }
        (Some(Node::DeleteStmt(delete)), None) if delete.with_clause().is_none() && delete.using_clause().is_empty() => {
            let parts = Parts { assigned: None, condition: delete.where_clause() };
            delete.relation().and_then(|name| parts.chosen(text, name, delete.returning_clause(), context))
        }
        _ => None,
    };
    // What was made must be read as what it is meant to be.
    Ok(made.filter(|chosen| {
        let texts = [chosen.query(None), chosen.lock(" IN (1)"), chosen.write("(SELECT 1) AS x", " IN (1)")];
        texts.iter().all(|text| parse::parse(text).is_ok_and(|parsed| parsed.stmts().count() == 1))
    }))
}

impl Chosen {
    pub fn key_width(&self) -> usize {
        self.key.len()
    }

    /// Columns of [`Chosen::query`].
    pub fn width(&self) -> usize {
        self.key.len() + self.computed.len()
    }

    /// The keys of the rows, then their new values. `among`: of those whose keys are in this list (`IN (…)`).
    pub fn query(&self, among: Option<&str>) -> String {
        let keys = self.key.iter().enumerate().map(|(index, name)| format!("{}.{name} AS {}", self.called, key_name(index)));
        let values = self.computed.iter().enumerate().map(|(index, (_, value))| format!("({value}) AS {}", value_name(index)));
        let conditions: Vec<String> = self
            .condition
            .iter()
            .map(|condition| format!("({condition})"))
            .chain(among.map(|among| format!("{}{among}", self.row())))
            .collect();
        let filter = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
        format!("SELECT {} FROM {}{filter}", keys.chain(values).collect::<Vec<_>>().join(", "), self.target)
    }

    /// Locks rows as the write will.
    pub fn lock(&self, among: &str) -> String {
        let strength = if self.verb == "DELETE" { "UPDATE" } else { "NO KEY UPDATE" };
        format!("SELECT 1 FROM {} WHERE {}{among} FOR {strength}", self.target, self.row())
    }

    /// `rows`: a table [`ROWS`] of what the query has answered.
    pub fn write(&self, rows: &str, among: &str) -> String {
        let rows_name = quoted_identifier(ROWS);
        let joined = self
            .key
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{}.{name} OPERATOR(pg_catalog.=) {rows_name}.{}", self.called, key_name(index)));
        let filter: Vec<String> = joined.chain(std::iter::once(format!("{}{among}", self.row()))).collect();
        let filter = filter.join(" AND ");
        if self.verb == "DELETE" {
            return format!("DELETE FROM {} USING {rows} WHERE {filter} {}", self.target, self.returning);
        }
        let values = self.computed.iter().enumerate();
        let values = values.map(|(index, (column, _))| format!("{column} = {rows_name}.{}", value_name(index)));
        let assignments: Vec<String> = self.assignments.iter().cloned().chain(values).collect();
        format!("UPDATE {} SET {} FROM {rows} WHERE {filter} {}", self.target, assignments.join(", "), self.returning)
    }

    /// `UPDATE 3`.
    pub fn tag(&self, count: u64) -> String {
        format!("{} {count}", self.verb)
    }

    fn row(&self) -> String {
        let columns: Vec<String> = self.key.iter().map(|name| format!("{}.{name}", self.called)).collect();
        if columns.len() == 1 { columns.concat() } else { format!("({})", columns.join(", ")) }
    }
}

/// Of the statement's tree.
struct Parts<'n> {
    /// By UPDATE.
    assigned: Option<&'n CastNodeList<nodes::ResTarget>>,
    condition: Node<'n>,
}

impl Parts<'_> {
    fn chosen(
        &self,
        text: &str,
        name: &nodes::RangeVar,
        returned: Option<&nodes::ReturningClause>,
        context: &Context,
    ) -> Option<Chosen> {
        let relation = resolve(context, name, &context.search_path).table()?;
        // A trigger of the statement fires even when no row is chosen.
        let is_plain = relation.kind == RelationKind::Table
            && relation.parents.is_empty()
            && relation.children.is_empty()
            && relation.rules.is_empty()
            && relation.triggers.iter().all(|trigger| trigger.is_row);
        if !name.inh || !is_plain || matches!(self.condition, Node::CurrentOfExpr(_)) {
            return None;
        }
        let tokens = Tokens::of(text);
        let first = tokens.at_location(name.location)?;
        let set = match self.assigned {
            Some(_) => Some(tokens.word_at_top(first, &["set"])?),
            None => None,
        };
        let filter = match self.condition {
            Node::None => None,
            _ => Some(tokens.word_at_top(set.unwrap_or(first), &["where"])?),
        };
        let returning = match returned {
            Some(_) => Some(tokens.word_at_top(filter.or(set).unwrap_or(first), &["returning"])?),
            None => None,
        };
        let end = if tokens.piece(tokens.count().checked_sub(1)?) == ";" { tokens.count() - 1 } else { tokens.count() };
        let called = match name.alias() {
            Some(alias) => quoted_identifier(alias.aliasname()?),
            None => quoted_identifier(name.relname()?),
        };
        let until = |next: [Option<usize>; 3]| next.into_iter().flatten().next().unwrap_or(end);
        let mut computed = Vec::new();
        let mut assignments = Vec::new();
        if let (Some(targets), Some(set)) = (self.assigned, set) {
            let pieces = tokens.elements(set + 1, until([filter, returning, None]))?;
            if pieces.len() != targets.len() {
                return None;
            }
            for (target, (start, last)) in targets.iter().zip(pieces) {
                if !has_sub_select(target.val()) {
                    assignments.push(tokens.slice(start, last)?.to_owned());
                    continue;
                }
                let is_plain = target.indirection().is_empty() && tokens.piece(start + 1) == "=";
                is_plain.then_some(())?;
                computed.push((quoted_identifier(target.name()?), tokens.slice(start + 2, last)?.to_owned()));
            }
        }
        let condition = match filter {
            Some(filter) => Some(tokens.slice(filter + 1, until([returning, None, None]).checked_sub(1)?)?.to_owned()),
            None => None,
        };
        let returning_text = match (returning, returned) {
            (Some(returning), Some(returned)) => returned_columns(&tokens, returning, end, returned, &called)?,
            _ => String::new(),
        };
        Some(Chosen {
            verb: if set.is_some() { "UPDATE" } else { "DELETE" },
            target: tokens.slice(first, until([set, filter, returning]).checked_sub(1)?)?.to_owned(),
            called,
            key: primary_key(relation)?,
            condition,
            computed,
            assignments,
            may_batch: returning_text.is_empty()
                && relation.triggers.is_empty()
                && relation.foreign_keys.iter().all(|key| key.referenced != relation.oid),
            returning: returning_text,
        })
    }
}

/// RETURNING, whose star must not take in the columns of the rows' table.
fn returned_columns(
    tokens: &Tokens<'_>,
    returning: usize,
    end: usize,
    clause: &nodes::ReturningClause,
    called: &str,
) -> Option<String> {
    let whole = tokens.range(returning, end.checked_sub(1)?)?;
    let mut stars = Vec::new();
    for target in clause.exprs() {
        if let Node::ResTarget(target) = target
            && let Node::ColumnRef(column) = target.val()
            && column.fields().iter().count() == 1
            && matches!(column.fields().iter().next(), Some(Node::A_Star(_)))
        {
            let star = tokens.range(tokens.at_location(column.location)?, tokens.at_location(column.location)?)?;
            let (start, end) = (star.start.checked_sub(whole.start)?, star.end.checked_sub(whole.start)?);
            stars.push(Splice { start, end, text: format!("{called}.*") });
        }
    }
    Some(spliced(tokens.text().get(whole)?, &stars))
}

fn has_sub_select(root: Node<'_>) -> bool {
    let mut found = false;
    tree::walk(root, &mut |node| {
        found |= matches!(node, Node::SubLink(_) | Node::MultiAssignRef(_));
        true
    });
    found
}

fn primary_key(relation: &Relation) -> Option<Vec<String>> {
    let primary = relation.uniques.iter().find(|unique| unique.is_primary)?;
    primary.columns.iter().map(|column| column.as_deref().map(quoted_identifier)).collect()
}

fn key_name(index: usize) -> String {
    quoted_identifier(&format!("shardgate key {index}"))
}

fn value_name(index: usize) -> String {
    quoted_identifier(&format!("shardgate value {index}"))
}

/// What the table of the rows is called in a write.
pub const ROWS: &str = "shardgate chosen";
