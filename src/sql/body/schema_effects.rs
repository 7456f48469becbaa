//! Whether a body changes the schema: by a statement of its own, or by a text that it runs with EXECUTE.
//!
//! What such a text says is known only when it runs, but how it begins stands in the body as a string. A body that runs texts of
//! which no string of its own shows the beginning may run anything. Temporary tables are no part of the schema.

use std::collections::BTreeSet;

use crate::catalog::SchemaEffect;
use crate::sql::parse::lexer::{self, TokenKind};

/// `None`: it does not.
pub(super) fn schema_effect(language: &str, body: &str) -> Option<SchemaEffect> {
    let words: Vec<Word<'_>> = words(body);
    match language {
        "sql" | "plpgsql" => of_statements(&words),
        // Of another grammar: wherever it says so.
        _ => (0..words.len()).any(|at| is_change(words.get(at..).unwrap_or_default())).then_some(SchemaEffect::Changes),
    }
}

/// How a text that is handed over to be run begins.
pub fn begins_with_change(text: &str) -> bool {
    let words = words(text);
    starts(&words).any(|at| is_change(words.get(at..).unwrap_or_default()))
}

/// A text that is handed over to be run does something else than changing the schema, perhaps besides.
pub fn begins_with_other(text: &str) -> bool {
    let words = words(text);
    starts(&words).any(|at| words.get(at).is_some_and(|first| first.is_any(&TOUCHES_ROWS)))
}

/// What the strings of a text stand for.
pub fn strings(text: &str) -> Vec<String> {
    words(text).into_iter().filter_map(string).collect()
}

#[derive(Clone, Copy)]
struct Word<'a> {
    kind: TokenKind,
    text: &'a str,
}

impl Word<'_> {
    fn is(&self, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(word)
    }

    fn is_any(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.is(word))
    }
}

fn words(text: &str) -> Vec<Word<'_>> {
    let tokens = lexer::tokens(text).filter(|token| token.kind != TokenKind::Comment);
    tokens.filter_map(|token| Some(Word { kind: token.kind, text: text.get(token.start..token.end)? })).collect()
}

