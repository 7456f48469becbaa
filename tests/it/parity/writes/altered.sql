-- Sequences are altered with their transactions.
--! script
ALTER SEQUENCE counted_id_seq RESTART WITH 100;
INSERT INTO counted (tenant) VALUES (1), (2), (3) RETURNING id;
SELECT nextval('counted_id_seq'), lastval();
ALTER SEQUENCE counted_id_seq INCREMENT BY 10;
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
ALTER SEQUENCE counted_id_seq RESTART;
SELECT currval('counted_id_seq');
INSERT INTO counted (tenant) VALUES (4), (2), (3) RETURNING id;
ALTER SEQUENCE counted_id_seq RESTART;
ALTER SEQUENCE counted_id_seq INCREMENT 3 NO CYCLE;
INSERT INTO counted (tenant) VALUES (5), (6) RETURNING id;
ALTER SEQUENCE counted_id_seq INCREMENT -1;
INSERT INTO counted (tenant) VALUES (7), (8) RETURNING id;
ALTER SEQUENCE counted_id_seq INCREMENT 1 START WITH 40;
ALTER SEQUENCE counted_id_seq RESTART;
SELECT nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq START 1 RESTART WITH 500;
--! end
-- Limits.
--! script
ALTER SEQUENCE counted_id_seq RESTART WITH 0;
ALTER SEQUENCE counted_id_seq RESTART WITH -7;
ALTER SEQUENCE counted_id_seq RESTART WITH 2147483648;
ALTER SEQUENCE counted_id_seq RESTART WITH 9999999999999999999;
ALTER SEQUENCE counted_id_seq RESTART WITH 20;
ALTER SEQUENCE counted_id_seq MAXVALUE 10;
ALTER SEQUENCE counted_id_seq MINVALUE 30;
ALTER SEQUENCE counted_id_seq MINVALUE 3 START 3 MAXVALUE 22;
INSERT INTO counted (tenant) VALUES (1), (2), (3) RETURNING id;
INSERT INTO counted (tenant) VALUES (1);
SELECT nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq MAXVALUE 24;
INSERT INTO counted (tenant) VALUES (1) RETURNING id;
SELECT setval('counted_id_seq', 25);
SELECT setval('counted_id_seq', 2);
SELECT setval('counted_id_seq', 3, false), nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq INCREMENT BY -1;
SELECT nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq NO MINVALUE START 5 NO MAXVALUE INCREMENT BY -1;
ALTER SEQUENCE counted_id_seq INCREMENT BY 1 NO MINVALUE START 1 NO MAXVALUE RESTART WITH 600;
ALTER SEQUENCE counted_id_seq INCREMENT BY 0;
ALTER SEQUENCE counted_id_seq CACHE 0;
ALTER SEQUENCE counted_id_seq MINVALUE 10 MAXVALUE 5;
ALTER SEQUENCE counted_id_seq START 5 START 6;
ALTER SEQUENCE counted_id_seq AS text;
SELECT nextval('counted_id_seq');
ALTER SEQUENCE IF EXISTS nothing RESTART;
ALTER SEQUENCE nothing RESTART;
--! end
-- Types: a serial column's sequence has its own, and an identity column's the column's.
--! script
ALTER SEQUENCE counted_id_seq RESTART WITH 2147483646;
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
INSERT INTO counted (tenant) VALUES (3);
ALTER SEQUENCE counted_id_seq AS bigint;
ALTER TABLE counted ALTER COLUMN id TYPE bigint;
INSERT INTO counted (tenant) VALUES (4), (5) RETURNING id;
ALTER SEQUENCE counted_id_seq AS integer;
ALTER SEQUENCE counted_id_seq AS smallint RESTART WITH 32767;
SELECT nextval('counted_id_seq');
SELECT nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq AS integer;
SELECT nextval('counted_id_seq');
DELETE FROM counted;
ALTER TABLE counted ALTER COLUMN id TYPE int;
ALTER SEQUENCE counted_id_seq OWNED BY NONE;
ALTER SEQUENCE counted_id_seq OWNED BY counted.id;
ALTER SEQUENCE counted_id_seq OWNED BY counted.tenant RESTART 7;
ALTER SEQUENCE counted_id_seq OWNED BY counted.id;
INSERT INTO counted (tenant) VALUES (1) RETURNING id;
ALTER SEQUENCE counted_id_seq OWNER TO parity_writer;
--! end
--! script
ALTER SEQUENCE lines_id_seq RESTART WITH 2147483646;
INSERT INTO lines (tenant, v) VALUES (1, 'a'), (2, 'b') RETURNING id;
INSERT INTO lines (tenant, v) VALUES (3, 'c');
ALTER TABLE lines ALTER COLUMN id TYPE bigint;
INSERT INTO lines (tenant, v) VALUES (3, 'c'), (4, 'd') RETURNING id;
ALTER TABLE lines ALTER COLUMN id TYPE smallint;
ALTER TABLE lines ALTER COLUMN id TYPE text;
ALTER TABLE lines ALTER COLUMN id RESTART WITH 50 SET INCREMENT BY 5;
INSERT INTO lines (tenant, v) VALUES (3, 'c'), (4, 'd') RETURNING id;
ALTER TABLE lines ALTER COLUMN id SET MAXVALUE 60;
INSERT INTO lines (tenant, v) VALUES (3, 'c') RETURNING id;
INSERT INTO lines (tenant, v) VALUES (3, 'c') RETURNING id;
ALTER TABLE lines ALTER COLUMN id SET MAXVALUE 50;
ALTER TABLE lines ALTER COLUMN id SET NO MAXVALUE, ALTER id SET START 9;
ALTER TABLE lines ALTER COLUMN id RESTART;
INSERT INTO lines (tenant, v) VALUES (3, 'c') RETURNING id;
DELETE FROM lines WHERE id > 2147483647;
ALTER TABLE lines ALTER COLUMN id TYPE int;
ALTER TABLE lines ALTER COLUMN id SET INCREMENT 1 SET START WITH 1 RESTART WITH 1001;
SELECT nextval('lines_id_seq');
ALTER SEQUENCE lines_id_seq OWNED BY NONE;
ALTER TABLE lines ALTER COLUMN tenant RESTART;
ALTER TABLE lines ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
ALTER TABLE counted ALTER COLUMN id RESTART;
ALTER TABLE counted ALTER COLUMN id SET GENERATED ALWAYS;
ALTER TABLE counted ALTER COLUMN id DROP IDENTITY;
ALTER TABLE counted ALTER COLUMN id DROP IDENTITY IF EXISTS;
ALTER TABLE counted ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY;
--! end
-- Refused.
--! script
BEGIN;
--! refused
ALTER TABLE lines ALTER COLUMN id SET CYCLE;
ROLLBACK;
BEGIN;
--! refused
ALTER TABLE lines ALTER COLUMN id RESTART, ADD COLUMN more int;
ROLLBACK;
BEGIN;
--! refused
ALTER SEQUENCE counted_id_seq CYCLE;
ROLLBACK;
BEGIN;
--! refused
ALTER SEQUENCE counted_id_seq RENAME TO other;
ROLLBACK;
--! end
--! script
ALTER TABLE strict ALTER COLUMN id SET GENERATED BY DEFAULT RESTART WITH 700;
INSERT INTO strict (tenant, id, v) VALUES (1, 7, 'a'), (2, DEFAULT, 'b') RETURNING id;
ALTER TABLE strict ALTER id SET GENERATED ALWAYS;
INSERT INTO strict (tenant, id, v) VALUES (1, 7, 'c');
INSERT INTO strict (tenant, v) VALUES (1, 'c') RETURNING id;
ALTER TABLE strict ALTER id DROP IDENTITY;
INSERT INTO strict (tenant, v) VALUES (1, 'd');
INSERT INTO strict (tenant, id, v) VALUES (1, 8, 'd') RETURNING id;
ALTER TABLE strict ALTER id DROP IDENTITY;
ALTER TABLE strict ALTER id DROP IDENTITY IF EXISTS;
SELECT nextval('strict_id_seq');
ALTER TABLE strict ALTER id ADD GENERATED ALWAYS AS IDENTITY (START 900 INCREMENT 2);
ALTER TABLE strict ALTER id ADD GENERATED ALWAYS AS IDENTITY;
INSERT INTO strict (tenant, v) VALUES (1, 'd'), (2, 'e') RETURNING id;
INSERT INTO strict (tenant, id, v) VALUES (1, 7, 'f');
ALTER SEQUENCE strict_id_seq INCREMENT 1 START 1 RESTART 1001;
--! end
--! simple
--! script
ALTER SEQUENCE counted_id_seq AS bigint RESTART WITH 2147483648;
INSERT INTO counted (tenant) VALUES (3);
INSERT INTO counted VALUES (3);
ALTER SEQUENCE counted_id_seq RESTART WITH 1 AS integer;
--! end
-- In a transaction, and gone back on.
--! script
ALTER SEQUENCE counted_id_seq RESTART WITH 10;
SELECT nextval('counted_id_seq');
BEGIN;
ALTER SEQUENCE counted_id_seq RESTART WITH 50 MAXVALUE 60;
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
SELECT nextval('counted_id_seq'), currval('counted_id_seq'), lastval();
SELECT setval('counted_id_seq', 58);
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
ROLLBACK;
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
BEGIN;
ALTER SEQUENCE counted_id_seq RESTART WITH 50;
INSERT INTO counted (tenant) VALUES (1), (2) RETURNING id;
COMMIT;
INSERT INTO counted (tenant) VALUES (1) RETURNING id;
BEGIN;
INSERT INTO counted (tenant) VALUES (1) RETURNING id;
SAVEPOINT a;
ALTER SEQUENCE counted_id_seq INCREMENT 100;
INSERT INTO counted (tenant) VALUES (1) RETURNING id;
ROLLBACK TO a;
INSERT INTO counted (tenant) VALUES (2) RETURNING id;
ALTER SEQUENCE counted_id_seq INCREMENT 1000;
INSERT INTO counted (tenant) VALUES (3) RETURNING id;
SAVEPOINT b;
ALTER SEQUENCE counted_id_seq INCREMENT 10 RESTART;
INSERT INTO counted (tenant) VALUES (4) RETURNING id;
RELEASE b;
SELECT setval('counted_id_seq', 5, false);
COMMIT;
INSERT INTO counted (tenant) VALUES (5), (6) RETURNING id;
BEGIN;
ALTER SEQUENCE counted_id_seq RESTART WITH 70;
ALTER SEQUENCE counted_id_seq RESTART WITH 0;
ROLLBACK;
INSERT INTO counted (tenant) VALUES (5), (6) RETURNING id;
BEGIN;
ALTER SEQUENCE counted_id_seq RESTART WITH 70 INCREMENT 1;
COPY counted (tenant, v) FROM STDIN;
1	a
2	b
\.
SELECT id, v FROM counted WHERE v IS NOT NULL ORDER BY id;
COMMIT;
SELECT nextval('counted_id_seq');
ALTER SEQUENCE counted_id_seq INCREMENT 1 RESTART;
--! end
--! script
BEGIN;
ALTER SEQUENCE kinds_id_seq RESTART WITH 2000;
INSERT INTO kinds (name) VALUES ('a') RETURNING id;
COMMIT;
INSERT INTO kinds (name) VALUES ('b') RETURNING id;
ALTER SEQUENCE kinds_id_seq RESTART WITH 1001;
--! end
