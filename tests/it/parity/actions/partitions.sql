-- A partition has triggers that the table has not.
--! script
CREATE OR REPLACE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER logs AFTER UPDATE ON loose_2 FOR EACH ROW EXECUTE FUNCTION logs();
ALTER TABLE loose_2 DISABLE TRIGGER logs;
CREATE OR REPLACE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (TG_TABLE_NAME || ' ' || TG_OP); RETURN NULL; END $$;
ALTER TABLE loose_2 ENABLE TRIGGER logs;
BEGIN;
--! refused
UPDATE loose SET v = 'new';
ROLLBACK;
BEGIN;
--! refused
UPDATE loose_2 SET v = 'new';
ROLLBACK;
UPDATE loose_1 SET v = 'new';
DROP TRIGGER logs ON loose_2;
UPDATE loose SET v = 'newer';
--! end
--! script
CREATE OR REPLACE FUNCTION sets_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER sets BEFORE INSERT ON keyed_2 FOR EACH ROW EXECUTE FUNCTION sets_key();
ALTER TABLE keyed_2 DISABLE TRIGGER sets;
CREATE OR REPLACE FUNCTION sets_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.k := NEW.k + 1; RETURN NEW; END $$;
ALTER TABLE keyed_2 ENABLE TRIGGER sets;
BEGIN;
--! refused
INSERT INTO keyed VALUES (30, 1, 'a'), (31, 2, 'b');
ROLLBACK;
BEGIN;
--! refused
INSERT INTO keyed VALUES (31, 2, 'b');
ROLLBACK;
DROP TRIGGER sets ON keyed_2;
INSERT INTO keyed VALUES (30, 1, 'a'), (31, 2, 'b');
--! end
