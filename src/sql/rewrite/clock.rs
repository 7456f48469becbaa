//! The clock of the transaction in a statement over several shards: one instant for all of them.
//!
//! Each server has a clock of its own, and its transaction begins when it is first touched. So what reads the clock is replaced,
//! in the text that a shard runs, by a setting that all of them get, as a sub-select whose column has the name of what it
//! replaces: names of columns stay what they are. Found token by token: what cannot be told from a name is refused. Strings that are
//! read as a time are found by [`super::clock_literals`].
//!
//! A `now()` of users that hides PostgreSQL's (tests stop the clock so, by `search_path = mine, pg_catalog`) is no clock here.
//!
//! Not seen: clocks in the definitions of views and functions, which stay the shard's own.

use super::clock_literals::{Meaning, is_special, meaning};
use crate::error::PgError;
use crate::sql::context::Context;
use crate::sql::parse::lexer::{self, TokenKind};
use crate::sql::parse::tokens::Tokens;

/// The setting with the time of the transaction.
pub const INSTANT: &str = "shardgate_clock.transaction";
/// The setting with the time of the statement.
pub const STATEMENT_INSTANT: &str = "shardgate_clock.statement";

/// The text with its clocks replaced by the settings; `None`: it has none. `context`: of the session that reads the names in it; none
/// where they are PostgreSQL's own under any search path.
pub fn replaced(text: &str, context: Option<&Context>) -> Result<Option<String>, PgError> {
    let current = |setting: &str| Some(format!("pg_catalog.current_setting('{setting}')::pg_catalog.timestamptz"));
    replaced_by(text, context, Instants { of: &current, is_column: true })
}

/// The text with its clocks as constants; `None`: it has none. `value`: of each setting, as PostgreSQL prints a time.
pub fn fixed(text: &str, context: Option<&Context>, value: &dyn Fn(&str) -> String) -> Result<Option<String>, PgError> {
    let constant = |setting: &str| Some(format!("'{}'::pg_catalog.timestamptz", value(setting)));
    replaced_by(text, context, Instants { of: &constant, is_column: true })
}

/// The same of a column's default, where no sub-select may stand.
pub fn fixed_in_default(text: &str, context: &Context, value: &dyn Fn(&str) -> String) -> Result<Option<String>, PgError> {
    let constant = |setting: &str| Some(format!("'{}'::pg_catalog.timestamptz", value(setting)));
    replaced_by(text, Some(context), Instants { of: &constant, is_column: false })
}

/// The text with `instant`, an expression, in place of the clocks of its transaction; `None`: it has none. The time of the statement
/// stays the server's own.
pub fn of_transaction(text: &str, context: Option<&Context>, instant: &str) -> Result<Option<String>, PgError> {
    let of_transaction = |setting: &str| (setting == INSTANT).then(|| instant.to_owned());
    replaced_by(text, context, Instants { of: &of_transaction, is_column: true })
}

fn replaced_by(text: &str, context: Option<&Context>, instants: Instants<'_>) -> Result<Option<String>, PgError> {
    if !mentions_clock(text) {
        return Ok(None);
    }
    let tokens = Tokens::of(text);
    let mut out = String::with_capacity(text.len() + 128);
    let (mut copied, mut index) = (0, 0);
    let mut is_untold = false;
    while let Some(token) = tokens.get(index) {
        let found = match token.kind {
            TokenKind::Word => clock(&tokens, index, context, instants)?,
            TokenKind::QuotedIdentifier if tokens.piece(index + 1) == "(" => clock(&tokens, index, context, instants)?,
            _ if is_special(&tokens, index) => match meaning(&tokens, index) {
                Some(Meaning::Time { first, last, type_name }) => {
                    Some((time(tokens.piece(index), &type_name, instants).ok_or_else(not_replaced)?, first, last))
                }
                Some(Meaning::Text) => None,
                Some(Meaning::Bare) | None => {
                    is_untold = true;
                    None
                }
            },
            _ => None,
        };
        let Some((sql, first, last)) = found else {
            index += 1;
            continue;
        };
        let Some(place) = tokens.range(first, last) else { break };
        out.push_str(text.get(copied..place.start).unwrap_or_default());
        out.push_str(&sql);
        copied = place.end;
        index = last + 1;
    }
    if copied == 0 {
        return Ok(None);
    }
    if is_untold {
        return Err(not_replaced());
    }
    out.push_str(text.get(copied..).unwrap_or_default());
    Ok(Some(out))
}

/// What is put in place of clocks.
#[derive(Clone, Copy)]
struct Instants<'a> {
    /// The SQL that stands for a setting; `None`: its clocks stay as they are.
    of: &'a dyn Fn(&str) -> Option<String>,
    /// It may be a column of a result, whose name stays what it was.
    is_column: bool,
}

