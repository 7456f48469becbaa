-- Referenced columns that stay as they are change nothing else.
UPDATE colours SET name = 'c' || id WHERE id < 5;
UPDATE colours SET id = id, note = 'other' WHERE id = 3;
--! 3
UPDATE colours SET id = $1, note = 'other' WHERE id = $1;
INSERT INTO colours VALUES (1, 'one', 'x'), (50, 'fifty', 'y') ON CONFLICT (id) DO UPDATE SET note = excluded.note;
MERGE INTO colours USING (VALUES (1, 'one'), (60, 'sixty')) v (id, note) ON v.id = colours.id WHEN MATCHED THEN UPDATE SET note = v.note WHEN NOT MATCHED THEN INSERT (id, note) VALUES (v.id, v.note);
-- A shard key that an action would change: the row would stay where it is.
--! refused
UPDATE colours SET id = id + 100;
--! refused
UPDATE colours SET id = 100 WHERE id = 1;
--! refused
INSERT INTO colours VALUES (30, 'colour 1', 'x') ON CONFLICT (name) DO UPDATE SET id = excluded.id;
--! refused
MERGE INTO colours USING (VALUES (1, 100)) v (id, new) ON v.id = colours.id WHEN MATCHED THEN UPDATE SET id = v.new;
--! refused
UPDATE shades SET id = 15 WHERE id = 5;
--! refused
DELETE FROM kinds WHERE id = 3;
--! refused
DELETE FROM kinds;
--! refused
MERGE INTO kinds USING (VALUES (1)) v (id) ON v.id = kinds.id WHEN MATCHED THEN DELETE;
--! refused
DELETE FROM sizes WHERE id < 5;
UPDATE kinds SET name = 'k' WHERE id = 1;
-- PostgreSQL's own error: the old key is referred to.
UPDATE kinds SET id = 100 WHERE id = 1;
UPDATE kinds SET id = 100 WHERE id = 15;
UPDATE plain SET id = 100 WHERE id = 9;
UPDATE plain SET id = 100 WHERE id = 1;
DELETE FROM plain WHERE id > 5;
DELETE FROM plain;
-- Other columns change, and rows go, on every shard.
DELETE FROM brands WHERE id = 4;
DELETE FROM brands WHERE id = 3;
UPDATE brands SET id = 100 WHERE id = 5;
DELETE FROM makers WHERE id < 4;
DELETE FROM paints WHERE k = 3;
DELETE FROM paints WHERE v = 'paint' AND k > 20;
--! refused
UPDATE paints SET k = 100 WHERE k = 3;
UPDATE paints SET k = k, v = 'same' WHERE k = 3;
UPDATE paints SET colour = 2 WHERE k < 5;
--! script
BEGIN;
DELETE FROM walls;
DELETE FROM colours WHERE id BETWEEN 6 AND 8;
SELECT count(*) FROM paints;
SELECT count(*) FROM touches;
SELECT count(*) FROM shades;
COMMIT;
--! end
-- Several tables away.
--! script
CREATE OR REPLACE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER logs AFTER DELETE ON touches FOR EACH ROW EXECUTE FUNCTION logs();
ALTER TABLE touches DISABLE TRIGGER logs;
CREATE OR REPLACE FUNCTION logs() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES (TG_TABLE_NAME || ' ' || TG_OP); RETURN NULL; END $$;
ALTER TABLE touches ENABLE TRIGGER logs;
BEGIN;
--! refused
DELETE FROM colours WHERE id = 15;
ROLLBACK;
BEGIN;
--! refused
DELETE FROM paints WHERE k < 10;
ROLLBACK;
DELETE FROM makers WHERE id = 5;
UPDATE paints SET v = 'x' WHERE k < 10;
DROP TRIGGER logs ON touches;
--! end
--! script
BEGIN;
--! refused
CREATE TRIGGER logs AFTER DELETE ON makes FOR EACH ROW EXECUTE FUNCTION logs();
ROLLBACK;
CREATE TRIGGER logs AFTER DELETE ON notes FOR EACH ROW EXECUTE FUNCTION logs();
DELETE FROM makers WHERE id = 6;
DELETE FROM notes WHERE id = 7;
DROP TRIGGER logs ON notes;
--! end
