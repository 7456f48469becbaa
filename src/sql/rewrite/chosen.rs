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
//! key. Where FROM or USING stands, the query has all of it and computes whatever is made of its columns; a row that meets several
//! takes one of them, as in PostgreSQL. What RETURNING computes of other tables the query computes, too. Pure; knows no shard.

use pg_raw_parse::list::{CastNodeList, NodeList};
use pg_raw_parse::{Node, nodes};

use super::returned::{Apart, Returned, Star, has_star, holds, is_expanded, is_query, is_star};
use crate::catalog::{Relation, RelationKind, quoted_identifier};
use crate::error::PgError;
use crate::shardmap::TableKind;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::{Tokens, may_spell_names};
use crate::sql::query::{Nature, nature, resolve};

/// The statements for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    verb: &'static str,
    /// The table as the statement calls it, and what that makes of a column's name.
    target: String,
    called: String,
    /// Quoted names of the primary key's columns.
    key: Vec<String>,
    /// What stands in FROM or USING.
    from: Option<String>,
    /// Sub-selects of several values, as joins.
    rows: Vec<String>,
    condition: Option<String>,
    /// Columns that get a computed value, and the expressions; `None`: RETURNING has it.
    computed: Vec<(Option<String>, String)>,
    /// `column = expression`, without sub-selects.
    assignments: Vec<String>,
    /// The items of RETURNING; may be empty.
    returning: Vec<Item>,
    /// Of these.
    pub stars: Vec<Star>,
    /// Its rows may be written in several statements.
    pub may_batch: bool,
    /// Of a reference table: each shard has them.
    pub is_copied: bool,
}

/// Of RETURNING.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Text(String),
    /// The place of it among the stars.
    Star(usize),
}

/// `text`: one UPDATE or DELETE alone. `None`: it is not about one table in a form that is known.
pub fn chosen(text: &str, context: &Context) -> Result<Option<Chosen>, PgError> {
    if may_spell_names(text) {
        return Ok(None);
    }
    let parsed = parse::parse(text)?;
    let mut statements = parsed.stmts();
    let made = match (statements.next(), statements.next()) {
        (Some(Node::UpdateStmt(update)), None) if update.with_clause().is_none() => {
            let (assigned, from) = (Some(update.target_list()), update.from_clause());
            let parts = Parts { assigned, from, condition: update.where_clause() };
            update.relation().and_then(|name| parts.chosen(text, name, update.returning_clause(), context))
        }
        (Some(Node::DeleteStmt(delete)), None) if delete.with_clause().is_none() => {
            let parts = Parts { assigned: None, from: delete.using_clause(), condition: delete.where_clause() };
            delete.relation().and_then(|name| parts.chosen(text, name, delete.returning_clause(), context))
        }
        _ => None,
    };
    // What was made must be read as what it is meant to be.
    Ok(made.filter(|chosen| {
        let names = vec![vec!["x".to_owned()]; chosen.stars.len()];
        let texts = [chosen.query(None), chosen.lock(" IN (1)"), chosen.write("(SELECT 1) AS x", " IN (1)", &names)];
        texts.iter().all(|text| parse::parse(text).is_ok_and(|parsed| parsed.stmts().count() == 1))
    }))
}

impl Chosen {
    pub fn key_width(&self) -> usize {
        self.key.len()
    }

