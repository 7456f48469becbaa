//! What each shard runs and what is made of it, as text.

use crate::sql::analysis::Scope;
use crate::sql::cache::Analyzer;
use crate::sql::testing;
use crate::sql::utility::explain;

/// The shards' text and the merge; why not, where the answers are not merged.
/// Each added column has the same name, which is left out here.
fn merged(text: &str) -> (String, String) {
    let context = testing::library().context(&["public"], &[]);
    let read = Analyzer::new().read(text, &context).expect(text);
    let analysis = read.analyzed.statements.first().expect("a statement");
    match (&analysis.scope, &analysis.merge) {
        (Scope::Placed { pushdown: Err(refusal), .. }, _) | (_, Err(refusal)) => (String::new(), refusal.message.clone()),
        (_, Ok(merge)) => {
            let fragment = merge.fragment.as_ref();
            let fragment = fragment.map_or_else(|| text.to_owned(), |fragment| fragment.of(text, analysis.start..analysis.end));
            (fragment.trim_end().replace(" AS shardgate_hidden", ""), explain::merge(merge))
        }
    }
}

#[test]
fn shards_compute_parts_and_the_proxy_makes_them_whole() {
    for (text, fragment, merge) in [
        ("SELECT count(*) FROM t WHERE x = 5", "SELECT count(*) FROM t WHERE x = 5", "one group of all rows, sum of column 1"),
        (
            "SELECT x, avg(f) FILTER (WHERE k > 3), max(x) m FROM t GROUP BY x ORDER BY m DESC LIMIT 5",
            "SELECT x, pg_catalog.sum(f) FILTER (WHERE k > 3) AS \"avg\", max(x) m, pg_catalog.count(f) FILTER (WHERE k > 3) FROM t GROUP BY x",
            "group by column 1, sum of column 2 by sum of column 4, greatest of column 3, sum of column 4, sort by column 3 descending, limit literal 2",
        ),
        (
            "SELECT count(*) FROM t GROUP BY name, x % 2 HAVING name <> 'a' ORDER BY sum(x), name COLLATE \"C\"",
            "SELECT count(*), name, x % 2, sum(x), name COLLATE \"C\" FROM t GROUP BY name, x % 2 HAVING name <> 'a'",
            "group by column 2, column 3, sum of column 1, sum of column 4, sort by column 4, column 5",
        ),
        (
            "SELECT x, count(*) FROM t GROUP BY 1 LIMIT 2 * 2 OFFSET $1",
            "SELECT x, count(*), (2 * 2)::pg_catalog.int8 FROM t GROUP BY 1  OFFSET COALESCE((SELECT 0 OFFSET ($1) LIMIT (2 * 2)), 0)",
            "group by column 1, sum of column 2, limit as column 3 says, offset $1",
        ),
        ("SELECT count(DISTINCT k) FROM t", "SELECT count(DISTINCT k) FROM t", "one group of all rows, sum of column 1"),
        (
            "SELECT DISTINCT x FROM t ORDER BY x LIMIT 3",
            "SELECT DISTINCT x FROM t ORDER BY x LIMIT 3",
            "distinct rows, by column 1, limit literal 1",
        ),
        (
            "SELECT DISTINCT ON (name) x FROM t ORDER BY name, f OFFSET 2",
            "SELECT DISTINCT ON (name) x, \"name\", \"f\", \"name\" FROM t ORDER BY name, f OFFSET 0",
            "distinct on column 4, by column 2, column 3, offset literal 1",
        ),
        ("SELECT x FROM t UNION SELECT y FROM u", "SELECT x FROM t UNION SELECT y FROM u", "distinct rows"),
        (
            "SELECT k FROM t ORDER BY x + 1 NULLS FIRST, lower(name) LIMIT 3",
            "SELECT k, x + 1, lower(name) FROM t ORDER BY x + 1 NULLS FIRST, lower(name) LIMIT 3",
            "by column 2, column 3 (as PostgreSQL sorts text COLLATE pg_catalog.\"default\"), limit literal 2",
        ),
    ] {
        assert_eq!(merged(text), (fragment.to_owned(), merge.to_owned()), "{text}");
    }
}

