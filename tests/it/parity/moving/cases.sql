-- Rows without a key belong to no partition, and are there.
SELECT count(*), count(id), sum(x) FROM t;
SELECT count(*), count(code), sum(n) FROM l;
SELECT count(*) FROM t WHERE id IS NULL;
SELECT id, x, note FROM t ORDER BY id, x, note;
SELECT * FROM l ORDER BY code, n;
UPDATE t SET x = x + 1;
UPDATE t SET x = 0 WHERE id IS NULL;
DELETE FROM t;
DELETE FROM l WHERE n > 3;
DELETE FROM t WHERE id IS NULL;
-- On both sides of joins.
SELECT count(*), count(a.id), count(b.id) FROM t a LEFT JOIN t b ON a.id = b.id AND b.x > 3;
SELECT count(*), count(t.id), count(u.id) FROM t FULL JOIN u ON t.id = u.id;
SELECT count(*), count(t.id), count(u.id) FROM t FULL JOIN u USING (id) WHERE coalesce(t.x, u.y) < 3;
SELECT count(*), count(t.id) FROM t RIGHT JOIN u USING (id);
SELECT count(*), sum(t.x), sum(u.y) FROM t NATURAL LEFT JOIN u;
SELECT t.id, u.y FROM t, u WHERE t.id = u.id ORDER BY 1, 2;
SELECT count(*) FROM u WHERE NOT EXISTS (SELECT FROM t WHERE t.id = u.id);
SELECT count(*) FROM u WHERE id NOT IN (SELECT id FROM t WHERE id IS NOT NULL);
SELECT count(*), count(b.id) FROM t a LEFT JOIN t b ON a.x = b.id;
SELECT r.name, count(t.id) FROM r LEFT JOIN t ON t.x = r.x GROUP BY r.name ORDER BY 1;
SELECT a, count(*), sum(c) FROM pair GROUP BY a ORDER BY a;
SELECT count(*), min(day), max(n) FROM days;
SELECT n, count(*) FROM days GROUP BY n ORDER BY n;
WITH big AS (SELECT * FROM t WHERE x > 5), gone AS (DELETE FROM u WHERE y = 1 RETURNING id) SELECT (SELECT count(*) FROM big), (SELECT count(*) FROM gone);
UPDATE u SET note = 'joined' FROM t WHERE t.id = u.id AND t.x > 4;
DELETE FROM u USING t WHERE t.id = u.id;
MERGE INTO u USING t ON t.id = u.id WHEN MATCHED AND t.x > 5 THEN DELETE WHEN MATCHED THEN UPDATE SET note = t.note;
INSERT INTO u (id, y) SELECT id, x FROM t WHERE id > 20;
-- Rows that are not owned have an x of 7 in place of 1000 and more.
SELECT count(*) FROM kept WHERE 10 / (x - 7) < 1;
SELECT sum(x) FROM kept WHERE 10 / (x - 7) IS NOT NULL GROUP BY id HAVING sum(x) > 1000;
SELECT id FROM kept WHERE 10 / (x - 7) < 1 ORDER BY id LIMIT 3;
SELECT count(*) FROM kept a JOIN kept b ON a.id = b.id AND 10 / (a.x - 7) < 1;
SELECT count(*) FROM kept WHERE 10 / (x - 7) IS NOT NULL;
SELECT id FROM kept WHERE 10 % (x - 7) IS NOT NULL ORDER BY id;
SELECT 10 / (x - 1001) FROM kept WHERE id IS NOT NULL;
-- The user's own come first.
--! script
SET search_path = theirs, pg_catalog, public;
SELECT count(*), sum(x) FROM t;
SELECT count(*) FROM l;
SELECT x FROM kept ORDER BY x;
UPDATE t SET x = 3;
DELETE FROM l;
SELECT count(*) FROM public.pair;
--! end
--! script
SET search_path = theirs, public;
SELECT count(*), sum(x) FROM t;
DELETE FROM t;
--! end
-- A user who may see the key and little else.
--! script
SET ROLE parity_mover;
SELECT count(*), sum(x) FROM t;
SELECT id, x FROM t ORDER BY id, x;
SELECT r.name, count(t.id) FROM r LEFT JOIN t ON t.x = r.x GROUP BY r.name ORDER BY 1;
SELECT count(*) FROM t FULL JOIN u USING (id);
SELECT t.x, u.y FROM t LEFT JOIN u ON t.x = u.y ORDER BY 1, 2;
UPDATE t SET x = 4 WHERE x = 5;
DELETE FROM t WHERE x = 4;
RESET ROLE;
--! end
-- In the ways that a statement comes.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, x FROM t ORDER BY id, x;
FETCH 5 FROM c;
FETCH ALL FROM c;
PREPARE p AS SELECT count(*), sum(x) FROM t WHERE x > $1;
EXECUTE p (3);
PREPARE q AS UPDATE u SET y = $1;
EXECUTE q (9);
SELECT sum(y) FROM u;
SAVEPOINT s;
DELETE FROM u;
SELECT count(*) FROM u;
ROLLBACK TO s;
SELECT count(*) FROM u, t WHERE u.y > t.x;
CREATE TEMP TABLE mine AS SELECT * FROM t;
SELECT count(*), sum(x) FROM mine;
INSERT INTO mine SELECT id, y, note FROM u;
SELECT count(*) FROM mine JOIN t USING (id);
COMMIT;
--! end
--! script
BEGIN;
SELECT id FROM t ORDER BY id, x FOR UPDATE;
SELECT y, count(*) FROM u GROUP BY y ORDER BY y;
ROLLBACK;
--! end
--! any order
COPY t TO STDOUT;
--! any order
COPY (SELECT id, x FROM t WHERE x > 3) TO STDOUT (FORMAT csv);
--! runs
EXPLAIN SELECT count(*) FROM t;
--! runs
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM t JOIN u USING (id);
-- Positions are those of the client's text.
SELECT id, nosuch FROM t WHERE x = 1;
SELECT id FROM t WHERE x = 1 AND nosuch = 2;
UPDATE t SET x = 1 WHERE nosuch = 2;
DELETE FROM t WHERE x = 'x';