    /// The keys of the rows, then their new values, then the stars. `among`: of those whose keys are in this list (`IN (…)`).
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
        let from = self.from.iter().map(|from| format!(", {from}")).chain(self.rows.iter().cloned()).collect::<String>();
        let list: Vec<String> = keys.chain(values).chain(self.stars.iter().map(Star::expression)).collect();
        format!("SELECT {} FROM {}{from}{filter}", list.join(", "), self.target)
    }

    /// Locks rows as the write will.
    pub fn lock(&self, among: &str) -> String {
        let strength = if self.verb == "DELETE" { "UPDATE" } else { "NO KEY UPDATE" };
        format!("SELECT 1 FROM {} WHERE {}{among} FOR {strength}", self.target, self.row())
    }

    /// `rows`: a table [`ROWS`] of what the query has answered. `starred`: names of the columns of each star, which are called
    /// [`star_name`] there.
    pub fn write(&self, rows: &str, among: &str, starred: &[Vec<String>]) -> String {
        let rows_name = quoted_identifier(ROWS);
        let joined = self
            .key
            .iter()
            .enumerate()
            .map(|(index, name)| format!("{}.{name} OPERATOR(pg_catalog.=) {rows_name}.{}", self.called, key_name(index)));
        let filter: Vec<String> = joined.chain(std::iter::once(format!("{}{among}", self.row()))).collect();
        let filter = filter.join(" AND ");
        if self.verb == "DELETE" {
            return format!("DELETE FROM {} USING {rows} WHERE {filter} {}", self.target, self.returning(starred));
        }
        let values = self.computed.iter().enumerate().filter_map(|(index, (column, _))| Some((index, column.as_ref()?)));
        let values = values.map(|(index, column)| format!("{column} = {rows_name}.{}", value_name(index)));
        let assignments: Vec<String> = self.assignments.iter().cloned().chain(values).collect();
        let returning = self.returning(starred);
        format!("UPDATE {} SET {} FROM {rows} WHERE {filter} {returning}", self.target, assignments.join(", "))
    }

    fn returning(&self, starred: &[Vec<String>]) -> String {
        let rows = quoted_identifier(ROWS);
        let items: Vec<String> = self
            .returning
            .iter()
            .flat_map(|item| match item {
                Item::Text(text) => vec![text.clone()],
                Item::Star(star) => {
                    let names = starred.get(*star).into_iter().flatten().enumerate();
                    let column = |(place, name): (usize, &String)| {
                        format!("{rows}.{} AS {}", quoted_identifier(&star_name(*star, place)), quoted_identifier(name))
                    };
                    names.map(column).collect()
                }
            })
            .collect();
        if items.is_empty() { String::new() } else { format!("RETURNING {}", items.join(", ")) }
    }

    /// A row of the table comes at most once from the query: else a sub-select had several rows.
    pub fn is_single(&self) -> bool {
        !self.rows.is_empty()
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
    from: &'n NodeList,
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
        let from = match (self.from.is_empty(), set) {
            (true, _) => None,
            (false, Some(set)) => Some(tokens.from_at_top(set)?),
            (false, None) => Some(tokens.word_at_top(first, &["using"])?),
        };
        let filter = match self.condition {
            Node::None => None,
            _ => Some(tokens.word_at_top(from.or(set).unwrap_or(first), &["where"])?),
        };
        let returning = match returned {
            Some(_) => Some(tokens.word_at_top(filter.or(from).or(set).unwrap_or(first), &["returning"])?),
            None => None,
        };
        let end = if tokens.piece(tokens.count().checked_sub(1)?) == ";" { tokens.count() - 1 } else { tokens.count() };
        let called = match name.alias() {
            Some(alias) => quoted_identifier(alias.aliasname()?),
            None => quoted_identifier(name.relname()?),
        };
        let until = |next: &[Option<usize>]| next.iter().copied().flatten().next().unwrap_or(end);
        let mut values = Values {
            tokens: &tokens,
            has_from: from.is_some(),
            computed: Vec::new(),
            plain: Vec::new(),
            rows: Vec::new(),
            stars: Vec::new(),
        };
        if let (Some(targets), Some(set)) = (self.assigned, set) {
            values.assign(targets, &tokens.elements(set + 1, until(&[from, filter, returning]))?)?;
        }
        let from_text = match from {
            Some(from) => Some(tokens.slice(from + 1, until(&[filter, returning]).checked_sub(1)?)?.to_owned()),
            None => None,
        };
        let condition = match filter {
            Some(filter) => Some(tokens.slice(filter + 1, until(&[returning]).checked_sub(1)?)?.to_owned()),
            None => None,
        };
        let items = match (returning, returned) {
            (Some(returning), Some(returned)) => {
                let assigned: Vec<&str> =
                    self.assigned.iter().flat_map(|it| it.iter()).filter_map(nodes::ResTarget::name).collect();
                let target = Returned { relation, called: &called, assigned };
                values.returned(returned, &tokens.elements(returning + 1, end)?, &target)?
            }
            _ => Vec::new(),
        };
        if [&from_text, &condition].into_iter().flatten().any(|text| draws_anew(text, context)) {
            // They are evaluated twice.
            return None;
        }
        let table = context.map.table(&relation.schema, &relation.name);
        Some(Chosen {
            is_copied: table.is_some_and(|table| matches!(table.kind, TableKind::Reference)),
            verb: if set.is_some() { "UPDATE" } else { "DELETE" },
            target: tokens.slice(first, until(&[set, from, filter, returning]).checked_sub(1)?)?.to_owned(),
            called,
            key: primary_key(relation)?,
            from: from_text,
            rows: values.rows,
            condition,
            computed: values.computed,
            assignments: values.plain,
            may_batch: items.is_empty()
                && relation.triggers.is_empty()
                && relation.foreign_keys.iter().all(|key| key.referenced != relation.oid),
            returning: items,
            stars: values.stars,
        })
    }
}

