//! Keys of rows that have been loaded, sent to the shards beside the conditions of another input: `column = ANY ('{…}')`.
//!
//! They are read from the temporary table itself, once all rows of it are there: no row is missing that joins one of those that
//! the statement is computed over. What the other shards send later they read in the snapshots that they took at the beginning, so
//! that these rows are the same as if all had come at once; a change in between is seen by nobody. So it is with connections of the
//! transaction itself, where it has one snapshot. In READ COMMITTED, where each statement has another one, those of the shards where
//! it has written send everything in one statement: they wait for no keys, and send what their other conditions leave.
//!
//! A NULL equals nothing and is no key; without keys nothing is needed. Where they are too many the condition is `IS NOT NULL`,
//! which follows too.
//!
//! A column is compared with keys of its own type, whatever the type of the column that they come from: PostgreSQL looks them up by
//! a hash then. Keys that no value of that type can equal are left out.

use super::filters::TEXTS;
use super::splicing;
use crate::catalog::{Column, quoted_literal};
use crate::shard_key::{Oid, oid};

/// The keys of an input that is loaded before: a column's values are among them, or the row is not needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Keys {
    /// Name of the input.
    pub input: String,
    /// The table that has them, as messages name it.
    pub relation: String,
    /// Its column, quoted.
    pub column: String,
    pub form: Form,
}

/// How keys are written for the column that is compared with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Of the column's own type, or of one whose values are all among its own. The type, as SQL.
    Same(&'static str),
    /// Text and numbers that may be long.
    Long(&'static str),
    /// Only those in the range of an integer type.
    Within { type_name: &'static str, low: &'static str, high: &'static str },
}

/// Keys as they were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub count: u64,
    /// The text of an array.
    pub list: String,
}

impl Form {
    /// `None`: the columns cannot be compared by keys. `own`: of the column that is restricted.
    pub fn of(own: &Column, keys: &Column) -> Option<Self> {
        let type_name = type_name(own.type_oid)?;
        let rank = |type_oid: Oid| NUMBERS.iter().position(|number| *number == type_oid);
        match (rank(own.type_oid), rank(keys.type_oid)) {
            (Some(own), Some(keys)) if keys > own => {
                let (low, high) = *RANGES.get(own)?;
                Some(Form::Within { type_name, low, high })
            }
            (Some(_), Some(_)) if keys.type_oid == oid::NUMERIC => Some(Form::Long(type_name)),
            (Some(_), Some(_)) => Some(Form::Same(type_name)),
            (None, None) if TEXTS.contains(&own.type_oid) => are_comparable(own, keys).then_some(Form::Long(type_name)),
            (None, None) => (own.type_oid == keys.type_oid).then_some(Form::Same(type_name)),
            (Some(_), None) | (None, Some(_)) => None,
        }
    }
}

/// Equality of these two is the same on every shard, and goes on from one column to the next.
pub fn are_comparable(left: &Column, right: &Column) -> bool {
    let are_both = |types: &[Oid]| types.contains(&left.type_oid) && types.contains(&right.type_oid);
    let is_text = TEXTS.contains(&left.type_oid);
    (left.type_oid == right.type_oid || are_both(&NUMBERS) || are_both(&[oid::TEXT, oid::VARCHAR]))
        && super::filters::COMPARED.contains(&left.type_oid)
        && (!is_text || (left.is_deterministic && right.is_deterministic && left.collation == right.collation))
}

/// Not floats, of which one value may have many texts, nor booleans.
fn type_name(type_oid: Oid) -> Option<&'static str> {
    Some(match type_oid {
        oid::INT2 => "pg_catalog.int2",
        oid::INT4 => "pg_catalog.int4",
        oid::INT8 => "pg_catalog.int8",
        oid::NUMERIC => "pg_catalog.numeric",
        oid::UUID => "pg_catalog.uuid",
        oid::TEXT | oid::VARCHAR => "pg_catalog.text",
        oid::BPCHAR => "pg_catalog.bpchar",
        oid::DATE => "pg_catalog.date",
        oid::TIMESTAMP => "pg_catalog.timestamp",
        oid::TIMESTAMPTZ => "pg_catalog.timestamptz",
        _ => return None,
    })
}

