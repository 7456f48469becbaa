//! Where sub-selects are found, and what stands in their places.

use super::*;
use crate::catalog::{Catalog, Type};

fn catalog() -> Catalog {
    let named = |oid, name: &str| {
        (oid, Type { oid, schema: "pg_catalog".to_owned(), name: name.to_owned(), kind: 'b', base: 0, default: None })
    };
    Catalog { types: [named(20, "int8"), named(25, "text")].into(), ..Catalog::default() }
}

fn answer(rows: &[&[Option<&str>]]) -> Answer {
    let column = |(name, type_oid): (&str, u32)| AnswerColumn { name: name.to_owned(), type_oid, collation: None };
    let width = rows.first().map_or(1, |row| row.len());
    Answer {
        columns: [("id", 20), ("name", 25)].into_iter().take(width).map(column).collect(),
        rows: rows.iter().map(|row| row.iter().map(|value| value.map(str::to_owned)).collect()).collect(),
    }
}

fn stages(text: &str) -> Result<Stages, PgError> {
    super::stages(text, &crate::sql::testing::library().context(&["public"], &[]))
}

fn queries(text: &str) -> Vec<String> {
    stages(text).unwrap().queries.into_iter().map(|stage| stage.query).collect()
}

/// The text with the answer in the place of every query.
fn replaced(text: &str, answer: &Answer) -> String {
    let stages = stages(text).unwrap();
    let splice = |stage: &Stage| Splice {
        start: stage.start,
        end: stage.end,
        text: stage.constant(answer, &catalog()).unwrap().unwrap_or_default(),
    };
    let splices: Vec<Splice> = stages.queries.iter().chain(&stages.tables).map(splice).collect();
    let out = spliced(text, &splices);
    parse::parse(&out).unwrap_or_else(|error| panic!("{out}: {error:?}"));
    out
}

#[test]
fn sub_selects_are_found_wherever_they_stand() {
    let text = "UPDATE t SET a = (SELECT 1), (b, c) = (SELECT 2, 3) WHERE d NOT IN (SELECT (4)) AND EXISTS(SELECT 5) \
                AND e > ALL (SELECT 6) AND f OPERATOR(pg_catalog.=) ANY (SELECT 7) AND g IN ( SELECT 8 ) RETURNING (SELECT 9)";
    let expected = ["SELECT 1", "SELECT 2, 3", "SELECT (4)", "SELECT 5", "SELECT 6", "SELECT 7", " SELECT 8 ", "SELECT 9"];
    assert_eq!(queries(text), expected);
    assert_eq!(queries("DELETE FROM t WHERE a = 1"), Vec::<String>::new());
    assert_eq!(queries("WITH x AS (DELETE FROM t RETURNING a) DELETE FROM t WHERE a IN (SELECT 1)"), Vec::<String>::new());
    for text in [
        "DELETE FROM t WHERE a IN (SELECT a FROM t LIMIT 1 FOR UPDATE)",
        "DELETE FROM t WHERE a IN (SELECT a FROM (SELECT a FROM t LIMIT 1 FOR NO KEY UPDATE) x)",
        "UPDATE t SET b = 1 FROM (SELECT a FROM t LIMIT 1 FOR UPDATE SKIP LOCKED) q WHERE t.a = q.a",
        "INSERT INTO t SELECT a FROM (SELECT a FROM t FOR SHARE) q",
    ] {
        assert!(stages(text).unwrap().needs_transaction, "{text}");
    }
}

#[test]
fn what_is_evaluated_once_is_found() {
    let text = "INSERT INTO t (a, b) VALUES (1, -2), ($1, '3'::int), (f(1, (2)), now()), (DEFAULT, (SELECT 4))";
    assert_eq!(queries(text), ["SELECT f(1, (2))", "SELECT now()", "SELECT (SELECT 4)"]);
    let text = "UPDATE t SET a = pg_catalog.now(), b = current_timestamp(0) + c, d = clock_timestamp(), e = CURRENT_USER";
    assert_eq!(queries(text), ["SELECT pg_catalog.now()", "SELECT current_timestamp(0)"]);
}