impl Instants<'_> {
    fn value(self, instant: &str, type_name: &str, name: &str) -> String {
        let instant = match type_name {
            "pg_catalog.timestamptz" => instant.to_owned(),
            _ => format!("{instant}::{type_name}"),
        };
        if self.is_column { format!("(SELECT {instant} AS {name})") } else { format!("({instant})") }
    }
}

/// Every clock of the text can be replaced.
pub fn is_movable(text: &str, context: Option<&Context>) -> bool {
    replaced(text, context).is_ok_and(|replaced| replaced.is_some())
}

/// A constant like `'today'`, whose value is that of the moment when it is parsed.
pub fn has_relative_constant(text: &str) -> bool {
    let mentions = |text: &str| {
        let lower = text.to_ascii_lowercase();
        ["now", "today", "tomorrow", "yesterday"].iter().any(|word| lower.contains(word))
    };
    let is_constant = |token: &lexer::Token| matches!(token.kind, TokenKind::Literal(_));
    mentions(text) && lexer::tokens(text).filter(is_constant).any(|token| text.get(token.start..token.end).is_some_and(mentions))
}

pub fn mentions_clock(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    ["now", "current_", "localtime", "_timestamp", "age", "today", "tomorrow", "yesterday"].iter().any(|word| lower.contains(word))
}

/// What stands for the clock that begins at this token, and its first and last token.
fn clock(
    tokens: &Tokens<'_>,
    index: usize,
    context: Option<&Context>,
    instants: Instants<'_>,
) -> Result<Option<(String, usize, usize)>, PgError> {
    let piece = |index: usize| tokens.piece(index);
    let word = match piece(index) {
        escaped if escaped.starts_with(['u', 'U']) && escaped.ends_with('"') => return Err(not_replaced()),
        quoted if quoted.starts_with('"') => quoted.trim_matches('"').to_owned(),
        word => word.to_ascii_lowercase(),
    };
    let before = index.checked_sub(1).map(piece).unwrap_or_default().to_ascii_lowercase();
    let is_call = piece(index + 1) == "(";
    match word.as_str() {
        "now" | "transaction_timestamp" | "statement_timestamp" if is_call => {
            let setting = if word == "statement_timestamp" { STATEMENT_INSTANT } else { INSTANT };
            let Some(instant) = (instants.of)(setting).filter(|_| piece(index + 2) == ")") else { return Ok(None) };
            if before != "."
                && let Some(function) = context.and_then(|context| context.hiding(&word, &context.search_path))
            {
                // Whether its arguments may be left out is not known.
                return if function.argument_count == 0 { Ok(None) } else { Err(not_replaced()) };
            }
            let first = match before.as_str() {
                "." if piece(index.saturating_sub(2)).trim_matches('"').eq_ignore_ascii_case("pg_catalog") => index - 2,
                // Somebody's own function of this name.
                "." => return Ok(None),
                // FROM of a query, but for `extract(day FROM now())`.
                "from" if !is_inside_call(tokens, index) && !is_compared(tokens, index) => return Err(not_replaced()),
                "join" | "lateral" => return Err(not_replaced()),
                "," if is_in_from(tokens, index) => return Err(not_replaced()),
                _ => index,
            };
            if piece(index + 3).eq_ignore_ascii_case("over") {
                return Err(not_replaced());
            }
            Ok(Some((instants.value(&instant, "pg_catalog.timestamptz", &word), first, index + 2)))
        }
        // Of one argument it is the time until today.
        "age" if is_call && !has_comma(tokens, index + 1) => Err(not_replaced()),
        // Keywords; quoted they are names.
        _ if piece(index).starts_with('"') => Ok(None),
        "current_timestamp" | "current_date" | "current_time" | "localtime" | "localtimestamp" => {
            if matches!(before.as_str(), "." | "as") {
                return Ok(None);
            }
            if is_label(tokens, index, &before) {
                return Err(not_replaced());
            }
            let Some(instant) = (instants.of)(INSTANT) else { return Ok(None) };
            let has_precision = is_call && piece(index + 3) == ")";
            if is_call && !has_precision {
                return Err(not_replaced());
            }
            let precision = if has_precision { format!("({})", piece(index + 2)) } else { String::new() };
            let type_name = match word.as_str() {
                "current_timestamp" => "pg_catalog.timestamptz",
                "current_date" => "pg_catalog.date",
                "current_time" => "pg_catalog.timetz",
                "localtime" => "pg_catalog.time",
                _ => "pg_catalog.timestamp",
            };
            let type_name = format!("{type_name}{precision}");
            Ok(Some((instants.value(&instant, &type_name, &word), index, if has_precision { index + 3 } else { index })))
        }
        _ => Ok(None),
    }
}

