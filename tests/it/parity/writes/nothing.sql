-- Writes that find nothing to write: PostgreSQL has looked before at what the transaction and the user may.
--! script
BEGIN READ ONLY;
SAVEPOINT s;
INSERT INTO stock SELECT id, 1 FROM source WHERE false;
ROLLBACK TO s;
INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0 RETURNING *;
ROLLBACK TO s;
UPDATE stock SET n = 1 WHERE id < 0 AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
ROLLBACK TO s;
DELETE FROM stock WHERE id < 0 AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
ROLLBACK TO s;
UPDATE stock SET id = id + 100 WHERE id < 0;
ROLLBACK TO s;
UPDATE stock SET id = stock.id + 100 FROM source WHERE stock.id < 0 AND source.id = stock.id;
ROLLBACK TO s;
UPDATE stock SET id = 1000 + stock.id WHERE stock.id < 5 AND (SELECT count(*) FROM source) > 3;
ROLLBACK TO s;
MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries WHERE id < 0) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
ROLLBACK TO s;
MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries WHERE id < 0) d ON stock.id = d.id WHEN MATCHED THEN DELETE;
ROLLBACK TO s;
WITH a AS (DELETE FROM deliveries WHERE id < 0 RETURNING *) INSERT INTO loose SELECT id, n FROM a;
ROLLBACK TO s;
WITH a AS (INSERT INTO loose SELECT other, n FROM deliveries WHERE id < 0 RETURNING *) SELECT * FROM a;
ROLLBACK TO s;
WITH a AS (SELECT count(*) FROM source) INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0;
ROLLBACK TO s;
INSERT INTO stock SELECT other, 1 FROM deliveries;
ROLLBACK TO s;
INSERT INTO stock VALUES (500, (SELECT count(*) FROM source)), (501, 1);
ROLLBACK TO s;
DELETE FROM stock WHERE n > (SELECT max(id) FROM source);
ROLLBACK;
--! end
--! script
BEGIN;
--! runs
SET LOCAL ROLE pg_read_all_data;
--! runs
SELECT count(*) FROM ledger;
SAVEPOINT s;
INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0 RETURNING *;
--! runs
ROLLBACK TO s;
UPDATE stock SET n = 1 WHERE id < 0 AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
--! runs
ROLLBACK TO s;
DELETE FROM stock WHERE id < 0 AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
--! runs
ROLLBACK TO s;
UPDATE stock SET id = id + 100 WHERE id < 0;
--! runs
ROLLBACK TO s;
MERGE INTO stock USING (SELECT DISTINCT other AS id FROM deliveries WHERE id < 0) d ON stock.id = d.id WHEN NOT MATCHED THEN INSERT VALUES (d.id, 1);
--! runs
ROLLBACK TO s;
WITH a AS (INSERT INTO loose SELECT other, n FROM deliveries WHERE id < 0 RETURNING *) SELECT * FROM a;
--! runs
ROLLBACK TO s;
INSERT INTO stock SELECT other, 1 FROM deliveries;
--! runs
ROLLBACK TO s;
WITH a AS (SELECT count(*) FROM source) INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0;
--! runs
ROLLBACK;
--! end
-- A temporary table may be written.
--! script
CREATE TEMPORARY TABLE own (id int);
BEGIN READ ONLY;
INSERT INTO own SELECT other FROM deliveries WHERE id < 0;
INSERT INTO own SELECT other FROM deliveries;
SELECT count(*) FROM own;
COMMIT;
--! end
--! script
SET default_transaction_read_only = on;
INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0;
BEGIN READ WRITE;
INSERT INTO stock SELECT other, 1 FROM deliveries WHERE id < 0;
COMMIT;
--! end
