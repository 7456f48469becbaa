-- Target and source are sharded alike: each shard merges its rows.
MERGE INTO stock s USING deliveries d ON s.id = d.id AND d.line = 1 WHEN MATCHED THEN UPDATE SET n = s.n + d.n;
MERGE INTO stock AS s USING deliveries AS d ON d.id = s.id WHEN MATCHED AND d.n > 50 THEN DELETE WHEN MATCHED THEN UPDATE SET n = d.n, note = 'x' || d.other WHEN NOT MATCHED AND d.id < 40 THEN INSERT (id, n, note) VALUES (d.id, d.n, 'new');
MERGE INTO stock USING (SELECT id, sum(n) AS n FROM deliveries GROUP BY id) AS d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = stock.n + d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
MERGE INTO stock USING (SELECT * FROM deliveries WHERE n > 40 AND line = 1) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT (n, id) VALUES (d.n, d.id) WHEN MATCHED THEN DO NOTHING;
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN DO NOTHING;
MERGE INTO stock USING deliveries d ON stock.id = d.id AND false WHEN MATCHED THEN DELETE;
MERGE INTO stock USING loose l ON stock.id = l.id WHEN NOT MATCHED THEN INSERT VALUES (l.id, l.n);
WITH d AS (SELECT id, max(n) AS n FROM deliveries GROUP BY id) MERGE INTO stock USING d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET id = d.id, n = 0;
--! 11
--! 500
MERGE INTO stock USING deliveries d ON stock.id = d.id AND d.id = $1 WHEN MATCHED THEN UPDATE SET n = 1 + $1;
--! 7 | text
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = $1, note = $2 WHEN NOT MATCHED AND d.line = 1 THEN INSERT VALUES (d.id, $1, $2);
-- The source is a reference table, and nothing is inserted.
MERGE INTO stock USING kinds k ON k.id = stock.id WHEN MATCHED THEN UPDATE SET note = k.name;
-- The source is sharded by another key, grouped, of constants, a reference table, of the home shard: its rows are found first, and
-- each goes to the shard of its key.
MERGE INTO stock s USING (SELECT other AS id, sum(n) AS n FROM deliveries GROUP BY other) d ON s.id = d.id WHEN MATCHED THEN UPDATE SET n = s.n + d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n, 'new');
MERGE INTO stock USING (SELECT DISTINCT other FROM deliveries) d ON stock.id = d.other AND stock.n > 150 WHEN MATCHED AND stock.id < 18 THEN DELETE WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND d.other > 20 THEN INSERT (n, id) VALUES (1, d.other);
MERGE INTO stock AS s USING (VALUES (5, 50), (500, 5000), (501, 1), (502, 2), (503, NULL)) AS v (key, n) ON v.key = s.id WHEN NOT MATCHED AND v.n IS NOT NULL THEN INSERT (id, n) VALUES (v.key, v.n) WHEN MATCHED THEN UPDATE SET n = v.n, note = note || '!';
MERGE INTO stock USING (SELECT id::bigint AS id, name FROM kinds UNION ALL SELECT 700 + length(what), what FROM ledger WHERE what = 'a') k ON k.id = stock.id WHEN MATCHED THEN UPDATE SET note = k.name WHEN NOT MATCHED THEN INSERT (id, n, note) VALUES (k.id, 0, k.name);
MERGE INTO stock USING source ON source.tenant = stock.id AND source.id < 8 WHEN MATCHED THEN UPDATE SET note = source.v WHEN NOT MATCHED AND source.id < 8 AND source.tenant = 0 THEN INSERT VALUES (source.tenant, source.id, source.v);
WITH d AS (SELECT other, count(*) AS n FROM deliveries GROUP BY other), e AS (SELECT other + 300 AS id, n FROM d) MERGE INTO stock USING e ON stock.id = e.id WHEN NOT MATCHED THEN INSERT VALUES (e.id, e.n);
MERGE INTO stock USING (SELECT * FROM deliveries WHERE false) d ON stock.id = d.other WHEN NOT MATCHED THEN INSERT VALUES (d.other, 1);
MERGE INTO stock USING (SELECT CASE WHEN other < 40 THEN other END AS id FROM deliveries WHERE line = 1) d ON stock.id = d.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND d.id IS NOT NULL THEN INSERT VALUES (d.id, 9);
MERGE INTO ledger USING (SELECT DISTINCT 'm' || other AS what FROM deliveries) d ON ledger.what = d.what WHEN NOT MATCHED THEN INSERT VALUES (d.what);
--! 3 | 20
--! 900 | 500
MERGE INTO stock USING (SELECT DISTINCT other FROM deliveries WHERE other > $2) d ON stock.id = d.other WHEN MATCHED THEN UPDATE SET n = n + $1 WHEN NOT MATCHED THEN INSERT VALUES (d.other, $1);
--! script
BEGIN;
MERGE INTO stock USING (SELECT other AS id, max(n) AS n FROM deliveries GROUP BY other) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
MERGE INTO stock USING (SELECT other AS id, max(n) AS n FROM deliveries GROUP BY other) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = 1000 + d.n WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
SELECT * FROM stock ORDER BY id;
ROLLBACK;
--! end
-- A row twice, no key, a broken rule: PostgreSQL's own errors, and nothing is applied.
MERGE INTO stock USING (SELECT other AS id FROM deliveries UNION ALL SELECT 12) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = 0;
MERGE INTO stock USING (SELECT 900 AS id FROM deliveries WHERE other = 41) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING (SELECT NULL::int AS id UNION ALL SELECT other FROM deliveries WHERE line = 1) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING (SELECT max(other) + 1000 AS id, -1 AS n FROM deliveries) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
--! refused
MERGE INTO stock USING (SELECT other::numeric AS id FROM deliveries) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
--! refused
MERGE INTO stock USING (SELECT other AS id, n FROM deliveries) d ON stock.id = d.id + 1 WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
--! refused
MERGE INTO stock USING (SELECT other AS id, n FROM deliveries) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.n, 1);
MERGE INTO dated USING (SELECT DISTINCT other AS id FROM deliveries) d ON dated.id = d.id WHEN NOT MATCHED THEN INSERT (id, n) VALUES (d.id, 1);
MERGE INTO dated AS t USING (SELECT DISTINCT other AS id FROM deliveries) d ON t.id = d.id WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED AND d.id > 15 THEN INSERT VALUES (d.id, 1) WHEN NOT MATCHED THEN DO NOTHING;
--! refused
MERGE INTO dated USING (SELECT DISTINCT other AS id FROM deliveries) d ON dated.id = d.id WHEN NOT MATCHED AND d.id > 15 THEN INSERT VALUES (d.id, 1) WHEN NOT MATCHED THEN INSERT (id) VALUES (d.id);
--! refused
MERGE INTO dated USING (SELECT DISTINCT other AS id FROM deliveries) d ON dated.id = d.id WHEN NOT MATCHED THEN INSERT (id, n, at) VALUES (d.id, 1, DEFAULT);
-- Sub-selects and clocks of its condition and actions are evaluated once.
MERGE INTO stock USING (SELECT other AS id, n FROM deliveries WHERE line = 1) d ON stock.id = d.id WHEN MATCHED AND d.n > (SELECT avg(n) FROM deliveries) THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (d.id, (SELECT max(id) FROM source), (SELECT v FROM source WHERE id = 7));
MERGE INTO stock USING (SELECT other AS id, n FROM deliveries WHERE line = 1) d ON stock.id = d.id AND stock.n > (SELECT min(n) FROM deliveries) WHEN MATCHED AND stock.id IN (SELECT tenant + 12 FROM source) THEN UPDATE SET (n, note) = (SELECT count(*), max(v) FROM source) WHEN MATCHED AND EXISTS (SELECT FROM ledger WHERE what = 'a') THEN UPDATE SET note = 'else' WHEN NOT MATCHED AND d.id > 20 THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED AND d.n < (SELECT avg(n) FROM deliveries) THEN DELETE WHEN MATCHED THEN UPDATE SET n = (SELECT max(tenant) FROM source);
WITH w AS (SELECT max(n) AS n FROM deliveries) MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = (SELECT n FROM w) WHEN NOT MATCHED THEN INSERT VALUES (d.id, (SELECT n + 1 FROM w));
--! script
BEGIN;
MERGE INTO stamped USING (SELECT DISTINCT other AS id FROM deliveries) d ON stamped.id = d.id WHEN MATCHED AND stamped.note = 'later' THEN UPDATE SET at = now(), day = current_date WHEN MATCHED THEN UPDATE SET whole = localtimestamp(0) WHEN NOT MATCHED THEN INSERT (id, at) VALUES (d.id, now());
SELECT count(*), count(at), count(DISTINCT at), bool_and(at = now()), count(DISTINCT day), bool_and(day = current_date), count(whole) FROM stamped;
MERGE INTO stamped USING source ON stamped.id = source.id WHEN MATCHED THEN UPDATE SET day = 'yesterday'::date, at = CASE WHEN tenant > 3 THEN now() END;
SELECT count(*), count(at), bool_and(day = current_date - 1) FROM stamped WHERE day IS NOT NULL;
ROLLBACK;
--! end
--! refused
MERGE INTO stamped USING (SELECT DISTINCT other AS id FROM deliveries) d ON stamped.id = d.id WHEN NOT MATCHED THEN INSERT (id, at) VALUES (d.id, 'now');
--! refused
MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET note = (SELECT max(v) FROM source WHERE source.tenant = d.id) WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
-- Rows of functions, columns without a table's name, tables that are joined.
MERGE INTO stock USING generate_series(15, 25) AS g (id) ON stock.id = g.id WHEN MATCHED AND g.id > 17 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'g' || g.id WHEN NOT MATCHED THEN INSERT VALUES (g.id, 1);
MERGE INTO stock USING generate_series(18, 22) ON generate_series = id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (generate_series, 1);
MERGE INTO stock USING unnest(ARRAY[1, 30, 31, 2], ARRAY[5, 6, NULL, 8], ARRAY['a', 'b', NULL, '']) WITH ORDINALITY AS g (id, n, note, o) ON stock.id = g.id WHEN MATCHED THEN UPDATE SET n = g.n, note = o || g.note WHEN NOT MATCHED AND g.n IS NULL THEN DO NOTHING WHEN NOT MATCHED THEN INSERT (n, id, note) VALUES (g.n, g.id, g.note);
MERGE INTO stock s USING jsonb_to_recordset('[{"id": 3, "n": 33}, {"id": 300, "n": 1}]') AS j (id int, n int, note text) ON s.id = j.id WHEN MATCHED THEN UPDATE SET n = j.n, note = j.note WHEN NOT MATCHED THEN INSERT VALUES (j.id, j.n, j.note);
MERGE INTO stock USING generate_series(5, 6) g ON g = stock.id WHEN MATCHED THEN UPDATE SET note = 'two';
MERGE INTO stock USING (SELECT other AS key, n AS m FROM deliveries WHERE line = 1) d ON key = id WHEN MATCHED THEN UPDATE SET n = m WHEN NOT MATCHED THEN INSERT (id, n) VALUES (key, m);
MERGE INTO stock USING deliveries d JOIN source s ON s.id = d.other ON stock.id = s.id WHEN MATCHED THEN UPDATE SET note = s.v, n = d.n;
MERGE INTO stock USING (source s LEFT JOIN deliveries d ON s.id = d.other) ON stock.id = s.id WHEN MATCHED AND d.n IS NULL THEN DELETE WHEN MATCHED AND d.line = 1 THEN UPDATE SET n = d.n;
--! {5,500,501} | {50,1,NULL}
--! {} | {}
MERGE INTO stock USING unnest($1::int[], $2::int[]) AS v (id, n) ON stock.id = v.id WHEN MATCHED THEN UPDATE SET n = v.n WHEN NOT MATCHED AND v.n IS NOT NULL THEN INSERT VALUES (v.id, v.n);
--! 7 | 12
MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries) d ON stock.id = d.id WHEN MATCHED AND d.id > $2 THEN UPDATE SET n = $1 + (SELECT count(*) FROM source WHERE tenant < $1) WHEN NOT MATCHED THEN INSERT VALUES (d.id, $1);
MERGE INTO stock USING deliveries d JOIN source s ON s.id = d.other AND d.line = 1 ON stock.id = s.id WHEN MATCHED THEN UPDATE SET note = s.v WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1);
MERGE INTO stock AS t USING (kinds k RIGHT JOIN deliveries d ON k.id = d.line AND d.id > 20) LEFT JOIN source s ON s.id = d.other - 10 ON d.other = t.id AND d.line = 1 WHEN MATCHED AND k.id IS NULL THEN UPDATE SET n = d.n, note = v WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND name IS NOT NULL AND d.line = 1 THEN INSERT (id, n, note) VALUES (d.other, d.n + s.tenant, k.name || s.v);
MERGE INTO stock USING generate_series(15, 25) AS g (id) CROSS JOIN (SELECT max(n) AS n, what FROM deliveries, ledger WHERE what = 'a' GROUP BY what) m ON g.id = stock.id WHEN MATCHED THEN UPDATE SET n = m.n, note = what WHEN NOT MATCHED THEN INSERT VALUES (g.id, m.n, m.what);
MERGE INTO stock USING source s LEFT JOIN deliveries d ON false ON stock.id = d.other WHEN NOT MATCHED AND s.id > 100 THEN INSERT VALUES (d.other, 1);
--! 3 | 20
MERGE INTO stock USING deliveries d JOIN source s ON s.id = d.other AND d.line = 1 AND s.tenant < $1 ON stock.id = s.id WHEN MATCHED THEN UPDATE SET n = $2 WHEN NOT MATCHED THEN INSERT VALUES (s.id, $1);
-- Columns of a join that are one.
MERGE INTO stock USING deliveries d JOIN source s USING (id) ON stock.id = s.id AND d.line = 1 WHEN MATCHED THEN UPDATE SET n = d.n, note = v WHEN NOT MATCHED AND d.line = 1 THEN INSERT VALUES (s.id, d.n, s.v);
MERGE INTO stock USING (SELECT other AS key, n AS m FROM deliveries WHERE line = 1) d JOIN (SELECT id AS key, v FROM source) s USING (key) ON stock.id = key WHEN MATCHED THEN UPDATE SET n = m, note = v || key WHEN NOT MATCHED THEN INSERT VALUES (key, m, v);
MERGE INTO stock USING (SELECT other AS key, n AS m FROM deliveries WHERE line = 1) d LEFT JOIN (SELECT id AS key, v FROM source WHERE id < 25) s USING (key) ON stock.id = d.key WHEN MATCHED AND s.key IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET note = v WHEN NOT MATCHED THEN INSERT VALUES (key, m, coalesce(v, 'none ' || key));
MERGE INTO stock USING (SELECT other AS key, n AS m FROM deliveries WHERE line = 1) d NATURAL JOIN (SELECT id AS key, v FROM source) s ON stock.id = s.key WHEN MATCHED THEN UPDATE SET n = m WHEN NOT MATCHED THEN INSERT VALUES (d.key, m, v || key);
MERGE INTO stock USING (SELECT other AS key, line FROM deliveries) d NATURAL LEFT JOIN (SELECT id AS key, 1 AS line, v FROM source) s JOIN (SELECT 1 AS line, 'x' AS what) l USING (line) ON stock.id = key WHEN MATCHED THEN UPDATE SET note = what WHEN NOT MATCHED AND line = 1 THEN INSERT VALUES (key, 1, v || what);
MERGE INTO stock USING source a NATURAL JOIN (SELECT max(n) AS n FROM deliveries) m ON stock.id = a.id WHEN NOT MATCHED AND a.id < 30 THEN INSERT VALUES (a.id, m.n, v);
--! refused
MERGE INTO stock USING deliveries d FULL JOIN source s USING (id) ON stock.id = s.id WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT VALUES (s.id, 1);
--! refused
MERGE INTO stock USING deliveries d RIGHT JOIN source s USING (id) ON stock.id = s.id AND d.line = 1 WHEN NOT MATCHED AND d.line = 1 THEN INSERT VALUES (s.id, 1);
-- The inserted key is another column of the same values.
MERGE INTO stock USING deliveries d JOIN source s ON s.id = d.other AND d.line = 1 ON stock.id = s.id WHEN MATCHED THEN UPDATE SET note = s.v WHEN NOT MATCHED THEN INSERT VALUES (d.other, 1);
MERGE INTO stock USING (SELECT other AS a, other AS b, n FROM deliveries WHERE line = 1) d ON stock.id = d.a WHEN MATCHED THEN UPDATE SET n = d.n WHEN NOT MATCHED THEN INSERT VALUES (d.b, d.n);
--! refused
MERGE INTO stock USING (SELECT other AS a, other + 1 AS b, n FROM deliveries WHERE line = 1) d ON stock.id = d.a WHEN NOT MATCHED THEN INSERT VALUES (d.b, d.n);
--! refused
MERGE INTO stock USING deliveries d JOIN source s ON s.id = d.other AND d.line = 1 ON stock.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (s.id, 1, row_to_json(s));
-- An array whose row comes twice: PostgreSQL's own error.
MERGE INTO stock USING unnest(ARRAY[5, 5]) AS v (id) ON stock.id = v.id WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1);
MERGE INTO stock USING unnest(ARRAY[555, 555]) AS v (id) ON stock.id = v.id WHEN MATCHED THEN UPDATE SET n = 0 WHEN NOT MATCHED THEN INSERT VALUES (v.id, 1);
MERGE INTO stock USING (SELECT other AS id FROM deliveries) d ON id = id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
-- Within one shard.
MERGE INTO stock USING (VALUES (5, 7)) AS v (id, n) ON stock.id = v.id AND stock.id = 5 WHEN MATCHED THEN UPDATE SET n = v.n;
-- PostgreSQL's own errors: nothing is applied.
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = CASE d.id WHEN 16 THEN -1 ELSE 1 END WHEN NOT MATCHED AND d.line = 1 THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
MERGE INTO stock USING (SELECT id, line FROM deliveries UNION ALL SELECT id, line FROM deliveries WHERE id = 12) d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = 0;
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET nothing = 1;
MERGE INTO stock USING nowhere d ON stock.id = d.id WHEN MATCHED THEN DELETE;
-- What is refused.
MERGE INTO stock USING (SELECT * FROM deliveries ORDER BY id LIMIT 3) d ON stock.id = d.id WHEN MATCHED THEN DELETE;
MERGE INTO stock USING (SELECT max(id) AS id FROM deliveries) d ON stock.id = d.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED AND d.n > (SELECT avg(n) FROM deliveries) THEN DELETE;
MERGE INTO stock USING (SELECT id FROM deliveries UNION SELECT other FROM deliveries) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED AND now() > '2020-01-01' THEN DELETE;
--! refused
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.other, d.n);
--! refused
MERGE INTO stock USING deliveries d ON stock.id = d.id AND d.id = d.other WHEN NOT MATCHED THEN INSERT VALUES (d.other, d.n);
--! refused
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id + 100, d.n);
--! refused
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (99, d.n);
MERGE INTO stock USING deliveries d ON stock.id = d.other WHEN MATCHED THEN DELETE;
MERGE INTO stock USING deliveries d ON stock.n = d.n WHEN MATCHED THEN DELETE;
--! refused
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET id = d.other;
MERGE INTO stock USING kinds k ON stock.id = k.id WHEN NOT MATCHED THEN INSERT VALUES (k.id, 1);
MERGE INTO stock USING ledger l ON stock.note = l.what WHEN MATCHED THEN DELETE;
MERGE INTO stock USING (VALUES (1, 2), (30, 4)) AS v (id, n) ON stock.id = v.id WHEN MATCHED THEN UPDATE SET n = v.n WHEN NOT MATCHED THEN INSERT VALUES (v.id, v.n);
--! refused
MERGE INTO loose USING deliveries d ON loose.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, d.n);
MERGE INTO dated USING deliveries d ON dated.id = d.id WHEN NOT MATCHED AND d.line = 1 THEN INSERT (id, n) VALUES (d.id, d.n);
MERGE INTO kinds USING deliveries d ON kinds.id = d.id WHEN MATCHED THEN DELETE;
MERGE INTO stock USING source ON stock.id = source.id WHEN MATCHED THEN UPDATE SET n = 1;
MERGE INTO dated USING deliveries d ON dated.id = d.id WHEN NOT MATCHED AND d.line = 1 THEN INSERT (id, n, at) VALUES (d.id, d.n, true);
--! script
BEGIN;
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN UPDATE SET n = 1000;
INSERT INTO deliveries VALUES (5, 1, 5, 5), (6, 1, 6, 6);
MERGE INTO stock USING deliveries d ON stock.id = d.id AND d.n < 10 WHEN MATCHED THEN DELETE;
SELECT * FROM stock ORDER BY id;
ROLLBACK;
MERGE INTO stock USING deliveries d ON stock.id = d.id WHEN MATCHED THEN DELETE;
SELECT count(*), sum(n) FROM stock;
--! end