/// What stands for a string with its type; an expression without a name, as a cast of a string is.
fn time(literal: &str, type_name: &str, instants: Instants<'_>) -> Option<String> {
    let instant = (instants.of)(INSTANT)?;
    let days = match literal.strip_prefix('\'')?.strip_suffix('\'')?.trim().to_ascii_lowercase().as_str() {
        "now" => return Some(format!("(({instant} - '0 s'::pg_catalog.interval)::{type_name})")),
        "today" => 0,
        "tomorrow" => 1,
        "yesterday" => -1,
        _ => return None,
    };
    // The input of a time of day takes no day.
    let has_day = ["date", "timestamp"].iter().any(|name| type_name.trim_start_matches("pg_catalog.").starts_with(name));
    has_day.then(|| format!("(({instant}::pg_catalog.date + {days})::{type_name})"))
}

/// After an operand an expression cannot begin: the word would be a column's label.
fn is_label(tokens: &Tokens<'_>, index: usize, before: &str) -> bool {
    let Some(token) = index.checked_sub(1).and_then(|index| tokens.get(index)) else { return false };
    match token.kind {
        TokenKind::Word => !BEFORE_EXPRESSIONS.contains(&before),
        TokenKind::Symbol => matches!(before, ")" | "]"),
        TokenKind::Literal(_) | TokenKind::QuotedIdentifier | TokenKind::Parameter => true,
        TokenKind::Comment => false,
    }
}

/// After a comma in the list of a FROM or USING, outside of the parentheses in it.
fn is_in_from(tokens: &Tokens<'_>, index: usize) -> bool {
    let mut depth = 0_usize;
    for before in (0..index).rev() {
        match tokens.piece(before).to_ascii_lowercase().as_str() {
            ")" => depth += 1,
            "(" if depth == 0 => return false,
            "(" => depth -= 1,
            "from" if depth == 0 => {
                let is_comparison = before.checked_sub(1).is_some_and(|distinct| tokens.is_word(distinct, "distinct"));
                if !is_comparison {
                    return true;
                }
            }
            "using" if depth == 0 => return true,
            "select" | "where" | "having" | "by" | "returning" | "set" | "values" if depth == 0 => return false,
            _ => {}
        }
    }
    false
}

/// After IS DISTINCT FROM or IS NOT DISTINCT FROM.
fn is_compared(tokens: &Tokens<'_>, index: usize) -> bool {
    let is_word = |back: usize, words: &[&str]| index.checked_sub(back).is_some_and(|at| tokens.is_one_of(at, words));
    is_word(1, &["from"]) && is_word(2, &["distinct"]) && is_word(3, &["is", "not"])
}

/// The innermost parentheses around it are those of a call whose arguments are parted by FROM.
fn is_inside_call(tokens: &Tokens<'_>, index: usize) -> bool {
    let mut depth = 0_usize;
    for before in (0..index).rev() {
        match tokens.piece(before) {
            ")" => depth += 1,
            "(" if depth == 0 => {
                let name = before.checked_sub(1).map(|name| tokens.piece(name)).unwrap_or_default().to_ascii_lowercase();
                return matches!(name.as_str(), "extract" | "substring" | "trim" | "overlay");
            }
            "(" => depth -= 1,
            _ => {}
        }
    }
    false
}

fn has_comma(tokens: &Tokens<'_>, open: usize) -> bool {
    tokens.closing(open).and_then(|close| tokens.elements(open + 1, close)).is_some_and(|arguments| arguments.len() > 1)
}

pub fn not_replaced() -> PgError {
    PgError::unsupported(
        "this use of the clock is not supported across shards",
        "Every shard has a clock of its own, and where the statement reads it one time for all cannot be put in its place.",
        "Pass the time as a parameter.",
    )
}