/// Where a statement may begin.
fn starts<'a>(words: &'a [Word<'_>]) -> impl Iterator<Item = usize> + 'a {
    (0..words.len()).filter(|at| {
        at.checked_sub(1).and_then(|before| words.get(before)).is_none_or(|before| {
            matches!(before.text, ";" | ">") || before.is_any(&["begin", "then", "else", "loop", "atomic", "declare"])
        })
    })
}

fn of_statements(words: &[Word<'_>]) -> Option<SchemaEffect> {
    let temporary = temporary_names(words);
    let changes = |words: &[Word<'_>]| starts(words).any(|at| changes_lasting(words.get(at..).unwrap_or_default(), &temporary));
    if changes(words) {
        return Some(SchemaEffect::Changes);
    }
    let runs_text = words.iter().enumerate().any(|(at, word)| {
        let is_of_trigger = words.get(at + 1).is_some_and(|next| next.is_any(&["function", "procedure", "on"]));
        word.is("execute") && !is_of_trigger
    });
    if !runs_text {
        return None;
    }
    let texts: Vec<String> = words.iter().filter_map(|word| string(*word)).collect();
    if texts.iter().any(|text| changes(&self::words(text))) {
        return Some(SchemaEffect::Changes);
    }
    let is_shown = texts.iter().any(|text| self::words(text).first().is_some_and(|first| first.is_any(&OTHER_STATEMENTS)));
    (!is_shown).then_some(SchemaEffect::RunsAnything)
}

fn changes_lasting(words: &[Word<'_>], temporary: &BTreeSet<String>) -> bool {
    let end = words.iter().position(|word| word.text == ";").unwrap_or(words.len());
    let statement = words.get(..end).unwrap_or_default();
    let is_temporary = makes_temporary(statement).is_some()
        || statement.iter().any(|word| word.is("pg_temp") || temporary.contains(&word.text.to_ascii_lowercase()));
    !is_temporary && is_change(statement)
}

/// Of what the body, or a text in it, creates as temporary.
fn temporary_names(words: &[Word<'_>]) -> BTreeSet<String> {
    let inside: Vec<String> = words.iter().filter_map(|word| string(*word)).collect();
    let inside = inside.iter().map(|text| self::words(text));
    let mut found = BTreeSet::new();
    for words in inside.chain([words.to_vec()]) {
        found.extend(starts(&words).filter_map(|at| makes_temporary(words.get(at..).unwrap_or_default())));
    }
    found.remove("");
    found
}

/// `CREATE [LOCAL] TEMP TABLE name`: its name, empty where it does not stand there.
fn makes_temporary(words: &[Word<'_>]) -> Option<String> {
    let at = words.iter().take(5).position(|word| word.is_any(&["temp", "temporary"]))?;
    let is_create =
        words.first()?.is("create") && words.get(1..at)?.iter().all(|word| word.is_any(&["local", "global", "or", "replace"]));
    let name =
        words.get(at + 1..)?.iter().find(|word| !word.is_any(&["table", "view", "sequence", "recursive", "if", "not", "exists"]));
    is_create.then(|| {
        name.filter(|name| name.text != "%").map(|name| name.text.trim_matches('"').to_ascii_lowercase()).unwrap_or_default()
    })
}

/// CREATE, ALTER, DROP and their like, followed by the kind of an object or by what is put in there.
fn is_change(words: &[Word<'_>]) -> bool {
    let Some(first) = words.first() else { return false };
    let next = words.get(1);
    let next_is = |expected: &[&str]| next.is_none_or(|next| next.is_any(expected) || next.text.starts_with(['%', '\'']));
    if first.is_any(&["create", "alter", "drop"]) {
        return next_is(&KINDS);
    }
    match () {
        () if first.is("comment") => next_is(&["on"]),
        () if first.is("security") => next_is(&["label"]),
        () if first.is("reassign") => next_is(&["owned"]),
        () if first.is("import") => next_is(&["foreign"]),
        () if first.is_any(&["grant", "revoke"]) => {
            next.is_none_or(|next| next.kind == TokenKind::Word || next.text.starts_with(['%', '"']))
        }
        () => false,
    }
}

/// What a string stands for, as far as it takes to see how it begins.
fn string(word: Word<'_>) -> Option<String> {
    if !matches!(word.kind, TokenKind::Literal(_)) {
        return None;
    }
    if let Some(rest) = word.text.strip_prefix('$') {
        let (tag, rest) = rest.split_once('$')?;
        return rest.strip_suffix(&format!("${tag}$")).map(str::to_owned);
    }
    let inner = word.text.trim_start_matches(['e', 'E', 'n', 'N']).strip_prefix('\'')?.strip_suffix('\'')?;
    Some(inner.replace("''", "'").replace("\\n", "\n").replace("\\t", "\t"))
}

const KINDS: [&str; 53] = [
    "access",
    "aggregate",
    "cast",
    "collation",
    "constraint",
    "conversion",
    "database",
    "default",
    "domain",
    "event",
    "extension",
    "foreign",
    "function",
    "global",
    "group",
    "index",
    "language",
    "large",
    "local",
    "materialized",
    "operator",
    "or",
    "owned",
    "policy",
    "procedural",
    "procedure",
    "publication",
    "recursive",
    "role",
    "routine",
    "rule",
    "schema",
    "sequence",
    "server",
    "statistics",
    "subscription",
    "system",
    "table",
    "tablespace",
    "temp",
    "temporary",
    "text",
    "transform",
    "trigger",
    "trusted",
    "type",
    "unique",
    "unlogged",
    "user",
    "view",
    "if",
    "concurrently",
    "only",
];

/// How texts begin that read or change rows, or settings.
const TOUCHES_ROWS: [&str; 15] = [
    "call", "copy", "delete", "do", "execute", "insert", "lock", "merge", "notify", "refresh", "reset", "select", "truncate",
    "update", "with",
];

/// How texts begin that change no schema.
const OTHER_STATEMENTS: [&str; 24] = [
    "analyze", "begin", "call", "close", "copy", "declare", "delete", "explain", "fetch", "insert", "listen", "lock", "merge",
    "move", "notify", "refresh", "reset", "select", "set", "show", "table", "truncate", "update", "with",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(body: &str) -> Option<SchemaEffect> {
        schema_effect("plpgsql", body)
    }

    #[test]
    fn bodies_that_change_the_schema_are_told() {
        for body in [
            "BEGIN CREATE TABLE t (a int); END",
            "BEGIN IF x THEN ALTER TABLE t ADD b int; END IF; END",
            "BEGIN EXECUTE format('create table %I (a int)', n); END",
            "BEGIN EXECUTE 'DROP ' || kind || ' x'; END",
            "DECLARE q text := 'ALTER TABLE a '; BEGIN q := q || 'b'; EXECUTE q; END",
            "BEGIN FOR r IN SELECT format('ALTER TABLE %I', relname) AS q FROM pg_class LOOP EXECUTE r.q; END LOOP; END",
            "BEGIN EXECUTE $x$CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'$x$; END",
            "BEGIN EXECUTE 'SELECT 1; DROP TABLE t'; END",
            "BEGIN EXECUTE E'\\n  CREATE TRIGGER %I'; END",
            "BEGIN GRANT SELECT ON t TO joe; COMMENT ON TABLE t IS 'x'; END",
        ] {
            assert_eq!(effect(body), Some(SchemaEffect::Changes), "{body}");
        }
        assert_eq!(schema_effect("sql", "SELECT 1; DROP VIEW v"), Some(SchemaEffect::Changes));
    }

    #[test]
    fn what_only_looks_like_it_is_not() {
        for body in [
            "BEGIN INSERT INTO comment (alter) VALUES ('create table x'); RETURN NEW; END",
            "BEGIN create := 1; drop.x := 2; END",
            "BEGIN EXECUTE 'SELECT count(*) FROM ' || quote_ident(t) INTO n; END",
            "BEGIN RETURN QUERY EXECUTE format('SELECT * FROM %I', t) USING 'created'; END",
            "BEGIN RAISE NOTICE 'Create a new account'; EXECUTE 'UPDATE t SET a = 1'; END",
            "BEGIN CREATE TEMP TABLE x (a int); CREATE INDEX ON x (a); DROP TABLE IF EXISTS x; END",
            "BEGIN EXECUTE 'create temporary table ' || n || ' ()'; EXECUTE 'SELECT 1'; END",
            "-- CREATE TABLE t ()\nBEGIN NULL; END",
        ] {
            assert_eq!(effect(body), None, "{body}");
        }
    }

    #[test]
    fn a_text_from_elsewhere_may_be_anything() {
        for body in ["BEGIN EXECUTE q; END", "BEGIN FOR r IN SELECT q FROM jobs LOOP EXECUTE r.q; END LOOP; END"] {
            assert_eq!(effect(body), Some(SchemaEffect::RunsAnything), "{body}");
        }
        assert!(begins_with_change(" create table t ()") && !begins_with_change("select 1"));
    }
}
