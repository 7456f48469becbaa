//! What may stand in a statement over the relations of the schema `shardgate`.
//!
//! It runs in the map database, by the proxy's own login: as the owner of the shard map, who may read the URLs of the shards with
//! their passwords and change everything, and perhaps as a superuser. So nothing is let through but what is listed here: these
//! relations and WITH queries, PostgreSQL's own types, operators and those of its functions that only compute from their arguments.
//! The whole text is looked through, also what the reading for routes has no need of, as a WITH query that nothing refers to.
//!
//! The connection gives what is named without a schema its meaning: its search path is `pg_catalog, shardgate`, whatever the client
//! has set, and its transactions are read only.

mod functions;

use std::collections::{BTreeMap, BTreeSet};

use pg_raw_parse::list::NodeList;
use pg_raw_parse::walk::{Recurse, walk_manual};
use pg_raw_parse::{Node, nodes};

use super::shardgate_call::{Answers, Naming, SCHEMA, answers, has_rows};
use crate::catalog::{Catalog, FIRST_USER_OID, Function, Oid};
use crate::error::PgError;
use crate::sql::called::{self, Given};
use crate::sql::context::Context;
use crate::sql::parse::tree;
use crate::sql::query::is_own_relation;

pub use functions::{COMPUTING, is_computing};

/// Refuses a statement of which not everything is known to be harmless.
pub fn check(statement: Node<'_>, context: &Context) -> Result<(), PgError> {
    let parts = parts(query_of(statement)?)?;
    let names = Names::among(&parts);
    parts.iter().try_for_each(|part| names.check(*part, context))
}

/// Whether a text names one of these relations with its schema: the home shard has views of their names, without rows.
pub fn are_named_in(text: &str) -> bool {
    let name = |rest: &str| {
        rest.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).next().is_some_and(is_own_relation)
    };
    text.match_indices("shardgate.").any(|(at, prefix)| text.get(at + prefix.len()..).is_some_and(name))
}

