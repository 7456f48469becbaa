-- Through a view of one table's columns: as to the table itself, by its key.
INSERT INTO few VALUES (400, 5);
--! any order
INSERT INTO few (n, id) VALUES (5, 400), (6, 401), (7, 402) RETURNING *;
--! any order
INSERT INTO fewer VALUES ('a', 400, 5), (NULL, 401, 6), (DEFAULT, 402, 7) RETURNING id, note;
INSERT INTO fewer (id, n, note) VALUES (400, 5000, 'hidden'), (401, 5, 'y');
INSERT INTO few SELECT other + 100, n FROM deliveries WHERE line = 1;
INSERT INTO fewer SELECT 'from', other + 100, n FROM deliveries WHERE line = 1;
--! any order
INSERT INTO few (id, n) VALUES (4, 1), (400, 2), (5, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.n + few.n RETURNING *;
INSERT INTO few (id, n) VALUES (4, 1), (400, 2) ON CONFLICT DO NOTHING;
UPDATE few SET note = 'x' WHERE id = 4;
--! any order
UPDATE few SET note = note || '!', n = n + 1 WHERE n > 100 RETURNING id, note, few.n;
UPDATE few AS f SET n = d.n FROM deliveries d WHERE d.other = f.id;
UPDATE fewer SET n = (SELECT max(n) FROM deliveries), note = 'hidden' WHERE id IN (SELECT other FROM deliveries);
DELETE FROM few WHERE id = 4;
--! any order
DELETE FROM fewer WHERE n > 150 RETURNING *;
DELETE FROM few USING source s WHERE s.id = few.id AND s.tenant = 3;
--! 7 | x
--! 12 | NULL
UPDATE few SET note = $2, n = n + $1 WHERE id = $1;
--! 500 | 5
--! 501 | 5000
INSERT INTO few VALUES ($1, $2);
--! 500 | 5
--! 501 | 5000
INSERT INTO few (id, n) VALUES ($1, $2), ($1 + 1, 1), (4000, 3);
--! script
BEGIN;
INSERT INTO stock VALUES (600, 2000), (601, 3000), (602, 5);
UPDATE few SET note = 'seen' WHERE id >= 600;
DELETE FROM few WHERE id > 10;
SELECT id, n, note FROM stock ORDER BY id;
SAVEPOINT s;
UPDATE few SET n = 1000 * (id - 5) WHERE id IN (5, 6);
ROLLBACK TO s;
SELECT count(*) FROM few;
COMMIT;
--! end
-- PostgreSQL's own errors: CHECK OPTION, keys, columns that the view does not have.
INSERT INTO few VALUES (400, 5000);
INSERT INTO few VALUES (400, 5), (401, 5000), (402, 6);
INSERT INTO few SELECT other + 100, CASE other WHEN 15 THEN 5000 ELSE 1 END FROM deliveries WHERE line = 1;
UPDATE few SET n = 5000 WHERE id = 4;
UPDATE few SET n = n * 100 WHERE id IN (4, 11) AND n > 100;
INSERT INTO few (id, n) VALUES (4, 1) ON CONFLICT (id) DO UPDATE SET n = 5000;
INSERT INTO few VALUES (4, 1), (400, 2);
INSERT INTO few VALUES (NULL, 1);
INSERT INTO few DEFAULT VALUES;
INSERT INTO few (n) SELECT 1 FROM generate_series(1, 3);
INSERT INTO dated_days (id, n, at) VALUES (1, 2, true);
UPDATE fewer SET nothing = 1;
-- What is refused.
--! refused
WITH gone AS (DELETE FROM few WHERE id > 10 RETURNING id, n) SELECT * FROM gone;
--! refused
UPDATE few SET id = id + 100;
--! refused
INSERT INTO stock_keys VALUES (400, 5), (401, 6);
--! refused
UPDATE stock_notes SET note = 'x';
--! refused
DELETE FROM few_of_few WHERE id > 5;
--! refused
INSERT INTO dated_days VALUES (400, 1), (401, 2), (402, 3);
--! refused
INSERT INTO all_lines (tenant, id, v) VALUES (400, 1, 'a'), (401, 1, 'b');
--! any order
UPDATE all_lines SET v = 'w' WHERE tenant > 7 RETURNING tenant, id, v;
--! refused
UPDATE known_kinds SET name = 'w';
