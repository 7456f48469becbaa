-- A condition that tells equal values apart is about rows where PostgreSQL may evaluate it before it groups: in HAVING, ...
SELECT b, count(*) FROM m GROUP BY b HAVING b::text = '1.0';
SELECT count(*), sum(a) FROM m GROUP BY b HAVING scale(b) = 2 ORDER BY 2;
SELECT b, count(*) FROM m GROUP BY b HAVING b::text = '1.0' AND count(*) > 3;
SELECT b, count(*) FROM m GROUP BY b HAVING (scale(b) = 2 AND count(*) > 3) AND b > 0 ORDER BY b;
SELECT trunc(b), count(*) FROM m GROUP BY b HAVING scale(b) BETWEEN 1 AND 2 AND count(*) > 3 AND CASE WHEN b > 1 AND b < 9 THEN scale(b) = 2 ELSE true END;
SELECT b, count(*) FROM m GROUP BY b HAVING NOT (scale(b) = 2 OR count(*) < 3) AND scale(b) = 1;
SELECT b FROM m GROUP BY b HAVING (b::text = '1.0' AND count(*) > 1) OR (b::text = '1.0' AND count(*) > 2);
SELECT b, g, count(*) FROM m GROUP BY b, g HAVING length(b::text) = 4 AND g < 3 ORDER BY b, g;
SELECT sum(a) / count(*), b FROM m GROUP BY b HAVING scale(b) = 1 AND sum(a) > 10 ORDER BY b;
SELECT iv, count(*) FROM m GROUP BY iv HAVING extract(day FROM iv) = 30;
SELECT iv, count(*) FROM m GROUP BY iv HAVING date_part('day', iv) = 30 AND count(*) > 1;
SELECT count(*) FROM m GROUP BY iv HAVING date_trunc('month', iv) = iv AND extract(month FROM iv) = 1;
SELECT j, count(*) FROM m GROUP BY j HAVING j::text LIKE '%1.00%';
SELECT f, count(*) FROM m GROUP BY f HAVING f::text = '-0';
SELECT count(*) FROM m GROUP BY p HAVING octet_length(p) = 4;
SELECT count(*) FROM m GROUP BY ci HAVING ci COLLATE "C" = 'a';
--! 1.0 | 3
SELECT b, count(*) FROM m GROUP BY b HAVING b::text = $1 AND count(*) > $2;
-- ... and above a sub-select, a view or a query of WITH.
SELECT * FROM (SELECT DISTINCT iv FROM m) x WHERE extract(day FROM iv) = 30;
SELECT * FROM (SELECT DISTINCT b FROM m) x WHERE scale(b) = 2 ORDER BY b;
SELECT * FROM (SELECT b, count(*) AS n FROM m GROUP BY b) x WHERE b::text = '1.0';
SELECT * FROM (SELECT j, sum(a) AS n FROM m GROUP BY j) x WHERE j::text LIKE '%1.00%';
SELECT * FROM (SELECT f FROM m GROUP BY f) x WHERE f::text = '-0';
WITH w AS (SELECT b, count(*) AS n FROM m GROUP BY b) SELECT * FROM w WHERE b::text = '1.0';
WITH w AS (SELECT DISTINCT iv FROM m) SELECT w.iv, count(*) FROM w JOIN h ON h.iv = w.iv WHERE extract(month FROM w.iv) = 1 GROUP BY w.iv;
SELECT * FROM (SELECT b FROM m UNION SELECT b FROM h) x WHERE b::text = '1.00';
SELECT * FROM (SELECT b FROM m INTERSECT SELECT b FROM h) x WHERE b::text = '2.50';
SELECT * FROM (SELECT DISTINCT b FROM m UNION ALL SELECT DISTINCT b FROM h) x WHERE scale(b) = 2 ORDER BY b;
SELECT * FROM (SELECT DISTINCT ON (b) b, a FROM m ORDER BY b, a) x WHERE scale(b) = 2 ORDER BY b;
SELECT * FROM (SELECT b, a, count(*) OVER (PARTITION BY b) AS n FROM m) x WHERE scale(b) = 2 ORDER BY a;
SELECT x.n, h.a FROM (SELECT b, count(*) AS n FROM m GROUP BY b) x JOIN h ON h.b = x.b WHERE scale(x.b) = 1 ORDER BY h.a;
SELECT count(*) FROM (SELECT DISTINCT k, b FROM pairs) x WHERE scale(b) = 2;
SELECT count(*) FROM (SELECT DISTINCT k, b FROM pairs) x JOIN h ON h.a = x.k + 1 WHERE scale(x.b) = 2;
SELECT count(*) FROM pair_values v JOIN h ON h.a = v.k + 1 WHERE scale(v.b) = 2;
SELECT * FROM values_of_m WHERE b::text = '1.0';
SELECT count(*) FROM m WHERE b IN (SELECT b FROM h GROUP BY b HAVING b::text = '1.0');
SELECT (SELECT count(*) FROM (SELECT DISTINCT b FROM h) x WHERE scale(x.b) = t.g) FROM t WHERE k < 5 ORDER BY k;
-- The same in writes.
DELETE FROM home1 WHERE v IN (SELECT b FROM h GROUP BY b HAVING b::text = '1.0');
DELETE FROM home1 WHERE v IN (SELECT b FROM h GROUP BY b HAVING b::text = '7.0');
DELETE FROM home1 USING (SELECT DISTINCT b FROM h) x WHERE home1.v = x.b AND x.b::text = '1.0';
DELETE FROM m USING (SELECT DISTINCT b FROM h) x WHERE m.b = x.b AND scale(x.b) = 2 AND scale(m.b) = 1;
UPDATE m SET g = 99 FROM (SELECT b, count(*) AS n FROM h GROUP BY b) x WHERE m.b = x.b AND x.b::text = '2.50' AND m.a < 30;
INSERT INTO home1 (id, v) SELECT 900, count(*) FROM (SELECT DISTINCT b FROM h) x WHERE scale(b) = 2;
INSERT INTO home1 (id, v) SELECT 900 + count(*), b FROM m GROUP BY b HAVING b::text = '1.0';
UPDATE home1 SET v = 9 WHERE EXISTS (SELECT 1 FROM (SELECT DISTINCT b FROM h) x WHERE x.b = home1.v AND scale(x.b) = 1);
DELETE FROM m USING (SELECT DISTINCT b FROM h) x WHERE m.b = x.b AND x.b > 2;
--! refused
WITH x AS (SELECT DISTINCT b FROM h) DELETE FROM m USING x WHERE m.b = x.b AND scale(x.b) = 2;
WITH x AS (SELECT DISTINCT b FROM h) DELETE FROM m USING x WHERE m.b = x.b AND x.b >= 2.5;