#[test]
fn the_source_of_an_insert_ends_before_what_follows_it() {
    for (text, source) in [
        ("INSERT INTO t SELECT * FROM u", "SELECT * FROM u"),
        ("INSERT INTO t (a, b) SELECT a, (b) FROM u ON CONFLICT (a) DO NOTHING RETURNING *", "SELECT a, (b) FROM u"),
        ("INSERT INTO t AS x (a) (SELECT 1 UNION SELECT 2) RETURNING a", "(SELECT 1 UNION SELECT 2)"),
        ("INSERT INTO s.t (a) OVERRIDING SYSTEM VALUE TABLE u;", "TABLE u"),
        (
            "INSERT INTO t WITH w AS (SELECT 1) SELECT * FROM w JOIN v ON v.a = w.a",
            "WITH w AS (SELECT 1) SELECT * FROM w JOIN v ON v.a = w.a",
        ),
    ] {
        assert_eq!(queries(text), [source]);
    }
}

#[test]
fn rows_stand_in_the_places_of_queries() {
    let two = answer(&[&[Some("1")], &[None]]);
    assert_eq!(
        replaced("DELETE FROM t WHERE id NOT IN (SELECT id FROM u)", &two),
        "DELETE FROM t WHERE id  NOT IN ('1'::pg_catalog.\"int8\", NULL::pg_catalog.\"int8\") "
    );
    let none = answer(&[]);
    assert_eq!(
        replaced("DELETE FROM t WHERE id IN (SELECT id FROM u)", &none),
        "DELETE FROM t WHERE id  IN (SELECT NULL::pg_catalog.\"int8\" WHERE false) "
    );
    assert_eq!(replaced("UPDATE t SET a = (SELECT 1)", &none), "UPDATE t SET a =  (SELECT NULL::pg_catalog.\"int8\") ");
    let pair = answer(&[&[Some("1"), Some("it's")]]);
    assert_eq!(
        replaced("UPDATE t SET (a, b) = (SELECT 1, 'x')", &pair),
        "UPDATE t SET (a, b) =  ROW((SELECT '1'::pg_catalog.\"int8\"), (SELECT 'it''s'::pg_catalog.\"text\")) "
    );
    assert_eq!(
        replaced("INSERT INTO t (a, b) SELECT 1, 'x' ON CONFLICT DO NOTHING", &pair),
        "INSERT INTO t (a, b)  VALUES ('1'::pg_catalog.\"int8\", 'it''s')  ON CONFLICT DO NOTHING"
    );
    assert_eq!(
        replaced("DELETE FROM t USING s.u WHERE t.a = u.id", &pair),
        "DELETE FROM t USING  (SELECT * FROM (VALUES ('1'::pg_catalog.\"int8\", 'it''s'::pg_catalog.\"text\")) AS shardgate_rows (\"id\", \"name\") OFFSET 0) AS \"u\"  WHERE t.a = u.id"
    );
    let text = "UPDATE t SET a = x.id FROM u AS x, (SELECT * FROM v) AS y WHERE t.a = y.id";
    assert!(replaced(text, &pair).contains("AS x, ") && replaced(text, &pair).contains("AS y WHERE"));
    let stage = stages("UPDATE t SET a = (SELECT 1)").unwrap().queries.remove(0);
    let refused = stage.constant(&two, &catalog()).unwrap().unwrap();
    assert!(refused.starts_with(" (VALUES (NULL::") && refused.matches("NULL::").count() == 2, "an error when it is asked for");
}

