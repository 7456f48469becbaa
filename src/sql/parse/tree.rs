//! Walking expressions of PostgreSQL's raw parse tree.
//!
//! With a stack of its own instead of recursion: a text of 80 kB of `+` nests 40,000 levels deep. A node that is not listed here
//! is reported, so that the caller can refuse what it does not know; sub-selects are handed over, never entered.

use pg_raw_parse::list::NodeList;
use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{ConstValue, Node, nodes};

/// The names of a dotted list (`pg_catalog.=`), or `None` when it has something else in it.
pub fn names(list: &NodeList) -> Option<Vec<&str>> {
    list.iter().map(Node::as_str).collect()
}

/// The only name, or `None`.
pub fn single_name(list: &NodeList) -> Option<&str> {
    if list.len() == 1 { list.first().and_then(Node::as_str) } else { None }
}

/// Calls `visit` for `root` and every expression node under it; `visit` says whether to look into the node. Sub-selects are
/// visited as [`Node::SubLink`] and not entered.
pub fn walk<'n>(root: Node<'n>, visit: &mut dyn FnMut(Node<'n>) -> bool) {
    let mut stack = vec![root];
    while let Some(node) = stack.pop() {
        if matches!(node, Node::None) || !visit(node) {
            continue;
        }
        children(node, &mut stack);
    }
}

/// Names of the operators of a node itself, those among them that are not written: `CASE x WHEN y`, `x IN (SELECT …)`, BETWEEN.
pub fn operators_of(node: Node<'_>) -> Vec<&str> {
    match node {
        Node::A_Expr(e) => match e.kind {
            nodes::A_Expr_Kind::AEXPR_BETWEEN
            | nodes::A_Expr_Kind::AEXPR_NOT_BETWEEN
            | nodes::A_Expr_Kind::AEXPR_BETWEEN_SYM
            | nodes::A_Expr_Kind::AEXPR_NOT_BETWEEN_SYM => vec!["<", "<=", ">", ">="],
            _ => last_name(e.name()).into_iter().collect(),
        },
        Node::CaseExpr(e) if !matches!(e.arg(), Node::None) => vec!["="],
        Node::SubLink(e) if !matches!(e.testexpr(), Node::None) => vec![last_name(e.oper_name()).unwrap_or("=")],
        _ => Vec::new(),
    }
}

fn last_name(names: &NodeList) -> Option<&str> {
    names.iter().next_back().and_then(Node::as_str)
}

/// The tables that an item of FROM names, not those of its sub-selects.
pub fn tables_of(item: Node<'_>) -> Vec<&nodes::RangeVar> {
    let mut waiting = vec![item];
    let mut found = Vec::new();
    while let Some(node) = waiting.pop() {
        match node {
            Node::RangeVar(table) => found.push(table),
            Node::RangeTableSample(sample) => waiting.push(sample.relation()),
            Node::JoinExpr(join) => waiting.extend([join.larg(), join.rarg()]),
            _ => {}
        }
    }
    found
}

