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
--! refused
WITH a AS (UPDATE stock SET n = n + 1 RETURNING id), b AS (SELECT sum(n) AS n FROM stock) INSERT INTO loose SELECT a.id, b.n FROM a, b;
--! refused
WITH a AS (DELETE FROM deliveries RETURNING id, line) INSERT INTO deliveries (id, line) SELECT id + 1000, line FROM a;
--! refused
WITH a AS (DELETE FROM deliveries RETURNING id) SELECT count(*) FROM a;
--! refused
WITH a AS (DELETE FROM deliveries RETURNING id) MERGE INTO stock USING a ON a.id = stock.id WHEN MATCHED THEN DELETE;
--! refused
WITH a AS (UPDATE deliveries SET id = id + 1000 RETURNING id) INSERT INTO loose SELECT id, 1 FROM a;
