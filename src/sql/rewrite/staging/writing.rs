//! Queries of WITH that write, of a statement over several shards: `WITH moved AS (DELETE FROM a … RETURNING *) INSERT INTO b …`.
//!
//! PostgreSQL runs all parts of such a statement on one snapshot: none sees what another has written, but for the rows that it
//! returns. Here they run one after the other, in one transaction. That is the same where no part looks at a table that one before
//! it has written, by itself or by what stands behind it: a trigger, a rule, a policy, a foreign key, a view, a function. Queries
//! that only read, and nothing of what is written, run before all that writes.

use std::collections::HashSet;
use std::ops::Range;

use pg_raw_parse::{Node, nodes};

use super::given_back::gives_back;
use super::{CteStage, is_under_with, spliced};
use crate::catalog::{Access, Closure, Oid, References, Relation, RelationKind, Trigger, TriggerEvents, Unique};
use crate::sql::analysis::Splice;
use crate::sql::body::SqlBodyReader;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::query::resolve;

/// One part of the statement: a query of WITH, or what follows it.
pub(super) struct Part<'t> {
    /// Of WITH, whose columns have the names that the query gives them.
    pub name: Option<&'t str>,
    pub text: &'t str,
    pub node: Node<'t>,
}

/// The places of queries of WITH in the order in which they run: those that only read come first where they name none that writes.
pub(super) fn reads_first(ctes: &[CteStage]) -> Vec<usize> {
    let names = |cte: &CteStage, other: &CteStage| is_under_with(&[(other.name.clone(), String::new())], &cte.stage.query);
    let (mut first, mut then): (Vec<usize>, Vec<usize>) = (Vec::new(), Vec::new());
    for (place, cte) in ctes.iter().enumerate() {
        let mut later = then.iter().filter_map(|other| ctes.get(*other));
        // One before it that has its name means a table.
        let is_free = !cte.writes && !later.any(|other| names(cte, other) || names(other, cte));
        if is_free { first.push(place) } else { then.push(place) }
    }
    [first, then].concat()
}

