//! The key of a table, from the text of a declaration to typed columns.
//!
//! `tenant_id`, `region, tenant_id`, `right(isbn, 1)`: parsed by PostgreSQL's own grammar, as a select list, of which only
//! column names and calls of key functions are taken.

use pg_raw_parse::{ConstValue, Node};

use super::names::{nearest, perhaps};
use crate::catalog::{Catalog, Column, Relation, quoted_identifier, quoted_name};
use crate::error::{PgError, SqlState};
use crate::shard_key::{FunctionArgument, KeyColumn, KeyFunction, KeyType};
use crate::shardmap::Strategy;

/// One column of a key, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyItem {
    pub(super) column: String,
    pub(super) function: Option<KeyFunction>,
}

/// A checked key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TableKey {
    pub(super) columns: Vec<KeyColumn>,
    /// After the functions.
    pub(super) types: Vec<KeyType>,
}

/// More would make routing slow and say nothing new.
const KEY_COLUMNS_MAX: usize = 8;

impl TableKey {
    pub(super) fn resolve(text: &str, catalog: &Catalog, relation: &Relation, strategy: Strategy) -> Result<Self, PgError> {
        let items = parse(text)?;
        let mut key = TableKey { columns: Vec::new(), types: Vec::new() };
        for item in items {
            let column = relation.column(&item.column).ok_or_else(|| unknown_column(relation, &item.column))?;
            let column_type = column_type(catalog, relation, column)?;
            let key_type = match &item.function {
                None => column_type,
                Some(function) => function.result_type(column_type).ok_or_else(|| {
                    PgError::unsupported(
                        format!("key function {} does not take column \"{}\"", function.to_sql("…"), column.name),
                        format!("The column has type {}.", column.type_name),
                        KEY_FUNCTIONS_HINT,
                    )
                })?,
            };
            if column.is_generated {
                return Err(PgError::unsupported(
                    format!("cannot use generated column \"{}\" as shard key", column.name),
                    "Its value is not in the statement that writes the row.",
                    "Use the column that it is generated from, with a key function if need be.",
                ));
            }
            let without_ranges = match key_type {
                KeyType::Bool => Some("It has two values."),
                KeyType::Numeric => Some("There is no next number, where another range would begin."),
                _ => None,
            };
            if let (Strategy::Range, Some(reason)) = (strategy, without_ranges) {
                return Err(PgError::unsupported(
                    format!("cannot distribute by range of {} column \"{}\"", key_type.name(), column.name),
                    reason,
                    "Use strategy 'lookup', or 'hash'.",
                ));
            }
            key.columns.push(KeyColumn { column: column.name.clone(), column_type, function: item.function });
            key.types.push(key_type);
        }
        Ok(key)
    }
}

fn column_type(catalog: &Catalog, relation: &Relation, column: &Column) -> Result<KeyType, PgError> {
    if !column.is_deterministic {
        return Err(PgError::unsupported(
            format!("cannot use column \"{}\" of table \"{}\" as shard key", column.name, relation.name),
            "Its collation is nondeterministic: texts that are equal under it hash differently.",
            "Give the column a deterministic collation.",
        ));
    }
    let key_type = KeyType::of_column(column.type_oid).filter(|key_type| match key_type {
        // One that rounds would store another value than the one that was routed.
        KeyType::Timestamp | KeyType::Timestamptz => matches!(column.typmod, -1 | 6),
        KeyType::Int2
        | KeyType::Int4
        | KeyType::Int8
        | KeyType::Text
        | KeyType::Bpchar
        | KeyType::Uuid
        | KeyType::Date
        | KeyType::Bool
        | KeyType::Bytea
        | KeyType::Numeric => true,
    });
    key_type.ok_or_else(|| {
        let message = format!("cannot use column \"{}\" of table \"{}\" as shard key", column.name, relation.name);
        match with_built_in_type(catalog, relation, column) {
            Some(hint) => PgError::unsupported(
                message,
                format!(
                    "Its type is {}. Partitions are moved by logical replication, whose filters take columns of PostgreSQL's own \
                     types only.",
                    column.type_name
                ),
                hint,
            ),
            None => PgError::unsupported(
                message,
                format!("Its type is {}.", column.type_name),
                "Shard keys are smallint, integer, bigint, numeric, text, varchar, char(n), uuid, date, timestamp, timestamptz, boolean \
                 or bytea; timestamps without a lower precision than microseconds.",
            ),
        }
    })
}

