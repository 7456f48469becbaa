-- Sub-selects that name the outer row and reach other shards: a query chooses the rows and computes their values.
UPDATE stock SET note = (SELECT max(v) FROM source WHERE source.tenant = stock.id);
UPDATE stock s SET n = s.n + 1, note = (SELECT string_agg(v, ',' ORDER BY v) FROM source WHERE tenant = s.id), n2 = 1;
UPDATE stock s SET n = s.n + 1, note = (SELECT string_agg(v, ',' ORDER BY v) FROM source WHERE tenant = s.id);
DELETE FROM stock WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.other = stock.id);
DELETE FROM stock WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.other = stock.id) AND n > 100;
--! any order
DELETE FROM stock AS s WHERE EXISTS (SELECT FROM source o WHERE o.id = s.n / 10 + 1 AND o.tenant > 2) RETURNING *;
--! any order
UPDATE stock SET note = upper(note), n = n + (SELECT count(*) FROM source o WHERE o.tenant = stock.id % 7) WHERE n > 150 RETURNING *, note || '!', (SELECT 5);
UPDATE stock SET n = DEFAULT WHERE id IN (SELECT other FROM deliveries d WHERE d.n = stock.n);
UPDATE stock SET n = 5, note = DEFAULT WHERE id IN (SELECT other FROM deliveries d WHERE d.n > stock.n);
DELETE FROM deliveries d WHERE EXISTS (SELECT FROM deliveries e WHERE e.other = d.other AND (e.id, e.line) < (d.id, d.line));
DELETE FROM lines WHERE (SELECT count(*) FROM source WHERE source.id = lines.tenant + 30) = 0;
UPDATE lines SET v = v || (SELECT v FROM source WHERE source.id = lines.tenant);
UPDATE stock SET n = (SELECT count(*) FROM stock s WHERE s.n <= stock.n);
UPDATE stock SET note = (SELECT v FROM source WHERE source.id = stock.id + 100);
UPDATE stock SET note = NULL WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id AND source.v IS NULL);
UPDATE stock SET note = 'x' WHERE n IN (SELECT id * 10 FROM source WHERE source.tenant = stock.id % 7) -- to the end
;
--! 3 | 50
--! 900 | 5
UPDATE stock SET n = n + $1, note = (SELECT max(v) || $2 FROM source WHERE tenant = stock.id % 7) WHERE n > $2::int AND (SELECT count(*) FROM source WHERE source.id = stock.id) = 1;
--! any order
--! 6
DELETE FROM stock WHERE n > (SELECT max(id) * $1 FROM source WHERE source.tenant = stock.id % 7) RETURNING id, n - $1::int AS less, note;
-- PostgreSQL's own errors: nothing is applied.
UPDATE stock SET note = (SELECT v FROM source WHERE source.tenant = stock.id);
UPDATE stock SET n = (SELECT 7 - id FROM source WHERE source.id = stock.id AND source.id < 9) WHERE id < 9;
UPDATE stock SET n = (SELECT nullif(id, 7) FROM source WHERE source.id = stock.id);
UPDATE stock SET n = (SELECT 10 / abs(source.id - 5) FROM source WHERE source.id = stock.id);
UPDATE stock SET note = (SELECT nothing FROM source WHERE source.id = stock.id);
-- What is refused.
--! refused
UPDATE stock SET (n, note) = (SELECT id, v FROM source WHERE source.id = stock.id);
--! refused
UPDATE stock SET id = (SELECT source.id + 500 FROM source WHERE source.id = stock.id);
--! refused
DELETE FROM loose WHERE EXISTS (SELECT FROM source WHERE source.tenant = loose.n);
--! refused
DELETE FROM stock WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id) RETURNING (SELECT v FROM source WHERE source.id = stock.id);
--! script
BEGIN;
INSERT INTO source VALUES (1000, 5, 'own');
UPDATE stock SET note = (SELECT max(v) FROM source WHERE source.tenant = stock.id AND source.id > 900);
SELECT id, note FROM stock ORDER BY id;
SAVEPOINT s;
DELETE FROM stock WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
UPDATE stock SET n = (SELECT 1 / (source.id - 5) FROM source WHERE source.id = stock.id);
ROLLBACK TO s;
DELETE FROM stock WHERE NOT EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
SELECT count(*), sum(n) FROM stock;
COMMIT;
SELECT id, n, note FROM stock ORDER BY id;
PREPARE w(int) AS DELETE FROM stock WHERE (SELECT count(*) FROM source WHERE source.tenant = stock.id) > $1;
EXECUTE w(5);
SELECT id FROM stock ORDER BY id;
--! end
-- A key that two rows may have for a while does not tell which of them is meant.
--! refused
DELETE FROM deferred WHERE EXISTS (SELECT FROM source WHERE source.tenant = deferred.id);
-- Tables that the transaction has locked for itself.
--! script
BEGIN;
TRUNCATE source;
INSERT INTO source VALUES (1, 5, 'own'), (2, 6, NULL), (3, 7, 'more'), (4, 8, 'less');
DELETE FROM deliveries d USING source WHERE source.tenant = d.other;
UPDATE stock SET note = (SELECT max(v) FROM source WHERE source.tenant = stock.id), n = (SELECT count(*) FROM source);
INSERT INTO loose SELECT tenant, count(*) FROM source GROUP BY tenant;
UPDATE stock SET note = (SELECT nothing FROM source WHERE source.tenant = stock.id);
ROLLBACK;
BEGIN;
TRUNCATE source;
UPDATE stock SET n = (SELECT count(*) - 1 FROM source WHERE source.tenant = stock.id);
ROLLBACK;
--! end
-- Of a reference table, on every copy.
UPDATE kinds SET name = (SELECT v FROM source WHERE source.id = kinds.id);
DELETE FROM kinds k WHERE NOT EXISTS (SELECT FROM source WHERE source.tenant = k.id AND source.id < 2);
--! any order
UPDATE kinds SET name = name || coalesce((SELECT max(v) FROM source WHERE source.tenant = kinds.id), '-') RETURNING *;
