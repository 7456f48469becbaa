-- Values of every type.
SELECT f.id, d.k FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.k2 FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.c FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.m FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.p FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.dp FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.dc FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.j FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.js FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.f FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.r FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.ts FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.i FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.b FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.arr FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.ta FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.rng FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.bits FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.vb FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.nm FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.ci FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.u FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.bx FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.ip FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.tm FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.x FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.td FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.mn FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT f.id, d.va FROM facts f JOIN dims d ON f.k = d.k WHERE f.a = 3 ORDER BY f.id LIMIT 12;
SELECT d.k, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.k ORDER BY 1;
SELECT d.k2, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.k2 ORDER BY 1;
SELECT d.c, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.c ORDER BY 1;
SELECT d.m, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.m ORDER BY 1;
SELECT d.dp, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.dp ORDER BY 1;
SELECT d.dc, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.dc ORDER BY 1;
SELECT d.f, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.f ORDER BY 1;
SELECT d.r, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.r ORDER BY 1;
SELECT d.ts, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.ts ORDER BY 1;
SELECT d.i, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.i ORDER BY 1;
SELECT d.b, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.b ORDER BY 1;
SELECT d.rng, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.rng ORDER BY 1;
SELECT d.bits, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.bits ORDER BY 1;
SELECT d.nm, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.nm ORDER BY 1;
SELECT d.ci, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.ci ORDER BY 1;
SELECT d.tm, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.tm ORDER BY 1;
SELECT d.td, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.td ORDER BY 1;
SELECT d.mn, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.mn ORDER BY 1;
SELECT d.va, count(*), sum(f.a), max(d.k), avg(f.a), min(f.d), max(f.t) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.va ORDER BY 1;
SELECT f.a, d.k FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.p FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.dp FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.dc FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.js FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.arr FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.ta FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
SELECT f.a, d.u FROM facts f LEFT JOIN dims d ON f.k = d.k WHERE f.id < 30 ORDER BY f.id;
-- Joins, sub-selects and what is computed over them.
SELECT h.label, count(*), count(h.v), sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY h.label ORDER BY 1;
SELECT h.label, count(f.id) FROM homes h LEFT JOIN facts f ON f.k = h.k GROUP BY h.label ORDER BY 1;
SELECT f.a, h.label FROM facts f LEFT JOIN homes h ON h.k = f.k WHERE f.id < 20 ORDER BY f.id, 2;
SELECT f.a, h.label FROM facts f RIGHT JOIN homes h ON h.k = f.k ORDER BY f.id, 2;
SELECT f.a, h.label FROM facts f FULL JOIN homes h ON h.k = f.k ORDER BY f.id, 2;
SELECT count(*) FROM facts WHERE k NOT IN (SELECT k FROM homes);
SELECT count(*) FROM facts WHERE k NOT IN (SELECT k FROM homes WHERE k IS NOT NULL);
SELECT count(*) FROM facts f WHERE NOT EXISTS (SELECT FROM homes h WHERE h.k = f.k);
SELECT count(*) FROM homes h WHERE NOT EXISTS (SELECT FROM facts f WHERE h.k = f.k);
SELECT count(*), sum(v) FROM facts f, homes h;
SELECT count(*), sum(v) FROM facts f, homes h WHERE h.k > 100;
SELECT sum(f.a), max(h.v), avg(h.v), bool_and(h.v > 0) FROM facts f JOIN homes h ON f.k = h.k WHERE h.k > 100;
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k WHERE h.k > 100 GROUP BY 1;
SELECT * FROM facts f JOIN homes h USING (k) WHERE f.id < 15 ORDER BY f.id, label, v;
SELECT * FROM facts f NATURAL JOIN homes h WHERE f.id < 15 ORDER BY f.id, label, v;
SELECT f.id, x.* FROM facts f, LATERAL (SELECT * FROM homes h WHERE h.k = f.k ORDER BY v LIMIT 1) x WHERE f.id < 30 ORDER BY 1;
WITH h AS (SELECT k, max(v) v FROM homes GROUP BY k) SELECT h.v, count(*) FROM facts f JOIN h ON h.k = f.k GROUP BY 1 ORDER BY 1;
WITH h AS MATERIALIZED (SELECT * FROM homes) SELECT count(*) FROM facts f JOIN h ON h.k = f.k JOIN h h2 ON h2.k = f.k;
SELECT d.m, d.c, count(DISTINCT f.id), count(DISTINCT f.a) FROM facts f JOIN dims d ON f.k=d.k GROUP BY 1,2 ORDER BY 1,2;
SELECT d.m, sum(f.a) FILTER (WHERE d.k > 3), sum(f.a) / count(*), sum(sum(f.a)) OVER () FROM facts f JOIN dims d ON f.k=d.k GROUP BY d.m ORDER BY 1;
SELECT d.m, rank() OVER (ORDER BY sum(f.a) DESC, d.m) FROM facts f JOIN dims d ON f.k=d.k GROUP BY d.m HAVING sum(f.a) > 1 ORDER BY 1;
SELECT f.id, row_number() OVER (PARTITION BY f.id ORDER BY d.k) FROM facts f JOIN dims d ON d.k2 = f.k2 ORDER BY 1,2 LIMIT 9;
SELECT d.k, (SELECT max(id) FROM facts f WHERE f.k = d.k) FROM dims d ORDER BY 1;
SELECT f.id FROM facts f WHERE f.k = (SELECT max(k) FROM homes) ORDER BY 1 LIMIT 3;
SELECT f.id FROM facts f WHERE f.a > ALL (SELECT v FROM homes WHERE v IS NOT NULL) ORDER BY 1 LIMIT 3;
SELECT f.id, CASE WHEN f.k IN (SELECT k FROM homes) THEN 'in' ELSE 'out' END FROM facts f WHERE f.id < 10 ORDER BY 1;
SELECT 1/(f.a-3) FROM facts f JOIN homes h ON h.k = f.k ORDER BY 1;
SELECT d.k, sum(1/(f.a-3)) FROM facts f JOIN dims d ON d.k = f.k WHERE f.a <> 3 GROUP BY 1 ORDER BY 1;
SELECT f.t || h.label, count(*) FROM facts f JOIN homes h ON h.k=f.k GROUP BY f.t || h.label ORDER BY 1;
SELECT f.t, h.label, f.id FROM facts f JOIN homes h ON h.k = f.k ORDER BY h.label DESC NULLS LAST, f.id OFFSET 3 FETCH FIRST 4 ROWS ONLY;
SELECT count(*) FROM ONLY facts f JOIN homes h ON h.k = f.k;
SELECT f.id, h.k FROM facts f JOIN homes h ON f.k = h.k WHERE f.id = 13;
SELECT DISTINCT h.label FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1;
SELECT DISTINCT ON (h.label) h.label, f.id FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1, 2 DESC;
SELECT h.label FROM facts f JOIN homes h ON f.k = h.k UNION SELECT t FROM facts ORDER BY 1;
(SELECT h.v FROM facts f JOIN homes h ON f.k = h.k) UNION ALL (SELECT 1 FROM facts) ORDER BY 1 LIMIT 3;
SELECT h.k, string_agg(f.t, ',' ORDER BY f.id) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1 ORDER BY 1;
SELECT f.c, d.c, count(*) FROM facts f JOIN dims d ON f.c = d.c GROUP BY 1, 2 ORDER BY 1, 2;
SELECT f.k2, d.k2, count(*) FROM facts f JOIN dims d ON f.k2 = d.k2 GROUP BY 1, 2 ORDER BY 1, 2;
SELECT sum(d.k2) FROM facts f JOIN dims d ON f.k = d.k WHERE f.k2 <> 'NaN';
-- A table of which every shard has a copy, views of the home shard and of the shards, tables without rows.
SELECT c.word, sum(f.a), count(*) FROM facts f JOIN homes h ON f.k = h.k JOIN copies c ON c.k = f.k GROUP BY c.word ORDER BY 1;
SELECT c.word, h.label, count(f.id) FROM copies c LEFT JOIN facts f ON f.k = c.k LEFT JOIN homes h ON h.k = f.k GROUP BY 1, 2 ORDER BY 1, 2;
SELECT l.label, count(*) FROM facts f JOIN labels l ON l.k = f.k GROUP BY 1 ORDER BY 1;
SELECT y.k, y.c, count(*), max(f.d) FROM facts f JOIN merry y ON y.k = f.k GROUP BY 1, 2 ORDER BY 1;
SELECT m, count(*) FROM both_of_them GROUP BY m ORDER BY m;
SELECT b.m, count(*), max(h.v) FROM both_of_them b LEFT JOIN homes h ON h.k = b.id GROUP BY b.m ORDER BY b.m;
SELECT count(*), max(e.v), sum(f.a), bool_or(f.a > 1) FROM facts f JOIN empties e ON e.k = f.k;
SELECT e.v, count(*) FROM facts f JOIN empties e ON e.k = f.k GROUP BY 1;
SELECT e.v, count(*) FROM facts f LEFT JOIN empties e ON e.k = f.k GROUP BY 1;
SELECT f.id FROM facts f WHERE f.k IN (SELECT k FROM empties) ORDER BY 1;
SELECT count(*) FROM facts f WHERE f.k NOT IN (SELECT k FROM empties);
SELECT count(*) FROM facts f WHERE f.k <> ALL (SELECT k FROM empties);
SELECT f.id FROM empties e LEFT JOIN facts f ON f.k = e.k ORDER BY 1;
SELECT count(*) FROM dims d, empties e WHERE d.k > e.k;
-- Rows by their columns, names of columns, and of columns that are not loaded.
SELECT json_agg(to_jsonb(h)) FROM facts f JOIN homes h ON h.k = f.k WHERE f.id = 13;
SELECT count(d), count(d.p), count(d.k) FROM facts f LEFT JOIN dims d ON d.k = f.k;
SELECT f.id, x.* FROM facts f JOIN dims AS x (one, two, three) ON x.one = f.k WHERE f.id IN (5, 6, 7) ORDER BY 1;
SELECT f.id, f.k, dims.c FROM public.facts f JOIN public.dims ON public.dims.k = f.k WHERE f.id < 9 ORDER BY public.dims.c, f.id;
SELECT id FROM facts JOIN homes USING (k) WHERE label = 'one' ORDER BY id LIMIT 3;
SELECT f.id, (SELECT max(h.v) FROM homes h WHERE k2 > 1) FROM facts f WHERE f.id < 5 ORDER BY 1;
SELECT f.a, (SELECT h.label FROM homes h WHERE h.k = f.k AND h.v = f.k) FROM facts f WHERE f.id < 9 ORDER BY f.id;
-- Values that cannot be brought, and what is wrong with values.
SELECT o.cost, o.kind, count(*) FROM facts f JOIN odds o ON o.k = f.k GROUP BY o.cost, o.kind ORDER BY 1;
SELECT o.doc::text, o.list, f.id FROM facts f JOIN odds o ON o.k = f.k WHERE f.id < 15 ORDER BY f.id;
SELECT o.list, count(*) FROM facts f JOIN odds o ON o.k = f.k GROUP BY 1 ORDER BY 1;
SELECT sum(1 / (d.k - 3)) FROM facts f JOIN dims d ON d.k = f.k;
SELECT d.k, 10 / (count(*) - count(*)) FROM facts f JOIN dims d ON d.k = f.k GROUP BY d.k;
SELECT d.*, count(*) FROM facts f JOIN dims d ON d.k = f.k GROUP BY d.k ORDER BY d.k;
SELECT d.k, d.c, d.c || d.dc, count(*) FROM facts f JOIN dims d ON d.k = f.k GROUP BY d.k ORDER BY d.k;
SELECT avg(d.i), sum(d.f * 0), avg(f.f * 0) FROM facts f JOIN dims d ON d.k = f.k WHERE d.f < 10 AND f.f < 9;
SELECT f.id, h.k AS f, h.k AS f FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1;
SELECT f.*, h.* FROM facts f JOIN homes h ON f.k = h.k ORDER BY f.id, h.v, h.label;
SELECT h.* FROM facts f JOIN homes h ON f.k = h.k ORDER BY f.id, h.v, h.label;
-- Orders and limits.
SELECT f.t, h.label FROM facts f JOIN homes h ON f.k = h.k ORDER BY h.label COLLATE "C" DESC, f.id LIMIT 4;
SELECT f.t AS label, h.label AS x FROM facts f JOIN homes h ON f.k = h.k ORDER BY label, x, f.id LIMIT 4 OFFSET 2;
SELECT f.t, count(*) FROM facts f JOIN homes h ON f.k = h.k GROUP BY f.t ORDER BY count(*) DESC, max(f.id), 1;
SELECT f.t, avg(h.v) FROM facts f JOIN homes h ON f.k = h.k GROUP BY f.t ORDER BY avg(f.a) DESC, f.t LIMIT 2;
--! count only
SELECT f.id FROM facts f JOIN homes h ON f.k = h.k LIMIT 5;
SELECT f.id FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1 LIMIT NULL OFFSET 7;
SELECT f.id FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1 LIMIT 0;
SELECT f.d FROM facts f JOIN homes h ON f.k = h.k ORDER BY 1 FETCH FIRST 3 ROWS WITH TIES;
-- Parameters.
--! 1 | one
--! 2 | NULL
--! NULL | one
SELECT f.id, h.label, $1::int FROM facts f JOIN homes h ON f.k = h.k WHERE h.k = $1 AND (h.label = $2 OR $2 IS NULL) ORDER BY f.id, h.label;
--! 3 | 2
--! NULL | NULL
SELECT f.id, d.c FROM facts f JOIN dims d ON f.k = d.k ORDER BY f.id LIMIT $1 OFFSET $2;
--! 2.5 | 1
SELECT d.c, count(*) * $1::numeric FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.c HAVING count(*) > $2 ORDER BY d.c;
--! -1
SELECT f.id FROM facts f JOIN dims d ON f.k = d.k ORDER BY f.id LIMIT $1;
-- In transactions: before and after a write, and with the time of the transaction.
--! script
BEGIN;
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1 ORDER BY 1;
UPDATE homes SET label = 'changed' WHERE k = 1;
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1 ORDER BY 1;
INSERT INTO facts (id, k, a) VALUES (5000, 1, 1000), (5001, 2, 2000), (5002, 9, 3000);
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1 ORDER BY 1;
SELECT d.m, sum(f.a) FROM facts f JOIN dims d ON f.k = d.k GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM facts f JOIN dims d ON f.k = d.k WHERE d.ts < now() AND now() = transaction_timestamp();
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT d.m, sum(f.a) FROM facts f JOIN dims d ON f.k = d.k GROUP BY 1 ORDER BY 1;
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1 ORDER BY 1;
COMMIT;
CREATE TEMP TABLE mine AS SELECT 3 AS k, 'temporary' AS word;
SELECT m.word, sum(f.a) FROM facts f JOIN mine m ON f.k = m.k GROUP BY 1;
CREATE TEMP TABLE homes AS SELECT 4 AS k, 'hides another' AS label;
SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1;
SET DateStyle = 'SQL, DMY';
SELECT d.ts::text, f.d FROM facts f JOIN dims d ON f.k = d.k WHERE f.id < 9 ORDER BY f.id;
SET extra_float_digits = -10;
SELECT d.r, d.f::text, count(*) FROM facts f JOIN dims d ON f.k = d.k GROUP BY d.r, d.f::text ORDER BY 1;
--! end
--! runs
EXPLAIN SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1;
--! runs
EXPLAIN ANALYZE SELECT h.label, sum(f.a) FROM facts f JOIN homes h ON f.k = h.k GROUP BY 1;
