-- A temporary table beside rows of several shards: filled by COPY, joined either way, asked for in every form.
--! also binary
--! script
CREATE TEMP TABLE ids (id int, note text);
COPY ids FROM STDIN;
3	three
17	seventeen
17	again
99	nobody
\N	null
8	\N
\.
SELECT p.id, p.name, i.note FROM people p JOIN ids i USING (id) ORDER BY p.id, i.note;
SELECT p.id, i.id, i.note FROM people p LEFT JOIN ids i ON i.id = p.id WHERE p.id < 20 ORDER BY 1, 3;
SELECT p.id, i.id, i.note, p.level FROM people p RIGHT JOIN ids i ON i.id = p.id ORDER BY 2, 3;
SELECT p.id, i.id, i.note FROM people p FULL JOIN ids i ON i.id = p.id ORDER BY 1, 2, 3;
SELECT i.id, p.age, i.note FROM ids i LEFT JOIN people p ON p.id = i.id AND p.age > 30 ORDER BY 1, 3;
SELECT count(*), sum(o.total) FROM shop.orders o, ids WHERE o.person_id = ids.id;
SELECT id, name FROM people WHERE id IN (SELECT id FROM ids) ORDER BY id;
SELECT id FROM people WHERE id NOT IN (SELECT id FROM ids) ORDER BY id;
SELECT id FROM people WHERE id NOT IN (SELECT id FROM ids WHERE id IS NOT NULL) ORDER BY id;
SELECT id FROM people p WHERE EXISTS (SELECT FROM ids i WHERE i.id = p.id) ORDER BY id;
SELECT id FROM people p WHERE NOT EXISTS (SELECT FROM ids i WHERE i.id = p.id AND i.note IS NOT NULL) ORDER BY id;
SELECT id FROM ids i WHERE NOT EXISTS (SELECT FROM people p WHERE p.id = i.id) ORDER BY id;
SELECT id, note FROM ids WHERE id IN (SELECT person_id FROM posts) ORDER BY 1, 2;
SELECT id, (SELECT count(*) FROM posts o WHERE o.person_id = ids.id) AS posts FROM ids ORDER BY id, note;
SELECT p.level, count(*), count(i.id), string_agg(i.note, ',' ORDER BY i.note) FROM people p LEFT JOIN ids i USING (id) GROUP BY p.level ORDER BY p.level;
SELECT id FROM people INTERSECT SELECT id FROM ids ORDER BY 1;
SELECT id FROM people EXCEPT SELECT id FROM ids ORDER BY 1;
SELECT id FROM ids EXCEPT ALL SELECT id FROM people ORDER BY 1;
SELECT id, name FROM people WHERE id < 5 UNION ALL SELECT id, note FROM ids ORDER BY 1, 2;
WITH x AS (SELECT DISTINCT id FROM ids), y AS (SELECT p.* FROM people p JOIN x USING (id)) SELECT y.id, o.id AS order_id FROM y LEFT JOIN shop.orders o ON o.person_id = y.id ORDER BY 1, 2;
SELECT p.id, x.note FROM people p CROSS JOIN LATERAL (SELECT note FROM ids i WHERE i.id <= p.id ORDER BY i.id DESC, note LIMIT 1) x WHERE p.id < 12 ORDER BY 1;
SELECT i.*, p.tags, p.doc, p.home, p.level, p.seen FROM ids AS i (key, why) JOIN people p ON p.id = i.key ORDER BY i.key, i.why;
SELECT pg_temp.ids.note, people.id FROM pg_temp.ids JOIN people ON people.id = pg_temp.ids.id ORDER BY 2, 1;
SELECT count(*) FROM people, ONLY ids WHERE people.id = ids.id;
SELECT max(p.age) FROM people p WHERE p.id = ANY (ARRAY(SELECT id FROM ids));
SELECT p.id FROM people p JOIN ids i ON i.id = p.id AND p.id = 17;
SELECT p.id, i.note FROM people p JOIN ids i ON i.id = p.id WHERE i.note LIKE 't%' ORDER BY 1;
SELECT p.name, n.body, i.note FROM people p JOIN notes n ON n.person_id = p.id JOIN ids i ON i.id = p.id ORDER BY n.id, i.note;
SELECT r.bonus, count(*) FROM ranks r, people p, ids i WHERE r.level = p.level AND i.id = p.id GROUP BY 1 ORDER BY 1;
SELECT s.sku, count(*) FROM skus s JOIN shop.items t USING (sku) JOIN ids i ON i.id = t.order_id GROUP BY s.sku ORDER BY 1;
SELECT p.id, p.nothing FROM people p JOIN ids USING (id);
SELECT p.id, 1 / (i.id - 17) FROM people p JOIN ids i USING (id) ORDER BY 1;
SELECT count(i), row_to_json(max(i.note)::text) IS NULL FROM people p LEFT JOIN ids i USING (id) GROUP BY 2;
--! refused
SELECT i FROM people p JOIN ids i USING (id);
--! refused
SELECT p.id, NULL::ids FROM people p JOIN ids i USING (id);
--! refused
SELECT p.id FROM people p JOIN ids i USING (id) WHERE 'ids'::regclass IS NOT NULL;
--! refused
SELECT p.id, i.ctid FROM people p JOIN ids i USING (id);
--! end
-- What is done with such a table besides.
--! script
CREATE TEMP TABLE ids (id int, note text);
CREATE INDEX ids_id ON ids (id);
CREATE UNIQUE INDEX ON ids (note);
INSERT INTO ids SELECT g, 'n' || g FROM generate_series(1, 30) g;
ANALYZE ids;
ANALYZE ids (id);
VACUUM ids;
VACUUM ANALYZE ids;
COMMENT ON TABLE ids IS 'mine';
LOCK TABLE ids;
REINDEX TABLE ids;
CLUSTER ids USING ids_id;
COMMENT ON COLUMN ids.note IS 'mine';
GRANT SELECT ON ids TO parity_reader;
--! runs
SET ROLE parity_reader;
SELECT p.id, p.name, note FROM people p JOIN ids USING (id) ORDER BY p.id LIMIT 3;
SELECT p.id, p.email, note FROM people p JOIN ids USING (id);
--! runs
RESET ROLE;
REVOKE ALL ON ids FROM parity_reader;
SELECT * FROM ids_id;
DROP INDEX ids_id;
BEGIN;
ANALYZE ids;
LOCK TABLE ids IN ACCESS EXCLUSIVE MODE;
SELECT count(*) FROM people JOIN ids USING (id);
TRUNCATE ids;
SELECT count(*) FROM people JOIN ids USING (id);
ROLLBACK;
SELECT count(*) FROM people JOIN ids USING (id);
--! end
-- Several statements in one text, which are one transaction.
--! script
--! simple
CREATE TEMP TABLE ids (id int); INSERT INTO ids VALUES (1), (2); SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1;
INSERT INTO ids VALUES (3); SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1; DELETE FROM ids WHERE id = 1;
SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1; ANALYZE ids; SELECT count(*) FROM people;
CREATE TEMP TABLE brief ON COMMIT DROP AS SELECT 3 AS id; SELECT p.id, p.age FROM people p JOIN brief USING (id);
SELECT p.id, p.age FROM people p JOIN brief USING (id);
BEGIN; CREATE TEMP TABLE brief (id int) ON COMMIT DROP; INSERT INTO brief VALUES (5); SELECT p.id, p.age FROM people p JOIN brief USING (id); COMMIT; SELECT 1;
SELECT p.id, p.age FROM people p JOIN brief USING (id);
UPDATE people SET age = 99 WHERE id = 2; SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1; SELECT 1 / 0;
SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1; DROP TABLE ids; SELECT count(*) FROM people;
SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1;
--! end
-- Names that hide it, and that are odd; what locks rows.
--! script
CREATE TEMP TABLE ids AS SELECT 5 AS id;
CREATE TEMP TABLE "Odd ""T" ("A b" int, "select" text);
INSERT INTO "Odd ""T" VALUES (4, 'x'), (6, 'y');
WITH ids AS (SELECT 7 AS id) SELECT p.id, p.name FROM people p JOIN ids USING (id);
WITH ids AS (SELECT id + 1 AS id FROM ids) SELECT p.id, p.name FROM people p JOIN ids USING (id);
WITH RECURSIVE up AS (SELECT id FROM ids UNION SELECT p.boss FROM up JOIN people p ON p.id = up.id) SELECT p.id, p.name FROM up JOIN people p USING (id) ORDER BY 1;
SELECT o."A b", o."select", p.age FROM "Odd ""T" o JOIN people p ON p.id = o."A b" ORDER BY 1;
SELECT "Odd ""T"."select", count(*) FROM "Odd ""T", people WHERE id < "A b" GROUP BY 1 ORDER BY 1;
SELECT ids.* FROM (SELECT id FROM people WHERE age > 60) ids ORDER BY 1;
SELECT x.id FROM people x WHERE x.id IN (SELECT ids.id FROM ids, people ids2 WHERE ids2.id = x.id);
TABLE ids UNION ALL SELECT id FROM people WHERE id < 3 ORDER BY 1;
SELECT p.id FROM people p WHERE p.id IN (TABLE ids);
--! refused
SELECT p.id FROM people p JOIN ids USING (id) FOR UPDATE OF p;
--! end
-- Parameters, as values of either side.
--! script
CREATE TEMP TABLE ids AS SELECT g AS id, g % 3 AS part FROM generate_series(1, 30, 4) g;
--! 1 | 20
--! 0 | 40
--! NULL | 40
SELECT p.id, p.age + $2 FROM people p JOIN ids USING (id) WHERE ids.part = $1 AND p.age < $2 ORDER BY 1;
--! 5
--! 17
SELECT i.part, count(p.id) FROM ids i LEFT JOIN people p ON p.id = i.id AND p.id > $1 GROUP BY 1 ORDER BY 1;
--! end
-- Views over sharded tables, of each kind.
--! script
CREATE TEMP TABLE ids (id int PRIMARY KEY, level level);
INSERT INTO ids SELECT g, CASE WHEN g % 2 = 0 THEN 'low'::level END FROM generate_series(1, 36, 5) g;
SELECT a.id, a.name, i.level FROM adults a JOIN ids i USING (id) ORDER BY a.id;
SELECT b.level, b.n, count(i.id) FROM by_level b LEFT JOIN ids i USING (level) GROUP BY 1, 2 ORDER BY 1;
SELECT n.* FROM newest n WHERE n.person_id IN (SELECT id FROM ids) ORDER BY 1, 2;
SELECT c.person_id, c.posts FROM ids JOIN post_counts c ON c.person_id = ids.id ORDER BY 1;
SELECT x.name, i.id FROM noted x JOIN people p USING (name) JOIN ids i ON i.id = p.id ORDER BY 1, 2;
-- The primary key decides what may stand beside groups.
SELECT i.id, i.level, count(o.id) FROM ids i LEFT JOIN shop.orders o ON o.person_id = i.id GROUP BY i.id ORDER BY i.id;
SELECT p.id, p.name, max(i.level) FROM people p JOIN ids i ON i.id >= p.id GROUP BY p.id ORDER BY p.id;
ALTER TABLE ids DROP CONSTRAINT ids_pkey;
SELECT i.id, i.level, count(o.id) FROM ids i LEFT JOIN shop.orders o ON o.person_id = i.id GROUP BY i.id ORDER BY i.id;
ALTER TABLE ids ADD COLUMN extra text COLLATE "C" DEFAULT 'x', DROP COLUMN level;
SELECT i.*, p.name FROM ids i JOIN people p USING (id) ORDER BY i.id;
ALTER TABLE ids RENAME COLUMN extra TO more;
ALTER TABLE ids ALTER COLUMN id TYPE bigint;
SELECT i.*, p.name FROM ids i JOIN people p USING (id) ORDER BY i.id;
ALTER TABLE ids RENAME TO others;
SELECT i.*, p.name FROM others i JOIN people p USING (id) ORDER BY i.id;
SELECT i.*, p.name FROM ids i JOIN people p USING (id) ORDER BY i.id;
--! end
-- Two of them, one the parent of another, and one in parts.
--! script
CREATE TEMP TABLE ids (id int);
CREATE TEMP TABLE words (word text COLLATE "en-x-icu", id int);
INSERT INTO ids VALUES (1), (5), (9);
INSERT INTO words VALUES ('ada', 1), ('Zoë', 2), ('zoe', 9), (NULL, 5);
SELECT p.id, w.word FROM people p JOIN ids i USING (id) LEFT JOIN words w ON w.word = p.name ORDER BY 1, 2;
SELECT i.id, w.word, p.name, p.name < w.word FROM ids i JOIN words w USING (id) JOIN people p USING (id) ORDER BY 1;
SELECT a.id, b.id, count(p.id) FROM ids a JOIN ids b ON b.id > a.id LEFT JOIN people p ON p.id BETWEEN a.id AND b.id GROUP BY 1, 2 ORDER BY 1, 2;
CREATE TEMP TABLE more (extra int) INHERITS (ids);
INSERT INTO more VALUES (7, 70), (12, 120);
SELECT p.id, p.age FROM people p JOIN ids USING (id) ORDER BY 1;
SELECT p.id, p.age FROM people p JOIN ONLY ids USING (id) ORDER BY 1;
SELECT p.id, (SELECT count(*) FROM ONLY ids), count(*) FROM people p JOIN ids i ON i.id < p.id WHERE p.id < 13 GROUP BY p.id ORDER BY 1;
CREATE TEMP TABLE parted (id int, v text) PARTITION BY RANGE (id);
CREATE TEMP TABLE parted_low PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TEMP TABLE parted_high PARTITION OF parted FOR VALUES FROM (10) TO (100);
INSERT INTO parted VALUES (3, 'a'), (13, 'b');
SELECT p.id, v FROM parted JOIN people p USING (id) ORDER BY 1;
SELECT p.id, v FROM parted_high JOIN people p USING (id) ORDER BY 1;
--! refused
CREATE TEMP TABLE heir () INHERITS (notes);
--! refused
CREATE TEMP TABLE heir () INHERITS (people);
--! end
-- It hides the table of its name, but where the path or the text says otherwise.
--! script
CREATE TEMP TABLE people (id int, name text);
INSERT INTO people VALUES (1, 'mine'), (2, 'own');
SELECT a.id, a.name, b.name FROM people a JOIN public.people b USING (id) ORDER BY 1;
SELECT people.name, o.id FROM people LEFT JOIN shop.orders o ON o.person_id = people.id ORDER BY 2;
SELECT people.name, o.id FROM pg_temp.people LEFT JOIN shop.orders o ON o.person_id = people.id ORDER BY 2;
SELECT pg_temp.people.name, count(o.id) FROM people LEFT JOIN shop.orders o ON o.person_id = pg_temp.people.id GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM adults JOIN people USING (id);
SELECT people.name, p.level FROM people JOIN shop.people s ON s.id > people.id JOIN public.people p ON p.id = s.id ORDER BY 1, 2;
--! refused
SELECT o.id, ROW(1, 'x')::people FROM people JOIN shop.orders o ON o.person_id = people.id;
SET search_path = public, pg_temp;
SELECT people.name, o.id FROM people LEFT JOIN shop.orders o ON o.person_id = people.id ORDER BY 2, 1;
SELECT people.name, o.id FROM pg_temp.people LEFT JOIN shop.orders o ON o.person_id = people.id ORDER BY 2, 1;
SET search_path = pg_temp, shop, public;
SELECT people.name, o.id FROM people LEFT JOIN orders o ON o.person_id = people.id ORDER BY 2, 1;
SET search_path = '';
SELECT people.name, o.id FROM people LEFT JOIN shop.orders o ON o.person_id = people.id ORDER BY 2, 1;
RESET search_path;
DROP TABLE people;
SELECT count(*), max(name) FROM people;
--! end
-- Columns of every kind: numbered, generated, of types of users, without a value.
--! script
CREATE TEMP TABLE kinds (n serial, k int GENERATED ALWAYS AS IDENTITY, id int, twice int GENERATED ALWAYS AS (id * 2) STORED, level level, home place, stars rating, tags text[], moods level[], doc jsonb, raw bytea, at timestamptz, span interval, f float8, total numeric(9,3), price money, note char(6), word varchar(9) COLLATE "C", "Odd ""Name" text, page xml, during tsrange, CHECK (id > 0));
INSERT INTO kinds (id, level, home, stars, tags, moods, doc, raw, at, span, f, total, price, note, word, "Odd ""Name", page, during) VALUES (3, 'high', ROW('a, "b"', 4), 7, '{NULL,"NULL",x}', '{low,NULL}', '{"a": [1.0]}', '\x00ff', '2024-03-30 22:30:00+00', '1 mon -3 days', 0.1, 1.5, 12.5, 'ab', E'tab\t\\.', E'line\nend', '<?xml version="1.0"?><a/>', '[2024-01-01,)'), (8, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '-infinity', NULL, 'NaN', NULL, NULL, NULL, '\N', '', NULL, 'empty');
SELECT k.n, k.k, k.id, k.twice, k.level, k.home, k.stars, k.tags, k.moods, k.doc, k.raw, k.at, k.span, k.f, k.total, k.price, k.note, k.word, k."Odd ""Name", k.page::text, k.during, p.name FROM kinds k JOIN people p USING (id) ORDER BY k.id;
SELECT k.*, p.id FROM kinds k LEFT JOIN people p ON p.level = k.level AND p.age > 40 ORDER BY k.n, p.id;
SELECT k.word, p.name FROM kinds k JOIN people p ON p.id = k.twice ORDER BY k.word;
SET datestyle = 'SQL, DMY';
SET intervalstyle = 'sql_standard';
SET extra_float_digits = 0;
SET bytea_output = 'escape';
SELECT k.at, k.span, k.f, k.raw, k.price, p.seen FROM kinds k JOIN people p USING (id) ORDER BY k.id;
INSERT INTO kinds (id) SELECT g FROM generate_series(20, 30) g;
SELECT k.n, k.k, p.id FROM kinds k JOIN people p USING (id) ORDER BY 1;
CREATE TEMP TABLE nested (id int, whole kinds);
--! refused
SELECT p.id FROM nested JOIN people p USING (id);
CREATE TEMP TABLE no_columns ();
--! refused
SELECT count(*) FROM no_columns, people;
CREATE TEMP VIEW seen AS SELECT id FROM kinds;
SELECT count(*) FROM seen;
--! refused
SELECT count(*) FROM seen JOIN people USING (id);
CREATE TEMP SEQUENCE counter;
--! refused
SELECT count(*) FROM counter, people;
ALTER TABLE kinds ENABLE ROW LEVEL SECURITY;
--! refused
SELECT count(*) FROM kinds JOIN people USING (id);
--! end
-- Made by queries, over several shards too.
--! script
CREATE TEMP TABLE best AS SELECT person_id, max(stars) AS stars, count(*) AS n FROM posts GROUP BY person_id;
SELECT p.id, b.stars, b.n FROM people p JOIN best b ON b.person_id = p.id ORDER BY 1;
SELECT id, name INTO TEMP chosen FROM people WHERE age > 40;
SELECT c.id, c.name = p.name, p.age FROM chosen c JOIN people p USING (id) ORDER BY 1;
SELECT count(*) FROM people WHERE id NOT IN (SELECT id FROM chosen);
CREATE TEMP TABLE IF NOT EXISTS best AS SELECT 1 AS nothing;
SELECT count(*), max(b.stars) FROM best b JOIN chosen c ON c.id = b.person_id JOIN shop.orders o ON o.person_id = c.id;
CREATE TEMP TABLE both_of AS SELECT c.id, o.total FROM chosen c JOIN shop.orders o ON o.person_id = c.id;
SELECT count(*), sum(total) FROM both_of;
SELECT b.id, p.name FROM both_of b JOIN people p USING (id) ORDER BY 1, 2;
CREATE TABLE lasting (id int, name text, level level);
INSERT INTO lasting SELECT c.id, c.name, p.level FROM chosen c JOIN people p USING (id);
SELECT * FROM lasting ORDER BY id;
DROP TABLE lasting;
--! end
-- In a transaction: rows that are not committed yet, savepoints, the table's own creation taken back.
--! script
CREATE TEMP TABLE ids (id int);
BEGIN;
INSERT INTO ids VALUES (1), (2);
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
SAVEPOINT a;
DELETE FROM ids WHERE id = 1;
INSERT INTO ids VALUES (30);
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
ROLLBACK TO a;
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
CREATE TEMP TABLE ids2 AS SELECT id + 1 AS id FROM ids;
SELECT p.id, i.id FROM people p JOIN ids i ON i.id < p.id JOIN ids2 USING (id) WHERE p.id < 6 ORDER BY 1, 2;
ALTER TABLE ids ADD COLUMN more int DEFAULT 4;
SELECT p.id, i.* FROM people p JOIN ids i ON i.id = p.id ORDER BY 1;
ROLLBACK TO a;
SELECT p.id, i.* FROM people p JOIN ids i ON i.id = p.id ORDER BY 1;
SELECT count(*) FROM people JOIN ids2 USING (id);
ROLLBACK TO a;
CREATE TEMP TABLE people (id int);
SELECT count(*) FROM people JOIN ids USING (id);
SELECT count(*) FROM people JOIN shop.orders o ON o.person_id = people.id;
ROLLBACK TO a;
SELECT count(*) FROM people JOIN ids USING (id);
SELECT 1 / (p.id - p.id) FROM people p JOIN ids USING (id);
SELECT 1;
ROLLBACK TO a;
SELECT count(*) FROM people JOIN ids USING (id);
COMMIT;
SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY 1;
SELECT 1 / (p.id - p.id) FROM people p JOIN ids USING (id);
SELECT count(*) FROM people JOIN ids USING (id);
--! end
-- Beside what the transaction has written on several shards and at home, and before anything else of it.
--! script
CREATE TEMP TABLE ids (id int, note text);
INSERT INTO ids SELECT g, 'n' || g FROM generate_series(1, 9) g;
BEGIN;
SELECT p.id, i.note FROM people p JOIN ids i USING (id) WHERE p.age > 40 ORDER BY 1;
UPDATE people SET age = age + 100 WHERE id IN (1, 2, 3, 4, 5);
SELECT p.id, p.age, i.note FROM people p JOIN ids i USING (id) ORDER BY 1;
INSERT INTO notes VALUES (300, 4, 'own');
SELECT p.id, n.body, i.note FROM people p JOIN notes n ON n.person_id = p.id JOIN ids i ON i.id = p.id ORDER BY 1, 2;
INSERT INTO ids VALUES (20, 'late');
SELECT p.id, p.age, i.note FROM people p JOIN ids i USING (id) ORDER BY 1;
DELETE FROM posts WHERE person_id IN (1, 2, 3);
SELECT i.id, count(o.n) FROM ids i LEFT JOIN posts o ON o.person_id = i.id GROUP BY 1 ORDER BY 1;
ROLLBACK;
SELECT p.id, p.age, i.note FROM people p JOIN ids i USING (id) ORDER BY 1;
BEGIN READ ONLY;
SELECT p.id, i.note FROM people p JOIN ids i USING (id) ORDER BY 1;
INSERT INTO ids VALUES (21, 'in a transaction that reads');
SELECT p.id, i.note FROM people p JOIN ids i USING (id) WHERE p.id > 8 ORDER BY 1;
COMMIT;
SET default_transaction_read_only = on;
SELECT p.id, i.note FROM people p JOIN ids i USING (id) WHERE p.id > 8 ORDER BY 1;
BEGIN;
SELECT now() = transaction_timestamp(), count(*) FROM people p JOIN ids i USING (id) WHERE p.seen < now();
COMMIT;
--! end
-- Committed and gone, committed and empty.
--! script
BEGIN;
CREATE TEMP TABLE brief ON COMMIT DROP AS SELECT 4 AS id;
SELECT p.name, b.id FROM people p JOIN brief b USING (id);
COMMIT;
SELECT p.name, b.id FROM people p JOIN brief b USING (id);
CREATE TEMP TABLE emptied (id int) ON COMMIT DELETE ROWS;
INSERT INTO emptied VALUES (4);
SELECT count(*) FROM people p JOIN emptied USING (id);
BEGIN;
INSERT INTO emptied VALUES (4), (5);
SELECT count(*) FROM people p JOIN emptied USING (id);
COMMIT;
SELECT count(*) FROM people p JOIN emptied USING (id);
BEGIN;
CREATE TEMP TABLE brief (id int);
INSERT INTO brief VALUES (6);
SELECT p.name, b.id FROM people p JOIN brief b USING (id);
ROLLBACK;
SELECT p.name, b.id FROM people p JOIN brief b USING (id);
CREATE TEMP TABLE brief (id int, other text);
INSERT INTO brief VALUES (7, 'x');
SELECT p.name, b.* FROM people p JOIN brief b USING (id);
DISCARD TEMP;
SELECT p.name, b.* FROM people p JOIN brief b USING (id);
CREATE TEMP TABLE brief (id bigint);
INSERT INTO brief VALUES (8), (5000000000);
SELECT p.name, b.* FROM people p RIGHT JOIN brief b USING (id) ORDER BY b.id;
TRUNCATE brief;
SELECT count(*) FROM people p JOIN brief b USING (id);
DISCARD ALL;
SELECT count(*) FROM people p JOIN brief b USING (id);
--! end
-- Prepared before the table is there, while it is there, and used when it is another one.
--! script
PREPARE named AS SELECT count(*), max(p.name COLLATE "C") FROM people p JOIN shop.orders o ON o.person_id = p.id;
EXECUTE named;
CREATE TEMP TABLE ids (id int);
INSERT INTO ids VALUES (1), (2), (3);
EXECUTE named;
PREPARE mine(int) AS SELECT p.id, p.name FROM people p JOIN ids USING (id) WHERE p.id >= $1 ORDER BY 1;
EXECUTE mine(2);
INSERT INTO ids VALUES (30);
EXECUTE mine(2);
BEGIN;
DELETE FROM ids WHERE id = 3;
EXECUTE mine(2);
ROLLBACK;
EXECUTE mine(2);
DROP TABLE ids;
CREATE TEMP TABLE ids (id int);
INSERT INTO ids VALUES (9);
EXECUTE mine(2);
DEALLOCATE mine;
PREPARE people_of AS SELECT p.id, p.age FROM ids JOIN people p USING (id);
EXECUTE people_of;
--! end
-- Cursors, COPY and EXPLAIN.
--! also binary
--! script
CREATE TEMP TABLE ids AS SELECT g AS id FROM generate_series(2, 20, 3) g;
BEGIN;
DECLARE c CURSOR FOR SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY p.id;
FETCH 2 FROM c;
DELETE FROM ids;
FETCH 2 FROM c;
DECLARE d SCROLL CURSOR FOR SELECT i.id, p.id FROM people p LEFT JOIN ids i USING (id) ORDER BY p.id;
FETCH 3 FROM d;
FETCH PRIOR FROM d;
MOVE ALL IN c;
FETCH BACKWARD 1 FROM d;
ROLLBACK;
DECLARE h CURSOR WITH HOLD FOR SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY p.id;
DELETE FROM ids WHERE id > 4;
FETCH 3 FROM h;
CLOSE h;
--! total order
COPY (SELECT p.id, p.name FROM people p JOIN ids USING (id) ORDER BY p.id) TO STDOUT;
--! total order
COPY (SELECT i.id, count(o.n) FROM ids i LEFT JOIN posts o ON o.person_id = i.id GROUP BY 1 ORDER BY 1) TO STDOUT (FORMAT csv, HEADER);
--! end
--! script
CREATE TEMP TABLE ids AS SELECT g AS id FROM generate_series(2, 20, 3) g;
--! runs
EXPLAIN SELECT p.id FROM people p JOIN ids USING (id);
--! runs
EXPLAIN ANALYZE SELECT p.id FROM people p JOIN ids USING (id);
BEGIN;
INSERT INTO ids VALUES (1);
--! runs
EXPLAIN (ANALYZE, FORMAT JSON) SELECT p.id FROM people p JOIN ids USING (id);
SELECT count(*) FROM people p JOIN ids USING (id);
COMMIT;
SELECT count(*) FROM people p JOIN ids USING (id);
--! end
-- Functions that name one are run where it is.
--! script
CREATE FUNCTION count_ids() RETURNS bigint LANGUAGE plpgsql STABLE AS 'BEGIN RETURN (SELECT count(*) FROM ids); END';
CREATE FUNCTION count_twice() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count_ids() * 2';
CREATE TABLE ids (id int);
CREATE VIEW counted AS SELECT id, count_ids() AS n FROM people;
CREATE VIEW counted_notes AS SELECT id, count_twice() AS n FROM notes;
CREATE TEMP TABLE ids (id int);
INSERT INTO ids VALUES (1), (2);
SELECT count_ids(), count_twice();
SELECT count_ids(), count(*) FROM ids;
SELECT count(*), count_ids() FROM notes GROUP BY 2;
--! refused
SELECT count(*), count_ids() FROM people GROUP BY 2;
--! refused
SELECT count(*) FROM people JOIN ids USING (id) WHERE count_twice() > 2;
SELECT * FROM counted_notes ORDER BY id;
--! refused
SELECT count(*) FROM counted;
--! refused
SELECT count(*), max(n) FROM counted_notes n JOIN people p USING (id);
DROP TABLE ids;
SELECT count_ids(), count_twice();
SELECT count(*), count_ids() FROM people GROUP BY 2;
DROP TABLE ids;
DROP VIEW counted, counted_notes;
DROP FUNCTION count_ids, count_twice;
--! end
-- Rights on both sides.
--! script
CREATE TEMP TABLE ids AS SELECT g AS id FROM generate_series(2, 20, 3) g;
--! runs
SET ROLE parity_reader;
SELECT p.id FROM people p JOIN ids USING (id) ORDER BY 1;
CREATE TEMP TABLE own AS SELECT g AS id FROM generate_series(3, 20, 3) g;
SELECT p.id, p.level FROM people p JOIN own USING (id) ORDER BY 1;
--! end
