//! Where the conditions stand, as text; what is not proven is refused. That the answers are PostgreSQL's is shown against a server.

use std::fmt::Write;

use super::{Excluded, Residues, exclude};
use crate::shard_key::{KeyFunction, KeyType};
use crate::shardmap::{GroupId, Strategy};
use crate::sql::context::Context;
use crate::sql::testing::Fixture;

const CASES: &str = include_str!("cases.txt");

fn context() -> Context {
    let mut fixture = Fixture::default();
    fixture.table("t", "id int8, x int4, note text");
    fixture.table("u", "id int8, y int4");
    fixture.table("app.t", "tenant text, id int8");
    fixture.table("b", "isbn text, title text");
    fixture.table("r", "code text, name text");
    fixture.view("v", "id int8", "SELECT public.t.id FROM public.t");
    fixture.view("w", "code text", "SELECT public.r.code FROM public.r");
    fixture.group(1, Strategy::Hash, &[KeyType::Int8]);
    fixture.group(2, Strategy::Hash, &[KeyType::Text, KeyType::Int8]);
    fixture.group(3, Strategy::Lookup, &[KeyType::Text]);
    fixture.shard_by("t", 1, &[("id", None)]);
    fixture.shard_by("u", 1, &[("id", None)]);
    fixture.shard_by("app.t", 2, &[("tenant", None), ("id", None)]);
    fixture.shard_by("b", 3, &[("isbn", Some(KeyFunction::Right(1)))]);
    fixture.replicate("r");
    fixture.context(&["public"], &[])
}

fn residues() -> Residues {
    [(1, "{[1,5)}"), (2, "{[7,)}"), (3, "{X}")]
        .into_iter()
        .map(|(group, keys)| (GroupId(group), Excluded::Literal(keys.to_owned())))
        .collect()
}

/// The conditions of the cases, short: `<t.id>` for that of `public.t`, `<a.id>` for that of its alias `a`.
fn shortened(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("(pg_catalog.") {
        let end = rest[start..].find(") IS NOT TRUE").map_or(rest.len(), |end| start + end + ") IS NOT TRUE".len());
        let condition = &rest[start..end];
        let column = condition.split_once("extended(").map_or(condition, |(_, inner)| inner);
        let column = column.trim_start_matches("pg_catalog.\"right\"(").trim_start_matches('(');
        let column = column.rsplit("pg_catalog.\"right\"(").next().unwrap_or(column);
        let name = column.split([',', ')']).next().unwrap_or(column).replace('"', "");
        let _ = write!(out, "{}<{name}>", &rest[..start]);
        rest = &rest[end..];
    }
    out + rest
}

#[test]
fn conditions_stand_where_they_change_no_answer() {
    let (context, residues) = (context(), residues());
    let mut wrong = String::new();
    for block in CASES.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
        let [text, expected] = lines[..] else {
            assert!(lines.is_empty(), "a statement and what it becomes: {block}");
            continue;
        };
        let found = match exclude(text, &context, &residues) {
            Ok(covered) if covered == text => "=".to_owned(),
            Ok(covered) => shortened(&covered),
            Err(error) => format!("! {}", error.detail.clone().unwrap_or_default()),
        };
        if found != expected {
            let _ = write!(wrong, "{text}\n  expected {expected}\n  found    {found}\n");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_condition_is_qualified_and_null_safe() {
    let covered = exclude("SELECT * FROM t", &context(), &residues()).expect("covered");
    assert_eq!(
        covered,
        "SELECT * FROM t WHERE (pg_catalog.hashint8extended(\"public\".\"t\".\"id\", 0) OPERATOR(pg_catalog.<@) '{[1,5)}'::pg_catalog.int8multirange) IS NOT TRUE"
    );
    let prepared = Residues::from([(GroupId(1), Excluded::Parameter(3))]);
    let covered = exclude("SELECT * FROM t AS a WHERE x = $1 OR x = $2", &context(), &prepared).expect("covered");
    assert_eq!(
        covered,
        "SELECT * FROM t AS a WHERE (pg_catalog.hashint8extended(\"a\".\"id\", 0) OPERATOR(pg_catalog.<@) $3::pg_catalog.int8multirange) IS NOT TRUE AND (x = $1 OR x = $2)"
    );
}

#[test]
fn a_text_that_nests_deeply_is_refused_and_nothing_overflows() {
    let (context, residues) = (context(), residues());
    for text in [
        format!("SELECT 1{} FROM t", " + 1".repeat(100_000)),
        format!("SELECT * FROM t WHERE {}x = 1{}", "NOT (".repeat(2_000), ")".repeat(2_000)),
        format!("SELECT * FROM t{}", " UNION ALL SELECT * FROM t".repeat(20_000)),
        format!("SELECT * FROM {}t{}", "(SELECT * FROM ".repeat(3_000), ") AS a".repeat(3_000)),
    ] {
        let _covered_or_refused = exclude(&text, &context, &residues).is_ok();
    }
}
