-- What is sorted by and not selected has a name of its own kind: ORDER BY and GROUP BY mean the tables' columns.
SELECT k, at AS x FROM t ORDER BY at::date DESC, at LIMIT 3;
SELECT k FROM t ORDER BY at::date, at LIMIT 3;
SELECT k, at AS x FROM t ORDER BY at::date DESC, at;
SELECT k, g AS p FROM t ORDER BY CASE WHEN n > 5 THEN 0 ELSE g / 2 END, g DESC, k LIMIT 9;
SELECT k, g AS p FROM t ORDER BY CASE WHEN k % 2 = 0 THEN 0 ELSE g END, g DESC, k LIMIT 9;
SELECT k, f AS p FROM t ORDER BY f::int, f, k LIMIT 5;
SELECT k, at AS x FROM t ORDER BY date(at), at;
SELECT DISTINCT ON (g) g AS h, k FROM t ORDER BY g, at::date, at, k;
SELECT k, g AS h FROM t ORDER BY g::text COLLATE "C", g, k LIMIT 4 FOR UPDATE;
SELECT lower(name) AS count, avg(k) FROM t GROUP BY count ORDER BY 1;
SELECT lower(c) AS count, avg(k) FROM t GROUP BY count ORDER BY 1;
SELECT g AS sum, avg(n), avg(k) + 1 AS q FROM t GROUP BY sum ORDER BY sum;
SELECT g % 2 AS g, count(*) FROM t GROUP BY t.g ORDER BY count(*), t.g;
SELECT abs(g) AS a, max(at) FROM t GROUP BY abs(g) ORDER BY max(at)::date, max(at) LIMIT 3;
-- ORDER BY names another collation than the column's.
SELECT name, count(*) + 0 FROM t GROUP BY name ORDER BY name COLLATE "C";
SELECT name, count(*) FROM t GROUP BY name HAVING count(*) > 1 ORDER BY name COLLATE "C" DESC LIMIT 1;
SELECT name, rank() OVER (ORDER BY count(*)) FROM t GROUP BY name ORDER BY name COLLATE "C";
SELECT name, rank() OVER (ORDER BY count(*)) FROM t GROUP BY name ORDER BY name COLLATE pg_catalog."C" DESC;
SELECT name, count(*) + 0 FROM t GROUP BY name ORDER BY upper(name) COLLATE "C", name COLLATE "C";
SELECT name, count(*) + 0 FROM t GROUP BY name ORDER BY max(c) COLLATE "C" DESC, name;
SELECT DISTINCT name FROM t ORDER BY name COLLATE "C";
SELECT name FROM t GROUP BY name ORDER BY name COLLATE "C" LIMIT 2;
-- Equal numbers that do not look alike are one group.
SELECT count(*) FROM t GROUP BY n HAVING n > 0;
SELECT count(*) FROM t GROUP BY n HAVING length(n::text) > 9;
SELECT count(*) FROM t GROUP BY n, g HAVING n BETWEEN 0 AND 2 AND g <> 3 ORDER BY 1;
SELECT g, count(*) FROM t GROUP BY g HAVING g::text > '2' ORDER BY g;
SELECT at::date, count(*) FROM t GROUP BY at::date HAVING at::date > '2024-02-20' ORDER BY 1;
SELECT date_trunc('week', at), count(*) FROM t GROUP BY 1 HAVING date_trunc('week', at) > '2024-02-20' ORDER BY 1;
-- A sub-select with ORDER BY an aggregate has one row whatever is there.
SELECT count(*) FROM o WHERE EXISTS (SELECT 1 FROM t WHERE t.k = o.k AND t.g = 1 ORDER BY count(*));
SELECT DISTINCT now() = now(), "now"() = now() FROM t;
-- Which rows of a copy are found first does not show.
SELECT k FROM t WHERE k < 4 UNION (SELECT id FROM ref ORDER BY id DESC LIMIT 2) ORDER BY 1;
SELECT k FROM t WHERE g = (SELECT prio FROM ref ORDER BY prio DESC LIMIT 1) ORDER BY k;
SELECT k, (SELECT string_agg(id::text, ',' ORDER BY id) FROM ref WHERE prio = 0) FROM t WHERE k < 9 ORDER BY k;
SELECT k, (SELECT pad FROM ref WHERE id = t.k LIMIT 1) FROM t WHERE k < 50 ORDER BY k;
SELECT k, (SELECT prio FROM ref WHERE id = t.g + 1 LIMIT 1) FROM t WHERE k < 50 ORDER BY k;
SELECT count(*) FROM t WHERE EXISTS (SELECT FROM ref WHERE prio = t.g LIMIT 1);
SELECT k, (SELECT array_agg(prio ORDER BY prio) FROM ref WHERE id < 5) FROM t WHERE k < 9 ORDER BY k;
SELECT k, r.n FROM t JOIN (SELECT prio, count(*) AS n FROM ref GROUP BY prio ORDER BY prio, n LIMIT 2) r ON r.prio = t.g ORDER BY k LIMIT 8;
SELECT DISTINCT s.id FROM t, (SELECT id FROM ref ORDER BY id LIMIT 1) s;
SELECT DISTINCT s.prio FROM t, (SELECT DISTINCT ON (prio) prio, pad FROM ref ORDER BY prio, id) s ORDER BY 1;
SELECT k, r.id, r.n, r.d FROM t JOIN (SELECT id, prio, rank() OVER (ORDER BY pad) AS n, cume_dist() OVER (PARTITION BY prio ORDER BY pad) AS d FROM ref) r ON r.id = t.k ORDER BY k;
SELECT k, r.n, r.s, r.m FROM t JOIN (SELECT id, count(*) OVER () AS n, sum(id) OVER (PARTITION BY prio ORDER BY pad) AS s, max(id) OVER (ORDER BY prio GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW EXCLUDE TIES) AS m FROM ref) r ON r.id = t.k ORDER BY k;
SELECT k, r.n, r.l FROM t JOIN (SELECT id, row_number() OVER (ORDER BY prio, id) AS n, lag(pad) OVER (w ORDER BY id DESC) AS l FROM ref WINDOW w AS (PARTITION BY prio)) r ON r.id = t.k ORDER BY k;
SELECT k, r.s FROM t JOIN (SELECT id, sum(id) OVER (ORDER BY prio, id ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS s FROM ref) r ON r.id = t.k ORDER BY k;
SELECT k, r.n FROM t JOIN (SELECT prio, sum(count(*)) OVER (ORDER BY prio) AS n FROM ref GROUP BY prio) r ON r.prio = t.g ORDER BY k;
SELECT k, (SELECT b.pad FROM ref a JOIN ref b USING (id) WHERE a.id = t.k LIMIT 1) FROM t WHERE k < 50 ORDER BY k;
SELECT k, r.pad FROM t JOIN (SELECT id, b.pad FROM ref a JOIN ref b USING (id) ORDER BY id LIMIT 7) r ON r.id = t.k ORDER BY k;
SELECT k, r.pad FROM t JOIN (SELECT id, pad FROM ref OFFSET 0) r ON r.id = t.k ORDER BY k;
SELECT k, r.pad FROM t JOIN (SELECT id, pad FROM ref ORDER BY id OFFSET 3) r ON r.id = t.k ORDER BY k;
SELECT k FROM t WHERE g IN (SELECT prio FROM ref UNION SELECT id FROM ref WHERE id = 4 OFFSET 0) ORDER BY k;
SELECT k, r.n FROM t JOIN (SELECT prio, count(*) AS n FROM ref GROUP BY prio ORDER BY prio DESC LIMIT 2) r ON r.prio = t.g ORDER BY k;
SELECT k, r.n FROM t JOIN (SELECT prio, pad, count(*) AS n FROM ref GROUP BY 1, 2 ORDER BY pad, prio LIMIT 9) r ON r.prio = t.g ORDER BY k, n, pad;
