-- Queries of WITH that only read: on each shard where they may, else answered first, each once.
WITH x AS (SELECT id, n FROM deliveries WHERE line = 1) UPDATE stock SET n = x.n FROM x WHERE stock.id = x.id;
WITH x AS (SELECT other AS id, sum(n) AS n FROM deliveries GROUP BY other) UPDATE stock SET n = x.n FROM x WHERE stock.id = x.id;
--! any order
WITH x AS (SELECT max(n) AS n FROM deliveries) UPDATE stock SET n = x.n FROM x WHERE stock.id < 5 RETURNING id, stock.n, x.n AS most;
WITH x AS (SELECT min(what) AS what, length(what) AS n FROM ledger GROUP BY 2) UPDATE stock SET note = x.what FROM x WHERE x.n = stock.id;
WITH x AS (SELECT other FROM deliveries), y AS (SELECT other + 1 AS id FROM x WHERE other > 14) DELETE FROM stock USING y WHERE stock.id = y.id;
WITH x AS (SELECT other FROM deliveries) DELETE FROM stock WHERE id IN (SELECT other FROM x) AND n > (SELECT min(other) FROM x);
WITH x AS (SELECT 5 AS id) DELETE FROM stock WHERE NOT EXISTS (SELECT FROM x WHERE id = 6);
--! any order
WITH picked AS (SELECT id FROM stock ORDER BY id DESC LIMIT 3 FOR UPDATE SKIP LOCKED) DELETE FROM stock USING picked WHERE stock.id = picked.id RETURNING stock.id;
--! any order
WITH picked AS MATERIALIZED (SELECT id FROM stock WHERE n > 50 ORDER BY n LIMIT 4) UPDATE stock SET note = 'picked' WHERE id IN (SELECT id FROM picked) RETURNING id, note;
WITH x AS (SELECT id + 100 AS id, n FROM stock) INSERT INTO stock SELECT id, n, 'copy' FROM x;
--! any order
WITH x (a, b) AS NOT MATERIALIZED (SELECT id + 18, n FROM stock) INSERT INTO stock (id, n) SELECT a, b FROM x ON CONFLICT DO NOTHING RETURNING id;
--! script
SELECT setval('items_id_seq', 5000);
WITH x AS (SELECT id, tenant, v FROM source ORDER BY id LIMIT 4) INSERT INTO items (tenant, v) SELECT tenant, v FROM x ORDER BY id;
--! end
WITH x AS (SELECT id FROM source), y AS (SELECT count(*) AS n FROM x) INSERT INTO stock (id, n) WITH z AS (SELECT n FROM y) SELECT g, z.n FROM z, generate_series(200, 205) g;
WITH x AS (SELECT id FROM source) INSERT INTO stock (id, n, note) (WITH RECURSIVE z(g) AS (SELECT 300 UNION ALL SELECT g + 1 FROM z WHERE g < 304) SELECT g, x.id, 'z' FROM z, x WHERE x.id = 7);
WITH x AS (SELECT max(id) AS id FROM stock) INSERT INTO stock (id, n) VALUES ((SELECT id + 1 FROM x), 1), ((SELECT id + 2 FROM x), 2);
WITH x AS (SELECT random() AS r), y AS (SELECT random() AS r FROM source) UPDATE stock SET note = 'same' FROM x a, x b WHERE a.r = b.r AND EXISTS (SELECT FROM y);
WITH x AS (SELECT id FROM stock WHERE false) UPDATE stock SET n = 0 FROM x WHERE x.id = stock.id;
WITH unused AS (SELECT 1 FROM source), x AS (SELECT other FROM deliveries) DELETE FROM stock USING x WHERE stock.id = x.other;
--! 3 | 12
--! 900 | 500
WITH x AS (SELECT other AS id FROM deliveries WHERE other > $2) UPDATE stock SET n = n + $1 FROM x WHERE stock.id = x.id;
--! 14 | text
WITH x AS (SELECT other AS id FROM deliveries WHERE other < $1) INSERT INTO stock (id, n, note) SELECT id + 300, $1, $2 FROM x;
-- A sub-select that stays in the text, since it names the outer rows, still finds the query of WITH and not the table of that name.
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) INSERT INTO stock (id, n, note) SELECT other, 1, 'v' FROM deliveries WHERE line = 1 AND other = 12 ON CONFLICT (id) DO UPDATE SET note = (SELECT kinds.name || excluded.id FROM kinds WHERE kinds.id <= excluded.id);
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) INSERT INTO stock (id, n) SELECT other, 1 FROM deliveries WHERE line = 1 AND other = 13 ON CONFLICT (id) DO UPDATE SET note = 'x' RETURNING id, (SELECT kinds.name FROM kinds WHERE kinds.id <= stock.id);
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) INSERT INTO stock (id, n) SELECT other, 1 FROM deliveries WHERE line = 1 AND other = 14 ON CONFLICT (id) DO UPDATE SET note = 'y' WHERE EXISTS (SELECT FROM kinds WHERE kinds.name = 'cte' AND kinds.id <= excluded.id) RETURNING *;
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) INSERT INTO stock (id, n) VALUES (3, 5) ON CONFLICT (id) DO UPDATE SET note = (SELECT kinds.name || excluded.id FROM kinds WHERE kinds.id <= excluded.id) RETURNING *;
WITH kinds AS (SELECT other AS id, 'cte' AS name FROM deliveries), unused AS (SELECT 2) INSERT INTO stock (id, n) VALUES (3, 5) ON CONFLICT (id) DO UPDATE SET note = (SELECT max(kinds.name) || excluded.id FROM kinds WHERE kinds.id > excluded.id) RETURNING *, (SELECT min(kinds.id) FROM kinds);
WITH unnamed AS (SELECT other AS id FROM deliveries) INSERT INTO stock (id, n) VALUES (2, 5) ON CONFLICT (id) DO UPDATE SET n = (SELECT count(*) FROM unnamed WHERE unnamed.id > excluded.id);
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) INSERT INTO stock (id, n) SELECT other, 1 FROM deliveries WHERE line = 1 ON CONFLICT (id) DO UPDATE SET note = (SELECT kinds.name || excluded.id FROM kinds WHERE kinds.id <= excluded.id);
WITH unnamed AS (SELECT other AS id FROM deliveries) INSERT INTO stock (id, n) VALUES (2, 5), (3, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT count(*) FROM unnamed WHERE unnamed.id > excluded.id);
WITH kinds AS (SELECT 1 AS id, 'cte' AS name) MERGE INTO stock USING (SELECT other, count(*) AS n FROM deliveries GROUP BY other) d ON stock.id = d.other WHEN MATCHED THEN UPDATE SET note = (SELECT kinds.name FROM kinds WHERE kinds.id = 1) WHEN NOT MATCHED THEN INSERT (id, n) VALUES (d.other, 1);
-- A query of WITH that nothing names is not run.
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source) DELETE FROM stock WHERE n > (SELECT max(id) FROM source);
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source) INSERT INTO stock SELECT other + 500, 1 FROM deliveries WHERE line = 1;
WITH bad (a, b) AS (SELECT 1 / (id - 5), v FROM source), a AS (DELETE FROM deliveries RETURNING *) INSERT INTO loose SELECT id, n FROM a;
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source), worse AS (SELECT * FROM bad) UPDATE stock SET n = 1 FROM source WHERE source.tenant = stock.id;
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source FOR UPDATE), a AS (DELETE FROM stock WHERE n > 50 RETURNING id) SELECT count(*) FROM a;
WITH RECURSIVE bad (x) AS (SELECT 1 UNION ALL SELECT 1 / (x - 1) FROM bad), a AS (SELECT max(id) AS id FROM source) INSERT INTO stock SELECT id + 500, 1 FROM a;
--! 5
WITH bad AS (SELECT 1 / (id - $1) AS x FROM source) DELETE FROM stock WHERE n > (SELECT max(id) + $1 FROM source);
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source) MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries) d ON stock.id = d.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
WITH bad AS (SELECT 1 / (id - 5) AS x FROM source) DELETE FROM stock WHERE n > (SELECT max(x) FROM bad);
WITH bad AS (SELECT nothing FROM source) DELETE FROM stock WHERE n > (SELECT max(id) FROM source);
-- PostgreSQL's own errors: nothing is applied.
WITH x AS (SELECT id FROM stock) INSERT INTO stock SELECT id + 18, 1 FROM x ORDER BY id;
WITH x AS (SELECT NULL::int AS id, other FROM deliveries) INSERT INTO stock SELECT id, 1 FROM x WHERE other = 12;
WITH x AS (SELECT nothing FROM stock) DELETE FROM stock USING x;
WITH x AS (SELECT other FROM deliveries) DELETE FROM stock USING x WHERE stock.id = x.nothing;
WITH x AS (SELECT 1 / (n - 33) AS id FROM deliveries) DELETE FROM stock USING x WHERE stock.id = x.id + 1;
-- What is refused.
--! refused
UPDATE stock SET note = x.d::text FROM (SELECT other AS id, ('<?xml version="1.0"?><a>' || n || '</a>')::xml AS d FROM deliveries) x WHERE x.id = stock.id;
--! refused
WITH x AS (SELECT other FROM deliveries) INSERT INTO stock (id, n) WITH x AS (SELECT other + 500 AS id FROM x) SELECT id, 1 FROM x;
WITH x AS (DELETE FROM stock RETURNING id) INSERT INTO loose SELECT id FROM x;
WITH x AS (SELECT other FROM deliveries), y AS (UPDATE stock SET n = 1 RETURNING id) DELETE FROM deliveries USING x WHERE deliveries.id = x.other;
WITH x AS (SELECT other AS id FROM deliveries WHERE id < 40) MERGE INTO stock USING x ON stock.id = x.id WHEN MATCHED THEN DELETE;
--! script
BEGIN;
WITH x AS (SELECT other FROM deliveries) UPDATE stock SET n = 7 FROM x WHERE stock.id = x.other;
WITH x AS (SELECT count(*) AS c FROM stock WHERE n = 7) UPDATE stock SET n = x.c FROM x WHERE stock.id > 15;
SELECT id, n FROM stock ORDER BY id;
COMMIT;
PREPARE w(int) AS WITH x AS (SELECT other AS id FROM deliveries WHERE other > $1) UPDATE stock SET n = n + $1 FROM x WHERE stock.id = x.id;
EXECUTE w(14);
SELECT sum(n) FROM stock;
--! end
