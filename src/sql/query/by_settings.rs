//! May the rows of a query be others under other settings?
//!
//! By what is written in it: what is not known to hang on its arguments alone may read a setting. What lies behind names is for the
//! caller: views, policies, the types of columns.

use pg_raw_parse::Node;
use pg_raw_parse::walk::{Recurse, walk_manual};

use crate::catalog::Catalog;
use crate::sql::parse::{parse, tree};

/// Never false where it is not known. `text`: one statement.
pub fn may_read_settings(text: &str, catalog: &Catalog) -> bool {
    let Ok(tree) = parse(text) else { return true };
    let mut stack: Vec<Node<'_>> = tree.stmts().collect();
    while let Some(node) = stack.pop() {
        if let Node::DeclareCursorStmt(declare) = node {
            stack.push(declare.query());
            continue;
        }
        if !is_plain(node, catalog) {
            return true;
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    false
}

fn is_plain(node: Node<'_>, catalog: &Catalog) -> bool {
    match node {
        Node::FuncCall(call) => {
            let name = tree::names(call.funcname()).and_then(|names| match names.as_slice() {
                [name] | ["pg_catalog", name] => Some(*name),
                _ => None,
            });
            name.is_some_and(|name| PLAIN_FUNCTIONS.contains(&name) && !catalog.function_names.contains_key(name))
        }
        Node::A_Expr(_) | Node::CaseExpr(_) | Node::SubLink(_) => {
            tree::operators_of(node).iter().all(|operator| PLAIN_OPERATORS.contains(operator))
        }
        // A function of the row may be meant.
        Node::ColumnRef(column) => {
            let fields = column.fields();
            let last = fields.iter().next_back().and_then(Node::as_str);
            fields.len() < 2 || last.is_none_or(|name| !catalog.function_names.contains_key(name))
        }
        Node::LockingClause(_)
        | Node::SelectStmt(_)
        | Node::ResTarget(_)
        | Node::A_Const(_)
        | Node::A_Star(_)
        | Node::A_ArrayExpr(_)
        | Node::RowExpr(_)
        | Node::ParamRef(_)
        | Node::BoolExpr(_)
        | Node::NullTest(_)
        | Node::BooleanTest(_)
        | Node::CaseWhen(_)
        | Node::CoalesceExpr(_)
        | Node::MinMaxExpr(_)
        | Node::GroupingSet(_)
        | Node::RangeVar(_)
        | Node::RangeSubselect(_)
        | Node::JoinExpr(_)
        | Node::SortBy(_)
        | Node::WindowDef(_)
        | Node::WithClause(_)
        | Node::CommonTableExpr(_)
        | Node::Alias(_)
        | Node::None => true,
        Node::NodeList(_) => true,
        other => other.as_str().is_some(),
    }
}

const PLAIN_FUNCTIONS: [&str; 10] = ["abs", "avg", "count", "length", "lower", "max", "min", "mod", "sum", "upper"];
const PLAIN_OPERATORS: [&str; 22] = [
    "=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "~~", "!~~", "~~*", "!~~*", "~", "!~", "->", "->>", "#>", "@>", "<@",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Oid;

    #[test]
    fn what_may_read_settings_is_told_from_plain_columns() {
        let mut catalog = Catalog::default();
        catalog.function_names.insert("label".to_owned(), vec![Oid::from(1_u32)]);
        for text in [
            "SELECT id, owner FROM accounts WHERE id > 5 AND (balance IN (1, 2)) ORDER BY id LIMIT 3",
            "DECLARE c CURSOR FOR SELECT * FROM t x JOIN y ON (x.a = y.a) WHERE count > 'now' AND b BETWEEN 1 AND 2",
            "SELECT owner, count(*), sum(balance) FROM accounts GROUP BY owner HAVING max(a) IS NOT NULL",
            "WITH w AS (SELECT a FROM t) SELECT label, coalesce(a, 1), CASE a WHEN 1 THEN 'x' ELSE $1 END FROM w FOR UPDATE",
            "SELECT a FROM t WHERE b IN (SELECT b FROM u) AND EXISTS (SELECT FROM v) AND (a, b) = (1, 2)",
        ] {
            assert!(!may_read_settings(text, &catalog), "{text}");
        }
        for text in [
            "SELECT current_setting('app.x') FROM t",
            "DECLARE c CURSOR FOR SELECT id FROM t WHERE owner = current_user",
            "SELECT a::text FROM t",
            "SELECT id FROM t WHERE at < timestamptz '2026-01-01 UTC'",
            "SELECT 'x' || d FROM t",
            "SELECT \"f\" (a) FROM t",
            "SELECT s.f(a) FROM t",
            "SELECT label(t) FROM t",
            "SELECT id, t.label FROM t",
            "SELECT (t).label FROM t",
            "SELECT a FROM t, f(1) x",
            "SELECT a FROM t WHERE b IN (SELECT f(c) FROM u)",
            "SELECT a AT TIME ZONE 'UTC' FROM t",
            "not SQL",
        ] {
            assert!(may_read_settings(text, &catalog), "{text}");
        }
    }
}