/// Every column that is named anywhere in a query, in its sub-selects too.
pub fn columns_within(root: Node<'_>) -> Vec<&nodes::ColumnRef> {
    let mut stack = vec![root];
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if let Node::ColumnRef(column) = node {
            found.push(column);
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    found
}

/// Every call that is written anywhere in a query, in its sub-selects too.
pub fn calls_within(root: Node<'_>) -> Vec<&nodes::FuncCall> {
    let mut stack = vec![root];
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if let Node::FuncCall(call) = node {
            found.push(call);
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    found
}

/// Every relation that is named anywhere in a statement.
pub fn relations_within(root: Node<'_>) -> Vec<&nodes::RangeVar> {
    let mut stack = vec![root];
    let mut found = Vec::new();
    while let Some(node) = stack.pop() {
        if let Node::RangeVar(relation) = node {
            found.push(relation);
        }
        walk_manual::<()>(node, |child| {
            stack.push(child);
            Recurse::no()
        });
    }
    found
}

/// `CURRENT_TIMESTAMP` and its kind; the others are names of the user, the role, the database or the schema.
pub fn is_clock(function: &nodes::SQLValueFunction) -> bool {
    use nodes::SQLValueFunctionOp as Op;
    matches!(
        function.op,
        Op::SVFOP_CURRENT_DATE
            | Op::SVFOP_CURRENT_TIME
            | Op::SVFOP_CURRENT_TIME_N
            | Op::SVFOP_CURRENT_TIMESTAMP
            | Op::SVFOP_CURRENT_TIMESTAMP_N
            | Op::SVFOP_LOCALTIME
            | Op::SVFOP_LOCALTIME_N
            | Op::SVFOP_LOCALTIMESTAMP
            | Op::SVFOP_LOCALTIMESTAMP_N
    )
}

/// What all has to be true of a condition; in no order.
pub fn conjuncts(root: Node<'_>) -> Vec<Node<'_>> {
    let mut waiting = vec![root];
    let mut found = Vec::new();
    while let Some(node) = waiting.pop() {
        match node {
            Node::BoolExpr(all) if all.boolop == nodes::BoolExprType::AND_EXPR => waiting.extend(all.args().iter()),
            other => found.push(other),
        }
    }
    found
}

/// Whether `children` knows the node: anything else may hide a table or a function.
pub fn is_known(node: Node<'_>) -> bool {
    matches!(
        node,
        Node::None
            | Node::NodeList(_)
            | Node::A_Expr(_)
            | Node::A_Const(_)
            | Node::A_Star(_)
            | Node::A_Indices(_)
            | Node::A_Indirection(_)
            | Node::A_ArrayExpr(_)
            | Node::ParamRef(_)
            | Node::ColumnRef(_)
            | Node::TypeCast(_)
            | Node::CollateClause(_)
            | Node::FuncCall(_)
            | Node::ResTarget(_)
            | Node::MultiAssignRef(_)
            | Node::SortBy(_)
            | Node::WindowDef(_)
            | Node::BoolExpr(_)
            | Node::SubLink(_)
            | Node::CaseExpr(_)
            | Node::CaseWhen(_)
            | Node::RowExpr(_)
            | Node::CoalesceExpr(_)
            | Node::MinMaxExpr(_)
            | Node::SQLValueFunction(_)
            | Node::XmlExpr(_)
            | Node::XmlSerialize(_)
            | Node::NullTest(_)
            | Node::BooleanTest(_)
            | Node::SetToDefault(_)
            | Node::NamedArgExpr(_)
            | Node::GroupingFunc(_)
            | Node::GroupingSet(_)
            | Node::MergeSupportFunc(_)
            | Node::CurrentOfExpr(_)
            | Node::JsonValueExpr(_)
            | Node::JsonBehavior(_)
            | Node::JsonArgument(_)
            | Node::JsonFuncExpr(_)
            | Node::JsonParseExpr(_)
            | Node::JsonScalarExpr(_)
            | Node::JsonSerializeExpr(_)
            | Node::JsonKeyValue(_)
            | Node::JsonObjectConstructor(_)
            | Node::JsonArrayConstructor(_)
            | Node::JsonObjectAgg(_)
            | Node::JsonArrayAgg(_)
            | Node::JsonAggConstructor(_)
            | Node::JsonIsPredicate(_)
            | Node::JsonOutput(_)
            | Node::Integer(_)
            | Node::Float(_)
            | Node::Boolean(_)
            | Node::String(_)
            | Node::BitString(_)
    )
}

/// What JSON_TABLE computes with: the document, what is passed to its paths, and what stands for values that are missing.
pub fn expressions_of_json_table(table: &nodes::JsonTable) -> Vec<Node<'_>> {
    let mut found: Vec<Node<'_>> = table.context_item().map(|item| item.raw_expr()).into_iter().collect();
    found.extend(table.passing().iter());
    found.extend(table.on_error().map(|behavior| behavior.expr()));
    let mut columns: Vec<&nodes::JsonTableColumn> = table.columns().iter().collect();
    while let Some(column) = columns.pop() {
        found.extend([column.on_empty(), column.on_error()].into_iter().flatten().map(|behavior| behavior.expr()));
        columns.extend(column.columns().iter().filter_map(|nested| match nested {
            Node::JsonTableColumn(nested) => Some(nested),
            _ => None,
        }));
    }
    found
}

fn children<'n>(node: Node<'n>, stack: &mut Vec<Node<'n>>) {
    match node {
        Node::NodeList(list) => stack.extend(list.iter()),
        Node::A_Expr(e) => stack.extend([e.lexpr(), e.rexpr()]),
        Node::A_Indices(e) => stack.extend([e.lidx(), e.uidx()]),
        Node::A_Indirection(e) => {
            stack.push(e.arg());
            stack.extend(e.indirection().iter());
        }
        Node::A_ArrayExpr(e) => stack.extend(e.elements().iter()),
        Node::TypeCast(e) => stack.push(e.arg()),
        Node::CollateClause(e) => stack.push(e.arg()),
        Node::FuncCall(e) => {
            stack.extend(e.args().iter());
            stack.extend(e.agg_order().iter().map(|sort| sort.node()));
            stack.push(e.agg_filter());
            if let Some(window) = e.over() {
                push_window(window, stack);
            }
        }
        Node::ResTarget(e) => {
            stack.push(e.val());
            stack.extend(e.indirection().iter());
        }
        Node::MultiAssignRef(e) => stack.push(e.source()),
        Node::SortBy(e) => stack.push(e.node()),
        Node::WindowDef(e) => push_window(e, stack),
        Node::BoolExpr(e) => stack.extend(e.args().iter()),
        Node::SubLink(e) => stack.push(e.testexpr()),
        Node::CaseExpr(e) => {
            stack.extend([e.arg(), e.defresult()]);
            stack.extend(e.args().iter());
        }
        Node::CaseWhen(e) => stack.extend([e.expr(), e.result()]),
        Node::RowExpr(e) => stack.extend(e.args().iter()),
        Node::CoalesceExpr(e) => stack.extend(e.args().iter()),
        Node::MinMaxExpr(e) => stack.extend(e.args().iter()),
        Node::XmlExpr(e) => {
            stack.extend(e.named_args().iter());
            stack.extend(e.args().iter());
        }
        Node::XmlSerialize(e) => stack.push(e.expr()),
        Node::NullTest(e) => stack.push(e.arg()),
        Node::BooleanTest(e) => stack.push(e.arg()),
        Node::NamedArgExpr(e) => stack.push(e.arg()),
        Node::GroupingFunc(e) => stack.extend(e.args().iter()),
        Node::GroupingSet(e) => stack.extend(e.content().iter()),
        _ => json_children(node, stack),
    }
}

/// The SQL/JSON family; everything without children ends here too.
fn json_children<'n>(node: Node<'n>, stack: &mut Vec<Node<'n>>) {
    match node {
        Node::JsonValueExpr(e) => stack.extend([e.raw_expr(), e.formatted_expr()]),
        Node::JsonBehavior(e) => stack.push(e.expr()),
        Node::JsonArgument(e) => stack.extend(e.val().map(Node::JsonValueExpr)),
        Node::JsonFuncExpr(e) => {
            stack.extend(e.context_item().map(Node::JsonValueExpr));
            stack.push(e.pathspec());
            stack.extend(e.passing().iter());
            stack.extend(e.on_empty().map(Node::JsonBehavior));
            stack.extend(e.on_error().map(Node::JsonBehavior));
        }
        Node::JsonParseExpr(e) => stack.extend(e.expr().map(Node::JsonValueExpr)),
        Node::JsonScalarExpr(e) => stack.push(e.expr()),
        Node::JsonSerializeExpr(e) => stack.extend(e.expr().map(Node::JsonValueExpr)),
        Node::JsonKeyValue(e) => {
            stack.push(e.key());
            stack.extend(e.value().map(Node::JsonValueExpr));
        }
        Node::JsonObjectConstructor(e) => stack.extend(e.exprs().iter().map(Node::JsonKeyValue)),
        Node::JsonArrayConstructor(e) => stack.extend(e.exprs().iter().map(Node::JsonValueExpr)),
        Node::JsonObjectAgg(e) => {
            stack.extend(e.constructor().map(Node::JsonAggConstructor));
            stack.extend(e.arg().map(Node::JsonKeyValue));
        }
        Node::JsonArrayAgg(e) => {
            stack.extend(e.constructor().map(Node::JsonAggConstructor));
            stack.extend(e.arg().map(Node::JsonValueExpr));
        }
        Node::JsonAggConstructor(e) => {
            stack.push(e.agg_filter());
            stack.extend(e.agg_order().iter());
            if let Some(window) = e.over() {
                push_window(window, stack);
            }
        }
        Node::JsonIsPredicate(e) => stack.push(e.expr()),
        _ => {}
    }
}

