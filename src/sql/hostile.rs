//! Texts made to hurt: they may be refused, but nothing crashes and nobody waits.
//!
//! Run on a stack as small as a worker's. Bytes that are not UTF-8 never get here: a text is a `str`, and the session refuses
//! others before it reads them.

use std::time::Duration;

use super::analysis::{Analysis, Command, KeyCondition, Part, Scope};
use super::cache::Analyzer;
use super::context::Context;
use super::testing;
use crate::shard_key::oid;

/// What a worker of the runtime has.
const STACK_BYTES: usize = 2 * 1024 * 1024;
/// Tests are not optimised; the proxy needs a fraction of it.
const TIME_MAX: Duration = Duration::from_secs(if cfg!(debug_assertions) { 6 } else { 1 });

fn read(text: String) -> Option<Vec<Analysis>> {
    let reader = move || {
        let context = context();
        let start = thread_time();
        let read = Analyzer::new().read(&text, &context);
        let taken = thread_time() - start;
        let shown = text.get(..60).unwrap_or_default().to_owned();
        println!("{taken:>10.1?} {} bytes {}: {shown}", text.len(), if read.is_ok() { "read" } else { "refused" });
        assert!(taken < TIME_MAX, "{taken:?}: {shown}");
        read.ok().map(|read| read.analyzed.statements.clone())
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(reader).expect("a thread");
    thread.join().expect("no panic")
}

/// With overloads of PostgreSQL's functions, so that what calls mean hangs on the types of their arguments.
fn context() -> Context {
    let mut fixture = testing::library();
    for (name, takes, built_in) in [
        ("round", [oid::FLOAT8, oid::INT4].as_slice(), [oid::NUMERIC, oid::INT4].as_slice()),
        ("lower", &[oid::INT4], &[oid::TEXT]),
    ] {
        let function = fixture.function(name, 'i', "internal", "");
        let function = fixture.catalog.functions.get_mut(&function).expect("made");
        (function.argument_count, function.is_variadic) = (takes.len(), false);
        function.argument_types = takes.to_vec();
        function.built_in = vec![built_in.to_vec()];
    }
    fixture.context(&["public"], &[])
}

/// Of the processor, for this thread: other tests may run beside it.
fn thread_time() -> Duration {
    let schedule = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanoseconds = schedule.split_whitespace().next().and_then(|field| field.parse().ok()).expect("nanoseconds");
    Duration::from_nanos(nanoseconds)
}

fn conditions(statements: &[Analysis]) -> Vec<KeyCondition> {
    let parts = statements.iter().flat_map(|statement| match &statement.scope {
        Scope::Placed { parts, .. } => parts.clone(),
        _ => Vec::new(),
    });
    parts
        .filter_map(|part| match part {
            Part::Sharded { condition, .. } => Some(condition),
            Part::Home => None,
        })
        .collect()
}

#[test]
fn long_chains_are_read_without_recursion() {
    for (terms, chain) in
        [(40_000, "+1"), (300_000, "+1"), (100_000, "*x"), (100_000, "||'a'"), (100_000, "::int8"), (100_000, "[1]")]
    {
        let chain = chain.repeat(terms);
        read(format!("SELECT 1{chain}"));
        let whole = read(format!("SELECT * FROM t WHERE k = 5 AND x = 1{chain}"));
        if let Some(statements) = whole {
            assert!(matches!(conditions(&statements).as_slice(), [KeyCondition::Test(_)]), "the condition is still seen");
        }
        read(format!("INSERT INTO t (k, x) VALUES (5, 1{chain})"));
        read(format!("UPDATE t SET x = 1{chain} WHERE k = 5"));
    }
}

#[test]
fn long_conditions_are_read_or_given_up_on() {
    for terms in [1_000, 100_000] {
        read(format!("SELECT * FROM t WHERE k = 1{}", " OR k = 1".repeat(terms)));
        read(format!("SELECT * FROM t WHERE k = 1{}", " AND k = 1".repeat(terms)));
        read(format!("SELECT * FROM t WHERE k = 1{}", " OR k = 1 AND x = 2".repeat(terms)));
        read(format!("SELECT * FROM t WHERE k IN (1{})", ", 1".repeat(terms)));
        read(format!("SELECT * FROM t WHERE k = ANY (ARRAY[1{}])", ", 1".repeat(terms)));
        read(format!("SELECT * FROM t WHERE (k, x) IN ((1, 2){})", ", (1, 2)".repeat(terms)));
        read(format!("INSERT INTO t (k) VALUES (1){}", ", (2)".repeat(terms)));
        read(format!("INSERT INTO t (k) VALUES (1){}", ", ($1)".repeat(terms)));
        read(format!("SELECT * FROM t JOIN (VALUES (1){}) v(k) USING (k)", ", (2)".repeat(terms)));
        read(format!("SELECT 1{}", ", k".repeat(terms)));
        read(format!("SELECT k FROM t ORDER BY 1{}", ", x".repeat(terms)));
    }
    let different: String = (0..30_000).map(|value| format!(" OR (k = {value} AND x = {value})")).collect();
    read(format!("SELECT * FROM t WHERE k = -1{different}"));
    let different: String = (0..30_000).map(|value| format!(" AND (k = {value} OR x = {value})")).collect();
    read(format!("SELECT * FROM t WHERE k = -1{different}"));
    let rows: String = (0..30_000).map(|value| format!(", ({value})")).collect();
    read(format!("INSERT INTO t (k) VALUES (1){rows}"));
    let equal: String = (0..3_000).map(|_| " AND t.k = u.k AND u.k = t.x".to_owned()).collect();
    read(format!("SELECT * FROM t, u WHERE t.k = 5{equal}"));
}

#[test]
fn many_tables_are_read_or_given_up_on() {
    for terms in [100, 1_000, 20_000] {
        let joins: String = (0..terms).map(|n| format!(" JOIN u u{n} ON u{n}.k = t.k")).collect();
        read(format!("SELECT * FROM t{joins} WHERE t.k = 5"));
        let tables: String = (0..terms).map(|n| format!(", u u{n}")).collect();
        read(format!("SELECT * FROM t{tables} WHERE t.k = 5"));
        read(format!("SELECT k FROM t{}", " UNION ALL SELECT k FROM t".repeat(terms)));
        read(format!("SELECT * FROM t WHERE k = 1{}", " AND EXISTS (SELECT 1 FROM u WHERE u.k = t.k)".repeat(terms)));
        let with: String = (1..terms).map(|n| format!(", c{n} AS (SELECT * FROM c{0} a JOIN c{0} b USING (k))", n - 1)).collect();
        read(format!("WITH c0 AS (SELECT k FROM t){with} SELECT * FROM c{}", terms - 1));
        read(format!("WITH RECURSIVE c0 AS (SELECT k FROM t){with} SELECT * FROM c{}", terms - 1));
    }
    read("SELECT * FROM t WHERE k = 5;".repeat(5_000));
    read(";".repeat(300_000));
}

#[test]
fn deep_nesting_ends() {
    for depth in [30, 100, 3_000, 100_000] {
        let nested = |open: &str, inside: &str, close: &str| format!("{}{inside}{}", open.repeat(depth), close.repeat(depth));
        read(format!("SELECT {}", nested("(", "1", ")")));
        read(format!("SELECT * FROM t WHERE {}", nested("(", "k = 5", ")")));
        read(format!("SELECT * FROM t WHERE {}", nested("NOT (", "k = 5", ")")));
        read(format!("SELECT * FROM t WHERE {}", nested("(x = 1 OR (k = 5 AND ", "k = 5", "))")));
        read(format!("SELECT * FROM t WHERE {}", nested("NOT ", "k = 5", "")));
        read(format!("SELECT * FROM t WHERE k = {}", nested("- ", "5", "")));
        read(format!("SELECT * FROM t WHERE k = {}", nested("abs(", "5", ")")));
        read(format!("SELECT {} FROM t", nested("round(", "k::numeric", ", 1)")));
        read(format!("SELECT max({}) FROM t", nested("lower(", "name", ")")));
        read(format!("SELECT * FROM t WHERE k = {}", nested("(SELECT ", "5", ")")));
        read(format!("SELECT * FROM t WHERE k = {}", nested("CASE WHEN true THEN ", "5", " END")));
        read(format!("SELECT * FROM t WHERE k = ANY ({})", nested("ARRAY[", "5", "]")));
        read(format!("SELECT * FROM t WHERE {}", nested("EXISTS (SELECT 1 FROM t WHERE ", "k = 5", ")")));
        read(format!("SELECT * FROM {} WHERE k = 5", nested("(SELECT * FROM ", "t", ") s")));
        read(format!("SELECT * FROM {} WHERE k = 5", nested("(", "t", " JOIN u USING (k))")));
        read(nested("(", "SELECT k FROM t", ")"));
        read(nested("(", "SELECT k FROM t", " UNION SELECT k FROM u)"));
        read(format!("{} SELECT 1", nested("WITH a AS (", "SELECT 1", ")")));
        read(nested("EXPLAIN ", "SELECT 1", ""));
        read(nested("/*", "", "*/"));
        read(nested("/*", "", ""));
    }
}

#[test]
fn long_and_odd_tokens_are_tokens() {
    let long = "x".repeat(1024 * 1024);
    let whole = read(format!("SELECT * FROM t WHERE name = '{long}' AND k = 5")).expect("read");
    assert!(matches!(conditions(&whole).as_slice(), [KeyCondition::Test(_)]));
    for text in [
        format!("SELECT * FROM t WHERE k = '{long}'"),
        format!("SELECT * FROM t WHERE k = '{}", "''".repeat(500_000)),
        format!("SELECT * FROM t WHERE k = E'{}'", "\\'".repeat(500_000)),
        format!("SELECT * FROM t WHERE k = {}", "9".repeat(1024 * 1024)),
        format!("SELECT * FROM t WHERE k = ${long}${long}${long}$"),
        format!("SELECT * FROM t WHERE k = ${}", "9".repeat(100_000)),
        format!("SELECT * FROM \"{long}\" WHERE k = 5"),
        format!("SELECT * FROM {long} WHERE k = 5"),
        format!("SELECT * FROM t WHERE k = 5 -- {long}"),
        format!("SELECT * FROM t /* {long} */ WHERE k = 5"),
        format!("SELECT {}", " ".repeat(1024 * 1024)),
        format!("SELECT * FROM t WHERE k = 5 {}", "\n'a'".repeat(100_000)),
        format!("SELECT {}1", "+".repeat(300_000)),
        format!("SELECT {}1", "+-".repeat(300_000)),
        format!("SELECT {}1", "<>".repeat(300_000)),
        format!("SELECT 1 /{}/", "*".repeat(300_000)),
        format!("SELECT 1 /{}/", "*/*".repeat(300_000)),
        format!("SELECT 1 {}", "$a$b".repeat(300_000)),
        format!("SELECT {}", "'a' --x\n".repeat(100_000)),
        format!("SELECT 1 {}", "from ".repeat(10_000)),
        format!("SELECT 1 FROM {}", "t a b ".repeat(10_000)),
        "SELECT 'open".to_owned(),
        "SELECT \"open".to_owned(),
        "SELECT $a$open".to_owned(),
        "SELECT U&'\\d83d' UESCAPE '!' FROM t WHERE k = 5".to_owned(),
        "SELECT '\u{fffd}\u{202e}\u{0}' FROM t WHERE k = 5".to_owned(),
        "\u{0}".to_owned(),
        "SELECT 1;\u{0}".to_owned(),
        "\u{feff}SELECT 1".to_owned(),
        "SELECT * FROM t\u{a0}WHERE k = 5".to_owned(),
        String::new(),
    ] {
        read(text);
    }
    let nul = read("SELECT * FROM t WHERE k = 5\u{0}".to_owned());
    assert!(nul.is_none(), "PostgreSQL refuses the character zero");
    let empty = read("  -- nothing".to_owned()).expect("read");
    assert!(empty.iter().all(|statement| matches!(statement.command, Command::Empty)));
}
