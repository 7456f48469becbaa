-- Transactions on one shard.
--! script
BEGIN;
UPDATE accounts SET note = 'in a transaction' WHERE id = 5;
SELECT note FROM accounts WHERE id = 5;
COMMIT;
SELECT note FROM accounts WHERE id = 5;
--! end
--! script
BEGIN;
UPDATE accounts SET note = 'rolled back' WHERE id = 5;
ROLLBACK;
SELECT note FROM accounts WHERE id = 5;
--! end
--! script
START TRANSACTION;
INSERT INTO accounts (id, name) VALUES (300, 'x');
INSERT INTO accounts (id, name) VALUES (300, 'x');
SELECT 1;
INSERT INTO accounts (id, name) VALUES (301, 'x');
COMMIT;
SELECT count(*) FROM accounts WHERE id = 300;
--! end
--! script
BEGIN;
SELECT nothing;
ROLLBACK;
SELECT 1;
--! end
--! script
BEGIN;
SELECT 1;
BEGIN;
COMMIT;
COMMIT;
ROLLBACK;
END;
ABORT;
--! end
--! script
BEGIN;
INSERT INTO accounts (id, name) VALUES (310, 'kept');
SAVEPOINT a;
INSERT INTO accounts (id, name) VALUES (310, 'duplicate');
SELECT 1;
ROLLBACK TO a;
UPDATE accounts SET note = 'after' WHERE id = 310;
SAVEPOINT b;
UPDATE accounts SET note = 'never' WHERE id = 310;
ROLLBACK TO SAVEPOINT b;
RELEASE SAVEPOINT b;
SAVEPOINT c;
RELEASE c;
SELECT note FROM accounts WHERE id = 310;
COMMIT;
SELECT note FROM accounts WHERE id = 310;
--! end
-- What fails while it is described, checked or modelled on the home shard fails after the savepoint that the shard had not heard of.
--! script
BEGIN;
UPDATE kinds SET weight = weight;
INSERT INTO audit (id, what) VALUES (1000, 'home');
SAVEPOINT a;
INSERT INTO accounts (id, balance) SELECT id + 900, title FROM accounts JOIN books ON title = name;
ROLLBACK TO a;
UPDATE accounts SET note = 'again' WHERE id < 4;
SAVEPOINT b;
SELECT a.name || b.pages / b.title FROM accounts a JOIN books b ON b.title = a.name;
ROLLBACK TO b;
SAVEPOINT c;
COPY (SELECT id, 1 / (id - id) FROM accounts JOIN books ON title = name) TO STDOUT (DELIMITER 'ab');
ROLLBACK TO c;
SELECT what FROM audit WHERE id = 1000;
SELECT note FROM accounts WHERE id < 4 ORDER BY id;
ROLLBACK;
--! end
--! script
BEGIN;
SAVEPOINT "Mixed";
SAVEPOINT "Mixed";
SELECT 1 / 0;
ROLLBACK TO "Mixed";
ROLLBACK TO mixed;
ROLLBACK TO "Mixed";
RELEASE "Mixed";
SELECT 5;
COMMIT;
--! end
--! script
SAVEPOINT outside;
RELEASE outside;
ROLLBACK TO outside;
SELECT 1;
--! end
--! script
BEGIN;
SAVEPOINT early;
SELECT name FROM accounts WHERE id = 1;
ROLLBACK TO early;
SELECT name FROM accounts WHERE id = 2;
SELECT name FROM accounts WHERE id = 3;
RELEASE nothing;
SELECT 1;
ROLLBACK;
--! end
-- Reads on several shards in a transaction, a write on one.
--! script
BEGIN;
SELECT name FROM accounts WHERE id = 1;
SELECT name FROM accounts WHERE id = 2;
SELECT name FROM accounts WHERE id = 3;
SELECT id FROM accounts ORDER BY id LIMIT 3;
UPDATE accounts SET note = 'one' WHERE id = 3;
SELECT id, note FROM accounts WHERE id IN (2, 3, 4) ORDER BY id;
SELECT name FROM languages WHERE code = 'de';
SELECT count(*) FROM audit;
COMMIT;
--! end
--! script
BEGIN;
INSERT INTO accounts (id, name) VALUES (320, 'seen by me');
SELECT id FROM accounts WHERE id > 30 ORDER BY id;
SELECT id, name FROM accounts WHERE id = 320;
ROLLBACK;
SELECT id FROM accounts WHERE id > 30 ORDER BY id;
--! end
--! script
BEGIN;
SELECT id FROM accounts ORDER BY id LIMIT 2;
SELECT 1 / (id - 5) FROM accounts;
SELECT id FROM accounts ORDER BY id LIMIT 2;
ROLLBACK;
SELECT id FROM accounts ORDER BY id LIMIT 2;
--! end
-- Isolation levels and modes.
--! script
BEGIN ISOLATION LEVEL REPEATABLE READ;
SHOW transaction_isolation;
SELECT name FROM accounts WHERE id = 4;
UPDATE accounts SET note = 'rr' WHERE id = 4;
COMMIT;
--! end
--! script
BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE;
SHOW transaction_isolation;
SHOW transaction_read_only;
SELECT name FROM accounts WHERE id = 4;
UPDATE accounts SET note = 'ro' WHERE id = 4;
ROLLBACK;
--! end
--! script
BEGIN READ ONLY;
SELECT name FROM accounts WHERE id = 4;
INSERT INTO accounts (id, name) VALUES (330, 'x');
ROLLBACK;
BEGIN;
SET TRANSACTION READ ONLY;
DELETE FROM entries WHERE account_id = 4;
ROLLBACK;
--! end
--! script
BEGIN;
SELECT name FROM accounts WHERE id = 4;
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
ROLLBACK;
BEGIN;
SET TRANSACTION ISOLATION LEVEL SERIALIZABLE;
SHOW transaction_isolation;
COMMIT;
SHOW transaction_isolation;
--! end
--! script
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ;
SHOW default_transaction_isolation;
BEGIN;
SHOW transaction_isolation;
SELECT id FROM accounts WHERE id = 4;
COMMIT;
SET default_transaction_read_only = on;
UPDATE accounts SET note = 'x' WHERE id = 4;
UPDATE audit SET what = 'x' WHERE id = 4;
--! end
--! script
BEGIN;
SELECT 1;
COMMIT AND CHAIN;
SELECT 2;
ROLLBACK AND CHAIN;
SELECT 3;
ROLLBACK;
COMMIT AND CHAIN;
--! end
--! script
SET TRANSACTION READ ONLY;
SET LOCAL work_mem = '5MB';
SELECT 1;
--! end
-- What a session sets.
--! script
SHOW search_path;
SET search_path = sales, public;
SHOW search_path;
SELECT * FROM accounts WHERE id = 3;
SELECT * FROM accounts ORDER BY id LIMIT 2;
SELECT * FROM invoices WHERE customer = 3 ORDER BY id;
SELECT current_schema();
SET search_path TO public;
SELECT name FROM accounts WHERE id = 3;
RESET search_path;
SELECT name FROM accounts WHERE id = 3;
SET search_path = nowhere;
SELECT name FROM accounts WHERE id = 3;
SELECT name FROM public.accounts WHERE id = 3;
SET search_path = '';
SELECT name FROM accounts WHERE id = 3;
--! end
--! script
BEGIN;
SET LOCAL search_path = sales;
SELECT owner FROM accounts WHERE id = 3;
SELECT id FROM accounts ORDER BY id;
COMMIT;
SELECT name FROM accounts WHERE id = 3;
BEGIN;
SET search_path = sales;
ROLLBACK;
SELECT name FROM accounts WHERE id = 3;
--! end
--! script
SET timezone = 'Asia/Kolkata';
SHOW TimeZone;
SELECT opened FROM accounts WHERE id = 3;
SELECT opened FROM accounts WHERE id < 6 ORDER BY opened;
SELECT current_setting('timezone');
SET TIME ZONE 'UTC';
SELECT opened FROM accounts WHERE id = 3;
SET TIME ZONE -7;
SELECT opened FROM accounts WHERE id = 3;
SET TIME ZONE LOCAL;
SHOW timezone;
SET timezone = 'nowhere/at_all';
--! end
--! script
SET TIME ZONE INTERVAL '+02:00' HOUR TO MINUTE;
--! end
--! script
SET datestyle = 'German';
SELECT day FROM orders WHERE id < 3 ORDER BY day;
SELECT day FROM orders WHERE day = '2024-01-14';
SELECT day FROM orders WHERE day = '14.01.2024';
SET datestyle = 'SQL, DMY';
SELECT day FROM orders WHERE day = '14/01/2024';
SELECT d, ts, tz FROM kitchen WHERE id < 4 ORDER BY d;
SET intervalstyle = 'iso_8601';
SELECT iv FROM kitchen WHERE id = 3;
SELECT id, iv FROM kitchen WHERE id < 4 ORDER BY id;
SET bytea_output = 'escape';
SELECT by FROM kitchen WHERE id = 3;
SELECT id, by FROM kitchen WHERE id < 4 ORDER BY id;
SET extra_float_digits = 0;
SELECT f4, f8 FROM kitchen WHERE id = 3;
SELECT f4, f8 FROM kitchen WHERE id < 4 ORDER BY f8;
RESET ALL;
SELECT f4, f8, d, iv, by FROM kitchen WHERE id = 3;
--! end
--! script
SET application_name = 'parity';
SHOW application_name;
SELECT current_setting('application_name');
SET application_name TO DEFAULT;
SHOW application_name;
SET nothing_like_this = 1;
SET my.custom = 'value';
SHOW my.custom;
SELECT current_setting('my.custom'), current_setting('my.other', TRUE);
SELECT name, current_setting('my.custom') FROM accounts WHERE id = 3;
SELECT current_setting('my.other');
RESET my.custom;
SHOW my.custom;
SET work_mem = 'lots';
SET work_mem = '7MB';
SHOW work_mem;
BEGIN;
SET LOCAL work_mem = '9MB';
SHOW work_mem;
ROLLBACK;
SHOW work_mem;
SHOW nothing;
--! end
--! script
SELECT set_config('my.tenant', '7', FALSE);
SELECT current_setting('my.tenant');
SELECT id FROM accounts WHERE id = current_setting('my.tenant')::bigint AND id = 7;
BEGIN;
SELECT set_config('my.tenant', '8', TRUE);
SHOW my.tenant;
COMMIT;
SHOW my.tenant;
--! end
--! script
SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new;
SELECT current_setting('jit') AS cur, set_config('jit', 'on', false) AS new, current_setting('jit');
SHOW jit;
SELECT current_setting('app.unknown'), set_config('jit', 'off', false);
SELECT pg_catalog.current_setting('app.unknown', true), set_config('app.unknown', 'x', false), current_setting('app.unknown', true);
SHOW jit;
BEGIN;
SELECT current_setting('jit'), set_config('jit', 'off', true);
ROLLBACK;
SHOW jit;
--! end
-- As pg_dump asks for what not every server has.
--! script
SELECT set_config(name, 'view, foreign-table', false) FROM pg_settings WHERE name = 'no_such_setting';
SELECT pg_catalog.set_config(name, '77kB', false) AS was_set FROM pg_catalog.pg_settings WHERE name = 'work_mem';
SHOW work_mem;
SELECT set_config(name, 'x', false) FROM pg_settings WHERE name = 'work_mem';
SHOW work_mem;
--! refused
SELECT set_config(name, '78kB', false) FROM pg_settings WHERE name LIKE 'work_m%';
--! end
-- A limit for one statement.
--! script
WITH set_timeout AS (SELECT set_config('lock_timeout', '5000', true) AS config_val) SELECT pg_advisory_lock(7201) FROM set_timeout;
SHOW lock_timeout;
SELECT pg_advisory_unlock(7201);
BEGIN;
--! refused
WITH set_timeout AS (SELECT set_config('lock_timeout', '5000', true) AS config_val) SELECT pg_advisory_lock(7201) FROM set_timeout;
ROLLBACK;
--! refused
WITH s AS (SELECT set_config('work_mem', '1MB', true)) SELECT current_setting('work_mem') FROM s;
--! end
--! script
SET statement_timeout = '30ms';
SELECT pg_sleep(5);
SELECT 1;
SELECT id, pg_sleep(5) FROM accounts WHERE id = 1;
RESET statement_timeout;
SELECT 1;
--! end
--! script
SET client_min_messages = notice;
DO $$ BEGIN RAISE NOTICE 'told %', 1; END $$;
SET client_min_messages = warning;
SELECT 1;
--! end
--! script
SET ROLE nobody_such;
SELECT current_user, session_user;
RESET ROLE;
SHOW is_superuser;
--! end
-- DDL reaches every shard.
--! script
CREATE TABLE made (id int PRIMARY KEY, v text);
INSERT INTO made VALUES (1, 'one');
SELECT * FROM made;
ALTER TABLE made ADD COLUMN w int DEFAULT 7;
SELECT * FROM made;
CREATE INDEX made_v ON made (v);
CREATE VIEW made_view AS SELECT v FROM made;
SELECT * FROM made_view;
COMMENT ON COLUMN made.v IS 'text';
CREATE TABLE made (id int);
CREATE TABLE IF NOT EXISTS made (id int);
DROP TABLE made;
DROP TABLE made CASCADE;
DROP TABLE made;
DROP TABLE IF EXISTS made;
--! end
--! script
BEGIN;
CREATE TABLE made (id int PRIMARY KEY);
INSERT INTO made VALUES (1);
ROLLBACK;
SELECT * FROM made;
--! end
--! script
ALTER TABLE accounts ADD COLUMN extra int;
SELECT extra FROM accounts WHERE id = 1;
SELECT id, extra FROM accounts WHERE id < 3 ORDER BY id;
UPDATE accounts SET extra = 5 WHERE id = 1 RETURNING extra;
ALTER TABLE accounts DROP COLUMN extra;
SELECT extra FROM accounts WHERE id = 1;
SELECT * FROM accounts WHERE id = 1;
--! end
--! script
CREATE FUNCTION thrice(x int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT x * 3';
SELECT thrice(3);
SELECT thrice(id::int) FROM accounts WHERE id = 3;
SELECT id, thrice(id::int) FROM accounts WHERE id < 4 ORDER BY id;
DROP FUNCTION thrice(int);
SELECT thrice(3);
CREATE TYPE pair AS (a int, b text);
SELECT (1, 'x')::pair;
DROP TYPE pair;
CREATE SEQUENCE counter START 5;
SELECT nextval('counter');
SELECT currval('counter');
DROP SEQUENCE counter;
--! end
-- Serial values of home tables.
--! script
INSERT INTO audit (what) VALUES ('serial') RETURNING what;
SELECT max(what) FROM audit WHERE id > 6;
--! end
-- Cursors in a transaction.
--! script
BEGIN;
DECLARE c CURSOR FOR SELECT n FROM entries WHERE account_id = 4 ORDER BY n;
FETCH 1 FROM c;
FETCH ALL FROM c;
FETCH PRIOR FROM c;
ROLLBACK;
BEGIN;
DECLARE c SCROLL CURSOR FOR SELECT id FROM audit ORDER BY id;
FETCH 2 FROM c;
MOVE BACKWARD 1 IN c;
FETCH NEXT FROM c;
CLOSE c;
FETCH 1 FROM c;
ROLLBACK;
DECLARE outside CURSOR FOR SELECT 1;
FETCH nothing;
CLOSE nothing;
CLOSE ALL;
--! end
-- Several statements in one text.
--! simple
--! script
SELECT 1; SELECT 2;
SELECT 1; SELECT nothing; SELECT 3;
INSERT INTO accounts (id, name) VALUES (340, 'a'); SELECT name FROM accounts WHERE id = 340;
INSERT INTO accounts (id, name) VALUES (341, 'a'); SELECT 1 / 0;
SELECT count(*) FROM accounts WHERE id = 341;
BEGIN; UPDATE accounts SET note = 'm' WHERE id = 9; COMMIT; SELECT note FROM accounts WHERE id = 9;
BEGIN; UPDATE accounts SET note = 'n' WHERE id = 9; ROLLBACK; SELECT note FROM accounts WHERE id = 9;
SELECT name FROM accounts WHERE id = 1; SELECT name FROM accounts WHERE id = 2; SELECT name FROM accounts WHERE id = 3;
SELECT id FROM accounts WHERE id < 3 ORDER BY id; SELECT code FROM languages ORDER BY code; SELECT id FROM audit ORDER BY id;
SELECT 1;; SELECT 2;
;;
-- only a comment
SELECT 'a;b', $$c;d$$, ";" FROM (SELECT 1 AS ";") s; SELECT 1;
INSERT INTO audit (id, what) VALUES (400, 'x'); SELECT SYNTAX ERROR HERE; SELECT 2;
SELECT count(*) FROM audit WHERE id = 400;
SET my.two = 'x'; SHOW my.two;
--! end
-- Comments, blanks, case.
--! script
/* before */ SELECT /* inside */ name -- after
 FROM accounts /* nested /* comment */ */ WHERE id = 3;
sElEcT NAME fRoM Accounts WhErE ID=3;
SELECT name FROM accounts WHERE id=3--
;
SELECT name FROM accounts WHERE id	=	3;
SELECT name FROM accounts WHERE(id)=(3);
SELECT name FROM accounts WHERE "id"=3;
SELECT name FROM accounts WHERE id = '3'/**/;
--! end
-- Two-phase commit by the client, LISTEN, advisory locks.
--! script
LISTEN channel;
NOTIFY channel, 'payload';
UNLISTEN channel;
UNLISTEN *;
--! end
--! script
SELECT pg_advisory_lock(77);
SELECT pg_try_advisory_lock(77);
SELECT pg_advisory_unlock(77);
SELECT pg_advisory_unlock(77);
SELECT pg_advisory_unlock(77);
BEGIN;
SELECT pg_advisory_xact_lock(78);
COMMIT;
--! end
-- Temporary tables.
--! script
CREATE TEMP TABLE scratch (a int, b text);
INSERT INTO scratch VALUES (1, 'x'), (2, 'y');
SELECT * FROM scratch ORDER BY a;
UPDATE scratch SET b = 'z' WHERE a = 1 RETURNING *;
DROP TABLE scratch;
SELECT * FROM scratch;
CREATE TEMP TABLE accounts (id int);
SELECT count(*) FROM accounts;
INSERT INTO accounts VALUES (5);
SELECT * FROM accounts WHERE id = 5;
DROP TABLE accounts;
SELECT name FROM accounts WHERE id = 5;
--! end
--! script
BEGIN;
CREATE TEMP TABLE accounts (id int, name text);
INSERT INTO accounts VALUES (1, 'mine');
SELECT * FROM accounts;
ROLLBACK;
SELECT id, name FROM accounts ORDER BY id;
BEGIN;
SAVEPOINT a;
CREATE TEMP TABLE accounts ON COMMIT DROP AS SELECT 5 AS id;
SELECT * FROM accounts;
ROLLBACK TO a;
SELECT id, name FROM accounts ORDER BY id LIMIT 3;
CREATE TEMP TABLE accounts (id int) ON COMMIT DROP;
SELECT * FROM accounts;
COMMIT;
SELECT id FROM accounts ORDER BY id;
CREATE TEMP VIEW accounts AS SELECT 7 AS seven;
SELECT * FROM accounts;
ALTER TABLE pg_temp.accounts RENAME TO other;
SELECT id FROM accounts ORDER BY id;
SELECT * FROM other;
DISCARD TEMP;
SELECT * FROM other;
CREATE TEMP TABLE filled AS SELECT * FROM accounts;
CREATE TEMP TABLE full_ AS SELECT * FROM audit;
SELECT count(*) FROM full_;
DISCARD ALL;
SELECT count(*) FROM full_;
--! end
-- DISCARD and DEALLOCATE.
--! script
SET work_mem = '8MB';
DISCARD ALL;
SHOW work_mem;
DEALLOCATE ALL;
DEALLOCATE nothing;
DISCARD PLANS;
DISCARD TEMP;
BEGIN;
DISCARD ALL;
ROLLBACK;
--! end
--! script
LOCK TABLE audit IN SHARE MODE;
BEGIN;
LOCK TABLE audit IN EXCLUSIVE MODE;
SELECT count(*) FROM audit;
COMMIT;
ANALYZE audit;
VACUUM audit;
--! end
-- Several shards are written in one transaction.
--! script
BEGIN;
UPDATE accounts SET note = 'first' WHERE id = 1;
UPDATE accounts SET note = 'second' WHERE id = 2;
SAVEPOINT s;
UPDATE accounts SET note = 'all';
INSERT INTO languages VALUES ('zz', 'Last');
UPDATE accounts SET balance = CASE WHEN id = 3 THEN -5000 ELSE balance END;
ROLLBACK TO s;
SELECT note FROM accounts WHERE id IN (1, 2, 3) ORDER BY id;
DELETE FROM entries WHERE account_id = 3;
COMMIT;
SELECT note FROM accounts WHERE id IN (1, 2) ORDER BY id;
--! end
--! script
BEGIN;
UPDATE accounts SET note = 'gone';
DELETE FROM languages;
ROLLBACK;
SELECT note FROM accounts WHERE id IN (1, 2) ORDER BY id;
SELECT count(*) FROM languages;
--! end
--! script
BEGIN READ ONLY;
UPDATE accounts SET note = 'no';
ROLLBACK;
--! end
--! script
BEGIN;
INSERT INTO languages VALUES ('zz', 'Last');
SELECT count(*) FROM languages;
UPDATE kinds SET weight = 7 WHERE kind = 'fee';
COMMIT;
SELECT name FROM languages WHERE code = 'zz';
--! end
-- A distributed table that is renamed has its name again after ROLLBACK.
--! script
BEGIN;
ALTER TABLE accounts RENAME TO accounts_by_another_name;
ROLLBACK;
SELECT count(*) FROM accounts WHERE id = 5;
--! end
-- DO blocks that touch nothing but the home shard and reference tables.
--! script
DO $$ BEGIN RAISE NOTICE 'hello %', 1 + 1; END $$;
DO $$ DECLARE n int; BEGIN SELECT count(*) INTO n FROM audit; RAISE NOTICE '% rows', n; INSERT INTO audit (id, what) VALUES (900, 'done'); UPDATE audit SET what = what || '!' WHERE id = 900; END $$;
SELECT what FROM audit WHERE id = 900;
DO LANGUAGE plpgsql 'BEGIN PERFORM 1 FROM languages WHERE code = ''en''; RAISE NOTICE ''found %'', FOUND; END';
DO $$ DECLARE t text; BEGIN t := shout('x'); RAISE WARNING '%', t USING HINT = 'a hint'; END $$;
DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22012'; END $$;
BEGIN;
DO $$ BEGIN FOR i IN 901..903 LOOP INSERT INTO audit (id, what) VALUES (i, 'loop'); END LOOP; END $$;
SELECT count(*) FROM audit WHERE what = 'loop';
DO $$ BEGIN INSERT INTO audit (id, what) VALUES (901, 'again'); EXCEPTION WHEN unique_violation THEN RAISE NOTICE 'caught'; END $$;
ROLLBACK;
SELECT count(*) FROM audit WHERE what = 'loop';
--! end
--! script
DO $$ BEGIN UPDATE accounts SET note = 'x' WHERE id = -1; END $$;
--! refused
DO $$ BEGIN PERFORM * FROM active_accounts; END $$;
--! refused
DO $$ BEGIN EXECUTE 'SELECT 1'; END $$;
--! refused
DO $$ BEGIN UPDATE languages SET name = name WHERE code = 'nothing'; END $$;
--! refused
DO $$ BEGIN CREATE TEMP TABLE made (a int); END $$;
--! end
-- What a block sets is the session's on every shard.
--! script
DO $$ BEGIN PERFORM set_config('app.kept', '1', false); END $$;
SELECT id, current_setting('app.kept') FROM accounts WHERE id IN (1, 2, 3, 4) ORDER BY id;
BEGIN;
DO $$ BEGIN SET LOCAL app.kept = '2'; END $$;
SELECT id, current_setting('app.kept') FROM accounts WHERE id IN (1, 2, 3, 4) ORDER BY id;
ROLLBACK;
SELECT id, current_setting('app.kept') FROM accounts WHERE id IN (1, 2, 3, 4) ORDER BY id;
--! end
-- Several statements in one text, over several shards.
--! simple
SELECT count(*) FROM accounts; SELECT kind, sum(n) + 1 FROM entries GROUP BY kind HAVING count(*) > 3 ORDER BY kind; SELECT DISTINCT n FROM entries ORDER BY n;
--! simple
/* first */ SELECT avg(id) AS a FROM accounts /* ; */ ; SELECT id FROM accounts ORDER BY -id LIMIT 1 + 1;
--! simple
SELECT 1; SELECT avg(nothing), count(*) FROM accounts; SELECT 2;
--! script
BEGIN;
SELECT count(*), sum(balance) / count(*) FROM accounts;
SELECT kind, count(*) FROM entries GROUP BY kind ORDER BY kind;
SELECT count(*) / 0 FROM accounts;
SELECT 1;
ROLLBACK;
SELECT count(*) + 1 FROM accounts;
--! end
--! script
SET extra_float_digits = 0;
SELECT id, score FROM accounts ORDER BY score, id;
SELECT id FROM accounts ORDER BY score / 3, id;
SELECT max(score), min(score) FROM accounts;
SET datestyle = 'SQL, MDY';
SELECT booked, count(*) FROM entries GROUP BY booked ORDER BY booked;
SELECT max(booked), min(booked), count(*) + 1 FROM entries;
SELECT DISTINCT opened::date FROM accounts ORDER BY 1 LIMIT 4;
SELECT opened, count(*) + 0 FROM accounts GROUP BY opened ORDER BY opened LIMIT 3;
SET timezone = 'Asia/Kolkata';
SELECT opened, count(*) FROM accounts GROUP BY opened ORDER BY opened LIMIT 3;
SET bytea_output = 'escape';
SELECT by, count(*) + 0 FROM kitchen GROUP BY by ORDER BY by;
--! end
-- A row without a shard fails the whole INSERT before anything is written.
--! script
BEGIN;
--! no shard
INSERT INTO books VALUES ('9999999990', 'New', 10, 'en'), ('999999999Z', 'Nowhere', 11, 'en');
ROLLBACK;
SELECT count(*) FROM books WHERE isbn = '9999999990';
--! end
-- One time for all shards, under the names that its readers have.
--! script
SELECT now(), id, current_date, current_timestamp(3), localtime(0), localtimestamp, current_time, transaction_timestamp() FROM accounts LIMIT 0;
SELECT now()::date, extract(epoch FROM now()), now() AS other, statement_timestamp(), date_trunc('day', now()) FROM accounts LIMIT 0;
SELECT DISTINCT now() = transaction_timestamp(), current_date = now()::date, localtimestamp = now()::timestamp, localtime(2) = now()::time(2) FROM accounts;
SELECT count(*) FROM (SELECT DISTINCT now(), current_timestamp FROM accounts) x;
SELECT count(*) FROM accounts WHERE opened < now() AND opened < current_date AND opened < localtimestamp;
SELECT count(DISTINCT now()), min(now()) = max(now()) FROM accounts;
SELECT id FROM accounts WHERE opened < pg_catalog.now() - interval '1 day' ORDER BY id LIMIT 3;
BEGIN;
SELECT DISTINCT now() = transaction_timestamp(), statement_timestamp() >= now() FROM accounts;
SELECT count(*) FROM accounts WHERE opened < now();
SELECT min(now()) = max(now()) AS same, now() IS NOT NULL FROM accounts a JOIN orders o ON o.account_id = a.id;
DECLARE c CURSOR FOR SELECT id, now() - now() AS nothing FROM accounts ORDER BY id;
FETCH 2 FROM c;
COMMIT;
--! end
-- Positions of errors are those of the whole text.
--! script

   -- A note.
 CREATE TABLE nobody (id bigint, t nosuch);
   ALTER TABLE nobody ADD COLUMN x nosuch;
--! end
-- Days of far years are in their order.
--! script
BEGIN;
INSERT INTO entries SELECT a, 80, 1, 'fee', d::date FROM (VALUES (1, '20044-02-29'), (2, '2024-01-01'), (3, '0044-03-15 BC'), (4, '5874897-12-31'), (5, 'infinity'), (6, '0001-01-01'), (7, '-infinity')) v (a, d);
UPDATE accounts SET opened = CASE id WHEN 1 THEN '20044-02-29 12:00+00' WHEN 2 THEN '0044-03-15 12:00+00 BC' ELSE 'infinity' END::timestamptz WHERE id < 4;
SELECT account_id, booked FROM entries WHERE n = 80 ORDER BY booked;
SELECT account_id, booked FROM entries WHERE n = 80 ORDER BY booked DESC LIMIT 3;
SELECT booked, count(*) FROM entries WHERE n = 80 GROUP BY booked ORDER BY booked;
SELECT min(booked), max(booked) FROM entries WHERE account_id < 4 AND n = 80;
SELECT id, opened FROM accounts WHERE id < 6 ORDER BY opened, id;
SELECT id FROM accounts ORDER BY opened DESC, id LIMIT 5;
ROLLBACK;
--! end
