-- HAVING is looked at before the select list and before what sorts.
SELECT 100 / count(*) FROM m WHERE b = 77 HAVING count(*) > 0;
SELECT 100 / count(*) AS per FROM m WHERE b = 77 HAVING count(*) > 0 ORDER BY per;
SELECT avg(a) / sum(g) FROM m WHERE g = 0 HAVING sum(g) <> 0;
SELECT DISTINCT 100 / count(*) FROM m WHERE b = 77 HAVING count(*) > 0;
SELECT rank() OVER (ORDER BY 100 / count(*)) FROM m WHERE b = 77 HAVING count(*) > 0;
SELECT 100 / g, count(*) FROM m GROUP BY g HAVING count(*) > 1000;
SELECT g, count(*) FROM m GROUP BY g HAVING count(*) > 1000 ORDER BY 100 / g;
SELECT 100 / (a % 3), count(*) FROM m GROUP BY a % 3 HAVING count(*) > 1000;
SELECT g, sum(100 / g) FROM m GROUP BY g HAVING g <> 0 ORDER BY g;
SELECT g, sum(100 / g) FROM m GROUP BY g HAVING g <> 0 AND count(*) > 1 ORDER BY g;
SELECT g, count(*) FROM m GROUP BY g HAVING 100 / sum(g) > 0 AND g <> 0 ORDER BY g;
SELECT g, 100 / g FROM m GROUP BY g HAVING g <> 0 AND 100 / g > 0 ORDER BY g;
SELECT date_trunc('day', at), count(*) FROM t GROUP BY date_trunc('day', at) HAVING count(*) > 3 ORDER BY 1;
SELECT count(*) FROM m WHERE 100 / g > 1 HAVING false;
SELECT sum(a) FROM m WHERE 100 / g > 1 HAVING 1 > 2 AND count(*) > 0;
SELECT count(*) FROM m HAVING true;
SELECT count(*) FROM m HAVING count(*) > 5 AND 1 < 2;
--! 0 | 77
SELECT 100 / count(*) FROM m WHERE b = $2 HAVING count(*) > $1;
-- So is LIMIT 0.
SELECT 100 / count(*) FROM m WHERE b = 77 LIMIT 0;
SELECT 100 / g, count(*) FROM m GROUP BY g LIMIT 0;
SELECT 100 / g FROM m LIMIT 0;
SELECT count(*) FROM m WHERE 100 / g > 1 LIMIT 0;
SELECT DISTINCT 100 / g FROM m LIMIT 0;
SELECT 100 / g FROM m UNION SELECT 1 LIMIT 0;
--! 0
SELECT 100 / g, count(*) FROM m GROUP BY g LIMIT $1;
-- What a branch that is not taken is computed of is not computed.
SELECT CASE WHEN count(*) > 0 THEN 100 / count(*) ELSE -1 END FROM m WHERE b = 77;
SELECT coalesce(max(a), CASE WHEN count(*) > 0 THEN 1 / count(*) ELSE 0 END) FROM m WHERE b = 77;
SELECT CASE WHEN sum(g) IS NULL THEN 0 ELSE 100 / (sum(g) - sum(g)) END FROM m WHERE b = 77;
SELECT g, CASE WHEN g > 0 THEN sum(a) / g ELSE 0 END FROM m GROUP BY g HAVING count(*) > 2 ORDER BY g;
SELECT 1 / n FROM (SELECT count(*) AS n FROM m WHERE b = 77) x WHERE n > 0;
SELECT CASE WHEN k > 999 THEN 100 / (SELECT count(*) FROM m WHERE b = 77) ELSE k END FROM t ORDER BY k LIMIT 3;
-- Values that are found before a write are not computed with before there is a row.
INSERT INTO home1 (id, v) SELECT 700, avg(a) / sum(a) FROM h WHERE a = 0 HAVING sum(a) <> 0;
INSERT INTO home1 (id, v) SELECT 700, 100 / count(*) FROM h WHERE a = 0 LIMIT 0;
UPDATE t SET g = CASE WHEN g > 100 THEN 100 / (SELECT count(*)::int FROM o WHERE x > 999) ELSE 3 END WHERE k < 9;
UPDATE t SET g = 100 / (SELECT count(*)::int FROM o WHERE x > 999) WHERE g > 999;
UPDATE home1 SET v = 100 / (SELECT count(*) FROM o WHERE x > 999) WHERE id > 999;
UPDATE ref SET prio = CASE WHEN id > 999 THEN 1 / (SELECT count(*)::int FROM o WHERE x > 999) ELSE prio + 1 END;
UPDATE ref SET prio = (SELECT sum(x) * 100000000 FROM o) WHERE id > 999;
UPDATE t SET (g, n) = (SELECT min(x), sum(x) * 1.5 FROM o) WHERE k = 5;
UPDATE t SET (g, n) = (SELECT sum(x) * 100000000, 1 FROM o) WHERE g > 999;
UPDATE t SET g = 100 / s.n FROM (SELECT count(*)::int AS n FROM o WHERE x > 999) s WHERE s.n > 0;
UPDATE t SET g = CASE WHEN s.n IS NULL THEN 1 / (s.n - s.n) ELSE 1 END FROM (SELECT x AS n FROM o WHERE x > 999) s WHERE s.n > 0;
WITH s AS (SELECT count(*)::int AS n FROM o WHERE x > 999) UPDATE home1 SET v = 100 / s.n FROM s WHERE s.n > 0;
DELETE FROM t WHERE g > 999 AND 100 / (SELECT count(*) FROM o WHERE x > 999) > 1;
DELETE FROM t WHERE k > 999 AND g = 5 / (ARRAY(SELECT count(*)::int FROM o WHERE x > 999))[1];
DELETE FROM t WHERE k = (SELECT min(x) FROM o);
DELETE FROM t WHERE k = (SELECT min(x) FROM o) + 3;
DELETE FROM t WHERE (k, g) = (SELECT x, x % 5 FROM o WHERE x = 7);
DELETE FROM t WHERE k < 9 AND g = ANY (ARRAY(SELECT x FROM o WHERE x < 3));