#[test]
fn what_the_proxy_does_not_compute_is_postgresqls_over_the_whole_groups() {
    for (text, fragment, last) in [
        (
            "SELECT sum(x) / count(*) FROM t",
            "SELECT NULL, count(*), sum(x) FROM t",
            "SELECT shardgate_groups.c3 / shardgate_groups.c2 AS \"?column?\" FROM (...) AS shardgate_groups (c1, c2, c3)",
        ),
        (
            "SELECT t.x AS \"a b\", count(*) FROM t GROUP BY t . x HAVING avg(f) > $1 AND t.x < 9 ORDER BY count(*) + 1, x LIMIT $2",
            "SELECT t.x AS \"a b\", count(*), pg_catalog.count(f), pg_catalog.sum(f), count(*) FROM t GROUP BY t . x HAVING t.x < 9",
            "SELECT shardgate_groups.c1 AS \"a b\", shardgate_groups.c2 AS \"count\" FROM (...) AS shardgate_groups (c1, c2, c3, c4, c5) WHERE shardgate_groups.c4 > $1 ORDER BY shardgate_groups.c5 + 1, shardgate_groups.c1 LIMIT $2",
        ),
        (
            "SELECT DISTINCT rank() OVER (PARTITION BY x ORDER BY count(*)) r FROM t GROUP BY x, name ORDER BY r",
            "SELECT DISTINCT NULL, x, name, count(*) FROM t GROUP BY x, name",
            "SELECT DISTINCT rank() OVER (PARTITION BY shardgate_groups.c2 ORDER BY shardgate_groups.c4) r FROM (...) AS shardgate_groups (c1, c2, c3, c4) ORDER BY r",
        ),
    ] {
        let (found, merge) = merged(text);
        assert_eq!(found, fragment, "{text}: {merge}");
        let (_, found) = merge.split_once("then PostgreSQL on one of the shards: ").unwrap_or_else(|| panic!("{text}: {merge}"));
        assert_eq!(found, last, "{text}");
    }
}

#[test]
fn what_is_not_exact_by_parts_is_not_merged() {
    for text in [
        "SELECT count(DISTINCT x) FROM t",
        "SELECT array_agg(x) FROM t",
        "SELECT sum(x ORDER BY k) FROM t",
        "SELECT stddev(x) FROM t",
        "SELECT x, count(*) FROM t GROUP BY ROLLUP (x)",
        "SELECT x, count(*) FROM t GROUP BY x HAVING count(*) > (SELECT 1)",
        "SELECT x + 1, count(*) + x % 2 FROM t GROUP BY x + 1, x % 2",
        "SELECT *, count(*) FROM ref, t GROUP BY ref.id",
        "(SELECT count(*) FROM t) ORDER BY 1",
        "SELECT count(*) OVER () FROM t",
        "SELECT x FROM t INTERSECT SELECT y FROM u",
        "SELECT DISTINCT ON (x + 1) k FROM t",
        "SELECT DISTINCT ON (x, name) k FROM t ORDER BY f",
    ] {
        let (fragment, reason) = merged(text);
        assert_eq!(fragment, "", "{text}: {reason}");
    }
}

#[test]
fn a_statement_about_one_key_is_shared_by_texts_of_its_shape() {
    let context = testing::library().context(&["public"], &[]);
    for (text, is_template) in [
        ("SELECT avg(x) FROM t WHERE k = 5", true),
        ("SELECT x, count(*) FROM t WHERE k = 5 GROUP BY x ORDER BY count(*) + 1", true),
        ("SELECT count(*) FROM t WHERE x = 5", true),
        ("SELECT avg(x) FROM t WHERE x = 5", false),
    ] {
        let read = Analyzer::new().read(text, &context).expect(text);
        assert_eq!(read.analyzed.statements.first().map(|analysis| analysis.is_template), Some(is_template), "{text}");
    }
}