#[test]
fn parameters_become_constants() {
    let value = |number: u16| (number < 3).then(|| format!("'v{number}'"));
    assert_eq!(
        with_parameters("a = $2 AND b = '$1' AND c = $1", &value).as_deref(),
        Some("a = ('v2') AND b = '$1' AND c = ('v1')")
    );
    assert_eq!(with_parameters("a = $3", &value), None);
}

#[test]
fn queries_of_with_are_found_and_may_be_named() {
    let text =
        "WITH a AS (SELECT 1), \"B\" (x) AS NOT MATERIALIZED (SELECT (2)) UPDATE t SET c = 1 FROM \"B\" WHERE d IN (SELECT 3)";
    let found = stages(text).unwrap();
    let ctes: Vec<_> = found.ctes.iter().map(|cte| (cte.name.as_str(), cte.head.as_str(), cte.stage.query.as_str())).collect();
    assert_eq!(ctes, [("a", "a AS (", "SELECT 1"), ("B", "\"B\" (x) AS NOT MATERIALIZED (", "SELECT (2)")]);
    let insert = stages("WITH a AS (SELECT 1) INSERT INTO t (k) WITH b AS (SELECT 2) SELECT 3 FROM a, b").unwrap();
    assert_eq!(insert.dropped, Some((0, 21)));
    assert_eq!(insert.queries.first().map(|stage| stage.query.as_str()), Some("WITH b AS (SELECT 2) SELECT 3 FROM a, b"));
    let definitions = [("a".to_owned(), "a AS (SELECT 1)".to_owned())];
    let under = |query| {
        let text = under_with(&definitions, query).unwrap();
        parse::parse(&text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
        text
    };
    assert_eq!(under("SELECT 2"), "SELECT 2");
    assert_eq!(under("SELECT A.x FROM A"), "WITH a AS (SELECT 1) SELECT A.x FROM A");
    assert_eq!(under("(SELECT A.x FROM A) LIMIT 1"), "WITH a AS (SELECT 1) (SELECT A.x FROM A) LIMIT 1");
    assert_eq!(under("WITH b AS (TABLE a) TABLE b"), "WITH a AS (SELECT 1), b AS (TABLE a) TABLE b");
    assert_eq!(under(" ((WITH b AS (TABLE a) TABLE b))"), " ((WITH a AS (SELECT 1), b AS (TABLE a) TABLE b))");
    assert_eq!(
        under("WITH /* no */ RECURSIVE b AS (TABLE a) TABLE b"),
        "WITH /* no */ RECURSIVE a AS (SELECT 1), b AS (TABLE a) TABLE b"
    );
    let union = "(WITH b AS (TABLE a) TABLE b) UNION TABLE a";
    assert_eq!(under(union), format!("WITH a AS (SELECT 1) {union}"));
    assert!(under_with(&definitions, "WITH a AS (TABLE a) TABLE a").is_err());
    let recursive = stages("WITH RECURSIVE a (x) AS (SELECT 1), b AS (TABLE a) DELETE FROM t WHERE k IN (TABLE b)").unwrap();
    let found: Vec<&str> = recursive.ctes.iter().map(|cte| cte.stage.query.as_str()).collect();
    assert_eq!(
        found,
        ["WITH RECURSIVE a (x) AS (SELECT 1) SELECT * FROM \"a\"", "WITH RECURSIVE b AS (TABLE a) SELECT * FROM \"b\""]
    );
    assert!(stages("WITH RECURSIVE b AS (TABLE a), a (x) AS (SELECT 1) DELETE FROM t WHERE k IN (TABLE b)").unwrap().is_empty());
}

#[test]
fn rows_without_a_source_are_where_no_row_of_the_source_is() {
    let merge = |rest: &str| stages(&format!("MERGE INTO t USING (SELECT 1) AS s (k) ON t.k = s.k {rest}")).unwrap();
    let inserts = "WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)";
    assert!(merge(inserts).merging.is_some());
    assert!(merge(&format!("{inserts} WHEN NOT MATCHED BY SOURCE THEN DELETE")).is_empty());
}
