-- The table, its partitions, and partitions of partitions are one family.
SELECT count(*), sum(n), min(at), max(id) FROM events;
SELECT count(*), sum(n) FROM events_jan;
SELECT count(*), sum(n) FROM events_feb;
SELECT count(*), sum(n) FROM events_feb_few;
SELECT count(*) FROM ONLY events;
SELECT count(*) FROM ONLY events_jan;
--! 3
--! 12
SELECT at, id, note FROM events WHERE tenant = $1 ORDER BY id;
--! 3
--! 12
SELECT at, id, note FROM events_feb_rest WHERE tenant = $1 ORDER BY id;
SELECT * FROM events ORDER BY at DESC, id LIMIT 7 OFFSET 2;
SELECT * FROM events_jan ORDER BY id LIMIT 5;
SELECT tenant, count(*) FROM events GROUP BY tenant ORDER BY tenant;
SELECT note, count(*), avg(n) FROM events_feb GROUP BY note ORDER BY note;
SELECT at, count(*) FROM events WHERE at BETWEEN '2020-01-25' AND '2020-02-05' GROUP BY at ORDER BY at;
SELECT t.name, e.at, e.id FROM tenants t JOIN events e ON e.tenant = t.id WHERE e.n = 3 ORDER BY e.id;
SELECT e.id, m.mark FROM events e LEFT JOIN marks m ON m.tenant = e.tenant AND m.at = e.at AND m.event = e.id ORDER BY e.id LIMIT 30;
SELECT j.tenant, j.id, f.id FROM events_jan j JOIN events_feb f USING (tenant) WHERE j.n = f.n ORDER BY 1, 2, 3 LIMIT 30;
SELECT a.id, b.id FROM events_jan a JOIN events_feb b ON a.n = b.n AND a.note = b.note ORDER BY 1, 2 LIMIT 40;
SELECT count(*) FROM events e JOIN calendar c USING (at) WHERE c.is_holiday;
SELECT t.id FROM tenants t WHERE NOT EXISTS (SELECT FROM events_feb_few e WHERE e.tenant = t.id) ORDER BY 1;
SELECT id, rank() OVER (PARTITION BY tenant ORDER BY at, id) FROM events ORDER BY id LIMIT 20;
SELECT id, rank() OVER (ORDER BY at, id) FROM events_jan ORDER BY id LIMIT 20;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM events;
SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM events_feb;
WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT r.n, count(e.id) FROM r LEFT JOIN events e ON e.n = r.n GROUP BY r.n ORDER BY r.n;
SELECT * FROM january ORDER BY id LIMIT 5;
SELECT tenant, sum(n) FROM counts GROUP BY tenant ORDER BY tenant;
SELECT id FROM events_jan UNION SELECT id FROM events_feb ORDER BY 1 LIMIT 9;
SELECT region, sum(v) FROM slices GROUP BY region ORDER BY region;
SELECT * FROM slices_0 WHERE tenant = 4 ORDER BY region;
SELECT s.region, e.id FROM slices s JOIN events e ON e.tenant = s.tenant WHERE s.v > 60 ORDER BY 1, 2 LIMIT 30;
--! any order
SELECT tenant, at, id FROM events WHERE at = '2020-01-08' FOR UPDATE;
--! any order
SELECT DISTINCT tenant FROM events_feb;
COPY events TO STDOUT;
COPY events_feb TO STDOUT;
--! any order
COPY events_jan (tenant, id) TO STDOUT WITH (FORMAT csv);
--! any order
COPY (SELECT id FROM events WHERE n = 4) TO STDOUT;
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT id FROM events ORDER BY id;
FETCH 3 FROM c;
DELETE FROM events WHERE tenant = 5;
FETCH 3 FROM c;
SELECT count(*) FROM events;
ROLLBACK;
--! end
