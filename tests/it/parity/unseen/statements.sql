-- COPY and TRUNCATE do what triggers, defaults and policies do.
--! refused
COPY fed FROM STDIN;
1	5
2	6
\.
--! refused
COPY fed_view FROM STDIN;
3	5
\.
--! refused
COPY filled (id) FROM STDIN;
1
\.
COPY logged FROM STDIN;
1
\.
COPY h FROM STDIN WHERE id > 50;
7	1
60	5
\.
--! refused
COPY h FROM STDIN WHERE m < count_of_t();
60	5
\.
--! refused
TRUNCATE emptied;
--! refused
TRUNCATE emptied, emptied_part;
--! refused
TRUNCATE emptied CASCADE;
TRUNCATE logged;
TRUNCATE h;
--! refused
COPY guarded TO STDOUT;
--! refused
COPY guarded_copies TO STDOUT;
--! any order
COPY r TO STDOUT;
-- An aggregate belongs to the query of its arguments, its order and its filter.
--! refused
SELECT (SELECT count(*) FILTER (WHERE t.m > 1)) FROM t;
--! refused
SELECT (SELECT string_agg('a', ',' ORDER BY t.m)) FROM t;
--! refused
SELECT (SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY t.m)) FROM t;
SELECT (SELECT count((SELECT t.m FROM r LIMIT 1))) FROM t;
--! refused
SELECT (WITH c AS (SELECT count(t.m) AS n) SELECT n FROM c) FROM t;
--! refused
SELECT (WITH RECURSIVE c AS (SELECT count(t.m) AS n UNION ALL SELECT n FROM c WHERE false) SELECT n FROM c) FROM t;
SELECT (SELECT sum(m) FROM generate_series(1, 1) g) FROM t;
--! refused
SELECT x.k, y.n FROM w AS x, LATERAL (SELECT (SELECT sum(m) FROM generate_series(1, 1) g) AS n FROM t WHERE t.k = x.k) y;
--! any order
SELECT k, (SELECT sum(m) FROM jsonb_to_recordset('[{"m": 1}, {"m": 2}]') AS j (m int)) FROM t;
--! refused
SELECT (SELECT count(t) FROM r WHERE id = 1) FROM t;
--! refused
SELECT (SELECT count(t.*)) FROM t;
--! any order
SELECT k, (SELECT count(*) FILTER (WHERE w.m > t.m) FROM w WHERE w.k = t.k) FROM t;
--! any order
SELECT k, (SELECT string_agg('a' || t.m, ',' ORDER BY w.n) FROM w WHERE w.k = t.k) FROM t;
--! any order
SELECT k, (SELECT sum(g + m) FROM generate_series(1, 2) g) FROM t;
--! any order
SELECT k, (SELECT count((SELECT r.name FROM r WHERE r.id = w.m)) FROM w WHERE w.k = t.k) FROM t;
--! any order
SELECT k, (WITH c AS (SELECT max(w.m) AS top FROM w WHERE w.k = t.k) SELECT top FROM c) FROM t;
--! any order
SELECT k, (WITH c AS (SELECT w.m FROM w WHERE w.m = t.m) SELECT count(*) FROM c) FROM t;
--! any order
SELECT k, (WITH RECURSIVE c AS (SELECT t.m AS n UNION ALL SELECT n + 1 FROM c WHERE n < 6) SELECT count(*) FROM c) FROM t;
--! any order
SELECT k, (WITH c AS (SELECT w.m FROM w WHERE w.k = t.k), d AS (SELECT m + t.m AS y FROM c) SELECT (SELECT max(y) FROM d WHERE y > t.m) FROM c LIMIT 1) IS NULL FROM t;
-- RETURNING sees what the write has made.
--! refused
UPDATE t SET m = 2 WHERE k = 1 AND m = 1 RETURNING (SELECT count(*) FROM w WHERE w.k = t.m);
--! refused
UPDATE h SET m = 2 WHERE id = 1 AND m = 1 RETURNING (SELECT count(*) FROM w WHERE w.k = h.m);
UPDATE t SET m = 2 WHERE k = 1 AND m = 1 RETURNING (SELECT count(*) FROM w WHERE w.k = t.k AND w.m = t.m);
UPDATE t SET m = 2 WHERE k = 1 AND m = 1 RETURNING m, (SELECT name FROM r WHERE id = t.m);
DELETE FROM t WHERE k = 1 AND m = 1 RETURNING (SELECT count(*) FROM w WHERE w.k = t.m);
--! any order
UPDATE t SET m = m + 1 FROM s WHERE s.k = t.k AND s.m > 3 RETURNING t.k, t.m, (SELECT max(w.m) FROM w WHERE w.k = s.k);
-- A materialised view is filled from the home shard's rows.
--! refused
REFRESH MATERIALIZED VIEW stored_sum;
--! refused
REFRESH MATERIALIZED VIEW stored_call;
REFRESH MATERIALIZED VIEW stored_home;
SELECT * FROM stored_home;
-- What a sub-select draws it draws once.
--! script
BEGIN;
UPDATE s SET u = (SELECT gen_random_uuid());
SELECT count(DISTINCT u) FROM s;
WITH c AS (SELECT gen_random_uuid() AS u) UPDATE s SET u = c.u FROM c;
SELECT count(DISTINCT u) FROM s;
UPDATE s SET u = c.u FROM (SELECT gen_random_uuid() AS u) c;
SELECT count(DISTINCT u) FROM s;
UPDATE s SET u = gen_random_uuid();
SELECT count(DISTINCT u) FROM s;
INSERT INTO s SELECT k + 1000, m, (SELECT gen_random_uuid()) FROM t;
SELECT count(DISTINCT u) FROM s WHERE k > 1000;
INSERT INTO s SELECT k, m, gen_random_uuid() FROM t ON CONFLICT (k) DO UPDATE SET u = excluded.u;
SELECT count(DISTINCT u) FROM s WHERE k < 1000;
ROLLBACK;
--! end
SELECT count(DISTINCT u) FROM (SELECT (SELECT gen_random_uuid()) AS u FROM t) q;
WITH c AS MATERIALIZED (SELECT gen_random_uuid() AS u) SELECT count(DISTINCT c.u) FROM t, c;
SELECT count(DISTINCT u) FROM (SELECT gen_random_uuid() AS u FROM t) q;
-- A WITH of the recursive query's own.
WITH RECURSIVE c AS (WITH z AS (SELECT 1) SELECT k, m FROM s WHERE m = 2 UNION ALL SELECT s.k, s.m FROM c JOIN s ON s.k = c.m) SELECT count(*) FROM c;
WITH RECURSIVE c AS (WITH z AS (SELECT 2 AS two) SELECT k, m, 1 AS n FROM s JOIN z ON m = two UNION ALL SELECT s.k, s.m, n + 1 FROM c JOIN s ON s.k = c.m WHERE n < 12) SELECT count(*), sum(m) FROM c;
-- Functions whose own search path is the caller's, in part.
--! refused
SELECT count_by_path(), id FROM h;
-- Sequences of the whole cluster.
--! refused
SELECT last_value FROM counted_id_seq;
--! refused
SELECT * FROM public.counted_id_seq;
-- Operators in a comparison with a sub-select.
--! refused
SELECT id FROM h WHERE id === ANY (SELECT id FROM h);
--! refused
SELECT any_in_t(id) FROM h;
SELECT id, CASE id WHEN 1 THEN 'one' END, id = ANY (SELECT id FROM h) FROM h ORDER BY id;
-- A function of a row, written as a column of it.
--! refused
SELECT total_of(id) FROM h;
--! refused
SELECT total_within(id) FROM h;
-- Triggers that set the key.
--! refused
INSERT INTO bumped VALUES (1, 1);
--! refused
INSERT INTO labelled VALUES (1, 1);
-- A trigger may change what others refer to, and so their rows, whose triggers fire.
--! refused
UPDATE parents SET note = 'two' WHERE id = 1;
-- Domains of domains.
--! refused
SELECT id::better_known FROM h;
--! refused
SELECT ARRAY[id]::all_known FROM h;
-- A table that another had hidden.
--! script
BEGIN;
SET LOCAL search_path = nearer, public;
DROP SCHEMA nearer CASCADE;
INSERT INTO hidden VALUES (1, 1), (2, 2);
ROLLBACK;
--! end
-- What ON says holds for rows that match.
--! refused
MERGE INTO w USING (SELECT min(id) AS id FROM r) q ON w.k = 3 AND w.n = 9 AND q.id IN (SELECT z.id FROM r z WHERE z.id = 3) WHEN NOT MATCHED THEN INSERT VALUES (3, 9, (SELECT o.m FROM t o WHERE o.k = q.id));
--! refused
MERGE INTO w USING (SELECT min(id) AS id FROM r) q ON w.k = 4 AND w.n = 9 AND q.id IN (SELECT z.id FROM r z WHERE z.id = 4) WHEN NOT MATCHED THEN INSERT VALUES (4, 9, (SELECT o.m FROM t o WHERE o.k = q.id));
-- A row that gets to another partition is deleted and inserted, for triggers.
UPDATE dated SET m = 7;
UPDATE dated SET m = 8 WHERE id IN (1, 2, 3, 4);
--! refused
UPDATE dated SET d = 15;
--! refused
UPDATE dated SET m = 1, d = d + 10 WHERE id IN (1, 2, 3, 4, 5);
--! refused
MERGE INTO dated USING (VALUES (1), (2), (3), (4)) v (i) ON dated.id = v.i WHEN MATCHED THEN UPDATE SET d = 16;
--! refused
UPDATE dated_fed SET d = 2;
--! refused
UPDATE dated_fed SET m = 2;
-- MERGE fires the triggers of its actions.
MERGE INTO fed USING (VALUES (1)) v (i) ON fed.id = v.i WHEN MATCHED THEN UPDATE SET m = 5;
MERGE INTO fed USING (VALUES (1)) v (i) ON fed.id = v.i WHEN MATCHED THEN DELETE;
--! refused
MERGE INTO fed USING (VALUES (1)) v (i) ON fed.id = v.i WHEN MATCHED THEN UPDATE SET m = 5 WHEN NOT MATCHED THEN INSERT VALUES (v.i, 1);
-- Triggers that touch rows of their row's key, for one row and for many.
INSERT INTO kept VALUES (1, 1, 'one');
INSERT INTO kept SELECT g, n, 'v' || g FROM generate_series(1, 12) g, generate_series(2, 3) n;
INSERT INTO kept VALUES (1, 7, 'a'), (2, 7, 'b'), (3, 7, 'c'), (4, 7, 'd'), (5, 7, 'e');
INSERT INTO kept VALUES (1, 7, 'x'), (2, 8, 'y'), (9, 8, 'z') ON CONFLICT (k, n) DO UPDATE SET v = excluded.v;
UPDATE kept SET v = v || '!' WHERE n = 7;
UPDATE kept SET v = upper(v);
UPDATE kept SET v = 'by key' WHERE k = 3 AND n = 2;
DELETE FROM kept WHERE n = 3 AND k > 5;
COPY kept (k, n, v) FROM STDIN;
20	1	copied
21	1	copied
22	1	copied
23	1	copied
\.
--! any order
SELECT k, what, n, v FROM journal;
--! any order
SELECT * FROM totals;
--! any order
SELECT * FROM kept;
BEGIN;
INSERT INTO kept VALUES (31, 1, 'gone'), (32, 1, 'gone'), (33, 1, 'gone');
SELECT count(*) FROM journal WHERE v LIKE 'gone%';
ROLLBACK;
SELECT count(*) FROM journal;
INSERT INTO told VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e');
--! any order
SELECT * FROM journal WHERE n = 0;
--! refused
INSERT INTO strays VALUES (1, 2), (2, 3), (3, 4), (4, 5);
--! refused
INSERT INTO strays VALUES (1, 2);
-- Functions that are proven, or declared, to touch the rows of the key that an argument gives.
SELECT v_of(1), v_of(1) IS NULL;
SELECT v_of(2);
SELECT v_of(3);
SELECT v_of(4), (SELECT m FROM t WHERE k = 4);
SELECT v_of(5) FROM t WHERE k = 5;
SELECT v_of(NULL);
SELECT v_of(1000);
--! any order
SELECT * FROM rows_of(6, 2);
--! any order
SELECT * FROM rows_of('7', 1) r JOIN w ON w.k = r.k AND w.n = r.n WHERE w.k = 7;
CALL put('by call', 41);
CALL put('by call', 42);
CALL put('by call', 43);
BEGIN;
CALL put('in a transaction', 44);
CALL put('in a transaction', 45);
SELECT v_of(8);
COMMIT;
--! any order
SELECT * FROM journal WHERE n = 99;
--! refused
SELECT v_of(k) FROM t;
SELECT v_of(key => 3);
SELECT sum_of(3, lowest => 2);
SELECT keep_wide(value => 'named', key => 46);
CALL put(key => 47, value => 'by name');
CALL put(value => 'by name', key => 48);
--! any order
SELECT k, what, v FROM journal WHERE v IN ('named', 'by name');
SELECT v_wide(3), v_wide(3::int), v_wide(3::smallint);
SELECT v_wide('4');
SELECT v_wide(5000000000);
SELECT v_small(5::smallint);
--! 6
SELECT v_wide($1);
SELECT keep_wide(43, 'wide');
SELECT keep_wide(5000000000, 'wide');
CALL put_back(44, 7);
CALL put_back(45, NULL);
CALL put_out(46, NULL);
--! refused
CALL put_out_first(NULL, 47);
--! any order
SELECT k, what, v FROM journal WHERE n = 97;
INSERT INTO batched VALUES (1, 1), (2, 1), (3, 1), (4, 1), (1, 2);
INSERT INTO batched VALUES (5, 1);
INSERT INTO batched SELECT g, 3 FROM generate_series(1, 8) g;
SELECT * FROM batch_totals ORDER BY k;
INSERT INTO capped VALUES (1, 'new york'), (2, 'oslo');
UPDATE capped SET name = 'san juan' WHERE id = 2;
INSERT INTO capped VALUES (2, 'la paz') ON CONFLICT (id) DO UPDATE SET name = excluded.name;
SELECT * FROM capped ORDER BY id;
INSERT INTO stamped VALUES (1, NULL);
--! refused
UPDATE stamped SET id = 2;
DELETE FROM stamped;
--! refused
SELECT v_of(7), m FROM t;
--! 3
SELECT v_of($1);
SELECT sum_of(3), sum_of(3, 2);
SELECT sum_of(4);
SELECT sum_of(5) IS NOT NULL AND EXISTS (SELECT FROM w WHERE k = 5);
SELECT v_twice(6);
SELECT v_twice(7);
SELECT keep(8, 'kept');
SELECT keep(9, 'kept');
--! 10 | kept by value
SELECT keep($1, $2);
SELECT * FROM v_given_back(9);
BEGIN;
SELECT keep(11, 'gone');
SELECT keep(12, 'gone');
SELECT v_of(11), v_of(11) = 'gone';
ROLLBACK;
--! any order
SELECT * FROM journal WHERE n = 98;
--! any order
SELECT k, v FROM t WHERE v LIKE 'kept%';
CALL forget(8);
CALL forget(9);
--! any order
SELECT * FROM journal WHERE n = 98;
--! refused
SELECT v_next(1);
--! refused
SELECT v_alias(1);
--! refused
SELECT count_by_column(1);
--! refused
SELECT v_either(1, 2);
--! refused
SELECT v_beside_home(1);
-- What one item of a list stands for is many columns, and what a name means is not what it looks like.
SELECT count(*) FROM (SELECT (w).*, k AS y FROM w) q(a, z) WHERE q.z = 3;
--! refused
SELECT count(*) FROM (SELECT (w).*, k AS y FROM w) q(a, z) JOIN t ON q.z = t.k;
SELECT z, count(*) FROM (SELECT (w).*, k AS y FROM w) q(a, z) GROUP BY z ORDER BY z;
SELECT (ROW(1, m)::two).*, k AS q FROM t ORDER BY q DESC LIMIT 2;
--! refused
SELECT (w).*, 1 FROM w ORDER BY -k, n LIMIT 5;
SELECT (ROW(k % 3, m)::two).*, count(*) FROM t GROUP BY 1, 2 ORDER BY 1, 2;
--! refused
INSERT INTO w (n, k, m) VALUES ((ROW(1, 55)::two).*, 3);
--! refused
INSERT INTO w (n, k, m) VALUES ((ROW(1, 55)::two).*, 3), ((ROW(1, 56)::two).*, 3);
INSERT INTO w (n, k, m) SELECT (ROW(1, 57)::two).*, 3;
SELECT count(*) FROM w WHERE k BETWEEN 55 AND 57;
SELECT DISTINCT ON (k) coalesce(m, 0) AS k, t.k AS z FROM t ORDER BY 1, z;
SELECT DISTINCT ON (k) k / 10 AS k FROM t ORDER BY k;
SELECT count(*) FROM (SELECT DISTINCT ON (k) k / 10 AS k FROM t) q;
SELECT count(*) FROM (SELECT DISTINCT ON (k) coalesce(m, 0) AS k, t.k AS z FROM t) q;
SELECT k FROM t ORDER BY t.*, k LIMIT 3;
SELECT k FROM w ORDER BY w.* FETCH FIRST 3 ROWS WITH TIES;
SELECT count(k) FROM t WHERE EXISTS (SELECT 1 FROM (SELECT id AS k, 9 AS k FROM r) AS s(a) WHERE k = 9);
SELECT count(k) FROM t WHERE EXISTS (SELECT 1 FROM (SELECT 8 AS k, id AS k FROM r) AS s(k, b) WHERE k = 9);
-- A write in a body is what it is: a foreign key acts after a DELETE or an UPDATE of what it refers to, a trigger on its events.
--! script
SELECT open_acct(10, 'ten') = 10;
SELECT open_acct(11, 'one');
SELECT open_acct(12, 'two');
SELECT note_acct(2, 'noted');
SELECT put_acct(3, 'put');
SELECT put_acct(14, 'put');
SELECT close_acct(1);
SELECT * FROM accts ORDER BY k;
SELECT * FROM lines ORDER BY k, n;
--! end
--! refused
VALUES (move_acct(2, 5));
--! script
SELECT fill_bin(2);
SELECT mark_bin(1);
DO $$ BEGIN INSERT INTO bins VALUES (3, 'b'); UPDATE bins SET other = 'c' WHERE id = 3; END $$;
SELECT * FROM bins ORDER BY id;
SELECT count(*) FROM t;
--! end
--! refused
VALUES (note_bin(1));
--! refused
VALUES (empty_bin(1));
--! refused
DO $$ BEGIN UPDATE bins SET note = 'c' WHERE id = 1; END $$;
-- A DO block by constant keys.
--! script
DO $$ DECLARE total bigint; line record; BEGIN
    INSERT INTO accts (k, note) VALUES (31, 'made') ON CONFLICT (k) DO UPDATE SET note = excluded.note;
    FOR line IN SELECT * FROM lines WHERE k = 3 ORDER BY n LOOP UPDATE lines SET v = line.v || '+' WHERE k = 3 AND n = line.n; END LOOP;
