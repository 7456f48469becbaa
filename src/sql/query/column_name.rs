//! The name that PostgreSQL gives to a column of the select list without an alias (FigureColname): ORDER BY may mean it.

use pg_raw_parse::{Node, nodes};

use super::bind::with_stack;

/// The name, and whether a cast around it keeps it.
struct Figured {
    name: String,
    is_strong: bool,
}

pub fn column_name(value: Node<'_>) -> String {
    figured(value).map_or_else(|| "?column?".to_owned(), |figured| figured.name)
}

fn figured(value: Node<'_>) -> Option<Figured> {
    with_stack(|| figured_inside(value))
}

fn figured_inside(value: Node<'_>) -> Option<Figured> {
    let strong = |name: &str| Some(Figured { name: name.to_owned(), is_strong: true });
    let weak = |name: &str| Some(Figured { name: name.to_owned(), is_strong: false });
    match value {
        Node::ColumnRef(column) => strong(column.fields().iter().filter_map(Node::as_str).next_back()?),
        Node::FuncCall(call) => strong(call.funcname().iter().filter_map(Node::as_str).next_back()?),
        Node::A_Indirection(e) => match e.indirection().iter().filter_map(Node::as_str).next_back() {
            Some(field) => strong(field),
            None => figured(e.arg()),
        },
        Node::A_Expr(e) if e.kind == nodes::A_Expr_Kind::AEXPR_NULLIF => strong("nullif"),
        Node::TypeCast(cast) => match figured(cast.arg()) {
            Some(inner) if inner.is_strong => Some(inner),
            inner => cast.type_name().and_then(|name| name.names().iter().next_back()?.sval()).and_then(weak).or(inner),
        },
        Node::CollateClause(collate) => figured(collate.arg()),
        Node::GroupingFunc(_) => strong("grouping"),
        Node::MergeSupportFunc(_) => strong("merge_action"),
        Node::SubLink(sublink) => sublink_name(sublink),
        Node::CaseExpr(case) => match figured(case.defresult()) {
            Some(inner) if inner.is_strong => Some(inner),
            _ => weak("case"),
        },
        Node::A_ArrayExpr(_) => strong("array"),
        Node::RowExpr(_) => strong("row"),
        Node::CoalesceExpr(_) => strong("coalesce"),
        Node::MinMaxExpr(e) if e.op == nodes::MinMaxOp::IS_GREATEST => strong("greatest"),
        Node::MinMaxExpr(_) => strong("least"),
        Node::SQLValueFunction(e) => strong(value_function_name(e)),
        Node::XmlExpr(e) => strong(xml_name(e)?),
        Node::XmlSerialize(_) => strong("xmlserialize"),
        _ => None,
    }
}

fn sublink_name(sublink: &nodes::SubLink) -> Option<Figured> {
    use nodes::SubLinkType as Type;
    let strong = |name: &str| Some(Figured { name: name.to_owned(), is_strong: true });
    match sublink.sub_link_type {
        Type::EXISTS_SUBLINK => strong("exists"),
        Type::ARRAY_SUBLINK => strong("array"),
        Type::EXPR_SUBLINK => {
            let Node::SelectStmt(select) = sublink.subselect() else { return None };
            let target = select.target_list().iter().next()?;
            match target.name() {
                Some(name) => strong(name),
                None => figured(target.val()),
            }
        }
        _ => None,
    }
}

fn value_function_name(function: &nodes::SQLValueFunction) -> &'static str {
    use nodes::SQLValueFunctionOp as Op;
    match function.op {
        Op::SVFOP_CURRENT_DATE => "current_date",
        Op::SVFOP_CURRENT_TIME | Op::SVFOP_CURRENT_TIME_N => "current_time",
        Op::SVFOP_CURRENT_TIMESTAMP | Op::SVFOP_CURRENT_TIMESTAMP_N => "current_timestamp",
        Op::SVFOP_LOCALTIME | Op::SVFOP_LOCALTIME_N => "localtime",
        Op::SVFOP_LOCALTIMESTAMP | Op::SVFOP_LOCALTIMESTAMP_N => "localtimestamp",
        Op::SVFOP_CURRENT_ROLE => "current_role",
        Op::SVFOP_CURRENT_USER => "current_user",
        Op::SVFOP_SESSION_USER => "session_user",
        Op::SVFOP_CURRENT_CATALOG => "current_catalog",
        Op::SVFOP_CURRENT_SCHEMA => "current_schema",
        _ => "user",
    }
}

fn xml_name(e: &nodes::XmlExpr) -> Option<&'static str> {
    use nodes::XmlExprOp as Op;
    Some(match e.op {
        Op::IS_XMLCONCAT => "xmlconcat",
        Op::IS_XMLELEMENT => "xmlelement",
        Op::IS_XMLFOREST => "xmlforest",
        Op::IS_XMLPARSE => "xmlparse",
        Op::IS_XMLPI => "xmlpi",
        Op::IS_XMLROOT => "xmlroot",
        Op::IS_XMLSERIALIZE => "xmlserialize",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;

    #[test]
    fn names_are_postgresqls() {
        for (expression, expected) in [
            ("t.a", "a"),
            ("a + 1", "?column?"),
            ("1", "?column?"),
            ("$1", "?column?"),
            ("lower(a)", "lower"),
            ("pg_catalog.lower(a)::text", "lower"),
            ("1::bigint", "int8"),
            ("(a + 1)::numeric(3, 1)", "numeric"),
            ("coalesce(a, 1)", "coalesce"),
            ("nullif(a, 1)", "nullif"),
            ("greatest(a, 1)", "greatest"),
            ("case when a then b end", "case"),
            ("case when a then b else c end", "c"),
            ("array[1]", "array"),
            ("row(1)", "row"),
            ("exists (select 1)", "exists"),
            ("(select max(a) from t)", "max"),
            ("a collate \"C\"", "a"),
            ("(a).b", "b"),
            ("a[1]", "a"),
            ("current_date", "current_date"),
            ("user", "user"),
        ] {
            let text = format!("select {expression}");
            let tree = parse::parse(&text).expect("parses");
            let names: Vec<String> = tree
                .stmts()
                .filter_map(|statement| match statement {
                    Node::SelectStmt(select) => select.target_list().iter().next().map(|target| column_name(target.val())),
                    _ => None,
                })
                .collect();
            assert_eq!(names, [expected], "{expression}");
        }
    }
}
