//! Keys of a reference table that one shard looks for on behalf of all: `SELECT sum(…) FROM lineitem, part WHERE l_partkey =
//! p_partkey AND p_brand = …`.
//!
//! Every shard has a copy of a reference table, and scans it again to find the same few rows. Instead one shard is asked for the
//! keys of these rows, and `l_partkey = ANY (…)` goes to all beside the statement's own conditions. It follows from them: a row of
//! the sharded table counts only together with a row of the reference table that has an equal column and satisfies what the
//! statement asks of that table alone. That is so where all copies are the same, which is the caller's care: they are read in
//! snapshots that were taken together.
//!
//! Only for joins of one sharded table with one reference table. PostgreSQL takes the keys and the conditions that they come of
//! for independent, and expects too few rows of the join; in the last join that does no harm, below another one it might.
//!
//! Whether it pays, the plan of the statement as it is has to say: [`ReferenceKeys::pays`]. Pure.

use std::ops::Range;

use pg_raw_parse::{Node, nodes};
use serde_json::Value;

use super::filters::Piece;
use super::inputs::Inputs;
use super::semijoins::{Known, Place, listed};
use super::steps::steps;
use super::survey::{Call, Survey};
use super::{HomeTables, survey_text};
use crate::catalog::{quoted_identifier, quoted_name};
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::tokens::Tokens;
use crate::sql::query::{Nature, nature};
use crate::sql::rewrite::clock;

/// What one shard is asked for, and what becomes of the others' text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceKeys {
    /// Yields the keys as the text of an array; no row where they are too many.
    pub query: String,
    /// Names of the tables, as plans have them.
    pub reference: String,
    sharded: String,
    /// The column that has them, as the statement may name it.
    column: String,
    type_name: &'static str,
    text: String,
    /// Where the condition comes.
    condition: Condition,
}

/// Byte offsets in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    /// Before what stands there.
    Where(Range<usize>),
    /// There is no WHERE.
    At(usize),
}

impl ReferenceKeys {
    /// Of a SELECT that each of several shards runs; `None` where it has no such join, or not certainly.
    pub fn of(text: &str, context: &Context) -> Option<Self> {
        let survey = survey_text(text).ok()?;
        let is_one_select = survey.levels.len() == 1 && survey.inner.is_empty() && survey.relations.len() == 2;
        let has_plain_names = context.temporary_tables.is_empty() && context.has_plain_operators(&context.search_path);
        let level = survey.levels.first()?;
        if !is_one_select || !level.is_closed || !has_plain_names || !survey.calls.iter().all(is_unaware) {
            return None;
        }
        let inputs = Inputs::new(context, &[], HomeTables::InPlace);
        let known: Vec<Option<Known<'_>>> = survey.relations.iter().map(|used| inputs.known(used, &context.search_path)).collect();
        let place = |index: usize| known.get(index).copied().flatten().map(|known| known.place);
        let conditions = inputs.conditions(&survey, &known, &context.search_path);
        let (from, to) = steps(&survey, &known).into_iter().find(|(from, to)| {
            let has_keys = from.1.type_oid == to.1.type_oid && listed(from.1).is_some();
            // The condition comes to WHERE, where it would drop rows that are extended by NULLs.
            let is_kept = level.kept.contains(&from.0);
            is_sharded(place(from.0)) && place(to.0) == Some(Place::Reference) && has_keys && is_kept
        })?;
        let (sharded, reference) = (survey.relations.get(from.0)?, survey.relations.get(to.0)?);
        let (own, other) = (known.get(from.0).copied().flatten()?, known.get(to.0).copied().flatten()?);
        if other.relation.has_row_security || sharded.effective_name() == reference.effective_name() {
            return None;
        }
        let keys = Self {
            query: query(&other, &quoted_identifier(&to.1.name), &sql(conditions.get(to.0)?)?),
            reference: other.relation.name.clone(),
            sharded: own.relation.name.clone(),
            column: format!("{}.{}", quoted_identifier(sharded.effective_name()), quoted_identifier(&from.1.name)),
            type_name: listed(from.1)?,
            condition: place_of_condition(text)?,
            text: text.to_owned(),
        };
        is_joined_by_and(&keys.restricted("{}"), &survey).then_some(keys)
    }

