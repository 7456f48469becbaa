//! Sub-selects that the shards compute: their rows are shipped instead of those of the tables that they read.
//!
//! A sub-select that stands by itself, and that alone would be answered by merging what the shards say, is an input like a table:
//! each shard runs it, and `(SELECT * FROM pg_temp.…)` takes its place in the text. Three kinds:
//!
//! * The rows of the answer are those of the shards: joins on the shard key, groups by the whole of it.
//! * DISTINCT: the shards' rows, and duplicates dropped once more.
//! * Groups of which each shard has a part, where the aggregates can be made of parts exactly: the parts are loaded, and
//!   PostgreSQL makes the groups of them.
//!
//! PostgreSQL itself says what the columns are: the temporary table is made of the sub-select, without its rows. That refuses a
//! sub-select that names columns of the query around it, or whose columns no table can have; and a fragment may fail over rows
//! that the statement would not come to. Such a statement runs over the rows of the tables instead: [`super::Recipe::plain`].
//!
//! Only sub-selects that may shrink what they read; a filter alone already goes along with a table's rows. Not those whose rows
//! have an order or a limit, which are not a union any more. Values are computed on the shards under the settings of transport,
//! so that the session must not have others that show in a computation.

use std::ops::Range;

use pg_raw_parse::Node;

use super::inner::Inner;
use super::semijoins::Known;
use super::splicing::{TEMPORARY_SCHEMA, is_same_step};
use super::survey::{Step, Survey};
use super::{Input, Source, survey_text};
use crate::catalog::quoted_identifier;
use crate::sql::analysis::{Combination, Combine, DistinctRows, Effect, Groups, Merge, Part};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer;
use crate::sql::parse::tokens::Tokens;
use crate::sql::query::Reader;
use crate::sql::rewrite::clock_literals::mentions_time;

/// A sub-select and what takes its place.
#[derive(Debug)]
pub struct Computed {
    /// In the text.
    pub range: Range<usize>,
    pub inner: Inner,
    /// A SELECT, and its survey.
    pub replacement: String,
    pub replaced: Survey,
    pub input: Input,
}