/// What makes the column one of a type that a shard key may have, where its values would be the same.
fn with_built_in_type(catalog: &Catalog, relation: &Relation, column: &Column) -> Option<String> {
    let own = catalog.types.get(&column.type_oid)?;
    let name = quoted_identifier(&column.name);
    let alter = format!("ALTER TABLE {} ALTER COLUMN {name} TYPE", quoted_name(&relation.schema, &relation.name));
    match (own.kind, KeyType::of_column(catalog.under_domains(column.type_oid))) {
        ('d', Some(base)) => Some(format!(
            "Use the type under the domain, and make the domain's checks those of the table: {alter} {}.",
            base.name()
        )),
        ('e', _) => {
            Some(format!("Use text, with the labels in a check: {alter} text USING {name}::text, ADD CHECK ({name} IN (…))."))
        }
        ('b', _) if own.name == "citext" => Some(format!(
            "Use text in lower case, in the table and in statements: {alter} text USING lower({name}), ADD CHECK ({name} = lower({name}))."
        )),
        _ => None,
    }
}

fn unknown_column(relation: &Relation, name: &str) -> PgError {
    let error =
        PgError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" of relation \"{}\" does not exist", relation.name));
    match nearest(name, relation.columns.iter(), |column| &column.name) {
        Some(meant) => error.with_hint(perhaps(&written(&meant.name))),
        None => error,
    }
}

const KEY_FUNCTIONS_HINT: &str = "Key functions are left(text, n), right(text, n), substr(text, from, length), integer % n and \
     date_trunc('hour' | 'day' | 'month' | 'year', timestamp).";

/// A column as a key's text names it: quoted where the grammar would read something else.
pub(super) fn written(column: &str) -> String {
    let is_itself = |items: &[KeyItem]| matches!(items, [item] if item.column == column && item.function.is_none());
    match parse(column) {
        Ok(items) if is_itself(&items) => column.to_owned(),
        Ok(_) | Err(_) => quoted_identifier(column),
    }
}

/// One column of a key as `distribute_table` takes it.
pub(super) fn column_text(column: &str, function: Option<&KeyFunction>) -> String {
    let column = written(column);
    function.map_or(column.clone(), |function| function.to_sql(&column))
}

pub(super) fn parse(text: &str) -> Result<Vec<KeyItem>, PgError> {
    let invalid = |detail: &str| {
        PgError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid shard key")
            .with_detail(detail)
            .with_hint("Give a column ('tenant_id'), several ('region, tenant_id') or a key function of one ('right(isbn, 1)').")
    };
    let tree = crate::sql::parse(&format!("SELECT {text}")).map_err(|error| match error.code {
        SqlState::STATEMENT_TOO_COMPLEX => invalid("It is too complex to be read."),
        _ => invalid("It is not a list of expressions."),
    })?;
    let mut statements = tree.iter().map(|raw| raw.stmt());
    let (Some(Node::SelectStmt(select)), None) = (statements.next(), statements.next()) else {
        return Err(invalid("It is not a list of expressions."));
    };
    let is_plain = select.from_clause().is_empty()
        && matches!(select.where_clause(), Node::None)
        && select.sort_clause().is_empty()
        && matches!(select.limit_count(), Node::None)
        && select.larg().is_none();
    if !is_plain {
        return Err(invalid("It is more than a list of expressions."));
    }
    let mut items: Vec<KeyItem> = Vec::new();
    for target in select.target_list() {
        let item = parse_item(target.val())
            .filter(|_| target.name().is_none_or(str::is_empty))
            .ok_or_else(|| invalid("An expression is neither a column nor a key function of one.").with_hint(KEY_FUNCTIONS_HINT))?;
        if items.iter().any(|other| other.column == item.column) {
            return Err(invalid(&format!("Column \"{}\" is in it twice.", item.column)));
        }
        items.push(item);
    }
    match items.len() {
        0 => Err(invalid("It is empty.")),
        1..=KEY_COLUMNS_MAX => Ok(items),
        _ => Err(invalid(&format!("It has more than {KEY_COLUMNS_MAX} columns."))),
    }
}

