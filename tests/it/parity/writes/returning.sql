-- Sub-selects of RETURNING that reach other shards: an INSERT runs first, and they over the rows that it returns.
--! any order
INSERT INTO stock (id, n) VALUES (102, 5), (103, 6) RETURNING id, (SELECT count(*) FROM source WHERE source.tenant = stock.id % 7), n + 1 AS more;
INSERT INTO stock AS s (id, n) VALUES (102, 5) RETURNING *, (SELECT max(v) FROM source WHERE tenant = s.id % 7) AS v;
--! any order
INSERT INTO stock SELECT other + 100, n FROM deliveries WHERE line = 1 RETURNING stock.*, (SELECT v FROM source WHERE source.id = stock.id - 100);
--! any order
INSERT INTO stock (id, n) VALUES (4, 1), (400, 2) ON CONFLICT (id) DO UPDATE SET n = excluded.n RETURNING id, n, (SELECT name FROM kinds WHERE kinds.id = stock.n) AS kind, note;
INSERT INTO stock (id, n) VALUES (4, 1), (5, 2) ON CONFLICT DO NOTHING RETURNING id, (SELECT count(*) FROM source WHERE tenant = stock.id);
--! any order
INSERT INTO stamped (id, note) VALUES (102, 'x'), (103, 'y') RETURNING id, at, EXISTS (SELECT FROM source WHERE tenant = stamped.id % 7 AND v = 'v4'), ARRAY(SELECT o.id FROM source o WHERE o.tenant = stamped.id % 7 ORDER BY 1);
INSERT INTO holidays (id, note) VALUES (102, 'x') RETURNING id, (SELECT count(*) FROM source WHERE tenant = holidays.id % 7);
--! 7 | x
--! 8 | NULL
INSERT INTO stock VALUES (500 + $1, $1, $2), (600, 1, $2) RETURNING id, note || $2, (SELECT count(*) + $1 FROM source WHERE tenant = stock.id % 7);
--! script
BEGIN;
INSERT INTO source VALUES (1000, 5, 'own');
INSERT INTO stock (id, n) VALUES (705, 5), (706, 6) RETURNING id, (SELECT max(v) FROM source WHERE tenant = stock.n AND source.id > 900);
SELECT count(*) FROM stock;
ROLLBACK;
--! end
-- PostgreSQL's own errors: nothing is applied.
INSERT INTO stock (id, n) VALUES (2, 5), (103, 6) RETURNING id, (SELECT count(*) FROM source WHERE tenant = stock.id);
INSERT INTO stock (id, n) VALUES (102, 5), (103, 6) RETURNING id, (SELECT v FROM source WHERE tenant = stock.id % 7);
INSERT INTO stock (id, n) VALUES (102, 5), (103, 6) RETURNING id, (SELECT nothing FROM source WHERE tenant = stock.id % 7);
-- What they might see of the INSERT, and what ON CONFLICT computes of other tables.
--! refused
INSERT INTO stock (id, n) VALUES (102, 5), (103, 6) RETURNING id, (SELECT count(*) FROM stock s WHERE s.n < stock.n);
--! refused
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT count(*) FROM source WHERE source.tenant = stock.id);
--! refused
INSERT INTO stock (id, n) VALUES (2, 5), (3, 6) ON CONFLICT (id) DO UPDATE SET n = (SELECT count(*) FROM source WHERE source.tenant = excluded.id) RETURNING id, (SELECT max(v) FROM source WHERE tenant = stock.id);
