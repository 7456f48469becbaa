//! Names and values as SQL text.

use std::borrow::Cow;

/// A name that means itself, whatever is in it.
pub fn quoted_identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `"schema"."name"`.
pub fn quoted_name(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted_identifier(schema), quoted_identifier(name))
}

/// A column or table as a person writes it: quoted where its letters need it, or where it is a word of the grammar's own.
pub fn written_identifier(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    if is_plain && !NO_COLUMNS.contains(&name) { name.to_owned() } else { quoted_identifier(name) }
}

/// `schema.name` likewise.
pub fn shown_name(schema: &str, name: &str) -> String {
    format!("{}.{}", written_identifier(schema), written_identifier(name))
}

/// Words that name no column without quotes: those of PostgreSQL's list (appendix C) that are reserved, or names of functions and types.
const NO_COLUMNS: [&str; 101] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "placing",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "similar",
    "some",
    "symmetric",
    "system_user",
    "table",
    "tablesample",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

/// As `encode(…, 'hex')` writes them.
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(u32::from(digit), 16)).collect()
}

/// A string literal that means the same under either setting of `standard_conforming_strings`.
pub fn quoted_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    // A space: the E must not become part of a word before it.
    if text.contains('\\') { format!(" E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// A type as `format_type` prints it under the path `pg_catalog`, so that it means the same under every path: `date` may also be
/// somebody's domain. Those of the grammar itself, as `integer`, are always PostgreSQL's.
pub fn type_anywhere(printed: &str) -> Cow<'_, str> {
    let end = match printed.strip_prefix('"') {
        Some(quoted) => quoted.find('"').map_or(printed.len(), |end| end + 2),
        None => printed.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(printed.len()),
    };
    let (name, rest) = printed.split_at_checked(end).unwrap_or((printed, ""));
    // A quote within quotes is in no name of PostgreSQL's.
    let is_qualified = rest.starts_with(['.', '"']);
    if is_qualified || OF_THE_GRAMMAR.contains(&name) { printed.into() } else { format!("pg_catalog.{printed}").into() }
}

const OF_THE_GRAMMAR: [&str; 12] =
    ["bigint", "bit", "boolean", "character", "double", "integer", "interval", "numeric", "real", "smallint", "time", "timestamp"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_reads_back() {
        assert_eq!(quoted_identifier("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(quoted_name("My \"s\"", "t"), "\"My \"\"s\"\"\".\"t\"");
        assert_eq!(shown_name("shop", "Order"), "shop.\"Order\"");
        assert_eq!(quoted_literal("it's"), "'it''s'");
        assert_eq!(quoted_literal("it's \\"), " E'it''s \\\\'");
    }

    #[test]
    fn types_are_named_under_every_path() {
        for (printed, named) in [
            ("text", "pg_catalog.text"),
            ("date[]", "pg_catalog.date[]"),
            ("\"char\"", "pg_catalog.\"char\""),
            ("character varying(9)", "character varying(9)"),
            ("timestamp(3) with time zone[]", "timestamp(3) with time zone[]"),
            ("numeric(9,3)", "numeric(9,3)"),
            ("shop.level[]", "shop.level[]"),
            ("\"My \"\"s\"\"\".text", "\"My \"\"s\"\"\".text"),
        ] {
            assert_eq!(type_anywhere(printed), named);
        }
    }
}
