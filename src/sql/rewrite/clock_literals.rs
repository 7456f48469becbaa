//! Strings that PostgreSQL may read as a time of the transaction: `'now'`, `'today'`, `'tomorrow'`, `'yesterday'`.
//!
//! Such a string is a time only as a value of a type of dates or times, which its place decides: a cast, the column that it is
//! compared with or assigned to. Read token by token; a place that is not known may be one of a time, and is refused where it
//! matters, which is on several shards: each would read its own clock.
//!
//! In a prepared statement PostgreSQL reads them when it is prepared; here they are read when it runs, as `now()` is.
//!
//! Not seen: what becomes such a string only when it is evaluated, and strings in the definitions of views and functions.

use pg_raw_parse::{Node, nodes};

use super::clock;
use super::value_rows::value_rows;
use crate::catalog::{Oid, Relation};
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse;
use crate::sql::parse::lexer::{LiteralClass, TokenKind};
use crate::sql::parse::tokens::Tokens;
use crate::sql::query::resolve;

/// What a string stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Of a type that it says itself. `first`, `last`: tokens of all of it; `type_name`: as it is written.
    Time { first: usize, last: usize, type_name: String },
    /// No time.
    Text,
    /// Its place decides.
    Bare,
}

/// What a cast makes of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Time,
    Text,
    Unknown,
}

/// The text with its times cast to their types. `None`: they are, or there are none. An error: one cannot be told from a text.
pub fn typed(text: &str, context: &Context) -> Result<Option<String>, PgError> {
    let mut out = String::with_capacity(text.len() + 32);
    let mut copied = 0;
    for literal in clock_literals(text, context)? {
        out.push_str(text.get(copied..literal.start).unwrap_or_default());
        out.push_str(&literal.expression);
        copied = literal.end;
    }
    if copied == 0 {
        return Ok(None);
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Ok(Some(out))
}

/// A time, with its cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockLiteral {
    /// Byte offsets.
    pub start: usize,
    pub end: usize,
    /// With its type.
    pub expression: String,
}

/// The times of a text, in its order. An error: one cannot be told from a text.
pub fn clock_literals(text: &str, context: &Context) -> Result<Vec<ClockLiteral>, PgError> {
    if !mentions_time(text) {
        return Ok(Vec::new());
    }
    let tokens = Tokens::of(text);
    let mut found = Vec::new();
    for index in (0..tokens.count()).filter(|index| is_special(&tokens, *index)) {
        let (range, expression) = match meaning(&tokens, index) {
            Some(Meaning::Text) => continue,
            Some(Meaning::Time { first, last, .. }) => {
                let range = tokens.range(first, last).ok_or_else(untold)?;
                (range.clone(), text.get(range).unwrap_or_default().to_owned())
            }
            Some(Meaning::Bare) => {
                let Some(type_name) = of_place(&tokens, index, context).ok_or_else(untold)? else { continue };
                let expression = format!("{}::pg_catalog.{type_name}", tokens.piece(index));
                (tokens.range(index, index).ok_or_else(untold)?, expression)
            }
            None => return Err(untold()),
        };
        if !clock::is_movable(&format!("SELECT {expression}"), None) {
            return Err(untold());
        }
        found.push(ClockLiteral { start: range.start, end: range.end, expression });
    }
    Ok(found)
}

/// One of the words is in a string of the text.
pub fn mentions_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    WORDS.iter().any(|word| lower.contains(word)) && {
        let tokens = Tokens::of(text);
        (0..tokens.count()).any(|index| is_special(&tokens, index))
    }
}

/// A string that the input of a date or a time would take for one of the transaction.
pub fn is_special(tokens: &Tokens<'_>, index: usize) -> bool {
    let is_string =
        tokens.get(index).is_some_and(|token| matches!(token.kind, TokenKind::Literal(LiteralClass::String | LiteralClass::Other)));
    is_string && is_special_text(tokens.piece(index))
}

/// As a value: `today`, `today 10:00`, `[yesterday,today)`; not `see you today`.
pub fn is_special_text(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|character: char| !character.is_ascii_alphabetic()).filter(|word| !word.is_empty()).collect();
    let others = words.iter().filter(|word| !WORDS.contains(word)).count();
    others < words.len() && (others <= 2 || lower.bytes().any(|byte| byte.is_ascii_digit() || byte == b'/'))
}

