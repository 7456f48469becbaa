-- Rows without a key belong to no partition, and are there.
SELECT count(*), count(id), sum(x) FROM m_t;
SELECT count(*), count(code), sum(n) FROM m_l;
SELECT count(*) FROM m_t WHERE id IS NULL;
SELECT id, x, note FROM m_t ORDER BY id, x, note;
SELECT * FROM m_l ORDER BY code, n;
UPDATE m_t SET x = x + 1;
UPDATE m_t SET x = 0 WHERE id IS NULL;
DELETE FROM m_t;
DELETE FROM m_l WHERE n > 3;
DELETE FROM m_t WHERE id IS NULL;
-- On both sides of joins.
SELECT count(*), count(a.id), count(b.id) FROM m_t a LEFT JOIN m_t b ON a.id = b.id AND b.x > 3;
SELECT count(*), count(m_t.id), count(m_u.id) FROM m_t FULL JOIN m_u ON m_t.id = m_u.id;
SELECT count(*), count(m_t.id), count(m_u.id) FROM m_t FULL JOIN m_u USING (id) WHERE coalesce(m_t.x, m_u.y) < 3;
SELECT count(*), count(m_t.id) FROM m_t RIGHT JOIN m_u USING (id);
SELECT count(*), sum(m_t.x), sum(m_u.y) FROM m_t NATURAL LEFT JOIN m_u;
SELECT m_t.id, m_u.y FROM m_t, m_u WHERE m_t.id = m_u.id ORDER BY 1, 2;
SELECT count(*) FROM m_u WHERE NOT EXISTS (SELECT FROM m_t WHERE m_t.id = m_u.id);
SELECT count(*) FROM m_u WHERE id NOT IN (SELECT id FROM m_t WHERE id IS NOT NULL);
SELECT count(*), count(b.id) FROM m_t a LEFT JOIN m_t b ON a.x = b.id;
SELECT m_r.name, count(m_t.id) FROM m_r LEFT JOIN m_t ON m_t.x = m_r.x GROUP BY m_r.name ORDER BY 1;
SELECT a, count(*), sum(c) FROM m_pair GROUP BY a ORDER BY a;
SELECT count(*), min(day), max(n) FROM m_days;
SELECT n, count(*) FROM m_days GROUP BY n ORDER BY n;
WITH big AS (SELECT * FROM m_t WHERE x > 5), gone AS (DELETE FROM m_u WHERE y = 1 RETURNING id) SELECT (SELECT count(*) FROM big), (SELECT count(*) FROM gone);
UPDATE m_u SET note = 'joined' FROM m_t WHERE m_t.id = m_u.id AND m_t.x > 4;
DELETE FROM m_u USING m_t WHERE m_t.id = m_u.id;
MERGE INTO m_u USING m_t ON m_t.id = m_u.id WHEN MATCHED AND m_t.x > 5 THEN DELETE WHEN MATCHED THEN UPDATE SET note = m_t.note;
INSERT INTO m_u (id, y) SELECT id, x FROM m_t WHERE id > 20;
-- Rows that are not owned have an x of 7 in place of 1000 and more.
SELECT count(*) FROM m_kept WHERE 10 / (x - 7) < 1;
SELECT sum(x) FROM m_kept WHERE 10 / (x - 7) IS NOT NULL GROUP BY id HAVING sum(x) > 1000;
SELECT id FROM m_kept WHERE 10 / (x - 7) < 1 ORDER BY id LIMIT 3;
SELECT count(*) FROM m_kept a JOIN m_kept b ON a.id = b.id AND 10 / (a.x - 7) < 1;
SELECT count(*) FROM m_kept WHERE 10 / (x - 7) IS NOT NULL;
SELECT id FROM m_kept WHERE 10 % (x - 7) IS NOT NULL ORDER BY id;
SELECT 10 / (x - 1001) FROM m_kept WHERE id IS NOT NULL;
-- The user's own come first.
--! script
SET search_path = theirs, pg_catalog, public;
SELECT count(*), sum(x) FROM m_t;
SELECT count(*) FROM m_l;
SELECT x FROM m_kept ORDER BY x;
UPDATE m_t SET x = 3;
DELETE FROM m_l;
SELECT count(*) FROM public.m_pair;
--! end
--! script
SET search_path = theirs, public;
SELECT count(*), sum(x) FROM m_t;
DELETE FROM m_t;
--! end
-- A user who may see the key and little else.
--! script
SET ROLE parity_mover;
SELECT count(*), sum(x) FROM m_t;
SELECT id, x FROM m_t ORDER BY id, x;
SELECT m_r.name, count(m_t.id) FROM m_r LEFT JOIN m_t ON m_t.x = m_r.x GROUP BY m_r.name ORDER BY 1;
SELECT count(*) FROM m_t FULL JOIN m_u USING (id);
SELECT m_t.x, m_u.y FROM m_t LEFT JOIN m_u ON m_t.x = m_u.y ORDER BY 1, 2;
UPDATE m_t SET x = 4 WHERE x = 5;
DELETE FROM m_t WHERE x = 4;
RESET ROLE;
--! end
-- In the ways that a statement comes.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id, x FROM m_t ORDER BY id, x;
FETCH 5 FROM c;
FETCH ALL FROM c;
PREPARE p AS SELECT count(*), sum(x) FROM m_t WHERE x > $1;
EXECUTE p (3);
PREPARE q AS UPDATE m_u SET y = $1;
EXECUTE q (9);
SELECT sum(y) FROM m_u;
SAVEPOINT s;
DELETE FROM m_u;
SELECT count(*) FROM m_u;
ROLLBACK TO s;
SELECT count(*) FROM m_u, m_t WHERE m_u.y > m_t.x;
CREATE TEMP TABLE mine AS SELECT * FROM m_t;
SELECT count(*), sum(x) FROM mine;
INSERT INTO mine SELECT id, y, note FROM m_u;
SELECT count(*) FROM mine JOIN m_t USING (id);
COMMIT;
--! end
--! script
BEGIN;
SELECT id FROM m_t ORDER BY id, x FOR UPDATE;
SELECT y, count(*) FROM m_u GROUP BY y ORDER BY y;
ROLLBACK;
--! end
--! any order
COPY m_t TO STDOUT;
--! any order
COPY (SELECT id, x FROM m_t WHERE x > 3) TO STDOUT (FORMAT csv);
--! runs
EXPLAIN SELECT count(*) FROM m_t;
--! runs
EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT * FROM m_t JOIN m_u USING (id);
-- Positions are those of the client's text.
SELECT id, nosuch FROM m_t WHERE x = 1;
SELECT id FROM m_t WHERE x = 1 AND nosuch = 2;
UPDATE m_t SET x = 1 WHERE nosuch = 2;
DELETE FROM m_t WHERE x = 'x';
-- Views.
SELECT count(*), count(id), sum(x) FROM m_plain;
SELECT public.m_plain.id, m_plain.x FROM public.m_plain WHERE public.m_plain.x > 2 ORDER BY 1, 2;
SELECT count(*) FROM m_plain AS p (k, v) JOIN m_u ON m_u.id = p.k WHERE v > 1;
SELECT count(*), count(p.id) FROM m_u LEFT JOIN m_plain p ON p.id = m_u.id AND p.x > 3;
SELECT count(*), count(p.id), count(m_u.id) FROM m_plain p FULL JOIN m_u USING (id);
SELECT count(*), sum(b.y) FROM m_t NATURAL LEFT JOIN m_barrier b;
SELECT count(*), count(t), count(u), sum(x), sum(y) FROM m_both;
SELECT count(*), sum(x), sum(y) FROM m_using;
SELECT * FROM m_sums ORDER BY x;
SELECT sum(n), sum(ids) FROM m_sums WHERE x > 2;
TABLE m_total;
SELECT * FROM m_first;
SELECT kind, count(*), sum(id) FROM m_all GROUP BY kind ORDER BY kind;
--! refused
SELECT name FROM m_unused ORDER BY name;
SELECT name FROM m_r WHERE x IN (SELECT x FROM m_plain) ORDER BY name;
--! refused
SELECT max(x) FROM m_steps;
SELECT * FROM m_codes ORDER BY code, n;
SELECT a, count(*), sum(c) FROM m_pairs GROUP BY a ORDER BY a;
TABLE m_last_days;
SELECT count(*) FROM m_divided;
SELECT count(*) FROM m_t WHERE NOT EXISTS (SELECT FROM m_plain WHERE m_plain.id = m_t.id);
SELECT count(*), count(row_to_json(m_plain)) FROM m_plain;
SELECT x, json_agg(m_invoked ORDER BY id) FROM m_invoked WHERE id IS NOT NULL GROUP BY x ORDER BY x;
WITH p AS (SELECT * FROM m_plain WHERE x > 3) SELECT count(*) FROM p JOIN m_few ON m_few.id = p.id;
SELECT count(*) FROM m_plain JOIN m_few USING (id) WHERE EXISTS (SELECT FROM m_plain o WHERE o.x = m_few.x AND o.id <> m_few.id);
UPDATE m_plain SET note = 'through' WHERE x > 2;
UPDATE m_few SET x = x + 1 WHERE x < 5;
UPDATE m_few SET x = x + 3 WHERE id = 4;
UPDATE m_few SET x = x + 3 WHERE x = 4 AND id < 10;
UPDATE m_plain AS p SET note = y::text FROM m_barrier b WHERE b.id = p.id;
DELETE FROM m_plain WHERE m_plain.x = 1 RETURNING id, x;
DELETE FROM m_few USING m_u WHERE m_u.id = m_few.id;
UPDATE m_u SET note = 'seen' FROM m_plain WHERE m_plain.id = m_u.id AND m_plain.x > 2;
INSERT INTO m_u (id, y) SELECT id + 1000, x FROM m_plain WHERE id IS NOT NULL;
MERGE INTO m_u USING m_plain ON m_plain.id = m_u.id WHEN MATCHED AND m_plain.x > 5 THEN DELETE WHEN MATCHED THEN UPDATE SET note = m_plain.note;
--! script
SET ROLE parity_mover;
SELECT count(*), sum(x) FROM m_plain;
SELECT note FROM m_plain;
SELECT count(*), sum(x) FROM m_invoked;
SELECT count(*), count(t), count(u) FROM m_both;
SELECT n FROM m_total;
SELECT count(*) FROM m_barrier;
UPDATE m_few SET x = 0 WHERE x > 2;
UPDATE m_few SET id = id;
DELETE FROM m_few WHERE x = 3;
--! end
--! script
SET search_path = theirs, public;
SELECT count(*), sum(id) FROM m_plain;
SELECT count(*), sum(x) FROM public.m_plain;
DELETE FROM m_few;
--! end
