//! Which indexes a temporary table needs: those by which a correlated sub-select finds its rows.
//!
//! PostgreSQL makes a join of most sub-selects and needs no index for it. What it cannot turn into a join (`x > (SELECT avg(…) …
//! WHERE t.k = outer.k)`) it evaluates for each row around it, over the whole table each time when there is no index. Only a
//! matter of speed: a column that is taken for another one makes an index that is not used.

use pg_raw_parse::{Node, nodes};

use super::filters::{COMPARED, ColumnName, column};
use super::survey::Survey;
use crate::catalog::Relation;
use crate::sql::parse::tree;

/// Equalities between columns in the WHERE of one sub-select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Tables of this level: indexes in the survey's relations.
    pub relations: Vec<usize>,
    pub equal: Vec<(ColumnName, ColumnName)>,
}

/// A conjunct of the form `column = column`.
pub fn equal_columns(conjunct: Node<'_>) -> Option<(ColumnName, ColumnName)> {
    match conjunct {
        Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_OP && tree::single_name(e.name()) == Some("=") => {
            Some((column(e.lexpr())?, column(e.rexpr())?))
        }
        _ => None,
    }
}

/// Of `(a AND x) OR (a AND y)`, the equalities that every case has.
pub fn equal_in_all_cases(conjunct: Node<'_>) -> Vec<(ColumnName, ColumnName)> {
    let Node::BoolExpr(e) = conjunct else { return Vec::new() };
    if e.boolop != nodes::BoolExprType::OR_EXPR {
        return Vec::new();
    }
    let of_case = |case: Node<'_>| {
        let mut equal = Vec::new();
        let mut conjuncts = vec![case];
        while let Some(conjunct) = conjuncts.pop() {
            match conjunct {
                Node::BoolExpr(e) if e.boolop == nodes::BoolExprType::AND_EXPR => conjuncts.extend(e.args().iter()),
                other => equal.extend(equal_columns(other)),
            }
        }
        equal
    };
    let mut cases = e.args().iter().map(of_case);
    let first = cases.next().unwrap_or_default();
    cases.fold(first, |common, case| common.into_iter().filter(|equal| case.contains(equal)).collect())
}

impl Lookup {
    /// The columns of one of the tables that are compared with columns of outer levels, in the table's order. `known`: what the
    /// tables of this level are, as far as they are known.
    pub fn columns<'r>(&self, survey: &Survey, of: usize, known: &dyn Fn(usize) -> Option<&'r Relation>) -> Vec<String> {
        let has = |index: usize, name: &ColumnName| {
            let is_named = survey.relations.get(index).is_some_and(|used| {
                name.qualifier.as_ref().is_none_or(|qualifier| qualifier == used.effective_name()) && !used.has_column_aliases
            });
            is_named && known(index).is_some_and(|relation| relation.column(&name.name).is_some())
        };
        let is_inner = |name: &ColumnName| self.relations.iter().any(|index| has(*index, name));
        let Some(relation) = known(of) else { return Vec::new() };
        let sides = self.equal.iter().flat_map(|(left, right)| [(left, right), (right, left)]);
        let wanted: Vec<&ColumnName> = sides.filter(|(own, other)| has(of, own) && !is_inner(other)).map(|(own, _)| own).collect();
        let is_wanted = |column: &&crate::catalog::Column| {
            COMPARED.contains(&column.type_oid) && wanted.iter().any(|name| name.name == column.name)
        };
        relation.columns.iter().filter(is_wanted).map(|column| column.name.clone()).collect()
    }
}