/// What the text around a string says of its type. `None`: something that is not known.
pub fn meaning(tokens: &Tokens<'_>, index: usize) -> Option<Meaning> {
    let of_sort = |sort: Sort, first: usize, type_first: usize, type_last: usize, last: usize| match sort {
        Sort::Text => Some(Meaning::Text),
        Sort::Time => {
            let type_name = tokens.slice(type_first, type_last)?.to_owned();
            Some(Meaning::Time { first, last, type_name })
        }
        Sort::Unknown => None,
    };
    let is_cast = |index: usize| tokens.piece(index) == ":" && tokens.piece(index + 1) == ":";
    if is_cast(index + 1) {
        let (sort, last) = type_at(tokens, index + 3);
        // What a second cast makes of a text is not known.
        return (sort != Sort::Text || !is_cast(last + 1)).then(|| of_sort(sort, index, index + 3, last, last))?;
    }
    let is_cast_call = index >= 2 && tokens.is_word(index - 2, "cast") && tokens.piece(index - 1) == "(";
    if is_cast_call && tokens.is_word(index + 1, "as") {
        let (sort, last) = type_at(tokens, index + 2);
        return (sort != Sort::Text || !is_cast(last + 2)).then(|| of_sort(sort, index - 2, index + 2, last, last + 1))?;
    }
    let starts = (index.saturating_sub(TYPE_TOKENS_MAX)..index).rev();
    let mut types = starts.filter(|first| tokens.get(*first).is_some_and(|token| token.kind == TokenKind::Word));
    let found = types.find_map(|first| match type_at(tokens, first) {
        (Sort::Unknown, _) => None,
        (sort, last) => (last + 1 == index).then_some((sort, first, last)),
    });
    match found {
        // PostgreSQL's own schema before it.
        Some((sort, first, last)) => of_sort(sort, first, first, last, index),
        None => Some(Meaning::Bare),
    }
}

/// The type that is named from this token on, and its last token.
fn type_at(tokens: &Tokens<'_>, first: usize) -> (Sort, usize) {
    let is_qualified = tokens.is_word(first, "pg_catalog") && tokens.piece(first + 1) == ".";
    let name = if is_qualified { first + 2 } else { first };
    let is_time = tokens.is_one_of(name, &TIMES);
    let sort = match (is_time, tokens.is_one_of(name, &TEXTS)) {
        (true, _) => Sort::Time,
        (_, true) => Sort::Text,
        (false, false) => Sort::Unknown,
    };
    let mut last = name;
    if tokens.piece(last + 1) == "(" && tokens.piece(last + 3) == ")" {
        last += 3;
    }
    if is_time && tokens.is_one_of(last + 1, &["with", "without"]) && tokens.is_word(last + 2, "time") {
        last += 3;
    }
    let is_more = matches!(tokens.piece(last + 1), "[" | ".");
    (if is_more && sort == Sort::Time { Sort::Unknown } else { sort }, last)
}

