//! UPDATE of a shard key: the statement as a DELETE that returns the rows as they are to be, and an INSERT that makes them.
//!
//! That is the same as one UPDATE only where nothing looks at the difference: no trigger, rule, policy or reference to the
//! table. Every unique constraint has the shard key, so that a row can collide with one that the statement itself changes only
//! where old and new keys overlap; that is seen when the rows are there. Sub-selects are constants before; FROM becomes USING: like the
//! UPDATE the DELETE takes one of several rows that a row meets. What RETURNING has of FROM the DELETE returns, the rest of it the
//! INSERT. Pure; knows no shard.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::context::Context;
use super::parse;
use super::query::{Resolved, resolve};
use super::returned::{Apart, Returned, has_star, holds, is_star};
use super::tokens::{Tokens, may_spell_names};
use crate::catalog::{Relation, quoted_identifier};
use crate::error::PgError;
use crate::shardmap::TableKind;

/// Two statements for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// DELETE … RETURNING the new values of every column, then the old values of the key's columns.
    pub delete: String,
    /// The INSERT up to its VALUES.
    pub insert: String,
    /// From RETURNING on, what the INSERT has of it; may be empty.
    pub returning: String,
    /// For each column of RETURNING whether the DELETE has it; empty where the INSERT has all.
    pub returned: Vec<bool>,
    /// Places of the key's columns among the new values.
    pub key: Vec<usize>,
    /// How many new values there are.
    pub column_count: usize,
}

/// `text`: one UPDATE alone. `None`: it assigns no column of the key, it is not about one sharded table in a form that is known, or something looks at the
/// difference.
pub fn moving(text: &str, context: &Context) -> Result<Option<Moving>, PgError> {
    if may_spell_names(text) {
        return Ok(None);
    }
    let parsed = parse::parse(text)?;
    let mut statements = parsed.stmts();
    let (Some(Node::UpdateStmt(update)), None) = (statements.next(), statements.next()) else { return Ok(None) };
    // The INSERT has no WITH.
    let is_plain = update.with_clause().is_none()
        || update
            .returning_clause()
            .is_none_or(|clause| clause.exprs().iter().all(|item| !holds(item, |node| matches!(node, Node::SubLink(_)))));
    let Some(name) = update.relation().filter(|name| is_plain && name.inh) else { return Ok(None) };
    let Resolved::Sharded { table, relation, .. } = resolve(context, name, &context.search_path) else { return Ok(None) };
    let TableKind::Sharded { key, .. } = &table.kind else { return Ok(None) };
    if is_watched(relation, context) || matches!(update.where_clause(), Node::CurrentOfExpr(_)) {
        return Ok(None);
    }
    let pieces = Pieces { context, tokens: Tokens::of(text) };
    let made = pieces.moving(update, name, relation, &key.iter().map(|key| key.column.as_str()).collect::<Vec<_>>());
    // What was made must be read as what it is meant to be.
    let is_read = |moving: &Moving| {
        let is_delete = parse::parse(&moving.delete).is_ok_and(|parsed| {
            parsed.stmts().next().is_some_and(|node| match node {
                Node::DeleteStmt(delete) => {
                    let count = delete.returning_clause().map_or(0, |clause| clause.exprs().len());
                    let apart = moving.returned.iter().filter(|is_apart| **is_apart).count();
                    count == moving.column_count + moving.key.len() + apart
                }
                _ => false,
            })
        });
        is_delete && parse::parse(&format!("{} VALUES (1) {}", moving.insert, moving.returning)).is_ok()
    };
    Ok(made.filter(is_read))
}

/// Something would see a DELETE and an INSERT, or would not let them.
fn is_watched(relation: &Relation, context: &Context) -> bool {
    let is_referred_to =
        context.catalog.relations.values().any(|other| other.foreign_keys.iter().any(|key| key.referenced == relation.oid));
    !relation.stands_alone() || is_referred_to || relation.columns.iter().any(|column| context.catalog.has_cast_from_text(column))
}

struct Pieces<'t> {
    context: &'t Context,
    tokens: Tokens<'t>,
}