fn parse_item(node: Node<'_>) -> Option<KeyItem> {
    match node {
        Node::ColumnRef(_) => column_name(node).map(|column| KeyItem { column: column.to_owned(), function: None }),
        Node::FuncCall(call) => {
            let names: Vec<&str> = call.funcname().iter().map(Node::as_str).collect::<Option<_>>()?;
            let name = match names.as_slice() {
                [name] | ["pg_catalog", name] => *name,
                _ => return None,
            };
            let is_plain = call.agg_order().is_empty() && call.over().is_none() && matches!(call.agg_filter(), Node::None);
            let arguments: Vec<Node<'_>> = call.args().iter().collect();
            if is_plain { key_function(name, &arguments) } else { None }
        }
        Node::A_Expr(expression) => {
            let names: Vec<&str> = expression.name().iter().map(Node::as_str).collect::<Option<_>>()?;
            if names != ["%"] {
                return None;
            }
            key_function("%", &[expression.lexpr(), expression.rexpr()])
        }
        _ => None,
    }
}

fn key_function(name: &str, arguments: &[Node<'_>]) -> Option<KeyItem> {
    let mut column = None;
    let mut read = Vec::with_capacity(arguments.len());
    for argument in arguments {
        read.push(match argument {
            Node::ColumnRef(_) if column.is_none() => {
                column = Some(column_name(*argument)?.to_owned());
                FunctionArgument::Column
            }
            Node::A_Const(constant) if !constant.isnull => match constant.val()? {
                ConstValue::Integer(value) => FunctionArgument::Integer(i64::from(value)),
                ConstValue::String(text) => FunctionArgument::Text(text),
                _ => return None,
            },
            // A negative number: the grammar reads it as an operator before a constant.
            Node::A_Expr(expression) if matches!(expression.lexpr(), Node::None) => {
                let Node::A_Const(constant) = expression.rexpr() else { return None };
                let names: Vec<&str> = expression.name().iter().map(Node::as_str).collect::<Option<_>>()?;
                match constant.val()? {
                    ConstValue::Integer(value) if names == ["-"] => FunctionArgument::Integer(-i64::from(value)),
                    _ => return None,
                }
            }
            _ => return None,
        });
    }
    Some(KeyItem { column: column?, function: Some(KeyFunction::from_call(name, &read)?) })
}

fn column_name(node: Node<'_>) -> Option<&str> {
    let Node::ColumnRef(reference) = node else { return None };
    let mut fields = reference.fields().iter();
    match (fields.next(), fields.next()) {
        (Some(field), None) => field.as_str(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(column: &str, function: Option<KeyFunction>) -> KeyItem {
        KeyItem { column: column.to_owned(), function }
    }

    #[test]
    fn columns_and_key_functions_are_read() {
        assert_eq!(parse("Tenant_ID").unwrap(), [item("tenant_id", None)]);
        assert_eq!(parse("\"Tenant\", region").unwrap(), [item("Tenant", None), item("region", None)]);
        assert_eq!(parse("right(isbn, 1)").unwrap(), [item("isbn", Some(KeyFunction::Right(1)))]);
        assert_eq!(parse("left(isbn, -2)").unwrap(), [item("isbn", Some(KeyFunction::Left(-2)))]);
        assert_eq!(parse("pg_catalog.substr(a, 2, 3)").unwrap(), [item("a", Some(KeyFunction::Substr(2, 3)))]);
        assert_eq!(parse("id % 16").unwrap(), [item("id", Some(KeyFunction::Modulo(16)))]);
        assert!(matches!(
            &parse("date_trunc('month', at)").unwrap()[..],
            [KeyItem { function: Some(KeyFunction::DateTrunc(_)), .. }]
        ));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "*",
            "a.b",
            "1",
            "lower(a)",
            "right(a, b)",
            "right(1, a)",
            "a + 1",
            "a, a",
            "a FROM t",
            "a; b",
            "a AS b",
            "'a'",
            "(select 1)",
            "a UNION SELECT b",
            "right(a, 1) over ()",
            "a,b,c,d,e,f,g,h,i",
            "my.right(a, 1)",
            "a % 0",
            ")",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_text_that_would_keep_the_scanner_busy_is_refused_unread() {
        for text in ["+".repeat(200_000), "/*".repeat(200_000)] {
            let refusal = parse(&text).map(drop).expect_err("refused");
            assert_eq!(refusal.detail.as_deref(), Some("It is too complex to be read."));
        }
    }
}