/// The sub-selects of a text that the shards can compute, none inside of another, in the order of the survey. `known`: its
/// relations, as far as the catalogue has them.
pub fn computed(text: &str, survey: &Survey, known: &[Option<Known<'_>>], context: &Context) -> Vec<Computed> {
    let tokens = Tokens::of(text);
    let mut candidates: Vec<&Inner> = survey.inner.iter().filter(|inner| inner.reduces && !inner.relations.is_empty()).collect();
    // Outer ones first.
    candidates.sort_by_key(|inner| (inner.steps.start, std::cmp::Reverse(inner.steps.end)));
    let mut found: Vec<Computed> = Vec::new();
    for inner in candidates {
        let is_inside = found.last().is_some_and(|outer| inner.steps.end <= outer.inner.steps.end);
        if !is_inside && let Some(computed) = of(inner, found.len() + 1, text, &tokens, (survey, known, context)) {
            found.push(computed);
        }
    }
    found
}

fn of(
    inner: &Inner,
    number: usize,
    text: &str,
    tokens: &Tokens<'_>,
    (survey, known, context): (&Survey, &[Option<Known<'_>>], &Context),
) -> Option<Computed> {
    let relation = |index: usize| known.get(index).copied().flatten().map(|known| known.relation);
    let has_column = |index: usize, name: &str| relation(index).is_some_and(|relation| relation.column(name).is_some());
    let relations: Vec<_> = inner.relations.clone().map(relation).collect::<Option<_>>()?;
    let has_money = relations.iter().flat_map(|relation| &relation.columns).any(|column| MONEY.contains(&column.type_oid));
    if has_money || !inner.is_closed(survey, &has_column) {
        return None;
    }
    let range = inner.range(tokens)?;
    let sub_select = text.get(range.clone())?;
    let alone = survey_text(sub_select).ok()?;
    let is_same = |(here, there): (&Step, &Step)| is_same_step(survey, here, &alone, there, None);
    let steps = survey.trace.get(inner.steps.clone())?;
    if steps.len() != alone.trace.len() || !steps.iter().zip(&alone.trace).all(is_same) {
        return None;
    }
    let names_money = Tokens::of(sub_select).iter().any(|(_, piece)| piece.to_ascii_lowercase().contains("money"));
    if names_money || mentions_time(sub_select) {
        return None;
    }
    let input = input(&format!("{COMPUTED_PREFIX}{number}"), sub_select, &merge(sub_select, context)?)?;
    let replacement = format!("SELECT * FROM {TEMPORARY_SCHEMA}.{}", quoted_identifier(&input.name));
    let replaced = survey_text(&replacement).ok()?;
    Some(Computed { range, inner: inner.clone(), replacement, replaced, input })
}

/// How the shards' answers to a query become one, in no order, if that is certain whatever their rows are.
pub fn merge(text: &str, context: &Context) -> Option<Merge> {
    let (merge, shows_one_of_equals) = certain(text, context)?;
    let is_unordered = merge.order_by.is_empty() && merge.limit.is_none() && merge.offset.is_none();
    (is_unordered && !shows_one_of_equals).then_some(merge)
}

/// The same in whatever order, and cut.
pub fn certain_merge(text: &str, context: &Context) -> Option<Merge> {
    certain(text, context).map(|(merge, _)| merge)
}

/// With whether its rows show one of several equal values, which PostgreSQL might choose after a condition from outside.
fn certain(text: &str, context: &Context) -> Option<(Merge, bool)> {
    let tree = parse::parse(text).ok()?;
    let Some(Node::SelectStmt(select)) = tree.stmts().next() else { return None };
    let scanned = lexer::scan(text);
    let mut reader = Reader::new(context, text, &scanned.literals);
    let merge = reader.outermost(select).ok()?.ok()?;
    reader.note_hidden();
    let notes = &reader.notes;
    let is_plain = notes.refused.is_none()
        && notes.pushdown.is_none()
        && notes.home_reason.is_none()
        && notes.touches_anything.is_none()
        && notes.may_be_of_query_around.is_none()
        && notes.volatile.is_none()
        && notes.hidden_sharded_table().is_none()
        && notes.session_calls.is_empty()
        && notes.effect() == Effect::Read
        && notes.proxy.is_empty()
        && !(notes.has_system || notes.has_map || notes.has_unknown_names);
    let is_sharded = |part: &Part| matches!(part, Part::Sharded { .. });
    let has_parts = !reader.parts.is_empty() && reader.parts.iter().all(is_sharded);
    (is_plain && merge.locking.is_none() && has_parts).then_some((merge, notes.shows_one_of_equals))
}

fn input(name: &str, text: &str, merge: &Merge) -> Option<Input> {
    let whole = format!("{TEMPORARY_SCHEMA}.{}", quoted_identifier(name));
    let parts_name = format!("{name}_parts");
    let parts = format!("{TEMPORARY_SCHEMA}.{}", quoted_identifier(&parts_name));
    let made = |table: &str, columns: &str, query: &str| {
        format!("CREATE TEMPORARY TABLE {table}{columns} ON COMMIT DROP AS {query}\nWITH NO DATA")
    };
    let of_whole = made(&whole, "", text);
    let (loaded, create, fragment, combine) = match &merge.combine {
        None if merge.fragment.is_none() => (name.to_owned(), of_whole, text.to_owned(), None),
        Some(Combine::Distinct(DistinctRows::Whole { .. })) if merge.fragment.is_none() => {
            let combine = format!("INSERT INTO {whole} SELECT DISTINCT * FROM {parts}");
            (parts_name, format!("{of_whole};{}", made(&parts, "", text)), text.to_owned(), Some(combine))
        }
        Some(Combine::Groups(groups)) => {
            let fragment = merge.fragment.as_ref().map_or_else(|| text.to_owned(), |fragment| fragment.of(text, 0..text.len()));
            let names: Vec<String> = (1..=groups.columns.len()).map(|number| format!("c{number}")).collect();
            let of_parts = made(&parts, &format!(" ({})", names.join(", ")), &fragment);
            let combine = format!("INSERT INTO {whole} {}", combined(groups, merge.hidden_columns, &parts)?);
            (parts_name, format!("{of_whole};{of_parts};{}", exactness(groups, &parts)), fragment, Some(combine))
        }
        None | Some(Combine::Distinct(_)) => return None,
    };
    Some(Input {
        source: Source::Shards,
        name: name.to_owned(),
        loaded,
        relation: "a sub-select".to_owned(),
        create,
        columns: Vec::new(),
        inserted: None,
        fragment,
        predicates: Vec::new(),
        indexes: Vec::new(),
        round: 0,
        combine,
        origin: None,
        brought: Vec::new(),
    })
}

/// The groups, made of their parts.
fn combined(groups: &Groups, hidden: usize, parts: &str) -> Option<String> {
    if groups.last_step.is_some() {
        return None;
    }
    let visible = groups.columns.len().checked_sub(hidden)?;
    columns_of_whole(groups, visible, parts, &|_| false)
}

/// The first columns of the groups. `is_unused`: what a column is does not matter.
pub fn columns_of_whole(groups: &Groups, count: usize, parts: &str, is_unused: &dyn Fn(usize) -> bool) -> Option<String> {
    let is_key = |column: usize| groups.keys.iter().any(|key| key.column == column);
    let column = |(index, combination): (usize, &Combination)| {
        let own = format!("c{}", index + 1);
        Some(match combination {
            // Of what depends on the group, each shard may have another spelling.
            Combination::First if is_key(index) => own,
            Combination::First => return is_unused(index).then(|| "NULL".to_owned()),
            Combination::Count | Combination::Sum => format!("pg_catalog.sum({own})"),
            Combination::Minimum(_) => format!("pg_catalog.min({own})"),
            Combination::Maximum(_) => format!("pg_catalog.max({own})"),
            Combination::All => format!("pg_catalog.bool_and({own})"),
            Combination::Any => format!("pg_catalog.bool_or({own})"),
            Combination::Average { counts } => {
                format!("pg_catalog.sum({own}) OPERATOR(pg_catalog./) pg_catalog.sum(c{})", counts + 1)
            }
        })
    };
    let columns: Vec<String> = groups.columns.iter().enumerate().take(count).map(column).collect::<Option<_>>()?;
    let keys: Vec<String> = groups.keys.iter().map(|key| format!("c{}", key.column + 1)).collect();
    let by = if keys.is_empty() { String::new() } else { format!(" GROUP BY {}", keys.join(", ")) };
    Some(format!("SELECT {} FROM {parts}{by}", columns.join(", ")))
}

/// Fails when a column has a type whose parts do not make the whole exactly: PostgreSQL knows the types. Sums of floats hang on
/// the order of rows; a linguistic order may not be the same on every shard.
pub fn exactness(groups: &Groups, parts: &str) -> String {
    let named = |wanted: &dyn Fn(&Combination) -> bool| -> String {
        let columns = groups.columns.iter().enumerate().filter(|(_, combination)| wanted(combination));
        columns.map(|(index, _)| format!("c{}", index + 1)).collect::<Vec<_>>().join(",")
    };
    let sums = named(&|combination| matches!(combination, Combination::Sum | Combination::Average { .. }));
    let bytewise = |combination: &Combination| match combination {
        Combination::Minimum(order) | Combination::Maximum(order) => Some(order.is_bytewise),
        Combination::First
        | Combination::Count
        | Combination::Sum
        | Combination::All
        | Combination::Any
        | Combination::Average { .. } => None,
    };
    let texts = named(&|combination| bytewise(combination) == Some(true));
    let ordered = named(&|combination| bytewise(combination) == Some(false));
    let condition = |columns: &str, types: &str| {
        format!(
            "attname OPERATOR(pg_catalog.=) ANY ('{{{columns}}}'::pg_catalog.name[]) \
             AND NOT atttypid OPERATOR(pg_catalog.=) ANY ('{{{types}}}'::pg_catalog.oid[])"
        )
    };
    let conditions =
        [condition(&sums, SUMS), condition(&ordered, ORDERED), condition(&texts, &format!("{ORDERED},{BYTEWISE}"))].join(" OR ");
    format!(
        "SELECT pg_catalog.concat('inexact ', attname)::pg_catalog.int4 FROM pg_catalog.pg_attribute \
         WHERE attrelid OPERATOR(pg_catalog.=) '{parts}'::pg_catalog.regclass AND ({conditions})"
    )
}

const COMPUTED_PREFIX: &str = "shardgate_input_q";
/// Printed and read by `lc_monetary`, which transport changes: money and its array.
pub const MONEY: [u32; 2] = [790, 791];
/// int8, numeric: what sums of integers and numerics are.
const SUMS: &str = "20,1700";
/// Integers, floats, numeric, dates and timestamps: in the same order everywhere.
const ORDERED: &str = "20,21,23,700,701,1700,1082,1114,1184";
/// text, char(n), varchar.
const BYTEWISE: &str = "25,1042,1043";
