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
UPDATE stock SET (n, note) = (SELECT id, v FROM source WHERE source.tenant = stock.id);
UPDATE stock SET (n, note) = (SELECT id, v FROM source WHERE source.id = stock.id + 30);
UPDATE stock SET note = d.nothing FROM deliveries d WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id AND d.n > 5);
-- Several values of one sub-select.
UPDATE stock SET (n, note) = (SELECT id, v FROM source WHERE source.id = stock.id);
--! any order
UPDATE stock AS s SET (note, n) = (SELECT string_agg(v, ',' ORDER BY v), count(*) FROM source WHERE tenant = s.id % 7), id = s.id WHERE s.id < 15 RETURNING *;
UPDATE stock SET note = (SELECT max(v) FROM source WHERE tenant = stock.id), (n) = ROW(n + (SELECT count(*) FROM source WHERE tenant = stock.id)) WHERE id > 3;
UPDATE stock SET (n, note) = (n + 1, (SELECT max(v) FROM source WHERE tenant = stock.id)) WHERE id < 9;
UPDATE stock SET (n, note) = (DEFAULT, (SELECT max(v) FROM source WHERE tenant = stock.id)) WHERE id > 100;
--! 5 | x
--! 900 | NULL
UPDATE stock SET (n, note) = (SELECT count(*) + $1, max(v) || $2 FROM source WHERE source.tenant = stock.id % 7) WHERE n > $1;
-- Beside other tables.
DELETE FROM stock USING deliveries d WHERE d.id = stock.id + 10 AND EXISTS (SELECT FROM source s WHERE s.tenant = stock.id % 7 AND s.id > d.n / 10);
UPDATE stock SET note = (SELECT max(v) FROM source s WHERE s.tenant = stock.id % 7), n = d.n FROM deliveries d WHERE d.other = stock.id AND d.line = 1;
UPDATE stock SET note = x.v, n = 7 FROM (SELECT * FROM source) x WHERE x.id = stock.id AND NOT EXISTS (SELECT FROM deliveries d WHERE d.other = stock.id);
UPDATE stock SET note = (SELECT v FROM source WHERE source.id = d.id + stock.id - d.id) FROM deliveries d WHERE d.id > 20;
UPDATE stock SET n = stock.n + c.n, note = 'c' FROM kinds k JOIN (VALUES (1, 5), (2, 6)) AS c (id, n) ON c.id = k.id WHERE k.id = stock.id % 3 AND stock.id IN (SELECT id FROM source s WHERE s.tenant = stock.id % 7);
UPDATE stock SET n = g FROM generate_series(3, 8) AS g WHERE g = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id);
UPDATE stock SET (n, note) = (d.n, d.other) FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.id = stock.id + d.line);
--! any order
DELETE FROM stock s USING deliveries d, kinds k WHERE d.other = s.id AND k.id = d.line AND NOT EXISTS (SELECT FROM source o WHERE o.tenant = s.id AND o.id > 38) RETURNING s.id, d.n, k.name AS kind, d.n + s.n AS sum, note;
--! any order
UPDATE stock SET note = d.n FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING stock.id, note, other, d.line, stock.n + 1;
--! 3 | 100
--! 900 | NULL
UPDATE stock SET n = d.n + $1, note = 'p' FROM deliveries d WHERE d.other = stock.id AND d.line = 1 AND (SELECT count(*) FROM source WHERE tenant = stock.id % 7) > $1 AND stock.n > $2;
-- Sub-selects of RETURNING.
--! any order
DELETE FROM stock WHERE EXISTS (SELECT FROM source WHERE source.tenant = stock.id) RETURNING (SELECT v FROM source WHERE source.id = stock.id), id;
--! any order
DELETE FROM stock WHERE id < 9 RETURNING id, (SELECT count(*) FROM source WHERE tenant = stock.id) AS c, upper(note);
--! any order
UPDATE stock SET note = 'x' WHERE id < 10 RETURNING id, note, (SELECT max(v) FROM source WHERE source.tenant = stock.id) most, n;
--! 5
DELETE FROM stock WHERE id < $1 RETURNING id + $1, (SELECT count(*) + $1 FROM source WHERE tenant = stock.id) AS c;
--! refused
UPDATE stock SET n = n + 1 WHERE id < 10 RETURNING id, (SELECT max(v) FROM source WHERE source.tenant = stock.n);
--! refused
UPDATE stock SET n = n + 1 WHERE id < 10 RETURNING id, (SELECT max(v) FROM source WHERE source.tenant = n);
-- All columns of FROM, which come after the target's.
--! any order
UPDATE stock SET note = d.n FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING *;
--! any order
DELETE FROM stock USING deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING d.*, stock.n, *;
--! any order
DELETE FROM stock USING deliveries d CROSS JOIN kinds WHERE d.other = stock.id AND kinds.id = 1 AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING kinds.*, d.id AS x, d.*, public.stock.*;
--! any order
UPDATE stock SET note = 'a' FROM deliveries d LEFT JOIN source s USING (id) WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING *, s.*;
--! 5
--! any order
UPDATE stock SET note = 'a' FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id + $1) RETURNING *, d.n + $1;
UPDATE stock SET note = 'a' FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id < 0) RETURNING *;
--! refused
UPDATE stock SET note = 'a' FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING public.stock.*, d.*;
--! refused
UPDATE stock SET note = d.n FROM deliveries d WHERE d.other = stock.id AND EXISTS (SELECT FROM source WHERE source.tenant = stock.id % 7 AND source.id > d.id) RETURNING d.n || note;
--! refused
UPDATE stock SET (n, note) = (SELECT count(*), max(v) FROM source WHERE source.tenant = stock.id) FROM deliveries d WHERE d.other = stock.id AND d.n > 5;
-- What is refused.
--! refused
UPDATE stock SET id = (SELECT source.id + 500 FROM source WHERE source.id = stock.id);
--! refused
DELETE FROM loose WHERE EXISTS (SELECT FROM source WHERE source.tenant = loose.n);
--! script
BEGIN;
INSERT INTO source VALUES (1000, 5, 'own');
UPDATE stock SET note = (SELECT max(v) FROM source WHERE source.tenant = stock.id AND source.id > 900);
SELECT id, note FROM stock ORDER BY id;
UPDATE stock SET (n, note) = (SELECT count(*), max(v) FROM source WHERE source.tenant = stock.id) WHERE id < 8;
UPDATE stock SET note = o.v || (SELECT count(*) FROM source WHERE source.tenant = stock.id) FROM source o WHERE o.id = 1000 AND o.tenant = stock.id;
SELECT id, n, note FROM stock ORDER BY id;
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
UPDATE kinds SET (name, is_late) = (SELECT max(v), count(*) > 5 FROM source WHERE source.tenant = kinds.id);
UPDATE kinds SET name = d.n || (SELECT max(v) FROM source WHERE source.tenant = kinds.id) FROM deliveries d WHERE d.id = kinds.id + 11 AND d.line = 1;
--! any order
DELETE FROM kinds USING deliveries d WHERE d.line = kinds.id AND d.id = 40 AND EXISTS (SELECT FROM source WHERE source.tenant = kinds.id) RETURNING kinds.*, d.n;