END $$;
DO $$ BEGIN UPDATE accts SET seen = seen + 1 WHERE k = 2; PERFORM note_acct(2, 'by a block'); DELETE FROM lines WHERE k IN (2) AND n < 0; END $$;
DO $$ BEGIN IF EXISTS (SELECT FROM accts WHERE k = '2'::int AND seen > 0) THEN UPDATE accts SET note = note || '!' WHERE k = 2; END IF; END $$;
DO $$ BEGIN UPDATE accts SET note = 'x' WHERE k = 2; RAISE EXCEPTION 'undone'; EXCEPTION WHEN raise_exception THEN NULL; END $$;
DO $$ DECLARE key int := 2; BEGIN UPDATE accts SET note = 'one of the same key' WHERE k = 2 AND k = key; END $$;
SELECT * FROM accts ORDER BY k;
SELECT * FROM lines ORDER BY k, n;
--! end
--! refused
DO $$ BEGIN UPDATE accts SET note = 'x' WHERE k IN (1, 2, 3, 4, 31); END $$;
--! refused
DO $$ DECLARE k int := 3; BEGIN UPDATE accts SET note = 'x' WHERE k = 2; END $$;
--! refused
DO $$ DECLARE key int := 2; BEGIN UPDATE accts SET note = 'x' WHERE k = key; END $$;
-- A rule counts on its event.
INSERT INTO ruled VALUES (3, 5), (4, 6);
UPDATE ruled SET m = m + 1;
--! refused
DELETE FROM ruled WHERE id = 1;
-- A call goes with the row whose key it is given, on one shard.
SELECT v_of(k) FROM t WHERE k = 3;
SELECT k, lines_of(k), lines_of(a.k) + 1 FROM accts a WHERE k = 2;
SELECT sum(lines_of(k)) FROM accts WHERE k = 3;
SELECT lines_of(l.k), v FROM accts a JOIN lines l USING (k) WHERE a.k = 2 ORDER BY n;
--! 2
SELECT lines_of(k) FROM accts WHERE k = $1;
--! refused
SELECT lines_of(k) FROM accts;
--! refused
SELECT lines_of(m) FROM t WHERE k = 3;
--! refused
WITH one AS (SELECT 1) SELECT note_acct(k, 'by row') FROM accts WHERE k = 3;
--! refused
UPDATE accts SET seen = 9 WHERE k = 3 RETURNING lines_of(k);