    /// The statement with these keys, the text of an array.
    pub fn restricted(&self, keys: &str) -> String {
        let Self { column, type_name, text, .. } = self;
        // Keys of these types have neither quotes nor backslashes.
        let condition = format!("{column} OPERATOR(pg_catalog.=) ANY ('{keys}'::{type_name}[])");
        let part = |range: Range<usize>| text.get(range).unwrap_or_default();
        match &self.condition {
            Condition::Where(old) => {
                let (before, old, after) = (part(0..old.start), part(old.clone()), part(old.end..text.len()));
                format!("{before} {condition} AND ({old}){after}")
            }
            Condition::At(place) => format!("{} WHERE {condition}{}", part(0..*place), part(*place..text.len())),
        }
    }

    /// Would the statement as it is read the reference table from end to end for few rows, and only rows of the sharded table that
    /// an index finds? `plan`: of EXPLAIN (FORMAT JSON).
    pub fn pays(&self, plan: &str) -> bool {
        let Ok(document) = serde_json::from_str::<Value>(plan) else { return false };
        let top = &document[0]["Plan"];
        let (mut reference, mut sharded) = (Vec::new(), Vec::new());
        let mut nodes = vec![top];
        while let Some(node) = nodes.pop() {
            nodes.extend(node["Plans"].as_array().into_iter().flatten());
            match node["Relation Name"].as_str() {
                Some(name) if name == self.reference => reference.push(node),
                Some(name) if name == self.sharded => sharded.push(node),
                _ => {}
            }
        }
        let ([reference], [sharded]) = (reference.as_slice(), sharded.as_slice()) else { return false };
        let number = |node: &Value, name: &str| node[name].as_f64().unwrap_or(f64::NAN);
        let cost = number(reference, "Total Cost");
        reference["Node Type"] == "Seq Scan"
            && sharded["Node Type"].as_str().is_some_and(|kind| INDEX_SCANS.contains(&kind))
            && cost >= SCAN_COST_MIN
            && cost >= number(top, "Total Cost") * SCAN_SHARE_MIN
            && number(reference, "Plan Rows") <= KEYS_EXPECTED_MAX
    }
}

/// It does not tell one transaction, or one of its settings, from another.
fn is_unaware(call: &Call) -> bool {
    let is_clock = |setting: &str| [clock::INSTANT, clock::STATEMENT_INSTANT].contains(&setting);
    match nature(&call.name, call.argument_count) {
        Nature::Plain | Nature::Random | Nature::Clock => {
            call.name != "current_setting" || call.first_constant.as_deref().is_some_and(is_clock)
        }
        Nature::Server | Nature::Size | Nature::Sequence | Nature::Session | Nature::Writing | Nature::RunsQuery => false,
    }
}

fn is_sharded(place: Option<Place<'_>>) -> bool {
    matches!(place, Some(Place::Sharded { .. }))
}

/// Conditions without parameters, at least one.
fn sql(conditions: &[Vec<Piece>]) -> Option<String> {
    let text = |condition: &Vec<Piece>| {
        let pieces = condition.iter().map(|piece| match piece {
            Piece::Sql(sql) => Some(sql.as_str()),
            Piece::Parameter(_) | Piece::Typed(..) | Piece::Keys(_) => None,
        });
        pieces.collect::<Option<String>>()
    };
    let conditions: Vec<String> = conditions.iter().map(text).collect::<Option<_>>()?;
    (!conditions.is_empty()).then(|| conditions.join(" AND "))
}

fn query(known: &Known<'_>, column: &str, conditions: &str) -> String {
    let only = if known.with_children { "" } else { "ONLY " };
    let table = quoted_name(&known.relation.schema, &known.relation.name);
    format!(
        "SELECT pg_catalog.array_agg(DISTINCT x)::pg_catalog.text FROM (SELECT {column} AS x FROM {only}{table} \
         WHERE {conditions} AND {column} IS NOT NULL LIMIT {}) x HAVING pg_catalog.count(*) <= {KEYS_MAX}",
        KEYS_MAX + 1
    )
}

/// In the only SELECT of the text.
fn place_of_condition(text: &str) -> Option<Condition> {
    let tokens = Tokens::of(text);
    let from = tokens.from_at_top(0)?;
    let next = tokens.word_at_top(from + 1, &AFTER_WHERE).unwrap_or(tokens.count());
    let mut last = next.checked_sub(1)?;
    if tokens.piece(last) == ";" {
        last = last.checked_sub(1)?;
    }
    let end = tokens.get(last)?.end;
    match tokens.word_at_top(from + 1, &["where"]).filter(|found| *found < last) {
        Some(found) => Some(Condition::Where(tokens.get(found)?.end..end)),
        None => Some(Condition::At(end)),
    }
}