/// The values of a write, as they are found.
struct Values<'a, 't> {
    tokens: &'a Tokens<'t>,
    has_from: bool,
    computed: Vec<(Option<String>, String)>,
    plain: Vec<String>,
    rows: Vec<String>,
    stars: Vec<Star>,
}

impl Values<'_, '_> {
    fn assign(&mut self, targets: &CastNodeList<nodes::ResTarget>, pieces: &[(usize, usize)]) -> Option<()> {
        let mut targets = targets.iter();
        for (start, last) in pieces {
            if self.tokens.piece(*start) == "(" {
                self.assign_several(&mut targets, *start, *last)?;
                continue;
            }
            let target = targets.next()?;
            if !self.is_computed(target.val()) {
                self.plain.push(self.tokens.slice(*start, *last)?.to_owned());
                continue;
            }
            (target.indirection().is_empty() && self.tokens.piece(start + 1) == "=").then_some(())?;
            let column = Some(quoted_identifier(target.name()?));
            self.computed.push((column, self.tokens.slice(start + 2, *last)?.to_owned()));
        }
        targets.next().is_none().then_some(())
    }

    /// `(a, b) = (…)`.
    fn assign_several<'n>(
        &mut self,
        targets: &mut impl Iterator<Item = &'n nodes::ResTarget>,
        open: usize,
        last: usize,
    ) -> Option<()> {
        let close = self.tokens.closing(open)?;
        let count = self.tokens.elements(open + 1, close)?.len();
        let taken: Vec<&nodes::ResTarget> = targets.take(count).collect();
        let columns: Vec<String> = taken.iter().filter_map(|it| it.name().map(quoted_identifier)).collect();
        let is_plain = columns.len() == count && taken.iter().all(|target| target.indirection().is_empty());
        let Node::MultiAssignRef(assignment) = taken.first()?.val() else { return None };
        (is_plain && self.tokens.piece(close + 1) == "=").then_some(())?;
        let first = if self.tokens.is_word(close + 2, "row") { close + 3 } else { close + 2 };
        let end = self.tokens.closing(first).filter(|end| *end == last)?;
        match assignment.source() {
            // With other tables a row may come several times by itself.
            Node::SubLink(_) if !self.has_from => {
                let query = self.tokens.between(first, end)?;
                let alias = quoted_identifier(&format!("shardgate row {}", self.rows.len()));
                let names: Vec<String> = (0..count).map(|place| value_name(self.computed.len() + place)).collect();
                self.rows.push(format!(" LEFT JOIN LATERAL ({query}) AS {alias} ({}) ON true", names.join(", ")));
                self.computed.extend(columns.into_iter().map(Some).zip(names.iter().map(|name| format!("{alias}.{name}"))));
            }
            Node::RowExpr(row) => {
                let values = self.tokens.elements(first + 1, end)?;
                (values.len() == count && row.args().len() == count).then_some(())?;
                for ((column, value), (start, last)) in columns.into_iter().zip(row.args().iter()).zip(values) {
                    let text = self.tokens.slice(start, last)?;
                    if self.is_computed(value) {
                        self.computed.push((Some(column), text.to_owned()));
                    } else {
                        self.plain.push(format!("{column} = {text}"));
                    }
                }
            }
            _ => return None,
        }
        Some(())
    }

    fn is_computed(&self, value: Node<'_>) -> bool {
        holds(value, |node| {
            is_query(node) || matches!(node, Node::MultiAssignRef(_)) || self.has_from && matches!(node, Node::ColumnRef(_))
        })
    }

    /// RETURNING, whose star must not take in the columns of the rows' table.
    fn returned(&mut self, clause: &nodes::ReturningClause, pieces: &[(usize, usize)], target: &Returned<'_>) -> Option<Vec<Item>> {
        let items = clause.exprs();
        (items.len() == pieces.len()).then_some(())?;
        let mut made = Vec::new();
        for (item, (first, last)) in items.iter().zip(pieces) {
            let Node::ResTarget(item) = item else { return None };
            let text = self.tokens.slice(*first, *last)?;
            if is_star(item.val()) {
                made.push(Item::Text(format!("{}.*", target.called)));
                // What FROM has comes after the target's columns.
                made.extend(self.has_from.then(|| self.star(text, target.relation.columns.len())));
            } else if has_star(item.val()) && target.is_other(item.val(), self.has_from) {
                target.apart(self.tokens, item, (*first, *last))?;
                made.push(self.star(text, 0));
            } else if holds(item.val(), |node| target.is_other(node, self.has_from)) {
                if is_expanded(item.val()) {
                    return None;
                }
                made.push(Item::Text(self.returned_value(item, (*first, *last), target)?));
            } else {
                made.push(Item::Text(text.to_owned()));
            }
        }
        Some(made)
    }

    fn star(&mut self, text: &str, own: usize) -> Item {
        self.stars.push(Star { text: text.to_owned(), own });
        Item::Star(self.stars.len() - 1)
    }

    /// What the query computes for RETURNING, which is about the rows as they become: so it names nothing that changes.
    fn returned_value(&mut self, item: &nodes::ResTarget, range: (usize, usize), target: &Returned<'_>) -> Option<String> {
        let is_kept = target.assigned.is_empty() || !target.relation.triggers.iter().any(|trigger| trigger.fires_on.update);
        let Apart { first, last, name } = target.apart(self.tokens, item, range).filter(|_| is_kept)?;
        let name = name.map(|name| format!(" AS {}", quoted_identifier(&name))).unwrap_or_default();
        self.computed.push((None, self.tokens.slice(first, last)?.to_owned()));
        Some(format!("{}.{}{name}", quoted_identifier(ROWS), value_name(self.computed.len() - 1)))
    }
}

/// It calls, or may call, what gives another value each time.
fn draws_anew(text: &str, context: &Context) -> bool {
    let tokens = Tokens::of(text);
    (0..tokens.count()).filter(|index| tokens.piece(index + 1) == "(").any(|index| {
        let Some(name) = tokens.identifier(index) else { return false };
        let own = context.catalog.function_names.get(&name).into_iter().flatten();
        let is_volatile = own.filter_map(|oid| context.catalog.functions.get(oid)).any(|function| function.volatility == 'v');
        is_volatile || matches!(nature(&name, 0), Nature::Random)
    })
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

/// A column of a star.
pub fn star_name(star: usize, place: usize) -> String {
    format!("shardgate star {star} {place}")
}

/// What the table of the rows is called in a write.
pub const ROWS: &str = "shardgate chosen";
