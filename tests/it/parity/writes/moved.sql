-- The shard key by other tables, and where sub-selects say so.
UPDATE stock SET id = id + 1000 WHERE id IN (SELECT other FROM deliveries);
UPDATE stock SET id = (SELECT max(id) FROM source) + id, note = 'up' WHERE n > (SELECT min(n) FROM deliveries) RETURNING id, note;
UPDATE stock SET id = 2000 + s.id, note = s.v FROM source s WHERE s.id = stock.id AND s.tenant < 4;
UPDATE stock AS t SET id = d.id + 500, n = CASE WHEN t.n IS DISTINCT FROM d.n THEN d.n ELSE 0 END FROM (SELECT other AS id, sum(n) AS n FROM deliveries GROUP BY other) AS d WHERE d.id = t.id;
UPDATE stock SET id = c.new FROM (VALUES (1, 501), (2, 502), (400, 401)) AS c (old, new) WHERE stock.id = c.old;
UPDATE deliveries SET id = k.id * 1000 FROM kinds k WHERE k.id = line AND deliveries.id = 40;
--! 700 | 12
--! 700 | 500
UPDATE stock SET id = stock.id + $1 FROM deliveries d WHERE d.other = stock.id AND d.other > $2;
--! script
BEGIN;
UPDATE stock SET id = source.id + 100 FROM source WHERE source.id = stock.id;
SELECT id, n, note FROM stock ORDER BY id;
ROLLBACK;
--! end
-- What RETURNING has of FROM.
--! any order
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id RETURNING stock.id, s.v;
--! any order
UPDATE stock AS t SET id = t.id + 300, note = d.n FROM deliveries d, kinds k WHERE d.other = t.id AND k.id = d.line RETURNING d.n * 2 AS twice, t.*, k.name || t.n, upper(t.note), line;
--! any order
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id AND s.id < 4 RETURNING s.at, s.v AS "the v";
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id AND s.id > 400 RETURNING s.at, stock.id;
--! 3 | x
--! 300 | NULL
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id AND s.id <= $1 RETURNING stock.id + $1, s.v || $2, s.at;
--! any order
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id RETURNING *;
--! any order
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id RETURNING s.*;
--! any order
UPDATE stock AS t SET id = t.id + 300, note = d.n FROM deliveries d LEFT JOIN kinds k ON k.id = d.line WHERE d.other = t.id RETURNING k.*, d.n * 2 AS twice, *, t.n, t.*, d.n;
UPDATE stock AS t SET id = t.id + 300, note = d.n FROM deliveries d WHERE d.other = t.id AND t.id > 500 RETURNING *;
--! 2
--! any order
UPDATE stock AS t SET id = t.id + 300 FROM deliveries d JOIN source s USING (id) WHERE d.other = t.id AND d.id > $1 RETURNING *, d.n + $1;
-- Beside and inside WITH.
WITH s AS (SELECT other AS id FROM deliveries) UPDATE stock SET id = s.id + 1000 FROM s WHERE s.id = stock.id;
--! any order
WITH s AS (SELECT max(id) AS id FROM source) UPDATE stock SET id = stock.id + s.id FROM s WHERE stock.id > 15 RETURNING stock.id, s.id AS most;
WITH a AS (UPDATE stock SET id = id + 1000 WHERE id > 15 RETURNING id, n) INSERT INTO loose SELECT id, n FROM a;
WITH a AS (UPDATE stock SET id = id + 1000, note = 'moved' WHERE id IN (SELECT other FROM deliveries) RETURNING *) SELECT * FROM a ORDER BY id;
WITH a AS (UPDATE stock SET id = s.id + 1000 FROM source s WHERE s.id = stock.id AND s.tenant = 5 RETURNING stock.id, s.v) SELECT count(*), max(v) FROM a;
WITH a AS (UPDATE stock SET id = 4000 WHERE id > 1000 RETURNING *) SELECT * FROM a;
-- The new key is there: PostgreSQL's own error.
UPDATE stock SET id = 20 FROM source WHERE source.id = stock.id AND source.id = 3;
-- What is refused.
--! refused
UPDATE stock SET id = 2000 + s.id FROM source s WHERE s.id = stock.id RETURNING stock.id + s.id;
--! refused
UPDATE stock SET id = source.id + 1 FROM source WHERE source.id = stock.id;
-- A cast of users' own makes another value of a text than is in a string.
INSERT INTO moods VALUES (1, 'sad'), (2, 'sad'::text), (3, upper('sad')), (4, 'ok');
UPDATE moods SET m = (SELECT v FROM source WHERE source.id = moods.id);
UPDATE moods SET m = 'sad'::text WHERE id < 3;
--! refused
INSERT INTO moods SELECT id + 100, v FROM source;
--! refused
INSERT INTO moods SELECT id + 100, 'sad' FROM source;
--! refused
UPDATE moods SET id = id + 500, m = 'sad'::text WHERE id = 1;
SELECT * FROM moods ORDER BY id;
