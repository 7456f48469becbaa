//! All ways in which a statement may call a function that it does not name, or that does not show what it reads: each with a function
//! that counts the rows of a sharded table. The answer is PostgreSQL's, or the statement is refused; never the count of one shard.

use super::stage::{Stage, succeed};
use crate::support::{ProxyOptions, WireClient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_calls_a_function_its_answer_is_postgresqls_or_none() {
    let stage = Stage::start(2, ProxyOptions::default()).await;
    stage.create_plain().await;
    let (mut client, mut plain) = (stage.client().await, stage.plain_client().await);
    for statement in COUNTED {
        succeed(&mut client, statement).await;
        succeed(&mut plain, statement).await;
    }
    succeed(&mut client, "SELECT shardgate.distribute_table('counted', 'id')").await;
    for one in [&mut client, &mut plain] {
        succeed(one, "INSERT INTO counted SELECT generate_series(1, 100)").await;
    }
    let (mut wrong, mut answered) = (Vec::new(), 0);
    for (way, statements) in WAYS {
        for statement in *statements {
            // A key of either shard.
            let texts = match statement.contains("{key}") {
                true => [0, 1].map(|shard| statement.replace("{key}", &stage.key(shard, 0).to_string())).to_vec(),
                false => vec![(*statement).to_owned()],
            };
            for text in texts {
                let (told, expected) = both(&mut client, &mut plain, &text).await;
                answered += usize::from(told == expected && told.contains(" D("));
                let is_refused = told.starts_with("E(0A000 ");
                if (is_refused && way.starts_with("answered")) || (told != expected && !is_refused) {
                    wrong.push(format!("{way}: {text}\n  {told}\n  {expected}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(answered > 0, "all of it is refused");
    stage.assert_log_is_clean();
}

/// What is refused of a change is taken back where it was done.
async fn both(client: &mut WireClient, plain: &mut WireClient, text: &str) -> (String, String) {
    let told = client.ask(text).await;
    if told.starts_with("E(0A000 ") && !text.starts_with("SELECT") {
        return (told.clone(), told);
    }
    (told, plain.ask(text).await)
}

const COUNTED: &[&str] = &[
    "CREATE TABLE counted (id int PRIMARY KEY)",
    "CREATE TABLE results (way text, n int)",
    "CREATE TABLE one (id int, n int)",
    "INSERT INTO one VALUES (1, 1)",
    "CREATE FUNCTION total() RETURNS int LANGUAGE sql STABLE AS 'SELECT count(*)::int FROM counted'",
    // As people do who want it in an index.
    "CREATE FUNCTION total(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT count(*)::int FROM counted'",
];

const WAYS: &[(&str, &[&str])] = &[
    ("function", &["SELECT total()", "SELECT total() FROM one", "SELECT total() FROM accounts WHERE id = {key}"]),
    (
        "PL/pgSQL",
        &[
            "CREATE FUNCTION counts() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT count(*) FROM counted); END'",
            "SELECT counts()",
            "SELECT counts() FROM accounts WHERE id = {key}",
        ],
    ),
    (
        "procedure",
        &[
            "CREATE PROCEDURE note() LANGUAGE sql AS 'INSERT INTO results SELECT ''procedure'', total()'",
            "CALL note()",
            "CREATE PROCEDURE note_and_end() LANGUAGE plpgsql AS 'BEGIN INSERT INTO results SELECT ''ended'', total(); COMMIT; END'",
            "CALL note_and_end()",
            "SELECT * FROM results ORDER BY way",
        ],
    ),
    ("DO", &["DO 'BEGIN INSERT INTO results SELECT ''DO'', total(); END'", "SELECT * FROM results ORDER BY way"]),
    (
        "EXECUTE",
        &[
            "CREATE FUNCTION executes() RETURNS int LANGUAGE plpgsql AS $$DECLARE n int; BEGIN EXECUTE 'SELECT count(*) FROM counted' INTO n; RETURN n; END$$",
            "SELECT executes()",
            "SELECT executes() FROM accounts WHERE id = {key}",
        ],
    ),
    (
        "trigger",
        &[
            "CREATE TABLE triggered (id int, n int)",
            "CREATE FUNCTION fill() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := total(); RETURN NEW; END'",
            "CREATE TRIGGER fill BEFORE INSERT ON triggered FOR EACH ROW EXECUTE FUNCTION fill()",
            "INSERT INTO triggered VALUES (1, 0)",
            "SELECT * FROM triggered",
        ],
    ),
    (
        "WHEN of a trigger",
        &[
            "CREATE TABLE conditional (id int, n int)",
            "CREATE FUNCTION seven() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.n := 7; RETURN NEW; END'",
            "CREATE TRIGGER seven BEFORE INSERT ON conditional FOR EACH ROW WHEN (total(NEW.id) = 100) EXECUTE FUNCTION seven()",
            "INSERT INTO conditional VALUES (1, 0)",
            "SELECT * FROM conditional",
        ],
    ),
    (
        "rule",
        &[
            "CREATE TABLE ruled (id int)",
            "CREATE RULE noted AS ON INSERT TO ruled DO ALSO INSERT INTO results VALUES ('rule', total())",
            "INSERT INTO ruled VALUES (1)",
            "SELECT * FROM results ORDER BY way",
        ],
    ),
    (
        "view",
        &[
            "CREATE VIEW shown AS SELECT total() AS n",
            "SELECT * FROM shown",
            "CREATE VIEW beside AS SELECT id, total(id) AS n FROM one",
            "SELECT * FROM beside",
        ],
    ),
    (
        "DEFAULT",
        &[
            "CREATE TABLE defaulted (id int, n int DEFAULT total())",
            "INSERT INTO defaulted (id) VALUES (1)",
            "SELECT * FROM defaulted",
        ],
    ),
    (
        "CHECK",
        &["CREATE TABLE checked (id int CHECK (total(id) = 100))", "INSERT INTO checked VALUES (1)", "SELECT * FROM checked"],
    ),
    (
        "index",
        &[
            "CREATE TABLE indexed (id int)",
            "CREATE UNIQUE INDEX ON indexed ((1)) WHERE total(id) = 100",
            "INSERT INTO indexed VALUES (1)",
            "INSERT INTO indexed VALUES (2)",
            "SELECT count(*) FROM indexed",
        ],
    ),
    (
        "generated column",
        &[
            "CREATE TABLE generated (id int, n int GENERATED ALWAYS AS (total(id)) STORED)",
            "INSERT INTO generated VALUES (1)",
            "SELECT * FROM generated",
        ],
    ),
    (
        "policy",
        &[
            "CREATE TABLE guarded (id int)",
            "INSERT INTO guarded VALUES (1)",
            "CREATE POLICY whole ON guarded USING (total(id) = 100)",
            "ALTER TABLE guarded ENABLE ROW LEVEL SECURITY",
            "GRANT SELECT ON guarded TO reader",
            "GRANT SELECT ON counted TO reader",
            "SET ROLE reader",
            "SELECT * FROM guarded",
            "RESET ROLE",
        ],
    ),
    (
        "domain",
        &[
            "CREATE DOMAIN whole AS int CHECK (total(VALUE) = 100)",
            "SELECT 1::whole",
            "SELECT ARRAY[1]::whole[]",
            "CREATE DOMAIN part AS whole",
            "SELECT 1::part",
            "CREATE TYPE pair AS (a int, b whole)",
            "SELECT ROW(1, 2)::pair",
            "CREATE TABLE of_domain (id whole, l whole[], p pair)",
            "INSERT INTO of_domain (id) VALUES (1)",
            "INSERT INTO of_domain (l) VALUES (ARRAY[1])",
            "INSERT INTO of_domain (p) VALUES (ROW(1, 2))",
            "CREATE FUNCTION takes(whole) RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "SELECT takes(1)",
            "CREATE FUNCTION declares() RETURNS int LANGUAGE plpgsql AS 'DECLARE n whole := 1; BEGIN RETURN n; END'",
            "SELECT declares()",
            "CREATE FUNCTION casts() RETURNS int LANGUAGE sql AS 'SELECT 1::part::int'",
            "SELECT casts()",
            "SELECT casts() FROM accounts WHERE id = {key}",
            "CREATE VIEW of_casts AS SELECT id::whole AS n FROM one",
            "SELECT * FROM of_casts",
            "DO 'DECLARE n part := 1; BEGIN INSERT INTO results VALUES (''domain'', n); END'",
            "SELECT count(*) FROM of_domain",
            "SELECT '1'::whole",
            "SELECT * FROM jsonb_to_record('{\"a\": 1}') AS x(a whole)",
            "SELECT * FROM json_to_recordset('[{\"a\": 1}]') AS x(a part)",
            "SELECT (jsonb_populate_record(NULL::pair, '{\"b\": 1}')).b",
            "SELECT * FROM xmltable('/a' PASSING '<a><b>1</b></a>' COLUMNS b whole)",
            "SELECT * FROM jsonb_to_record('{\"a\": 1}') AS x(a whole), accounts WHERE accounts.id = {key}",
        ],
    ),
    (
        "operator",
        &[
            "CREATE FUNCTION adds(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE OPERATOR <+> (LEFTARG = int, RIGHTARG = int, FUNCTION = adds)",
            "SELECT 1 <+> 2",
            "SELECT id <+> n FROM one",
            "SELECT 1 <+> 2 FROM accounts WHERE id = {key}",
            "CREATE FUNCTION operates() RETURNS int LANGUAGE sql AS 'SELECT 1 <+> 2'",
            "SELECT operates()",
            "CREATE VIEW operated AS SELECT id <+> n AS n FROM one",
            "SELECT * FROM operated",
            "CREATE TABLE by_operator (id int, n int DEFAULT 1 <+> 2, CHECK (id <+> 1 = 100))",
            "INSERT INTO by_operator VALUES (1)",
            "SELECT * FROM by_operator",
        ],
    ),
    (
        "cast",
        &[
            "CREATE TYPE box1 AS (v int)",
            "CREATE TABLE boxes (id int, b box1)",
            "INSERT INTO boxes VALUES (1, ROW(1))",
            "CREATE FUNCTION unboxed(box1) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE FUNCTION boxed() RETURNS box1 LANGUAGE sql IMMUTABLE AS 'SELECT ROW(1)::box1'",
            "CREATE CAST (box1 AS int) WITH FUNCTION unboxed(box1) AS IMPLICIT",
            "SELECT b::int FROM boxes",
            "SELECT b + 0 FROM boxes",
            "SELECT abs(b) FROM boxes",
            "SELECT boxed() + 0",
            "SELECT ROW(1)::box1 + 0",
            "SELECT ROW(1)::box1 + 0 FROM accounts WHERE id = {key}",
            "SELECT count(*) FROM boxes WHERE b IN (100)",
            "SELECT id FROM accounts WHERE id = boxed()",
            "SELECT CASE WHEN b > 0 THEN 1 END FROM boxes",
            "INSERT INTO results SELECT 'implicit', b FROM boxes",
            "UPDATE one SET n = (SELECT b FROM boxes)",
            "SELECT * FROM one",
            "CREATE VIEW unpacked AS SELECT b + 0 AS n FROM boxes",
            "SELECT * FROM unpacked",
            "CREATE FUNCTION unpacks() RETURNS int LANGUAGE sql AS 'SELECT b + 0 FROM boxes'",
            "SELECT unpacks()",
            "CREATE FUNCTION assigns() RETURNS int LANGUAGE plpgsql AS 'DECLARE n int; BEGIN SELECT b INTO n FROM boxes; RETURN n; END'",
            "SELECT assigns()",
            "CREATE TABLE by_cast (id int, n int DEFAULT ROW(1)::box1 + 0)",
            "INSERT INTO by_cast VALUES (1)",
            "SELECT * FROM by_cast",
            "CREATE TYPE box2 AS (v int)",
            "CREATE FUNCTION rebox(box2) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE CAST (box2 AS int) WITH FUNCTION rebox(box2) AS ASSIGNMENT",
            "INSERT INTO results SELECT 'assignment', ROW(1)::box2",
            "SELECT * FROM results ORDER BY way",
        ],
    ),
    (
        "cast that is written",
        &[
            "CREATE TYPE box3 AS (v int)",
            "CREATE TABLE crates (id int, b box3)",
            "INSERT INTO crates VALUES (1, ROW(1))",
            "CREATE FUNCTION opened(box3) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE CAST (box3 AS int) WITH FUNCTION opened(box3)",
            "CREATE FUNCTION parsed(json) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE CAST (json AS int) WITH FUNCTION parsed(json)",
            "SELECT b::int FROM crates",
            "SELECT CAST(b AS integer) FROM crates",
            "SELECT '{}'::json::int",
            "SELECT CAST(json '{}' AS int4)",
            "SELECT ARRAY[json '{}']::int[]",
            "CREATE VIEW opens AS SELECT id, b::int AS n FROM crates",
            "SELECT * FROM opens",
            "CREATE FUNCTION opens() RETURNS int LANGUAGE sql AS 'SELECT b::int FROM crates'",
            "SELECT opens()",
            "CREATE TABLE by_written (id int, n int DEFAULT CAST(json '{}' AS int))",
            "INSERT INTO by_written (id) VALUES (1)",
            "SELECT * FROM by_written",
        ],
    ),
    (
        "cast that making JSON looks for",
        &[
            "CREATE TYPE box4 AS (v int)",
            "CREATE TABLE chests (id int, b box4)",
            "INSERT INTO chests VALUES (1, ROW(1))",
            "CREATE FUNCTION printed(box4) RETURNS json LANGUAGE sql IMMUTABLE AS 'SELECT to_json(total())'",
            "CREATE CAST (box4 AS json) WITH FUNCTION printed(box4)",
            "SELECT to_json(b) FROM chests",
            "SELECT row_to_json(chests) FROM chests",
            "SELECT row_to_json(x) FROM (SELECT ROW(1)::box4 AS b) x",
            "SELECT json_agg(b) FROM chests",
            "SELECT json_build_array(b, id) FROM chests",
            "SELECT json_build_object('b', ROW(1)::box4)",
            "SELECT jsonb_agg(chests) FROM chests",
            "SELECT to_jsonb(ARRAY[ROW(1)::box4])",
            "SELECT to_jsonb(ROW(1)::box4) FROM accounts WHERE id = {key}",
            "CREATE VIEW prints AS SELECT id, to_json(b) AS b FROM chests",
            "SELECT * FROM prints",
            "SELECT count(*) FROM prints WHERE b::text = '100'",
            "CREATE FUNCTION prints() RETURNS json LANGUAGE sql AS 'SELECT to_json(b) FROM chests'",
            "SELECT prints()",
            "CREATE TABLE by_json (id int, n json DEFAULT to_json(ROW(1)::box4))",
            "INSERT INTO by_json (id) VALUES (1)",
            "SELECT * FROM by_json",
        ],
    ),
    (
        "answered beside a cast to JSON",
        &["SELECT id, b FROM chests", "SELECT to_json(id) FROM one", "INSERT INTO chests VALUES (2, ROW(2))"],
    ),
    // No cast is written in these.
    (
        "answered beside a cast that is to be written",
        &["INSERT INTO counted VALUES (101), (102)", "DELETE FROM counted WHERE id > 100", "INSERT INTO one VALUES (2, 2)"],
    ),
    (
        "operator class",
        &[
            "CREATE TYPE size AS ENUM ('s', 'm')",
            "CREATE FUNCTION cmp(size, size) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT CASE WHEN total() = 100 THEN 0 ELSE 1 END'",
            "CREATE OPERATOR CLASS sizes FOR TYPE size USING btree AS OPERATOR 1 <(anyenum, anyenum), FUNCTION 1 cmp(size, size)",
            "CREATE TABLE sized (s size)",
            "CREATE UNIQUE INDEX ON sized (s sizes)",
            "INSERT INTO sized VALUES ('s')",
            "INSERT INTO sized VALUES ('m')",
            "SELECT count(*) FROM sized",
        ],
    ),
    // With the whole count it fails, with a part of it not.
    (
        "subtype_diff of a range",
        &[
            "CREATE FUNCTION far(int, int) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT 1 / (total() - 100)'",
            "CREATE TYPE span AS RANGE (subtype = int, subtype_diff = far)",
            "CREATE TABLE spans (s span)",
            "CREATE TABLE several_spans (s span_multirange)",
            "INSERT INTO spans SELECT span(g, g + 5) FROM generate_series(1, 50) g",
            "INSERT INTO several_spans SELECT span_multirange(s) FROM spans",
            "INSERT INTO several_spans VALUES ('{[1,2]}'), ('{[7,9]}')",
            "INSERT INTO spans VALUES ('[1,2]'), ('[7,9]')",
            "ANALYZE spans",
            "ANALYZE several_spans",
            "CREATE INDEX ON spans USING gist (s)",
            "CREATE INDEX ON several_spans USING gist (s)",
            "INSERT INTO spans SELECT s FROM spans",
            "INSERT INTO several_spans SELECT s FROM several_spans",
            "SELECT count(*) FROM spans",
            "SELECT count(*) FROM several_spans",
            "DROP TABLE spans, several_spans",
        ],
    ),
    (
        "aggregate",
        &[
            "CREATE FUNCTION step(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT total()'",
            "CREATE AGGREGATE last_total(int) (SFUNC = step, STYPE = int, INITCOND = '0')",
            "SELECT last_total(id) FROM one",
            "SELECT last_total(id) OVER () FROM one",
            "SELECT last_total(id::int) FROM accounts WHERE id = {key}",
            "CREATE AGGREGATE ends(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0', FINALFUNC = total)",
            "SELECT ends(id) FROM one",
        ],
    ),
    (
        "default arguments",
        &[
            "CREATE FUNCTION given(n int DEFAULT total()) RETURNS int LANGUAGE sql AS 'SELECT $1'",
            "SELECT given()",
            "SELECT given() FROM accounts WHERE id = {key}",
        ],
    ),
    (
        "BEGIN ATOMIC",
        &[
            "CREATE FUNCTION atomic() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT total(); END",
            "SELECT atomic()",
            "CREATE FUNCTION of_atomic() RETURNS int LANGUAGE sql RETURN (SELECT count(*) FROM counted)",
            "SELECT of_atomic()",
        ],
    ),
    (
        "nested",
        &[
            "CREATE FUNCTION outermost() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN total(); END'",
            "SELECT outermost()",
            "CREATE FUNCTION settled() RETURNS int LANGUAGE sql SET work_mem = '1MB' AS 'SELECT outermost()'",
            "SELECT settled()",
            "SELECT settled() FROM accounts WHERE id = {key}",
        ],
    ),
    // The session keeps its connection from here on.
    (
        "default of a temporary table",
        &[
            "CREATE TEMP TABLE own_default (id int, n int DEFAULT total())",
            "INSERT INTO own_default (id) VALUES (1)",
            "SELECT n FROM own_default",
        ],
    ),
    // Named like a function, which it does not call.
    ("name of a temporary table", &["CREATE TEMP TABLE total (id int)", "INSERT INTO total VALUES (7)", "SELECT id FROM total"]),
    (
        "check of a temporary table",
        &[
            "CREATE TEMP TABLE own_check (n int)",
            "ALTER TABLE own_check ADD CHECK (n < total())",
            "INSERT INTO own_check VALUES (99)",
            "SELECT n FROM own_check",
        ],
    ),
    (
        "trigger of a temporary table",
        &[
            "CREATE TEMP TABLE own_trigger (id int, n int)",
            "CREATE TRIGGER fill BEFORE INSERT ON own_trigger FOR EACH ROW EXECUTE FUNCTION fill()",
            "INSERT INTO own_trigger VALUES (1, 0)",
            "SELECT n FROM own_trigger",
        ],
    ),
    (
        "rule of a temporary table",
        &[
            "CREATE TEMP TABLE own_rule (n int)",
            "CREATE RULE also AS ON INSERT TO own_rule DO ALSO DELETE FROM counted WHERE id = 100",
            "INSERT INTO own_rule VALUES (1)",
            "SELECT count(*) FROM counted",
            "INSERT INTO counted VALUES (100) ON CONFLICT DO NOTHING",
        ],
    ),
];
