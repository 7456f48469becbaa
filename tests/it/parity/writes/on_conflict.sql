-- Sub-selects of ON CONFLICT that name the row in the way, or the one that was to be inserted, over what is on the shard of each.
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6) ON CONFLICT (id) DO UPDATE SET note = (SELECT name FROM kinds WHERE kinds.id = excluded.id - 1);
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6), (14, 7), (400, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT sum(d.n) FROM deliveries d WHERE d.id = stock.id);
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6), (14, 7), (400, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT sum(d.n) FROM deliveries d WHERE d.id = excluded.id) WHERE EXISTS (SELECT FROM deliveries d WHERE d.id = excluded.id AND d.line = 1) RETURNING *;
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6), (400, 1) ON CONFLICT (id) DO UPDATE SET (n, note) = (SELECT d.n, k.name FROM deliveries d JOIN kinds k ON k.id = d.line WHERE d.id = excluded.id);
INSERT INTO stock (id, n) SELECT other, n FROM deliveries WHERE line = 1 ON CONFLICT (id) DO UPDATE SET note = (SELECT name FROM kinds WHERE kinds.id = excluded.id - 11), n = (SELECT sum(d.n) FROM deliveries d WHERE d.id = stock.id);
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT max(s.n) FROM stock s WHERE s.id = excluded.id) RETURNING *, (SELECT count(*) FROM stock s WHERE s.id = stock.id);
INSERT INTO deliveries (id, line, n) VALUES (12, 1, 5), (13, 1, 6), (13, 2, 1) ON CONFLICT (id, line) DO UPDATE SET n = (SELECT s.n FROM stock s WHERE s.id = excluded.id) + excluded.n;
--! 5 | x
--! 7 | NULL
INSERT INTO stock (id, n) VALUES (12, $1), (13, 6) ON CONFLICT (id) DO UPDATE SET note = (SELECT max(d.n) || $2 FROM deliveries d WHERE d.id = excluded.id AND d.line < $1);
INSERT INTO few (id, n) VALUES (12, 5), (13, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT sum(d.n) FROM deliveries d WHERE d.id = excluded.id);
-- PostgreSQL's own errors: nothing is applied.
INSERT INTO stock (id, n) VALUES (2, 5), (40, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT d.n FROM deliveries d WHERE d.id = excluded.id);
INSERT INTO stock (id, n) VALUES (40, 5), (2, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT nothing FROM deliveries d WHERE d.id = excluded.id);
-- Evaluated once, with one value for all rows.
--! script
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6), (4, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT (random() * 1000000)::int);
SELECT count(DISTINCT n) FROM stock WHERE id IN (2, 3, 4);
WITH r AS (SELECT (random() * 1000000)::int AS x) INSERT INTO stock (id, n) VALUES (2, 5), (3, 6), (4, 1) ON CONFLICT (id) DO UPDATE SET n = (SELECT x FROM r);
SELECT count(DISTINCT n) FROM stock WHERE id IN (2, 3, 4);
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6), (4, 1) ON CONFLICT (id) DO UPDATE SET note = (SELECT clock_timestamp()::text);
SELECT count(DISTINCT note) FROM stock WHERE id IN (2, 3, 4);
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6), (4, 1) ON CONFLICT (id) DO UPDATE SET note = (SELECT now()::text);
SELECT count(DISTINCT note) FROM stock WHERE id IN (2, 3, 4);
WITH r AS (SELECT now()::text AS x) INSERT INTO stock (id, n) VALUES (2, 5), (3, 6), (4, 1) ON CONFLICT (id) DO UPDATE SET note = (SELECT x FROM r WHERE excluded.n > 0);
SELECT count(DISTINCT note) FROM stock WHERE id IN (2, 3, 4);
DELETE FROM stock WHERE id IN (2, 3, 4);
--! end
-- Over rows of other shards.
--! refused
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT sum(d.n) FROM deliveries d WHERE d.other = stock.id);
--! refused
INSERT INTO stock (id, n) VALUES (12, 5), (13, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT length(what) FROM ledger WHERE what = excluded.note);
--! refused
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6) ON CONFLICT (id) DO UPDATE SET note = (SELECT now()::text || excluded.n);
