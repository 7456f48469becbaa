//! UPDATE of a shard key: the statement as a DELETE that returns the rows as they are to be, and an INSERT that makes them.
//!
//! That is the same as one UPDATE only where nothing looks at the difference: no trigger, rule, policy or reference to the
//! table. Every unique constraint has the shard key, so that a row can collide with one that the statement itself changes only
//! where old and new keys overlap; that is seen when the rows are there. Sub-selects are constants before; FROM becomes USING: like the
//! UPDATE the DELETE takes one of several rows that a row meets. What RETURNING has of FROM the DELETE returns, the rest of it the
//! INSERT. Pure; knows no shard.

use pg_raw_parse::{ConstValue, Node, nodes};

use super::returned::{Apart, Returned, Star, has_star, holds, is_expanded, is_query, is_star};
use crate::catalog::{Relation, quoted_identifier};
use crate::error::PgError;
use crate::shardmap::TableKind;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::query::{Resolved, resolve};

/// Two statements for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moving {
    /// DELETE … RETURNING the new values of every column, then the old values of the key's columns.
    pub delete: String,
    /// The INSERT up to its VALUES.
    pub insert: String,
    /// From RETURNING on, what the INSERT has of it; may be empty.
    pub returning: String,
    /// The items of RETURNING; empty where the INSERT has all.
    pub returned: Vec<Item>,
    /// Of these.
    pub stars: Vec<Star>,
    /// Places of the key's columns among the new values.
    pub key: Vec<usize>,
    /// How many new values there are.
    pub column_count: usize,
}

/// Of RETURNING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// So many columns of the INSERT.
    Own(usize),
    /// A column of the DELETE.
    Apart,
    /// The place of it among the stars.
    Star(usize),
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
        || update.returning_clause().is_none_or(|clause| clause.exprs().iter().all(|item| !holds(item, is_query)));
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
                    let apart = moving.returned.iter().filter(|item| **item == Item::Apart).count();
                    count == moving.column_count + moving.key.len() + apart + 2 * moving.stars.len()
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

/// What the INSERT returns and what the DELETE does.
#[derive(Default)]
struct Apartness {
    returning: String,
    returned: Vec<Item>,
    apart: Vec<String>,
    stars: Vec<Star>,
}

impl Apartness {
    fn add_star(&mut self, text: &str, own: usize) {
        self.returned.push(Item::Star(self.stars.len()));
        self.stars.push(Star { text: text.to_owned(), own });
    }
}

struct Pieces<'t> {
    context: &'t Context,
    tokens: Tokens<'t>,
}

impl Pieces<'_> {
    /// RETURNING names the row before or after the change (`old.a`, `new.a`, `WITH (OLD AS o)`): they are of two statements.
    fn names_versions(&self, returning: usize) -> bool {
        let is_column = |at: usize| self.tokens.piece(at - 1) == ".";
        let names = |at: usize| ["old", "new"].iter().any(|word| self.tokens.is_word(at, word)) && !is_column(at);
        self.tokens.is_word(returning + 1, "with") || (returning + 1..=self.last()).any(names)
    }

    fn moving(&self, update: &nodes::UpdateStmt, name: &nodes::RangeVar, relation: &Relation, key: &[&str]) -> Option<Moving> {
        let first = self.tokens.at_location(name.location)?;
        let set = self.tokens.word_at_top(first, &["set"])?;
        let filter = self.tokens.word_at_top(set, &["where"]);
        let returning = self.tokens.word_at_top(filter.unwrap_or(set), &["returning"]);
        if returning.is_some_and(|returning| self.names_versions(returning)) {
            return None;
        }
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
        let Apartness { returning, returned, apart, stars } = match (update.returning_clause(), from) {
            (Some(clause), Some(_)) => {
                let assigned = assigned.iter().map(|(name, _)| name.as_str()).collect();
                let target = Returned { relation, called: &called, assigned };
                self.returned(clause, &self.tokens.elements(returning? + 1, self.last())?, &target)?
            }
            _ => Apartness { returning: whole().unwrap_or_default(), ..Apartness::default() },
        };
        let stars_last: Vec<String> = stars.iter().map(Star::expression).collect();
        Some(Moving {
            delete: format!(
                "{with}DELETE FROM {table} {using}{condition} RETURNING {}",
                [new, old, apart, stars_last].concat().join(", ")
            ),
            insert: format!("INSERT INTO {target} ({}){overriding}", listed.join(", ")),
            returning,
            returned,
            stars,
            key: key.iter().map(|key| columns.iter().position(|column| column == key)).collect::<Option<_>>()?,
            column_count: columns.len(),
        })
    }

    fn returned(&self, clause: &nodes::ReturningClause, pieces: &[(usize, usize)], target: &Returned<'_>) -> Option<Apartness> {
        let items = clause.exprs();
        (items.len() == pieces.len()).then_some(())?;
        let width = target.relation.columns.len();
        let whole = format!("{}.*", target.called);
        let mut own = Vec::new();
        let mut made = Apartness::default();
        for (item, range) in items.iter().zip(pieces) {
            let Node::ResTarget(item) = item else { return None };
            if is_expanded(item.val()) {
                return None;
            }
            let text = self.tokens.slice(range.0, range.1)?;
            if is_star(item.val()) {
                own.push(whole.as_str());
                made.returned.push(Item::Own(width));
                made.add_star(text, width);
            } else if !holds(item.val(), |node| target.is_other(node, true)) {
                own.push(text);
                made.returned.push(Item::Own(if has_star(item.val()) { width } else { 1 }));
            } else {
                let Apart { first, last, name } = target.apart(&self.tokens, item, *range)?;
                if has_star(item.val()) {
                    made.add_star(text, 0);
                    continue;
                }
                let name = name.map(|name| format!(" AS {}", quoted_identifier(&name))).unwrap_or_default();
                made.apart.push(format!("{}{name}", self.tokens.slice(first, last)?));
                made.returned.push(Item::Apart);
            }
        }
        made.returning = if own.is_empty() { String::new() } else { format!("RETURNING {}", own.join(", ")) };
        Some(made)
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
            let has_subquery = holds(target.val(), is_query);
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
