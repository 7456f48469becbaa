-- Strings that PostgreSQL reads as a time of the transaction: one time for all shards.
--! script
BEGIN;
UPDATE stamped SET at = 'now';
SELECT count(DISTINCT at), bool_and(at = now()) FROM stamped;
UPDATE stamped SET at = 'now'::timestamptz + interval '1 hour', day = 'today', whole = 'now';
SELECT count(DISTINCT at), count(DISTINCT day), bool_and(day = current_date), count(DISTINCT whole), bool_and(whole = now()::timestamp(0)) FROM stamped;
UPDATE stamped SET at = timestamp with time zone 'now', day = CAST('tomorrow' AS date) WHERE day = 'today' AND note <> 'today' AND note IN ('now', 'later');
SELECT count(*), count(DISTINCT at), bool_and(day = current_date + 1) FROM stamped WHERE day > date 'today';
UPDATE stamped SET day = 'yesterday'::date WHERE day BETWEEN 'today' AND 'tomorrow' RETURNING id, day = 'yesterday'::date;
ROLLBACK;
--! end
--! script
BEGIN;
INSERT INTO stamped VALUES (101, 'now', 'today', 'now', 'now'), (102, 'now', 'tomorrow', timestamp 'now', 'today'), (103, 'now'::timestamptz, 'yesterday', 'now'::timestamp, 'x');
SELECT id, at = now(), day - current_date, whole = now()::timestamp(0), note FROM stamped WHERE id > 100;
SELECT count(DISTINCT at), count(DISTINCT whole) FROM stamped WHERE id > 100;
DELETE FROM stamped WHERE at <= 'now' AND note IN ('today', 'now') RETURNING id;
INSERT INTO stamped (id, at) VALUES (101, NULL), (102, NULL), (103, NULL), (104, NULL) ON CONFLICT (id) DO UPDATE SET at = 'now' RETURNING id, at IS NULL;
SELECT count(DISTINCT at) FROM stamped;
ROLLBACK;
--! end
-- Copies of a reference table are the same.
--! script
BEGIN;
INSERT INTO holidays VALUES (101, 'now', 'today', 'today'), (102, 'now', 'tomorrow'::date, 'now');
UPDATE holidays SET at = 'now', note = 'now' WHERE id = 102;
SELECT id, at = now(), day - current_date, note FROM holidays WHERE id > 100;
ROLLBACK;
--! end
-- Reads.
SELECT id FROM stamped WHERE note = 'today' OR note::text IN ('now', 'tomorrow');
SELECT count(*), 'today' AS label FROM stamped WHERE 'now'::timestamptz > '2024-01-01';
-- A statement that is prepared has the time of then.
--! simple
SELECT id, CASE WHEN id > 20 THEN 'today' ELSE 'later' END, 'today'::date = current_date, CAST('now' AS timestamptz) = now() FROM stamped WHERE id > 15;
--! simple
SELECT DISTINCT timestamptz 'now' = now(), 'tomorrow'::date - 'yesterday'::date FROM stamped;
SELECT id, abs(extract(epoch FROM 'now'::timestamp(0) - now()::timestamp(0))) < 60 AS same FROM stamped WHERE day IS NULL OR day < 'today';
-- What cannot be told from a text.
--! refused
UPDATE stamped SET note = coalesce(note, 'today');
--! refused
UPDATE stamped SET day = 'today 10:00';
--! refused
UPDATE stamped SET day = date_trunc('day', timestamp 'today 10:00');
--! refused
UPDATE stamped SET day = lower('[today,tomorrow)'::daterange);
--! refused
INSERT INTO stamped (id, at) SELECT id + 1, 'now' FROM stamped;
-- One shard reads its own.
--! script
BEGIN;
UPDATE stamped SET day = 'today', note = coalesce(note, 'today') WHERE id = 3;
SELECT day = current_date, note FROM stamped WHERE id = 3;
ROLLBACK;
--! end
-- A column that is added has one time for all rows.
--! script
BEGIN;
ALTER TABLE stamped ADD COLUMN added timestamptz DEFAULT now();
SELECT count(DISTINCT added), count(*) FILTER (WHERE added = now()) FROM stamped;
INSERT INTO stamped (id) VALUES (71), (72), (73);
SELECT count(DISTINCT added), count(*) FILTER (WHERE added = now()) FROM stamped;
ROLLBACK;
--! end
--! script
BEGIN;
ALTER TABLE stamped ADD COLUMN added date NOT NULL DEFAULT current_date - 1;
SELECT count(*) FROM stamped WHERE added = current_date - 1;
ROLLBACK;
--! end
-- What is a time once and for all is another one on each shard.
--! script
BEGIN;
--! refused
ALTER TABLE stamped ADD COLUMN added date DEFAULT 'today';
ROLLBACK;
--! end
--! script
BEGIN;
--! refused
ALTER TABLE stamped ALTER COLUMN day SET DEFAULT 'today';
ROLLBACK;
--! end
--! script
BEGIN;
--! refused
ALTER TABLE holidays ADD COLUMN added uuid DEFAULT gen_random_uuid();
ROLLBACK;
--! end
-- Numbers are of all shards, but those of copies; rows that move have two.
--! script
BEGIN;
ALTER TABLE stamped ADD COLUMN added serial, ADD COLUMN counted bigint GENERATED ALWAYS AS IDENTITY (START 10 INCREMENT 3);
SELECT count(added), count(DISTINCT added), min(added) > 0 FROM stamped;
SELECT count(DISTINCT counted), bool_and(counted >= 10 AND counted % 3 = 1) FROM stamped;
ROLLBACK;
--! end
--! script
BEGIN;
--! refused
ALTER TABLE holidays ADD COLUMN added int GENERATED ALWAYS AS IDENTITY;
ROLLBACK;
--! end
--! script
BEGIN;
TRUNCATE items RESTART IDENTITY;
INSERT INTO items (v) VALUES ('first'), ('second') RETURNING id, v;
SELECT lastval(), nextval('items_id_seq');
SELECT id, v FROM items ORDER BY id;
ROLLBACK;
SELECT currval('items_id_seq'), lastval();
INSERT INTO items (v) VALUES ('after') RETURNING id;
--! end
--! script
BEGIN;
TRUNCATE kinds, stamped RESTART IDENTITY CASCADE;
INSERT INTO kinds (name) VALUES ('k'), ('l') RETURNING id;
COPY kinds (name) FROM STDIN;
m
n
\.
SELECT id, name FROM kinds ORDER BY id;
ROLLBACK;
INSERT INTO kinds (name) VALUES ('after') RETURNING id;
--! end
-- A clock that stands still, as tests make it: a function of users that hides PostgreSQL's.
--! script
CREATE SCHEMA stopped;
CREATE FUNCTION stopped.now() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$ SELECT '2001-02-03 04:05:06+00'::timestamptz $$;
CREATE FUNCTION stopped.statement_timestamp() RETURNS timestamptz LANGUAGE sql IMMUTABLE AS $$ SELECT '2001-02-03 04:05:07+00'::timestamptz $$;
SET search_path = stopped, public, pg_catalog;
SELECT now(), statement_timestamp(), count(*) FROM stamped;
SELECT id, now() FROM stamped ORDER BY id;
SELECT count(*) FROM stamped WHERE now() < '2002-01-01' AND pg_catalog.now() > '2002-01-01' AND CURRENT_TIMESTAMP > '2002-01-01';
SELECT now() FROM stamped WHERE id = 1;
SELECT count(*), max(now()) FROM stamped s JOIN holidays h ON h.id <> s.id;
BEGIN;
SELECT count(*), max(now()) FROM stamped s JOIN holidays h ON h.id <> s.id;
SELECT count(*), max(now()), bool_and(CURRENT_DATE > now()) FROM stamped s JOIN holidays h ON h.id <> s.id;
UPDATE stamped SET at = now(), note = statement_timestamp()::text;
SELECT at, note, count(*) FROM stamped GROUP BY at, note;
INSERT INTO stamped VALUES (201, now()), (202, now()), (203, statement_timestamp()), (204, pg_catalog.now() - interval '1 year') RETURNING id, at < '2002-01-01';
INSERT INTO stamped SELECT id + 300, now() FROM stamped WHERE id < 5 RETURNING id, at;
INSERT INTO holidays (id, at) VALUES (205, now()) RETURNING at;
DELETE FROM stamped WHERE at < now() + interval '1 day' AND id > 200 RETURNING id;
ROLLBACK;
-- Defaults mean what they meant when they were made: by this path their functions and operators might be others.
BEGIN;
--! refused
INSERT INTO dated (id) VALUES (901), (902), (903), (904);
ROLLBACK;
BEGIN;
--! refused
INSERT INTO dated (id) SELECT id + 900 FROM stamped;
ROLLBACK;
BEGIN;
--! refused
COPY dated (id) FROM STDIN;
911
912
913
\.
ROLLBACK;
RESET search_path;
DROP SCHEMA stopped CASCADE;
--! end