/// The type that a string without one has in its place; `Some(None)`: no time. `None`: not known.
fn of_place(tokens: &Tokens<'_>, index: usize, context: &Context) -> Option<Option<&'static str>> {
    let before = index.checked_sub(1)?;
    match tokens.piece(before).to_ascii_lowercase().as_str() {
        "=" | "<" | ">" => of_compared(tokens, index, context),
        "like" | "ilike" => Some(None),
        "between" => of_operand(tokens, before.checked_sub(1)?, context),
        "and" if tokens.is_word(index.checked_sub(3)?, "between") => of_operand(tokens, index.checked_sub(4)?, context),
        "then" | "else" => is_of_texts(tokens, index).then_some(None),
        "select" => (!has_set_operation(tokens)).then_some(None),
        "(" | "," => of_list(tokens, index, context),
        _ => None,
    }
}

/// After an operator.
fn of_compared(tokens: &Tokens<'_>, index: usize, context: &Context) -> Option<Option<&'static str>> {
    let mut operand = index.checked_sub(1)?;
    let operator = |at: usize| matches!(tokens.piece(at), "=" | "<" | ">" | "!" | "-" | "#" | "@");
    while operator(operand) {
        operand = operand.checked_sub(1)?;
    }
    let symbols: String = (operand + 1..index).map(|at| tokens.piece(at)).collect();
    match symbols.as_str() {
        // A key of a document.
        "->" | "->>" | "#>" | "#>>" => Some(None),
        "=" | "<" | ">" | "<=" | ">=" | "<>" | "!=" => of_operand(tokens, operand, context),
        _ => None,
    }
}

/// What a value is compared with ends at this token.
fn of_operand(tokens: &Tokens<'_>, last: usize, context: &Context) -> Option<Option<&'static str>> {
    if last >= 2 && tokens.piece(last - 1) == ":" {
        return match type_at(tokens, last) {
            (Sort::Text, _) => Some(None),
            (Sort::Time | Sort::Unknown, _) => None,
        };
    }
    if last >= 3 && [1, 2].iter().all(|back| tokens.piece(last - back) == ">") && tokens.piece(last - 3) == "-" {
        return Some(None);
    }
    let column = tokens.identifier(last)?;
    let is_name = |relation: &&Relation| (0..tokens.count()).any(|index| tokens.identifier(index).as_ref() == Some(&relation.name));
    let mut types = Vec::new();
    for relation in context.catalog.relations.values().filter(is_name) {
        types.extend(relation.column(&column).map(|column| of_type(column.type_oid, context)));
    }
    let (first, rest) = types.split_first()?;
    rest.iter().all(|other| other == first).then_some(*first)?
}

/// In parentheses: `IN (…)`, a row of VALUES, a select list.
fn of_list(tokens: &Tokens<'_>, index: usize, context: &Context) -> Option<Option<&'static str>> {
    if let Some(found) = of_inserted(tokens, index, context) {
        return found;
    }
    let open = (0..index).rev().find(|open| tokens.piece(*open) == "(" && tokens.closing(*open).is_some_and(|close| close > index));
    if let Some(open) = open {
        let mut before = open.checked_sub(1)?;
        if tokens.is_word(before, "in") {
            before = before.checked_sub(1)?;
            let operand = if tokens.is_word(before, "not") { before.checked_sub(1)? } else { before };
            return of_operand(tokens, operand, context);
        }
    }
    let first = open.map_or(0, |open| open + 1);
    let is_listed = tokens.is_word(first, "select") && tokens.word_at_top(first, &["from"]).is_none_or(|from| from > index);
    (is_listed && !has_set_operation(tokens)).then_some(None)
}

/// In a row that an INSERT has; the outer `None`: it is in none.
fn of_inserted(tokens: &Tokens<'_>, index: usize, context: &Context) -> Option<Option<Option<&'static str>>> {
    let parsed = parse::parse(tokens.text()).ok()?;
    let Some(Node::InsertStmt(insert)) = parsed.stmts().next() else { return None };
    let Node::SelectStmt(select) = insert.select_stmt() else { return None };
    let offset = tokens.get(index)?.start;
    let rows = value_rows(tokens.text(), select.values_lists().len())?;
    let row = rows.iter().find(|row| row.contains(&offset))?;
    let open = tokens.at(row.start)?;
    let elements = tokens.elements(open + 1, tokens.closing(open)?)?;
    let place = elements.iter().position(|element| *element == (index, index))?;
    Some(column_of(insert, place, context))
}

fn column_of(insert: &nodes::InsertStmt, place: usize, context: &Context) -> Option<Option<&'static str>> {
    let relation = resolve(context, insert.relation()?, &context.search_path).table()?;
    let column = match insert.cols().iter().nth(place) {
        Some(Node::ResTarget(column)) if column.indirection().is_empty() => relation.column(column.name()?)?,
        Some(_) => return None,
        None => relation.columns.get(place)?,
    };
    of_type(column.type_oid, context)
}

/// A type of the catalogue: the name of one of times, `Some(None)` for one of no time.
fn of_type(type_oid: Oid, context: &Context) -> Option<Option<&'static str>> {
    let found = context.catalog.types.get(&type_oid)?;
    let base = if found.base == 0 { found } else { context.catalog.types.get(&found.base)? };
    match TIMES.iter().find(|name| **name == base.name && base.schema == "pg_catalog") {
        Some(name) => Some(Some(name)),
        None => (base.kind == 'e' || TEXTS.contains(&base.name.as_str())).then_some(None),
    }
}

/// All that this CASE may give is a string without a type: PostgreSQL takes it for a text.
fn is_of_texts(tokens: &Tokens<'_>, index: usize) -> bool {
    let (mut first, mut depth) = (index, 0_usize);
    while !(depth == 0 && tokens.is_word(first, "case")) {
        match () {
            () if tokens.is_word(first, "end") => depth += 1,
            () if tokens.is_word(first, "case") => depth -= 1,
            () => {}
        }
        let Some(before) = first.checked_sub(1) else { return false };
        first = before;
    }
    let (mut at, mut depth) = (first + 1, 0_usize);
    while !(depth == 0 && tokens.is_word(at, "end")) {
        match () {
            () if at >= tokens.count() => return false,
            () if tokens.is_word(at, "case") => depth += 1,
            () if tokens.is_word(at, "end") => depth -= 1,
            () if depth == 0 && tokens.is_one_of(at, &["then", "else"]) => {
                let is_string = tokens.get(at + 1).is_some_and(|token| token.kind == TokenKind::Literal(LiteralClass::String));
                if !is_string || !tokens.is_one_of(at + 2, &["when", "else", "end"]) {
                    return false;
                }
            }
            () => {}
        }
        at += 1;
    }
    true
}

/// The types of two queries' columns decide together; those of an INSERT's columns do so for its query.
fn has_set_operation(tokens: &Tokens<'_>) -> bool {
    (0..tokens.count()).any(|index| tokens.is_one_of(index, &["union", "intersect", "except", "insert"]))
}

fn untold() -> PgError {
    PgError::unsupported(
        "a string that may be a time of the transaction is not supported here across shards",
        "PostgreSQL reads 'now', 'today', 'tomorrow' and 'yesterday' as times where its types want one, and every shard has a clock of its own.",
        "Write now() or current_date; or cast the string to text, if it is one.",
    )
}

/// Parameters' values are strings too. `text`: of one whose type is that.
pub fn check_parameter(type_oid: Oid, text: &[u8], context: &Context) -> Result<(), PgError> {
    let is_text = matches!(of_type(type_oid, context), Some(None));
    match std::str::from_utf8(text) {
        Ok(text) if !is_text && text.len() <= PARAMETER_BYTES_MAX && is_special_text(text) => Err(untold()),
        Ok(_) | Err(_) => Ok(()),
    }
}

const WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
const TIMES: [&str; 5] = ["date", "timestamp", "timestamptz", "time", "timetz"];
/// Types whose input knows no clock.
const TEXTS: [&str; 17] = [
    "text",
    "varchar",
    "bpchar",
    "char",
    "character",
    "name",
    "json",
    "jsonb",
    "bytea",
    "bool",
    "int2",
    "int4",
    "int8",
    "numeric",
    "float8",
    "uuid",
    "interval",
];
/// `pg_catalog . timestamp ( 3 ) without time zone`.
const TYPE_TOKENS_MAX: usize = 9;
/// The input of dates and times takes no more.
const PARAMETER_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning_of(text: &str) -> Option<Meaning> {
        let tokens = Tokens::of(text);
        let index = (0..tokens.count()).find(|index| is_special(&tokens, *index)).expect("a special string");
        meaning(&tokens, index)
    }

    #[test]
    fn a_type_before_or_after_a_string_says_what_it_is() {
        for (text, type_name) in [
            ("SELECT 'now'::timestamptz", "timestamptz"),
            ("SELECT 'Now'::pg_catalog.timestamp (3) without time zone + x", "pg_catalog.timestamp (3) without time zone"),
            ("SELECT timestamp with time zone ' now '", "timestamp with time zone"),
            ("SELECT date 'today' - 1", "date"),
            ("SELECT CAST('tomorrow' AS timestamp(0))", "timestamp(0)"),
        ] {
            assert!(matches!(meaning_of(text), Some(Meaning::Time { type_name: found, .. }) if found == type_name), "{text}");
        }
        assert_eq!(meaning_of("SELECT 'today'::text"), Some(Meaning::Text));
        assert_eq!(meaning_of("SELECT 'today'::text::date"), None);
        assert_eq!(meaning_of("SELECT '{now}'::timestamp[]"), None);
        assert_eq!(meaning_of("SELECT '[today,tomorrow)'::daterange"), None);
        assert_eq!(meaning_of("SELECT x < 'today'"), Some(Meaning::Bare));
    }

    #[test]
    fn only_what_can_be_a_time_is_special() {
        for text in ["now", " TODAY ", "today 10:00 America/New_York", "[yesterday,today)", "tomorrow allballs"] {
            assert!(is_special_text(text), "{text}");
        }
        for text in ["", "unknown", "know now how to", "nowhere"] {
            assert!(!is_special_text(text), "{text}");
        }
    }

    #[test]
    fn a_case_of_strings_is_text() {
        let is_text = |text: &str| {
            let tokens = Tokens::of(text);
            let index = (0..tokens.count()).find(|index| is_special(&tokens, *index)).expect("a special string");
            is_of_texts(&tokens, index)
        };
        assert!(is_text("SELECT CASE WHEN x THEN 'today' WHEN CASE WHEN y THEN 1 END = 1 THEN 'b' ELSE 'c' END"));
        assert!(!is_text("SELECT CASE WHEN x THEN 'today' ELSE day END"));
    }
}