fn push_window<'n>(window: &'n nodes::WindowDef, stack: &mut Vec<Node<'n>>) {
    stack.extend(window.partition_clause().iter());
    stack.extend(window.order_clause().iter().map(|sort| sort.node()));
    stack.extend([window.start_offset(), window.end_offset()]);
}

/// What is cast, without the casts around it.
pub fn without_casts(mut node: Node<'_>) -> Node<'_> {
    while let Node::TypeCast(cast) = node {
        node = cast.arg();
    }
    node
}

/// A constant as PostgreSQL would print it; `None` for NULL and for what is no constant.
pub fn constant_text(node: Node<'_>) -> Option<String> {
    let Node::A_Const(constant) = without_casts(node) else {
        return None;
    };
    if constant.isnull {
        return None;
    }
    match constant.val()? {
        ConstValue::Integer(value) => Some(value.to_string()),
        ConstValue::Float(text) | ConstValue::String(text) | ConstValue::BitString(text) => Some(text.to_owned()),
        ConstValue::Boolean(value) => Some(value.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;

    #[test]
    fn walk_reaches_every_operand_of_a_chain_that_nests_deeply() {
        let text = format!("select 1{}", "+1".repeat(40_000));
        let tree = parse::parse(&text).expect("parses");
        let mut constants = 0;
        for statement in tree.stmts() {
            let Node::SelectStmt(select) = statement else { panic!("a SELECT") };
            for target in select.target_list() {
                walk(Node::ResTarget(target), &mut |node| {
                    constants += usize::from(matches!(node, Node::A_Const(_)));
                    is_known(node)
                });
            }
        }
        assert_eq!(constants, 40_001);
    }
}
