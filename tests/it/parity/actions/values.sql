-- Defaults of a column's type.
--! script
INSERT INTO dated (k) VALUES (100), (101), (102), (103), (104);
SELECT count(*), count(DISTINCT at) FROM dated;
INSERT INTO dated (k, at) VALUES (110, DEFAULT), (111, DEFAULT), (112, DEFAULT), (113, now());
SELECT count(*), count(DISTINCT at) FROM dated WHERE k >= 110;
INSERT INTO dated (k) SELECT id + 200 FROM plain;
SELECT count(*), count(DISTINCT at) FROM dated WHERE k >= 200;
DELETE FROM dated;
--! end
-- Who finds the row of a copy by what another has, finds it if they are alike.
--! script
INSERT INTO stars (id, name) VALUES (100, 'a');
DELETE FROM stars WHERE size = (SELECT size FROM stars WHERE id = 100);
--! end
--! script
INSERT INTO stars (id, name) SELECT 100 + id, name FROM plain;
DELETE FROM stars WHERE size IN (SELECT size FROM stars WHERE id > 100);
--! end
--! script
INSERT INTO stars VALUES (100, 'a', DEFAULT), (101, 'b', DEFAULT) ON CONFLICT DO NOTHING;
DELETE FROM stars WHERE size IN (SELECT size FROM stars WHERE id >= 100);
--! end
--! script
BEGIN;
--! refused
ALTER TABLE goods ADD COLUMN moment moment;
ROLLBACK;
--! end
-- What each server has of its own.
--! refused
UPDATE plain SET name = current_catalog;
--! refused
UPDATE plain SET name = own_name();
--! refused
UPDATE plain SET name = own_time();
UPDATE plain SET name = doubled(name);
--! refused
UPDATE plain SET name = 'log'::regclass::oid;
--! refused
UPDATE plain SET name = 'log'::regclass::oid::int8;
--! refused
UPDATE plain SET name = current_setting('port');
UPDATE plain SET name = current_setting('datestyle');
--! refused
SELECT k, current_catalog FROM loose;
--! count only
SELECT DISTINCT own_name() FROM loose;
SELECT k, current_setting('port') FROM loose;
--! count only
SELECT DISTINCT 'log'::regclass::oid FROM loose;
SELECT k, current_setting('datestyle'), doubled(v) FROM loose;
-- Tables that an aggregate, a cast or a check reads.
SELECT k, counting(n) FROM loose GROUP BY k;
SELECT k, 'x'::text::flavour FROM loose;
SELECT k, k::checked FROM loose;
-- Columns that are never given.
--! simple
UPDATE numbered SET id = 50;
--! simple
UPDATE numbered SET id = 50 WHERE id = 1;
--! simple
UPDATE numbered SET v = 'x', w = 'y';
UPDATE numbered SET v = 'x';
--! simple
UPDATE doubles SET k = k + 100, twice = 5;
UPDATE doubles SET k = k + 100;
--! simple
INSERT INTO doubles (k) VALUES (500) ON CONFLICT (k) DO UPDATE SET twice = 7;
--! refused
INSERT INTO drawn SELECT FROM generate_series(1, 3);
--! script
INSERT INTO drawn (v) SELECT NULL FROM generate_series(1, 3);
DELETE FROM drawn;
--! end
