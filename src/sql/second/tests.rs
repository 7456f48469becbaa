//! Claims that are wrong are contradicted, claims that are right are not, and no text takes long.

use std::time::{Duration, Instant};

use super::super::testing;
use super::*;
use crate::shard_key::KeyType;
use crate::shardmap::GroupId;
use crate::sql::analysis::{KeyTest, KeyValue, StoredValue, Test};

fn equals(value: KeyValue) -> KeyCondition {
    test(Test::Equals(value))
}

fn test(test: Test) -> KeyCondition {
    KeyCondition::Test(KeyTest { column: 0, column_type: KeyType::Int8, function: None, test })
}

fn literal(ordinal: u32) -> KeyValue {
    KeyValue::Literal { ordinal, negative: false, cast: None }
}

/// The opinion of a claim about `t` or its group.
fn judged(text: &str, named: &[&str], condition: KeyCondition) -> Opinion {
    let context = testing::library().context(&["public"], &[]);
    let scanned = lexer::scan(text);
    let named = named.iter().map(|name| (None, (*name).to_owned())).collect();
    let parts = [Part::Sharded { group: GroupId(1), condition, stores: false }];
    let (start, end) = (0, text.len());
    opinion(Claims { text, start, end, literals: &scanned.literals, context: &context, named: &named, parts: &parts })
}

const NOT_FOLLOWING: Opinion = Opinion::Differs("a condition that does not follow");
const OTHER_TABLES: Opinion = Opinion::Differs("another set of tables");

#[test]
fn a_claim_that_is_narrower_than_the_statement_is_contradicted() {
    let negative = KeyValue::Literal { ordinal: 0, negative: true, cast: None };
    for (text, condition) in [
        ("SELECT * FROM t WHERE x = 5", equals(literal(0))),
        ("SELECT * FROM t WHERE k = 5 OR x = 5", equals(literal(0))),
        ("SELECT * FROM t WHERE k = 5 OR k = 6", equals(literal(0))),
        ("SELECT * FROM t WHERE k = 5 AND x = 6", equals(literal(1))),
        ("SELECT * FROM t WHERE k = 5", equals(negative)),
        ("SELECT * FROM t WHERE k = 5 AND x = 6", KeyCondition::And(vec![equals(literal(0)), equals(literal(1))])),
        ("SELECT * FROM t WHERE k IN (5, 6, 7)", test(Test::In(vec![literal(0), literal(1)]))),
        ("SELECT * FROM t WHERE k = $1", equals(KeyValue::Parameter { number: 2, cast: None })),
        ("SELECT * FROM t WHERE name = 'a' AND x = 1", equals(literal(1))),
        ("SELECT * FROM t", equals(KeyValue::Null)),
        ("UPDATE t SET k = 5 WHERE x = 6", equals(literal(0))),
        ("UPDATE t SET x = 5", equals(literal(0))),
        ("DELETE FROM t WHERE x = 5", equals(literal(0))),
        ("SELECT * FROM t JOIN u ON t.x = u.k WHERE u.k = 5", equals(literal(0))),
        ("DECLARE c CURSOR FOR SELECT * FROM t WHERE x = 5", equals(literal(0))),
        ("COPY (SELECT * FROM t WHERE x = 5) TO STDOUT", equals(literal(0))),
        ("EXPLAIN ANALYZE DELETE FROM t WHERE x = 5", equals(literal(0))),
    ] {
        let named: &[&str] = if text.contains("JOIN") { &["t", "u"] } else { &["t"] };
        assert_eq!(judged(text, named, condition), NOT_FOLLOWING, "{text}");
    }
    let stored = |value| test(Test::Stored(StoredValue { value, typmod: -1, is_not_null: true }));
    assert_eq!(judged("INSERT INTO t (x, k) VALUES (5, 6)", &["t"], stored(literal(0))), NOT_FOLLOWING);
    assert_eq!(judged("INSERT INTO t (k) VALUES (5), (6)", &["t"], stored(literal(0))), NOT_FOLLOWING);
    assert_eq!(judged("INSERT INTO t (x) VALUES (5)", &["t"], stored(literal(0))), NOT_FOLLOWING);
    assert_eq!(judged("INSERT INTO t (x, k) VALUES (5, 6)", &["t"], stored(literal(1))), Opinion::Agrees);
}