impl Keys {
    /// Yields how many they are, and themselves as the text of an array; no row when they are too many.
    pub fn query(&self) -> String {
        let Self { input, column, form, .. } = self;
        let table = format!("{}.\"{input}\"", splicing::TEMPORARY_SCHEMA);
        let (key, condition, most, limit) = match form {
            Form::Same(type_name) => (format!("x::{type_name}"), String::new(), KEYS_MAX, String::new()),
            Form::Within { type_name, low, high } => {
                let condition = format!(
                    " AND {column} OPERATOR(pg_catalog.>=) ({low}) AND {column} OPERATOR(pg_catalog.<=) ({high}) AND \
                     {column}::pg_catalog.numeric OPERATOR(pg_catalog.=) pg_catalog.trunc({column}::pg_catalog.numeric)"
                );
                (format!("x::{type_name}"), condition, KEYS_MAX, String::new())
            }
            // What is cut off is too long. Equality is that of the text, or follows from it.
            Form::Long(_) => (
                format!("pg_catalog.left(x::pg_catalog.text, {}) COLLATE pg_catalog.\"C\"", LENGTH_MAX + 1),
                String::new(),
                LONG_KEYS_MAX,
                format!(
                    " AND coalesce(pg_catalog.max(pg_catalog.char_length(x)) <= {LENGTH_MAX} \
                     AND pg_catalog.sum(pg_catalog.octet_length(x)) <= {LONG_BYTES_MAX}, true)"
                ),
            ),
        };
        format!(
            "SELECT pg_catalog.count(*), pg_catalog.array_agg(x)::pg_catalog.text FROM \
             (SELECT DISTINCT {key} AS x FROM \
             (SELECT {column} AS x FROM {table} WHERE {column} IS NOT NULL{condition} LIMIT {KEY_ROWS_MAX}) x LIMIT {}) x \
             HAVING pg_catalog.count(*) <= {most}{limit} \
             AND (SELECT pg_catalog.count(*) FROM (SELECT FROM {table} LIMIT {}) x) <= {KEY_ROWS_MAX}",
            most + 1,
            KEY_ROWS_MAX + 1
        )
    }

    /// What stands after a column. `None`: not known, or too many.
    pub fn condition(&self, found: Option<&Found>) -> String {
        match found {
            Some(found) => {
                let list = quoted_literal(&found.list);
                format!(" OPERATOR(pg_catalog.=) ANY ({}::{}[])", list.trim_start(), self.type_name())
            }
            None => ANY_VALUE.to_owned(),
        }
    }

    /// The same for people: by their name, before they are known.
    pub fn shown(&self) -> String {
        format!(" = ANY (keys {} of {})", self.column, self.relation)
    }

