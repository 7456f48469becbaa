-- Queries of WITH that write: parts that do not look at each other's tables run one after the other, in one transaction.
WITH moved AS (DELETE FROM deliveries WHERE n > 60 RETURNING *) INSERT INTO loose SELECT other, n FROM moved;
WITH moved AS (DELETE FROM deliveries RETURNING id, line, n) INSERT INTO stamped (id, note) SELECT id * 100 + line, 'n ' || n FROM moved ON CONFLICT DO NOTHING;
--! any order
WITH moved AS (DELETE FROM stock WHERE id IN (SELECT id FROM stock ORDER BY n DESC LIMIT 4 FOR UPDATE SKIP LOCKED) RETURNING stock.*) INSERT INTO deliveries (id, line, n) SELECT id + 100, 7, n FROM moved RETURNING id, n;
WITH moved AS (DELETE FROM deliveries d USING source s WHERE s.id = d.other RETURNING d.id, s.v) INSERT INTO ledger SELECT v || '/' || id FROM moved;
WITH gone AS (DELETE FROM ledger RETURNING what), more AS (SELECT max(what) AS what FROM gone) INSERT INTO loose (id, n) SELECT length(gone.what) + 3, length(more.what) FROM gone, more;
WITH a AS (DELETE FROM deliveries WHERE id < 15 RETURNING id), b AS (UPDATE source SET v = 'b' WHERE tenant = 3 RETURNING id, v) INSERT INTO loose SELECT id, 1 FROM a UNION ALL SELECT id, 2 FROM b;
--! any order
WITH a AS (UPDATE deliveries SET n = n + 1 WHERE line = 1 AND other < 41 RETURNING other, n) UPDATE stock SET n = a.n FROM a WHERE a.other = stock.id RETURNING stock.id, stock.n;
WITH a AS (UPDATE deliveries SET n = 0 WHERE n < 50 RETURNING other) DELETE FROM stock WHERE id IN (SELECT other FROM a);
WITH silent AS (DELETE FROM loose) DELETE FROM stock USING deliveries d WHERE d.other = stock.id;
WITH silent AS (DELETE FROM deliveries), kept AS (SELECT max(id) AS id FROM source) INSERT INTO loose SELECT id, 1 FROM kept;
WITH a AS (INSERT INTO stamped (id, note) VALUES (201, 'x'), (202, 'y'), (203, 'z') RETURNING id, note) INSERT INTO holidays (id, note) SELECT id, note FROM a;
WITH a AS (UPDATE holidays SET note = 'seen' WHERE id < 4 RETURNING id) DELETE FROM stock USING a WHERE stock.id = a.id + 1;
WITH nothing AS (DELETE FROM deliveries WHERE false RETURNING *) INSERT INTO loose SELECT id, n FROM nothing;
WITH a AS (DELETE FROM source WHERE tenant = 1 RETURNING id), b AS (DELETE FROM deliveries USING a WHERE deliveries.other = a.id RETURNING deliveries.n) INSERT INTO loose SELECT 5, sum(n) FROM b;
--! 12 | x
--! 900 | NULL
WITH moved AS (DELETE FROM deliveries WHERE other > $1 RETURNING *) INSERT INTO stamped (id, note) SELECT id * 50 + line + $1, $2 FROM moved;
--! script
BEGIN;
WITH moved AS (DELETE FROM deliveries WHERE n > 60 RETURNING *) INSERT INTO loose SELECT other, n FROM moved;
SELECT count(*), sum(n) FROM loose;
SAVEPOINT s;
WITH moved AS (DELETE FROM deliveries RETURNING *) INSERT INTO loose SELECT other, n FROM moved;
ROLLBACK TO s;
SELECT count(*) FROM deliveries;
COMMIT;
--! end
--! script
BEGIN;
WITH a AS (UPDATE stamped SET at = now(), day = 'today' RETURNING id, at) INSERT INTO loose SELECT id, (at = now())::int FROM a;
SELECT count(DISTINCT at), count(DISTINCT day) FROM stamped;
SELECT count(*), sum(n) FROM loose;
ROLLBACK;
--! end
-- PostgreSQL's own errors: no part is applied.
WITH moved AS (DELETE FROM deliveries WHERE line = 1 AND id = 13 RETURNING *) INSERT INTO stock (id, n) SELECT id, n FROM moved;
WITH moved AS (DELETE FROM deliveries RETURNING *) INSERT INTO stock (id, n) SELECT 600, -1 FROM moved WHERE id = 11;
WITH moved AS (DELETE FROM deliveries RETURNING nothing) INSERT INTO loose SELECT 1, 2 FROM moved;
WITH m AS (UPDATE stock SET n = 1 WHERE n IS DISTINCT FROM n RETURNING *) INSERT INTO ledger SELECT m.note FROM m;
-- Parts that would see what another has written, and what is watched.
-- Parts that have nothing to write return no rows, and their columns are known all the same.
WITH m AS (INSERT INTO loose (id, n) SELECT id, n FROM stock WHERE false RETURNING *) INSERT INTO ledger SELECT 'none' FROM m;
WITH m AS (INSERT INTO loose (id, n) SELECT other, n FROM deliveries WHERE other < 0 RETURNING id AS a, n * 2 AS b) INSERT INTO stock (id, n) SELECT a + 600, b FROM m;
--! any order
WITH m AS (INSERT INTO loose SELECT other, n FROM deliveries WHERE false RETURNING *) UPDATE stock SET n = 1 WHERE NOT EXISTS (SELECT FROM m WHERE m.n > stock.n) AND id < 3 RETURNING *;
WITH m AS (DELETE FROM stock WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id AND source.id < 0) RETURNING *) INSERT INTO ledger SELECT 'none' || m.id FROM m RIGHT JOIN (VALUES (1)) AS v (x) ON v.x = m.id;
WITH m AS (DELETE FROM stock WHERE NOT EXISTS (SELECT FROM source WHERE source.tenant = stock.id) RETURNING *) INSERT INTO ledger SELECT m.note FROM m;
--! refused
WITH moved AS (DELETE FROM deliveries RETURNING *) INSERT INTO loose SELECT other, (SELECT count(*) FROM deliveries) FROM moved;
-- What only reads, and nothing of what is written, is read first.
WITH a AS (UPDATE stock SET n = n + 1 RETURNING id), b AS (SELECT sum(n) AS n FROM stock) INSERT INTO loose SELECT a.id, b.n FROM a, b;
WITH a AS (DELETE FROM deliveries RETURNING id, n), b AS (SELECT count(*) AS n FROM deliveries), c AS (SELECT b.n + 1 AS n FROM b), d AS (SELECT max(n) AS n FROM a) INSERT INTO loose SELECT c.n, d.n FROM c, d;
--! refused
WITH a AS (UPDATE stock SET n = n + 1 RETURNING id), b AS (SELECT sum(n) AS n FROM stock WHERE id IN (SELECT id FROM a)) INSERT INTO loose SELECT a.id, b.n FROM a, b;
WITH a AS (DELETE FROM deliveries WHERE line IN (SELECT length(what) FROM ledger) RETURNING id), ledger AS (SELECT 'abc' AS what) INSERT INTO loose SELECT id, length(what) FROM a, ledger;
-- An UPDATE that keeps the keys, and an INSERT of what it has not found.
WITH up AS (UPDATE stock SET n = v.n FROM (VALUES (1, 5), (300, 6), (301, 7)) AS v (id, n) WHERE v.id = stock.id RETURNING stock.id) INSERT INTO stock SELECT v.id, v.n FROM (VALUES (1, 5), (300, 6), (301, 7)) AS v (id, n) WHERE NOT EXISTS (SELECT FROM up WHERE up.id = v.id);
--! any order
WITH new AS (SELECT other AS id, max(n) AS n FROM deliveries GROUP BY other), up AS (UPDATE stock SET n = new.n, note = 'up' FROM new WHERE new.id = stock.id RETURNING stock.*), ins AS (INSERT INTO stock (id, n) SELECT id, n FROM new WHERE id NOT IN (SELECT id FROM up) ON CONFLICT DO NOTHING RETURNING *) SELECT * FROM up UNION ALL SELECT * FROM ins;
WITH up AS (UPDATE stock SET n = 1 WHERE id = 5 RETURNING id) INSERT INTO stock SELECT 5, 1 UNION ALL SELECT 301, 2;
--! refused
WITH up AS (UPDATE stock SET n = 1 WHERE n > 50 RETURNING id) INSERT INTO stock (id, n) SELECT id, 2 FROM up ON CONFLICT (id) DO UPDATE SET n = 3;
--! refused
WITH up AS (UPDATE stock SET n = 1 WHERE n > 50 RETURNING id) INSERT INTO stock (id, n) SELECT id + 500, 2 FROM up WHERE id IN (SELECT id FROM stock);
--! refused
WITH up AS (UPDATE links SET rank = rank + 5 RETURNING tenant) INSERT INTO links SELECT tenant, 9, NULL, 2 FROM up;
--! refused
WITH a AS (DELETE FROM deliveries RETURNING id, line) INSERT INTO deliveries (id, line) SELECT id + 1000, line FROM a;
-- What PostgreSQL does not come to.
UPDATE stock SET n = CASE WHEN id < 0 THEN (SELECT id FROM source) ELSE n + 1 END;
UPDATE stock SET n = coalesce(n, (SELECT id FROM source));
UPDATE stock SET n = (SELECT id FROM source);
UPDATE stock SET n = (SELECT 1 / (id - 3) FROM source WHERE id = 3);
UPDATE stock SET n = coalesce((SELECT 1 / (id - 3) FROM source WHERE id = 3), 1);
UPDATE stock SET n = CASE (SELECT 1 / (id - 3) FROM source WHERE id = 3) WHEN 1 THEN 2 END;
UPDATE stock SET n = CASE WHEN id < 0 THEN (SELECT 1 / max(id) FROM source) ELSE n + 1 END;
--! refused
UPDATE stock SET n = CASE WHEN id < 0 THEN (SELECT 1 / (id - 3) FROM source WHERE id = 3) ELSE n END;
--! refused
UPDATE stock SET n = coalesce(n, (SELECT 1 / (id - 3) FROM source WHERE id = 3));
--! refused
DELETE FROM stock WHERE id < 0 AND n = (SELECT 1 / (id - 3) FROM source WHERE id = 3);
-- Rows that leave a table and come back.
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING *) INSERT INTO stock SELECT id, n + 1, 'again' FROM d;
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING *) INSERT INTO stock SELECT * FROM d WHERE n < 150;
WITH d AS (DELETE FROM stock RETURNING note AS b, id AS a) INSERT INTO stock (note, n, id) SELECT b, length(b), d.a FROM d RETURNING id, n, note;
WITH d AS (DELETE FROM stock WHERE id < 9 RETURNING id, n), back AS (INSERT INTO stock (id, n) SELECT id, n - 5 FROM d RETURNING n) SELECT count(*), sum(n) FROM back;
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING *) INSERT INTO stock SELECT id, -1 FROM d;
WITH d AS (DELETE FROM deliveries WHERE line = 1 AND n > 40 RETURNING *) INSERT INTO deliveries SELECT id, 3, n, other FROM d;
WITH d AS (DELETE FROM deliveries WHERE 1 = line RETURNING *) INSERT INTO deliveries SELECT id, 1, n, other FROM d;
WITH d AS (DELETE FROM deliveries WHERE line = 1 RETURNING *) INSERT INTO deliveries SELECT id, 2, n, other FROM d;
WITH d AS (DELETE FROM deliveries WHERE id = 40 AND line = 1 RETURNING *) INSERT INTO deliveries SELECT 12, 2, n, other FROM d;
--! 1 | 7
--! 2 | 2
--! 2 | 1
WITH d AS (DELETE FROM deliveries WHERE line = $1 RETURNING *) INSERT INTO deliveries SELECT id, $2, n, other FROM d;
--! script
INSERT INTO loose SELECT id, n FROM stock;
WITH d AS (DELETE FROM loose WHERE n > 30 RETURNING *) INSERT INTO loose SELECT n, id FROM d;
WITH d AS (DELETE FROM loose RETURNING id + n AS s) INSERT INTO loose SELECT s % 7, 1 FROM d, generate_series(1, 2);
--! end
--! refused
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING *) INSERT INTO stock SELECT id, n, note FROM d ON CONFLICT DO NOTHING;
--! refused
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING n AS id, id AS n) INSERT INTO stock SELECT id, n FROM d;
--! refused
WITH d (n, id) AS (DELETE FROM stock WHERE n > 60 RETURNING id, n) INSERT INTO stock (id, n) SELECT id, n FROM d;
--! refused
WITH d AS (DELETE FROM stock WHERE n > 60 RETURNING n, id) INSERT INTO stock SELECT * FROM d;
--! refused
WITH d AS (DELETE FROM deliveries RETURNING *) INSERT INTO deliveries SELECT id, 3, n, other FROM d;
--! refused
WITH d AS (DELETE FROM deliveries WHERE line = 1 OR n > 3 RETURNING *) INSERT INTO deliveries SELECT id, 3, n, other FROM d;
--! refused
WITH d AS (DELETE FROM deliveries WHERE line = 1 RETURNING *) INSERT INTO deliveries SELECT d.id, 3, d.n, s.tenant FROM d, source s WHERE s.id = d.other;
--! refused
WITH d AS (DELETE FROM stock RETURNING id, n), e AS (SELECT id + 1 AS id, n FROM d) INSERT INTO stock SELECT id, n FROM e;
--! refused
WITH d AS (DELETE FROM links WHERE id = 1 RETURNING *) INSERT INTO links SELECT * FROM d;
-- A query that follows them.
WITH a AS (DELETE FROM deliveries RETURNING id) SELECT count(*) FROM a;
WITH a AS (INSERT INTO stock VALUES (203, 1), (201, 2, 'x'), (202, 4) RETURNING *) SELECT * FROM a ORDER BY id;
WITH a AS (UPDATE stock SET n = n + 1 WHERE id < 9 RETURNING id, n) SELECT n % 2 AS odd, sum(n), array_agg(id ORDER BY id) FROM a GROUP BY 1 ORDER BY 1 DESC LIMIT 5;
WITH a AS (DELETE FROM stock WHERE id > 15 RETURNING *) SELECT a.id, s.v, count(*) OVER () FROM a LEFT JOIN source s ON s.tenant = a.id % 7 AND s.id < 10 ORDER BY 1, 2 NULLS LAST;
WITH a AS (DELETE FROM stock WHERE id > 500 RETURNING *) SELECT * FROM a;
WITH a AS (DELETE FROM stock WHERE id > 12 RETURNING *) SELECT FROM a;
WITH a AS (DELETE FROM ledger RETURNING what), b AS (DELETE FROM stock WHERE n > 100 RETURNING id) SELECT (SELECT count(*) FROM a) AS a, (SELECT max(id) FROM b) AS b, (SELECT count(*) FROM source) AS s, NULL AS nothing;
WITH a AS (UPDATE holidays SET note = 'x' WHERE id < 4 RETURNING id, day) SELECT max(day), count(*) FROM a;
WITH a AS (INSERT INTO stock (id, n) SELECT other, 1 FROM deliveries WHERE line = 1 ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id, note) SELECT id, note IS NULL FROM a ORDER BY id;
WITH batch AS (SELECT id FROM stock ORDER BY n LIMIT 5 FOR UPDATE), gone AS (DELETE FROM stock USING batch WHERE stock.id = batch.id RETURNING stock.id) SELECT count(*), min(id), max(id) FROM gone;
--! any order
WITH a AS (DELETE FROM stock WHERE id < 4 RETURNING id), b AS (SELECT id, n FROM stock WHERE id < 6) SELECT b.id, b.n, a.id IS NULL FROM b LEFT JOIN a USING (id);
--! 5 | x
--! 500 | NULL
WITH a AS (UPDATE stock SET note = $2 WHERE id >= $1 RETURNING id, note) SELECT id + $1, note || $2, $2 FROM a ORDER BY id;
--! also binary
--! script
BEGIN;
WITH a AS (INSERT INTO stock VALUES (203, 1), (201, 2, 'x') RETURNING *) SELECT * FROM a ORDER BY id;
WITH a AS (DELETE FROM stock WHERE id > 18 RETURNING id) SELECT count(*) FROM a;
SELECT count(*) FROM stock;
SAVEPOINT s;
WITH a AS (DELETE FROM stock RETURNING id) SELECT 1 / (id - id) FROM a;
ROLLBACK TO s;
SELECT count(*) FROM stock;
COMMIT;
PREPARE w (int) AS WITH a AS (DELETE FROM stock WHERE id < $1 RETURNING id) SELECT count(*), sum(id) FROM a;
EXECUTE w(5);
EXECUTE w(8);
--! end
WITH a AS (DELETE FROM stock RETURNING id) SELECT 1 / (id - id) FROM a;
WITH a AS (INSERT INTO stock VALUES (5, 1), (6, 1) RETURNING id) SELECT id FROM a;
WITH a AS (DELETE FROM stock RETURNING id) SELECT nothing FROM a;
WITH a AS (DELETE FROM links WHERE id = 2 RETURNING tenant) SELECT count(*) FROM a;
-- What references would make of other tables must not be seen.
--! refused
WITH a AS (DELETE FROM links WHERE id = 2 RETURNING tenant) SELECT count(*), (SELECT count(*) FROM source) FROM a;
--! refused
WITH a AS (DELETE FROM stock WHERE id > 5 RETURNING id) SELECT count(*) FROM stock;
--! refused
WITH a AS (DELETE FROM stock RETURNING id) SELECT (SELECT count(*) FROM stock) FROM a;
--! refused
COPY (WITH a AS (DELETE FROM stock RETURNING id) SELECT count(*) FROM a) TO STDOUT;
WITH a AS (DELETE FROM deliveries RETURNING id) MERGE INTO stock USING a ON a.id = stock.id WHEN MATCHED THEN DELETE;
WITH a AS (DELETE FROM deliveries WHERE line = 1 RETURNING other, n) MERGE INTO stock USING a ON a.other = stock.id WHEN MATCHED THEN UPDATE SET n = a.n WHEN NOT MATCHED THEN INSERT VALUES (a.other, a.n);
--! refused
WITH a AS (UPDATE stock SET n = 5 RETURNING id) MERGE INTO stock USING a ON a.id = stock.id WHEN MATCHED THEN DELETE;
-- WITH RECURSIVE beside a write.
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) INSERT INTO stock SELECT n + 300, 1 FROM t;
WITH RECURSIVE t (n) AS (SELECT min(id) FROM source UNION ALL SELECT t.n + 1 FROM t JOIN source ON source.id = t.n + 1 WHERE t.n < 12) DELETE FROM stock WHERE id IN (SELECT n FROM t);
--! any order
WITH RECURSIVE t (n, path) AS (SELECT min(other), '' FROM deliveries UNION ALL SELECT d.other, path || d.n FROM t JOIN deliveries d ON d.id = t.n), top AS (SELECT n, max(path) AS path FROM t GROUP BY n) UPDATE stock SET note = top.path FROM top WHERE top.n = stock.id RETURNING stock.id, stock.note;
WITH RECURSIVE plain AS (SELECT max(id) AS id FROM source), t AS (SELECT id FROM plain UNION SELECT id - 7 FROM t WHERE id > 5) MERGE INTO stock USING t ON t.id = stock.id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (t.id, 1);
WITH RECURSIVE t (n) AS (SELECT 11 UNION ALL SELECT n + 1 FROM t WHERE n < 15), gone AS (DELETE FROM deliveries USING t WHERE t.n = deliveries.id RETURNING deliveries.*) INSERT INTO loose SELECT id, n FROM gone;
WITH RECURSIVE t (n) AS (SELECT 11 UNION ALL SELECT n + 1 FROM t WHERE n < 15), gone AS (DELETE FROM deliveries USING t WHERE t.n = deliveries.id RETURNING deliveries.*) SELECT id, n FROM gone ORDER BY 1;
--! 5
--! NULL
WITH RECURSIVE t (n) AS (SELECT $1::int UNION ALL SELECT n + 1 FROM t WHERE n < 15) UPDATE stock SET n = $1 FROM t, deliveries d WHERE t.n = stock.id AND d.other = t.n;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 5) INSERT INTO stock SELECT n, 1 FROM t ORDER BY n;
--! refused
WITH RECURSIVE a AS (SELECT id FROM b), b AS (SELECT other AS id FROM deliveries) DELETE FROM stock USING a WHERE a.id = stock.id;
WITH a AS (UPDATE deliveries SET id = id + 1000 RETURNING id) INSERT INTO loose SELECT id, 1 FROM a;
-- Beside a trigger that touches its row alone.
CREATE FUNCTION touches() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.note := 'touched'; RETURN NEW; END $$;
CREATE TRIGGER touches BEFORE UPDATE ON stock FOR EACH ROW EXECUTE FUNCTION touches();
--! any order
WITH a AS (UPDATE stock SET n = 3 WHERE id < 5 RETURNING id, note) INSERT INTO loose SELECT id, length(note) FROM a RETURNING *;
WITH a AS (DELETE FROM stock WHERE id = 6 RETURNING id, n) INSERT INTO loose SELECT id + 1, n FROM a;
WITH a AS (UPDATE stock SET n = 4 RETURNING id) SELECT count(*) FROM a;
SELECT id, n, note FROM stock ORDER BY id;
DROP TRIGGER touches ON stock;