impl Pieces<'_> {
    fn moving(&self, update: &nodes::UpdateStmt, name: &nodes::RangeVar, relation: &Relation, key: &[&str]) -> Option<Moving> {
        let first = self.tokens.at_location(name.location)?;
        let set = self.tokens.word_at_top(first, &["set"])?;
        let filter = self.tokens.word_at_top(set, &["where"]);
        let returning = self.tokens.word_at_top(filter.unwrap_or(set), &["returning"]);
        let end = self.end(returning);
        let from = if update.from_clause().is_empty() { None } else { Some(self.tokens.from_at_top(set)?) };
        let assigned = self.assignments(update, set + 1, from.or(filter).or(returning))?;
        // Anything else that cannot run on several shards is not about moving rows.
        assigned.iter().any(|(name, _)| key.contains(&name.as_str())).then_some(())?;
        let table = self.tokens.slice(first, set.checked_sub(1)?)?;
        let called = match name.alias() {
            Some(alias) => quoted_identifier(alias.aliasname()?),
            None => quoted_identifier(name.relname()?),
        };
        let columns: Vec<&str> =
            relation.columns.iter().filter(|column| !column.is_generated).map(|column| column.name.as_str()).collect();
        let value = |column: &&str| match assigned.iter().find(|(name, _)| name == column) {
            // Old and new keys are compared as values of the column's type.
            Some((name, value)) if key.contains(&name.as_str()) && is_string(update, name) => {
                let type_name = self.type_name(relation, name).unwrap_or_default();
                format!("({value}{type_name})")
            }
            Some((_, value)) => format!("({value})"),
            None => format!("{called}.{}", quoted_identifier(column)),
        };
        let new: Vec<String> = columns.iter().map(value).collect();
        let old: Vec<String> = key.iter().map(|column| format!("{called}.{}", quoted_identifier(column))).collect();
        let condition = match filter {
            Some(filter) => self.tokens.text().get(self.tokens.get(filter)?.start..end)?,
            None => "",
        };
        let using = match from {
            Some(from) => {
                let last = filter.unwrap_or(self.last()).checked_sub(1)?;
                format!("USING {} ", self.tokens.slice(from + 1, last)?)
            }
            None => String::new(),
        };
        let has_identity = relation.columns.iter().any(|column| column.identity.is_some());
        let overriding = if has_identity { " OVERRIDING SYSTEM VALUE" } else { "" };
        let given = self.tokens.slice(first, self.tokens.name_end(first))?;
        let target = match name.alias() {
            Some(_) => format!("{given} AS {called}"),
            None => given.to_owned(),
        };
        let listed: Vec<String> = columns.iter().map(|column| quoted_identifier(column)).collect();
        let with = self.tokens.text().get(..self.tokens.get(self.tokens.word_at_top(0, &["update"])?)?.start)?;
        let whole = || self.tokens.text().get(self.tokens.get(returning?)?.start..self.whole_end()).map(str::to_owned);
        let (returning, returned, apart) = match (update.returning_clause(), from) {
            (Some(clause), Some(_)) => {
                let assigned = assigned.iter().map(|(name, _)| name.as_str()).collect();
                let target = Returned { relation, called: &called, assigned };
                self.returned(clause, &self.tokens.elements(returning? + 1, self.last())?, &target)?
            }
            _ => (whole().unwrap_or_default(), Vec::new(), Vec::new()),
        };
        Some(Moving {
            delete: format!("{with}DELETE FROM {table} {using}{condition} RETURNING {}", [new, old, apart].concat().join(", ")),
            insert: format!("INSERT INTO {target} ({}){overriding}", listed.join(", ")),
            returning,
            returned,
            key: key.iter().map(|key| columns.iter().position(|column| column == key)).collect::<Option<_>>()?,
            column_count: columns.len(),
        })
    }

    /// What the INSERT returns, which items the DELETE does, and these.
    fn returned(
        &self,
        clause: &nodes::ReturningClause,
        pieces: &[(usize, usize)],
        target: &Returned<'_>,
    ) -> Option<(String, Vec<bool>, Vec<String>)> {
        let items = clause.exprs();
        (items.len() == pieces.len()).then_some(())?;
        let (mut own, mut returned, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for (item, range) in items.iter().zip(pieces) {
            let Node::ResTarget(item) = item else { return None };
            if is_star(item.val()) {
                return None;
            }
            let is_apart = holds(item.val(), |node| target.is_other(node, true));
            let width = if has_star(item.val()) { target.relation.columns.len() } else { 1 };
            returned.extend(std::iter::repeat_n(is_apart, width));
            match is_apart {
                true => {
                    let Apart { first, last, name } = target.apart(&self.tokens, item, *range)?;
                    let name = name.map(|name| format!(" AS {}", quoted_identifier(&name))).unwrap_or_default();
                    apart.push(format!("{}{name}", self.tokens.slice(first, last)?));
                }
                false => own.push(self.tokens.slice(range.0, range.1)?),
            }
        }
        let returning = if own.is_empty() { String::new() } else { format!("RETURNING {}", own.join(", ")) };
        Some((returning, returned, apart))
    }

    /// `column = expression`, each by its column.
    fn assignments(&self, update: &nodes::UpdateStmt, first: usize, end: Option<usize>) -> Option<Vec<(String, String)>> {
        let pieces = self.tokens.elements(first, end.unwrap_or(self.last()))?;
        if pieces.len() != update.target_list().len() {
            return None;
        }
        let assignment = |(target, (start, end)): (&nodes::ResTarget, (usize, usize))| {
            let is_plain =
                target.indirection().is_empty() && !matches!(target.val(), Node::SetToDefault(_) | Node::MultiAssignRef(_));
            let has_subquery = holds(target.val(), |node| matches!(node, Node::SubLink(_)));
            (is_plain && !has_subquery && self.tokens.piece(start + 1) == "=").then_some(())?;
            Some((target.name()?.to_owned(), self.tokens.slice(start + 2, end)?.to_owned()))
        };
        update.target_list().iter().zip(pieces).map(assignment).collect()
    }

    /// A cast to the column's type, without its length.
    fn type_name(&self, relation: &Relation, column: &str) -> Option<String> {
        let found = self.context.catalog.types.get(&relation.column(column)?.type_oid)?;
        Some(format!("::{}.{}", quoted_identifier(&found.schema), quoted_identifier(&found.name)))
    }

    /// Index after the last token of the statement.
    fn last(&self) -> usize {
        match self.tokens.piece(self.tokens.count().saturating_sub(1)) {
            ";" => self.tokens.count() - 1,
            _ => self.tokens.count(),
        }
    }

    fn whole_end(&self) -> usize {
        self.last().checked_sub(1).and_then(|last| self.tokens.get(last)).map_or(self.tokens.text().len(), |token| token.end)
    }

    /// Where what stands before RETURNING ends.
    fn end(&self, returning: Option<usize>) -> usize {
        match returning.and_then(|returning| self.tokens.get(returning)) {
            Some(token) => token.start,
            None => self.whole_end(),
        }
    }
}

/// Is a string assigned to the column, whose type the column decides?
fn is_string(update: &nodes::UpdateStmt, column: &str) -> bool {
    let assignment = update.target_list().iter().find(|target| target.name() == Some(column));
    assignment.is_some_and(|target| match target.val() {
        Node::A_Const(constant) => matches!(constant.val(), Some(ConstValue::String(_))),
        _ => false,
    })
}