    /// When they have been looked for.
    pub fn shown_as(&self, found: Option<&Found>) -> String {
        match found {
            Some(found) => format!(" = ANY ({} keys {} of {})", found.count, self.column, self.relation),
            None => ANY_VALUE.to_owned(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self.form {
            Form::Same(type_name) | Form::Long(type_name) | Form::Within { type_name, .. } => type_name,
        }
    }
}

/// What follows from an equality alone.
pub const ANY_VALUE: &str = " IS NOT NULL";
/// By their values one of these equals another when the numbers are the same. Each has the values of those before it.
const NUMBERS: [Oid; 4] = [oid::INT2, oid::INT4, oid::INT8, oid::NUMERIC];
const RANGES: [(&str, &str); 3] =
    [("-32768", "32767"), ("-2147483648", "2147483647"), ("-9223372036854775808", "9223372036854775807")];
/// More keys than these are not sent to the shards, nor looked for among more rows: some hundred kilobytes of numbers.
const KEYS_MAX: usize = 50_000;
pub const KEY_ROWS_MAX: usize = 200_000;
/// The same for those whose size is not known before: a quarter of a megabyte for each shard.
const LONG_KEYS_MAX: usize = 10_000;
const LONG_BYTES_MAX: usize = 256 * 1024;
/// Characters; a longer one would hardly be a key.
const LENGTH_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::testing::library;

    /// Of two columns of tables of the fixture.
    fn form(own: &str, keys: &str) -> Option<Form> {
        let fixture = library();
        let column = |name: &str| {
            let (table, column) = name.rsplit_once('.').expect("a table and a column");
            let (schema, table) = table.split_once('.').unwrap_or(("public", table));
            let relation = fixture.catalog.resolve(Some(schema), table, &[]).expect("declared");
            relation.column(column).expect("declared").clone()
        };
        Form::of(&column(own), &column(keys))
    }

    #[test]
    fn keys_are_written_in_the_type_of_the_column_that_is_restricted() {
        assert_eq!(form("t.k", "u.t_k"), Some(Form::Same("pg_catalog.int8")));
        assert_eq!(form("t.k", "t.x"), Some(Form::Same("pg_catalog.int8")));
        assert_eq!(form("t.x", "t.k"), {
            Some(Form::Within { type_name: "pg_catalog.int4", low: "-2147483648", high: "2147483647" })
        });
        assert_eq!(form("t.name", "u.name"), Some(Form::Long("pg_catalog.text")));
        assert_eq!(form("t.name", "codes_v.name"), Some(Form::Long("pg_catalog.text")));
        assert_eq!(form("docs.id", "docs.id"), Some(Form::Same("pg_catalog.uuid")));
        assert_eq!(form("events.day", "events.day"), Some(Form::Same("pg_catalog.date")));
        assert_eq!(form("app.orders.total", "t.x"), Some(Form::Same("pg_catalog.numeric")));
        assert_eq!(form("app.orders.total", "app.orders.total"), Some(Form::Long("pg_catalog.numeric")));
    }

    #[test]
    fn columns_that_are_not_compared_alike_everywhere_have_none() {
        for (own, keys) in [
            ("t.f", "t.f"),
            ("t.k", "t.f"),
            ("t.ci", "t.name"),
            ("t.ci", "t.ci"),
            ("t.name", "t.x"),
            ("codes.code", "t.name"),
            ("events.day", "stamps.at"),
            ("docs.body", "docs.body"),
        ] {
            assert_eq!(form(own, keys), None, "{own} = {keys}");
        }
    }

    fn keys(form: Form) -> Keys {
        Keys { input: "i".to_owned(), relation: "public.t".to_owned(), column: "\"k\"".to_owned(), form }
    }

    #[test]
    fn a_list_reads_back_whatever_is_in_it() {
        let found = |list: &str| Some(Found { count: 1, list: list.to_owned() });
        let condition = |form: Form, list: &str| keys(form).condition(found(list).as_ref());
        assert_eq!(condition(Form::Same("pg_catalog.int8"), "{7}"), " OPERATOR(pg_catalog.=) ANY ('{7}'::pg_catalog.int8[])");
        assert_eq!(condition(Form::Long("pg_catalog.text"), r#"{it's,"a\"b"}"#), {
            r#" OPERATOR(pg_catalog.=) ANY (E'{it''s,"a\\"b"}'::pg_catalog.text[])"#
        });
        assert_eq!(keys(Form::Same("pg_catalog.int8")).condition(None), " IS NOT NULL");
        assert_eq!(keys(Form::Same("pg_catalog.int8")).shown_as(found("{7}").as_ref()), " = ANY (1 keys \"k\" of public.t)");
    }

    #[test]
    fn what_no_value_of_the_column_equals_is_no_key() {
        let within = Form::Within { type_name: "pg_catalog.int2", low: "-32768", high: "32767" };
        let query = keys(within).query();
        for part in ["x::pg_catalog.int2", "\"k\" OPERATOR(pg_catalog.>=) (-32768)", "pg_catalog.trunc(\"k\"::pg_catalog.numeric)"]
        {
            assert!(query.contains(part), "{part}: {query}");
        }
        assert!(keys(Form::Long("pg_catalog.text")).query().contains("left(x::pg_catalog.text, 129)"));
    }
}