/// Words after which an expression begins.
const BEFORE_EXPRESSIONS: [&str; 31] = [
    "select",
    "distinct",
    "all",
    "and",
    "or",
    "not",
    "between",
    "then",
    "when",
    "else",
    "in",
    "on",
    "where",
    "having",
    "by",
    "case",
    "limit",
    "offset",
    "like",
    "ilike",
    "to",
    "from",
    "using",
    "values",
    "returning",
    "set",
    "is",
    "any",
    "some",
    "array",
    "filter",
];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "(SELECT pg_catalog.current_setting('shardgate_clock.transaction')::pg_catalog.timestamptz AS now)";

    #[test]
    fn clocks_are_replaced_under_their_own_names() {
        let text = |sql: &str| replaced(sql, None).expect("replaced");
        assert_eq!(text("SELECT now(), id FROM t WHERE at < Now ( )"), Some(format!("SELECT {NOW}, id FROM t WHERE at < {NOW}")));
        assert_eq!(text("SELECT pg_catalog.now()"), Some(format!("SELECT {NOW}")));
        assert_eq!(text("SELECT a IS NOT DISTINCT FROM now()"), Some(format!("SELECT a IS NOT DISTINCT FROM {NOW}")));
        assert_eq!(text("SELECT \"pg_catalog\".\"now\"(), now()"), Some(format!("SELECT {NOW}, {NOW}")));
        assert_eq!(text("INSERT INTO \"now\" (a) SELECT \"current_date\" (1) FROM \"NOW\"()"), None);
        let date = "(SELECT pg_catalog.current_setting('shardgate_clock.transaction')::pg_catalog.timestamptz::pg_catalog.date AS current_date)";
        assert_eq!(text("SELECT current_date - 1"), Some(format!("SELECT {date} - 1")));
        let time = "(SELECT pg_catalog.current_setting('shardgate_clock.transaction')::pg_catalog.timestamptz::pg_catalog.time(3) AS localtime)";
        assert_eq!(text("SELECT f(localtime(3))"), Some(format!("SELECT f({time})")));
        for same in [
            "SELECT now FROM t",
            "SELECT mine.now()",
            "SELECT 1 AS current_date",
            "SELECT 'now()'",
            "SELECT age(a, b)",
            "SELECT t.localtime",
        ] {
            assert_eq!(text(same), None, "{same}");
        }
    }

    #[test]
    fn clocks_become_constants() {
        let value =
            |setting: &str| if setting == INSTANT { "2026-01-02 03:04:05.6+00" } else { "2026-01-02 03:04:06+00" }.to_owned();
        let text = |sql: &str| fixed(sql, None, &value).expect("replaced");
        assert_eq!(
            text("SELECT statement_timestamp()"),
            Some("SELECT (SELECT '2026-01-02 03:04:06+00'::pg_catalog.timestamptz AS statement_timestamp)".to_owned())
        );
        let date = "(SELECT '2026-01-02 03:04:05.6+00'::pg_catalog.timestamptz::pg_catalog.date AS current_date)";
        assert_eq!(text("SELECT current_date + 1, gen_random_uuid()"), Some(format!("SELECT {date} + 1, gen_random_uuid()")));
        assert_eq!(text("SELECT 1"), None);
    }

    #[test]
    fn the_time_of_the_statement_is_not_that_of_the_transaction() {
        let text = |sql: &str| of_transaction(sql, None, "$1").expect("replaced");
        assert_eq!(text("SELECT statement_timestamp() > at FROM statement_timestamp() at"), None);
        assert_eq!(
            text("SELECT statement_timestamp(), now()"),
            Some("SELECT statement_timestamp(), (SELECT $1 AS now)".to_owned())
        );
    }

    #[test]
    fn strings_that_are_times_are_replaced_with_their_types() {
        let text = |sql: &str| fixed(sql, None, &|_| "T".to_owned()).expect("replaced");
        let time = |days: &str, name: &str| format!("(('T'::pg_catalog.timestamptz::pg_catalog.date + {days})::{name})");
        assert_eq!(
            text("SELECT timestamp(0) 'now' AT TIME ZONE 'utc'"),
            Some("SELECT (('T'::pg_catalog.timestamptz - '0 s'::pg_catalog.interval)::timestamp(0)) AT TIME ZONE 'utc'".to_owned())
        );
        assert_eq!(text("SELECT 'today'::date, 'now'::text"), Some(format!("SELECT {}, 'now'::text", time("0", "date"))));
        assert_eq!(text("SELECT cast('Yesterday' as timestamp)"), Some(format!("SELECT {}", time("-1", "timestamp"))));
        assert_eq!(text("SELECT 'now'::text, note = 'today'"), None);
    }

    #[test]
    fn what_cannot_be_told_is_refused() {
        for sql in [
            "SELECT 1 current_date",
            "SELECT * FROM now() n",
            "SELECT n FROM t JOIN u ON t.a = u.a, now() n",
            "SELECT age(at) FROM t",
            "SELECT now() < 'today'",
        ] {
            assert!(replaced(sql, None).is_err(), "{sql}");
        }
        assert!(!is_movable("SELECT 'today 10:00'::timestamp", None));
        assert!(is_movable("SELECT 'today'::date, now()", None));
        assert!(is_movable("SELECT a, now(), b IS DISTINCT FROM c, now() FROM t WHERE a IN (b, now()) GROUP BY a, now()", None));
        assert!(is_movable("SELECT now() - interval '1 day', extract(epoch FROM now())", None));
    }
}
