//! Recipes as text: what is loaded, and what runs over it. That they give PostgreSQL's answers, the parity tests show.

use super::*;
use crate::catalog::Unique;
use crate::sql::testing::library;

fn context() -> Context {
    library().context(&["public"], &["mine"])
}

/// Over the rows of tables.
fn made(text: &str) -> Recipe {
    computing(text).into_plain()
}

fn computing(text: &str) -> Recipe {
    recipe(text, &context(), &[], HomeTables::InPlace).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"))
}

/// The spliced text with blanks as single ones and the temporary names short.
fn spliced(text: &str) -> String {
    let mut text = made(text).text;
    for number in 1..4 {
        text = text.replace(&format!("pg_temp.\"shardgate_input_{number}\""), &format!("#{number}"));
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn fragments(text: &str) -> Vec<String> {
    made(text).inputs.into_iter().map(|input| input.fragment).collect()
}

fn refusal(text: &str) -> String {
    refusal_with(text, HomeTables::InPlace)
}

fn refusal_with(text: &str, home: HomeTables) -> String {
    match recipe(text, &context(), &[], home) {
        Ok(recipe) => panic!("{text}: {recipe:?}"),
        Err(refusal) => {
            assert_eq!(refusal.code, crate::error::SqlState::FEATURE_NOT_SUPPORTED, "{text}: {refusal:?}");
            assert!(refusal.detail.is_some() && refusal.hint.is_some(), "{text}: {refusal:?}");
            refusal.message
        }
    }
}

#[test]
fn tables_are_replaced_by_offset_and_keep_their_names() {
    assert_eq!(spliced("SELECT count(*) FROM t"), "SELECT count(*) FROM #1 AS \"t\"");
    assert_eq!(spliced("SELECT a.x FROM t AS a, public.u b WHERE a.x = b.y"), { "SELECT a.x FROM #1 AS a, #2 b WHERE a.x = b.y" });
    assert_eq!(spliced("SELECT max(x) FROM t WHERE x IN (SELECT y FROM u)"), {
        "SELECT max(x) FROM #1 AS \"t\" WHERE x IN (SELECT y FROM #2 AS \"u\" )"
    });
    assert_eq!(spliced("SELECT a.x FROM t a JOIN t b ON a.x = b.k"), "SELECT a.x FROM #1 a JOIN #1 b ON a.x = b.k");
    assert_eq!(spliced("SELECT max(\"Key\")FROM\"Mixed Case\"WHERE v>''"), {
        "SELECT max(\"Key\")FROM #1 AS \"Mixed Case\" WHERE v>''"
    });
    assert_eq!(spliced("TABLE t"), "SELECT * FROM #1 AS \"t\"");
    assert_eq!(spliced("SELECT sum(x) FROM ONLY t"), "SELECT sum(x) FROM #1 AS \"t\"");
    assert_eq!(spliced("SELECT sum(x) FROM ONLY (t) AS z"), "SELECT sum(x) FROM #1 AS z");
    assert_eq!(spliced("SELECT sum(x) FROM t * WHERE x * 2 > 1"), "SELECT sum(x) FROM #1 AS \"t\" WHERE x * 2 > 1");
    assert_eq!(
        spliced("SELECT 't', \"t\".x FROM t -- of t\n ORDER BY x"),
        "SELECT 't', \"t\".x FROM #1 AS \"t\" -- of t ORDER BY x"
    );
}

#[test]
fn with_queries_hide_tables_only_where_they_are_visible() {
    assert_eq!(spliced("WITH t AS (SELECT * FROM t) SELECT count(*) FROM t"), {
        "WITH t AS (SELECT * FROM #1 AS \"t\" ) SELECT count(*) FROM t"
    });
    assert_eq!(spliced("SELECT (WITH t AS (SELECT 1 AS x) SELECT max(x) FROM t), count(*) FROM t"), {
        "SELECT (WITH t AS (SELECT 1 AS x) SELECT max(x) FROM t), count(*) FROM #1 AS \"t\""
    });
    assert_eq!(spliced("WITH a AS (SELECT k FROM t), b AS (SELECT k FROM a) SELECT count(*) FROM b, public.t"), {
        "WITH a AS (SELECT k FROM #1 AS \"t\" ), b AS (SELECT k FROM a) SELECT count(*) FROM b, #1 AS \"t\""
    });
}

#[test]
fn a_column_that_is_qualified_with_its_schema_loses_it() {
    assert_eq!(spliced("SELECT max(public.t.x) FROM public.t"), "SELECT max( t.x) FROM #1 AS \"t\"");
    let message = refusal("SELECT max(x) FROM public.t WHERE EXISTS (SELECT 1 FROM ref t WHERE t.id = public.t.k)");
    assert_eq!(message, "the statement cannot be rewritten for the rows of several shards");
}

#[test]
fn tables_of_the_home_shard_stay_unless_they_are_shipped() {
    assert_eq!(spliced("SELECT count(*) FROM t, home h, ref WHERE h.id = x AND g = 1"), {
        "SELECT count(*) FROM #1 AS \"t\" , home h, ref WHERE h.id = x AND g = 1"
    });
    let shipped = recipe("SELECT t.x FROM t, home h WHERE h.id = x", &context(), &[], HomeTables::Shipped).unwrap();
    let sources: Vec<Source> = shipped.inputs.iter().map(|input| input.source).collect();
    assert_eq!(sources, [Source::Shards, Source::Home]);
    assert_eq!(shipped.inputs[1].fragment, "SELECT \"id\" FROM \"public\".\"home\"");
}

#[test]
fn only_columns_whose_name_occurs_are_loaded() {
    assert_eq!(fragments("SELECT sum(x) FROM t"), ["SELECT \"x\" FROM \"public\".\"t\""]);
    assert_eq!(fragments("SELECT count(*) FROM t"), ["SELECT \"k\" FROM \"public\".\"t\""]);
    assert_eq!(
        fragments("SELECT id FROM ref WHERE EXISTS (SELECT * FROM t WHERE t.x = ref.g)"),
        ["SELECT DISTINCT \"x\" FROM \"public\".\"t\""]
    );
    let all = "SELECT \"k\", \"z\" FROM \"public\".\"small\"";
    for text in [
        "SELECT * FROM small ORDER BY -z",
        "SELECT a.* FROM small a",
        "SELECT row_to_json(small) FROM small",
        "SELECT count(s) FROM small s",
        "SELECT p FROM small AS s (p)",
        "SELECT 1 FROM small NATURAL JOIN ref",
        "SELECT 1 FROM ref WHERE EXISTS (SELECT * FROM small INTERSECT SELECT 1, id)",
        "SELECT 1 FROM ref WHERE EXISTS (SELECT * FROM (SELECT * FROM small LIMIT 1) s WHERE id = 1)",
        "TABLE small",
        "SELECT (SELECT k FROM ref WHERE id = z) FROM small",
    ] {
        assert_eq!(fragments(text), [all], "{text}");
    }
    assert_eq!(made("SELECT max(z) FROM small").inputs[0].create, {
        "CREATE TEMPORARY TABLE pg_temp.\"shardgate_input_1\" (\"k\" pg_catalog.int2, \"z\" pg_catalog.int4) ON COMMIT DROP"
    });
}

#[test]
fn a_sub_select_that_is_repeated_gets_an_index() {
    let indexes = |text: &str| made(text).inputs.into_iter().flat_map(|input| input.indexes).collect::<Vec<_>>();
    let expected = ["CREATE INDEX ON pg_temp.\"shardgate_input_1\" (\"x\")"];
    assert_eq!(indexes("SELECT a.k FROM t a WHERE a.k > (SELECT avg(b.k) FROM t b WHERE b.x = a.x)"), expected);
    assert_eq!(indexes("SELECT id FROM ref WHERE id > (SELECT avg(k) FROM t WHERE x = id AND x = 1)"), expected);
    assert_eq!(indexes("SELECT max(a.x) FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.x = a.x)"), [""; 0]);
    assert_eq!(indexes("SELECT max(a.x) FROM t a WHERE a.x = a.k"), [""; 0]);
}

#[test]
fn views_are_loaded_by_name_where_each_shard_has_its_part_and_opened_elsewhere() {
    assert_eq!(fragments("SELECT max(x) FROM v_t"), ["SELECT \"x\" FROM \"public\".\"v_t\""]);
    assert_eq!(fragments("SELECT max(b) FROM v_nested"), ["SELECT \"b\" FROM \"public\".\"v_nested\""]);
    assert_eq!(spliced("SELECT n FROM v_total WHERE k > 1"), {
        "SELECT n FROM (SELECT count(*) AS n, max(t.k) AS k FROM #1 AS \"t\" ) AS \"v_total\" WHERE k > 1"
    });
    assert_eq!(spliced("SELECT a.k FROM v_limited a, v_ref r WHERE r.id = a.x"), {
        "SELECT a.k FROM (SELECT t.k, t.x FROM #1 AS \"t\" ORDER BY t.x LIMIT 10) a, v_ref r WHERE r.id = a.x"
    });
}

#[test]
fn the_clock_is_noticed() {
    assert!(made("SELECT count(*), now() FROM t").has_clock);
    assert!(made("SELECT count(*), CURRENT_DATE FROM t").has_clock);
    assert!(made("SELECT count(*) FROM events WHERE day < 'today'").has_clock);
    assert!(!made("SELECT count(*), clock_timestamp() FROM t WHERE name <> 'unknown'").has_clock);
}

#[test]
fn what_would_be_seen_to_differ_is_refused() {
    for (text, message) in [
        ("SELECT max(ctid::text) FROM t", "system column \"ctid\" is not supported across shards"),
        ("SELECT count(*) FROM t TABLESAMPLE BERNOULLI (10)", "TABLESAMPLE is not supported across shards"),
        ("SELECT count(*), pg_backend_pid() FROM t", "function pg_backend_pid() is not supported across shards"),
        ("SELECT count(*), current_setting('transaction_isolation') FROM t", {
            "function current_setting() is not supported across shards"
        }),
        ("SELECT max(pg_column_size(name)) FROM t", "function pg_column_size() is not supported across shards"),
        ("SELECT max(x) FROM t, pg_locks", "\"pg_locks\" cannot be combined with rows of several shards"),
        ("SELECT f_counts() FROM t", "the statement calls something that touches tables of several shards"),
        ("SELECT max(a::text) FROM t a", "the whole row \"a\" is not supported here over the rows of several shards"),
        ("SELECT count(t.nothing) FROM t", "the whole row \"t\" is not supported here over the rows of several shards"),
        ("SELECT count(*) FROM t, mine", "temporary table \"mine\" cannot be combined with rows of several shards"),
        ("SELECT count(*) FROM t, unheard_of", "table \"unheard_of\" cannot be combined with rows of several shards"),
        ("SELECT count(*) FROM guarded", "\"guarded\" cannot be combined with rows of several shards"),
        (
            "SELECT count(*) FROM t FOR UPDATE",
            "a statement that changes or locks something is not supported over the rows of several shards",
        ),
        (
            "SELECT count(*), nextval('s') FROM t",
            "a statement that changes or locks something is not supported over the rows of several shards",
        ),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    // The statement runs where neither the transaction's changes nor its snapshot are.
    for function in ["f_home", "f_ref"] {
        for home in [HomeTables::Shipped, HomeTables::OfSnapshot] {
            let message = refusal_with(&format!("SELECT count(*), {function}() FROM t"), home);
            assert_eq!(message, "the statement calls something that touches tables of several shards");
        }
    }
    assert!(recipe("SELECT count(*), f_ref() FROM t", &context(), &[], HomeTables::InPlace).is_ok());
}

/// The text, and what each shard computes, with the names short.
fn computed_of(text: &str) -> (String, Vec<Input>) {
    let recipe = computing(text);
    let mut text = recipe.text;
    for number in 1..4 {
        text = text.replace(&format!("pg_temp.\"shardgate_input_{number}\""), &format!("#{number}"));
        text = text.replace(&format!("pg_temp.\"shardgate_input_q{number}\""), &format!("#q{number}"));
    }
    (
        text.split_whitespace().collect::<Vec<_>>().join(" "),
        recipe.inputs.into_iter().filter(|input| input.columns.is_empty()).collect(),
    )
}

#[test]
fn a_sub_select_that_the_shards_can_compute_is_an_input() {
    for (text, spliced, fragments) in [
        (
            "SELECT max(x) FROM t, (SELECT k, count(*) FROM u GROUP BY k -- all\n) AS c (a, b) WHERE c.b = t.x",
            "SELECT max(x) FROM #1 AS \"t\" , (SELECT * FROM #q1) AS c (a, b) WHERE c.b = t.x",
            vec!["SELECT k, count(*) FROM u GROUP BY k -- all\n"],
        ),
        (
            "WITH s AS MATERIALIZED (SELECT t.x, u.y FROM t JOIN u USING (k) WHERE t.x > 1) SELECT a.x FROM s a, s b WHERE a.x = b.y",
            "WITH s AS MATERIALIZED (SELECT * FROM #q1) SELECT a.x FROM s a, s b WHERE a.x = b.y",
            vec!["SELECT t.x, u.y FROM t JOIN u USING (k) WHERE t.x > 1"],
        ),
        (
            "SELECT a.x FROM t a JOIN t b ON a.x = b.k WHERE a.x IN (SELECT DISTINCT y FROM u) AND a.k < (SELECT max(y) FROM u)",
            "SELECT a.x FROM #1 a JOIN #1 b ON a.x = b.k WHERE a.x IN (SELECT * FROM #q2) AND a.k < (SELECT * FROM #q1)",
            vec!["SELECT max(y) FROM u", "SELECT DISTINCT y FROM u"],
        ),
    ] {
        let (found, inputs) = computed_of(text);
        assert_eq!(found, spliced, "{text}");
        assert_eq!(inputs.into_iter().map(|input| input.fragment).collect::<Vec<_>>(), fragments, "{text}");
    }
}

#[test]
fn groups_of_which_each_shard_has_a_part_are_made_of_the_parts() {
    let (_, inputs) =
        computed_of("SELECT max(x) FROM t, (SELECT y, count(*), avg(k) AS a, min(name) FROM u GROUP BY y) c WHERE c.a = t.x");
    let [input] = inputs.as_slice() else { panic!("{inputs:?}") };
    assert_eq!(input.fragment, {
        "SELECT y, count(*), pg_catalog.sum(k) AS a, min(name), pg_catalog.count(k) AS shardgate_hidden FROM u GROUP BY y"
    });
    assert_eq!(
        input.combine.as_deref(),
        Some({
            "INSERT INTO pg_temp.\"shardgate_input_q1\" SELECT c1, pg_catalog.sum(c2), \
         pg_catalog.sum(c3) OPERATOR(pg_catalog./) pg_catalog.sum(c5), pg_catalog.min(c4) \
         FROM pg_temp.\"shardgate_input_q1_parts\" GROUP BY c1"
        })
    );
    assert!(input.create.contains("AS SELECT y, count(*), avg(k) AS a, min(name) FROM u GROUP BY y\nWITH NO DATA"));
    assert!(input.create.contains("(c1, c2, c3, c4, c5) ON COMMIT DROP AS SELECT y"), "{}", input.create);
}

#[test]
fn sub_selects_that_hang_on_more_than_their_own_rows_are_not_computed() {
    for text in [
        // A filter alone; rows of the query around it; names that are not certain; a name of another WITH query.
        "SELECT max(x) FROM t WHERE x IN (SELECT y FROM u WHERE y > 1)",
        "SELECT a.k FROM t a WHERE a.k > (SELECT avg(b.k) FROM t b WHERE b.x = a.x)",
        "SELECT k FROM t WHERE k > (SELECT avg(y) FROM u WHERE y = x)",
        "WITH w AS (SELECT y FROM u) SELECT count(*) FROM t, (SELECT t.k, w.y FROM t, w) c WHERE c.y = t.x",
        // An order, a limit, another clock, what no parts make, home tables, functions that change.
        "SELECT max(t.x) FROM t, (SELECT y, count(*) FROM u GROUP BY y ORDER BY y) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT y, count(*) FROM u GROUP BY y LIMIT 3) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT y, count(*) FROM u WHERE name < 'now' GROUP BY y) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT y, string_agg(name, ',') AS n FROM u GROUP BY y) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT y, upper(y::text), count(*) FROM u GROUP BY y) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT u.y FROM u, home h WHERE h.id = u.k) c WHERE c.y = t.x",
        "SELECT max(t.x) FROM t, (SELECT u.k, random() AS r, count(*) FROM u GROUP BY u.k) c WHERE c.k = t.x",
        // Only a reference table.
        "SELECT max(x) FROM t WHERE x IN (SELECT max(g) FROM ref)",
    ] {
        assert_eq!(computing(text).plain, None, "{text}");
    }
    let shipped = recipe("SELECT max(x) FROM t WHERE x > (SELECT max(y) FROM u)", &context(), &[], HomeTables::Shipped).unwrap();
    assert_eq!(shipped.plain, None);
}

/// The fragment of the first input, with parameters as they are.
fn fragment(text: &str) -> String {
    let query = made(text).inputs[0].shown();
    ["=", "<", "<=", ">", ">="]
        .iter()
        .fold(query, |query, operator| query.replace(&format!("OPERATOR(pg_catalog.{operator})"), operator))
}

#[test]
fn comparisons_with_constants_go_along() {
    for (text, expected) in [
        ("SELECT max(x) FROM t WHERE x = 5", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" = (5)"),
        ("SELECT max(x) FROM t WHERE $1 < x", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" > $1"),
        ("SELECT max(a.x) FROM t a, u WHERE a.x = 5 AND y = 4", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" = (5)"),
        ("SELECT max(a.x) FROM t a LEFT JOIN u ON u.y = a.x WHERE a.name IN ('b''c', 'd')", {
            "SELECT \"x\", \"name\" FROM \"public\".\"t\" WHERE \"name\" IN ('b''c', 'd')"
        }),
        ("SELECT max(x) FROM t WHERE (x < 3 OR name IS NULL) AND length(name) > 2", {
            "SELECT \"x\", \"name\" FROM \"public\".\"t\" WHERE (\"x\" < (3) OR \"name\" IS NULL)"
        }),
        // Of two readers; of the table that has such a column; of a join's own condition; what follows from more.
        ("SELECT max(a.x) FROM t a, t b WHERE a.x = 5 AND b.x = 6", {
            "SELECT \"x\" FROM \"public\".\"t\" WHERE ((\"x\" = (5)) OR (\"x\" = (6)))"
        }),
        ("SELECT max(x) FROM t, u WHERE x = 5", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" = (5)"),
        ("SELECT max(x) FROM t JOIN u ON x = 5 AND y = 1", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" = (5)"),
        ("SELECT max(x) FROM t RIGHT JOIN u ON t.x = 5", "SELECT \"x\" FROM \"public\".\"t\" WHERE \"x\" = (5)"),
        ("SELECT max(x) FROM t, u WHERE (x = 1 AND y = 1) OR (x = 2 AND y = 2)", {
            "SELECT \"x\" FROM \"public\".\"t\" WHERE ((\"x\" = (1)) OR (\"x\" = (2)))"
        }),
        ("SELECT max(x) FROM t WHERE name LIKE 'a%' AND x < k AND x > 1 + 2", {
            "SELECT \"k\", \"x\", \"name\" FROM \"public\".\"t\" WHERE \"x\" > ((1) OPERATOR(pg_catalog.+) (2)) AND \
             \"name\" OPERATOR(pg_catalog.~~) 'a%'"
        }),
        ("SELECT max(x) FROM t WHERE x BETWEEN 1 AND 2 AND k IN (SELECT y FROM u)", {
            "SELECT \"k\", \"x\" FROM \"public\".\"t\" WHERE (\"x\" >= (1) AND \"x\" <= (2))"
        }),
    ] {
        assert_eq!(fragment(text), expected, "{text}");
    }
}

#[test]
fn comparisons_that_do_not_filter_the_table_stay() {
    for text in [
        // On the nullable side, where NULL may satisfy it; of one of two readers; of a column that is not certain to be the table's.
        "SELECT max(t.x) FROM u LEFT JOIN t ON t.x = u.y WHERE t.x IS NULL",
        "SELECT max(t.x) FROM t FULL JOIN u ON t.x = u.y WHERE t.x IS NULL",
        "SELECT max(a.x) FROM t a, t b WHERE a.x = 5",
        "SELECT max(t.x) FROM t LEFT JOIN u ON t.x = 5",
        "SELECT max(t.x) FROM t FULL JOIN u ON t.x = 5",
        "SELECT max(x) FROM (t JOIN u ON true) AS j WHERE x = 5",
        "SELECT max(x) FROM t JOIN u USING (name) WHERE name = 'a'",
        "SELECT max(x) FROM t, u WHERE NOT (x = 1 AND y = 1)",
        "SELECT max(a) FROM t AS q (b, a) WHERE x = 5",
        // Not in the WHERE; what may fail, or depends on settings; outer columns.
        "SELECT max(x) FILTER (WHERE x = 5) FROM t",
        "SELECT max(x) FROM t WHERE x + 1 = 5",
        "SELECT max(x) FROM t WHERE x = 5 OR length(name) = 2",
        "SELECT max(x) FROM t WHERE x = NULL",
        "SELECT max(x) FROM t WHERE name > 'a'",
        "SELECT max(x) FROM t WHERE ci = 'a'",
        "SELECT max(x) FROM t HAVING max(x) = 5",
        "SELECT max(u.k), (SELECT 1 FROM ref WHERE t.x = 5) FROM t, u",
    ] {
        let fragments = made(text).inputs.into_iter().map(|input| input.shown());
        fragments.for_each(|fragment| assert!(!fragment.contains("WHERE"), "{text}: {fragment}"));
    }
    assert!(!fragment("SELECT count(*) FROM events a, u WHERE a.day = 'today'").contains("WHERE"));
    assert!(!fragment("SELECT count(*) FROM events a, u WHERE a.day = date '1/2/2024'").contains("WHERE"));
    assert!(fragment("SELECT count(*) FROM events a, u WHERE a.day = '2024-01-01'").contains("WHERE"));
    assert_eq!(fragment("SELECT count(*) FROM events, u WHERE day < date '2024-01-01' + interval '3' month"), {
        "SELECT \"day\" FROM \"public\".\"events\" WHERE \"day\" < ('2024-01-01'::pg_catalog.date OPERATOR(pg_catalog.+) '3 month'::pg_catalog.interval)"
    });
}

#[test]
fn rows_without_a_partner_on_their_shard_stay() {
    let conditions = |text: &str| match fragment(text).split_once(" WHERE ") {
        Some((_, conditions)) => conditions.replace("\"public\".", "").replace('"', ""),
        None => String::new(),
    };
    for (text, expected) in [
        ("SELECT max(t.x) FROM t, u WHERE t.k = u.k AND u.y = 5", "k IN (SELECT k FROM u WHERE y = (5))"),
        ("SELECT max(t.x) FROM t JOIN u ON t.k = u.k WHERE u.y = 5", "k IN (SELECT k FROM u WHERE y = (5))"),
        ("SELECT max(t.x) FROM t, ref WHERE x > 1 AND k = id AND g = 1", "x > (1) AND k IN (SELECT id FROM ref WHERE g = (1))"),
        ("SELECT max(x) FROM t WHERE k IN (SELECT u.k FROM u WHERE y = 1)", "k IN (SELECT k FROM u WHERE y = (1))"),
        ("SELECT id FROM ref WHERE g = 1 AND id > (SELECT avg(x) FROM t WHERE k = id)", "k IN (SELECT id FROM ref WHERE g = (1))"),
        ("SELECT max(a.x) FROM t a, t b, u WHERE b.k = u.k AND a.k = b.k AND u.y = 1", { "k IN (SELECT k FROM u WHERE y = (1))" }),
        ("SELECT max(a.x) FROM t a, t b, u, u v WHERE b.k = u.k AND a.k = v.k AND u.y = 1 AND v.y = 2", {
            "k IN (SELECT k FROM u WHERE y = (2) UNION ALL SELECT k FROM u WHERE y = (1))"
        }),
        ("SELECT max(a.x) FROM t a, t b, u WHERE b.k = u.k AND u.y = 1 AND a.x = 1 AND b.x = 2", "((x = (1)) OR (x = (2)))"),
        ("SELECT max(a.x) FROM t a, t b, u WHERE b.k = u.k AND u.y = 1 AND a.x = 1 AND b.x = 1", "x = (1)"),
        ("SELECT max(x) FROM t WHERE k IN (SELECT u.k FROM u GROUP BY u.k HAVING sum(y) > 3)", {
            "k IN (SELECT k FROM u WHERE k IN (SELECT k FROM u GROUP BY k HAVING pg_catalog.sum(y) > (3)))"
        }),
        ("SELECT k FROM t GROUP BY k HAVING count(*) > 1 AND max(length(name)) > 1", {
            "k IN (SELECT k FROM t GROUP BY k HAVING pg_catalog.count(*) > (1))"
        }),
        ("SELECT k FROM t WHERE x = 1 GROUP BY k HAVING count(*) < 3", "x = (1)"),
        ("SELECT x FROM t GROUP BY x HAVING count(*) > 1", ""),
        ("SELECT k FROM t GROUP BY k HAVING sum(f) > 1", ""),
        ("SELECT k FROM t GROUP BY ROLLUP (k) HAVING sum(x) > 1", ""),
        ("SELECT t.k FROM t, home GROUP BY t.k HAVING sum(x) > 1", ""),
        // Not by another column, of another group, on the side that is kept, or where names are not certain.
        ("SELECT max(t.f) FROM t, u WHERE t.f = u.k AND u.y = 5", ""),
        ("SELECT max(t.x) FROM t, home h WHERE t.f = h.f AND h.name = 'a'", ""),
        ("SELECT max(t.x) FROM t LEFT JOIN u ON t.k = u.k AND u.y = 5", ""),
        ("SELECT max(t.x) FROM t LEFT JOIN u ON t.k = u.k WHERE u.y = 5 OR u.y IS NULL", ""),
        ("SELECT max(t.x) FROM t, u WHERE (t.k = u.k OR t.x = 1) AND u.y = 5", ""),
        ("SELECT max(x) FROM t WHERE k NOT IN (SELECT u.k FROM u WHERE y = 1)", ""),
        ("SELECT id FROM ref WHERE g = 1 OR id > (SELECT avg(x) FROM t WHERE k = id)", ""),
        ("SELECT id FROM ref WHERE g = 1 AND EXISTS (SELECT 1 FROM home h, LATERAL (SELECT 1 FROM t WHERE t.k = id) i)", ""),
        (
            "SELECT id FROM ref WHERE g = 1 AND EXISTS (SELECT 1 FROM home h JOIN home ON h.id > ALL (SELECT x FROM t WHERE t.k = id))",
            "",
        ),
        ("SELECT max(x) FROM t, (SELECT 1 AS id) i, ref r WHERE t.k = i.id AND r.g = 1", ""),
    ] {
        assert_eq!(conditions(text), expected, "{text}");
    }
}

/// `t.k` and `span.a` are primary keys.
fn with_primary_keys() -> Context {
    let mut fixture = library();
    for (name, column) in [("t", "k"), ("span", "a")] {
        fixture.primary_key(name, column);
    }
    fixture.context(&["public"], &["mine"])
}

/// The inputs with their rounds, the SELECTs without their lists.
fn rounds(text: &str) -> String {
    let recipe =
        recipe(text, &with_primary_keys(), &[], HomeTables::InPlace).unwrap_or_else(|refusal| panic!("{text}: {refusal:?}"));
    let shown = recipe.into_plain().inputs.into_iter().map(|input| {
        let shown = input.shown().replace("OPERATOR(pg_catalog.=)", "=").replace("OPERATOR(pg_catalog.>)", ">");
        let shown = shown.replace("\"public\".", "").replace("keys of public.", "keys of ").replace('"', "");
        let from = shown.split_once(" FROM ").map_or(shown.as_str(), |(_, from)| from);
        format!("{}: {from}", input.round)
    });
    shown.collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_table_whose_keys_restrict_another_is_loaded_before_it() {
    for (text, expected) in [
        ("SELECT max(y) FROM u, t WHERE t_k = t.k AND x = 5", "0: t WHERE x = (5) | 1: u WHERE t_k = ANY (keys k of public.t)"),
        ("SELECT max(y) FROM u WHERE t_k IN (SELECT a.k FROM t a WHERE a.x = 5)", {
            "0: t WHERE x = (5) | 1: u WHERE t_k = ANY (keys k of public.t)"
        }),
        // Keys of keys, and of what lies beside.
        ("SELECT max(u.y) FROM span o, t, u WHERE o.b = 5 AND t.k = o.a AND u.k = t.k", {
            "0: span WHERE b = (5) | 1: t WHERE k = ANY (keys a of public.span) | 1: u WHERE k = ANY (keys a of public.span)"
        }),
        // Of any column, where nothing else restricts it.
        ("SELECT max(x) FROM t, u WHERE t_k = t.k AND u.y = 5", {
            "0: u WHERE y = (5) | 1: t WHERE k = ANY (keys t_k of public.u)"
        }),
        // What every case of an OR has.
        ("SELECT max(x) FROM t, u WHERE (t_k = t.k AND u.y = 5 AND x = 1) OR (x = 2 AND t_k = t.k AND y = 6)", {
            "0: t WHERE ((x = (1)) OR (x = (2))) | 1: u WHERE ((y = (5)) OR (y = (6))) AND t_k = ANY (keys k of public.t)"
        }),
        ("SELECT max(x) FROM t, u WHERE (t_k = t.k AND y = 5) OR (x = 2 AND t_k = t.x AND y = 6)", {
            "0: t | 0: u WHERE ((y = (5)) OR (y = (6)))"
        }),
        // Each could be by the keys of the other.
        ("SELECT max(x) FROM t, span o WHERE t.k = o.a AND o.b = 5 AND x = 1", {
            "0: span WHERE b = (5) | 1: t WHERE x = (1) AND k = ANY (keys a of public.span)"
        }),
        // Of two readers, one of which needs all.
        ("SELECT max(a.y) FROM u a, u b, t WHERE a.t_k = t.k AND t.x = 5", "0: u | 0: t WHERE x = (5)"),
        ("SELECT max(a.y) FROM u a, u b, t WHERE a.t_k = t.k AND t.x = 5 AND b.y = 6", {
            "0: t WHERE x = (5) | 1: u WHERE ((t_k = ANY (keys k of public.t)) OR (y = (6)))"
        }),
        // Without a condition on it.
        ("SELECT max(y) FROM u, t WHERE t_k = t.k", "0: u | 0: t"),
    ] {
        assert_eq!(rounds(text), expected, "{text}");
    }
}

/// The session's own, of these columns.
fn temporary(columns: &str, key: Option<&str>) -> Vec<Relation> {
    let mut fixture = library();
    let oid = fixture.table("pg_temp.mine", columns);
    let mut relation = fixture.catalog.relations.remove(&oid).expect("declared");
    relation.uniques.extend(key.map(|key| Unique {
        name: "mine_pkey".to_owned(),
        is_primary: true,
        is_exclusion: false,
        is_constraint: true,
        columns: vec![Some(key.to_owned())],
        is_partial: false,
    }));
    vec![relation]
}

#[test]
fn rows_of_a_temporary_table_are_loaded_from_where_it_is() {
    let made = |text: &str, key: Option<&str>| {
        let temporary = temporary("id int8, x int4, note text", key);
        recipe(text, &context(), &temporary, HomeTables::InPlace).map(Recipe::into_plain)
    };
    for text in ["SELECT t.x, mine.note FROM t JOIN mine ON id = k", "SELECT t.x, mine.note FROM t JOIN pg_temp.mine ON id = k"] {
        let made = made(text, None).expect(text);
        assert_eq!(made.text.split_whitespace().collect::<Vec<_>>().join(" "), {
            "SELECT t.x, mine.note FROM pg_temp.\"shardgate_input_1\" AS \"t\" JOIN pg_temp.\"shardgate_input_2\" AS \"mine\" ON id = k"
        });
        let loaded: Vec<_> = made.inputs.iter().map(|input| (input.round, input.source, input.shown())).collect();
        let own = "SELECT \"id\", \"x\", \"note\" FROM \"pg_temp\".\"mine\"";
        let others = "SELECT \"k\", \"x\" FROM \"public\".\"t\" WHERE \"k\" = ANY (keys \"id\" of pg_temp.mine)";
        assert_eq!(loaded, [(0, Source::Temporary, own.to_owned()), (1, Source::Shards, others.to_owned())], "{text}");
    }
    // It waits for no keys, whatever the others are restricted by, and sends its own to what is restricted less.
    let made = |text: &str, key| made(text, key).expect(text).inputs;
    let inputs = made("SELECT max(t.x) FROM t, mine WHERE t.k = mine.id AND t.x = 5", Some("id"));
    let shown: Vec<_> = inputs.iter().map(|input| (input.round, input.keys().count())).collect();
    assert_eq!(shown, [(0, 0), (1, 1)]);
    let inputs = made("SELECT mine.id, mine.note, max(t.x) FROM t, mine WHERE t.k > mine.id GROUP BY mine.id", Some("id"));
    assert!(inputs[1].create.contains("PRIMARY KEY (\"id\")"), "{}", inputs[1].create);
}

#[test]
fn names_of_temporary_tables_are_refused_elsewhere_than_in_from() {
    let temporary = temporary("id int8, x int4, note text", None);
    let refusal = |text: &str| match recipe(text, &context(), &temporary, HomeTables::InPlace) {
        Ok(recipe) => format!("{recipe:?}"),
        Err(refusal) => refusal.message,
    };
    for text in [
        "SELECT max(t.x), NULL::mine FROM t",
        "SELECT max(t.x), NULL::pg_temp.mine[] FROM t",
        "SELECT max(t.x), mine('(1,2,a)') FROM t",
        "SELECT max(t.x), 'mine'::regclass FROM t",
        "SELECT max(t.x), to_regclass('pg_temp.\"mine\"') FROM t",
        "SELECT max(t.x), to_regtype(max(t.name)) FROM t",
        "SELECT max(t.x), has_table_privilege('mine', 'select') FROM t",
        "SELECT max(t.x) FROM t, pg_class c WHERE pg_table_is_visible(c.oid)",
    ] {
        assert_eq!(refusal(text), "temporary table \"mine\" cannot be named here over the rows of several shards", "{text}");
    }
    assert_eq!(refusal("SELECT max(t.x) FROM t, pg_temp_3.mine"), {
        "temporary table \"mine\" cannot be combined with rows of several shards"
    });
    let fine = "SELECT max(t.x), 'u'::regclass, has_table_privilege('u', 'select'), NULL::app.mine FROM t";
    assert!(!refusal(fine).contains("temporary table"), "{}", refusal(fine));
}

#[test]
fn keys_of_what_is_restricted_more_restrict_the_rest() {
    for (text, expected) in [
        ("SELECT max(t.x) FROM t, u WHERE t.x = u.y AND u.name = 'a' AND t.x > 1", {
            "0: u WHERE name = 'a' | 1: t WHERE x > (1) AND x = ANY (keys y of public.u)"
        }),
        ("SELECT max(t.x) FROM t, u WHERE t.x = u.y AND u.name IN ('a', 'b') AND (t.x > 1 OR t.x = 1)", {
            "0: u WHERE name IN ('a', 'b') | 1: t WHERE (x > (1) OR x = (1)) AND x = ANY (keys y of public.u)"
        }),
        ("SELECT max(t.x) FROM t, u WHERE t.x = u.y AND u.t_k > 1 AND t.x > 1", "0: t WHERE x > (1) | 0: u WHERE t_k > (1)"),
        ("SELECT max(t.x) FROM t, u WHERE t.x = u.y AND u.name = 'a' AND t.name = 'b'", {
            "0: t WHERE name = 'b' | 0: u WHERE name = 'a'"
        }),
        // By way of a table that has no condition itself.
        ("SELECT max(o.b) FROM u, t, span o WHERE u.y = 5 AND t.name = u.name AND o.v = t.name AND o.b > 1", {
            "0: u WHERE y = (5) | 1: t WHERE name = ANY (keys name of public.u) | \
             1: span WHERE b > (1) AND v = ANY (keys name of public.u)"
        }),
        ("SELECT max(o.b) FROM u, t, span o WHERE u.y = 5 AND t.name = u.name AND o.b = t.x", {
            "0: u WHERE y = (5) | 1: t WHERE name = ANY (keys name of public.u) | 2: span WHERE b = ANY (keys x of public.t)"
        }),
    ] {
        assert_eq!(rounds(text), expected, "{text}");
    }
}

#[test]
fn keys_are_those_of_rows_that_the_answer_hangs_on() {
    let restricted = "0: t WHERE x = (5) | 1: u WHERE t_k = ANY (keys k of public.t)";
    for text in [
        // The side that is extended by NULLs, by the one that is kept.
        "SELECT t.x, u.y FROM t LEFT JOIN u ON u.t_k = t.k WHERE t.x = 5",
        "SELECT t.x, u.y FROM u RIGHT JOIN t ON u.t_k = t.k AND u.y > t.x WHERE t.x = 5",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.t_k AND t.x = 5)",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT * FROM t WHERE u.t_k = t.k AND t.x = 5 ORDER BY t.x)",
        "SELECT max(y) FROM u, (SELECT k AS o FROM t WHERE x = 5 ORDER BY name LIMIT 3) d WHERE t_k = d.o",
        "SELECT max(y) FROM u LEFT JOIN t a ON false JOIN (SELECT * FROM t WHERE x = 5) d ON t_k = d.k WHERE a.x = 5",
        "WITH d AS (SELECT t.* FROM t WHERE x = 5), e AS (SELECT k FROM d) SELECT max(y) FROM u JOIN e f ON u.t_k = f.k",
    ] {
        let expected = if text.contains("LEFT JOIN t a") { "0: t | 1: u WHERE t_k = ANY (keys k of public.t)" } else { restricted };
        assert_eq!(rounds(text), expected, "{text}");
    }
    assert_eq!(rounds("SELECT max(x) FROM t JOIN u USING (name) WHERE u.y = 5"), {
        "0: u WHERE y = (5) | 1: t WHERE name = ANY (keys name of public.u)"
    });
    assert_eq!(
        rounds(
            "SELECT max(t.x) FROM t JOIN u USING (name) JOIN names_c n ON n.v = t.name JOIN names m USING (name) WHERE m.v = 'a'"
        ),
        {
            "0: names WHERE v = 'a' | 1: t WHERE name = ANY (keys name of public.names) | \
         1: u WHERE name = ANY (keys name of public.names) | 1: names_c WHERE v = ANY (keys name of public.names)"
        }
    );
    for text in [
        // The side that is kept; both.
        "SELECT max(y) FROM u LEFT JOIN t ON t_k = t.k AND x = 5",
        "SELECT max(y) FROM t RIGHT JOIN u ON t_k = t.k AND x = 5",
        "SELECT max(y) FROM u FULL JOIN t ON t_k = t.k WHERE t.x = 5",
        "SELECT max(y) FROM u FULL JOIN t USING (k) WHERE t.x = 5",
        // Nothing must be there.
        "SELECT max(y) FROM u WHERE NOT EXISTS (SELECT 1 FROM t WHERE t.k = u.t_k AND t.x = 5)",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.t_k AND t.x = 5) OR y = 6",
        "SELECT max(y) FROM u WHERE t_k NOT IN (SELECT t.k FROM t WHERE t.x = 5)",
        "SELECT max(y) FROM u WHERE t_k <> ALL (SELECT t.k FROM t WHERE t.x = 5)",
        // It has a row whatever it finds, or finds it elsewhere.
        "SELECT max(y) FROM u WHERE EXISTS (SELECT count(*) FROM t WHERE t.k = u.t_k AND t.x = 5)",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.t_k AND t.x = 5 LIMIT $1)",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT 1 FROM t WHERE t.k = u.t_k AND t.x = 5 UNION SELECT 1)",
        "SELECT max(y) FROM u WHERE EXISTS (SELECT 1 FROM small LEFT JOIN t ON t.k = u.t_k AND t.x = 5)",
        // What the sub-select makes of the column; what its names mean.
        "SELECT max(y) FROM u, (SELECT k + 1 AS o FROM t WHERE x = 5) d WHERE t_k = d.o",
        "SELECT max(y) FROM u, (SELECT k, x FROM t WHERE x = 5) d (x, k) WHERE t_k = d.k",
        "SELECT max(y) FROM u, (SELECT k FROM t WHERE x = 5 UNION SELECT 1) d WHERE t_k = d.k",
        "WITH RECURSIVE d AS (SELECT k FROM t WHERE x = 5) SELECT max(y) FROM u, d WHERE t_k = d.k",
        // A column of several tables, of which an outer join makes one.
        "SELECT max(u.y) FROM small s LEFT JOIN t USING (k) JOIN u USING (k) WHERE t.x = 5",
        "SELECT max(o.v) FROM t RIGHT JOIN u USING (name) JOIN names o USING (name) WHERE t.x = 5",
        "SELECT max(d.y) FROM (t CROSS JOIN small) AS j (x, k) JOIN u d USING (k) WHERE j.x = 5",
        "SELECT v FROM buckets WHERE v = 'x' AND EXISTS (SELECT 1 FROM t JOIN u USING (k) WHERE k = t_k)",
    ] {
        let rounds = rounds(text);
        assert!(!rounds.contains("ANY") && !rounds.contains(" IN ("), "{text}: {rounds}");
    }
}

#[test]
fn tables_of_the_home_shard_have_keys_too() {
    for (text, expected) in [
        ("SELECT max(t.x) FROM t, home h WHERE t.x = h.id AND h.name = 'a'", {
            "0: home WHERE name = 'a' | 1: t WHERE x = ANY (keys id of public.home)"
        }),
        ("SELECT max(t.x) FROM t JOIN ONLY home h ON t.k = h.k AND t.x = h.id WHERE h.name = $1", {
            "0: home WHERE name = $1 | 1: t WHERE x = ANY (keys id of public.home) AND k = ANY (keys k of public.home)"
        }),
        ("SELECT max(t.x) FROM t WHERE x IN (SELECT id FROM home WHERE name = 'a') AND k NOT IN (SELECT id FROM home)", {
            "0: home WHERE name = 'a' | 1: t WHERE x = ANY (keys id of public.home)"
        }),
        // By way of it.
        ("SELECT max(u.y) FROM t, home h, u WHERE t.x = 5 AND h.k = t.k AND u.t_k = h.id", {
            "0: t WHERE x = (5) | 1: home WHERE k = ANY (keys k of public.t) | 2: u WHERE t_k = ANY (keys id of public.home)"
        }),
        // Nothing that would be few; no table; where it may be shipped itself.
        ("SELECT max(t.x) FROM t, home h WHERE t.x = h.id", "0: t"),
        ("SELECT max(t.x) FROM t, app.v_home h WHERE t.k = h.k AND h.k > 1", "0: t"),
        ("SELECT max(t.x) FROM t LEFT JOIN home h ON t.x = h.id AND h.name = 'a'", "0: t"),
    ] {
        assert_eq!(rounds(text), expected, "{text}");
    }
    let shipped = recipe("SELECT max(t.x) FROM t, home h WHERE t.x = h.id AND h.name = 'a'", &context(), &[], HomeTables::Shipped);
    let sources: Vec<Source> = shipped.unwrap().inputs.iter().map(|input| input.source).collect();
    assert_eq!(sources, [Source::Home, Source::Shards]);
    let made = made("SELECT max(t.x) FROM t, home h WHERE t.x = h.id AND t.k = h.k AND h.name = 'a'");
    let first = &made.inputs[0];
    assert_eq!((first.source, first.columns.join(",").as_str()), (Source::Scratch, "\"id\",\"k\""));
    assert!(first.create.ends_with("(\"id\" pg_catalog.int8, \"k\" pg_catalog.int8) ON COMMIT DROP"), "{}", first.create);
    assert!(!made.text.contains(&first.name), "{}", made.text);
}

#[test]
fn what_the_shards_compute_has_keys_too() {
    let shown = |text: &str| {
        let inputs = computing(text).inputs.into_iter().map(|input| format!("{}: {}", input.round, input.shown()));
        inputs.collect::<Vec<_>>().join(" | ").replace('"', "")
    };
    for (text, keys) in [
        (
            "SELECT max(v) FROM names WHERE name IN (SELECT u.name FROM u JOIN t ON u.k = t.k WHERE t.x = 5)",
            "keys name of a sub-select",
        ),
        ("SELECT max(v) FROM names n, (SELECT u.name AS o FROM u WHERE y = 5 GROUP BY u.name) d WHERE n.name = d.o", {
            "keys o of a sub-select"
        }),
    ] {
        let expected = format!("1: SELECT name, v FROM public.names WHERE name = ANY ({keys})");
        assert!(shown(text).ends_with(&expected), "{text}: {}", shown(text));
    }
    for text in [
        // It is not restricted, or not handed on as it is.
        "SELECT max(v) FROM names WHERE name IN (SELECT u.name FROM u JOIN t ON u.k = t.k)",
        "SELECT max(v) FROM names n, (SELECT max(u.name) AS name FROM u WHERE y = 5 GROUP BY u.k) d WHERE n.name = d.name",
        "SELECT max(v) FROM names WHERE name NOT IN (SELECT u.name FROM u JOIN t ON u.k = t.k WHERE t.x = 5)",
    ] {
        assert!(!shown(text).contains("ANY"), "{text}: {}", shown(text));
        assert!(computing(text).plain.is_some(), "{text}");
    }
}

#[test]
fn of_equal_rows_one_is_loaded_where_only_its_being_there_matters() {
    for (text, expected) in [
        ("SELECT id FROM ref WHERE NOT EXISTS (SELECT * FROM t WHERE x = g)", "SELECT DISTINCT \"x\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE g IN (SELECT x FROM t)", "SELECT DISTINCT \"x\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE g > ANY (SELECT a.x FROM t a, t b WHERE a.x = b.x)", {
            "SELECT DISTINCT \"x\" FROM \"public\".\"t\""
        }),
        ("SELECT id FROM ref WHERE g IN (SELECT count(x) FROM t)", "SELECT \"x\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE g IN (SELECT x FROM t LIMIT 3)", "SELECT \"x\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE g IN (SELECT x FROM t) AND id = (SELECT max(x) FROM t)", "SELECT \"x\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE g IN (SELECT f FROM t)", "SELECT \"f\" FROM \"public\".\"t\""),
        ("SELECT id FROM ref WHERE EXISTS (SELECT 1 FROM (SELECT x FROM t LIMIT 1) i)", "SELECT \"x\" FROM \"public\".\"t\""),
    ] {
        assert_eq!(fragments(text), [expected], "{text}");
    }
}

#[test]
fn a_column_wins_over_a_row_of_the_same_name() {
    assert_eq!(
        refusal("SELECT max(z::text) FROM t z"),
        "the whole row \"z\" is not supported here over the rows of several shards"
    );
    assert_eq!(fragments("SELECT max(x::text) FROM t x"), ["SELECT \"x\" FROM \"public\".\"t\""]);
}
