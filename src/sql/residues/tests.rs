//! Where the conditions stand, as text; what is not proven is refused. That the answers are PostgreSQL's is shown against a server.

use std::fmt::Write;
use std::sync::Arc;

use super::{cover, covering_name, covering_query, key_types, view_of_covering, views_to_cover};
use crate::error::PgError;
use crate::shard_key::{KeyFunction, KeyType};
use crate::shardmap::{Group, MapSnapshot, Strategy};
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
    fixture.view("app.w", "id int8", "SELECT v.id FROM public.v WHERE EXISTS (SELECT FROM app.t WHERE t.id = v.id)");
    fixture.view("shown.v", "code text", "SELECT r.code FROM public.r");
    fixture.group(1, Strategy::Hash, &[KeyType::Int8]);
    fixture.group(2, Strategy::Hash, &[KeyType::Text, KeyType::Int8]);
    fixture.group(3, Strategy::Lookup, &[KeyType::Text]);
    fixture.shard_by("t", 1, &[("id", None)]);
    fixture.shard_by("u", 1, &[("id", None)]);
    fixture.shard_by("app.t", 2, &[("tenant", None), ("id", None)]);
    fixture.shard_by("b", 3, &[("isbn", Some(KeyFunction::Right(1)))]);
    fixture.table("places", "region text, id int4");
    fixture.table("codes", "code varchar");
    fixture.group(4, Strategy::Range, &[KeyType::Text, KeyType::Int4]);
    fixture.group(5, Strategy::Range, &[KeyType::Text]);
    fixture.table("branches", "region text, number int4");
    fixture.group(6, Strategy::Lookup, &[KeyType::Text, KeyType::Int4]);
    fixture.shard_by("branches", 6, &[("region", None), ("number", None)]);
    fixture.shard_by("places", 4, &[("region", None), ("id", None)]);
    fixture.shard_by("codes", 5, &[("code", None)]);
    fixture.replicate("r");
    fixture.context(&["public"], &[])
}

/// All groups have residues.
fn residues(context: &Context) -> MapSnapshot {
    let mut map = MapSnapshot::clone(&context.map);
    map.groups.values_mut().for_each(|group| *group = Arc::new(Group::clone(group).with_residues(true)));
    map
}

fn covered(text: &str, context: &Context, map: &MapSnapshot) -> Result<String, PgError> {
    let covered = cover(text.to_owned(), context, map)?;
    let found = String::from_utf8(covered.text().to_vec()).expect("UTF-8");
    assert_eq!(covered.is_altered(), found != text);
    Ok(found)
}

/// The conditions of the cases, short: `<t.id>` for that of `public.t`, `<a.id>` for that of its alias `a`.
fn shortened(text: &str) -> String {
    let mut out = String::new();
    let mut without_null_tests = text.to_owned();
    while let Some(at) = without_null_tests.find(NULL_TEST) {
        let start = without_null_tests[..at].rfind('(').map_or(0, |open| open + 1);
        without_null_tests.replace_range(start..=at + NULL_TEST.len(), "");
    }
    let mut rest = without_null_tests.as_str();
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
    let views = [("public", "v", "v"), ("app", "w", "app.w")];
    views.iter().fold(out + rest, |text, (schema, name, short)| {
        text.replace(&format!("shardgate.{}", covering_name(schema, name)), &format!("{{{short}}}"))
    })
}

const NULL_TEST: &str = " IS NOT NULL AND ";

