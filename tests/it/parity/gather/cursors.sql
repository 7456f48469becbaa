-- Cursors over gathered rows.
--! also binary
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT p.id, p.name, o.id AS order_id FROM people p JOIN shop.orders o ON o.person_id = p.id ORDER BY p.id, o.id;
FETCH 3 FROM c;
FETCH NEXT FROM c;
MOVE 2 IN c;
FETCH 2 FROM c;
DECLARE d SCROLL CURSOR FOR SELECT level, count(*), string_agg(name, ',' ORDER BY name COLLATE "C", id) FROM people GROUP BY ROLLUP (level) ORDER BY level NULLS LAST;
FETCH ALL FROM d;
FETCH PRIOR FROM d;
FETCH FIRST FROM d;
FETCH BACKWARD 1 FROM d;
FETCH 2 FROM c;
MOVE ALL IN c;
FETCH c;
CLOSE c;
FETCH c;
ROLLBACK;
FETCH d;
--! end
-- It does not see what is written later, and sees what was written before.
--! script
BEGIN;
UPDATE people SET age = 99 WHERE id < 10;
DECLARE c CURSOR FOR SELECT p.id, p.age FROM people p WHERE p.age > (SELECT avg(age) FROM people) ORDER BY p.id;
UPDATE people SET age = 1 WHERE id < 20;
FETCH 5 FROM c;
FETCH ALL FROM c;
SELECT count(*) FROM people WHERE age = 1;
ROLLBACK;
--! end
--! script
BEGIN;
DECLARE a CURSOR FOR SELECT max(level) FROM people;
SAVEPOINT s;
DECLARE b CURSOR FOR SELECT min(level) FROM people;
FETCH b;
ROLLBACK TO s;
FETCH a;
FETCH b;
ROLLBACK TO s;
DECLARE b CURSOR FOR SELECT min(level) FROM people;
RELEASE s;
FETCH b;
CLOSE ALL;
FETCH a;
COMMIT;
--! end
--! script
BEGIN READ ONLY;
DECLARE a CURSOR FOR SELECT name FROM people ORDER BY name, id;
FETCH 4 FROM a;
FETCH 4 FROM a;
COMMIT;
DECLARE a CURSOR FOR SELECT name FROM people ORDER BY name, id;
BEGIN;
DECLARE a CURSOR FOR SELECT nobody_knows FROM people ORDER BY name, id;
ROLLBACK;
BEGIN;
DECLARE a CURSOR FOR SELECT 1 / (count(*) - count(*)) FROM people a JOIN people b ON a.age = b.age;
FETCH a;
ROLLBACK;
--! end
--! simple
--! script
BEGIN;
DECLARE c BINARY CURSOR FOR SELECT a.id, max(b.score) FROM people a JOIN people b ON a.age = b.age GROUP BY a.id ORDER BY a.id;
FETCH 3 FROM c;
COMMIT;
--! end
--! extended
--! script
BEGIN;
--! 30 | x
DECLARE c CURSOR FOR SELECT a.id, b.id, $2::text AS given FROM people a JOIN people b ON a.age = b.age WHERE a.age > $1 ORDER BY 1, 2;
FETCH 3 FROM c;
FETCH 3 FROM c;
COMMIT;
--! end
-- Kept beyond the transaction.
--! also binary
--! script
DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT p.id, p.name, o.id AS order_id FROM people p JOIN shop.orders o ON o.person_id = p.id ORDER BY p.id, o.id;
FETCH 3 FROM c;
BEGIN;
DECLARE d CURSOR WITH HOLD FOR SELECT p.id, p.age FROM people p WHERE p.age > (SELECT avg(age) FROM people) ORDER BY p.id;
DECLARE e CURSOR WITH HOLD FOR SELECT max(level), min(level) FROM people;
FETCH 3 FROM d;
COMMIT;
FETCH 3 FROM d;
FETCH e;
FETCH BACKWARD 2 FROM c;
FETCH 3 FROM c;
FETCH ALL FROM d;
CLOSE d;
FETCH 2 FROM c;
CLOSE ALL;
FETCH c;
--! end
-- The settings of the time of FETCH count.
--! script
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id, '1 day 2 hours'::interval, 0.1::float8 + 0.2, '\x01ff'::bytea FROM people ORDER BY id;
FETCH 1 FROM c;
SET IntervalStyle = 'sql_standard';
SET LOCAL extra_float_digits = 0;
FETCH 1 FROM c;
SET bytea_output = 'escape';
FETCH PRIOR FROM c;
ROLLBACK;
--! end
-- What is evaluated to gather the rows fails when they are fetched.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT p.id FROM people p WHERE p.age > (SELECT avg(1 / (q.id - q.id)) FROM people q) ORDER BY p.id;
SELECT count(*) FROM people;
CLOSE c;
DECLARE c CURSOR FOR SELECT p.id, o.id FROM people p JOIN shop.orders o ON o.person_id = p.id AND o.id IN (SELECT 1 / (n - n) FROM posts) ORDER BY 1, 2;
SAVEPOINT s;
FETCH 1 FROM c;
SELECT 1;
ROLLBACK TO s;
FETCH 1 FROM c;
ROLLBACK TO s;
SELECT count(*) FROM people;
COMMIT;
--! end
-- Groups that are sorted by what the proxy cannot sort.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT level, count(*) FROM people GROUP BY level ORDER BY level;
FETCH 2 FROM c;
FETCH ALL FROM c;
CLOSE c;
DECLARE c CURSOR FOR SELECT state, count(*) FROM shop.orders GROUP BY state ORDER BY state DESC;
FETCH 1 FROM c;
COMMIT;
--! end