/// Of EXPLAIN, DECLARE and COPY … TO STDOUT, too.
fn query_of(statement: Node<'_>) -> Result<Node<'_>, PgError> {
    match statement {
        Node::SelectStmt(_) => Ok(statement),
        Node::ExplainStmt(explain) => query_of(explain.query()),
        Node::DeclareCursorStmt(cursor) => query_of(cursor.query()),
        Node::CopyStmt(copy) if !copy.is_from && !copy.is_program && copy.filename().is_none() => query_of(copy.query()),
        _ => Err(not_here("this statement")),
    }
}

/// Every node of the query, all of kinds whose children are known. With a list instead of recursion: expressions nest deeply.
fn parts(query: Node<'_>) -> Result<Vec<Node<'_>>, PgError> {
    let mut parts = vec![query];
    let mut next = 0;
    while let Some(part) = parts.get(next).copied() {
        next += 1;
        if !is_known(part) {
            return Err(not_here("a construct of this statement"));
        }
        walk_manual::<()>(part, |child| {
            parts.push(child);
            Recurse::no()
        });
    }
    Ok(parts)
}

fn is_known(node: Node<'_>) -> bool {
    matches!(
        node,
        Node::NodeList(_)
            | Node::SelectStmt(_)
            | Node::WithClause(_)
            | Node::CommonTableExpr(_)
            | Node::RangeVar(_)
            | Node::RangeSubselect(_)
            | Node::RangeFunction(_)
            | Node::JoinExpr(_)
            | Node::Alias(_)
            | Node::ColumnDef(_)
            | Node::ResTarget(_)
            | Node::SortBy(_)
            | Node::WindowDef(_)
            | Node::GroupingSet(_)
            | Node::GroupingFunc(_)
            | Node::SubLink(_)
            | Node::FuncCall(_)
            | Node::NamedArgExpr(_)
            | Node::SQLValueFunction(_)
            | Node::TypeCast(_)
            | Node::TypeName(_)
            | Node::CollateClause(_)
            | Node::ColumnRef(_)
            | Node::ParamRef(_)
            | Node::A_Expr(_)
            | Node::A_Const(_)
            | Node::A_Star(_)
            | Node::A_Indices(_)
            | Node::A_Indirection(_)
            | Node::A_ArrayExpr(_)
            | Node::BoolExpr(_)
            | Node::CaseExpr(_)
            | Node::CaseWhen(_)
            | Node::RowExpr(_)
            | Node::CoalesceExpr(_)
            | Node::MinMaxExpr(_)
            | Node::NullTest(_)
            | Node::BooleanTest(_)
            | Node::Integer(_)
            | Node::Float(_)
            | Node::Boolean(_)
            | Node::String(_)
            | Node::BitString(_)
    )
}

/// What the query names itself. Scopes are not looked at: what is said of a name holds for all that have it.
#[derive(Default)]
struct Names<'n> {
    with_queries: BTreeSet<&'n str>,
    /// Functions in FROM, and the names of columns that all of this name say they have.
    functions: BTreeMap<&'n str, BTreeSet<&'n str>>,
    /// There is one whose name PostgreSQL makes up.
    has_nameless_function: bool,
}

impl<'n> Names<'n> {
    fn among(parts: &[Node<'n>]) -> Self {
        let mut names = Self::default();
        for part in parts {
            match part {
                Node::CommonTableExpr(query) => names.with_queries.extend(query.ctename()),
                Node::RangeFunction(function) => names.add_function(function),
                _ => {}
            }
        }
        names
    }

    fn add_function(&mut self, function: &'n nodes::RangeFunction) {
        let alias = function.alias();
        let Some(name) = alias.map_or_else(|| name_of_call(function), |alias| alias.aliasname()) else {
            self.has_nameless_function = true;
            return;
        };
        let own = match own_function(function).and_then(answers) {
            Some(Answers::Rows(columns)) => columns,
            // Its column has the name that the call has here.
            Some(Answers::Value) => std::slice::from_ref(&name),
            Some(Answers::Nothing) | None => &[],
        };
        let renamed = alias.into_iter().flat_map(|alias| alias.colnames().iter().filter_map(Node::as_str));
        let defined = function.coldeflist().iter().filter_map(|column| column.colname());
        let columns: BTreeSet<&str> = renamed.chain(defined).chain(own.iter().copied()).collect();
        self.functions.entry(name).and_modify(|known| known.retain(|column| columns.contains(column))).or_insert(columns);
    }

    fn check(&self, part: Node<'n>, context: &Context) -> Result<(), PgError> {
        match part {
            Node::RangeVar(relation) => self.check_relation(relation),
            Node::FuncCall(call) => check_function(call, context),
            Node::SQLValueFunction(function) => check_value_function(function),
            Node::TypeName(name) => check_type(name),
            Node::ColumnRef(column) => self.check_column(column),
            Node::A_Indirection(e) => e.indirection().iter().try_for_each(check_indirection),
            Node::A_Expr(e) => check_operator(e.name()),
            Node::SubLink(e) => check_operator(e.oper_name()),
            Node::SortBy(e) => check_operator(e.use_op()),
            Node::SelectStmt(e) if e.into_clause().is_some() || !e.locking_clause().is_empty() => Err(not_here("this statement")),
            Node::CommonTableExpr(e) if e.search_clause().is_some() || e.cycle_clause().is_some() => {
                Err(not_here("SEARCH or CYCLE"))
            }
            _ => Ok(()),
        }
    }

    /// Without a schema it is a WITH query, or of one of the schemas of the search path: those of pg_catalog all begin with `pg_`.
    fn check_relation(&self, relation: &nodes::RangeVar) -> Result<(), PgError> {
        let name = relation.relname().unwrap_or_default();
        let is_meant = match relation.schemaname() {
            Some(schema) => schema == SCHEMA && is_own_relation(name),
            None => (is_own_relation(name) || self.with_queries.contains(name)) && !name.starts_with("pg_"),
        };
        if is_meant { Ok(()) } else { Err(not_here(&format!("relation \"{name}\""))) }
    }

    /// `f.x` calls a function x of f where f has no such column. Rows of a relation, a sub-select or a WITH query are records, for
    /// which only functions that print or count them are found; but those of a function are values, of whatever type it gives.
    fn check_column(&self, column: &nodes::ColumnRef) -> Result<(), PgError> {
        let fields: Vec<Node<'_>> = column.fields().iter().collect();
        let [.., table, Node::String(field)] = fields.as_slice() else { return Ok(()) };
        let field = field.sval().unwrap_or_default();
        let columns = table.as_str().and_then(|table| self.functions.get(table));
        if !self.has_nameless_function && columns.is_none_or(|columns| columns.contains(field)) {
            return Ok(());
        }
        Err(not_here(&format!("column \"{field}\" of a function"))
            .with_hint("Name the function's columns, as in unnest(shards) AS s (shard), or write the column's name alone."))
    }
}

/// A function of the schema `shardgate`, whose rows the proxy gives.
fn own_function(function: &nodes::RangeFunction) -> Option<&str> {
    let item = function.functions().first()?;
    match item.as_node_list().and_then(|item| item.first()).unwrap_or(item) {
        Node::FuncCall(call) => match tree::names(call.funcname())?.as_slice() {
            [SCHEMA, name] | [name] => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// What a function in FROM is called where it is given no other name.
fn name_of_call(function: &nodes::RangeFunction) -> Option<&str> {
    let first = function.functions().first()?;
    match first.as_node_list().and_then(|item| item.first()).unwrap_or(first) {
        Node::FuncCall(call) => tree::names(call.funcname())?.last().copied(),
        _ => None,
    }
}

/// A call of one of PostgreSQL's own functions, and of none of the same name that a user has made.
fn check_function(call: &nodes::FuncCall, context: &Context) -> Result<(), PgError> {
    let names = tree::names(call.funcname()).unwrap_or_default();
    let is_user_function = |name: &str| context.catalog.function_names.contains_key(name);
    let is_schema_searched = context.search_path.iter().any(|schema| schema == SCHEMA);
    let naming = Naming { is_schema_searched, is_user_function: &is_user_function };
    let is_meant = match (naming.function(call), names.as_slice()) {
        // By the rule by which the proxy has given rows for it: without them it fails, or would find those of another call.
        (Some(name), _) => has_rows(name),
        (None, ["pg_catalog", name]) => is_computing(name),
        (None, [name]) => {
            let given = || Given::of(call, |_| None);
            let candidates = called::functions_of_users(context, &context.search_path, name, given);
            is_computing(name) && candidates.iter().all(|function| cannot_be_meant(function, call, &context.catalog))
        }
        (None, _) => false,
    };
    if is_meant { Ok(()) } else { Err(not_here(&format!("function {}()", names.join(".")))) }
}

/// The function cannot be meant: where it takes a value of a type of users, the call gives one of a type of PostgreSQL's own, which is
/// not made into it unless that is written. All values here are of such types.
fn cannot_be_meant(function: &Function, call: &nodes::FuncCall, catalog: &Catalog) -> bool {
    let is_by_place = !call.func_variadic && !call.args().iter().any(|argument| matches!(argument, Node::NamedArgExpr(_)));
    if !is_by_place || function.is_variadic || function.argument_types.len() != function.argument_count {
        return false;
    }
    let is_of_users = |wanted: Oid| {
        catalog.under_domains(wanted) >= FIRST_USER_OID
            && !catalog.implicit_casts.iter().any(|(from, to)| *to == wanted && catalog.under_domains(*from) < FIRST_USER_OID)
    };
    // A string or a parameter alone may become anything.
    let has_type = |argument: Node<'_>| {
        matches!(argument, Node::ColumnRef(_) | Node::FuncCall(_) | Node::TypeCast(_) | Node::A_Expr(_) | Node::SubLink(_))
    };
    call.args().iter().zip(&function.argument_types).any(|(argument, wanted)| has_type(argument) && is_of_users(*wanted))
}

/// The clock, and not who the proxy is there.
fn check_value_function(function: &nodes::SQLValueFunction) -> Result<(), PgError> {
    match tree::is_clock(function) {
        true => Ok(()),
        false => Err(not_here("a name of the user, the role, the database or the schema")),
    }
}

/// Not those whose input looks objects up.
fn check_type(name: &nodes::TypeName) -> Result<(), PgError> {
    let names: Vec<&str> = name.names().iter().filter_map(|name| name.sval()).collect();
    let is_meant = match names.as_slice() {
        ["pg_catalog", name] | [name] => TYPES.contains(name),
        _ => false,
    };
    if is_meant && !name.setof && !name.pct_type { Ok(()) } else { Err(not_here(&format!("type \"{}\"", names.join(".")))) }
}

/// `(x).f` calls a function f of x, whatever the type of x is.
fn check_indirection(step: Node<'_>) -> Result<(), PgError> {
    match step {
        Node::String(name) => Err(not_here(&format!("field \"{}\" of an expression", name.sval().unwrap_or_default()))),
        _ => Ok(()),
    }
}

fn check_operator(names: &NodeList) -> Result<(), PgError> {
    match tree::names(names).unwrap_or_default().as_slice() {
        [] if names.is_empty() => Ok(()),
        [_] | ["pg_catalog", _] => Ok(()),
        _ => Err(not_here("an operator of another schema than pg_catalog")),
    }
}

fn not_here(what: &str) -> PgError {
    PgError::unsupported(
        format!("{what} is not supported beside relations of the schema shardgate"),
        "They are read in the database of the shard map, where only their rows, and PostgreSQL's own types, operators and functions that compute, may be used.",
        "Read their rows by a statement of its own, and use them in the next one.",
    )
}

/// Written by the parser for its own words (`int4` of `integer`), or by users.
const TYPES: [&str; 28] = [
    "bit",
    "bool",
    "boolean",
    "bpchar",
    "bytea",
    "char",
    "date",
    "decimal",
    "float4",
    "float8",
    "int2",
    "int4",
    "int8",
    "integer",
    "interval",
    "json",
    "jsonb",
    "name",
    "numeric",
    "oid",
    "text",
    "time",
    "timestamp",
    "timestamptz",
    "timetz",
    "uuid",
    "varbit",
    "varchar",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::parse;
    use crate::sql::testing::Fixture;

    /// Statements after the first are ignored.
    fn refusal(text: &str) -> Option<String> {
        let tree = parse::parse(text).expect(text);
        let statement = tree.stmts().next().expect(text);
        check(statement, &Fixture::default().context(&["public"], &[])).err().map(|error| error.message)
    }

    #[test]
    fn what_computes_is_let_through() {
        for text in [
            "SELECT name || '!', count(*) FILTER (WHERE capacity > 1.5) OVER (PARTITION BY region) FROM shardgate.shards s",
            "WITH s AS (TABLE shardgate.shards) SELECT lower(s.name), s.* FROM s JOIN shards USING (name) ORDER BY 1 DESC LIMIT $1",
            "SELECT u.shard FROM shardgate.clients c, LATERAL unnest(c.shards) AS u (shard) WHERE u.shard OPERATOR(pg_catalog.=) 'a'",
            "SELECT arguments -> 'name', changed_at::timestamptz(0), CURRENT_DATE FROM shardgate.history WHERE change LIKE 'add%'",
            "SELECT EXTRACT(epoch FROM age), age BETWEEN '1 s' AND interval '1 day', x[1] FROM shardgate.transactions",
            "EXPLAIN (ANALYZE) SELECT ROW(1, 2) IN (SELECT 1, 2), ARRAY[1]::int[], substring(name FROM 2) FROM shardgate.shards",
            "COPY (SELECT 1 FROM shardgate.shards GROUP BY GROUPING SETS (name, ())) TO STDOUT (FORMAT csv)",
            "DECLARE c CURSOR FOR SELECT s.name FROM shardgate.shards s, unnest(ARRAY[s.name]), ROWS FROM (unnest(ARRAY[1])) f",
        ] {
            let told = refusal(text);
            assert_eq!(told, None, "{text}");
        }
        let deep = format!("SELECT 1{} FROM shardgate.shards", "+1".repeat(40_000));
        assert_eq!(refusal(&deep), None);
    }

    #[test]
    fn what_a_name_with_a_dot_may_call_is_not() {
        for text in [
            "SELECT f.g FROM unnest(ARRAY['a']) AS f",
            "SELECT f.g FROM unnest(ARRAY['a']) AS f (x)",
            "SELECT f.f FROM unnest(ARRAY['a']) AS f",
            "SELECT unnest.g FROM unnest(ARRAY['a'])",
            "SELECT f.g FROM unnest(ARRAY['a']) AS f, (SELECT 1 FROM unnest(ARRAY['a']) AS f (g)) x",
            "SELECT ('a'::text).g",
            "SELECT (f).g FROM unnest(ARRAY['a']) AS f",
            "SELECT (ARRAY['a'])[1].g",
        ] {
            assert!(refusal(text).is_some(), "{text}");
        }
        assert_eq!(refusal("SELECT f.g, s.name FROM unnest(ARRAY['a']) AS f (g), shardgate.shards s"), None);
    }

    /// What the proxy does not take for its own has no rows of this statement there.
    #[test]
    fn own_functions_are_named_as_the_proxy_reads_names() {
        let told = |text: &str, path: &[&str]| {
            let tree = parse::parse(text).expect(text);
            check(tree.stmts().next().expect(text), &Fixture::default().context(path, &[])).is_ok()
        };
        for (text, path, is_meant) in [
            ("SELECT p.step FROM shardgate.shards s, shardgate.plan_tables() p", &["public"][..], true),
            ("SELECT p.step FROM shardgate.shards s, plan_tables() p", &["public"], false),
            ("SELECT p.step FROM shardgate.shards s, plan_tables() p", &["public", "shardgate"], true),
            ("SELECT u.move_id FROM undistribute_table('t') u", &["public"], true),
            ("SELECT p.p FROM shardgate.map_key('t', 'k', 's') p", &["public"], true),
            ("SELECT p.other FROM shardgate.map_key('t', 'k', 's') p", &["public"], false),
            ("SELECT 1 FROM shardgate.shards s, shardgate.add_shard('a', 'b')", &["public"], false),
        ] {
            assert_eq!(told(text, path), is_meant, "{text} {path:?}");
        }
    }

    #[test]
    fn a_function_of_a_users_is_not_taken_for_that_of_postgresql() {
        let mut fixture = Fixture::default();
        fixture.function("lower", 'i', "sql", "SELECT 1");
        let context = fixture.context(&["public"], &[]);
        let is_refused = |text: &str| {
            let tree = parse::parse(text).expect(text);
            check(tree.stmts().next().expect(text), &context).is_err()
        };
        assert!(is_refused("SELECT lower(name) FROM shardgate.shards"));
        assert!(!is_refused("SELECT pg_catalog.lower(name), upper(name) FROM shardgate.shards"));
    }

    /// As `max(citext)` and `replace(citext, citext, citext)` are beside PostgreSQL's own.
    #[test]
    fn an_overload_for_a_type_of_users_is_not_meant() {
        let refused = |casts: &[(Oid, Oid)], text: &str| {
            let mut fixture = Fixture::default();
            for (name, count) in [("max", 1), ("replace", 3)] {
                let function = fixture.function(name, 'i', "internal", name);
                let function = fixture.catalog.functions.get_mut(&function).unwrap();
                (function.argument_count, function.argument_types, function.is_variadic) = (count, vec![90_000; count], false);
            }
            fixture.catalog.implicit_casts.extend(casts);
            let tree = parse::parse(text).expect(text);
            check(tree.stmts().next().expect(text), &fixture.context(&["public"], &[])).is_err()
        };
        for text in [
            "SELECT max(name), max(partitions), max(name || '!') FROM shardgate.shards",
            "SELECT replace(name, 'a', 'b') FROM shardgate.shards",
        ] {
            assert!(!refused(&[], text), "{text}");
            // Where a value of PostgreSQL's own becomes one without being told to.
            assert!(refused(&[(25, 90_000)], text), "{text}");
        }
        assert!(refused(&[], "SELECT replace('a', 'b', $1) FROM shardgate.shards"));
        assert!(refused(&[], "SELECT max(VARIADIC ARRAY[name]) FROM shardgate.shards"));
    }
}