#[test]
fn a_claim_that_follows_is_agreed_with() {
    let either = KeyCondition::Or(vec![equals(literal(0)), equals(literal(1))]);
    for (text, condition) in [
        ("SELECT * FROM t WHERE k = 5", equals(literal(0))),
        ("SELECT * FROM t WHERE (5 = (t.k)) AND length(name) > 3", equals(literal(0))),
        ("SELECT * FROM t AS a WHERE a.k = CAST('5' AS int8)", equals(literal(0))),
        ("SELECT * FROM t WHERE \"k\" = $2", equals(KeyValue::Parameter { number: 2, cast: None })),
        ("SELECT * FROM t WHERE k = 5 OR k = 6", either.clone()),
        ("SELECT * FROM t WHERE (k = 5 AND x = 7) OR k = 6", KeyCondition::Or(vec![equals(literal(0)), equals(literal(2))])),
        ("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT * FROM t WHERE k = 5", equals(literal(0))),
        ("COPY (SELECT * FROM t WHERE k = 5) TO STDOUT WITH (FORMAT csv)", equals(literal(0))),
        ("EXPLAIN (COSTS off) UPDATE t SET x = 1 WHERE k = 5", equals(literal(1))),
        ("SELECT * FROM t WHERE k = 5 AND k = 6", either),
        ("SELECT * FROM t WHERE k IN (5, 6)", test(Test::In(vec![literal(1), literal(0)]))),
        ("SELECT * FROM t WHERE k = NULL", equals(literal(7))),
        ("SELECT * FROM t WHERE false OR k = 5", equals(literal(0))),
        ("DELETE FROM public.t WHERE k = 5 RETURNING *", equals(literal(0))),
        ("SELECT * FROM t WHERE k = 5 ORDER BY x LIMIT 10", equals(literal(0))),
    ] {
        let context = testing::library().context(&["public"], &[]);
        let literals = lexer::scan(text).literals;
        let named = [(text.contains("public").then(|| "public".to_owned()), "t".to_owned())].into();
        let parts = [Part::Sharded { group: GroupId(1), condition, stores: false }];
        let claims =
            Claims { text, start: 0, end: text.len(), literals: &literals, context: &context, named: &named, parts: &parts };
        assert_eq!(opinion(claims), Opinion::Agrees, "{text}");
    }
}

#[test]
fn another_set_of_tables_is_contradicted() {
    let claim = || equals(literal(0));
    assert_eq!(judged("SELECT * FROM t, home WHERE k = 5", &["t"], claim()), OTHER_TABLES);
    assert_eq!(judged("SELECT * FROM t WHERE k = 5", &["t", "home"], claim()), OTHER_TABLES);
    assert_eq!(judged("SELECT * FROM \"T\" WHERE k = 5", &["t"], claim()), OTHER_TABLES);
    assert_eq!(judged("SELECT * FROM app.t WHERE k = 5", &["t"], claim()), OTHER_TABLES);
    assert_eq!(judged("SELECT * FROM t WHERE k = 5 AND x IN (SELECT id FROM home)", &["t"], claim()), OTHER_TABLES);
    assert_eq!(judged("WITH c AS (SELECT * FROM home) SELECT * FROM t, c WHERE t.k = 5", &["t"], claim()), OTHER_TABLES);
    assert_eq!(judged("WITH c AS (SELECT * FROM home) SELECT * FROM t WHERE t.k = 5", &["t"], claim()), Opinion::Unsure);
    let unused = "WITH a AS (SELECT * FROM home), b AS (SELECT * FROM a) SELECT * FROM t WHERE t.k = 5";
    assert_eq!(judged(unused, &["t"], claim()), Opinion::Unsure);
    assert_eq!(judged("INSERT INTO home (k) SELECT k FROM t WHERE k = 5", &["t"], claim()), OTHER_TABLES);
}