/// Read again, it is one SELECT over the same tables whose WHERE begins with the new condition.
fn is_joined_by_and(text: &str, old: &Survey) -> bool {
    let Ok(tree) = parse::parse(text) else { return false };
    let Some(Node::SelectStmt(select)) = tree.stmts().next() else { return false };
    let is_new = |node: Node<'_>| matches!(node, Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_OP_ANY);
    let is_first = match select.where_clause() {
        Node::BoolExpr(e) => {
            e.boolop == nodes::BoolExprType::AND_EXPR && e.args().len() == 2 && e.args().iter().next().is_some_and(is_new)
        }
        only => is_new(only),
    };
    is_first
        && survey_text(text).is_ok_and(|new| new.relations.len() == old.relations.len() && new.levels.len() == old.levels.len())
}

/// What may follow WHERE, or FROM where there is none.
const AFTER_WHERE: [&str; 11] =
    ["group", "having", "window", "order", "limit", "offset", "fetch", "for", "union", "intersect", "except"];
const INDEX_SCANS: [&str; 3] = ["Index Scan", "Index Only Scan", "Bitmap Heap Scan"];
/// More keys than these are not sent to the shards.
const KEYS_MAX: usize = 10_000;
/// Of what one process expects, where several share the scan.
const KEYS_EXPECTED_MAX: f64 = 2_500.0;
/// In PostgreSQL's units: some ten milliseconds, against three trips to the shards.
const SCAN_COST_MIN: f64 = 2_000.0;
/// Of all that a shard does.
const SCAN_SHARE_MIN: f64 = 0.25;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing::library;

    fn keys(text: &str) -> Option<ReferenceKeys> {
        ReferenceKeys::of(text, &library().context(&["public"], &[]))
    }

    fn restricted(text: &str) -> String {
        keys(text).unwrap_or_else(|| panic!("{text}")).restricted("{7}")
    }

    const KEYS: &str = "\"t\".\"k\" OPERATOR(pg_catalog.=) ANY ('{7}'::pg_catalog.int8[])";

    #[test]
    fn one_shard_is_asked_for_the_keys_of_the_rows_that_count() {
        let query = |text: &str| keys(text).unwrap_or_else(|| panic!("{text}")).query;
        let told = query("SELECT sum(x) FROM t, ref WHERE k = id AND g = 5");
        assert_eq!(
            told,
            "SELECT pg_catalog.array_agg(DISTINCT x)::pg_catalog.text FROM (SELECT \"id\" AS x FROM \"public\".\"ref\" \
             WHERE \"g\" OPERATOR(pg_catalog.=) (5) AND \"id\" IS NOT NULL LIMIT 10001) x HAVING pg_catalog.count(*) <= 10000"
        );
        let told = query("SELECT count(*) FROM t JOIN ref r ON (id = k AND g = 5 AND x = 1) OR (id = k AND g IS NULL)");
        assert!(told.contains("WHERE ((\"g\" OPERATOR(pg_catalog.=) (5)) OR (\"g\" IS NULL)) AND \"id\""), "{told}");
    }

    #[test]
    fn the_condition_stands_beside_the_whole_where() {
        let head = "SELECT sum(x) FROM t, ref";
        for (text, expected) in [
            ("WHERE k = id AND g = 5", format!("WHERE {KEYS} AND ( k = id AND g = 5)")),
            (
                "where(k = id and g = 5 and x > 1) or (k = id and g = 6) -- all;",
                format!("where {KEYS} AND ((k = id and g = 5 and x > 1) or (k = id and g = 6)) -- all;"),
            ),
            (
                "WHERE k = id AND g = 5 AND t.name = 'where' GROUP BY x ORDER BY 1;",
                format!("WHERE {KEYS} AND ( k = id AND g = 5 AND t.name = 'where') GROUP BY x ORDER BY 1;"),
            ),
        ] {
            assert_eq!(restricted(&format!("{head} {text}")), format!("{head} {expected}"));
        }
        let joined = "SELECT sum(x) FROM t JOIN ref ON k = id AND g = 5";
        assert_eq!(restricted(&format!("{joined} LIMIT 1")), format!("{joined} WHERE {KEYS} LIMIT 1"));
        assert_eq!(restricted(&format!("{joined} ;")), format!("{joined} WHERE {KEYS} ;"));
    }

    #[test]
    fn what_is_not_certain_runs_as_it_is() {
        for text in [
            // No condition, none that is of the reference table alone, none that another shard would read alike.
            "SELECT sum(x) FROM t, ref WHERE k = id",
            "SELECT sum(x) FROM t, ref WHERE k = id AND (g = 5 OR x = 1)",
            "SELECT sum(x) FROM t, ref WHERE k = id AND abs(g) = 5",
            "SELECT sum(x) FROM t, ref WHERE k = id AND g = $1",
            // No equality for every row.
            "SELECT sum(x) FROM t, ref WHERE k < id AND g = 5",
            "SELECT sum(x) FROM t, ref WHERE (k = id OR x = 1) AND g = 5",
            "SELECT sum(x) FROM t, ref WHERE x = id AND g = 5",
            // Rows without a partner count too.
            "SELECT sum(x) FROM t LEFT JOIN ref ON k = id AND g = 5",
            "SELECT sum(x) FROM t FULL JOIN ref ON k = id WHERE g = 5",
            // More than two tables.
            "SELECT sum(t.x) FROM t, ref, ref r WHERE t.k = ref.id AND ref.g = 5",
            "SELECT sum(x) FROM t, ref WHERE k = id AND g = 5 AND x IN (SELECT y FROM u)",
            "SELECT sum(x) FROM t, ref, (SELECT 1) s WHERE k = id AND g = 5",
            "SELECT sum(x) FROM t, ref WHERE k = id AND g = 5 UNION ALL SELECT 1",
            // It looks at the transaction.
            "SELECT sum(x), max(current_setting('transaction_isolation')) FROM t, ref WHERE k = id AND g = 5",
            "SELECT count(txid_current()) FROM t, ref WHERE k = id AND g = 5",
            // No table of its own, no reference table.
            "SELECT sum(x) FROM t, u WHERE t.k = u.k AND u.y = 1",
            "SELECT count(*) FROM ref WHERE g = 5",
        ] {
            assert_eq!(keys(text), None, "{text}");
        }
        let shadowed = library().context(&["ops", "public"], &[]);
        assert_eq!(ReferenceKeys::of("SELECT sum(x) FROM t, ref WHERE k = id AND g = 5", &shadowed), None);
    }

    #[test]
    fn it_pays_where_a_scan_for_few_rows_is_much_of_the_plan() {
        let keys = keys("SELECT sum(x) FROM t, ref WHERE k = id AND g = 5").expect("keys");
        let plan = |top: u32, reference: &str, sharded: &str| {
            format!(
                "[{{\"Plan\": {{\"Node Type\": \"Aggregate\", \"Total Cost\": {top}.5, \"Plans\": [{reference}, {sharded}]}}}}]"
            )
        };
        let scan = |table: &str, kind: &str, cost: u32, rows: u32| {
            format!("{{\"Node Type\": \"{kind}\", \"Relation Name\": \"{table}\", \"Total Cost\": {cost}, \"Plan Rows\": {rows}}}")
        };
        let by_index = scan("t", "Index Scan", 100, 1);
        let few = scan("ref", "Seq Scan", 7000, 200);
        assert!(keys.pays(&plan(17_000, &few, &by_index)));
        assert!(!keys.pays(&plan(70_000, &few, &by_index)), "a small part of it all");
        assert!(!keys.pays(&plan(17_000, &few, &scan("t", "Seq Scan", 5000, 1))), "the sharded table is scanned anyway");
        assert!(!keys.pays(&plan(17_000, &scan("ref", "Seq Scan", 7000, 9000), &by_index)), "many rows");
        assert!(!keys.pays(&plan(500, &scan("ref", "Seq Scan", 400, 20), &by_index)), "a small table");
        assert!(!keys.pays(&plan(17_000, &scan("ref", "Index Scan", 7000, 200), &by_index)), "an index finds the rows");
        assert!(!keys.pays(&plan(17_000, &few, &few)), "read twice");
        assert!(!keys.pays("") && !keys.pays("[]") && !keys.pays("{\"Plan\": 1}"));
    }
}
