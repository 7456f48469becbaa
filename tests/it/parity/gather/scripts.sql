-- Settings of the client reach its own statement, not the transport.
--! script
SET datestyle = 'SQL, DMY';
SET timezone = 'Asia/Kolkata';
SET intervalstyle = 'sql_standard';
SET extra_float_digits = 0;
SET bytea_output = 'escape';
SELECT max(seen), min(born), max(span), max(score), sum(score) FROM people p JOIN posts o ON o.person_id = p.id WHERE p.id % 10 <> 0 AND p.id % 11 <> 0;
SELECT id, seen, born, score FROM people WHERE age > (SELECT avg(age) FROM people) ORDER BY id;
SELECT raw, total, during FROM shop.orders WHERE total < (SELECT avg(total) FROM shop.orders) ORDER BY id;
SELECT count(*) FROM people WHERE born < '03/04/1993' AND EXISTS (SELECT 1 FROM posts WHERE at > '02/01/2024');
SELECT current_setting('datestyle'), current_setting('extra_float_digits'), count(*) FROM people;
SELECT x.at, x.f, p.id FROM (SELECT tag, max(at::text) AS at, min((words / 7.0::float8)::text) AS f, count(*) AS n FROM posts GROUP BY tag) x JOIN people p ON p.id = x.n ORDER BY 1, 2, 3;
SELECT x.span, p.id FROM (SELECT person_id, max(span)::text AS span FROM posts GROUP BY person_id) x JOIN people p ON p.boss = x.person_id ORDER BY 1, 2;
SHOW datestyle;
SHOW client_encoding;
SHOW lc_monetary;
--! end
-- Intervals are read back as they are printed, whatever the style.
--! script
SET intervalstyle = 'iso_8601';
SELECT x.span, p.id FROM (SELECT person_id, max(n * interval '1 day 2 hours' - span)::text AS span FROM posts GROUP BY person_id) x JOIN people p ON p.boss = x.person_id ORDER BY 1, 2;
SELECT o.span - interval '-1 2:03:04', p.id FROM posts o JOIN people p ON p.id % 7 = o.n WHERE o.span IN (SELECT max(span) - interval '0' FROM posts GROUP BY tag) ORDER BY 1, 2;
BEGIN;
UPDATE posts SET span = n * interval '1 day 2 hours' - span - interval '3 mons' WHERE stars > 3;
UPDATE posts SET span = (SELECT max(b.span) FROM posts b WHERE b.tag = posts.tag), at = at + (SELECT min(b.span) FROM posts b) WHERE words > 50;
DELETE FROM posts WHERE span = (SELECT min(b.span) FROM posts b);
SELECT person_id, n, at, span FROM posts ORDER BY 1, 2;
SELECT p.id, o.span FROM people p JOIN posts o ON o.span = (SELECT max(b.span) FROM posts b WHERE b.words = p.age) ORDER BY 1, 2;
ROLLBACK;
--! end
--! script
SET intervalstyle = 'sql_standard';
SELECT x.span, p.id FROM (SELECT person_id, max(n * interval '1 day 2 hours' - span)::text AS span FROM posts GROUP BY person_id) x JOIN people p ON p.boss = x.person_id ORDER BY 1, 2;
SELECT o.span - interval '-1 2:03:04', p.id FROM posts o JOIN people p ON p.id % 7 = o.n WHERE o.span IN (SELECT max(span) - interval '0' FROM posts GROUP BY tag) ORDER BY 1, 2;
BEGIN;
UPDATE posts SET span = n * interval '1 day 2 hours' - span - interval '3 mons' WHERE stars > 3;
UPDATE posts SET span = (SELECT max(b.span) FROM posts b WHERE b.tag = posts.tag), at = at + (SELECT min(b.span) FROM posts b) WHERE words > 50;
DELETE FROM posts WHERE span = (SELECT min(b.span) FROM posts b);
SELECT person_id, n, at, span FROM posts ORDER BY 1, 2;
SELECT p.id, o.span FROM people p JOIN posts o ON o.span = (SELECT max(b.span) FROM posts b WHERE b.words = p.age) ORDER BY 1, 2;
ROLLBACK;
--! end
--! script
SET intervalstyle = 'postgres_verbose';
SELECT x.span, p.id FROM (SELECT person_id, max(n * interval '1 day 2 hours' - span)::text AS span FROM posts GROUP BY person_id) x JOIN people p ON p.boss = x.person_id ORDER BY 1, 2;
SELECT o.span - interval '-1 2:03:04', p.id FROM posts o JOIN people p ON p.id % 7 = o.n WHERE o.span IN (SELECT max(span) - interval '0' FROM posts GROUP BY tag) ORDER BY 1, 2;
BEGIN;
UPDATE posts SET span = n * interval '1 day 2 hours' - span - interval '3 mons' WHERE stars > 3;
UPDATE posts SET span = (SELECT max(b.span) FROM posts b WHERE b.tag = posts.tag), at = at + (SELECT min(b.span) FROM posts b) WHERE words > 50;
DELETE FROM posts WHERE span = (SELECT min(b.span) FROM posts b);
SELECT person_id, n, at, span FROM posts ORDER BY 1, 2;
SELECT p.id, o.span FROM people p JOIN posts o ON o.span = (SELECT max(b.span) FROM posts b WHERE b.words = p.age) ORDER BY 1, 2;
ROLLBACK;
--! end
-- Types of users before PostgreSQL's in the path: columns keep their own.
--! script
CREATE DOMAIN shop.text AS varchar(3);
CREATE DOMAIN shop.date AS pg_catalog.date CHECK (VALUE > '2300-01-01');
SET search_path = shop, public, pg_catalog;
SELECT count(*), max(o.title), min(p.born) FROM public.people p JOIN posts o ON o.words % 7 = p.id % 5;
SELECT p.id, p.name, p.born, p.tags FROM public.people p WHERE p.age > (SELECT avg(age) FROM public.people) ORDER BY p.id;
RESET search_path;
DROP DOMAIN shop.text, shop.date;
--! end
--! script
SET array_nulls = off;
SELECT tags, '{NULL}'::text[] FROM people WHERE age = (SELECT max(age) FROM people) ORDER BY id;
SELECT count(*) FROM people WHERE tags[2] IS NULL;
--! end
--! script
SET search_path = shop, public;
SELECT count(*), max(nick) FROM people;
SELECT count(*) FROM people a JOIN public.people b ON b.id = a.id;
SELECT count(*) FROM orders o JOIN items i ON i.order_id = o.person_id;
SELECT x.n, p.id FROM (SELECT nick, count(*) AS n FROM people GROUP BY nick) x JOIN public.people p ON p.id = x.n ORDER BY 1, 2;
SET search_path = public, pg_temp;
SELECT x.n, p.id FROM (SELECT level, count(*) AS n FROM people GROUP BY level) x JOIN shop.people p ON p.id = x.n + 20 ORDER BY 1, 2;
SELECT count(*), max(level) FROM people;
SELECT * FROM by_level ORDER BY level;
SET search_path = '';
SELECT count(*) FROM public.people;
SELECT count(*) FROM people;
SELECT * FROM public.by_level ORDER BY level;
--! end
-- Transactions.
--! script
BEGIN;
SELECT count(*) FROM people;
SELECT name FROM people WHERE id = 5;
SELECT count(*) FROM people p JOIN shop.orders o ON o.person_id = p.id;
SAVEPOINT a;
SELECT sum(1 / (age - age)) FROM people;
ROLLBACK TO a;
SELECT count(*) FROM posts;
SELECT x.level, p.id FROM (SELECT level, sum(1 / (id - 3)) AS n FROM people GROUP BY level) x JOIN people p ON p.id = x.n + 4;
ROLLBACK TO a;
SELECT x.n, p.id FROM (SELECT level, count(*) AS n FROM people GROUP BY level) x JOIN people p ON p.id = x.n ORDER BY 1, 2;
SELECT count(*), nothing FROM people;
SELECT 1;
ROLLBACK;
SELECT count(*) FROM posts;
--! end
--! script
BEGIN READ ONLY;
SELECT count(*), max(level) FROM people;
SELECT count(*) FROM people p JOIN notes n ON n.person_id = p.id;
COMMIT;
SET default_transaction_read_only = on;
SELECT count(*), max(level) FROM people;
SELECT string_agg(name, ',' ORDER BY name, id) FROM people;
--! end
--! script
BEGIN;
SELECT count(*) FROM people;
SELECT count(*), max(level), now() IS NOT NULL, current_date = now()::date AS same, now() FROM people GROUP BY now() HAVING false;
SELECT p.id, now() - transaction_timestamp() AS nothing, p.seen < now() FROM people p JOIN posts o ON o.words = p.age ORDER BY p.id, o.n;
SELECT count(*), max(level), 'today'::date FROM people;
ROLLBACK;
--! end
--! script
BEGIN ISOLATION LEVEL REPEATABLE READ;
--! refused
SELECT count(*), max(level) FROM people;
ROLLBACK;
--! end
--! script
BEGIN;
CREATE TABLE made (id int);
SELECT count(*) FROM people, made;
ROLLBACK;
--! end
--! script
CREATE TEMP TABLE mine (id int);
INSERT INTO mine VALUES (1), (2);
SELECT count(*) FROM mine;
SELECT count(*) FROM people, mine;
SELECT count(*) FROM people;
CREATE TEMP TABLE people (id int);
SELECT count(*) FROM people;
SELECT count(*) FROM public.people;
--! end
-- The transaction's own writes are seen.
--! script
BEGIN;
UPDATE people SET age = 99, name = E'tab\there\\' WHERE id = 5;
SELECT count(*), max(age), max(name COLLATE "C") FROM people;
INSERT INTO posts (person_id, n, title, stars, tag, words) VALUES (5, 50, NULL, 9, 'own', 7);
SELECT x.n, p.id, p.age FROM (SELECT level, count(*) AS n FROM people WHERE age > 40 GROUP BY level) x JOIN people p ON p.id = x.n ORDER BY 1, 2;
SELECT p.id, p.name, o.n, o.title, o.doubled FROM people p JOIN posts o ON o.person_id = p.id WHERE p.age > (SELECT avg(age) FROM people) ORDER BY 1, 3;
SELECT count(*) FROM people p JOIN notes n ON n.person_id = p.id;
DELETE FROM posts WHERE person_id = 5;
SELECT count(*), (SELECT count(*) FROM posts) FROM people;
SAVEPOINT a;
DELETE FROM people WHERE id = 5;
SELECT count(*), max(age) FROM people;
ROLLBACK TO a;
SELECT count(*), max(age) FROM people;
SELECT sum(1 / (age - age)) FROM people;
ROLLBACK TO a;
SELECT max(age), max(person_id) FROM people, posts;
SELECT DISTINCT name FROM adults ORDER BY name;
COMMIT;
SELECT count(*), max(age) FROM people;
SELECT count(*) FROM posts;
--! end
-- On the home shard too, on which tables that are not distributed are.
--! script
BEGIN;
INSERT INTO notes VALUES (100, 7, 'own'), (101, 8, NULL);
SELECT n.body, p.name FROM notes n JOIN people p ON p.id = n.person_id ORDER BY n.id;
UPDATE notes SET body = 'changed' WHERE id = 1;
SELECT n.body, p.id FROM notes n RIGHT JOIN people p ON p.id = n.person_id ORDER BY p.id, n.id;
SELECT count(*), max(body) FROM note_bodies, people;
SELECT b.body, r.bonus, count(*) FROM notes b, ranks r, people p WHERE p.level = r.level AND b.person_id = p.id GROUP BY 1, 2 ORDER BY 1, 2;
SELECT count(*) FROM events e JOIN people p ON p.id = e.id;
SELECT count(*) FROM notes;
LOCK TABLE notes IN ACCESS EXCLUSIVE MODE;
SELECT count(*) FROM notes, people;
ROLLBACK;
SELECT count(*) FROM notes, people;
BEGIN;
INSERT INTO notes VALUES (100, 7, 'own');
--! refused
SELECT note_count(), count(*) FROM people;
ROLLBACK;
--! end
--! script
BEGIN;
UPDATE shop.orders SET total = 0 WHERE id = 7;
INSERT INTO shop.items VALUES (7, 77, 'sku1', 1000);
SELECT sum(total), (SELECT sum(amount) FROM shop.items), (SELECT count(*) FROM people) FROM shop.orders;
SELECT o.id, i.n, o.note, o.price, o.moods FROM shop.orders o LEFT JOIN shop.items i ON i.amount = o.id + 993 ORDER BY 1, 2;
SELECT sum(amount) FROM shop.items GROUP BY sku ORDER BY 1;
ROLLBACK;
SELECT sum(total), (SELECT sum(amount) FROM shop.items) FROM shop.orders;
--! end
-- Written on several shards.
--! script
BEGIN;
UPDATE people SET age = age + 100 WHERE id IN (1, 2, 3, 4, 5, 6, 7, 8);
SELECT count(*), sum(p.age), max(q.age) FROM people p LEFT JOIN people q ON q.boss = p.id;
INSERT INTO notes VALUES (200, 3, 'own');
DELETE FROM posts WHERE person_id IN (2, 4, 6, 8, 10);
SELECT p.age, n.body, o.title FROM people p JOIN posts o ON o.stars = p.id JOIN notes n ON n.person_id = p.id ORDER BY 1, 2, 3;
SELECT level, count(*) FROM adults GROUP BY ROLLUP (level) ORDER BY 1, 2;
ROLLBACK;
SELECT count(*), sum(p.age), max(q.age) FROM people p LEFT JOIN people q ON q.boss = p.id;
--! end
-- Prepared in SQL.
--! script
PREPARE older AS SELECT count(*), max(p.name COLLATE "C") FROM people p JOIN shop.orders o ON o.person_id = p.id WHERE p.age > $1;
EXECUTE older(20);
EXECUTE older('20');
EXECUTE older(NULL);
EXECUTE older(10 + 10);
EXECUTE older('x');
EXECUTE older();
PREPARE named(text, level) AS SELECT p.id, o.total FROM people p, shop.orders o WHERE p.name = $1 AND p.level IS DISTINCT FROM $2 AND o.person_id = p.id ORDER BY 1, 2;
EXECUTE named('ada', 'low');
EXECUTE named('it''s \ nobody', NULL);
BEGIN;
UPDATE people SET age = 1 WHERE id = 6;
EXECUTE older(20);
ROLLBACK;
EXECUTE older(20);
--! refused
EXECUTE older((random() * 10)::int);
--! end
-- Several statements in one text.
--! script
--! simple
SELECT 1; SELECT count(*) FROM people; SELECT max(total) FROM shop.orders WHERE paid;
SELECT count(*) FROM people; SELECT count(*), nothing FROM people; SELECT 1;
SELECT 'é'; SELECT sum(é) FROM people;
--! end
-- Rights.
--! script
--! runs
SET ROLE parity_reader;
SELECT count(*), max(name) FROM people;
SELECT p.id, q.id FROM people p JOIN people q ON q.age = p.age AND q.id > p.id ORDER BY 1, 2;
SELECT count(*), max(email) FROM people;
SELECT x.level, x.n, o.n FROM (SELECT level, count(*) AS n FROM people GROUP BY level) x JOIN posts o ON o.words = x.n ORDER BY 1, 2, 3;
SELECT x.boss, o.n FROM (SELECT boss, count(*) AS n FROM people GROUP BY boss) x JOIN posts o ON o.words = x.n ORDER BY 1, 2;
SELECT * FROM people ORDER BY -id;
SELECT count(*) FROM secrets;
SELECT max(best), count(*) FROM post_counts;
SELECT owner, count(*) FROM open_secrets GROUP BY owner ORDER BY owner;
SELECT count(*) FROM shop.orders;
SELECT sku, sum(amount) FROM shop.items GROUP BY sku ORDER BY sku;
--! runs
RESET ROLE;
SELECT count(*) FROM secrets;
--! end
-- Timeouts.
--! script
SET statement_timeout = '2h';
SELECT count(*), max(level) FROM people;
--! end
-- Tables that are made of a query's rows are tables of the home shard.
--! script
CREATE TABLE made AS SELECT p.id, p.name, p.age, p.level, p.home, p.tags, p.doc, p.seen, p.score, o.total, o.note, o.raw, o.ref FROM people p LEFT JOIN shop.orders o ON o.person_id = p.id;
SELECT * FROM made ORDER BY id, total;
SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 'made'::regclass AND attnum > 0 ORDER BY attnum;
SELECT m.id, count(*) FROM made m JOIN posts o ON o.words = m.age GROUP BY m.id ORDER BY m.id;
CREATE TABLE made AS SELECT id FROM people;
CREATE TABLE IF NOT EXISTS made AS SELECT id FROM people;
CREATE TABLE IF NOT EXISTS made_too (a, b) AS SELECT level, count(*) FROM people GROUP BY level WITH DATA;
SELECT * FROM made_too ORDER BY a;
SELECT id, born, worth INTO made_three FROM people WHERE id < 9;
SELECT * FROM made_three ORDER BY id;
CREATE TABLE shop.made AS TABLE people WITH NO DATA;
SELECT count(*) FROM shop.made;
CREATE TABLE made_four AS WITH x AS (SELECT 1 AS one) SELECT x.one, max(r.bonus) AS bonus FROM x, ranks r GROUP BY x.one;
SELECT * FROM made_four;
CREATE TABLE made_five AS VALUES (1, 'a'), (2, 'b');
SELECT * FROM made_five ORDER BY 1;
CREATE TABLE made_six AS SELECT * FROM nobody;
SELECT * FROM made_six;
CREATE TABLE made_seven AS SELECT n.body, p.name FROM notes n JOIN people p ON p.id = n.person_id;
SELECT * FROM made_seven ORDER BY 1;
CREATE TABLE bad AS SELECT nothing FROM people;
CREATE TABLE bad AS SELECT 1 / (id - id) AS x FROM people;
CREATE TABLE bad AS SELECT id, id FROM people;
CREATE TABLE nowhere.bad AS SELECT id FROM people;
SELECT count(*) FROM bad;
--! refused
CREATE TABLE bad AS SELECT id, random() AS r, nextval('nothing') FROM people;
BEGIN;
CREATE MATERIALIZED VIEW kept AS SELECT count(*) FROM people;
SELECT * FROM kept;
ROLLBACK;
DROP TABLE made, made_too, made_three, shop.made, made_four, made_five, made_six, made_seven;
--! end
--! script
BEGIN;
CREATE TABLE made AS SELECT id, name FROM people WHERE id < 20;
INSERT INTO made VALUES (1000, 'own');
SELECT count(*), max(id) FROM made;
ROLLBACK;
SELECT count(*) FROM made;
BEGIN;
UPDATE people SET age = 1 WHERE id = 6;
CREATE TABLE made AS SELECT level, sum(age) AS age FROM people GROUP BY level;
SELECT * FROM made ORDER BY level;
COMMIT;
SELECT * FROM made ORDER BY level;
DROP TABLE made;
UPDATE people SET age = 10 + 6 * 7 % 60 WHERE id = 6;
BEGIN;
SAVEPOINT a;
CREATE TABLE made AS SELECT 1 / (id - id) AS x FROM people;
ROLLBACK TO a;
SELECT count(*) FROM people;
ROLLBACK;
--! end
--! script
CREATE TEMP TABLE mine AS SELECT level, count(*) AS n FROM people GROUP BY level;
SELECT * FROM mine ORDER BY level;
CREATE TEMP TABLE mine AS SELECT id FROM people;
CREATE TEMP TABLE IF NOT EXISTS mine AS SELECT id FROM people;
SELECT id, name INTO TEMP people FROM people WHERE id < 4;
SELECT * FROM people ORDER BY id;
DROP TABLE people;
CREATE TEMP TABLE none AS SELECT * FROM people WITH NO DATA;
SELECT count(*) FROM none;
BEGIN;
CREATE TEMP TABLE brief ON COMMIT DROP AS SELECT max(id) AS id FROM people;
SELECT * FROM brief;
COMMIT;
SELECT * FROM brief;
--! end
-- The declaration of an xml value is not part of what it prints.
--! script
INSERT INTO papers VALUES (1, '<?xml version="1.0"?><a>1</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>1</f>'), (2, '<?xml version="1.0"?><a>2</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>2</f>'), (3, '<?xml version="1.0"?><a>3</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>3</f>'), (4, '<?xml version="1.0"?><a>4</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>4</f>'), (5, '<?xml version="1.0"?><a>5</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>5</f>'), (6, '<?xml version="1.0"?><a>6</a>', ARRAY['<?xml version="1.0"?><b/>', NULL, '<c d="e">&lt;</c>']::xml[], '<?xml version="1.0" standalone="yes"?><f>6</f>');
SELECT p.id, p.body::text, p.pages::text[], p.front::text, p.body FROM papers p JOIN papers q ON q.id = p.id + 1 ORDER BY p.id;
SELECT xmlagg(body ORDER BY id)::text FROM papers;
SELECT string_agg(x.t, ',' ORDER BY x.id) FROM (SELECT p.id, p.front::text AS t FROM papers p, papers q WHERE p.id = q.id - 1) x;
DELETE FROM papers WHERE id > 3;
BEGIN;
UPDATE papers SET body = '<?xml version="1.0"?><new/>' WHERE id <> 2;
SELECT p.id, p.body::text, p.pages::text[], p.front::text, p.body FROM papers p JOIN papers q ON q.id = p.id + 1 ORDER BY p.id;
SELECT xmlagg(body ORDER BY id)::text FROM papers;
SELECT string_agg(x.t, ',' ORDER BY x.id) FROM (SELECT p.id, p.front::text AS t FROM papers p, papers q WHERE p.id = q.id - 1) x;
ROLLBACK;
DELETE FROM papers;
--! end
-- Materialized views of rows of several shards.
--! script
CREATE MATERIALIZED VIEW kept AS SELECT level, count(*) AS n, max(name) AS last, avg(score) AS score FROM people GROUP BY level;
SELECT * FROM kept ORDER BY level;
SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute WHERE attrelid = 'kept'::regclass AND attnum > 0 ORDER BY attnum;
CREATE UNIQUE INDEX kept_level ON kept (level);
BEGIN;
UPDATE people SET age = age + 1, level = NULL WHERE id = 6;
REFRESH MATERIALIZED VIEW CONCURRENTLY kept;
SELECT * FROM kept ORDER BY level;
SAVEPOINT a;
DELETE FROM notes;
DELETE FROM people WHERE id BETWEEN 20 AND 30;
REFRESH MATERIALIZED VIEW kept;
SELECT sum(n) FROM kept;
ROLLBACK TO a;
SELECT sum(n) FROM kept;
ROLLBACK;
SELECT * FROM kept ORDER BY level;
REFRESH MATERIALIZED VIEW kept;
SELECT k.n, p.name FROM kept k JOIN people p ON p.level = k.level ORDER BY p.name, p.id LIMIT 9;
CREATE MATERIALIZED VIEW kept_too (a, b) AS SELECT p.id, o.total FROM people p JOIN shop.orders o ON o.person_id = p.id WITH NO DATA;
SELECT count(*) FROM kept_too;
REFRESH MATERIALIZED VIEW CONCURRENTLY kept_too;
REFRESH MATERIALIZED VIEW kept_too;
SELECT count(*), sum(b) FROM kept_too;
REFRESH MATERIALIZED VIEW CONCURRENTLY kept_too;
REFRESH MATERIALIZED VIEW kept_too WITH NO DATA;
SELECT count(*) FROM kept_too;
INSERT INTO kept VALUES (1, 2, 'x');
CREATE MATERIALIZED VIEW kept AS SELECT id FROM people;
CREATE MATERIALIZED VIEW IF NOT EXISTS kept AS SELECT id FROM people;
CREATE MATERIALIZED VIEW bad AS SELECT 1 / (id - id) AS x FROM people;
CREATE MATERIALIZED VIEW bad AS SELECT nothing FROM people;
CREATE MATERIALIZED VIEW nowhere.bad AS SELECT id FROM people;
REFRESH MATERIALIZED VIEW people;
ALTER MATERIALIZED VIEW kept RENAME TO renamed;
BEGIN;
SAVEPOINT a;
REFRESH MATERIALIZED VIEW kept;
ROLLBACK TO a;
REFRESH MATERIALIZED VIEW renamed;
SELECT count(*) FROM renamed;
COMMIT;
BEGIN READ ONLY;
REFRESH MATERIALIZED VIEW renamed;
ROLLBACK;
ALTER MATERIALIZED VIEW renamed RENAME COLUMN last TO latest;
SELECT max(latest) FROM renamed;
CREATE MATERIALIZED VIEW upon AS SELECT sum(n) AS n FROM renamed;
SELECT * FROM upon;
CREATE MATERIALIZED VIEW upon_too AS SELECT max(n) AS n FROM renamed WITH NO DATA;
REFRESH MATERIALIZED VIEW upon_too;
SELECT * FROM upon_too;
CREATE TABLE of_it AS SELECT n FROM renamed;
SELECT sum(n) FROM of_it;
DROP TABLE of_it;
DROP MATERIALIZED VIEW upon, upon_too;
CREATE VIEW above AS SELECT n FROM renamed WHERE n > 1;
SELECT * FROM above ORDER BY n;
DROP MATERIALIZED VIEW renamed;
DROP VIEW above;
DROP MATERIALIZED VIEW renamed, kept_too;
DROP MATERIALIZED VIEW kept_too;
SELECT relname FROM pg_class WHERE relname LIKE 'kept%' ORDER BY relname;
--! end