#[test]
fn what_is_not_understood_is_no_opinion() {
    let claim = || equals(literal(0));
    for text in [
        "SELECT * FROM ONLY t WHERE k = 6",
        "TABLE t",
        "SELECT * FROM t WHERE 5 = ALL (SELECT k)",
        "SELECT * FROM t WHERE NOT k = 5",
        "SELECT * FROM t WHERE abs(k) = 5",
        "SELECT * FROM t WHERE k = 5 FOR NO KEY UPDATE",
        "SELECT * FROM t LEFT JOIN t t2 ON t2.k = 5",
    ] {
        assert_eq!(judged(text, &["t"], claim()), Opinion::Unsure, "{text}");
    }
}

#[test]
fn no_text_up_to_the_limits_takes_long() {
    let nested =
        |open: &str, close: &str, count: usize| format!("SELECT * FROM t WHERE k = {}5{}", open.repeat(count), close.repeat(count));
    let mut texts = vec![
        format!("SELECT * FROM t WHERE k = 5{}", " + 1".repeat(LINKS_MAX)),
        format!("SELECT * FROM t WHERE k = 5{}", " OR k = 5".repeat(LINKS_MAX / 3)),
        format!("SELECT * FROM t WHERE {}k = 5", "NOT ".repeat(LINKS_MAX - 1)),
        format!("SELECT * FROM t WHERE k = {}5", "- ".repeat(LINKS_MAX - 1)),
        format!("SELECT * FROM t WHERE k = 5{}", "::int8".repeat(LINKS_MAX / 2)),
        format!("SELECT k FROM t WHERE k = 5{}", " UNION ALL SELECT k FROM t".repeat(LINKS_MAX - 2)),
        format!("SELECT * FROM t{} WHERE t.k = 5", " JOIN t ON true".repeat(LINKS_MAX)),
        format!("SELECT * FROM t WHERE k IN (5{})", ", 5".repeat(2_000)),
        format!("SELECT * FROM t WHERE x = 5{}", " AND (k = 5 OR x = 6)".repeat(LINKS_MAX / 5)),
        format!("SELECT * FROM t WHERE x = 5{}", " OR (k = 5 AND x = 6)".repeat(LINKS_MAX / 5)),
        format!("INSERT INTO t (k) VALUES (5){}", ", (6)".repeat(1_500)),
        format!("SELECT * FROM {}t{} WHERE k = 5", "(".repeat(BRACKETS_MAX), ")".repeat(BRACKETS_MAX)),
        format!("SELECT * FROM {}t{} WHERE k = 5", "(SELECT * FROM ".repeat(BRACKETS_MAX), ") s".repeat(BRACKETS_MAX)),
        format!("{}SELECT k FROM t WHERE k = 5{}", "(".repeat(BRACKETS_MAX), ")".repeat(BRACKETS_MAX)),
        format!("SELECT * FROM t{} WHERE k = 5", " JOIN (t".repeat(BRACKETS_MAX)),
    ];
    for (open, close) in
        [("(", ")"), ("f(", ")"), ("ARRAY[", "]"), ("CASE WHEN (", ") THEN 1 END"), ("(SELECT ", ")"), ("CAST(", " AS int)")]
    {
        texts.push(nested(open, close, BRACKETS_MAX));
        texts.push(format!("SELECT * FROM t WHERE k = {}5", open.repeat(BRACKETS_MAX)));
    }
    for text in texts {
        let start = Instant::now();
        judged(&text, &["t"], equals(literal(0)));
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(5), "{taken:?} for {}", text.get(..80).unwrap_or(&text));
    }
}