/// Running the parts in their order is running them at once.
pub(super) fn are_apart(parts: &[Part<'_>], context: &Context) -> bool {
    let Some(written) = parts.iter().map(|part| written(part.node, context)).collect::<Option<Vec<_>>>() else { return false };
    let all: Vec<&Relation> = written.iter().flatten().copied().collect();
    let mut writes = parts.iter().zip(&written).filter_map(|(part, relation)| Some((part, (*relation)?)));
    let is_alone = |relation: &Relation| all.iter().filter(|it| root(it, context).oid == root(relation, context).oid).count() == 1;
    if !writes.all(|(part, relation)| is_unwatched(relation, (events(part.node), is_alone(relation)), context))
        || meet_in_a_table(parts, &written, context)
    {
        return false;
    }
    // What comes after all writes, and reads no table, does not see what references have made of others.
    let is_seen = |(part, written): (&Part<'_>, &Option<&Relation>)| written.is_some() || names_tables(part.text, context);
    let last = parts.iter().zip(&written).rposition(is_seen).unwrap_or_default();
    let mut before: Vec<&Relation> = Vec::new();
    for (place, (part, written)) in parts.iter().zip(&written).enumerate() {
        let is_any_of = |family: &[&Relation], oid: Oid| family.iter().any(|member| member.oid == oid);
        let refers = |from: &Relation, to: &Relation| {
            let to = tree(to, context);
            let mut keys = tree(from, context).into_iter().flat_map(|member| &member.foreign_keys);
            keys.any(|key| is_any_of(&to, key.referenced))
        };
        let has_references =
            |relation: &Relation| tree(relation, context).into_iter().any(|member| !member.foreign_keys.is_empty());
        let is_broken = written.is_some_and(|relation| match part.node {
            // A row that a later part makes would be missing.
            Node::InsertStmt(_) => all.iter().any(|other| {
                let is_made =
                    root(other, context).oid == root(relation, context).oid || before.iter().any(|made| made.oid == other.oid);
                !is_made && refers(relation, other)
            }),
            // PostgreSQL looks at the references when all parts have run.
            _ => {
                let is_referred_to = context.catalog.relations.values().any(|other| refers(other, relation));
                place < last && (is_referred_to || matches!(part.node, Node::UpdateStmt(_)) && has_references(relation))
            }
        });
        if is_broken || mentions(&without_target(part), &before, context) {
            return false;
        }
        before.extend(written.iter().flat_map(|relation| tree(relation, context)));
    }
    true
}

/// What triggers may fire for. An UPDATE may move a row to another partition or shard.
fn events(write: Node<'_>) -> TriggerEvents {
    match write {
        Node::InsertStmt(insert) => match insert.on_conflict_clause().map(|conflict| conflict.action) {
            None | Some(nodes::OnConflictAction::ONCONFLICT_NOTHING) => TriggerEvents::INSERT,
            Some(_) => TriggerEvents::MOVE,
        },
        Node::DeleteStmt(_) => TriggerEvents::DELETE,
        _ => TriggerEvents::MOVE,
    }
}

/// Writing its rows is all that happens, also where these are in partitions: no trigger, rule or policy looks on. Where no other part
/// writes the table, a trigger of rows that looks at nothing but its row, as one that sets `updated_at`, is no matter.
fn is_unwatched(relation: &Relation, (events, is_alone): (TriggerEvents, bool), context: &Context) -> bool {
    let looks_on = |member: &Relation| {
        let mut fired = member.triggers.iter().filter(|trigger| trigger.fires_on.meets(events));
        fired.any(|trigger| !is_alone || !is_of_its_row(trigger, member, context))
    };
    let is_plain = |member: &Relation| !looks_on(member) && member.rules.is_empty() && !member.has_row_security;
    let has_no_family = relation.kind == RelationKind::Table && relation.parents.is_empty() && relation.children.is_empty();
    let is_whole = has_no_family || root(relation, context).kind == RelationKind::PartitionedTable;
    is_whole && tree(relation, context).into_iter().all(is_plain)
}

/// Neither its function nor its condition reads or writes tables, notifies or sets anything.
fn is_of_its_row(trigger: &Trigger, relation: &Relation, context: &Context) -> bool {
    let catalog = &context.catalog;
    // What an extension's does is not read.
    let is_read = catalog.functions.get(&trigger.function).is_some_and(|function| function.language == "plpgsql");
    let closure = catalog.closure_of_function(trigger.function, &SqlBodyReader);
    let condition = format!("condition of trigger \"{}\"", trigger.name);
    let parts = || catalog.closures_by_part(relation.oid, Access::Write, &SqlBodyReader);
    trigger.is_row
        && is_read
        && *closure == Closure::Known(References::default())
        && !catalog.function_notifies(trigger.function, &SqlBodyReader)
        && !catalog.function_sets_local(trigger.function, &SqlBodyReader)
        && !parts().iter().any(|part| part.name == condition)
}

pub(super) fn fires(relation: &Relation, events: TriggerEvents) -> bool {
    relation.triggers.iter().any(|trigger| trigger.fires_on.meets(events))
}

/// The table whose partitions hold its rows, if there is one, else itself.
fn root<'c>(relation: &'c Relation, context: &'c Context) -> &'c Relation {
    let mut root = relation;
    while let Some(parent) = root.parents.first().and_then(|parent| context.catalog.relations.get(parent)) {
        root = parent;
    }
    root
}

/// All that hold rows of the same table.
pub(super) fn tree<'c>(relation: &'c Relation, context: &'c Context) -> Vec<&'c Relation> {
    context.catalog.family(root(relation, context))
}

/// Two parts write one table, other than an UPDATE or DELETE and then an INSERT: that makes rows of its own, which the former does not
/// see either way, and whose keys an UPDATE can neither take nor free; for a DELETE see [`gives_back`].
fn meet_in_a_table(parts: &[Part<'_>], written: &[Option<&Relation>], context: &Context) -> bool {
    let written: Vec<(&Part<'_>, &Relation)> = parts.iter().zip(written).filter_map(|(part, it)| Some((part, (*it)?))).collect();
    let meets = |(place, (part, relation)): (usize, &(&Part<'_>, &Relation))| {
        let mut later = written.iter().skip(place + 1).filter(|(_, other)| root(other, context).oid == root(relation, context).oid);
        later.any(|(other, target)| {
            let is_apart = keeps_keys(part.node, relation, context) && only_adds(other.node);
            !is_apart && (target.oid != relation.oid || !gives_back(part, other, relation, context))
        })
    };
    written.iter().enumerate().any(meets)
}

/// An UPDATE that assigns no column of a unique constraint.
fn keeps_keys(node: Node<'_>, relation: &Relation, context: &Context) -> bool {
    let Node::UpdateStmt(update) = node else { return false };
    let is_plain = |unique: &&Unique| !unique.is_partial && unique.columns.iter().all(Option::is_some);
    let uniques: Vec<&Unique> = tree(relation, context).into_iter().flat_map(|member| &member.uniques).collect();
    let is_key = |name: &str| uniques.iter().any(|unique| unique.columns.iter().flatten().any(|column| column == name));
    uniques.iter().all(is_plain)
        && relation.columns.iter().all(|column| !(column.is_generated && is_key(&column.name)))
        && update.target_list().iter().all(|target| target.name().is_some_and(|name| !is_key(name)))
}

fn only_adds(node: Node<'_>) -> bool {
    let Node::InsertStmt(insert) = node else { return false };
    insert.on_conflict_clause().is_none_or(|clause| clause.action == nodes::OnConflictAction::ONCONFLICT_NOTHING)
}

/// The text of a part; of an INSERT, which does not read its target, without that.
fn without_target(part: &Part<'_>) -> String {
    let Node::InsertStmt(insert) = part.node else { return part.text.to_owned() };
    let tokens = Tokens::of(part.text);
    let name = insert.relation().filter(|name| name.alias().is_none());
    // The place of the target is one in the whole text.
    let into = tokens.word_at_top(0, &["into"]).filter(|_| name.is_some());
    let range = into.and_then(|into| tokens.range(into, tokens.name_end(into + 1)));
    range.map_or(part.text.to_owned(), |Range { start, end }| spliced(part.text, &[Splice { start, end, text: String::new() }]))
}

/// A query whose columns are those that a write returns.
pub fn returned(text: &str) -> Option<String> {
    let parsed = parse::parse(text).ok()?;
    let (name, with, from) = match parsed.stmts().next()? {
        Node::InsertStmt(insert) => (insert.relation()?, insert.with_clause(), None),
        Node::UpdateStmt(update) => {
            (update.relation()?, update.with_clause(), Some("from").filter(|_| !update.from_clause().is_empty()))
        }
        Node::DeleteStmt(delete) => {
            (delete.relation()?, delete.with_clause(), Some("using").filter(|_| !delete.using_clause().is_empty()))
        }
        _ => return None,
    };
    let tokens = Tokens::of(text);
    let first = tokens.at_location(name.location)?;
    let returning = tokens.word_at_top(first, &["returning"])?;
    let is_after = |index: usize| tokens.piece(index) == "(" || tokens.is_one_of(index, &AFTER_TARGET);
    let end = (first..returning).find(|index| is_after(*index)).unwrap_or(returning);
    let target = tokens.slice(first, end.checked_sub(1)?)?;
    let others = from.and_then(|word| match word {
        "from" => tokens.from_at_top(first),
        word => tokens.word_at_top(first, &[word]),
    });
    let others = others.and_then(|from| {
        let end = tokens.word_at_top(from, &["where", "returning"])?;
        tokens.slice(from + 1, end.checked_sub(1)?)
    });
    let others = others.map(|others| format!(", {others}")).unwrap_or_default();
    let last = (returning + 1..tokens.count()).rev().find(|index| tokens.piece(*index) != ";")?;
    let verb = tokens.word_at_top(0, &["insert", "update", "delete"])?;
    let head = if with.is_some() { text.get(..tokens.get(verb)?.start)? } else { "" };
    Some(format!("{head}SELECT {} FROM {target}{others}", tokens.slice(returning + 1, last)?))
}

/// The table that a part writes; the outer `None`: that is not known.
fn written<'c>(node: Node<'_>, context: &'c Context) -> Option<Option<&'c Relation>> {
    let name: &nodes::RangeVar = match node {
        Node::SelectStmt(_) => return Some(None),
        Node::InsertStmt(insert) => insert.relation()?,
        Node::UpdateStmt(update) => update.relation()?,
        Node::DeleteStmt(delete) => delete.relation()?,
        Node::MergeStmt(merge) => merge.relation()?,
        _ => return None,
    };
    resolve(context, name, &context.search_path).table().map(Some)
}

/// A word of the text may be one of these tables, or a view or function, which may read them.
fn mentions(text: &str, tables: &[&Relation], context: &Context) -> bool {
    let tokens = Tokens::of(text);
    let catalog = &context.catalog;
    let mut names = (0..tokens.count()).filter_map(|index| tokens.identifier(index));
    let is_view = |name: &str| {
        let mut named = catalog.relations.values().filter(|relation| relation.name == name);
        named.any(|relation| relation.view_definition.is_some())
    };
    !tables.is_empty()
        && names.any(|name| {
            tables.iter().any(|table| table.name == name) || catalog.function_names.contains_key(&name) || is_view(&name)
        })
}

/// A word of the text may be a table.
fn names_tables(text: &str, context: &Context) -> bool {
    let tokens = Tokens::of(text);
    let names: HashSet<String> = (0..tokens.count()).filter_map(|index| tokens.identifier(index)).collect();
    context.catalog.relations.values().any(|relation| names.contains(&relation.name))
        || names.iter().any(|name| context.catalog.function_names.contains_key(name))
}

/// Words that end the name of what is written, and its alias.
const AFTER_TARGET: [&str; 9] = ["default", "overriding", "select", "set", "table", "using", "values", "where", "with"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_write_returns_is_a_query_of_its_tables() {
        for (text, query) in [
            ("DELETE FROM a RETURNING *", "SELECT * FROM a"),
            ("DELETE FROM s.a AS x USING b, c d WHERE x.id = b.id RETURNING x.*, b.id;", "SELECT x.*, b.id FROM s.a AS x, b, c d"),
            ("UPDATE a SET v = (SELECT 1 FROM z) FROM b WHERE true RETURNING v", "SELECT v FROM a, b"),
            ("UPDATE a x SET v = 1 RETURNING v || 'x' AS w", "SELECT v || 'x' AS w FROM a x"),
            ("UPDATE a SET v = 1 WHERE v IS DISTINCT FROM w RETURNING v", "SELECT v FROM a"),
            ("UPDATE a SET v = w IS DISTINCT FROM 1 FROM b WHERE b.v IS DISTINCT FROM a.v RETURNING *", "SELECT * FROM a, b"),
            ("INSERT INTO a AS x (v) SELECT v FROM b RETURNING x.v", "SELECT x.v FROM a AS x"),
            ("WITH w AS (DELETE FROM z) DELETE FROM a USING w RETURNING w.v", "WITH w AS (DELETE FROM z) SELECT w.v FROM a, w"),
        ] {
            assert_eq!(returned(text).as_deref(), Some(query), "{text}");
        }
        assert_eq!(returned("DELETE FROM a"), None);
    }
}
