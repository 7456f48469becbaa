//! Groups that HAVING throws away need not be shipped, where each lies on one shard.
//!
//! `SELECT k FROM t GROUP BY k HAVING sum(x) > 300` over a table that is sharded by `k`: of the rows of `t` only those of groups
//! that pass are needed. Only plain aggregates that are exact on every shard, compared with numbers, and only without a WHERE: a
//! shard that filtered by less than all of it would see other groups.

use pg_raw_parse::{Node, nodes};

use super::constants::{Value, value};
use super::filters::{self, ColumnName, Piece, column};
use super::semijoins::{Known, Place};
use super::survey::{Level, Survey};
use crate::catalog::{quoted_identifier, quoted_name};
use crate::shard_key::oid;
use crate::sql::called::{self, ArgumentType, Given};
use crate::sql::context::Context;
use crate::sql::parse::tree;

/// GROUP BY and HAVING of one level.
#[derive(Debug)]
pub struct Groups {
    by: Vec<ColumnName>,
    /// All of them must hold; there may be more.
    having: Vec<Having>,
}

#[derive(Debug)]
struct Having {
    function: &'static str,
    /// `None`: `count(*)`.
    argument: Option<ColumnName>,
    operator: &'static str,
    number: String,
}

/// What the level groups by, if only by columns.
pub fn groups(select: &nodes::SelectStmt) -> Option<Groups> {
    if !matches!(select.where_clause(), Node::None) {
        return None;
    }
    let by: Option<Vec<ColumnName>> = select.group_clause().iter().map(column).collect();
    let by = by.filter(|by| !by.is_empty())?;
    let mut having = Vec::new();
    let mut conjuncts = vec![select.having_clause()];
    while let Some(conjunct) = conjuncts.pop() {
        match conjunct {
            Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => conjuncts.extend(e.args().iter()),
            Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_OP => having.extend(comparison(e)),
            _ => {}
        }
    }
    (!having.is_empty()).then_some(Groups { by, having })
}

fn comparison(e: &nodes::A_Expr) -> Option<Having> {
    let operators = ["=", "<>", "<", "<=", ">", ">="];
    let operator = operators.into_iter().find(|operator| tree::single_name(e.name()) == Some(*operator))?;
    let (Node::FuncCall(call), Value::Number(number)) = (e.lexpr(), value(e.rexpr())?) else { return None };
    let function = FUNCTIONS.into_iter().find(|function| tree::single_name(call.funcname()) == Some(*function))?;
    let is_plain = !call.agg_distinct
        && !call.func_variadic
        && !call.agg_within_group
        && call.agg_order().is_empty()
        && call.over().is_none()
        && matches!(call.agg_filter(), Node::None);
    let argument = match (call.agg_star, call.args().iter().collect::<Vec<_>>().as_slice()) {
        (true, []) if function == "count" => None,
        (false, [only]) => Some(column(*only)?),
        (_, _) => return None,
    };
    is_plain.then_some(Having { function, argument, operator, number })
}

/// A condition on the rows of a level's only table.
pub fn condition(
    survey: &Survey,
    level: &Level,
    known: &[Option<Known<'_>>],
    (context, search_path): (&Context, &[String]),
) -> Option<(usize, Vec<Piece>)> {
    let groups = level.groups.as_ref()?;
    let [index] = level.relations.as_slice() else { return None };
    let (used, known) = (survey.relations.get(*index)?, known.get(*index).copied().flatten()?);
    let Place::Sharded { key, .. } = known.place else { return None };
    let relation = known.relation;
    let named = |name: &ColumnName| {
        let is_meant = name.qualifier.as_deref().is_none_or(|qualifier| qualifier == used.effective_name());
        relation.column(&name.name).filter(|_| is_meant)
    };
    let by: Vec<String> =
        groups.by.iter().map(|name| named(name).map(|column| quoted_identifier(&column.name))).collect::<Option<_>>()?;
    let is_certain = level.is_closed && !used.has_column_aliases && !relation.has_row_security;
    if !is_certain || !by.contains(&quoted_identifier(key)) {
        return None;
    }
    let having = groups.having.iter().filter_map(|having| {
        let (argument, given) = match &having.argument {
            None => ("*".to_owned(), Vec::new()),
            Some(name) => {
                let column = named(name).filter(|column| EXACT.contains(&column.type_oid))?;
                (quoted_identifier(&column.name), vec![Some(ArgumentType::exactly(column.type_oid))])
            }
        };
        let given = || Given::InPlaces(given);
        let is_shadowed = !called::functions_of_users(context, search_path, having.function, given).is_empty();
        let (function, operator, number) = (having.function, having.operator, &having.number);
        (!is_shadowed).then(|| format!("pg_catalog.{function}({argument}) OPERATOR(pg_catalog.{operator}) ({number})"))
    });
    let having: Vec<String> = having.collect();
    if having.is_empty() {
        return None;
    }
    let only = if known.with_children { "" } else { "ONLY " };
    let (key, table) = (quoted_identifier(key), quoted_name(&relation.schema, &relation.name));
    let (by, having) = (by.join(", "), having.join(" AND "));
    let rows = format!("SELECT {key} FROM {only}{table} GROUP BY {by} HAVING {having}");
    Some((*index, filters::among(key, vec![Piece::Sql(rows)])))
}

const FUNCTIONS: [&str; 5] = ["count", "sum", "avg", "min", "max"];
/// Sums of these do not hang on the order of rows.
const EXACT: [u32; 4] = [oid::INT2, oid::INT4, oid::INT8, oid::NUMERIC];