#[test]
fn conditions_stand_where_they_change_no_answer() {
    let context = context();
    let map = residues(&context);
    let mut wrong = String::new();
    for block in CASES.split("\n\n") {
        let lines: Vec<&str> = block.lines().filter(|line| !line.starts_with('#')).collect();
        let [text, expected] = lines[..] else {
            assert!(lines.is_empty(), "a statement and what it becomes: {block}");
            continue;
        };
        let found = match covered(text, &context, &map) {
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
fn a_covering_view_excludes_what_any_group_excludes() {
    let context = context();
    let views = views_to_cover(&context, crate::shardmap::GroupId(2));
    let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
    assert_eq!(names, ["v", "w"], "what a view reads comes before it, whatever its group is");
    let query = covering_query(views[1].view_definition.as_deref().expect("a query"), &context).expect("covered");
    let short = shortened(&query).replace("<\"app\"", "<app");
    assert!(short.starts_with("SELECT v.id FROM {v} AS \"v\" WHERE EXISTS (SELECT FROM app.t WHERE <"), "{short}");
    let name = covering_name("public", "v");
    assert!(name.len() == "view_".len() + 16, "{name}");
    let (view, found) = view_of_covering(&format!("permission denied for view {name}"), &context.catalog).expect("known");
    assert_eq!((view.schema.as_str(), view.name.as_str(), found), ("public", "v", name));
}

#[test]
fn a_condition_is_qualified_and_null_safe() {
    let context = context();
    let map = residues(&context);
    let found = covered("SELECT * FROM t AS a WHERE x = $1 OR x = $2", &context, &map).expect("covered");
    assert_eq!(
        found,
        "SELECT * FROM t AS a WHERE (pg_catalog.hashint8extended(\"a\".\"id\", 0) OPERATOR(pg_catalog.<@) \
         (SELECT shardgate.residue_hashes(1))) IS NOT TRUE AND (x = $1 OR x = $2)"
    );
    let found = covered("SELECT * FROM b", &context, &map).expect("covered");
    assert_eq!(
        found,
        "SELECT * FROM b WHERE (\"public\".\"b\".\"isbn\" IS NOT NULL AND \
         (pg_catalog.\"right\"(\"public\".\"b\".\"isbn\", 1) OPERATOR(pg_catalog.=) ANY \
         (SELECT * FROM pg_catalog.unnest(shardgate.residue_keys(3)::pg_catalog.text[])) OR NOT \
         pg_catalog.\"right\"(\"public\".\"b\".\"isbn\", 1) OPERATOR(pg_catalog.=) ANY \
         (SELECT * FROM pg_catalog.unnest(shardgate.residue_other_keys(3)::pg_catalog.text[])))) IS NOT TRUE"
    );
    let found = covered("SELECT * FROM branches b", &context, &map).expect("covered");
    assert_eq!(
        found,
        "SELECT * FROM branches b WHERE (\"b\".\"region\" IS NOT NULL AND \"b\".\"number\" IS NOT NULL AND \
         (ROW(\"b\".\"region\" COLLATE pg_catalog.\"C\", \"b\".\"number\") OPERATOR(pg_catalog.=) ANY \
         (SELECT * FROM pg_catalog.unnest(shardgate.residue_keys(6)::shardgate.key_text_int4[])) OR NOT \
         ROW(\"b\".\"region\" COLLATE pg_catalog.\"C\", \"b\".\"number\") OPERATOR(pg_catalog.=) ANY \
         (SELECT * FROM pg_catalog.unnest(shardgate.residue_other_keys(6)::shardgate.key_text_int4[])))) IS NOT TRUE"
    );
    let found = covered("SELECT * FROM places p", &context, &map).expect("covered");
    assert_eq!(
        found,
        "SELECT * FROM places p WHERE (\"p\".\"region\" IS NOT NULL AND \"p\".\"id\" IS NOT NULL AND \
         ROW(\"p\".\"region\", \"p\".\"id\")::shardgate.key_text_int4 OPERATOR(pg_catalog.<@) \
         (SELECT shardgate.residue_ranges(4)::shardgate.key_ranges_text_int4)) IS NOT TRUE"
    );
    let found = covered("DELETE FROM codes", &context, &map).expect("covered");
    assert_eq!(
        found,
        "DELETE FROM codes WHERE ((\"public\".\"codes\".\"code\")::pg_catalog.text OPERATOR(pg_catalog.<@) \
         (SELECT shardgate.residue_ranges(5)::shardgate.key_ranges_text)) IS NOT TRUE"
    );
}

#[test]
fn types_are_made_once_for_all_groups_with_the_same_key() {
    let context = context();
    let groups = || context.map.groups.values().map(Arc::as_ref);
    let made = key_types(groups().chain(groups()));
    assert_eq!(
        made,
        "DO $type$ BEGIN IF pg_catalog.to_regtype('shardgate.key_ranges_text') IS NULL THEN \
         CREATE TYPE shardgate.key_range_text AS RANGE (subtype = pg_catalog.text, collation = pg_catalog.\"C\", \
         multirange_type_name = shardgate.key_ranges_text); GRANT USAGE ON TYPE shardgate.key_range_text TO PUBLIC; END IF; END $type$;\
         DO $type$ BEGIN IF pg_catalog.to_regtype('shardgate.key_ranges_text_int4') IS NULL THEN \
         CREATE TYPE shardgate.key_text_int4 AS (k1 pg_catalog.text COLLATE pg_catalog.\"C\", k2 pg_catalog.int4); \
         GRANT USAGE ON TYPE shardgate.key_text_int4 TO PUBLIC; \
         CREATE TYPE shardgate.key_range_text_int4 AS RANGE (subtype = shardgate.key_text_int4, \
         multirange_type_name = shardgate.key_ranges_text_int4); GRANT USAGE ON TYPE shardgate.key_range_text_int4 TO PUBLIC; \
         END IF; END $type$;"
    );
}

#[test]
fn positions_are_those_of_the_text_before() {
    let context = context();
    let map = residues(&context);
    for text in
        ["SELECT 'ä', nosuch FROM t WHERE wrong = 1 OR 'é' = missing", "TABLE t ORDER BY ä, nosuch", "TABLE t; SELECT ö FROM u"]
    {
        let covered = cover(text, &context, &map).expect("covered");
        let found = std::str::from_utf8(covered.text()).expect("UTF-8");
        for name in ["nosuch", "wrong", "missing", "ä", "ö"] {
            let of = |text: &str| text.find(name).map(|place| text[..place].chars().count() + 1);
            assert_eq!(of(found).map(|position| covered.position_before(position)), of(text), "{name} in {found}");
        }
        let in_condition = found.find("IS NOT TRUE").map(|place| found[..place].chars().count() + 1);
        assert_eq!(in_condition.map(|position| covered.position_before(position)), Some(0), "{found}");
    }
}

#[test]
fn a_long_list_is_covered_in_the_time_of_reading_it() {
    let context = context();
    let map = residues(&context);
    let numbers = (0..50_000).map(|number| format!("({number}, 'x')")).collect::<Vec<_>>().join(", ");
    let text = format!("SELECT * FROM t JOIN (VALUES {numbers}) AS v (a, b) ON v.a = t.x WHERE x = 1");
    let found = covered(&text, &context, &map).expect("covered");
    assert_eq!(shortened(&found), text.replace("WHERE x = 1", "WHERE <public.t.id> AND (x = 1)"));
}

#[test]
fn a_text_serves_the_groups_that_it_was_covered_for() {
    let context = context();
    let (map, mut part) = (residues(&context), residues(&context));
    part.groups.retain(|id, _| id.0 == 1);
    let without = cover("SELECT * FROM t", &context, &context.map).expect("nothing to cover");
    assert!(!without.is_altered() && without.is_for(&context.map) && !without.is_for(&map));
    let with = cover("SELECT * FROM t", &context, &part).expect("covered");
    assert!(with.is_altered() && with.is_for(&part) && !with.is_for(&map) && !with.is_for(&context.map));
}

#[test]
fn a_text_that_nests_deeply_is_refused_and_nothing_overflows() {
    let context = context();
    let map = residues(&context);
    for text in [
        format!("SELECT 1{} FROM t", " + 1".repeat(100_000)),
        format!("SELECT * FROM t WHERE {}x = 1{}", "NOT (".repeat(2_000), ")".repeat(2_000)),
        format!("SELECT * FROM t{}", " UNION ALL SELECT * FROM t".repeat(20_000)),
        format!("SELECT * FROM {}t{}", "(SELECT * FROM ".repeat(3_000), ") AS a".repeat(3_000)),
    ] {
        let _covered_or_refused = covered(&text, &context, &map).is_ok();
    }
}
