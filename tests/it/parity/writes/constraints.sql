-- SET CONSTRAINTS: on the shards that the transaction is on, and on those that join later.
SET CONSTRAINTS ALL DEFERRED;
SET CONSTRAINTS links_rank, links_parent IMMEDIATE;
SET CONSTRAINTS nothing DEFERRED;
SET CONSTRAINTS links_pkey DEFERRED;
UPDATE links SET rank = 3 - rank;
--! script
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
UPDATE links SET parent = id + 100;
UPDATE links SET parent = NULL WHERE tenant < 4;
SELECT count(*) FROM links WHERE parent IS NOT NULL;
UPDATE links SET parent = NULL;
COMMIT;
--! end
--! script
BEGIN;
SET CONSTRAINTS links_parent DEFERRED;
INSERT INTO links VALUES (50, 2, 1, 1), (51, 2, 1, 1), (52, 2, 1, 1), (53, 2, 1, 1);
INSERT INTO links VALUES (50, 1, NULL, 2), (51, 1, NULL, 2), (52, 1, NULL, 2), (53, 1, NULL, 2);
SET CONSTRAINTS links_parent IMMEDIATE;
UPDATE links SET parent = 9 WHERE tenant = 2;
ROLLBACK;
--! end
--! script
BEGIN;
SET CONSTRAINTS public.links_parent DEFERRED;
UPDATE links SET parent = 9 WHERE tenant = 2;
UPDATE links SET parent = 9 WHERE tenant = 3;
SELECT parent FROM links WHERE tenant = 3 ORDER BY id;
SET CONSTRAINTS ALL IMMEDIATE;
SELECT 1;
ROLLBACK;
--! end
--! script
BEGIN;
UPDATE links SET rank = 7 WHERE tenant = 1 AND id = 1;
SET CONSTRAINTS links_rank DEFERRED;
UPDATE links SET rank = 7 WHERE tenant = 1;
UPDATE links SET rank = 3 - rank WHERE tenant > 3;
UPDATE links SET rank = id WHERE tenant = 1;
COMMIT;
SELECT tenant, id, rank FROM links ORDER BY 1, 2;
--! end
-- With savepoints, which take it back.
--! script
BEGIN;
SAVEPOINT a;
SET CONSTRAINTS links_parent DEFERRED;
UPDATE links SET parent = 9 WHERE tenant = 2;
ROLLBACK TO a;
SAVEPOINT b;
UPDATE links SET parent = 9 WHERE tenant = 2;
ROLLBACK TO b;
UPDATE links SET parent = 9 WHERE tenant = 5;
ROLLBACK;
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
SAVEPOINT a;
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK TO a;
UPDATE links SET parent = 9 WHERE tenant = 6;
UPDATE links SET parent = 9 WHERE tenant = 4;
UPDATE links SET parent = NULL;
COMMIT;
BEGIN;
SET CONSTRAINTS nothing IMMEDIATE;
SELECT 1;
ROLLBACK;
BEGIN;
SELECT count(*) FROM links WHERE tenant = 1;
SET CONSTRAINTS links_pkey DEFERRED;
ROLLBACK;
--! end
-- At the commit.
--! script
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
UPDATE links SET parent = 9 WHERE tenant = 2;
COMMIT;
SELECT count(*) FROM links WHERE parent = 9;
--! end
-- Rows of different lengths, each of which its shard would take.
INSERT INTO stock VALUES (901, 1), (902, 1, 'a'), (903, 1), (904, 1, 'b'), (905, 1);
INSERT INTO stock VALUES (901, 1), (902, abs(1), 'a'), (903, abs(1));
INSERT INTO stock (id, n) VALUES (901, 1), (902, 1, 'a'), (903, 1), (904);
INSERT INTO kinds VALUES (901, 'a'), (902, 'a', true);
SELECT id FROM stock WHERE id > 900;
